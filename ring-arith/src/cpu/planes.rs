//! Words to bit planes and back.

use crate::{CpuEngine, EngineTensor, Error, Result, Shape, Tensor};

/// Bits `low..low + width` of every element as planes.
pub(super) fn to_planes(engine: &CpuEngine, x: &Tensor, low: u32, width: u32) -> Result<Tensor> {
    if width == 0 || low.checked_add(width).is_none_or(|end| end > 64) {
        let reason = format!("bits {low}..{low}+{width} are not inside 0..64");
        return Err(Error::invalid("to planes", reason));
    }
    let words = x.len().div_ceil(64);
    let mut out = engine.buffer(width as usize * words);
    for (w, chunk) in x.words().chunks(64).enumerate() {
        let mut block = [0; 64];
        block.iter_mut().zip(chunk).for_each(|(to, word)| *to = word >> low);
        transpose(&mut block);
        for j in 0..width as usize {
            out[j * words + w] = block[j];
        }
    }
    out.into_tensor(Shape::new([width as usize, words])?)
}

/// Planes to words of `shape` with plane `j` at bit `low + j`.
pub(super) fn from_planes(
    engine: &CpuEngine,
    planes: &Tensor,
    low: u32,
    shape: &Shape,
) -> Result<Tensor> {
    let misfit = || {
        let reason = format!("planes {:?} from bit {low} do not fit {shape:?}", planes.shape());
        Error::invalid("from planes", reason)
    };
    let &[width, words] = planes.shape().dims() else { return Err(misfit()) };
    if words != shape.len().div_ceil(64) || width == 0 || low as usize + width > 64 {
        return Err(misfit());
    }
    let mut out = engine.buffer(shape.len());
    for (w, chunk) in out.chunks_mut(64).enumerate() {
        let mut block = [0; 64];
        for j in 0..width {
            block[j] = planes.words()[j * words + w];
        }
        transpose(&mut block);
        chunk.iter_mut().zip(block).for_each(|(to, word)| *to = word << low);
    }
    out.into_tensor(shape.clone())
}

/// Transposes a 64x64 matrix of bits: bit `j` of word `i` becomes bit `i` of word `j`.
fn transpose(block: &mut [u64; 64]) {
    let mut mask = 0x0000_0000_ffff_ffffu64;
    let mut step = 32;
    while step > 0 {
        let mut i = 0;
        while i < 64 {
            for k in i..i + step {
                let swap = ((block[k] >> step) ^ block[k + step]) & mask;
                block[k] ^= swap << step;
                block[k + step] ^= swap;
            }
            i += 2 * step;
        }
        step /= 2;
        mask ^= mask << step;
    }
}
