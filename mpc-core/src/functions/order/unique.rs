//! The distinct numbers of a row, and how often each is there.

use ring_arith::{Engine, Shape, Tensor, View};

use crate::functions::{
    order::join::{column, masked, moved},
    order::radix::sort_rows,
    sort,
};
use crate::{Error, Format, Linear, Protocol, Result, SecretTensor, ShareTensor};

/// The distinct numbers of a row in rising order; zeros follow.
#[derive(Debug)]
#[must_use]
pub struct Unique<P: Protocol> {
    /// `[k]`: the numbers.
    pub values: SecretTensor<P>,
    /// `[k]`: how often each is there, as integers; 0 behind the last.
    pub counts: SecretTensor<P>,
    /// `[1]`: how many there are, also of those beyond `k`, as an integer.
    pub distinct: SecretTensor<P>,
}

/// The distinct numbers of a row in rising order, and how often each is there. There are as many places as numbers, or
/// `at_most` that many: those of numbers beyond the distinct ones have zeros. Nothing is opened but places that are
/// uniform whatever the numbers are.
///
/// # Domain and error
/// As [`sort`].
///
/// # Cost
/// A [`sort`], a zero test and a bit as a word for each number, and a sort by that bit with three words beside it: by the
/// bits with replicated sharing, 12 rounds and 1728 bits for each number. At last a product for two words of each place,
/// in one round and 384 bits.
///
/// # Errors
/// [`Error::Invalid`] if `x` is not one row.
pub fn unique<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    at_most: Option<usize>,
) -> Result<Unique<P>> {
    let &[n] = x.shape().dims() else {
        let reason = format!("numbers are one row, not {:?}", x.shape());
        return Err(Error::Invalid { op: "unique", reason });
    };
    let most = at_most.unwrap_or(n).min(n);
    let sorted = sort(mpc, x, 0)?;
    let same = same_as_next(mpc, &sorted)?;
    let last = mpc.combine(&[(u64::MAX, &same)], 1)?;
    let distinct = mpc.linear(&Linear::Sum(&[0]), &last)?;

    // Of each distinct number the last one comes to the front, with how many numbers end there.
    let up_to = words(mpc, n, |at| at as u64 + 1)?;
    let table = beside(mpc, &[&last, sorted.share(), &up_to])?;
    let front = sort_rows(mpc, &same, 1, &[&table])?;
    let front = front.into_iter().next().ok_or_else(|| Error::unanswered("sort"))?;
    let first = View::Slice { axis: 0, start: 0, end: most, step: 1 };
    let front = moved(mpc, &front, first.clone())?;
    let flags = column(mpc, &front, 0)?;
    let values = column(mpc, &front, 1)?;
    let up_to = column(mpc, &front, 2)?;
    let before = moved(mpc, &up_to, View::Pad { before: vec![1], after: vec![0], value: 0 })?;
    let counts = mpc.sub(&up_to, &moved(mpc, &before, first)?)?;
    let [values, counts] = match masked(mpc, &flags, &beside(mpc, &[&values, &counts])?, 0, 2)? {
        Some(both) => [column(mpc, &both, 0)?, column(mpc, &both, 1)?],
        None => [values, counts],
    };
    Ok(Unique {
        values: SecretTensor::new(values, x.format()),
        counts: SecretTensor::new(counts, Format::integer(33)),
        distinct: SecretTensor::new(distinct, Format::integer(33)),
    })
}

/// 1 where the next number is the same, 0 elsewhere and at the last number.
fn same_as_next<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<P::Share> {
    let n = x.shape().len();
    if n < 2 {
        return words(mpc, n, |_| 0);
    }
    let next = moved(mpc, x.share(), View::Slice { axis: 0, start: 1, end: n, step: 1 })?;
    let own = moved(mpc, x.share(), View::Slice { axis: 0, start: 0, end: n - 1, step: 1 })?;
    let apart = mpc.sub(&next, &own)?;
    let same = mpc.is_zero(&[(&apart, x.width())])?;
    let same = mpc.bits_to_words(&same.iter().collect::<Vec<_>>())?.into_iter().flatten().next();
    let same = same.ok_or_else(|| Error::unanswered("bits to words"))?;
    moved(mpc, &same, View::Pad { before: vec![0], after: vec![1], value: 0 })
}

/// Rows of one word each as columns of a matrix.
fn beside<P: Protocol>(mpc: &P, rows: &[&P::Share]) -> Result<P::Share> {
    let columns = rows.iter().map(|row| {
        let line = Shape::new([row.shape().len(), 1])?;
        moved(mpc, row, View::Reshape(line))
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    mpc.concat(&columns.iter().collect::<Vec<_>>(), 1)
}

/// A public word for each number.
fn words<P: Protocol>(mpc: &P, n: usize, word: impl Fn(usize) -> u64) -> Result<P::Share> {
    mpc.constant(&mpc.engine().upload(Tensor::from_fn(Shape::new([n])?, word))?)
}
