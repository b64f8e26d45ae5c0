//! Parts of sums of products, and what follows them.

use std::sync::Arc;

use ring_arith::{Bilinear, ConvSpec, Engine, EngineTensor, Shape, View, Window};

use super::{
    Make, agreed, data, expect,
    model::Plain,
    open, open_bits,
    products::{MODES, offered, shares},
    share, share_bits,
};
use crate::{
    Error, Finish, Finishing, Linear, Product, ProductOf, Protocol, Result, SumFactors, Sums, Term,
    TestWorld, TruncationMode, Words, provided,
};

const BITS: u32 = 20;

/// Parts that are settled are products: the results, bytes and rounds are the same for every final step and mode. Passes
/// for a protocol that refuses parts by its name.
pub fn settled_parts<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let make = Arc::new(make);
    let run = |settled: bool| {
        let make = make.clone();
        let seed = world.seed();
        world.run_metered(
            move |session| make(session),
            move |mpc: &mut P| products_of_every_kind(mpc, seed, settled),
        )
    };
    let (results, traffic) = run(true);
    let Some(results) = results.into_iter().collect::<Option<Vec<_>>>() else { return };
    let (products, of_products) = run(false);
    let products: Vec<_> = products.into_iter().flatten().collect();
    for (settled, product) in results.iter().zip(&products) {
        expect(world, "settled parts", settled, product);
    }
    let cost = (traffic.bytes, traffic.rounds);
    assert_eq!(cost, (of_products.bytes, of_products.rounds), "bytes, rounds; {}", world.replay());
}

/// All results of products, made at once or of parts; `None` if the protocol has no parts.
fn products_of_every_kind<P: Protocol>(
    mpc: &mut P,
    seed: u64,
    settled: bool,
) -> Result<Option<Vec<Plain>>> {
    let mut draw = crate::SplitMix64::new(seed);
    let conv = ConvSpec::new(Window::new([3, 3], [2, 2]).padded([1; 4]));
    let dims: [&[usize]; 7] =
        [&[2, 3, 9, 7], &[4, 3, 3, 3], &[2, 4, 5, 4], &[2, 4, 5, 4], &[4, 1, 1], &[5001], &[5001]];
    let tensors = dims.map(|dims| Plain::signed(&mut draw, dims, 22));
    let s = share(mpc, &tensors)?;
    let bit = share_bits(mpc, &tensors[2], 1)?;
    let factors = SumFactors { outer: vec![3; 2], middle: vec![5; 4], inner: vec![7; 20] };
    let factors = [factors];
    let sums = Sums { factors: &factors, parts: 2 };
    let mut results = Vec::new();
    for mode in MODES.map(|mode| offered(mpc, mode)) {
        let relu = |keep| Finish::TruncateRelu { bits: BITS, mode, keep };
        let first = Product::new(Bilinear::Conv(conv), &s[0], &s[1], relu(true));
        let made = run(mpc, &[first], settled)?;
        let Some(kept) = made else { return Ok(None) };
        let mask = kept[0].kept.as_ref().ok_or_else(|| Error::unanswered("products"))?;
        let truncate = Finish::Truncate { bits: BITS, mode };
        let masked = |mask| Finish::TruncateMask { bits: BITS, mode, mask };
        let mut jobs = Vec::new();
        for finish in [Finish::Raw, truncate, relu(false), relu(true), masked(mask), masked(&bit)] {
            // Of several terms, with summands of either size.
            let mut job = Product::new(Bilinear::Conv(conv), &s[0], &s[1], finish)
                .plus(&s[3], 3)
                .plus(&s[4], 9);
            job.terms.push(Term { op: Bilinear::Mul, lhs: &s[2], rhs: &s[3] });
            jobs.push(job.clone());
            jobs.push(job.summed(sums));
            // Word by word, small and large.
            jobs.push(Product::new(Bilinear::Mul, &s[2], &s[3], finish).plus(&s[2], 1));
        }
        jobs.push(Product::new(Bilinear::Mul, &s[5], &s[6], truncate));
        jobs.push(Product::new(Bilinear::Mul, &s[5], &s[6], relu(true)).plus(&s[5], 5));
        let Some(made) = run(mpc, &jobs, settled)? else { return Ok(None) };
        for made in made.iter().chain(&kept) {
            let words: Vec<_> = [&made.share].into_iter().chain(&made.sums).collect();
            results.extend(open(mpc, &words)?);
            if let Some(kept) = &made.kept {
                results.extend(open_bits(mpc, &[kept])?);
            }
        }
    }
    Ok(Some(results))
}

type Answers<P> = Vec<crate::ProducedBy<P>>;

fn run<P: Protocol>(
    mpc: &mut P,
    jobs: &[ProductOf<'_, P>],
    settled: bool,
) -> Result<Option<Answers<P>>> {
    if !settled {
        return mpc.products(jobs).map(Some);
    }
    match provided::products(mpc, jobs) {
        Err(Error::Unsupported { protocol, .. }) => {
            assert_eq!(protocol, mpc.info().name);
            Ok(None)
        }
        made => made.map(Some),
    }
}

/// The sum of the parts of 2 and 3 machines, each of its rows, settles to the product of all rows: to the last bit, where
/// the truncation is exact. Summands count once. Shares of a machine's words are those of the words.
pub fn sums_of_parts<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let mut draw = data(world);
    let conv = ConvSpec::new(Window::new([3, 3], [1, 1]).padded([1; 4]));
    let x = Plain::signed(&mut draw, &[6, 2, 5, 4], 22);
    let y = Plain::signed(&mut draw, &[6, 3, 5, 4], 22);
    let gradient = Bilinear::ConvWeightGrad(conv);
    let product = Plain::bilinear(&gradient, &x, &y);
    let residual = Plain::signed(&mut draw, &[3, 2, 3, 3], 30);
    let bias = Plain::signed(&mut draw, &[3, 1, 1, 1], 30);
    let wide = bias.view(&View::Broadcast(product.shape()));
    let sum = product.zip(&residual, |z, r| z.wrapping_add(r << 4));
    let sum = sum.zip(&wide, |z, b| z.wrapping_add(b << 8));
    let want = [sum.map(|w| (w as i64 >> BITS) as u64), sum, residual.clone()];
    let got = agreed(world, make, move |mpc: &mut P| {
        let s = share(mpc, &[x.clone(), y.clone(), residual.clone(), bias.clone()])?;
        let mut opened = Vec::new();
        for machines in [2, 3] {
            let mut parts = Vec::new();
            for machine in 0..machines {
                let rows = View::Slice { axis: 0, start: machine, end: 6, step: machines };
                let lhs = mpc.linear(&Linear::View(&rows), &s[0])?;
                let rhs = mpc.linear(&Linear::View(&rows), &s[1])?;
                let term = Term { op: gradient.clone(), lhs: &lhs, rhs: &rhs };
                match mpc.parts(&[&[term]]) {
                    Err(Error::Unsupported { .. }) => return Ok(None),
                    made => parts.extend(made?),
                }
            }
            let part = sum_of_words(mpc, &parts)?;
            let exact = Finish::Truncate { bits: BITS, mode: TruncationMode::Exact };
            let jobs = [exact, Finish::Raw]
                .map(|finish| (&part, Finishing::new(finish).plus(&s[2], 4).plus(&s[3], 8)));
            let made = mpc.settle(&jobs)?;
            let same = mpc.of_components(mpc.components(&s[2])?)?;
            let results = shares(&made).into_iter().chain([&same]).collect::<Vec<_>>();
            opened.extend(open(mpc, &results)?);
        }
        Ok(Some(opened))
    });
    for got in got.iter().flat_map(|got| got.chunks_exact(3)) {
        expect(world, "sum of parts", got, &want);
    }
}

/// The sum of tensors of one shape, modulo 2^64.
fn sum_of_words<P: Protocol>(mpc: &P, words: &[Words<P>]) -> Result<Words<P>> {
    let engine = mpc.engine();
    let shape = words[0].shape().clone();
    let row = View::Reshape(Shape::new([1, shape.len()])?);
    let rows = words.iter().map(|words| engine.view(words, &row));
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    let all = engine.concat(&rows.iter().collect::<Vec<_>>(), 0)?;
    Ok(engine.view(&engine.sum(&all, &[0])?, &View::Reshape(shape))?)
}
