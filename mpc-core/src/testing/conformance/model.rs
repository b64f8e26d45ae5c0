//! Plain arithmetic on words, in the simplest form: the suite compares protocols with it.

use ring_arith::{Bilinear, ConvSpec, Shape, View, Window};

use crate::SplitMix64;

/// A tensor of words in the open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plain {
    /// Dimensions.
    pub dims: Vec<usize>,
    /// Words in row-major order.
    pub words: Vec<u64>,
}

impl Plain {
    /// A tensor whose word at a place is a function of the place.
    pub fn from_fn(dims: &[usize], f: impl FnMut(usize) -> u64) -> Self {
        let words = (0..dims.iter().product()).map(f).collect();
        Self { dims: dims.to_vec(), words }
    }

    /// Words below `2^bits` in magnitude, edge values first, the rest drawn.
    pub fn signed(draw: &mut SplitMix64, dims: &[usize], bits: u32) -> Self {
        let high = ((1u64 << bits) - 1) as i64;
        let edges = [0, high, -high, 1, -1, high - 1, 1 - high];
        Self::from_fn(dims, |i| match edges.get(i) {
            Some(&edge) => edge as u64,
            None => draw.signed(bits),
        })
    }

    /// Any words at all, edge values first.
    pub fn any(draw: &mut SplitMix64, dims: &[usize]) -> Self {
        let edges = [0, 1, u64::MAX, 1 << 63, (1 << 63) - 1];
        Self::from_fn(dims, |i| edges.get(i).copied().unwrap_or_else(|| draw.next_u64()))
    }

    /// The shape.
    pub fn shape(&self) -> Shape {
        Shape::new(self.dims.clone()).expect("test shapes are small")
    }

    /// Applies a function to every word.
    #[must_use]
    pub fn map(&self, f: impl FnMut(u64) -> u64) -> Self {
        Self { dims: self.dims.clone(), words: self.words.iter().copied().map(f).collect() }
    }

    /// Applies a function to pairs of words of two tensors of one shape.
    #[must_use]
    pub fn zip(&self, other: &Self, f: impl Fn(u64, u64) -> u64) -> Self {
        assert_eq!(self.dims, other.dims);
        let words = self.words.iter().zip(&other.words).map(|(&a, &b)| f(a, b)).collect();
        Self { dims: self.dims.clone(), words }
    }

    /// The place of every word, axis by axis.
    fn places(dims: &[usize]) -> impl Iterator<Item = Vec<usize>> + '_ {
        let n: usize = dims.iter().product();
        (0..n).map(move |mut i| {
            let mut place = vec![0; dims.len()];
            for (p, d) in place.iter_mut().zip(dims).rev() {
                *p = i % d;
                i /= d;
            }
            place
        })
    }

    /// The word at a place.
    fn at(&self, place: &[usize]) -> u64 {
        let flat = place.iter().zip(&self.dims).fold(0, |i, (p, d)| i * d + p);
        self.words[flat]
    }

    /// The word at a signed place of the last two axes, 0 outside.
    fn at_or_zero(&self, lead: &[usize], h: isize, w: isize) -> u64 {
        let rank = self.dims.len();
        let inside = |v: isize, d: usize| usize::try_from(v).ok().filter(|&v| v < d);
        match (inside(h, self.dims[rank - 2]), inside(w, self.dims[rank - 1])) {
            (Some(h), Some(w)) => self.at(&[lead, &[h, w]].concat()),
            _ => 0,
        }
    }

    fn gather(dims: &[usize], f: impl Fn(&[usize]) -> u64) -> Self {
        Self { dims: dims.to_vec(), words: Self::places(dims).map(|p| f(&p)).collect() }
    }

    /// Adds words up at their places.
    fn scatter(dims: &[usize], terms: impl Iterator<Item = (u64, Vec<usize>)>) -> Self {
        let mut out = Self::from_fn(dims, |_| 0);
        for (word, place) in terms {
            let flat = place.iter().zip(dims).fold(0, |i, (p, d)| i * d + p);
            out.words[flat] = out.words[flat].wrapping_add(word);
        }
        out
    }

    /// A [`View`] of the tensor.
    #[must_use]
    pub fn view(&self, view: &View) -> Self {
        match view {
            View::Reshape(shape) => Self { dims: shape.dims().to_vec(), words: self.words.clone() },
            View::Permute(axes) => {
                let dims: Vec<_> = axes.iter().map(|&a| self.dims[a]).collect();
                Self::gather(&dims, |place| {
                    let mut from = vec![0; axes.len()];
                    for (to, &axis) in axes.iter().enumerate() {
                        from[axis] = place[to];
                    }
                    self.at(&from)
                })
            }
            View::Slice { axis, start, end, step } => {
                let picked: Vec<_> = (*start..*end).step_by(*step).collect();
                self.pick(*axis, &picked)
            }
            View::Gather { axis, indices } => self.pick(*axis, indices),
            View::Pad { before, after, value } => {
                let dims: Vec<_> =
                    (0..self.dims.len()).map(|i| before[i] + self.dims[i] + after[i]).collect();
                Self::gather(&dims, |place| {
                    let inner: Option<Vec<_>> = place
                        .iter()
                        .zip(before)
                        .zip(&self.dims)
                        .map(|((p, b), &d)| p.checked_sub(*b).filter(|&p| p < d))
                        .collect();
                    inner.map_or(*value, |inner| self.at(&inner))
                })
            }
            View::Broadcast(shape) => Self::gather(shape.dims(), |place| {
                let tail = &place[place.len() - self.dims.len()..];
                let from: Vec<_> = tail
                    .iter()
                    .zip(&self.dims)
                    .map(|(&p, &d)| if d == 1 { 0 } else { p })
                    .collect();
                self.at(&from)
            }),
            View::Windows(window) => self.windows(window),
            other => panic!("the suite has no model of {other:?}"),
        }
    }

    fn pick(&self, axis: usize, indices: &[usize]) -> Self {
        let mut dims = self.dims.clone();
        dims[axis] = indices.len();
        Self::gather(&dims, |place| {
            let mut from = place.to_vec();
            from[axis] = indices[from[axis]];
            self.at(&from)
        })
    }

    fn windows(&self, window: &Window) -> Self {
        let (lead, [h, w]) = self.dims.split_last_chunk::<2>().expect("an image has two axes");
        let out = window.positions([*h, *w]).expect("the window fits");
        let taps = window.kernel[0] * window.kernel[1];
        let dims = [lead, &[taps], &out[..]].concat();
        Self::gather(&dims, |place| {
            let [tap, oh, ow] = *place.last_chunk::<3>().expect("at least three axes");
            let (i, j) = (tap / window.kernel[1], tap % window.kernel[1]);
            let along = |axis: usize, position: usize, tap: usize| {
                let v = position * window.stride[axis] + tap * window.dilation[axis];
                v as isize - window.padding[axis] as isize
            };
            self.at_or_zero(&place[..place.len() - 3], along(0, oh, i), along(1, ow, j))
        })
    }

    /// Sums under the positions of a window.
    #[must_use]
    pub fn window_sum(&self, window: &Window) -> Self {
        let windows = self.windows(window);
        let axis = windows.dims.len() - 3;
        let sums = windows.sum(&[axis]);
        let mut dims = sums.dims;
        dims.remove(axis);
        Self { dims, words: sums.words }
    }

    /// Sums over axes, which stay with length 1.
    #[must_use]
    pub fn sum(&self, axes: &[usize]) -> Self {
        let mut dims = self.dims.clone();
        axes.iter().for_each(|&a| dims[a] = 1);
        let mut out = Self::from_fn(&dims, |_| 0);
        for (place, word) in Self::places(&self.dims).zip(&self.words) {
            let to = place.iter().zip(&dims).fold(0, |i, (&p, &d)| i * d + p.min(d - 1));
            out.words[to] = out.words[to].wrapping_add(*word);
        }
        out
    }

    /// Concatenates along an axis.
    #[must_use]
    pub fn concat(parts: &[&Self], axis: usize) -> Self {
        let mut dims = parts[0].dims.clone();
        dims[axis] = parts.iter().map(|p| p.dims[axis]).sum();
        Self::gather(&dims, |place| {
            let mut from = place.to_vec();
            let mut parts = parts.iter();
            let part = parts.find(|p| {
                let inside = from[axis] < p.dims[axis];
                from[axis] -= if inside { 0 } else { p.dims[axis] };
                inside
            });
            part.expect("the axis is the sum of its parts").at(&from)
        })
    }

    /// A bilinear map, by its definition.
    #[must_use]
    pub fn bilinear(op: &Bilinear, x: &Self, y: &Self) -> Self {
        let dims = op.output_shape(&x.shape(), &y.shape()).expect("operands fit").dims().to_vec();
        let total = |terms: &mut dyn Iterator<Item = u64>| terms.fold(0, u64::wrapping_add);
        match *op {
            Bilinear::Mul => x.zip(y, u64::wrapping_mul),
            Bilinear::MatMul { transpose_lhs, transpose_rhs } => {
                let k = x.dims[x.dims.len() - if transpose_lhs { 2 } else { 1 }];
                let element = |t: &Self, batch: &[usize], row, col, transposed| {
                    let last = if transposed { [col, row] } else { [row, col] };
                    let batch = if t.dims.len() == 2 { &[] } else { batch };
                    t.at(&[batch, &last[..]].concat())
                };
                Self::gather(&dims, |place| {
                    let (batch, &[m, n]) = place.split_last_chunk::<2>().expect("a matrix");
                    total(&mut (0..k).map(|k| {
                        let a = element(x, batch, m, k, transpose_lhs);
                        a.wrapping_mul(element(y, batch, k, n, transpose_rhs))
                    }))
                })
            }
            Bilinear::Conv(spec) => {
                let taps = Taps::of(&spec, &x.dims, &y.dims, &dims);
                let term = |t: Taps| (product(x, &t.input, y, &t.weight), t.output);
                Self::scatter(&dims, taps.map(term))
            }
            Bilinear::ConvInputGrad { spec, .. } => {
                let taps = Taps::of(&spec, &dims, &y.dims, &x.dims);
                let term = |t: Taps| (product(x, &t.output, y, &t.weight), t.input);
                Self::scatter(&dims, taps.map(term))
            }
            Bilinear::ConvWeightGrad(spec) => {
                let taps = Taps::of(&spec, &x.dims, &dims, &y.dims);
                let term = |t: Taps| (product(x, &t.input, y, &t.output), t.weight);
                Self::scatter(&dims, taps.map(term))
            }
            ref other => panic!("the suite has no model of {other:?}"),
        }
    }
}

fn product(x: &Plain, at: &[usize], y: &Plain, to: &[usize]) -> u64 {
    x.at(at).wrapping_mul(y.at(to))
}

/// One product of a convolution: which input, weight and output elements meet.
struct Taps {
    input: Vec<usize>,
    weight: Vec<usize>,
    output: Vec<usize>,
}

impl Taps {
    /// Every meeting of a convolution from `input` with `weight` to `output`.
    fn of(
        spec: &ConvSpec,
        input: &[usize],
        weight: &[usize],
        output: &[usize],
    ) -> impl Iterator<Item = Self> {
        let ConvSpec { window, groups } = *spec;
        let input = input.to_vec();
        let out_per_group = output[1] / groups;
        let space = [output, &weight[1..]].concat();
        let places: Vec<_> = Plain::places(&space).collect();
        places.into_iter().filter_map(move |place| {
            let &[n, o, oh, ow, c, i, j] = &place[..] else { return None };
            let along = |axis: usize, position: usize, tap: usize| {
                let v = position * window.stride[axis] + tap * window.dilation[axis];
                v.checked_sub(window.padding[axis]).filter(|&v| v < input[axis + 2])
            };
            let (h, w) = (along(0, oh, i)?, along(1, ow, j)?);
            let channel = o / out_per_group * (input[1] / groups) + c;
            Some(Self {
                input: vec![n, channel, h, w],
                weight: vec![o, c, i, j],
                output: vec![n, o, oh, ow],
            })
        })
    }
}
