//! Convolutions of groups with a few channels, depthwise ones above all: a matrix product would be
//! mostly border, so rows are scaled and added in place.

use std::ops::Range;

use rayon::prelude::*;

use super::conv::Sizes;
use super::{Job, loops};
use crate::ConvSpec;

/// True if groups are small enough.
pub(super) fn suits(s: &Sizes) -> bool {
    s.groups > 1 && s.og.min(s.cg) < 4
}

/// `[N, C, H, W] x [O, C / groups, kh, kw]` to `[N, O, OH, OW]`, one output channel at a time.
pub(super) fn forward(job: Job<'_>, spec: &ConvSpec, s: &Sizes, out: &mut [u64]) {
    let [out_width, in_width] = [s.output[1], s.input[1]];
    let step = spec.window.stride[1];
    each_plane(job, out, s.plane_out(), |plane, out| {
        let (image, o) = (plane / (s.groups * s.og), plane % (s.groups * s.og));
        for (x, w) in job.terms {
            for c in 0..s.cg {
                let channel = (image * s.groups + o / s.og) * s.cg + c;
                let x = &x.words()[channel * s.plane_in()..][..s.plane_in()];
                let w = &w.words()[(o * s.cg + c) * s.taps()..][..s.taps()];
                each_line(spec, s, |l: Line| {
                    let out = &mut out[l.y_out * out_width..][l.columns.clone()];
                    let from = &x[l.y_in * in_width + l.x_in..];
                    loops::add_scaled(job.isa, out, w[l.tap], from, step);
                });
            }
        }
    });
}

/// `[N, O, OH, OW] x [O, C / groups, kh, kw]` to `[N, C, H, W]`, one input channel at a time.
pub(super) fn input_grad(job: Job<'_>, spec: &ConvSpec, s: &Sizes, out: &mut [u64]) {
    let [out_width, in_width] = [s.output[1], s.input[1]];
    let step = spec.window.stride[1];
    each_plane(job, out, s.plane_in(), |plane, out| {
        let (image, channel) = (plane / (s.groups * s.cg), plane % (s.groups * s.cg));
        let (g, c) = (channel / s.cg, channel % s.cg);
        for (dy, w) in job.terms {
            for o in g * s.og..(g + 1) * s.og {
                let dy = &dy.words()[(image * s.groups * s.og + o) * s.plane_out()..];
                let w = &w.words()[(o * s.cg + c) * s.taps()..][..s.taps()];
                each_line(spec, s, |l: Line| {
                    let from = &dy[l.y_out * out_width..][l.columns.clone()];
                    let out = &mut out[l.y_in * in_width + l.x_in..];
                    loops::scatter_scaled(job.isa, out, w[l.tap], from, step);
                });
            }
        }
    });
}

/// `[N, C, H, W] x [N, O, OH, OW]` to `[O, C / groups, kh, kw]`, one kernel at a time.
pub(super) fn weight_grad(job: Job<'_>, spec: &ConvSpec, s: &Sizes, out: &mut [u64]) {
    let [out_width, in_width] = [s.output[1], s.input[1]];
    let step = spec.window.stride[1];
    each_plane(job, out, s.taps(), |plane, out| {
        let (o, c) = (plane / s.cg, plane % s.cg);
        for (x, dy) in job.terms {
            for image in 0..s.n {
                let channel = (image * s.groups + o / s.og) * s.cg + c;
                let x = &x.words()[channel * s.plane_in()..][..s.plane_in()];
                let dy = &dy.words()[(image * s.groups * s.og + o) * s.plane_out()..];
                each_line(spec, s, |l: Line| {
                    let dy = &dy[l.y_out * out_width..][l.columns.clone()];
                    let x = &x[l.y_in * in_width + l.x_in..];
                    loops::add_dot(job.isa, &mut out[l.tap], dy, x, step);
                });
            }
        }
    });
}

/// Calls `task` with each plane of the result, which holds its addends.
fn each_plane(
    job: Job<'_>,
    out: &mut [u64],
    size: usize,
    task: impl Fn(usize, &mut [u64]) + Send + Sync,
) {
    let task = |(plane, out): (usize, &mut [u64])| {
        job.addends.write(plane * size, out);
        task(plane, out);
    };
    if job.threads <= 1 {
        out.chunks_exact_mut(size).enumerate().for_each(task);
    } else {
        out.par_chunks_exact_mut(size).enumerate().for_each(task);
    }
}

/// A row of an output channel and the input row that one tap reaches from it.
pub(super) struct Line {
    pub tap: usize,
    pub y_out: usize,
    pub y_in: usize,
    /// Output columns whose input is not in the border.
    pub columns: Range<usize>,
    /// Input column of the first of them.
    pub x_in: usize,
}

pub(super) fn each_line(spec: &ConvSpec, s: &Sizes, mut visit: impl FnMut(Line)) {
    for ty in 0..s.kernel[0] {
        let rows = inside(spec, s, 0, ty);
        for tx in 0..s.kernel[1] {
            let columns = inside(spec, s, 1, tx);
            if columns.is_empty() {
                continue;
            }
            let at = |axis: usize, position: usize, t: usize| {
                let w = &spec.window;
                position * w.stride[axis] + t * w.dilation[axis] - w.padding[axis]
            };
            for y_out in rows.clone() {
                visit(Line {
                    tap: ty * s.kernel[1] + tx,
                    y_out,
                    y_in: at(0, y_out, ty),
                    columns: columns.clone(),
                    x_in: at(1, columns.start, tx),
                });
            }
        }
    }
}

/// Output positions along an axis that a tap takes to an input position outside the border.
fn inside(spec: &ConvSpec, s: &Sizes, axis: usize, tap: usize) -> Range<usize> {
    let w = &spec.window;
    let (before, offset, step) = (w.padding[axis], tap * w.dilation[axis], w.stride[axis]);
    let low = before.saturating_sub(offset).div_ceil(step);
    let high = (s.input[axis] + before).saturating_sub(offset).div_ceil(step).min(s.output[axis]);
    low.min(high)..high
}
