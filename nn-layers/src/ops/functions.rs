//! Functions that the protocol crate computes, in the forms that networks ask for.

use mpc_core::{Operand, Protocol, SecretTensor, functions};
use ring_arith::{Shape, View};

use super::{add, align, elementwise, pool, reshape, scale, shift, view};
use crate::graph::{LinearMap, Pool, Unary};
use crate::ops::linear::{LinearJob, Map, run};
use crate::ops::only;
use crate::{Error, Result};

/// Bits of a position in a table: positions are taken modulo 2^32.
const POSITION_BITS: u32 = 33;

pub(crate) fn sqrt<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    Ok(functions::sqrt(mpc, x)?)
}

pub(crate) fn divide<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    y: &SecretTensor<P>,
) -> Result<SecretTensor<P>> {
    Ok(functions::div(mpc, x, y)?)
}

/// `exp(x) / sum(exp(x))` along an axis, or its logarithm.
pub(crate) fn softmax<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    axis: usize,
    log: bool,
) -> Result<SecretTensor<P>> {
    Ok(if log { functions::log_softmax(mpc, x, axis)? } else { functions::softmax(mpc, x, axis)? })
}

/// A function of every element that is not only a comparison.
pub(crate) fn unary<P: Protocol>(
    mpc: &mut P,
    f: Unary,
    x: &SecretTensor<P>,
) -> Result<SecretTensor<P>> {
    let frac = x.frac();
    let y = match f {
        Unary::Sigmoid => functions::sigmoid(mpc, x)?,
        Unary::Tanh => functions::tanh(mpc, x)?,
        Unary::Erf => functions::erf(mpc, x)?,
        Unary::Gelu => functions::gelu(mpc, x)?,
        Unary::GeluTanh => gelu_tanh(mpc, x)?,
        Unary::Silu => functions::silu(mpc, x)?,
        Unary::Exp => functions::exp(mpc, x)?,
        Unary::Log => functions::log(mpc, x)?,
        Unary::Sqrt => functions::sqrt(mpc, x)?,
        Unary::InvSqrt => functions::inv_sqrt(mpc, x)?,
        Unary::Reciprocal => functions::reciprocal(mpc, x)?,
        Unary::Sin => functions::sin(mpc, x)?,
        Unary::Cos => functions::cos(mpc, x)?,
        Unary::Pow(n) => power(mpc, x, n)?,
        Unary::Softplus => softplus(mpc, x)?,
        Unary::Softsign => softsign(mpc, x)?,
        Unary::Elu(alpha) => exponential_unit(mpc, x, alpha)?,
        Unary::Selu(alpha, gamma) => {
            let y = exponential_unit(mpc, x, alpha)?;
            scale(mpc, &y, gamma, frac)?
        }
        Unary::HardSigmoid(a, b) => hard_sigmoid(mpc, x, a, b)?,
        Unary::HardSwish => hard_swish(mpc, x)?,
        _ => return Err(Error::invalid(f.name(), "is not computed here")),
    };
    align(mpc, &y, frac)
}

fn times<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    y: &SecretTensor<P>,
    frac: u32,
) -> Result<SecretTensor<P>> {
    elementwise::mul(mpc, &Operand::Secret(x.clone()), &Operand::Secret(y.clone()), frac)
}

/// Beyond this the hyperbolic tangent in [`gelu_tanh`] is 1 or -1 in every format.
const GELU_END: f64 = 8.0;

/// `x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2`, of clipped values: beyond them it is `max(x, 0)`.
fn gelu_tanh<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let frac = x.frac();
    let (near, over) = elementwise::clamp(mpc, x, GELU_END)?;
    let near = SecretTensor::new(near.share().clone(), frac, frac + 5);
    let square = times(mpc, &near, &near, frac)?;
    let slope = scale(mpc, &square, 0.044715, frac)?;
    let slope = shift(mpc, &slope, 1.0)?;
    let curve = times(mpc, &near, &slope, frac)?;
    let curve = scale(mpc, &curve, std::f64::consts::FRAC_2_PI.sqrt(), frac)?;
    let gate = functions::tanh(mpc, &curve)?;
    let gate = shift(mpc, &gate, 1.0)?;
    let half = scale(mpc, &gate, 0.5, frac)?;
    let bent = times(mpc, &near, &half, frac)?;
    add(mpc, &bent, &over, false)
}

/// Beyond this a hard swish is `max(x, 0)`.
const HARD_SWISH_END: f64 = 3.0;

/// `x * clip(x / 6 + 1/2, 0, 1)`: `x (x + 3) / 6` of clipped values, plus the part above the limit.
fn hard_swish<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let frac = x.frac();
    let (near, over) = elementwise::clamp(mpc, x, HARD_SWISH_END)?;
    let near = SecretTensor::new(near.share().clone(), frac, frac + 3);
    let above = shift(mpc, &near, HARD_SWISH_END)?;
    let sixfold = times(mpc, &near, &above, frac)?;
    let sixfold = SecretTensor::new(sixfold.share().clone(), frac, frac + 6);
    let bent = scale(mpc, &sixfold, 1.0 / 6.0, frac)?;
    add(mpc, &bent, &over, false)
}

/// `clip(a * x + b, 0, 1)`.
fn hard_sigmoid<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    a: f64,
    b: f64,
) -> Result<SecretTensor<P>> {
    let y = scale(mpc, x, a, x.frac())?;
    let y = shift(mpc, &y, b)?;
    let y = elementwise::clip(mpc, &y, Some(0.0), Some(1.0))?;
    Ok(SecretTensor::new(y.share().clone(), y.frac(), y.frac() + 2))
}

/// `1 - 1 / (1 + |x|)` with the sign of `x`: a product of a large number and its inverse would have few digits.
fn softsign<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let (magnitude, negative) = elementwise::abs_keeping(mpc, x)?;
    let below = shift(mpc, &magnitude, 1.0)?;
    let inverse = functions::reciprocal_positive(mpc, &below)?;
    let minus = scale(mpc, &inverse, -1.0, inverse.frac())?;
    let rest = shift(mpc, &minus, 1.0)?;
    let rest = SecretTensor::new(rest.share().clone(), rest.frac(), rest.frac() + 2);
    let turned = elementwise::where_kept(mpc, &rest, &negative)?;
    let twice = add(mpc, &turned, &turned, false)?;
    let y = add(mpc, &rest, &twice, true)?;
    Ok(SecretTensor::new(y.share().clone(), y.frac(), y.frac() + 2))
}

/// `max(x, 0) + log(1 + exp(-|x|))`.
fn softplus<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let negative = elementwise::negative_part(mpc, x)?;
    let positive = add(mpc, x, &negative, true)?;
    let minus_magnitude = add(mpc, &negative, &positive, true)?;
    let power = functions::exp_nonpositive(mpc, &minus_magnitude)?;
    let power = align(mpc, &power, x.frac())?;
    let above_one = shift(mpc, &power, 1.0)?;
    let rest = functions::log(mpc, &above_one)?;
    let y = add(mpc, &positive, &rest, false)?;
    Ok(SecretTensor::new(y.share().clone(), y.frac(), y.width().min(x.width() + 1)))
}

/// `x`, or `alpha * (exp(x) - 1)` where negative.
fn exponential_unit<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    alpha: f64,
) -> Result<SecretTensor<P>> {
    let negative = elementwise::negative_part(mpc, x)?;
    let positive = add(mpc, x, &negative, true)?;
    // exp(0) - 1 = 0 where the value is positive.
    let power = functions::exp_nonpositive(mpc, &negative)?;
    let power = align(mpc, &power, x.frac())?;
    let power = shift(mpc, &power, -1.0)?;
    let power = scale(mpc, &power, alpha, x.frac())?;
    let y = add(mpc, &positive, &power, false)?;
    Ok(SecretTensor::new(y.share().clone(), y.frac(), y.width().min(x.width() + 1)))
}

/// `x^n`: products for a whole exponent, roots for quarters below one, and halves; else a logarithm, and 0 for 0.
fn power<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>, n: f64) -> Result<SecretTensor<P>> {
    let (whole, rest) = (n.abs().floor(), n.abs().fract());
    if rest == 0.0 {
        if whole > 64.0 {
            return Err(Error::invalid("pow", format!("{n} is not an exponent up to 64")));
        }
        return Ok(functions::pow(mpc, x, n as i32)?);
    }
    let roots = [0.25, 0.5, 0.75].contains(&rest) && whole == 0.0;
    if !roots && (rest != 0.5 || whole > 64.0) {
        let y = functions::powf(mpc, x, n)?;
        // The logarithm of 0 is some number, and its power not 0.
        return if n > 0.0 { elementwise::where_positive(mpc, &y, x) } else { Ok(y) };
    }
    let negative = roots && n < 0.0;
    let root = if negative { functions::inv_sqrt(mpc, x)? } else { functions::sqrt(mpc, x)? };
    let factor = match rest {
        _ if !roots => functions::pow(mpc, x, n.floor() as i32)?,
        0.25 => return Ok(functions::sqrt(mpc, &root)?),
        0.75 => functions::sqrt(mpc, &root)?,
        _ => return Ok(root),
    };
    times(mpc, &factor, &root, x.frac())
}

/// Local response normalisation over the channels of `[N, C, ..]`, with `[alpha, beta, bias]`.
pub(crate) fn lrn<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    [alpha, beta, bias]: [f64; 3],
    size: usize,
) -> Result<SecretTensor<P>> {
    let frac = x.frac();
    let squares = times(mpc, x, x, frac)?;
    // Channels as rows, so that a window moves over them.
    let dims = x.shape().dims();
    let inner = dims[2..].iter().product::<usize>();
    let rows = reshape(mpc, &squares, &Shape::new([dims[0], dims[1], inner])?)?;
    let before = (size - 1) / 2;
    let window = Pool::new([size, 1], [1; 2]).padded([before, 0, size - 1 - before, 0]);
    let sums = pool::sum(mpc, &rows, &window)?;
    let scaled = scale(mpc, &sums, alpha / size as f64, frac)?;
    let base = shift(mpc, &scaled, bias)?;
    let factor = power(mpc, &base, -beta)?;
    let factor = reshape(mpc, &factor, x.shape())?;
    times(mpc, x, &factor, frac)
}

/// 1 at each position among `count`, 0 elsewhere.
pub(crate) fn one_hot<P: Protocol>(
    mpc: &mut P,
    at: &SecretTensor<P>,
    count: usize,
    shape: &Shape,
) -> Result<SecretTensor<P>> {
    if at.frac() != 0 {
        return Err(Error::invalid("one-hot", "the positions are no integers"));
    }
    let flat = reshape(mpc, at, &Shape::new([at.shape().len()])?)?;
    let flat = SecretTensor::new(flat.share().clone(), 0, at.width().min(POSITION_BITS));
    let code = functions::one_hot(mpc, &flat, count)?;
    reshape(mpc, &code, shape)
}

/// Rows of a table at secret positions: the product with their one-hot code, which needs no
/// truncation.
pub(crate) fn lookup<P: Protocol>(
    mpc: &mut P,
    table: &SecretTensor<P>,
    at: &SecretTensor<P>,
    shape: &Shape,
) -> Result<SecretTensor<P>> {
    let rows = table.shape().dims()[0];
    let row: usize = table.shape().dims()[1..].iter().product();
    let code = one_hot(mpc, at, rows, &Shape::new([at.shape().len(), rows])?)?;
    let table = reshape(mpc, table, &Shape::new([rows, row])?)?;
    let frac = table.frac();
    let map = Map {
        map: &LinearMap::MatMul { transpose_lhs: false, transpose_rhs: false },
        x: &Operand::Secret(code),
        weight: &Operand::Secret(table),
    };
    let picked = only(run(mpc, &[LinearJob::new(vec![map], frac)])?)?.value;
    let picked = view(mpc, &picked, &View::Reshape(shape.clone()))?;
    Ok(picked)
}
