//! The domains and errors that functions of one tensor state, as tests and tables measure them.

mod rows;

use std::fmt;

use net::Party;
use ring_arith::{FracBits, Shape};

use super::{Make, agreed};
use crate::{Protocol, Result, SecretTensor, SplitMix64, TestWorld, functions as f};
pub use rows::{
    COUNTS, EXPONENTIALS, OF_ROWS, exponentials, exponentials_measured, rows, rows_measured,
};

/// The stated accuracy of a function: its domain, and its error bound there in a format.
#[derive(Debug)]
pub struct Stated<P: Protocol> {
    /// The function.
    pub name: &'static str,
    /// The stated error, as the documentation writes it; `u` is a unit in the last place.
    pub bound: &'static str,
    function: fn(&mut P, &SecretTensor<P>) -> Result<SecretTensor<P>>,
    exact: fn(f64) -> f64,
    /// Least and largest argument with some fraction bits.
    domain: fn(u32) -> [f64; 2],
    /// The error allowed.
    error: fn(&At) -> f64,
}

/// A point at which an error is allowed: argument, exact result and fraction bits.
#[derive(Debug)]
pub struct At {
    x: f64,
    y: f64,
    frac: u32,
}

/// The errors of a function over a sample of its domain.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    /// The largest error.
    pub largest: f64,
    /// The largest part of the stated error that is used.
    pub of_bound: f64,
    /// The argument with the largest part of the stated error.
    pub at: f64,
}

impl Measured {
    /// No error yet.
    pub(super) const NONE: Self = Self { largest: 0.0, of_bound: 0.0, at: 0.0 };

    /// Takes an error at `x` into account, beside the error that is allowed there.
    pub(super) fn note(&mut self, x: f64, error: f64, bound: f64) {
        self.largest = self.largest.max(error);
        let of_bound = error / bound;
        // Not a number counts as beyond any bound.
        if of_bound.is_nan() || of_bound > self.of_bound {
            (self.of_bound, self.at) =
                (if of_bound.is_nan() { f64::INFINITY } else { of_bound }, x);
        }
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { largest, of_bound, at } = self;
        write!(f, "largest error 2^{:.1}, {of_bound:.2} of the bound at {at}", largest.log2())
    }
}

impl At {
    /// A unit in the last place.
    fn unit(&self) -> f64 {
        exp2(-(self.frac as i32))
    }

    /// The error that rounding from 20 fraction bits to fewer adds.
    fn rounded(&self) -> f64 {
        if self.frac < 20 { self.unit() } else { 0.0 }
    }

    /// Units in the last place and a relative error.
    fn within(&self, units: f64, relative: f64) -> f64 {
        units * self.unit() + relative * self.y.abs()
    }
}

fn exp2(n: i32) -> f64 {
    2f64.powi(n)
}

/// The largest number of a format, less the bits that functions pad.
fn largest(frac: u32) -> f64 {
    exp2(41.min(61 - frac as i32))
}

fn unit(frac: u32) -> f64 {
    exp2(-(frac as i32))
}

fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The functions of one tensor with a real result.
pub fn functions<P: Protocol>() -> Vec<Stated<P>> {
    let everywhere = |frac| [-largest(frac), largest(frac)];
    // As near to the largest encodable number as f64 can represent.
    let positive = |frac: u32| [unit(frac), exp2(62 - frac as i32) * (1.0 - exp2(-40))];
    vec![
        Stated {
            name: "exp",
            bound: "2^-16 max(1, e^x) + 2^-18, below -14.5 2^-17",
            function: f::exp,
            exact: |x| x.exp().min(65536.0),
            domain: everywhere,
            error: |at| {
                let near = exp2(-16) * at.y.max(1.0) + exp2(-18);
                at.rounded() + if at.x < -14.5 { exp2(-17) } else { near }
            },
        },
        Stated {
            name: "exp_nonpositive",
            bound: "2^-19 max(2^-10, e^x) + u",
            function: f::exp_nonpositive,
            exact: f64::exp,
            domain: |frac| [-largest(frac), 0.0],
            error: |at| exp2(-19) * at.y.max(exp2(-10)) + at.unit().max(exp2(-20)),
        },
        Stated {
            name: "log",
            bound: "3 u + 2^-19",
            function: f::log,
            exact: f64::ln,
            domain: positive,
            error: |at| 3.0 * at.unit() + exp2(-19),
        },
        Stated {
            name: "reciprocal",
            bound: "2^-19.5 / |x| + 2 u",
            function: f::reciprocal,
            exact: |x| 1.0 / x,
            domain: |frac| [-exp2(61 - frac as i32), -2.0 * unit(frac)],
            error: |at| at.within(2.0, 2f64.powf(-19.5)),
        },
        Stated {
            name: "reciprocal_positive",
            bound: "2^-19.5 / x + 2 u",
            function: f::reciprocal_positive,
            exact: |x| 1.0 / x,
            domain: positive,
            error: |at| at.within(2.0, 2f64.powf(-19.5)),
        },
        Stated {
            name: "div",
            bound: "2^-17 |x / y| + 2^-20 (1 + 2 / |y|)",
            function: |mpc, y| {
                let seven = Shape::new([1])?;
                let seven = f::encode(mpc, &seven, &[7.0], FracBits::new(y.frac())?)?;
                f::div(mpc, &seven, y)
            },
            exact: |y| 7.0 / y,
            domain: |frac| {
                let f = frac.max(20) as i32;
                [unit(frac).max(7.5 * exp2(2 * f - 61)), exp2(f.min(61 - frac as i32)) * 0.99]
            },
            error: |at| {
                let unit = at.unit().min(exp2(-20));
                exp2(-17) * at.y + unit * (1.0 + 2.0 / at.x) + at.rounded()
            },
        },
        Stated {
            name: "sqrt",
            bound: "2^-19 sqrt(x) + 1.5 u",
            function: f::sqrt,
            exact: f64::sqrt,
            domain: |frac| [0.0, exp2(61 - frac as i32)],
            error: |at| at.within(1.5, exp2(-19)),
        },
        Stated {
            name: "inv_sqrt",
            bound: "2^-19 / sqrt(x) + 1.5 u",
            function: f::inv_sqrt,
            exact: |x| 1.0 / x.sqrt(),
            domain: positive,
            error: |at| at.within(1.5, exp2(-19)),
        },
        Stated {
            name: "sigmoid",
            bound: "2^-17",
            function: f::sigmoid,
            exact: logistic,
            domain: everywhere,
            error: |at| exp2(-17) + at.rounded(),
        },
        Stated {
            name: "tanh",
            bound: "2^-16",
            function: f::tanh,
            exact: f64::tanh,
            domain: everywhere,
            error: |at| exp2(-16) + at.rounded(),
        },
        Stated {
            name: "silu",
            bound: "2^-15",
            function: f::silu,
            exact: |x| x * logistic(x),
            domain: everywhere,
            error: |at| exp2(-15) + at.rounded(),
        },
        Stated {
            name: "gelu",
            bound: "2^-16.5",
            function: f::gelu,
            exact: |x| x / 2.0 * (1.0 + libm::erf(x / std::f64::consts::SQRT_2)),
            domain: everywhere,
            error: |at| 2f64.powf(-16.5) + at.rounded(),
        },
        Stated {
            name: "gelu_tanh",
            bound: "2^-17",
            function: f::gelu_tanh,
            exact: |x| {
                let curve = x * (1.0 + 0.044715 * x * x) * std::f64::consts::FRAC_2_PI.sqrt();
                x / 2.0 * (1.0 + curve.tanh())
            },
            domain: everywhere,
            error: |at| exp2(-17) + at.rounded(),
        },
        Stated {
            name: "erf",
            bound: "2^-17",
            function: f::erf,
            exact: libm::erf,
            domain: everywhere,
            error: |at| exp2(-17) + at.rounded(),
        },
        Stated {
            name: "sin",
            bound: "2^-18 + 2^(f - 61) |x| + u",
            function: f::sin,
            exact: f64::sin,
            domain: |_| [-exp2(20), exp2(20)],
            error: |at| exp2(-18) + exp2(at.frac as i32 - 61) * at.x.abs() + at.rounded(),
        },
        Stated {
            name: "cos",
            bound: "2^-18 + 2^(f - 61) |x| + u",
            function: f::cos,
            exact: f64::cos,
            domain: |_| [-exp2(20), exp2(20)],
            error: |at| exp2(-18) + exp2(at.frac as i32 - 61) * at.x.abs() + at.rounded(),
        },
        Stated {
            name: "powf 0.7",
            bound: "(2^-15.5 + 0.7 * 2^-17) max(1, x^p)",
            function: |mpc, x| f::powf(mpc, x, 0.7),
            exact: |x| x.powf(0.7),
            domain: |frac| [unit(frac), exp2(21)],
            error: |at| (2f64.powf(-15.5) + 0.7 * exp2(-17)) * at.y.max(1.0) + at.rounded(),
        },
        Stated {
            name: "pow 3",
            bound: "u (2 + 6 max(1, |x|)^3)",
            function: |mpc, x| f::pow(mpc, x, 3),
            exact: |x| x.powi(3),
            domain: |frac| [-1.0, 1.0].map(|sign| sign * exp2((61 - 2 * frac as i32) / 3)),
            error: |at| at.unit() * (2.0 + 6.0 * at.x.abs().max(1.0).powi(3)),
        },
        Stated {
            name: "mul_scalar 1/3",
            bound: "2^-19 |x / 3| + 2 u",
            function: |mpc, x| f::mul_scalar(mpc, x, 1.0 / 3.0),
            exact: |x| x / 3.0,
            domain: |frac| [-exp2(61 - frac as i32), exp2(61 - frac as i32)],
            error: |at| at.within(2.0, exp2(-19)),
        },
        Stated {
            name: "leaky_relu",
            bound: "2^-19 |y| + 2 u",
            function: |mpc, x| f::leaky_relu(mpc, x, 0.01),
            exact: |x| if x < 0.0 { 0.01 * x } else { x },
            domain: |frac| [-exp2(61 - frac as i32), exp2(61 - frac as i32)],
            error: |at| at.within(2.0, exp2(-19)),
        },
        Stated {
            name: "softplus",
            bound: "2^-18 + 4 u",
            function: f::softplus,
            exact: |x| x.max(0.0) + (-x.abs()).exp().ln_1p(),
            domain: everywhere,
            error: |at| exp2(-18) + 4.0 * at.unit(),
        },
        Stated {
            name: "softsign",
            bound: "2^-19.5 + 2 u",
            function: f::softsign,
            exact: |x| x / (1.0 + x.abs()),
            domain: |frac| [-exp2(61 - frac as i32), exp2(61 - frac as i32)],
            error: |at| 2f64.powf(-19.5) + 2.0 * at.unit(),
        },
        Stated {
            name: "elu 0.7",
            bound: "0.7 * 2^-18 + 3 u",
            function: |mpc, x| f::elu(mpc, x, 0.7),
            exact: |x| if x < 0.0 { 0.7 * x.exp_m1() } else { x },
            domain: everywhere,
            error: |at| 0.7 * exp2(-18) + 3.0 * at.unit(),
        },
        Stated {
            name: "hard_sigmoid",
            bound: "2^-19 + 2 u",
            function: |mpc, x| f::hard_sigmoid(mpc, x, 0.2, 0.5),
            exact: |x| (0.2 * x + 0.5).clamp(0.0, 1.0),
            domain: everywhere,
            error: |at| exp2(-19) + 2.0 * at.unit(),
        },
        Stated {
            name: "hard_swish",
            bound: "2^-18 + 2 u",
            function: f::hard_swish,
            exact: |x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
            domain: everywhere,
            error: |at| exp2(-18) + 2.0 * at.unit(),
        },
    ]
}

impl<P: Protocol> Stated<P> {
    /// The least and the largest argument in a format.
    #[must_use]
    pub fn domain(&self, frac: u32) -> [f64; 2] {
        (self.domain)(frac)
    }

    /// Arguments of a format: the ends, numbers near 0 and of all magnitudes.
    fn sample(&self, frac: u32, count: usize) -> Vec<f64> {
        let [low, high] = (self.domain)(frac);
        let unit = unit(frac);
        let mut draw = SplitMix64::new(u64::from(frac));
        let mut real = |low: f64, high: f64| draw.real(low, high);
        let largest = low.abs().max(high.abs());
        let mut values = vec![low, high, 0.0, unit, -unit, 1.0, -1.0];
        while values.len() < count {
            let magnitude = real(unit.log2(), largest.log2()).exp2();
            values.extend([magnitude, -magnitude, real(-25.0, 25.0)]);
        }
        // The result is compared with the function of the encoded number.
        let encoded = values.into_iter().map(|v| (v / unit).round_ties_even() * unit);
        encoded.filter(|v| (low..=high).contains(v)).collect()
    }

    /// The errors over a sample of the domain, in a format.
    ///
    /// # Panics
    /// If a party fails or the parties' results differ.
    pub fn measure(
        &self,
        world: &TestWorld,
        make: impl Make<P>,
        frac: u32,
        count: usize,
    ) -> Measured {
        let values = self.sample(frac, count);
        let (input, function) = (values.clone(), self.function);
        let got = agreed(world, make, move |mpc: &mut P| {
            let mine = (mpc.me() == Party(0)).then_some(&input[..]);
            let format = FracBits::new(frac)?;
            let x = f::input(mpc, Party(0), &Shape::new([input.len()])?, mine, format)?;
            let y = function(mpc, &x)?;
            assert_eq!(y.frac(), frac);
            f::reveal(mpc, &y)
        });
        let mut worst = Measured::NONE;
        for (&x, got) in values.iter().zip(got) {
            let y = (self.exact)(x);
            // A word of more than 53 bits is rounded when it becomes an `f64`.
            let error = (got - y).abs() - y.abs() * f64::EPSILON / 2.0;
            worst.note(x, error.max(0.0), (self.error)(&At { x, y, frac }));
        }
        worst
    }
}
