//! Linear layers: product, bias, residual, truncation and ReLU in one call to the protocol.

use mpc_core::{
    Finish, Format, Linear, Operand, ProducedBy, Product, ProductOf, Protocol, SecretTensor,
    ShareTensor, Sums, Term, TruncationMode, functions as f, provided,
};
use ring_arith::{Bilinear, Shape, View};

use super::{crew as ops_crew, frac_of, only, secret, shape_of};
use crate::crew::Crew;
use crate::graph::infer::transposed_size;
use crate::graph::{LinearFinish, LinearMap};
use crate::{Error, Result};

/// A map of a value by a weight.
pub(crate) struct Map<'a, P: Protocol> {
    pub map: &'a LinearMap,
    pub x: &'a Operand<P>,
    pub weight: &'a Operand<P>,
}

/// One linear layer to run.
pub(crate) struct LinearJob<'a, P: Protocol> {
    /// At least one.
    pub maps: Vec<Map<'a, P>>,
    pub bias: Option<&'a Operand<P>>,
    pub residual: Option<&'a SecretTensor<P>>,
    pub finish: LinearFinish,
    /// The mask of the result, if that is its finish.
    pub mask: Option<Masked<P>>,
    /// True to keep the bits where a ReLU's result is positive.
    pub keep: bool,
    /// Fraction bits of the result.
    pub frac: u32,
    /// The truncation mode, unless the protocol has a setting.
    pub mode: TruncationMode,
    /// Sums of the result before its ReLU or mask.
    pub sums: Option<Sums<'a>>,
    /// The sum of the maps is one part of the sum of all machines of the party. The result, bias and residual are this
    /// machine's stretch.
    pub scattered: bool,
}

/// The mask of a result: bits of its shape that were kept, or a value whose sign is to be found.
pub(crate) enum Masked<P: Protocol> {
    Kept(P::Bits),
    Positive(SecretTensor<P>),
}

impl<'a, P: Protocol> LinearJob<'a, P> {
    /// Maps alone, truncated.
    pub fn new(maps: Vec<Map<'a, P>>, frac: u32) -> Self {
        let (finish, mode) = (LinearFinish::Truncate, TruncationMode::Default);
        Self {
            maps,
            bias: None,
            residual: None,
            finish,
            mask: None,
            keep: false,
            frac,
            mode,
            sums: None,
            scattered: false,
        }
    }
}

impl<P: Protocol> LinearJob<'_, P> {
    /// The width of a result of which bits are dropped. One that is watched may be right up to twice its range, and a
    /// comparison must not take it for another then.
    fn width(&self, drop: u32, mode: TruncationMode) -> u32 {
        let fast = matches!(mode, TruncationMode::Default | TruncationMode::Early);
        // There the sums also check that the sign that a ReLU takes is the value's.
        let checked = self.finish == LinearFinish::Relu && fast;
        (64 - drop + u32::from(self.sums.is_some() && !checked)).min(64)
    }
}

/// A layer's result, with the bits and sums that were also requested.
pub(crate) struct Made<P: Protocol> {
    pub value: SecretTensor<P>,
    /// The bits where it is positive.
    pub positive: Option<P::Bits>,
    pub sums: Option<P::Share>,
}

/// A layer whose operands have the form that the protocol takes.
struct Prepared<P: Protocol> {
    /// Products of secrets.
    terms: Vec<(Bilinear, P::Share, P::Share)>,
    /// Bias, residual and products with a public operand, which are local; each with the bits it is
    /// shifted up by.
    summands: Vec<(P::Share, u32)>,
    /// Fraction bits of the sum, and how many of them are dropped.
    frac: u32,
    drop: u32,
    /// The truncation mode that drops them.
    mode: TruncationMode,
}

/// Runs layers; those with secret operands that end alike share all rounds.
///
/// # Cost
/// That of [`Protocol::products`] with the given finish; with a public weight or a public value
/// the product itself costs nothing. Layers that are scattered send 8 bytes a word of the sum inside the party.
pub(crate) fn run<P: Protocol>(
    mpc: &mut P,
    crew: &mut dyn Crew<P::Engine>,
    jobs: &[LinearJob<'_, P>],
) -> Result<Vec<Made<P>>> {
    let mut prepared = Vec::with_capacity(jobs.len());
    for job in jobs {
        prepared.push(prepare(mpc, crew, job)?);
    }
    let together = prepared.iter().zip(jobs).filter(|(p, _)| !p.terms.is_empty());
    let (products, scattered): (Vec<_>, Vec<_>) =
        together.map(|(p, job)| (product(p, job), job.scattered)).unzip();
    let shares = match products.is_empty() {
        true => vec![],
        false if scattered.contains(&true) => summed(mpc, crew, &products, &scattered)?,
        false => mpc.products(&products)?,
    };
    drop(products);
    let mut shares = shares.into_iter();
    let mut results = Vec::with_capacity(jobs.len());
    for (p, job) in prepared.into_iter().zip(jobs) {
        let missing = || Error::invalid("linear", "the protocol left a product unanswered");
        results.push(if p.terms.is_empty() {
            local(mpc, job, p)?
        } else {
            settle(mpc, job, (p.drop, p.mode), shares.next().ok_or_else(missing)?)?
        });
    }
    Ok(results)
}

/// Products of which some are sums over the machines of the party: their parts are added up before they are truncated.
fn summed<P: Protocol>(
    mpc: &mut P,
    crew: &mut dyn Crew<P::Engine>,
    products: &[ProductOf<'_, P>],
    scattered: &[bool],
) -> Result<Vec<ProducedBy<P>>> {
    let terms: Vec<_> = products.iter().map(|product| &product.terms[..]).collect();
    let mut parts = mpc.parts(&terms)?;
    for (part, _) in parts.iter_mut().zip(scattered).filter(|(_, scattered)| **scattered) {
        *part = ops_crew::sum_of_words(mpc.engine(), crew, part)?;
    }
    let finishings = products.iter().map(Product::finishing);
    Ok(mpc.settle(&parts.iter().zip(finishings).collect::<Vec<_>>())?)
}

/// Brings operands into shape; local. Products with fewer fraction bits than others are brought to
/// theirs by their weights.
fn prepare<P: Protocol>(
    mpc: &mut P,
    crew: &mut dyn Crew<P::Engine>,
    job: &LinearJob<'_, P>,
) -> Result<Prepared<P>> {
    let product = |map: &Map<'_, P>| frac_of(map.x) + frac_of(map.weight);
    let frac = job.maps.iter().map(product).max().unwrap_or(0);
    let mode = super::truncation(mpc, job.mode);
    let mut prepared = Prepared { terms: vec![], summands: vec![], frac, drop: 0, mode };
    for map in &job.maps {
        let up = frac - product(map);
        match (map.x, map.weight) {
            (Operand::Secret(x), Operand::Secret(weight)) => {
                let op = bilinear(map.map, x.shape())?;
                let weight = spread_secret(mpc, map.map, weight, x.shape())?;
                let weight = match up {
                    0 => weight.share().clone(),
                    up => mpc.linear(&Linear::Scale(1 << up), weight.share())?,
                };
                prepared.terms.push((op, x.share().clone(), weight));
            }
            _ => {
                let mut product = half_public(mpc, map)?;
                if job.scattered {
                    product = ops_crew::sum_scattered(mpc, crew, &product)?;
                }
                prepared.summands.push((product, up));
            }
        }
    }
    let bias = job.bias.map(|b| secret(mpc, b)).transpose()?;
    let shift = |x: &SecretTensor<P>| match prepared.frac.checked_sub(x.frac()) {
        Some(shift) => Ok((x.share().clone(), shift)),
        None => {
            let reason = format!("{} fraction bits are added to {}", x.frac(), prepared.frac);
            Err(Error::invalid("linear", reason))
        }
    };
    let addends = bias.iter().chain(job.residual).map(shift).collect::<Result<Vec<_>>>()?;
    prepared.summands.extend(addends);
    prepared.drop = prepared.frac.checked_sub(job.frac).ok_or_else(|| {
        let reason = format!("{} fraction bits, {} are needed", prepared.frac, job.frac);
        Error::invalid("linear", reason)
    })?;
    Ok(prepared)
}

/// The request to the protocol.
fn product<'a, P: Protocol>(
    prepared: &'a Prepared<P>,
    job: &'a LinearJob<'_, P>,
) -> ProductOf<'a, P> {
    let term =
        |(op, lhs, rhs): &'a (Bilinear, P::Share, P::Share)| Term { op: op.clone(), lhs, rhs };
    let (bits, mode) = (prepared.drop, prepared.mode);
    let finish = match (job.finish, &job.mask) {
        _ if bits == 0 => Finish::Raw,
        (LinearFinish::Relu, _) => Finish::TruncateRelu { bits, mode, keep: job.keep },
        (LinearFinish::Mask, Some(Masked::Kept(mask))) => Finish::TruncateMask { bits, mode, mask },
        _ => Finish::Truncate { bits, mode },
    };
    Product {
        terms: prepared.terms.iter().map(term).collect(),
        summands: prepared.summands.iter().map(|(s, shift)| (s, *shift)).collect(),
        finish,
        sums: job.sums,
    }
}

/// Gives a result its format, and does the work that the protocol has left.
fn settle<P: Protocol>(
    mpc: &mut P,
    job: &LinearJob<'_, P>,
    (drop, mode): (u32, TruncationMode),
    produced: ProducedBy<P>,
) -> Result<Made<P>> {
    let value =
        SecretTensor::new(produced.share, Format { frac: job.frac, width: job.width(drop, mode) });
    let (positive, sums) = (produced.kept, produced.sums);
    match (job.finish, &job.mask) {
        (LinearFinish::Mask, Some(Masked::Kept(_))) | (LinearFinish::Relu, _) if drop > 0 => {
            Ok(Made { value, positive, sums })
        }
        _ => finished(mpc, job, value, sums),
    }
}

/// A truncated result, rectified or masked if it is to be.
fn finished<P: Protocol>(
    mpc: &mut P,
    job: &LinearJob<'_, P>,
    y: SecretTensor<P>,
    sums: Option<P::Share>,
) -> Result<Made<P>> {
    let mut positive = None;
    let value = match (job.finish, &job.mask) {
        (LinearFinish::Truncate, _) => y,
        (LinearFinish::Relu, _) if job.keep => {
            let (y, bits) = f::relu_keeping(mpc, &y)?;
            positive = Some(bits);
            y
        }
        (LinearFinish::Relu, _) => f::relu(mpc, &y)?,
        (LinearFinish::Mask, Some(Masked::Kept(bits))) => f::where_bits(mpc, &y, bits)?,
        (LinearFinish::Mask, Some(Masked::Positive(x))) => f::where_positive(mpc, &y, x)?,
        (LinearFinish::Mask, None) => {
            return Err(Error::invalid("linear", "what masks it is missing"));
        }
    };
    Ok(Made { value, positive, sums })
}

/// A layer without a product of secrets: adds up local results and truncates them.
fn local<P: Protocol>(
    mpc: &mut P,
    job: &LinearJob<'_, P>,
    prepared: Prepared<P>,
) -> Result<Made<P>> {
    let mut summands = prepared.summands.into_iter();
    let (first, shift) =
        summands.next().ok_or_else(|| Error::invalid("linear", "a layer needs a map"))?;
    let shape = first.shape().clone();
    let mut sum = mpc.combine(&[(1 << shift, &first)], 0)?;
    for (summand, shift) in summands {
        let summand =
            f::broadcast(mpc, &SecretTensor::<P>::new(summand, Format::words(0)), &shape)?;
        sum = mpc.combine(&[(1, &sum), (1 << shift, summand.share())], 0)?;
    }
    let y = match prepared.drop {
        0 => sum,
        bits => only(mpc.truncate(&[(&sum, bits)], prepared.mode)?)?,
    };
    let sums = job.sums.map(|sums| provided::sums(mpc, &y, sums)).transpose()?;
    // A comparison that follows is separate, of the whole value.
    let width = (64 - prepared.drop + u32::from(sums.is_some())).min(64);
    finished(mpc, job, SecretTensor::new(y, Format { frac: job.frac, width }), sums)
}

/// A product with a public operand; local.
fn half_public<P: Protocol>(mpc: &mut P, map: &Map<'_, P>) -> Result<P::Share> {
    let x_shape = shape_of(map.x).clone();
    let op = bilinear(map.map, &x_shape)?;
    Ok(match (map.x, map.weight) {
        (x, Operand::Public(w)) => {
            let x = secret(mpc, x)?;
            let words = match map.map {
                LinearMap::Mul => spread(mpc, w.words(), &x_shape)?,
                _ => w.words().clone(),
            };
            mpc.linear(&Linear::TimesPublic(&op, &words), x.share())?
        }
        (Operand::Public(x), w) => {
            let w = secret(mpc, w)?;
            let w = spread_secret(mpc, map.map, &w, &x_shape)?;
            mpc.linear(&Linear::PublicTimes(&op, x.words()), w.share())?
        }
        _ => return Err(Error::invalid("linear", "one operand should be public")),
    })
}

/// A weight as the map takes it: one of an element-wise map is broadcast to the value.
fn spread_secret<P: Protocol>(
    mpc: &P,
    map: &LinearMap,
    weight: &SecretTensor<P>,
    shape: &Shape,
) -> Result<SecretTensor<P>> {
    if *map == LinearMap::Mul { Ok(f::broadcast(mpc, weight, shape)?) } else { Ok(weight.clone()) }
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
