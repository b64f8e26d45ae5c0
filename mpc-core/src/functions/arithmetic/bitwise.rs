//! The bits of secret integers: and, or, exclusive or, shifts.

use ring_arith::{BitTensor, Engine, Shape};

use crate::functions::arithmetic::{multiply::spread, no_answer, signed_width, whole_part};
use crate::{
    Arg, Error, Format, Linear, MOST_DROPPED, Operand, Protocol, Result, SecretTensor,
    tensor::same_frac,
};

/// A function of two integers, bit by bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bitwise {
    /// Bits that both have.
    And,
    /// Bits that at least one has.
    Or,
    /// Bits that one of them has.
    Xor,
}

/// `x & y`, `x | y` or `x ^ y` of integers in two's complement, broadcast.
///
/// # Domain and error
/// Exact.
///
/// # Cost
/// The bits of the secret operands, a round for `&` and `|`, and the way back to words. It grows with the
/// [width](SecretTensor::with_width), so state it; `&` with a public number from 0 on needs no more bits than that has.
/// With replicated sharing at width 44: 11 rounds and 4466 bits for each element in all for two secrets.
///
/// # Errors
/// [`Error::FracBits`] if an operand is not an integer, [`ring_arith::Error::Shapes`] if they do not broadcast.
pub fn bitwise<'a, P: Protocol>(
    mpc: &mut P,
    op: Bitwise,
    x: impl Into<Arg<'a, P>>,
    y: impl Into<Arg<'a, P>>,
) -> Result<SecretTensor<P>> {
    let (x, y) = (x.into(), y.into());
    for operand in [x, y] {
        same_frac("bitwise", operand.frac(), 0)?;
    }
    let shape = x.shape().broadcast(y.shape(), "bitwise")?;
    let [own, other] = [known_width(mpc, x)?, known_width(mpc, y)?];
    let width = match (op, own, other) {
        // Above its own bits such a number has zeros alone.
        (Bitwise::And, Known { width, negative: false, public: true }, _)
        | (Bitwise::And, _, Known { width, negative: false, public: true }) => width,
        _ => own.width.max(other.width),
    };
    let [x, y] = [bits(mpc, x, &shape, width)?, bits(mpc, y, &shape, width)?];
    let secrets: Vec<_> = [&x, &y].into_iter().filter_map(Planes::secret).collect();
    let jobs: Vec<_> = secrets.iter().map(|x| (x.share(), width)).collect();
    let mut made = if jobs.is_empty() { vec![] } else { mpc.to_bits(&jobs)? }.into_iter();
    let mut planes = |planes: Planes<P>| match planes {
        Planes::Public(bits) => Ok(bits),
        Planes::Secret(_) => made.next().ok_or_else(|| no_answer("to_bits")),
    };
    let [x, y] = [planes(x)?, planes(y)?];
    let either = mpc.xor(&x, &y)?;
    let result = match op {
        Bitwise::Xor => either,
        Bitwise::And | Bitwise::Or => {
            let both = mpc.and(&[(&x, &y)])?.pop().ok_or_else(|| no_answer("and"))?;
            if op == Bitwise::And { both } else { mpc.xor(&either, &both)? }
        }
    };
    // The uppermost bit is the sign.
    let sign = width - 1;
    let weights: Vec<u64> = (0..width)
        .map(|bit| if bit == sign { (1u64 << bit).wrapping_neg() } else { 1 << bit })
        .collect();
    let words = mpc.bit_sums(&[(&result, &[&weights])])?.pop().and_then(|mut words| words.pop());
    Ok(SecretTensor::new(words.ok_or_else(|| no_answer("bit_sums"))?, Format::integer(width)))
}

/// `x / 2^bits`, rounded down: the bits of an integer moved down, its sign kept.
///
/// # Domain and error
/// Exact, for words below 2^62 in magnitude.
///
/// # Cost
/// An exact truncation: 5 rounds and 361 bits for each element in all with replicated sharing at 20 bits; none for 0.
///
/// # Errors
/// [`Error::FracBits`] if `x` is not an integer, [`Error::Invalid`] for more than [`MOST_DROPPED`] bits.
pub fn shift_right<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    bits: u32,
) -> Result<SecretTensor<P>> {
    same_frac("shift_right", x.frac(), 0)?;
    if bits > MOST_DROPPED {
        let reason = format!("{bits} bits; at most {MOST_DROPPED} can be dropped");
        return Err(Error::Invalid { op: "shift_right", reason });
    }
    whole_part(mpc, x, bits)
}

/// `x * 2^bits` of an integer. Nothing is sent.
///
/// # Domain and error
/// Exact, for results below 2^62 in magnitude.
///
/// # Errors
/// [`Error::FracBits`] if `x` is not an integer, [`Error::Overflow`] if the bits leave a word for any `x` but 0.
pub fn shift_left<P: Protocol>(mpc: &P, x: &SecretTensor<P>, bits: u32) -> Result<SecretTensor<P>> {
    same_frac("shift_left", x.frac(), 0)?;
    if bits >= 62 {
        return Err(Error::Overflow { op: "shift_left", bits, limit: 62 });
    }
    let share = mpc.linear(&Linear::Scale(1 << bits), x.share())?;
    Ok(SecretTensor::new(share, Format::integer((x.width() + bits).min(64))))
}

/// The bits that every party knows of an operand.
#[derive(Clone, Copy)]
struct Known {
    width: u32,
    negative: bool,
    public: bool,
}

fn known_width<P: Protocol>(mpc: &P, x: Arg<'_, P>) -> Result<Known> {
    let Arg::Public(x) = x else {
        return Ok(Known { width: x.width(), negative: true, public: false });
    };
    let words = mpc.engine().download(x.words())?;
    let width = words.words().iter().map(|&word| signed_width(word as i64)).max().unwrap_or(1);
    let negative = words.words().iter().any(|&word| (word as i64) < 0);
    Ok(Known { width: width.min(64), negative, public: true })
}

/// An operand in the result's shape: words whose bits are still to be made, or public bits.
enum Planes<P: Protocol> {
    Secret(SecretTensor<P>),
    Public(P::Bits),
}

impl<P: Protocol> Planes<P> {
    fn secret(&self) -> Option<&SecretTensor<P>> {
        match self {
            Self::Secret(x) => Some(x),
            Self::Public(_) => None,
        }
    }
}

fn bits<P: Protocol>(mpc: &P, x: Arg<'_, P>, shape: &Shape, width: u32) -> Result<Planes<P>> {
    let x = match spread(mpc, x, shape)? {
        Operand::Secret(x) => return Ok(Planes::Secret(x)),
        Operand::Public(x) => x,
    };
    let planes = mpc.engine().to_planes(x.words(), 0, width)?;
    Ok(Planes::Public(mpc.constant_bits(&BitTensor::new(x.shape().clone(), planes)?)?))
}
