//! Adam, its relatives, and second moments that rows of weights share: formats and public numbers of a step.

mod floats;
mod moment_factors;
pub(super) mod step;

use self::moment_factors::MomentFactors;
use super::clip::{Limit, SQUARES};
use crate::graph::{Dim, Graph, ValueId};
use crate::train::options::TrainOptions;
use crate::train::options::adam::{Adam, BETA_BITS};
use crate::train::privacy::Privacy;
use crate::{Error, Result};

/// Fraction bits of a step's factors of second moments, decays and limits.
const NUMBER: u32 = 40;

/// Fraction bits of the factor of a step's gradients.
const GRADIENT_FACTOR: u32 = 30;

/// A second moment is raised to this part of the smallest epsilon, which keeps its root in range.
const LEAST_PART: f64 = 1.0 / 64.0;

/// Fraction bits of inverse roots.
const ROOT: u32 = 16;

/// The most fraction bits of a root's product with the learning rate.
const MOST_STEP: u32 = 37;

/// The name in a state of an earlier step's inverse roots.
const ROOTS: &str = "inverse roots";

impl Adam {
    /// Second moments are taken of gradients times a power of two with this exponent, so that small ones have
    /// more bits: all that the square of a gradient has.
    fn lift(&self) -> u32 {
        self.kept_frac() - SQUARES / 2
    }

    /// The numbers added to the roots of second moments, in the end and in the first step: PyTorch adds
    /// `epsilon` once the root is corrected for its start at 0.
    fn epsilons(&self) -> [f64; 2] {
        let last = self.epsilon * self.unit() * f64::from(self.lift()).exp2();
        [last, last * (1.0 - self.betas[1]).sqrt()]
    }

    /// The least second moment that a root is taken of. It is the larger of one unit, because rounding may
    /// leave a moment of 0 one unit below 0, and a number that is negligible compared with epsilon.
    fn least(&self) -> f64 {
        let part = self.epsilons()[1] * LEAST_PART;
        (part * part).max((-f64::from(SQUARES)).exp2())
    }

    /// Fraction bits of the factors of first moments. Moves of the learning rate, thousands of which a guard
    /// adds up, stay far below `2^57` as products.
    fn step_frac(options: &TrainOptions) -> u32 {
        let room = (-options.largest_rate.log2()).floor() as i32;
        (24 + room).clamp(ROOT as i32 + 1, MOST_STEP as i32) as u32
    }

    /// Fraction bits of the learning rate: its product with a root need not be rounded, but for the smallest rates.
    pub(super) fn rate_frac(options: &TrainOptions) -> u32 {
        let least = if Self::step_frac(options) == MOST_STEP { 3 } else { 0 };
        Self::step_frac(options) - ROOT + least
    }

    /// The public numbers of a step, in the order of [`Inputs`].
    pub(super) fn public(
        &self,
        number: u32,
        rate: f64,
        batch: usize,
        options: &TrainOptions,
    ) -> Vec<f64> {
        let MomentFactors { kept, scale, second, .. } = MomentFactors::at(self.betas, number);
        let (rate, epsilon) = self.rate_and_epsilon(number, rate);
        let gradient = scale * self.gradient_factor(batch, options);
        let decay = (self.decay > 0.0).then(|| match self.decoupled {
            true => -rate.plain * self.decay,
            false => scale * self.unit() * self.decay,
        });
        let limit = options.clip.map(|limit| scale * self.unit() * limit);
        let growth = self.amsgrad.then(|| MomentFactors::growth(self.betas, number));
        let always = [rate.scaled, gradient, kept, second, epsilon];
        always.into_iter().chain(decay).chain(limit).chain(growth).collect()
    }

    /// The number of a step's public numbers.
    pub(super) fn public_inputs(&self, options: &TrainOptions) -> usize {
        let optional = [self.decay > 0.0, options.clip.is_some(), self.amsgrad];
        5 + optional.into_iter().filter(|there| *there).count()
    }

    /// The factor that makes gradients of the sum of a batch's losses, or the sum of clipped ones, those of the mean
    /// loss times [`Adam::unit`].
    fn gradient_factor(&self, batch: usize, options: &TrainOptions) -> f64 {
        let clipped = options.privacy.as_ref().map_or(1.0, Privacy::unit);
        clipped * self.unit() / options.rows(batch)
    }

    /// The learning rate and epsilon of a step with the moments' corrections for their start at 0 and for their
    /// factors.
    fn rate_and_epsilon(&self, number: u32, rate: f64) -> (Rate, f64) {
        let refreshed = self.last_refresh(number);
        let power =
            |beta: f64, number: u32| 1.0 - beta.powi(i32::try_from(number + 1).unwrap_or(i32::MAX));
        let first = power(self.betas[0], number) * MomentFactors::at(self.betas, number).scale;
        let second =
            power(self.betas[1], refreshed) * MomentFactors::at(self.betas, refreshed).spread;
        let lift = f64::from(self.lift()).exp2();
        // First moments are sums of gradients, not means.
        let sum = 1.0 - self.betas[0];
        let scaled = rate * second.sqrt() / first * sum * lift;
        (Rate { plain: rate, scaled }, self.epsilons()[0] * second.sqrt())
    }

    /// The largest product of root and epsilon.
    fn largest_part(&self) -> f64 {
        self.epsilons()[0] * MomentFactors::most(self.betas[0]) / self.least().sqrt()
    }

    /// Fraction bits of epsilon: its product with the largest root stays below `2^48`.
    fn epsilon_frac(&self) -> u32 {
        let largest = self.largest_part().log2().ceil() as i32;
        (48 - ROOT as i32 - largest).clamp(1, 40) as u32
    }

    /// Fraction bits of the factors of roots: a product stays below `2^48`.
    fn factor_frac(&self) -> u32 {
        let largest = (-self.least().log2() / 2.0).ceil() as i32;
        (48 - ROOT as i32 - largest).clamp(8, 20) as u32
    }

    /// Adds a step's public numbers to its graph.
    pub(super) fn inputs(&self, graph: &mut Graph, options: &TrainOptions) -> Result<Inputs> {
        let mut input = |name, frac| graph.input_with_frac(name, &[Dim::Fixed(1)], frac);
        let decay_frac = match self.decoupled {
            true => self.first_frac() + Self::step_frac(options) - options.formats.weights,
            false => NUMBER,
        };
        Ok(Inputs {
            rate: input("learning rate", Self::rate_frac(options))?,
            gradient: input("gradient factor", GRADIENT_FACTOR)?,
            kept: input("first decay", BETA_BITS)?,
            second: input("second decay", NUMBER)?,
            epsilon: input("epsilon", self.epsilon_frac())?,
            decay: (self.decay > 0.0).then(|| input("decay", decay_frac)).transpose()?,
            limit: options.clip.map(|_| input("limit", NUMBER)).transpose()?,
            growth: self.amsgrad.then(|| input("growth", NUMBER)).transpose()?,
        })
    }

    /// The limit of a step's gradients.
    pub(super) fn limit(&self, inputs: &Inputs, limit: f64) -> Result<Limit> {
        let most = limit * self.unit() * MomentFactors::most(self.betas[0]);
        let number = inputs.limit.ok_or_else(|| Error::plan("a step without a limit"))?;
        Ok(Limit::Number { most, number })
    }
}

/// A learning rate, and its product with all that corrects the moments.
struct Rate {
    plain: f64,
    scaled: f64,
}

/// A step's public numbers in its graph.
#[derive(Debug, Clone, Copy)]
pub(in crate::train) struct Inputs {
    rate: ValueId,
    /// The factor of gradients.
    pub(super) gradient: ValueId,
    /// The part of the first moments that continues.
    kept: ValueId,
    /// The part of the second moments that squares replace.
    second: ValueId,
    epsilon: ValueId,
    decay: Option<ValueId>,
    /// The norm to which gradients are clipped.
    limit: Option<ValueId>,
    /// The growth of the factor of second moments since the last step.
    growth: Option<ValueId>,
}
