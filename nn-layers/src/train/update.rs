//! The update of a step: new values of weights and of the optimiser's tensors, from gradients.

mod adam;
mod clip;
mod sgd;

use self::clip::Limit;
use self::sgd::Sgd;
use super::options::TrainOptions;
use super::options::adam::Adam;
use super::options::optimiser::Optimiser;
use super::schedule::Step;
use crate::graph::{Binary, Dim, Format, Graph, Op, ValueId};
use crate::{Error, Result};

/// Fraction bits of the learning rate for a single row.
const RATE_FRAC: u32 = 30;

/// Fraction bits of the factor of momenta. Its rounding changes a step by 2^-17 of the step before, and to round off so few
/// bits of a bias takes less than for more.
const MOMENTUM: u32 = 16;

impl Optimiser {
    /// The public numbers of a step: the learning rate as the plan takes it, and the factors of the others.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the step's number is needed and missing, or the rate grows too much for a momentum.
    pub(super) fn public(
        &self,
        step: Step,
        batch: usize,
        options: &TrainOptions,
    ) -> Result<Vec<f64>> {
        Ok(match *self {
            Self::Sgd { momentum, decay, .. } => {
                let mut numbers = vec![step.rate / options.rows(batch)];
                if decay > 0.0 {
                    numbers.push(step.rate * decay);
                }
                if momentum > 0.0 {
                    numbers.push(momentum * step.growth()?);
                }
                numbers
            }
            Self::Adam(adam) => {
                let number = step.number.ok_or_else(|| {
                    Error::invalid(
                        "step",
                        "Adam needs the number of a step: Step::new(number, rate)",
                    )
                })?;
                adam.public(number / options.accumulate, step.rate, batch, options)
            }
        })
    }

    /// The number of such numbers.
    pub(super) fn public_inputs(&self, options: &TrainOptions) -> usize {
        match self {
            Self::Sgd { momentum, decay, .. } => {
                1 + usize::from(*decay > 0.0) + usize::from(*momentum > 0.0)
            }
            Self::Adam(adam) => adam.public_inputs(options),
        }
    }

    /// Adds the public numbers with which a step begins to its graph.
    pub(super) fn placed(&self, graph: &mut Graph, options: &TrainOptions) -> Result<Placed> {
        let batch = graph.batch();
        Ok(match *self {
            Self::Sgd { momentum, nesterov, decay } => {
                let mut input = |name, frac| graph.input_with_frac(name, &[Dim::Fixed(1)], frac);
                let rate = input("learning rate", RATE_FRAC)?;
                let decay_frac = decay_frac(options, batch);
                let decay = (decay > 0.0).then(|| input("decay", decay_frac)).transpose()?;
                let factor = (momentum > 0.0).then(|| input("momentum", MOMENTUM)).transpose()?;
                Placed::Sgd { sgd: Sgd { momentum, nesterov, factor, decay }, rate }
            }
            Self::Adam(adam) => Placed::Adam { adam, inputs: adam.inputs(graph, options)? },
        })
    }
}

/// An optimiser with its public numbers in a step's graph.
#[derive(Debug, Clone, Copy)]
pub(super) enum Placed {
    /// Gradient descent with the learning rate for a single row.
    Sgd { sgd: Sgd, rate: ValueId },
    /// Adam.
    Adam { adam: Adam, inputs: adam::Inputs },
}

impl Placed {
    /// The factor that makes gradients of the sum of a batch's losses those that the optimiser takes.
    pub(super) fn factor(&self) -> ValueId {
        match self {
            Self::Sgd { rate, .. } => *rate,
            Self::Adam { inputs, .. } => inputs.gradient,
        }
    }

    /// Adds the new values of the parameters and of their optimiser state, by name. `full` selects a step that
    /// leaves out nothing, or one in between.
    pub(super) fn update(
        &self,
        graph: &mut Graph,
        options: &TrainOptions,
        parameters: &[(ValueId, ValueId)],
        full: bool,
    ) -> Result<Vec<(String, ValueId)>> {
        let clipped = self.clipped(graph, options, parameters)?;
        match self {
            Self::Sgd { sgd, .. } => sgd.update(graph, options, &clipped),
            Self::Adam { adam, inputs } => {
                adam::step::update(adam, graph, options, *inputs, &clipped, full)
            }
        }
    }

    /// The gradients, their common norm limited if it is to be.
    fn clipped(
        &self,
        graph: &mut Graph,
        options: &TrainOptions,
        parameters: &[(ValueId, ValueId)],
    ) -> Result<Vec<(ValueId, ValueId)>> {
        let Some(most) = options.clip else { return Ok(parameters.to_vec()) };
        let mut grads = vec![];
        for &(_, grad) in parameters {
            // Rounded here: its square and its product with the factor need a separate format.
            grads.push(graph.add_as(Format::Fixed(clip::CLIPPED), "clip", Op::Cast, &[grad])?);
        }
        let limit = match self {
            Self::Sgd { rate, .. } => {
                Limit::Times { limit: most * options.rows(graph.batch()), unit: *rate }
            }
            Self::Adam { adam, inputs } => adam.limit(inputs, most)?,
        };
        let factor = clip::clip_factor(graph, &grads, &limit, options.crew)?;
        let mut clipped = vec![];
        for (&(weight, _), grad) in parameters.iter().zip(grads) {
            let product = Op::Binary(Binary::Mul);
            let scaled = graph.add_as(Format::Gradient, "clip", product, &[grad, factor])?;
            clipped.push((weight, scaled));
        }
        Ok(clipped)
    }
}

/// Fraction bits of the decay's factor: as many as the product that it joins has beyond a weight.
fn decay_frac(options: &TrainOptions, batch: usize) -> u32 {
    let formats = options.plan_formats(batch);
    let product = match options.clip {
        Some(_) => clip::CLIPPED + clip::FACTOR,
        None => formats.values + formats.gradients,
    };
    product.saturating_sub(formats.weights).clamp(1, 30)
}
