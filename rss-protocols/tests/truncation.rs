//! Truncation on a million products: error, bias, exact multiples; and what the local form does.

use mpc_core::{Finish, Product, Protocol, SplitMix64, TestWorld, TruncationMode};
use net::Party;
use ring_arith::{Bilinear, CpuEngine, Shape, Tensor};
use rss_protocols::{Options, Rss, Security};

const N: usize = 1 << 20;
const T: u32 = 20;

/// Factors whose products reach `2^61`; one product in eight is a multiple of `2^20`.
fn factors(seed: u64) -> [Vec<u64>; 2] {
    let mut draw = SplitMix64::new(seed);
    let x = (0..N).map(|_| draw.signed(30)).collect();
    let y = (0..N).map(|i| draw.signed(31) & if i % 8 == 0 { !0xf_ffff } else { u64::MAX });
    [x, y.collect()]
}

/// Quotients by `2^20` of the products, with the products.
fn quotients(mode: TruncationMode) -> Vec<(i64, i64)> {
    quotients_in(Security::SemiHonest, N, mode)
}

/// The same of the first `n` products in a session of some security.
fn quotients_in(security: Security, n: usize, mode: TruncationMode) -> Vec<(i64, i64)> {
    let world = TestWorld::new(3);
    let seed = world.seed();
    let opened = world.run(
        move |session| {
            let options = Options::default().security(security);
            Rss::with_options(session, CpuEngine::new(1), options)
        },
        move |mpc| {
            let values = factors(seed).map(|words| Tensor::vector(words[..n].to_vec()));
            let mine = (mpc.me() == Party(1)).then_some(&values[..]);
            let shapes = [Shape::new([n])?, Shape::new([n])?];
            let x = mpc.input(Party(1), &shapes, mine)?;
            let finish = Finish::Truncate { bits: T, mode };
            let y = mpc.product(Product::new(Bilinear::Mul, &x[0], &x[1], finish))?.share;
            Ok(mpc.open(&[&y])?[0].words().to_vec())
        },
    );
    let [x, y] = factors(seed);
    let products = x.iter().zip(&y).map(|(&x, &y)| x as i64 * y as i64);
    products.zip(&opened[0]).map(|(z, &q)| (z, q as i64)).collect()
}

fn errors(pairs: &[(i64, i64)]) -> Vec<f64> {
    let unit = f64::from(1 << T);
    pairs.iter().map(|&(z, y)| ((i128::from(y) << T) - i128::from(z)) as f64 / unit).collect()
}

#[track_caller]
fn keeps_its_promise(mode: TruncationMode, bound: f64) {
    let pairs = quotients(mode);
    let errors = errors(&pairs);
    let largest = errors.iter().fold(0.0, |a: f64, e| a.max(e.abs()));
    assert!(largest < bound, "{mode:?} errs by {largest} units");
    let mean = errors.iter().sum::<f64>() / N as f64;
    let deviation = (errors.iter().map(|e| e * e).sum::<f64>() / N as f64).sqrt();
    let bias = mean / (deviation / (N as f64).sqrt());
    assert!(bias.abs() < 5.0, "{mode:?}: the mean error {mean} is {bias} standard errors away");
    if mode != TruncationMode::Early {
        let multiples = pairs.iter().filter(|(z, _)| z % (1 << T) == 0);
        assert!(multiples.clone().count() >= N / 8);
        assert!(multiples.into_iter().all(|(z, y)| z >> T == *y), "{mode:?}: a multiple moved");
    }
}

#[test]
fn default_errs_by_less_than_a_unit_without_bias() {
    keeps_its_promise(TruncationMode::Default, 1.0);
}

#[test]
fn early_errs_by_less_than_one_and_a_half_units_without_bias() {
    keeps_its_promise(TruncationMode::Early, 1.5);
}

#[test]
fn checked_errs_by_less_than_one_and_a_half_units_without_bias() {
    let n = 1 << 16;
    let errors = errors(&quotients_in(Security::Checked, n, TruncationMode::Default));
    let mean = errors.iter().sum::<f64>() / n as f64;
    let variance = errors.iter().map(|e| e * e).sum::<f64>() / n as f64;
    assert!(errors.iter().all(|error| error.abs() < 1.5));
    assert!(mean.abs() < 5.0 * (variance / n as f64).sqrt(), "the mean error is {mean}");
    // Three roundings of 1/12 each.
    assert!((0.24..0.26).contains(&variance), "the variance is {variance}");
}

#[test]
fn dither_errs_by_less_than_a_unit_without_bias() {
    keeps_its_promise(TruncationMode::Dither, 1.0);
}

#[test]
fn exact_is_the_floor() {
    assert!(quotients(TruncationMode::Exact).iter().all(|(z, y)| z >> T == *y));
}

#[test]
fn the_local_form_fails_about_as_often_as_theory_says() {
    let pairs = quotients(TruncationMode::Aby3Local);
    let wrong = errors(&pairs).iter().filter(|error| error.abs() > 2.0).count();
    // |z| / 2^64 each: the mean magnitude of the products is 2^59.
    let expected = pairs.iter().map(|(z, _)| z.unsigned_abs() as f64 / 2f64.powi(64)).sum::<f64>();
    assert!(wrong > 0);
    assert!((wrong as f64 - expected).abs() < 6.0 * expected.sqrt() + 1.0, "{wrong}, {expected}");
}
