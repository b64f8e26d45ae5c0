//! Windows over data of three dimensions: those of two, and one more.

use nn_layers::{Binary, Dim, HostTensor, Kernel, Op, Pool, Unary, ValueId};

use super::shape::fixed;
use crate::Result;
use crate::onnx::node::Node;

/// A window along one axis.
#[derive(Clone, Copy)]
struct Along {
    size: usize,
    stride: usize,
    dilation: usize,
    before: usize,
    after: usize,
    /// Padding after the border for a last, partial window.
    extra: usize,
}

impl Along {
    fn reach(&self) -> usize {
        (self.size.max(1) - 1) * self.dilation + 1
    }

    /// The border that a sum sees.
    fn ends(&self) -> [usize; 2] {
        [self.before, self.after + self.extra]
    }

    /// Number of positions on an axis of this length, if the window fits.
    fn positions(&self, len: usize) -> Option<usize> {
        let room = (len + self.before + self.after + self.extra).checked_sub(self.reach())?;
        Some(room / self.stride + 1)
    }

    /// For each position how many taps lie on the axis, or in its border too.
    fn counts(&self, len: usize, border: bool) -> Option<Vec<f64>> {
        let count = |i: usize| {
            let inside = |k: &usize| {
                let at = i * self.stride + k * self.dilation;
                match border {
                    true => at < self.before + len + self.after,
                    false => at >= self.before && at < self.before + len,
                }
            };
            (0..self.size).filter(inside).count() as f64
        };
        Some((0..self.positions(len)?).map(count).collect())
    }
}

/// The window along each of three axes.
fn windows(n: &Node<'_, '_>, image: [usize; 3], size: [usize; 3]) -> Result<[Along; 3]> {
    let stride = n.attributes.sizes("strides", [1; 3])?;
    let dilation = n.attributes.sizes("dilations", [1; 3])?;
    let pads = n.attributes.sizes("pads", [0; 6])?;
    let auto = n.attributes.text("auto_pad").filter(|m| !m.is_empty()).unwrap_or("NOTSET");
    let mut made = vec![];
    for i in 0..3 {
        let (stride, dilation) = (stride[i].max(1), dilation[i].max(1));
        let mut along = Along {
            size: size[i],
            stride,
            dilation,
            before: pads[i],
            after: pads[i + 3],
            extra: 0,
        };
        match auto {
            "NOTSET" => {}
            "VALID" => (along.before, along.after) = (0, 0),
            "SAME_UPPER" | "SAME_LOWER" => {
                let places = image[i].div_ceil(stride).max(1);
                let total = ((places - 1) * stride + along.reach()).saturating_sub(image[i]);
                let (less, more) = (total / 2, total - total / 2);
                let upper = auto == "SAME_UPPER";
                (along.before, along.after) = if upper { (less, more) } else { (more, less) };
            }
            other => return Err(n.attributes.error(format!("auto_pad {other} is unknown"))),
        }
        if n.attributes.int("ceil_mode", 0) != 0 {
            let length = image[i] + along.before + along.after;
            let missing = along.reach().saturating_sub(length);
            if missing > 0 && missing < stride {
                along.extra = missing;
            } else if let Some(room) = length.checked_sub(along.reach()) {
                let last = room.div_ceil(stride) * stride;
                // A window that begins in the added padding does not count.
                if last < image[i] + along.before {
                    along.extra = (last + along.reach()).saturating_sub(length);
                }
            }
        }
        made.push(along);
    }
    let fits = (0..3).all(|i| made[i].size > 0 && made[i].positions(image[i]).is_some());
    match <[Along; 3]>::try_from(made) {
        Ok(windows) if fits => Ok(windows),
        _ => Err(n.attributes.error(format!("a window of {size:?} does not fit {image:?}"))),
    }
}

fn five(n: &Node<'_, '_>, x: ValueId) -> Result<[usize; 5]> {
    let dims = n.dims(x);
    let wrong = || n.unsupported(format!("on data of shape {dims:?}; one to three dimensions are"));
    <[usize; 5]>::try_from(dims.as_slice()).map_err(|_| wrong())
}

/// Largest elements or sums under a window: over height and width first, then over the depth.
fn passes(
    n: &mut Node<'_, '_>,
    x: ValueId,
    [depth, height, width]: [Along; 3],
    op: impl Fn(Pool) -> Op,
) -> Result<ValueId> {
    let [batch, channels, d, h, w] = five(n, x)?;
    let ([top, bottom], [left, right]) = (height.ends(), width.ends());
    let flat = Pool {
        size: [height.size, width.size],
        stride: [height.stride, width.stride],
        padding: [top, left, bottom, right],
        dilation: [height.dilation, width.dilation],
    };
    let y = fixed(n, x, &[batch, channels * d, h, w])?;
    let y = n.add(op(flat), &[y])?;
    let dims = n.dims(y);
    let (h, w) = (dims[2], dims[3]);
    let [front, back] = depth.ends();
    let deep = Pool {
        size: [depth.size, 1],
        stride: [depth.stride, 1],
        padding: [front, 0, back, 0],
        dilation: [depth.dilation, 1],
    };
    let y = fixed(n, y, &[batch, channels, d, h * w])?;
    let y = n.add(op(deep), &[y])?;
    let d = n.dims(y)[2];
    fixed(n, y, &[batch, channels, d, h, w])
}

/// The largest, the mean, or a norm under a window of three dimensions.
pub(crate) fn pool(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let [.., d, h, w] = five(n, x)?;
    let size = n.attributes.sizes("kernel_shape", [0; 3])?;
    let windows = windows(n, [d, h, w], size)?;
    match n.operator {
        "MaxPool" => Ok(vec![passes(n, x, windows, Op::MaxPool)?]),
        "LpPool" => {
            let p = n.attributes.int("p", 2);
            let powers = power(n, x, p)?;
            let sums = passes(n, powers, windows, Op::SumPool)?;
            Ok(vec![root(n, sums, p)?])
        }
        _ => {
            let border = n.attributes.int("count_include_pad", 0) != 0;
            let sums = passes(n, x, windows, Op::SumPool)?;
            let lens = [d, h, w];
            let counts: Vec<_> =
                (0..3).filter_map(|i| windows[i].counts(lens[i], border)).collect();
            let mut factors = vec![];
            for a in &counts[0] {
                for b in &counts[1] {
                    factors.extend(counts[2].iter().map(|c| 1.0 / (a * b * c)));
                }
            }
            let dims: Vec<_> = counts.iter().map(Vec::len).collect();
            let factors = HostTensor::new(dims, factors)?;
            let factors = match factors.uniform() {
                Some(factor) => n.number(factor),
                None => n.to.graph.public(n.attributes.name, factors),
            };
            Ok(vec![n.binary_op(Binary::Mul, sums, factors)?])
        }
    }
}

/// `|x|^p`.
pub(crate) fn power(n: &mut Node<'_, '_>, x: ValueId, p: i64) -> Result<ValueId> {
    match p {
        1 => n.unary(Unary::Abs, x),
        2 => n.binary_op(Binary::Mul, x, x),
        3..=64 => {
            let size = n.unary(Unary::Abs, x)?;
            n.unary(Unary::Pow(p as f64), size)
        }
        p => Err(n.unsupported(format!("with p = {p}; 1 to 64 are"))),
    }
}

/// The root that undoes [`power`].
pub(crate) fn root(n: &mut Node<'_, '_>, x: ValueId, p: i64) -> Result<ValueId> {
    match p {
        1 => Ok(x),
        2 => n.unary(Unary::Sqrt, x),
        p => n.unary(Unary::Pow(1.0 / p as f64), x),
    }
}

/// A convolution as one of two dimensions for each tap along the depth, added up.
pub(crate) fn conv(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (x, weight) = (n.input(0)?, n.input(1)?);
    let ([.., d, h, w], [_, _, kd, kh, kw]) = (five(n, x)?, five(n, weight)?);
    let groups = usize::try_from(n.attributes.int("group", 1)).unwrap_or(0);
    let windows = windows(n, [d, h, w], [kd, kh, kw])?;
    Ok(vec![convolved(n, x, weight, windows, groups)?])
}

fn convolved(
    n: &mut Node<'_, '_>,
    mut x: ValueId,
    weight: ValueId,
    [depth, height, width]: [Along; 3],
    groups: usize,
) -> Result<ValueId> {
    let ([batch, channels, d, h, w], [out, _, kd, kh, kw]) = (five(n, x)?, five(n, weight)?);
    if depth.before + depth.after > 0 {
        let (before, after) = (vec![0, 0, depth.before, 0, 0], vec![0, 0, depth.after, 0, 0]);
        x = n.add(Op::Pad { before, after, value: 0.0 }, &[x])?;
    }
    let places = depth.positions(d).unwrap_or(0);
    let window = Pool {
        size: [kh, kw],
        stride: [height.stride, width.stride],
        padding: [height.before, width.before, height.after, width.after],
        dilation: [height.dilation, width.dilation],
    };
    let mut sum: Option<ValueId> = None;
    for tap in 0..kd {
        let start = tap * depth.dilation;
        let end = Dim::Fixed(start + (places - 1) * depth.stride + 1);
        let op = Op::Slice { axis: 2, start, end, step: depth.stride };
        let part = n.add(op, &[x])?;
        let part = n.add(Op::Permute(vec![0, 2, 1, 3, 4]), &[part])?;
        let part = fixed(n, part, &[batch * places, channels, h, w])?;
        let op = Op::Gather { axis: 2, indices: vec![tap], squeeze: true };
        let weight = n.add(op, &[weight])?;
        let part = n.add(Op::Conv(Kernel { window, groups }), &[part, weight])?;
        sum = Some(match sum {
            None => part,
            Some(sum) => n.binary_op(Binary::Add, sum, part)?,
        });
    }
    let mut y = sum.ok_or_else(|| n.attributes.error("its kernel is empty"))?;
    if let Some(bias) = n.optional(2) {
        let bias = fixed(n, bias, &[out, 1, 1])?;
        y = n.binary_op(Binary::Add, y, bias)?;
    }
    let dims = n.dims(y);
    let y = fixed(n, y, &[batch, places, out, dims[2], dims[3]])?;
    n.add(Op::Permute(vec![0, 2, 1, 3, 4]), &[y])
}

/// A transposed convolution: one of data between whose elements zeros stand, by the weights in reverse.
pub(crate) fn conv_transpose(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (x, weight) = (n.input(0)?, n.input(1)?);
    let ([.., d, h, w], [channels, per_group, kd, kh, kw]) = (five(n, x)?, five(n, weight)?);
    let groups = usize::try_from(n.attributes.int("group", 1)).unwrap_or(0);
    if groups == 0 || !channels.is_multiple_of(groups) {
        return Err(n.attributes.error(format!("{groups} groups do not divide {channels}")));
    }
    let auto = n.attributes.text("auto_pad").filter(|m| !m.is_empty()).unwrap_or("NOTSET");
    if auto != "NOTSET" && auto != "VALID" || n.attributes.has("output_shape") {
        return Err(n.unsupported("of three dimensions by the shape of its result: give its pads"));
    }
    let stride = n.attributes.sizes("strides", [1; 3])?.map(|s| s.max(1));
    let dilation = n.attributes.sizes("dilations", [1; 3])?.map(|s| s.max(1));
    let pads = if auto == "VALID" { [0; 6] } else { n.attributes.sizes("pads", [0; 6])? };
    let extra = n.attributes.sizes("output_padding", [0; 3])?;
    let mut y = x;
    let (mut before, mut after) = (vec![0; 5], vec![0; 5]);
    for (i, (len, size)) in [(d, kd), (h, kh), (w, kw)].into_iter().enumerate() {
        let axis = i + 2;
        if stride[i] > 1 {
            let dims = n.dims(y);
            let mut apart = dims.clone();
            apart.insert(axis + 1, 1);
            y = fixed(n, y, &apart)?;
            let mut more = vec![0; 6];
            more[axis + 1] = stride[i] - 1;
            y = n.add(Op::Pad { before: vec![0; 6], after: more, value: 0.0 }, &[y])?;
            let mut joined = dims;
            joined[axis] *= stride[i];
            y = fixed(n, y, &joined)?;
            y = n.part(y, axis, 0, (len - 1) * stride[i] + 1)?;
        }
        let reach = (size.max(1) - 1) * dilation[i];
        // A border of the result that is cut off, or one of the operand that is added.
        for (side, pad, more) in [(&mut before, pads[i], 0), (&mut after, pads[i + 3], extra[i])] {
            side[axis] = (reach + more).checked_sub(pad).ok_or_else(|| {
                n.unsupported(format!(
                    "with a border of {pad} that a window of {size} does not fill"
                ))
            })?;
        }
    }
    y = n.add(Op::Pad { before, after, value: 0.0 }, &[y])?;
    let split = [groups, channels / groups, per_group, kd, kh, kw];
    let mut turned = fixed(n, weight, &split)?;
    turned = n.add(Op::Permute(vec![0, 2, 1, 3, 4, 5]), &[turned])?;
    turned = fixed(n, turned, &[groups * per_group, channels / groups, kd, kh, kw])?;
    for (axis, size) in [(2, kd), (3, kh), (4, kw)] {
        let indices = (0..size).rev().collect();
        turned = n.add(Op::Gather { axis, indices, squeeze: false }, &[turned])?;
    }
    let along = |i: usize, size: usize| Along {
        size,
        stride: 1,
        dilation: dilation[i],
        before: 0,
        after: 0,
        extra: 0,
    };
    let windows = [along(0, kd), along(1, kh), along(2, kw)];
    Ok(vec![convolved(n, y, turned, windows, groups)?])
}
