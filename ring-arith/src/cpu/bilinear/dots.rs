//! Weight gradients of a few output channels on large images, as dot products. With packing, each word under a window
//! would be copied once for each tap and then read once for a few rows.
//!
//! With the borders stored around the images, the words under a tap form one row for each input channel, with gaps
//! between lines. So do the outputs' gradients, once zeros fill their gaps.

use rayon::prelude::*;

use super::conv::{Sizes, input_windows, part};
use super::windows::Columns;
use super::{Form, Job, loops};
use crate::{ConvSpec, Kind, Tensor};

/// Most output channels; beyond, packing pays. The first number is for AVX-512.
const MOST: [usize; 2] = [24, 16];

/// Fewest words of a row: each row also needs a sum of lanes.
const LONG: usize = 128;

/// Words of rows at a time, so that some stay in the first-level cache.
const DEPTH: usize = 512;

/// True if this is the fastest way to compute a gradient.
pub(super) fn suits(job: Job<'_>, s: &Sizes) -> bool {
    match job.form {
        Form::Best => {}
        #[cfg(test)]
        Form::Dots => return s.groups == 1 && s.taps() > 0,
        #[cfg(test)]
        _ => return false,
    }
    let kind = job.isa.kind();
    let most = MOST[usize::from(kind < Kind::Avx512)];
    kind >= Kind::Avx2 && kind < Kind::Amx && s.groups == 1 && s.og <= most && s.plane_out() >= LONG
}

/// `[N, C, H, W] x [N, O, OH, OW]` to `[O, C, kh, kw]`.
pub(super) fn weight_grad(job: Job<'_>, spec: &ConvSpec, s: &Sizes, out: &mut [u64]) {
    job.write_addends(out);
    for (x, dy) in job.terms {
        let windows = input_windows(job, spec, s, part(x, 0));
        let columns = windows.columns();
        let grads = spread(job, s, &columns, dy);
        let tap = |tap: usize| of_tap(job, s, &columns, &grads, tap);
        let taps: Vec<Vec<u64>> = if job.threads <= 1 {
            (0..s.taps()).map(tap).collect()
        } else {
            (0..s.taps()).into_par_iter().map(tap).collect()
        };
        for (tap, sums) in taps.iter().enumerate() {
            let places = out.iter_mut().skip(tap).step_by(s.taps());
            places.zip(sums).for_each(|(word, sum)| *word = word.wrapping_add(*sum));
        }
    }
}

/// Words from the first position of an image to the end of the last, gaps included.
fn length(columns: &Columns<'_>) -> usize {
    let [rows, width] = columns.positions;
    (rows - 1) * columns.row + width
}

/// The outputs' gradients laid out as the words that they meet: a row for each image and channel.
fn spread(job: Job<'_>, s: &Sizes, columns: &Columns<'_>, dy: &Tensor) -> crate::Buffer {
    let length = length(columns);
    let [_, width] = columns.positions;
    let mut words = job.buffers.take(s.n * s.og * length);
    let planes = dy.words().chunks_exact(s.plane_out());
    for (row, plane) in words.chunks_exact_mut(length).zip(planes) {
        for (to, from) in row.chunks_mut(columns.row.max(width)).zip(plane.chunks_exact(width)) {
            to[..width].copy_from_slice(from);
            to[width..].fill(0);
        }
    }
    words
}

/// The gradient of a tap of all kernels: for each output channel a row of input channels.
fn of_tap(job: Job<'_>, s: &Sizes, columns: &Columns<'_>, grads: &[u64], tap: usize) -> Vec<u64> {
    let length = length(columns);
    let mut sums = vec![0; s.og * s.cg];
    for (image, grads) in grads.chunks_exact(s.og * length).enumerate() {
        let first = image * columns.image + columns.taps[tap];
        for k in (0..length).step_by(DEPTH) {
            let end = (k + DEPTH).min(length);
            let grads: Vec<_> = grads.chunks_exact(length).map(|row| &row[k..end]).collect();
            loops::dots(job.isa, &mut sums, &grads, &columns.words[first + k..], columns.plane);
        }
    }
    sums
}
