//! ChaCha with a 64-bit counter and a 64-bit nonce, by the `chacha20` crate.

use std::marker::PhantomData;

use chacha20::cipher::array::Array;
use chacha20::cipher::{KeyIvInit, StreamCipherCore};
use chacha20::variants::Ietf;
use chacha20::{ChaChaCore, Rounds};
use zeroize::Zeroizing;

use super::Blocks;

/// A ChaCha key. Its schedule is the key itself.
pub(super) struct ChaCha<R> {
    key: Zeroizing<[u8; 32]>,
    rounds: PhantomData<fn() -> R>,
}

impl<R> ChaCha<R> {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self { key: Zeroizing::new(*key), rounds: PhantomData }
    }
}

impl<R: Rounds> Blocks for ChaCha<R>
where
    ChaChaCore<R, Ietf>: KeyIvInit<KeySize = chacha20::cipher::consts::U32>,
{
    const WORDS: usize = 8;

    /// The crate offers 12 rounds with a 32-bit counter and a 96-bit nonce only. The cipher's state
    /// is the same: the upper half of the 64-bit counter is the first quarter of the long nonce.
    fn blocks(&self, nonce: u64, first: u64, out: &mut [u64]) {
        let (mut block, mut rest) = (first, out);
        while !rest.is_empty() {
            let left = (1 << 32) - (block & 0xffff_ffff);
            let count = left.min((rest.len() / 8) as u64);
            let (now, later) = rest.split_at_mut(count as usize * 8);
            let mut iv = [0; 12];
            iv[..4].copy_from_slice(&((block >> 32) as u32).to_le_bytes());
            iv[4..].copy_from_slice(&nonce.to_le_bytes());
            let mut core = ChaChaCore::<R, Ietf>::new_from_slices(&*self.key, &iv)
                .expect("the lengths of key and nonce are constants");
            core.set_block_pos(block as u32);
            let (blocks, _) = Array::slice_as_chunks_mut(bytemuck::cast_slice_mut(now));
            core.write_keystream_blocks(blocks);
            (block, rest) = (block.wrapping_add(count), later);
        }
    }
}
