//! Losses, as models that were exported with theirs compute them.

use nn_layers::{Binary, Op, Reduce, Unary, ValueId};

use super::shape::fixed;
use crate::Result;
use crate::onnx::node::Node;

/// `-log(softmax(scores))` at the labels, and the logarithms.
pub(crate) fn cross_entropy(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let scores = n.input(0)?;
    if n.dims(scores).len() < 2 {
        return Err(n.attributes.error("its scores have no classes"));
    }
    let logs = n.add(Op::Softmax { axis: 1, log: true }, &[scores])?;
    Ok(vec![at_labels(n, logs)?, logs])
}

/// `-x` at the labels.
pub(crate) fn negative_log_likelihood(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    Ok(vec![at_labels(n, x)?])
}

/// `-x` at the labels along axis 1, weighted, and summed as an attribute specifies.
fn at_labels(n: &mut Node<'_, '_>, x: ValueId) -> Result<ValueId> {
    let labels = n.input(1)?;
    let (dims, own) = (n.dims(x), n.dims(labels));
    let rank = dims.len();
    let fits = rank >= 2 && own.len() + 1 == rank && own[0] == dims[0] && own[1..] == dims[2..];
    if !fits {
        return Err(n.attributes.error(format!("labels {own:?} do not fit {dims:?}")));
    }
    let classes = dims[1];
    let hot = n.add(Op::OneHot(classes), &[labels])?;
    let order = (0..rank).map(|i| match i {
        0 => 0,
        1 => rank - 1,
        i => i - 1,
    });
    let mut hot = n.add(Op::Permute(order.collect()), &[hot])?;
    // A label among the classes that does not count; any other has no 1 in its row.
    let ignored = n.attributes.int("ignore_index", -1);
    let ignores = n.attributes.has("ignore_index");
    if ignores && (0..classes as i64).contains(&ignored) {
        let ignored = n.whole(ignored)?;
        let same = n.binary_op(Binary::Equal, labels, ignored)?;
        let counts = n.unary(Unary::Not, same)?;
        let mut shape = own.clone();
        shape.insert(1, 1);
        let counts = fixed(n, counts, &shape)?;
        hot = n.binary_op(Binary::Mul, hot, counts)?;
    }
    let mut weights = hot;
    if let Some(given) = n.optional(2) {
        let mut shape = vec![1; rank - 1];
        shape[0] = classes;
        let given = fixed(n, given, &shape)?;
        weights = n.binary_op(Binary::Mul, hot, given)?;
    }
    let sum = |n: &mut Node<'_, '_>, x: ValueId, axes: Vec<usize>| {
        n.add(Op::Reduce { kind: Reduce::Sum, axes, keep: false }, &[x])
    };
    let chosen = n.binary_op(Binary::Mul, x, weights)?;
    let chosen = n.unary(Unary::Neg, chosen)?;
    let all = || (0..rank).collect::<Vec<_>>();
    match n.attributes.text("reduction").unwrap_or("mean") {
        "none" => sum(n, chosen, vec![1]),
        "sum" => sum(n, chosen, all()),
        "mean" => {
            let total = sum(n, chosen, all())?;
            let count = if n.optional(2).is_none() && !ignores {
                n.number(own.iter().product::<usize>() as f64)
            } else {
                sum(n, weights, all())?
            };
            n.binary_op(Binary::Div, total, count)
        }
        other => Err(n.unsupported(format!("with reduction {other}"))),
    }
}
