//! The guard: notices on shares that values have left the range in which arithmetic is right.
//!
//! A product that leaves 62 bits before `t` of them are dropped comes out as about any word of
//! `-2^(63 - t)..2^(63 - t)`, where an honest one is far smaller. Nobody sees the words. So each guarded
//! tensor is cut into rows, each row is added up with public random signs, which is local, and the sums are
//! compared with bounds, those of all tensors in one call.

use mpc_core::{Compare, Linear, Protocol, SecretTensor, SplitMix64, Then};
use ring_arith::{Bilinear, Engine, Shape, Tensor, View};

use super::Plan;
use crate::graph::{Binary, Op};
use crate::ops;
use crate::{Error, Result};

/// Rows of a tensor, while they have no more than [`LONGEST`] elements.
const ROWS: usize = 16;

/// Elements of a row. The signed sum of `n` honest values is about `sqrt(n)` times as large as they are: 64
/// times here.
const LONGEST: usize = 4096;

/// A sum may have so many bits fewer than a wild value: one wild value alone is missed once in 64 times.
const SLACK: u32 = 6;

/// Watches tensors, and says at the end which of them left their range.
///
/// An element that is the result of dropping `t` bits of a product sets the guard if it leaves
/// `2^(57 - t)` as a word, `2^17` as a number where formats and `t` are 20 bits; smaller ones do together,
/// where a sum of up to 4096 of them with random signs leaves it. What has left the product's range altogether,
/// `2^22`, is spread over 64 times as much. So one wild element is missed with probability 1/64, and ten
/// that are apart with `2^-60`; one that a ReLU made 0 is not seen, those beside it are.
#[derive(Debug)]
pub struct Guard<P: Protocol> {
    signs: SplitMix64,
    sums: Vec<Sums<P>>,
}

/// The signed sums of a tensor's rows, and the bound that they must keep.
#[derive(Debug)]
struct Sums<P: Protocol> {
    rows: SecretTensor<P>,
    bound: u64,
}

impl<P: Protocol> Guard<P> {
    /// A guard whose signs come from a seed that all parties know.
    pub fn new(seed: u64) -> Self {
        Self { signs: SplitMix64::new(seed), sums: vec![] }
    }

    /// Takes a tensor into guard: products of which `dropped` bits were dropped. Local.
    ///
    /// # Errors
    /// [`Error::Invalid`] if no bit was dropped, or more than a product has.
    pub fn watch(&mut self, mpc: &mut P, x: &SecretTensor<P>, dropped: u32) -> Result<()> {
        if !(1..56).contains(&dropped) {
            let reason = format!("{dropped} bits were dropped; 1 to 55 leave room for a bound");
            return Err(Error::invalid("guard", reason));
        }
        let length = x.shape().len().div_ceil(ROWS).clamp(1, LONGEST);
        let count = x.shape().len().div_ceil(length);
        let rows = rows(mpc, x, [count, length])?;
        let sums = match length {
            1 => rows.share().clone(),
            _ => {
                let signs = mpc.engine().upload(self.signs(length)?)?;
                mpc.linear(&Linear::TimesPublic(&Bilinear::MATMUL, &signs), rows.share())?
            }
        };
        // What left its range may also have left its width, by two bits; a bound may be wider than both.
        let grown = length.next_power_of_two().trailing_zeros();
        let width = (x.width() + grown + 2).max(64 - SLACK - dropped);
        let rows = SecretTensor::new(sums, 0, width.min(64));
        self.sums.push(Sums { rows, bound: 1 << (63 - SLACK - dropped) });
        Ok(())
    }

    /// A word for each tensor in the order in which they came: 0, or how many of its bounds were left.
    ///
    /// # Cost
    /// Two comparisons for each row, those of all tensors in 6 rounds: a tensor has a row for each element up
    /// to 16, then 16 up to 65,536 elements, then one for each 4096.
    ///
    /// # Errors
    /// [`Error::Plan`] if nothing was watched; [`Error::Mpc`] if the protocol fails.
    pub fn finish(self, mpc: &mut P) -> Result<SecretTensor<P>> {
        if self.sums.is_empty() {
            return Err(Error::plan("there is nothing to guard"));
        }
        mpc.step("guard");
        let mut width = 0;
        let mut shifted = vec![];
        for Sums { rows, bound } in &self.sums {
            width = width.max(rows.width() + 1);
            for by in [*bound, bound.wrapping_neg()] {
                shifted.push(mpc.linear(&Linear::Shift(by), rows.share())?);
            }
        }
        // One tensor of all of them: bits of comparisons are sent in words of 64.
        let shifted = mpc.concat(&shifted.iter().collect::<Vec<_>>(), 0)?;
        let job = Compare { value: &shifted, width: width.min(64), then: Then::word() };
        let below = mpc.compare_one(job)?.into_word()?;
        let mut left = vec![];
        let mut start = 0;
        for Sums { rows, .. } in &self.sums {
            let count = rows.shape().dims()[0];
            let mut next = || {
                let view = View::Slice { axis: 0, start, end: start + count, step: 1 };
                start += count;
                mpc.linear(&Linear::View(&view), &below)
            };
            // Below minus the bound, or not below the bound.
            let outside = mpc.sub(&next()?, &next()?)?;
            let sum = mpc.linear(&Linear::Sum(&[0, 1]), &outside)?;
            let sum = mpc.linear(&Linear::Shift(count as u64), &sum)?;
            left.push(mpc.linear(&Linear::View(&View::Reshape(Shape::new([1])?)), &sum)?);
        }
        let left = mpc.concat(&left.iter().collect::<Vec<_>>(), 0)?;
        Ok(SecretTensor::new(left, 0, 64))
    }

    /// A column of signs.
    fn signs(&mut self, length: usize) -> Result<Tensor> {
        let mut bits = 0;
        let sign = |i: usize| {
            if i.is_multiple_of(64) {
                bits = self.signs.next_u64();
            }
            1u64.wrapping_sub((bits >> (i % 64) & 1) << 1)
        };
        Ok(Tensor::new(Shape::new([length, 1])?, (0..length).map(sign).collect())?)
    }
}

/// The elements as rows, the last filled up with zeros.
fn rows<P: Protocol>(mpc: &P, x: &SecretTensor<P>, dims: [usize; 2]) -> Result<SecretTensor<P>> {
    let length = x.shape().len();
    let flat = ops::reshape(mpc, x, &Shape::new([length])?)?;
    let after = vec![dims[0] * dims[1] - length];
    let full = match after[0] {
        0 => flat,
        _ => ops::view(mpc, &flat, &View::Pad { before: vec![0], after, value: 0 })?,
    };
    ops::reshape(mpc, &full, &Shape::new(dims)?)
}

impl Plan {
    /// The same plan, which says of itself that it is to be run with a [`Guard`], or that it is not.
    #[must_use]
    pub fn with_guard(mut self, guard: bool) -> Self {
        self.guard = guard;
        self
    }

    /// The names of the values that a [`Guard`] watches, in its order: products of which bits are dropped.
    /// None if the plan is not to be run with one, or has no such value.
    pub fn guarded(&self) -> Vec<&str> {
        let all = self.steps.iter().flatten().filter(|&&i| self.guard && self.dropped(i) > 0);
        all.map(|&i| self.nodes[i].name.as_str()).collect()
    }

    /// Bits that are dropped of a product at a node; 0 if it is none, or nothing is dropped.
    pub(super) fn dropped(&self, node: usize) -> u32 {
        let inputs = &self.nodes[node].inputs;
        let sum = |[x, y]: [usize; 2]| self.fracs[inputs[x]] + self.fracs[inputs[y]];
        let product = match &self.nodes[node].op {
            Op::Linear(l) => l.maps().map(|(_, pair)| sum(pair)).max().unwrap_or(0),
            Op::Conv(_)
            | Op::ConvTranspose { .. }
            | Op::ConvWeightGrad(_)
            | Op::MatMul { .. }
            | Op::Binary(Binary::Mul) => sum([0, 1]),
            _ => 0,
        };
        product.saturating_sub(self.fracs[node])
    }
}
