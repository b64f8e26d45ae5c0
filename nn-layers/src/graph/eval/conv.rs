//! Convolutions and pooling in the clear.

use ring_arith::{Bilinear, ConvSpec, Window};

use super::matmul;
use crate::{Error, HostTensor, Result};

/// Elements of unfolded input that are held at once.
const UNFOLDED: usize = 1 << 21;

/// `[N, C, H, W]` and `[O, C / groups, kh, kw]` to `[N, O, OH, OW]`.
pub(crate) fn conv(x: &HostTensor, w: &HostTensor, spec: &ConvSpec) -> Result<HostTensor> {
    let shape = Bilinear::Conv(*spec).output_shape(x.shape(), w.shape())?;
    let (&[n, c, h, width], &[_, o, oh, ow]) = (x.dims(), shape.dims()) else {
        return Err(Error::invalid("conv", "four axes are needed"));
    };
    let (xs, ws) = (x.floats(), w.floats());
    let (g, win) = (spec.groups, &spec.window);
    let (cg, og) = (c / g, o / g);
    let k = cg * win.kernel[0] * win.kernel[1];
    let rows = (UNFOLDED / (k * ow).max(1)).clamp(1, oh.max(1));
    let mut out = vec![0.0; shape.len()];
    let (mut cols, mut part) = (vec![], vec![]);
    for group in (0..n * g).map(|i| (i / g, i % g)) {
        let image = &xs[(group.0 * c + group.1 * cg) * h * width..][..cg * h * width];
        let kernel = matmul::view(&ws[group.1 * og * k..][..og * k], [og, k], false);
        for first in (0..oh).step_by(rows) {
            let last = (first + rows).min(oh);
            let m = (last - first) * ow;
            unfold(image, [cg, h, width], win, [first, last, ow], &mut cols);
            part.resize(og * m, 0.0);
            matmul::product_into(kernel, matmul::view(&cols, [k, m], false), &mut part, [og, m]);
            for oc in 0..og {
                let at = ((group.0 * o + group.1 * og + oc) * oh + first) * ow;
                out[at..at + m].copy_from_slice(&part[oc * m..(oc + 1) * m]);
            }
        }
    }
    HostTensor::new(shape.dims(), out)
}

/// The words under each position of a window, `[c * kh * kw, positions]`, zeros outside.
fn unfold(
    image: &[f64],
    [c, h, w]: [usize; 3],
    win: &Window,
    [first, last, ow]: [usize; 3],
    cols: &mut Vec<f64>,
) {
    cols.clear();
    for tap in 0..c * win.kernel[0] * win.kernel[1] {
        let (kx, rest) = (tap % win.kernel[1], tap / win.kernel[1]);
        let (ky, ch) = (rest % win.kernel[0], rest / win.kernel[0]);
        for oy in first..last {
            let y = (oy * win.stride[0] + ky * win.dilation[0]).wrapping_sub(win.padding[0]);
            for ox in 0..ow {
                let x = (ox * win.stride[1] + kx * win.dilation[1]).wrapping_sub(win.padding[1]);
                let inside = y < h && x < w;
                cols.push(if inside { image[(ch * h + y) * w + x] } else { 0.0 });
            }
        }
    }
}

/// The gradient of a convolution by its input: transposed convolution.
pub(crate) fn conv_transpose(
    x: &HostTensor,
    w: &HostTensor,
    spec: &ConvSpec,
    input: [usize; 2],
) -> Result<HostTensor> {
    let op = Bilinear::ConvInputGrad { spec: *spec, input };
    let shape = op.output_shape(x.shape(), w.shape())?;
    let (&[n, o, oh, ow], &[_, c, h, width]) = (x.dims(), shape.dims()) else {
        return Err(Error::invalid("conv-transpose", "four axes are needed"));
    };
    let (xs, ws) = (x.floats(), w.floats());
    let (g, win) = (spec.groups, &spec.window);
    let (cg, og) = (c / g, o / g);
    let k = cg * win.kernel[0] * win.kernel[1];
    let positions = oh * ow;
    let mut out = vec![0.0; shape.len()];
    let mut cols = vec![0.0; k * positions];
    for (image, group) in (0..n * g).map(|i| (i / g, i % g)) {
        let values = &xs[(image * o + group * og) * positions..][..og * positions];
        let kernel = matmul::view(&ws[group * og * k..][..og * k], [og, k], true);
        let values = matmul::view(values, [og, positions], false);
        matmul::product_into(kernel, values, &mut cols, [k, positions]);
        let plane = &mut out[(image * c + group * cg) * h * width..][..cg * h * width];
        fold(&cols, win, [oh, ow], plane, [h, width]);
    }
    HostTensor::new(shape.dims(), out)
}

/// Adds the values of each position of a window to the elements under it; values outside the image are dropped.
/// The reverse of [`unfold`].
fn fold(cols: &[f64], win: &Window, [oh, ow]: [usize; 2], image: &mut [f64], [h, w]: [usize; 2]) {
    for (tap, values) in cols.chunks_exact((oh * ow).max(1)).enumerate() {
        let kx = tap % win.kernel[1];
        let ky = tap / win.kernel[1] % win.kernel[0];
        let ch = tap / (win.kernel[0] * win.kernel[1]);
        for (oy, row) in values.chunks_exact(ow).enumerate() {
            let y = (oy * win.stride[0] + ky * win.dilation[0]).wrapping_sub(win.padding[0]);
            if y >= h {
                continue;
            }
            let line = &mut image[(ch * h + y) * w..][..w];
            for (ox, value) in row.iter().enumerate() {
                let x = (ox * win.stride[1] + kx * win.dilation[1]).wrapping_sub(win.padding[1]);
                if let Some(sum) = line.get_mut(x) {
                    *sum += value;
                }
            }
        }
    }
}

/// The gradient of a convolution by its weight.
pub(crate) fn conv_weight_grad(
    x: &HostTensor,
    grad: &HostTensor,
    spec: &ConvSpec,
) -> Result<HostTensor> {
    let shape = Bilinear::ConvWeightGrad(*spec).output_shape(x.shape(), grad.shape())?;
    let (&[n, c, h, width], &[_, o, oh, ow]) = (x.dims(), grad.dims()) else {
        return Err(Error::invalid("conv-weight-grad", "four axes are needed"));
    };
    let (xs, gs, win) = (x.floats(), grad.floats(), &spec.window);
    let (cg, og) = (c / spec.groups, o / spec.groups);
    let k = cg * win.kernel[0] * win.kernel[1];
    let mut out = vec![0.0; shape.len()];
    let (mut cols, mut part) = (vec![], vec![0.0; og * k]);
    for (image, group) in (0..n * spec.groups).map(|i| (i / spec.groups, i % spec.groups)) {
        let plane = &xs[(image * c + group * cg) * h * width..][..cg * h * width];
        unfold(plane, [cg, h, width], win, [0, oh, ow], &mut cols);
        let of_group = &gs[(image * o + group * og) * oh * ow..][..og * oh * ow];
        let of_group = matmul::view(of_group, [og, oh * ow], false);
        let columns = matmul::view(&cols, [k, oh * ow], true);
        matmul::product_into(of_group, columns, &mut part, [og, k]);
        let sum = &mut out[group * og * k..][..og * k];
        sum.iter_mut().zip(&part).for_each(|(sum, part)| *sum += part);
    }
    HostTensor::new(shape.dims(), out)
}

/// The gradient of max pooling: each element of `grad` goes to the first of the largest under its window.
pub(crate) fn max_pool_grad(x: &HostTensor, grad: &HostTensor, win: &Window) -> Result<HostTensor> {
    let misfit = || Error::invalid("max-pool-grad", "at least two axes are needed");
    let &[h, w] = x.dims().last_chunk::<2>().ok_or_else(misfit)?;
    let &[oh, ow] = grad.dims().last_chunk::<2>().ok_or_else(misfit)?;
    let (xs, gs) = (x.floats(), grad.floats());
    let mut out = vec![0.0; x.len()];
    for (i, &g) in gs.iter().enumerate() {
        let (plane, oy, ox) = (i / (oh * ow) * h * w, i / ow % oh, i % ow);
        let mut best: Option<usize> = None;
        for tap in 0..win.kernel[0] * win.kernel[1] {
            let (ky, kx) = (tap / win.kernel[1], tap % win.kernel[1]);
            let y = (oy * win.stride[0] + ky * win.dilation[0]).wrapping_sub(win.padding[0]);
            let x = (ox * win.stride[1] + kx * win.dilation[1]).wrapping_sub(win.padding[1]);
            let at = y.wrapping_mul(w).wrapping_add(x).wrapping_add(plane);
            if y < h && x < w && best.is_none_or(|b| xs[at] > xs[b]) {
                best = Some(at);
            }
        }
        if let Some(at) = best {
            out[at] += g;
        }
    }
    HostTensor::new(x.dims(), out)
}

/// The result of a pooling window for the elements under it that are inside the input.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pool {
    Max,
    Sum,
    /// The mean over the elements that lie inside the input.
    MeanInside,
}

/// `[.., H, W]` to `[.., OH, OW]`.
pub(crate) fn pool(x: &HostTensor, win: &Window, kind: Pool) -> Result<HostTensor> {
    let rank = x.shape().rank();
    if rank < 2 {
        return Err(Error::invalid("pool", "at least two axes are needed"));
    }
    let (h, w) = (x.dims()[rank - 2], x.dims()[rank - 1]);
    let misfit = || Error::invalid("pool", format!("{win:?} does not fit {:?}", x.shape()));
    let [oh, ow] = win.positions([h, w]).ok_or_else(misfit)?;
    let mut dims = x.dims().to_vec();
    dims[rank - 2] = oh;
    dims[rank - 1] = ow;
    let xs = x.floats();
    let planes: usize = dims[..rank - 2].iter().product();
    let mut out = Vec::with_capacity(planes * oh * ow);
    for plane in 0..planes {
        let image = &xs[plane * h * w..][..h * w];
        for (oy, ox) in (0..oh * ow).map(|i| (i / ow, i % ow)) {
            let (mut sum, mut max, mut count) = (0.0, f64::NEG_INFINITY, 0usize);
            for (ky, kx) in
                (0..win.kernel[0] * win.kernel[1]).map(|i| (i / win.kernel[1], i % win.kernel[1]))
            {
                let y = (oy * win.stride[0] + ky * win.dilation[0]).wrapping_sub(win.padding[0]);
                let x = (ox * win.stride[1] + kx * win.dilation[1]).wrapping_sub(win.padding[1]);
                if y < h && x < w {
                    let v = image[y * w + x];
                    sum += v;
                    max = f64::max(max, v);
                    count += 1;
                }
            }
            out.push(match kind {
                Pool::Max => max,
                Pool::Sum => sum,
                Pool::MeanInside => sum / count.max(1) as f64,
            });
        }
    }
    HostTensor::new(dims, out)
}
