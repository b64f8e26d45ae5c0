//! Sines and cosines of angles in parts of a turn, and of sums of two angles.

use mpc_core::{TrigSum, TrigTerm};
use ring_arith::{Word, WordKernel};

/// Fraction bits of [`sine_and_cosine`].
const EXACT: u32 = 30;

/// Fraction bits of the dealer's sines and cosines, if their factor is 1/2 to 1: fewer for smaller factors.
const DEALT: u32 = 21;

/// Fraction bits of the evaluators' factors of them.
const KNOWN: u32 = 23;

/// The fraction bits of the dealer's sines and cosines of a term: each error counts alike in the sum.
pub(crate) fn dealt_bits(term: &TrigTerm) -> u32 {
    let factor = term.cosine.unsigned_abs().max(term.sine.unsigned_abs());
    let magnitude = 64 - factor.leading_zeros();
    (DEALT + magnitude).saturating_sub(TrigSum::FACTOR).clamp(1, KNOWN)
}

/// The bits of a share of such a sine or cosine that matter in a sum of `total` fraction bits.
pub(crate) fn share_bits(term: &TrigTerm, total: u32) -> u32 {
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

fields! {
    /// The dealer's cosine and sine of its part of the angle, with `t` fraction bits, less left's and right's samples.
    /// The parameter is the angle of one word.
    TrigDealer("trig-dealer") [a, of_left, of_right; 3] params => [2] |t| {
        let [sine, cosine] = sine_and_cosine(a * params[0]).map(|x| rounded(x, EXACT - t));
        [cosine - of_left, sine - of_right]
    }
}

fields! {
    /// Adds an evaluator's share of `c cos(a + b) + s sin(a + b)`, with `t` more fraction bits than those of the shares and
    /// [`KNOWN`] have together. Inputs: the sum so far, `b`, and shares of `cos(a)` and `sin(a)`. Parameters: the angle
    /// of one word, `c` and `s` with 28 fraction bits.
    TrigEvaluator("trig-evaluator") [sum, b, cosine, sine; 4] params => [1] |t| {
        let [sine_b, cosine_b] = sine_and_cosine(b * params[0]);
        let known = |x: W| rounded(x, EXACT + TrigSum::FACTOR - KNOWN).shl(t);
        let along = known(params[1] * cosine_b + params[2] * sine_b);
        let across = params[2] * cosine_b - params[1] * sine_b;
        mutant!("trig sum: of the angles' difference", across = -across);
        [sum + cosine * along + sine * known(across)]
    }
}

fields! {
    /// The distance of a word from an end, without its `t` lowest bits. Parameters: 1 or -1, and the end.
    Distance("distance") [b; 1] params => [1] |t| [(b * params[0] + params[1]).shr(t)]
}

#[cfg(test)]
mod tests {
    use ring_arith::{CpuEngine, Shape, Tensor};

    use super::*;
    use crate::runtime::launch::{whole, words};

    #[test]
    fn sines_and_cosines_are_within_two_to_the_minus_24() {
        const FRAC: u32 = 28;
        let angles: Vec<u64> = (0..100_000).map(|i| i * 0x9e37_79b9_7f4a).collect();
        let shape = Shape::new([angles.len()]).unwrap();
        let (a, zeros) = (Tensor::vector(angles.clone()), Tensor::zeros(shape.clone()));
        let sources = [whole(&a), whole(&zeros), whole(&zeros)];
        // 2^16 units for each word: all parts of a turn are met.
        let found = words(&CpuEngine::new(1), &TrigDealer { t: FRAC }, &shape, sources, &[1 << 16]);
        let [cosines, sines] = found.unwrap();
        let mut worst = 0.0f64;
        for ((angle, cosine), sine) in angles.iter().zip(cosines.words()).zip(sines.words()) {
            let part = angle.wrapping_shl(16) as i64 as f64 / 2f64.powi(64);
            let (exact_sine, exact_cosine) = (part * std::f64::consts::TAU).sin_cos();
            let value = |word: u64| word as i64 as f64 / f64::from(1 << FRAC);
            worst = worst.max((value(*sine) - exact_sine).abs());
            worst = worst.max((value(*cosine) - exact_cosine).abs());
        }
        assert!(worst < 2f64.powi(-24), "{worst:e}");
    }

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
}
