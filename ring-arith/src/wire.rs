//! Bits on the wire: planes of `n` elements as `ceil(n * width / 8)` bytes, nothing padded.
//!
//! Fields follow each other bit by bit, each plane `n` bits, lowest element first, and bit `i` of
//! the message is bit `i % 8` of byte `i / 8`. Bits past the last are 0, so that no lane of a plane
//! that holds no element is ever sent.

use bytes::Bytes;

use crate::{BufferPool, EngineTensor, Error, Result, Shape, Tensor};

/// Bytes that hold `planes` planes of `n` elements.
pub fn packed_len(n: usize, planes: usize) -> usize {
    // In two steps, so that the number of bits need not fit.
    n / 8 * planes + (n % 8 * planes).div_ceil(8)
}

/// Packs planes `[width, ceil(n / 64)]` of `n` elements. Shares the words if `n` is a multiple of 64.
///
/// # Errors
/// [`Error::Invalid`] if the planes do not hold `n` elements.
pub fn pack_planes(planes: &Tensor, n: usize, pool: &BufferPool) -> Result<Bytes> {
    let &[width, words] = planes.shape().dims() else { return Err(misfit(planes, n)) };
    if words == n.div_ceil(64) && n.is_multiple_of(64) {
        return Ok(planes.to_bytes());
    }
    let mut packer = Packer::new(packed_len(n, width), pool);
    packer.planes(planes, n)?;
    Ok(packer.finish())
}

/// The inverse of [`pack_planes`]. Shares the bytes if `n` is a multiple of 64 and they are aligned.
///
/// # Errors
/// [`Error::Invalid`] if the number of bytes is not that of `width` planes of `n` elements.
pub fn unpack_planes(bytes: &Bytes, width: usize, n: usize, pool: &BufferPool) -> Result<Tensor> {
    if bytes.len() != packed_len(n, width) {
        let reason = format!("{} bytes are not {width} planes of {n} elements", bytes.len());
        return Err(Error::invalid("unpack", reason));
    }
    if n.is_multiple_of(64) {
        return Tensor::from_bytes(Shape::new([width, n / 64])?, bytes.clone());
    }
    Unpacker::new(bytes.clone()).planes(width, n, pool)
}

/// Writes a message of several parts, bit by bit.
#[derive(Debug)]
pub struct Packer {
    buffer: crate::Buffer,
    /// Bits written.
    bits: usize,
}

impl Packer {
    /// A message of at most `bytes` bytes.
    pub fn new(bytes: usize, pool: &BufferPool) -> Self {
        Self { buffer: pool.take(bytes.div_ceil(8)), bits: 0 }
    }

    /// Appends planes `[width, ceil(n / 64)]` of `n` elements.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the planes do not hold `n` elements or the message is full.
    pub fn planes(&mut self, planes: &Tensor, n: usize) -> Result<()> {
        let &[width, words] = planes.shape().dims() else { return Err(misfit(planes, n)) };
        if words != n.div_ceil(64) {
            return Err(misfit(planes, n));
        }
        self.reserve(width, n)?;
        if words > 0 {
            planes.words().chunks_exact(words).for_each(|plane| self.append(plane, n));
        }
        Ok(())
    }

    /// Appends whole words, 64 bits each.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the message is full.
    pub fn words(&mut self, words: &[u64]) -> Result<()> {
        self.reserve(words.len(), 64)?;
        self.append(words, words.len() * 64);
        Ok(())
    }

    /// The message: as many bytes as hold the bits written.
    pub fn finish(mut self) -> Bytes {
        let bytes = self.bits.div_ceil(8);
        self.buffer.truncate(bytes.div_ceil(8));
        self.buffer.into_bytes().slice(..bytes)
    }

    fn reserve(&self, planes: usize, n: usize) -> Result<()> {
        let room = self.buffer.len() * 64 - self.bits;
        match planes.checked_mul(n) {
            Some(bits) if bits <= room => Ok(()),
            _ => Err(Error::invalid("pack", format!("{planes} x {n} bits exceed {room} left"))),
        }
    }

    /// Appends the first `n` bits of `from`.
    fn append(&mut self, from: &[u64], n: usize) {
        let (at, shift) = (self.bits / 64, self.bits % 64);
        let to = &mut self.buffer[at..];
        self.bits += n;
        let whole = n / 64;
        if shift == 0 {
            to[..whole].copy_from_slice(&from[..whole]);
        } else {
            // Bits of a begun word above its last are 0.
            for i in 0..whole {
                to[i] |= from[i] << shift;
                to[i + 1] = from[i] >> (64 - shift);
            }
        }
        let left = n % 64;
        if left > 0 {
            let last = from[whole] & ((1 << left) - 1);
            if shift == 0 {
                to[whole] = last;
            } else {
                to[whole] |= last << shift;
                if shift + left > 64 {
                    to[whole + 1] = last >> (64 - shift);
                }
            }
        }
        // A word that ends here without a next bit is complete; one just begun starts from 0 above.
    }
}

/// Reads a message of several parts in the order of its writing.
#[derive(Debug)]
pub struct Unpacker {
    bytes: Bytes,
    /// Bits read.
    bits: usize,
}

impl Unpacker {
    /// A reader of a message.
    pub fn new(bytes: Bytes) -> Self {
        Self { bytes, bits: 0 }
    }

    /// The next `width` planes of `n` elements; lanes past the last element are 0.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the message has fewer bits left.
    pub fn planes(&mut self, width: usize, n: usize, pool: &BufferPool) -> Result<Tensor> {
        self.check(width, n)?;
        let words = n.div_ceil(64);
        let shape = Shape::new([width, words])?;
        let mut out = pool.take(shape.len());
        if words > 0 {
            out.chunks_exact_mut(words).for_each(|plane| self.extract(plane, n));
        }
        out.into_tensor(shape)
    }

    /// The next words, as many as the shape has.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the message has fewer bits left.
    pub fn words(&mut self, shape: &Shape, pool: &BufferPool) -> Result<Tensor> {
        let n = shape.len();
        self.check(n, 64)?;
        if self.bits.is_multiple_of(64) {
            let start = self.bits / 8;
            self.bits += n * 64;
            return Tensor::from_bytes(shape.clone(), self.bytes.slice(start..start + n * 8));
        }
        let mut out = pool.take(n);
        self.extract(&mut out, n * 64);
        out.into_tensor(shape.clone())
    }

    /// Ends reading.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is more than the unused bits of the last byte, or one of them is
    /// set.
    pub fn finish(self) -> Result<()> {
        let unused = self.bytes.len() * 8 - self.bits;
        let padding = self.bytes.last().map_or(0, |&last| u32::from(last) << unused.min(8) >> 8);
        if unused < 8 && padding == 0 {
            return Ok(());
        }
        Err(Error::invalid("unpack", format!("{unused} bits were not expected")))
    }

    fn check(&self, planes: usize, n: usize) -> Result<()> {
        let left = self.bytes.len() * 8 - self.bits;
        match planes.checked_mul(n) {
            Some(bits) if bits <= left => Ok(()),
            _ => Err(Error::invalid("unpack", format!("{left} bits left for {planes} x {n}"))),
        }
    }

    /// Fills `to` with the next `n` bits, and zeros behind them.
    fn extract(&mut self, to: &mut [u64], n: usize) {
        for (i, word) in to.iter_mut().enumerate() {
            let left = (n - 64 * i).min(64);
            *word = self.peek(self.bits + 64 * i) & (u64::MAX >> (64 - left));
        }
        self.bits += n;
    }

    /// The 64 bits from position `at` on, 0 past the end.
    fn peek(&self, at: usize) -> u64 {
        let (byte, shift) = (at / 8, at % 8);
        let rest = &self.bytes[byte..];
        let low = match rest.first_chunk() {
            Some(bytes) => u64::from_le_bytes(*bytes),
            None => {
                let mut bytes = [0; 8];
                bytes[..rest.len()].copy_from_slice(rest);
                u64::from_le_bytes(bytes)
            }
        };
        if shift == 0 {
            return low;
        }
        low >> shift | u64::from(rest.get(8).copied().unwrap_or(0)) << (64 - shift)
    }
}

fn misfit(planes: &Tensor, n: usize) -> Error {
    Error::invalid("pack", format!("planes {:?} do not hold {n} elements", planes.shape()))
}
