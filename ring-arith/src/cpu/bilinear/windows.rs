//! Words under sliding windows, laid out so that the words which neighbouring positions meet are
//! neighbours and no window reaches over a border.

use std::ops::Range;

use rayon::prelude::*;

use super::Job;
use super::source::{BLOCK, Block, copy};
use crate::Buffer;

/// Images and the windows that slide over them. Position `(image, y, x)` and tap `(channel, ty, tx)`
/// meet at row `y * step[0] + taps[0][ty]`, column `x * step[1] + taps[1][tx]` of the channel; outside
/// it is 0.
pub(super) struct Images<'a> {
    /// The words, starting at the first channel of the first image.
    pub words: &'a [u64],
    /// Number of images.
    pub images: usize,
    /// Channels of each.
    pub channels: usize,
    /// Words from one image to the next.
    pub image_stride: usize,
    /// Height and width of a channel.
    pub size: [usize; 2],
    /// Positions per image, along height and width.
    pub positions: [usize; 2],
    /// Rows and columns from one position to the next.
    pub step: [usize; 2],
    /// Row and column offset of each tap; negative in the border.
    pub taps: [Vec<isize>; 2],
}

/// Windows over images, all of whose words are there: see [`Columns`].
pub(super) struct Windows<'a> {
    words: Words<'a>,
    taps: Vec<usize>,
    plane: usize,
    positions: [usize; 2],
    row: usize,
    image: usize,
}

enum Words<'a> {
    /// Those of the images themselves.
    There(&'a [u64]),
    /// Copies, with the border around them.
    Copied(Buffer),
}

/// The places of the words of columns: that of inner index `(channel, tap)` and column
/// `(image, y, x)` is `channel * plane + taps[tap] + image * self.image + y * row + x`.
#[derive(Clone, Copy)]
pub(super) struct Columns<'a> {
    /// The words.
    pub words: &'a [u64],
    /// Offset of each tap.
    pub taps: &'a [usize],
    /// Words from one channel to the next.
    pub plane: usize,
    /// Rows of an image, and columns of a row.
    pub positions: [usize; 2],
    /// Words from one row to the next.
    pub row: usize,
    /// Words from one image to the next.
    pub image: usize,
}

/// Columns whose words follow one another.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Run {
    /// The first, counted from the first that was asked for.
    pub at: usize,
    /// Number of columns.
    pub len: usize,
    /// The first word's place, before a tap's offset.
    pub from: usize,
}

/// Some lanes of a vector of columns: the words of an inner index are contiguous, that of lane 0 at
/// `from`. This may lie outside if lane 0 is not among these.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lanes {
    /// A bit for each lane.
    pub mask: u8,
    /// The place of lane 0's word, before a tap's offset.
    pub from: isize,
}

/// One axis of windows: inputs are grouped by their residue modulo the step.
struct Axis {
    /// The first input that a window meets; negative in the border.
    low: isize,
    step: usize,
    /// The residues that taps meet, counted from `low`, and which of a residue's entries are inputs.
    residues: Vec<(usize, Range<usize>)>,
    /// Entries of each residue.
    len: usize,
    /// For each tap its residue's place in the list, and the entry that the first position meets.
    taps: Vec<[usize; 2]>,
}

impl Axis {
    fn new(images: &Images<'_>, axis: usize) -> Self {
        let (size, positions) = (images.size[axis] as isize, images.positions[axis]);
        // One position does not need a step.
        let step = if positions > 1 { images.step[axis] } else { 1 };
        let low = images.taps[axis].iter().copied().min().unwrap_or(0);
        let beyond = |offset: &isize| (offset - low) as usize;
        let mut found: Vec<_> = images.taps[axis].iter().map(|o| beyond(o) % step).collect();
        found.sort_unstable();
        found.dedup();
        let taps = images.taps[axis].iter().map(beyond);
        let taps = taps.map(|o| [found.partition_point(|r| *r < o % step), o / step]);
        let taps: Vec<_> = taps.collect();
        let len = positions + taps.iter().map(|tap| tap[1]).max().unwrap_or(0);
        let inside = |residue: usize| {
            let first = low + residue as isize;
            let reached = |input: isize| usize::try_from(input).unwrap_or(0).div_ceil(step);
            let end = reached(size - first).min(len);
            (residue, reached(-first).min(end)..end)
        };
        Self { low, step, residues: found.into_iter().map(inside).collect(), len, taps }
    }

    /// True without a border, and without inputs between those that positions meet.
    fn is_plain(&self) -> bool {
        self.residues.iter().all(|(_, inside)| *inside == (0..self.len))
    }

    /// The input at an entry of a residue.
    fn input(&self, residue: usize, entry: usize) -> usize {
        (self.low + (residue + entry * self.step) as isize) as usize
    }

    /// Copies the inputs of a line that entries of all residues meet, and does not write entries
    /// outside.
    fn read(&self, line: &[u64], out: &mut [u64]) {
        for ((residue, inside), out) in self.residues.iter().zip(out.chunks_exact_mut(self.len)) {
            if inside.is_empty() {
                continue;
            }
            let out = &mut out[inside.clone()];
            let from = &line[self.input(*residue, inside.start)..];
            match self.step {
                1 => copy(out, &from[..out.len()]),
                2 => copy_spread::<2>(out, from),
                3 => copy_spread::<3>(out, from),
                4 => copy_spread::<4>(out, from),
                5 => copy_spread::<5>(out, from),
                8 => copy_spread::<8>(out, from),
                12 => copy_spread::<12>(out, from),
                step => out.iter_mut().zip(from.iter().step_by(step)).for_each(|(o, w)| *o = *w),
            }
        }
    }
}

/// Copies words that lie `STEP` apart; a known distance takes half the time.
#[inline(always)]
fn copy_spread<const STEP: usize>(to: &mut [u64], from: &[u64]) {
    let Some((last, to)) = to.split_last_mut() else { return };
    *last = from[to.len() * STEP];
    to.iter_mut().zip(from.as_chunks::<STEP>().0).for_each(|(to, from)| *to = from[0]);
}

impl<'a> Windows<'a> {
    /// Lays the windows out. Windows without a border whose neighbouring positions meet
    /// neighbouring words use the images directly.
    pub(super) fn new(job: Job<'_>, images: &Images<'a>) -> Self {
        let [y, x] = [0, 1].map(|axis| Axis::new(images, axis));
        let [height, width] = images.size;
        let plain = x.is_plain() && y.is_plain();
        if x.step == 1 && plain {
            let first = y.low as usize * width + x.low as usize;
            let row =
                |[residue, entry]: [usize; 2]| (y.residues[residue].0 + entry * y.step) * width;
            return Self {
                words: Words::There(images.words.get(first..).unwrap_or_default()),
                taps: all_taps(&y, &x, row, |[_, entry]| entry),
                plane: height * width,
                positions: images.positions,
                row: y.step * width,
                image: images.image_stride,
            }
            .joined();
        }
        let pitch = x.residues.len() * x.len;
        let plane = y.residues.len() * y.len * pitch;
        let mut words = job.buffers.take(images.images * images.channels * plane);
        let copy = |(index, out): (usize, &mut [u64])| {
            let (image, channel) = (index / images.channels, index % images.channels);
            let from = image * images.image_stride + channel * height * width;
            let from = &images.words[from..][..height * width];
            if !plain {
                out.fill(0);
            }
            let parts = y.residues.iter().zip(out.chunks_exact_mut(y.len * pitch));
            for ((residue, inside), out) in parts {
                let rows = out.chunks_exact_mut(pitch).enumerate();
                for (at, out) in rows.take(inside.end).skip(inside.start) {
                    x.read(&from[y.input(*residue, at) * width..][..width], out);
                }
            }
        };
        if plane > 0 && job.threads <= 1 {
            words.chunks_exact_mut(plane).enumerate().for_each(copy);
        } else if plane > 0 {
            words.par_chunks_exact_mut(plane).enumerate().for_each(copy);
        }
        Self {
            words: Words::Copied(words),
            taps: all_taps(
                &y,
                &x,
                |[residue, entry]| (residue * y.len + entry) * pitch,
                |[residue, entry]| residue * x.len + entry,
            ),
            plane,
            positions: images.positions,
            row: pitch,
            image: images.channels * plane,
        }
        .joined()
    }

    /// One long row where rows are contiguous: loops over it are faster.
    fn joined(mut self) -> Self {
        let [rows, width] = self.positions;
        if self.row == width {
            self.positions = [1, rows * width];
        }
        self
    }

    /// The places of the words.
    pub(super) fn columns(&self) -> Columns<'_> {
        let words = match &self.words {
            Words::There(words) => words,
            Words::Copied(words) => &words[..],
        };
        let Self { ref taps, plane, positions, row, image, .. } = *self;
        Columns { words, taps, plane, positions, row, image }
    }
}

/// Offsets of all taps.
fn all_taps(
    y: &Axis,
    x: &Axis,
    row: impl Fn([usize; 2]) -> usize,
    column: impl Fn([usize; 2]) -> usize,
) -> Vec<usize> {
    let columns: Vec<_> = x.taps.iter().map(|tap| column(*tap)).collect();
    let rows = y.taps.iter().map(|tap| row(*tap));
    rows.flat_map(|row| columns.iter().map(move |column| row + column)).collect()
}

impl Columns<'_> {
    /// Offsets of the inner indices from one on, without a division for each.
    pub(super) fn offsets(&self, first: usize) -> impl Iterator<Item = usize> {
        let Self { taps, plane, .. } = *self;
        let (mut channel, mut tap) = (first / taps.len() * plane, first % taps.len());
        std::iter::from_fn(move || {
            let offset = channel + taps[tap];
            tap += 1;
            if tap == taps.len() {
                (channel, tap) = (channel + plane, 0);
            }
            Some(offset)
        })
    }

    /// Offsets of some inner indices and of `more` after them. Panics unless the words that the first
    /// ones meet in some columns exist.
    pub(super) fn offsets_within(
        &self,
        k: &Range<usize>,
        some: &Range<usize>,
        more: usize,
    ) -> Vec<usize> {
        let offsets: Vec<_> = self.offsets(k.start).take(k.len() + more).collect();
        let last = self.runs(some.start, some.len()).map(|run| run.from + run.len).max();
        let most = offsets[..k.len()].iter().max().zip(last).map_or(0, |(o, last)| o + last);
        assert!(most <= self.words.len());
        offsets
    }

    /// Lanes that cover some columns, vector by vector of `WIDE` lanes, and for each of `count` vectors
    /// where its lanes end in the list. Each inner index has the same.
    pub(super) fn vectors<const WIDE: usize>(
        &self,
        some: &Range<usize>,
        count: usize,
    ) -> (Vec<Lanes>, Vec<usize>) {
        let (mut list, mut ends) = (Vec::with_capacity(2 * count), Vec::with_capacity(count));
        for run in self.runs(some.start, some.len()) {
            let mut at = run.at;
            while at < run.at + run.len {
                let lane = at % WIDE;
                let len = (WIDE - lane).min(run.at + run.len - at);
                let from = (run.from + at - run.at) as isize - lane as isize;
                let mask = (((1u16 << len) - 1) << lane) as u8;
                list.push(Lanes { mask, from });
                at += len;
                if at.is_multiple_of(WIDE) {
                    ends.push(list.len());
                }
            }
        }
        ends.resize(count, list.len());
        (list, ends)
    }

    /// Cuts `count` columns into runs.
    pub(super) fn runs(&self, first: usize, count: usize) -> impl Iterator<Item = Run> {
        let Self { positions: [ny, nx], row, image, .. } = *self;
        let mut at = 0;
        let (mut i, mut y, mut x) = (first / nx / ny, first / nx % ny, first % nx);
        std::iter::from_fn(move || {
            let len = (nx - x).min(count - at);
            if len == 0 {
                return None;
            }
            let run = Run { at, len, from: i * image + y * row + x };
            (at, x, y) = (at + len, 0, y + 1);
            if y == ny {
                (y, i) = (0, i + 1);
            }
            Some(run)
        })
    }

    /// Reads `[inner, columns]` of a size from a first one on. Rows of the block are inner indices.
    pub(super) fn read(&self, [k, first]: [usize; 2], size: [usize; 2], block: &mut Block) {
        let mut runs = [Run::default(); BLOCK];
        let mut count = 0;
        for (to, run) in runs.iter_mut().zip(self.runs(first, size[1])) {
            (*to, count) = (run, count + 1);
        }
        for (row, offset) in block.chunks_exact_mut(BLOCK).take(size[0]).zip(self.offsets(k)) {
            let words = &self.words[offset..];
            for run in &runs[..count] {
                copy(&mut row[run.at..run.at + run.len], &words[run.from..run.from + run.len]);
            }
        }
    }
}
