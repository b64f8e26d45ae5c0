//! Programs of element-wise products, as data.
//!
//! A product that is multiplied again need not become a share: a protocol that computes a whole chain may omit the
//! steps that only shares need. Polynomials and powers are chains.

use crate::{Error, MOST_DROPPED, Result, ShareTensor, TruncationMode};

/// A value of a [`Chain`]: an input, or the result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Value {
    /// The input of this number.
    Input(usize),
    /// The result of the step of this number.
    Step(usize),
}

/// A sum of values times public words, and a public word.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sum {
    /// Factors and values.
    pub terms: Vec<(u64, Value)>,
    /// Added to them.
    pub constant: u64,
}

/// `(lhs * rhs + plus) / 2^bits`, element by element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The first factor.
    pub lhs: Sum,
    /// The second factor.
    pub rhs: Sum,
    /// Added before bits are dropped.
    pub plus: Sum,
    /// Bits dropped; 0 for the exact product.
    pub bits: u32,
    /// How.
    pub mode: TruncationMode,
}

/// Element-wise products of tensors of one shape, each of which may take the results of those before.
///
/// ```
/// use mpc_core::{Chain, Plaintext, Protocol, Sum, TruncationMode};
/// use ring_arith::{CpuEngine, Tensor};
///
/// # fn main() -> mpc_core::Result<()> {
/// let mut mpc = Plaintext::new(CpuEngine::new(1));
/// let x = mpc.constant(&Tensor::vector(vec![3 << 20]))?;
/// let mut chain = Chain::new(TruncationMode::Default);
/// let x = chain.input(&x);
/// let square = chain.product(x, x, 20);
/// // x^4 + x
/// let fourth = chain.product_plus(square, square, Sum::of([(1 << 20, x)], 0), 20);
/// let results = mpc.chain(&chain.giving([fourth]))?;
/// assert_eq!(mpc.open(&[&results[0]])?[0].words(), [84 << 20]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Chain<'a, S> {
    /// Tensors of one shape.
    pub inputs: Vec<&'a S>,
    /// Products, each after those that it takes.
    pub steps: Vec<Step>,
    /// The steps whose results are wanted.
    pub results: Vec<usize>,
    mode: TruncationMode,
}

impl From<Value> for Sum {
    fn from(value: Value) -> Self {
        Self { terms: vec![(1, value)], constant: 0 }
    }
}

impl Sum {
    /// A sum of sums with factors, and a constant.
    pub fn combined<'a>(parts: impl IntoIterator<Item = (u64, &'a Self)>, constant: u64) -> Self {
        let mut all = Self { terms: Vec::new(), constant };
        for (factor, part) in parts {
            all.constant = all.constant.wrapping_add(factor.wrapping_mul(part.constant));
            for &(c, value) in &part.terms {
                let c = c.wrapping_mul(factor);
                match all.terms.iter_mut().find(|(_, other)| *other == value) {
                    Some((sum, _)) => *sum = sum.wrapping_add(c),
                    None => all.terms.push((c, value)),
                }
            }
        }
        all
    }

    /// A sum of values with factors, and a constant.
    pub fn of(terms: impl IntoIterator<Item = (u64, Value)>, constant: u64) -> Self {
        Self { terms: terms.into_iter().collect(), constant }
    }
}

impl Step {
    /// True if a value is in any of its sums.
    pub fn takes(&self, value: Value) -> bool {
        let terms = [&self.lhs, &self.rhs, &self.plus].into_iter().flat_map(|sum| &sum.terms);
        terms.into_iter().any(|(_, other)| *other == value)
    }
}

impl<'a, S: ShareTensor> Chain<'a, S> {
    /// A chain without steps, whose products drop bits in a mode.
    pub fn new(mode: TruncationMode) -> Self {
        Self { inputs: Vec::new(), steps: Vec::new(), results: Vec::new(), mode }
    }

    /// The same from here on in another mode.
    pub fn set_mode(&mut self, mode: TruncationMode) {
        self.mode = mode;
    }

    /// The mode in which products drop bits now.
    pub fn mode(&self) -> TruncationMode {
        self.mode
    }

    /// Takes a tensor.
    pub fn input(&mut self, x: &'a S) -> Value {
        self.inputs.push(x);
        Value::Input(self.inputs.len() - 1)
    }

    /// `lhs * rhs / 2^bits`.
    pub fn product(&mut self, lhs: impl Into<Sum>, rhs: impl Into<Sum>, bits: u32) -> Value {
        self.product_plus(lhs, rhs, Sum::default(), bits)
    }

    /// `(lhs * rhs + plus) / 2^bits`.
    pub fn product_plus(
        &mut self,
        lhs: impl Into<Sum>,
        rhs: impl Into<Sum>,
        plus: impl Into<Sum>,
        bits: u32,
    ) -> Value {
        let (lhs, rhs, plus) = (lhs.into(), rhs.into(), plus.into());
        self.steps.push(Step { lhs, rhs, plus, bits, mode: self.mode });
        Value::Step(self.steps.len() - 1)
    }

    /// The chain with the steps whose results are wanted.
    #[must_use]
    pub fn giving(mut self, results: impl IntoIterator<Item = Value>) -> Self {
        let step = |value| match value {
            // An input is no result: `levels` refuses it by this number.
            Value::Input(_) => usize::MAX,
            Value::Step(step) => step,
        };
        self.results = results.into_iter().map(step).collect();
        self
    }

    /// For each step the number of products on the longest path to its result. Steps with the same number share
    /// a round.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a step takes a value that does not come before it, a factor is an empty sum, bits cannot
    /// be dropped, or a result is not a step's. [`Error::Shapes`] if inputs differ in shape.
    pub fn levels(&self) -> Result<Vec<usize>> {
        let wrong = |reason: String| Err(Error::Invalid { op: "chain", reason });
        let Some(first) = self.inputs.first() else { return wrong("there is no input".into()) };
        if let Some(other) = self.inputs.iter().find(|x| x.shape() != first.shape()) {
            let (lhs, rhs) = (first.shape().clone(), other.shape().clone());
            return Err(Error::Shapes { op: "chain", lhs, rhs });
        }
        let mut levels: Vec<usize> = Vec::with_capacity(self.steps.len());
        for (at, step) in self.steps.iter().enumerate() {
            if step.bits > MOST_DROPPED {
                return wrong(format!("cannot drop {} bits; at most {MOST_DROPPED}", step.bits));
            }
            if step.lhs.terms.is_empty() || step.rhs.terms.is_empty() {
                return wrong(format!("a factor of step {at} has no term"));
            }
            let mut level = 0;
            for (_, value) in [&step.lhs, &step.rhs, &step.plus].iter().flat_map(|sum| &sum.terms) {
                level = level.max(match *value {
                    Value::Input(i) if i < self.inputs.len() => 0,
                    Value::Step(i) if i < at => levels[i],
                    value => {
                        return wrong(format!(
                            "step {at} takes {value:?}, which does not come before it"
                        ));
                    }
                });
            }
            levels.push(level + 1);
        }
        match self.results.iter().find(|&&result| result >= self.steps.len()) {
            Some(_) => wrong("a result is not that of a step".into()),
            None => Ok(levels),
        }
    }
}
