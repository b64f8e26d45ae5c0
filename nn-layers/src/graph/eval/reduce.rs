//! Reductions in the clear.

use super::views;
use crate::{HostData, HostTensor, Result};

/// Moves the reduced axes to the end, makes one value of each group, and keeps the axes as 1.
pub(crate) fn reduce(
    x: &HostTensor,
    axes: &[usize],
    keep: bool,
    f: impl Fn(&[f64]) -> f64,
) -> Result<HostTensor> {
    let kept: Vec<_> = (0..x.shape().rank()).filter(|a| !axes.contains(a)).collect();
    let order: Vec<_> = kept.iter().chain(axes).copied().collect();
    let moved = views::permute(x, &order)?;
    let group: usize = axes.iter().map(|&a| x.dims()[a]).product();
    let groups: usize = kept.iter().map(|&a| x.dims()[a]).product();
    let values = moved.floats();
    let out: Vec<f64> = (0..groups).map(|g| f(&values[g * group..(g + 1) * group])).collect();
    let dims: Vec<_> = if keep {
        (0..x.shape().rank()).map(|a| if axes.contains(&a) { 1 } else { x.dims()[a] }).collect()
    } else {
        kept.iter().map(|&a| x.dims()[a]).collect()
    };
    if x.is_int() && out.iter().all(|v| v.fract() == 0.0) {
        return HostTensor::integers(dims, out.iter().map(|&v| v as i64).collect());
    }
    HostTensor::new(dims, out)
}

/// Applies `f` to every line along one axis.
pub(crate) fn along(x: &HostTensor, axis: usize, f: impl Fn(&mut [f64])) -> Result<HostTensor> {
    let rank = x.shape().rank();
    let mut order: Vec<_> = (0..rank).filter(|&a| a != axis).collect();
    order.push(axis);
    let moved = views::permute(&x.to_float(), &order)?;
    let len = x.dims()[axis].max(1);
    let mut values = moved.floats().into_owned();
    values.chunks_mut(len).for_each(f);
    let moved = HostTensor::from_parts(moved.shape().clone(), HostData::Float(values.into()));
    let mut back = vec![0; rank];
    for (i, &a) in order.iter().enumerate() {
        back[a] = i;
    }
    views::permute(&moved, &back)
}

/// In place: `x - max - log(sum(exp(x - max)))`, exponentiated unless `log`.
pub(crate) fn softmax(line: &mut [f64], log: bool) {
    let max = line.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = line.iter().map(|x| (x - max).exp()).sum();
    for x in line {
        let shifted = *x - max - sum.ln();
        *x = if log { shifted } else { shifted.exp() };
    }
}
