//! Operators that are computed when the model is imported, on values that do not depend on the input.

use std::f64::consts::PI;

use nn_layers::{HostTensor, MAX_ELEMENTS, ValueId};

use super::shape::common;
use crate::Result;
use crate::onnx::dtype;
use crate::onnx::node::Node;

/// The most elements of a list made of its length.
const MAX_MADE: f64 = (1u64 << 20) as f64;

/// The place in a tensor of these dimensions for a place `at` of the shape `to` to which it is broadcast.
pub(super) fn place(dims: &[usize], to: &[usize], mut at: usize) -> usize {
    let (mut place, mut stride) = (0, 1);
    let lead = to.len() - dims.len();
    for axis in (0..to.len()).rev() {
        let index = at % to[axis];
        at /= to[axis];
        if axis >= lead && dims[axis - lead] != 1 {
            place += index * stride;
        }
        stride *= if axis >= lead { dims[axis - lead] } else { 1 };
    }
    place
}

/// A function of pairs of elements, broadcast to each other.
fn pairs<T: Copy>(
    n: &Node<'_, '_>,
    (x, a): (&HostTensor, &[T]),
    (y, b): (&HostTensor, &[T]),
    f: impl Fn(T, T) -> T,
) -> Result<(Vec<usize>, Vec<T>)> {
    let to = common(x.dims(), y.dims());
    let fits = |d: &[usize]| {
        let lead = to.len() - d.len();
        d.iter().enumerate().all(|(i, &d)| d == 1 || d == to[i + lead])
    };
    let len = to.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    if !fits(x.dims()) || !fits(y.dims()) || len.is_none_or(|len| len > MAX_ELEMENTS) {
        let reason = format!("{:?} and {:?} do not fit", x.dims(), y.dims());
        return Err(n.attributes.error(reason));
    }
    let value = |i: usize| f(a[place(x.dims(), &to, i)], b[place(y.dims(), &to, i)]);
    Ok((to.clone(), (0..len.unwrap_or(0)).map(value).collect()))
}

/// A value as a number of the model: weights of it where an operand was one.
pub(crate) fn made(n: &mut Node<'_, '_>, value: HostTensor) -> ValueId {
    let secret = (0..n.operands()).filter_map(|i| n.optional(i)).any(|x| n.to.graph.is_secret(x));
    let name = n.attributes.name;
    if secret && !value.is_int() {
        n.to.graph.weight(name, value)
    } else {
        n.to.graph.public(name, value)
    }
}

/// Functions of the bits of integers.
pub(crate) fn bits(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let kind = n.kind(0);
    let x = n.constant(n.input(0)?, "operands")?;
    let a = x.as_ints()?;
    if n.operator == "BitwiseNot" {
        let values = a.iter().map(|&v| dtype::wrapped(kind, !v)).collect();
        let value = HostTensor::integers(x.dims(), values)?;
        return Ok(vec![made(n, value)]);
    }
    let y = n.constant(n.input(1)?, "operands")?;
    let left = n.attributes.text("direction") == Some("LEFT");
    let shift = |a: i64, b: i64| match u32::try_from(b).ok().filter(|&b| b < 64) {
        // By more than there is: only the sign is left.
        None if left => 0,
        None => a >> 63,
        Some(b) if left => a << b,
        Some(b) => a >> b,
    };
    let operator = n.operator;
    let f = |a: i64, b: i64| {
        let made = match operator {
            "BitwiseAnd" => a & b,
            "BitwiseOr" => a | b,
            "BitwiseXor" => a ^ b,
            _ => shift(a, b),
        };
        dtype::wrapped(kind, made)
    };
    let (to, values) = pairs(n, (&x, a), (&y, y.as_ints()?), f)?;
    let value = HostTensor::integers(to, values)?;
    Ok(vec![made(n, value)])
}

/// The remainder of a division, with the sign of the divisor or, with `fmod`, of the dividend.
pub(crate) fn modulo(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (x, y) = (n.constant(n.input(0)?, "operands")?, n.constant(n.input(1)?, "divisors")?);
    let fmod = n.attributes.int("fmod", 0) != 0;
    let value = if let (Ok(a), Ok(b)) = (x.as_ints(), y.as_ints()) {
        if b.contains(&0) {
            return Err(n.attributes.error("division by 0"));
        }
        let f = |a: i64, b: i64| {
            let rest = a.wrapping_rem(b);
            let turned = !fmod && rest != 0 && (rest < 0) != (b < 0);
            if turned { rest + b } else { rest }
        };
        let (to, values) = pairs(n, (&x, a), (&y, b), f)?;
        HostTensor::integers(to, values)?
    } else {
        let f = |a: f64, b: f64| {
            let rest = a % b;
            let turned = !fmod && rest != 0.0 && (rest < 0.0) != (b < 0.0);
            if turned { rest + b } else { rest }
        };
        let (to, values) = pairs(n, (&x, &x.floats()), (&y, &y.floats()), f)?;
        HostTensor::new(to, values)?
    };
    Ok(vec![made(n, value)])
}

/// Powers of known bases with known exponents.
pub(crate) fn powers(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (x, y) = (n.constant(n.input(0)?, "bases")?, n.constant(n.input(1)?, "exponents")?);
    let (to, values) = pairs(n, (&x, &x.floats()), (&y, &y.floats()), f64::powf)?;
    let value = if x.is_int() {
        HostTensor::integers(to, values.into_iter().map(|v| v as i64).collect())?
    } else {
        HostTensor::new(to, values)?
    };
    Ok(vec![made(n, value)])
}

/// The positions of elements other than 0, `[rank, count]`.
pub(crate) fn non_zero(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.constant(n.input(0)?, "operands")?;
    let values = x.floats();
    let found: Vec<_> = (0..values.len()).filter(|&i| values[i] != 0.0).collect();
    let strides = x.shape().strides();
    let dims = x.dims();
    let mut out = vec![];
    for axis in 0..dims.len() {
        out.extend(found.iter().map(|&i| (i / strides[axis] % dims[axis]) as i64));
    }
    let value = HostTensor::integers([dims.len(), found.len()], out)?;
    Ok(vec![n.to.graph.public(n.attributes.name, value)])
}

/// The different elements, or parts along an axis, with the position of each first one, which of them each is, and
/// how many there are of each.
pub(crate) fn unique(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.constant(n.input(0)?, "operands")?;
    let dims = x.dims().to_vec();
    let (outer, len, inner) = if n.attributes.has("axis") {
        let axis = n.axis(n.attributes.int("axis", 0), dims.len(), false)?;
        let size = |d: &[usize]| d.iter().product::<usize>();
        (size(&dims[..axis]), dims[axis], size(&dims[axis + 1..]))
    } else {
        (1, x.len(), 1)
    };
    let values = x.floats();
    let row = |i: usize| -> Vec<f64> {
        let at = |k: usize| values[(k / inner * len + i) * inner + k % inner];
        (0..outer * inner).map(at).collect()
    };
    let rows: Vec<_> = (0..len).map(row).collect();
    let mut first: Vec<usize> = vec![];
    let mut order: Vec<usize> = (0..len).collect();
    let compare = |a: &usize, b: &usize| {
        let pairs = rows[*a].iter().zip(&rows[*b]).map(|(x, y)| x.total_cmp(y));
        pairs.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
    };
    order.sort_by(compare);
    for &i in &order {
        if first.last().is_none_or(|last| rows[*last] != rows[i]) {
            first.push(i);
        }
    }
    if n.attributes.int("sorted", 1) == 0 {
        first.sort_unstable();
    }
    let which = |i: &usize| first.iter().position(|f| rows[*f] == rows[*i]).unwrap_or(0) as i64;
    let inverse: Vec<i64> = (0..len).collect::<Vec<_>>().iter().map(which).collect();
    let count = |k: usize| inverse.iter().filter(|&&i| i == k as i64).count() as i64;
    let counts = (0..first.len()).map(count).collect();
    let mut to = dims.clone();
    if n.attributes.has("axis") {
        let axis = n.axis(n.attributes.int("axis", 0), dims.len(), false)?;
        to[axis] = first.len();
    } else {
        to = vec![first.len()];
    }
    let picked: Vec<f64> = (0..outer)
        .flat_map(|o| first.iter().map(move |&i| (o, i)))
        .flat_map(|(o, i)| values[(o * len + i) * inner..][..inner].to_vec())
        .collect();
    let picked = if x.is_int() {
        HostTensor::integers(to, picked.into_iter().map(|v| v as i64).collect())?
    } else {
        HostTensor::new(to, picked)?
    };
    let lists = [first.iter().map(|&i| i as i64).collect(), inverse, counts];
    let mut results = vec![made(n, picked)];
    for list in lists {
        results.push(n.to.graph.public(n.attributes.name, HostTensor::ints(list)));
    }
    Ok(results)
}

/// Windows of signal processing, by their length.
pub(crate) fn window(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let size = n.constant(n.input(0)?, "sizes")?.single();
    let size = size.filter(|s| (1.0..=MAX_MADE).contains(s));
    let size = size.ok_or_else(|| n.attributes.error("its size is not one positive number"))?;
    let period = if n.attributes.int("periodic", 1) != 0 { size } else { size - 1.0 };
    let wave = |k: f64, i: f64| (2.0 * PI * k * i / period).cos();
    let operator = n.operator;
    let value = |i: usize| {
        let i = i as f64;
        match operator {
            "HannWindow" => 0.5 - 0.5 * wave(1.0, i),
            "HammingWindow" => 25.0 / 46.0 - 21.0 / 46.0 * wave(1.0, i),
            _ => 0.42 - 0.5 * wave(1.0, i) + 0.08 * wave(2.0, i),
        }
    };
    let value = HostTensor::new([size as usize], (0..size as usize).map(value).collect())?;
    Ok(vec![n.to.graph.public(n.attributes.name, value)])
}

/// Weights that make bands of a spectrum.
pub(crate) fn mel(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let number = |i: usize| -> Result<f64> {
        let value = n.constant(n.input(i)?, "sizes")?.single();
        value.ok_or_else(|| n.attributes.error("a size is not one number"))
    };
    let [bands, length, rate] = [number(0)?, number(1)?, number(2)?];
    let [low, high] = [number(3)?, number(4)?];
    let rows = (length / 2.0).floor() + 1.0;
    if !(bands >= 1.0 && length >= 1.0 && bands * rows <= MAX_MADE && rate > 0.0) {
        return Err(n.attributes.error("its sizes are not positive, or too large"));
    }
    let to_mel = |f: f64| 2595.0 * (1.0 + f / 700.0).log10();
    let (low, high) = (to_mel(low), to_mel(high));
    let step = (high - low) / (bands + 2.0);
    let bin = |i: usize| {
        let frequency = 700.0 * (10f64.powf((i as f64 * step + low) / 2595.0) - 1.0);
        ((length + 1.0) * frequency / rate).floor()
    };
    let (rows, bands) = (rows as usize, bands as usize);
    let mut values = vec![0.0; rows * bands];
    for band in 0..bands {
        let [start, middle, end] = [bin(band), bin(band + 1), bin(band + 2)];
        for row in 0..rows {
            let at = row as f64;
            values[row * bands + band] = if middle == start && at == middle {
                1.0
            } else if (start..=middle).contains(&at) {
                (at - start) / (middle - start)
            } else if at > middle && at < end {
                (end - at) / (end - middle)
            } else {
                0.0
            };
        }
    }
    let value = HostTensor::new([rows, bands], values)?;
    Ok(vec![n.to.graph.public(n.attributes.name, value)])
}
