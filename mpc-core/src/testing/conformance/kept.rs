//! Sums of several products, and bits that are kept for later.

use ring_arith::{Bilinear, ConvSpec, Shape, View, Window};

use super::{
    Make, agreed, data, expect,
    model::Plain,
    open, open_bits,
    products::{MODES, near, offered, shares},
    share, share_bits,
};
use crate::{
    Compare, Finish, Linear, Product, Protocol, Result, ShareTensor, SumFactors, Sums, Term,
    TestWorld, Then, TruncationMode,
};

/// Sums of maps of different kinds and sizes with one result shape, raw, truncated and rectified.
pub fn product_terms<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let mut draw = data(world);
    let conv = ConvSpec::new(Window::new([3, 3], [2, 2]).padded([1; 4]));
    let shortcut = ConvSpec::new(Window::new([1, 1], [2, 2]));
    let tensors = [
        Plain::signed(&mut draw, &[2, 3, 9, 7], 22),
        Plain::signed(&mut draw, &[4, 3, 3, 3], 22),
        Plain::signed(&mut draw, &[2, 5, 9, 7], 22),
        Plain::signed(&mut draw, &[4, 5, 1, 1], 22),
        Plain::signed(&mut draw, &[2, 4, 5, 4], 24),
        Plain::signed(&mut draw, &[2, 4, 5, 4], 24),
        Plain::signed(&mut draw, &[4, 1, 1], 30),
    ];
    let ops = [Bilinear::Conv(conv), Bilinear::Conv(shortcut), Bilinear::Mul];
    let parts: Vec<_> = ops
        .iter()
        .zip(tensors.chunks(2))
        .map(|(op, pair)| Plain::bilinear(op, &pair[0], &pair[1]))
        .collect();
    let plus = |x: &Plain, y: &Plain| x.zip(y, u64::wrapping_add);
    let two = plus(&parts[0], &parts[1]);
    let bias = tensors[6].view(&View::Broadcast(two.shape())).map(|w| w << 12);
    let want = [plus(&two, &bias), plus(&plus(&two, &parts[2]), &bias)];
    let got = agreed(world, make, move |mpc: &mut P| {
        let s = share(mpc, &tensors)?;
        let job = |terms: usize, finish| Product {
            terms: ops[..terms]
                .iter()
                .zip(s.chunks(2))
                .map(|(op, pair)| Term { op: op.clone(), lhs: &pair[0], rhs: &pair[1] })
                .collect(),
            summands: vec![(&s[6], 12)],
            finish,
            sums: None,
        };
        let mut results = Vec::new();
        for finish in [Finish::Raw, truncate(TruncationMode::Default), relu(false)] {
            results.extend(mpc.products(&[job(2, finish), job(3, finish)])?);
        }
        open(mpc, &shares(&results))
    });
    expect(world, "sum of products", &got[..2], &want);
    for (i, sum) in want.iter().enumerate() {
        near(world, "sum of products", &got[2 + i], sum, BITS, TruncationMode::Default);
        let positive = sum.map(|w| (w as i64).max(0) as u64);
        near(world, "sum of products", &got[4 + i], &positive, BITS, TruncationMode::Early);
    }
}

/// Sums of a product's truncated elements are those before a ReLU or a mask, for each part and list of factors. They
/// do not depend on the final step or on the parts' sizes.
pub fn product_sums<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let mut draw = data(world);
    // The last is large enough for a protocol to cut it.
    let shapes = [&[3, 5][..], &[1, 70], &[3, 1400]];
    let samples: Vec<_> = shapes
        .iter()
        .map(|dims| [30, 31].map(|bits| Plain::signed(&mut draw, dims, bits)))
        .collect();
    // One list along two axes, and one along three.
    let lists: Vec<_> = shapes
        .iter()
        .map(|dims| {
            let mut small = |len: usize| Plain::signed(&mut draw, &[len], 3).words;
            let two = [small(dims[0]), small(dims[1]), small(1)];
            [two, [small(dims[0]), small(5), small(dims[1] / 5)]]
        })
        .map(|lists| lists.map(|[outer, middle, inner]| SumFactors { outer, middle, inner }))
        .collect();
    let (inputs, factors) = (samples.clone(), lists.clone());
    let got = agreed(world, make, move |mpc: &mut P| {
        let mut results = Vec::new();
        for (sample, factors) in inputs.iter().zip(&factors) {
            let s = share(mpc, sample)?;
            let sums = Sums { factors, parts: sample[0].shape().dims()[0] };
            let bit = share_bits(mpc, &sample[0], 1)?;
            for &mode in modes_for(&sample[0]) {
                let mode = offered(mpc, mode);
                let kept = Finish::TruncateRelu { bits: BITS, mode, keep: true };
                let kept = Product::new(Bilinear::Mul, &s[0], &s[1], kept).summed(sums);
                let kept = mpc.product(kept)?;
                let mask = kept.kept.as_ref().expect("the sign was to be kept");
                let truncate = Finish::Truncate { bits: BITS, mode };
                let without = Finish::TruncateRelu { bits: BITS, mode, keep: false };
                let finishes = [truncate, without, masked(mode, mask), masked(mode, &bit)];
                let jobs = finishes.map(|finish| Product::new(Bilinear::Mul, &s[0], &s[1], finish));
                let all = mpc.products(&jobs.map(|job| job.summed(sums)))?;
                for made in all.iter().chain([&kept]) {
                    let sums = made.sums.as_ref().expect("sums were asked for");
                    results.extend(open(mpc, &[&made.share, sums])?);
                }
            }
        }
        Ok(results)
    });
    let mut got = got.chunks_exact(2);
    for (sample, factors) in samples.iter().zip(&lists) {
        let [parts, part] = [sample[0].shape().dims()[0], sample[0].shape().dims()[1]];
        let product = Plain::bilinear(&Bilinear::Mul, &sample[0], &sample[1]);
        let quotients = product.map(|w| (w as i64 >> BITS) as u64);
        let weighted = |values: &Plain, at: usize| {
            let SumFactors { outer, middle, inner } = &factors[at % 2];
            let factor = |i: usize| {
                let row = i / inner.len();
                let pair = outer[row / middle.len()].wrapping_mul(middle[row % middle.len()]);
                pair.wrapping_mul(inner[i % inner.len()])
            };
            let elements = at / 2 * part..(at / 2 + 1) * part;
            let products = elements.map(|i| factor(i).wrapping_mul(values.words[i]));
            products.fold(0, u64::wrapping_add)
        };
        // A rounded element is off by less than two units.
        let most = 64 * part as i64;
        for at in 0..5 * modes_for(&sample[0]).len() {
            let Some([values, sums]) = got.next() else { unreachable!("each has a result") };
            assert_eq!(sums.shape().dims(), [parts, 2]);
            for (place, &sum) in sums.words.iter().enumerate() {
                let off = sum.wrapping_sub(weighted(&quotients, place)) as i64;
                assert!(off.abs() <= most, "sums are off by {off}; {}", world.replay());
                if at % 5 == 0 {
                    assert_eq!(sum, weighted(values, place), "{}", world.replay());
                }
            }
        }
    }
}

/// All modes for small tensors: sums of a large one take a while on a device that is emulated.
fn modes_for(sample: &Plain) -> &'static [TruncationMode] {
    if sample.words.len() < 100 { &MODES } else { &MODES[..1] }
}

const BITS: u32 = 20;

fn truncate<B>(mode: TruncationMode) -> Finish<'static, B> {
    Finish::Truncate { bits: BITS, mode }
}

fn relu<B>(keep: bool) -> Finish<'static, B> {
    Finish::TruncateRelu { bits: BITS, mode: TruncationMode::Early, keep }
}

fn masked<B>(mode: TruncationMode, mask: &B) -> Finish<'_, B> {
    Finish::TruncateMask { bits: BITS, mode, mask }
}

fn where_(bit: &Plain, x: &Plain) -> Plain {
    bit.zip(x, |b, x| if b == 1 { x } else { 0 })
}

/// The bit that a ReLU keeps marks its positive results in every mode, and serves products,
/// selections and gates. So do its opposite, another shape of it, and bits from other sources.
pub fn kept_signs<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let mut draw = data(world);
    // The last is large enough for a protocol to cut it.
    let shapes = [&[7][..], &[3, 5, 9], &[2, 4099]];
    let samples = shapes.map(|dims| [30, 31, 30, 31].map(|b| Plain::signed(&mut draw, dims, b)));
    let products = samples.clone().map(|[_, _, g, h]| Plain::bilinear(&Bilinear::Mul, &g, &h));
    let words = samples.clone().map(|[_, _, g, _]| g);
    let got = agreed(world, make, move |mpc: &mut P| {
        let mut results = Vec::new();
        for sample in &samples {
            results.push(keep_and_use(mpc, sample)?);
        }
        Ok(results)
    });
    for ((got, z), g) in got.iter().zip(&products).zip(&words) {
        for (sign, value) in &got.signs {
            let positive = value.map(|w| u64::from(w as i64 > 0));
            expect(world, "kept sign", std::slice::from_ref(sign), &[positive]);
        }
        for (bit, mode, result) in &got.masked {
            let zero = bit.zip(result, |b, y| if b == 1 { 0 } else { y });
            assert!(zero.words.iter().all(|&w| w == 0), "unmasked; {}", world.replay());
            near(world, "masked product", result, &where_(bit, z), BITS, *mode);
        }
        for (bit, result) in &got.selected {
            expect(world, "select", std::slice::from_ref(result), &[where_(bit, g)]);
        }
    }
}

/// The values that [`keep_and_use`] opened.
#[derive(Debug, PartialEq)]
struct Used {
    /// Bits, and the values whose signs they are.
    signs: Vec<(Plain, Plain)>,
    /// Bits, and the second product where they are 1.
    masked: Vec<(Plain, TruncationMode, Plain)>,
    /// Bits, and the third word where they are 1.
    selected: Vec<(Plain, Plain)>,
}

fn keep_and_use<P: Protocol>(mpc: &mut P, sample: &[Plain; 4]) -> Result<Used> {
    let s = share(mpc, sample)?;
    let [x, y, g, h] = &s[..] else { unreachable!("four were shared") };
    let mut used = Used { signs: vec![], masked: vec![], selected: vec![] };
    let mut bits = vec![share_bits(mpc, &sample[0], 1)?];
    let modes = MODES.map(|mode| offered(mpc, mode));
    for mode in modes {
        let finish = Finish::TruncateRelu { bits: BITS, mode, keep: true };
        let done = mpc.product(Product::new(Bilinear::Mul, x, y, finish))?;
        let kept = done.kept.expect("the sign was to be kept");
        used.signs.push((opened_bit(mpc, &kept)?, open(mpc, &[&done.share])?.remove(0)));
        bits.push(kept);
    }
    bits.push(mpc.not(&bits[1])?);
    bits.push(mpc.xor(&bits[1], &bits[2])?);
    let then = Then { negative: &[x], ..Then::bit() };
    let compared = mpc.compare_one(Compare { value: x, width: 64, then })?;
    bits.push(compared.into_bit()?);
    for (bit, mode) in bits.iter().zip(modes.into_iter().cycle()) {
        let opened = opened_bit(mpc, bit)?;
        let product = mpc.product(Product::new(Bilinear::Mul, g, h, masked(mode, bit)))?;
        let product = open(mpc, &[&product.share])?.remove(0);
        used.masked.push((opened.clone(), mode, product));
        let selected = mpc.select(&[(bit, &[g])])?.remove(0);
        used.selected.push((opened, open(mpc, &[&selected[0]])?.remove(0)));
    }
    let flat = Shape::new([x.shape().len()])?;
    let turned = mpc.reshape_bits(&bits[1], &flat)?;
    let [g, h] = [g, h].map(|x| mpc.linear(&Linear::View(&View::Reshape(flat.clone())), x));
    let (g, h) = (g?, h?);
    let job = Product::new(Bilinear::Mul, &g, &h, masked(TruncationMode::Default, &turned));
    let product = mpc.product(job)?.share;
    let back = View::Reshape(x.shape().clone());
    let product = mpc.linear(&Linear::View(&back), &product)?;
    let bit = opened_bit(mpc, &bits[1])?;
    used.masked.push((bit, TruncationMode::Default, open(mpc, &[&product])?.remove(0)));
    Ok(used)
}

fn opened_bit<P: Protocol>(mpc: &mut P, bit: &P::Bits) -> Result<Plain> {
    Ok(open_bits(mpc, &[bit])?.remove(0))
}
