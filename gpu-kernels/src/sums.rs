//! Sums over axes and under windows, and bit planes, on the device.

use ring_arith::{EngineTensor, Error, Result, Shape, Window};

use crate::{
    CudaTensor,
    device::{Device, Fields, Shipped, pointer},
    driver::Arg,
};

/// From this many terms on, and below this many results, a block adds up one result.
const LONG: usize = 1024;

pub(crate) fn sum(device: &Device, x: &CudaTensor, axes: &[usize]) -> Result<CudaTensor> {
    let shape = x.shape().sum(axes)?;
    let (dims, strides) = (x.shape().dims(), x.shape().strides());
    let pick = |which: bool| {
        let mut picked: Vec<(usize, usize)> = Vec::new();
        for i in (0..dims.len()).filter(|&i| axes.contains(&i) == which && dims[i] != 1) {
            match picked.last_mut() {
                Some(outer) if outer.1 == dims[i] * strides[i] => {
                    *outer = (outer.0 * dims[i], strides[i])
                }
                _ => picked.push((dims[i], strides[i])),
            }
        }
        picked
    };
    let (kept, gone) = (pick(false), pick(true));
    let terms: usize = gone.iter().map(|a| a.0).product();
    if kept.len() > 8 || gone.len() > 8 || x.len() >= 1 << 32 {
        return Err(Error::invalid(
            "sum",
            format!("shape {:?} is too large for the device", x.shape()),
        ));
    }
    let out = device.empty(shape.clone())?;
    let lens = |a: &[(usize, usize)]| a.iter().map(|a| a.0 as u32).collect::<Vec<_>>();
    let steps = |a: &[(usize, usize)]| a.iter().map(|a| a.1 as u64).collect::<Vec<_>>();
    let fields = Fields::default()
        .u64(shape.len() as u64)
        .u64(if x.len() == 0 { 0 } else { terms as u64 })
        .u32(kept.len() as u32)
        .u32(gone.len() as u32)
        .eight_u32(&lens(&kept), 1)
        .eight_u32(&lens(&gone), 1)
        .eight_u64(&steps(&kept))
        .eight_u64(&steps(&gone))
        .done();
    let args = [pointer(&out), pointer(x), fields];
    if terms >= LONG && shape.len() < LONG && shape.len() > 0 {
        let blocks = device.blocks(shape.len());
        // SAFETY: dimensions and strides are those of `x`.
        unsafe { device.run(Shipped::Words, "sum_words_long", ([blocks, 1, 1], 0), &args)? };
    } else {
        // SAFETY: as above.
        unsafe { device.stride(Shipped::Words, "sum_words", shape.len(), &args)? };
    }
    Ok(out)
}

pub(crate) fn window_sum(device: &Device, x: &CudaTensor, window: &Window) -> Result<CudaTensor> {
    let shape = window.sum_shape(x.shape())?;
    let last = x.shape().rank() - 2;
    let (size, positions) = (&x.shape().dims()[last..], &shape.dims()[last..]);
    let out = device.empty(shape.clone())?;
    let numbers =
        [size, positions, &window.kernel, &window.stride, &window.padding[..2], &window.dilation]
            .concat();
    let mut fields = Fields::default().u64(shape.len() as u64);
    for n in numbers {
        let n = i32::try_from(n)
            .map_err(|_| Error::invalid("window sum", format!("{n} is too large")))?;
        fields = fields.i32(n);
    }
    let args = [pointer(&out), pointer(x), fields.done()];
    // SAFETY: the sizes are those of the tensors.
    unsafe { device.stride(Shipped::Words, "window_sum", shape.len(), &args)? };
    Ok(out)
}

pub(crate) fn to_planes(
    device: &Device,
    x: &CudaTensor,
    low: u32,
    width: u32,
) -> Result<CudaTensor> {
    if width == 0 || low.checked_add(width).is_none_or(|end| end > 64) {
        let reason = format!("bits {low}..{low}+{width} are not inside 0..64");
        return Err(Error::invalid("to planes", reason));
    }
    let words = x.len().div_ceil(64);
    let out = device.empty(Shape::new([width as usize, words])?)?;
    planes(device, "to_planes", &out, x, x.len(), (low, width))?;
    Ok(out)
}

pub(crate) fn from_planes(
    device: &Device,
    x: &CudaTensor,
    low: u32,
    shape: &Shape,
) -> Result<CudaTensor> {
    let fits = |&[width, words]: &[usize; 2]| {
        words == shape.len().div_ceil(64) && width > 0 && low as usize + width <= 64
    };
    let dims = x.shape().dims().try_into().ok().filter(fits);
    let Some([width, _]) = dims else {
        let reason = format!("planes {:?} from bit {low} do not fit {shape:?}", x.shape());
        return Err(Error::invalid("from planes", reason));
    };
    let out = device.empty(shape.clone())?;
    planes(device, "from_planes", &out, x, shape.len(), (low, width as u32))?;
    Ok(out)
}

fn planes(
    device: &Device,
    kernel: &str,
    out: &CudaTensor,
    x: &CudaTensor,
    elements: usize,
    (low, width): (u32, u32),
) -> Result<()> {
    if elements == 0 {
        return Ok(());
    }
    let numbers = [elements as u64, u64::from(low), u64::from(width)].map(Arg::word);
    let args = [pointer(out), pointer(x)].into_iter().chain(numbers).collect::<Vec<_>>();
    let blocks = device.blocks(elements.div_ceil(64 * 32));
    // SAFETY: the tensors hold `elements` words and their planes.
    unsafe { device.run(Shipped::Words, kernel, ([blocks, 1, 1], 0), &args) }
}
