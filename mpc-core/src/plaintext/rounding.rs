//! Rounding of truncations in the reference: deterministic, or random as on shares.

use crate::{SplitMix64, TruncationMode};

/// The rounding of [`super::Plaintext`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// Every mode is the floor; the fused ReLU's rounding is to nearest.
    Floor,
    /// Each mode has the distribution that it has on shares, drawn from a seed.
    Drawn {
        /// The seed.
        seed: u64,
    },
}

/// Rounding with its generator.
#[derive(Debug)]
pub(super) struct Coins(Option<SplitMix64>);

impl Coins {
    pub(super) fn new(rounding: Rounding) -> Self {
        Self(match rounding {
            Rounding::Floor => None,
            Rounding::Drawn { seed } => Some(SplitMix64::new(seed)),
        })
    }

    /// A word divided by `2^bits`; `|word| <= 2^62`.
    pub(super) fn truncate(&mut self, word: u64, bits: u32, mode: TruncationMode) -> u64 {
        let z = word as i64;
        let floor = (z >> bits) as u64;
        let fraction = word & ((1 << bits) - 1);
        let Some(draw) = &mut self.0 else {
            return match mode {
                TruncationMode::Early => nearest(i128::from(z), bits) as u64,
                _ => floor,
            };
        };
        match mode {
            TruncationMode::Exact => floor,
            TruncationMode::Default | TruncationMode::Dither => {
                let coin = draw.next_u64() & ((1 << bits) - 1);
                floor.wrapping_add(u64::from(coin < fraction))
            }
            // Three summands, each rounded by itself.
            TruncationMode::Early => {
                let (a, b) = (draw.next_u64() >> 3, draw.next_u64() >> 3);
                let c = i128::from(z) - i128::from(a) - i128::from(b);
                let parts = [i128::from(a), i128::from(b), c];
                parts.iter().map(|&part| nearest(part, bits)).sum::<i128>() as u64
            }
            // Two words, each shifted with its own sign: wrong by 2^(64 - bits) if their sum wraps.
            TruncationMode::Aby3Local => {
                let a = draw.next_u64();
                let b = word.wrapping_sub(a);
                ((a as i64 >> bits) as u64).wrapping_add((b as i64 >> bits) as u64)
            }
        }
    }
}

/// `z / 2^bits` to nearest, ties to even.
fn nearest(z: i128, bits: u32) -> i128 {
    let half = 1i128 << (bits - 1);
    let odd = (z >> bits) & 1;
    (z + half - 1 + odd) >> bits
}

#[cfg(test)]
mod tests {
    use super::*;

    const DROPS: [u32; 4] = [1, 7, 20, 40];

    fn samples() -> Vec<u64> {
        let mut draw = SplitMix64::new(7);
        let edge = [0i64, 1, -1, (1 << 62) - 1, -(1 << 62), 1 << 20, -(1 << 20), 3 << 19];
        let drawn = (0..2000).map(|_| draw.next_u64() as i64 >> 2);
        edge.into_iter().chain(drawn).map(|z| z as u64).collect()
    }

    #[test]
    fn drawn_rounding_keeps_each_modes_error_bound() {
        let mut coins = Coins::new(Rounding::Drawn { seed: 1 });
        for z in samples() {
            for bits in DROPS {
                let exact = (z as i64) as f64 / 2f64.powi(bits as i32);
                let floor = (z as i64) >> bits;
                let mut run = |mode| coins.truncate(z, bits, mode) as i64;
                assert_eq!(run(TruncationMode::Exact), floor);
                for mode in [TruncationMode::Default, TruncationMode::Dither] {
                    assert!((0..=1).contains(&(run(mode) - floor)), "{mode:?} {z} {bits}");
                }
                let early = run(TruncationMode::Early);
                assert!((early - floor).abs() <= 2, "{early} for {exact}");
            }
        }
    }

    #[test]
    fn drawn_rounding_is_exact_on_multiples_and_unbiased() {
        let mut coins = Coins::new(Rounding::Drawn { seed: 2 });
        for k in -50i64..50 {
            let y = coins.truncate((k << 20) as u64, 20, TruncationMode::Default);
            assert_eq!(y as i64, k);
        }
        for mode in [TruncationMode::Default, TruncationMode::Early] {
            let n = 40_000;
            let z = (5 << 20) + (3 << 17); // 5.375
            let sum: i64 = (0..n).map(|_| coins.truncate(z, 20, mode) as i64).sum();
            let mean = sum as f64 / f64::from(n);
            assert!((mean - 5.375).abs() < 5.0 * 0.5 / f64::from(n).sqrt(), "{mode:?}: {mean}");
        }
    }

    #[test]
    fn local_truncation_shows_its_large_errors() {
        let mut coins = Coins::new(Rounding::Drawn { seed: 3 });
        let z = 1u64 << 60;
        let wrong = (0..1000)
            .filter(|_| {
                let y = coins.truncate(z, 20, TruncationMode::Aby3Local) as i64;
                (y - (1 << 40)).abs() > 1
            })
            .count();
        // Theory: 2^60 / 2^64 of them, 62 in 1000.
        assert!((20..200).contains(&wrong), "{wrong}");
    }

    #[test]
    fn nearest_breaks_ties_to_even() {
        assert_eq!([1, 2, 3, 5, 6, 7, -2, -6].map(|z| nearest(z, 2)), [0, 0, 1, 1, 2, 2, 0, -2]);
    }
}
