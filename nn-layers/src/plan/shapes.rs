//! The shapes of a plan's values, for sizes of a batch and of a state.

use ring_arith::Shape;

use super::{Plan, input_dim};
use crate::graph::{Dim, Op, Sizes, infer};
use crate::host::checked_shape;
use crate::{Error, Result};

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
