//! Operands of bilinear maps, combined so that each party's part of the result takes one product.
//!
//! Of the nine products of components, party `i` can compute those of components `i` and `i + 1`: both
//! mixed ones, which no other party can, and a part of both squares. These are a *single* product
//! `(x_i a + x_j)(y_i + b y_j)`, `j = i + 1`, if `a b = 1`. The squares then become `x_i a y_i` here and
//! `x_i b y_i` at the party before, which is right if `a + b = 1`. Words cannot satisfy both: they would
//! be odd and their sum even. Two matrices do, acting on pairs of indices that the map sums over,
//!
//! ```text
//! A = [ 0 -1 ]    B = A^-1 = I - A = [  1  1 ]
//!     [ 1  1 ]                       [ -1  0 ]
//! ```
//!
//! so three products replace nine, or six if sums of components are multiplied. Operands keep their
//! shapes. The masked and sent result is unchanged: a sum of three words, one at each party.
//!
//! Inner indices are paired by halves, `k` with `k + len / 2`; an odd number is made even by a zero. A
//! map that sums over one index takes two products, `x_i (y_i + y_j) + x_j y_i`.

use mpc_core::ShareTensor;
use ring_arith::{Bilinear, Engine, EngineTensor, Result, Shape, Source, Target, View, WordKernel};

use crate::{
    Share,
    kernels::{PairLeft, PairRight, Scale},
    runtime::launch::{self, add, map},
    share::combined::{Inner, Side},
};

/// The products whose sum is this party's addend of a map.
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

/// One component of an operand as a factor of [`terms`], the other being 0: `own` if it is the party's own.
pub(crate) fn component<E: Engine>(
    engine: &E,
    op: &Bilinear,
    [lhs, rhs]: [&Shape; 2],
    side: Side,
    own: bool,
    component: &E::Tensor,
) -> Result<E::Tensor> {
    let Some([left, right]) = Inner::of(op, lhs, rhs) else { return Ok(component.clone()) };
    let zeros = map(engine, &Scale, component.shape(), [component], &[0])?;
    let share = if own {
        Share::new(component.clone(), zeros)?
    } else {
        Share::new(zeros, component.clone())?
    };
    match side {
        Side::Left => left.pair(engine, &PairLeft, &share),
        Side::Right => right.pair(engine, &PairRight, &share),
    }
}

/// True if a map's operands are combined in pairs, so that both components of both meet.
pub(crate) fn is_paired(op: &Bilinear, lhs: &Shape, rhs: &Shape) -> bool {
    Inner::of(op, lhs, rhs).is_some()
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
        let len = self.len(x.shape());
        let inner = dims[self.axis + 1..].iter().product::<usize>();
        let even = len.next_multiple_of(2);
        let padded = |component: &E::Tensor| {
            if even == len {
                return Ok(component.clone());
            }
            let groups = engine.view(component, &View::Reshape(Shape::new([rows, len, inner])?))?;
            let after = vec![0, 1, 0];
            engine.view(&groups, &View::Pad { before: vec![0; 3], after, value: 0 })
        };
        let mine = padded(x.mine())?;
        let next = padded(x.next())?;
        let half = even / 2 * inner;
        let row_stride = 2 * half;
        let mut dims = dims.to_vec();
        dims[self.axis] = self.groups * even;
        let sources = [(&mine, 0), (&mine, half), (&next, 0), (&next, half)]
            .map(|(tensor, offset)| Source::Tensor { tensor, offset, row_stride });
        let targets = [0, half].map(|offset| Target { tensor: 0, offset, row_stride });
        launch::rows(engine, kernel, [rows, half], sources, Shape::new(dims)?, targets)
    }
}

#[cfg(test)]
mod tests {
    use mpc_core::SplitMix64;
    use ring_arith::{ConvSpec, CpuEngine, EngineTensor, Tensor, Window};

    use super::*;

    /// The three parties' shares of a tensor of random words, and the words.
    fn shared(draw: &mut SplitMix64, dims: &[usize]) -> ([Share<Tensor>; 3], Tensor) {
        let shape = Shape::new(dims).unwrap();
        let mut part = || {
            let words: Vec<_> = (0..shape.len()).map(|_| draw.next_u64()).collect();
            Tensor::new(shape.clone(), words).unwrap()
        };
        let parts = [part(), part(), part()];
        let sum = |i: usize| parts.iter().fold(0u64, |sum, part| sum.wrapping_add(part.words()[i]));
        let all = Tensor::new(shape.clone(), (0..shape.len()).map(sum).collect()).unwrap();
        let of = |i: usize| Share::new(parts[i].clone(), parts[(i + 1) % 3].clone()).unwrap();
        ([of(0), of(1), of(2)], all)
    }

    fn check(draw: &mut SplitMix64, op: &Bilinear, lhs: &[usize], rhs: &[usize], products: usize) {
        let engine = CpuEngine::new(1);
        let ((xs, x), (ys, y)) = (shared(draw, lhs), shared(draw, rhs));
        let mut sum = vec![0u64; op.output_shape(x.shape(), y.shape()).unwrap().len()];
        for (x, y) in xs.iter().zip(&ys) {
            let terms = terms(&engine, op, x, y).unwrap();
            assert_eq!(terms.len(), products, "{op:?} {lhs:?} {rhs:?}");
            let terms: Vec<_> = terms.iter().map(|(x, y)| (x, y)).collect();
            let part = engine.bilinear(op, &terms, &[]).unwrap();
            sum.iter_mut().zip(part.words()).for_each(|(sum, w)| *sum = sum.wrapping_add(*w));
        }
        let expected = engine.bilinear(op, &[(&x, &y)], &[]).unwrap();
        assert_eq!(sum, expected.words(), "{op:?} {lhs:?} {rhs:?}");
    }

    #[test]
    fn one_product_a_party_adds_up_to_the_product() {
        let draw = &mut SplitMix64::new(7);
        for k in [0, 1, 2, 3, 8, 13] {
            let products = if k < 2 { 2 } else { 1 };
            for (transpose_lhs, transpose_rhs) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                let op = Bilinear::MatMul { transpose_lhs, transpose_rhs };
                let lhs = if transpose_lhs { [k, 5] } else { [5, k] };
                let rhs = if transpose_rhs { [4, k] } else { [k, 4] };
                check(draw, &op, &lhs, &rhs, products);
                check(draw, &op, &[&[3], &lhs[..]].concat(), &rhs, products);
                check(draw, &op, &[&[3], &lhs[..]].concat(), &[&[3], &rhs[..]].concat(), products);
            }
        }
        let window = Window::new([3, 2], [2, 1]).padded([1, 0, 1, 1]);
        for (groups, each, outputs) in
            [(1, 4, 6), (1, 3, 2), (1, 1, 3), (3, 2, 2), (2, 3, 1), (4, 1, 1)]
        {
            let spec = ConvSpec { window, groups };
            let (input, weight) = ([2, groups * each, 7, 5], [groups * outputs, each, 3, 2]);
            let shape = |dims: &[usize]| Shape::new(dims).unwrap();
            let output =
                Bilinear::Conv(spec).output_shape(&shape(&input), &shape(&weight)).unwrap();
            let products = |len: usize| if len < 2 { 2 } else { 1 };
            check(draw, &Bilinear::Conv(spec), &input, &weight, products(each));
            let grad = Bilinear::ConvInputGrad { spec, input: [7, 5] };
            check(draw, &grad, output.dims(), &weight, products(outputs));
            for images in [1, 2, 3] {
                let (input, mut output) = ([images, groups * each, 7, 5], output.dims().to_vec());
                output[0] = images;
                let grad = Bilinear::ConvWeightGrad(spec);
                check(draw, &grad, &input, &output, products(images));
            }
        }
    }

    #[test]
    fn a_share_may_be_summed_over_either_axis() {
        let (draw, engine) = (&mut SplitMix64::new(8), CpuEngine::new(1));
        let ((xs, _), (ys, _)) = (shared(draw, &[4, 4]), shared(draw, &[4, 4]));
        let plain = Bilinear::MATMUL;
        let turned = Bilinear::MatMul { transpose_lhs: true, transpose_rhs: true };
        let of = |op| terms(&engine, op, &xs[0], &ys[0]).unwrap().pop().unwrap();
        let [first, other, again] = [&plain, &turned, &plain].map(of);
        assert_ne!(first.0.words(), other.0.words());
        assert_ne!(first.1.words(), other.1.words());
        assert_eq!(first.0.words(), again.0.words());
        assert_eq!(first.1.words(), again.1.words());
    }
}
