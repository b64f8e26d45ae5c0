//! The blocked matrix product: operands are packed into panels, tiles of the result are summed in
//! registers.
//!
//! The loops are those of Goto and van de Geijn (ACM TOMS 34(3), 2008). A block of packed panels of
//! the second operand and a few panels of the first stay in the second-level cache. One panel stays
//! in the first-level cache while those of the other operand stream past.

use std::cell::RefCell;
use std::ops::Range;

use rayon::prelude::*;

use super::kernel::{Entered, Kernel, LINE, Line, Next, Panel, Panels, ROW, Side, Spot, Tile};
use super::output::{Output, Sink};
use super::source::{Along, BLOCK, Block, Source};

/// Matrix products whose results are disjoint parts of one tensor: the batch of a `matmul`, the
/// groups of a convolution.
pub(super) struct Product<'a> {
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// The terms of the sum.
    pub terms: Vec<Term<'a>>,
    /// The place of the result.
    pub output: Output,
}

/// The most products of words that one term of some products has for a word of its result.
pub(super) fn depth(products: &[Product<'_>]) -> usize {
    products.iter().flat_map(|product| &product.terms).map(|term| term.k).max().unwrap_or(0)
}

/// One product `[m, k] x [k, n]`.
pub(super) struct Term<'a> {
    /// The first operand, by row and `k`.
    pub a: Source<'a>,
    /// The second operand, by column and `k`.
    pub b: Source<'a>,
    /// The inner dimension.
    pub k: usize,
}

/// Writes the start values of the result: `init(first, words)` for the words from `first` on.
pub(super) type Init<'a> = &'a (dyn Fn(usize, &mut [u64]) + Sync);

/// The value of a result before its products are added.
#[derive(Clone, Copy)]
pub(super) enum Start<'a> {
    /// Nothing: the first product overwrites the words.
    Zero,
    /// The words already there.
    Words,
    /// The words that this function writes, called for each part just before its first product.
    Init(Init<'a>),
}

/// The kernel, threads and start of a product.
#[derive(Clone, Copy)]
pub(super) struct Plan<'a> {
    /// The micro-kernel.
    pub kernel: Kernel,
    /// Threads of the current rayon pool to use.
    pub threads: usize,
    /// The value that products are added to.
    pub start: Start<'a>,
}

/// A rectangle of one product's result.
struct Region {
    product: usize,
    rows: Range<usize>,
    columns: Range<usize>,
}

/// For products smaller than this, waking another thread takes longer than it saves.
const WORK_PER_TASK: usize = 1 << 18;

/// Computes all products.
pub(super) fn run(products: &[Product<'_>], plan: Plan<'_>, out: Sink<'_>) {
    let regions = regions(products, plan);
    if plan.threads <= 1 || regions.len() == 1 {
        regions.iter().for_each(|r| run_region(&products[r.product], r, plan, out));
    } else {
        // Each region is big enough for a separate task.
        let tasks = regions.par_iter().with_max_len(1);
        tasks.for_each(|r| run_region(&products[r.product], r, plan, out));
    }
}

impl Product<'_> {
    fn work(&self) -> usize {
        let k: usize = self.terms.iter().map(|t| t.k).sum();
        self.m.saturating_mul(self.n).saturating_mul(k)
    }
}

/// Cuts the products so that every thread has something to do.
fn regions(products: &[Product<'_>], plan: Plan<'_>) -> Vec<Region> {
    let mut regions = Vec::with_capacity(products.len());
    // Two regions per thread leave room for balance; a single thread packs least with one.
    let wanted = if plan.threads <= 1 { 1 } else { 2 * plan.threads };
    for (index, product) in products.iter().enumerate() {
        let worth = product.work() / WORK_PER_TASK;
        let parts = wanted.div_ceil(products.len()).min(worth.max(1));
        let [row_parts, column_parts] = grid(product, parts, &plan.kernel);
        for rows in cut(product.m, row_parts, plan.kernel.mr) {
            for columns in cut(product.n, column_parts, plan.kernel.nr) {
                regions.push(Region { product: index, rows: rows.clone(), columns });
            }
        }
    }
    regions
}

/// The grid of about `parts` regions that packs the fewest words.
fn grid(product: &Product<'_>, parts: usize, kernel: &Kernel) -> [usize; 2] {
    let most = [product.m.div_ceil(kernel.mr).max(1), product.n.div_ceil(kernel.nr).max(1)];
    let candidates = (1..=parts).map(|rows| [rows.min(most[0]), parts.div_ceil(rows).min(most[1])]);
    candidates
        .min_by_key(|[r, c]| {
            let missing = parts.saturating_sub(r * c);
            (missing, c * product.m + r * product.n)
        })
        .unwrap_or([1, 1])
}

/// Cuts `0..len` into at most `parts` ranges of whole panels.
fn cut(len: usize, parts: usize, panel: usize) -> impl Iterator<Item = Range<usize>> {
    let step = len.div_ceil(panel).div_ceil(parts).max(1) * panel;
    (0..len).step_by(step).map(move |start| start..(start + step).min(len))
}

/// The length of even chunks of `len`, at most `limit` and a multiple of `unit`.
fn even(len: usize, limit: usize, unit: usize) -> usize {
    let chunks = len.div_ceil(limit).max(1);
    len.div_ceil(chunks).next_multiple_of(unit).max(unit)
}

/// A thread's memory for packed panels, kept from call to call.
#[derive(Default)]
struct Scratch {
    a: Vec<Line>,
    b: Vec<Line>,
    block: Option<Box<Block>>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

fn run_region(product: &Product<'_>, region: &Region, plan: Plan<'_>, out: Sink<'_>) {
    // Taken out rather than borrowed: functions that `init` calls may enter this function again on
    // this thread.
    let mut scratch = SCRATCH.take();
    let kernel = plan.kernel;
    let mr = even(region.rows.len(), kernel.mr, 1);
    let mut entered = kernel.enter(mr);
    // Columns that meet a few rows only are soon done with: their block should be small.
    let few = region.rows.len() <= 2 * kernel.mr;
    let nc = if few { (kernel.nc / 8).next_multiple_of(kernel.nr) } else { kernel.nc };
    for start in region.columns.clone().step_by(nc) {
        let columns = start..(start + nc).min(region.columns.end);
        Strip { product, plan, out, mr, rows: region.rows.clone(), columns }
            .run(&mut entered, &mut scratch);
    }
    SCRATCH.set(scratch);
}

/// All rows of a region and as many columns as are packed at a time.
struct Strip<'a> {
    product: &'a Product<'a>,
    plan: Plan<'a>,
    out: Sink<'a>,
    mr: usize,
    rows: Range<usize>,
    columns: Range<usize>,
}

impl Strip<'_> {
    fn run(&self, entered: &mut Entered, scratch: &mut Scratch) {
        let kernel = self.plan.kernel;
        let mut fresh = true;
        for term in self.product.terms.iter().filter(|t| t.k > 0) {
            let chunk = even(term.k, kernel.kc, kernel.k_unit);
            for k in (0..term.k).step_by(chunk) {
                let k = k..(k + chunk).min(term.k);
                Pass { strip: self, term, k, fresh }.run(entered, scratch);
                fresh = false;
            }
        }
        if fresh {
            self.begin(self.rows.clone(), true);
        }
    }

    /// Writes the start of some rows; zeros only if nothing will follow.
    fn begin(&self, rows: Range<usize>, zeros: bool) {
        let output = &self.product.output;
        // Whole rows that follow one another are one piece.
        if let (Start::Init(init), Some(first)) = (self.plan.start, output.plain(&self.columns))
            && output.row_stride == self.columns.len()
        {
            let count = rows.len() * output.row_stride;
            let first = first + rows.start * output.row_stride;
            // SAFETY: regions are disjoint parts of the result, and this one is ours.
            return init(first, unsafe { self.out.piece(first, count) });
        }
        for row in rows {
            output.pieces(row, self.columns.clone(), |word, _, count| {
                match self.plan.start {
                    Start::Init(init) => {
                        // SAFETY: regions are disjoint parts of the result, and this one is ours.
                        init(word, unsafe { self.out.piece(word, count) });
                    }
                    Start::Zero if zeros => self.each_word(word, count, |_, w| *w = 0),
                    Start::Zero | Start::Words => {}
                }
            });
        }
    }

    /// Adds a tile to the result, or writes it.
    fn put(&self, part: &Part, tile: &Tile, overwrite: bool) {
        let nr = self.plan.kernel.nr;
        let output = &self.product.output;
        for (row, words) in part.rows.clone().zip(tile.0.chunks_exact(nr)) {
            output.pieces(row, part.across.columns.clone(), |at, column, count| {
                let words = &words[column..column + count];
                if overwrite {
                    self.each_word(at, count, |i, w| *w = words[i]);
                } else {
                    self.each_word(at, count, |i, w| *w = w.wrapping_add(words[i]));
                }
            });
        }
    }

    /// Visits `count` neighbouring columns of one row.
    #[inline(always)]
    fn each_word(&self, first: usize, count: usize, mut visit: impl FnMut(usize, &mut u64)) {
        let stride = self.product.output.stride[1];
        if stride == 1 {
            // SAFETY: regions are disjoint parts of the result, and this one is ours.
            let words = unsafe { self.out.piece(first, count) };
            words.iter_mut().enumerate().for_each(|(i, w)| visit(i, w));
        } else {
            for i in 0..count {
                // SAFETY: as above; words between these belong to others and are not touched.
                let word = unsafe { self.out.piece(first + i * stride, 1) };
                visit(i, &mut word[0]);
            }
        }
    }
}

/// A tile's place in the result.
struct Part {
    rows: Range<usize>,
    across: Across,
}

/// Columns of a tile.
#[derive(Clone)]
struct Across {
    columns: Range<usize>,
    /// The word of row 0 and the first of them, if their words follow one another.
    first: Option<usize>,
}

/// Some inner indices of one term, for all of a strip.
struct Pass<'a> {
    strip: &'a Strip<'a>,
    term: &'a Term<'a>,
    k: Range<usize>,
    /// The strip's words are not written yet.
    fresh: bool,
}

impl Pass<'_> {
    fn run(&self, entered: &mut Entered, scratch: &mut Scratch) {
        let Strip { plan: Plan { kernel, .. }, mr, ref rows, ref columns, .. } = *self.strip;
        let depth = self.k.len().next_multiple_of(kernel.k_unit);
        let shapes = [Side::A, Side::B].map(|side| kernel.panel(side, mr, depth));
        let Scratch { a, b, block } = scratch;
        let block = block.get_or_insert_with(|| Box::new([0; BLOCK * BLOCK]));
        let b = room(b, columns.len().div_ceil(kernel.nr) * shapes[1].words());
        let whole = self
            .term
            .b
            .columns()
            .is_some_and(|from| kernel.pack_columns(shapes[1], &from, &self.k, columns, b));
        if !whole {
            pack(&self.term.b, columns.clone(), &self.k, kernel, shapes[1], block, b);
        }
        let plain = self.plain_rows();
        let shapes = [plain.map_or(shapes[0], |(shape, ..)| shape), shapes[1]];
        // Rows that meet one panel of columns after another need not wait for others.
        let alone = plain.is_some() && kernel.keep == Side::A;
        let group = if alone { 1 } else { BLOCK / mr };
        let a = room(a, group * shapes[0].words());
        let output = &self.strip.product.output;
        let across = columns.clone().step_by(kernel.nr).map(|left| {
            let columns = left..(left + kernel.nr).min(columns.end);
            Across { first: output.plain(&columns), columns }
        });
        let across: Vec<_> = across.collect();
        let mut late = None;
        for first in rows.clone().step_by(group * mr) {
            let rows = first..(first + group * mr).min(rows.end);
            match plain {
                Some((shape, words, stride)) => {
                    let packed = &mut a[..rows.len() * ROW];
                    kernel.pack_rows(shape, &words[first * stride..], stride, packed);
                }
                None => pack(&self.term.a, rows.clone(), &self.k, kernel, shapes[0], block, a),
            }
            if self.fresh && !self.overwrites() {
                self.strip.begin(rows.clone(), false);
            }
            let counts = [rows.len().div_ceil(mr), across.len()];
            for [i, j] in pairs(counts, kernel.keep) {
                let words = [shapes[0].nth(a, i), shapes[1].nth(b, j)];
                let top = rows.start + i * mr;
                let part = Part { rows: top..(top + mr).min(rows.end), across: across[j].clone() };
                let mut panels = Panels::new(words, shapes, part.across.columns.len());
                panels.shapes[0].width = part.rows.len();
                if let Some((_, words, stride)) = plain
                    && let Some((ahead, some)) = ahead([mr, group, counts[1]], j)
                    && let Some(words) = words.get((top + ahead) * stride..)
                {
                    panels.next = Next { words, stride, pairs: some / 2 - 1 };
                }
                late = self.multiply(panels, part, late, entered);
            }
        }
        if let Some(last) = late {
            let spot = self.spot(&last);
            kernel.finish(entered, spot);
            self.settle(&last, spot, entered);
        }
    }

    /// Multiplies one pair of panels and writes the part that is ready; returns the part that is
    /// not.
    fn multiply(
        &self,
        panels: Panels<'_>,
        part: Part,
        late: Option<Part>,
        entered: &mut Entered,
    ) -> Option<Part> {
        let spot = late.as_ref().map(|late| self.spot(late));
        let ready = self.strip.plan.kernel.multiply(entered, panels, spot);
        if let (Some(late), Some(spot)) = (late, spot) {
            self.settle(&late, spot, entered);
        }
        if !ready {
            return Some(part);
        }
        match self.spot(&part) {
            Spot::Rows(rows) => self.strip.plan.kernel.put(&entered.tile, rows),
            Spot::Tile => self.strip.put(&part, &entered.tile, self.overwrites()),
        }
        None
    }

    /// The first operand's words from these inner indices on, and from one row to the next, if its rows
    /// are packed as they lie; the shape of the panels then.
    fn plain_rows(&self) -> Option<(Panel, &[u64], usize)> {
        let kernel = self.strip.plan.kernel;
        if !self.k.len().is_multiple_of(kernel.k_unit) {
            return None;
        }
        let (words, stride) = self.term.a.rows()?;
        let shape = kernel.row_panel(self.strip.mr, self.k.len())?;
        Some((shape, &words[self.k.start..], stride))
    }

    fn overwrites(&self) -> bool {
        self.fresh && matches!(self.strip.plan.start, Start::Zero)
    }

    /// The place of a part's words in the result, if their layout is that of a tile; the tile
    /// itself if not.
    fn spot(&self, part: &Part) -> Spot<'_> {
        let Some(first) = part.across.first else {
            return Spot::Tile;
        };
        let stride = self.strip.product.output.row_stride;
        let start = first + part.rows.start * stride;
        let size = [part.rows.len(), part.across.columns.len()];
        // SAFETY: regions are disjoint parts of the result, and this one is ours.
        Spot::Rows(unsafe { self.strip.out.rows(start, stride, size, !self.overwrites()) })
    }

    /// Brings a part to the result if it is still in the tile.
    fn settle(&self, part: &Part, spot: Spot<'_>, entered: &Entered) {
        if matches!(spot, Spot::Tile) {
            self.strip.put(part, &entered.tile, self.overwrites());
        }
    }
}

/// The first row, counted from its own, that the tile of panel `j` prefetches while it is computed, and
/// their number. Each tile prefetches some rows of the next panel, all tiles together all of them. All
/// panels of a group share the next group's panel, which the first tile prefetches.
fn ahead([mr, group, across]: [usize; 3], j: usize) -> Option<(usize, usize)> {
    if group > 1 {
        return (j == 0).then_some((group * mr, 2));
    }
    let some = match across {
        1 => 8,
        2 | 3 => 4,
        _ => 2,
    };
    Some((mr + j * some % mr.next_multiple_of(some), some))
}

/// All pairs of panels, in the order in which panels of the side to be kept stay the same longest.
pub(super) fn pairs(counts: [usize; 2], keep: Side) -> impl Iterator<Item = [usize; 2]> {
    let [outer, inner] = if keep == Side::A { counts } else { [counts[1], counts[0]] };
    let all = (0..outer).flat_map(move |i| (0..inner).map(move |j| [i, j]));
    all.map(move |[i, j]| if keep == Side::A { [i, j] } else { [j, i] })
}

/// The first `words` of a buffer that grows as needed.
fn room(buffer: &mut Vec<Line>, words: usize) -> &mut [u64] {
    let lines = words.div_ceil(LINE);
    if buffer.len() < lines {
        buffer.resize(lines, Line::default());
    }
    &mut bytemuck::cast_slice_mut(buffer)[..words]
}

/// Packs outer indices `outer` and inner indices `k` of an operand into panels.
fn pack(
    source: &Source<'_>,
    outer: Range<usize>,
    k: &Range<usize>,
    kernel: Kernel,
    shape: Panel,
    block: &mut Block,
    packed: &mut [u64],
) {
    let width = shape.width;
    let along = source.along();
    let step = BLOCK / width * width;
    for first in outer.clone().step_by(step) {
        let outer_count = step.min(outer.end - first);
        let panels = &mut packed[(first - outer.start) / width * shape.words()..];
        for inner in k.clone().step_by(BLOCK) {
            let count = [outer_count, BLOCK.min(k.end - inner)];
            // The block after this one is on its way while this one is read.
            let more = inner + BLOCK < k.end;
            let next = if more { [first, inner + BLOCK] } else { [first + outer_count, k.start] };
            source.read([first, inner], count, next, block);
            let padded = [outer_count.next_multiple_of(width), BLOCK];
            pad(along, count, padded, block);
            let at = (inner - k.start) * shape.stride;
            let depth = BLOCK.min(shape.depth - (inner - k.start));
            for (i, panel) in panels.chunks_mut(shape.words()).enumerate() {
                if i * width >= outer_count {
                    break;
                }
                let part = &mut panel[at..at + depth * shape.stride];
                kernel.pack(shape, block, along, i * width, part);
            }
        }
        for panel in panels.chunks_exact_mut(shape.words()).take(outer_count.div_ceil(width)) {
            kernel.seal(shape, panel);
        }
    }
}

/// Puts zeros around the part of a block that was read.
fn pad(along: Along, count: [usize; 2], padded: [usize; 2], block: &mut Block) {
    let ([rows, columns], [all_rows, all_columns]) = match along {
        Along::Inner => (count, padded),
        Along::Outer => ([count[1], count[0]], [padded[1], padded[0]]),
    };
    if columns < all_columns {
        for row in block.chunks_exact_mut(BLOCK).take(rows) {
            row[columns..all_columns].fill(0);
        }
    }
    block[rows * BLOCK..all_rows * BLOCK].fill(0);
}
