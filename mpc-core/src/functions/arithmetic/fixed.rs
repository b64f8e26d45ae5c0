//! Fixed-point steps on bare shares, below the checked interface.

use ring_arith::Bilinear;

use crate::functions::arithmetic::no_answer;
use crate::{Chain, Error, Finish, Product, Protocol, Result, SecretTensor, TruncationMode, Value};

/// The truncation mode for intermediate results with many fraction bits. Their last bits do not
/// matter, so it is the cheaper mode unless the user chose another than the default.
pub(in crate::functions) fn working_mode<P: Protocol>(mpc: &P) -> TruncationMode {
    match mpc.truncation() {
        TruncationMode::Default => TruncationMode::Early,
        chosen => chosen,
    }
}

fn finish<B>(drop: u32, mode: TruncationMode) -> Finish<'static, B> {
    match drop {
        0 => Finish::Raw,
        bits => Finish::Truncate { bits, mode },
    }
}

/// A chain whose products drop bits in the working mode.
pub(in crate::functions) fn working_chain<'a, P: Protocol>(mpc: &P) -> Chain<'a, P::Share> {
    Chain::new(working_mode(mpc))
}

/// Runs a chain for one of its values.
pub(in crate::functions) fn run<P: Protocol>(
    mpc: &mut P,
    chain: Chain<'_, P::Share>,
    wanted: Value,
) -> Result<P::Share> {
    mpc.chain(&chain.giving([wanted]))?.pop().ok_or_else(|| no_answer("chain"))
}

/// `x * y / 2^drop` in the mode of results.
pub(in crate::functions) fn product<P: Protocol>(
    mpc: &mut P,
    x: &P::Share,
    y: &P::Share,
    drop: u32,
) -> Result<P::Share> {
    let job = Product::new(Bilinear::Mul, x, y, finish(drop, mpc.truncation()));
    Ok(mpc.product(job)?.share)
}

/// Fewest fraction bits that functions compute with.
pub(in crate::functions) const LEAST: u32 = 8;

/// The operand in a format that a function can work with: fewer than 8 fraction bits are padded
/// without cost, more than `most` are refused.
pub(in crate::functions) fn working<P: Protocol>(
    mpc: &mut P,
    op: &'static str,
    x: &SecretTensor<P>,
    most: u32,
) -> Result<SecretTensor<P>> {
    if x.frac() > most {
        let reason =
            format!("the operand has {} fraction bits, at most {most} work; rescale it", x.frac());
        return Err(Error::Invalid { op, reason });
    }
    crate::functions::rescale(mpc, x, x.frac().max(LEAST))
}

/// The operand with exactly 20 fraction bits; with fewer it must be below 2^42 in magnitude.
pub(in crate::functions) fn at_20<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
) -> Result<SecretTensor<P>> {
    crate::functions::rescale(mpc, x, 20)
}
