//! Resampling: products with public matrices, one for each axis that changes.

use nn_layers::{Binary, HostTensor, Op, ValueId};

use super::math;
use super::shape::fixed;
use crate::Result;
use crate::onnx::node::Node;

/// The most elements of an axis's matrix.
const MAX_MATRIX: usize = 1 << 24;

/// The resampling of one axis.
struct Axis {
    axis: usize,
    from: usize,
    to: usize,
    scale: f64,
    /// The part of the axis that is taken, from 0 to 1.
    part: (f64, f64),
}

/// The settings that all axes share.
struct Kind {
    mode: Mode,
    coordinates: String,
    nearest: String,
    cubic: f64,
    exclude_outside: bool,
    antialias: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Nearest,
    Linear,
    Cubic,
}

/// The rows of an axis's matrix: positions with their factors; None where the place is outside.
type Rows = Vec<Option<Vec<(usize, f64)>>>;

pub(crate) fn resize(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let old = n.to.opset < 11 || n.operator == "Upsample";
    let kind = kind(n, old)?;
    let axes = sizes(n, x, old)?;
    let mut y = x;
    let mut inside: Option<Vec<(usize, Vec<f64>)>> = None;
    for axis in &axes {
        let whole = axis.part == (0.0, 1.0);
        if axis.from == axis.to && (axis.scale - 1.0).abs() < 1e-9 && whole {
            continue;
        }
        let rows = (0..axis.to).map(|i| row(&kind, axis, i)).collect::<Rows>();
        if rows.iter().any(Option::is_none) {
            let shown = rows.iter().map(|row| f64::from(u8::from(row.is_some()))).collect();
            inside.get_or_insert_default().push((axis.axis, shown));
        }
        y = resampled(n, y, axis, &rows)?;
    }
    let value = n.attributes.float("extrapolation_value", 0.0);
    if let Some(inside) = inside.filter(|_| value != 0.0) {
        y = filled(n, y, &inside, value)?;
    }
    Ok(vec![y])
}

fn kind(n: &Node<'_, '_>, old: bool) -> Result<Kind> {
    let mode = match n.attributes.text("mode").unwrap_or("nearest") {
        "nearest" => Mode::Nearest,
        "linear" | "bilinear" => Mode::Linear,
        "cubic" => Mode::Cubic,
        other => return Err(n.unsupported(format!("in mode {other}"))),
    };
    let text = |name: &str, default: &str| n.attributes.text(name).unwrap_or(default).to_owned();
    // Before opset 11 places were divided by the scale, and rounded down.
    let coordinates = if old { "asymmetric" } else { "half_pixel" };
    let nearest = if old { "floor" } else { "round_prefer_floor" };
    let kind = Kind {
        mode,
        coordinates: text("coordinate_transformation_mode", coordinates),
        nearest: text("nearest_mode", nearest),
        cubic: n.attributes.float("cubic_coeff_a", -0.75),
        exclude_outside: n.attributes.int("exclude_outside", 0) != 0,
        antialias: n.attributes.int("antialias", 0) != 0,
    };
    let known = [
        "align_corners",
        "asymmetric",
        "tf_crop_and_resize",
        "pytorch_half_pixel",
        "half_pixel",
        "half_pixel_symmetric",
    ];
    if !known.contains(&kind.coordinates.as_str()) {
        return Err(n.unsupported(format!("with coordinates {}", kind.coordinates)));
    }
    Ok(kind)
}

/// The axes with their new sizes.
fn sizes(n: &Node<'_, '_>, x: ValueId, old: bool) -> Result<Vec<Axis>> {
    let dims = n.dims(x);
    let rank = dims.len();
    let axes = match n.attributes.ints("axes") {
        Some(axes) => axes.iter().map(|&a| n.axis(a, rank, false)).collect::<Result<Vec<_>>>()?,
        None => (0..rank).collect(),
    };
    let list = |i: usize, what: &str| -> Result<Option<HostTensor>> {
        let Some(id) = n.optional(i) else { return Ok(None) };
        Ok(Some(n.constant(id, what)?).filter(|value| value.len() > 0))
    };
    let scales = match n.attributes.floats("scales") {
        Some(scales) => Some(scales.iter().map(|&s| f64::from(s)).collect::<Vec<_>>()),
        None => list(if old { 1 } else { 2 }, "scales")?.map(|v| v.floats().into_owned()),
    };
    let given = if old { None } else { list(3, "sizes")? };
    let misfit = || n.attributes.error(format!("its scales or sizes do not fit {dims:?}"));
    let mut to: Vec<(usize, f64)> = match (&given, &scales) {
        (Some(sizes), _) => {
            let sizes = sizes.floats();
            if sizes.len() != axes.len() {
                return Err(misfit());
            }
            let pairs = axes.iter().zip(sizes.iter());
            pairs.map(|(&a, &s)| (s as usize, s / dims[a].max(1) as f64)).collect()
        }
        (None, Some(scales)) if scales.len() == axes.len() => {
            let pairs = axes.iter().zip(scales);
            pairs.map(|(&a, &s)| ((s * dims[a] as f64 + 1e-6) as usize, s)).collect()
        }
        _ => return Err(misfit()),
    };
    let policy = n.attributes.text("keep_aspect_ratio_policy").unwrap_or("stretch");
    if given.is_some() && policy != "stretch" {
        let scales = to.iter().map(|t| t.1);
        let scale = match policy {
            "not_larger" => scales.fold(f64::INFINITY, f64::min),
            "not_smaller" => scales.fold(0.0, f64::max),
            other => return Err(n.unsupported(format!("with keep_aspect_ratio_policy {other}"))),
        };
        to = axes.iter().map(|&a| ((scale * dims[a] as f64 + 0.5) as usize, scale)).collect();
    }
    let crop = n.attributes.text("coordinate_transformation_mode") == Some("tf_crop_and_resize");
    let parts = if crop && !old { list(1, "regions")? } else { None };
    let parts = parts.map(|p| p.floats().into_owned());
    if crop && parts.as_ref().is_none_or(|p| p.len() != 2 * axes.len()) {
        return Err(n.attributes.error("its region does not fit"));
    }
    let mut found = vec![];
    for (i, (&axis, &(to, scale))) in axes.iter().zip(&to).enumerate() {
        let part = parts.as_ref().map_or((0.0, 1.0), |p| (p[i], p[i + axes.len()]));
        let from = dims[axis];
        let fits = scale > 0.0 && from.checked_mul(to).is_some_and(|n| n <= MAX_MATRIX);
        if !fits || from == 0 {
            return Err(misfit());
        }
        found.push(Axis { axis, from, to, scale, part });
    }
    Ok(found)
}

/// The place in the operand of place `i` of the result; None where it is outside.
fn place(kind: &Kind, axis: &Axis, i: usize) -> Option<f64> {
    let (i, from, scale) = (i as f64, axis.from as f64, axis.scale);
    let length = scale * from;
    Some(match kind.coordinates.as_str() {
        "align_corners" if length == 1.0 => 0.0,
        "align_corners" => i * (from - 1.0) / (length - 1.0),
        "asymmetric" => i / scale,
        "tf_crop_and_resize" => {
            let (start, end) = axis.part;
            let at = if length == 1.0 {
                (end - start) * (from - 1.0) / 2.0
            } else {
                i * (end - start) * (from - 1.0) / (length - 1.0)
            };
            let at = at + start * (from - 1.0);
            return (0.0..=from - 1.0).contains(&at).then_some(at);
        }
        "pytorch_half_pixel" if length == 1.0 => -0.5,
        "half_pixel_symmetric" => {
            let shift = from / 2.0 * (1.0 - axis.to as f64 / length);
            shift + (i + 0.5) / scale - 0.5
        }
        _ => (i + 0.5) / scale - 0.5,
    })
}

/// Positions and factors of one element of the result.
fn row(kind: &Kind, axis: &Axis, i: usize) -> Option<Vec<(usize, f64)>> {
    let at = place(kind, axis, i)?;
    let floor = at.floor();
    // A position on an element counts as on the right of the element before.
    let ratio = if at == floor { 1.0 } else { at - floor };
    let factors = factors(kind, ratio, axis.scale);
    let n = factors.len() as i64;
    let first = if n % 2 == 0 {
        floor as i64 - n / 2 + i64::from(at != floor)
    } else {
        floor as i64 - (n - 1) / 2 + i64::from(at - floor > 0.5)
    };
    let last = axis.from as i64 - 1;
    let mut taps: Vec<(usize, f64)> = vec![];
    for (k, factor) in factors.into_iter().enumerate() {
        let position = first + k as i64;
        if kind.exclude_outside && !(0..=last).contains(&position) {
            continue;
        }
        taps.push((position.clamp(0, last) as usize, factor));
    }
    if kind.exclude_outside {
        let sum: f64 = taps.iter().map(|tap| tap.1).sum();
        taps.iter_mut().filter(|_| sum != 0.0).for_each(|tap| tap.1 /= sum);
    }
    Some(taps)
}

/// The factors of the elements around a place, which is `ratio` after the element before it.
fn factors(kind: &Kind, ratio: f64, scale: f64) -> Vec<f64> {
    let a = kind.cubic;
    let cubic = |x: f64| {
        let x = x.abs();
        if x <= 1.0 {
            ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
        } else if x < 2.0 {
            ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
        } else {
            0.0
        }
    };
    let linear = |x: f64| (1.0 - x.abs()).clamp(0.0, 1.0);
    // Where the result is smaller, each of its elements sees as much more.
    let scale = if kind.antialias { scale.min(1.0) } else { 1.0 };
    let wide = |reach: f64, f: &dyn Fn(f64) -> f64| {
        let start = (-reach / scale).floor() as i64 + 1;
        let taps = (start..2 - start).map(|i| f(scale * (i as f64 - ratio)));
        let taps: Vec<_> = taps.collect();
        let sum: f64 = taps.iter().sum();
        taps.into_iter().map(|tap| tap / sum).collect::<Vec<_>>()
    };
    match kind.mode {
        Mode::Linear => wide(1.0, &linear),
        Mode::Cubic => wide(2.0, &cubic),
        Mode::Nearest => {
            let left = match kind.nearest.as_str() {
                _ if ratio == 1.0 => false,
                "round_prefer_floor" => ratio <= 0.5,
                "round_prefer_ceil" => ratio < 0.5,
                "floor" => true,
                _ => false,
            };
            vec![f64::from(u8::from(left)), f64::from(u8::from(!left))]
        }
    }
}

/// A value with one axis resampled: elements picked where each row has one, else a product.
fn resampled(n: &mut Node<'_, '_>, x: ValueId, axis: &Axis, rows: &Rows) -> Result<ValueId> {
    let single = |row: &Option<Vec<(usize, f64)>>| {
        let row = row.as_ref()?;
        let mut taken = row.iter().filter(|tap| tap.1 != 0.0);
        match (taken.next(), taken.next()) {
            (Some(&(at, 1.0)), None) => Some(at),
            _ => None,
        }
    };
    if let Some(indices) = rows.iter().map(single).collect::<Option<Vec<_>>>() {
        return n.add(Op::Gather { axis: axis.axis, indices, squeeze: false }, &[x]);
    }
    let mut matrix = vec![0.0; axis.from * axis.to];
    for (i, taps) in rows.iter().enumerate() {
        for &(at, factor) in taps.iter().flatten() {
            matrix[at * axis.to + i] += factor;
        }
    }
    let matrix = HostTensor::new([axis.from, axis.to], matrix)?;
    along(n, x, axis.axis, matrix)
}

/// A product with a public matrix `[length, new length]` along an axis.
pub(crate) fn along(
    n: &mut Node<'_, '_>,
    x: ValueId,
    axis: usize,
    matrix: HostTensor,
) -> Result<ValueId> {
    let matrix = n.to.graph.public(n.attributes.name, matrix);
    let last = n.dims(x).len() - 1;
    let mut order: Vec<_> = (0..=last).collect();
    order.swap(axis, last);
    let moved = if axis == last { x } else { n.add(Op::Permute(order.clone()), &[x])? };
    let rows = if last == 0 {
        let len = n.dims(moved)[0];
        fixed(n, moved, &[1, len])?
    } else {
        moved
    };
    let y = math::product(n, rows, matrix)?;
    if last == 0 {
        let len = n.dims(y)[1];
        return fixed(n, y, &[len]);
    }
    if axis == last { Ok(y) } else { n.add(Op::Permute(order), &[y]) }
}

/// A number where an axis is outside; the value is 0 there.
fn filled(
    n: &mut Node<'_, '_>,
    y: ValueId,
    inside: &[(usize, Vec<f64>)],
    value: f64,
) -> Result<ValueId> {
    let rank = n.dims(y).len();
    let mut shown = n.number(1.0);
    for (axis, shows) in inside {
        let mut dims = vec![1; rank];
        dims[*axis] = shows.len();
        let shows = HostTensor::new(dims, shows.clone())?;
        let shows = n.to.graph.public(n.attributes.name, shows);
        shown = n.binary_op(Binary::Mul, shown, shows)?;
    }
    let (one, value) = (n.number(1.0), n.number(value));
    let outside = n.binary_op(Binary::Sub, one, shown)?;
    let more = n.binary_op(Binary::Mul, outside, value)?;
    n.binary_op(Binary::Add, y, more)
}
