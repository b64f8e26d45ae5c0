//! Bilinear maps with truncation, summand and ReLU, in batches.

use ring_arith::{Bilinear, ConvSpec, Engine, Shape, View, Window};

use crate::functions::{
    arithmetic::fixed::working_mode,
    arithmetic::{dropped, no_answer},
    shape::{broadcast, doublings},
    values::secret,
};
use crate::{
    Arg, Compare, Error, Finish, Format, Linear, MOST_DROPPED, Operand, Product, Protocol,
    PublicTensor, Result, SecretTensor, ShareTensor, Then, tensor::same_frac,
};

/// One product of [`multiply`].
#[derive(Debug)]
pub struct Multiply<'a, P: Protocol> {
    op: Bilinear,
    lhs: Arg<'a, P>,
    rhs: Arg<'a, P>,
    summand: Option<Arg<'a, P>>,
    relu: bool,
    keep: Option<u32>,
}

impl<'a, P: Protocol> Multiply<'a, P> {
    /// The bilinear map `op` of two operands.
    pub fn new(op: Bilinear, lhs: impl Into<Arg<'a, P>>, rhs: impl Into<Arg<'a, P>>) -> Self {
        let (lhs, rhs) = (lhs.into(), rhs.into());
        Self { op, lhs, rhs, summand: None, relu: false, keep: None }
    }

    /// Adds a bias or a residual before truncation, without cost and without a separate rounding.
    /// It has the product's shape or is broadcast to it, and has the result's fraction bits.
    #[must_use]
    pub fn plus(self, summand: impl Into<Arg<'a, P>>) -> Self {
        Self { summand: Some(summand.into()), ..self }
    }

    /// Takes the ReLU of the result, fused with the truncation where the protocol can.
    #[must_use]
    pub fn relu(self) -> Self {
        Self { relu: true, ..self }
    }

    /// Fraction bits of the result. Without it they are those of the operands, which must agree
    /// unless one has none. At most the sum of the operands'.
    #[must_use]
    pub fn keep(self, frac: u32) -> Self {
        Self { keep: Some(frac), ..self }
    }

    /// Fraction bits of the result, and how many are dropped.
    fn fracs(&self) -> Result<(u32, u32)> {
        let (x, y) = (self.lhs.frac(), self.rhs.frac());
        let frac = match self.keep {
            Some(frac) => frac,
            None if x == 0 || y == 0 => x + y,
            None => same_frac(self.op.name(), x, y)?,
        };
        match (x + y).checked_sub(frac) {
            Some(drop) if drop <= MOST_DROPPED => Ok((frac, drop)),
            _ => Err(Error::FracBits { op: self.op.name(), lhs: x + y, rhs: frac }),
        }
    }

    /// Width of the result: at most the width that fits before truncation, and less if the
    /// operands' widths are known.
    fn width(&self, drop: u32) -> u32 {
        let terms = terms(&self.op, self.lhs.shape(), self.rhs.shape());
        mutant!("products: as wide as one term", terms = 1);
        // |x| < 2^(wx - 1), |y| < 2^(wy - 1): |sum| < 2^(product - 1).
        let mut product = self.lhs.width() + self.rhs.width() - 1 + doublings(terms);
        if let Some(summand) = &self.summand {
            let wider = 1;
            mutant!("products: a summand takes no room", wider = 0);
            product = product.max(summand.width() + drop) + wider;
        }
        if drop == 0 { product.min(64) } else { dropped(product, drop) }
    }
}

/// Products that share their rounds. Each is truncated to the operands' fraction bits unless one
/// operand has none.
///
/// A product must stay below 2^62 as a word before truncation, `|x * y| < 2^22` at 20 fraction bits,
/// addend included. Widths cannot guarantee this, so it is the caller's duty: a larger product gives
/// a wrong number (and an error from the plaintext reference).
///
/// # Cost
/// With replicated sharing, for each element of the result and all parties: 252 bits in two rounds
/// with truncation (at 20 bits), 192 bits in one without, 648 bits in six with ReLU. With a public
/// operand only the truncation of `3t` bits, and 552 bits for a ReLU.
///
/// # Errors
/// As [`crate::functions::add`].
pub fn multiply<P: Protocol>(
    mpc: &mut P,
    jobs: &[Multiply<'_, P>],
) -> Result<Vec<SecretTensor<P>>> {
    let mut plans = Vec::with_capacity(jobs.len());
    for job in jobs {
        plans.push(plan(mpc, job)?);
    }
    let mut products = Vec::new();
    for plan in &plans {
        if let Work::Product { lhs, rhs, summand, finish } = &plan.work {
            let product = Product::new(plan.op.clone(), lhs.share(), rhs.share(), *finish);
            products.push(match summand {
                Some(summand) => product.plus(summand.share(), plan.drop),
                None => product,
            });
        }
    }
    let mut products = match products.is_empty() {
        true => vec![],
        false => mpc.products(&products)?,
    }
    .into_iter();
    let mut local = truncate_local(mpc, &plans)?.into_iter();
    let mut shares = Vec::with_capacity(plans.len());
    for plan in &plans {
        let next = match plan.work {
            Work::Product { .. } => products.next().map(|produced| produced.share),
            Work::Local { .. } => local.next(),
        };
        shares.push(next.ok_or_else(|| no_answer("multiply"))?);
    }
    relu_rest(mpc, &plans, &mut shares)?;
    let result = |(share, plan): (P::Share, &Plan<P>)| SecretTensor::new(share, plan.format);
    Ok(shares.into_iter().zip(&plans).map(result).collect())
}

/// At most how many products one result of a map sums, for operands that fit it.
pub(crate) fn terms(op: &Bilinear, lhs: &Shape, rhs: &Shape) -> usize {
    match op {
        Bilinear::Mul => 1,
        Bilinear::MatMul { transpose_lhs, .. } => {
            lhs.dims()[lhs.rank() - if *transpose_lhs { 2 } else { 1 }]
        }
        Bilinear::Conv(_) => rhs.dims()[1..].iter().product(),
        _ => lhs.len().max(rhs.len()),
    }
}

/// The steps of one member of [`multiply`].
struct Plan<P: Protocol> {
    op: Bilinear,
    format: Format,
    drop: u32,
    /// A ReLU that is not fused with the product.
    relu: bool,
    work: Work<P>,
}

enum Work<P: Protocol> {
    /// Both operands are secret.
    Product {
        lhs: SecretTensor<P>,
        rhs: SecretTensor<P>,
        summand: Option<SecretTensor<P>>,
        finish: Finish<'static, P::Bits>,
    },
    /// One is public: the product, before truncation, is local.
    Local(P::Share),
}

fn plan<P: Protocol>(mpc: &P, job: &Multiply<'_, P>) -> Result<Plan<P>> {
    let (frac, drop) = job.fracs()?;
    // NumPy's broadcasting holds for element-wise products only.
    let (lhs, rhs) = match job.op {
        Bilinear::Mul => {
            let shape = job.lhs.shape().broadcast(job.rhs.shape(), "mul")?;
            (spread(mpc, job.lhs, &shape)?, spread(mpc, job.rhs, &shape)?)
        }
        _ => (owned(job.lhs), owned(job.rhs)),
    };
    job.op.output_shape(Arg::from(&lhs).shape(), Arg::from(&rhs).shape())?;
    let format = Format { frac, width: job.width(drop) };
    let mut relu = job.relu;
    let summand = match job.summand {
        None => None,
        Some(summand) => {
            same_frac("summand", frac, summand.frac())?;
            Some(secret(mpc, summand)?)
        }
    };
    let work = match (lhs, rhs) {
        (Operand::Secret(lhs), Operand::Secret(rhs)) => {
            let finish = match (drop, relu) {
                (0, _) => Finish::Raw,
                (bits, true) => Finish::TruncateRelu { bits, mode: working_mode(mpc), keep: false },
                (bits, false) => Finish::Truncate { bits, mode: mpc.truncation() },
            };
            relu &= drop == 0;
            Work::Product { lhs, rhs, summand, finish }
        }
        (Operand::Secret(x), Operand::Public(y)) => {
            let product = mpc.linear(&Linear::TimesPublic(&job.op, y.words()), x.share())?;
            Work::Local(with_summand(mpc, product, summand, drop)?)
        }
        (Operand::Public(x), y) => {
            let y = secret(mpc, Arg::from(&y))?;
            let product = mpc.linear(&Linear::PublicTimes(&job.op, x.words()), y.share())?;
            Work::Local(with_summand(mpc, product, summand, drop)?)
        }
    };
    Ok(Plan { op: job.op.clone(), format, drop, relu, work })
}

fn owned<P: Protocol>(x: Arg<'_, P>) -> Operand<P> {
    match x {
        Arg::Secret(x) => Operand::Secret(x.clone()),
        Arg::Public(x) => Operand::Public(x.clone()),
    }
}

/// An operand broadcast to a shape.
pub(in crate::functions) fn spread<P: Protocol>(
    mpc: &P,
    x: Arg<'_, P>,
    shape: &Shape,
) -> Result<Operand<P>> {
    Ok(match x {
        Arg::Secret(x) => Operand::Secret(broadcast(mpc, x, shape)?),
        Arg::Public(x) if x.shape() == shape => Operand::Public(x.clone()),
        Arg::Public(x) => {
            let words = mpc.engine().view(x.words(), &View::Broadcast(shape.clone()))?;
            Operand::Public(PublicTensor::new(words, x.frac()).with_width(x.width()))
        }
    })
}

/// Adds a summand, shifted up to the product's fraction bits.
fn with_summand<P: Protocol>(
    mpc: &P,
    product: P::Share,
    summand: Option<SecretTensor<P>>,
    drop: u32,
) -> Result<P::Share> {
    let Some(summand) = summand else { return Ok(product) };
    let wide = broadcast(mpc, &summand, product.shape())?;
    mpc.combine(&[(1, &product), (1 << drop, wide.share())], 0)
}

/// Truncates local products, all members in the same rounds.
fn truncate_local<P: Protocol>(mpc: &mut P, plans: &[Plan<P>]) -> Result<Vec<P::Share>> {
    let local = plans.iter().filter_map(|plan| match &plan.work {
        Work::Local(product) => Some((product, plan.drop)),
        Work::Product { .. } => None,
    });
    let local: Vec<_> = local.collect();
    let jobs: Vec<_> = local.iter().copied().filter(|(_, drop)| *drop > 0).collect();
    let mode = mpc.truncation();
    let mut done = match jobs.is_empty() {
        true => vec![],
        false => mpc.truncate(&jobs, mode)?,
    }
    .into_iter();
    let result = |(product, drop): (&P::Share, u32)| match drop {
        0 => Ok(product.clone()),
        _ => done.next().ok_or_else(|| no_answer("truncate")),
    };
    local.into_iter().map(result).collect()
}

/// The ReLUs that were not fused, all in the same rounds.
fn relu_rest<P: Protocol>(mpc: &mut P, plans: &[Plan<P>], shares: &mut [P::Share]) -> Result<()> {
    let values: Vec<_> = shares.iter().zip(plans).filter(|(_, plan)| plan.relu).collect();
    if values.is_empty() {
        return Ok(());
    }
    let lists: Vec<_> = values.iter().map(|(x, _)| [*x]).collect();
    let jobs = values.iter().zip(&lists).map(|((value, plan), list)| Compare {
        value: *value,
        width: plan.format.width,
        then: Then::not_negative(list),
    });
    let answers = mpc.compare(&jobs.collect::<Vec<_>>())?;
    let mut answers = answers.into_iter();
    let wanted = plans.iter().map(|plan| plan.relu).collect::<Vec<_>>();
    for (share, _) in shares.iter_mut().zip(wanted).filter(|(_, relu)| *relu) {
        *share = answers.next().ok_or_else(|| no_answer("compare"))?.into_word()?;
    }
    Ok(())
}

/// A bilinear map, truncated. See [`multiply`] for limits.
///
/// # Cost
/// As [`multiply`].
///
/// # Errors
/// As [`crate::functions::add`].
pub fn bilinear<'a, P: Protocol>(
    mpc: &mut P,
    op: Bilinear,
    x: impl Into<Arg<'a, P>>,
    y: impl Into<Arg<'a, P>>,
) -> Result<SecretTensor<P>> {
    let mut results = multiply(mpc, &[Multiply::new(op, x, y)])?;
    results.pop().ok_or_else(|| no_answer("multiply"))
}

/// `x * y` element by element, broadcast. See [`multiply`] for limits.
///
/// # Cost
/// As [`multiply`].
///
/// # Errors
/// As [`crate::functions::add`].
pub fn mul<'a, P: Protocol>(
    mpc: &mut P,
    x: impl Into<Arg<'a, P>>,
    y: impl Into<Arg<'a, P>>,
) -> Result<SecretTensor<P>> {
    bilinear(mpc, Bilinear::Mul, x, y)
}

/// `x * x` element by element.
///
/// # Cost
/// As [`multiply`].
///
/// # Errors
/// As [`crate::functions::add`].
pub fn square<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    mul(mpc, x, x)
}

/// Matrix product `[.., m, k] x [.., k, n]`. See [`multiply`] for limits.
///
/// # Cost
/// As [`multiply`].
///
/// # Errors
/// As [`crate::functions::add`].
pub fn matmul<'a, P: Protocol>(
    mpc: &mut P,
    x: impl Into<Arg<'a, P>>,
    y: impl Into<Arg<'a, P>>,
) -> Result<SecretTensor<P>> {
    bilinear(mpc, Bilinear::MATMUL, x, y)
}

/// Convolution of `[N, C, H, W]` with `[O, C / groups, kh, kw]`. See [`multiply`] for limits.
///
/// # Cost
/// As [`multiply`].
///
/// # Errors
/// As [`crate::functions::add`].
pub fn conv2d<'a, P: Protocol>(
    mpc: &mut P,
    x: impl Into<Arg<'a, P>>,
    weight: impl Into<Arg<'a, P>>,
    window: Window,
    groups: usize,
) -> Result<SecretTensor<P>> {
    bilinear(mpc, Bilinear::Conv(ConvSpec { window, groups }), x, weight)
}
