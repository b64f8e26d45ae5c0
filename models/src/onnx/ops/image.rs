//! Operators on images and sequences that put elements elsewhere.

use nn_layers::{Dim, HostTensor, Op, ValueId};

use super::shape::fixed;
use crate::Result;
use crate::onnx::node::Node;

/// Moves blocks of an image's channels to its neighbouring pixels, or the reverse.
pub(crate) fn blocks(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let &[batch, c, h, w] = n.dims(x).as_slice() else {
        return Err(n.attributes.error(format!("{:?} is not [N, C, H, W]", n.dims(x))));
    };
    let b = usize::try_from(n.attributes.int("blocksize", 0)).unwrap_or(0);
    let to_space = n.operator == "DepthToSpace";
    let fits = b > 0
        && if to_space {
            b.checked_mul(b).is_some_and(|b| c.is_multiple_of(b))
        } else {
            h.is_multiple_of(b) && w.is_multiple_of(b)
        };
    if !fits {
        return Err(n.attributes.error(format!("blocks of {b} do not fit {:?}", n.dims(x))));
    }
    let mode = n.attributes.text("mode").unwrap_or("DCR");
    let (split, order, to) = match (to_space, mode) {
        (true, "DCR") => {
            let inner = c / (b * b);
            ([batch, b, b, inner, h, w], [0, 3, 4, 1, 5, 2], [batch, inner, h * b, w * b])
        }
        (true, "CRD") => {
            let inner = c / (b * b);
            ([batch, inner, b, b, h, w], [0, 1, 4, 2, 5, 3], [batch, inner, h * b, w * b])
        }
        (true, other) => return Err(n.unsupported(format!("in mode {other}"))),
        (false, "CRD") => {
            let split = [batch, c, h / b, b, w / b, b];
            (split, [0, 1, 3, 5, 2, 4], [batch, c * b * b, h / b, w / b])
        }
        (false, _) => {
            let split = [batch, c, h / b, b, w / b, b];
            (split, [0, 3, 5, 1, 2, 4], [batch, c * b * b, h / b, w / b])
        }
    };
    let x = fixed(n, x, &split)?;
    let x = n.add(Op::Permute(order.to_vec()), &[x])?;
    Ok(vec![fixed(n, x, &to)?])
}

/// Cut or bordered with zeros on both sides to a shape.
pub(crate) fn center_crop_pad(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let mut x = n.input(0)?;
    let rank = n.dims(x).len();
    let to = n.ints(n.input(1)?, "shapes")?;
    let axes = match n.attributes.ints("axes") {
        Some(axes) => axes.iter().map(|&a| n.axis(a, rank, false)).collect::<Result<Vec<_>>>()?,
        None => (0..rank).collect(),
    };
    if to.len() != axes.len() {
        return Err(n.attributes.error(format!("shape {to:?} for {} axes", axes.len())));
    }
    for (&axis, &to) in axes.iter().zip(&to) {
        let len = n.dims(x)[axis];
        let to = usize::try_from(to).map_err(|_| n.attributes.error(format!("size {to}")))?;
        let less = len.abs_diff(to) / 2;
        if to < len {
            let end = Dim::Fixed(less + to);
            x = n.add(Op::Slice { axis, start: less, end, step: 1 }, &[x])?;
        } else if to > len {
            let (mut before, mut after) = (vec![0; rank], vec![0; rank]);
            before[axis] = less;
            after[axis] = to - len - less;
            x = n.add(Op::Pad { before, after, value: 0.0 }, &[x])?;
        }
    }
    Ok(vec![x])
}

/// Reverses the first elements of each row, as many as a public list states.
pub(crate) fn reverse_sequence(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let dims = n.dims(x);
    let lengths = n.ints(n.input(1)?, "lengths")?;
    let time = n.axis(n.attributes.int("time_axis", 0), dims.len(), false)?;
    let batch = n.axis(n.attributes.int("batch_axis", 1), dims.len(), false)?;
    if time == batch || lengths.len() != dims[batch] {
        return Err(n.attributes.error(format!("{} lengths do not fit {dims:?}", lengths.len())));
    }
    let mut rows = vec![];
    for (row, &length) in lengths.iter().enumerate() {
        let length = usize::try_from(length).ok().filter(|&l| l <= dims[time]);
        let length = length.ok_or_else(|| n.attributes.error("a length does not fit"))?;
        let op = Op::Gather { axis: batch, indices: vec![row], squeeze: false };
        let one = n.add(op, &[x])?;
        let indices = (0..length).rev().chain(length..dims[time]).collect();
        rows.push(n.add(Op::Gather { axis: time, indices, squeeze: false }, &[one])?);
    }
    Ok(vec![if rows.len() == 1 { rows[0] } else { n.add(Op::Concat(batch), &rows)? }])
}

/// The parts along an axis that a public list of truth values keeps.
pub(crate) fn compress(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let mut x = n.input(0)?;
    let keep = n.constant(n.input(1)?, "conditions")?;
    let axis = if n.attributes.has("axis") {
        n.axis(n.attributes.int("axis", 0), n.dims(x).len(), false)?
    } else {
        let len = n.dims(x).iter().product();
        x = fixed(n, x, &[len])?;
        0
    };
    let keep = keep.floats();
    let indices: Vec<_> = (0..keep.len()).filter(|&i| keep[i] != 0.0).collect();
    Ok(vec![n.add(Op::Gather { axis, indices, squeeze: false }, &[x])?])
}

/// 1 where a diagonal is, in the shape of the operand.
pub(crate) fn eye_like(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let &[rows, columns] = n.dims(x).as_slice() else {
        return Err(n.attributes.error(format!("{:?} is no matrix", n.dims(x))));
    };
    let offset = n.attributes.int("k", 0);
    let on = |i: usize| (i % columns) as i64 == ((i / columns) as i64).saturating_add(offset);
    let ones = (0..rows * columns).map(|i| i64::from(on(i))).collect();
    let value = HostTensor::integers([rows, columns], ones)?;
    let kind = super::result_kind(n, 0, x);
    let float = crate::onnx::dtype::is_float(kind).unwrap_or(true);
    let value = if float { value.to_float() } else { value };
    Ok(vec![n.to.graph.public(n.attributes.name, value)])
}

/// Columns of patches added up to images: the transpose of taking patches.
pub(crate) fn col2im(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    use nn_layers::{Kernel, Pool};
    let x = n.input(0)?;
    let (image, block) = (n.ints(n.input(1)?, "shapes")?, n.ints(n.input(2)?, "shapes")?);
    let (&[h, w], &[kh, kw], [batch, columns, places]) =
        (image.as_slice(), block.as_slice(), <[usize; 3]>::try_from(n.dims(x)).unwrap_or_default())
    else {
        return Err(n.unsupported(format!("to images of shape {image:?}; two dimensions are")));
    };
    let size = |v: i64| usize::try_from(v).map_err(|_| n.attributes.error(format!("size {v}")));
    let ([h, w], [kh, kw]) = ([size(h)?, size(w)?], [size(kh)?, size(kw)?]);
    let pool = Pool {
        size: [kh, kw],
        stride: n.attributes.sizes("strides", [1; 2])?,
        padding: n.attributes.sizes("pads", [0; 4])?,
        dilation: n.attributes.sizes("dilations", [1; 2])?,
    };
    let taps = pool.taps();
    let positions = pool.window().positions([h, w]);
    let Some([oh, ow]) = positions.filter(|[a, b]| {
        a * b == places && taps > 0 && columns.is_multiple_of(taps) && taps < 1 << 12
    }) else {
        return Err(n.attributes.error(format!("patches {:?} do not fill {image:?}", n.dims(x))));
    };
    let channels = columns / taps;
    let x = fixed(n, x, &[batch * channels, taps, oh, ow])?;
    let one = (0..taps * taps).map(|i| f64::from(u8::from(i / taps == i % taps)));
    let weight = HostTensor::new([taps, 1, kh, kw], one.collect())?;
    let weight = n.to.graph.public(n.attributes.name, weight);
    let made = |size: usize, i: usize| {
        let reach = (pool.size[i] - 1) * pool.dilation[i] + 1;
        (size - 1) * pool.stride[i] + reach - pool.padding[i] - pool.padding[i + 2]
    };
    let extra = [h - made(oh, 0), w - made(ow, 1)];
    let y = n.add(Op::ConvTranspose { kernel: Kernel::new(pool), extra }, &[x, weight])?;
    Ok(vec![fixed(n, y, &[batch, channels, h, w])?])
}
