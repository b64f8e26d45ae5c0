//! The facts of functions of elements, and of reductions.

use super::{Exactness, Examples, Gradient, OpInfo, ResultFormat, Work};
use crate::graph::op::{Binary, Reduce, Unary};

/// The least result of GELU, SiLU and hard swish is above this.
const DIP: f64 = -0.38;

impl Unary {
    /// The facts of a function of every element.
    pub(crate) fn info(self) -> OpInfo {
        use {Gradient::Zero, Work::Select};
        let exact = OpInfo::exact;
        let integer = |name| OpInfo::integer(name).gradient(Zero);
        let rounded = |name| OpInfo::rounded(name).rounding_operands();
        let approximated = OpInfo::approximated;
        match self {
            Self::Relu => exact("relu").work(Select).from(0.0),
            Self::LeakyRelu(_) => rounded("leaky-relu"),
            Self::Clip(..) => exact("clip").work(Select),
            Self::Sigmoid => approximated("sigmoid", 17.0).results(0.0, 1.0),
            Self::Tanh => approximated("tanh", 16.0).results(-1.0, 1.0),
            Self::Erf => approximated("erf", 17.0).results(-1.0, 1.0),
            Self::Gelu => approximated("gelu", 16.5).from(DIP),
            Self::GeluTanh => approximated("gelu-tanh", 17.0).from(DIP),
            Self::Silu => approximated("silu", 15.0).from(DIP),
            Self::HardSwish => rounded("hard-swish").from(DIP),
            Self::HardSigmoid(..) => rounded("hard-sigmoid").results(0.0, 1.0),
            Self::Elu(_) => approximated("elu", 16.0),
            Self::Selu(..) => approximated("selu", 16.0),
            Self::Softplus => approximated("softplus", 16.0).from(0.0),
            Self::Softsign => approximated("softsign", 16.0).results(-1.0, 1.0),
            // Up to the end of its domain.
            Self::Exp => approximated("exp", 16.0).results(0.0, (1u64 << 17) as f64),
            // Of the least and the largest number that a format has.
            Self::Log => approximated("log", 18.0).results(-20.0, 41.0),
            Self::Sqrt => approximated("sqrt", 18.0).from(0.0),
            // Of the least numbers that there are. A variance has more bits than its root, and is not rounded before.
            Self::InvSqrt => approximated("inverse-sqrt", 18.0)
                .keeping_operands()
                .results(0.0, (1u64 << 14) as f64),
            Self::Damping => {
                approximated("damping", 18.0).keeping_operands().results(0.0, (1u64 << 19) as f64)
            }
            Self::Reciprocal => approximated("reciprocal", 16.0),
            Self::Neg => exact("negate").work(Work::Move),
            Self::Abs => exact("abs").work(Select).from(0.0),
            Self::Sign => integer("sign").work(Select).results(-1.0, 1.0),
            Self::Sin => approximated("sin", 17.0).results(-1.0, 1.0),
            Self::Cos => approximated("cos", 17.0).results(-1.0, 1.0),
            Self::Pow(n) => {
                let info = match n {
                    n if n.fract() == 0.0 && n > 0.0 => rounded("pow"),
                    _ => approximated("pow", 15.0),
                };
                let negative = n.fract() == 0.0 && n % 2.0 != 0.0;
                if negative { info } else { info.from(0.0) }
            }
            Self::Not => integer("not").work(Select).results(0.0, 1.0),
            Self::Floor => integer("floor"),
        }
    }

    /// A bound of the results' magnitudes, for operands of at most this magnitude; infinite where none is known.
    pub(crate) fn most(self, x: f64) -> f64 {
        let most = self.info().most();
        if most.is_finite() {
            return most;
        }
        match self {
            Self::Relu
            | Self::Gelu
            | Self::GeluTanh
            | Self::Silu
            | Self::HardSwish
            | Self::Neg
            | Self::Abs => x,
            Self::LeakyRelu(slope) => x * slope.abs().max(1.0),
            Self::Clip(low, high) => low.map_or(x, f64::abs).max(high.map_or(x, f64::abs)),
            Self::Elu(alpha) => x.max(alpha.abs()),
            Self::Selu(alpha, gamma) => x.max(alpha.abs()) * gamma.abs(),
            Self::Softplus | Self::Floor => x + 1.0,
            Self::Sqrt => x.sqrt(),
            _ => f64::INFINITY,
        }
    }

    /// A bound of the results from below, for operands of at least this number.
    pub(crate) fn least(self, x: f64) -> f64 {
        match self {
            Self::Relu => x.max(0.0),
            Self::Clip(Some(low), _) => low.max(x),
            _ => self.info().results[0],
        }
    }
}

impl Binary {
    /// The facts of a function of two operands.
    pub(crate) fn info(self) -> OpInfo {
        use ResultFormat::{FinestFrom, OfOperand, OfProduct, Planned};
        let selected = |name, exactness, format| {
            OpInfo::new(name, exactness, format)
                .operands(2..=2)
                .examples(Examples::Aligned)
                .work(Work::Select)
        };
        let finest = |name| selected(name, Exactness::Exact, FinestFrom(0));
        let rounded = |name, format| selected(name, Exactness::Rounded, format);
        let truth = |name| {
            let info = selected(name, Exactness::Exact, ResultFormat::Integer);
            info.gradient(Gradient::Zero).results(0.0, 1.0)
        };
        match self {
            Self::Add => finest("add").filling_words(),
            Self::Sub => finest("sub").filling_words(),
            Self::Mul => rounded("mul", OfProduct).filling_words(),
            Self::Div => selected("div", Exactness::Approximated(17.0), Planned)
                .rounding_operands()
                .work(Work::Function),
            Self::Max => finest("max"),
            Self::Min => finest("min"),
            Self::Less => truth("less"),
            Self::LessEqual => truth("less-equal"),
            Self::Greater => truth("greater"),
            Self::GreaterEqual => truth("greater-equal"),
            Self::Equal => truth("equal"),
            Self::And => truth("and"),
            Self::Or => truth("or"),
            Self::Xor => truth("xor"),
            Self::PRelu => rounded("prelu", OfOperand(0)),
        }
    }
}

impl Reduce {
    pub(super) fn info(self, first_axis: usize) -> OpInfo {
        use ResultFormat::{OfProduct, Planned};
        let exact = OpInfo::exact("reduce");
        let new = |exactness, format| OpInfo::new("reduce", exactness, format);
        let info = match self {
            Self::Sum => exact.filling_words(),
            Self::Mean => new(Exactness::Rounded, Planned).filling_words(),
            Self::Max | Self::Min => exact.work(Work::Tournament),
            Self::SumSquare => new(Exactness::Rounded, OfProduct).filling_words().from(0.0),
            Self::L2 => new(Exactness::Approximated(18.0), Planned).from(0.0),
            Self::L1 => exact.from(0.0),
        };
        info.examples(Examples::Along(first_axis))
    }
}
