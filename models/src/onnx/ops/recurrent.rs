//! Recurrent layers, step after step: lengths are public, and so is the number of steps.

use nn_layers::{Binary, HostTensor, Op, Unary, ValueId};

use super::shape::{fixed, spread};
use crate::Result;
use crate::onnx::node::Node;

/// One direction of a layer.
struct Pass {
    /// `[gates * hidden, hidden]`.
    recurrence: ValueId,
    /// The inputs' contribution to each gate, `[steps, batch, gates * hidden]`.
    driven: ValueId,
    /// The part of the bias that belongs to the recurrence, `[gates * hidden]`.
    bias: Option<ValueId>,
    /// Weights of the cell's state in the gates, `[3 * hidden]`.
    peepholes: Option<ValueId>,
    functions: Vec<Function>,
    backwards: bool,
}

/// An activation with its two numbers.
#[derive(Clone)]
struct Function {
    name: String,
    alpha: Option<f64>,
    beta: Option<f64>,
}

/// A layer's sizes and choices.
struct Layer {
    steps: usize,
    batch: usize,
    hidden: usize,
    gates: usize,
    clip: Option<f64>,
    /// For each step, 1 where a row is not yet over; None where all rows are of full length.
    masks: Option<Vec<[ValueId; 2]>>,
}

pub(crate) fn layer(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let gates = match n.operator {
        "LSTM" => 4,
        "GRU" => 3,
        _ => 1,
    };
    let by_rows = n.attributes.int("layout", 0) != 0;
    let mut x = n.input(0)?;
    if by_rows {
        x = n.add(Op::Permute(vec![1, 0, 2]), &[x])?;
    }
    let (w, r) = (n.input(1)?, n.input(2)?);
    let (Ok([steps, batch, width]), Ok([passes, rows, own])) =
        (<[usize; 3]>::try_from(n.dims(x)), <[usize; 3]>::try_from(n.dims(w)))
    else {
        return Err(n.attributes.error("its operands are not of three dimensions"));
    };
    let hidden = rows / gates;
    if own != width || n.dims(r) != [passes, rows, hidden] || hidden * gates != rows {
        let shapes = format!("{:?}, {:?} and {:?}", n.dims(x), n.dims(w), n.dims(r));
        return Err(n.attributes.error(format!("{shapes} do not fit each other")));
    }
    let clip = n.attributes.has("clip").then(|| n.attributes.float("clip", 0.0));
    let masks = masks(n, steps, batch)?;
    let layer = Layer { steps, batch, hidden, gates, clip, masks };
    let direction = n.attributes.text("direction").unwrap_or("forward").to_owned();
    let functions = functions(n, passes)?;
    let (mut hs, mut lasts, mut cells) = (vec![], vec![], vec![]);
    for i in 0..passes {
        let backwards = direction == "reverse" || i == 1;
        let pass = pass(n, &layer, x, i, backwards, functions[i].clone())?;
        let state = |n: &mut Node<'_, '_>, at: usize| initial(n, &layer, at, i, by_rows);
        let (h, c) = (state(n, 5)?, state(n, 6)?);
        let (outputs, h, c) = run(n, &layer, &pass, h, c)?;
        hs.push(fixed(n, outputs, &[steps, 1, batch, hidden])?);
        lasts.push(fixed(n, h, &[1, batch, hidden])?);
        cells.push(fixed(n, c, &[1, batch, hidden])?);
    }
    let join = |n: &mut Node<'_, '_>, parts: Vec<ValueId>, axis: usize| {
        if parts.len() == 1 { Ok(parts[0]) } else { n.add(Op::Concat(axis), &parts) }
    };
    let mut results = vec![join(n, hs, 1)?, join(n, lasts, 0)?, join(n, cells, 0)?];
    if by_rows {
        results[0] = n.add(Op::Permute(vec![2, 0, 1, 3]), &[results[0]])?;
        for last in &mut results[1..] {
            *last = n.add(Op::Permute(vec![1, 0, 2]), &[*last])?;
        }
    }
    if n.operator != "LSTM" {
        results.pop();
    }
    Ok(results)
}

/// The activations of each direction.
fn functions(n: &Node<'_, '_>, passes: usize) -> Result<Vec<Vec<Function>>> {
    let usual: &[&str] = match n.operator {
        "LSTM" => &["Sigmoid", "Tanh", "Tanh"],
        "GRU" => &["Sigmoid", "Tanh"],
        _ => &["Tanh"],
    };
    let names: Vec<String> = match n.attributes.texts("activations") {
        Some(names) => names.iter().map(|&s| s.to_owned()).collect(),
        None => usual.repeat(passes).iter().map(|&s| s.to_owned()).collect(),
    };
    if names.len() != usual.len() * passes {
        return Err(n.attributes.error(format!("{} activations", names.len())));
    }
    let mut alphas = n.attributes.floats("activation_alpha").unwrap_or_default().iter();
    let mut betas = n.attributes.floats("activation_beta").unwrap_or_default().iter();
    let mut next = |name: String| {
        // Only functions that have such a number take one from the lists.
        let (a, b) = match name.as_str() {
            "Affine" | "ScaledTanh" | "HardSigmoid" => (true, true),
            "LeakyRelu" | "ThresholdedRelu" | "Elu" => (true, false),
            _ => (false, false),
        };
        let take = |wanted: bool, list: &mut std::slice::Iter<'_, f32>| {
            if wanted { list.next().map(|&v| f64::from(v)) } else { None }
        };
        let alpha = take(a, &mut alphas);
        Function { alpha, beta: take(b, &mut betas), name }
    };
    let all: Vec<_> = names.into_iter().map(&mut next).collect();
    Ok(all.chunks(usual.len()).map(<[Function]>::to_vec).collect())
}

/// Two masks for each step: 1 for rows that have not ended, and 1 for rows that have. None if all rows are full.
fn masks(n: &mut Node<'_, '_>, steps: usize, batch: usize) -> Result<Option<Vec<[ValueId; 2]>>> {
    let Some(id) = n.optional(4) else { return Ok(None) };
    let lengths = n.ints(id, "lengths")?;
    if lengths.len() != batch {
        return Err(n.attributes.error(format!("{} lengths for {batch} rows", lengths.len())));
    }
    if lengths.iter().all(|&length| length == steps as i64) {
        return Ok(None);
    }
    let mut masks = vec![];
    for step in 0..steps {
        let goes_on = |over: bool| {
            let each = lengths.iter().map(|&length| i64::from((step as i64 >= length) == over));
            HostTensor::integers([batch, 1], each.collect())
        };
        let (on, over) = (goes_on(false)?, goes_on(true)?);
        let name = n.attributes.name;
        masks.push([n.to.graph.public(name, on), n.to.graph.public(name, over)]);
    }
    Ok(Some(masks))
}

fn pass(
    n: &mut Node<'_, '_>,
    layer: &Layer,
    x: ValueId,
    i: usize,
    backwards: bool,
    functions: Vec<Function>,
) -> Result<Pass> {
    let of = |n: &mut Node<'_, '_>, at: usize| -> Result<Option<ValueId>> {
        let Some(id) = n.optional(at) else { return Ok(None) };
        n.add(Op::Gather { axis: 0, indices: vec![i], squeeze: true }, &[id]).map(Some)
    };
    let weight = of(n, 1)?.ok_or_else(|| n.attributes.error("its weights are missing"))?;
    let recurrence = of(n, 2)?.ok_or_else(|| n.attributes.error("its weights are missing"))?;
    let width = layer.gates * layer.hidden;
    let (mut bias, mut own) = (None, None);
    if let Some(both) = of(n, 3)? {
        own = Some(n.part(both, 0, 0, width)?);
        bias = Some(n.part(both, 0, width, 2 * width)?);
    }
    let peepholes = if n.operator == "LSTM" { of(n, 7)? } else { None };
    let inputs = n.dims(x)[2];
    let rows = fixed(n, x, &[layer.steps * layer.batch, inputs])?;
    let op = Op::MatMul { transpose_lhs: false, transpose_rhs: true };
    let mut driven = n.add(op, &[rows, weight])?;
    if let Some(own) = own {
        driven = n.binary_op(Binary::Add, driven, own)?;
    }
    let driven = fixed(n, driven, &[layer.steps, layer.batch, width])?;
    Ok(Pass { recurrence, driven, bias, peepholes, functions, backwards })
}

/// The state at the start: given, or zeros.
fn initial(
    n: &mut Node<'_, '_>,
    layer: &Layer,
    at: usize,
    i: usize,
    by_rows: bool,
) -> Result<ValueId> {
    let dims = vec![layer.batch, layer.hidden];
    match n.optional(at).filter(|_| at == 5 || n.operator == "LSTM") {
        None => {
            let zero = n.number(0.0);
            spread(n, zero, dims)
        }
        Some(id) => {
            let axis = usize::from(by_rows);
            n.add(Op::Gather { axis, indices: vec![i], squeeze: true }, &[id])
        }
    }
}

/// All outputs `[steps, batch, hidden]`, and the last states.
fn run(
    n: &mut Node<'_, '_>,
    layer: &Layer,
    pass: &Pass,
    mut h: ValueId,
    mut c: ValueId,
) -> Result<(ValueId, ValueId, ValueId)> {
    let mut outputs = vec![];
    for i in 0..layer.steps {
        let step = if pass.backwards { layer.steps - 1 - i } else { i };
        let op = Op::Gather { axis: 0, indices: vec![step], squeeze: true };
        let driven = n.add(op, &[pass.driven])?;
        let (mut next, mut cell) = match n.operator {
            "LSTM" => lstm(n, layer, pass, driven, h, c)?,
            "GRU" => (gru(n, layer, pass, driven, h)?, c),
            _ => {
                let sum = recurrent(n, pass, h, None)?;
                let sum = n.binary_op(Binary::Add, driven, sum)?;
                (apply(n, layer, &pass.functions[0], sum)?, c)
            }
        };
        let mut output = next;
        if let Some(masks) = &layer.masks {
            let [on, over] = masks[step];
            output = n.binary_op(Binary::Mul, next, on)?;
            let old = n.binary_op(Binary::Mul, h, over)?;
            next = n.binary_op(Binary::Add, output, old)?;
            if n.operator == "LSTM" {
                let (new, old) =
                    (n.binary_op(Binary::Mul, cell, on)?, n.binary_op(Binary::Mul, c, over)?);
                cell = n.binary_op(Binary::Add, new, old)?;
            }
        }
        (h, c) = (next, cell);
        outputs.push(fixed(n, output, &[1, layer.batch, layer.hidden])?);
    }
    if pass.backwards {
        outputs.reverse();
    }
    let all = match outputs.as_slice() {
        [one] => *one,
        _ => n.add(Op::Concat(0), &outputs)?,
    };
    Ok((all, h, c))
}

/// `h * R^T + b`, of some of the gates.
fn recurrent(
    n: &mut Node<'_, '_>,
    pass: &Pass,
    h: ValueId,
    gates: Option<(usize, usize)>,
) -> Result<ValueId> {
    let (mut weight, mut bias) = (pass.recurrence, pass.bias);
    if let Some((start, end)) = gates {
        weight = n.part(weight, 0, start, end)?;
        bias = bias.map(|b| n.part(b, 0, start, end)).transpose()?;
    }
    let op = Op::MatMul { transpose_lhs: false, transpose_rhs: true };
    let y = n.add(op, &[h, weight])?;
    bias.map_or(Ok(y), |b| n.binary_op(Binary::Add, y, b))
}

fn lstm(
    n: &mut Node<'_, '_>,
    layer: &Layer,
    pass: &Pass,
    driven: ValueId,
    h: ValueId,
    c: ValueId,
) -> Result<(ValueId, ValueId)> {
    let hidden = layer.hidden;
    let back = recurrent(n, pass, h, None)?;
    let sum = n.binary_op(Binary::Add, driven, back)?;
    // Gates in the order of ONNX: input, output, forget, cell.
    let gate = |n: &mut Node<'_, '_>, i: usize| n.part(sum, 1, i * hidden, (i + 1) * hidden);
    let peeped = |n: &mut Node<'_, '_>, x: ValueId, c: ValueId, i: usize| -> Result<ValueId> {
        let Some(all) = pass.peepholes else { return Ok(x) };
        let weight = n.part(all, 0, i * hidden, (i + 1) * hidden)?;
        let more = n.binary_op(Binary::Mul, c, weight)?;
        n.binary_op(Binary::Add, x, more)
    };
    let [gates, inner, outer] = [0, 1, 2].map(|i| &pass.functions[i]);
    let input = gate(n, 0)?;
    let input = peeped(n, input, c, 0)?;
    let input = apply(n, layer, gates, input)?;
    let forget = if n.attributes.int("input_forget", 0) != 0 {
        let one = n.number(1.0);
        n.binary_op(Binary::Sub, one, input)?
    } else {
        let forget = gate(n, 2)?;
        let forget = peeped(n, forget, c, 2)?;
        apply(n, layer, gates, forget)?
    };
    let new = gate(n, 3)?;
    let new = apply(n, layer, inner, new)?;
    let kept = n.binary_op(Binary::Mul, forget, c)?;
    let new = n.binary_op(Binary::Mul, input, new)?;
    let cell = n.binary_op(Binary::Add, kept, new)?;
    let output = gate(n, 1)?;
    let output = peeped(n, output, cell, 1)?;
    let output = apply(n, layer, gates, output)?;
    let shown = activation(n, outer, cell)?;
    Ok((n.binary_op(Binary::Mul, output, shown)?, cell))
}

fn gru(
    n: &mut Node<'_, '_>,
    layer: &Layer,
    pass: &Pass,
    driven: ValueId,
    h: ValueId,
) -> Result<ValueId> {
    let hidden = layer.hidden;
    // Gates in the order of ONNX: update, reset, hidden.
    let back = recurrent(n, pass, h, Some((0, 2 * hidden)))?;
    let both = n.part(driven, 1, 0, 2 * hidden)?;
    let both = n.binary_op(Binary::Add, both, back)?;
    let both = apply(n, layer, &pass.functions[0], both)?;
    let update = n.part(both, 1, 0, hidden)?;
    let reset = n.part(both, 1, hidden, 2 * hidden)?;
    let last = Some((2 * hidden, 3 * hidden));
    let back = if n.attributes.int("linear_before_reset", 0) != 0 {
        let back = recurrent(n, pass, h, last)?;
        n.binary_op(Binary::Mul, reset, back)?
    } else {
        let state = n.binary_op(Binary::Mul, reset, h)?;
        recurrent(n, pass, state, last)?
    };
    let new = n.part(driven, 1, 2 * hidden, 3 * hidden)?;
    let new = n.binary_op(Binary::Add, new, back)?;
    let new = apply(n, layer, &pass.functions[1], new)?;
    // (1 - update) * new + update * h
    let change = n.binary_op(Binary::Sub, h, new)?;
    let change = n.binary_op(Binary::Mul, update, change)?;
    n.binary_op(Binary::Add, new, change)
}

/// An activation of a gate, whose sum is clipped where the layer asks for it.
fn apply(n: &mut Node<'_, '_>, layer: &Layer, f: &Function, x: ValueId) -> Result<ValueId> {
    let x = match layer.clip {
        Some(most) if most > 0.0 => n.unary(Unary::Clip(Some(-most), Some(most)), x)?,
        _ => x,
    };
    activation(n, f, x)
}

fn activation(n: &mut Node<'_, '_>, f: &Function, x: ValueId) -> Result<ValueId> {
    let (alpha, beta) = (f.alpha, f.beta);
    let unary = match f.name.as_str() {
        "Sigmoid" => Unary::Sigmoid,
        "Tanh" => Unary::Tanh,
        "Relu" => Unary::Relu,
        "Softsign" => Unary::Softsign,
        "Softplus" => Unary::Softplus,
        "LeakyRelu" => Unary::LeakyRelu(alpha.unwrap_or(0.01)),
        "Elu" => Unary::Elu(alpha.unwrap_or(1.0)),
        "HardSigmoid" => Unary::HardSigmoid(alpha.unwrap_or(0.2), beta.unwrap_or(0.5)),
        "Affine" => {
            let (a, b) = (n.number(alpha.unwrap_or(1.0)), n.number(beta.unwrap_or(0.0)));
            let y = n.binary_op(Binary::Mul, x, a)?;
            return n.binary_op(Binary::Add, y, b);
        }
        other => return Err(n.unsupported(format!("with activation {other}"))),
    };
    n.unary(unary, x)
}
