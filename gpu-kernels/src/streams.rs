//! Pseudo-random streams on the device: the same words as on the CPU.

use aes::hazmat::{cipher_round, inv_mix_columns};
use ring_arith::{Error, Generator, Result, Shape, Stream};

use crate::{
    CudaTensor,
    device::{Device, Fields, Shipped, pointer},
    driver::Arg,
};

/// Words `first..first + shape.len()` of a stream.
pub(crate) fn fill(
    device: &Device,
    stream: &Stream,
    first: u64,
    shape: Shape,
) -> Result<CudaTensor> {
    let n = shape.len();
    check(first, n)?;
    let out = device.empty(shape)?;
    let range = [stream.nonce(), first, n as u64].map(Arg::word);
    let (kernel, key_args, per_block) = match stream.key().generator() {
        Generator::Aes128Ctr => ("aes128_fill", vec![schedule(stream.key().expose())], 2),
        Generator::ChaCha12 => ("chacha12_fill", vec![chacha_key(stream)], 8),
        Generator::ChaCha20 => ("chacha20_fill", vec![chacha_key(stream)], 8),
        Generator::InsecurePhilox => {
            let key = key_words(stream).map(|w| Arg::word(u64::from(w)));
            ("philox_fill", key.into_iter().take(2).collect(), 2)
        }
        other => {
            return Err(Error::invalid("stream", format!("{other:?} is not known to this engine")));
        }
    };
    let args = [pointer(&out)].into_iter().chain(key_args).chain(range).collect::<Vec<_>>();
    // SAFETY: the kernel writes `n` words of the result.
    unsafe { device.stride(Shipped::Words, kernel, n.div_ceil(per_block), &args)? };
    Ok(out)
}

/// Refuses positions that leave a stream.
pub(crate) fn check(first: u64, n: usize) -> Result<()> {
    if first.checked_add(n as u64).is_some_and(|end| end <= 1 << 63) {
        return Ok(());
    }
    Err(Error::invalid("stream", format!("positions from {first} on leave the stream")))
}

/// The key as little-endian words.
pub(crate) fn key_words(stream: &Stream) -> [u32; 8] {
    let key = stream.key().expose();
    let word = |i: usize| *key[4 * i..].first_chunk().expect("a key has eight words");
    std::array::from_fn(|i| u32::from_le_bytes(word(i)))
}

/// The `Key` of `common.cuh`.
pub(crate) fn chacha_key(stream: &Stream) -> Arg {
    key_words(stream).into_iter().fold(Fields::default(), Fields::u32).done()
}

/// The 44 words of AES-128's key schedule (FIPS 197, section 5.2).
fn schedule(key: &[u8; 32]) -> Arg {
    let mut words = [0u32; 44];
    for (i, w) in words[..4].iter_mut().enumerate() {
        *w = u32::from_be_bytes(*key[4 * i..].first_chunk().expect("16 bytes of key"));
    }
    let mut constant = 1u8;
    for i in 4..44 {
        let mut last = words[i - 1];
        if i % 4 == 0 {
            last = substitute(last.rotate_left(8)) ^ u32::from(constant) << 24;
            constant = constant << 1 ^ if constant >> 7 == 1 { 0x1b } else { 0 };
        }
        words[i] = words[i - 4] ^ last;
    }
    words.iter().fold(Fields::default(), |f, &w| f.u32(w)).done()
}

/// The S-box on each byte of a word, by the CPU's own AES round so that no table is indexed by a secret.
/// Shifting the rows of four equal columns does not change them.
fn substitute(word: u32) -> u32 {
    let mut block = aes::Block::default();
    block.chunks_exact_mut(4).for_each(|column| column.copy_from_slice(&word.to_be_bytes()));
    cipher_round(&mut block, &aes::Block::default());
    inv_mix_columns(&mut block);
    u32::from_be_bytes(*block.first_chunk().expect("16 bytes"))
}
