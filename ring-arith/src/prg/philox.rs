//! Philox4x32-10 [Salmon, Moraes, Dror, Shaw, SC 2011]. Statistically good, not secure.

use super::Blocks;

/// The 64-bit key.
pub(super) struct Philox([u32; 2]);

impl Philox {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        let word = u64::from_le_bytes(*key.first_chunk().expect("32 bytes"));
        Self([word as u32, (word >> 32) as u32])
    }

    /// Ten rounds on one counter.
    #[inline]
    pub(super) fn block(&self, mut x: [u32; 4]) -> [u32; 4] {
        // Multipliers and Weyl constants of the paper's section 3.3.
        let wide = |a: u32, b: u32| u64::from(a) * u64::from(b);
        let [mut k0, mut k1] = self.0;
        for _ in 0..10 {
            let (p0, p1) = (wide(0xD251_1F53, x[0]), wide(0xCD9E_8D57, x[2]));
            x = [
                (p1 >> 32) as u32 ^ x[1] ^ k0,
                p1 as u32,
                (p0 >> 32) as u32 ^ x[3] ^ k1,
                p0 as u32,
            ];
            k0 = k0.wrapping_add(0x9E37_79B9);
            k1 = k1.wrapping_add(0xBB67_AE85);
        }
        x
    }
}

impl Blocks for Philox {
    const WORDS: usize = 2;

    fn blocks(&self, nonce: u64, first: u64, out: &mut [u64]) {
        let mut block = first;
        for pair in out.chunks_exact_mut(2) {
            let [a, b] = [block, nonce].map(|w| [w as u32, (w >> 32) as u32]);
            let x = self.block([a[0], a[1], b[0], b[1]]);
            pair[0] = u64::from(x[0]) | u64::from(x[1]) << 32;
            pair[1] = u64::from(x[2]) | u64::from(x[3]) << 32;
            block = block.wrapping_add(1);
        }
    }
}

impl Drop for Philox {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.0);
    }
}
