//! Sums and products of secret and public operands, against real arithmetic.

use mpc_core::{
    Error, Operand, Plaintext, Result, Rounding, SecretTensor, SplitMix64,
    functions::{self as f, Multiply},
};
use net::Party;
use ring_arith::{Bilinear, CpuEngine, EngineTensor, FracBits, Shape, Tensor, Window};

type Mpc = Plaintext<CpuEngine>;

fn mpc() -> Mpc {
    Plaintext::with_rounding(CpuEngine::new(1), Rounding::Drawn { seed: 9 })
}

fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).expect("a test's shape is small")
}

fn secret(mpc: &mut Mpc, dims: &[usize], values: &[f64]) -> Result<SecretTensor<Mpc>> {
    f::input(mpc, Party(0), &shape(dims), Some(values), FracBits::DEFAULT)
}

fn numbers(seed: u64, n: usize) -> Vec<f64> {
    let mut draw = SplitMix64::new(seed);
    (0..n).map(|_| draw.real(-100.0, 100.0)).collect()
}

#[track_caller]
fn near(got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len());
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((g - w).abs() <= tolerance, "{g} instead of {w} at {i}");
    }
}

#[test]
fn operands_may_be_secret_or_public_and_broadcast() -> Result<()> {
    let (a, b) = (numbers(1, 12), numbers(2, 4));
    let mut mpc = mpc();
    let x = secret(&mut mpc, &[3, 4], &a)?;
    let y = secret(&mut mpc, &[4], &b)?;
    let public = f::encode(&mpc, &shape(&[4]), &b, FracBits::DEFAULT)?;
    for y in [Operand::Secret(y), Operand::Public(public)] {
        let wide = |op: fn(f64, f64) -> f64| -> Vec<f64> {
            a.iter().enumerate().map(|(i, a)| op(*a, b[i % 4])).collect()
        };
        let sum = f::add(&mpc, &x, &y)?;
        near(&f::reveal(&mut mpc, &sum)?, &wide(|a, b| a + b), 2e-6);
        let difference = f::sub(&mpc, &y, &x)?;
        near(&f::reveal(&mut mpc, &difference)?, &wide(|a, b| b - a), 2e-6);
        let product = f::mul(&mut mpc, &x, &y)?;
        assert!(product.width() <= 44, "a product truncated by 20 has width 44 at most");
        near(&f::reveal(&mut mpc, &product)?, &wide(|a, b| a * b), 2e-4);
        let flipped = f::mul(&mut mpc, &y, &x)?;
        near(&f::reveal(&mut mpc, &flipped)?, &wide(|a, b| a * b), 2e-4);
    }
    Ok(())
}

#[test]
fn public_numbers_scale_and_shift() -> Result<()> {
    let a = numbers(3, 50);
    let mut mpc = mpc();
    let x = secret(&mut mpc, &[50], &a)?;
    for c in [0.0, 1.0, -3.0, 0.5, 1.0 / 3.0, -1e-3, 1234.5678] {
        let want: Vec<_> = a.iter().map(|a| a * c).collect();
        let y = f::mul_scalar(&mut mpc, &x, c)?;
        near(&f::reveal(&mut mpc, &y)?, &want, 2.2e-6 + 1e-4 * c.abs());
        let want: Vec<_> = a.iter().map(|a| a + c).collect();
        let y = f::add_scalar(&mpc, &x, c)?;
        near(&f::reveal(&mut mpc, &y)?, &want, 2e-6);
    }
    let mean = f::mean(&mut mpc, &x, &[0])?;
    near(&f::reveal(&mut mpc, &mean)?, &[a.iter().sum::<f64>() / 50.0], 1e-5);
    Ok(())
}

#[test]
fn a_layer_adds_its_bias_before_truncation_and_takes_the_relu() -> Result<()> {
    let (a, w, b) = (numbers(4, 6), numbers(5, 6), numbers(6, 3));
    let mut mpc = mpc();
    let x = secret(&mut mpc, &[2, 3], &a)?;
    let bias = secret(&mut mpc, &[3], &b)?;
    let weight = [&w[..], &numbers(7, 3)[..]].concat();
    let linear = |i: usize| {
        let (m, n) = (i / 3, i % 3);
        (0..3).map(|k| a[3 * m + k] * weight[3 * k + n]).sum::<f64>() + b[n]
    };
    let want: Vec<_> = (0..6).map(linear).collect();
    let positive: Vec<_> = want.iter().map(|v| v.max(0.0)).collect();
    let secret_weight = secret(&mut mpc, &[3, 3], &weight)?;
    let public_weight = f::encode(&mpc, &shape(&[3, 3]), &weight, FracBits::DEFAULT)?;
    for weight in [Operand::Secret(secret_weight), Operand::Public(public_weight)] {
        let jobs = [
            Multiply::new(Bilinear::MATMUL, &x, &weight).plus(&bias),
            Multiply::new(Bilinear::MATMUL, &x, &weight).plus(&bias).relu(),
        ];
        let y = f::multiply(&mut mpc, &jobs)?;
        near(&f::reveal(&mut mpc, &y[0])?, &want, 1e-3);
        near(&f::reveal(&mut mpc, &y[1])?, &positive, 1e-3);
    }
    Ok(())
}

#[test]
fn integers_multiply_without_truncation() -> Result<()> {
    let mut mpc = mpc();
    let x = secret(&mut mpc, &[3], &[0.25, -2.5, 7.0])?;
    let three = f::encode_integers(&mpc, &shape(&[1]), &[3])?;
    let y = f::mul(&mut mpc, &x, &three)?;
    assert_eq!(f::reveal(&mut mpc, &y)?, [0.75, -7.5, 21.0]);
    let n = f::constant(&mpc, &f::encode_integers(&mpc, &shape(&[3]), &[1, -2, 3])?)?;
    let relu = f::multiply(&mut mpc, &[Multiply::new(Bilinear::Mul, &x, &n).relu()])?;
    assert_eq!(f::reveal(&mut mpc, &relu[0])?, [0.25, 5.0, 21.0]);
    Ok(())
}

#[test]
fn fraction_bits_and_shapes_that_do_not_fit_are_errors() -> Result<()> {
    let mut mpc = mpc();
    let x = secret(&mut mpc, &[3], &[1.0, 2.0, 3.0])?;
    let other = f::input(&mut mpc, Party(0), &shape(&[3]), Some(&[1.0; 3]), FracBits::new(16)?)?;
    assert!(matches!(f::add(&mpc, &x, &other), Err(Error::FracBits { lhs: 20, rhs: 16, .. })));
    assert!(matches!(f::mul(&mut mpc, &x, &other), Err(Error::FracBits { .. })));
    assert!(matches!(f::concat(&mpc, &[&x, &other], 0), Err(Error::FracBits { .. })));
    let down = f::rescale(&mut mpc, &x, 16)?;
    let sum = f::add(&mpc, &down, &other)?;
    assert_eq!(f::reveal(&mut mpc, &sum)?, [2.0, 3.0, 4.0]);
    let longer = secret(&mut mpc, &[4], &[0.0; 4])?;
    assert!(matches!(
        f::add(&mpc, &x, &longer),
        Err(Error::Ring(ring_arith::Error::Shapes { .. }))
    ));
    let window = Window::new([2, 2], [1, 1]);
    assert!(f::conv2d(&mut mpc, &x, &x, window, 1).is_err());
    let refused =
        f::input(&mut mpc, Party(0), &shape(&[2]), Some(&[1.0, f64::NAN]), FracBits::DEFAULT);
    let text = refused.expect_err("NaN has no encoding").to_string();
    assert!(text.contains("element 1"), "{text}");
    Ok(())
}

#[test]
fn what_overflows_is_noticed_by_the_reference() -> Result<()> {
    let mut mpc = mpc();
    let x = secret(&mut mpc, &[1], &[3000.0])?;
    assert!(matches!(f::mul(&mut mpc, &x, &x), Err(Error::Invalid { .. })));
    // The product's word is 2^64, which is 0 modulo 2^64.
    let x = secret(&mut mpc, &[1], &[4096.0])?;
    assert!(matches!(f::mul(&mut mpc, &x, &x), Err(Error::Invalid { .. })));
    let wide = secret(&mut mpc, &[4], &[2f64.powi(41); 4])?;
    assert!(matches!(f::sum(&mpc, &wide, &[0]), Err(Error::Invalid { .. })));
    let twice = f::add(&mpc, &wide, &wide)?;
    assert!(matches!(f::add(&mpc, &twice, &twice), Err(Error::Invalid { .. })));
    assert!(matches!(f::rescale(&mut mpc, &wide, 30), Err(Error::Invalid { .. })));
    assert!(matches!(f::mul_scalar(&mut mpc, &wide, 8.0), Err(Error::Invalid { .. })));
    let public = f::encode(&mpc, &shape(&[4, 1]), &[2f64.powi(30); 4], FracBits::DEFAULT)?;
    let row = f::reshape(&mpc, &wide, &shape(&[1, 4]))?;
    assert!(matches!(f::matmul(&mut mpc, &row, &public), Err(Error::Invalid { .. })));
    Ok(())
}

#[test]
fn factors_are_right_for_all_numbers_with_an_encoding() -> Result<()> {
    let unit = 2f64.powi(-20);
    let largest = 2f64.powi(42) - 2f64.powi(-10);
    let a: Vec<_> = [1.0, 1e-3, 255.0, 1e7, 1e9, 1e12, largest]
        .iter()
        .flat_map(|&a: &f64| [a, -a].map(|a| (a / unit).round() * unit))
        .collect();
    let mut mpc = mpc();
    let x = secret(&mut mpc, &[a.len()], &a)?;
    let relative = |got: Vec<f64>, exact: &dyn Fn(f64) -> f64| {
        for (a, got) in a.iter().zip(got) {
            let want = exact(*a);
            let bound = 2.0 * unit + 2f64.powi(-19) * want.abs();
            assert!((got - want).abs() <= bound, "{got} instead of {want}");
        }
    };
    for c in [1.0 / 3.0, 0.01, -0.7, 0.999_999, 1e-5, 1e-9, 1.0 / 50_176.0] {
        let y = f::mul_scalar(&mut mpc, &x, c)?;
        relative(f::reveal(&mut mpc, &y)?, &|a| a * c);
    }
    let y = f::div_scalar(&mut mpc, &x, 3.0)?;
    relative(f::reveal(&mut mpc, &y)?, &|a| a / 3.0);
    let y = f::leaky_relu(&mut mpc, &x, 0.01)?;
    relative(f::reveal(&mut mpc, &y)?, &|a| if a < 0.0 { 0.01 * a } else { a });
    // Factors above 1, for numbers that leave them room.
    let small = f::mul_scalar(&mut mpc, &x, 2f64.powi(-12))?.with_width(63);
    let y = f::mul_scalar(&mut mpc, &small, 1234.5678)?;
    for (a, got) in a.iter().zip(f::reveal(&mut mpc, &y)?) {
        let want = a * 2f64.powi(-12) * 1234.5678;
        assert!((got - want).abs() <= 1300.0 * unit + 2f64.powi(-19) * want.abs(), "{got}, {want}");
    }
    Ok(())
}

#[test]
fn means_of_many_large_numbers_are_right() -> Result<()> {
    for (count, value) in [(50_176, 255.0), (50_176, -8e6), (49, 4e9), (768, 1e8), (3, 1e12)] {
        let mut mpc = mpc();
        let x = secret(&mut mpc, &[count], &vec![value; count])?;
        for x in [x.clone(), x.with_bound(value)] {
            let mean = f::mean(&mut mpc, &x, &[0])?;
            let got = f::reveal(&mut mpc, &mean)?[0];
            let bound = 2f64.powi(-19) * f64::abs(value) + 2e-6;
            assert!((got - value).abs() < bound, "the mean of {count} times {value} is {got}");
        }
    }
    Ok(())
}

#[test]
fn a_remainder_and_its_streams_add_up_to_the_secret_whatever_its_length() {
    use mpc_core::sharing::{expand, fresh_key, remainders};
    for len in [0, 1, 1 << 14, 3 * (1 << 14) + 5] {
        let secret = Tensor::vector((0..len).map(|i| i * i + 7).collect());
        let keys = [fresh_key().unwrap(), fresh_key().unwrap()];
        let rest = remainders(vec![secret.clone(), secret.clone()], &keys).unwrap();
        let shapes = [secret.shape().clone(), secret.shape().clone()];
        let streams = keys.each_ref().map(|key| expand(key, &shapes).unwrap());
        for at in 0..2 {
            let parts = [&rest[at], &streams[0][at], &streams[1][at]].map(Tensor::words);
            let sum = |i: usize| parts.iter().fold(0u64, |sum, part| sum.wrapping_add(part[i]));
            assert!((0..secret.words().len()).all(|i| sum(i) == secret.words()[i]), "{len}");
        }
        assert!(len == 0 || rest[0].words() != rest[1].words());
    }
}
