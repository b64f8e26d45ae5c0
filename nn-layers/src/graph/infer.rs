//! Shapes of results, without running anything.

use ring_arith::{Bilinear, Shape};

use super::Sizes;
use super::op::{BatchNorm, CrewOp, Dim, Kernel, Linear, LinearMap, Op, Pool, Reduce};
use crate::host::checked_shape;
use crate::{Error, Result};

/// The shape of `op`'s result, which checks the operands and every attribute.
///
/// # Errors
/// [`Error::Invalid`] or [`Error::Ring`] with the mismatch.
pub(crate) fn output_shape(op: &Op, xs: &[&Shape], sizes: impl Into<Sizes>) -> Result<Shape> {
    let name = op.name();
    let sizes = sizes.into();
    arity(op, xs.len())?;
    let shape = match op {
        Op::Input(_) | Op::Constant(_) | Op::Parameter(_) => {
            return Err(Error::invalid(name, "has its shape from elsewhere"));
        }
        Op::Conv(k) => conv(k, xs[0], xs[1])?,
        Op::ConvWeightGrad(k) => Bilinear::ConvWeightGrad(k.spec()).output_shape(xs[0], xs[1])?,
        Op::ConvTranspose { kernel, extra } => conv_transpose(kernel, *extra, xs[0], xs[1])?,
        Op::MatMul { transpose_lhs, transpose_rhs } => {
            Bilinear::MatMul { transpose_lhs: *transpose_lhs, transpose_rhs: *transpose_rhs }
                .output_shape(xs[0], xs[1])?
        }
        Op::Linear(l) => linear(l, xs)?,
        Op::Unary(_) | Op::Scale(_) | Op::Cast => xs[0].clone(),
        Op::ScaleBy(_) if xs[1].len() == 1 => xs[0].clone(),
        Op::ScaleBy(_) => {
            return Err(Error::invalid(name, format!("{:?} is not a single number", xs[1])));
        }
        Op::Confine(bits) if CONFINED.contains(bits) => xs[0].clone(),
        Op::Confine(bits) => {
            let reason = format!("to {bits} bits; {CONFINED:?} are possible");
            return Err(Error::invalid(name, reason));
        }
        Op::ClipFactor { pairs } => clip_factor(xs, *pairs)?,
        Op::Mask if xs[0] == xs[1] => xs[0].clone(),
        Op::Mask => {
            return Err(Error::invalid(name, format!("{:?} and {:?} differ", xs[0], xs[1])));
        }
        Op::MaxPoolGrad(p) => {
            let pooled = pool(name, p, xs[0])?;
            if *xs[1] != pooled {
                let reason = format!("the gradient has shape {:?}, the result {pooled:?}", xs[1]);
                return Err(Error::invalid(name, reason));
            }
            xs[0].clone()
        }
        Op::Binary(_) => xs[0].broadcast(xs[1], name)?,
        Op::Where => xs[0].broadcast(xs[1], name)?.broadcast(xs[2], name)?,
        Op::Softmax { axis, .. } => same_with_axis(name, xs[0], *axis)?,
        Op::Normalize { axis, epsilon, .. } => {
            if !(epsilon.is_finite() && *epsilon >= 0.0) {
                return Err(Error::invalid(name, "epsilon must be a number that is not negative"));
            }
            same_with_axis(name, xs[0], *axis)?
        }
        Op::BatchNorm(norm) => batch_norm(norm, xs)?,
        Op::Dropout(part) if (0.0..1.0).contains(part) => xs[0].clone(),
        Op::Dropout(part) => {
            return Err(Error::invalid(name, format!("{part} is not a part from 0 to below 1")));
        }
        Op::Lrn { size, .. } => {
            if *size == 0 || xs[0].rank() < 2 {
                return Err(Error::invalid(name, "needs a size above 0 and shape [N, C, ..]"));
            }
            xs[0].clone()
        }
        Op::MaxPool(p) | Op::AvgPool { pool: p, .. } | Op::SumPool(p) => pool(name, p, xs[0])?,
        Op::Reduce { axes, keep, kind } => reduce(name, xs[0], axes, *keep, *kind)?,
        Op::Dot(axes) if xs[0] == xs[1] => reduce(name, xs[0], axes, true, Reduce::Sum)?,
        Op::Dot(_) => {
            return Err(Error::invalid(name, format!("{:?} and {:?} differ", xs[0], xs[1])));
        }
        Op::ArgMax { axis, keep, .. } => reduce(name, xs[0], &[*axis], *keep, Reduce::Max)?,
        Op::Draw => {
            let last = xs[0].rank().saturating_sub(1);
            reduce(name, xs[0], &[last], false, Reduce::Max)?
        }
        Op::Lookup => {
            let (_, row) = xs[0]
                .dims()
                .split_first()
                .ok_or_else(|| Error::invalid(name, "the table needs at least one axis"))?;
            Shape::new([xs[1].dims(), row].concat())?
        }
        Op::OneHot(0) => return Err(Error::invalid(name, "there are no positions")),
        Op::OneHot(count) => Shape::new([xs[0].dims(), &[*count]].concat())?,
        Op::Reshape(dims) => reshape(xs[0], dims, sizes)?,
        Op::Permute(axes) => {
            let mut seen = vec![false; xs[0].rank()];
            let valid = axes.len() == seen.len()
                && axes.iter().all(|&a| a < seen.len() && !std::mem::replace(&mut seen[a], true));
            if !valid {
                return Err(Error::invalid(name, format!("{axes:?} does not reorder {:?}", xs[0])));
            }
            Shape::new(axes.iter().map(|&a| xs[0].dims()[a]).collect::<Vec<_>>())?
        }
        Op::Slice { axis, start, end, step } => {
            let mut dims = with_axis(name, xs[0], *axis)?.to_vec();
            let end = resolve(*end, sizes).ok_or_else(|| Error::invalid(name, "end is missing"))?;
            if *step == 0 || *start > end || end > dims[*axis] {
                let reason =
                    format!("{start}..{end} by {step} is not within axis {axis} of {:?}", xs[0]);
                return Err(Error::invalid(name, reason));
            }
            dims[*axis] = (end - start).div_ceil(*step);
            Shape::new(dims)?
        }
        Op::Window { axis, start, end } => {
            let mut dims = with_axis(name, xs[0], *axis)?.to_vec();
            let [start, end] = between(name, [*start, *end], sizes)?;
            if end > dims[*axis] {
                let reason = format!("{start}..{end} is not within axis {axis} of {:?}", xs[0]);
                return Err(Error::invalid(name, reason));
            }
            dims[*axis] = end - start;
            Shape::new(dims)?
        }
        Op::Positions { from, to } => {
            let [from, to] = between(name, [*from, *to], sizes)?;
            Shape::new([to - from])?
        }
        Op::Gather { axis, indices, squeeze } => {
            let mut dims = with_axis(name, xs[0], *axis)?.to_vec();
            if let Some(i) = indices.iter().find(|&&i| i >= dims[*axis]) {
                let reason = format!("index {i} is not within axis {axis} of {:?}", xs[0]);
                return Err(Error::invalid(name, reason));
            }
            if *squeeze && indices.len() != 1 {
                return Err(Error::invalid(name, "only one index can drop its axis"));
            }
            if *squeeze {
                dims.remove(*axis);
            } else {
                dims[*axis] = indices.len();
            }
            Shape::new(dims)?
        }
        Op::Pad { before, after, value } => {
            if before.len() != xs[0].rank() || after.len() != xs[0].rank() || !value.is_finite() {
                let reason = format!("{before:?} and {after:?} do not fit {:?}", xs[0]);
                return Err(Error::invalid(name, reason));
            }
            let sides = before.iter().zip(after);
            let dims = xs[0].dims().iter().zip(sides).map(|(d, (b, a))| sum(name, &[*d, *b, *a]));
            Shape::new(dims.collect::<Result<Vec<_>>>()?)?
        }
        Op::Broadcast(dims) => {
            let to = dims.iter().map(|&d| resolve(d, sizes)).collect::<Option<Vec<_>>>();
            let to = to.ok_or_else(|| Error::invalid(name, "every dimension must be given"))?;
            let to = Shape::new(to)?;
            if xs[0].broadcast(&to, name)? != to {
                let reason = format!("{:?} does not broadcast to {to:?}", xs[0]);
                return Err(Error::invalid(name, reason));
            }
            to
        }
        Op::Concat(axis) => concat(name, xs, *axis)?,
        Op::Crew { size, op } => crew(name, xs[0], *size, op)?,
    };
    checked_shape(name, shape.dims())
}

/// The most machines of a crew.
const MOST_MACHINES: usize = 1 << 12;

/// The shape of what a machine gets.
fn crew(name: &'static str, x: &Shape, size: usize, op: &CrewOp) -> Result<Shape> {
    match op {
        CrewOp::SumScattered | CrewOp::Stretch => stretch(name, x, size),
        CrewOp::Sum | CrewOp::First => Ok(x.clone()),
        CrewOp::Gather(dims) => {
            let whole = checked_shape(name, dims.clone())?;
            if stretch(name, &whole, size)? == *x {
                return Ok(whole);
            }
            let reason = format!("{x:?} is not the stretch of one of {size} machines of {whole:?}");
            Err(Error::invalid(name, reason))
        }
    }
}

/// The shape of one machine's stretch.
pub(crate) fn stretch(name: &'static str, whole: &Shape, size: usize) -> Result<Shape> {
    if !(2..=MOST_MACHINES).contains(&size) {
        let reason = format!("a crew of {size} machines; 2 to {MOST_MACHINES} are possible");
        return Err(Error::invalid(name, reason));
    }
    Ok(Shape::new([whole.len().div_ceil(size)])?)
}

/// The bits to which words can be confined.
const CONFINED: std::ops::RangeInclusive<u32> = 20..=31;

/// One number for each unit, of operands of `[units, len]`.
fn clip_factor(xs: &[&Shape], pairs: usize) -> Result<Shape> {
    let units = xs[0].dims().first().copied().unwrap_or(0);
    let rows = |x: &&Shape| x.rank() == 2 && x.dims()[0] == units;
    if xs.iter().all(rows) && pairs <= xs.len() / 2 {
        return Ok(Shape::new([units])?);
    }
    let reason = format!("{pairs} pairs among operands of shapes {xs:?}; [units, len] is needed");
    Err(Error::invalid("clip-factor", reason))
}

/// The number of a dimension, if it is not [`Dim::Rest`].
pub(crate) fn resolve(dim: Dim, sizes: impl Into<Sizes>) -> Option<usize> {
    let sizes = sizes.into();
    match dim {
        Dim::Fixed(n) => Some(n),
        Dim::Batch(n) => n.checked_mul(sizes.batch),
        Dim::Past { times, more } => times.checked_mul(sizes.past)?.checked_add(more),
        Dim::Rest => None,
    }
}

/// The numbers of two dimensions, the first of which is not larger.
pub(crate) fn between(op: &'static str, ends: [Dim; 2], sizes: Sizes) -> Result<[usize; 2]> {
    match ends.map(|end| resolve(end, sizes)) {
        [Some(start), Some(end)] if start <= end => Ok([start, end]),
        _ => Err(Error::invalid(op, format!("{ends:?} are no ends at {sizes}"))),
    }
}

/// The shape that [`Op::Reshape`] gives.
pub(crate) fn reshape(x: &Shape, dims: &[Dim], sizes: Sizes) -> Result<Shape> {
    let rests = dims.iter().filter(|d| **d == Dim::Rest).count();
    let known =
        dims.iter().filter_map(|&d| resolve(d, sizes)).try_fold(1usize, |n, d| n.checked_mul(d));
    let misfit = || Error::invalid("reshape", format!("{x:?} does not fill {dims:?}"));
    let known = known.filter(|_| rests <= 1).ok_or_else(misfit)?;
    let rest = if rests == 0 { 1 } else { x.len().checked_div(known).ok_or_else(misfit)? };
    let shape =
        Shape::new(dims.iter().map(|&d| resolve(d, sizes).unwrap_or(rest)).collect::<Vec<_>>())?;
    if shape.len() == x.len() { Ok(shape) } else { Err(misfit()) }
}

/// Height and width that a transposed convolution makes.
pub(crate) fn transposed_size(
    kernel: &Kernel,
    extra: [usize; 2],
    size: [usize; 2],
) -> Result<[usize; 2]> {
    let w = &kernel.window;
    let along = |i: usize| {
        let reach = w.size[i].checked_sub(1)?.checked_mul(w.dilation[i])?.checked_add(1)?;
        let full = size[i].checked_sub(1)?.checked_mul(w.stride[i])?.checked_add(reach)?;
        let full = full.checked_add(extra[i])?;
        full.checked_sub(w.padding[i].checked_add(w.padding[i + 2])?)
    };
    match (along(0), along(1)) {
        (Some(h), Some(w)) => Ok([h, w]),
        _ => {
            Err(Error::invalid("conv-transpose", format!("{kernel:?} does not fit size {size:?}")))
        }
    }
}

fn arity(op: &Op, got: usize) -> Result<()> {
    let wanted = op.info().operands;
    if wanted.contains(&got) {
        return Ok(());
    }
    Err(Error::invalid(op.name(), format!("{got} operands, {} are needed", wanted.start())))
}

fn conv(kernel: &Kernel, x: &Shape, w: &Shape) -> Result<Shape> {
    Ok(Bilinear::Conv(kernel.spec()).output_shape(x, w)?)
}

fn conv_transpose(kernel: &Kernel, extra: [usize; 2], x: &Shape, w: &Shape) -> Result<Shape> {
    let &[_, _, h, width] = x.dims() else {
        return Err(Error::invalid("conv-transpose", format!("{x:?} is not [N, C, H, W]")));
    };
    let input = transposed_size(kernel, extra, [h, width])?;
    Ok(Bilinear::ConvInputGrad { spec: kernel.spec(), input }.output_shape(x, w)?)
}

fn linear(l: &Linear, xs: &[&Shape]) -> Result<Shape> {
    let shape = mapped(&l.map, [xs[0], xs[1]])?;
    for (map, [value, weight]) in l.maps() {
        let other = mapped(map, [xs[value], xs[weight]])?;
        if other != shape {
            return Err(Error::invalid("linear", format!("{other:?} is added to {shape:?}")));
        }
    }
    let shape = match l.scattered {
        Some(size) => stretch("linear", &shape, size)?,
        None => shape,
    };
    if l.bias && shape.broadcast(xs[2], "bias")? != shape {
        let reason = format!("{:?} does not broadcast to {shape:?}", xs[2]);
        return Err(Error::invalid("bias", reason));
    }
    if let Some(residual) = l.residual_at().map(|at| xs[at]).filter(|x| **x != shape) {
        let reason = format!("{residual:?} is added to {shape:?}");
        return Err(Error::invalid("residual", reason));
    }
    if let Some(mask) = l.mask_at().map(|at| xs[at]).filter(|x| **x != shape) {
        return Err(Error::invalid("linear", format!("{mask:?} masks {shape:?}")));
    }
    Ok(shape)
}

/// The shape of one map's result.
fn mapped(map: &LinearMap, [x, weight]: [&Shape; 2]) -> Result<Shape> {
    Ok(match map {
        LinearMap::Conv(k) => conv(k, x, weight)?,
        LinearMap::ConvTranspose { kernel, extra } => conv_transpose(kernel, *extra, x, weight)?,
        LinearMap::MatMul { transpose_lhs, transpose_rhs } => {
            Bilinear::MatMul { transpose_lhs: *transpose_lhs, transpose_rhs: *transpose_rhs }
                .output_shape(x, weight)?
        }
        LinearMap::ConvWeightGrad(k) => {
            Bilinear::ConvWeightGrad(k.spec()).output_shape(x, weight)?
        }
        LinearMap::Mul => {
            let shape = x.broadcast(weight, "scale")?;
            if shape != *x {
                let reason = format!("weight {weight:?} does not broadcast to {x:?}");
                return Err(Error::invalid("scale", reason));
            }
            shape
        }
    })
}

fn batch_norm(norm: &BatchNorm, xs: &[&Shape]) -> Result<Shape> {
    let BatchNorm { epsilon, momentum } = norm;
    let invalid = |reason: String| Err(Error::invalid("batch-norm", reason));
    if !(epsilon.is_finite() && *epsilon >= 0.0 && (0.0..=1.0).contains(momentum)) {
        return invalid(format!("epsilon {epsilon} is negative, or momentum {momentum} above 1"));
    }
    let Some(channels) = xs[0].dims().get(1) else {
        return invalid(format!("{:?} is not [N, C, ..]", xs[0]));
    };
    if let Some(other) = xs[1..].iter().find(|x| x.dims() != [*channels]) {
        return invalid(format!("{other:?} is not one number for each channel of {:?}", xs[0]));
    }
    Ok(xs[0].clone())
}

fn pool(op: &'static str, p: &Pool, x: &Shape) -> Result<Shape> {
    let misfit = || Error::invalid(op, format!("{p:?} does not fit {x:?}"));
    let (lead, hw) = x.dims().split_last_chunk::<2>().ok_or_else(misfit)?;
    // A window that lies in the border alone would have nothing to take the maximum or mean of.
    let reach = |i: usize| p.size[i].checked_sub(1)?.checked_mul(p.dilation[i]);
    let touches = |i: usize| reach(i).is_some_and(|r| p.padding[i] <= r && p.padding[i + 2] <= r);
    if !touches(0) || !touches(1) {
        return Err(Error::invalid(op, format!("the border of {p:?} is wider than its window")));
    }
    let [oh, ow] = p.window().positions(*hw).ok_or_else(misfit)?;
    Ok(Shape::new([lead, &[oh, ow]].concat())?)
}

fn reduce(op: &'static str, x: &Shape, axes: &[usize], keep: bool, kind: Reduce) -> Result<Shape> {
    let ascending = axes.windows(2).all(|w| w[0] < w[1]);
    if !ascending || axes.iter().any(|&a| a >= x.rank()) {
        return Err(Error::invalid(op, format!("{axes:?} are not axes of {x:?}")));
    }
    let extreme = matches!(kind, Reduce::Max | Reduce::Min);
    if extreme && axes.iter().any(|&a| x.dims()[a] == 0) {
        return Err(Error::invalid(op, format!("{x:?} has no elements along {axes:?}")));
    }
    let dims = x.dims().iter().enumerate();
    let dims: Vec<_> = if keep {
        dims.map(|(i, &d)| if axes.contains(&i) { 1 } else { d }).collect()
    } else {
        dims.filter(|(i, _)| !axes.contains(i)).map(|(_, &d)| d).collect()
    };
    Ok(Shape::new(dims)?)
}

fn concat(op: &'static str, xs: &[&Shape], axis: usize) -> Result<Shape> {
    let mut dims = with_axis(op, xs[0], axis)?.to_vec();
    for x in &xs[1..] {
        let fits = x.rank() == dims.len()
            && (0..dims.len()).all(|i| i == axis || x.dims()[i] == xs[0].dims()[i]);
        if !fits {
            return Err(Error::invalid(
                op,
                format!("{:?} and {x:?} differ outside axis {axis}", xs[0]),
            ));
        }
        dims[axis] = sum(op, &[dims[axis], x.dims()[axis]])?;
    }
    Ok(Shape::new(dims)?)
}

fn with_axis<'a>(op: &'static str, x: &'a Shape, axis: usize) -> Result<&'a [usize]> {
    if axis < x.rank() {
        return Ok(x.dims());
    }
    Err(Error::invalid(op, format!("{x:?} has no axis {axis}")))
}

fn same_with_axis(op: &'static str, x: &Shape, axis: usize) -> Result<Shape> {
    with_axis(op, x, axis)?;
    Ok(x.clone())
}

fn sum(op: &'static str, parts: &[usize]) -> Result<usize> {
    parts
        .iter()
        .try_fold(0usize, |n, &p| n.checked_add(p))
        .ok_or_else(|| Error::invalid(op, "a dimension is too large"))
}
