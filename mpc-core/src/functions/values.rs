//! Between numbers and secrets: encoding, sharing, revealing.

use net::Party;
use ring_arith::{Engine, EngineTensor, FixedPoint, FracBits, Shape, Tensor};

use crate::{Arg, Error, Format, Protocol, PublicTensor, Result, SecretTensor, Words};

/// The width that the encoding guarantees: `|word| < 2^62`.
const ENCODED_WIDTH: u32 = 63;

/// Encodes real numbers as a public tensor.
///
/// # Cost
/// None: the numbers are public, nothing is sent.
///
/// # Errors
/// [`ring_arith::Error::OutOfRange`], naming the index, for NaN, infinities and numbers that do not
/// fit; [`ring_arith::Error::Invalid`] if the number of values differs from the shape's number of
/// elements.
pub fn encode<P: Protocol>(
    mpc: &P,
    shape: &Shape,
    values: &[f64],
    frac: FracBits,
) -> Result<PublicTensor<P>> {
    public(mpc, shape, FixedPoint(frac).encode(values)?, frac.bits())
}

/// Encodes integers as a public tensor without fraction bits.
///
/// # Cost
/// None: the numbers are public, nothing is sent.
///
/// # Errors
/// [`Error::Invalid`] for an integer of 2^62 or more in magnitude.
pub fn encode_integers<P: Protocol>(
    mpc: &P,
    shape: &Shape,
    values: &[i64],
) -> Result<PublicTensor<P>> {
    if let Some(i) = values.iter().position(|v| v.unsigned_abs() >= 1 << 62) {
        let reason = format!("element {i} is {}, not below 2^62 in magnitude", values[i]);
        return Err(Error::Invalid { op: "encode", reason });
    }
    public(mpc, shape, values.iter().map(|&v| v as u64).collect(), 0)
}

fn public<P: Protocol>(
    mpc: &P,
    shape: &Shape,
    words: Vec<u64>,
    frac: u32,
) -> Result<PublicTensor<P>> {
    let largest = words.iter().map(|&w| (w as i64).unsigned_abs()).max().unwrap_or(0);
    let width = 65 - largest.leading_zeros();
    let words = mpc.engine().upload(Tensor::new(shape.clone(), words)?)?;
    Ok(PublicTensor::new(words, frac).with_width(width))
}

/// The numbers of a public tensor, in row-major order.
///
/// # Cost
/// None: the numbers are public, nothing is sent.
///
/// # Errors
/// [`ring_arith::Error::Device`] if the engine failed.
pub fn decode<P: Protocol>(mpc: &P, x: &PublicTensor<P>) -> Result<Vec<f64>> {
    decode_words(mpc, x.words(), x.frac())
}

fn decode_words<P: Protocol>(mpc: &P, words: &Words<P>, frac: u32) -> Result<Vec<f64>> {
    let host = mpc.engine().download(words)?;
    Ok(match FracBits::new(frac) {
        Ok(frac) => FixedPoint(frac).decode(host.words()),
        Err(_) => {
            let unit = 2f64.powi(-(frac as i32));
            host.words().iter().map(|&w| w as i64 as f64 * unit).collect()
        }
    })
}

/// Shares a tensor of numbers that `owner` holds: the owner passes them, the others `None`.
///
/// # Cost
/// One round; 64 bits for each element in all with replicated sharing.
///
/// # Errors
/// As [`encode`], at the owner alone: the others learn of it when the owner leaves the session.
pub fn input<P: Protocol>(
    mpc: &mut P,
    owner: Party,
    shape: &Shape,
    values: Option<&[f64]>,
    frac: FracBits,
) -> Result<SecretTensor<P>> {
    let values: Option<Vec<&[f64]>> = values.map(|v| vec![v]);
    let mut shared = inputs(mpc, owner, std::slice::from_ref(shape), values.as_deref(), frac)?;
    shared.pop().ok_or_else(|| missing("input"))
}

/// [`input`] of several tensors in one round.
///
/// # Cost
/// As [`input`], all in the same rounds.
///
/// # Errors
/// As [`input`].
pub fn inputs<P: Protocol>(
    mpc: &mut P,
    owner: Party,
    shapes: &[Shape],
    values: Option<&[&[f64]]>,
    frac: FracBits,
) -> Result<Vec<SecretTensor<P>>> {
    let words = match values {
        None => None,
        Some(values) if values.len() != shapes.len() => {
            let reason = format!("{} tensors for {} shapes", values.len(), shapes.len());
            return Err(Error::Invalid { op: "input", reason });
        }
        Some(values) => {
            let one = |(shape, values): (&Shape, &&[f64])| -> Result<Words<P>> {
                Ok(encode(mpc, shape, values, frac)?.words().clone())
            };
            Some(shapes.iter().zip(values).map(one).collect::<Result<Vec<_>>>()?)
        }
    };
    let shares = mpc.input(owner, shapes, words.as_deref())?;
    let secret =
        |share| SecretTensor::new(share, Format { frac: frac.bits(), width: ENCODED_WIDTH });
    Ok(shares.into_iter().map(secret).collect())
}

/// A secret tensor of public numbers.
///
/// # Cost
/// None: nothing is sent.
///
/// # Errors
/// [`ring_arith::Error::Device`] if the engine failed.
pub fn constant<P: Protocol>(mpc: &P, x: &PublicTensor<P>) -> Result<SecretTensor<P>> {
    Ok(SecretTensor::new(mpc.constant(x.words())?, x.format()))
}

/// A secret operand unchanged, a public one as a constant.
pub(super) fn secret<P: Protocol>(mpc: &P, x: Arg<'_, P>) -> Result<SecretTensor<P>> {
    match x {
        Arg::Secret(x) => Ok(x.clone()),
        Arg::Public(x) => constant(mpc, x),
    }
}

/// Shows a tensor's numbers to every party.
///
/// # Cost
/// One round; 192 bits for each element in all with replicated sharing.
///
/// # Errors
/// [`Error::Net`] if a peer failed.
pub fn reveal<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<Vec<f64>> {
    reveal_all(mpc, &[x])?.pop().ok_or_else(|| missing("reveal"))
}

/// [`reveal`] of several tensors in one round.
///
/// # Cost
/// As [`reveal`], all in the same rounds.
///
/// # Errors
/// As [`reveal`].
pub fn reveal_all<P: Protocol>(mpc: &mut P, xs: &[&SecretTensor<P>]) -> Result<Vec<Vec<f64>>> {
    let shares: Vec<_> = xs.iter().map(|x| x.share()).collect();
    let opened = mpc.open(&shares)?;
    opened.iter().zip(xs).map(|(words, x)| decode_words(mpc, words, x.frac())).collect()
}

/// Shows a tensor's numbers to one party; the others get `None`.
///
/// # Cost
/// One round; 64 bits for each element in all with replicated sharing.
///
/// # Errors
/// As [`reveal`].
pub fn reveal_to<P: Protocol>(
    mpc: &mut P,
    to: Party,
    x: &SecretTensor<P>,
) -> Result<Option<Vec<f64>>> {
    let Some(words) = mpc.open_to(to, &[x.share()])? else { return Ok(None) };
    let words = words.first().ok_or_else(|| missing("reveal"))?;
    debug_assert_eq!(words.shape(), x.shape());
    decode_words(mpc, words, x.frac()).map(Some)
}

fn missing(op: &'static str) -> Error {
    Error::Invalid { op, reason: "the protocol answered with fewer tensors than asked for".into() }
}
