//! A small generator for tests and models of rounding. Not for secrets.

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): repeatable test data from a seed. It hides nothing.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next word, uniform.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A real number, uniform in `low..high`.
    pub fn real(&mut self, low: f64, high: f64) -> f64 {
        let unit = (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        low + (high - low) * unit
    }

    /// A word uniform below `2^bits` in magnitude, in two's complement; `1 <= bits <= 63`.
    pub fn signed(&mut self, bits: u32) -> u64 {
        (self.next_u64() as i64 >> (63 - bits)) as u64
    }
}
