//! Joins scales and shifts by constants to the linear layers around them: batch normalisation
//! disappears here.

use super::open_linear;
use crate::graph::eval::{elementwise, matmul, reduce, views};
use crate::graph::{Binary, Graph, Linear, LinearFinish, LinearMap, Node, Op, ValueId};
use crate::{HostTensor, Result};

/// Repeats the rules until none applies.
pub(crate) fn absorb(graph: &mut Graph) -> Result<()> {
    loop {
        let mut changed = false;
        let mut i = 0;
        while i < graph.nodes.len() {
            let at = ValueId(i);
            changed |= shift_into_bias(graph, at)?
                || scale_into_previous(graph, at)?
                || number_into_previous(graph, at)?
                || scale_into_next(graph, at)?;
            i += 1;
        }
        graph.sweep();
        if !changed {
            return Ok(());
        }
    }
}

/// `linear(x) + c` becomes a linear layer with a bias.
fn shift_into_bias(graph: &mut Graph, at: ValueId) -> Result<bool> {
    let node = &graph.nodes[at.0];
    let (Op::Binary(Binary::Add), &[x, c]) = (&node.op, node.inputs.as_slice()) else {
        return Ok(false);
    };
    let Some(shift) = graph.constant_value(c).map(HostTensor::to_float) else { return Ok(false) };
    let users = graph.users();
    let Some((linear, source)) = open_linear(graph, &users, x) else { return Ok(false) };
    if !spares_batch(shift.dims(), source) {
        return Ok(false);
    }
    let (linear, source) = (linear.clone(), source.clone());
    let bias = match source.inputs.get(2).and_then(|&b| graph.constant_value(b)) {
        Some(old) => elementwise::binary(Binary::Add, old, &shift)?,
        None => shift,
    };
    let name = format!("{}.bias", source.name);
    let bias = graph.weight(&name, bias);
    let inputs = vec![source.inputs[0], source.inputs[1], bias];
    graph.rewrite(x, Op::Linear(Linear { bias: true, ..linear }), inputs);
    graph.replace(at, x);
    Ok(true)
}

/// A constant that broadcasts to a node's result without fixing the batch size.
fn spares_batch(dims: &[usize], node: &Node) -> bool {
    let rank = node.shape.rank();
    let fits =
        |s: &ring_arith::Shape| s.broadcast(&node.shape, "bias").is_ok_and(|t| t == node.shape);
    let shape = ring_arith::Shape::new(dims);
    shape.is_ok_and(|s| fits(&s)) && (dims.len() < rank || dims[0] == 1)
}

/// `linear(x) * c` with one factor for each output channel: the factor joins weight and bias.
fn scale_into_previous(graph: &mut Graph, at: ValueId) -> Result<bool> {
    let node = &graph.nodes[at.0];
    let Op::Linear(outer @ Linear { map: LinearMap::Mul, .. }) = &node.op else {
        return Ok(false);
    };
    let users = graph.users();
    let x = node.inputs[0];
    let Some((inner, source)) = open_linear(graph, &users, x) else { return Ok(false) };
    let Some(factor) = graph.constant_value(node.inputs[1]) else { return Ok(false) };
    let weight =
        graph.constant_value(source.inputs[1]).expect("a linear layer's weight is constant");
    let Some(weight) = scale_outputs(inner, weight, factor, &source.shape)? else {
        return Ok(false);
    };
    let old = source.inputs.get(2).and_then(|&b| graph.constant_value(b));
    let own = if outer.bias { graph.constant_value(node.inputs[2]) } else { None };
    let old = old.map(|b| elementwise::binary(Binary::Mul, b, factor)).transpose()?;
    let bias = match (old, own) {
        (Some(a), Some(b)) => Some(elementwise::binary(Binary::Add, &a, b)?),
        (a, b) => a.or(b.cloned()),
    };
    let (inner, outer, source, node) = (inner.clone(), outer.clone(), source.clone(), node.clone());
    let mut inputs = vec![source.inputs[0], graph.weight(&weight_name(graph, &source), weight)];
    let has_bias = bias.is_some();
    if let Some(bias) = bias {
        inputs.push(graph.weight(&format!("{}.bias", source.name), bias));
    }
    if outer.residual {
        inputs.push(*node.inputs.last().expect("a residual is an operand"));
    }
    let op = Linear { map: inner.map, bias: has_bias, ..outer };
    graph.rewrite(at, Op::Linear(op), inputs);
    graph.nodes[at.0].name = source.name;
    Ok(true)
}

/// `linear(x) * number`.
fn number_into_previous(graph: &mut Graph, at: ValueId) -> Result<bool> {
    let node = &graph.nodes[at.0];
    let Op::Scale(c) = node.op else { return Ok(false) };
    let users = graph.users();
    let x = node.inputs[0];
    if open_linear(graph, &users, x).is_none() {
        return Ok(false);
    }
    scale_linear(graph, x, c);
    graph.replace(at, x);
    Ok(true)
}

/// Multiplies a linear layer's weight and bias by a number.
pub(crate) fn scale_linear(graph: &mut Graph, at: ValueId, c: f64) {
    let node = graph.nodes[at.0].clone();
    let constants = if matches!(&node.op, Op::Linear(l) if l.bias) { 1..3 } else { 1..2 };
    for i in constants {
        let constant = graph.constant_of(node.inputs[i]).cloned().expect("weights are constant");
        let scaled = graph.constant(&constant.name, constant.value.map(|v| v * c), constant.secret);
        graph.nodes[at.0].inputs[i] = scaled;
    }
}

/// `linear(x * c + b)`, for every user of `x * c + b` that is such a layer. Other users of it share its rounds
/// with them.
fn scale_into_next(graph: &mut Graph, at: ValueId) -> Result<bool> {
    let node = &graph.nodes[at.0];
    let Op::Linear(Linear { map: LinearMap::Mul, residual: false, bias, more, finish, .. }) =
        node.op.clone()
    else {
        return Ok(false);
    };
    let users = graph.users();
    if finish != LinearFinish::Truncate || !more.is_empty() || users[at.0].is_empty() {
        return Ok(false);
    }
    let node = node.clone();
    let (Some(c), b) = (
        graph.constant_value(node.inputs[1]).cloned(),
        node.inputs.get(2).filter(|_| bias).and_then(|&b| graph.constant_value(b).cloned()),
    ) else {
        return Ok(false);
    };
    let mut changes = vec![];
    for &user in &users[at.0] {
        if let Some(change) = fold_input(graph, user, at, &c, b.as_ref())? {
            changes.push((user, change));
        }
    }
    let changed = !changes.is_empty();
    for (user, (weight, shift)) in changes {
        let target = graph.nodes[user].clone();
        let Op::Linear(mut linear) = target.op.clone() else { unreachable!("only these fold") };
        let weight = graph.weight(&weight_name(graph, &target), weight);
        let mut inputs = vec![node.inputs[0], weight];
        let old = linear.bias.then(|| graph.constant_value(target.inputs[2]).cloned()).flatten();
        let bias = match (old, shift) {
            (Some(a), Some(b)) => Some(elementwise::binary(Binary::Add, &a, &b)?),
            (a, b) => a.or(b),
        };
        linear.bias = bias.is_some();
        if let Some(bias) = bias {
            inputs.push(graph.weight(&format!("{}.bias", target.name), bias));
        }
        if linear.residual {
            inputs.push(*target.inputs.last().expect("a residual is an operand"));
        }
        graph.rewrite(ValueId(user), Op::Linear(linear), inputs);
    }
    Ok(changed)
}

/// The weight that takes `x` where the old one took `x * c + b`, and the addend of the bias.
fn fold_input(
    graph: &Graph,
    user: usize,
    from: ValueId,
    c: &HostTensor,
    b: Option<&HostTensor>,
) -> Result<Option<(HostTensor, Option<HostTensor>)>> {
    let Some(node) = graph.nodes.get(user) else { return Ok(None) };
    let Op::Linear(linear) = &node.op else { return Ok(None) };
    if node.inputs.iter().filter(|&&x| x == from).count() != 1 || node.inputs[0] != from {
        return Ok(None);
    }
    let Some(w) = graph.constant_value(node.inputs[1]) else { return Ok(None) };
    match linear.map {
        LinearMap::MatMul { transpose_lhs: false, transpose_rhs } if w.shape().rank() == 2 => {
            let k = w.dims()[usize::from(transpose_rhs)];
            let (Some(c), b) = (vector(c, k, 0), b.map(|b| vector(b, k, 0))) else {
                return Ok(None);
            };
            let column = c.reshape(if transpose_rhs { [1, k] } else { [k, 1] })?;
            let folded = elementwise::binary(Binary::Mul, w, &column)?;
            let shift = match b {
                None => None,
                Some(None) => return Ok(None),
                Some(Some(b)) => {
                    let y = matmul::matmul(&b.reshape([1, k])?, w, false, transpose_rhs)?;
                    Some(y.reshape([y.len()])?)
                }
            };
            Ok(Some((folded, shift)))
        }
        LinearMap::Conv(kernel) if kernel.groups == 1 => {
            let channels = w.dims()[1];
            let (Some(c), b) = (vector(c, channels, 2), b.map(|b| vector(b, channels, 2))) else {
                return Ok(None);
            };
            let folded = elementwise::binary(Binary::Mul, w, &c.reshape([1, channels, 1, 1])?)?;
            let shift = match b {
                None => None,
                Some(Some(b)) if kernel.window.padding == [0; 4] => {
                    let spread = b.reshape([1, channels, 1, 1])?;
                    let taps = elementwise::binary(Binary::Mul, w, &spread)?;
                    let sum = reduce::reduce(&taps, &[1, 2, 3], false, |g| g.iter().sum())?;
                    Some(sum.reshape([sum.len(), 1, 1])?)
                }
                // A border of zeros is not shifted.
                Some(_) => return Ok(None),
            };
            Ok(Some((folded, shift)))
        }
        _ => Ok(None),
    }
}

/// A constant that varies along one axis alone (`after` axes from the end), as a vector of `len`.
pub(super) fn vector(c: &HostTensor, len: usize, after: usize) -> Option<HostTensor> {
    let dims = c.dims();
    let axis = dims.len().checked_sub(after + 1);
    let varies = |i: usize| dims[i] != 1 && Some(i) != axis;
    if (0..dims.len()).any(varies) {
        return None;
    }
    let flat = c.reshape([c.len()]).ok()?;
    let to = ring_arith::Shape::new([len]).ok()?;
    if c.len() == len || c.len() == 1 { views::broadcast(&flat, &to).ok() } else { None }
}

/// A layer's weight with every output channel multiplied by its factor, if the factors are of
/// that form.
fn scale_outputs(
    linear: &Linear,
    w: &HostTensor,
    factor: &HostTensor,
    result: &ring_arith::Shape,
) -> Result<Option<HostTensor>> {
    let rank = result.rank();
    if factor.shape().rank() > rank {
        return Ok(None);
    }
    let spread = match linear.map {
        LinearMap::Conv(_) => {
            vector(factor, w.dims()[0], 2).map(|f| f.reshape([w.dims()[0], 1, 1, 1]))
        }
        LinearMap::ConvTranspose { kernel, .. } if kernel.groups == 1 => {
            vector(factor, w.dims()[1], 2).map(|f| f.reshape([1, w.dims()[1], 1, 1]))
        }
        LinearMap::MatMul { transpose_rhs, .. } if w.shape().rank() == 2 => {
            let n = w.dims()[usize::from(!transpose_rhs)];
            vector(factor, n, 0).map(|f| f.reshape(if transpose_rhs { [n, 1] } else { [1, n] }))
        }
        LinearMap::Mul => Some(Ok(factor.clone())),
        _ => None,
    };
    spread.map(|f| elementwise::binary(Binary::Mul, w, &f?)).transpose()
}

/// The name of a layer's weight.
fn weight_name(graph: &Graph, node: &Node) -> String {
    graph.constant_of(node.inputs[1]).map_or_else(|| node.name.clone(), |c| c.name.clone())
}
