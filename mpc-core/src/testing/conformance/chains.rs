//! Chains of element-wise products, against real arithmetic and against their steps one by one.

use super::{Make, agreed, data, expect, model::Plain, open, share};
use crate::{Chain, Error, Protocol, SplitMix64, Sum, TestWorld, TruncationMode, Value, provided};

/// Fraction bits.
const FRAC: u32 = 20;

fn number(draw: &mut SplitMix64) -> u64 {
    (draw.real(-1.5, 1.5) * f64::from(1 << FRAC)) as i64 as u64
}

/// A chain with wraps in either factor, in both, and in summands; with drops that meet beyond a word; with results at
/// several levels, truncated or not.
fn program<'a, P: Protocol>(
    x: &'a P::Share,
    y: &'a P::Share,
    mode: TruncationMode,
) -> Chain<'a, P::Share> {
    let mut chain = Chain::new(mode);
    let [x, y] = [x, y].map(|x| chain.input(x));
    let one = 1u64 << FRAC;
    let square = chain.product(x, x, FRAC);
    let cube = chain.product(x, square, FRAC);
    let mixed = chain.product_plus(square, y, Sum::of([(3 * one, x)], one << FRAC), FRAC);
    // (1 + square - 2 cube) (mixed - y) + 5 cube
    let left = Sum::of([(1, square), (2u64.wrapping_neg(), cube)], one);
    let right = Sum::of([(1, mixed), (u64::MAX, y)], 0);
    let many = chain.product_plus(left, right, Sum::of([(5 * one + 1, cube)], 0), FRAC);
    // 40 bits dropped of a number with 60: with itself it leaves a word.
    let fine = chain.product(Sum::of([(1 << 19, x)], 0), Sum::of([(1 << 1, y)], 0), 40);
    let fine_square = chain.product(fine, fine, 0);
    let raw = chain.product_plus(many, y, Sum::of([(1 << FRAC, cube)], 7), 0);
    chain.giving([raw, cube, many, fine_square, cube])
}

/// The same in real numbers, with the errors allowed in units.
fn exact(x: f64, y: f64) -> [f64; 5] {
    let (square, cube) = (x * x, x * x * x);
    let mixed = square * y + 3.0 * x + 1.0;
    let many = (1.0 + square - 2.0 * cube) * (mixed - y) + 5.0 * cube;
    [many * y + cube, cube, many, x * y * x * y, cube]
}

/// Chains in both fast modes, small and large enough to be cut, and in a mode that runs step by step. Invalid chains
/// are refused.
pub fn chains<P: Protocol>(world: &TestWorld, make: impl Make<P> + Clone) {
    let modes = [TruncationMode::Default, TruncationMode::Early, TruncationMode::Exact];
    let small = modes.into_iter().flat_map(|mode| [(mode, 1), (mode, 67)]);
    for (mode, len) in small.chain([(TruncationMode::Early, 4200)]) {
        let mut draw = data(world);
        let mut tensor = || Plain::from_fn(&[len], |_| number(&mut draw));
        let inputs = [tensor(), tensor()];
        let values = inputs.clone();
        let got = agreed(world, make.clone(), move |mpc: &mut P| {
            let s = share(mpc, &inputs)?;
            let results = mpc.chain(&program::<P>(&s[0], &s[1], mode))?;
            open(mpc, &results.iter().collect::<Vec<_>>())
        });
        let unit = 1.0 / f64::from(1 << FRAC);
        // The results' fraction bits.
        let units = [unit * unit, unit, unit, unit * unit, unit];
        for at in 0..len {
            let [x, y] = [0, 1].map(|i: usize| values[i].words[at] as i64 as f64 * unit);
            for (i, want) in exact(x, y).into_iter().enumerate() {
                let y = got[i].words[at] as i64 as f64 * units[i];
                let bound = [200.0, 12.0, 120.0, 12.0, 12.0][i] * unit;
                let replay = world.replay();
                assert!(
                    (y - want).abs() < bound,
                    "{mode:?}, result {i} at {at}: {y}, not {want}; {replay}"
                );
            }
        }
    }
    exact_steps(world, make.clone());
    wide_drops(world, make.clone());
    refused(world, make);
}

/// Without truncation the words are those of the steps one by one.
fn exact_steps<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let mut draw = data(world);
    let inputs = [Plain::signed(&mut draw, &[3, 5], 14), Plain::signed(&mut draw, &[3, 5], 14)];
    let got = agreed(world, make, move |mpc: &mut P| {
        let s = share(mpc, &inputs)?;
        let mut chain = Chain::new(TruncationMode::Default);
        let [x, y] = [&s[0], &s[1]].map(|x| chain.input(x));
        let product = chain.product(Sum::of([(3, x)], 5), y, 0);
        let square = chain.product_plus(product, product, Sum::of([(9, x), (1, product)], 11), 0);
        let chain = chain.giving([square, product]);
        let (whole, steps) = (mpc.chain(&chain)?, provided::chain(mpc, &chain)?);
        Ok([
            open(mpc, &whole.iter().collect::<Vec<_>>())?,
            open(mpc, &steps.iter().collect::<Vec<_>>())?,
        ])
    });
    expect(world, "chain", &got[0], &got[1]);
}

/// Products of two truncated products whose drops meet beyond a word, and a step that a sum has twice.
fn wide_drops<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    const BITS: u32 = 35;
    const N: usize = 300;
    let mut draw = data(world);
    let inputs = [Plain::signed(&mut draw, &[N], 30), Plain::signed(&mut draw, &[N], 30)];
    let values = inputs.clone();
    let got = agreed(world, make, move |mpc: &mut P| {
        let s = share(mpc, &inputs)?;
        let mut results = Vec::new();
        for meets in [true, false] {
            let mut chain = Chain::new(TruncationMode::Default);
            let [x, y] = [&s[0], &s[1]].map(|x| chain.input(x));
            let mixed = chain.product(x, y, BITS);
            let last = if meets {
                let square = chain.product(x, x, BITS);
                chain.product(square, mixed, 0)
            } else {
                chain.product(Sum::of([(3, mixed), (4, mixed)], 0), y, 0)
            };
            results.extend(mpc.chain(&chain.giving([last]))?);
        }
        open(mpc, &results.iter().collect::<Vec<_>>())
    });
    for at in 0..N {
        let [x, y] = [0, 1].map(|i: usize| values[i].words[at] as i64 as f64);
        let unit = f64::from(BITS).exp2();
        let (square, mixed) = (x * x / unit, x * y / unit);
        // Each truncated product is off by less than two units.
        let bounds = [2.0 * (square.abs() + mixed.abs() + 2.0), 14.0 * (y.abs() + 1.0)];
        for (i, want) in [square * mixed, 7.0 * mixed * y].into_iter().enumerate() {
            let found = got[i].words[at] as i64 as f64;
            let replay = world.replay();
            assert!((found - want).abs() < bounds[i], "result {i}: {found}, not {want}; {replay}");
        }
    }
}

fn refused<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let inputs = [Plain::from_fn(&[4], |i| i as u64), Plain::from_fn(&[5], |i| i as u64)];
    agreed(world, make, move |mpc: &mut P| {
        let s = share(mpc, &inputs)?;
        let mut shapes = Chain::new(TruncationMode::Default);
        let [x, y] = [&s[0], &s[1]].map(|x| shapes.input(x));
        let product = shapes.product(x, y, 20);
        assert!(matches!(mpc.chain(&shapes.giving([product])), Err(Error::Shapes { .. })));
        let square = |bits, factor: Value| {
            let mut chain = Chain::new(TruncationMode::Default);
            let x = chain.input(&s[0]);
            let product = chain.product(x, factor, bits);
            chain.giving([product])
        };
        for chain in
            [square(61, Value::Input(0)), square(20, Value::Input(1)), square(20, Value::Step(0))]
        {
            assert!(matches!(mpc.chain(&chain), Err(Error::Invalid { op: "chain", .. })));
        }
        let mut input = Chain::new(TruncationMode::Default);
        let x = input.input(&s[0]);
        assert!(matches!(mpc.chain(&input.giving([x])), Err(Error::Invalid { .. })));
        open(mpc, &[&s[0]]).map(drop)
    });
}
