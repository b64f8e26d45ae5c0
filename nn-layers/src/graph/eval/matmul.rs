//! Matrix products in the clear.

use ndarray::{ArrayView2, ArrayViewMut2, linalg::general_mat_mul};
use ring_arith::{Bilinear, Shape};

use super::elementwise;
use crate::{HostTensor, Result};

/// `lhs x rhs` under the rule of [`Bilinear::MatMul`]. Integers stay integers.
pub(crate) fn matmul(
    lhs: &HostTensor,
    rhs: &HostTensor,
    transpose_lhs: bool,
    transpose_rhs: bool,
) -> Result<HostTensor> {
    let shape =
        Bilinear::MatMul { transpose_lhs, transpose_rhs }.output_shape(lhs.shape(), rhs.shape())?;
    let (a, b) = (lhs.floats(), rhs.floats());
    let matrix = |s: &Shape| (s.dims()[s.rank() - 2], s.dims()[s.rank() - 1]);
    let ((ar, ac), (br, bc), (m, n)) = (matrix(lhs.shape()), matrix(rhs.shape()), matrix(&shape));
    let mut out = vec![0.0; shape.len()];
    // An operand without batch dimensions serves every batch.
    let batches = shape.len().checked_div(m * n).unwrap_or(0);
    let (a_step, b_step) = (step(lhs, ar * ac), step(rhs, br * bc));
    for i in 0..batches {
        let a = view(&a[i * a_step..i * a_step + ar * ac], [ar, ac], transpose_lhs);
        let b = view(&b[i * b_step..i * b_step + br * bc], [br, bc], transpose_rhs);
        let c = &mut out[i * m * n..(i + 1) * m * n];
        product_into(a, b, c, [m, n]);
    }
    let out = HostTensor::new(shape.dims(), out)?;
    Ok(if lhs.is_int() && rhs.is_int() { elementwise::to_int(&out) } else { out })
}

/// `c = a x b` for plain matrices.
pub(crate) fn product_into(
    a: ArrayView2<'_, f64>,
    b: ArrayView2<'_, f64>,
    c: &mut [f64],
    [m, n]: [usize; 2],
) {
    let mut c = ArrayViewMut2::from_shape((m, n), c).expect("the caller sized it m x n");
    general_mat_mul(1.0, &a, &b, 0.0, &mut c);
}

/// A matrix over its elements, transposed if asked.
pub(crate) fn view(words: &[f64], [r, c]: [usize; 2], transposed: bool) -> ArrayView2<'_, f64> {
    let view = ArrayView2::from_shape((r, c), words).expect("the caller sized it r x c");
    if transposed { view.reversed_axes() } else { view }
}

fn step(x: &HostTensor, matrix: usize) -> usize {
    if x.shape().rank() == 2 { 0 } else { matrix }
}
