//! AES-128 in counter mode, by the `aes` crate's bulk block encryption.

use aes::Aes128;
use aes::cipher::{Array, BlockCipherEncrypt, KeyInit};

use super::Blocks;

/// An expanded AES-128 key. The `aes` crate wipes it on drop.
pub(super) struct Aes128Ctr(Aes128);

impl Aes128Ctr {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        let mut half = zeroize::Zeroizing::new([0; 16]);
        half.copy_from_slice(&key[..16]);
        Self(Aes128::new((&*half).into()))
    }
}

/// Blocks per call of the cipher: counters and their ciphertexts stay in the first-level cache.
const CHUNK: usize = 256;

impl Blocks for Aes128Ctr {
    const WORDS: usize = 2;

    fn blocks(&self, nonce: u64, first: u64, out: &mut [u64]) {
        let mut block = first;
        for chunk in out.chunks_mut(2 * CHUNK) {
            for pair in chunk.chunks_exact_mut(2) {
                pair[0] = nonce.to_be();
                pair[1] = block.to_be();
                block = block.wrapping_add(1);
            }
            let (blocks, _) = Array::slice_as_chunks_mut(bytemuck::cast_slice_mut(chunk));
            self.0.encrypt_blocks(blocks);
        }
    }
}
