//! Resampling at places that are known when the model is imported.

use nn_layers::{Binary, HostTensor, Op, Reduce, ValueId};

use super::math;
use super::shape::fixed;
use crate::Result;
use crate::onnx::node::Node;

/// The most elements that are combined in all.
const MAX_TAPS: usize = 1 << 24;

/// The elements that make one result: places along an axis, with their factors.
type Taps = Vec<(usize, f64)>;

/// Elements along an axis, times their factors and combined.
fn combined(
    n: &mut Node<'_, '_>,
    x: ValueId,
    axis: usize,
    taps: &[Taps],
    kind: Reduce,
) -> Result<ValueId> {
    let most = taps.iter().map(Vec::len).max().unwrap_or(0).max(1);
    if most.saturating_mul(taps.len()) > MAX_TAPS {
        return Err(n.unsupported(format!("at {} places of {most} elements each", taps.len())));
    }
    // Where there are fewer, the first stands again for a maximum, and counts nothing in a sum.
    let spare = |own: &Taps| match (own.first(), kind) {
        (Some(&first), Reduce::Max) => first,
        _ => (0, 0.0),
    };
    let tap =
        |k: usize| taps.iter().map(move |own| own.get(k).copied().unwrap_or_else(|| spare(own)));
    let all: Vec<_> = (0..most).flat_map(tap).collect();
    let indices = all.iter().map(|(place, _)| *place).collect();
    let mut dims = n.dims(x);
    let mut y = n.add(Op::Gather { axis, indices, squeeze: false }, &[x])?;
    dims.splice(axis..=axis, [most, taps.len()]);
    y = fixed(n, y, &dims)?;
    if all.iter().any(|(_, factor)| *factor != 1.0) {
        let mut shape = vec![1; dims.len() - axis];
        shape[0] = most;
        shape[1] = taps.len();
        let factors = HostTensor::new(shape, all.iter().map(|(_, factor)| *factor).collect())?;
        let factors = n.to.graph.public(n.attributes.name, factors);
        y = n.binary_op(Binary::Mul, y, factors)?;
    }
    n.add(Op::Reduce { kind, axes: vec![axis], keep: false }, &[y])
}

/// The settings of a resampling.
struct Grid {
    mode: Mode,
    border: Border,
    /// True if -1 and 1 are the middles of the outermost elements, and not their ends.
    corners: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Nearest,
    Linear,
    Cubic,
}

#[derive(Clone, Copy, PartialEq)]
enum Border {
    Zeros,
    Edge,
    Reflection,
}

impl Grid {
    /// The elements of an axis of this length that make the value at a place from -1 to 1.
    fn along(&self, at: f64, len: usize) -> Taps {
        let last = len as f64 - 1.0;
        let (low, high) = if self.corners { (0.0, last) } else { (-0.5, last + 0.5) };
        let mut at = low + (at + 1.0) / 2.0 * (high - low);
        if self.mode == Mode::Nearest {
            at = at.round_ties_even();
        }
        if !(low..=high).contains(&at) {
            at = match self.border {
                Border::Edge if self.mode != Mode::Cubic => at.clamp(0.0, last),
                Border::Zeros | Border::Edge => at,
                Border::Reflection => reflected(at, low, high),
            };
        }
        let from = at.floor();
        let part = at - from;
        let factors = match self.mode {
            Mode::Nearest => vec![(at.round_ties_even(), 1.0)],
            Mode::Linear => vec![(from, 1.0 - part), (from + 1.0, part)],
            Mode::Cubic => {
                let factor = |k: f64| cubic((part - k).abs());
                [-1.0, 0.0, 1.0, 2.0].map(|k| (from + k, factor(k))).to_vec()
            }
        };
        let mut taps = Taps::new();
        for (at, factor) in factors.into_iter().filter(|(_, factor)| *factor != 0.0) {
            let inside = (0.0..=last).contains(&at);
            let place = match self.border {
                Border::Zeros if !inside => continue,
                Border::Reflection if !inside => reflected(at, low, high).trunc(),
                _ => at.clamp(0.0, last),
            };
            taps.push((place.clamp(0.0, last) as usize, factor));
        }
        taps
    }
}

/// A place beyond an end, folded back between both as often as needed.
fn reflected(at: f64, low: f64, high: f64) -> f64 {
    let range = high - low;
    if range <= 0.0 {
        return low;
    }
    let off = (at - low).rem_euclid(2.0 * range);
    low + if off > range { 2.0 * range - off } else { off }
}

/// The factor of an element at this distance.
fn cubic(x: f64) -> f64 {
    const A: f64 = -0.75;
    if x <= 1.0 {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A
    } else {
        0.0
    }
}

/// Values of a picture, or of data of three dimensions, at places between -1 and 1.
pub(crate) fn grid_sample(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (x, grid) = (n.input(0)?, n.input(1)?);
    let Some(places) = n.to.graph.known(grid)? else {
        return Err(n.unsupported(
            "at places that depend on the input: servers would learn which elements are read; \
             export the part before it, or resize",
        ));
    };
    let (dims, own) = (n.dims(x), n.dims(grid));
    let rank = dims.len().saturating_sub(2);
    let fits = rank > 0 && own.len() == rank + 2 && own[0] == dims[0] && own[rank + 1] == rank;
    if !fits || dims.contains(&0) {
        return Err(n.attributes.error(format!("places of shape {own:?} do not fit {dims:?}")));
    }
    let settings = settings(n)?;
    if settings.mode == Mode::Cubic && rank != 2 {
        return Err(n.unsupported(format!("in cubic mode on data of {rank} dimensions")));
    }
    let values = places.floats();
    if values.iter().any(|v| !v.is_finite()) {
        return Err(n.attributes.error("its places are not all finite"));
    }
    let mut all: Vec<Taps> = vec![];
    for place in values.chunks(rank) {
        let mut taps: Taps = vec![(0, 1.0)];
        // The first number of a place goes along the last axis.
        for (axis, &len) in dims[2..].iter().enumerate() {
            let along = settings.along(place[rank - 1 - axis], len);
            let pairs = taps.iter().flat_map(|&(before, factor)| {
                along.iter().map(move |&(at, other)| (before * len + at, factor * other))
            });
            taps = pairs.collect();
        }
        all.push(taps);
    }
    let size: usize = dims[2..].iter().product();
    let to = [&dims[..2], &own[1..=rank]].concat();
    let each = all.len() / dims[0];
    if all.chunks(each).all(|other| *other == all[..each]) {
        let flat = fixed(n, x, &[dims[0], dims[1], size])?;
        let y = combined(n, flat, 2, &all[..each], Reduce::Sum)?;
        return Ok(vec![fixed(n, y, &to)?]);
    }
    for (row, taps) in all.iter_mut().enumerate() {
        taps.iter_mut().for_each(|(at, _)| *at += row / each * size);
    }
    let rows = by_rows(n, x, &dims)?;
    let y = combined(n, rows, 0, &all, Reduce::Sum)?;
    let y = fixed(n, y, &[dims[0], each, dims[1]])?;
    let y = n.add(Op::Permute(vec![0, 2, 1]), &[y])?;
    Ok(vec![fixed(n, y, &to)?])
}

/// `[batch, channels, ..]` as a row of channels for each place of each example.
fn by_rows(n: &mut Node<'_, '_>, x: ValueId, dims: &[usize]) -> Result<ValueId> {
    let size: usize = dims[2..].iter().product();
    let flat = fixed(n, x, &[dims[0], dims[1], size])?;
    let rows = n.add(Op::Permute(vec![0, 2, 1]), &[flat])?;
    fixed(n, rows, &[dims[0] * size, dims[1]])
}

fn settings(n: &Node<'_, '_>) -> Result<Grid> {
    let mode = match n.attributes.text("mode").unwrap_or("linear") {
        "linear" | "bilinear" | "" => Mode::Linear,
        "nearest" => Mode::Nearest,
        "cubic" | "bicubic" => Mode::Cubic,
        other => return Err(n.unsupported(format!("in mode {other}"))),
    };
    let border = match n.attributes.text("padding_mode").unwrap_or("zeros") {
        "zeros" | "" => Border::Zeros,
        "border" => Border::Edge,
        "reflection" => Border::Reflection,
        other => return Err(n.unsupported(format!("with padding {other}"))),
    };
    Ok(Grid { mode, border, corners: n.attributes.int("align_corners", 0) != 0 })
}

/// The places of a grid under an affine map, which may depend on the input.
pub(crate) fn affine_grid(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let theta = n.input(0)?;
    let size = n.ints(n.input(1)?, "sizes")?;
    let size = size.iter().map(|&s| usize::try_from(s)).collect::<Result<Vec<_>, _>>();
    let size = size.map_err(|_| n.attributes.error("a size is negative"))?;
    let dims = n.dims(theta);
    let rank = size.len().saturating_sub(2);
    if rank == 0 || dims != [size[0], rank, rank + 1] {
        return Err(n.attributes.error(format!("a map of shape {dims:?} does not fit {size:?}")));
    }
    let corners = n.attributes.int("align_corners", 0) != 0;
    let axes = &size[2..];
    let count = axes.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    let count = count.filter(|count| *count <= MAX_TAPS);
    let count = count.ok_or_else(|| n.attributes.error(format!("sizes {size:?} are too large")))?;
    let mut values = Vec::with_capacity(count * (rank + 1));
    for mut at in 0..count {
        let mut place = vec![];
        // The first number of a place goes along the last axis.
        for &len in axes.iter().rev() {
            let (i, len_f) = ((at % len) as f64, len as f64);
            at /= len;
            place.push(match corners {
                true if len == 1 => -1.0,
                true => 2.0 * i / (len_f - 1.0) - 1.0,
                false => (2.0 * i + 1.0) / len_f - 1.0,
            });
        }
        values.extend(place);
        values.push(1.0);
    }
    let base = HostTensor::new([count, rank + 1], values)?;
    let base = n.to.graph.public(n.attributes.name, base);
    let turned = n.add(Op::Permute(vec![0, 2, 1]), &[theta])?;
    let y = math::product(n, base, turned)?;
    Ok(vec![fixed(n, y, &[&size[..1], axes, &[rank]].concat())?])
}

/// One axis of a region: where it starts, the length of each of its parts, and the samples in each.
#[derive(Clone, Copy)]
struct Side {
    start: f64,
    step: f64,
    samples: usize,
    len: usize,
}

impl Side {
    /// The two elements at sample `i` of part `k`; None where the sample lies outside.
    fn taps(&self, k: usize, i: usize) -> Option<Taps> {
        let part = (i as f64 + 0.5) / self.samples as f64;
        let at = self.start + (k as f64 + part) * self.step;
        if at < -1.0 || at > self.len as f64 {
            return None;
        }
        let at = at.max(0.0);
        let low = at as usize;
        if low + 1 >= self.len {
            return Some(vec![(self.len - 1, 1.0), (self.len - 1, 0.0)]);
        }
        let part = at - low as f64;
        Some(vec![(low, 1.0 - part), (low + 1, part)])
    }
}

/// Means or maxima of samples in each part of regions that are known.
pub(crate) fn roi_align(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let &[batch, channels, height, width] = n.dims(x).as_slice() else {
        return Err(n.attributes.error(format!("{:?} is not a batch of pictures", n.dims(x))));
    };
    let regions = n.constant(n.input(1)?, "regions")?;
    let batches = n.ints(n.input(2)?, "positions in the batch")?;
    if regions.dims() != [batches.len(), 4] {
        return Err(n.attributes.error(format!("regions of shape {:?}", regions.dims())));
    }
    let kind = match n.attributes.text("mode").unwrap_or("avg") {
        "avg" | "" => Reduce::Sum,
        "max" => Reduce::Max,
        other => return Err(n.unsupported(format!("in mode {other}"))),
    };
    let size = |name: &str| usize::try_from(n.attributes.int(name, 1)).unwrap_or(0).max(1);
    let (rows, columns) = (size("output_height"), size("output_width"));
    let scale = n.attributes.float("spatial_scale", 1.0);
    let ratio = usize::try_from(n.attributes.int("sampling_ratio", 0)).unwrap_or(0);
    let default = if n.to.opset >= 16 { "half_pixel" } else { "output_half_pixel" };
    let half = match n.attributes.text("coordinate_transformation_mode").unwrap_or(default) {
        "half_pixel" => true,
        "output_half_pixel" => false,
        other => return Err(n.unsupported(format!("with coordinates {other}"))),
    };
    let values = regions.floats();
    let mut all: Vec<Taps> = vec![];
    for (region, &at) in values.chunks(4).zip(&batches) {
        let at = n.position(at, batch)?;
        let side = |from: f64, to: f64, parts: usize, len: usize| {
            let shift = if half { 0.5 } else { 0.0 };
            let (start, end) = (from * scale - shift, to * scale - shift);
            let whole = if half { end - start } else { (end - start).max(1.0) };
            let step = whole / parts as f64;
            let samples = if ratio > 0 { ratio } else { step.ceil().max(0.0) as usize };
            Side { start, step, samples, len }
        };
        let vertical = side(region[1], region[3], rows, height);
        let horizontal = side(region[0], region[2], columns, width);
        let samples = vertical.samples.saturating_mul(horizontal.samples);
        if samples.saturating_mul(4 * rows * columns) > MAX_TAPS {
            return Err(n.unsupported(format!("with {samples} samples in each part")));
        }
        for part in 0..rows * columns {
            let mut taps = Taps::new();
            for sample in 0..samples {
                let i = sample / horizontal.samples;
                let j = sample % horizontal.samples;
                let down = vertical.taps(part / columns, i);
                let right = horizontal.taps(part % columns, j);
                let (Some(down), Some(right)) = (down, right) else {
                    // A sample outside is 0.
                    if kind == Reduce::Max {
                        taps.push((0, 0.0));
                    }
                    continue;
                };
                for &(y, a) in &down {
                    let count = if kind == Reduce::Max { 1.0 } else { samples as f64 };
                    let pairs =
                        right.iter().map(|&(x, b)| ((at * height + y) * width + x, a * b / count));
                    taps.extend(pairs);
                }
            }
            all.push(taps);
        }
    }
    let dims = n.dims(x);
    let x = by_rows(n, x, &dims)?;
    let y = combined(n, x, 0, &all, kind)?;
    let y = fixed(n, y, &[batches.len(), rows, columns, channels])?;
    Ok(vec![n.add(Op::Permute(vec![0, 3, 1, 2]), &[y])?])
}
