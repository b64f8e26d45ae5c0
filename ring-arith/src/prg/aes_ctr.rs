//! AES-128 in counter mode, by the `aes` crate's bulk block encryption.

use aes::Aes128;
use aes::cipher::consts::U16;
use aes::cipher::{
    Array, Block, BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser,
    KeyInit,
};

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

impl Blocks for Aes128Ctr {
    const WORDS: usize = 2;

    fn blocks(&self, nonce: u64, first: u64, out: &mut [u64]) {
        self.0.encrypt_with_backend(KeyStream { nonce, first, out });
    }
}

/// Writes counters and encrypts them in place. As a closure of the cipher it is compiled for the
/// instruction set of the cipher's back end, so that vectors write the counters too. Written one by
/// one they took a quarter of the time.
struct KeyStream<'a> {
    nonce: u64,
    first: u64,
    out: &'a mut [u64],
}

/// Blocks whose counters are written before they are encrypted: few enough for the first-level
/// cache, enough that loads never wait for stores of another width.
const CHUNK: u64 = 256;

impl BlockSizeUser for KeyStream<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for KeyStream<'_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let mut block = self.first;
        for chunk in self.out.chunks_mut(2 * CHUNK as usize) {
            // Only the last byte of the counter differs until the next multiple of 256.
            let count = chunk.len() / 2;
            let until = ((CHUNK - block % CHUNK) as usize).min(count);
            let (head, tail) = chunk.split_at_mut(2 * until);
            counters(self.nonce, block, head);
            counters(self.nonce, block.wrapping_add(until as u64), tail);
            block = block.wrapping_add(count as u64);

            let (blocks, _) = Array::slice_as_chunks_mut(bytemuck::cast_slice_mut(chunk));
            let blocks: &mut [Block<Self>] = blocks;
            let (groups, rest) = Array::slice_as_chunks_mut(blocks);
            groups.iter_mut().for_each(|group| backend.encrypt_par_blocks_inplace(group));
            if !rest.is_empty() {
                backend.encrypt_tail_blocks_inplace(rest);
            }
        }
    }
}

/// Big-endian counter blocks from `first` on, not past the next multiple of 256.
#[inline(always)]
fn counters(nonce: u64, first: u64, out: &mut [u64]) {
    let (nonce, first) = (nonce.to_be(), first.to_be());
    for (i, pair) in out.chunks_exact_mut(2).enumerate() {
        pair[0] = nonce;
        pair[1] = first + ((i as u64) << 56);
    }
}
