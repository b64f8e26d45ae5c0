//! The limit of the norm of all gradients together.

use crate::graph::{Binary, CrewOp, Dim, Format, Graph, Op, Unary, ValueId};
use crate::train::graphs::crew::exchange;
use crate::{Error, HostTensor, Result};

/// Fraction bits of squared norms and of second moments, the most that an inverse root takes.
pub(super) const SQUARES: u32 = 38;

/// Fraction bits of gradients whose norm is limited.
pub(super) const CLIPPED: u32 = 28;

/// Fraction bits of the factor by which gradients are scaled down, and of its product with a public value.
pub(super) const FACTOR: u32 = 20;
const UNIT_STEP: u32 = 32;

/// Added to the square of a norm.
const LEAST_NORM: f64 = 1.0 / 137_438_953_472.0;

/// The largest norm of gradients, times the factor that they have.
pub(super) enum Limit {
    /// A number, and a public value that it is multiplied by.
    Times { limit: f64, unit: ValueId },
    /// A public number of the step, and the most that it is.
    Number { most: f64, number: ValueId },
}

/// The factor by which gradients are multiplied so that the norm of all of them is at most `limit`; the gradients are
/// those of the batch's mean loss times a factor of the limit. Several machines each have their stretches of them.
pub(super) fn clip_factor(
    graph: &mut Graph,
    grads: &[ValueId],
    limit: &Limit,
    machines: usize,
) -> Result<ValueId> {
    let mut total: Option<ValueId> = None;
    for &grad in grads {
        let norm = norm_squared(graph, Format::Fixed(SQUARES), "clip", grad, 1)?;
        total = Some(match total {
            Some(sum) => graph.add_as(
                Format::Fixed(SQUARES),
                "clip",
                Op::Binary(Binary::Add),
                &[sum, norm],
            )?,
            None => norm,
        });
    }
    let mut total = total.ok_or_else(|| Error::invalid("clip", "there are no gradients"))?;
    if machines > 1 {
        total = exchange(graph, machines, CrewOp::Sum, total)?;
    }
    // A norm that is too small for its square would stop the training.
    let least = graph.public("clip.least", HostTensor::scalar(LEAST_NORM));
    let total =
        graph.add_as(Format::Fixed(SQUARES), "clip", Op::Binary(Binary::Add), &[total, least])?;
    let inverse =
        graph.add_as(Format::Fixed(FACTOR), "clip", Op::Unary(Unary::Damping), &[total])?;
    let format = Format::Fixed(FACTOR);
    let factor = match *limit {
        Limit::Times { limit, unit } => {
            let (finer, product) = (Format::Fixed(UNIT_STEP), Op::Binary(Binary::Mul));
            let inverse = graph.add_as(finer, "clip", product, &[inverse, unit])?;
            graph.add_as(format, "clip", Op::Scale(limit), &[inverse])?
        }
        Limit::Number { most, number } => {
            graph.add_as(format, "clip", Op::ScaleBy(most), &[inverse, number])?
        }
    };
    graph.add_as(format, "clip", Op::Unary(Unary::Clip(None, Some(1.0))), &[factor])
}

/// The sum of the squares of each row, as products of matrices, which a guard watches.
pub(super) fn norm_squared(
    graph: &mut Graph,
    format: Format,
    name: &str,
    x: ValueId,
    rows: usize,
) -> Result<ValueId> {
    let each = graph.shape(x).len() / rows.max(1);
    let dims = [rows, 1, each].map(Dim::Fixed).to_vec();
    let x = graph.add_as(Format::Gradient, name, Op::Reshape(dims), &[x])?;
    let product = Op::MatMul { transpose_lhs: false, transpose_rhs: true };
    let norms = graph.add_as(format, name, product, &[x, x])?;
    graph.add_as(format, name, Op::Reshape(vec![Dim::Fixed(rows)]), &[norms])
}
