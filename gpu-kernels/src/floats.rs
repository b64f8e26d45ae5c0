//! Products by limbs of f64, as the CryptGPU paper computes them, through cuBLAS: for comparison.

use float_embed::{Digits, LimbPlan};
use ring_arith::{Result, Shape};

use crate::{
    CudaTensor,
    cublas::{Blas, Product},
    device::{Device, Fields, Shipped, pointer},
    limbs::{parts, sums},
    products::{Added, Plan, TILE},
};

/// The sum of products, term by term and cut to the depth at which sums in f64 are exact.
pub(crate) fn product(
    device: &Device,
    (blas, limbs): (&Blas, LimbPlan),
    out: &CudaTensor,
    terms: &[(&CudaTensor, &CudaTensor)],
    plans: &[Plan],
    added: &Added<'_>,
) -> Result<()> {
    let Plan { rows, cols, batches, .. } = plans[0];
    let segments = sums(plans, (limbs.largest_k(), 1)).into_iter().flatten();
    for (i, segment) in segments.enumerate() {
        let job =
            Job { device, blas, limbs, terms: terms[segment.term], plan: &plans[segment.term] };
        let word = 8 * limbs.limbs() * batches;
        for (row, height) in parts(rows, TILE, (device.room, word * segment.depth)) {
            let lhs = job.planes("lhs", [row, height], [segment.k, segment.depth])?;
            // The sums of a part have to fit as well.
            let room = (device.room, word * segment.depth.max(height));
            for (col, width) in parts(cols, TILE, room) {
                let rhs = job.planes("rhs", [col, width], [segment.k, segment.depth])?;
                let sums = job.multiply(&lhs, &rhs, [height, width, segment.depth])?;
                let numbers = [limbs.limbs(), limbs.limb_bits() as usize, row, height, col, width];
                let join = numbers.iter().fold(Fields::default(), |f, &n| f.u32(n as u32)).done();
                let args =
                    [pointer(out), pointer(&sums), job.plan.params(), join, added.argument(i, out)];
                let tiles = height.div_ceil(TILE) * width.div_ceil(TILE);
                let grid = ([tiles as u32, 1, batches as u32], 0);
                let kernel = format!("join_{}", job.plan.kernel);
                // SAFETY: the sums have the sizes in the kernel's arguments, addends the result's.
                unsafe { device.run(Shipped::Floats, &kernel, grid, &args)? };
            }
        }
    }
    Ok(())
}

/// One term.
struct Job<'a> {
    device: &'a Device,
    blas: &'a Blas,
    limbs: LimbPlan,
    terms: (&'a CudaTensor, &'a CudaTensor),
    plan: &'a Plan,
}

impl Job<'_> {
    /// Limbs of some rows and columns of an operand, `[limb, batch, rows, depth]`.
    fn planes(&self, side: &str, [row, rows]: [usize; 2], k: [usize; 2]) -> Result<CudaTensor> {
        let (limbs, batches) = (self.limbs.limbs(), self.plan.batches);
        let planes = self.device.empty(Shape::new([limbs, batches, rows, k[1]])?)?;
        let balanced = usize::from(self.limbs.digits() == Digits::Balanced);
        let bits = self.limbs.limb_bits() as usize;
        let numbers = [limbs, bits, balanced, row, rows, k[0], k[1], 0];
        let split = numbers.iter().fold(Fields::default(), |f, &n| f.u32(n as u32)).done();
        let (x, y) = self.terms;
        let args = [pointer(&planes), pointer(x), pointer(y), self.plan.params(), split];
        let blocks = [self.device.blocks((rows * k[1]).div_ceil(256)), 1, batches as u32];
        let kernel = format!("float_{}_{side}", self.plan.kernel);
        // SAFETY: the planes hold every limb of these rows and columns, which the operand has.
        unsafe { self.device.run(Shipped::Floats, &kernel, (blocks, 0), &args)? };
        Ok(planes)
    }

    /// Sums of the limbs' products, `[diagonal, batch, rows, cols]`.
    fn multiply(
        &self,
        lhs: &CudaTensor,
        rhs: &CudaTensor,
        [rows, cols, depth]: [usize; 3],
    ) -> Result<CudaTensor> {
        let batches = self.plan.batches;
        let sums = self.device.empty(Shape::new([self.limbs.limbs(), batches, rows, cols])?)?;
        let plane = |tensor: &CudaTensor, limb: usize, words: usize| {
            tensor.address() + 8 * (limb * batches * words) as u64
        };
        for (i, j) in self.limbs.pairs() {
            let product = Product {
                rows,
                cols,
                depth,
                batches,
                a: plane(lhs, i, rows * depth),
                b: plane(rhs, j, cols * depth),
                c: plane(&sums, i + j, rows * cols),
                // Pairs are in order of weight; the first of each weight has limb 0 of the left
                // operand.
                accumulate: i > 0,
            };
            // SAFETY: the planes were made for these sizes.
            unsafe { self.blas.multiply(self.device, product)? };
        }
        Ok(sums)
    }
}
