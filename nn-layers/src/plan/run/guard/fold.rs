//! Weighted sums of a bilinear map's result from its operands.
//!
//! Take a factor `r_o` for each channel and `s_p` for each place. Then `sum(r_o s_p y[p, o])` of `y = x w` is
//! the inner product of `s x` and `w r` (Freivalds, IFIP 1977). It costs two products with public operands,
//! which are local, and one of two short vectors of secrets.

use mpc_core::{
    Linear, Protocol, SecretTensor, ShareTensor, SumFactors, Sums, Words, functions as f,
};
use ring_arith::{Bilinear, ConvSpec, Engine, Shape, Tensor, View};

use super::factors::{Factors, SUMS};
use crate::graph::{Kernel, LinearMap};
use crate::{Error, Result};

/// Two factors whose inner product is a weighted sum of results: `[1, k]` if they are the same for all sums, else
/// `[SUMS, k]`.
pub(super) struct Fold<P: Protocol> {
    pub left: P::Share,
    pub right: Right<P>,
}

/// The second factor.
pub(super) enum Right<P: Protocol> {
    /// None: the first is the sums, `[SUMS]`.
    None,
    Secret(P::Share),
    Public(Words<P>),
}

/// The factors of a map's sums; `dims` are the result's.
pub(super) fn fold<P: Protocol>(
    mpc: &P,
    map: &LinearMap,
    [x, weight]: [&SecretTensor<P>; 2],
    factors: &Factors,
    dims: &[usize],
) -> Result<Fold<P>> {
    let folder = Folder { mpc, factors, dims };
    let [left, right] = match map {
        LinearMap::Conv(k) => folder.conv(k, x, weight)?,
        LinearMap::ConvTranspose { kernel, .. } => folder.transposed(kernel, x, weight)?,
        LinearMap::ConvWeightGrad(k) => folder.weight_grad(k, x, weight)?,
        LinearMap::MatMul { transpose_lhs, transpose_rhs } => {
            folder.matmul([*transpose_lhs, *transpose_rhs], x, weight)?
        }
        LinearMap::Mul => folder.mul(x, weight)?,
    };
    Ok(Fold { left, right: Right::Secret(right) })
}

/// The factors of a tensor that is added, broadcast to the result.
pub(super) fn fold_addend<P: Protocol>(
    mpc: &P,
    x: &SecretTensor<P>,
    factors: &Factors,
    dims: &[usize],
) -> Result<Fold<P>> {
    let folder = Folder { mpc, factors, dims };
    let len = x.shape().len();
    let missing = dims.len() - x.shape().rank();
    let own = [&vec![1; missing], x.shape().dims()].concat();
    let at = factors.axis;
    let behind = dims.len().min(at + 1);
    let all: Vec<_> = factors
        .lists
        .iter()
        .map(|list| SumFactors {
            outer: summed(&list.outer, &own[..at], &dims[..at]),
            middle: summed(&list.middle, &own[at..behind], &dims[at..behind]),
            inner: summed(&list.inner, &own[behind..], &dims[behind..]),
        })
        .collect();
    let all = Sums { factors: &all, parts: 1 }.of(0..len);
    let left = folder.shaped(x.share(), [1, len])?;
    Ok(Fold { left, right: Right::Public(folder.public([SUMS, len], all)?) })
}

/// The factors of the sums of inner products along axes: every element of one operand, and of the other times its
/// result's factor.
pub(super) fn fold_dot<P: Protocol>(
    mpc: &P,
    [x, y]: [&SecretTensor<P>; 2],
    factors: &Factors,
    dims: &[usize],
) -> Result<Fold<P>> {
    let folder = Folder { mpc, factors, dims };
    let (shape, len) = (x.shape().clone(), x.shape().len());
    let results: usize = dims.iter().product();
    let all = Sums { factors: &factors.lists, parts: 1 }.of(0..results);
    // Factors repeated along the axes.
    let mut wide = vec![SUMS];
    wide.extend(dims);
    let all = mpc.engine().upload(Tensor::new(Shape::new(wide)?, all)?)?;
    let mut full = vec![SUMS];
    full.extend(shape.dims());
    let all = mpc.engine().view(&all, &View::Broadcast(Shape::new(full)?))?;
    let all = mpc.engine().view(&all, &View::Reshape(Shape::new([SUMS, len])?))?;
    let y = folder.shaped(y.share(), [1, len])?;
    let y = folder.view(&y, &View::Broadcast(Shape::new([SUMS, len])?))?;
    let right = mpc.linear(&Linear::TimesPublic(&Bilinear::Mul, &all), &y)?;
    Ok(Fold { left: folder.shaped(x.share(), [1, len])?, right: Right::Secret(right) })
}

/// The factors of a result's elements that are one element of an operand, added up.
fn summed(factors: &[u64], operand: &[usize], result: &[usize]) -> Vec<u64> {
    if operand == result {
        return factors.to_vec();
    }
    let mut places = vec![0];
    for (&own, &size) in operand.iter().zip(result) {
        let along = |place| (0..size).map(move |i| place * own + if own == 1 { 0 } else { i });
        places = places.into_iter().flat_map(along).collect();
    }
    let mut sums = vec![0u64; operand.iter().product()];
    for (place, factor) in places.into_iter().zip(factors) {
        sums[place] = sums[place].wrapping_add(*factor);
    }
    sums
}

struct Folder<'a, P: Protocol> {
    mpc: &'a P,
    factors: &'a Factors,
    /// The result's.
    dims: &'a [usize],
}

impl<P: Protocol> Folder<'_, P> {
    fn public<const N: usize>(&self, dims: [usize; N], words: Vec<u64>) -> Result<Words<P>> {
        Ok(self.mpc.engine().upload(Tensor::new(Shape::new(dims)?, words)?)?)
    }

    fn view(&self, x: &P::Share, view: &View) -> Result<P::Share> {
        Ok(self.mpc.linear(&Linear::View(view), x)?)
    }

    fn shaped<const N: usize>(&self, x: &P::Share, dims: [usize; N]) -> Result<P::Share> {
        self.view(x, &View::Reshape(Shape::new(dims)?))
    }

    /// A row for each sum.
    fn rows(&self, of: impl Fn(usize) -> Result<P::Share>) -> Result<P::Share> {
        let rows = (0..SUMS).map(of).collect::<Result<Vec<_>>>()?;
        Ok(self.mpc.concat(&rows.iter().collect::<Vec<_>>(), 0)?)
    }

    /// A row for each sum of words in the order `[a, SUMS, b]`.
    fn transposed_rows(&self, x: &P::Share, a: usize, b: usize) -> Result<P::Share> {
        let blocks = self.shaped(x, [a, SUMS, b])?;
        self.shaped(&self.view(&blocks, &View::Permute(vec![1, 0, 2]))?, [SUMS, a * b])
    }

    /// A row for each sum: the channels of each of some blocks times their factors, added up. An operand has the order
    /// `[blocks, each, columns]`, where a block holds `each` channels of a group.
    fn of_channels(
        &self,
        x: &P::Share,
        [blocks, each, columns]: [usize; 3],
        group_of: impl Fn(usize) -> usize,
    ) -> Result<P::Share> {
        let mut words = Vec::with_capacity(blocks * SUMS * each);
        for block in 0..blocks {
            let start = group_of(block) * each;
            for list in &self.factors.lists {
                words.extend_from_slice(&list.middle[start..start + each]);
            }
        }
        let factors = self.public([blocks, SUMS, each], words)?;
        let x = self.shaped(x, [blocks, each, columns])?;
        let made = self.mpc.linear(&Linear::PublicTimes(&Bilinear::MATMUL, &factors), &x)?;
        self.transposed_rows(&made, blocks, columns)
    }

    /// The images of a tensor times their factors, added up, for each sum: `[1, SUMS * channels, h, w]`. It is the
    /// tensor itself if it has one image.
    fn images(&self, x: &SecretTensor<P>) -> Result<P::Share> {
        let &[n, channels, h, w] = x.shape().dims() else { return Err(misfit(self.dims)) };
        if n == 1 {
            return Ok(x.share().clone());
        }
        let factors = self.factors.lists.iter().flat_map(|list| &list.outer).copied();
        let factors = self.public([SUMS, n], factors.collect())?;
        let x = self.shaped(x.share(), [n, channels * h * w])?;
        let sums = self.mpc.linear(&Linear::PublicTimes(&Bilinear::MATMUL, &factors), &x)?;
        self.shaped(&sums, [1, SUMS * channels, h, w])
    }

    /// The factors of places for [`Self::images`], with those of the image itself if there is one: for all sums
    /// and all groups of channels, `[1, SUMS * groups, h, w]`, or `[1, groups * SUMS, h, w]` of one image. All
    /// at once, since the cost of a convolution is its reading of the other operand.
    fn places(&self, groups: usize) -> Result<Words<P>> {
        let &[n, _, h, w] = self.dims else { return Err(misfit(self.dims)) };
        let mut words = Vec::with_capacity(SUMS * groups * h * w);
        if n == 1 {
            for list in std::iter::repeat_n(&self.factors.lists, groups).flatten() {
                words.extend(list.inner.iter().map(|place| place.wrapping_mul(list.outer[0])));
            }
        } else {
            for list in &self.factors.lists {
                (0..groups).for_each(|_| words.extend_from_slice(&list.inner));
            }
        }
        self.public([1, SUMS * groups, h, w], words)
    }

    /// A row for each sum of a gradient of [`Self::images`] and [`Self::places`].
    fn patch(&self, gradient: &P::Share, blocks: usize, columns: usize) -> Result<P::Share> {
        match self.dims[0] {
            1 => self.transposed_rows(gradient, blocks, columns),
            _ => self.shaped(gradient, [SUMS, blocks * columns]),
        }
    }

    /// The gradient's map of [`Self::images`].
    fn gradient(&self, kernel: &Kernel) -> Bilinear {
        let ConvSpec { window, groups } = kernel.spec();
        let blocks = if self.dims[0] == 1 { 1 } else { SUMS };
        Bilinear::ConvWeightGrad(ConvSpec { window, groups: blocks * groups })
    }

    fn conv(
        &self,
        kernel: &Kernel,
        x: &SecretTensor<P>,
        weight: &SecretTensor<P>,
    ) -> Result<[P::Share; 2]> {
        let groups = kernel.groups;
        let &[o, each, kh, kw] = weight.shape().dims() else { return Err(misfit(self.dims)) };
        let tap = each * kh * kw;
        let times = self.gradient(kernel);
        let places = self.places(groups)?;
        let patch = self.mpc.linear(&Linear::TimesPublic(&times, &places), &self.images(x)?)?;
        let left = self.patch(&patch, groups, tap)?;
        Ok([left, self.of_channels(weight.share(), [groups, o / groups, tap], |group| group)?])
    }

    fn transposed(
        &self,
        kernel: &Kernel,
        x: &SecretTensor<P>,
        weight: &SecretTensor<P>,
    ) -> Result<[P::Share; 2]> {
        let groups = kernel.groups;
        let &[o, each, kh, kw] = weight.shape().dims() else { return Err(misfit(self.dims)) };
        let times = self.gradient(kernel);
        let places = self.places(groups)?;
        let patch = self.mpc.linear(&Linear::PublicTimes(&times, &places), &self.images(x)?)?;
        let left = self.patch(&patch, o, kh * kw)?;
        let group_of = |channel| channel / (o / groups);
        Ok([left, self.of_channels(weight.share(), [o, each, kh * kw], group_of)?])
    }

    fn weight_grad(
        &self,
        kernel: &Kernel,
        x: &SecretTensor<P>,
        gradient: &SecretTensor<P>,
    ) -> Result<[P::Share; 2]> {
        let groups = kernel.groups;
        let (&[_, each, kh, kw], &[n, o, oh, ow]) = (self.dims, gradient.shape().dims()) else {
            return Err(misfit(self.dims));
        };
        let conv = Bilinear::Conv(kernel.spec());
        let taps = self.factors.lists.iter().flat_map(|list| &list.inner).copied();
        let taps = taps.collect::<Vec<_>>().repeat(groups);
        let taps = self.public([groups * SUMS, each, kh, kw], taps)?;
        let made = self.mpc.linear(&Linear::TimesPublic(&conv, &taps), x.share())?;
        let left = self.transposed_rows(&made, n * groups, oh * ow)?;
        let blocks = [n * groups, o / groups, oh * ow];
        Ok([left, self.of_channels(gradient.share(), blocks, |block| block % groups)?])
    }

    fn matmul(
        &self,
        [transpose_lhs, transpose_rhs]: [bool; 2],
        x: &SecretTensor<P>,
        weight: &SecretTensor<P>,
    ) -> Result<[P::Share; 2]> {
        let Some((batch, &[m, n])) = self.dims.split_last_chunk::<2>() else {
            return Err(misfit(self.dims));
        };
        let batch: usize = batch.iter().product();
        let matrices = |share: &P::Share| -> Result<(P::Share, bool)> {
            let Some((several, &[rows, columns])) = share.shape().dims().split_last_chunk::<2>()
            else {
                return Err(misfit(self.dims));
            };
            Ok(match several {
                [] => (share.clone(), false),
                _ => (self.shaped(share, [batch, rows, columns])?, true),
            })
        };
        let (x, x_batched) = matrices(x.share())?;
        let (weight, weight_batched) = matrices(weight.share())?;
        // `w r`, `[batch, k, SUMS]` or without a batch.
        let mut channels = vec![0; n * SUMS];
        for (sum, list) in self.factors.lists.iter().enumerate() {
            list.middle
                .iter()
                .enumerate()
                .for_each(|(i, factor)| channels[i * SUMS + sum] = *factor);
        }
        let channels = self.public([n, SUMS], channels)?;
        let times = Bilinear::MatMul { transpose_lhs: transpose_rhs, transpose_rhs: false };
        let right = self.mpc.linear(&Linear::TimesPublic(&times, &channels), &weight)?;
        let blocks = if weight_batched { batch } else { 1 };
        let k = right.shape().len() / (blocks * SUMS).max(1);
        let right = self.shaped(&right, [blocks * k, SUMS])?;
        let right = self.view(&right, &View::Permute(vec![1, 0]))?;
        if m == 1 && x_batched == weight_batched || m * batch == 1 {
            // A row of each matrix: the value itself serves all sums, and its factor goes to the other side.
            let mut places = Vec::with_capacity(SUMS * blocks * k);
            for list in &self.factors.lists {
                list.outer.iter().for_each(|&factor| places.extend(std::iter::repeat_n(factor, k)));
            }
            let places = self.public([SUMS, blocks * k], places)?;
            let right = self.mpc.linear(&Linear::TimesPublic(&Bilinear::Mul, &places), &right)?;
            return Ok([self.shaped(&x, [1, blocks * k])?, right]);
        }
        // `s x`, `[batch, SUMS, k]`.
        let mut places = Vec::with_capacity(batch * SUMS * m);
        for at in 0..batch {
            for list in &self.factors.lists {
                places.extend_from_slice(&list.outer[at * m..(at + 1) * m]);
            }
        }
        let places = self.public([batch, SUMS, m], places)?;
        let times = Bilinear::MatMul { transpose_lhs: false, transpose_rhs: transpose_lhs };
        let left = self.mpc.linear(&Linear::PublicTimes(&times, &places), &x)?;
        if weight_batched {
            return Ok([self.transposed_rows(&left, batch, k)?, right]);
        }
        let left = self.mpc.linear(&Linear::Sum(&[0]), &left)?;
        Ok([self.shaped(&left, [SUMS, k])?, right])
    }

    fn mul(&self, x: &SecretTensor<P>, y: &SecretTensor<P>) -> Result<[P::Share; 2]> {
        let shape = Shape::new(self.dims)?;
        let len = shape.len();
        let (large, small) = if x.shape().len() < y.shape().len() { (y, x) } else { (x, y) };
        let large = f::broadcast(self.mpc, large, &shape)?;
        let all = Sums { factors: &self.factors.lists, parts: 1 }.of(0..len);
        let k = small.shape().len();
        if k * SUMS >= len {
            // The value itself serves all sums.
            let small = f::broadcast(self.mpc, small, &shape)?;
            let small = self.shaped(small.share(), [1, len])?;
            let small = self.view(&small, &View::Broadcast(Shape::new([SUMS, len])?))?;
            let all = self.public([SUMS, len], all)?;
            let right = self.mpc.linear(&Linear::TimesPublic(&Bilinear::Mul, &all), &small)?;
            return Ok([self.shaped(large.share(), [1, len])?, right]);
        }
        // Elements that are multiplied by the same element of the smaller operand are added up before.
        let missing = self.dims.len() - small.shape().rank();
        let own = |axis: usize| axis.checked_sub(missing).map_or(1, |a| small.shape().dims()[a]);
        let axes: Vec<_> = (0..self.dims.len()).filter(|&axis| own(axis) == 1).collect();
        let left = self.rows(|sum| {
            let factors = all[sum * len..(sum + 1) * len].to_vec();
            let factors = Tensor::new(shape.clone(), factors)?;
            let factors = self.mpc.engine().upload(factors)?;
            let times = Linear::TimesPublic(&Bilinear::Mul, &factors);
            let scaled = self.mpc.linear(&times, large.share())?;
            self.shaped(&self.mpc.linear(&Linear::Sum(&axes), &scaled)?, [1, k])
        })?;
        Ok([left, self.shaped(small.share(), [1, k])?])
    }
}

fn misfit(dims: &[usize]) -> Error {
    Error::invalid("guard", format!("no such map has a result of {dims:?}"))
}
