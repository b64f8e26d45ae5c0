//! Provided methods of [`Protocol`], by its other methods: those that a protocol does not override, the
//! final steps of its products, and checks of arguments.

pub use super::shuffle::{common_rows, permutation, shuffle};
pub use super::tournament::tournament_lengths;
use crate::{
    Chain, Compare, Compared, ComparedBy, Error, Finish, Finishing, FinishingOf, Linear,
    MOST_DROPPED, Produced, ProducedBy, Product, ProductOf, Protocol, Result, ShareBits,
    ShareTensor, Sum, Sums, Term, Then, TruncationMode, Value, Words, protocol::tournament,
};
use net::Party;
use ring_arith::{
    Bilinear, Engine, EngineTensor, Generator, Shape, Stream, StreamKey, Tensor, View,
};
use zeroize::Zeroizing;

/// [`Protocol::random_words`]: the sums of words that every party inputs from its own generator. They are uniform if one
/// party's are.
pub fn random_words<P: Protocol>(mpc: &mut P, shapes: &[Shape]) -> Result<Vec<P::Share>> {
    let stream = mpc.private_stream()?;
    let mut mine = Vec::with_capacity(shapes.len());
    let mut drawn = 0;
    for shape in shapes {
        let mut words = Zeroizing::new(vec![0; shape.len()]);
        stream.fill(drawn, &mut words);
        drawn += shape.len() as u64;
        mine.push(mpc.engine().upload(Tensor::new(shape.clone(), words.to_vec())?)?);
    }
    sums_of_inputs(mpc, shapes, &mine)
}

/// The sums of tensors that every party inputs, one of each shape.
pub fn sums_of_inputs<P: Protocol>(
    mpc: &mut P,
    shapes: &[Shape],
    mine: &[Words<P>],
) -> Result<Vec<P::Share>> {
    let mut sums: Vec<P::Share> = Vec::new();
    for party in 0..mpc.parties() {
        let owner = Party(party);
        let values = (mpc.me() == owner).then_some(mine);
        let shares = mpc.input(owner, shapes, values)?;
        sums = match party {
            0 => shares,
            _ => {
                let pairs = sums.iter().zip(&shares);
                pairs.map(|(sum, share)| mpc.add(sum, share)).collect::<Result<_>>()?
            }
        };
    }
    Ok(sums)
}

/// Checks a number of bits for each element: 1 to 64.
pub fn check_random_bits(width: usize) -> Result<()> {
    if (1..=64).contains(&width) {
        return Ok(());
    }
    let reason = format!("{width} bits for each element; 1 to 64 are possible");
    Err(Error::Invalid { op: "random bits", reason })
}

/// [`Protocol::random_bits`]: the low bits of random words.
pub fn random_bits<P: Protocol>(mpc: &mut P, shape: &Shape, width: usize) -> Result<P::Bits> {
    check_random_bits(width)?;
    let words = mpc.random_words(std::slice::from_ref(shape))?;
    let jobs: Vec<_> = words.iter().map(|word| (word, width as u32)).collect();
    mpc.to_bits(&jobs)?.pop().ok_or_else(|| Error::unanswered("to bits"))
}

/// [`Protocol::products`] as the sum of a protocol's [`Protocol::parts`], settled.
///
/// # Errors
/// See [`Error`]. The same holds for every function below.
pub fn products<P: Protocol>(mpc: &mut P, jobs: &[ProductOf<'_, P>]) -> Result<Vec<ProducedBy<P>>> {
    let sums: Vec<_> = jobs.iter().map(|job| &job.terms[..]).collect();
    let parts = mpc.parts(&sums)?;
    let jobs: Vec<_> = parts.iter().zip(jobs.iter().map(Product::finishing)).collect();
    mpc.settle(&jobs)
}

/// The error of a protocol that has no parts of sums of products.
pub(crate) fn without_parts<P: Protocol>(mpc: &P, op: &'static str) -> Error {
    let reason = "its shares are not words that several machines of a party can add up: use one machine for each party";
    Error::Unsupported { protocol: mpc.info().name, op, reason }
}

/// The words of a share of `N` tensors of one shape: for [`Protocol::of_components`].
///
/// # Errors
/// [`Error::Invalid`] if there are not `N`, [`Error::Shapes`] if their shapes differ.
pub fn exactly_components<T: EngineTensor, const N: usize>(words: Vec<T>) -> Result<[T; N]> {
    let op = "components";
    let words: [T; N] = words.try_into().map_err(|words: Vec<T>| {
        let reason = format!("a share has {N} tensors of words, not {}", words.len());
        Error::Invalid { op, reason }
    })?;
    let first = words[0].shape();
    match words.iter().find(|other| other.shape() != first) {
        None => Ok(words),
        Some(other) => Err(Error::Shapes { op, lhs: first.clone(), rhs: other.shape().clone() }),
    }
}

/// Summands and final steps of [`Protocol::products`], by truncations, comparisons and selections: for a protocol that
/// computes only the sums of the terms.
pub fn finish<P: Protocol>(
    mpc: &mut P,
    jobs: &[FinishingOf<'_, P>],
    sums: Vec<P::Share>,
) -> Result<Vec<ProducedBy<P>>> {
    let sums = with_summands(mpc, jobs, sums)?;
    let quotients = truncated(mpc, jobs, sums)?;
    after_truncation(mpc, jobs, quotients)
}

/// Sums with their summands. Local.
pub fn with_summands<P: Protocol>(
    mpc: &P,
    jobs: &[FinishingOf<'_, P>],
    mut sums: Vec<P::Share>,
) -> Result<Vec<P::Share>> {
    for (job, sum) in jobs.iter().zip(&mut sums) {
        check_summands(job, sum.shape())?;
        for &(summand, shift) in &job.summands {
            let wide = View::Broadcast(sum.shape().clone());
            let wide = mpc.linear(&Linear::View(&wide), summand)?;
            *sum = mpc.combine(&[(1, sum), (1 << shift, &wide)], 0)?;
        }
    }
    Ok(sums)
}

/// Refuses summands that do not fit a result of this shape, or whose shift leaves nothing of them.
///
/// # Errors
/// [`Error::Invalid`], [`Error::Shapes`] or [`Error::Ring`].
pub fn check_summands<S: ShareTensor, B>(job: &Finishing<'_, S, B>, shape: &Shape) -> Result<()> {
    for &(summand, shift) in &job.summands {
        if summand.shape().broadcast(shape, "summand")? != *shape {
            let rhs = summand.shape().clone();
            return Err(Error::Shapes { op: "summand", lhs: shape.clone(), rhs });
        }
        if shift >= 64 {
            let reason = format!("a shift by {shift} bits leaves nothing");
            return Err(Error::Invalid { op: "summand", reason });
        }
    }
    Ok(())
}

/// The shape of a sum of products.
///
/// # Errors
/// [`Error::Invalid`] if there are no terms; [`Error::Shapes`] or [`Error::Ring`] if they do not fit each other.
pub fn shape_of_sum<S: ShareTensor>(terms: &[Term<'_, S>]) -> Result<Shape> {
    let mut shapes = terms.iter().map(|t| t.op.output_shape(t.lhs.shape(), t.rhs.shape()));
    let Some(first) = shapes.next() else {
        let reason = "a product needs at least one term".to_owned();
        return Err(Error::Invalid { op: "product", reason });
    };
    let first = first?;
    for shape in shapes {
        let rhs = shape?;
        if rhs != first {
            return Err(Error::Shapes { op: "terms", lhs: first, rhs });
        }
    }
    Ok(first)
}

/// The second half of [`finish`], for sums that are truncated already: ReLU and masks.
pub fn after_truncation<P: Protocol>(
    mpc: &mut P,
    jobs: &[FinishingOf<'_, P>],
    quotients: Vec<P::Share>,
) -> Result<Vec<ProducedBy<P>>> {
    let mut results = Vec::with_capacity(jobs.len());
    for (job, share) in jobs.iter().zip(quotients) {
        let sums = job.sums.map(|wanted| sums(mpc, &share, wanted)).transpose()?;
        results.push(Produced { share, sums, kept: None });
    }
    rectify(mpc, jobs, &mut results)?;
    mask(mpc, jobs, &mut results)?;
    Ok(results)
}

/// The sums, truncated where that follows; those of one mode share rounds.
fn truncated<P: Protocol>(
    mpc: &mut P,
    jobs: &[FinishingOf<'_, P>],
    mut sums: Vec<P::Share>,
) -> Result<Vec<P::Share>> {
    for mode in modes(jobs) {
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

/// The modes in which some jobs truncate, each once.
fn modes<S, B>(jobs: &[Finishing<'_, S, B>]) -> Vec<TruncationMode> {
    let mut modes = Vec::new();
    for (_, mode) in jobs.iter().filter_map(|job| job.finish.truncation()) {
        if !modes.contains(&mode) {
            modes.push(mode);
        }
    }
    modes
}

/// The modes of [`truncate`].
pub(crate) const MODES: &[TruncationMode] =
    &[TruncationMode::Default, TruncationMode::Early, TruncationMode::Exact];

/// See [`Protocol::truncate`]. The floor: the sum of the bits that stay, the top one of which counts negatively.
pub fn truncate<P: Protocol>(
    mpc: &mut P,
    jobs: &[(&P::Share, u32)],
    mode: TruncationMode,
) -> Result<Vec<P::Share>> {
    if !MODES.contains(&mode) {
        let reason = format!("protocol {} does not truncate in mode {mode:?}", mpc.info().name);
        return Err(Error::Invalid { op: "truncate", reason });
    }
    jobs.iter().try_for_each(|&(_, bits)| check_dropped("truncate", bits))?;
    let words: Vec<_> = jobs.iter().map(|&(x, _)| (x, 64)).collect();
    let mut kept = Vec::with_capacity(jobs.len());
    for (bits, &(_, dropped)) in mpc.to_bits(&words)?.iter().zip(jobs) {
        let planes: Vec<_> = (dropped..64).map(Some).collect();
        let mut weights: Vec<_> = (0..64 - dropped).map(|j| 1u64 << j).collect();
        weights[63 - dropped as usize] = (1u64 << (63 - dropped)).wrapping_neg();
        kept.push((mpc.pick_planes(bits, &planes)?, weights));
    }
    let lists: Vec<_> = kept.iter().map(|(_, weights)| [&weights[..]]).collect();
    let sums: Vec<_> = kept.iter().zip(&lists).map(|((bits, _), list)| (bits, &list[..])).collect();
    Ok(mpc.bit_sums(&sums)?.into_iter().flatten().collect())
}

/// Refuses a truncation by a number of bits outside of 1 to [`MOST_DROPPED`].
///
/// # Errors
/// [`Error::Invalid`].
pub fn check_dropped(op: &'static str, bits: u32) -> Result<()> {
    if (1..=MOST_DROPPED).contains(&bits) {
        return Ok(());
    }
    let reason = format!("cannot drop {bits} bits; 1 to {MOST_DROPPED} can be dropped");
    Err(Error::Invalid { op, reason })
}

/// See [`Protocol::private_stream`]: from a fresh key of the operating system.
pub(crate) fn private_stream() -> Result<Stream> {
    let mut key = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *key).map_err(|error| net::Error::Config {
        what: "the system's randomness".to_owned(),
        reason: error.to_string(),
    })?;
    Ok(StreamKey::new(Generator::ChaCha12, &key).stream(0))
}

/// See [`Protocol::parity`]: the upper half of the planes onto the lower, again and again.
pub(crate) fn parity<P: Protocol>(mpc: &P, x: &P::Bits) -> Result<P::Bits> {
    let planes =
        |x: &P::Bits, from, to| mpc.pick_planes(x, &(from..to).map(Some).collect::<Vec<_>>());
    let mut left = x.clone();
    while left.width() > 1 {
        let width = left.width() as u32;
        let half = width / 2;
        let sum = mpc.xor(&planes(&left, 0, half)?, &planes(&left, width - half, width)?)?;
        // A plane in the middle stays.
        left = match width % 2 {
            1 => mpc.join_planes(&[&sum, &planes(&left, half, half + 1)?])?,
            _ => sum,
        };
    }
    Ok(left)
}

/// [`Sums`] of a shared tensor, `[parts, lists]`. Local.
///
/// # Errors
/// [`Error::Invalid`] if they do not fit the tensor.
pub fn sums<P: Protocol>(mpc: &P, x: &P::Share, sums: Sums<'_>) -> Result<P::Share> {
    let lists = sums.lists(x.shape().len())?;
    let part = x.shape().len() / sums.parts;
    let parts = (0..sums.parts).flat_map(|at| sums.of(at * part..(at + 1) * part));
    let factors = if sums.parts == 1 { sums.of(0..part) } else { parts.collect() };
    let factors = Tensor::new(Shape::new([sums.parts, lists, part])?, factors)?;
    let factors = mpc.engine().upload(factors)?;
    let columns = View::Reshape(Shape::new([sums.parts, part, 1])?);
    let columns = mpc.linear(&Linear::View(&columns), x)?;
    let made = mpc.linear(&Linear::PublicTimes(&Bilinear::MATMUL, &factors), &columns)?;
    mpc.linear(&Linear::View(&View::Reshape(Shape::new([sums.parts, lists])?)), &made)
}

/// ReLU of the results that it follows. The sign is taken of one unit less: for a result of 0 this
/// makes no difference, and the kept bit marks positive results.
fn rectify<P: Protocol>(
    mpc: &mut P,
    jobs: &[FinishingOf<'_, P>],
    results: &mut [ProducedBy<P>],
) -> Result<()> {
    let mut wanted = Vec::new();
    for (i, job) in jobs.iter().enumerate() {
        if let Finish::TruncateRelu { bits, keep, .. } = job.finish {
            let less = mpc.linear(&Linear::Shift(u64::MAX), &results[i].share)?;
            // The sums take the quotient, so its sign is taken even beyond its range.
            let width = 64 - bits + u32::from(job.sums.is_some());
            wanted.push((i, width, keep, less));
        }
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let lists: Vec<_> = wanted.iter().map(|(i, ..)| [&results[*i].share]).collect();
    let compares = wanted.iter().zip(&lists).map(|((_, width, keep, less), list)| Compare {
        value: less,
        width: *width,
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
    jobs: &[FinishingOf<'_, P>],
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
        if bit.width() != 1 {
            let reason = format!("the selecting bits have width {}, not 1", bit.width());
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
/// complements, from the top plane down: in each step the lower half of a block is combined with
/// the lowest plane of the upper half. Planes are kept one by one, so that only a step's operands
/// are copied.
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
    (0..x.width() as u32).map(|j| mpc.pick_planes(x, &[Some(j)])).collect()
}

/// See [`Protocol::bit_sums`].
pub fn bit_sums<P: Protocol>(
    mpc: &mut P,
    jobs: &[(&P::Bits, &[&[u64]])],
) -> Result<Vec<Vec<P::Share>>> {
    for (bits, sums) in jobs {
        let width = bits.width();
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
