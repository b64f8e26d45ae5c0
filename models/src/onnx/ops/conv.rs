//! Convolutions and pooling. Data of one dimension gets a height of 1.

use nn_layers::{Binary, Dim, Kernel, Op, Pool, Reduce, ValueId};

use super::{deep, places};
use crate::Result;
use crate::onnx::node::Node;

/// The window of a convolution or pool, in one or two dimensions.
struct Window {
    pool: Pool,
    /// Rows and columns past the padding that `ceil_mode` adds at the end.
    extra: [usize; 2],
}

pub(crate) fn conv(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    if n.dims(n.input(0)?).len() == 5 {
        return deep::conv(n);
    }
    let (x, flat) = raised(n, 0)?;
    let (w, _) = raised(n, 1)?;
    let kernel = kernel(n, x, w, flat)?;
    let y = n.add(Op::Conv(kernel), &[x, w])?;
    let y = with_bias(n, y)?;
    Ok(vec![lowered(n, y, flat)?])
}

/// A convolution of these operands, of one or two dimensions, with the node's attributes and without a bias.
pub(crate) fn plain(n: &mut Node<'_, '_>, x: ValueId, w: ValueId) -> Result<ValueId> {
    let (x, flat) = raised_value(n, x)?;
    let (w, _) = raised_value(n, w)?;
    let kernel = kernel(n, x, w, flat)?;
    let y = n.add(Op::Conv(kernel), &[x, w])?;
    lowered(n, y, flat)
}

pub(crate) fn conv_transpose(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    if n.dims(n.input(0)?).len() == 5 {
        return deep::conv_transpose(n);
    }
    let (x, flat) = raised(n, 0)?;
    let (w, _) = raised(n, 1)?;
    let mut extra = sizes(n, "output_padding", flat, 0)?;
    let mut kernel = kernel(n, x, w, flat)?;
    let wanted = transposed_sizes(n, x, &kernel, flat)?;
    if let Some(wanted) = wanted {
        let dims = n.dims(x);
        kernel.window.padding = [0; 4];
        for i in 0..2 {
            let window = &mut kernel.window;
            let reach = (window.size[i].max(1) - 1) * window.dilation[i] + 1;
            let full = (dims[i + 2].max(1) - 1) * window.stride[i] + reach + extra[i];
            let (less, more) = (full.abs_diff(wanted[i]) / 2, full.abs_diff(wanted[i]).div_ceil(2));
            if full < wanted[i] {
                extra[i] += wanted[i] - full;
                continue;
            }
            // With SAME_UPPER the larger half is cut off at the end, otherwise at the beginning.
            let upper = auto_pad(n) == "SAME_UPPER";
            let (before, after) = if upper { (less, more) } else { (more, less) };
            window.padding[i] = before;
            window.padding[i + 2] = after;
        }
    }
    let y = n.add(Op::ConvTranspose { kernel, extra }, &[x, w])?;
    let y = with_bias(n, y)?;
    Ok(vec![lowered(n, y, flat)?])
}

/// Height and width of a transposed convolution's result, where they are given and not its border.
fn transposed_sizes(
    n: &Node<'_, '_>,
    x: ValueId,
    kernel: &Kernel,
    flat: bool,
) -> Result<Option<[usize; 2]>> {
    if n.attributes.has("output_shape") {
        let shape = n.attributes.ints("output_shape").unwrap_or_default();
        let last = shape.get(shape.len().saturating_sub(2 - usize::from(flat))..);
        let given: Vec<_> =
            last.unwrap_or_default().iter().filter_map(|&s| usize::try_from(s).ok()).collect();
        return match *given.as_slice() {
            [width] if flat => Ok(Some([1, width])),
            [height, width] if !flat => Ok(Some([height, width])),
            _ => Err(n.attributes.error(format!("output_shape {shape:?} does not fit"))),
        };
    }
    let dims = n.dims(x);
    let same = auto_pad(n).starts_with("SAME");
    let stride = kernel.window.stride;
    Ok(same.then(|| [dims[2] * stride[0], dims[3] * stride[1]]))
}

pub(crate) fn max_pool(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    if n.dims(n.input(0)?).len() == 5 {
        return deep::pool(n);
    }
    let (x, pool, flat) = padded(n)?;
    let y = n.add(Op::MaxPool(pool), &[x])?;
    let dims = n.dims(y);
    let largest = lowered(n, y, flat)?;
    if !n.reads(1) {
        return Ok(vec![largest]);
    }
    let places = places::of_largest(n, x, &pool, [dims[2], dims[3]])?;
    let places = lowered(n, places, flat)?;
    let reach = |i: usize| (pool.size[i].max(1) - 1) * pool.dilation[i] + 1;
    let apart = (0..2).all(|i| reach(i) <= pool.stride[i] || dims[i + 2] == 1);
    if n.attributes.int("storage_order", 0) == 0 {
        n.to.pooled.insert(places, Pooled { from: x, pool, apart });
    }
    Ok(vec![largest, places])
}

/// A pool whose largest elements have these places.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pooled {
    /// Its operand, of two dimensions.
    pub from: ValueId,
    pub pool: Pool,
    /// True if no element lies under two windows.
    pub apart: bool,
}

/// The operand in two dimensions, its windows, whose partial ones at the end lie on the border, and whether it
/// had one dimension less.
fn padded(n: &mut Node<'_, '_>) -> Result<(ValueId, Pool, bool)> {
    let (x, flat) = raised(n, 0)?;
    let Window { mut pool, extra } = pool_window(n, x, flat)?;
    pool.padding[2] += extra[0];
    pool.padding[3] += extra[1];
    Ok((x, pool, flat))
}

pub(crate) fn average_pool(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    if n.dims(n.input(0)?).len() == 5 {
        return deep::pool(n);
    }
    let x = n.input(0)?;
    Ok(vec![average_of(n, x)?])
}

/// The means of an operand of one or two dimensions, by the node's attributes.
pub(super) fn average_of(n: &mut Node<'_, '_>, x: ValueId) -> Result<ValueId> {
    let (mut x, flat) = raised_value(n, x)?;
    let Window { mut pool, extra } = pool_window(n, x, flat)?;
    let mut count_border = n.attributes.int("count_include_pad", 0) != 0;
    if extra != [0; 2] {
        if count_border {
            // The border counts, positions beyond it do not.
            let [top, left, bottom, right] = std::mem::take(&mut pool.padding);
            let (before, after) = (vec![0, 0, top, left], vec![0, 0, bottom, right]);
            x = n.add(Op::Pad { before, after, value: 0.0 }, &[x])?;
            count_border = false;
        }
        pool.padding[2] += extra[0];
        pool.padding[3] += extra[1];
    }
    let y = n.add(Op::AvgPool { pool, count_border }, &[x])?;
    lowered(n, y, flat)
}

/// The root of the sum of powers under a window.
pub(crate) fn norm_pool(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    if n.dims(n.input(0)?).len() == 5 {
        return deep::pool(n);
    }
    let (x, pool, flat) = padded(n)?;
    let p = n.attributes.int("p", 2);
    let powers = deep::power(n, x, p)?;
    let sums = n.add(Op::SumPool(pool), &[powers])?;
    let y = deep::root(n, sums, p)?;
    Ok(vec![lowered(n, y, flat)?])
}

/// The root of the sum of powers of each channel.
pub(crate) fn global_norm(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let p = n.attributes.int("p", 2);
    let powers = deep::power(n, x, p)?;
    let axes = (2..n.dims(x).len()).collect();
    let sums = n.add(Op::Reduce { kind: Reduce::Sum, axes, keep: true }, &[powers])?;
    Ok(vec![deep::root(n, sums, p)?])
}

pub(crate) fn global_average(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    global(n, Reduce::Mean)
}

pub(crate) fn global_max(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    global(n, Reduce::Max)
}

fn global(n: &mut Node<'_, '_>, kind: Reduce) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let axes = (2..n.dims(x).len()).collect();
    Ok(vec![n.add(Op::Reduce { kind, axes, keep: true }, &[x])?])
}

/// An operand as `[.., .., H, W]`, and whether it had one dimension less.
fn raised(n: &mut Node<'_, '_>, i: usize) -> Result<(ValueId, bool)> {
    let x = n.input(i)?;
    raised_value(n, x)
}

fn raised_value(n: &mut Node<'_, '_>, x: ValueId) -> Result<(ValueId, bool)> {
    match *n.dims(x) {
        [_, _, _, _] => Ok((x, false)),
        [a, b, c] => {
            let dims = [a, b, 1, c].map(Dim::Fixed).to_vec();
            Ok((n.add(Op::Reshape(dims), &[x])?, true))
        }
        ref dims => {
            Err(n.unsupported(format!("on data of shape {dims:?}; one or two dimensions are")))
        }
    }
}

fn lowered(n: &mut Node<'_, '_>, y: ValueId, flat: bool) -> Result<ValueId> {
    match *n.dims(y) {
        [a, b, _, d] if flat => n.add(Op::Reshape([a, b, d].map(Dim::Fixed).to_vec()), &[y]),
        _ => Ok(y),
    }
}

fn with_bias(n: &mut Node<'_, '_>, y: ValueId) -> Result<ValueId> {
    let Some(bias) = n.optional(2) else { return Ok(y) };
    let channels = n.dims(bias).iter().product();
    let bias = n.add(Op::Reshape([channels, 1, 1].map(Dim::Fixed).to_vec()), &[bias])?;
    n.binary_op(Binary::Add, y, bias)
}

fn kernel(n: &Node<'_, '_>, x: ValueId, w: ValueId, flat: bool) -> Result<Kernel> {
    let (x, w) = (n.dims(x), n.dims(w));
    let size = [w[2], w[3]];
    if let Some(shape) = n.attributes.ints("kernel_shape") {
        let given = shape.iter().map(|&k| k as usize);
        if !given.eq(size[usize::from(flat)..].iter().copied()) {
            return Err(n.attributes.error(format!("kernel_shape {shape:?} is not the weight's")));
        }
    }
    let window = window(n, [x[2], x[3]], size, flat)?;
    let groups = n.attributes.int("group", 1);
    let groups =
        usize::try_from(groups).map_err(|_| n.attributes.error(format!("{groups} groups")))?;
    Ok(Kernel { window, groups })
}

fn pool_window(n: &Node<'_, '_>, x: ValueId, flat: bool) -> Result<Window> {
    let dims = n.dims(x);
    let image = [dims[2], dims[3]];
    if n.attributes.ints("kernel_shape").is_none() {
        return Err(n.attributes.error("kernel_shape is missing"));
    }
    let size = sizes(n, "kernel_shape", flat, 1)?;
    let pool = window(n, image, size, flat)?;
    let extra = match n.attributes.int("ceil_mode", 0) {
        0 => [0; 2],
        _ => [ceil_extra(&pool, image, 0), ceil_extra(&pool, image, 1)],
    };
    Ok(Window { pool, extra })
}

/// The padding that must be added at the end for a last, partial window, if that begins inside the
/// image or the border before it.
fn ceil_extra(pool: &Pool, image: [usize; 2], axis: usize) -> usize {
    let (k, s) = ((pool.size[axis].max(1) - 1) * pool.dilation[axis] + 1, pool.stride[axis].max(1));
    let before = pool.padding[axis];
    let length = image[axis] + before + pool.padding[axis + 2];
    let Some(room) = length.checked_sub(k) else {
        // One window reaches beyond both ends if the next would begin before them.
        let missing = k - length;
        return if missing < s { missing } else { 0 };
    };
    let last = room.div_ceil(s) * s;
    if last >= image[axis] + before { 0 } else { (last + k).saturating_sub(length) }
}

fn window(n: &Node<'_, '_>, image: [usize; 2], size: [usize; 2], flat: bool) -> Result<Pool> {
    let stride = sizes(n, "strides", flat, 1)?;
    let dilation = sizes(n, "dilations", flat, 1)?;
    let mut pool = Pool { size, stride, padding: [0; 4], dilation };
    let padding = if flat {
        let [left, right] = n.attributes.sizes("pads", [0; 2])?;
        [0, left, 0, right]
    } else {
        n.attributes.sizes("pads", [0; 4])?
    };
    match auto_pad(n) {
        "NOTSET" => pool.padding = padding,
        "VALID" => {}
        mode @ ("SAME_UPPER" | "SAME_LOWER") => {
            for i in 0..2 {
                let reach = (size[i].max(1) - 1) * dilation[i] + 1;
                let positions = image[i].div_ceil(stride[i].max(1));
                let needed = (positions.max(1) - 1) * stride[i] + reach;
                let total = needed.saturating_sub(image[i]);
                let less = total / 2;
                let (before, after) =
                    if mode == "SAME_UPPER" { (less, total - less) } else { (total - less, less) };
                pool.padding[i] = before;
                pool.padding[i + 2] = after;
            }
        }
        mode => return Err(n.attributes.error(format!("auto_pad {mode} is unknown"))),
    }
    Ok(pool)
}

fn auto_pad<'a>(n: &Node<'a, '_>) -> &'a str {
    n.attributes.text("auto_pad").filter(|m| !m.is_empty()).unwrap_or("NOTSET")
}

/// Height and width of an attribute that has one or two sizes.
fn sizes(n: &Node<'_, '_>, name: &str, flat: bool, default: usize) -> Result<[usize; 2]> {
    if flat {
        let [w] = n.attributes.sizes(name, [default])?;
        // The added height has one row, whatever the attribute is.
        return Ok([if name == "output_padding" { 0 } else { 1 }, w]);
    }
    n.attributes.sizes(name, [default; 2])
}
