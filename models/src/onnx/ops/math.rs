//! Products, functions of elements, comparisons.

use nn_layers::{Binary, Dim, HostTensor, Op, Unary, ValueId};

use super::shape::{common, spread};
use crate::Result;
use crate::onnx::node::Node;

/// Exporters mask with numbers that no fixed-point format holds; this one has the same effect in
/// a softmax.
const MASKED: f64 = -4096.0;

pub(crate) fn gemm(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (a, b) = (n.input(0)?, n.input(1)?);
    let op = Op::MatMul {
        transpose_lhs: n.attributes.int("transA", 0) != 0,
        transpose_rhs: n.attributes.int("transB", 0) != 0,
    };
    let y = n.add(op, &[a, b])?;
    let alpha = n.attributes.float("alpha", 1.0);
    let y = times(n, y, alpha)?;
    let Some(c) = n.optional(2) else { return Ok(vec![y]) };
    let beta = n.attributes.float("beta", 1.0);
    let c = times(n, c, beta)?;
    Ok(vec![n.binary_op(Binary::Add, y, c)?])
}

fn times(n: &mut Node<'_, '_>, x: ValueId, c: f64) -> Result<ValueId> {
    if c == 1.0 {
        return Ok(x);
    }
    let c = n.number(c);
    n.binary_op(Binary::Mul, x, c)
}

pub(crate) fn matmul(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (mut x, mut y) = (n.input(0)?, n.input(1)?);
    let (vector_x, vector_y) = (n.dims(x).len() == 1, n.dims(y).len() == 1);
    if n.dims(x).is_empty() || n.dims(y).is_empty() {
        return Err(n.attributes.error("an operand has no dimensions"));
    }
    if vector_x {
        let k = n.dims(x)[0];
        x = n.add(Op::Reshape(vec![Dim::Fixed(1), Dim::Fixed(k)]), &[x])?;
    }
    if vector_y {
        let k = n.dims(y)[0];
        y = n.add(Op::Reshape(vec![Dim::Fixed(k), Dim::Fixed(1)]), &[y])?;
    }
    let mut z = product(n, x, y)?;
    let mut dims = n.dims(z);
    if vector_y {
        dims.pop();
    }
    if vector_x {
        dims.remove(dims.len() - usize::from(!vector_y) - 1);
    }
    if vector_x || vector_y {
        z = n.add(Op::Reshape(dims.into_iter().map(Dim::Fixed).collect()), &[z])?;
    }
    Ok(vec![z])
}

/// A product of matrices, batch dimensions broadcast to each other.
pub(crate) fn product(n: &mut Node<'_, '_>, x: ValueId, y: ValueId) -> Result<ValueId> {
    let op = Op::MatMul { transpose_lhs: false, transpose_rhs: false };
    let (dx, dy) = (n.dims(x), n.dims(y));
    let (bx, by) = (&dx[..dx.len() - 2], &dy[..dy.len() - 2]);
    if bx == by || bx.is_empty() || by.is_empty() {
        return n.add(op, &[x, y]);
    }
    let batch = common(bx, by);
    let to = |dims: &[usize]| [&batch, &dims[dims.len() - 2..]].concat();
    let (x, y) = (spread(n, x, to(&dx))?, spread(n, y, to(&dy))?);
    n.add(op, &[x, y])
}

pub(crate) fn unary(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let a = &n.attributes;
    let f = match n.operator {
        "Relu" => Unary::Relu,
        "Sigmoid" => Unary::Sigmoid,
        "Tanh" => Unary::Tanh,
        "Erf" => Unary::Erf,
        "HardSwish" => Unary::HardSwish,
        "Softplus" => Unary::Softplus,
        "Softsign" => Unary::Softsign,
        "Exp" => Unary::Exp,
        "Log" => Unary::Log,
        "Sqrt" => Unary::Sqrt,
        "Reciprocal" => Unary::Reciprocal,
        "Neg" => Unary::Neg,
        "Abs" => Unary::Abs,
        "Sign" => Unary::Sign,
        "Sin" => Unary::Sin,
        "Cos" => Unary::Cos,
        "Not" => Unary::Not,
        "Floor" => Unary::Floor,
        "LeakyRelu" => Unary::LeakyRelu(a.float("alpha", 0.01)),
        "HardSigmoid" => Unary::HardSigmoid(a.float("alpha", 0.2), a.float("beta", 0.5)),
        "Elu" => Unary::Elu(a.float("alpha", 1.0)),
        "Selu" => Unary::Selu(
            a.float("alpha", 1.673_263_192_176_818_8),
            a.float("gamma", 1.050_701_022_148_132_3),
        ),
        "Gelu" => Unary::Gelu,
        other => return Err(n.unsupported(format!("as {other}"))),
    };
    Ok(vec![n.unary(f, x)?])
}

/// The smallest whole number that is not below.
pub(crate) fn ceil(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let y = n.unary(Unary::Neg, x)?;
    let y = n.unary(Unary::Floor, y)?;
    Ok(vec![n.unary(Unary::Neg, y)?])
}

/// False for what is computed on shares, where every word is a number. PyTorch asks this after a
/// softmax, whose rows are not numbers where all of a row is masked; here such a row is uniform.
pub(crate) fn is_nan(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let name = n.attributes.name;
    let Some(value) = n.to.graph.constant_value(x) else {
        let dims = n.dims(x);
        let never = n.number(0.0);
        let y = spread(n, never, dims)?;
        n.to.mark_integer(y);
        return Ok(vec![y]);
    };
    let values = value.floats().iter().map(|v| i64::from(v.is_nan())).collect();
    let value = HostTensor::integers(value.dims(), values)?;
    Ok(vec![n.to.graph.public(name, value)])
}

/// `x`, or `alpha * (exp(x / alpha) - 1)` where negative.
pub(crate) fn celu(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let alpha = n.attributes.float("alpha", 1.0);
    if !(alpha.is_finite() && alpha > 0.0) {
        return Err(n.attributes.error(format!("alpha is {alpha}; it must be above 0")));
    }
    let y = times(n, x, 1.0 / alpha)?;
    let y = n.unary(Unary::Elu(1.0), y)?;
    Ok(vec![times(n, y, alpha)?])
}

/// `x * tanh(log(1 + exp(x)))`.
pub(crate) fn mish(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let gate = n.unary(Unary::Softplus, x)?;
    let gate = n.unary(Unary::Tanh, gate)?;
    Ok(vec![n.binary_op(Binary::Mul, x, gate)?])
}

pub(crate) fn clip(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let limit = |i: usize| -> Result<Option<f64>> {
        let Some(id) = n.optional(i) else { return Ok(None) };
        let value = n.constant(id, "limits")?;
        let value =
            value.single().ok_or_else(|| n.attributes.error("a limit is not one number"))?;
        // The largest numbers of a type mean no limit.
        Ok((value.abs() < 1e30).then_some(value))
    };
    let (low, high) = (limit(1)?, limit(2)?);
    // Of limits that cross the upper one holds everywhere.
    let low = low.map(|low| high.map_or(low, |high| low.min(high)));
    let f = match (low, high) {
        (None, None) => return Ok(vec![x]),
        (Some(0.0), None) => Unary::Relu,
        _ => Unary::Clip(low, high),
    };
    Ok(vec![n.unary(f, x)?])
}

pub(crate) fn prelu(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (x, slope) = (n.input(0)?, n.input(1)?);
    Ok(vec![n.binary_op(Binary::PRelu, x, slope)?])
}

pub(crate) fn softmax(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let log = n.operator == "LogSoftmax";
    let dims = n.dims(x);
    if n.to.opset >= 13 {
        let axis = n.axis(n.attributes.int("axis", -1), dims.len(), false)?;
        return Ok(vec![n.add(Op::Softmax { axis, log }, &[x])?]);
    }
    // Before opset 13 all axes from this one on are one.
    let axis = n.axis(n.attributes.int("axis", 1), dims.len(), true)?;
    let (rows, row) = (dims[..axis].iter().product(), dims[axis..].iter().product());
    let flat = n.add(Op::Reshape(vec![Dim::Fixed(rows), Dim::Fixed(row)]), &[x])?;
    let y = n.add(Op::Softmax { axis: 1, log }, &[flat])?;
    Ok(vec![n.add(Op::Reshape(dims.into_iter().map(Dim::Fixed).collect()), &[y])?])
}

pub(crate) fn binary(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (mut x, mut y) = (n.input(0)?, n.input(1)?);
    let f = match n.operator {
        "Add" => {
            (x, y) = (unmasked(n, x), unmasked(n, y));
            Binary::Add
        }
        "Sub" => Binary::Sub,
        "Mul" => {
            // `(1 - mask) * -3.4e38` is what to add to scores.
            (x, y) = (unmasked(n, x), unmasked(n, y));
            Binary::Mul
        }
        "Div" => {
            let constant = [x, y].iter().all(|&v| n.to.graph.constant_value(v).is_some());
            if n.to.is_integer(x) && n.to.is_integer(y) && !constant {
                return Err(n.unsupported("between integers that depend on the input"));
            }
            Binary::Div
        }
        "Less" => Binary::Less,
        "LessOrEqual" => Binary::LessEqual,
        "Greater" => Binary::Greater,
        "GreaterOrEqual" => Binary::GreaterEqual,
        "Equal" => Binary::Equal,
        "And" => Binary::And,
        "Or" => Binary::Or,
        "Xor" => Binary::Xor,
        other => return Err(n.unsupported(format!("as {other}"))),
    };
    Ok(vec![n.binary_op(f, x, y)?])
}

/// A constant whose hugely negative or infinite elements became [`MASKED`], if a softmax comes to see them.
fn unmasked(n: &mut Node<'_, '_>, x: ValueId) -> ValueId {
    if !n.before_softmax {
        return x;
    }
    let Some(value) = n.to.graph.constant_value(x) else { return x };
    if value.is_int() || value.floats().iter().all(|v| *v > -1e9) {
        return x;
    }
    let tame = value.map(|v| if v > -1e9 { v } else { MASKED });
    let (name, secret) = (n.attributes.name, n.to.graph.is_secret(x));
    if secret { n.to.graph.weight(name, tame) } else { n.to.graph.public(name, tame) }
}

pub(crate) fn variadic(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let inputs = n.inputs()?;
    let f = match n.operator {
        "Max" => Binary::Max,
        "Min" => Binary::Min,
        _ => Binary::Add,
    };
    let mut y = n.input(0)?;
    y = unmasked(n, y);
    for &x in &inputs[1..] {
        let x = unmasked(n, x);
        y = n.binary_op(f, y, x)?;
    }
    if n.operator == "Mean" && inputs.len() > 1 {
        let factor = n.number(1.0 / inputs.len() as f64);
        y = n.binary_op(Binary::Mul, y, factor)?;
    }
    Ok(vec![y])
}

pub(crate) fn pow(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (x, y) = (n.input(0)?, n.input(1)?);
    let exponent = n.constant(y, "exponents")?;
    let exponent = exponent.single().ok_or_else(|| n.unsupported("with several exponents"))?;
    let y = match exponent {
        1.0 => x,
        2.0 => n.binary_op(Binary::Mul, x, x)?,
        3.0 => {
            let square = n.binary_op(Binary::Mul, x, x)?;
            n.binary_op(Binary::Mul, square, x)?
        }
        0.5 => n.unary(Unary::Sqrt, x)?,
        -0.5 => n.unary(Unary::InvSqrt, x)?,
        -1.0 => n.unary(Unary::Reciprocal, x)?,
        e if e.is_finite() && (e.fract() != 0.0 || e.abs() <= 64.0) => n.unary(Unary::Pow(e), x)?,
        e => return Err(n.unsupported(format!("with exponent {e}; whole ones up to 64 are"))),
    };
    Ok(vec![y])
}

pub(crate) fn modulo(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (x, y) = (n.input(0)?, n.input(1)?);
    let (a, b) = (n.ints(x, "operands")?, n.ints(y, "operands")?);
    let (&[divisor], dims) = (b.as_slice(), n.dims(x)) else {
        return Err(n.unsupported("with several divisors"));
    };
    if divisor == 0 {
        return Err(n.attributes.error("division by 0"));
    }
    let values = a.iter().map(|v| match n.attributes.int("fmod", 0) {
        0 => (v % divisor + divisor) % divisor,
        _ => v % divisor,
    });
    let value = HostTensor::integers(dims, values.collect())?;
    Ok(vec![n.to.graph.public(n.attributes.name, value)])
}

pub(crate) fn select(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let c = n.input(0)?;
    let (x, y) = (n.input(1)?, n.input(2)?);
    let (x, y) = (unmasked(n, x), unmasked(n, y));
    let all = [c, x, y].iter().all(|&v| n.to.graph.constant_value(v).is_some());
    let Some(condition) = n.to.graph.public_behind(c).filter(|_| !all) else {
        return Ok(vec![n.add(Op::Where, &[c, x, y])?]);
    };
    let condition = condition.map(|v| f64::from(u8::from(v != 0.0)));
    if let Some(everywhere) = condition.uniform() {
        let chosen = if everywhere == 1.0 { x } else { y };
        let dims = common(&common(&n.dims(c), &n.dims(x)), &n.dims(y));
        return Ok(vec![spread(n, chosen, dims)?]);
    }
    // A public condition only masks: no communication.
    let truth = |keep: f64| {
        let values = condition.floats().iter().map(|&v| i64::from(v == keep)).collect();
        HostTensor::integers(condition.dims(), values)
    };
    let (yes, no) = (truth(1.0)?, truth(0.0)?);
    let name = n.attributes.name;
    let (yes, no) = (n.to.graph.public(name, yes), n.to.graph.public(name, no));
    let (x, y) = (n.binary_op(Binary::Mul, x, yes)?, n.binary_op(Binary::Mul, y, no)?);
    Ok(vec![n.binary_op(Binary::Add, x, y)?])
}
