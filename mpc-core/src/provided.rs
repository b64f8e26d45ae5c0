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
/// plane of the upper half. Planes are kept one by one, so that only a step's operands are copied.
pub(crate) fn prefix_or<P: Protocol>(mpc: &mut P, jobs: &[&P::Bits]) -> Result<Vec<P::Bits>> {
    let mut all = Vec::with_capacity(jobs.len());
    for x in jobs {
        all.push(planes(mpc, &mpc.not(x)?)?);
    }
    let width = all.iter().map(Vec::len).max().unwrap_or(0);
    let mut half = 1;
    while half < width {
        let (mut operands, mut places) = (Vec::new(), Vec::new());
        for (job, clear) in all.iter().enumerate().filter(|(_, clear)| clear.len() > half) {
            // Counted from the top.
            let lower: Vec<_> = (0..clear.len()).filter(|i| i & half != 0).collect();
            let plane = |i: usize| &clear[clear.len() - 1 - i];
            let low: Vec<_> = lower.iter().map(|&i| plane(i)).collect();
            let high: Vec<_> = lower.iter().map(|&i| plane(i / half * half - 1)).collect();
            operands.push((mpc.join_planes(&low)?, mpc.join_planes(&high)?));
            places.push((job, lower));
        }
        let products = mpc.and(&operands.iter().map(|(x, y)| (x, y)).collect::<Vec<_>>())?;
        for ((job, lower), product) in places.into_iter().zip(&products) {
            let last = all[job].len() - 1;
            for (i, plane) in lower.into_iter().zip(planes(mpc, product)?) {
                all[job][last - i] = plane;
            }
        }
        half *= 2;
    }
    let whole = |clear: Vec<P::Bits>| mpc.not(&mpc.join_planes(&clear.iter().collect::<Vec<_>>())?);
    all.into_iter().map(whole).collect()
}

/// Every plane by itself.
fn planes<P: Protocol>(mpc: &P, x: &P::Bits) -> Result<Vec<P::Bits>> {
    (0..mpc.bits_width(x)).map(|j| mpc.pick_planes(x, &[Some(j)])).collect()
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
