//! Domains of functions, checked where the numbers are known: on shares, a number outside gives an arbitrary result.

use trefoil::analysis::{Call, Operand};

use crate::errors::{Failure, Kind, Result};

/// Above this the exponential saturates: `16 ln 2`.
const LARGEST_EXPONENT: f64 = 11.090_354_888_959_125;

/// A test of a number with these fraction bits.
type Inside = Box<dyn Fn(f64, u32) -> bool>;

/// The operand that a function's domain restricts, the test that its numbers pass, and the domain in words.
fn domain(call: &Call) -> Option<(usize, Inside, &'static str)> {
    let test = |inside: fn(f64, u32) -> bool| -> Inside { Box::new(inside) };
    Some(match call.function.as_str() {
        "powf" if call.float("p").is_ok_and(|p| p > 0.0) => (0, test(|x, _| x >= 0.0), "x >= 0"),
        "log" | "powf" | "inv_sqrt" | "inv_sqrt_to" | "reciprocal_positive" => {
            (0, test(|x, _| x > 0.0), "x > 0")
        }
        // Rounding may have left a square two units below 0.
        "sqrt" => (0, test(|x, frac| x >= -2.0 * unit(frac)), "x >= 0"),
        "reciprocal" => (0, test(divides), "x != 0"),
        "div" => (1, test(divides), "divisors other than 0, below 2^frac_bits in magnitude"),
        "exp" => (0, test(|x, _| x < LARGEST_EXPONENT), "x < 11.09, where it reaches 2^16"),
        "exp_nonpositive" => (0, test(|x, _| x <= 0.0), "x <= 0"),
        "pow" if call.float("n").is_ok_and(|n| n < 0.0) => (0, test(divides), "x != 0"),
        "one_hot" => (0, below(call.float("classes").ok()?), "the classes from 0 on"),
        "gather_at" => (1, below(call.float("length").ok()?), "the places of the axis, from 0 on"),
        "scatter_add" => {
            (1, below(call.float("count").ok()?), "the places of the result, from 0 on")
        }
        _ => return None,
    })
}

fn below(count: f64) -> Inside {
    Box::new(move |x, _| (0.0..count).contains(&x))
}

fn divides(x: f64, frac: u32) -> bool {
    x != 0.0 && x != -unit(frac) && x.abs() < 1.0 / unit(frac)
}

fn unit(frac: u32) -> f64 {
    (-f64::from(frac)).exp2()
}

/// The secret operand whose numbers [`refuse`] wants to see, if it does.
pub(crate) fn watched(call: &Call) -> Option<u64> {
    let (operand, ..) = domain(call)?;
    match call.operands.get(operand) {
        Some(Operand::Secret(id)) => Some(*id),
        _ => None,
    }
}

/// Refuses numbers of the watched operand outside of the function's domain.
///
/// # Errors
/// A [`Kind::Range`] that names the first of them.
pub(crate) fn refuse(call: &Call, values: &[f64], frac: u32) -> Result<()> {
    let Some((_, inside, words)) = domain(call) else { return Ok(()) };
    let Some(at) = values.iter().position(|&x| !inside(x, frac)) else { return Ok(()) };
    let text = format!("{}: element {at} is {}; its domain is {words}", call.function, values[at]);
    Err(Failure::new(Kind::Range, text))
}
