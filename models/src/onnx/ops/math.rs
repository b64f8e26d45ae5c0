//! Products, functions of elements, comparisons.

use nn_layers::{Binary, Dim, HostTensor, Op, Unary, ValueId};

use super::masks::{self, unmasked, unmasked_as};
use super::quantise::Scale;
use super::shape::{common, fixed, spread};
use super::{folded, whole};
use crate::Result;
use crate::onnx::Score;
use crate::onnx::dtype;
use crate::onnx::node::Node;

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

pub(crate) fn times(n: &mut Node<'_, '_>, x: ValueId, c: f64) -> Result<ValueId> {
    if c == 1.0 {
        return Ok(x);
    }
    let c = n.number(c);
    n.binary_op(Binary::Mul, x, c)
}

pub(crate) fn matmul(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (x, y) = (n.input(0)?, n.input(1)?);
    Ok(vec![product_of(n, x, y)?])
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
        "Gelu" if a.text("approximate") == Some("tanh") => Unary::GeluTanh,
        "Gelu" => Unary::Gelu,
        other => return Err(n.unsupported(format!("as {other}"))),
    };
    Ok(vec![n.unary(f, x)?])
}

/// False for values that are computed on shares, where every word is a number. PyTorch tests this after a
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
    let mut x = n.input(0)?;
    // Before opset 11 limits were attributes.
    let old =
        ["min", "max"].map(|name| n.attributes.has(name).then(|| n.attributes.float(name, 0.0)));
    let mut limits = old;
    for (i, limit) in limits.iter_mut().enumerate() {
        let Some(id) = n.optional(i + 1) else { continue };
        let Some(value) = n.to.graph.known(id)? else {
            let f = if i == 0 { Binary::Max } else { Binary::Min };
            x = n.binary_op(f, x, id)?;
            continue;
        };
        let value = value.uniform().ok_or_else(|| n.unsupported("with limits that differ"))?;
        *limit = Some(value);
    }
    // The largest numbers of a type mean no limit.
    let [low, high] = limits.map(|limit| limit.filter(|value| value.abs() < 1e30));
    // Of limits that cross the upper one holds everywhere.
    let low = low.map(|low| high.map_or(low, |high| low.min(high)));
    for limit in low.iter().chain(&high) {
        x = n.for_number(x, *limit)?;
    }
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
    if let Some(hidden) = masks::sum(n, x, y)? {
        return Ok(vec![hidden]);
    }
    let f = match n.operator {
        // `(1 - mask) * -3.4e38` is added to scores.
        "Add" | "Mul" => {
            if n.operator == "Mul"
                && let Some(hidden) = masks::product(n, x, y)?
            {
                return Ok(vec![hidden]);
            }
            if !all_known(n, &[x, y])? {
                (x, y) = (unmasked(n, x)?, unmasked(n, y)?);
            }
            if n.operator == "Mul" {
                return Ok(vec![scaled(n, x, y)?]);
            }
            Binary::Add
        }
        "Sub" => {
            if !all_known(n, &[x, y])? {
                let taken = n.score.map(Score::turned);
                (x, y) = (unmasked(n, x)?, unmasked_as(n, y, taken)?);
                x = masks::whole_beside(n, x, y)?;
            }
            Binary::Sub
        }
        "Div" => {
            let whole = n.to.is_integer(x) && n.to.is_integer(y);
            let real = dtype::is_float(n.kind(0)).unwrap_or(true);
            if whole && !real && !all_known(n, &[x, y])? {
                return Ok(vec![whole::quotient(n, x, y)?]);
            }
            if whole && real {
                // Integers that were cast to real numbers.
                x = n.add(Op::Scale(1.0), &[x])?;
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

/// A product of which a factor may be a scale that depends on the input.
pub(crate) fn scaled(n: &mut Node<'_, '_>, x: ValueId, y: ValueId) -> Result<ValueId> {
    let of = |n: &Node<'_, '_>, x: ValueId| n.to.scales.get(&x).copied();
    let (x, y, own) = match (of(n, x), of(n, y)) {
        (None, None) => return n.binary_op(Binary::Mul, x, y),
        (Some(a), Some(b)) => {
            let range = n.binary_op(Binary::Mul, a.range, b.range)?;
            let factor = n.binary_op(Binary::Mul, a.factor, b.factor)?;
            let product = n.binary_op(Binary::Mul, x, y)?;
            n.to.scales.insert(product, Scale { range, factor });
            return Ok(product);
        }
        (Some(own), None) => (y, x, own),
        (None, Some(own)) => (x, y, own),
    };
    let part = n.binary_op(Binary::Mul, x, own.factor)?;
    if n.to.graph.known(x)?.is_none() {
        return n.binary_op(Binary::Mul, part, own.range);
    }
    let product = n.binary_op(Binary::Mul, x, y)?;
    n.to.scales.insert(product, Scale { range: own.range, factor: part });
    Ok(product)
}

/// True if all of these are known when the model is imported.
pub(crate) fn all_known(n: &Node<'_, '_>, values: &[ValueId]) -> Result<bool> {
    for &value in values {
        if n.to.graph.known(value)?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(crate) fn variadic(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let inputs = n.inputs()?;
    let f = match n.operator {
        "Max" => Binary::Max,
        "Min" => Binary::Min,
        _ => Binary::Add,
    };
    let mut y = n.input(0)?;
    y = unmasked(n, y)?;
    for &x in &inputs[1..] {
        let x = unmasked(n, x)?;
        y = n.binary_op(f, y, x)?;
    }
    if n.operator == "Mean" && inputs.len() > 1 {
        let factor = n.number(1.0 / inputs.len() as f64);
        y = n.binary_op(Binary::Mul, y, factor)?;
    }
    Ok(vec![y])
}

pub(crate) fn pow(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (mut x, y) = (n.input(0)?, n.input(1)?);
    let Some(exponent) = n.to.graph.known(y)? else {
        return Ok(vec![power_of(n, x, y)?]);
    };
    // A power of weights is an operation of the graph, which keeps its operands.
    let public = n.to.graph.public_behind(x).is_some() || n.to.is_integer(x);
    if n.to.graph.known(x)?.is_some() && (public || exponent.uniform().is_none()) {
        return folded::powers(n);
    }
    let dims = common(&n.dims(x), &n.dims(y));
    x = spread(n, x, dims)?;
    Ok(vec![by_number(n, x, &exponent, power)?])
}

/// A value to the power of one known number.
fn power(n: &mut Node<'_, '_>, x: ValueId, exponent: f64) -> Result<ValueId> {
    match exponent {
        1.0 => Ok(x),
        2.0 => n.binary_op(Binary::Mul, x, x),
        3.0 => {
            let square = n.binary_op(Binary::Mul, x, x)?;
            n.binary_op(Binary::Mul, square, x)
        }
        0.5 => n.unary(Unary::Sqrt, x),
        -0.5 => n.unary(Unary::InvSqrt, x),
        -1.0 => n.unary(Unary::Reciprocal, x),
        e if e.is_finite() && (e.fract() != 0.0 || e.abs() <= 64.0) => n.unary(Unary::Pow(e), x),
        e => Err(n.unsupported(format!("with exponent {e}; whole ones up to 64 are"))),
    }
}

/// The most different numbers for which one node makes operations of their own.
const MAX_NUMBERS: usize = 64;

/// A function of elements and of known numbers that may differ by place: the elements of each number are taken
/// together. None gets the function of a number that is not its own, whose domain it may not be in.
pub(crate) fn by_number(
    n: &mut Node<'_, '_>,
    x: ValueId,
    numbers: &HostTensor,
    f: impl Fn(&mut Node<'_, '_>, ValueId, f64) -> Result<ValueId>,
) -> Result<ValueId> {
    if let Some(number) = numbers.uniform() {
        return f(n, x, number);
    }
    let dims = n.dims(x);
    let lead = dims.len() - numbers.dims().len();
    // Axes along which the numbers differ; the others stay as they are, of whatever length.
    let differ = |axis: &usize| *axis >= lead && numbers.dims()[axis - lead] != 1;
    let first = (0..dims.len()).find(differ).unwrap_or(lead);
    let end = (0..dims.len()).rfind(differ).map_or(lead, |last| last + 1);
    let (own, to) = (&numbers.dims()[first - lead..end - lead], &dims[first..end]);
    let values = numbers.floats();
    let mut groups: Vec<(f64, Vec<usize>)> = vec![];
    for at in 0..to.iter().product() {
        let number = values[folded::place(own, to, at)];
        match groups.iter_mut().find(|(other, _)| *other == number) {
            Some((_, places)) => places.push(at),
            None => groups.push((number, vec![at])),
        }
        if groups.len() > MAX_NUMBERS {
            let reason = format!("with more than {MAX_NUMBERS} different numbers");
            return Err(n.unsupported(reason));
        }
    }
    let flat = [&dims[..first], &[to.iter().product()], &dims[end..]].concat();
    let x = fixed(n, x, &flat)?;
    let mut order = vec![0; flat[first]];
    let mut parts = vec![];
    let mut count = 0;
    for (number, places) in groups {
        for &place in &places {
            order[place] = count;
            count += 1;
        }
        let part = n.add(Op::Gather { axis: first, indices: places, squeeze: false }, &[x])?;
        parts.push(f(n, part, number)?);
    }
    let all = n.add(Op::Concat(first), &parts)?;
    let y = n.add(Op::Gather { axis: first, indices: order, squeeze: false }, &[all])?;
    fixed(n, y, &dims)
}

/// A positive base to the power of a computed value: `exp(y * log(x))`.
fn power_of(n: &mut Node<'_, '_>, x: ValueId, y: ValueId) -> Result<ValueId> {
    let known = n.to.graph.known(x)?;
    let negative = |base: HostTensor| base.floats().iter().any(|v| *v <= 0.0);
    if n.to.is_integer(x) || known.is_some_and(negative) {
        return Err(
            n.unsupported("of integers or bases that are not positive, with computed exponents")
        );
    }
    if n.to.graph.known(x)?.is_some() {
        return by_logarithm(n, x, y);
    }
    // 0 to a positive power is 0. Any other power of it is outside of the logarithm's domain.
    let zero = n.number(0.0);
    let none = n.binary_op(Binary::Equal, x, zero)?;
    let positive = n.binary_op(Binary::Greater, y, zero)?;
    let none = n.binary_op(Binary::And, none, positive)?;
    let base = n.binary_op(Binary::Add, x, none)?;
    let power = by_logarithm(n, base, y)?;
    let some = n.unary(Unary::Not, none)?;
    n.binary_op(Binary::Mul, power, some)
}

fn by_logarithm(n: &mut Node<'_, '_>, x: ValueId, y: ValueId) -> Result<ValueId> {
    let log = n.unary(Unary::Log, x)?;
    let product = n.binary_op(Binary::Mul, y, log)?;
    n.unary(Unary::Exp, product)
}

pub(crate) fn select(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let c = n.input(0)?;
    let (x, y) = (n.input(1)?, n.input(2)?);
    if let Some(hidden) = masks::choice(n, c, [x, y])? {
        return Ok(vec![hidden]);
    }
    let all = all_known(n, &[c, x, y])?;
    let (x, y) = if all { (x, y) } else { (unmasked(n, x)?, unmasked(n, y)?) };
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

/// `x` above a threshold, 0 elsewhere.
pub(crate) fn thresholded(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let alpha = n.attributes.float("alpha", 1.0);
    let alpha = n.number(alpha);
    let keeps = n.binary_op(Binary::Greater, x, alpha)?;
    Ok(vec![n.binary_op(Binary::Mul, x, keeps)?])
}

/// `x` moved towards 0 by `bias` beyond `lambd` on either side, 0 between.
pub(crate) fn shrink(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let (bias, most) = (n.attributes.float("bias", 0.0), n.attributes.float("lambd", 0.5));
    let (bias, most, least) = (n.number(bias), n.number(most), n.number(-most));
    let above = n.binary_op(Binary::Greater, x, most)?;
    let below = n.binary_op(Binary::Less, x, least)?;
    let (down, up) = (n.binary_op(Binary::Sub, x, bias)?, n.binary_op(Binary::Add, x, bias)?);
    let (down, up) = (n.binary_op(Binary::Mul, down, above)?, n.binary_op(Binary::Mul, up, below)?);
    Ok(vec![n.binary_op(Binary::Add, down, up)?])
}

/// 1 where an element is infinite. Elements that are computed on shares never are.
pub(crate) fn is_inf(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let [positive, negative] =
        ["detect_positive", "detect_negative"].map(|name| n.attributes.int(name, 1) != 0);
    let Some(value) = n.to.graph.known(x)? else {
        let dims = n.dims(x);
        let never = n.whole(0)?;
        return Ok(vec![spread(n, never, dims)?]);
    };
    let is = |v: &f64| v.is_infinite() && if *v > 0.0 { positive } else { negative };
    let values = value.floats().iter().map(|v| i64::from(is(v))).collect();
    let value = HostTensor::integers(value.dims(), values)?;
    Ok(vec![n.to.graph.public(n.attributes.name, value)])
}

/// A matrix product as [`matmul`] takes it.
pub(crate) fn product_of(n: &mut Node<'_, '_>, x: ValueId, y: ValueId) -> Result<ValueId> {
    let (mut x, mut y) = (x, y);
    let (vector_x, vector_y) = (n.dims(x).len() == 1, n.dims(y).len() == 1);
    if n.dims(x).is_empty() || n.dims(y).is_empty() {
        return Err(n.attributes.error("an operand has no dimensions"));
    }
    if vector_x {
        let k = n.dims(x)[0];
        x = fixed(n, x, &[1, k])?;
    }
    if vector_y {
        let k = n.dims(y)[0];
        y = fixed(n, y, &[k, 1])?;
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
        z = fixed(n, z, &dims)?;
    }
    Ok(z)
}
