//! The functions of [`crate::functions`] over the protocol under test, against f64. Their errors over
//! whole domains are this crate's own business; here a sample shows that the protocol carries them.

use std::borrow::Cow;

use net::Party;
use ring_arith::{FracBits, Shape, Window};

use super::{Make, agreed, model::Plain, open, share};
use crate::{
    Ends, Line, Protocol, Result, SecretTensor, SplitMix64, TestWorld, TrigSum, TrigTerm,
    TruncationMode,
    functions::{self as f, Multiply},
};

const UNIT: f64 = 1.0 / (1 << 20) as f64;

/// A function of one tensor, its exact value, and the error allowed at `(x, y)`.
type Case<P> = (
    &'static str,
    fn(&mut P, &SecretTensor<P>) -> Result<SecretTensor<P>>,
    fn(f64) -> f64,
    fn(f64, f64) -> f64,
);

fn secret<P: Protocol>(mpc: &mut P, dims: &[usize], values: &[f64]) -> Result<SecretTensor<P>> {
    let mine = (mpc.me() == Party(0)).then_some(values);
    f::input(mpc, Party(0), &Shape::new(dims)?, mine, FracBits::DEFAULT)
}

/// Numbers with 20 fraction bits: the given ones, then drawn ones.
fn numbers(world: &TestWorld, low: f64, high: f64, n: usize, first: &[f64]) -> Vec<f64> {
    let mut draw = SplitMix64::new(world.seed());
    let drawn = (first.len()..n).map(|_| draw.real(low, high));
    first.iter().copied().chain(drawn).map(|v| (v / UNIT).round_ties_even() * UNIT).collect()
}

/// Runs cases on the same numbers and compares.
fn run<P: Protocol>(world: &TestWorld, make: impl Make<P>, values: Vec<f64>, cases: Vec<Case<P>>) {
    let checks: Vec<_> = cases.iter().map(|c| (c.0, c.2, c.3)).collect();
    let functions: Vec<_> = cases.iter().map(|c| c.1).collect();
    let inputs = values.clone();
    let got = agreed(world, make, move |mpc: &mut P| {
        let x = secret(mpc, &[inputs.len()], &inputs)?;
        let mut results = Vec::new();
        for function in &functions {
            let y = function(mpc, &x)?;
            results.push(f::reveal(mpc, &y)?);
        }
        Ok(results)
    });
    for ((name, exact, bound), got) in checks.into_iter().zip(got) {
        for (&x, y) in values.iter().zip(got) {
            let want = exact(x);
            let replay = world.replay();
            assert!((y - want).abs() <= bound(x, want), "{name}({x}) is {y}, not {want}; {replay}");
        }
    }
}

/// Comparisons, and functions that choose by them: exact.
pub fn choices<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let first = [0.0, 1.0, -1.0, UNIT, -UNIT, 6.0, 1e12, -1e12, 2.5];
    let values = numbers(world, -10.0, 10.0, 200, &first);
    let exact: fn(f64, f64) -> f64 = |_, _| 0.0;
    let cases: Vec<Case<P>> = vec![
        ("abs", f::abs, f64::abs, exact),
        ("sign", f::sign, |x| if x == 0.0 { 0.0 } else { x.signum() }, exact),
        ("relu", f::relu, |x| x.max(0.0), exact),
        ("relu6", f::relu6, |x| x.clamp(0.0, 6.0), exact),
        ("clamp", |mpc, x| f::clamp(mpc, x, Some(-2.5), Some(3.0)), |x| x.clamp(-2.5, 3.0), exact),
        ("negative", f::is_negative, |x| f64::from(u8::from(x < 0.0)), exact),
        (
            "leaky relu",
            |mpc, x| f::leaky_relu(mpc, x, 0.125),
            |x| if x < 0.0 { x / 8.0 } else { x },
            |_, _| UNIT,
        ),
        ("floor", f::floor, f64::floor, exact),
        ("negative part", f::negative_part, |x| x.min(0.0), exact),
        ("at most", |mpc, x| f::clamp(mpc, x, None, Some(1.5)), |x| x.min(1.5), exact),
        ("at least", |mpc, x| f::clamp(mpc, x, Some(-1.5), None), |x| x.max(-1.5), exact),
        (
            "maximum",
            |mpc, x| {
                let minus = f::neg(mpc, x)?;
                f::maximum(mpc, x, &minus)
            },
            f64::abs,
            exact,
        ),
        (
            "minimum",
            |mpc, x| {
                let minus = f::neg(mpc, x)?;
                f::minimum(mpc, x, &minus)
            },
            |x| -x.abs(),
            exact,
        ),
        (
            "kept where positive",
            |mpc, x| {
                let (_, positive) = f::relu_keeping(mpc, x)?;
                f::where_bits(mpc, x, &positive)
            },
            |x| x.max(0.0),
            exact,
        ),
        ("where positive", |mpc, x| f::where_positive(mpc, x, x), |x| x.max(0.0), exact),
        (
            "beyond two",
            |mpc, x| {
                let minus = f::neg(mpc, x)?;
                let two = f::add_scalar(mpc, &f::sub(mpc, x, x)?, 2.0)?;
                let (above, below) = (f::gt(mpc, x, &two)?, f::gt(mpc, &minus, &two)?);
                f::logical(mpc, f::Logic::Or, &above, &below)
            },
            |x| f64::from(u8::from(x.abs() > 2.0)),
            exact,
        ),
        (
            "ne zero",
            |mpc, x| {
                let zero = f::sub(mpc, x, x)?;
                f::ne(mpc, x, &zero)
            },
            |x| f64::from(u8::from(x != 0.0)),
            exact,
        ),
    ];
    run(world, make, values, cases);
}

/// Comparisons of two tensors, public or secret, and selection by their outcome.
pub fn orderings<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let x = numbers(world, -5.0, 5.0, 120, &[0.0, 1.0, -1.0, 3e11, -3e11]);
    // Every other element is equal.
    let mut y = numbers(&world.clone().with_seed(world.seed() ^ 1), -5.0, 5.0, 120, &[]);
    y.iter_mut().zip(&x).step_by(2).for_each(|(y, x)| *y = *x);
    let (a, b) = (x.clone(), y.clone());
    let got = agreed(world, make, move |mpc: &mut P| {
        let (x, y) = (secret(mpc, &[120], &a)?, secret(mpc, &[120], &b)?);
        let public = f::encode(mpc, &Shape::new([120])?, &b, FracBits::DEFAULT)?;
        let outcomes = [
            f::lt(mpc, &x, &y)?,
            f::le(mpc, &x, &public)?,
            f::gt(mpc, &x, &public)?,
            f::ge(mpc, &x, &y)?,
            f::eq(mpc, &x, &y)?,
            f::ne(mpc, &x, &public)?,
        ];
        let chosen = f::select(mpc, &outcomes[0], &x, &public)?;
        let labels = f::encode_integers(mpc, &Shape::new([5])?, &[0, 3, 4, -1, 7])?;
        let labels = f::constant(mpc, &labels)?;
        let hot = f::one_hot(mpc, &labels, 5)?;
        let mut all: Vec<_> = outcomes.iter().collect();
        all.extend([&chosen, &hot]);
        f::reveal_all(mpc, &all)
    });
    let tests: [fn(f64, f64) -> bool; 6] =
        [|x, y| x < y, |x, y| x <= y, |x, y| x > y, |x, y| x >= y, |x, y| x == y, |x, y| x != y];
    for (i, test) in tests.iter().enumerate() {
        for (k, (&x, &y)) in x.iter().zip(&y).enumerate() {
            let want = f64::from(u8::from(test(x, y)));
            assert_eq!(got[i][k], want, "comparison {i} of {x} and {y}; {}", world.replay());
        }
    }
    for (k, (&x, &y)) in x.iter().zip(&y).enumerate() {
        assert_eq!(got[6][k], x.min(y), "select; {}", world.replay());
    }
    let mut hot = vec![0.0; 25];
    (hot[0], hot[8], hot[14]) = (1.0, 1.0, 1.0);
    assert_eq!(got[7], hot, "one-hot; {}", world.replay());
}

/// Largest and smallest elements along every axis, their places, and pooling with a border.
pub fn extrema<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let dims = [2usize, 3, 5, 4];
    let values: Vec<f64> =
        numbers(world, -9.0, -1.0, 120, &[]).iter().map(|v| (v * 2.0).round() / 2.0).collect();
    let input = values.clone();
    let window = Window::new([3, 2], [2, 1]).padded([1, 0, 1, 1]);
    let got = agreed(world, make, move |mpc: &mut P| {
        let x = secret(mpc, &dims, &input)?;
        let mut results = Vec::new();
        for axis in 0..4 {
            let (top, place) = f::top1(mpc, &x, axis)?;
            results.extend([f::max(mpc, &x, axis)?, f::min(mpc, &x, axis)?, top, place]);
            results.push(f::argmin(mpc, &x, axis)?);
        }
        results.push(f::max_pool(mpc, &x, window)?);
        f::reveal_all(mpc, &results.iter().collect::<Vec<_>>())
    });
    for axis in 0..4 {
        let inner: usize = dims[axis + 1..].iter().product();
        let rows = (0..120 / dims[axis]).map(|r| {
            let start = r / inner * inner * dims[axis] + r % inner;
            (0..dims[axis]).map(|k| values[start + k * inner]).collect::<Vec<_>>()
        });
        for (r, row) in rows.enumerate() {
            let high = row.iter().copied().fold(f64::MIN, f64::max);
            let low = row.iter().copied().fold(f64::MAX, f64::min);
            let at = |v: f64| row.iter().position(|&w| w == v).map_or(-1.0, |i| i as f64);
            let want = [high, low, high, at(high), at(low)];
            let got: Vec<_> = (0..5).map(|i| got[5 * axis + i][r]).collect();
            assert_eq!(got, want, "axis {axis}, row {row:?}; {}", world.replay());
        }
    }
    let at = |image: usize, h: isize, w: isize| {
        let inside = (0..5).contains(&h) && (0..4).contains(&w);
        if inside { values[image * 20 + h as usize * 4 + w as usize] } else { f64::MIN }
    };
    for (i, pooled) in got[20].iter().enumerate() {
        let (image, oh, ow) = (i / 12, (i / 4 % 3) as isize, (i % 4) as isize);
        let taps = (0..3).flat_map(|a| (0..2).map(move |b| (2 * oh - 1 + a, ow + b)));
        let want = taps.map(|(h, w)| at(image, h, w)).fold(f64::MIN, f64::max);
        assert_eq!(*pooled, want, "max pool at {i}; {}", world.replay());
    }
}

/// The approximated functions, each within its stated error.
pub fn approximations<P: Protocol>(world: &TestWorld, make: impl Make<P> + Clone) {
    let everywhere: Vec<Case<P>> = vec![
        ("exp", f::exp, f64::exp, |_, y| 2f64.powf(-15.5) * y.max(1.0) + 2.0 * UNIT),
        ("sigmoid", f::sigmoid, |x| 1.0 / (1.0 + (-x).exp()), |_, _| 2f64.powi(-17)),
        ("tanh", f::tanh, f64::tanh, |_, _| 2f64.powi(-16)),
        ("silu", f::silu, |x| x / (1.0 + (-x).exp()), |_, _| 2f64.powi(-15)),
        ("sin", f::sin, f64::sin, |_, _| 2f64.powi(-18)),
        ("cos", f::cos, f64::cos, |_, _| 2f64.powi(-18)),
        ("reciprocal", f::reciprocal, |x| 1.0 / x, |_, y| 2.0 * UNIT + 2f64.powf(-19.5) * y.abs()),
        ("erf odd part", odd_part_of_erf, |_| 0.0, |_, _| 2f64.powi(-16)),
        ("gelu less its mirror", gelu_less_mirror, |x| x, |_, _| 2f64.powi(-16)),
        ("square", |mpc, x| f::pow(mpc, x, 2), |x| x * x, |x, _| UNIT * (1.0 + x.abs())),
        (
            "polynomial",
            |mpc, x| f::polynomial(mpc, x, &[1.0, -0.5, 0.25]),
            |x| 1.0 - x / 2.0 + x * x / 4.0,
            |_, _| 4.0 * UNIT,
        ),
    ];
    let values = numbers(world, -8.0, 8.0, 150, &[1.0, -1.0, 0.5, -0.5, 8.0, -8.0]);
    run(world, make.clone(), values, everywhere);
    let positive: Vec<Case<P>> = vec![
        ("log", f::log, f64::ln, |_, _| 3.0 * UNIT),
        ("sqrt", f::sqrt, f64::sqrt, |_, y| 1.5 * UNIT + 2f64.powi(-19) * y),
        ("inv_sqrt", f::inv_sqrt, |x| 1.0 / x.sqrt(), |_, y| 1.5 * UNIT + 2f64.powi(-19) * y),
        (
            "reciprocal_positive",
            f::reciprocal_positive,
            |x| 1.0 / x,
            |_, y| 2.0 * UNIT + 2f64.powf(-19.5) * y,
        ),
        (
            "power 0.3",
            |mpc, x| f::powf(mpc, x, 0.3),
            |x| x.powf(0.3),
            |_, y| (2f64.powf(-15.5) + 0.3 * 2f64.powi(-17)) * y.max(1.0),
        ),
        (
            "power 0.75",
            |mpc, x| f::powf(mpc, x, 0.75),
            |x| x.powf(0.75),
            |_, y| (UNIT + 2f64.powi(-18)) * 4.0 * y.max(1.0),
        ),
        (
            "quotient",
            |mpc, x| {
                let over = f::add_scalar(mpc, x, 3.0)?;
                f::div(mpc, &over, x)
            },
            |x| (x + 3.0) / x,
            |x, y| 2f64.powi(-17) * y + UNIT * (1.0 + 2.0 / x),
        ),
    ];
    let first = [1.0, 0.05, 50.0, 1000.0, 1e5, 2.0, 0.25];
    run(world, make, numbers(world, 0.05, 50.0, 150, &first), positive);
}

/// `erf(x) + erf(-x)`, which is 0.
fn odd_part_of_erf<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let (y, mirror) = (f::erf(mpc, x)?, f::neg(mpc, x)?);
    let mirror = f::erf(mpc, &mirror)?;
    f::add(mpc, &y, &mirror)
}

/// `gelu(x) - gelu(-x)`, which is `x`.
fn gelu_less_mirror<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let (y, mirror) = (f::gelu(mpc, x)?, f::neg(mpc, x)?);
    let mirror = f::gelu(mpc, &mirror)?;
    f::sub(mpc, &y, &mirror)
}

/// Softmax, its logarithm, and statistics along an axis.
pub fn rows<P: Protocol>(world: &TestWorld, make: impl Make<P> + Clone) {
    const ROWS: usize = 12;
    const N: usize = 10;
    let values = numbers(world, -8.0, 8.0, ROWS * N, &[]);
    let input = values.clone();
    let got = agreed(world, make.clone(), move |mpc: &mut P| {
        let x = secret(mpc, &[ROWS, N], &input)?;
        let results = [
            f::softmax(mpc, &x, 1)?,
            f::log_softmax(mpc, &x, 1)?,
            f::mean(mpc, &x, &[1])?,
            f::var(mpc, &x, &[1])?,
            f::norm(mpc, &x, &[1])?,
            f::sum(mpc, &x, &[1])?,
        ];
        f::reveal_all(mpc, &results.iter().collect::<Vec<_>>())
    });
    let near = |what: &str, got: f64, want: f64, bound: f64| {
        assert!((got - want).abs() <= bound, "{what}: {got}, not {want}; {}", world.replay());
    };
    for (r, row) in values.chunks(N).enumerate() {
        let top = row.iter().copied().fold(f64::MIN, f64::max);
        let total: f64 = row.iter().map(|v| (v - top).exp()).sum();
        for (i, v) in row.iter().enumerate() {
            near("softmax", got[0][r * N + i], (v - top).exp() / total, 2f64.powi(-17));
            near("log-softmax", got[1][r * N + i], v - top - total.ln(), 2f64.powi(-17));
        }
        let sum: f64 = row.iter().sum();
        let mean = sum / N as f64;
        let squares: f64 = row.iter().map(|v| v * v).sum();
        near("mean", got[2][r], mean, 3.0 * UNIT);
        near("variance", got[3][r], squares / N as f64 - mean * mean, 1e-4);
        near("norm", got[4][r], squares.sqrt(), 1e-4);
        near("sum", got[5][r], sum, 1e-9);
    }

    // A sum of squares of 2^43.4, which has no encoding, and a mean that has one.
    let wide = |i: usize| if i.is_multiple_of(2) { 151_000.0 } else { -149_000.0 };
    let got = agreed(world, make, move |mpc: &mut P| {
        let x = secret(mpc, &[500], &(0..500).map(wide).collect::<Vec<_>>())?;
        let variance = f::var(mpc, &x, &[0])?;
        f::reveal_all(mpc, &[&variance])
    });
    let want = 150_000f64.powi(2);
    near("wide variance", got[0][0], want, want * 2f64.powi(-18));
}

/// A layer with bias and ReLU, its operands secret or public.
pub fn layers<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let x = numbers(world, -3.0, 3.0, 12, &[]);
    let w = numbers(&world.clone().with_seed(world.seed() ^ 2), -3.0, 3.0, 20, &[]);
    let (a, b) = (x.clone(), w.clone());
    let got = agreed(world, make, move |mpc: &mut P| {
        let x = secret(mpc, &[3, 4], &a)?;
        let secret_w = secret(mpc, &[4, 5], &b)?;
        let public_w = f::encode(mpc, &Shape::new([4, 5])?, &b, FracBits::DEFAULT)?;
        let bias = f::encode(mpc, &Shape::new([5])?, &b[..5], FracBits::DEFAULT)?;
        let op = ring_arith::Bilinear::MATMUL;
        let jobs = [
            Multiply::new(op.clone(), &x, &secret_w).plus(&bias),
            Multiply::new(op.clone(), &x, &secret_w).plus(&bias).relu(),
            Multiply::new(op.clone(), &x, &public_w).plus(&bias),
            Multiply::new(op, &x, &public_w).plus(&bias).relu(),
        ];
        let results = f::multiply(mpc, &jobs)?;
        f::reveal_all(mpc, &results.iter().collect::<Vec<_>>())
    });
    for (i, _) in got[0].iter().enumerate() {
        let (m, n) = (i / 5, i % 5);
        let linear = (0..4).map(|k| x[4 * m + k] * w[5 * k + n]).sum::<f64>() + w[n];
        let want = [linear, linear.max(0.0), linear, linear.max(0.0)];
        for (got, want) in got.iter().zip(want) {
            let replay = world.replay();
            assert!((got[i] - want).abs() < 2.0 * UNIT, "layer: {}, not {want}; {replay}", got[i]);
        }
    }
}

/// A sum of a cosine, a sine and a line, of words up to the ends of their width, where the protocol has a form for it.
pub fn trig_sums<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    const WIDTH: u32 = 20;
    const FRAC: u32 = 16;
    // Distances from the ends have a bit more than words.
    let at = [-7 << 16, 7 << 16];
    let outside = [Line { constant: 3, slope: 0 }, Line { constant: 5, slope: 2 }];
    let factor = f64::from(1 << TrigSum::FACTOR);
    let turn = |frequency: f64| {
        (frequency / std::f64::consts::TAU * 2f64.powi(64 - FRAC as i32)).round() as u64
    };
    let terms = Cow::Owned(vec![
        TrigTerm { turn: turn(0.7), cosine: (1.5 * factor) as i64, sine: 0 },
        TrigTerm { turn: turn(2.9), cosine: 0, sine: (0.03 * factor) as i64 },
    ]);
    // 1/4 + x / 2
    let line = Line { constant: 1 << 56, slope: 1 << 41 };
    let sum = TrigSum {
        terms,
        line,
        total: 58,
        drop: 42,
        mode: TruncationMode::Default,
        ends: Some(Ends { at, slack: 6, outside }),
    };
    let exact = |x: f64| 1.5 * (0.7 * x).cos() + 0.03 * (2.9 * x).sin() + 0.25 + x / 2.0;
    let half = 1i64 << (WIDTH - 1);
    let near = |word: i64| [word - 1, word, word + 1, word + 64, word - 64];
    let words = [near(at[0]), near(0), near(at[1])].concat();
    let words = [words, vec![-half, 1 - half, 12_345, -54_321, half - 2, half - 1]].concat();
    let sums = [sum.clone(), TrigSum { ends: None, ..sum }];
    let (values, functions) = (words.clone(), sums.clone());
    let opened = agreed(world, make, move |mpc: &mut P| {
        let words = Plain::from_fn(&[values.len()], |i| values[i] as u64);
        let x = share(mpc, &[words])?.remove(0);
        let mut found = Vec::new();
        for function in &functions {
            found.extend(mpc.trig_sum(&x, WIDTH, function)?);
        }
        open(mpc, &found.iter().collect::<Vec<_>>())
    });
    for (TrigSum { ends, .. }, found) in sums.iter().zip(&opened) {
        for (&word, &found) in words.iter().zip(&found.words) {
            let found = found as i64;
            let inside = (exact(word as f64 / f64::from(1 << FRAC)) * f64::from(1 << FRAC)).round();
            let is = |wanted: i64, within: u64| found.abs_diff(wanted) <= within;
            let is_inside = is(inside as i64, 3);
            let lines = match ends {
                Some(_) => {
                    [(word < at[0] + 64, is(3, 0)), (word > at[1] - 64, is(5 + 2 * word, 0))]
                }
                None => [(false, false); 2],
            };
            let surely_outside = ends.is_some() && (word < at[0] || word >= at[1]);
            let right = (is_inside && !surely_outside)
                || lines.iter().any(|&(may, is_there)| may && is_there);
            assert!(right, "{found} at {word}, inside {inside}; {}", world.replay());
        }
    }
}
