//! The functions of `mpc_core::functions` by name, for any protocol.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use mpc_core::{Arg, Protocol, PublicTensor, Result, SecretTensor, functions as f};
use ring_arith::{Bilinear, ConvSpec, Engine, EngineTensor, Shape, Tensor, Window};
use serde::{Deserialize, Serialize};

/// A number or numbers in addition to the operands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Param {
    /// An integer.
    Int(i64),
    /// A real number.
    Float(f64),
    /// Integers.
    Ints(Vec<i64>),
    /// Real numbers.
    Floats(Vec<f64>),
}

/// As NumPy writes them: `3`, `0.5`, `[1, 2]`.
impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => number.fmt(f),
            Self::Float(number) => number.fmt(f),
            Self::Ints(numbers) => write!(f, "{numbers:?}"),
            Self::Floats(numbers) => write!(f, "{numbers:?}"),
        }
    }
}

/// Words that every party knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Known {
    /// The words.
    pub words: Tensor,
    /// Their fraction bits.
    pub frac: u32,
    /// The bits of the largest of them, with its sign.
    pub width: u32,
}

/// Public words as an analysis writes them.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    dims: Vec<usize>,
    words: Vec<i64>,
    frac: u32,
}

impl Known {
    /// Words of these dimensions with `frac` fraction bits.
    ///
    /// # Errors
    /// [`ring_arith::Error`] if there are more or fewer words than the dimensions say.
    pub fn new(dims: Vec<usize>, words: Vec<u64>, frac: u32) -> ring_arith::Result<Self> {
        let largest = words.iter().map(|&word| (word as i64).unsigned_abs()).max().unwrap_or(0);
        let words = Tensor::new(Shape::new(dims)?, words)?;
        Ok(Self { words, frac, width: 65 - largest.leading_zeros() })
    }
}

impl TryFrom<Written> for Known {
    type Error = ring_arith::Error;

    fn try_from(Written { dims, words, frac }: Written) -> ring_arith::Result<Self> {
        Self::new(dims, words.into_iter().map(|word| word as u64).collect(), frac)
    }
}

impl From<Known> for Written {
    fn from(Known { words, frac, .. }: Known) -> Self {
        let dims = words.shape().dims().to_vec();
        Self { dims, words: words.words().iter().map(|&word| word as i64).collect(), frac }
    }
}

/// An operand by its place in the parties' tables, or a public one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operand {
    /// The place of a secret array.
    Secret(u64),
    /// Public numbers.
    Known(Known),
}

/// A call of a function, the same at every party.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// The function, one of [`FUNCTIONS`].
    pub function: String,
    /// Its operands.
    pub operands: Vec<Operand>,
    /// Further numbers by name.
    pub params: BTreeMap<String, Param>,
}

/// Makes the table of functions: [`FUNCTIONS`] has their names, and [`Call::apply`] runs one. In a row `any(i)` is operand
/// number `i`, and `x(i)` the same if it is secret.
macro_rules! functions {
    ($self:ident, $mpc:ident, $args:ident, $any:ident, $x:ident; $($name:literal => $result:expr,)+) => {
        /// The names of all functions.
        pub const FUNCTIONS: &[&str] = &[$($name),+];

        impl Call {
            fn apply<P: Protocol>(
                &$self,
                $mpc: &mut P,
                $args: &[Arg<'_, P>],
            ) -> Result<Vec<SecretTensor<P>>> {
                let $any = |i: usize| $args.get(i).copied().ok_or_else(|| $self.missing(i));
                let $x = |i: usize| match $any(i)? {
                    Arg::Secret(x) => Ok(x),
                    Arg::Public(_) => Err(invalid(format!("operand {i} must be secret"))),
                };
                let result = match $self.function.as_str() {
                    $($name => $result,)+
                    other => Err(invalid(format!("there is no function `{other}`"))),
                };
                Ok(vec![result?])
            }
        }
    };
}

functions! { self, mpc, args, any, x;
    "add" => f::add(mpc, any(0)?, any(1)?),
    "sub" => f::sub(mpc, any(0)?, any(1)?),
    "mul" => f::mul(mpc, any(0)?, any(1)?),
    "matmul" => f::matmul(mpc, any(0)?, any(1)?),
    "div" => f::div(mpc, any(0)?, x(1)?),
    "lt" => f::lt(mpc, any(0)?, any(1)?),
    "le" => f::le(mpc, any(0)?, any(1)?),
    "gt" => f::gt(mpc, any(0)?, any(1)?),
    "ge" => f::ge(mpc, any(0)?, any(1)?),
    "eq" => f::eq(mpc, any(0)?, any(1)?),
    "ne" => f::ne(mpc, any(0)?, any(1)?),
    "select" => f::select(mpc, x(0)?, any(1)?, any(2)?),
    "neg" => f::neg(mpc, x(0)?),
    "not" => f::not(mpc, x(0)?),
    "bitwise" => f::bitwise(mpc, self.bitwise()?, any(0)?, any(1)?),
    "shift_left" => f::shift_left(mpc, x(0)?, self.bits("bits")?),
    "shift_right" => f::shift_right(mpc, x(0)?, self.bits("bits")?),
    "abs" => f::abs(mpc, x(0)?),
    "sign" => f::sign(mpc, x(0)?),
    "is_negative" => f::is_negative(mpc, x(0)?),
    "relu" => f::relu(mpc, x(0)?),
    "relu6" => f::relu6(mpc, x(0)?),
    "leaky_relu" => f::leaky_relu(mpc, x(0)?, self.float("slope")?),
    "clamp" => f::clamp(mpc, x(0)?, Some(self.float("low")?), Some(self.float("high")?)),
    "one_hot" => f::one_hot(mpc, x(0)?, self.size("classes")?),
    "add_scalar" => f::add_scalar(mpc, x(0)?, self.float("c")?),
    "mul_scalar" => f::mul_scalar(mpc, x(0)?, self.float("c")?),
    "mul_scalar_to" => f::mul_scalar_to(mpc, x(0)?, self.float("c")?, self.bits("frac")?),
    "div_scalar" => f::div_scalar(mpc, x(0)?, self.float("c")?),
    "rescale" => f::rescale(mpc, x(0)?, self.bits("frac")?),
    "square" => f::square(mpc, x(0)?),
    "exp" => f::exp(mpc, x(0)?),
    "exp_nonpositive" => f::exp_nonpositive(mpc, x(0)?),
    "log" => f::log(mpc, x(0)?),
    "sin" => f::sin(mpc, x(0)?),
    "cos" => f::cos(mpc, x(0)?),
    "sqrt" => f::sqrt(mpc, x(0)?),
    "inv_sqrt" => f::inv_sqrt(mpc, x(0)?),
    "inv_sqrt_to" => f::inv_sqrt_to(mpc, x(0)?, self.bits("frac")?),
    "reciprocal" => f::reciprocal(mpc, x(0)?),
    "reciprocal_positive" => f::reciprocal_positive(mpc, x(0)?),
    "sigmoid" => f::sigmoid(mpc, x(0)?),
    "tanh" => f::tanh(mpc, x(0)?),
    "silu" => f::silu(mpc, x(0)?),
    "erf" => f::erf(mpc, x(0)?),
    "gelu" => f::gelu(mpc, x(0)?),
    "pow" => f::pow(mpc, x(0)?, self.exponent()?),
    "powf" => f::powf(mpc, x(0)?, self.float("p")?),
    "polynomial" => f::polynomial(mpc, x(0)?, &self.floats("coefficients")?),
    "softmax" => f::softmax(mpc, x(0)?, self.size("axis")?),
    "log_softmax" => f::log_softmax(mpc, x(0)?, self.size("axis")?),
    "normalize" => f::normalize(mpc, x(0)?, self.size("axis")?, self.float("epsilon")?),
    "sum" => f::sum(mpc, x(0)?, &self.sizes("axes")?),
    "mean" => f::mean(mpc, x(0)?, &self.sizes("axes")?),
    "var" => f::var(mpc, x(0)?, &self.sizes("axes")?),
    "norm" => f::norm(mpc, x(0)?, &self.sizes("axes")?),
    "sum_squares" => f::sum_squares(mpc, x(0)?, &self.sizes("axes")?),
    "max" => f::max(mpc, x(0)?, self.size("axis")?),
    "min" => f::min(mpc, x(0)?, self.size("axis")?),
    "argmax" => f::argmax(mpc, x(0)?, self.size("axis")?),
    "argmin" => f::argmin(mpc, x(0)?, self.size("axis")?),
    "sort" => f::sort(mpc, x(0)?, self.size("axis")?),
    "argsort" => f::argsort(mpc, x(0)?, self.size("axis")?),
    "median" => f::median(mpc, x(0)?, self.size("axis")?),
    "quantile" => f::quantile(mpc, x(0)?, &self.floats("q")?, self.size("axis")?),
    "distinct" => f::distinct(mpc, x(0)?, self.size("axis")?),
    "order_statistics" => {
        f::order_statistics(mpc, x(0)?, &self.sizes("places")?, self.size("axis")?)
    },
    "reshape" => f::reshape(mpc, x(0)?, &self.shape()?),
    "broadcast" => f::broadcast(mpc, x(0)?, &self.shape()?),
    "permute" => f::permute(mpc, x(0)?, &self.sizes("axes")?),
    "transpose" => f::transpose(mpc, x(0)?),
    "slice" => {
        let [start, end] = [self.size("start")?, self.size("end")?];
        f::slice(mpc, x(0)?, self.size("axis")?, start, end, self.size("step")?)
    },
    "gather" => f::gather(mpc, x(0)?, self.size("axis")?, &self.sizes("indices")?),
    "gather_at" => f::gather_at(mpc, x(0)?, x(1)?, self.size("axis")?),
    "scatter_add" => f::scatter_add(mpc, x(0)?, x(1)?, self.size("count")?),
    "pad" => f::pad(mpc, x(0)?, &self.sizes("before")?, &self.sizes("after")?),
    "windows" => f::windows(mpc, x(0)?, self.window()?),
    "window_sum" => f::window_sum(mpc, x(0)?, self.window()?),
    "max_pool" => f::max_pool(mpc, x(0)?, self.window()?),
    "conv2d" => f::conv2d(mpc, any(0)?, any(1)?, self.window()?, self.size("groups")?),
    "bilinear" => f::bilinear(mpc, self.bilinear()?, any(0)?, any(1)?),
    "multiply" => self.multiply(mpc, args),
    "constant" => match any(0)? {
        Arg::Public(x) => f::constant(mpc, x),
        Arg::Secret(x) => Ok(x.clone()),
    },
    "gaussian" => {
        let deviation = self.float("deviation")?;
        return f::gaussian(mpc, &[self.shape()?], deviation, self.bits("frac")?);
    },
    "uniform" => f::uniform(mpc, &self.shape()?, self.bits("frac")?),
    "exponential" => f::exponential(mpc, &self.shape()?, self.bits("frac")?),
    "laplace" => f::laplace(mpc, &self.shape()?, self.bits("frac")?),
    "normal" => f::normal(mpc, &self.shape()?, self.bits("frac")?),
    "bernoulli" => f::bernoulli(mpc, x(0)?),
    "coins" => f::coins(mpc, &self.shape()?, self.float("p")?),
    "discrete_laplace" => f::discrete_laplace(mpc, &self.shape()?, self.float("scale")?),
    "discrete_normal" => f::discrete_normal(mpc, &self.shape()?, self.float("deviation")?),
    "weighted_index" => f::weighted_index(mpc, x(0)?),
    "concat" => {
        let xs = (0..args.len()).map(x).collect::<Result<Vec<_>>>()?;
        f::concat(mpc, &xs, self.size("axis")?)
    },
    "relu_all" => {
        let xs = (0..args.len()).map(x).collect::<Result<Vec<_>>>()?;
        return f::relu_all(mpc, &xs);
    },
    "sort_with" => {
        let columns = (1..args.len()).map(x).collect::<Result<Vec<_>>>()?;
        let sorted = f::sort_with(mpc, x(0)?, &columns, self.size("axis")?)?;
        let mut made = vec![sorted.keys, sorted.places];
        made.extend(sorted.columns);
        return Ok(made);
    },
    "shuffle" => {
        let xs = (0..args.len()).map(x).collect::<Result<Vec<_>>>()?;
        return f::shuffle(mpc, &xs);
    },
    "join" => {
        let xs = (0..args.len()).map(x).collect::<Result<Vec<_>>>()?;
        return self.join(mpc, &xs);
    },
    "unique" => {
        let found = f::unique(mpc, x(0)?, self.optional_size("at_most")?)?;
        return Ok(vec![found.values, found.counts, found.distinct]);
    },
    "top_k" => {
        let (largest, places) = f::top_k(mpc, x(0)?, self.size("k")?, self.size("axis")?)?;
        return Ok(vec![largest, places]);
    },
    "top1" => {
        let (largest, place) = f::top1(mpc, x(0)?, self.size("axis")?)?;
        return Ok(vec![largest, place]);
    },
}

impl Call {
    /// True for a function whose runs give other numbers each time: no reference can know the parties' numbers.
    #[must_use]
    pub fn is_random(&self) -> bool {
        let random = [
            "bernoulli",
            "coins",
            "discrete_laplace",
            "discrete_normal",
            "exponential",
            "gaussian",
            "laplace",
            "normal",
            "shuffle",
            "uniform",
            "weighted_index",
        ];
        random.contains(&&self.function[..])
    }

    /// The places of its secret operands.
    pub fn secrets(&self) -> impl Iterator<Item = u64> + '_ {
        self.operands.iter().filter_map(|operand| match operand {
            Operand::Secret(place) => Some(*place),
            Operand::Known(_) => None,
        })
    }

    /// Runs the function at one party. `table` has the secret operands by their places.
    ///
    /// # Errors
    /// [`mpc_core::Error::Invalid`] for an unknown function, or operands that it does not take; those of the protocol.
    pub fn run<P: Protocol>(
        &self,
        mpc: &mut P,
        table: &HashMap<u64, SecretTensor<P>>,
    ) -> Result<Vec<SecretTensor<P>>> {
        let mut known = Vec::new();
        for operand in &self.operands {
            if let Operand::Known(Known { words, frac, width }) = operand {
                let words = mpc.engine().upload(words.clone())?;
                known.push(PublicTensor::<P>::new(words, *frac).with_width(*width));
            }
        }
        let mut next = known.iter();
        let mut args = Vec::with_capacity(self.operands.len());
        for operand in &self.operands {
            args.push(match operand {
                Operand::Secret(id) => Arg::Secret(table.get(id).ok_or_else(|| gone(*id))?),
                Operand::Known(_) => Arg::Public(next.next().ok_or_else(|| gone(0))?),
            });
        }
        self.apply(mpc, &args)
    }

    /// A product and its fused operations: operands are the two factors and, if `plus` is set, an addend.
    fn multiply<P: Protocol>(&self, mpc: &mut P, args: &[Arg<'_, P>]) -> Result<SecretTensor<P>> {
        let [lhs, rhs, rest @ ..] = args else { return Err(self.missing(args.len())) };
        let mut job = f::Multiply::new(self.bilinear()?, *lhs, *rhs);
        if let Some(summand) = rest.first() {
            job = job.plus(*summand);
        }
        if self.flag("relu") {
            job = job.relu();
        }
        if self.params.contains_key("keep") {
            job = job.keep(self.bits("keep")?);
        }
        f::multiply(mpc, &[job])?.pop().ok_or_else(|| mpc_core::Error::unanswered("multiply"))
    }

    /// A join of two tables: operands are the keys of both, then the columns of the left one, then those of the right one.
    fn join<P: Protocol>(
        &self,
        mpc: &mut P,
        operands: &[&SecretTensor<P>],
    ) -> Result<Vec<SecretTensor<P>>> {
        let columns_of_left = self.size("left")?;
        let [left, right, columns @ ..] = operands else { return Err(self.missing(2)) };
        let most = f::JOIN_KEY_BITS + 1;
        let [left, right] =
            [left, right].map(|keys| (*keys).clone().with_width(keys.width().clamp(2, most)));
        let parts = columns.split_at_checked(columns_of_left);
        let (of_left, of_right) = parts.ok_or_else(|| self.missing(2 + columns_of_left))?;
        let left = f::Table { keys: &left, columns: of_left };
        let right = f::Table { keys: &right, columns: of_right };
        let kind = if self.flag("all_left") { f::JoinKind::Left } else { f::JoinKind::Inner };
        let joined = f::join(mpc, &left, &right, kind, self.optional_size("at_most")?)?;
        let columns = joined.left.into_iter().chain(joined.right);
        Ok(columns.chain([joined.matched, joined.pairs]).collect())
    }

    fn bilinear(&self) -> Result<Bilinear> {
        let spec = || -> Result<ConvSpec> {
            Ok(ConvSpec { window: self.window()?, groups: self.size("groups")? })
        };
        Ok(match self.size("op")? {
            0 => Bilinear::Mul,
            1 => Bilinear::MatMul {
                transpose_lhs: self.flag("transpose_lhs"),
                transpose_rhs: self.flag("transpose_rhs"),
            },
            2 => Bilinear::Conv(spec()?),
            3 => Bilinear::ConvInputGrad { spec: spec()?, input: self.pair("input")? },
            4 => Bilinear::ConvWeightGrad(spec()?),
            other => return Err(invalid(format!("there is no product number {other}"))),
        })
    }

    fn window(&self) -> Result<Window> {
        Ok(Window {
            kernel: self.pair("kernel")?,
            stride: self.pair("stride")?,
            padding: self
                .sizes("padding")?
                .try_into()
                .map_err(|_| invalid("`padding` has four numbers: top, left, bottom, right"))?,
            dilation: self.pair("dilation")?,
        })
    }

    fn shape(&self) -> Result<Shape> {
        Ok(Shape::new(self.sizes("shape")?)?)
    }

    fn bitwise(&self) -> Result<f::Bitwise> {
        match self.size("op")? {
            0 => Ok(f::Bitwise::And),
            1 => Ok(f::Bitwise::Or),
            2 => Ok(f::Bitwise::Xor),
            other => Err(invalid(format!("there is no function {other} of bits"))),
        }
    }

    fn exponent(&self) -> Result<i32> {
        let n = self.int("n")?;
        i32::try_from(n).map_err(|_| invalid(format!("the exponent {n} is too large")))
    }

    fn bits(&self, name: &str) -> Result<u32> {
        let bits = self.int(name)?;
        u32::try_from(bits)
            .map_err(|_| invalid(format!("`{name}` is {bits}, not a number of bits")))
    }

    fn flag(&self, name: &str) -> bool {
        matches!(self.params.get(name), Some(Param::Int(set)) if *set != 0)
    }

    fn pair(&self, name: &str) -> Result<[usize; 2]> {
        self.sizes(name)?
            .try_into()
            .map_err(|_| invalid(format!("`{name}` has two numbers: height and width")))
    }

    fn int(&self, name: &str) -> Result<i64> {
        match self.params.get(name) {
            Some(Param::Int(value)) => Ok(*value),
            _ => Err(invalid(format!("`{name}` must be an integer"))),
        }
    }

    fn size(&self, name: &str) -> Result<usize> {
        let value = self.int(name)?;
        usize::try_from(value).map_err(|_| invalid(format!("`{name}` is {value}, below 0")))
    }

    fn optional_size(&self, name: &str) -> Result<Option<usize>> {
        self.params.contains_key(name).then(|| self.size(name)).transpose()
    }

    fn sizes(&self, name: &str) -> Result<Vec<usize>> {
        let Some(Param::Ints(values)) = self.params.get(name) else {
            return Err(invalid(format!("`{name}` must be a list of integers")));
        };
        let size = |&value: &i64| {
            usize::try_from(value)
                .map_err(|_| invalid(format!("`{name}` contains {value}, below 0")))
        };
        values.iter().map(size).collect()
    }

    /// A parameter as a real number.
    ///
    /// # Errors
    /// [`mpc_core::Error::Invalid`] if there is no number of that name.
    pub fn float(&self, name: &str) -> Result<f64> {
        match self.params.get(name) {
            Some(Param::Float(value)) => Ok(*value),
            Some(Param::Int(value)) => Ok(*value as f64),
            _ => Err(invalid(format!("`{name}` must be a number"))),
        }
    }

    fn floats(&self, name: &str) -> Result<Vec<f64>> {
        match self.params.get(name) {
            Some(Param::Floats(values)) => Ok(values.clone()),
            Some(Param::Ints(values)) => Ok(values.iter().map(|&value| value as f64).collect()),
            _ => Err(invalid(format!("`{name}` must be a list of numbers"))),
        }
    }

    fn missing(&self, index: usize) -> mpc_core::Error {
        invalid(format!("`{}` needs an operand {index}", self.function))
    }
}

fn invalid(reason: impl Into<String>) -> mpc_core::Error {
    mpc_core::Error::Invalid { op: "call", reason: reason.into() }
}

fn gone(id: u64) -> mpc_core::Error {
    invalid(format!("secret {id} is not there any more"))
}
