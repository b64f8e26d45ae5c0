//! Sums of sines and cosines of words that are a dealer's mask and a word that the others know: what each multiplies.
//!
//! `cos(a + b) = cos(a) cos(b) - sin(a) sin(b)`. The dealer shares `cos(a)` and `sin(a)`, with as many bits as matter, and
//! the others multiply their shares by factors of `b`. Protocols with such words build [`Protocol::trig_sum`] of it.
//!
//! [`Protocol::trig_sum`]: crate::Protocol::trig_sum

use ring_arith::Word;

use crate::{TrigSum, TrigTerm};

/// Fraction bits of [`sine_and_cosine`].
const EXACT: u32 = 30;

/// Fraction bits of the dealer's sines and cosines, if their factor is 1/2 to 1: fewer for smaller factors.
const DEALT: u32 = 21;

/// Fraction bits of the evaluators' factors of them.
const KNOWN: u32 = 23;

/// The fraction bits of the dealer's sines and cosines of a term: each error counts alike in the sum.
#[must_use]
pub fn dealt_bits(term: &TrigTerm) -> u32 {
    let factor = term.cosine.unsigned_abs().max(term.sine.unsigned_abs());
    let magnitude = 64 - factor.leading_zeros();
    (DEALT + magnitude).saturating_sub(TrigSum::FACTOR).clamp(1, KNOWN)
}

/// The bits of a share of such a sine or cosine that matter in a sum of `total` fraction bits.
#[must_use]
pub fn share_bits(term: &TrigTerm, total: u32) -> u32 {
    64 - (total - KNOWN - dealt_bits(term))
}

/// Coefficients of `sin(pi/4 u) / u` and `cos(pi/4 u)` by powers of `u^2`, `|u| <= 1`, with [`EXACT`] fraction bits.
/// Errors below `2^-28` and `2^-25`.
const SINE: [i64; 4] = [843_314_854, -86_699_750, 2_673_625, -38_606];
const COSINE: [i64; 4] = [1_073_741_794, -331_168_021, 17_018_717, -342_395];

fn word<W: Word>(value: i64) -> W {
    W::constant(value as u64)
}

/// `-x` where `bit` is 1.
#[inline(always)]
fn negated<W: Word>(x: W, bit: W) -> W {
    (x ^ -bit) + bit
}

#[inline(always)]
fn polynomial<W: Word>(square: W, [k, a, b, c]: [i64; 4]) -> W {
    let step = |sum: W, next: i64| (sum * square).sar(EXACT) + word(next);
    step(step(step(word(c), b), a), k)
}

/// Sine and cosine of an angle in units of `2^-64` of a turn, with [`EXACT`] fraction bits and an error below `2^-24`.
/// Integers alone: all parties compute the same bits.
#[inline(always)]
fn sine_and_cosine<W: Word>(angle: W) -> [W; 2] {
    // The nearest quarter turn, and the rest: an eighth of a turn is 2^30.
    let ahead = angle + W::constant(1 << 61);
    let quarter = ahead.shr(62);
    let rest = (ahead & W::constant(u64::MAX >> 2)) - W::constant(1 << 61);
    let rest = rest.sar(61 - EXACT);
    let square = (rest * rest).sar(EXACT);
    let sine = (polynomial(square, SINE) * rest).sar(EXACT);
    let cosine = polynomial(square, COSINE);
    let one = W::constant(1);
    let (odd, half) = (quarter & one, quarter.shr(1));
    let swap = (sine ^ cosine) & -odd;
    [negated(sine ^ swap, half), negated(cosine ^ swap, half ^ odd)]
}

/// `x / 2^bits`, rounded.
#[inline(always)]
fn rounded<W: Word>(x: W, bits: u32) -> W {
    (x + W::constant(1 << (bits - 1))).sar(bits)
}

/// The dealer's cosine and sine of its part of an angle in units of `2^-64` of a turn, with `t` fraction bits:
/// [`dealt_bits`] of its term.
#[inline(always)]
#[must_use]
pub fn sines_of_mask<W: Word>(angle: W, t: u32) -> [W; 2] {
    let [sine, cosine] = sine_and_cosine(angle);
    [rounded(cosine, EXACT - t), rounded(sine, EXACT - t)]
}

/// The factors of the shared `cos(a)` and `sin(a)` in `c cos(a + b) + s sin(a + b)`, for the angle `b` and the factors `c` and `s`
/// of a term. The products have `t` more fraction bits than the shares and the factors have together: 64 less [`share_bits`].
#[inline(always)]
#[must_use]
pub fn factors<W: Word>(angle: W, cosine: W, sine: W, t: u32) -> [W; 2] {
    let [sine_b, cosine_b] = sine_and_cosine(angle);
    let bits = EXACT + TrigSum::FACTOR - KNOWN;
    let along = rounded(cosine * cosine_b + sine * sine_b, bits).shl(t);
    let across = rounded(sine * cosine_b - cosine * sine_b, bits).shl(t);
    [along, across]
}

#[cfg(test)]
mod tests {
    use std::num::Wrapping;

    use super::*;

    #[test]
    fn small_factors_get_few_bits() {
        let bits = |cosine: i64| {
            let term = TrigTerm { turn: 1, cosine, sine: 0 };
            (dealt_bits(&term), share_bits(&term, 58))
        };
        assert_eq!(bits(1 << 28), (22, 51));
        assert_eq!(bits((1 << 28) - 1), (21, 50));
        assert_eq!(bits(-(1 << 20)), (14, 43));
        assert_eq!(bits(1), (1, 30));
        assert_eq!(bits(4 << 28), (KNOWN, 52));
    }

    #[test]
    fn shares_times_factors_are_the_sine_and_cosine_of_the_sum() {
        const TOTAL: u32 = 58;
        let angle =
            |turns: f64| Wrapping((turns * 2f64.powi(40)) as i64 as u64) * Wrapping(1 << 24);
        let wrapping = |factor: i64| Wrapping(factor as u64);
        for (a, b) in [(0.0, 0.0), (0.3, 0.4), (-0.3, 0.11), (0.499, 0.2), (12.25, -7.5)] {
            for (c, s) in [(1.0, 0.0), (0.0, -0.5), (0.7, 1.3)] {
                let fixed = |factor: f64| (factor * 2f64.powi(TrigSum::FACTOR as i32)) as i64;
                let term = TrigTerm { turn: 1, cosine: fixed(c), sine: fixed(s) };
                let t = 64 - share_bits(&term, TOTAL);
                let [cosine, sine] = sines_of_mask(angle(a), dealt_bits(&term));
                let [along, across] =
                    factors(angle(b), wrapping(term.cosine), wrapping(term.sine), t);
                let found = (cosine * along + sine * across).0 as i64 as f64;
                let turn = (a + b) * std::f64::consts::TAU;
                let wanted = c * turn.cos() + s * turn.sin();
                let error = found / 2f64.powi(TOTAL as i32) - wanted;
                assert!(error.abs() < 2f64.powi(-20), "{a} {b} {c} {s}: {error:e}");
            }
        }
    }
}
