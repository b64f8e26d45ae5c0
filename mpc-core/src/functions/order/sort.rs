//! Numbers in order: by a network whose comparisons are public, or by their bits where that is cheaper.

use ring_arith::{Shape, View};

use crate::functions::order::{
    network::{Sorted, chosen, length, ordered},
    radix,
};
use crate::{
    Error, Format, Linear, Protocol, Result, SecretTensor, protocol::tournament::positions,
};

/// The numbers along an axis in rising order.
///
/// # Domain and error
/// Exact, for words below 2^62 in magnitude.
///
/// # Cost
/// About `k t^2 / 4` comparisons for `k` numbers with `t = ceil(log2 k)`, in `t (t + 1) / 2` stages. All of a stage
/// share the rounds of one [`crate::functions::maximum`]. For 1000 numbers: 23,521 comparisons in 275 rounds and 11 kbit a number.
/// With replicated sharing of a row of 16 at width 44: 60 rounds and 1803 bits for each element in all.
///
/// Many numbers of few bits that are the only row are sorted by their bits instead (`functions/radix.rs`), if three servers
/// compute and that is predicted to send less, or for slow links to take fewer rounds: from about 500 numbers of 8 bits,
/// 4000 of 16 and 65,000 of 44 on. For `b` bits that costs about `625 b + 1.5 b^2 + 1200` bits a number and `3 b + 12`
/// rounds.
///
/// # Errors
/// [`Error::Invalid`] if the axis does not exist.
pub fn sort<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>, axis: usize) -> Result<SecretTensor<P>> {
    let k = length("sort", x, axis)?;
    if let Some(sorted) = by_bits(mpc, x, axis, &[x.share()], 0)?.and_then(|mut all| all.pop()) {
        return Ok(SecretTensor::new(sorted, x.format()));
    }
    let all: Vec<_> = (0..k).collect();
    chosen(mpc, x, axis, &all)
}

/// The places from which [`sort`] takes its numbers, as integers. Equal numbers keep their order.
///
/// # Domain and error
/// As [`sort`].
///
/// # Cost
/// That of [`sort`] with numbers of `t` bits more, and an exact truncation of each number, as [`crate::functions::floor`], in 5
/// rounds. If the numbers have more than `63 - t` bits, the places are selected apart: each stage takes twice as many
/// rounds, and for 1000 numbers 1.9 times as many bits with replicated sharing.
/// With replicated sharing of a row of 16 at width 44: 64 rounds and 2152 bits for each element in all.
///
/// # Errors
/// As [`sort`].
pub fn argsort<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    axis: usize,
) -> Result<SecretTensor<P>> {
    Ok(sort_with(mpc, x, &[], axis)?.places)
}

/// [`sort`] and [`argsort`] at once, with other tensors of the same shape in the same order: rows of a table by a key.
/// Equal keys keep their order.
///
/// # Domain and error
/// Exact, for keys whose words are below 2^62 in magnitude, and any words beside them.
///
/// # Cost
/// As [`argsort`], and 192 bits more for each comparison and column with replicated sharing, in the same rounds.
///
/// # Errors
/// As [`sort`]; [`Error::Shapes`] if a column has another shape.
pub fn sort_with<P: Protocol>(
    mpc: &mut P,
    keys: &SecretTensor<P>,
    columns: &[&SecretTensor<P>],
    axis: usize,
) -> Result<Sorted<P>> {
    let k = length("sort", keys, axis)?;
    if let Some(other) = columns.iter().find(|column| column.shape() != keys.shape()) {
        let (lhs, rhs) = (keys.shape().clone(), other.shape().clone());
        return Err(Error::Shapes { op: "sort", lhs, rhs });
    }
    let places = positions(mpc, &Shape::new([k])?)?;
    let shares: Vec<_> = columns.iter().map(|column| column.share()).collect();
    let tensors = [&[keys.share(), &places], &shares[..]].concat();
    if let Some(sorted) = by_bits(mpc, keys, axis, &tensors, columns.len())? {
        let mut sorted = sorted.into_iter();
        let mut next = || sorted.next().ok_or_else(|| Error::unanswered("sort"));
        let keys = SecretTensor::new(next()?, keys.format());
        let bits = k.next_power_of_two().trailing_zeros();
        let places = SecretTensor::new(next()?, Format::integer(bits + 1));
        let moved = columns.iter().map(|x| Ok(SecretTensor::new(next()?, x.format())));
        return Ok(Sorted { keys, places, columns: moved.collect::<Result<_>>()? });
    }
    let all: Vec<_> = (0..k).collect();
    ordered(mpc, keys, columns, axis, &all)
}

/// Tensors in the order of keys that are one row, by the radix sort, if that is cheaper with this number of columns beside the
/// keys. Each tensor has as many words as the keys, and comes in their shape.
fn by_bits<P: Protocol>(
    mpc: &mut P,
    keys: &SecretTensor<P>,
    axis: usize,
    tensors: &[&P::Share],
    columns: usize,
) -> Result<Option<Vec<P::Share>>> {
    let shape = keys.shape();
    let k = shape.len();
    let alone = shape.dims().get(axis) == Some(&k);
    if !alone || k < 2 || !radix::is_cheaper(mpc, k, keys.width(), columns) {
        return Ok(None);
    }
    let reshaped = |mpc: &P, x: &P::Share, shape: &Shape| {
        mpc.linear(&Linear::View(&View::Reshape(shape.clone())), x)
    };
    let row = Shape::new([k])?;
    // Signed numbers become unsigned ones in the same order.
    let unsigned = mpc.combine(&[(1, keys.share())], 1 << (keys.width() - 1))?;
    let unsigned = reshaped(mpc, &unsigned, &row)?;
    let rows = tensors.iter().map(|x| reshaped(mpc, x, &row)).collect::<Result<Vec<_>>>()?;
    let rows: Vec<_> = rows.iter().collect();
    let sorted = radix::by_radix(mpc, &unsigned, keys.width(), &rows)?;
    sorted.iter().map(|x| reshaped(mpc, x, shape)).collect::<Result<_>>().map(Some)
}
