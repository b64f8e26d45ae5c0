//! Sines and cosines of sums of two angles, of which the dealer and the evaluators each know one.

use mpc_core::angles::{factors, sines_of_mask};
use ring_arith::{Word, WordKernel};

fields! {
    /// The dealer's cosine and sine of its part of the angle, with `t` fraction bits, less left's and right's samples.
    /// The parameter is the angle of one word.
    TrigDealer("trig-dealer") [a, of_left, of_right; 3] params => [2] |t| {
        let [cosine, sine] = sines_of_mask(a * params[0], t);
        [cosine - of_left, sine - of_right]
    }
}

fields! {
    /// Adds an evaluator's share of `c cos(a + b) + s sin(a + b)`, with `t` more fraction bits than the shares and
    /// the evaluators' factors have together. Inputs: the sum so far, `b`, and shares of `cos(a)` and `sin(a)`. Parameters: the angle
    /// of one word, `c` and `s` with 28 fraction bits.
    TrigEvaluator("trig-evaluator") [sum, b, cosine, sine; 4] params => [1] |t| {
        let [along, across] = factors(b * params[0], params[1], params[2], t);
        mutant!("trig sum: of the angles' difference", across = -across);
        [sum + cosine * along + sine * across]
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
}
