//! Discrete Fourier transforms: products with public matrices.

use std::f64::consts::TAU;

use nn_layers::{HostTensor, Op, ValueId};

use super::math;
use super::shape::fixed;
use crate::Result;
use crate::onnx::node::Node;

/// The most numbers of a transform's matrix.
const MAX_MATRIX: usize = 1 << 24;

/// A transform of rows of numbers, or of pairs of a real and an imaginary part.
struct Transform {
    /// Points of a row.
    given: usize,
    /// True if points are pairs.
    complex: bool,
    /// Points that are transformed: more are zeros, and fewer the first ones.
    len: usize,
    inverse: bool,
    /// True if only the first half of the frequencies is returned.
    onesided: bool,
}

impl Transform {
    /// The number of frequencies that are returned.
    fn frequencies(&self) -> usize {
        if self.onesided { self.len / 2 + 1 } else { self.len }
    }

    /// `[points * parts, frequencies * 2]`, each point multiplied by its part of the window.
    fn matrix(&self, n: &Node<'_, '_>, window: Option<&[f64]>) -> Result<HostTensor> {
        let parts = if self.complex { 2 } else { 1 };
        let columns = 2 * self.frequencies();
        let size = (self.given * parts).checked_mul(columns).filter(|&size| size <= MAX_MATRIX);
        let Some(size) = size.filter(|_| self.len > 0) else {
            let reason = format!("of {} points to {} frequencies", self.given, self.frequencies());
            return Err(n.unsupported(format!("{reason}; shorter rows are")));
        };
        let mut matrix = vec![0.0; size];
        let direction = if self.inverse { 1.0 } else { -1.0 };
        let scale = if self.inverse { 1.0 / self.len as f64 } else { 1.0 };
        for at in 0..self.given.min(self.len) {
            let factor = scale * window.map_or(1.0, |window| window[at]);
            for k in 0..self.frequencies() {
                // The turn is taken modulo a whole one before it becomes a float.
                let turn = (at * k % self.len) as f64 / self.len as f64;
                let angle = direction * TAU * turn;
                let (sine, cosine) = angle.sin_cos();
                let real = at * parts * columns + 2 * k;
                matrix[real] = factor * cosine;
                matrix[real + 1] = factor * sine;
                if self.complex {
                    matrix[real + columns] = -factor * sine;
                    matrix[real + columns + 1] = factor * cosine;
                }
            }
        }
        Ok(HostTensor::new([self.given * parts, columns], matrix)?)
    }
}

/// Along one axis of points, whose parts are the last axis.
pub(crate) fn dft(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let dims = n.dims(x);
    let [.., parts @ (1 | 2)] = dims[..] else {
        return Err(n.attributes.error(format!("{dims:?} does not end in one part or two")));
    };
    let axis = match n.optional(2) {
        Some(axis) => n.ints(axis, "axes")?.first().copied().unwrap_or(-2),
        None => n.attributes.int("axis", if n.to.opset >= 20 { -2 } else { 1 }),
    };
    let axis = n.axis(axis, dims.len(), false)?;
    let last = dims.len() - 1;
    if axis == last {
        return Err(n.attributes.error("its axis is that of the parts"));
    }
    let len = match n.optional(1) {
        Some(len) => positive(n, len, "a length")?,
        None => dims[axis],
    };
    let inverse = n.attributes.int("inverse", 0) != 0;
    let onesided = n.attributes.int("onesided", 0) != 0;
    let complex = parts == 2;
    if onesided && (inverse || complex) {
        return Err(n.unsupported("of one side of complex numbers"));
    }
    let transform = Transform { given: dims[axis], complex, len, inverse, onesided };
    let matrix = transform.matrix(n, None)?;
    let frequencies = transform.frequencies();
    let mut order: Vec<_> = (0..last).filter(|&a| a != axis).collect();
    let others: Vec<_> = order.iter().map(|&a| dims[a]).collect();
    order.extend([axis, last]);
    let rows = n.add(Op::Permute(order.clone()), &[x])?;
    let count = others.iter().product();
    let rows = fixed(n, rows, &[count, dims[axis] * parts])?;
    let matrix = n.to.graph.public(n.attributes.name, matrix);
    let y = math::product(n, rows, matrix)?;
    let y = fixed(n, y, &[&others[..], &[frequencies, 2]].concat())?;
    let back = (0..dims.len()).map(|a| order.iter().position(|&from| from == a).unwrap_or(a));
    Ok(vec![n.add(Op::Permute(back.collect()), &[y])?])
}

/// Of stretches of a signal `[batch, points, 1]`: `[batch, stretches, frequencies, 2]`.
pub(crate) fn stft(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let dims = n.dims(x);
    let (batch, points) = match dims[..] {
        [batch, points] | [batch, points, 1] => (batch, points),
        _ => return Err(n.unsupported(format!("of {dims:?}; real signals are [batch, points, 1]"))),
    };
    let step = n.input(1)?;
    let step = positive(n, step, "a step")?;
    let window = n.optional(2).map(|window| n.constant(window, "windows")).transpose()?;
    let window = window.map(|window| window.floats().into_owned());
    let given = match (n.optional(3), &window) {
        (Some(len), _) => positive(n, len, "a length")?,
        (None, Some(window)) => window.len(),
        (None, None) => return Err(n.attributes.error("it has neither window nor frame_length")),
    };
    let fits = given <= points && window.as_ref().is_none_or(|window| window.len() == given);
    if !fits {
        let reason = format!("frames of {given} points fit neither window nor {points} points");
        return Err(n.attributes.error(reason));
    }
    let onesided = n.attributes.int("onesided", 1) != 0;
    let transform = Transform { given, complex: false, len: given, inverse: false, onesided };
    let matrix = transform.matrix(n, window.as_deref())?;
    let frames = (points - given) / step + 1;
    let indices = (0..frames).flat_map(|f| f * step..f * step + given).collect();
    let signal = fixed(n, x, &[batch, points])?;
    let rows = n.add(Op::Gather { axis: 1, indices, squeeze: false }, &[signal])?;
    let rows = fixed(n, rows, &[batch * frames, given])?;
    let matrix = n.to.graph.public(n.attributes.name, matrix);
    let y = math::product(n, rows, matrix)?;
    Ok(vec![fixed(n, y, &[batch, frames, transform.frequencies(), 2])?])
}

/// A known number above 0.
fn positive(n: &Node<'_, '_>, id: ValueId, what: &str) -> Result<usize> {
    let value = n.ints(id, what)?;
    let one = value.first().and_then(|&v| usize::try_from(v).ok()).filter(|&v| v > 0);
    one.ok_or_else(|| n.attributes.error(format!("{what} of {value:?}; it must be above 0")))
}
