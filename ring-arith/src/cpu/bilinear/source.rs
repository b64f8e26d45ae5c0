//! Where the words of a matrix operand lie: plain matrices, transposed or not, and the windows of
//! images that a convolution multiplies. Packing reads through this, so nothing is copied before.

use std::ops::Range;
use std::sync::Arc;

/// Side of the square blocks in which operands are read, in words.
pub(super) const BLOCK: usize = 64;

/// A block of an operand on its way into a packed panel.
pub(super) type Block = [u64; BLOCK * BLOCK];

/// An operand of a matrix product: words addressed by an outer index (row of the first operand,
/// column of the second) and an inner index `k`.
#[derive(Debug, Clone)]
pub(super) enum Source<'a> {
    /// A matrix in memory.
    Matrix(Matrix<'a>),
    /// Windows of images whose positions are the outer index and whose taps are `k`.
    Positions(Windows<'a>),
    /// Windows of images whose taps are the outer index and whose positions are `k`.
    Taps(Windows<'a>),
}

/// Which index moves to the neighbouring word of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Along {
    /// Word `(i, k)` of a block is at `i * BLOCK + k`.
    Inner,
    /// Word `(i, k)` of a block is at `k * BLOCK + i`.
    Outer,
}

/// Word `(i, k)` at `i * stride_outer + (k / len) * stride_far + place(k % len)`. The place is a
/// multiple of `stride_inner`, or looked up in `places` if there are any. One of `stride_outer` and
/// `stride_inner` is 1.
#[derive(Debug, Clone)]
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

/// Words under sliding windows: position `(image, y, x)` and tap `(channel, ty, tx)` meet at row
/// `y * step[0] + taps_y[ty]`, column `x * step[1] + taps_x[tx]` of the channel; outside it is 0.
#[derive(Debug, Clone)]
pub(super) struct Windows<'a> {
    /// The words, starting at the first channel of the first image.
    pub words: &'a [u64],
    /// Height and width of a channel.
    pub size: [usize; 2],
    /// Words from one image to the next.
    pub image_stride: usize,
    /// Positions per image, along height and width.
    pub positions: [usize; 2],
    /// Rows and columns from one position to the next.
    pub step: [usize; 2],
    /// Row offset of each tap; negative in the border.
    pub taps_y: Vec<isize>,
    /// Column offset of each tap, and the positions along the width at which it meets the image.
    pub taps_x: Vec<(isize, Range<usize>)>,
}

/// Positions that follow one another in one row of one image.
#[derive(Clone, Copy, Default)]
struct Run {
    /// Offset in the block.
    at: usize,
    len: usize,
    /// First word of the image.
    image: usize,
    /// Row of the positions, before a tap's offset.
    y: isize,
    /// The first position along the width.
    first: usize,
}

impl Source<'_> {
    /// Which index is contiguous in the blocks of this operand.
    pub(super) fn along(&self) -> Along {
        match self {
            Self::Matrix(m) if m.stride_inner == 1 => Along::Inner,
            Self::Matrix(_) | Self::Positions(_) => Along::Outer,
            Self::Taps(_) => Along::Inner,
        }
    }

    /// The words and the stride of a matrix whose columns are plain: word `(i, k)` at `i + k * stride`.
    pub(super) fn columns(&self) -> Option<(&[u64], usize)> {
        match self {
            Self::Matrix(m) if m.stride_outer == 1 && m.len == usize::MAX => {
                Some((m.words, m.stride_inner))
            }
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
    /// Words of the block beyond that are left as they are. The block at `next` is fetched into the
    /// cache meanwhile where that helps.
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
            Self::Positions(w) => w.read(swap(first), swap(count), block),
            Self::Taps(w) => w.read(first, count, block),
        }
    }
}

impl<'a> Matrix<'a> {
    /// A matrix without structure in `k`.
    pub(super) fn new(words: &'a [u64], stride_outer: usize, stride_inner: usize) -> Self {
        let places = Arc::default();
        Self { words, stride_outer, stride_inner, len: usize::MAX, stride_far: 0, places }
    }

    /// Rows of matrices lie far apart, each in a page of its own, where the hardware does not guess
    /// what comes next: hence the prefetch.
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
fn copy(to: &mut [u64], from: &[u64]) {
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

/// Copies words that lie `STEP` apart; a known distance takes half the time.
#[inline(always)]
fn copy_spread<const STEP: usize>(to: &mut [u64], from: &[u64]) {
    let Some((last, to)) = to.split_last_mut() else { return };
    *last = from[to.len() * STEP];
    to.iter_mut().zip(from.as_chunks::<STEP>().0).for_each(|(to, from)| *to = from[0]);
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

impl Windows<'_> {
    /// Column offsets with the positions at which they meet an image: where `0 <= position * step +
    /// offset < width`. Found once for each tap, since a division for each run would cost more than
    /// its words.
    pub(super) fn columns(
        offsets: impl Iterator<Item = isize>,
        [positions, step, width]: [usize; 3],
    ) -> Vec<(isize, Range<usize>)> {
        let inside = |offset: isize| {
            let reached = |column: isize| usize::try_from(column).unwrap_or(0).div_ceil(step);
            let end = reached(width as isize - offset).min(positions);
            (offset, reached(-offset).min(end)..end)
        };
        offsets.map(inside).collect()
    }

    /// Rows of the block are taps, columns positions.
    fn read(&self, [q0, p0]: [usize; 2], [nq, np]: [usize; 2], block: &mut Block) {
        let mut runs = [Run::default(); BLOCK];
        let runs = self.runs(p0, np, &mut runs);
        let [height, width] = self.size;
        let [ny, nx] = [self.taps_y.len(), self.taps_x.len()];
        let (mut channel, mut ty, mut tx) = (q0 / (ny * nx), q0 / nx % ny, q0 % nx);
        for row in block.chunks_exact_mut(BLOCK).take(nq) {
            let base = channel * height * width;
            for run in runs {
                let out = &mut row[run.at..run.at + run.len];
                let y = run.y + self.taps_y[ty];
                if y < 0 || y as usize >= height {
                    out.fill(0);
                    continue;
                }
                let line = &self.words[run.image + base + y as usize * width..][..width];
                self.read_run(line, run.first, &self.taps_x[tx], out);
            }
            tx += 1;
            if tx == nx {
                (tx, ty) = (0, ty + 1);
            }
            if ty == ny {
                (ty, channel) = (0, channel + 1);
            }
        }
    }

    /// What a tap meets of a line from position `first` on, 0 outside.
    #[inline(always)]
    fn read_run(
        &self,
        line: &[u64],
        first: usize,
        (offset, inside): &(isize, Range<usize>),
        out: &mut [u64],
    ) {
        let low = inside.start.saturating_sub(first).min(out.len());
        let high = inside.end.saturating_sub(first).clamp(low, out.len());
        if high - low < out.len() {
            out[..low].fill(0);
            out[high..].fill(0);
            if low == high {
                return;
            }
        }
        let step = self.step[1];
        let from = &line[((first + low) * step).wrapping_add_signed(*offset)..];
        let out = &mut out[low..high];
        match step {
            1 => copy(out, &from[..out.len()]),
            2 => copy_spread::<2>(out, from),
            3 => copy_spread::<3>(out, from),
            4 => copy_spread::<4>(out, from),
            5 => copy_spread::<5>(out, from),
            8 => copy_spread::<8>(out, from),
            12 => copy_spread::<12>(out, from),
            _ => out.iter_mut().zip(from.iter().step_by(step)).for_each(|(o, w)| *o = *w),
        }
    }

    /// Cuts `count` positions into runs.
    fn runs<'r>(&self, first: usize, count: usize, runs: &'r mut [Run; BLOCK]) -> &'r [Run] {
        let [ny, nx] = self.positions;
        let (mut n, mut at) = (0, 0);
        let (mut image, mut y, mut x) = (first / nx / ny, first / nx % ny, first % nx);
        while at < count {
            let len = (nx - x).min(count - at);
            runs[n] = Run {
                at,
                len,
                image: image * self.image_stride,
                y: (y * self.step[0]) as isize,
                first: x,
            };
            (n, at, x, y) = (n + 1, at + len, 0, y + 1);
            if y == ny {
                (y, image) = (0, image + 1);
            }
        }
        &runs[..n]
    }
}
