//! Draws from the normal distribution by integers alone: no float is rounded, and no tail is cut.

use ring_arith::Stream;
use zeroize::Zeroizing;

use crate::{Error, Result};

/// Words that are expanded at once.
const BLOCK: usize = 512;

/// The least standard deviation in units: it is rounded up to a whole number of them, which adds less than a
/// millionth.
const LEAST: f64 = (1u64 << 20) as f64;

/// The largest, so that products below fit 128 bits.
const LARGEST: f64 = (1u64 << 56) as f64;

/// The whole part of a deviate never gets here: the probability is below `2^-46000`.
const LARGEST_WHOLE: u64 = 255;

/// A sampler of `N(0, s^2)`, rounded to the nearest integer, over a stream of random words.
///
/// It is Karney's algorithm N: an integer `k` with probability proportional to `exp(-k/2)`, a uniform fraction `x`,
/// and rejections that make the density of `k + x` that of a half-normal. Each rejection compares uniform fractions
/// of 128 bits, by von Neumann's method, without an approximation. A draw is within `2^-118` of the rounded normal
/// distribution in total variation, tails included. It does not use division, logarithms or floats, whose last bits
/// have revealed what noise should hide ([Mir12]).
///
/// The time of a draw depends on random words, among them some that determine the result. Draw all that a message
/// needs before it is sent.
///
/// C. F. F. Karney, [Sampling exactly from the normal distribution](https://arxiv.org/abs/1303.6257), ACM TOMS 42, 2016.
///
/// [Mir12]: https://doi.org/10.1145/2382196.2382264
pub struct Normal {
    stream: Stream,
    /// The position in the stream after the block.
    position: u64,
    block: Zeroizing<Vec<u64>>,
    next: usize,
    /// The standard deviation in units.
    deviation: u64,
}

impl Normal {
    /// A sampler of standard deviation `deviation`, in units; the stream must not serve other uses.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless the deviation is from `2^20` to `2^56` units.
    pub fn new(stream: &Stream, deviation: f64) -> Result<Self> {
        if !(LEAST..=LARGEST).contains(&deviation) {
            let reason = format!(
                "a standard deviation of {deviation} units is not within 2^20 to 2^56: choose \
                 other fraction bits"
            );
            return Err(Error::Invalid { op: "gaussian", reason });
        }
        let block = Zeroizing::new(vec![0; BLOCK]);
        let deviation = deviation.ceil() as u64;
        Ok(Self { stream: stream.clone(), position: 0, block, next: BLOCK, deviation })
    }

    /// The next number, as a word.
    pub fn draw(&mut self) -> u64 {
        let (whole, fraction) = self.half_normal();
        let size = self.scaled(whole, fraction);
        if self.word() & 1 == 0 { size } else { size.wrapping_neg() }
    }

    /// The size of a standard normal deviate: its whole part, and 128 bits of its fraction.
    fn half_normal(&mut self) -> (u64, u128) {
        loop {
            let mut whole = 0;
            while whole < LARGEST_WHOLE && self.inverse_root_of_e() {
                whole += 1;
            }
            // exp(-k (k - 1) / 2)
            let kept = (0..whole * whole.saturating_sub(1)).all(|_| self.inverse_root_of_e());
            if !kept {
                continue;
            }
            let fraction = self.uniform();
            // exp(-x (2k + x) / 2)
            if (0..=whole).all(|_| self.falls(whole, fraction)) {
                return (whole, fraction);
            }
        }
    }

    /// True with probability `exp(-1/2)`.
    fn inverse_root_of_e(&mut self) -> bool {
        let mut last = 1 << 127;
        let mut even = true;
        loop {
            let next = self.uniform();
            if next >= last {
                return even;
            }
            last = next;
            even = !even;
        }
    }

    /// True with probability `exp(-x (2k + x) / (2k + 2))`.
    fn falls(&mut self, whole: u64, fraction: u128) -> bool {
        let mut last = fraction;
        let mut even = true;
        loop {
            let next = self.uniform();
            // (2k + x) / (2k + 2): one of 2k + 2 equal parts, of which one counts in part.
            if next >= last || !self.lies_within(whole, fraction) {
                return even;
            }
            last = next;
            even = !even;
        }
    }

    /// True with probability `(2k + x) / (2k + 2)`.
    fn lies_within(&mut self, whole: u64, fraction: u128) -> bool {
        let parts = u128::from(2 * whole + 2);
        let place = self.uniform();
        let (high, low) = (place >> 64, place & u128::from(u64::MAX));
        let part = (high * parts + ((low * parts) >> 64)) >> 64;
        match part.cmp(&u128::from(2 * whole)) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => self.uniform() < fraction,
            std::cmp::Ordering::Greater => false,
        }
    }

    /// `deviation * (whole + fraction)`, to the nearest integer.
    fn scaled(&self, whole: u64, fraction: u128) -> u64 {
        let deviation = u128::from(self.deviation);
        let (high, low) = (fraction >> 64, fraction & u128::from(u64::MAX));
        let product = high * deviation + ((low * deviation) >> 64);
        let rounded = (product + (1 << 63)) >> 64;
        (u128::from(whole) * deviation + rounded) as u64
    }

    /// A fraction of 128 bits.
    fn uniform(&mut self) -> u128 {
        u128::from(self.word()) << 64 | u128::from(self.word())
    }

    fn word(&mut self) -> u64 {
        if self.next == BLOCK {
            self.stream.fill(self.position, &mut self.block);
            self.position += BLOCK as u64;
            self.next = 0;
        }
        self.next += 1;
        self.block[self.next - 1]
    }
}

impl std::fmt::Debug for Normal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Normal({} units)", self.deviation)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use ring_arith::{Generator, StreamKey};

    use super::*;

    /// Draws of the test.
    const DRAWS: usize = 1_000_000;

    /// One thousandth of samples of the distribution itself have a larger Anderson-Darling statistic: Marsaglia and
    /// Marsaglia, "Evaluating the Anderson-Darling distribution", J. Stat. Softw. 9 (2004).
    const LIMIT: f64 = 5.97;

    /// The part of the standard normal distribution above `z`.
    fn above(z: f64) -> f64 {
        0.5 * libm::erfc(z / std::f64::consts::SQRT_2)
    }

    /// The Anderson-Darling statistic of numbers against the standard normal distribution: it weighs the tails.
    pub(crate) fn anderson_darling(mut values: Vec<f64>) -> f64 {
        values.sort_by(f64::total_cmp);
        let n = values.len();
        let term = |i: usize| {
            let both = above(-values[i]).ln() + above(values[n - 1 - i]).ln();
            (2 * i + 1) as f64 * both
        };
        -(n as f64) - (0..n).map(term).sum::<f64>() / n as f64
    }

    pub(crate) fn sampler(seed: u8, deviation: f64) -> Normal {
        let key = StreamKey::new(Generator::ChaCha12, &[seed; 32]);
        Normal::new(&key.stream(1), deviation).unwrap()
    }

    fn standard(seed: u8, deviation: f64, count: usize) -> Vec<f64> {
        let mut normal = sampler(seed, deviation);
        (0..count).map(|_| normal.draw() as i64 as f64 / deviation).collect()
    }

    #[test]
    fn a_million_draws_are_those_of_a_normal_distribution() {
        for (seed, bits) in [(1, 20), (2, 46), (3, 56)] {
            let statistic = anderson_darling(standard(seed, f64::from(bits).exp2(), DRAWS));
            assert!(statistic < LIMIT, "2^{bits} units: the statistic is {statistic}");
        }
    }

    #[test]
    fn the_statistic_finds_a_deviation_and_a_mean_that_are_wrong_by_a_hundredth() {
        let draws = standard(4, f64::from(40).exp2(), DRAWS);
        let wide = draws.iter().map(|z| z * 1.01).collect();
        let moved = draws.iter().map(|z| z + 0.01).collect();
        assert!(anderson_darling(wide) > LIMIT && anderson_darling(moved) > LIMIT);
    }

    #[test]
    fn tails_and_low_bits_are_those_of_the_distribution() {
        let mut normal = sampler(5, f64::from(40).exp2());
        let draws: Vec<_> = (0..DRAWS).map(|_| normal.draw()).collect();
        let beyond = |z: f64| {
            let limit = (z * f64::from(40).exp2()) as u64;
            draws.iter().filter(|&&w| (w as i64).unsigned_abs() > limit).count() as f64
        };
        for z in [3.0, 4.0] {
            let expected = 2.0 * above(z) * DRAWS as f64;
            let off = (beyond(z) - expected) / expected.sqrt();
            assert!(off.abs() < 4.0, "{} draws beyond {z}, not {expected}", beyond(z));
        }
        for bit in 0..30 {
            let ones = draws.iter().filter(|&&w| w >> bit & 1 == 1).count() as f64;
            let off = (ones - DRAWS as f64 / 2.0) / (DRAWS as f64 / 4.0).sqrt();
            assert!(off.abs() < 5.0, "bit {bit} is set {ones} times");
        }
    }

    #[test]
    fn deviations_that_cannot_be_drawn_are_refused_and_debug_shows_no_draw() {
        let stream = StreamKey::new(Generator::ChaCha12, &[1; 32]).stream(1);
        for deviation in [0.0, -1.0, 1000.0, 1e30, f64::NAN] {
            let error = Normal::new(&stream, deviation).unwrap_err();
            assert!(error.to_string().contains("not within 2^20 to 2^56"), "{error}");
        }
        let normal = Normal::new(&stream, f64::from(30).exp2()).unwrap();
        assert_eq!(format!("{normal:?}"), "Normal(1073741824 units)");
    }
}
