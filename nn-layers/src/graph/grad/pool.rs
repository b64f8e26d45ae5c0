//! Gradients of pooling.

use ring_arith::Shape;

use super::{Backward, fixed};
use crate::graph::{Dim, Kernel, Op, Pool, ValueId, eval};
use crate::{Error, HostTensor, Result};

impl Backward<'_> {
    /// Every element at all taps of its window: a transposed convolution by ones, which costs nothing.
    pub(super) fn spread(&mut self, pool: &Pool, grad: ValueId) -> Result<ValueId> {
        let shape = self.shape(0);
        let (planes, [h, w]) = planes(&shape)?;
        let (_, [oh, ow]) = self::planes(self.graph.shape(grad))?;
        let flat = Shape::new([planes, 1, oh, ow])?;
        let flat = self.reshape(grad, &flat)?;
        let [kh, kw] = pool.size;
        let ones = HostTensor::integers([1, 1, kh, kw], vec![1; kh * kw])?;
        let ones = self.graph.public(&format!("{}.ones", self.node.name), ones);
        let kernel = Kernel::new(*pool);
        let least = crate::graph::infer::transposed_size(&kernel, [0; 2], [oh, ow])?;
        let extra = [h - least[0], w - least[1]];
        let spread = self.add(Op::ConvTranspose { kernel, extra }, &[flat, ones])?;
        self.reshape(spread, &shape)
    }

    pub(super) fn average(&mut self, pool: &Pool, count_border: bool) -> Result<ValueId> {
        if count_border || pool.padding == [0; 4] {
            let mean = self.scale(1.0 / pool.taps() as f64, self.grad)?;
            return self.spread(pool, mean);
        }
        let (_, [h, w]) = planes(&self.shape(0))?;
        let ones = HostTensor::new([h, w], vec![1.0; h * w])?;
        let inside = eval::evaluate(&Op::SumPool(*pool), &[&ones], 1)?.map(|n| 1.0 / n);
        let inside = self.graph.public(&format!("{}.factors", self.node.name), inside);
        let mean = self.mul(self.grad, inside)?;
        self.spread(pool, mean)
    }

    /// Zeros between the elements of an axis, so that they lie `step` apart.
    pub(super) fn dilated(&mut self, x: ValueId, axis: usize, step: usize) -> Result<ValueId> {
        if step == 1 {
            return Ok(x);
        }
        let dims = self.graph.shape(x).dims().to_vec();
        let mut split = dims.clone();
        split.insert(axis + 1, 1);
        let split = self.add(Op::Reshape(fixed(&split)), &[x])?;
        let before = vec![0; dims.len() + 1];
        let mut after = before.clone();
        after[axis + 1] = step - 1;
        let wide = self.add(Op::Pad { before, after, value: 0.0 }, &[split])?;
        let mut joined = dims;
        joined[axis] *= step;
        let wide = self.add(Op::Reshape(fixed(&joined)), &[wide])?;
        // Behind the last element nothing is needed.
        let end = Dim::Fixed(joined[axis] - (step - 1));
        self.add(Op::Slice { axis, start: 0, end, step: 1 }, &[wide])
    }
}

/// `[.., H, W]` as a number of planes and their size.
fn planes(shape: &Shape) -> Result<(usize, [usize; 2])> {
    let misfit = || Error::invalid("pool", format!("{shape:?} is not [.., H, W]"));
    let (lead, size) = shape.dims().split_last_chunk::<2>().ok_or_else(misfit)?;
    Ok((lead.iter().product(), *size))
}
