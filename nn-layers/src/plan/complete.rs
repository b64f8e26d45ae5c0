//! A plan of its parts: checks them as a whole, and derives the rest.

use std::collections::HashSet;

use mpc_core::{Profile, TruncationMode};

use super::formats::{MAX_PRODUCT_FRAC, fracs};
use super::kept::KeptBits;
use super::schedule::schedule;
use super::shapes::{input_shapes, shapes};
use super::{ConstantSpec, InputSpec, Plan, PlanNode, StateSpec};
use crate::graph::{Dim, LinearFinish, Op, Sizes};
use crate::{Error, Result};

/// The parts of a plan, before the rest is derived from them.
pub(crate) struct Parts {
    pub frac: u32,
    pub batch: Option<usize>,
    pub inputs: Vec<InputSpec>,
    pub constants: Vec<ConstantSpec>,
    pub nodes: Vec<PlanNode>,
    pub outputs: Vec<(String, usize)>,
    pub states: Vec<StateSpec>,
    pub most_past: Option<usize>,
    pub guard: bool,
    pub profile: Option<Profile>,
    pub public_weights: bool,
}

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
    check_crew(&nodes)?;
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
    check_states(&plan)?;
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

/// Checks that all exchanges of machines are among as many.
fn check_crew(nodes: &[PlanNode]) -> Result<()> {
    let sizes = nodes.iter().filter_map(|node| match &node.op {
        Op::Crew { size, .. } => Some((node, *size)),
        Op::Linear(l) => l.scattered.map(|size| (node, size)),
        _ => None,
    });
    let mut first = None;
    for (node, size) in sizes {
        let wanted = *first.get_or_insert(size);
        if wanted != size {
            let reason = format!("it is for a crew of {size} machines, and others of {wanted}");
            return Err(Error::Node { node: node.name.clone(), reason });
        }
    }
    Ok(())
}

/// Checks a plan's states, with shapes for no cached position and for one.
fn check_states(plan: &Plan) -> Result<()> {
    let wrong = |i: usize, reason: &str| {
        Err(Error::plan(format!("state `{}` {reason}", plan.inputs[i].name)))
    };
    for (at, state) in plan.states.iter().enumerate() {
        let &StateSpec { input, output, axis } = state;
        if input >= plan.inputs.len() || output >= plan.outputs.len() {
            return Err(Error::plan("a state is no input or no result"));
        }
        let before = &plan.states[..at];
        if before.iter().any(|other| other.input == input || other.output == output) {
            return wrong(input, "is one for the second time");
        }
        let spec = &plan.inputs[input];
        if spec.dims.get(axis) != Some(&Dim::Past { times: 1, more: 0 }) || spec.integer {
            return wrong(input, "has no entry of real numbers for each cached position");
        }
        if plan.fracs[plan.outputs[output].1] != plan.input_frac(input) {
            return wrong(input, "comes back with other fraction bits");
        }
    }
    let grows = |dim: &Dim| matches!(dim, Dim::Past { .. });
    let has_past = plan.inputs.iter().any(|input| input.dims.iter().any(grows));
    if !has_past && !plan.nodes.iter().any(|node| node.op.grows()) {
        return Ok(());
    }
    let mut added = None;
    for past in [0, 1] {
        let sizes = Sizes { batch: plan.batch.unwrap_or(1), past };
        let shapes = shapes(plan, sizes)?;
        let inputs = input_shapes(plan, sizes)?;
        for &StateSpec { input, output, axis } in &plan.states {
            let mut dims = shapes[plan.outputs[output].1].dims().to_vec();
            let grown = dims.get_mut(axis).and_then(|dim| {
                let grown = dim.checked_sub(past).filter(|grown| *grown > 0)?;
                *dim = past;
                Some(grown)
            });
            if grown.is_none() || dims != inputs[input].dims() {
                return wrong(input, "does not come back longer, with its other dimensions");
            }
            if *added.get_or_insert(grown) != grown {
                return wrong(input, "grows by another number of positions than others");
            }
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
