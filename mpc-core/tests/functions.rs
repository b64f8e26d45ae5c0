//! Functions against f64 over their whole domains, on the plaintext protocol with drawn rounding.

use mpc_core::{
    Error, Plaintext, Profile, Protocol, Result, Rounding, SecretTensor, SplitMix64, TestWorld,
    functions as f,
};
use net::Party;
use ring_arith::{CpuEngine, FracBits, Shape};

type Mpc = Plaintext<CpuEngine>;
type Function = fn(&mut Mpc, &SecretTensor<Mpc>) -> Result<SecretTensor<Mpc>>;

const UNIT: f64 = 1.0 / (1 << 20) as f64;

fn mpc() -> Mpc {
    Plaintext::with_rounding(CpuEngine::new(1), Rounding::Drawn { seed: 11 })
}

fn secret(mpc: &mut Mpc, dims: &[usize], values: &[f64], frac: u32) -> Result<SecretTensor<Mpc>> {
    f::input(mpc, Party(0), &Shape::new(dims)?, Some(values), FracBits::new(frac)?)
}

/// Evenly spaced and drawn numbers of an interval, its ends, and (for positive ones) all magnitudes.
fn domain(low: f64, high: f64) -> Vec<f64> {
    let mut draw = SplitMix64::new(3);
    let n = 20_000;
    let mut values: Vec<f64> =
        (0..=n).map(|i| low + (high - low) * f64::from(i) / f64::from(n)).collect();
    values.extend((0..n).map(|_| draw.real(low, high)));
    if low > 0.0 {
        values.extend((0..n).map(|_| draw.real(low.ln(), high.ln()).exp()));
    }
    // What is compared is the function of the number that was encoded.
    values.iter().map(|v| ((v / UNIT).round_ties_even() * UNIT).clamp(low, high)).collect()
}

/// The largest of `error / tolerance(x, y)` over a domain; prints it with the largest error.
#[track_caller]
fn check(
    name: &str,
    values: &[f64],
    function: Function,
    exact: impl Fn(f64) -> f64,
    tolerance: impl Fn(f64, f64) -> f64,
) -> Result<()> {
    let mut mpc = mpc();
    let x = secret(&mut mpc, &[values.len()], values, 20)?;
    let y = function(&mut mpc, &x)?;
    let y_values = f::reveal(&mut mpc, &y)?;
    let bound = 2f64.powi(y.width() as i32 - 1 - 20);
    assert!(y_values.iter().all(|y| y.abs() < bound), "{name}: a value is beyond its width");
    let (mut worst, mut largest, mut at) = (0.0, 0.0, 0.0);
    for (&x, y) in values.iter().zip(y_values) {
        let exact_y = exact((x / UNIT).round_ties_even() * UNIT);
        let error = (y - exact_y).abs();
        largest = f64::max(largest, error);
        if error / tolerance(x, exact_y) > worst {
            (worst, at) = (error / tolerance(x, exact_y), x);
        }
    }
    println!(
        "{name}: largest error {largest:e} (2^{:.1}); {worst:.3} of the bound, at {at}",
        largest.log2()
    );
    assert!(worst < 1.0, "{name}({at}): error is {worst} of the bound");
    Ok(())
}

/// `k` units in the last place and a relative error.
fn within(units: f64, relative: f64) -> impl Fn(f64, f64) -> f64 {
    move |_, y: f64| units * UNIT + relative * y.abs()
}

#[test]
fn exp_is_accurate_saturates_and_vanishes() -> Result<()> {
    let p = |k| 2f64.powi(k);
    check("exp on [-8, 2]", &domain(-8.0, 2.0), f::exp, f64::exp, |_, _| p(-10))?;
    let bound = move |_, y: f64| p(-16) * f64::max(1.0, y) + 2.0 * p(-19);
    check("exp", &domain(-20.0, 11.0), f::exp, f64::exp, bound)?;
    let far = [11.2, 20.0, 100.0, 1e6, 2e12, -30.0, -1e3, -2e12];
    let limits = |x: f64| if x > 0.0 { 65536.0 } else { 0.0 };
    check("exp far out", &far, f::exp, limits, bound)?;
    let small: Function = |mpc, x| f::exp(mpc, &x.clone().with_bound(7.9));
    check("exp of bounded numbers", &domain(-7.9, 7.9), small, f64::exp, bound)?;
    let bound = move |_, y: f64| p(-19) * f64::max(p(-10), y) + UNIT;
    check("exp_nonpositive", &domain(-20.0, 0.0), f::exp_nonpositive, f64::exp, bound)?;
    check("exp_nonpositive far out", &[-1e5, -1e12], f::exp_nonpositive, |_| 0.0, bound)
}

#[test]
fn reciprocal_is_accurate_over_all_magnitudes() -> Result<()> {
    let bar = |_, _| 2f64.powi(-12);
    let exact = |x: f64| 1.0 / x;
    check("reciprocal on [0.05, 50]", &domain(0.05, 50.0), f::reciprocal, exact, bar)?;
    let bound = within(2.0, 2f64.powf(-19.5));
    check("reciprocal", &domain(UNIT, 4e6), f::reciprocal, exact, &bound)?;
    let negative: Vec<_> = domain(2.0 * UNIT, 4e6).iter().map(|x| -x).collect();
    check("reciprocal of negatives", &negative, f::reciprocal, exact, &bound)?;
    check("reciprocal_positive", &domain(UNIT, 4e12), f::reciprocal_positive, exact, &bound)?;
    check("reciprocal(1000)", &[1000.0, -1000.0], f::reciprocal, exact, &bound)?;
    let powers: Vec<_> = (-19..20).flat_map(|k| [2f64.powi(k), -(2f64.powi(k))]).collect();
    check("reciprocal of powers", &powers, f::reciprocal, exact, &bound)?;
    let bounded: Function = |mpc, x| f::reciprocal(mpc, &x.clone().with_bound(50.0));
    check("reciprocal, bounded", &domain(0.05, 50.0), bounded, exact, &bound)?;
    check("reciprocal of 0", &[0.0, -UNIT], f::reciprocal, |_| 0.0, &bound)
}

#[test]
fn roots_are_accurate_over_all_magnitudes() -> Result<()> {
    let bar = |_, _| 2f64.powi(-12);
    check("sqrt on [0.05, 50]", &domain(0.05, 50.0), f::sqrt, f64::sqrt, bar)?;
    let bound = within(1.5, 2f64.powi(-19));
    check("sqrt", &domain(UNIT, 4e12), f::sqrt, f64::sqrt, &bound)?;
    check("sqrt of 0", &[0.0, 1e6, 1.0, 4.0], f::sqrt, f64::sqrt, &bound)?;
    let bounded: Function = |mpc, x| f::sqrt(mpc, &x.clone().with_bound(50.0));
    check("sqrt, bounded", &domain(0.0, 50.0), bounded, f64::sqrt, &bound)?;
    let exact = |x: f64| 1.0 / x.sqrt();
    check("inv_sqrt", &domain(UNIT, 4e12), f::inv_sqrt, exact, &bound)?;
    let bounded: Function = |mpc, x| f::inv_sqrt(mpc, &x.clone().with_bound(2.0));
    check("inv_sqrt, bounded", &domain(UNIT, 2.0), bounded, exact, &bound)?;
    check("inv_sqrt of 0", &[0.0], f::inv_sqrt, |_| 0.0, &bound)
}

#[test]
fn an_inverse_root_may_have_other_fraction_bits_than_its_operand() -> Result<()> {
    for [from, to] in [[30, 20], [38, 20], [20, 28], [24, 12], [38, 38]] {
        let mut mpc = mpc();
        let values: Vec<f64> = (0..2000).map(|i| 1e-5 * 1.01f64.powi(i)).collect();
        let x = secret(&mut mpc, &[values.len()], &values, from)?;
        let y = f::inv_sqrt_to(&mut mpc, &x, to)?;
        assert_eq!(y.frac(), to);
        for (y, x) in f::reveal(&mut mpc, &y)?.iter().zip(&values) {
            let unit = (-f64::from(from)).exp2();
            let exact = 1.0 / ((x / unit).round_ties_even() * unit).sqrt();
            let bound = 1.5 * (-f64::from(to)).exp2() + 2f64.powi(-19) * exact;
            assert!((y - exact).abs() < bound, "{from} to {to}: 1/sqrt({x}) is {y}, not {exact}");
        }
    }
    Ok(())
}

#[test]
fn logarithm_is_accurate_over_all_magnitudes() -> Result<()> {
    let bound = within(3.0, 0.0);
    check("log", &domain(UNIT, 4e12), f::log, f64::ln, &bound)?;
    check("log(1000)", &[1000.0, 1.0], f::log, f64::ln, &bound)?;
    let bounded: Function = |mpc, x| f::log(mpc, &x.clone().with_bound(1.0));
    check("log, bounded", &domain(UNIT, 1.0), bounded, f64::ln, &bound)?;
    let mut mpc = mpc();
    let zero = secret(&mut mpc, &[1], &[0.0], 20)?;
    let y = f::log(&mut mpc, &zero)?;
    assert!(f::reveal(&mut mpc, &y)?[0] < -3.0);
    Ok(())
}

#[test]
fn sine_and_cosine_are_accurate_far_out() -> Result<()> {
    let bound = |x: f64, _| 2f64.powi(-18) + 2f64.powi(-41) * x.abs();
    for (low, high) in [(-7.0, 7.0), (-1e3, 1e3), (-1e6, 1e6)] {
        check("sin", &domain(low, high), f::sin, f64::sin, bound)?;
        check("cos", &domain(low, high), f::cos, f64::cos, bound)?;
    }
    let special: Vec<_> = (-8..=8).map(|k| f64::from(k) * std::f64::consts::FRAC_PI_2).collect();
    check("sin of quarters", &special, f::sin, f64::sin, bound)?;
    check("cos of quarters", &special, f::cos, f64::cos, bound)
}

#[test]
fn sigmoid_and_its_relatives_are_accurate_everywhere() -> Result<()> {
    let p = |k: i32| move |_: f64, _: f64| 2f64.powi(k);
    let logistic = |x: f64| 1.0 / (1.0 + (-x).exp());
    let wide = [domain(-20.0, 20.0), vec![0.0, 1e4, -1e4, 1e6, -1e6]].concat();
    let far = [1e12, -1e12];
    check("sigmoid", &wide, f::sigmoid, logistic, p(-17))?;
    check("sigmoid far out", &far, f::sigmoid, logistic, p(-17))?;
    check("tanh far out", &[4.3e12, -4.3e12, 2.2e12, -2.2e12], f::tanh, f64::tanh, p(-16))?;
    check("tanh", &wide, f::tanh, f64::tanh, p(-16))?;
    check("silu", &wide, f::silu, |x| x * logistic(x), p(-15))?;
    check("erf", &wide, f::erf, libm::erf, p(-17))?;
    check("erf far out", &far, f::erf, libm::erf, p(-17))?;
    let gelu = |x: f64| x / 2.0 * (1.0 + libm::erf(x / std::f64::consts::SQRT_2));
    check("gelu", &wide, f::gelu, gelu, p(-17))
}

#[test]
fn softmax_is_accurate_for_any_number_of_classes() -> Result<()> {
    let mut draw = SplitMix64::new(5);
    for (rows, n, spread) in [
        (128, 200, 8.0),
        (128, 10, 8.0),
        (40, 1, 5.0),
        (40, 2, 30.0),
        (9, 1000, 0.01),
        (30, 17, 1e5),
    ] {
        let values: Vec<_> =
            (0..rows * n).map(|_| (draw.real(-spread, spread) / UNIT).round() * UNIT).collect();
        let mut mpc = mpc();
        let x = secret(&mut mpc, &[rows, n], &values, 20)?;
        let y = f::softmax(&mut mpc, &x, 1)?;
        let logs = f::log_softmax(&mut mpc, &x, 1)?;
        let (y, logs) = (f::reveal(&mut mpc, &y)?, f::reveal(&mut mpc, &logs)?);
        let (mut worst, mut worst_log) = (0.0f64, 0.0f64);
        for (row, (y, logs)) in values.chunks(n).zip(y.chunks(n).zip(logs.chunks(n))) {
            let top = row.iter().copied().fold(f64::MIN, f64::max);
            let sum: f64 = row.iter().map(|v| (v - top).exp()).sum();
            for (v, (y, log)) in row.iter().zip(y.iter().zip(logs)) {
                worst = worst.max((y - (v - top).exp() / sum).abs());
                worst_log = worst_log.max((log - (v - top - sum.ln())).abs());
            }
        }
        println!("softmax {rows}x{n}: {worst:e} (2^{:.1}), log {worst_log:e}", worst.log2());
        assert!(worst < 2f64.powi(-17), "softmax {rows}x{n}: {worst}");
        assert!(worst_log < 2f64.powi(-17), "log-softmax {rows}x{n}: {worst_log}");
    }
    Ok(())
}

#[test]
fn softmax_works_along_any_axis() -> Result<()> {
    let mut mpc = mpc();
    let values: Vec<_> = (0..24).map(|i| f64::from(i % 7) - 2.0).collect();
    let x = secret(&mut mpc, &[2, 4, 3], &values, 20)?;
    let y = f::softmax(&mut mpc, &x, 1)?;
    let total = f::sum(&mpc, &y, &[1])?;
    for total in f::reveal(&mut mpc, &total)? {
        assert!((total - 1.0).abs() < 1e-4, "{total}");
    }
    assert!(f::softmax(&mut mpc, &x, 3).is_err());
    Ok(())
}

#[test]
fn division_is_accurate_relative_to_the_quotient() -> Result<()> {
    let mut draw = SplitMix64::new(8);
    let n = 20_000;
    let (mut xs, mut ys) = (vec![], vec![]);
    while xs.len() < n {
        let y = draw.real(-13.0, 19.0).exp2() * if draw.next_u64() & 1 == 0 { 1.0 } else { -1.0 };
        let x = draw.real(-15.0, 19.0).exp2();
        if (x / y).abs() < 2f64.powi(20) {
            xs.push((x / UNIT).round() * UNIT);
            ys.push((y / UNIT).round() * UNIT);
        }
    }
    let mut mpc = mpc();
    let (x, y) = (secret(&mut mpc, &[n], &xs, 20)?, secret(&mut mpc, &[n], &ys, 20)?);
    let q = f::div(&mut mpc, &x, &y)?;
    for (i, q) in f::reveal(&mut mpc, &q)?.iter().enumerate() {
        let exact = xs[i] / ys[i];
        let bound = 2f64.powi(-17) * exact.abs() + UNIT * (1.0 + 2.0 / ys[i].abs());
        assert!((q - exact).abs() < bound, "{} / {} became {q}", xs[i], ys[i]);
    }
    Ok(())
}

#[test]
fn powers_and_polynomials_follow_their_definitions() -> Result<()> {
    let values = domain(-3.0, 3.0);
    for n in [0, 1, 2, 3, 5, 8, 11] {
        let mut mpc = mpc();
        let x = secret(&mut mpc, &[values.len()], &values, 20)?;
        let y = f::pow(&mut mpc, &x, n)?;
        for (x, y) in values.iter().zip(f::reveal(&mut mpc, &y)?) {
            let bound = UNIT * (2.0 + 2.0 * f64::from(n) * x.abs().max(1.0).powi(n));
            assert!((y - x.powi(n)).abs() < bound, "{x}^{n} = {y}");
        }
    }
    let bound = within(3.0, 2f64.powi(-17));
    check(
        "pow -2",
        &domain(0.5, 100.0),
        |mpc, x| f::pow(mpc, x, -2),
        |x| x.powi(-2),
        |x, y| bound(x, y) + 4.0 * UNIT * y * y,
    )?;
    let powf: Function = |mpc, x| f::powf(mpc, x, 0.7);
    check(
        "powf",
        &domain(0.01, 1e5),
        powf,
        |x| x.powf(0.7),
        |_, y: f64| (2f64.powf(-15.5) + 0.7 * 2f64.powi(-17)) * y.max(1.0),
    )?;
    let c = [0.5, -1.25, 0.0, 3.0, -0.125];
    let horner = move |x: f64| c.iter().rev().fold(0.0, |sum, c| sum * x + c);
    let poly: Function = |mpc, x| f::polynomial(mpc, x, &[0.5, -1.25, 0.0, 3.0, -0.125]);
    check("polynomial", &values, poly, horner, |_, _| 40.0 * UNIT)?;
    let flat: Function = |mpc, x| f::polynomial(mpc, x, &[2.5]);
    check("constant", &values, flat, |_| 2.5, within(2.0, 0.0))
}

#[test]
fn softmax_of_a_whole_vocabulary_is_accurate() -> Result<()> {
    let mut draw = SplitMix64::new(6);
    let n = 200_000;
    let mut peak = vec![-1e5; n];
    peak[7] = 3.0;
    // Exponentials that are small, but together as large as the largest.
    let mut slope: Vec<_> = (0..n).map(|i| -12.0 - (i % 13) as f64).collect();
    slope[9] = 0.0;
    let spread = (0..n).map(|_| (draw.real(-8.0, 8.0) / UNIT).round() * UNIT).collect();
    for (what, values) in [("one peak", peak), ("a slope", slope), ("a spread", spread)] {
        let mut mpc = mpc();
        let x = secret(&mut mpc, &[1, n], &values, 20)?;
        let (y, logs) = (f::softmax(&mut mpc, &x, 1)?, f::log_softmax(&mut mpc, &x, 1)?);
        let (y, logs) = (f::reveal(&mut mpc, &y)?, f::reveal(&mut mpc, &logs)?);
        let top = values.iter().copied().fold(f64::MIN, f64::max);
        let sum: f64 = values.iter().map(|v| (v - top).exp()).sum();
        for (v, (y, log)) in values.iter().zip(y.iter().zip(logs)) {
            let want = (v - top).exp() / sum;
            assert!((y - want).abs() < 2f64.powi(-17), "{what}: {y} instead of {want}");
            let want = v - top - sum.ln();
            assert!((log - want).abs() < 2f64.powi(-17), "{what}: {log} instead of {want}");
        }
    }
    Ok(())
}

#[test]
fn functions_keep_their_bounds_in_every_format() {
    for frac in 8..=26 {
        for stated in mpc_core::testing::conformance::accuracy::functions() {
            let make = |_| Ok(mpc());
            let measured = stated.measure(&TestWorld::new(1), make, frac, 400);
            println!("{:>2} bits {:<20} {measured}", frac, stated.name);
            assert!(measured.of_bound < 1.0, "{} at {frac} bits: {measured}", stated.name);
        }
    }
}

#[test]
fn exponentials_of_rows_keep_their_bounds_in_every_format() {
    let fracs: Vec<_> = (8..=26).collect();
    mpc_core::testing::conformance::accuracy::exponentials(
        &TestWorld::new(1),
        |_| Ok(mpc()),
        &fracs,
    );
}

#[test]
fn rows_are_normalised_whatever_their_size() {
    let floor = |_| Ok(Plaintext::new(CpuEngine::new(1)));
    mpc_core::testing::conformance::accuracy::rows(&TestWorld::new(1), floor);
    mpc_core::testing::conformance::accuracy::rows(&TestWorld::new(1), |_| Ok(mpc()));
}

#[test]
fn formats_that_functions_cannot_take_are_errors() -> Result<()> {
    let mut mpc = mpc();
    let x = secret(&mut mpc, &[2], &[1.0, 2.0], 39)?;
    let refused: [(&str, Function); 4] = [
        ("reciprocal", f::reciprocal),
        ("reciprocal_positive", f::reciprocal_positive),
        ("inv_sqrt", f::inv_sqrt),
        ("div", |mpc, x| f::div(mpc, x, x)),
    ];
    for (name, function) in refused {
        assert!(matches!(function(&mut mpc, &x), Err(Error::Invalid { .. })), "{name}");
    }
    Ok(())
}

#[test]
fn rows_of_small_numbers_are_normalised_or_told() {
    const EPSILON: f64 = 1e-12;
    // Of deviations of 1e-4 and of 5e-6, of zeros, and of numbers up to 1.
    let row = |unit: f64| [0.9, -0.7, 0.8, 0.55, -0.2].map(|v| (v * unit).round() * UNIT);
    let rows = [row(170.0), row(8.5), [0.0; 5], row(1e6)];
    let cases = [Profile::Bytes, Profile::SlowLinks]
        .into_iter()
        .flat_map(|profile| [f::Centre::Mean, f::Centre::Zero].map(|centre| (profile, centre)));
    for (profile, centre) in cases {
        let mut mpc = mpc();
        mpc.set_profile(profile);
        let x = secret(&mut mpc, &[4, 5], rows.as_flattened(), 20).unwrap().with_width(24);
        let made = f::normalize_watched(&mut mpc, &x, 1, centre, EPSILON).unwrap();
        let mut ends = vec![];
        for words in made.faint.as_ref().unwrap() {
            ends.push(f::reveal(&mut mpc, words).unwrap());
        }
        let told: Vec<_> =
            ends[0].iter().zip(&ends[1]).map(|(a, b)| *a < 0.0 && *b >= 0.0).collect();
        assert_eq!(told, [false, true, false, false], "{profile:?}, {centre:?}");
        let got = f::reveal(&mut mpc, &made.rows).unwrap();
        for (i, row) in rows.iter().enumerate().filter(|(i, _)| !told[*i]) {
            let mean = match centre {
                f::Centre::Mean => row.iter().sum::<f64>() / 5.0,
                f::Centre::Zero => 0.0,
            };
            let square = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 5.0;
            for (v, got) in row.iter().zip(&got[5 * i..]) {
                let off = got - (v - mean) / (square + EPSILON).sqrt();
                assert!(off.abs() < 0.03, "{profile:?}, row {i}: off by {off}");
            }
        }
    }
}

#[test]
fn rows_at_secret_places_are_those_of_numpy() -> Result<()> {
    let mut mpc = mpc();
    let cells: Vec<f64> = (0..24).map(|i| f64::from(i) / 4.0 - 1.0).collect();
    let x = secret(&mut mpc, &[2, 3, 4], &cells, 20)?;
    let integers = |mpc: &mut Mpc, dims: &[usize], values: &[i64]| {
        let words = f::encode_integers(mpc, &Shape::new(dims)?, values)?;
        f::constant(mpc, &words)
    };
    let places = integers(&mut mpc, &[2, 2], &[2, 0, 1, 2])?;
    let taken = f::gather_at(&mut mpc, &x, &places, 1)?;
    assert_eq!((taken.shape().dims(), taken.frac()), (&[2, 2, 2, 4][..], 20));
    let numbers = f::reveal(&mut mpc, &taken)?;
    for (at, &number) in numbers.iter().enumerate() {
        let (first, place, last) = (at / 16, [2, 0, 1, 2][at / 4 % 4], at % 4);
        assert_eq!(number, cells[first * 12 + place * 4 + last]);
    }
    let rows = f::reshape(&mpc, &x, &Shape::new([6, 4])?)?;
    let places = integers(&mut mpc, &[6], &[4, 0, 4, 1, 0, 4])?;
    let sums = f::scatter_add(&mut mpc, &rows, &places, 5)?;
    let sums = f::reveal(&mut mpc, &sums)?;
    let mut wanted = vec![0.0; 20];
    for (row, place) in [4, 0, 4, 1, 0, 4].into_iter().enumerate() {
        (0..4).for_each(|at| wanted[place * 4 + at] += cells[row * 4 + at]);
    }
    assert_eq!(sums, wanted);
    // Integers of one axis too.
    let whole = integers(&mut mpc, &[6], &[1, 2, 3, 4, 5, 6])?;
    let sums = f::scatter_add(&mut mpc, &whole, &places, 5)?;
    assert_eq!((sums.frac(), f::reveal(&mut mpc, &sums)?), (0, vec![7.0, 4.0, 0.0, 0.0, 10.0]));

    let invalid = |outcome: Result<SecretTensor<Mpc>>| {
        matches!(outcome, Err(Error::Invalid { .. } | Error::FracBits { .. }))
    };
    assert!(invalid(f::gather_at(&mut mpc, &x, &places, 3)));
    assert!(invalid(f::gather_at(&mut mpc, &x, &x, 0)));
    assert!(invalid(f::scatter_add(&mut mpc, &rows, &places, 0)));
    assert!(invalid(f::scatter_add(&mut mpc, &x, &places, 2)));
    Ok(())
}
