//! Largest elements by tournament, over any protocol.

use crate::{Compare, Compared, Error, Linear, Protocol, Result, ShareTensor, Then};
use ring_arith::{Engine, Shape, Tensor, View};

/// See [`Protocol::max_first`]. `ceil(log2 k)` comparisons one after the other.
pub(crate) fn max_first<P: Protocol>(
    mpc: &mut P,
    x: &P::Share,
    width: u32,
    index: bool,
) -> Result<(P::Share, Option<P::Share>)> {
    let shape = x.shape().clone();
    let Some(&k) = shape.dims().first().filter(|k| **k > 0) else {
        let reason = format!("shape {shape:?} has no elements along its first axis");
        return Err(Error::Invalid { op: "max", reason });
    };
    let mut nodes = vec![x.clone()];
    if index {
        nodes.push(positions(mpc, &shape)?);
    }
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
        let words: Vec<_> = diff.iter().collect();
        let job = Compare { value: &value, width, then: Then::Negative(&words) };
        let Some(Compared::Words(gain)) = mpc.compare(&[job])?.pop() else {
            unreachable!("a selection answers with words")
        };
        let mut next = Vec::with_capacity(nodes.len());
        for ((node, l), g) in nodes.iter().zip(&left).zip(&gain) {
            let winner = mpc.add(l, g)?;
            next.push(if len % 2 == 1 {
                let view = View::Slice { axis: 0, start: len - 1, end: len, step: 1 };
                let odd = mpc.linear(&Linear::View(&view), node)?;
                mpc.concat(&[&winner, &odd], 0)?
            } else {
                winner
            });
        }
        nodes = next;
        len = len.div_ceil(2);
    }
    let position = if index { nodes.pop() } else { None };
    let largest = nodes.pop().expect("one node is left");
    Ok((largest, position))
}

/// Every element's place along the first axis.
fn positions<P: Protocol>(mpc: &P, shape: &Shape) -> Result<P::Share> {
    let each = shape.dims()[1..].iter().product::<usize>().max(1);
    let words = (0..shape.len()).map(|i| (i / each) as u64).collect();
    let words = mpc.engine().upload(Tensor::new(shape.clone(), words)?)?;
    mpc.constant(&words)
}
