//! The graph of a step: forward pass, loss, gradients and update.

use std::collections::HashSet;

use super::{crew, running_statistics};
use crate::graph::norm::{Expanded, Running};
use crate::graph::{Binary, CrewOp, Format, Graph, Op, ValueId};
use crate::plan::compile::passes;
use crate::train::options::TrainOptions;
use crate::train::privacy::gradients::noisy_gradients;
use crate::train::request::TrainRequest;
use crate::train::update::Placed;
use crate::{Error, HostTensor, Result};

/// The network as a step takes it, with pools where they cost least.
pub(in crate::train) fn prepared(request: &TrainRequest) -> Result<Graph> {
    let mut forward = request.network()?;
    passes::pools::pool_before_relu(&mut forward)?;
    // The gradients of each example are those of the trained tensors themselves.
    if request.options().privacy.is_none() {
        passes::pools::merge_averages(&mut forward)?;
    }
    Ok(forward)
}

/// The inputs of a step in addition to a batch and public numbers.
pub(in crate::train) struct Added {
    /// The parts that dropouts leave out.
    pub(in crate::train) dropouts: Vec<f64>,
    /// Tensors of noise.
    pub(in crate::train) noises: usize,
}

/// The whole step as a graph, whose first results are the new values of the state's tensors, by name. The
/// parameters of `forward` get the formats that they have in the step.
pub(in crate::train) fn step_graph(
    forward: &mut Graph,
    options: &TrainOptions,
    full: bool,
) -> Result<(Graph, Added)> {
    let Expanded { mut graph, norms, running, masks } = forward.with_batch_statistics()?;
    graph.fix_batch();
    let output = options.loss.compared(&graph, graph.outputs[0].1)?;
    let followed: HashSet<_> = running.iter().flat_map(|r| r.running).collect();
    let mut parameters = graph.parameters();
    parameters.retain(|id| !followed.contains(id));
    let labels = options.loss.labels(&mut graph, output)?;
    let parts = options.loss.parts(&mut graph, output, labels)?;
    let optimiser = options.optimiser.placed(&mut graph, options)?;
    let seed = seed(&mut graph, options, parts.slope, &optimiser)?;
    let mut noise = vec![];
    let pairs = if let Some(privacy) = &options.privacy {
        refuse_batch_statistics(&running)?;
        let units = privacy.units(graph.batch());
        let each = graph.gradients_of_each(output, seed, &parameters, units)?;
        let each: Vec<_> = parameters.iter().copied().zip(each).collect();
        let noisy = noisy_gradients(&mut graph, privacy, optimiser.factor(), &each)?;
        noise = noisy.inputs;
        noisy.gradients
    } else {
        let grads = graph.gradients_with(&norms, output, seed, &parameters)?;
        parameters.iter().copied().zip(grads).collect()
    };
    let machines = options.crew;
    let pairs = if machines > 1 { crew::scattered(&mut graph, machines, &pairs)? } else { pairs };
    let mut updates = if options.accumulate > 1 {
        accumulated(&mut graph, options, &optimiser, &pairs, full)?
    } else {
        optimiser.update(&mut graph, options, &pairs, full)?
    };
    if machines > 1 {
        updates = crew::gathered(&mut graph, machines, &parameters, updates)?;
    }
    for norm in &running {
        for (name, value) in running_statistics::follow(&mut graph, norm)? {
            // As PyTorch's, which takes those of the first machine.
            let value = match machines {
                1 => value,
                _ => crew::exchange(&mut graph, machines, CrewOp::First, value)?,
            };
            updates.push((name, value));
        }
    }
    let followed = forward.running_statistics(|_| true);
    let own = forward.parameters().into_iter().filter(|id| !followed.contains(id));
    for (id, of) in own.zip(parameters) {
        forward.nodes[id.0].format = graph.nodes[of.0].format;
    }
    graph.outputs.clear();
    for (name, value) in &updates {
        graph.output(name, *value);
    }
    for metric in &options.metrics {
        let mut value = metric.value(&mut graph, output, labels, &parts, &options.loss)?;
        if machines > 1 {
            value = crew::exchange(&mut graph, machines, CrewOp::Sum, value)?;
        }
        graph.output(metric.name(), value);
    }
    // A batch's tensors come first, then the inputs that a step adds to them.
    let last: Vec<_> = masks.iter().map(|mask| mask.0).chain(noise.iter().copied()).collect();
    graph.move_inputs_last(&last);
    passes::optimise(&mut graph)?;
    let dropouts = masks.into_iter().map(|mask| mask.1).collect();
    Ok((graph, Added { dropouts, noises: noise.len() }))
}

/// Adds the gradients to those of the steps before, which are tensors of the state. A full step is the last of these: it
/// also updates the parameters by the sums, and begins them at zero again.
fn accumulated(
    graph: &mut Graph,
    options: &TrainOptions,
    optimiser: &Placed,
    pairs: &[(ValueId, ValueId)],
    full: bool,
) -> Result<Vec<(String, ValueId)>> {
    let mut totals = vec![];
    let mut sums = vec![];
    for &(weight, grad) in pairs {
        let parameter = graph.parameter_behind(weight);
        let constant = graph.start_of(parameter).ok_or_else(|| Error::plan("not a parameter"))?;
        let name = format!("{}.gradient", constant.name);
        let shape = graph.shape(weight);
        let zeros = HostTensor::new(shape.dims(), vec![0.0; shape.len()])?;
        let last = graph.parameter(&name, zeros);
        graph.nodes[last.0].format = Format::Gradient;
        let mut add =
            |f, inputs: &[ValueId]| graph.add_as(Format::Gradient, &name, Op::Binary(f), inputs);
        let total = add(Binary::Add, &[last, grad])?;
        let sum = if full { add(Binary::Sub, &[last, last])? } else { total };
        totals.push((weight, total));
        sums.push((name, sum));
    }
    if full {
        sums.extend(optimiser.update(graph, options, &totals, true)?);
    }
    Ok(sums)
}

/// The statistics of a batch mix its examples.
fn refuse_batch_statistics(running: &[Running]) -> Result<()> {
    let Some(norm) = running.first() else { return Ok(()) };
    let reason = "a batch normalisation that is trained mixes the examples of a batch, so that none can be clipped: \
                  leave its scale and shift out of what Graph::train trains, or put a layer normalisation in its \
                  place";
    Err(Error::Node { node: norm.name.clone(), reason: reason.to_owned() })
}

/// The slope with which the backward pass begins.
fn seed(
    graph: &mut Graph,
    options: &TrainOptions,
    slope: ValueId,
    optimiser: &Placed,
) -> Result<ValueId> {
    let (op, operands) = match &options.privacy {
        Some(privacy) => (Op::Scale(1.0 / privacy.unit()), vec![slope]),
        None => (Op::Binary(Binary::Mul), vec![slope, optimiser.factor()]),
    };
    graph.add_as(Format::Gradient, "loss.grad", op, &operands)
}
