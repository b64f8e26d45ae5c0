//! Bilinear maps as inner products: what a factor contributes for weights of the result.
//!
//! The result of a map is a matrix of rows and columns, in whatever order it is stored. With weights `rho` of rows and
//! `sigma` of columns, `rho^T map(X, Y) sigma` is an inner product of a vector that depends on `X` and `rho` with one that
//! depends on `Y` and `sigma`.

use ring_arith::{Bilinear, ConvSpec, EngineTensor, Shape, Tensor, View};

use super::contract::{contract, contract_columns};
use crate::ring::{
    Ring,
    galois::{DEGREE, Element, Galois, binary},
};

/// Words of a tensor's windows that are made at a time.
const WINDOW_WORDS: usize = 1 << 20;

/// A map with the shapes of its factors.
pub(crate) struct Unfold<'a> {
    pub map: &'a Bilinear,
    pub lhs: &'a Shape,
    pub rhs: &'a Shape,
}

/// Matrices of a product: `batch` of them, `[m, k]` and `[k, n]`. An operand without a batch serves all.
struct Matrices {
    batch: usize,
    lhs_batched: bool,
    rhs_batched: bool,
    m: usize,
    k: usize,
    n: usize,
}

impl Unfold<'_> {
    /// Rows and columns of the result.
    pub fn result(&self) -> [usize; 2] {
        let dims =
            self.map.output_shape(self.lhs, self.rhs).expect("checked when the relation was made");
        match (self.map, dims.dims()) {
            (Bilinear::Conv(_) | Bilinear::ConvInputGrad { .. }, &[n, c, h, w]) => [n * h * w, c],
            (Bilinear::ConvWeightGrad(_), &[o, c, kh, kw]) => [c * kh * kw, o],
            (_, dims) => {
                let (n, rows) = dims.split_last().expect("a product has two axes");
                [rows.iter().product(), *n]
            }
        }
    }

    /// Elements of the inner product.
    pub fn inner(&self) -> usize {
        match (self.map, self.lhs.dims(), self.rhs.dims()) {
            (Bilinear::Conv(spec), &[_, c, ..], _) => c * taps(spec),
            (Bilinear::ConvInputGrad { spec, .. }, &[_, o, ..], _) => o * taps(spec),
            (Bilinear::ConvWeightGrad(spec), _, &[n, _, h, w]) => spec.groups * n * h * w,
            _ => {
                let matrices = self.matrices();
                matrices.batch * matrices.k
            }
        }
    }

    /// The first factor's vector, for weights of rows.
    pub fn lhs(&self, x: &Tensor, rho: &[u64]) -> Vec<Element> {
        match self.map {
            Bilinear::Conv(spec) => self.conv_lhs(spec, x, rho),
            Bilinear::ConvInputGrad { spec, input } => self.input_grad_lhs(spec, *input, x, rho),
            Bilinear::ConvWeightGrad(spec) => self.weight_grad_lhs(spec, x, rho),
            _ => self.matmul_lhs(x, rho),
        }
    }

    /// The second factor's vector, for weights of columns.
    pub fn rhs(&self, y: &Tensor, sigma: &[u64]) -> Vec<Element> {
        let words = y.words();
        match (self.map, self.rhs.dims()) {
            (Bilinear::Conv(spec), &[o, ..]) => {
                let group = (words.len() / spec.groups).max(1);
                let weights = sigma.chunks((o / spec.groups).max(1));
                let columns = words.len() / o.max(1);
                words
                    .chunks(group)
                    .zip(weights)
                    .flat_map(|(words, sigma)| contract(words, columns, sigma))
                    .collect()
            }
            (Bilinear::ConvInputGrad { spec, .. }, &[o, cg, ..]) => {
                let of_group = |at: usize| &sigma[at * spec.groups / o * cg..][..cg];
                let kernels = words.chunks((words.len() / o.max(1)).max(1)).enumerate();
                kernels.flat_map(|(at, words)| contract(words, taps(spec), of_group(at))).collect()
            }
            (Bilinear::ConvWeightGrad(spec), &[_, o, h, w]) => {
                let per_group = o / spec.groups;
                let image = |group: usize| {
                    let images = words.chunks((o * h * w).max(1));
                    images.flat_map(move |words| {
                        let words = &words[group * per_group * h * w..][..per_group * h * w];
                        contract(words, h * w, &sigma[group * per_group..][..per_group])
                    })
                };
                (0..spec.groups).flat_map(image).collect()
            }
            _ => self.matmul_rhs(y, sigma),
        }
    }

    /// `rho^T Z sigma` of a tensor of the result's shape.
    pub fn term(&self, ring: &Galois, z: &[u64], rho: &[u64], sigma: &[u64]) -> Element {
        let columns: Vec<Element> = sigma.iter().map(|&mask| binary(mask)).collect();
        match self.map {
            Bilinear::Conv(_) | Bilinear::ConvInputGrad { .. } => {
                // Images of channels of positions.
                let positions = rho.len() / self.lhs.dims()[0].max(1);
                let image = |(z, rho): (&[u64], &[u64])| {
                    let rows: Vec<Element> = rho.iter().map(|&mask| binary(mask)).collect();
                    ring.dot(&contract(z, positions, sigma), &rows)
                };
                let parts =
                    z.chunks((positions * sigma.len()).max(1)).zip(rho.chunks(positions.max(1)));
                parts.map(image).fold(ring.zero(), |sum, part| ring.add(sum, part))
            }
            Bilinear::ConvWeightGrad(_) => ring.dot(&contract_columns(z, rho.len(), rho), &columns),
            _ => ring.dot(&contract(z, sigma.len(), rho), &columns),
        }
    }

    fn matrices(&self) -> Matrices {
        let &Bilinear::MatMul { transpose_lhs, transpose_rhs } = self.map else {
            unreachable!("convolutions and their gradients are taken apart before");
        };
        let (lhs_batch, [a, b]) = self.lhs.dims().split_last_chunk().expect("checked with the map");
        let (rhs_batch, [c, d]) = self.rhs.dims().split_last_chunk().expect("checked with the map");
        let [m, k] = if transpose_lhs { [*b, *a] } else { [*a, *b] };
        let n = if transpose_rhs { *c } else { *d };
        let batch = if lhs_batch.is_empty() { rhs_batch } else { lhs_batch };
        Matrices {
            batch: batch.iter().product(),
            lhs_batched: !lhs_batch.is_empty(),
            rhs_batched: !rhs_batch.is_empty(),
            m,
            k,
            n,
        }
    }

    fn matmul_lhs(&self, x: &Tensor, rho: &[u64]) -> Vec<Element> {
        let &Matrices { batch, lhs_batched, m, k, .. } = &self.matrices();
        let stored_transposed = matches!(self.map, Bilinear::MatMul { transpose_lhs: true, .. });
        let matrix = |at: usize| {
            let words = &x.words()[if lhs_batched { at * m * k } else { 0 }..][..m * k];
            let rho = &rho[at * m..][..m];
            if stored_transposed { columns_of(words, m, k, rho) } else { contract(words, k, rho) }
        };
        (0..batch).flat_map(matrix).collect()
    }

    fn matmul_rhs(&self, y: &Tensor, sigma: &[u64]) -> Vec<Element> {
        let &Matrices { batch, rhs_batched, k, n, .. } = &self.matrices();
        let stored_transposed = matches!(self.map, Bilinear::MatMul { transpose_rhs: true, .. });
        let matrix = |at: usize| {
            let words = &y.words()[at * k * n..][..k * n];
            if stored_transposed {
                contract(words, k, sigma)
            } else {
                columns_of(words, n, k, sigma)
            }
        };
        if rhs_batched { (0..batch).flat_map(matrix).collect() } else { matrix(0).repeat(batch) }
    }

    /// Elements `(c, tap)`: over images and positions.
    fn conv_lhs(&self, spec: &ConvSpec, x: &Tensor, rho: &[u64]) -> Vec<Element> {
        let ring = Galois::new(64);
        let &[n, c, ..] = self.lhs.dims() else { unreachable!("checked with the map") };
        let positions = rho.len() / n.max(1);
        let mut sums = vec![ring.zero(); c * taps(spec)];
        for (image, rho) in rho.chunks(positions.max(1)).enumerate() {
            let chunk = (WINDOW_WORDS / (taps(spec) * positions).max(1)).max(1);
            for first in (0..c).step_by(chunk) {
                let channels = first..c.min(first + chunk);
                let words = windows(x, spec, image, channels.clone());
                let part = columns_of(words.words(), positions, channels.len() * taps(spec), rho);
                let sums = &mut sums[first * taps(spec)..];
                sums.iter_mut().zip(part).for_each(|(sum, part)| *sum = ring.add(*sum, part));
            }
        }
        sums
    }

    /// Elements `(group, image, position)`: over channels of the group and taps.
    fn weight_grad_lhs(&self, spec: &ConvSpec, x: &Tensor, rho: &[u64]) -> Vec<Element> {
        let &[n, c, ..] = self.lhs.dims() else { unreachable!("checked with the map") };
        let per_group = c / spec.groups;
        let image = |group: usize| {
            (0..n).flat_map(move |image| {
                let words = windows(x, spec, image, group * per_group..(group + 1) * per_group);
                let positions = words.len() / rho.len().max(1);
                contract(words.words(), positions, rho)
            })
        };
        (0..spec.groups).flat_map(image).collect()
    }

    /// Elements `(o, tap)`: over images and positions, weighed as the places of the input that they reach by the tap.
    fn input_grad_lhs(
        &self,
        spec: &ConvSpec,
        [h, w]: [usize; 2],
        x: &Tensor,
        rho: &[u64],
    ) -> Vec<Element> {
        let ring = Galois::new(64);
        let &[_, o, oh, ow] = self.lhs.dims() else { unreachable!("checked with the map") };
        let window = &spec.window;
        let mut sums = vec![ring.zero(); o * taps(spec)];
        for (words, rho) in x.words().chunks((o * oh * ow).max(1)).zip(rho.chunks((h * w).max(1))) {
            for tap in 0..taps(spec) {
                let reached = |position: usize| {
                    let place = [position / ow, position % ow];
                    let tap = [tap / window.kernel[1], tap % window.kernel[1]];
                    let [row, column] = [0, 1].map(|axis| {
                        let at =
                            place[axis] * window.stride[axis] + tap[axis] * window.dilation[axis];
                        at.wrapping_sub(window.padding[axis])
                    });
                    if row < h && column < w { rho[row * w + column] } else { 0 }
                };
                let weights: Vec<u64> = (0..oh * ow).map(reached).collect();
                for (at, part) in columns_of(words, oh * ow, o, &weights).into_iter().enumerate() {
                    let sum = &mut sums[at * taps(spec) + tap];
                    *sum = ring.add(*sum, part);
                }
            }
        }
        sums
    }
}

/// As [`contract_columns`] of a matrix of `rows` rows, which may have no columns.
fn columns_of(words: &[u64], columns: usize, rows: usize, weights: &[u64]) -> Vec<Element> {
    if columns == 0 { vec![[0; DEGREE]; rows] } else { contract_columns(words, columns, weights) }
}

fn taps(spec: &ConvSpec) -> usize {
    spec.window.kernel[0] * spec.window.kernel[1]
}

/// `[channels, taps, positions]` of one image.
fn windows(x: &Tensor, spec: &ConvSpec, image: usize, channels: std::ops::Range<usize>) -> Tensor {
    let slice = |axis, range: std::ops::Range<usize>| View::Slice {
        axis,
        start: range.start,
        end: range.end,
        step: 1,
    };
    let image =
        x.view(&slice(0, image..image + 1)).and_then(|image| image.view(&slice(1, channels)));
    image.and_then(|image| image.windows(&spec.window)).expect("checked with the map")
}
