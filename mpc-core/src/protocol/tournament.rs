//! Largest elements by tournament, and their gradient, over any protocol.

use crate::{Compare, Error, Found, FoundBy, Largest, Linear, Protocol, Result, ShareTensor, Then};
use ring_arith::{Engine, Shape, Tensor, View};

/// See [`Protocol::max_first`]. `ceil(log2 k)` comparisons one after the other.
pub(crate) fn max_first<P: Protocol>(
    mpc: &mut P,
    x: &P::Share,
    width: u32,
    want: Largest,
) -> Result<FoundBy<P>> {
    let shape = x.shape().clone();
    let Some(&k) = shape.dims().first().filter(|k| **k > 0) else {
        let reason = format!("shape {shape:?} has no elements along its first axis");
        return Err(Error::Invalid { op: "max", reason });
    };
    let mut nodes = vec![x.clone()];
    if want.position {
        nodes.push(positions(mpc, &shape)?);
    }
    let mut choices = Vec::new();
    let mut len = k;
    while len > 1 {
        let pairs = len / 2;
        let every_other = |mpc: &P, s: &P::Share, start| {
            let view = View::Slice { axis: 0, start, end: 2 * pairs, step: 2 };
            mpc.linear(&Linear::View(&view), s)
        };
        let (mut left, mut right, mut diff) = (vec![], vec![], vec![]);
        for node in &nodes {
            left.push(every_other(mpc, node, 0)?);
            right.push(every_other(mpc, node, 1)?);
        }
        for (l, r) in left.iter().zip(&right) {
            diff.push(mpc.sub(r, l)?);
        }
        // right - left > 0 exactly if left - right < 0, so that equals keep the left one.
        let value = mpc.linear(&Linear::Negate, &diff[0])?;
        mutant!(
            "tournament: equals keep the later",
            value = mpc.linear(&Linear::Shift(u64::MAX), &value)?
        );
        let words: Vec<_> = diff.iter().collect();
        let then = Then { bit: want.choices, ..Then::negative(&words) };
        let answer = mpc.compare_one(Compare { value: &value, width, then })?;
        let mut next = Vec::with_capacity(nodes.len());
        for ((node, l), g) in nodes.iter().zip(&left).zip(&answer.negative) {
            let winner = mpc.add(l, g)?;
            next.push(if len % 2 == 1 {
                let odd = mpc.linear(&Linear::View(&rows(len - 1, len)), node)?;
                mpc.concat(&[&winner, &odd], 0)?
            } else {
                winner
            });
        }
        choices.extend(answer.bit);
        nodes = next;
        len = len.div_ceil(2);
    }
    let position = if want.position { nodes.pop() } else { None };
    let largest = nodes.pop().ok_or_else(|| Error::unanswered("max"))?;
    Ok(Found { largest, position, choices })
}

/// See [`Protocol::max_first_gradient`]: from the last level down, each pair's word moves to the
/// winner.
pub(crate) fn gradient<P: Protocol>(
    mpc: &mut P,
    gradient: &P::Share,
    choices: &[P::Bits],
) -> Result<P::Share> {
    let lengths = tournament_lengths(gradient.shape(), choices)?;
    let mut nodes = gradient.clone();
    for (len, choice) in lengths.into_iter().zip(choices).rev() {
        let pairs = len / 2;
        let winners = mpc.linear(&Linear::View(&rows(0, pairs)), &nodes)?;
        let later = one(mpc.select(&[(choice, &[&winners])])?)?;
        let earlier = mpc.sub(&winners, &later)?;
        // [pairs, ..] twice to [pairs, 2, ..] to [2 pairs, ..].
        let split = |s: &P::Share| {
            let dims = [&[pairs, 1], &s.shape().dims()[1..]].concat();
            mpc.linear(&Linear::View(&View::Reshape(Shape::new(dims)?)), s)
        };
        let both = mpc.concat(&[&split(&earlier)?, &split(&later)?], 1)?;
        let dims = [&[2 * pairs], &nodes.shape().dims()[1..]].concat();
        let both = mpc.linear(&Linear::View(&View::Reshape(Shape::new(dims)?)), &both)?;
        nodes = if len % 2 == 1 {
            let odd = mpc.linear(&Linear::View(&rows(pairs, pairs + 1)), &nodes)?;
            mpc.concat(&[&both, &odd], 0)?
        } else {
            both
        };
    }
    Ok(nodes)
}

/// Rows of the first axis.
fn rows(start: usize, end: usize) -> View {
    View::Slice { axis: 0, start, end, step: 1 }
}

fn one<S>(answers: Vec<Vec<S>>) -> Result<S> {
    answers.into_iter().flatten().next().ok_or_else(|| Error::unanswered("select"))
}

/// Every element's place along the first axis.
pub(crate) fn positions<P: Protocol>(mpc: &P, shape: &Shape) -> Result<P::Share> {
    let each = shape.dims()[1..].iter().product::<usize>().max(1);
    let words = (0..shape.len()).map(|i| (i / each) as u64).collect();
    let words = mpc.engine().upload(Tensor::new(shape.clone(), words)?)?;
    mpc.constant(&words)
}

/// The number of elements before each level of a tournament whose choices are given, for one result
/// of the given shape.
///
/// # Errors
/// [`Error::Invalid`] if no tournament has such choices.
pub fn tournament_lengths<B: ShareTensor>(result: &Shape, choices: &[B]) -> Result<Vec<usize>> {
    let wrong = || {
        let shapes: Vec<_> = choices.iter().map(|bits| bits.shape().dims()).collect();
        let reason = format!("no tournament with a result of {result:?} has choices {shapes:?}");
        Error::Invalid { op: "gradient of max", reason }
    };
    let Some((1, rest)) = result.dims().split_first() else { return Err(wrong()) };
    let mut above = 1;
    let mut lengths = Vec::with_capacity(choices.len());
    for bits in choices.iter().rev() {
        let len = match bits.shape().dims().split_first() {
            Some((&pairs, others)) if others == rest && pairs == above => 2 * pairs,
            Some((&pairs, others)) if others == rest && pairs + 1 == above => 2 * pairs + 1,
            _ => return Err(wrong()),
        };
        lengths.push(len);
        above = len;
    }
    lengths.reverse();
    Ok(lengths)
}
