//! Linear layers: product, bias, residual, truncation and ReLU in one call to the protocol.

use mpc_core::{
    Finish, Linear, Operand, Product, Protocol, SecretTensor, ShareTensor, TruncationMode,
};
use ring_arith::{Bilinear, Shape, View};

use super::{broadcast, elementwise, frac_of, only, secret, shape_of};
use crate::graph::infer::transposed_size;
use crate::graph::{LinearFinish, LinearMap};
use crate::{Error, Result};

/// One linear layer to run.
pub(crate) struct LinearJob<'a, P: Protocol> {
    pub map: &'a LinearMap,
    pub x: &'a Operand<P>,
    pub weight: &'a Operand<P>,
    pub bias: Option<&'a Operand<P>>,
    pub residual: Option<&'a SecretTensor<P>>,
    pub finish: LinearFinish,
    /// Fraction bits of the result, unless it stays raw.
    pub frac: u32,
}

/// A layer whose operands have the form that the protocol takes.
struct Prepared<P: Protocol> {
    op: Bilinear,
    x: P::Share,
    weight: P::Share,
    summands: Vec<(P::Share, u32)>,
    frac: u32,
}

/// Runs layers that end alike; those with secret operands share all rounds.
///
/// # Cost
/// That of [`Protocol::products`] with the given finish; with a public weight or a public value
/// the product itself costs nothing.
pub(crate) fn run<P: Protocol>(
    mpc: &mut P,
    jobs: &[LinearJob<'_, P>],
) -> Result<Vec<SecretTensor<P>>> {
    let mut results: Vec<Option<SecretTensor<P>>> = vec![];
    let (mut together, mut prepared) = (vec![], vec![]);
    for (i, job) in jobs.iter().enumerate() {
        let both = matches!((job.x, job.weight), (Operand::Secret(_), Operand::Secret(_)));
        results.push(if both { None } else { Some(half_public(mpc, job)?) });
        if both {
            together.push(i);
            prepared.push(prepare(mpc, job)?);
        }
    }
    let products: Vec<_> = prepared
        .iter()
        .zip(&together)
        .map(|(p, &i)| {
            let summands = p.summands.iter().map(|(s, shift)| (s, *shift)).collect();
            let finish = finish(&jobs[i], p.frac)?;
            Ok(Product { summands, ..Product::new(p.op.clone(), &p.x, &p.weight, finish) })
        })
        .collect::<Result<_>>()?;
    let shares = if products.is_empty() { vec![] } else { mpc.products(&products)? };
    drop(products);
    for ((share, p), &i) in shares.into_iter().zip(&prepared).zip(&together) {
        results[i] = Some(settle(mpc, &jobs[i], share.share, p.frac)?);
    }
    drop(prepared);
    let missing = || Error::invalid("linear", "the protocol left a product unanswered");
    results.into_iter().map(|r| r.ok_or_else(missing)).collect()
}

/// Brings operands into shape; local.
fn prepare<P: Protocol>(mpc: &mut P, job: &LinearJob<'_, P>) -> Result<Prepared<P>> {
    let (x, weight) = (secret(mpc, job.x)?, secret(mpc, job.weight)?);
    let op = bilinear(job.map, x.shape())?;
    let weight = match job.map {
        LinearMap::Mul => broadcast(mpc, &weight, x.shape())?,
        _ => weight,
    };
    let frac = x.frac() + weight.frac();
    let summands = summands(mpc, job, frac)?;
    Ok(Prepared { op, x: x.share().clone(), weight: weight.share().clone(), summands, frac })
}

/// Bias and residual, each with the bits it is shifted up by; local.
fn summands<P: Protocol>(
    mpc: &mut P,
    job: &LinearJob<'_, P>,
    frac: u32,
) -> Result<Vec<(P::Share, u32)>> {
    let bias = job.bias.map(|b| secret(mpc, b)).transpose()?;
    let shifted = |x: &SecretTensor<P>| match frac.checked_sub(x.frac()) {
        Some(shift) => Ok((x.share().clone(), shift)),
        None => {
            let reason = format!("{} fraction bits are added to {frac}", x.frac());
            Err(Error::invalid("linear", reason))
        }
    };
    bias.iter().chain(job.residual).map(shifted).collect()
}

/// What follows the product of `frac` fraction bits.
fn finish<P: Protocol>(job: &LinearJob<'_, P>, frac: u32) -> Result<Finish<'static, P::Bits>> {
    if job.finish == LinearFinish::Raw {
        return Ok(Finish::Raw);
    }
    let below =
        || Error::invalid("linear", format!("{frac} fraction bits, {} are needed", job.frac));
    Ok(match (frac.checked_sub(job.frac).ok_or_else(below)?, job.finish) {
        (0, _) => Finish::Raw,
        (bits, LinearFinish::Relu) => {
            Finish::TruncateRelu { bits, mode: TruncationMode::Early, keep: false }
        }
        (bits, _) => Finish::Truncate { bits, mode: TruncationMode::Default },
    })
}

/// Gives a result its format; a layer that had nothing to truncate is rectified here.
fn settle<P: Protocol>(
    mpc: &mut P,
    job: &LinearJob<'_, P>,
    share: P::Share,
    frac: u32,
) -> Result<SecretTensor<P>> {
    if job.finish == LinearFinish::Raw {
        return Ok(SecretTensor::new(share, frac, 64));
    }
    let bits = frac - job.frac;
    let y = SecretTensor::new(share, job.frac, 64 - bits);
    if bits == 0 && job.finish == LinearFinish::Relu { elementwise::relu(mpc, &y) } else { Ok(y) }
}

/// A layer with a public operand: the product is local.
fn half_public<P: Protocol>(mpc: &mut P, job: &LinearJob<'_, P>) -> Result<SecretTensor<P>> {
    let x_shape = shape_of(job.x).clone();
    let op = bilinear(job.map, &x_shape)?;
    let product = match (job.x, job.weight) {
        (x, Operand::Public(w)) => {
            let x = secret(mpc, x)?;
            let words = match job.map {
                LinearMap::Mul => spread(mpc, w.words(), &x_shape)?,
                _ => w.words().clone(),
            };
            mpc.linear(&Linear::TimesPublic(&op, &words), x.share())?
        }
        (Operand::Public(x), w) => {
            let w = secret(mpc, w)?;
            let w = if *job.map == LinearMap::Mul { broadcast(mpc, &w, &x_shape)? } else { w };
            mpc.linear(&Linear::PublicTimes(&op, x.words()), w.share())?
        }
        _ => return Err(Error::invalid("linear", "one operand should be public")),
    };
    let frac = frac_of(job.x) + frac_of(job.weight);
    let shape = product.shape().clone();
    let mut sum = product;
    for (s, shift) in summands(mpc, job, frac)? {
        let s = broadcast(mpc, &SecretTensor::<P>::new(s, 0, 64), &shape)?;
        sum = mpc.combine(&[(1, &sum), (1 << shift, s.share())], 0)?;
    }
    if job.finish == LinearFinish::Raw {
        return Ok(SecretTensor::new(sum, frac, 64));
    }
    let bits = frac.checked_sub(job.frac).ok_or_else(|| {
        Error::invalid("linear", format!("{frac} fraction bits, {} are needed", job.frac))
    })?;
    let y = match bits {
        0 => sum,
        _ => only(mpc.truncate(&[(&sum, bits)], TruncationMode::Default)?)?,
    };
    let y = SecretTensor::new(y, job.frac, 64 - bits);
    if job.finish == LinearFinish::Relu { elementwise::relu(mpc, &y) } else { Ok(y) }
}

fn spread<P: Protocol>(
    mpc: &P,
    words: &mpc_core::Words<P>,
    shape: &Shape,
) -> Result<mpc_core::Words<P>> {
    use ring_arith::Engine;
    Ok(mpc.engine().view(words, &View::Broadcast(shape.clone()))?)
}

/// The ring's form of a map on a value of the given shape.
pub(crate) fn bilinear(map: &LinearMap, x: &Shape) -> Result<Bilinear> {
    Ok(match map {
        LinearMap::Conv(k) => Bilinear::Conv(k.spec()),
        LinearMap::MatMul { transpose_lhs, transpose_rhs } => {
            Bilinear::MatMul { transpose_lhs: *transpose_lhs, transpose_rhs: *transpose_rhs }
        }
        LinearMap::ConvWeightGrad(k) => Bilinear::ConvWeightGrad(k.spec()),
        LinearMap::Mul => Bilinear::Mul,
        LinearMap::ConvTranspose { kernel, extra } => {
            let &[_, _, h, w] = x.dims() else {
                return Err(Error::invalid("conv-transpose", format!("{x:?} is not [N, C, H, W]")));
            };
            let input = transposed_size(kernel, *extra, [h, w])?;
            Bilinear::ConvInputGrad { spec: kernel.spec(), input }
        }
    })
}
