//! Sources of a matrix operand's words: plain matrices, transposed or not, and the windows of
//! images that a convolution multiplies. Packing reads through this, without an earlier copy.

use std::sync::Arc;

use super::windows::{Columns, Windows};

/// Side of the square blocks in which operands are read, in words.
pub(super) const BLOCK: usize = 64;

/// A block of an operand on its way into a packed panel.
pub(super) type Block = [u64; BLOCK * BLOCK];

/// An operand of a matrix product: words addressed by an outer index (row of the first operand,
/// column of the second) and an inner index `k`.
pub(super) enum Source<'a> {
    /// A matrix in memory.
    Matrix(Matrix<'a>),
    /// Windows of images whose positions are the outer index and whose taps are `k`.
    Positions(Windows<'a>),
    /// Windows of images whose taps are the outer index and whose positions are `k`.
    Taps(Windows<'a>),
}

/// The index that moves to the neighbouring word of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Along {
    /// Word `(i, k)` of a block is at `i * BLOCK + k`.
    Inner,
    /// Word `(i, k)` of a block is at `k * BLOCK + i`.
    Outer,
}

/// Word `(i, k)` at `i * stride_outer + (k / len) * stride_far + place(k % len)`. The place is a
/// multiple of `stride_inner`, or is looked up in `places` if that is not empty. One of
/// `stride_outer` and `stride_inner` is 1.
#[derive(Clone)]
pub(super) struct Matrix<'a> {
    /// The words.
    pub words: &'a [u64],
    /// Words from one outer index to the next.
    pub stride_outer: usize,
    /// Words from one `k` to the next.
    pub stride_inner: usize,
    /// Length of the inner part of `k`.
    pub len: usize,
    /// Words from one inner part to the next.
    pub stride_far: usize,
    /// Places of the words of an inner part; then `stride_inner` is 1.
    pub places: Arc<[usize]>,
}

impl Source<'_> {
    /// The index that is contiguous in the blocks of this operand.
    pub(super) fn along(&self) -> Along {
        match self {
            Self::Matrix(m) if m.stride_inner == 1 => Along::Inner,
            Self::Matrix(_) | Self::Positions(_) => Along::Outer,
            Self::Taps(_) => Along::Inner,
        }
    }

    /// The places of the words of columns, if those of neighbouring columns are neighbours.
    pub(super) fn columns(&self) -> Option<Columns<'_>> {
        match self {
            Self::Matrix(m) if m.stride_outer == 1 && m.len == usize::MAX => Some(Columns {
                words: m.words,
                taps: &[0],
                plane: m.stride_inner,
                positions: [1, usize::MAX],
                row: 0,
                image: 0,
            }),
            Self::Positions(windows) => Some(windows.columns()),
            _ => None,
        }
    }

    /// The words and the stride of a matrix whose rows are plain: word `(i, k)` at `i * stride + k`.
    pub(super) fn rows(&self) -> Option<(&[u64], usize)> {
        match self {
            Self::Matrix(m) if m.stride_inner == 1 && m.len == usize::MAX => {
                Some((m.words, m.stride_outer))
            }
            _ => None,
        }
    }

    /// Reads `count[0]` outer times `count[1]` inner words from `first`, at most [`BLOCK`] each.
    /// Words of the block beyond that are not changed. The block at `next` is fetched into the
    /// cache meanwhile if that helps.
    pub(super) fn read(
        &self,
        first: [usize; 2],
        count: [usize; 2],
        next: [usize; 2],
        block: &mut Block,
    ) {
        let swap = |[i, k]: [usize; 2]| [k, i];
        match self {
            Self::Matrix(m) => m.read(first, count, next, block),
            Self::Positions(w) => w.columns().read(swap(first), swap(count), block),
            Self::Taps(w) => w.columns().read(first, count, block),
        }
    }
}

impl<'a> Matrix<'a> {
    /// A matrix without structure in `k`.
    pub(super) fn new(words: &'a [u64], stride_outer: usize, stride_inner: usize) -> Self {
        let places = Arc::default();
        Self { words, stride_outer, stride_inner, len: usize::MAX, stride_far: 0, places }
    }

    /// Rows of matrices lie far apart, each in a separate page, and the hardware does not prefetch
    /// across pages: hence the prefetch here.
    fn read(
        &self,
        [i0, k0]: [usize; 2],
        [ni, nk]: [usize; 2],
        [next_i, next_k]: [usize; 2],
        block: &mut Block,
    ) {
        if self.stride_inner == 1 {
            let next = self.offset(next_k);
            for (i, row) in block.chunks_exact_mut(BLOCK).enumerate().take(ni) {
                prefetch(self.words, (next_i + i) * self.stride_outer + next, nk);
                self.read_row((i0 + i) * self.stride_outer, k0, &mut row[..nk]);
            }
            return;
        }
        for (k, row) in block.chunks_exact_mut(BLOCK).enumerate().take(nk) {
            prefetch(self.words, next_i * self.stride_outer + self.offset(next_k + k), ni);
            let start = i0 * self.stride_outer + self.offset(k0 + k);
            copy(&mut row[..ni], &self.words[start..][..ni]);
        }
    }

    /// Offset of an inner index.
    fn offset(&self, k: usize) -> usize {
        if k < self.len && self.places.is_empty() {
            return k * self.stride_inner;
        }
        let place = match self.places.get(k % self.len) {
            Some(place) => *place,
            None => k % self.len * self.stride_inner,
        };
        k / self.len * self.stride_far + place
    }

    /// One row of words along `k`, piece by piece.
    fn read_row(&self, start: usize, k0: usize, row: &mut [u64]) {
        let mut done = 0;
        while done < row.len() {
            let k = k0 + done;
            let left = if self.len == usize::MAX { row.len() } else { self.len - k % self.len };
            let count = left.min(row.len() - done);
            let piece = &mut row[done..done + count];
            if self.places.is_empty() {
                let from = start + self.offset(k);
                copy(piece, &self.words[from..from + count]);
            } else {
                let base = start + k / self.len * self.stride_far;
                let places = &self.places[k % self.len..];
                piece.iter_mut().zip(places).for_each(|(to, at)| *to = self.words[base + at]);
            }
            done += count;
        }
    }
}

/// Copies a few words. Runs are short, and a call of `memcpy` for each costs more than its words do.
#[inline(always)]
pub(super) fn copy(to: &mut [u64], from: &[u64]) {
    const WIDE: usize = 8;
    assert_eq!(to.len(), from.len());
    let len = to.len();
    if len >= WIDE {
        // The last piece may overlap the one before it.
        for at in (0..len - WIDE).step_by(WIDE) {
            copy_array::<WIDE>(to, from, at);
        }
        copy_array::<WIDE>(to, from, len - WIDE);
    } else if len >= 4 {
        copy_array::<4>(to, from, 0);
        copy_array::<4>(to, from, len - 4);
    } else if len >= 2 {
        copy_array::<2>(to, from, 0);
        copy_array::<2>(to, from, len - 2);
    } else if len == 1 {
        to[0] = from[0];
    }
}

/// Copies `N` words at a position.
#[inline(always)]
fn copy_array<const N: usize>(to: &mut [u64], from: &[u64], at: usize) {
    let from: [u64; N] = from[at..at + N].try_into().expect("a slice of N words");
    to[at..at + N].copy_from_slice(&from);
}

/// Asks for some words to be brought into the cache.
#[inline]
pub(super) fn prefetch(words: &[u64], first: usize, count: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(words) = words.get(first..(first + count).min(words.len())) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        for line in words.chunks(8) {
            // SAFETY: a prefetch reads nothing, and the address is valid.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (words, first, count);
}
