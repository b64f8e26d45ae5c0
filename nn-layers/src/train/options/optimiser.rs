//! Optimisers: the rules by which weights follow their gradients.

use serde::{Deserialize, Serialize};

use super::adam::{Adam, Second};
use crate::train::schedule::Step;
use crate::{Error, Result};

/// Optimisers: the rules by which weights follow their gradients.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Optimiser {
    /// Stochastic gradient descent as PyTorch has it. The momentum is kept times the learning rate, and grows and falls
    /// with it. Rounds once a weight, in the product that is its gradient; a Nesterov step once more.
    Sgd {
        /// The part of the last step that continues; 0 keeps no momentum.
        momentum: f64,
        /// Look ahead by the momentum.
        nesterov: bool,
        /// Added to the gradient, times the weight.
        decay: f64,
    },
    /// Adam, AdamW and AMSGrad.
    Adam(Adam),
}

impl Default for Optimiser {
    fn default() -> Self {
        Self::sgd(0.0)
    }
}

impl Optimiser {
    /// Stochastic gradient descent with a momentum.
    pub fn sgd(momentum: f64) -> Self {
        Self::Sgd { momentum, nesterov: false, decay: 0.0 }
    }

    /// Adam with PyTorch's numbers.
    pub fn adam() -> Self {
        Self::Adam(Adam::default())
    }

    /// Adam whose second moments are shared by all weights of an output neuron or of a filter.
    pub fn adam_by_row() -> Self {
        Self::Adam(Adam { second: Second::Row, ..Adam::default() })
    }

    pub(in crate::train) fn check(&self) -> Result<()> {
        let (momentum, nesterov, decay) = match *self {
            Self::Sgd { momentum, nesterov, decay } => (momentum, nesterov, decay),
            Self::Adam(adam) => return adam.check(),
        };
        if !(0.0..1.0).contains(&momentum) || !(0.0..=1.0).contains(&decay) {
            let reason =
                format!("momentum {momentum} is not below 1, or decay {decay} not up to 1");
            return Err(Error::invalid("optimiser", reason));
        }
        if nesterov && momentum == 0.0 {
            return Err(Error::invalid("optimiser", "a Nesterov step needs a momentum"));
        }
        Ok(())
    }

    /// The largest factor of gradients of the batch's mean loss.
    pub(in crate::train) fn unit(&self, largest_rate: f64) -> f64 {
        match self {
            Self::Sgd { .. } => largest_rate,
            Self::Adam(adam) => adam.unit(),
        }
    }

    /// The fewest fraction bits of gradients that can join the optimiser's tensors.
    pub(in crate::train) fn least_gradients(&self) -> u32 {
        match self {
            Self::Sgd { .. } => 0,
            Self::Adam(adam) => adam.kept_frac(),
        }
    }

    /// True if several weights share a second moment.
    pub(in crate::train) fn shares_moments(&self) -> bool {
        matches!(self, Self::Adam(adam) if adam.second == Second::Row)
    }

    /// True if some steps leave out a part that others compute.
    pub(in crate::train) fn varies(&self) -> bool {
        matches!(self, Self::Adam(adam) if adam.every > 1)
    }

    /// True if a step leaves out nothing.
    pub(in crate::train) fn is_full(&self, step: Step) -> bool {
        match (self, step.number) {
            (Self::Adam(adam), Some(number)) => adam.refreshes(number),
            _ => true,
        }
    }
}
