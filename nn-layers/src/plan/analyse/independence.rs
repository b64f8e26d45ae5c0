//! Independence of the examples of a batch: each is computed apart from the others.

use ring_arith::Shape;

use crate::graph::{LinearMap, Op};
use crate::plan::{Plan, check};

/// The relation of a value to the examples of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    /// It is the same for every batch.
    None,
    /// Axis 0 is cut into as many pieces of one length as there are examples, each computed from its own
    /// example.
    Each,
}

impl Plan {
    /// True if each example's results depend on its own inputs alone, and lie in axis 0 of each result where
    /// the example lies in axis 0 of each input. Then the examples of several callers can be run one after the
    /// other in one batch. Each caller gets the same results as alone, but for rounding.
    ///
    /// False in all other cases and where it is unknown: for instance for a plan that normalises over its
    /// batch, that serves a single batch size, or that has states.
    pub fn keeps_examples_apart(&self) -> bool {
        if !self.states.is_empty() {
            return false;
        }
        // Shapes at two batch sizes show which axes grow with the batch.
        let (Ok(two), Ok(three)) = (check::shapes(self, 2), check::shapes(self, 3)) else {
            return false;
        };
        let mut all: Vec<Of> = Vec::with_capacity(self.nodes.len());
        for (i, node) in self.nodes.iter().enumerate() {
            let operands: Vec<_> = node.inputs.iter().map(|&x| (all[x], &two[x])).collect();
            let Some(of) = apart(&node.op, &operands, &two[i]) else { return false };
            // A guard cuts the values that it watches into the examples' pieces.
            if !fits(of, &two[i], &three[i]) || of == Of::None && self.dropped(i) > 0 {
                return false;
            }
            all.push(of);
        }
        self.outputs.iter().all(|&(_, i)| all[i] == Of::Each)
    }
}

/// True if a value's shapes at batch sizes 2 and 3 are those of such a value.
fn fits(of: Of, two: &Shape, three: &Shape) -> bool {
    match (of, two.dims(), three.dims()) {
        (Of::None, two, three) => two == three,
        (Of::Each, [two, a @ ..], [three, b @ ..]) => {
            two % 2 == 0 && three % 3 == 0 && two / 2 == three / 3 && a == b
        }
        (Of::Each, ..) => false,
    }
}

/// The relation of an operation's result, given those of its operands; `None` where examples are combined, or
/// may be.
pub(crate) fn apart(op: &Op, operands: &[(Of, &Shape)], result: &Shape) -> Option<Of> {
    let of = |i: usize| operands.get(i).map_or(Of::None, |&(of, _)| of);
    let kept = |apart: bool| apart.then_some(of(0));
    match op {
        Op::Input(_) => Some(Of::Each),
        Op::Constant(_) | Op::Parameter(_) | Op::Positions { .. } => Some(Of::None),
        _ if operands.iter().all(|&(of, _)| of == Of::None) => Some(Of::None),
        Op::Unary(_)
        | Op::Scale(_)
        | Op::Cast
        | Op::Confine(_)
        | Op::OneHot(_)
        | Op::Reshape(_) => kept(true),
        Op::Binary(_) | Op::Mask | Op::Where => aligned(operands, result),
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
        Op::Softmax { axis, .. } | Op::Normalize { axis, .. } | Op::ArgMax { axis, .. } => {
            kept(*axis > 0)
        }
        Op::Draw => kept(result.rank() > 0),
        // Windows lie in the last two axes, channels in the second.
        Op::Lrn { .. } | Op::MaxPool(_) | Op::AvgPool { .. } | Op::SumPool(_) => {
            kept(result.rank() > 2)
        }
        Op::Reduce { axes, .. } => kept(!axes.contains(&0)),
        Op::Dot(axes) => {
            (!axes.contains(&0) && of(0) == Of::Each && of(1) == Of::Each).then_some(Of::Each)
        }
        Op::Lookup => (of(0) == Of::None).then(|| of(1)),
        Op::Permute(axes) => kept(axes.first() == Some(&0)),
        Op::Slice { axis, .. } | Op::Window { axis, .. } | Op::Gather { axis, .. } => {
            kept(*axis > 0)
        }
        Op::Pad { before, after, .. } => {
            kept(before.first() == Some(&0) && after.first() == Some(&0))
        }
        Op::Broadcast(_) => kept(operands.first()?.1.rank() == result.rank()),
        Op::Concat(axis) => {
            (*axis > 0 && operands.iter().all(|&(of, _)| of == Of::Each)).then_some(Of::Each)
        }
        Op::MaxPoolGrad(_) => {
            (result.rank() > 2 && of(0) == Of::Each && of(1) == Of::Each).then_some(Of::Each)
        }
        Op::ConvWeightGrad(_)
        | Op::BatchNorm(_)
        | Op::Dropout(_)
        | Op::ScaleBy(_)
        | Op::ClipFactor { .. } => None,
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
