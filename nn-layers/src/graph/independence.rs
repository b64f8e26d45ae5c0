//! The relation of values to the examples of a batch: which operations compute each example independently of the others.

use ring_arith::Shape;

use super::op::{Examples, LinearMap, Op};

/// The relation of a value to the examples of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    /// It is the same for every batch.
    None,
    /// Axis 0 is cut into as many pieces of one length as there are examples, each computed from its own
    /// example.
    Each,
}

/// The relation of an operation's result, given those of its operands; `None` where examples are combined, or
/// may be.
pub(crate) fn apart(op: &Op, operands: &[(Of, &Shape)], result: &Shape) -> Option<Of> {
    let of = |i: usize| operands.get(i).map_or(Of::None, |&(of, _)| of);
    let kept = |apart: bool| apart.then_some(of(0));
    match op.info().examples {
        _ if op.is_given() && !matches!(op, Op::Input(_)) => Some(Of::None),
        _ if matches!(op, Op::Input(_)) => Some(Of::Each),
        _ if operands.iter().all(|&(of, _)| of == Of::None) => Some(Of::None),
        Examples::Apart => kept(true),
        Examples::Aligned => aligned(operands, result),
        Examples::Along(axis) => kept(axis > 0),
        Examples::AboveRank(rank) => kept(result.rank() > rank),
        Examples::Combined => None,
        Examples::ByOperands => by_operands(op, operands, result),
    }
}

/// The same of operations that combine examples of some operands alone.
fn by_operands(op: &Op, operands: &[(Of, &Shape)], result: &Shape) -> Option<Of> {
    let of = |i: usize| operands.get(i).map_or(Of::None, |&(of, _)| of);
    let kept = |apart: bool| apart.then_some(of(0));
    let both = of(0) == Of::Each && of(1) == Of::Each;
    match op {
        Op::Conv(_) | Op::ConvTranspose { .. } => kept(of(1) == Of::None),
        Op::MatMul { transpose_lhs, .. } => {
            let (left, right) = (operands.first()?, operands.get(1)?);
            matmul(*transpose_lhs, *left, *right)
        }
        Op::Linear(linear) => {
            let maps = linear.maps().all(|(map, [x, w])| {
                let Some((&x, &w)) = operands.get(x).zip(operands.get(w)) else { return false };
                let made = match map {
                    LinearMap::Conv(_) | LinearMap::ConvTranspose { .. } => {
                        (w.0 == Of::None).then_some(x.0)
                    }
                    LinearMap::MatMul { transpose_lhs, .. } => matmul(*transpose_lhs, x, w),
                    LinearMap::Mul => aligned(&[x, w], result),
                    LinearMap::ConvWeightGrad(_) => None,
                };
                made == Some(Of::Each)
            });
            let beside = linear.addends().chain(linear.mask_at());
            let beside: Vec<_> = beside.filter_map(|i| operands.get(i).copied()).collect();
            let added = beside.iter().all(|&(of, _)| of == Of::None);
            (maps && (added || aligned(&beside, result).is_some())).then_some(Of::Each)
        }
        Op::Dot(axes) => (!axes.contains(&0) && both).then_some(Of::Each),
        Op::MaxPoolGrad(_) => (result.rank() > 2 && both).then_some(Of::Each),
        Op::Lookup => (of(0) == Of::None).then(|| of(1)),
        Op::Permute(axes) => kept(axes.first() == Some(&0)),
        Op::Pad { before, after, .. } => {
            kept(before.first() == Some(&0) && after.first() == Some(&0))
        }
        Op::Broadcast(_) => kept(operands.first()?.1.rank() == result.rank()),
        Op::Concat(axis) => {
            (*axis > 0 && operands.iter().all(|&(of, _)| of == Of::Each)).then_some(Of::Each)
        }
        _ => None,
    }
}

/// The relation of a result to which operands are broadcast, if examples stay apart: operands of examples have
/// their axis 0 in its axis 0, and other operands do not have elements that differ along it.
fn aligned(operands: &[(Of, &Shape)], result: &Shape) -> Option<Of> {
    let fits = |&(of, shape): &(Of, &Shape)| match of {
        Of::Each => shape.rank() == result.rank(),
        Of::None => shape.rank() < result.rank() || shape.dims().first() == Some(&1),
    };
    operands.iter().all(fits).then_some(Of::Each)
}

/// Of a product `[batch.., m, k] x [batch.., k, n]`.
fn matmul(transposed: bool, left: (Of, &Shape), right: (Of, &Shape)) -> Option<Of> {
    let (rows, columns) = (left.1.rank(), right.1.rank());
    let apart = match (left.0, right.0) {
        (Of::Each, Of::None) => match rows {
            2 => !transposed && columns == 2,
            _ => columns <= 2 || right.1.dims().first() == Some(&1),
        },
        (Of::None, Of::Each) => columns > 2 && (rows <= 2 || left.1.dims().first() == Some(&1)),
        (Of::Each, Of::Each) => rows > 2 && columns == rows,
        (Of::None, Of::None) => return Some(Of::None),
    };
    apart.then_some(Of::Each)
}
