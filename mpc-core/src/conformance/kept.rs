//! Sums of several products, and bits that are kept for later.

use ring_arith::{Bilinear, ConvSpec, Shape, View, Window};

use super::{
    Make, agreed, data, expect,
    model::Plain,
    open, open_bits,
    products::{MODES, near, shares},
    share, share_bits,
};
use crate::{
    Compare, Finish, Linear, Product, Protocol, Result, ShareTensor, Term, TestWorld, Then,
    TruncationMode,
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

/// The bit that a ReLU keeps says where its result is positive, in every mode, and serves products,
/// selections and gates; also its opposite, another shape of it, and bits from elsewhere.
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

/// What [`keep_and_use`] opened.
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
    for mode in MODES {
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
    for (bit, mode) in bits.iter().zip(MODES.into_iter().cycle()) {
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
