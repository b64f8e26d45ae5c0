//! Functions of single elements in the clear.

use ring_arith::Shape;

use super::views;
use crate::graph::op::{Binary, Unary};
use crate::{HostData, HostTensor, Result};

/// A function of every element.
pub(crate) fn unary(f: Unary, x: &HostTensor) -> HostTensor {
    let out = x.map(|v| unary_f64(f, v));
    let whole = match f {
        Unary::Neg | Unary::Abs | Unary::Not | Unary::Relu | Unary::Sign | Unary::Clip(..) => true,
        Unary::Pow(n) => n >= 0.0 && n.fract() == 0.0,
        _ => false,
    };
    if x.is_int() && whole || matches!(f, Unary::Floor | Unary::Not) { to_int(&out) } else { out }
}

/// The function on one number.
pub(crate) fn unary_f64(f: Unary, x: f64) -> f64 {
    match f {
        Unary::Relu => x.max(0.0),
        Unary::LeakyRelu(a) => {
            if x < 0.0 {
                a * x
            } else {
                x
            }
        }
        Unary::Clip(lo, hi) => {
            x.max(lo.unwrap_or(f64::NEG_INFINITY)).min(hi.unwrap_or(f64::INFINITY))
        }
        Unary::Sigmoid => sigmoid(x),
        Unary::Tanh => x.tanh(),
        Unary::Erf => libm::erf(x),
        Unary::Gelu => 0.5 * x * (1.0 + libm::erf(x / std::f64::consts::SQRT_2)),
        Unary::GeluTanh => {
            let curve = std::f64::consts::FRAC_2_PI.sqrt() * (x + 0.044715 * x * x * x);
            0.5 * x * (1.0 + curve.tanh())
        }
        Unary::Silu => x * sigmoid(x),
        Unary::HardSwish => x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
        Unary::HardSigmoid(a, b) => (a * x + b).clamp(0.0, 1.0),
        Unary::Elu(a) => {
            if x < 0.0 {
                a * x.exp_m1()
            } else {
                x
            }
        }
        Unary::Selu(a, g) => g * if x < 0.0 { a * x.exp_m1() } else { x },
        Unary::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        Unary::Softsign => x / (1.0 + x.abs()),
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Sqrt => x.sqrt(),
        Unary::InvSqrt | Unary::Damping => 1.0 / x.sqrt(),
        Unary::Reciprocal => 1.0 / x,
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Sign => {
            if x == 0.0 {
                0.0
            } else {
                x.signum()
            }
        }
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Pow(n) => x.powf(n),
        Unary::Not => {
            if x == 0.0 {
                1.0
            } else {
                0.0
            }
        }
        Unary::Floor => x.floor(),
    }
}

/// A function of two operands, broadcast to each other. Integers stay integers; their division
/// rounds towards zero, as in ONNX.
pub(crate) fn binary(f: Binary, x: &HostTensor, y: &HostTensor) -> Result<HostTensor> {
    let shape = x.shape().broadcast(y.shape(), f.name())?;
    let (x, y) = (views::broadcast(x, &shape)?, views::broadcast(y, &shape)?);
    if let (HostData::Int(a), HostData::Int(b)) = (x.data(), y.data()) {
        let values = a.iter().zip(b.iter()).map(|(&a, &b)| binary_int(f, a, b)).collect();
        return Ok(HostTensor::from_parts(shape, HostData::Int(std::sync::Arc::new(values))));
    }
    let (a, b) = (x.floats(), y.floats());
    let values = a.iter().zip(b.iter()).map(|(&a, &b)| binary_f64(f, a, b)).collect();
    let out = HostTensor::from_parts(shape, HostData::Float(std::sync::Arc::new(values)));
    Ok(if f.gives_truth() { to_int(&out) } else { out })
}

/// The first where the second is positive, else 0; shapes equal.
pub(crate) fn mask(x: &HostTensor, y: &HostTensor) -> HostTensor {
    let (values, signs) = (x.floats(), y.floats());
    let kept = values.iter().zip(signs.iter()).map(|(&v, &s)| if s > 0.0 { v } else { 0.0 });
    let data = HostData::Float(std::sync::Arc::new(kept.collect()));
    HostTensor::from_parts(x.shape().clone(), data)
}

/// The elements of `x` where `c` is not 0, and those of `y` elsewhere.
pub(crate) fn select(c: &HostTensor, x: &HostTensor, y: &HostTensor) -> Result<HostTensor> {
    let shape = c.shape().broadcast(x.shape(), "where")?.broadcast(y.shape(), "where")?;
    let spread = |t: &HostTensor, s: &Shape| views::broadcast(t, s);
    let (c, a, b) = (spread(c, &shape)?, spread(x, &shape)?, spread(y, &shape)?);
    let (c, av, bv) = (c.floats(), a.floats(), b.floats());
    let values = (0..shape.len()).map(|i| if c[i] == 0.0 { bv[i] } else { av[i] }).collect();
    let out = HostTensor::from_parts(shape, HostData::Float(std::sync::Arc::new(values)));
    Ok(if x.is_int() && y.is_int() { to_int(&out) } else { out })
}

pub(crate) fn to_int(x: &HostTensor) -> HostTensor {
    let values = x.floats().iter().map(|&v| v as i64).collect();
    HostTensor::from_parts(x.shape().clone(), HostData::Int(std::sync::Arc::new(values)))
}

fn binary_f64(f: Binary, a: f64, b: f64) -> f64 {
    match f {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Max => a.max(b),
        Binary::Min => a.min(b),
        Binary::PRelu => {
            if a < 0.0 {
                a * b
            } else {
                a
            }
        }
        Binary::Less => f64::from(a < b),
        Binary::LessEqual => f64::from(a <= b),
        Binary::Greater => f64::from(a > b),
        Binary::GreaterEqual => f64::from(a >= b),
        Binary::Equal => f64::from(a == b),
        Binary::And => f64::from(a != 0.0 && b != 0.0),
        Binary::Or => f64::from(a != 0.0 || b != 0.0),
        Binary::Xor => f64::from((a != 0.0) != (b != 0.0)),
    }
}

fn binary_int(f: Binary, a: i64, b: i64) -> i64 {
    match f {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.wrapping_mul(b),
        Binary::Div => a.checked_div(b).unwrap_or(0),
        Binary::Max => a.max(b),
        Binary::Min => a.min(b),
        Binary::PRelu => {
            if a < 0 {
                a.wrapping_mul(b)
            } else {
                a
            }
        }
        Binary::Less => (a < b).into(),
        Binary::LessEqual => (a <= b).into(),
        Binary::Greater => (a > b).into(),
        Binary::GreaterEqual => (a >= b).into(),
        Binary::Equal => (a == b).into(),
        Binary::And => (a != 0 && b != 0).into(),
        Binary::Or => (a != 0 || b != 0).into(),
        Binary::Xor => ((a != 0) != (b != 0)).into(),
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}
