//! The fraction bits of a plan's values.

use super::Plan;
use crate::graph::{Op, ResultFormat};
use crate::ops::clip;
use crate::{Error, Result};

/// The most fraction bits that a product or a sum may have. Gradients by weights have as many: they are
/// small, because the learning rate is a factor of them.
pub(crate) const MAX_PRODUCT_FRAC: u32 = 60;

/// The fraction bits that the planner gives to products of values with constants, so that their whole part
/// has 18 bits.
pub(crate) const ROOMY_PRODUCT_FRAC: u32 = 44;

/// The fraction bits by which a value may exceed the plan's.
const MAX_EXTRA_FRAC: u32 = 8;

/// The most fraction bits that a public factor gives to a value by moving the point.
const MAX_MOVED_FRAC: u32 = 34;

/// Fraction bits of every value.
pub(in crate::plan) fn fracs(plan: &Plan) -> Result<Vec<u32>> {
    let mut fracs: Vec<u32> = Vec::with_capacity(plan.nodes.len());
    for (at, node) in plan.nodes.iter().enumerate() {
        let frac = match node.op {
            Op::Input(i) => plan.input_frac(i),
            Op::Constant(i) => plan.constants[i].frac,
            ref op => {
                let xs: Vec<_> = node.inputs.iter().map(|&i| fracs[i]).collect();
                result_frac(op, &xs, plan.target(at)).map_err(|e| e.at(&node.name))?
            }
        };
        if frac > MAX_PRODUCT_FRAC {
            let reason = format!("{frac} fraction bits; at most {MAX_PRODUCT_FRAC} leave room");
            return Err(Error::invalid(node.op.name(), reason).at(&node.name));
        }
        fracs.push(frac);
    }
    Ok(fracs)
}

/// Fraction bits of the result of an operation that rounds to `frac`.
///
/// # Errors
/// [`Error::Invalid`] if the operands' formats do not go together.
pub(crate) fn result_frac(op: &Op, xs: &[u32], frac: u32) -> Result<u32> {
    let refused = |reason: String| Err(Error::invalid(op.name(), reason));
    let of_sum = |sum: u32, addends: &[u32]| {
        let fits = sum <= MAX_PRODUCT_FRAC && addends.iter().all(|&f| f <= sum);
        if fits && sum >= frac {
            return Ok(frac);
        }
        refused(format!("operands have {xs:?} fraction bits, the result {frac}"))
    };
    match op {
        Op::Input(_) | Op::Constant(_) | Op::Parameter(_) => {
            return refused("has no operands".to_owned());
        }
        Op::BatchNorm(_) | Op::Dropout(_) => {
            return refused("is joined to what is around it before it runs".to_owned());
        }
        Op::Linear(l) => {
            let sums = l.maps().map(|(_, [x, weight])| xs[x] + xs[weight]);
            return of_sum(sums.max().unwrap_or(0), &xs[l.addends()]);
        }
        Op::Dot(_) => return of_sum(xs[0] + xs[1], &[]),
        Op::ClipFactor { .. } if frac != clip::FACTOR => {
            return refused(format!("a factor has {} fraction bits, not {frac}", clip::FACTOR));
        }
        Op::Reduce { kind: crate::graph::Reduce::L2, .. } if xs[0] == 0 => {
            let reason = "a norm of integers would have to be rounded down; cast them to floats";
            return refused(reason.to_owned());
        }
        _ => {}
    }
    Ok(match op.info().format {
        ResultFormat::Planned => frac,
        ResultFormat::OfOperand(at) => xs[at],
        ResultFormat::FinestFrom(first) => xs[first..].iter().copied().max().unwrap_or(0),
        ResultFormat::Integer => 0,
        ResultFormat::OfProduct => match (xs[0], xs.get(1).copied().unwrap_or(xs[0])) {
            (0, other) | (other, 0) => other,
            _ => frac,
        },
        ResultFormat::Scaled(factor) => scale_frac(factor, xs[0], frac),
    })
}

/// The format after a public factor: a power of two below 1 only moves the point, while there is
/// room for it.
pub(crate) fn scale_frac(c: f64, x: u32, frac: u32) -> u32 {
    let moved = (frac + MAX_EXTRA_FRAC).min(MAX_MOVED_FRAC).max(frac);
    match power_of_two(c) {
        Some(k) if k <= 0 && x > 0 && x + k.unsigned_abs() <= moved => x + k.unsigned_abs(),
        _ if c == -1.0 => x,
        _ => frac,
    }
}

/// The exponent of a positive power of two.
pub(crate) fn power_of_two(c: f64) -> Option<i32> {
    let k = c.log2().round();
    (c > 0.0 && k.abs() <= 60.0 && k.exp2() == c).then_some(k as i32)
}
