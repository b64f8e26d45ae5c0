//! Products on the tensor cores, by 8-bit limbs.

use float_embed::LimbPlan;
use ring_arith::{Result, Shape};

use crate::{
    CudaTensor, Method,
    device::{Device, Fields, Shipped, pointer},
    driver::Arg,
    products::{GRID, Plan, TILE, addends_of},
};

/// Columns of limbs that a step takes.
const DEEP: usize = 32;
/// Shared memory of a block: three stages of both operands' eight limbs.
const SHARED: u32 = 3 * 2 * 8 * (TILE * DEEP) as u32;
/// Rows and columns of limbs that a block of the split makes.
const SPLIT: [usize; 2] = [32, 64];

/// Below this many multiply-adds, or with a side shorter than [`SHORT`], the integer kernels win: tiles of
/// limbs would be mostly padding, and splitting costs two more launches. Not measured on a device yet.
const SMALL: usize = 1 << 22;
const SHORT: usize = 24;

/// Whether these products, terms of one sum, go to the tensor cores.
pub(crate) fn chosen(method: Method, plans: &[Plan]) -> bool {
    let possible = |p: &Plan| p.rows.max(p.cols) <= SPLIT[0] * GRID && p.depth > 0;
    let pays = |p: &Plan| {
        let shortest = p.rows.min(p.cols).min(p.depth);
        shortest >= SHORT && p.rows * p.cols * p.depth * p.batches >= SMALL
    };
    plans.iter().all(possible)
        && match method {
            Method::Automatic => plans.iter().all(pays),
            Method::Integer => false,
            Method::Limbs8 => true,
        }
}

/// The sum of products as one product of the terms' limbs side by side.
pub(crate) fn product(
    device: &Device,
    out: &CudaTensor,
    terms: &[(&CudaTensor, &CudaTensor)],
    plans: &[Plan],
    addends: &[(CudaTensor, bool)],
) -> Result<()> {
    let padded = |p: &Plan| p.depth.next_multiple_of(DEEP);
    let width: usize = plans.iter().map(padded).sum();
    let first = &plans[0];
    let planes = |rows: usize| device.empty(Shape::new([first.batches, rows, width])?);
    let (lhs, rhs) = (planes(first.rows)?, planes(first.cols)?);
    let mut column = 0;
    for (plan, (l, r)) in plans.iter().zip(terms) {
        let range = [width, column, padded(plan), 0]
            .iter()
            .fold(Fields::default(), |f, &n| f.u32(n as u32));
        for (side, planes, rows) in [("lhs", &lhs, plan.rows), ("rhs", &rhs, plan.cols)] {
            let blocks = [padded(plan).div_ceil(SPLIT[1]), rows.div_ceil(SPLIT[0]), plan.batches];
            let kernel = format!("split_{}_{side}", plan.kernel);
            let args =
                [pointer(planes), pointer(l), pointer(r), plan.params(), range.clone().done()];
            // SAFETY: the planes hold eight bytes, as many as a word, for each element of the operand.
            unsafe { device.run(Shipped::Limbs, &kernel, (blocks.map(|b| b as u32), 0), &args)? };
        }
        column += padded(plan);
    }
    let blocks =
        [first.cols.div_ceil(TILE), first.rows.div_ceil(TILE), first.batches].map(|b| b as u32);
    let kernel = format!("{}_u8", first.kernel);
    // Longest sum that 32-bit accumulators hold exactly, in whole steps.
    let exact = LimbPlan::U8_8X8.largest_k() / DEEP * DEEP;
    for (i, begin) in (0..width).step_by(exact).enumerate() {
        let end = width.min(begin + exact);
        let range =
            [width, begin, end, 0].iter().fold(Fields::default(), |f, &n| f.u32(n as u32)).done();
        let args: [Arg; 6] = [
            pointer(out),
            pointer(&lhs),
            pointer(&rhs),
            first.params(),
            range,
            addends_of(i, addends, out),
        ];
        // SAFETY: the planes were made for these sizes, and addends have the result's length.
        unsafe { device.run(Shipped::Limbs, &kernel, (blocks, SHARED), &args)? };
    }
    Ok(())
}
