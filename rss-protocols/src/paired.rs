//! Operands of bilinear maps, combined so that each party's part of the result takes one product.
//!
//! Of the nine products of components, party `i` can compute those of components `i` and `i + 1`:
//! both mixed ones, which no other party can, and of both squares a part each. A sum of products is a
//! *single* product `(x_i a + x_j)(y_i + b y_j)`, `j = i + 1`, if `a b = 1`; the squares then come out as
//! `x_i a y_i` here and `x_i b y_i` at the party before, right if `a + b = 1`. No two words do that: both
//! would be odd, their sum even. Two matrices do, acting on pairs of indices that the map sums over,
//!
//! ```text
//! A = [ 0 -1 ]    B = A^-1 = I - A = [  1  1 ]
//!     [ 1  1 ]                       [ -1  0 ]
//! ```
//!
//! so three products compute what takes nine, or six if sums of components are multiplied. Operands keep
//! their shapes. What is masked and sent is as it was: a sum of three words, one at each party.
//!
//! Inner indices are paired by halves, `k` with `k + len / 2`; an odd number is made even by a zero. A
//! map that sums over one index takes two products, `x_i (y_i + y_j) + x_j y_i`.

use mpc_core::ShareTensor;
use ring_arith::{Bilinear, Engine, Launch, Result, Shape, Source, Target, View, WordKernel};

use crate::{
    Share,
    kernels::{PairLeft, PairRight},
    share::add,
};

/// The axis of an operand over which a map sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inner {
    axis: usize,
    /// The axis holds this many groups, each summed by itself.
    groups: usize,
}

/// Which operand of a map.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Side {
    Left,
    Right,
}

/// What to multiply and add up for this party's part of a map.
pub(crate) fn terms<E: Engine>(
    engine: &E,
    op: &Bilinear,
    lhs: &Share<E::Tensor>,
    rhs: &Share<E::Tensor>,
) -> Result<Vec<(E::Tensor, E::Tensor)>> {
    let Some([left, right]) = Inner::of(op, lhs.shape(), rhs.shape()) else {
        let sum = rhs.combined(Side::Right, None, || add(engine, rhs.mine(), rhs.next()))?;
        return Ok(vec![(lhs.mine().clone(), sum), (lhs.next().clone(), rhs.mine().clone())]);
    };
    let x = lhs.combined(Side::Left, Some(left), || left.pair(engine, &PairLeft, lhs))?;
    let y = rhs.combined(Side::Right, Some(right), || right.pair(engine, &PairRight, rhs))?;
    Ok(vec![(x, y)])
}

impl Inner {
    /// The inner axes of both operands, unless the map sums over one index alone.
    fn of(op: &Bilinear, lhs: &Shape, rhs: &Shape) -> Option<[Self; 2]> {
        let at = |axis: usize, groups: usize| Self { axis, groups };
        let [left, right] = match *op {
            Bilinear::MatMul { transpose_lhs, transpose_rhs } => [
                at(lhs.rank() - if transpose_lhs { 2 } else { 1 }, 1),
                at(rhs.rank() - if transpose_rhs { 1 } else { 2 }, 1),
            ],
            Bilinear::Conv(spec) => [at(1, spec.groups), at(1, 1)],
            Bilinear::ConvInputGrad { spec, .. } => [at(1, spec.groups), at(0, spec.groups)],
            Bilinear::ConvWeightGrad(_) => [at(0, 1), at(0, 1)],
            _ => return None,
        };
        (left.len(lhs) > 1).then_some([left, right])
    }

    /// Indices that are summed.
    fn len(&self, shape: &Shape) -> usize {
        shape.dims()[self.axis] / self.groups
    }

    /// Combines both components of an operand.
    fn pair<E: Engine>(
        &self,
        engine: &E,
        kernel: &impl WordKernel<4, 2>,
        x: &Share<E::Tensor>,
    ) -> Result<E::Tensor> {
        let dims = x.shape().dims();
        let rows = dims[..self.axis].iter().product::<usize>() * self.groups;
        let (len, inner) = (self.len(x.shape()), dims[self.axis + 1..].iter().product::<usize>());
        let even = len.next_multiple_of(2);
        let padded = |component: &E::Tensor| {
            if even == len {
                return Ok(component.clone());
            }
            let groups = engine.view(component, &View::Reshape(Shape::new([rows, len, inner])?))?;
            let (before, after) = (vec![0; 3], vec![0, 1, 0]);
            engine.view(&groups, &View::Pad { before, after, value: 0 })
        };
        let (mine, next) = (padded(x.mine())?, padded(x.next())?);
        let half = even / 2 * inner;
        let source = |tensor, offset| Source::Tensor { tensor, offset, row_stride: 2 * half };
        let target = |offset| Target { tensor: 0, offset, row_stride: 2 * half };
        let mut dims = dims.to_vec();
        dims[self.axis] = self.groups * even;
        let launch = Launch {
            rows,
            cols: half,
            sources: [source(&mine, 0), source(&mine, half), source(&next, 0), source(&next, half)],
            params: &[],
            outputs: &[Shape::new(dims)?],
            targets: [target(0), target(half)],
        };
        let mut made = engine.launch(kernel, &launch)?;
        Ok(made.pop().expect("a launch makes the output it was asked for"))
    }
}
