//! The layer that standardises a network's inputs, by numbers that are made of the rows before the first step.

use crate::graph::{Binary, Graph, Op, ValueId};
use crate::{HostTensor, Result};

/// The name of the tensor that is subtracted from an input.
pub(in crate::train) fn mean_of(input: &str) -> String {
    format!("{input}.mean")
}

/// The name of the tensor by which the difference is multiplied.
pub(in crate::train) fn factor_of(input: &str) -> String {
    format!("{input}.factor")
}

/// Puts `(x - mean) * factor` in the place of every real input `x`. Both tensors are frozen weights in the shape of a row:
/// 0 and 1 until the rows are known.
pub(in crate::train) fn standardize_inputs(network: &mut Graph) -> Result<()> {
    let given = (0..network.nodes.len()).map(ValueId);
    let given: Vec<_> = given
        .filter_map(|at| match network.nodes[at.0].op {
            Op::Input(k) if !network.inputs[k].integer => {
                Some((at, network.inputs[k].name.clone()))
            }
            _ => None,
        })
        .collect();
    for (x, name) in given {
        let dims = network.shape(x).dims().get(1..).unwrap_or_default().to_vec();
        let all = |value: f64| HostTensor::new(dims.clone(), vec![value; dims.iter().product()]);
        let mean = network.frozen(&mean_of(&name), all(0.0)?);
        let factor = network.frozen(&factor_of(&name), all(1.0)?);
        let layer = format!("{name}.standardized");
        let distance = network.add(&layer, Op::Binary(Binary::Sub), &[x, mean])?;
        let scaled = network.add(&layer, Op::Binary(Binary::Mul), &[distance, factor])?;
        network.replace(x, scaled);
        network.rewrite(distance, Op::Binary(Binary::Sub), vec![x, mean]);
    }
    Ok(())
}
