//! Training options. All of them are public.

pub(super) mod adam;
pub(super) mod optimiser;

use serde::{Deserialize, Serialize};

use self::optimiser::Optimiser;
use super::loss::Loss;
use super::loss::metric::Metric;
use super::privacy::Privacy;
use crate::graph::Formats;
use crate::{Error, Result};

/// The options of a training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct TrainOptions {
    /// The loss that training minimises.
    pub loss: Loss,
    /// The rule by which weights follow their gradients.
    pub optimiser: Optimiser,
    /// The largest learning rate of any step, for the mean of the batch's losses: gradients get their
    /// fraction bits by it.
    pub largest_rate: f64,
    /// The largest norm of all gradients of the batch's mean loss together, as PyTorch's `clip_grad_norm_`: larger
    /// ones are scaled down. Costs a product for each weight, and the rounds of an inverse root.
    pub clip: Option<f64>,
    /// Steps whose gradients are added up before the weights follow them, as if their batches were one: 1 or more. A step
    /// has an update's cost only where it is the last of these. The gradients are tensors of the state.
    #[serde(skip_serializing_if = "is_one")]
    pub accumulate: u32,
    /// The machines of each party that train together: 1 or more, a divisor of the batch. Machine `r` of `crew` has rows
    /// `r, r + crew, ..` of each batch, and its stretches of the optimiser's tensors. Batch normalisations take the
    /// machine's rows; running statistics are those of machine 0. Dropouts draw for each machine.
    #[serde(skip_serializing_if = "is_one_machine")]
    pub crew: usize,
    /// Differential privacy of the rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub privacy: Option<Privacy>,
    /// True if the network begins with a layer `(x - mean) * factor` for each real input, whose numbers
    /// [`super::TrainPlan::standardize`] makes of all rows before the first step. They are part of the trained network.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub standardize: bool,
    /// The public seed of the dropouts' coins, combined with a step's number.
    pub seed: u64,
    /// Fraction bits.
    pub formats: Formats,
    /// The metrics of each step, computed as well as the state.
    pub metrics: Vec<Metric>,
}

/// The most bits by which the learning rate moves the gradients' format.
const MAX_RATE_SHIFT: f64 = 8.0;

/// The most steps whose gradients are added up: their mean keeps its digits.
const MOST_ACCUMULATED: u32 = 256;

/// The fraction bits of gradients that are clipped.
const LEAST_GRADIENT: u32 = 16;
const MOST_GRADIENT: u32 = 30;

fn is_one_machine(count: &usize) -> bool {
    *count == 1
}

fn is_one(count: &u32) -> bool {
    *count == 1
}

impl Default for TrainOptions {
    /// Cross-entropy by stochastic gradient descent, with learning rates up to 0.1.
    fn default() -> Self {
        Self {
            loss: Loss::default(),
            optimiser: Optimiser::default(),
            largest_rate: 0.1,
            clip: None,
            accumulate: 1,
            crew: 1,
            privacy: None,
            standardize: false,
            seed: 0,
            formats: Formats::default(),
            metrics: vec![],
        }
    }
}

impl TrainOptions {
    /// The same with another loss.
    #[must_use]
    pub fn with_loss(self, loss: Loss) -> Self {
        Self { loss, ..self }
    }

    /// The same with another optimiser.
    #[must_use]
    pub fn with_optimiser(self, optimiser: Optimiser) -> Self {
        Self { optimiser, ..self }
    }

    /// The same with another largest learning rate.
    #[must_use]
    pub fn with_largest_rate(self, largest_rate: f64) -> Self {
        Self { largest_rate, ..self }
    }

    /// The same with a largest norm of all gradients together.
    #[must_use]
    pub fn with_clip(self, norm: f64) -> Self {
        Self { clip: Some(norm), ..self }
    }

    /// The same with gradients that are added up over a number of steps.
    #[must_use]
    pub fn with_accumulate(self, steps: u32) -> Self {
        Self { accumulate: steps, ..self }
    }

    /// The same by a number of machines of each party.
    #[must_use]
    pub fn with_crew(self, machines: usize) -> Self {
        Self { crew: machines, ..self }
    }

    /// The same with clipped gradients and noise.
    #[must_use]
    pub fn with_privacy(self, privacy: Privacy) -> Self {
        Self { privacy: Some(privacy), ..self }
    }

    /// The same with inputs that are standardised by the means and deviations of all rows.
    #[must_use]
    pub fn with_standardize(self, standardize: bool) -> Self {
        Self { standardize, ..self }
    }

    /// The same with another seed of dropouts.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The same with other fraction bits.
    #[must_use]
    pub fn with_formats(self, formats: Formats) -> Self {
        Self { formats, ..self }
    }

    /// The same with other metrics.
    #[must_use]
    pub fn with_metrics(self, metrics: impl Into<Vec<Metric>>) -> Self {
        Self { metrics: metrics.into(), ..self }
    }

    /// Refuses numbers from which a plan cannot be made.
    pub(super) fn check(&self, batch: usize) -> Result<()> {
        let invalid = |reason: String| Err(Error::invalid("training options", reason));
        let Formats { values, weights, gradients } = self.formats;
        if !(8..=28).contains(&values) || !(8..=30).contains(&weights) {
            return invalid(format!(
                "{values} and {weights} fraction bits; values have 8 to 28, weights 8 to 30"
            ));
        }
        if !(8..=26).contains(&gradients) {
            return invalid(format!("{gradients} fraction bits; gradients have 8 to 26"));
        }
        if !(1..=MOST_ACCUMULATED).contains(&self.accumulate) {
            return invalid(format!(
                "gradients of {} steps are added up; 1 to {MOST_ACCUMULATED} are possible",
                self.accumulate
            ));
        }
        if self.accumulate > 1 && self.optimiser.varies() {
            return invalid(
                "gradients of several steps are added up, and inverse roots are made every so many steps: leave one of \
                 the two out"
                    .to_owned(),
            );
        }
        let rate = self.largest_rate;
        if !(rate > 0.0 && rate <= batch as f64) {
            return invalid(format!(
                "the largest learning rate {rate} is not within 0 to the batch size"
            ));
        }
        if self.clip.is_some_and(|norm| !(norm > 0.0 && norm <= 1024.0)) {
            return invalid("the largest norm of gradients is not within 0 to 1024".to_owned());
        }
        self.check_crew(batch)?;
        self.check_privacy(batch)?;
        self.optimiser.check()?;
        self.loss.check()
    }

    fn check_crew(&self, batch: usize) -> Result<()> {
        let machines = self.crew;
        if machines == 1 {
            return Ok(());
        }
        let invalid = |reason: String| Err(Error::invalid("crew", reason));
        if machines == 0 || machines > batch || !batch.is_multiple_of(machines) {
            return invalid(format!(
                "{machines} machines cannot have as many of {batch} rows each"
            ));
        }
        if self.privacy.is_some() {
            return invalid(
                "gradients are clipped example by example and noise is added once, which one machine does: take a crew \
                 of 1, or leave privacy out"
                    .to_owned(),
            );
        }
        if self.loss.mixes_rows() {
            return invalid(
                "a mean over what a batch's labels count for needs all rows, and each machine has some: take a crew of 1"
                    .to_owned(),
            );
        }
        if self.optimiser.shares_moments() {
            return invalid(
                "second moments of rows of weights need whole rows, and each machine has a stretch: take second moments \
                 of each weight, or a crew of 1"
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn check_privacy(&self, batch: usize) -> Result<()> {
        let Some(privacy) = &self.privacy else { return Ok(()) };
        let invalid = |reason: &str| Err(Error::invalid("privacy", reason));
        if self.clip.is_some() {
            return invalid(
                "`clip` limits the gradient of a whole batch, and privacy that of each example; give one of the two",
            );
        }
        if self.accumulate > 1 {
            return invalid(
                "noise is added in every step, so that none adds up gradients of others",
            );
        }
        if self.standardize {
            return invalid(
                "means and deviations of the rows are exact numbers, which no noise protects: scale the columns by a \
                 public schema instead",
            );
        }
        if !self.metrics.is_empty() {
            return invalid(
                "metrics are exact sums over training rows, which no noise protects: train without metrics, and                  evaluate on other rows",
            );
        }
        if self.loss.mixes_rows() {
            return invalid(
                "a mean over what a batch's labels count for mixes its examples, so that none can be clipped",
            );
        }
        privacy.check(batch, self.largest_rate)
    }

    /// The rows whose mean loss an update descends, from the rows of one machine's step.
    pub(super) fn rows(&self, batch: usize) -> f64 {
        let machines = self.crew;
        mutant!("crew: the mean of a machine's rows", machines = 1);
        batch as f64 * machines as f64 * f64::from(self.accumulate)
    }

    /// The formats of a plan, whose gradients have the learning rate as a factor.
    pub(super) fn plan_formats(&self, batch: usize) -> Formats {
        let rate = self.optimiser.unit(self.largest_rate) / self.rows(batch);
        if let Some(privacy) = &self.privacy {
            // Gradients are those of the units over the limit of their norm, and have no rate.
            let gradients = self.formats.gradients.saturating_add_signed(privacy.shift());
            return Formats {
                gradients: gradients.clamp(LEAST_GRADIENT, MOST_GRADIENT),
                ..self.formats
            };
        }
        let shift = (-rate.log2()).floor().clamp(0.0, MAX_RATE_SHIFT) as u32;
        let gradients = (self.formats.gradients + shift).max(self.optimiser.least_gradients());
        Formats { gradients, ..self.formats }
    }
}
