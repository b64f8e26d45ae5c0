//! Sums, differences, and products with public numbers.

pub(super) mod bitwise;
pub(super) mod dot;
pub(super) mod fixed;
pub(super) mod multiply;
pub(super) mod poly;
pub(super) mod power;

use crate::functions::{shape::broadcast, values::secret};
use crate::{
    Arg, Error, Format, Linear, MOST_DROPPED, Protocol, Result, SecretTensor, TruncationMode,
    tensor::same_frac,
};

/// `x + y`, broadcast. Nothing is sent.
///
/// # Errors
/// [`Error::FracBits`] or [`ring_arith::Error::Shapes`] if the operands do not fit together. The same
/// holds for every function of two operands.
pub fn add<'a, P: Protocol>(
    mpc: &P,
    x: impl Into<Arg<'a, P>>,
    y: impl Into<Arg<'a, P>>,
) -> Result<SecretTensor<P>> {
    sum_of("add", mpc, x.into(), y.into(), false)
}

/// `x - y`, broadcast. Nothing is sent.
///
/// # Errors
/// As [`add`].
pub fn sub<'a, P: Protocol>(
    mpc: &P,
    x: impl Into<Arg<'a, P>>,
    y: impl Into<Arg<'a, P>>,
) -> Result<SecretTensor<P>> {
    sum_of("sub", mpc, x.into(), y.into(), true)
}

fn sum_of<P: Protocol>(
    op: &'static str,
    mpc: &P,
    x: Arg<'_, P>,
    y: Arg<'_, P>,
    negate: bool,
) -> Result<SecretTensor<P>> {
    let frac = same_frac(op, x.frac(), y.frac())?;
    let shape = x.shape().broadcast(y.shape(), op)?;
    let width = x.width().max(y.width()) + 1;
    mutant!("sum of two: a bit too narrow", width = width - 1);
    let share = match (x, y) {
        (Arg::Secret(x), Arg::Public(y)) if !negate && y.shape() == &shape => {
            let x = broadcast(mpc, x, &shape)?;
            mpc.linear(&Linear::AddPublic(y.words()), x.share())?
        }
        _ => {
            let x = broadcast(mpc, &secret(mpc, x)?, &shape)?;
            let y = broadcast(mpc, &secret(mpc, y)?, &shape)?;
            match negate {
                true => mpc.sub(x.share(), y.share())?,
                false => mpc.add(x.share(), y.share())?,
            }
        }
    };
    Ok(SecretTensor::new(share, Format { frac, width }))
}

/// `-x`. Nothing is sent.
///
/// # Errors
/// [`Error::Ring`] if the engine failed.
pub fn neg<P: Protocol>(mpc: &P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let share = mpc.linear(&Linear::Negate, x.share())?;
    Ok(SecretTensor::new(share, x.format()))
}

/// `x + c`. Nothing is sent.
///
/// # Errors
/// [`Error::Invalid`] if `c` cannot be encoded in the tensor's fraction bits.
pub fn add_scalar<P: Protocol>(mpc: &P, x: &SecretTensor<P>, c: f64) -> Result<SecretTensor<P>> {
    let word = encode_scalar("add", c, x.frac())?;
    let share = mpc.linear(&Linear::Shift(word as u64), x.share())?;
    let width = x.width().max(signed_width(word)) + 1;
    Ok(SecretTensor::new(share, x.format().with_width(width)))
}

/// `x * c`. Nothing is sent if `c` is an integer; else the product is truncated.
///
/// # Domain and error
/// All `x` whose product has an encoding. The factor's relative error is below `2^-19`, and 0 for few binary
/// digits; one unit in the last place, two where `x` has a [width](SecretTensor::width) above 44.
///
/// # Cost
/// Two rounds and `64 + 3t` bits for each element in all with replicated sharing, `t` being the bits that are
/// dropped, about 20 and a bit for each halving. The two parts of words too large to be multiplied at
/// once are truncated by themselves: three times as many bits, two rounds more.
///
/// # Errors
/// [`Error::Invalid`] if `c` is not finite or too large.
pub fn mul_scalar<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    c: f64,
) -> Result<SecretTensor<P>> {
    mul_scalar_to(mpc, x, c, x.frac())
}

/// `x * c` with `frac` fraction bits, whatever the operand has. As [`mul_scalar`].
///
/// # Cost
/// As [`mul_scalar`].
///
/// # Errors
/// As [`mul_scalar`].
pub fn mul_scalar_to<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    c: f64,
    frac: u32,
) -> Result<SecretTensor<P>> {
    let factor = c * 2f64.powi(frac as i32 - x.frac() as i32);
    let size = x.width().min(63) - 1;
    let share = match Factor::new(factor, size)? {
        Factor::Whole(word) => {
            let share = mpc.linear(&Linear::Scale(word as u64), x.share())?;
            // The bits of the least power of two that is no smaller.
            let more = u64::BITS - (word.unsigned_abs().max(1) - 1).leading_zeros();
            return Ok(SecretTensor::new(
                share,
                Format { frac, width: (x.width() + more).min(64) },
            ));
        }
        Factor::Narrow { word, drop } => {
            let raw = mpc.linear(&Linear::Scale(word as u64), x.share())?;
            truncated(mpc, &[(&raw, drop)])?.remove(0)
        }
        Factor::Wide { word, drop, cut } => in_two_parts(mpc, x.share(), word, drop, cut)?,
    };
    let largest = 2f64.powi(size as i32) * factor.abs() * (1.0 + 2f64.powi(-18)) + 2.0;
    Ok(SecretTensor::new(share, Format { frac, width: (largest.log2() as u32 + 2).min(64) }))
}

/// The integer factors that multiply words by a real number.
#[derive(Debug, PartialEq)]
enum Factor {
    /// By an integer.
    Whole(i64),
    /// By an integer over `2^drop`.
    Narrow { word: i64, drop: u32 },
    /// The same for words with which the integer does not fit: their bits from `cut` on and those below are
    /// multiplied apart.
    Wide { word: i64, drop: u32, cut: u32 },
}

impl Factor {
    /// Bits of a factor that is rounded: as many as fit where it is narrow, but not fewer than these.
    const LEAST: u32 = 19;
    /// And at most these, which a wide one has.
    const MOST: u32 = 24;

    /// For words below `2^size`.
    fn new(factor: f64, size: u32) -> Result<Self> {
        let most = Self::MOST;
        mutant!("mul_scalar: fourteen bits of a factor", most = 14);
        if factor.fract() == 0.0 || factor.abs() >= 2f64.powi(Self::MOST as i32) {
            return encode_scalar("mul", factor, 0).map(Self::Whole);
        }
        // The fraction bits that give a word this many bits.
        let bits = |digits: u32| digits as i32 - 1 - factor.abs().log2().floor() as i32;
        let room = 62 - size.min(62);
        let exact = (1..=MOST_DROPPED).find(|&b| (factor * 2f64.powi(b as i32)).fract() == 0.0);
        let fits = |drop: &u32| (factor * 2f64.powi(*drop as i32)).abs() <= 2f64.powi(room as i32);
        let drop = match exact.filter(fits) {
            Some(drop) => drop as i32,
            None if room >= Self::LEAST => bits(room.min(most)),
            None => bits(most),
        };
        let drop = drop.clamp(1, MOST_DROPPED as i32) as u32;
        let word = encode_scalar("mul", factor, drop)?;
        Ok(if fits(&drop) {
            Self::Narrow { word, drop }
        } else {
            Self::Wide { word, drop, cut: size - (61 - Self::MOST) }
        })
    }
}

/// `x * word / 2^drop`, the bits from `cut` on and those below apart.
fn in_two_parts<P: Protocol>(
    mpc: &mut P,
    x: &P::Share,
    word: i64,
    drop: u32,
    cut: u32,
) -> Result<P::Share> {
    let high = truncated(mpc, &[(x, cut)])?.remove(0);
    let low = mpc.combine(&[(1, x), ((1u64 << cut).wrapping_neg(), &high)], 0)?;
    let low = mpc.linear(&Linear::Scale(word as u64), &low)?;
    if drop > cut {
        let high = mpc.linear(&Linear::Scale(word as u64), &high)?;
        let parts = truncated(mpc, &[(&high, drop - cut), (&low, drop)])?;
        return mpc.add(&parts[0], &parts[1]);
    }
    let high = mpc.linear(&Linear::Scale((word as u64) << (cut - drop)), &high)?;
    let low = truncated(mpc, &[(&low, drop)])?.remove(0);
    mpc.add(&high, &low)
}

/// Truncations in the protocol's mode; as many answers as jobs.
pub(in crate::functions) fn truncated<P: Protocol>(
    mpc: &mut P,
    jobs: &[(&P::Share, u32)],
) -> Result<Vec<P::Share>> {
    let mode = mpc.truncation();
    let shares = mpc.truncate(jobs, mode)?;
    if shares.len() == jobs.len() { Ok(shares) } else { Err(no_answer("truncate")) }
}

/// `x / c` for a public `c`, with the error of [`mul_scalar`]; dividing by a power of two loses only
/// the bits that it drops.
///
/// # Cost
/// As [`mul_scalar`].
///
/// # Errors
/// [`Error::Invalid`] if `c` is 0, not finite or too small.
pub fn div_scalar<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    c: f64,
) -> Result<SecretTensor<P>> {
    mul_scalar(mpc, x, 1.0 / c)
}

/// The integer nearest to `c * 2^frac`, below 2^62.
pub(in crate::functions) fn encode_scalar(op: &'static str, c: f64, frac: u32) -> Result<i64> {
    let scaled = (c * 2f64.powi(frac as i32)).round_ties_even();
    if scaled.abs() < 2f64.powi(62) {
        return Ok(scaled as i64);
    }
    let reason = format!("the number {c} does not fit {frac} fraction bits");
    Err(Error::Invalid { op, reason })
}

/// Width of one word.
pub(in crate::functions) fn signed_width(word: i64) -> u32 {
    65 - word.unsigned_abs().leading_zeros()
}

/// Most bits that may be appended: of 62, some must be left for the number.
const MOST_PADDED: u32 = 40;

/// The same numbers with other fraction bits. More bits cost nothing; fewer are a truncation.
///
/// # Domain and error
/// Numbers that fit the new format, `|x| < 2^(62 - frac)`; with fewer bits one unit in the last place.
///
/// # Cost
/// Two rounds and 60 bits for each element in all with replicated sharing at 20 dropped bits, in the
/// protocol's default mode.
///
/// # Errors
/// [`Error::Overflow`] if more bits do not fit.
pub fn rescale<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    frac: u32,
) -> Result<SecretTensor<P>> {
    if frac >= x.frac() {
        let up = frac - x.frac();
        if up == 0 {
            return Ok(x.clone());
        }
        if up > MOST_PADDED {
            return Err(Error::Overflow { op: "rescale", bits: 22 + up, limit: 62 });
        }
        let share = mpc.linear(&Linear::Scale(1 << up), x.share())?;
        return Ok(SecretTensor::new(share, Format { frac, width: x.width() + up }));
    }
    let drop = x.frac() - frac;
    let share = truncated(mpc, &[(x.share(), drop)])?.remove(0);
    Ok(SecretTensor::new(share, Format { frac, width: dropped(x.width(), drop) }))
}

/// The whole part, rounded down, as an integer.
///
/// # Domain and error
/// Exact.
///
/// # Cost
/// An exact truncation: 5 rounds and 361 bits for each element in all with replicated sharing at 20 dropped
/// bits; none if there are no fraction bits.
///
/// # Errors
/// [`Error::Net`] if a peer failed.
pub fn floor<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    whole_part(mpc, x, x.frac())
}

/// Words divided by `2^bits` and rounded down, as integers.
pub(in crate::functions) fn whole_part<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    bits: u32,
) -> Result<SecretTensor<P>> {
    if bits == 0 {
        return Ok(x.clone());
    }
    let floors = mpc.truncate(&[(x.share(), bits)], TruncationMode::Exact)?;
    let share = floors.into_iter().next().ok_or_else(|| no_answer("truncate"))?;
    Ok(SecretTensor::new(share, Format::integer(dropped(x.width(), bits))))
}

/// Width of `word / 2^drop`, rounded either way, for words of the given width below 2^62.
pub(in crate::functions) fn dropped(width: u32, drop: u32) -> u32 {
    let rounded = width.min(63) + 1;
    mutant!("truncated: a bit too narrow", rounded = rounded - 1);
    rounded.saturating_sub(drop).max(2)
}

/// A protocol that breaks its contract.
pub(in crate::functions) fn no_answer(op: &'static str) -> Error {
    Error::unanswered(op)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_have_the_digits_that_fit_beside_the_words() -> Result<()> {
        // Powers of two and small dyadic numbers are exact whatever the words.
        assert_eq!(Factor::new(0.25, 62)?, Factor::Narrow { word: 1, drop: 2 });
        assert_eq!(Factor::new(-1.5, 60)?, Factor::Narrow { word: -3, drop: 1 });
        assert_eq!(Factor::new(-3.0, 62)?, Factor::Whole(-3));
        assert_eq!(Factor::new(1e9 + 0.5, 20)?, Factor::Whole(1_000_000_000));
        let Factor::Narrow { word, .. } = Factor::new(1.0 / 3.0, 43)? else { panic!("it fits") };
        assert!((1 << 18..1 << 19).contains(&word), "{word} times 2^43 is below 2^62");
        let Factor::Wide { word, cut, .. } = Factor::new(1.0 / 3.0, 44)? else {
            panic!("too wide")
        };
        assert!(word < 1 << 24 && cut == 7);
        assert!(Factor::new(2f64.powi(62), 1).is_err());
        assert!(Factor::new(f64::NAN, 1).is_err());
        Ok(())
    }
}
