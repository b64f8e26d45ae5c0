//! Operations of networks as functions of secret tensors.

use mpc_core::{Protocol, SecretTensor, functions as f};
use ring_arith::{Shape, Window};

use super::{alike, reshape, scale};
use crate::graph::{Binary, Reduce, Unary};
use crate::{Error, Result};

/// Bits of a position in a table: positions are taken modulo 2^32.
const POSITION_BITS: u32 = 33;

/// A function of every element, for an operand in the result's format.
pub(crate) fn unary<P: Protocol>(
    mpc: &mut P,
    function: Unary,
    x: &SecretTensor<P>,
) -> Result<SecretTensor<P>> {
    let frac = x.frac();
    let y = match function {
        Unary::Relu => f::relu(mpc, x)?,
        Unary::LeakyRelu(slope) => f::leaky_relu(mpc, x, slope)?,
        Unary::Clip(low, high) => f::clamp(mpc, x, low, high)?,
        Unary::Neg => f::neg(mpc, x)?,
        Unary::Abs => f::abs(mpc, x)?,
        Unary::Sign => return Ok(f::sign(mpc, x)?),
        Unary::Not => return Ok(f::not(mpc, x)?),
        Unary::Floor => return Ok(f::floor(mpc, x)?),
        Unary::Sigmoid => f::sigmoid(mpc, x)?,
        Unary::Tanh => f::tanh(mpc, x)?,
        Unary::Erf => f::erf(mpc, x)?,
        Unary::Gelu => f::gelu(mpc, x)?,
        Unary::GeluTanh => f::gelu_tanh(mpc, x)?,
        Unary::Silu => f::silu(mpc, x)?,
        Unary::Exp => f::exp(mpc, x)?,
        Unary::Log => f::log(mpc, x)?,
        Unary::Sqrt => f::sqrt(mpc, x)?,
        Unary::InvSqrt | Unary::Damping => f::inv_sqrt(mpc, x)?,
        Unary::Reciprocal => f::reciprocal(mpc, x)?,
        Unary::Sin => f::sin(mpc, x)?,
        Unary::Cos => f::cos(mpc, x)?,
        Unary::Pow(n) => f::powf(mpc, x, n)?,
        Unary::Softplus => f::softplus(mpc, x)?,
        Unary::Softsign => f::softsign(mpc, x)?,
        Unary::Elu(alpha) => f::elu(mpc, x, alpha)?,
        Unary::Selu(alpha, gamma) => {
            let y = f::elu(mpc, x, alpha)?;
            scale(mpc, &y, gamma, frac)?
        }
        Unary::HardSigmoid(a, b) => f::hard_sigmoid(mpc, x, a, b)?,
        Unary::HardSwish => f::hard_swish(mpc, x)?,
    };
    Ok(f::rescale(mpc, &y, frac)?)
}

/// A function of two numbers that both have the format of the finer one, or of two truth values.
pub(crate) fn binary<P: Protocol>(
    mpc: &mut P,
    function: Binary,
    x: &SecretTensor<P>,
    y: &SecretTensor<P>,
) -> Result<SecretTensor<P>> {
    let [x, y] = alike(mpc, x, y)?;
    let (x, y) = (&x, &y);
    Ok(match function {
        Binary::Add => f::add(mpc, x, y),
        Binary::Sub => f::sub(mpc, x, y),
        Binary::Max => f::maximum(mpc, x, y),
        Binary::Min => f::minimum(mpc, x, y),
        Binary::Less => f::lt(mpc, x, y),
        Binary::Greater => f::gt(mpc, x, y),
        Binary::LessEqual => f::le(mpc, x, y),
        Binary::GreaterEqual => f::ge(mpc, x, y),
        Binary::Equal => f::eq(mpc, x, y),
        Binary::And => f::logical(mpc, f::Logic::And, x, y),
        Binary::Or => f::logical(mpc, f::Logic::Or, x, y),
        Binary::Xor => f::logical(mpc, f::Logic::Xor, x, y),
        Binary::Mul | Binary::Div | Binary::PRelu => {
            return Err(Error::invalid(function.name(), "is not computed here"));
        }
    }?)
}

/// Sums, means and extremes over axes; `shape` is the result's.
pub(crate) fn reduce<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    kind: Reduce,
    axes: &[usize],
    shape: &Shape,
    frac: u32,
) -> Result<SecretTensor<P>> {
    let y = match kind {
        Reduce::Sum => f::sum(mpc, x, axes)?,
        Reduce::Mean => {
            let count: usize = axes.iter().map(|&a| x.shape().dims()[a]).product();
            let sum = f::sum(mpc, x, axes)?;
            scale(mpc, &sum, 1.0 / count.max(1) as f64, frac)?
        }
        Reduce::L1 => {
            let magnitude = f::abs(mpc, x)?;
            f::sum(mpc, &magnitude, axes)?
        }
        Reduce::SumSquare => squares(mpc, x, axes, frac)?,
        Reduce::L2 => {
            let squares = squares(mpc, x, axes, frac)?;
            f::sqrt(mpc, &squares)?
        }
        Reduce::Max => {
            let columns = columns(mpc, x, axes)?;
            f::max(mpc, &columns, 0)?
        }
        Reduce::Min => {
            let columns = columns(mpc, x, axes)?;
            f::min(mpc, &columns, 0)?
        }
    };
    reshape(mpc, &y, shape)
}

/// The position of the largest or smallest element along an axis, as an integer.
pub(crate) fn position<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    axis: usize,
    min: bool,
    shape: &Shape,
) -> Result<SecretTensor<P>> {
    let columns = columns(mpc, x, &[axis])?;
    let at = if min { f::argmin(mpc, &columns, 0)? } else { f::argmax(mpc, &columns, 0)? };
    reshape(mpc, &at, shape)
}

/// The sum of the squares of each group.
fn squares<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    axes: &[usize],
    frac: u32,
) -> Result<SecretTensor<P>> {
    let squares = f::sum_squares(mpc, x, axes)?;
    // Reductions of integers are integers.
    if x.frac() == 0 { Ok(squares) } else { Ok(f::rescale(mpc, &squares, frac)?) }
}

/// Groups as columns: the reduced axes first, flattened to one.
fn columns<P: Protocol>(mpc: &P, x: &SecretTensor<P>, axes: &[usize]) -> Result<SecretTensor<P>> {
    let others = (0..x.shape().rank()).filter(|axis| !axes.contains(axis));
    let order: Vec<_> = axes.iter().copied().chain(others).collect();
    let group: usize = axes.iter().map(|&a| x.shape().dims()[a]).product();
    let groups = x.shape().len() / group.max(1);
    let x = if order.is_sorted() { x.clone() } else { f::permute(mpc, x, &order)? };
    reshape(mpc, &x, &Shape::new([group, groups])?)
}

/// `x` where a condition is true, else `y`, with the fraction bits of the finer one.
pub(crate) fn choose<P: Protocol>(
    mpc: &mut P,
    condition: &SecretTensor<P>,
    x: &SecretTensor<P>,
    y: &SecretTensor<P>,
) -> Result<SecretTensor<P>> {
    let [x, y] = alike(mpc, x, y)?;
    Ok(f::select(mpc, condition, &x, &y)?)
}

/// Local response normalisation over the channels of `[N, C, ..]`, with `[alpha, beta, bias]`.
pub(crate) fn lrn<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    [alpha, beta, bias]: [f64; 3],
    size: usize,
) -> Result<SecretTensor<P>> {
    let frac = x.frac();
    let squares = f::square(mpc, x)?;
    // Channels as rows, so that a window moves over them.
    let dims = x.shape().dims();
    let inner = dims[2..].iter().product::<usize>();
    let rows = reshape(mpc, &squares, &Shape::new([dims[0], dims[1], inner])?)?;
    // What reaches beyond all channels adds nothing, and would take time.
    let most = dims[1].saturating_sub(1);
    let before = ((size - 1) / 2).min(most);
    let behind = (size / 2).min(most);
    let window = Window::new([before + 1 + behind, 1], [1; 2]).padded([before, 0, behind, 0]);
    let sums = f::window_sum(mpc, &rows, window)?;
    let scaled = scale(mpc, &sums, alpha / size as f64, frac)?;
    let base = f::add_scalar(mpc, &scaled, bias)?;
    let factor = f::powf(mpc, &base, -beta)?;
    let factor = reshape(mpc, &factor, x.shape())?;
    Ok(f::mul(mpc, x, &factor)?)
}

/// 1 at each position among `count`, 0 elsewhere.
pub(crate) fn one_hot<P: Protocol>(
    mpc: &mut P,
    at: &SecretTensor<P>,
    count: usize,
    shape: &Shape,
) -> Result<SecretTensor<P>> {
    let flat = reshape(mpc, at, &Shape::new([at.shape().len()])?)?;
    let flat = SecretTensor::new(
        flat.share().clone(),
        at.format().with_width(at.width().min(POSITION_BITS)),
    );
    let code = f::one_hot(mpc, &flat, count)?;
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
    // At most one row is picked, so that the sum is no wider than a row.
    let picked = f::matmul(mpc, &code, &table)?.with_width(table.width());
    reshape(mpc, &picked, shape)
}
