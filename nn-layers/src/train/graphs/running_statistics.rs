//! Running means and variances, which follow those of the batches as in PyTorch.

use crate::graph::norm::Running;
use crate::graph::{Binary, Dim, Format, Graph, Op, ValueId};
use crate::{Error, Result};

/// Adds the new running mean and variance of a batch normalisation, by name. The variance that they follow is the
/// unbiased one, of `n - 1` elements.
pub(super) fn follow(graph: &mut Graph, norm: &Running) -> Result<Vec<(String, ValueId)>> {
    let unbiased = norm.count as f64 / (norm.count.max(2) - 1) as f64;
    let factors = [norm.momentum, norm.momentum * unbiased];
    let mut updates = vec![];
    for ((running, batch), factor) in norm.running.into_iter().zip(norm.batch).zip(factors) {
        let name = graph.start_of(running).map(|constant| constant.name.clone());
        let name = name.ok_or_else(|| Error::plan("a running statistic is not a parameter"))?;
        let dims = graph.shape(running).dims().iter().map(|&d| Dim::Fixed(d)).collect();
        let mut add = |format, op, inputs: &[ValueId]| {
            graph.add_as(format, &format!("{}.follow", norm.name), op, inputs)
        };
        let batch = add(Format::Value, Op::Reshape(dims), &[batch])?;
        let part = add(Format::Exact, Op::Scale(factor), &[batch])?;
        let kept = add(Format::Exact, Op::Scale(1.0 - norm.momentum), &[running])?;
        let sum = add(Format::Exact, Op::Binary(Binary::Add), &[kept, part])?;
        updates.push((name, add(Format::Weight, Op::Cast, &[sum])?));
    }
    Ok(updates)
}
