//! The errors of functions of rows.

use net::Party;
use ring_arith::{FracBits, Shape};

use super::{Measured, exp2, largest, unit};
use crate::{
    Profile, Protocol, Result, SecretTensor, SplitMix64, TestWorld,
    functions::{self as f, Centre},
    testing::conformance::{Make, agreed},
};

/// The functions of rows of `n` numbers beside their stated errors. `mean`, `d` (the standard deviation with epsilon)
/// and `total` (the sum of squares around the mean) are those of the row; `u` is a unit in the last place.
pub const OF_ROWS: [(&str, &str); 5] = [
    (
        "normalize",
        "|y| (2^-18 + 2^(f - 58) sqrt(total)) + 3 u + (2^-20 |mean| + 2 u) / d * (1 + y^2 / sqrt(n))",
    ),
    ("normalize from 0", "|y| (2^-18 + 2^(f - 58) sqrt(sum of squares)) + 3 u"),
    ("sum_squares", "2 u + 2^-45 of the sum"),
    ("var", "2^-18 of the variance + 3 u (1 + its root) + ((2^-20 |mean| + 2 u) / d)^2"),
    ("norm", "2^-19 of the norm + 3 min(sqrt(u), u + u / norm)"),
];

/// The errors of the functions [`OF_ROWS`] for rows that hardly vary, rows with one large number and rows of large
/// numbers, in several formats.
///
/// # Panics
/// If a party fails or the parties' results differ.
pub fn rows_measured<P: Protocol>(
    world: &TestWorld,
    make: impl Make<P> + Clone,
) -> [Measured; OF_ROWS.len()] {
    let mut worst = [Measured::NONE; OF_ROWS.len()];
    for (frac, count) in [(8, 768_usize), (20, 768), (20, 12), (20, 1), (24, 768), (26, 64)] {
        // The largest deviation that leaves a variance an encoding, and one that normalisation allows.
        let most = exp2((60 - frac as i32 - count.ilog2() as i32) / 2);
        let far = exp2(48 - frac as i32 - count.ilog2() as i32 / 2);
        let small = exp2(-4 - frac as i32 / 2);
        for (deviation, squares) in
            [(small, true), (1.0, true), (75.0, true), (most, true), (far, false)]
        {
            let mut row = drawn_row(frac, count, deviation);
            near_rows(world, make.clone(), frac, &row, squares, &mut worst);
            row[0] = if squares { most } else { far };
            near_rows(world, make.clone(), frac, &row, squares, &mut worst);
        }
    }
    worst
}

/// Checks that [`rows_measured`] finds no error beyond its bound.
///
/// # Panics
/// If a party fails, the parties' results differ, or one is beyond its bound.
pub fn rows<P: Protocol>(world: &TestWorld, make: impl Make<P> + Clone) {
    for ((name, _), measured) in OF_ROWS.iter().zip(rows_measured(world, make)) {
        println!("{name:<20} {measured}");
        assert!(measured.of_bound <= 1.0, "{name}: {measured}");
    }
}

/// The stated error of softmax and its logarithm: below `2^-17`, plus a unit in the last place with fewer bits than
/// 20.
pub const EXPONENTIALS: &str = "2^-17";

/// Lengths of rows that tests take.
pub const COUNTS: [usize; 7] = [1, 2, 3, 16, 17, 300, 1500];

/// The worst errors of softmax and of its logarithm, as fractions of the stated error. Rows have the given lengths;
/// their numbers are equal, spread, with one peak, or a slope of small numbers.
///
/// # Panics
/// If a party fails or the parties' results differ.
pub fn exponentials_measured<P: Protocol>(
    world: &TestWorld,
    make: impl Make<P> + Clone,
    frac: u32,
    counts: &[usize],
) -> [Measured; 2] {
    let mut worst = [Measured::NONE; 2];
    for &count in counts {
        for kind in 0..4 {
            let row = row_of_scores(frac, count, kind);
            let top = row.iter().copied().fold(f64::MIN, f64::max);
            let sum: f64 = row.iter().map(|x| (x - top).exp()).sum();
            let input = row.clone();
            let got = agreed(world, make.clone(), move |mpc: &mut P| {
                let mine = (mpc.me() == Party(0)).then_some(&input[..]);
                let shape = Shape::new([1, input.len()])?;
                let x = f::input(mpc, Party(0), &shape, mine, FracBits::new(frac)?)?;
                let results = [f::softmax(mpc, &x, 1)?, f::log_softmax(mpc, &x, 1)?];
                f::reveal_all(mpc, &[&results[0], &results[1]])
            });
            let bound = exp2(-17) + if frac < 20 { unit(frac) } else { 0.0 };
            for (i, &x) in row.iter().enumerate() {
                let wants = [(x - top).exp() / sum, x - top - sum.ln()];
                for ((worst, got), want) in worst.iter_mut().zip(&got).zip(wants) {
                    worst.note(x, (got[i] - want).abs(), bound);
                }
            }
        }
    }
    worst
}

/// As [`exponentials_measured`], of rows of usual lengths in several formats.
///
/// # Panics
/// If a party fails, the parties' results differ, or one is beyond its bound.
pub fn exponentials<P: Protocol>(world: &TestWorld, make: impl Make<P> + Clone, fracs: &[u32]) {
    for &frac in fracs {
        let measured = exponentials_measured(world, make.clone(), frac, &COUNTS);
        for (name, measured) in ["softmax", "log_softmax"].into_iter().zip(measured) {
            println!("{frac:>2} bits {name:<20} {measured}");
            assert!(measured.of_bound < 1.0, "{name} at {frac} bits: {measured}");
        }
    }
}

/// Scores: all alike, spread, with one peak far above the rest, or falling off slowly.
fn row_of_scores(frac: u32, count: usize, kind: usize) -> Vec<f64> {
    let mut draw = SplitMix64::new((count + kind) as u64);
    let unit = unit(frac);
    let number = |i: usize| match kind {
        0 => -3.25,
        1 => draw.real(-8.0, 8.0),
        2 if i == count / 2 => largest(frac) / 4.0,
        2 => -largest(frac) / 4.0,
        _ if i == 0 => 0.0,
        _ => -9.0 - (i % 13) as f64,
    };
    let numbers = (0..count).map(number);
    numbers.map(|x: f64| (x / unit).round_ties_even() * unit).collect()
}

fn drawn_row(frac: u32, count: usize, deviation: f64) -> Vec<f64> {
    let mut draw = SplitMix64::new(count as u64);
    let unit = unit(frac);
    let mut number = || 0.3 * deviation + draw.real(-1.7, 1.7) * deviation;
    (0..count).map(|_| (number() / unit).round_ties_even() * unit).collect()
}

fn near_rows<P: Protocol>(
    world: &TestWorld,
    make: impl Make<P>,
    frac: u32,
    row: &[f64],
    squares: bool,
    worst: &mut [Measured; OF_ROWS.len()],
) {
    const EPSILON: f64 = 1e-5;
    let input = row.to_vec();
    let most = row.iter().fold(0.0, |most: f64, x| most.max(x.abs())) / unit(frac);
    let width = (most as u64 + 1).ilog2() + 3;
    let got = agreed(world, make, move |mpc: &mut P| {
        let mine = (mpc.me() == Party(0)).then_some(&input[..]);
        let shape = Shape::new([1, input.len()])?;
        let x = f::input(mpc, Party(0), &shape, mine, FracBits::new(frac)?)?;
        let from_zero = |mpc: &mut P, x: &SecretTensor<P>| -> Result<SecretTensor<P>> {
            Ok(f::normalize_watched(mpc, x, 1, Centre::Zero, EPSILON)?.rows)
        };
        let mut results = vec![f::normalize(mpc, &x, 1, EPSILON)?, from_zero(mpc, &x)?];
        // For slow links numbers that are known to be small are centred in another way.
        let usual = mpc.profile();
        mpc.set_profile(Profile::SlowLinks);
        let narrow = x.clone().with_width(width);
        results.extend([f::normalize(mpc, &narrow, 1, EPSILON)?, from_zero(mpc, &narrow)?]);
        mpc.set_profile(usual);
        if squares {
            results.extend([
                f::sum_squares(mpc, &x, &[1])?,
                f::var(mpc, &x, &[1])?,
                f::norm(mpc, &x, &[1])?,
            ]);
        }
        f::reveal_all(mpc, &results.iter().collect::<Vec<_>>())
    });
    let n = row.len() as f64;
    let mean = row.iter().sum::<f64>() / n;
    let total: f64 = row.iter().map(|x| (x - mean).powi(2)).sum();
    let sum: f64 = row.iter().map(|x| x * x).sum();
    let epsilon = EPSILON.max(exp2(-(frac as i32) - 5));
    let deviation = (total / n + epsilon).sqrt();
    let unit = unit(frac);
    let relative = exp2(-18) + exp2(frac as i32 - 58) * total.sqrt();
    let off = (exp2(-20) * mean.abs() + 2.0 * unit) / deviation;
    for (x, y) in row.iter().chain(row).zip(got[0].iter().chain(&got[2])) {
        let want = (x - mean) / deviation;
        let bound = relative * want.abs() + 3.0 * unit + off * (1.0 + want * want / n.sqrt());
        worst[0].note(*x, (y - want).abs(), bound);
    }
    for (x, y) in row.iter().chain(row).zip(got[1].iter().chain(&got[3])) {
        let want = x / (sum / n + epsilon).sqrt();
        let relative = exp2(-18) + exp2(frac as i32 - 58) * sum.sqrt();
        worst[1].note(*x, (y - want).abs(), relative * want.abs() + 3.0 * unit);
    }
    // The row is told by its deviation.
    let mut near = |function: usize, got: f64, want: f64, bound: f64| {
        worst[function].note(deviation, (got - want).abs(), bound);
    };
    if let [_, _, _, _, squares, variance, norm] = &got[..] {
        let size = (total / n).sqrt();
        near(2, squares[0], sum, 2.0 * unit + exp2(-45) * sum);
        let bound = exp2(-18) * total / n + 3.0 * unit * (1.0 + size) + off * off;
        near(3, variance[0], total / n, bound);
        near(
            4,
            norm[0],
            sum.sqrt(),
            3.0 * unit.sqrt().min(unit * (1.0 + 1.0 / sum.sqrt())) + exp2(-19) * sum.sqrt(),
        );
    }
}
