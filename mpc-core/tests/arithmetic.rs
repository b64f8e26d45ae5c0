//! Sums and products of secret and public operands, against real arithmetic.

use mpc_core::{
    Error, Operand, Plaintext, Result, Rounding, SecretTensor, SplitMix64,
    functions::{self as f, Multiply},
};
use net::Party;
use ring_arith::{Bilinear, CpuEngine, FracBits, Shape, Window};

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
        near(&f::reveal(&mut mpc, &y)?, &want, 1.2e-6 + 1e-4 * c.abs());
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
fn a_product_that_overflows_is_noticed_by_the_reference() -> Result<()> {
    let mut mpc = mpc();
    let x = secret(&mut mpc, &[1], &[3000.0])?;
    assert!(matches!(f::mul(&mut mpc, &x, &x), Err(Error::Invalid { .. })));
    Ok(())
}
