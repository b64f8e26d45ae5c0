//! The exchanges of a party's machines in a step: sums of gradients, and new weights.
//!
//! Each machine has some rows of the batch. It gets its stretch of the sum of all machines' gradients, updates its stretch
//! of the weights, and all put the new weights together. So the optimiser's tensors lie once in the party. That is the first
//! stage of ZeRO (Rajbhandari et al., SC 2020).

use crate::Result;
use crate::graph::{CrewOp, Graph, Op, ValueId};

/// Adds an exchange among the machines of a party.
pub(in crate::train) fn exchange(
    graph: &mut Graph,
    size: usize,
    op: CrewOp,
    x: ValueId,
) -> Result<ValueId> {
    let format = graph.nodes[x.0].format;
    graph.add_as(format, "crew", Op::Crew { size, op }, &[x])
}

/// This machine's stretches of the parameters, and of the sums of their gradients.
pub(super) fn scattered(
    graph: &mut Graph,
    size: usize,
    pairs: &[(ValueId, ValueId)],
) -> Result<Vec<(ValueId, ValueId)>> {
    let mut stretches = vec![];
    for &(weight, grad) in pairs {
        let own = exchange(graph, size, CrewOp::Stretch, weight)?;
        stretches.push((own, exchange(graph, size, CrewOp::SumScattered, grad)?));
    }
    Ok(stretches)
}

/// The new values of a step: those of the parameters are gathered from all machines.
pub(super) fn gathered(
    graph: &mut Graph,
    size: usize,
    parameters: &[ValueId],
    updates: Vec<(String, ValueId)>,
) -> Result<Vec<(String, ValueId)>> {
    let mut whole = vec![];
    for (name, value) in updates {
        let named = |id: &&ValueId| graph.name_of(**id) == Some(&name);
        let value = match parameters.iter().find(named) {
            Some(&id) => {
                let dims = graph.shape(id).dims().to_vec();
                exchange(graph, size, CrewOp::Gather(dims), value)?
            }
            None => value,
        };
        whole.push((name, value));
    }
    Ok(whole)
}
