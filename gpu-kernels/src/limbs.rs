//! Products on the tensor cores, by 8-bit limbs.

use float_embed::LimbPlan;
use ring_arith::{Result, Shape};

use crate::{
    CudaTensor,
    device::{Device, Fields, Shipped, pointer},
    products::{Added, Plan},
};

/// Columns of limbs that a step takes.
const DEEP: usize = 32;
/// Rows and columns of an operand that a block of the split makes into limbs.
const SPLIT: [usize; 2] = [32, 64];
/// Most rows of a part, so that the split's grid holds them.
const ROWS: usize = 1 << 20;

/// A kernel that multiplies limbs.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    module: Shipped,
    /// The suffix of its kernels' names.
    suffix: &'static str,
    /// Rows and columns of the result that a block computes.
    tile: [usize; 2],
    /// Steps of both operands that lie in shared memory.
    stages: usize,
}

impl Form {
    /// `mma.sync`, on every device.
    pub(crate) const MMA: Self =
        Self { module: Shipped::Limbs, suffix: "u8", tile: [64, 64], stages: 3 };
    /// `wgmma`, on compute capability 9.x.
    pub(crate) const WGMMA: Self =
        Self { module: Shipped::Wgmma, suffix: "wgmma", tile: [64, 96], stages: 5 };

    fn shared(&self) -> u32 {
        (self.stages * 8 * DEEP * (self.tile[0] + self.tile[1])) as u32
    }
}

/// Columns `k..k + depth` of one term's operands.
pub(crate) struct Segment {
    pub term: usize,
    pub k: usize,
    pub depth: usize,
}

/// Cuts the terms' columns, side by side in steps of `deep`, into sums of at most `exact` of them.
pub(crate) fn sums(plans: &[Plan], (exact, deep): (usize, usize)) -> Vec<Vec<Segment>> {
    let exact = exact / deep * deep;
    let (mut all, mut sum, mut room) = (Vec::new(), Vec::new(), exact);
    for (term, plan) in plans.iter().enumerate() {
        let mut k = 0;
        while k < plan.depth {
            if room == 0 {
                all.push(std::mem::take(&mut sum));
                room = exact;
            }
            let depth = room.min(plan.depth - k);
            sum.push(Segment { term, k, depth });
            room -= depth.next_multiple_of(deep);
            k += depth;
        }
    }
    all.push(sum);
    all
}

/// Consecutive parts of `len` rows, in whole tiles: as many rows a part as fit into `room` bytes, of which a
/// row takes `row`. First rows and numbers of rows.
pub(crate) fn parts(
    len: usize,
    tile: usize,
    (room, row): (usize, usize),
) -> impl Iterator<Item = (usize, usize)> {
    let most = (room / row).clamp(tile, ROWS) / tile * tile;
    (0..len).step_by(most).map(move |start| (start, most.min(len - start)))
}

/// The sum of products as products of the terms' limbs side by side.
pub(crate) fn product(
    device: &Device,
    form: Form,
    out: &CudaTensor,
    terms: &[(&CudaTensor, &CudaTensor)],
    plans: &[Plan],
    added: &Added<'_>,
) -> Result<()> {
    let Plan { rows, cols, batches, .. } = plans[0];
    let exact = LimbPlan::U8_8X8.largest_k();
    for (i, sum) in sums(plans, (exact, DEEP)).iter().enumerate() {
        let steps: usize = sum.iter().map(|s| s.depth.div_ceil(DEEP)).sum();
        let room = (device.room, 8 * DEEP * steps * batches);
        let job = Job { device, form, terms, plans, sum, steps };
        for (row, height) in parts(rows, form.tile[0], room) {
            let lhs = job.planes("lhs", row, height)?;
            for (col, width) in parts(cols, form.tile[1], room) {
                let rhs = job.planes("rhs", col, width)?;
                let tiles = [height.div_ceil(form.tile[0]), width.div_ceil(form.tile[1])];
                let numbers = [steps, tiles[0], tiles[1], row, col, 0];
                let part = numbers.iter().fold(Fields::default(), |f, &n| f.u32(n as u32)).done();
                let args = [
                    pointer(out),
                    pointer(&lhs),
                    pointer(&rhs),
                    plans[0].params(),
                    part,
                    added.argument(i, out),
                ];
                let blocks = [(tiles[0] * tiles[1]) as u32, 1, batches as u32];
                let kernel = format!("{}_{}", plans[0].kernel, form.suffix);
                // SAFETY: the planes were made for these tiles, and addends have the result's length.
                unsafe { device.run(form.module, &kernel, (blocks, form.shared()), &args)? };
            }
        }
    }
    Ok(())
}

/// One sum of the terms.
struct Job<'a> {
    device: &'a Device,
    form: Form,
    terms: &'a [(&'a CudaTensor, &'a CudaTensor)],
    plans: &'a [Plan],
    sum: &'a [Segment],
    steps: usize,
}

impl Job<'_> {
    /// The limbs of `count` rows of an operand, in the layout of `limbs.cuh`. `side` is `lhs` or
    /// `rhs`.
    fn planes(&self, side: &str, row: usize, count: usize) -> Result<CudaTensor> {
        let tile = self.form.tile[usize::from(side == "rhs")];
        let (tiles, batches) = (count.div_ceil(tile), self.plans[0].batches);
        // Eight bytes, as many as a word, for each element.
        let words = batches * tiles * tile * self.steps * DEEP;
        let planes = self.device.empty(Shape::new([words])?)?;
        let mut first = 0;
        for segment in self.sum {
            let plan = &self.plans[segment.term];
            let (l, r) = self.terms[segment.term];
            let numbers = [tile, tiles, self.steps, first, row, segment.k, segment.depth, 0];
            let split = numbers.iter().fold(Fields::default(), |f, &n| f.u32(n as u32)).done();
            let columns = segment.depth.next_multiple_of(DEEP);
            let blocks = [columns.div_ceil(SPLIT[1]), tiles * tile / SPLIT[0], batches];
            let kernel = format!("split_{}_{side}", plan.kernel);
            let args = [pointer(&planes), pointer(l), pointer(r), plan.params(), split];
            let grid = (blocks.map(|b| b as u32), 0);
            // SAFETY: the planes hold whole tiles for all steps; operands are read inside their sizes.
            unsafe { self.device.run(Shipped::Limbs, &kernel, grid, &args)? };
            first += columns / DEEP;
        }
        Ok(planes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_whole_tiles_that_fit_and_cover_everything() {
        for (len, tile, room, row) in
            [(1000, 64, 40_000, 100), (96, 96, 10, 8), (5, 64, 1 << 30, 8)]
        {
            let all: Vec<_> = parts(len, tile, (room, row)).collect();
            let mut next = 0;
            for (start, count) in &all {
                assert!(*start == next && *start % tile == 0 && *count > 0);
                assert!(count * row <= room.max(tile * row));
                next = start + count;
            }
            assert_eq!(next, len);
        }
        assert_eq!(parts(1000, 64, (40_000, 100)).count(), 3);
    }
}
