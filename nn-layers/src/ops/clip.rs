//! Factors that limit the norms of gradients, whatever words these have.
//!
//! A sensitivity must hold for every input, also for one that was made to break it. A crafted network may take
//! the values of a row out of the range in which arithmetic is right. So nothing here relies on ranges.
//! Operands are *confined* first: any word, moved up and down again by a truncation, comes out below a bound.
//! The same words give the norm and the sum, and the squares of all words below the bound add up to less than
//! `2^62`.

use mpc_core::{
    Finish, Format, Linear, Product, Protocol, SecretTensor, ShareTensor, TruncationMode, functions,
};
use ring_arith::{Bilinear, Shape, View};

use super::only;
use crate::{Error, Result};

/// Fraction bits of a factor.
pub(crate) const FACTOR: u32 = 24;

/// Norms of this and more have the factor 0.
const LARGEST_NORM: f64 = 4096.0;

/// Fraction bits of a pair's norm, and of the square of all.
const NORM: u32 = 12;
const SQUARE: u32 = 32;

/// Fraction bits under which the root of a sum of squares is taken; the root of the word has half as many.
const ROOTED: u32 = 8;

/// Added to the root of a word: it is off by less than two units and `2^-19` of itself.
const ROUNDED: u64 = 3;

/// A tensor, the bits of its words, and the fraction bits that it gets.
pub(crate) type Confined<'a, P> = (&'a SecretTensor<P>, u32, u32);

/// The same numbers with other fraction bits and words of at most `bits` bits; numbers of `2^(bits - 2)` and more as
/// words come out as others within `2^bits`.
///
/// # Cost
/// That of [`Protocol::truncate`], all in the same rounds.
pub(crate) fn confine<P: Protocol>(
    mpc: &mut P,
    jobs: &[Confined<'_, P>],
) -> Result<Vec<SecretTensor<P>>> {
    let mut raised = vec![];
    for &(x, bits, frac) in jobs {
        // A truncation leaves less than 2^(64 - drop) of any word.
        let drop = 64 - bits;
        let up = (drop + frac).checked_sub(x.frac()).filter(|&up| up < 64).ok_or_else(|| {
            Error::invalid("confine", format!("{} fraction bits to {frac}", x.frac()))
        })?;
        raised.push((mpc.combine(&[(1 << up, x.share())], 0)?, drop));
    }
    let words: Vec<_> = raised.iter().map(|(share, drop)| (share, *drop)).collect();
    let shares = mpc.truncate(&words, TruncationMode::Default)?;
    let tensor = |(share, &(_, bits, frac)): (_, &Confined<'_, P>)| {
        SecretTensor::new(share, Format { frac, width: bits + 1 })
    };
    Ok(shares.into_iter().zip(jobs).map(tensor).collect())
}

/// `1 / max(1, norm)` for each unit, with [`FACTOR`] fraction bits; 0 from a norm of [`LARGEST_NORM`] on. The square of
/// the norm is the sum of `|x|^2 |d|^2` over pairs `x`, `[units, k]`, and `d`, `[units, n]`, and of the squares of
/// all other operands, `[units, len]`. All are confined to [`bits_for`] their lengths.
///
/// # Error
/// Times the norm, a factor is below `1 + 2^-10`, for any words: norms are rounded up, by less than `2^-11`
/// of themselves and `2^-9` in all.
///
/// # Cost
/// For each unit: an inner product for each operand, a root for each operand of a pair, an inverse root and two
/// comparisons. In all 62 rounds, and 17.3 kbit a unit with one pair and one other operand.
pub(crate) fn factors<P: Protocol>(
    mpc: &mut P,
    operands: &[SecretTensor<P>],
    pairs: usize,
) -> Result<SecretTensor<P>> {
    let squares = squares(mpc, operands)?;
    let (of_pairs, others) = squares.split_at(2 * pairs);
    let fracs: Vec<_> = operands.iter().map(SecretTensor::frac).collect();
    let norms = norms_of_pairs(mpc, of_pairs, &fracs)?;
    let mut whole = vec![];
    for (square, frac) in others.iter().zip(&fracs[2 * pairs..]) {
        whole.push((square, 2 * frac));
    }
    let whole_parts =
        if whole.is_empty() { vec![] } else { mpc.truncate(&whole, TruncationMode::Default)? };
    // If this is small, every norm is small: all are at least 0.
    let mut sizes: Vec<_> = norms.iter().map(|norm| (1, norm)).collect();
    sizes.extend(whole_parts.iter().map(|part| (1, part)));
    let limit = (LARGEST_NORM * f64::from(NORM).exp2()) as u64;
    let beyond = mpc.combine(&sizes, limit.wrapping_neg())?;
    let fits = functions::is_negative(mpc, &SecretTensor::new(beyond, Format::integer(56)))?;
    let mut terms = vec![];
    let norm_squares = inner(mpc, &norms.iter().map(|norm| (norm, norm)).collect::<Vec<_>>())?;
    terms.extend(norm_squares.iter().map(|square| (1u64 << (SQUARE - 2 * NORM), square)));
    for (square, frac) in others.iter().zip(&fracs[2 * pairs..]) {
        terms.push((1 << (SQUARE - 2 * frac), square));
    }
    let square = mpc.combine(&terms, 0)?;
    let square = times(mpc, &square, fits.share())?;
    let square = SecretTensor::new(square, Format { frac: SQUARE, width: SQUARE + 2 * NORM + 4 });
    let factor = functions::inv_sqrt_to(mpc, &square, FACTOR)?;
    let factor = functions::clamp(mpc, &factor, None, Some(1.0))?;
    let share = times(mpc, factor.share(), fits.share())?;
    let units = Shape::new([share.shape().len()])?;
    let share = mpc.linear(&Linear::View(&View::Reshape(units)), &share)?;
    Ok(SecretTensor::new(share, Format { frac: FACTOR, width: FACTOR + 2 }))
}

/// The bits to which words are confined if `len` of them are squared and added up. With all of them at the
/// largest that a truncation leaves, `0.75 * 2^bits`, the sum is below `2^62`.
pub(crate) fn bits_for(len: usize) -> u32 {
    (62 - len.max(1).next_power_of_two().ilog2()) / 2
}

/// The sum of the squares of each unit's words, `[units, 1]`, with twice as many fraction bits.
fn squares<P: Protocol>(mpc: &mut P, operands: &[SecretTensor<P>]) -> Result<Vec<P::Share>> {
    let jobs: Vec<_> = operands.iter().map(|x| (x.share(), x.share())).collect();
    inner(mpc, &jobs)
}

/// Inner products of rows `[units, n]`, as `[units, 1]`; one round, 192 bits each.
fn inner<P: Protocol>(mpc: &mut P, jobs: &[(&P::Share, &P::Share)]) -> Result<Vec<P::Share>> {
    if jobs.is_empty() {
        return Ok(vec![]);
    }
    let mut rows = vec![];
    for (x, y) in jobs {
        let &[units, len] = x.shape().dims() else {
            return Err(Error::invalid("clip-factor", format!("{:?} has no rows", x.shape())));
        };
        let view = View::Reshape(Shape::new([units, 1, len])?);
        let row = |x: &P::Share| mpc.linear(&Linear::View(&view), x);
        rows.push((row(x)?, row(y)?, Shape::new([units, 1])?));
    }
    let op = Bilinear::MatMul { transpose_lhs: false, transpose_rhs: true };
    let members: Vec<_> =
        rows.iter().map(|(x, y, _)| Product::new(op.clone(), x, y, Finish::Raw)).collect();
    let made = mpc.products(&members)?;
    let flat = |(made, (.., shape)): (mpc_core::ProducedBy<P>, &(_, _, Shape))| {
        Ok(mpc.linear(&Linear::View(&View::Reshape(shape.clone())), &made.share)?)
    };
    made.into_iter().zip(&rows).map(flat).collect()
}

/// An upper bound of the norm of each pair's outer product, `[units, 1]` with [`NORM`] fraction bits; below
/// `2^44` for any words.
fn norms_of_pairs<P: Protocol>(
    mpc: &mut P,
    squares: &[P::Share],
    fracs: &[u32],
) -> Result<Vec<P::Share>> {
    if squares.is_empty() {
        return Ok(vec![]);
    }
    let all = mpc.concat(&squares.iter().collect::<Vec<_>>(), 0)?;
    let roots = functions::sqrt(mpc, &SecretTensor::new(all, Format { frac: ROOTED, width: 63 }))?;
    let roots = functions::rescale(mpc, &roots, ROOTED / 2)?;
    let roots = mpc.combine(&[(1, roots.share())], ROUNDED)?;
    let units = squares[0].shape().len();
    let mut factors = vec![];
    for start in (0..squares.len()).map(|i| i * units) {
        let view = View::Slice { axis: 0, start, end: start + units, step: 1 };
        factors.push(mpc.linear(&Linear::View(&view), &roots)?);
    }
    let mut jobs = vec![];
    for (pair, fracs) in factors.chunks(2).zip(fracs.chunks(2)) {
        // Two roots below 2^30.6 words have a product below 2^61.2.
        let bits = (fracs[0] + fracs[1]).checked_sub(NORM).filter(|&bits| bits > 0);
        let bits = bits.ok_or_else(|| {
            Error::invalid("clip-factor", format!("operands have {fracs:?} fraction bits"))
        })?;
        let finish = Finish::Truncate { bits, mode: TruncationMode::Default };
        jobs.push(Product::new(Bilinear::Mul, &pair[0], &pair[1], finish));
    }
    let made = mpc.products(&jobs)?;
    // The floor is at most one unit too small.
    made.iter().map(|made| Ok(mpc.combine(&[(1, &made.share)], 1)?)).collect()
}

/// The product of words modulo `2^64`; one round.
fn times<P: Protocol>(mpc: &mut P, x: &P::Share, y: &P::Share) -> Result<P::Share> {
    let shape = x.shape().clone();
    let y = functions::broadcast(mpc, &SecretTensor::new(y.clone(), Format::integer(64)), &shape)?;
    let job = Product::new(Bilinear::Mul, x, y.share(), Finish::Raw);
    Ok(only(mpc.products(&[job])?)?.share)
}

#[cfg(test)]
mod tests {
    use mpc_core::{Operand, SplitMix64, TestWorld};
    use net::{Metered, Party, Session, Stats};
    use ring_arith::{CpuEngine, EngineTensor, Tensor};
    use rss_protocols::Rss;

    use super::*;
    use crate::crew::Alone;
    use crate::graph::LinearMap;
    use crate::ops::linear::{self, LinearJob, Map};

    const UNITS: usize = 64;
    const FRACS: [u32; 3] = [14, 16, 16];
    const LENGTHS: [usize; 3] = [40, 9, 25];
    const SUM: u32 = 46;

    type Mpc = Rss<CpuEngine>;

    /// Words of every size, up to those that no arithmetic is right for.
    fn words(draw: &mut SplitMix64, len: usize) -> Tensor {
        let mut all = vec![];
        for unit in 0..UNITS {
            let bits = (unit as u32).max(1);
            all.extend((0..len).map(|_| match unit {
                0 => 0,
                1 => 1 << 63,
                2 => draw.next_u64(),
                _ => draw.signed(bits),
            }));
        }
        Tensor::new(Shape::new([UNITS, len]).unwrap(), all).unwrap()
    }

    /// The words that units add to the sums: of an outer product's factors, of a whole gradient; and the factors.
    fn contributions() -> Vec<Tensor> {
        let program = |mpc: &mut Mpc| {
            let mut draw = SplitMix64::new(1);
            let given = LENGTHS.map(|len| words(&mut draw, len));
            let shapes = given.each_ref().map(|x| x.shape().clone());
            let mine = (mpc.me() == Party(0)).then_some(&given[..]);
            let shares = mpc.input(Party(0), &shapes, mine)?;
            let raw: Vec<_> =
                shares.into_iter().map(|x| SecretTensor::new(x, Format::words(24))).collect();
            let of = |i: usize| (&raw[i], bits_for(LENGTHS[i]), FRACS[i]);
            let confined = confine(mpc, &[of(0), of(1), of(2)]).unwrap();
            let factors = factors(mpc, &confined, 1).unwrap();
            let column = Shape::new([UNITS, 1])?;
            let column = crate::ops::reshape(mpc, &factors, &column).unwrap();
            let weight = Operand::Secret(column);
            let delta = Operand::Secret(confined[1].clone());
            let map = Map { map: &LinearMap::Mul, x: &delta, weight: &weight };
            let job = LinearJob::new(vec![map], SUM - FRACS[0]);
            let scaled = linear::run(mpc, &mut Alone, &[job]).unwrap().remove(0).value;
            let shares = [&confined[0], &scaled, &confined[2], &factors].map(SecretTensor::share);
            mpc.open(&shares)
        };
        let party = |session| Rss::new(session, CpuEngine::new(1));
        TestWorld::new(3).run(party, program).remove(0)
    }

    fn norm(words: &Tensor, unit: usize, frac: u32) -> f64 {
        let len = words.words().len() / UNITS;
        let row = &words.words()[unit * len..][..len];
        row.iter().map(|&w| (w as i64 as f64).powi(2)).sum::<f64>().sqrt()
            * (-f64::from(frac)).exp2()
    }

    #[test]
    fn factors_cost_what_is_stated() {
        let program = |mut session: Session| {
            let metered = Metered::new(session.transport);
            let meter = metered.meter();
            session.transport = Box::new(metered);
            let mut mpc = Rss::new(session, CpuEngine::new(1))?;
            let x = mpc.constant(&Tensor::new(Shape::new([UNITS, 40])?, vec![1; 40 * UNITS])?)?;
            let x = SecretTensor::<Mpc>::new(x, Format { frac: 14, width: 26 });
            meter.reset();
            let operands = [x.clone(), x.clone(), x];
            let factors = factors(&mut mpc, &operands, 1).unwrap();
            assert_eq!(factors.shape().len(), UNITS);
            Ok(meter.stats())
        };
        let stats = TestWorld::new(3).try_sessions(program);
        let stats: Vec<Stats> = stats.into_iter().map(|stats| stats.unwrap()).collect();
        let bits = 8 * stats.iter().map(Stats::bytes_sent).sum::<u64>() / UNITS as u64;
        assert_eq!((net::Report::of(&stats).rounds, bits), (62, 17_253));
    }

    #[test]
    fn no_unit_adds_more_than_the_limit_whatever_its_words_are() {
        let opened = contributions();
        let mut clipped = 0;
        let mut dropped = 0;
        for unit in 0..UNITS {
            let factor = opened[3].words()[unit] as i64 as f64 * (-f64::from(FACTOR)).exp2();
            let outer = norm(&opened[0], unit, FRACS[0]) * norm(&opened[1], unit, SUM - FRACS[0]);
            let whole = norm(&opened[2], unit, FRACS[2]) * factor;
            let added = outer.hypot(whole);
            assert!(added <= 128.0 / 127.0, "unit {unit} adds {added}");
            assert!((0.0..=1.0).contains(&factor), "unit {unit} has factor {factor}");
            clipped += usize::from(added > 0.98);
            dropped += usize::from(factor == 0.0);
        }
        assert!(clipped >= 5, "{clipped} units are at the limit");
        assert!(dropped >= 8, "{dropped} units are beyond the range");
    }

    #[test]
    fn factors_follow_the_norms_where_these_are_in_range() {
        let opened = contributions();
        let mut followed = 0;
        for unit in 3..UNITS {
            let factor = opened[3].words()[unit] as i64 as f64 * (-f64::from(FACTOR)).exp2();
            if factor == 0.0 {
                continue;
            }
            // The scaled factor of the pair was multiplied by the factor already.
            let outer = norm(&opened[0], unit, FRACS[0]) * norm(&opened[1], unit, SUM - FRACS[0]);
            let full = (outer / factor).hypot(norm(&opened[2], unit, FRACS[2]));
            let expected = 1.0 / full.max(1.0);
            let close = (factor / expected - 1.0).abs() < 1.0 / 256.0;
            assert!(close, "unit {unit} of norm {full} has factor {factor}, not {expected}");
            followed += 1;
        }
        assert!(followed >= 20, "{followed} units");
    }
}
