//! Normalisation by the highest set bit, for functions that must be accurate over many magnitudes.

use std::iter::repeat_n;
use std::sync::Arc;

use ring_arith::{Engine, Shape, Tensor, View};

use crate::{
    BitMap, Chain, Compare, Compared, Linear, Protocol, Result, ShareTensor, Sum, Then,
    TruncationMode,
};

/// Fraction bits of a normalised number's argument `v = 4 m - 3`, `m` in `[1/2, 1)`.
pub(in crate::functions) const ARGUMENT: u32 = 22;

/// Places in a low digit of the exponent.
const BASE: u32 = 8;

/// A public table of words by a digit of the exponent.
pub(in crate::functions) type Table<'a> = &'a dyn Fn(u32) -> u64;

/// The values to look up by the highest set bit of the magnitude of words.
pub(in crate::functions) struct Exponent<'a> {
    /// Magnitudes are below `2^planes`.
    pub planes: u32,
    /// True if larger words may occur; the values looked up for those do not matter.
    pub wraps: bool,
    /// True if words may be negative; then high tables are negated for negative ones.
    pub signed: bool,
    /// Magnitudes of `2^top` and more count as 0.
    pub top: u32,
    /// Tables by `e % 8`, where `e = top - 1 - j` for the highest set bit `j`; for 0, the entry of 0.
    pub low: &'a [Table<'a>],
    /// Tables by `e / 8`; for 0, the word 0.
    pub high: &'a [Table<'a>],
    /// Like [`Exponent::high`], but not negated.
    pub sizes: &'a [Table<'a>],
}

/// A shared word for each table.
pub(in crate::functions) struct Looked<S> {
    pub low: Vec<S>,
    pub high: Vec<S>,
    pub sizes: Vec<S>,
}

/// Looks the exponent of every word up in the tables. A negative word counts as one less in
/// magnitude: the exponent is one short at negative powers of two, and -1 counts as 0.
///
/// # Cost
/// The low bits of every word, a prefix OR on them and one weighted sum for each digit.
pub(in crate::functions) fn look_up<P: Protocol>(
    mpc: &mut P,
    x: &P::Share,
    wanted: &Exponent<'_>,
) -> Result<Looked<P::Share>> {
    let n = wanted.planes;
    let top = wanted.top.min(n);
    let balanced = if wanted.signed { FEW_BALANCED / 2 } else { FEW_BALANCED };
    let few = mpc.profile().saves_rounds(x.shape().len(), balanced, FEW);
    let Reached { prefix, sign } =
        if few { reached_at_once(mpc, x, wanted)? } else { reached(mpc, x, wanted)? };
    // e of the highest and of the lowest place.
    let first = wanted.top - top;
    let last = wanted.top - 1;
    mutant!("look-up: exponents one too high", last = last + 1);
    let lane = |mpc: &P, inside: &dyn Fn(u32) -> bool| {
        // One place is hot where the prefix changes; a run of places needs only its two ends.
        let mut ends = vec![];
        for j in 0..=top {
            let hot = |j: u32| j < top && inside(last - j);
            if hot(j) != (j > 0 && hot(j - 1)) && j < n {
                ends.push(Some(j));
            }
        }
        let picked = if ends.is_empty() { vec![None] } else { ends };
        mpc.parity(&mpc.pick_planes(&prefix, &picked)?)
    };
    let lows = (1..BASE).map(|b| lane(mpc, &|e| e % BASE == b)).collect::<Result<Vec<_>>>()?;
    let digits: Vec<_> = (first / BASE..=last / BASE).collect();
    let mut highs = Vec::with_capacity(2 * digits.len());
    for &a in &digits {
        highs.push(lane(mpc, &|e| e / BASE == a)?);
    }
    if let Some(sign) = sign {
        let jobs: Vec<_> = highs.iter().map(|lane| (lane, &sign)).collect();
        let negative = mpc.and(&jobs)?;
        for (lane, negative) in highs.iter_mut().zip(&negative) {
            *lane = mpc.xor(lane, negative)?;
        }
        highs.extend(negative);
    }
    sums(mpc, wanted, &lows, &digits, &highs)
}

/// The powers of two that the magnitudes of words reach.
struct Reached<B> {
    /// Plane `j` is 1 if the magnitude is `2^j` or more.
    prefix: B,
    /// 1 if the word is negative; `None` if words cannot be negative.
    sign: Option<B>,
}

/// From the words' bits and a prefix OR on them: two rounds, and two for each doubling of their number.
fn reached<P: Protocol>(
    mpc: &mut P,
    x: &P::Share,
    wanted: &Exponent<'_>,
) -> Result<Reached<P::Bits>> {
    let n = wanted.planes;
    let bits = mpc.to_bits(&[(x, n + u32::from(wanted.signed))])?.remove(0);
    let (magnitude, sign) = if wanted.signed {
        let low: Vec<_> = (0..n).map(Some).collect();
        let sign = mpc.pick_planes(&bits, &vec![Some(n); n as usize])?;
        let magnitude = mpc.xor(&mpc.pick_planes(&bits, &low)?, &sign)?;
        (magnitude, Some(mpc.pick_planes(&bits, &[Some(n)])?))
    } else {
        (bits, None)
    };
    Ok(Reached { prefix: mpc.prefix_or(&[&magnitude])?.remove(0), sign })
}

/// The most words that are compared with every power of two: rounds then cost more than bytes.
const FEW: usize = 1 << 13;

/// The same in the balanced profile, for magnitudes alone: negative words take twice the comparisons.
const FEW_BALANCED: usize = 1 << 9;

/// The words of several distances that are compared in one job, which takes less local work than a job for each. A protocol
/// may split a job of more among its parties, and then takes more rounds.
const TOGETHER: usize = 1 << 11;

/// By comparisons with all powers of two that share the rounds of one: 4 instead of 14 at width 44, for about
/// seven times the bytes.
fn reached_at_once<P: Protocol>(
    mpc: &mut P,
    x: &P::Share,
    wanted: &Exponent<'_>,
) -> Result<Reached<P::Bits>> {
    let n = wanted.planes;
    // Powers from the top on count as 0, whatever their exponent is.
    let places = n.min(wanted.top + 1);
    // A row for each distance: x - 2^j; if words may be negative also x + 2^j and x.
    let mut offsets: Vec<u64> = (0..places).map(|j| (1u64 << j).wrapping_neg()).collect();
    if wanted.signed {
        offsets.extend((0..places).map(|j| 1 << j));
        offsets.push(0);
    }
    let mut width = n + 1 + u32::from(wanted.signed);
    if wanted.wraps {
        width = 64;
    }
    mutant!("look-up: powers of two compared a bit short", width = width - 1);
    let (shape, len) = (x.shape().clone(), x.shape().len());
    let together = (TOGETHER / len.max(1)).max(1);
    let flat = mpc.linear(&Linear::View(&View::Reshape(Shape::new([1, len])?)), x)?;
    let mut distances = Vec::with_capacity(offsets.len().div_ceil(together));
    for offsets in offsets.chunks(together) {
        let rows = Shape::new([offsets.len(), len])?;
        let wide = mpc.linear(&Linear::View(&View::Broadcast(rows.clone())), &flat)?;
        let offsets = offsets.iter().flat_map(|&offset| repeat_n(offset, len)).collect();
        let offsets = mpc.constant(&mpc.engine().upload(Tensor::new(rows, offsets)?)?)?;
        // Modulo 2^64, as words beyond the planes may be anything.
        distances.push(mpc.combine(&[(1, &wide), (1, &offsets)], 0)?);
    }
    let jobs = distances.iter().map(|value| Compare { value, width, then: Then::bit() });
    let answers = mpc.compare(&jobs.collect::<Vec<_>>())?.into_iter();
    let below = answers.map(Compared::into_bit).collect::<Result<Vec<_>>>()?;
    let row = |mpc: &P, at: u32| -> Result<P::Bits> {
        let (job, at) = (at as usize / together, Arc::from([at as usize % together]));
        mpc.reshape_bits(&mpc.linear_bits(&BitMap::Rows(&below[job], &at))?, &shape)
    };
    let planes = |mpc: &P, first: u32| -> Result<P::Bits> {
        let all = (first..first + places).map(|at| row(mpc, at)).collect::<Result<Vec<_>>>()?;
        mpc.join_planes(&all.iter().collect::<Vec<_>>())
    };
    let reached = mpc.not(&planes(mpc, 0)?)?;
    if !wanted.signed {
        return Ok(Reached { prefix: reached, sign: None });
    }
    // No word is both 2^j or more and below -2^j.
    let prefix = mpc.xor(&reached, &planes(mpc, places)?)?;
    Ok(Reached { prefix, sign: Some(row(mpc, 2 * places)?) })
}

/// The weighted sums behind the tables.
fn sums<P: Protocol>(
    mpc: &mut P,
    wanted: &Exponent<'_>,
    lows: &[P::Bits],
    digits: &[u32],
    highs: &[P::Bits],
) -> Result<Looked<P::Share>> {
    let low_bits = mpc.join_planes(&lows.iter().collect::<Vec<_>>())?;
    let high_bits = mpc.join_planes(&highs.iter().collect::<Vec<_>>())?;
    let row = |table: &Table<'_>| -> Vec<u64> {
        (1..BASE).map(|b| table(b).wrapping_sub(table(0))).collect()
    };
    let low_rows: Vec<_> = wanted.low.iter().map(row).collect();
    // Planes of negative words follow those of the others.
    let row = |table: &Table<'_>, sign: u64| -> Vec<u64> {
        let plus = digits.iter().map(|&a| table(a));
        let minus = digits.iter().map(|&a| table(a).wrapping_mul(sign));
        if wanted.signed { plus.chain(minus).collect() } else { plus.collect() }
    };
    let high = wanted.high.iter().map(|table| row(table, u64::MAX));
    let high_rows: Vec<_> = high.chain(wanted.sizes.iter().map(|table| row(table, 1))).collect();
    let low_rows: Vec<&[u64]> = low_rows.iter().map(|r| &r[..]).collect();
    let high_rows: Vec<&[u64]> = high_rows.iter().map(|r| &r[..]).collect();
    let mut answers =
        mpc.bit_sums(&[(&low_bits, &low_rows), (&high_bits, &high_rows)])?.into_iter();
    let low = answers.next().unwrap_or_default();
    let mut high = answers.next().unwrap_or_default();
    let sizes = high.split_off(wanted.high.len().min(high.len()));
    // The entry of digit 0 does not need a plane.
    let entry =
        |(share, table): (P::Share, &Table<'_>)| mpc.linear(&Linear::Shift(table(0)), &share);
    let low = low.into_iter().zip(wanted.low).map(entry).collect::<Result<_>>()?;
    Ok(Looked { low, high, sizes })
}

/// `v = 4 m - 3` with [`ARGUMENT`] fraction bits, for `m = x * scale / 2^bits` in `[1/2, 1)`; bits are dropped in its
/// own mode.
pub(in crate::functions) fn argument<S: ShareTensor>(
    chain: &mut Chain<'_, S>,
    x: impl Into<Sum>,
    scale: impl Into<Sum>,
    bits: u32,
    mode: TruncationMode,
) -> Sum {
    let kept = ARGUMENT + 2;
    let working = chain.mode();
    // Not the working mode: its range ends below 2^62.
    mutant!("normalised argument in the working mode", mode = working);
    chain.set_mode(mode);
    let m = chain.product(x, scale, bits.saturating_sub(kept));
    chain.set_mode(working);
    let up = 1 << kept.saturating_sub(bits);
    Sum::of([(up, m)], (3u64 << ARGUMENT).wrapping_neg())
}
