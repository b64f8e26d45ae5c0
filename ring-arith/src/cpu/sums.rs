//! Sums over axes and under windows.

use crate::{CpuEngine, EngineTensor, Result, Shape, Tensor, Window};

/// Sums over axes, which stay with length 1.
pub(super) fn sum(engine: &CpuEngine, tensor: &Tensor, axes: &[usize]) -> Result<Tensor> {
    tensor.shape().sum(axes)?;
    let mut dims = tensor.shape().dims().to_vec();
    let summed: Vec<_> = (0..dims.len()).map(|axis| axes.contains(&axis)).collect();
    // Innermost first, neighbours together: each pass leaves less for the next.
    let mut result = tensor.clone();
    let mut end = dims.len();
    while end > 0 {
        let start = (0..end).rev().take_while(|&i| summed[i]).last().unwrap_or(end);
        if start < end {
            let outer = dims[..start].iter().product();
            let middle = dims[start..end].iter().product();
            let inner = dims[end..].iter().product();
            dims[start..end].fill(1);
            result = sum_middle(engine, &result, [outer, middle, inner], Shape::new(&*dims)?)?;
        }
        end = start.min(end - 1);
    }
    Ok(result)
}

/// `[outer, middle, inner]` to `[outer, 1, inner]`.
fn sum_middle(
    engine: &CpuEngine,
    tensor: &Tensor,
    [outer, middle, inner]: [usize; 3],
    shape: Shape,
) -> Result<Tensor> {
    if middle == 1 {
        return tensor.share(0, shape);
    }
    let words = tensor.words();
    let mut out = engine.buffer(shape.len());
    if inner == 1 && middle > 0 {
        let rows = STRIP.div_ceil(middle);
        engine.each_chunk(&mut out, rows, |piece, out| {
            let from = &words[piece * rows * middle..];
            for (to, row) in out.iter_mut().zip(from.chunks_exact(middle)) {
                *to = row.iter().fold(0, |sum, &word| sum.wrapping_add(word));
            }
        });
    } else if outer == 1 {
        engine.each_chunk(&mut out, STRIP, |piece, out| {
            sum_rows(words, piece * STRIP, inner, middle, out);
        });
    } else {
        engine.each_row(&mut out, inner, |index, row| {
            for (piece, strip) in row.chunks_mut(STRIP).enumerate() {
                sum_rows(words, index * middle * inner + piece * STRIP, inner, middle, strip);
            }
        });
    }
    out.into_tensor(shape)
}

/// Words of a result that stay in the first-level cache while rows are added to them.
const STRIP: usize = 1 << 11;

/// The sum of `rows` rows of `out.len()` words, `stride` apart.
fn sum_rows(words: &[u64], start: usize, stride: usize, rows: usize, out: &mut [u64]) {
    out.fill(0);
    for r in 0..rows {
        let row = &words[start + r * stride..][..out.len()];
        out.iter_mut().zip(row).for_each(|(to, &word)| *to = to.wrapping_add(word));
    }
}

/// `[.., H, W]` to `[.., OH, OW]`: first the rows under a position are added up, then the columns.
pub(super) fn window_sum(engine: &CpuEngine, tensor: &Tensor, window: &Window) -> Result<Tensor> {
    let shape = window.sum_shape(tensor.shape())?;
    let size = |dims: &[usize]| *dims.last_chunk::<2>().expect("a window lies over two axes");
    let ([h, w], [oh, ow]) = (size(tensor.shape().dims()), size(shape.dims()));
    let words = tensor.words();
    let mut out = engine.buffer(shape.len());
    engine.each_row(&mut out, oh * ow, |image, plane| {
        let image = &words[image * h * w..(image + 1) * h * w];
        let mut column = vec![0u64; w];
        for (y, row) in plane.chunks_exact_mut(ow).enumerate() {
            column.fill(0);
            for ky in 0..window.kernel[0] {
                let line = (y * window.stride[0] + ky * window.dilation[0])
                    .wrapping_sub(window.padding[0]);
                if line < h {
                    let line = &image[line * w..(line + 1) * w];
                    column.iter_mut().zip(line).for_each(|(to, &word)| *to = to.wrapping_add(word));
                }
            }
            row.fill(0);
            for kx in 0..window.kernel[1] {
                let (first, inside) = window.inside(1, kx * window.dilation[1], w, ow);
                if inside.is_empty() {
                    continue;
                }
                let from = column[first..].iter().step_by(window.stride[1]);
                let to = row[inside].iter_mut();
                to.zip(from).for_each(|(to, &word)| *to = to.wrapping_add(word));
            }
        }
    });
    out.into_tensor(shape)
}
