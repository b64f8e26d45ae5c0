//! Checks of a plan, and the properties that follow from its nodes: shapes, formats, order.

use std::collections::HashSet;

use mpc_core::TruncationMode;
use ring_arith::Shape;

use super::kept::KeptBits;
use super::record::Parts;
use super::schedule::schedule;
use super::{Plan, PlanNode, input_dim};
use crate::graph::{Dim, LinearFinish, Op, ResultFormat, Sizes, infer};
use crate::host::checked_shape;
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

/// Checks the parts and derives the rest of the plan.
pub(crate) fn complete(parts: Parts) -> Result<Plan> {
    let Parts {
        frac,
        batch,
        inputs,
        constants,
        nodes,
        outputs,
        states,
        most_past,
        guard,
        profile,
        public_weights,
    } = parts;
    if !(4..=28).contains(&frac) {
        return Err(Error::plan(format!("{frac} fraction bits; 4 to 28 are possible")));
    }
    if batch == Some(0) {
        return Err(Error::plan("the batch size is 0"));
    }
    check_references(&nodes, inputs.len(), constants.len())?;
    let formats = nodes.iter().filter_map(|n| n.frac).chain(inputs.iter().filter_map(|i| i.frac));
    if let Some(frac) = formats.into_iter().find(|f| !(1..=MAX_PRODUCT_FRAC).contains(f)) {
        let reason =
            format!("a value has {frac} fraction bits; 1 to {MAX_PRODUCT_FRAC} are possible");
        return Err(Error::plan(reason));
    }
    if outputs.is_empty() || outputs.iter().any(|o| o.1 >= nodes.len()) {
        return Err(Error::plan("an output is missing"));
    }
    let mut names = HashSet::new();
    if let Some(c) = constants.iter().find(|c| !names.insert(c.name.as_str())) {
        return Err(Error::plan(format!("two constants have the name `{}`", c.name)));
    }
    let weights = (0..constants.len()).filter(|&i| constants[i].public.is_none()).collect();
    let mut plan = Plan {
        frac,
        batch,
        inputs,
        constants,
        weights,
        nodes,
        outputs,
        states,
        most_past,
        public: vec![],
        fracs: vec![],
        modes: vec![],
        steps: vec![],
        drops: vec![],
        kept: KeptBits::default(),
        guard,
        profile,
        public_weights,
    };
    plan.public = public(&plan);
    shapes(&plan, batch.unwrap_or(1))?;
    plan.fracs = fracs(&plan)?;
    super::run::step::check(&plan)?;
    plan.modes = modes(&plan);
    plan.kept = KeptBits::of(&plan.nodes)?;
    plan.steps = schedule(&plan);
    plan.drops = drops(&plan);
    plan.kept.set_drops(&plan.steps);
    Ok(plan)
}

/// The nodes that are computed in the clear: those that grow, and all that is made of them and public numbers alone.
fn public(plan: &Plan) -> Vec<bool> {
    let mut grows = vec![false; plan.nodes.len()];
    for (i, node) in plan.nodes.iter().enumerate() {
        let known = |&x: &usize| match plan.nodes[x].op {
            Op::Constant(at) => plan.constants[at].public.is_some(),
            _ => grows[x],
        };
        let own = node.op.grows() || matches!(node.op, Op::Positions { .. });
        let some = own || node.inputs.iter().any(|&x| grows[x]);
        grows[i] = some && !node.op.is_given() && node.inputs.iter().all(known);
    }
    grows
}

/// Shapes of the inputs.
pub(crate) fn input_shapes(plan: &Plan, sizes: Sizes) -> Result<Vec<Shape>> {
    let batch = sizes.batch;
    if batch == 0 || plan.batch.is_some_and(|b| b != batch) {
        let reason = match plan.batch {
            Some(b) => format!("serves batch size {b} alone, not {batch}"),
            None => "the batch size is 0".to_owned(),
        };
        return Err(Error::plan(reason));
    }
    let shape = |dims: &[Dim]| {
        let dims = dims.iter().map(|&d| input_dim(d, sizes)).collect::<Result<Vec<_>>>()?;
        checked_shape("input", dims)
    };
    plan.inputs.iter().map(|i| shape(&i.dims)).collect()
}

/// Shapes of all values.
pub(crate) fn shapes(plan: &Plan, sizes: impl Into<Sizes>) -> Result<Vec<Shape>> {
    let sizes = sizes.into();
    let inputs = input_shapes(plan, sizes)?;
    let mut shapes: Vec<Shape> = Vec::with_capacity(plan.nodes.len());
    for node in &plan.nodes {
        let shape = match node.op {
            Op::Input(i) => inputs[i].clone(),
            Op::Constant(i) => plan.constants[i].shape.clone(),
            ref op => {
                let xs: Vec<_> = node.inputs.iter().map(|&i| &shapes[i]).collect();
                infer::output_shape(op, &xs, sizes).map_err(|e| e.at(&node.name))?
            }
        };
        shapes.push(shape);
    }
    Ok(shapes)
}

/// The sizes for which the inputs have these shapes.
pub(crate) fn sizes_of(plan: &Plan, shapes: &[&Shape]) -> Result<Sizes> {
    if shapes.len() != plan.inputs.len() {
        let reason = format!("{} inputs, the plan has {}", shapes.len(), plan.inputs.len());
        return Err(Error::plan(reason));
    }
    let mut batch = plan.batch;
    let mut past = None;
    for (spec, shape) in plan.inputs.iter().zip(shapes) {
        let fits = spec.dims.len() == shape.rank()
            && spec.dims.iter().zip(shape.dims()).all(|(&dim, &n)| match dim {
                Dim::Fixed(m) => m == n,
                Dim::Batch(k) => {
                    let b = *batch.get_or_insert(n.checked_div(k).unwrap_or(0));
                    b > 0 && k.checked_mul(b) == Some(n)
                }
                Dim::Past { times, more } => {
                    let grown = n.checked_sub(more).and_then(|n| n.checked_div(times));
                    let p = *past.get_or_insert(grown.unwrap_or(0));
                    times.checked_mul(p).and_then(|n| n.checked_add(more)) == Some(n)
                }
                Dim::Rest => false,
            });
        if !fits {
            let wanted = spec.dims.iter().map(|d| match (d, plan.batch) {
                (Dim::Fixed(n), _) => n.to_string(),
                (Dim::Batch(k), Some(b)) => (k * b).to_string(),
                (Dim::Batch(1), None) => "batch".to_owned(),
                (Dim::Batch(k), None) => format!("{k} * batch"),
                (Dim::Past { times: 1, more: 0 }, _) => "past".to_owned(),
                (Dim::Past { times, more }, _) => format!("{times} * past + {more}"),
                (Dim::Rest, _) => "?".to_owned(),
            });
            let wanted = wanted.collect::<Vec<_>>().join(", ");
            let reason = format!("has shape {shape:?}, the model takes [{wanted}]");
            return Err(Error::Argument { what: "input", name: spec.name.clone(), reason });
        }
    }
    let past = past.unwrap_or(0);
    plan.check_past(past)?;
    Ok(Sizes { batch: batch.unwrap_or(1), past })
}

/// Fraction bits of every value.
fn fracs(plan: &Plan) -> Result<Vec<u32>> {
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

/// The truncation modes of the linear layers. Values that only a ReLU or a maximum takes, and gradients that
/// one masks, are rounded early, which costs less and errs by half a unit more. Values that are added up or
/// returned are not.
fn modes(plan: &Plan) -> Vec<TruncationMode> {
    let mut users: Vec<Vec<&Op>> = vec![vec![]; plan.nodes.len()];
    for node in &plan.nodes {
        node.inputs.iter().for_each(|&x| users[x].push(&node.op));
    }
    let given = |i: usize| plan.outputs.iter().any(|output| output.1 == i);
    let pooled = |i: usize| {
        let pool = |op: &&Op| matches!(op, Op::MaxPool(_) | Op::MaxPoolGrad(_));
        !users[i].is_empty() && users[i].iter().all(pool) && !given(i)
    };
    let mode = |(i, node): (usize, &PlanNode)| match &node.op {
        Op::Linear(l) if l.finish != LinearFinish::Truncate || pooled(i) => TruncationMode::Early,
        _ => TruncationMode::Default,
    };
    plan.nodes.iter().enumerate().map(mode).collect()
}

/// The values whose last use is in each step.
fn drops(plan: &Plan) -> Vec<Vec<usize>> {
    let mut last = vec![None; plan.nodes.len()];
    for (step, group) in plan.steps.iter().enumerate() {
        for &node in group {
            last[node].get_or_insert(step);
            plan.kept.operands(&plan.nodes, node).for_each(|x| last[x] = Some(step));
        }
    }
    plan.outputs.iter().for_each(|o| last[o.1] = None);
    let mut drops = vec![vec![]; plan.steps.len()];
    for (node, step) in last.into_iter().enumerate() {
        if let Some(step) = step {
            drops[step].push(node);
        }
    }
    drops
}

fn check_references(nodes: &[PlanNode], inputs: usize, constants: usize) -> Result<()> {
    for (i, node) in nodes.iter().enumerate() {
        let known = match node.op {
            Op::Input(k) => k < inputs,
            Op::Constant(k) => k < constants,
            // A weight is a constant without a value in a plan, whether it is trained or not.
            Op::Parameter(_) => false,
            _ => true,
        };
        if !known || node.inputs.iter().any(|&x| x >= i) {
            return Err(Error::plan(format!("node `{}` needs what comes after it", node.name)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::graph::{Graph, Pool, Unary};
    use crate::{Compiled, HostTensor, PlanOptions};

    use super::*;

    /// The truncation mode of a convolution, followed by the operations that `more` adds.
    fn mode_before(more: impl Fn(&mut Graph, crate::ValueId)) -> TruncationMode {
        let mut graph = Graph::new(1);
        let dims = [Dim::Batch(1), Dim::Fixed(1), Dim::Fixed(6), Dim::Fixed(6)];
        let x = graph.input("x", &dims).unwrap();
        let weight = HostTensor::new([1, 1, 3, 3], vec![0.25; 9]).unwrap();
        let weight = graph.weight("weight", weight);
        let kernel = crate::graph::Kernel::new(Pool::new([3; 2], [1; 2]));
        let y = graph.add("conv", Op::Conv(kernel), &[x, weight]).unwrap();
        more(&mut graph, y);
        let plan = Compiled::new(&graph, &PlanOptions::default()).unwrap().plan;
        let linear = plan.nodes.iter().position(|node| matches!(node.op, Op::Linear(_)));
        plan.modes[linear.unwrap()]
    }

    #[test]
    fn what_a_relu_or_a_maximum_sees_is_rounded_early_and_nothing_else() {
        let pool = |graph: &mut Graph, y| {
            let op = Op::MaxPool(Pool::new([2; 2], [2; 2]));
            graph.add("pool", op, &[y]).unwrap()
        };
        let relu = |graph: &mut Graph, y| {
            let y = graph.add("relu", Op::Unary(Unary::Relu), &[y]).unwrap();
            graph.output("y", y);
        };
        assert_eq!(mode_before(relu), TruncationMode::Early);
        let pooled = mode_before(|graph, y| {
            let y = pool(graph, y);
            relu(graph, y);
        });
        assert_eq!(pooled, TruncationMode::Early);
        assert_eq!(mode_before(|graph, y| graph.output("y", y)), TruncationMode::Default);
        let both = mode_before(|graph, y| {
            let z = pool(graph, y);
            graph.output("z", z);
            graph.output("y", y);
        });
        assert_eq!(both, TruncationMode::Default);
    }
}
