//! Sorting by a network, whose comparisons are public.

use std::sync::Arc;

use ring_arith::View;

use crate::functions::{
    order::stages::{Stage, merge_sort},
    permute,
};
use crate::{
    Compare, Error, Format, Linear, Protocol, Result, SecretTensor, ShareTensor, Then,
    TruncationMode, protocol::tournament::positions,
};

/// Numbers in order, with what was beside them.
#[derive(Debug)]
#[must_use]
pub struct Sorted<P: Protocol> {
    /// The numbers in rising order.
    pub keys: SecretTensor<P>,
    /// The place that each had, as integers.
    pub places: SecretTensor<P>,
    /// The other tensors in the same order.
    pub columns: Vec<SecretTensor<P>>,
}

/// The length of an axis.
pub(in crate::functions) fn length<P: Protocol>(
    op: &'static str,
    x: &SecretTensor<P>,
    axis: usize,
) -> Result<usize> {
    x.shape().dims().get(axis).copied().ok_or_else(|| {
        let reason = format!("shape {:?} has no axis {axis}", x.shape());
        Error::Invalid { op, reason }
    })
}

/// The numbers at some places of the order along an axis.
pub(in crate::functions) fn chosen<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    axis: usize,
    wanted: &[usize],
) -> Result<SecretTensor<P>> {
    let turn = Turn::new(x.shape().rank(), axis);
    let k = length("sort", x, axis)?;
    let mut nodes = vec![turn.apply(mpc, x)?.share().clone()];
    let width = (x.width() + 1).min(64);
    mutant!("sort: differences as wide as numbers", width = x.width());
    for stage in merge_sort(k, wanted) {
        exchange(mpc, &stage, &mut nodes, width, None)?;
    }
    let share = taken(mpc, &nodes[0], wanted)?;
    turn.apply(mpc, &SecretTensor::new(share, x.format()))
}

/// [`Sorted`] at some places of the order.
pub(in crate::functions) fn ordered<P: Protocol>(
    mpc: &mut P,
    keys: &SecretTensor<P>,
    columns: &[&SecretTensor<P>],
    axis: usize,
    wanted: &[usize],
) -> Result<Sorted<P>> {
    let turn = Turn::new(keys.shape().rank(), axis);
    let k = length("sort", keys, axis)?;
    let turned = turn.apply(mpc, keys)?;
    let places = positions(mpc, turned.shape())?;
    let bits = k.next_power_of_two().trailing_zeros().max(1);
    let both = keys.width() + bits;
    mutant!("sort: places in the bits of numbers", bits = bits - 1);
    // A number and its place in one word: no two are equal, and equal numbers keep their order.
    let joined = both <= 63;
    let (mut nodes, width) = if joined {
        let key = mpc.combine(&[(1 << bits, turned.share()), (1, &places)], 0)?;
        (vec![key], both + 1)
    } else {
        (vec![turned.share().clone(), places], (keys.width() + 1).min(64))
    };
    for column in columns {
        nodes.push(turn.apply(mpc, column)?.share().clone());
    }
    for stage in merge_sort(k, wanted) {
        exchange(mpc, &stage, &mut nodes, width, (!joined).then_some(bits + 1))?;
    }
    for node in &mut nodes {
        *node = taken(mpc, node, wanted)?;
    }
    let mut nodes = nodes.into_iter();
    let mut next = || nodes.next().ok_or_else(|| Error::unanswered("sort"));
    let first = next()?;
    let (sorted, places) = if joined {
        let high = mpc.truncate(&[(&first, bits)], TruncationMode::Exact)?;
        let high = high.into_iter().next().ok_or_else(|| Error::unanswered("truncate"))?;
        let low = mpc.combine(&[(1, &first), ((1u64 << bits).wrapping_neg(), &high)], 0)?;
        (high, low)
    } else {
        (first, next()?)
    };
    let back = |share, format| turn.apply(mpc, &SecretTensor::new(share, format));
    let moved = columns.iter().map(|column| back(next()?, column.format()));
    let columns = moved.collect::<Result<_>>()?;
    let keys = back(sorted, keys.format())?;
    Ok(Sorted { keys, places: back(places, Format::integer(bits + 1))?, columns })
}

/// The columns of rows in the rising order of their keys, whose differences are below `2^(width - 1)` in magnitude, by
/// the network. Rows of equal keys come in any order.
pub(crate) fn by_network<P: Protocol>(
    mpc: &mut P,
    keys: P::Share,
    columns: Vec<P::Share>,
    width: u32,
) -> Result<Vec<P::Share>> {
    let n = keys.shape().dims()[0];
    let all: Vec<_> = (0..n).collect();
    let mut nodes = vec![keys];
    nodes.extend(columns);
    for stage in merge_sort(n, &all) {
        exchange(mpc, &stage, &mut nodes, width, None)?;
    }
    Ok(nodes.split_off(1))
}

/// Puts the pairs of a stage in the order of the first tensor. With a width of places, the second tensor has them,
/// and the earlier of two equal numbers comes first.
fn exchange<P: Protocol>(
    mpc: &mut P,
    stage: &Stage,
    nodes: &mut [P::Share],
    width: u32,
    place_width: Option<u32>,
) -> Result<()> {
    let lower = &stage.lower;
    let upper: Vec<_> = lower.iter().map(|place| place + stage.distance).collect();
    let mut low = Vec::with_capacity(nodes.len());
    let mut high = Vec::with_capacity(nodes.len());
    let mut gap = Vec::with_capacity(nodes.len());
    for node in nodes.iter() {
        low.push(taken(mpc, node, lower)?);
        high.push(taken(mpc, node, &upper)?);
    }
    for (low, high) in low.iter().zip(&high) {
        gap.push(mpc.sub(high, low)?);
    }
    let mut value = gap[0].clone();
    if let Some(width) = place_width {
        let job = Compare { value: &gap[1], width, then: Then::word() };
        let earlier = mpc.compare_one(job)?.into_word()?;
        value = mpc.sub(&value, &earlier)?;
    }
    let words: Vec<_> = gap.iter().collect();
    let then = Then::negative(&words);
    let moved = mpc.compare_one(Compare { value: &value, width, then })?.negative;
    if moved.len() != nodes.len() {
        return Err(Error::unanswered("compare"));
    }
    let order = places_after(stage, nodes[0].shape().dims()[0]);
    for (((node, low), high), moved) in nodes.iter_mut().zip(low).zip(high).zip(moved) {
        let first = mpc.add(&low, &moved)?;
        let second = mpc.sub(&high, &moved)?;
        let all = mpc.concat(&[&first, &second, node], 0)?;
        *node = taken(mpc, &all, &order)?;
    }
    Ok(())
}

/// The origin of each place's number behind a stage: among the lower numbers, the upper ones, or all as they were.
fn places_after(stage: &Stage, k: usize) -> Vec<usize> {
    let pairs = stage.lower.len();
    let mut order: Vec<_> = (2 * pairs..2 * pairs + k).collect();
    for (i, &place) in stage.lower.iter().enumerate() {
        order[place] = i;
        order[place + stage.distance] = pairs + i;
    }
    order
}

/// Rows of the first axis.
fn taken<P: Protocol>(mpc: &P, x: &P::Share, places: &[usize]) -> Result<P::Share> {
    let all = x.shape().dims().first() == Some(&places.len());
    if all && places.iter().enumerate().all(|(i, &place)| i == place) {
        return Ok(x.clone());
    }
    mpc.linear(&Linear::View(&View::Gather { axis: 0, indices: Arc::from(places) }), x)
}

/// Exchanges an axis and the first one; done twice it changes nothing.
struct Turn(Option<Vec<usize>>);

impl Turn {
    fn new(rank: usize, axis: usize) -> Self {
        let mut order: Vec<_> = (0..rank).collect();
        if axis == 0 || axis >= rank {
            return Self(None);
        }
        order.swap(0, axis);
        Self(Some(order))
    }

    fn apply<P: Protocol>(&self, mpc: &P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
        match &self.0 {
            Some(order) => permute(mpc, x, order),
            None => Ok(x.clone()),
        }
    }
}
