//! Methods of [`Protocol`] by its other methods: what a protocol gets that does not override them, what
//! follows its [`products`], and checks of what it is asked for.

use crate::{
    Chain, Compare, Compared, ComparedBy, Error, Finish, Linear, Produced, ProducedBy, Product,
    ProductOf, Protocol, Result, ShareTensor, Sum, Then, TruncationMode, Value, tournament,
};
use ring_arith::{Bilinear, Shape};

/// What follows the sums of [`Protocol::products`], by truncations, comparisons and selections: for a
/// protocol that computes the sums alone.
///
/// # Errors
/// See [`Error`]. The same holds for every function below.
pub fn products<P: Protocol>(
    mpc: &mut P,
    jobs: &[ProductOf<'_, P>],
    sums: Vec<P::Share>,
) -> Result<Vec<ProducedBy<P>>> {
    let quotients = truncated(mpc, jobs, sums)?;
    after_truncation(mpc, jobs, quotients)
}

/// The second half of [`products`], for sums that are truncated already: ReLU and masks.
///
/// # Errors
/// As [`products`].
pub fn after_truncation<P: Protocol>(
    mpc: &mut P,
    jobs: &[ProductOf<'_, P>],
    quotients: Vec<P::Share>,
) -> Result<Vec<ProducedBy<P>>> {
    let results = quotients.into_iter().map(|share| Produced { share, kept: None });
    let mut results: Vec<_> = results.collect();
    rectify(mpc, jobs, &mut results)?;
    mask(mpc, jobs, &mut results)?;
    Ok(results)
}

const MODES: [TruncationMode; 5] = [
    TruncationMode::Default,
    TruncationMode::Early,
    TruncationMode::Exact,
    TruncationMode::Dither,
    TruncationMode::Aby3Local,
];

/// The sums, truncated where that follows; those of one mode share rounds.
fn truncated<P: Protocol>(
    mpc: &mut P,
    jobs: &[ProductOf<'_, P>],
    mut sums: Vec<P::Share>,
) -> Result<Vec<P::Share>> {
    for mode in MODES {
        let wanted = jobs.iter().enumerate().filter_map(|(i, job)| {
            job.finish.truncation().filter(|(_, how)| *how == mode).map(|(bits, _)| (i, bits))
        });
        let wanted: Vec<_> = wanted.collect();
        if wanted.is_empty() {
            continue;
        }
        let members: Vec<_> = wanted.iter().map(|&(i, bits)| (&sums[i], bits)).collect();
        let quotients = mpc.truncate(&members, mode)?;
        for (&(i, _), quotient) in wanted.iter().zip(quotients) {
            sums[i] = quotient;
        }
    }
    Ok(sums)
}

/// ReLU of the results that it follows. The sign is taken of one unit less: where a result is 0 it
/// makes no difference, and the bit that is kept says where the result is positive.
fn rectify<P: Protocol>(
    mpc: &mut P,
    jobs: &[ProductOf<'_, P>],
    results: &mut [ProducedBy<P>],
) -> Result<()> {
    let mut wanted = Vec::new();
    for (i, job) in jobs.iter().enumerate() {
        if let Finish::TruncateRelu { bits, keep, .. } = job.finish {
            let less = mpc.linear(&Linear::Shift(u64::MAX), &results[i].share)?;
            wanted.push((i, bits, keep, less));
        }
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let lists: Vec<_> = wanted.iter().map(|(i, ..)| [&results[*i].share]).collect();
    let compares = wanted.iter().zip(&lists).map(|((_, bits, keep, less), list)| Compare {
        value: less,
        width: 64 - bits,
        then: Then { bit: *keep, ..Then::not_negative(list) },
    });
    let answers = mpc.compare(&compares.collect::<Vec<_>>())?;
    for ((i, ..), answer) in wanted.iter().zip(answers) {
        results[*i].kept = answer.bit.as_ref().map(|bit| mpc.not(bit)).transpose()?;
        results[*i].share = answer.into_word()?;
    }
    Ok(())
}

/// The results that a bit follows, where it is 1.
fn mask<P: Protocol>(
    mpc: &mut P,
    jobs: &[ProductOf<'_, P>],
    results: &mut [ProducedBy<P>],
) -> Result<()> {
    let wanted = jobs.iter().enumerate().filter_map(|(i, job)| match job.finish {
        Finish::TruncateMask { mask, .. } => Some((i, mask)),
        _ => None,
    });
    let wanted: Vec<_> = wanted.collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let lists: Vec<_> = wanted.iter().map(|(i, _)| [&results[*i].share]).collect();
    let selections: Vec<_> =
        wanted.iter().zip(&lists).map(|((_, mask), list)| (*mask, &list[..])).collect();
    let selected = mpc.select(&selections)?;
    for ((i, _), share) in wanted.iter().zip(selected.into_iter().flatten()) {
        results[*i].share = share;
    }
    Ok(())
}

/// See [`Protocol::compare`]. The sign is the top one of all bits.
pub fn compare<P: Protocol>(
    mpc: &mut P,
    jobs: &[Compare<'_, P::Share>],
) -> Result<Vec<ComparedBy<P>>> {
    for job in jobs {
        check_compare(job)?;
    }
    let values: Vec<_> = jobs.iter().map(|job| (job.value, job.width)).collect();
    let mut signs = Vec::with_capacity(jobs.len());
    for (bits, job) in mpc.to_bits(&values)?.iter().zip(jobs) {
        signs.push(mpc.pick_planes(bits, &[Some(job.width - 1)])?);
    }
    let outcomes = jobs.iter().zip(&signs).filter(|(job, _)| job.then.word);
    let outcomes: Vec<_> = outcomes.map(|(_, sign)| sign).collect();
    let words = if outcomes.is_empty() { vec![] } else { mpc.bits_to_words(&outcomes)? };
    let mut words = words.into_iter().flatten();
    let lists: Vec<_> =
        jobs.iter().map(|job| [job.then.negative, job.then.not_negative].concat()).collect();
    let selections: Vec<_> = signs.iter().zip(&lists).map(|(bit, list)| (bit, &list[..])).collect();
    let selected = match lists.iter().all(Vec::is_empty) {
        true => lists.iter().map(|_| vec![]).collect(),
        false => mpc.select(&selections)?,
    };
    let mut results = Vec::with_capacity(jobs.len());
    for ((job, sign), mut kept) in jobs.iter().zip(signs).zip(selected) {
        let then = &job.then;
        let others = kept.split_off(then.negative.len());
        let others = others.iter().zip(then.not_negative);
        results.push(Compared {
            bit: then.bit.then_some(sign),
            word: if then.word { words.next() } else { None },
            negative: kept,
            not_negative: others.map(|(part, x)| mpc.sub(x, part)).collect::<Result<_>>()?,
        });
    }
    Ok(results)
}

/// Refuses a comparison whose width or shapes are wrong.
///
/// # Errors
/// [`Error::Invalid`] or [`Error::Shapes`].
pub fn check_compare<S: ShareTensor>(job: &Compare<'_, S>) -> Result<()> {
    if !(1..=64).contains(&job.width) {
        let reason = format!("width {} is not 1 to 64", job.width);
        return Err(Error::Invalid { op: "compare", reason });
    }
    let words = job.then.negative.iter().chain(job.then.not_negative);
    words.into_iter().try_for_each(|x| same_shape("compare", job.value, *x))
}

/// See [`Protocol::is_zero`]: no bit is set.
pub fn is_zero<P: Protocol>(mpc: &mut P, jobs: &[(&P::Share, u32)]) -> Result<Vec<P::Bits>> {
    let bits = mpc.to_bits(jobs)?;
    let any = mpc.prefix_or(&bits.iter().collect::<Vec<_>>())?;
    any.iter().map(|any| mpc.not(&mpc.pick_planes(any, &[Some(0)])?)).collect()
}

/// See [`Protocol::select`]: products with the bit as a word.
pub fn select<P: Protocol>(
    mpc: &mut P,
    jobs: &[(&P::Bits, &[&P::Share])],
) -> Result<Vec<Vec<P::Share>>> {
    for (bit, xs) in jobs {
        if mpc.bits_width(bit) != 1 {
            let reason = format!("{} bits choose; one is due", mpc.bits_width(bit));
            return Err(Error::Invalid { op: "select", reason });
        }
        xs.iter().try_for_each(|x| same_shape("select", *bit, *x))?;
    }
    let bits: Vec<_> = jobs.iter().map(|(bit, _)| *bit).collect();
    let words: Vec<_> = mpc.bits_to_words(&bits)?.into_iter().flatten().collect();
    let pairs =
        words.iter().zip(jobs).flat_map(|(word, (_, xs))| xs.iter().map(move |x| (word, x)));
    let products = pairs.map(|(word, x)| Product::new(Bilinear::Mul, word, *x, Finish::Raw));
    let mut selected = mpc.products(&products.collect::<Vec<_>>())?.into_iter().map(|p| p.share);
    Ok(jobs.iter().map(|(_, xs)| selected.by_ref().take(xs.len()).collect()).collect())
}

/// The number of elements before each level of a tournament whose choices are given, for one result
/// of the given shape.
///
/// # Errors
/// [`Error::Invalid`] if no tournament has such choices.
pub fn tournament_lengths<B: ShareTensor>(result: &Shape, choices: &[B]) -> Result<Vec<usize>> {
    let wrong = || {
        let shapes: Vec<_> = choices.iter().map(|bits| bits.shape().dims()).collect();
        let reason = format!("no tournament with a result of {result:?} has choices {shapes:?}");
        Error::Invalid { op: "gradient of max", reason }
    };
    let Some((1, rest)) = result.dims().split_first() else { return Err(wrong()) };
    let mut above = 1;
    let mut lengths = Vec::with_capacity(choices.len());
    for bits in choices.iter().rev() {
        let len = match bits.shape().dims().split_first() {
            Some((&pairs, others)) if others == rest && pairs == above => 2 * pairs,
            Some((&pairs, others)) if others == rest && pairs + 1 == above => 2 * pairs + 1,
            _ => return Err(wrong()),
        };
        lengths.push(len);
        above = len;
    }
    lengths.reverse();
    Ok(lengths)
}

/// See [`Protocol::max_first_gradient`].
pub fn max_first_gradient<P: Protocol>(
    mpc: &mut P,
    gradient: &P::Share,
    choices: &[P::Bits],
) -> Result<P::Share> {
    tournament::gradient(mpc, gradient, choices)
}

fn same_shape(op: &'static str, x: &impl ShareTensor, y: &impl ShareTensor) -> Result<()> {
    if x.shape() == y.shape() {
        return Ok(());
    }
    Err(Error::Shapes { op, lhs: x.shape().clone(), rhs: y.shape().clone() })
}

/// See [`Protocol::combine`].
pub fn combine<P: Protocol>(
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

/// See [`Protocol::chain`]: level by level.
pub fn chain<P: Protocol>(mpc: &mut P, chain: &Chain<'_, P::Share>) -> Result<Vec<P::Share>> {
    let levels = chain.levels()?;
    let mut results: Vec<Option<P::Share>> = chain.steps.iter().map(|_| None).collect();
    for level in 1..=levels.iter().copied().max().unwrap_or(0) {
        let members: Vec<_> = (0..levels.len()).filter(|&i| levels[i] == level).collect();
        let mut factors = Vec::with_capacity(members.len());
        for &i in &members {
            let sum = |sum: &Sum| {
                let share = |value| match value {
                    Value::Input(i) => Some(chain.inputs[i]),
                    Value::Step(i) => results[i].as_ref(),
                };
                let terms = sum.terms.iter().filter_map(|&(c, value)| Some((c, share(value)?)));
                mpc.combine(&terms.collect::<Vec<_>>(), sum.constant)
            };
            let step = &chain.steps[i];
            // A summand without terms is a constant, added to nothing.
            let plus = match (&step.plus.terms[..], step.plus.constant) {
                ([], 0) => None,
                ([], constant) => Some(mpc.combine(&[(0, chain.inputs[0])], constant)?),
                _ => Some(sum(&step.plus)?),
            };
            factors.push((sum(&step.lhs)?, sum(&step.rhs)?, plus, step));
        }
        let jobs = factors.iter().map(|(lhs, rhs, plus, step)| {
            let finish = match step.bits {
                0 => Finish::Raw,
                bits => Finish::Truncate { bits, mode: step.mode },
            };
            let job = Product::new(Bilinear::Mul, lhs, rhs, finish);
            if let Some(plus) = plus { job.plus(plus, 0) } else { job }
        });
        let products = mpc.products(&jobs.collect::<Vec<_>>())?;
        for (&i, product) in members.iter().zip(products) {
            results[i] = Some(product.share);
        }
    }
    let given = chain.results.iter().map(|&i| results[i].clone());
    given.map(|share| share.ok_or_else(|| Error::unanswered("products"))).collect()
}

/// See [`Protocol::prefix_or`]. Sklansky's network (IRE Trans. Electronic Computers, 1960) on the
/// complements, from the top plane down: in each step the lower half of a block takes in the lowest
/// plane of the upper half. Planes are kept one by one, so that only a step's operands are copied.
pub fn prefix_or<P: Protocol>(mpc: &mut P, jobs: &[&P::Bits]) -> Result<Vec<P::Bits>> {
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
pub fn bit_sums<P: Protocol>(
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
