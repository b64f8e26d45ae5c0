//! The operands for which a function is right, where these are not all that have an encoding.

use crate::graph::{Op, Unary};

/// The interval in which an operand must lie.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Domain {
    pub low: f64,
    pub high: f64,
}

impl Domain {
    /// The domain of an operation's operand number `at`, at `frac` fraction bits; none if it has no end. As
    /// the functions of `mpc_core` state theirs.
    pub fn of(op: &Op, at: usize, frac: u32) -> Option<Self> {
        let power = |bits: i64| (bits as f64).exp2();
        let frac = i64::from(frac);
        let product = power(62 - 2 * frac);
        let unit = power(-frac);
        match op {
            Op::Unary(f) => match *f {
                Unary::Exp => Some(Self { low: f64::NEG_INFINITY, high: 16.0 * 2f64.ln() }),
                Unary::Log | Unary::InvSqrt => Some(Self { low: unit, high: f64::INFINITY }),
                Unary::Sqrt => Some(Self { low: 0.0, high: f64::INFINITY }),
                Unary::Gelu | Unary::GeluTanh | Unary::Silu => Some(Self::around(power(22))),
                Unary::HardSwish => Some(Self::around(product)),
                Unary::Pow(n) if n.fract() == 0.0 && n >= 2.0 => {
                    Some(Self::around(product.powf(1.0 / n)))
                }
                Unary::Pow(n) if n.fract() != 0.0 => Some(Self { low: 0.0, high: f64::INFINITY }),
                _ => None,
            },
            Op::Binary(crate::graph::Binary::Div) => Some(Self::around(match at {
                0 => power((42 - frac).min(22)),
                _ => power(frac.max(20)),
            })),
            Op::Softmax { .. } => Some(Self::around(power(41))),
            Op::Normalize { .. } => Some(Self::around(power(50 - frac))),
            _ => None,
        }
    }

    fn around(high: f64) -> Self {
        Self { low: -high, high }
    }

    /// Bits by which these values may grow and still lie within; negative if one does not.
    pub fn room(&self, values: &[f64]) -> f64 {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_what_is_left_to_the_nearer_end() {
        let domain = Domain { low: -8.0, high: 16.0 };
        assert_eq!(domain.room(&[1.0, 4.0]), 2.0);
        assert_eq!(domain.room(&[-4.0, 1.0]), 1.0);
        assert_eq!(domain.room(&[32.0]), -1.0);
        let positive = Domain { low: 0.25, high: f64::INFINITY };
        assert_eq!(positive.room(&[0.25, 9.0]), f64::INFINITY);
        assert_eq!(positive.room(&[0.0]), f64::NEG_INFINITY);
    }
}
