//! The partition of a launch into blocks and tasks.

use std::cell::Cell;

use super::block::{Block, Input, Output};
use super::check::Checked;
use crate::{Buffer, CpuEngine, Error, Place, Result, Shape, Source, Stream, Target, Tensor};

/// A launch, its outputs' memory, and the sizes of its blocks.
struct Plan<'a> {
    rows: usize,
    cols: usize,
    sources: Vec<Origin<'a>>,
    targets: Vec<Output>,
    /// Rows and columns of a block; more than one row only where a block spans all columns.
    tile: [usize; 2],
    /// True if operands and results are too large to stay in the cache.
    large: bool,
}

/// The function that runs a kernel over one block.
type Step<'a> = &'a (dyn Fn(&Block<'_>) + Sync);

/// Calls `step` for all blocks of a launch and returns its outputs, made in their places.
pub(super) fn run(
    engine: &CpuEngine,
    launch: &Checked<'_>,
    places: &[Option<Place<'_, Tensor>>],
    step: Step<'_>,
) -> Result<Vec<Tensor>> {
    let buffer = |(i, shape): (usize, &Shape)| {
        let len = shape.len();
        let mut buffer = match places.get(i).and_then(Option::as_ref) {
            None => engine.buffers().take(len),
            Some(Place { room, start }) => room.part(*start, len).ok_or_else(|| {
                let reason = format!("output {i}: words from {start} on are taken, or no room");
                Error::invalid("launch", reason)
            })?,
        };
        if !launch.covers(i) {
            buffer.fill(0);
        }
        Ok(buffer)
    };
    let outputs = launch.outputs();
    let mut buffers = outputs.iter().enumerate().map(buffer).collect::<Result<Vec<_>>>()?;
    Plan::new(launch, &mut buffers).run(engine, step);
    buffers.into_iter().zip(outputs).map(|(b, s)| b.into_tensor(s.clone())).collect()
}

/// The origin of a source's words.
#[derive(Clone, Copy)]
enum Origin<'a> {
    Memory(Input),
    Stream {
        stream: &'a Stream,
        offset: u64,
        stride: u64,
    },
    /// The same words as another source before this one.
    Same(usize),
}

// SAFETY: the pointers to inputs are only read from, for as long as the launch borrows the tensors;
// each word of an output is written by one block alone.
unsafe impl Sync for Plan<'_> {}

/// Words of a block if nothing is generated.
const BLOCK: usize = 1 << 12;

/// Words that all streams of a block together generate: half of a small first-level cache.
const GENERATED: usize = 1 << 11;

/// The size of a launch, in words, from which on results are stored past the cache, which would
/// first read their lines. From this size on the first lines of operands are also fetched while
/// streams are generated. Measured on Sapphire Rapids with operands of 2^21 words: a fifth less
/// time for a share of zero, a tenth for a masked product.
const LARGE: usize = 1 << 19;

/// Words of a launch below which it runs on the calling thread: waking others takes about as long.
const TASK: usize = 1 << 15;

impl<'a> Plan<'a> {
    fn new(launch: &Checked<'a>, outputs: &'a mut [Buffer]) -> Self {
        let [mut rows, mut cols] = launch.space();
        let starts: Vec<*mut u64> = outputs.iter_mut().map(|b| b.as_mut_ptr()).collect();
        let target = |t: &Target| {
            // SAFETY: the check found the offset inside the output, or the launch empty.
            let start = unsafe { starts[t.tensor].add(t.offset) };
            Output { start, pitch: t.row_stride }
        };
        let targets: Vec<_> = launch.targets().iter().map(target).collect();
        let mut sources: Vec<_> = launch.sources().iter().map(Origin::new).collect();
        for i in 1..sources.len() {
            if let Some(same) = (0..i).find(|&j| sources[i].generates_as(&sources[j])) {
                sources[i] = Origin::Same(same);
            }
        }
        // Rows that are contiguous everywhere are one long row.
        let joined = sources.iter().all(|s| s.is_joined(cols));
        if joined && targets.iter().all(|t| t.pitch == cols) {
            (rows, cols) = (rows.min(1), rows * cols);
        }
        let streams = sources.iter().filter(|s| matches!(s, Origin::Stream { .. })).count();
        let whole = |size: usize| (size / WHOLE * WHOLE).max(MIN_BLOCK);
        let size = GENERATED.checked_div(streams).map_or(BLOCK, whole);
        let tile = if cols >= size { [1, size] } else { [(size / cols.max(1)).max(1), cols] };
        Self { rows, cols, sources, targets, tile, large: rows * cols >= LARGE }
    }

    /// Calls `step` for all blocks.
    fn run(&self, engine: &CpuEngine, step: Step<'_>) {
        if self.rows == 0 || self.cols == 0 {
            return;
        }
        let across = self.cols.div_ceil(self.tile[1]);
        let tiles = self.rows.div_ceil(self.tile[0]) * across;
        let words = self.rows * self.cols;
        let tasks = if words < 2 * TASK { 1 } else { words / TASK };
        let each = tiles.div_ceil(tasks);
        engine.each(tiles.div_ceil(each), &|task| {
            let mut scratch = SCRATCH.take();
            for tile in task * each..tiles.min((task + 1) * each) {
                self.tile(step, &mut scratch, [tile / across, tile % across]);
            }
            SCRATCH.set(scratch);
            super::block::finish(self.large);
        });
    }

    /// Calls `step` for one block.
    fn tile(&self, step: Step<'_>, scratch: &mut Scratch, [down, right]: [usize; 2]) {
        let (top, left) = (down * self.tile[0], right * self.tile[1]);
        let rows = self.tile[0].min(self.rows - top);
        let cols = self.tile[1].min(self.cols - left);
        let generated = |source: &Origin<'_>| source.scratch(rows, cols).next_multiple_of(8);
        let used = self.sources.iter().map(generated).sum();
        let Scratch { words, inputs, outputs } = scratch;
        if words.len() < used {
            *words = Buffer::plain(used);
        }
        let mut free = &mut words[..used];
        inputs.clear();
        for source in &self.sources {
            if self.large && rows == 1 {
                source.announce([top, left], cols);
            }
            let (own, rest) = free.split_at_mut(generated(source));
            let own = &mut own[..source.scratch(rows, cols)];
            let input = source.input([top, left], [rows, cols], own, inputs);
            inputs.push(input);
            free = rest;
        }
        outputs.clear();
        outputs.extend(self.targets.iter().map(|t| {
            // SAFETY: the check found every target inside its output.
            Output { start: unsafe { t.start.add(top * t.pitch + left) }, ..*t }
        }));
        // The check found every address inside its tensor, and that targets do not meet; generated
        // words stay in the scratch memory until the block is done.
        step(&Block { rows, cols, inputs, outputs, past_cache: self.large });
    }
}

/// Words of a block at least, whatever the number of streams.
const MIN_BLOCK: usize = 256;

/// Words that generators make at their full width. Blocks are cut there: a part of a key stream's
/// block at either end of a piece costs as much as many whole ones.
const WHOLE: usize = 128;

/// Words of a page of memory.
#[cfg(target_arch = "x86_64")]
const PAGE: usize = 512;

/// Memory for generated words and for the pointers of a block.
struct Scratch {
    words: Buffer,
    inputs: Vec<Input>,
    outputs: Vec<Output>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self { words: Buffer::plain(0), inputs: Vec::new(), outputs: Vec::new() }
    }
}

thread_local! {
    /// Kept from launch to launch.
    static SCRATCH: Cell<Scratch> = Cell::default();
}

impl<'a> Origin<'a> {
    fn new(source: &Source<'a, Tensor>) -> Self {
        match *source {
            Source::Tensor { tensor, offset, row_stride } => {
                // The offset may be anything if the launch is empty.
                let start = tensor.words().as_ptr().wrapping_add(offset);
                Self::Memory(Input { start, pitch: row_stride, step: 1 })
            }
            Source::PerRow { tensor, offset } => {
                let start = tensor.words().as_ptr().wrapping_add(offset);
                Self::Memory(Input { start, pitch: 1, step: 0 })
            }
            Source::Stream { stream, offset, row_stride } => {
                Self::Stream { stream, offset, stride: row_stride }
            }
        }
    }

    /// True if the same words of one stream are generated for both.
    fn generates_as(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Stream { stream, offset, stride },
                Self::Stream { stream: other, offset: first, stride: pitch },
            ) => std::ptr::eq(*stream, *other) && offset == first && stride == pitch,
            _ => false,
        }
    }

    /// True if rows of `cols` words are contiguous.
    fn is_joined(&self, cols: usize) -> bool {
        match *self {
            Self::Same(_) => true,
            Self::Memory(input) => input.pitch == cols && input.step == 1,
            Self::Stream { stride, .. } => stride == cols as u64,
        }
    }

    /// Words to generate for a block.
    fn scratch(&self, rows: usize, cols: usize) -> usize {
        match *self {
            Self::Memory(_) | Self::Same(_) => 0,
            Self::Stream { stride, .. } => span(stride, rows, cols).unwrap_or(rows * cols),
        }
    }

    /// Fetches the first lines of each page of a row; the CPU's own prefetching fetches the rest.
    fn announce(&self, [top, left]: [usize; 2], cols: usize) {
        #[cfg(target_arch = "x86_64")]
        if let Self::Memory(Input { start, pitch, step: 1 }) = *self {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let row = start.wrapping_add(top * pitch + left);
            for line in (0..cols).step_by(PAGE).flat_map(|page| (page..page + 64).step_by(8)) {
                // SAFETY: a prefetch changes nothing and does not fault, whatever the address.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(row.wrapping_add(line).cast()) }
            }
        }
    }

    /// The input of a block at `[top, left]`, generated into `words` if it is a stream; `earlier` are
    /// those of the sources before.
    fn input(
        &self,
        [top, left]: [usize; 2],
        [rows, cols]: [usize; 2],
        words: &mut [u64],
        earlier: &[Input],
    ) -> Input {
        match *self {
            Self::Same(source) => earlier[source],
            Self::Memory(input) => {
                let start = input.start.wrapping_add(top * input.pitch + left * input.step);
                Input { start, ..input }
            }
            Self::Stream { stream, offset, stride } => {
                let first = offset + top as u64 * stride + left as u64;
                let pitch = if span(stride, rows, cols).is_some() {
                    stream.fill(first, words);
                    stride as usize
                } else {
                    for (r, row) in words.chunks_exact_mut(cols).enumerate() {
                        stream.fill(first + r as u64 * stride, row);
                    }
                    cols
                };
                Input { start: words.as_ptr(), pitch, step: 1 }
            }
        }
    }
}

/// Words of a stream from the first to the last of a block, if at least half of them are used: then
/// one call generates them all.
fn span(stride: u64, rows: usize, cols: usize) -> Option<usize> {
    let span = stride.checked_mul(rows as u64 - 1)?.checked_add(cols as u64)?;
    usize::try_from(span).ok().filter(|&span| span / 2 <= rows * cols)
}
