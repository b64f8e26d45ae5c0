//! The public factors with which Adam keeps its moments.

use crate::train::options::adam::PARTS;

/// The steps back to which the factor of second moments is followed. Older steps change it by less than `2^-50`, or
/// the second decay is so near 1 that it hardly changes.
const REMEMBERED: f64 = 36.0;
const MOST_REMEMBERED: f64 = 65_536.0;

/// The public factors of the moments in a step.
///
/// First moments `m` are kept as `scale * m`, second ones `v` as `spread * v`. With `r` a multiple of 1/32 next to the
/// first decay `b`, `scale' = scale * r / b` makes `scale' * (b * m + g)` the same as `r * (scale * m) + scale' * g`. The
/// multiples above and below take turns, so that `scale` stays within half a multiple of 1. Squares of these gradients have
/// `scale'^2` as a factor. A part `second` of the second moments is replaced by them so that the result is
/// `spread' * (b2 * v + (1 - b2) * g^2)`. That holds if `1 / spread` follows `1 / scale^2` by the second decay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MomentFactors {
    /// The part of the first moments that continues.
    pub(super) kept: f64,
    /// The factor of first moments.
    pub(super) scale: f64,
    /// The part of the second moments that squares replace.
    pub(super) second: f64,
    /// The factor of second moments.
    pub(super) spread: f64,
}

impl MomentFactors {
    /// The factors of a step, which is counted from 0.
    pub(super) fn at([first, second]: [f64; 2], number: u32) -> Self {
        let (below, above, part) = Self::turns(first);
        if part == 0.0 {
            return Self { kept: below, scale: 1.0, second: 1.0 - second, spread: 1.0 };
        }
        let turns = |steps: f64| (steps * part).round();
        let log = (above / below).ln();
        let inverse = |steps: f64| (2.0 * (steps * part - turns(steps)) * log).exp();
        // Its mean over all steps.
        let mut follower = log.sinh() / log;
        let steps = f64::from(number) + 1.0;
        let most = (REMEMBERED / (1.0 - second)).min(MOST_REMEMBERED).ceil();
        let mut step = (steps - most).max(0.0);
        while step < steps {
            step += 1.0;
            follower = second * follower + (1.0 - second) * inverse(step);
        }
        let up = turns(steps) > turns(steps - 1.0);
        Self {
            kept: if up { above } else { below },
            scale: inverse(steps).sqrt().recip(),
            second: (1.0 - second) * inverse(steps) / follower,
            spread: follower.recip(),
        }
    }

    /// The growth of `spread` in a step.
    pub(super) fn growth(betas: [f64; 2], number: u32) -> f64 {
        let before = Self::at(betas, number.saturating_sub(1));
        Self::at(betas, number).spread / before.spread
    }

    /// The largest growth of `spread`.
    pub(super) fn most_growth(first: f64) -> f64 {
        Self::most(first).powi(4)
    }

    /// The multiples of 1/32 around a decay, and the part of the steps that take the one above.
    fn turns(first: f64) -> (f64, f64, f64) {
        let below = (first * PARTS).floor() / PARTS;
        let above = below + 1.0 / PARTS;
        let part = if below == first { 0.0 } else { (first / below).ln() / (above / below).ln() };
        (below, above, part)
    }

    /// The largest `second`.
    pub(super) fn most_second([first, second]: [f64; 2]) -> f64 {
        (1.0 - second) * Self::most(first).powi(4)
    }

    /// The largest `scale`, and the largest root of `spread`.
    pub(super) fn most(first: f64) -> f64 {
        let (below, above, part) = Self::turns(first);
        if part == 0.0 { 1.0 } else { (above / below).sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_times_their_factors_are_those_of_the_published_formula() {
        for betas in
            [[0.9, 0.999], [0.95, 0.9], [0.8, 0.99], [0.99, 0.999], [0.5, 0.5], [0.04, 0.0]]
        {
            let [mut first, mut second] = [0.0; 2];
            let [mut kept_first, mut kept_second] = [0.0; 2];
            for number in 0..2000 {
                let gradient = (f64::from(number) * 0.7).sin() + 0.3;
                first = betas[0] * first + gradient;
                second = betas[1] * second + (1.0 - betas[1]) * gradient * gradient;
                let factors = MomentFactors::at(betas, number);
                assert_eq!((factors.kept * PARTS).fract(), 0.0);
                assert!(factors.scale <= MomentFactors::most(betas[0]) * (1.0 + 1e-12));
                assert!(factors.spread.sqrt() <= MomentFactors::most(betas[0]) * (1.0 + 1e-12));
                assert!(factors.second <= MomentFactors::most_second(betas) * (1.0 + 1e-12));
                assert!(
                    MomentFactors::growth(betas, number) <= MomentFactors::most_growth(betas[0])
                );
                let joined = factors.scale * gradient;
                kept_first = factors.kept * kept_first + joined;
                kept_second += factors.second * (joined * joined - kept_second);
                let [m, v] = [kept_first / factors.scale, kept_second / factors.spread];
                assert!((m - first).abs() < 1e-9, "{betas:?}, step {number}: {m}, not {first}");
                assert!((v - second).abs() < 1e-9, "{betas:?}, step {number}: {v}, not {second}");
            }
        }
    }
}
