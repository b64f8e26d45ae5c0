//! Batch normalisations by running statistics in the clear.

use super::elementwise;
use crate::graph::op::{BatchNorm, Binary};
use crate::{HostTensor, Result};

/// The result of a batch normalisation.
pub(crate) fn evaluate(norm: &BatchNorm, xs: &[&HostTensor]) -> Result<HostTensor> {
    let [scale, shift, mean, variance] = [xs[1], xs[2], xs[3], xs[4]].map(HostTensor::to_float);
    let [factor, offset] = affine(norm, [&scale, &shift, &mean, &variance], xs[0].shape().rank())?;
    let y = elementwise::binary(Binary::Mul, xs[0], &factor)?;
    elementwise::binary(Binary::Add, &y, &offset)
}

/// Factor and summand of each channel, shaped for an input of the given rank.
pub(crate) fn affine(
    norm: &BatchNorm,
    [scale, shift, mean, variance]: [&HostTensor; 4],
    rank: usize,
) -> Result<[HostTensor; 2]> {
    let deviation = variance.map(|v| (v + norm.epsilon).sqrt());
    let factor = elementwise::binary(Binary::Div, scale, &deviation)?;
    let moved = elementwise::binary(Binary::Mul, mean, &factor)?;
    let offset = elementwise::binary(Binary::Sub, shift, &moved)?;
    factor.check_finite()?;
    let mut dims = vec![1; rank.saturating_sub(1).max(1)];
    dims[0] = factor.len();
    Ok([factor.reshape(dims.clone())?, offset.reshape(dims)?])
}
