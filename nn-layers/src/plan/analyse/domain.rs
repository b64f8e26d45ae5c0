//! The operands for which a function is right, where these are not all that have an encoding.

use crate::graph::{Op, Reduce, Unary};

/// The interval in which an operand must lie, and the least magnitude that it must have there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Domain {
    pub low: f64,
    pub high: f64,
    /// 0 where every number within is allowed.
    pub least: f64,
}

/// A comparison of a word with one end of a domain: of `factor * word + offset` with 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    /// 1 or -1.
    pub factor: i64,
    pub offset: i64,
    /// The width of the sum.
    pub width: u32,
    /// True if a negative sum is subtracted from the count. The count of a word is 0 within the domain.
    pub minus: bool,
}

impl End {
    /// The number that a word adds to its count.
    pub fn count(&self, word: i64) -> i32 {
        let negative = self.factor.wrapping_mul(word).wrapping_add(self.offset) < 0;
        i32::from(negative) * if self.minus { -1 } else { 1 }
    }
}

/// Bits that an operand of an inverse has at least: its rounding changes the result by less than a hundredth.
const INVERTED: i64 = 6;

/// Powers by logarithms end at two to this power, as exponentials do.
const LARGEST_POWER: f64 = 16.0;

/// Fraction bits with which functions compute that have fewer.
const FUNCTION: i64 = 20;

impl Domain {
    /// The domain of an operation's operand number `at`, at `frac` fraction bits, of an operand that has `own`; `None`
    /// if the domain is unbounded. As the functions of `mpc_core` state theirs.
    pub fn of(op: &Op, at: usize, frac: u32, own: u32) -> Option<Self> {
        let power = |bits: i64| (bits as f64).exp2();
        let (frac, own) = (i64::from(frac), i64::from(own));
        let product = power(62 - 2 * frac);
        // Of integers each is exact.
        let unit = if own == 0 { power(-frac) } else { power(-frac.min(own)) };
        let fine = power(62 - frac.max(FUNCTION));
        match op {
            Op::Unary(f) => match *f {
                Unary::Exp => Some(Self::between(f64::NEG_INFINITY, 16.0 * 2f64.ln())),
                Unary::Log => Some(Self::between(unit, f64::INFINITY)),
                // It is not rounded before.
                Unary::InvSqrt => {
                    let unit = power(-frac.max(own));
                    Some(Self::between(unit * power(INVERTED - 1), f64::INFINITY))
                }
                Unary::Damping => Some(Self::between(power(-frac.max(own)), f64::INFINITY)),
                Unary::Sqrt => Some(Self::between(0.0, f64::INFINITY)),
                Unary::Sigmoid
                | Unary::Tanh
                | Unary::Erf
                | Unary::Gelu
                | Unary::GeluTanh
                | Unary::Silu
                | Unary::Softplus
                | Unary::Elu(_)
                | Unary::Selu(..)
                    if frac < FUNCTION =>
                {
                    Some(Self::around(fine))
                }
                // Its error grows with it.
                Unary::Sin | Unary::Cos => Some(Self::around(power(54 - frac.max(8)))),
                Unary::Reciprocal => Some(Self::beyond(unit * power(INVERTED))),
                Unary::Pow(n) => power_domain(n, product, unit),
                _ => None,
            },
            Op::Binary(crate::graph::Binary::Div) => Some(match at {
                0 => Self::around(power((42 - frac).min(22))),
                _ => Self {
                    least: unit * power(INVERTED),
                    ..Self::around(power(frac.max(FUNCTION)))
                },
            }),
            // The squares of a window are added up, and the power of the sum must keep digits.
            &Op::Lrn { size, alpha, beta, bias } => {
                let squares = (product / (size as f64).max(1.0)).sqrt().min(product.sqrt() / 2.0);
                let base = power((frac - 5).max(0)).powf(1.0 / beta.abs().max(1e-3)) - bias;
                let digits = (base.max(0.0) / alpha.abs().max(1e-30)).sqrt().max(power(frac - 6));
                Some(Self::around(squares.min(digits)))
            }
            // One square must have an encoding; a group's must together.
            Op::Reduce { kind: Reduce::SumSquare | Reduce::L2, .. } => {
                Some(Self::around(power(62 - own).sqrt()))
            }
            Op::Softmax { .. } => Some(Self::around(power(41).min(fine))),
            Op::Normalize { .. } => Some(Self::around(power(50 - frac))),
            _ => None,
        }
    }

    fn between(low: f64, high: f64) -> Self {
        Self { low, high, least: 0.0 }
    }

    /// Numbers of at least this magnitude.
    fn beyond(least: f64) -> Self {
        Self { least, ..Self::ALL }
    }

    /// Every number.
    pub const ALL: Self = Self { low: f64::NEG_INFINITY, high: f64::INFINITY, least: 0.0 };

    /// The same without the ends that numbers from `low` to `high` keep in any case.
    pub fn open_for(self, low: f64, high: f64) -> Self {
        Self {
            low: if low < self.low { self.low } else { Self::ALL.low },
            high: if high > self.high { self.high } else { Self::ALL.high },
            least: if low < self.least && -high < self.least { self.least } else { 0.0 },
        }
    }

    /// Numbers up to this magnitude.
    pub fn around(high: f64) -> Self {
        Self::between(-high, high)
    }

    /// The same, less by a factor.
    pub fn over(self, factor: f64) -> Self {
        Self { low: self.low / factor, high: self.high / factor, ..self }
    }

    /// The comparisons that find words outside, of words with `frac` fraction bits and a width. Ends beyond what such
    /// words can be are left out.
    pub fn ends(&self, frac: u32, width: u32) -> Vec<End> {
        let own = f64::from(width - 1).exp2();
        let Self { low, high, least } = *self;
        mutant!("domains: the lower end left out", low = f64::NEG_INFINITY);
        mutant!("domains: the upper end left out", high = f64::INFINITY);
        mutant!("domains: numbers near zero allowed", least = 0.0);
        let mut ends = vec![(high, -1, false), (-low, 1, false)];
        if least > 0.0 {
            ends.extend([(-least, 1, false), (least, 1, true)]);
        }
        let mut kept = vec![];
        for (end, factor, minus) in ends {
            let offset = end * f64::from(frac).exp2();
            if offset < own && offset.abs() < 62f64.exp2() {
                let width = (own.max(offset.abs()).log2().ceil() as u32 + 2).min(64);
                kept.push(End { factor, offset: offset as i64, width, minus });
            }
        }
        kept
    }

    /// Bits by which these values may grow and still lie within; negative if one does not.
    pub fn room(&self, values: &[f64]) -> f64 {
        if values.iter().any(|v| v.abs() < self.least) {
            return f64::NEG_INFINITY;
        }
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let above = if high > 0.0 { (self.high / high).log2() } else { f64::INFINITY };
        let below = match low {
            // A domain that begins at zero or above has no room: a value is in it or not.
            low if self.low >= 0.0 && low < self.low => f64::NEG_INFINITY,
            low if low < 0.0 => (self.low / low).log2(),
            _ => f64::INFINITY,
        };
        above.min(below)
    }
}

/// The domain of `x^n`, with the limit of products and the operand's unit.
fn power_domain(n: f64, product: f64, unit: f64) -> Option<Domain> {
    let exponent = n.abs();
    let inverted = unit * (INVERTED as f64).exp2();
    if n.fract() == 0.0 {
        let high = if exponent >= 2.0 { product.powf(1.0 / exponent) } else { f64::INFINITY };
        // The inverse of a power is taken last.
        let least = if n < 0.0 { inverted.powf(1.0 / exponent) } else { 0.0 };
        let domain = Domain { low: -high, high, least };
        return (high.is_finite() || least > 0.0).then_some(domain);
    }
    let roots = exponent < 1.0 && [0.25, 0.5, 0.75].contains(&exponent.fract());
    let by_logarithm = !roots && exponent.fract() != 0.5;
    let end = LARGEST_POWER.exp2().powf(1.0 / exponent);
    // The result is a product of powers.
    let mut high = if n > 0.0 { product.powf(1.0 / exponent) } else { f64::INFINITY };
    let mut low = if n < 0.0 { inverted.powf(1.0 / exponent.ceil()) } else { 0.0 };
    if n < 0.0 && !roots && !by_logarithm {
        // The inverse of a whole power times a root.
        high = product.powf(1.0 / exponent.ceil());
        low = low.max(product.powf(-1.0 / exponent));
    }
    if by_logarithm && n > 0.0 {
        high = high.min(end);
    } else if by_logarithm {
        low = low.max(1.0 / end);
    }
    Some(Domain { low, high: high.min(29f64.exp2()), least: 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_what_is_left_to_the_nearer_end() {
        let domain = Domain { low: -8.0, high: 16.0, least: 0.0 };
        assert_eq!(domain.room(&[1.0, 4.0]), 2.0);
        assert_eq!(domain.room(&[-4.0, 1.0]), 1.0);
        assert_eq!(domain.room(&[32.0]), -1.0);
        let positive = Domain { low: 0.25, high: f64::INFINITY, least: 0.0 };
        assert_eq!(positive.room(&[0.25, 9.0]), f64::INFINITY);
        assert_eq!(positive.room(&[0.0]), f64::NEG_INFINITY);
        assert_eq!(domain.open_for(-8.0, 17.0), Domain { high: 16.0, ..Domain::ALL });
        let inverted = Domain { least: 0.25, ..domain };
        assert_eq!(inverted.room(&[-0.25, 4.0]), 2.0);
        assert_eq!(inverted.room(&[-0.2, 4.0]), f64::NEG_INFINITY);
        assert_eq!(inverted.open_for(0.0, 1.0).least, 0.25);
        assert_eq!(inverted.open_for(0.5, 1.0), Domain::ALL);
    }
}
