//! Operations in the clear that only move elements.

use std::sync::Arc;

use ring_arith::Shape;

use crate::host::checked_shape;
use crate::{Error, HostData, HostTensor, Result};

/// Applies the same index computation to elements of any kind.
macro_rules! each_kind {
    ($tensor:expr, $v:ident => $body:expr) => {
        match $tensor.data() {
            HostData::Float($v) => HostData::Float(Arc::new($body)),
            HostData::Single($v) => HostData::Single(Arc::new($body)),
            HostData::Int($v) => HostData::Int(Arc::new($body)),
        }
    };
}

/// Copies words addressed by strides: element `index` of the result is `base + index . strides`.
pub(crate) fn strided<T: Copy>(v: &[T], dims: &[usize], strides: &[usize], base: usize) -> Vec<T> {
    let len: usize = dims.iter().product();
    let mut out = Vec::with_capacity(len);
    if len == 0 {
        return out;
    }
    let Some((&inner, outer)) = dims.split_last() else {
        return vec![v[base]];
    };
    let step = strides[dims.len() - 1];
    let mut index = vec![0; outer.len()];
    let mut at = base;
    loop {
        match step {
            1 => out.extend_from_slice(&v[at..at + inner]),
            0 => out.extend(std::iter::repeat_n(v[at], inner)),
            _ => out.extend((0..inner).map(|i| v[at + i * step])),
        }
        let mut axis = outer.len();
        loop {
            if axis == 0 {
                return out;
            }
            axis -= 1;
            index[axis] += 1;
            at += strides[axis];
            if index[axis] < outer[axis] {
                break;
            }
            at -= strides[axis] * outer[axis];
            index[axis] = 0;
        }
    }
}

/// Strides that read `from` as if it were broadcast to `to`.
pub(crate) fn broadcast_strides(from: &Shape, to: &Shape) -> Vec<usize> {
    let own = from.strides();
    let lead = to.rank() - from.rank();
    (0..to.rank())
        .map(|i| if i < lead || from.dims()[i - lead] == 1 { 0 } else { own[i - lead] })
        .collect()
}

/// Axis `i` of the result is axis `axes[i]` of the input.
pub(crate) fn permute(x: &HostTensor, axes: &[usize]) -> Result<HostTensor> {
    let strides = x.shape().strides();
    let dims: Vec<_> = axes.iter().map(|&a| x.dims()[a]).collect();
    let strides: Vec<_> = axes.iter().map(|&a| strides[a]).collect();
    let data = each_kind!(x, v => strided(v, &dims, &strides, 0));
    Ok(HostTensor::from_parts(Shape::new(dims)?, data))
}

/// Indices `start, start + step, ..` below `end` of one axis.
pub(crate) fn slice(
    x: &HostTensor,
    axis: usize,
    start: usize,
    end: usize,
    step: usize,
) -> Result<HostTensor> {
    let mut strides = x.shape().strides();
    let mut dims = x.dims().to_vec();
    let base = strides[axis] * start;
    dims[axis] = (end - start).div_ceil(step);
    strides[axis] *= step;
    let data = each_kind!(x, v => strided(v, &dims, &strides, base));
    Ok(HostTensor::from_parts(Shape::new(dims)?, data))
}

/// Repeats axes of length 1, and new leading axes.
pub(crate) fn broadcast(x: &HostTensor, to: &Shape) -> Result<HostTensor> {
    if x.shape() == to {
        return Ok(x.clone());
    }
    let to = checked_shape("broadcast", to.dims())?;
    let strides = broadcast_strides(x.shape(), &to);
    let data = each_kind!(x, v => strided(v, to.dims(), &strides, 0));
    Ok(HostTensor::from_parts(to, data))
}

/// The given indices of one axis.
pub(crate) fn gather(x: &HostTensor, axis: usize, indices: &[usize]) -> Result<HostTensor> {
    let mut dims = x.dims().to_vec();
    let inner: usize = dims[axis + 1..].iter().product();
    let outer: usize = dims[..axis].iter().product();
    let len = dims[axis];
    dims[axis] = indices.len();
    let shape = checked_shape("gather", dims)?;
    fn pick<T: Copy>(v: &[T], outer: usize, len: usize, inner: usize, at: &[usize]) -> Vec<T> {
        let mut out = Vec::with_capacity(outer * at.len() * inner);
        for o in 0..outer {
            for &i in at {
                let from = (o * len + i) * inner;
                out.extend_from_slice(&v[from..from + inner]);
            }
        }
        out
    }
    let data = each_kind!(x, v => pick(v, outer, len, inner, indices));
    Ok(HostTensor::from_parts(shape, data))
}

/// A border of `value` around the tensor.
pub(crate) fn pad(
    x: &HostTensor,
    before: &[usize],
    after: &[usize],
    value: f64,
) -> Result<HostTensor> {
    let dims: Vec<_> =
        x.dims().iter().zip(before.iter().zip(after)).map(|(d, (b, a))| d + b + a).collect();
    let shape = checked_shape("pad", dims)?;
    let strides = shape.strides();
    let mut out = vec![value; shape.len()];
    let v = x.floats();
    let own = x.shape().strides();
    for (i, &word) in v.iter().enumerate() {
        let mut rest = i;
        let mut at = 0;
        for axis in 0..own.len() {
            at += (rest / own[axis] + before[axis]) * strides[axis];
            rest %= own[axis];
        }
        out[at] = word;
    }
    let data = if x.is_int() {
        HostData::Int(Arc::new(out.iter().map(|&f| f as i64).collect()))
    } else {
        HostData::Float(Arc::new(out))
    };
    Ok(HostTensor::from_parts(shape, data))
}

/// Concatenates along an axis.
pub(crate) fn concat(xs: &[&HostTensor], axis: usize) -> Result<HostTensor> {
    let first = xs.first().ok_or_else(|| Error::invalid("concat", "no operands"))?;
    let mut dims = first.dims().to_vec();
    dims[axis] = xs.iter().map(|x| x.dims()[axis]).sum();
    let outer: usize = dims[..axis].iter().product();
    let shape = checked_shape("concat", dims)?;
    fn join<T: Copy>(parts: &[&[T]], outer: usize) -> Vec<T> {
        let mut out = Vec::with_capacity(parts.iter().map(|p| p.len()).sum());
        for o in 0..outer {
            for part in parts {
                let n = part.len() / outer;
                out.extend_from_slice(&part[o * n..(o + 1) * n]);
            }
        }
        out
    }
    let data = if xs.iter().all(|x| x.is_int()) {
        let parts = xs.iter().map(|x| x.as_ints()).collect::<Result<Vec<_>>>()?;
        HostData::Int(Arc::new(join(&parts, outer)))
    } else if let Some(parts) = xs.iter().map(|x| x.short_floats()).collect::<Option<Vec<_>>>() {
        HostData::Single(Arc::new(join(&parts, outer)))
    } else {
        let parts: Vec<_> = xs.iter().map(|x| x.floats()).collect();
        let parts: Vec<&[f64]> = parts.iter().map(|p| p.as_ref()).collect();
        HostData::Float(Arc::new(join(&parts, outer)))
    };
    Ok(HostTensor::from_parts(shape, data))
}
