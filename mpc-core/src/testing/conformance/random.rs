//! Random numbers that no party knows, over the protocol under test.

use super::{Make, agreed, open, open_bits};
use crate::{
    Protocol, Result, SecretTensor, ShareTensor, TestWorld, functions as f,
    testing::goodness::chi_square,
};
use ring_arith::{FracBits, Shape};

/// Fraction bits.
const FRAC: u32 = 20;

/// Numbers of each kind that are drawn.
const DRAWN: usize = 2000;

/// The largest sum of squares for ten equally likely cells: it is met once in 10^5 times.
const LARGEST: f64 = 39.0;

/// Words and bits are other ones at each call; each function of random numbers has its distribution: ten cells, which are
/// equally likely, are hit about equally often.
pub fn randomness<P: Protocol>(world: &TestWorld, make: impl Make<P> + Copy) {
    let [words, bits] = agreed(world, make, |mpc: &mut P| {
        let shapes = [Shape::new([3, 40])?, Shape::new([0])?];
        let [once, twice] = [mpc.random_words(&shapes)?, mpc.random_words(&shapes)?];
        assert!(once.iter().zip(&shapes).all(|(share, shape)| share.shape() == shape));
        let words = open(mpc, &[&once[0], &twice[0]])?;
        let shape = Shape::new([130])?;
        let [once, twice] = [mpc.random_bits(&shape, 7)?, mpc.random_bits(&shape, 7)?];
        let bits = open_bits(mpc, &[&once, &twice])?;
        assert!(mpc.random_bits(&shape, 65).is_err());
        Ok([words, bits].map(|opened| opened.into_iter().map(|it| it.words).collect::<Vec<_>>()))
    });
    for (drawn, width) in [(&words, 64), (&bits, 7)] {
        let places = drawn[0].len();
        let alike = drawn[0].iter().zip(&drawn[1]).filter(|(a, b)| a == b).count();
        assert!(alike < 12, "{alike} of {places} are drawn twice; {}", world.replay());
        for bit in 0..width {
            let ones = drawn.concat().iter().filter(|word| *word >> bit & 1 == 1).count();
            let off = (ones as f64 - places as f64).abs() / (places as f64 / 2.0).sqrt();
            assert!(off < 5.5, "bit {bit} is 1 {ones} times of {}; {}", 2 * places, world.replay());
        }
    }
    let normal = [-1.28155, -0.84162, -0.52440, -0.25335, 0.0];
    let normal = [0, 1, 2, 3, 4, 3, 2, 1, 0].map(|at| normal[at]);
    let normal: Vec<_> =
        normal.iter().enumerate().map(|(at, z)| if at > 4 { -z } else { *z }).collect();
    let tenth = |at: usize| at as f64 / 10.0;
    let exponential: Vec<_> = (1..10).map(|at| -(1.0 - tenth(at)).ln()).collect();
    let laplace = (1..10).map(|at| {
        let p = tenth(at);
        if at < 5 { (2.0 * p).ln() } else { -(2.0 - 2.0 * p).ln() }
    });
    type Draw<P> = fn(&mut P, &Shape, u32) -> Result<SecretTensor<P>>;
    let kinds: [(&str, Draw<P>, Vec<f64>); 4] = [
        ("uniform", f::uniform, (1..10).map(tenth).collect()),
        ("exponential", f::exponential, exponential),
        ("laplace", f::laplace, laplace.collect()),
        ("normal", f::normal, normal),
    ];
    for (name, draw, ends) in kinds {
        let values = drawn(world, make, move |mpc| draw(mpc, &Shape::new([DRAWN / 4, 4])?, FRAC));
        let mut hits = [0; 10];
        values.iter().for_each(|value| hits[ends.iter().filter(|end| *end <= value).count()] += 1);
        let cell = DRAWN as f64 / 10.0;
        let squares: f64 = hits.iter().map(|&n| (f64::from(n) - cell).powi(2) / cell).sum();
        assert!(squares < LARGEST, "{name}: {hits:?}; {}", world.replay());
    }
    integers(world, make);
    chances(world, make);
}

/// Integers of discrete distributions, among them such that are sums of others.
fn integers<P: Protocol>(world: &TestWorld, make: impl Make<P> + Copy) {
    type Draw<P> = fn(&mut P, &Shape, f64) -> Result<SecretTensor<P>>;
    type Weight = fn(i64, f64) -> f64;
    let laplace: Weight = |n, scale| (-(n as f64).abs() / scale).exp();
    let normal: Weight = |n, s| (-((n * n) as f64) / (2.0 * s * s)).exp();
    let kinds: [(&str, Draw<P>, f64, Weight); 3] = [
        ("discrete Laplace", f::discrete_laplace, 3.0, laplace),
        ("discrete normal", f::discrete_normal, 2.5, normal),
        ("discrete normal, a sum", f::discrete_normal, 25.0, normal),
    ];
    for (name, draw, scale, weight) in kinds {
        let values = drawn(world, make, move |mpc| draw(mpc, &Shape::new([DRAWN, 1])?, scale));
        let values: Vec<_> = values.into_iter().map(|value| value as i64).collect();
        let [statistic, limit] = chi_square(&values, 300, |n| weight(n, scale));
        assert!(statistic < limit, "{name}: {statistic} of {limit}; {}", world.replay());
    }
}

/// Truth values of given probabilities, secret and public, what dropout keeps, and positions of given weights.
fn chances<P: Protocol>(world: &TestWorld, make: impl Make<P> + Copy) {
    let p: [f64; 7] = [-0.5, 0.0, 0.25, 0.5, 0.75, 1.0, 3.0];
    let rows = 500;
    let ones = drawn(world, make, move |mpc| {
        let p = shared(mpc, &[rows, p.len()], &p.repeat(rows))?;
        let ones = f::bernoulli(mpc, &p)?;
        f::sum(mpc, &ones, &[0])
    });
    for (p, ones) in p.iter().zip(ones) {
        let p = p.clamp(0.0, 1.0);
        let spread = (rows as f64 * p * (1.0 - p)).sqrt();
        assert!(
            (ones - p * rows as f64).abs() <= 5.0 * spread,
            "{ones} of {p}; {}",
            world.replay()
        );
    }
    for p in [0.0, 0.3, 1.0] {
        let kept = drawn(world, make, move |mpc| {
            let ones = f::coins(mpc, &Shape::new([rows])?, p)?;
            let x = shared(mpc, &[rows], &vec![-1.5; rows])?;
            // Without anything to keep dropout would divide by 0.
            let kept = f::dropout(mpc, &x, (1.0 - p).min(0.5))?;
            let [ones, kept] = [f::sum(mpc, &ones, &[0])?, f::sum(mpc, &kept, &[0])?];
            let ones = f::rescale(mpc, &ones, FRAC)?;
            f::concat(mpc, &[&ones, &kept], 0)
        });
        let off = |count: f64, p: f64| (count - p * rows as f64).abs();
        let spread = |p: f64| 5.0 * (rows as f64 * p * (1.0 - p)).sqrt();
        assert!(off(kept[0], p) <= spread(p), "{} of {p}; {}", kept[0], world.replay());
        let p = p.max(0.5);
        let count = kept[1] * p / -1.5;
        assert!(off(count, p) <= spread(p) + 1e-2, "{count} kept of {p}; {}", world.replay());
    }
    let weights = [0.0, 1.0, 2.5, 0.0, 0.5, 1.0];
    let positions = drawn(world, make, move |mpc| {
        let weights = shared(mpc, &[rows, weights.len()], &weights.repeat(rows))?;
        f::weighted_index(mpc, &weights)
    });
    assert_eq!(positions.len(), rows);
    for (at, weight) in weights.iter().enumerate() {
        let p = weight / weights.iter().sum::<f64>();
        let hits = positions.iter().filter(|position| **position == at as f64).count();
        let spread = (rows as f64 * p * (1.0 - p)).sqrt();
        let off = (hits as f64 - p * rows as f64).abs();
        assert!(off <= 5.0 * spread, "{hits} times {at}; {}", world.replay());
    }
    let refused = agreed(world, make, |mpc: &mut P| {
        let none = shared(mpc, &[2, 0], &[])?;
        let fine = Shape::new([1])?;
        Ok([
            f::weighted_index(mpc, &none).is_err(),
            f::uniform(mpc, &fine, 41).is_err(),
            f::dropout(mpc, &none, 1.0).is_err(),
        ])
    });
    assert_eq!(refused, [true; 3], "{}", world.replay());
}

/// Public numbers as a secret tensor.
fn shared<P: Protocol>(mpc: &P, dims: &[usize], values: &[f64]) -> Result<SecretTensor<P>> {
    f::constant(mpc, &f::encode(mpc, &Shape::new(dims)?, values, FracBits::new(FRAC)?)?)
}

/// The numbers that a function draws.
fn drawn<P: Protocol>(
    world: &TestWorld,
    make: impl Make<P> + Copy,
    draw: impl Fn(&mut P) -> Result<SecretTensor<P>> + Send + Sync + Clone + 'static,
) -> Vec<f64> {
    agreed(world, make, move |mpc: &mut P| {
        let drawn = draw(mpc)?;
        f::reveal(mpc, &drawn)
    })
}
