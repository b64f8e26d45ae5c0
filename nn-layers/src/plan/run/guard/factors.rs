//! The public random factors of a guard.

use mpc_core::{SplitMix64, SumFactors};

use crate::graph::{LinearMap, Op};

/// The number of sums that are taken of each value, with separate factors.
pub(super) const SUMS: usize = 3;

/// Bits of a place's factor.
const PLACE: u32 = 5;

/// Bits of an example's factor and of a place's, where a result has several of both: together they let as little cancel
/// out as [`PLACE`] does.
const SEVERAL: u32 = 6;

/// Bits of a channel's factor. The error of a checked sum grows with it, that of a place's factor does not.
const CHANNEL: u32 = 4;

/// Factors for the elements of a value, for each of [`SUMS`] sums, along the axes before, along and after that
/// of channels. All are odd, so that one element alone counts whatever its factor.
#[derive(Debug, Clone)]
pub(super) struct Factors {
    /// The axis of channels, or the rank if there is none.
    pub axis: usize,
    pub lists: Vec<SumFactors>,
}

impl Factors {
    /// Draws factors for the result of an operation.
    pub fn draw(random: &mut SplitMix64, op: &Op, dims: &[usize]) -> Self {
        let (axis, elementwise) = match op {
            Op::Linear(l) => channels(&l.map, dims.len()),
            Op::Conv(_) | Op::ConvTranspose { .. } => (1, false),
            Op::ConvWeightGrad(_) => (0, false),
            Op::MatMul { .. } => (dims.len() - 1, false),
            _ => (dims.len(), true),
        };
        let outer: usize = dims[..axis].iter().product();
        let channels = dims.get(axis).copied().unwrap_or(1);
        let inner: usize = dims.iter().skip(axis + 1).product();
        let bits = match (elementwise, outer > 1 && inner > 1) {
            // Elementwise each factor is multiplied by an operand.
            (true, _) => CHANNEL,
            (false, true) => SEVERAL,
            (false, false) => PLACE,
        };
        // A single index needs none.
        let mut odd = |count: usize, bits: u32| match count {
            1 => vec![1],
            _ => (0..count).map(|_| odd(random, bits)).collect(),
        };
        let lists = (0..SUMS).map(|_| SumFactors {
            outer: odd(outer, bits),
            middle: odd(channels, CHANNEL),
            inner: odd(inner, bits),
        });
        Self { axis, lists: lists.collect() }
    }

    /// The factors of some of `of` equal parts along the first axis, which is not that of channels.
    pub fn part(&self, start: usize, end: usize, of: usize) -> Self {
        let part = |list: &SumFactors| {
            let each = list.outer.len() / of.max(1);
            SumFactors { outer: list.outer[start * each..end * each].to_vec(), ..list.clone() }
        };
        Self { axis: self.axis, lists: self.lists.iter().map(part).collect() }
    }
}

/// The axis of a map's channels in a result of some rank, and whether it has none because it is elementwise.
fn channels(map: &LinearMap, rank: usize) -> (usize, bool) {
    match map {
        LinearMap::Conv(_) | LinearMap::ConvTranspose { .. } => (1, false),
        LinearMap::ConvWeightGrad(_) => (0, false),
        LinearMap::MatMul { .. } => (rank - 1, false),
        LinearMap::Mul => (rank, true),
    }
}

/// An odd number below `2^bits` in magnitude.
fn odd(random: &mut SplitMix64, bits: u32) -> u64 {
    let drawn = random.next_u64() >> (64 - bits);
    (2 * drawn + 1).wrapping_sub(1 << bits)
}
