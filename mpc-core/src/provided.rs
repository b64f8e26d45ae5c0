//! The generic forms of what a protocol may do better.

use crate::{Error, Linear, Protocol, Result};

/// See [`Protocol::combine`].
pub(crate) fn combine<P: Protocol>(
    mpc: &P,
    terms: &[(u64, &P::Share)],
    constant: u64,
) -> Result<P::Share> {
    let scaled = |&(c, x): &(u64, &P::Share)| match c {
        1 => Ok(x.clone()),
        u64::MAX => mpc.linear(&Linear::Negate, x),
        c => mpc.linear(&Linear::Scale(c), x),
    };
    let Some((first, rest)) = terms.split_first() else {
        let reason = "a combination needs at least one term".to_owned();
        return Err(Error::Invalid { op: "combine", reason });
    };
    let sum = rest.iter().try_fold(scaled(first)?, |sum, term| mpc.add(&sum, &scaled(term)?))?;
    match constant {
        0 => Ok(sum),
        c => mpc.linear(&Linear::Shift(c), &sum),
    }
}

/// See [`Protocol::prefix_or`]. Sklansky's network (IRE Trans. Electronic Computers, 1960) on the
/// complements, from the top plane down: in each step the lower half of a block takes in the lowest
/// plane of the upper half.
pub(crate) fn prefix_or<P: Protocol>(mpc: &mut P, jobs: &[&P::Bits]) -> Result<Vec<P::Bits>> {
    let mut clear = jobs.iter().map(|x| mpc.not(x)).collect::<Result<Vec<_>>>()?;
    let width = jobs.iter().map(|x| mpc.bits_width(x)).max().unwrap_or(1);
    let mut block = 2;
    while block < 2 * width {
        let mut pairs = Vec::with_capacity(clear.len());
        for x in &clear {
            let (low, high) = halves(mpc.bits_width(x), block);
            pairs.push(match low.is_empty() {
                true => None,
                false => Some((mpc.pick_planes(x, &low)?, mpc.pick_planes(x, &high)?)),
            });
        }
        let jobs: Vec<_> = pairs.iter().flatten().map(|(low, high)| (low, high)).collect();
        let mut merged = mpc.and(&jobs)?.into_iter();
        for (x, pair) in clear.iter_mut().zip(&pairs) {
            if pair.is_some() {
                let new = merged.next().expect("one result for each pair");
                *x = replace(mpc, x, &new, block)?;
            }
        }
        block *= 2;
    }
    clear.iter().map(|x| mpc.not(x)).collect()
}

/// Counted from the top: whether plane `j` of `width` lies in the lower half of its block, and if so
/// the lowest plane of the upper half.
fn partner(width: u32, j: u32, block: u32) -> Option<u32> {
    let from_top = width - 1 - j;
    let start = from_top - from_top % block;
    (from_top - start >= block / 2).then(|| width - 1 - (start + block / 2 - 1))
}

/// The planes that a step changes, and for each the plane it takes in.
fn halves(width: u32, block: u32) -> (Vec<Option<u32>>, Vec<Option<u32>>) {
    let pairs = (0..width).filter_map(|j| Some((Some(j), Some(partner(width, j, block)?))));
    pairs.unzip()
}

/// Puts changed planes back in their places.
fn replace<P: Protocol>(mpc: &P, old: &P::Bits, new: &P::Bits, block: u32) -> Result<P::Bits> {
    let width = mpc.bits_width(old);
    let mut changed = 0;
    let mut kept = 0;
    let kept_planes: Vec<_> =
        (0..width).filter(|&j| partner(width, j, block).is_none()).map(Some).collect();
    // The kept ones first, so that both together have no more planes than the tensor.
    let both = mpc.join_planes(&[&mpc.pick_planes(old, &kept_planes)?, new])?;
    let order = (0..width).map(|j| match partner(width, j, block) {
        None => {
            kept += 1;
            Some(kept - 1)
        }
        Some(_) => {
            changed += 1;
            Some(kept_planes.len() as u32 + changed - 1)
        }
    });
    let order: Vec<_> = order.collect();
    mpc.pick_planes(&both, &order)
}

/// See [`Protocol::bit_sums`].
pub(crate) fn bit_sums<P: Protocol>(
    mpc: &mut P,
    jobs: &[(&P::Bits, &[&[u64]])],
) -> Result<Vec<Vec<P::Share>>> {
    for (bits, sums) in jobs {
        let width = mpc.bits_width(bits) as usize;
        if let Some(sum) = sums.iter().find(|sum| sum.len() != width) {
            let reason = format!("{} coefficients for {width} planes", sum.len());
            return Err(Error::Invalid { op: "bit sums", reason });
        }
    }
    let bits: Vec<_> = jobs.iter().map(|(bits, _)| *bits).collect();
    let words = mpc.bits_to_words(&bits)?;
    let sum = |planes: &[P::Share], c: &[u64]| {
        let terms: Vec<_> = c.iter().copied().zip(planes).collect();
        mpc.combine(&terms, 0)
    };
    let member = |(planes, (_, sums)): (&Vec<P::Share>, &(_, &[&[u64]]))| {
        sums.iter().map(|c| sum(planes, c)).collect()
    };
    words.iter().zip(jobs).map(member).collect()
}
