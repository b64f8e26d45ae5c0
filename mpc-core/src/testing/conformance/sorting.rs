//! Sorting and numbers at places of the order, over the protocol under test.

use net::Party;
use ring_arith::{Engine, FracBits, Shape, Tensor};

use super::{Make, agreed};
use crate::{Format, Protocol, Result, SecretTensor, SplitMix64, TestWorld, functions as f};

const DIMS: [usize; 3] = [3, 7, 2];

/// Whole and half numbers with many ties, and the ends of the range. Adding 0 makes a negative zero positive: a total
/// order tells the two apart, and fixed point does not.
fn values(world: &TestWorld) -> Vec<f64> {
    let mut draw = SplitMix64::new(world.seed());
    let mut values: Vec<f64> =
        (0..42).map(|_| (draw.real(-3.0, 3.0) * 2.0).round() / 2.0 + 0.0).collect();
    values[1] = 4_398_046_511_103.0;
    values[4] = -4_398_046_511_103.0;
    values[9] = -4_398_046_511_103.0;
    values
}

/// Numbers along every axis in order, their places (those of a stable order) and columns beside them, with few bits and
/// with as many as there are; the largest few, order statistics, medians, quantiles and counts of distinct numbers.
pub fn sorting<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let numbers = values(world);
    let small: Vec<f64> = numbers.iter().map(|v| v.clamp(-8.0, 8.0)).collect();
    let inputs = [small.clone(), numbers.clone()];
    let got = agreed(world, make, move |mpc: &mut P| {
        let mut results = Vec::new();
        for (input, width) in inputs.iter().zip([25, 63]) {
            let mine = (mpc.me() == Party(0)).then_some(&input[..]);
            let x = f::input(mpc, Party(0), &Shape::new(DIMS)?, mine, FracBits::DEFAULT)?;
            let x = x.with_width(width);
            for axis in 0..3 {
                results.extend(of_axis(mpc, &x, axis)?);
            }
        }
        f::reveal_all(mpc, &results.iter().collect::<Vec<_>>())
    });
    let mut got = got.into_iter();
    for input in [small, numbers] {
        for axis in 0..3 {
            let results: Vec<_> = got.by_ref().take(NAMES.len()).collect();
            for (r, row) in rows(&input, axis).iter().enumerate() {
                for ((name, want), got) in NAMES.iter().zip(of_row(row)).zip(&results) {
                    let got = along(got, axis, want.len(), r);
                    let close = got.iter().zip(&want).all(|(g, w)| (g - w).abs() <= 9e-6);
                    let exact = ["median", "quantiles"].contains(name) || got == want;
                    assert!(
                        close && exact,
                        "{name} of {row:?} along axis {axis}: {got:?}, not {want:?}; {}",
                        world.replay()
                    );
                }
            }
        }
    }
}

/// Many integers of few bits in one row, with many ties and both ends of their range: a protocol with a shuffle sorts
/// them by their bits. An odd and an even number of bits, and one.
pub fn sorting_by_bits<P: Protocol>(world: &TestWorld, make: impl Make<P> + Copy) {
    for (width, rows) in [(1, 7), (2, 65), (5, 300), (6, 300)] {
        let mut draw = SplitMix64::new(world.seed());
        let low = -(1i64 << (width - 1));
        let keys: Vec<i64> = (0..rows)
            .map(|i| match i {
                0 => -low - 1,
                1 => low,
                _ => low + (draw.next_u64() % (1 << width)) as i64,
            })
            .collect();
        let given = keys.clone();
        let got = agreed(world, make, move |mpc: &mut P| {
            let shape = Shape::new([rows, 1])?;
            let words = Tensor::new(shape, given.iter().map(|&key| key as u64).collect())?;
            let x = mpc.constant(&mpc.engine().upload(words)?)?;
            let x = SecretTensor::new(x, Format::integer(width));
            let ten = f::mul_scalar(mpc, &x, 10.0)?;
            let sorted = f::sort(mpc, &x, 0)?;
            let places = f::argsort(mpc, &x, 0)?;
            let table = f::sort_with(mpc, &x, &[&ten], 0)?;
            let mut all = vec![sorted, places, table.keys, table.places];
            all.extend(table.columns);
            f::reveal_all(mpc, &all.iter().collect::<Vec<_>>())
        });
        let mut places: Vec<usize> = (0..rows).collect();
        places.sort_by_key(|&place| keys[place]);
        let sorted: Vec<_> = places.iter().map(|&place| keys[place] as f64).collect();
        let places: Vec<_> = places.iter().map(|&place| place as f64).collect();
        let tens = sorted.iter().map(|key| 10.0 * key).collect();
        let want = [sorted.clone(), places.clone(), sorted, places, tens];
        assert_eq!(got, want, "{width} bits; {}", world.replay());
    }
}

/// Distinct numbers and how often each is there: of many with ties, of equal ones, of one and of none; and fewer places
/// than there are distinct numbers.
pub fn distinct_numbers<P: Protocol>(world: &TestWorld, make: impl Make<P> + Copy) {
    let mut draw = SplitMix64::new(world.seed());
    let many: Vec<_> = (0..150).map(|_| draw.real(-4.0, 4.0).round() / 2.0 + 0.0).collect();
    let cases = [
        (many.clone(), None),
        (many, Some(3)),
        (vec![1.5; 6], None),
        (vec![0.0, -2.0], Some(0)),
        (vec![-0.5], None),
        (vec![], None),
    ];
    for (numbers, at_most) in cases {
        let given = numbers.clone();
        let got = agreed(world, make, move |mpc: &mut P| {
            let mine = (mpc.me() == Party(0)).then_some(&given[..]);
            let shape = Shape::new([given.len()])?;
            let x = f::input(mpc, Party(0), &shape, mine, FracBits::DEFAULT)?;
            let found = f::unique(mpc, &x.with_bound(2.0), at_most)?;
            f::reveal_all(mpc, &[&found.values, &found.counts, &found.distinct])
        });
        let mut values = numbers.clone();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let distinct = values.len() as f64;
        let places = at_most.unwrap_or(numbers.len()).min(numbers.len());
        let times = |value: &f64| numbers.iter().filter(|other| *other == value).count() as f64;
        let mut counts: Vec<_> = values.iter().map(times).collect();
        values.resize(places, 0.0);
        counts.resize(places, 0.0);
        assert_eq!(got, [values, counts, vec![distinct]], "{at_most:?}; {}", world.replay());
    }
}

const NAMES: [&str; 9] = [
    "sort",
    "argsort",
    "keys",
    "column",
    "largest",
    "their places",
    "median",
    "quantiles",
    "distinct",
];

fn of_axis<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    axis: usize,
) -> Result<Vec<SecretTensor<P>>> {
    let minus = f::neg(mpc, x)?;
    let table = f::sort_with(mpc, x, &[&minus], axis)?;
    let (largest, places) = f::top_k(mpc, x, 2, axis)?;
    let column =
        table.columns.into_iter().next().ok_or_else(|| crate::Error::unanswered("sort"))?;
    // Distances between the ends of the range have no product with a fraction.
    let near = f::clamp(mpc, x, Some(-8.0), Some(8.0))?;
    Ok(vec![
        f::sort(mpc, x, axis)?,
        f::argsort(mpc, x, axis)?,
        table.keys,
        column,
        largest,
        places,
        f::median(mpc, &near, axis)?,
        f::quantile(mpc, &near, &[0.9, 0.0, 0.3], axis)?,
        f::distinct(mpc, x, axis)?,
    ])
}

fn of_row(row: &[f64]) -> [Vec<f64>; 9] {
    let k = row.len();
    let mut places: Vec<usize> = (0..k).collect();
    places.sort_by(|&a, &b| row[a].total_cmp(&row[b]));
    let sorted: Vec<f64> = places.iter().map(|&i| row[i]).collect();
    let mut falling: Vec<usize> = (0..k).collect();
    falling.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
    falling.truncate(2);
    let near: Vec<f64> = sorted.iter().map(|v| v.clamp(-8.0, 8.0)).collect();
    let at = |q: f64| {
        let at = q * (k - 1) as f64;
        let low = near[at.floor() as usize];
        low + (near[at.ceil() as usize] - low) * (at - at.floor())
    };
    let mut distinct = sorted.clone();
    distinct.dedup();
    let index = |places: &[usize]| places.iter().map(|&i| i as f64).collect::<Vec<_>>();
    [
        sorted.clone(),
        index(&places),
        sorted.clone(),
        sorted.iter().map(|v| -v).collect(),
        falling.iter().map(|&i| row[i]).collect(),
        index(&falling),
        vec![at(0.5)],
        vec![at(0.9), at(0.0), at(0.3)],
        vec![distinct.len() as f64],
    ]
}

/// The rows of a tensor along an axis.
fn rows(values: &[f64], axis: usize) -> Vec<Vec<f64>> {
    (0..42 / DIMS[axis]).map(|row| along(values, axis, DIMS[axis], row)).collect()
}

/// A row along an axis of a tensor whose axis has another length.
fn along(values: &[f64], axis: usize, length: usize, row: usize) -> Vec<f64> {
    let inner: usize = DIMS[axis + 1..].iter().product();
    let start = row / inner * inner * length + row % inner;
    (0..length).map(|k| values[start + k * inner]).collect()
}
