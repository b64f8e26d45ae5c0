//! Learning rates step by step.

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The learning rate of every step: public, and not part of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// The largest rate.
    pub rate: f64,
    /// The rule by which the rate falls.
    pub decay: Decay,
    /// Steps in which it rises to the largest in equal parts.
    pub warm_up: u32,
}

/// One step of a training: its learning rate and that of the step before it, and its number, which Adam needs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    pub(super) number: Option<u32>,
    pub(super) rate: f64,
    pub(super) last: f64,
}

impl Step {
    /// The step of a number, from 0, with the learning rate for the mean of the batch's losses. The step before it had
    /// the same rate.
    pub fn new(number: u32, rate: f64) -> Self {
        Self { number: Some(number), rate, last: rate }
    }

    /// The same after a step with another learning rate: a momentum holds gradients times that rate.
    #[must_use]
    pub fn after(self, last: f64) -> Self {
        Self { last, ..self }
    }

    /// The learning rate as a part of that of the step before.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the rate grows so much that a momentum times the last rate has too few digits for it.
    pub(super) fn growth(&self) -> Result<f64> {
        let Self { rate, last, .. } = *self;
        // At rates of 0 the weights stay as they are, and so does a momentum of zeros.
        if rate == last || rate == 0.0 {
            return Ok(if rate == last { 1.0 } else { 0.0 });
        }
        let growth = rate / last;
        if !(0.0..=MOST_GROWTH).contains(&growth) {
            return Err(Error::invalid(
                "learning rate",
                format!(
                    "{rate} after {last}: with a momentum a rate grows at most {MOST_GROWTH} times in one step, since \
                     the momentum is kept times the rate; let it rise over more steps, from above 0"
                ),
            ));
        }
        Ok(growth)
    }
}

/// The most that a learning rate grows from one step to the next beside a momentum.
const MOST_GROWTH: f64 = 1024.0;

/// A learning rate alone is a step of gradient descent, whatever its number.
impl From<f64> for Step {
    fn from(rate: f64) -> Self {
        Self { number: None, rate, last: rate }
    }
}

/// The rule by which a learning rate falls.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Decay {
    /// Not at all.
    None,
    /// Half a cosine wave, to 0 after this number of steps.
    Cosine(u32),
    /// By a factor, each time after a number of steps.
    Steps {
        /// Steps between two changes.
        every: u32,
        /// The factor of the rate.
        factor: f64,
    },
}

impl Schedule {
    /// Always the same rate.
    pub fn constant(rate: f64) -> Self {
        Self { rate, decay: Decay::None, warm_up: 0 }
    }

    /// Half a cosine wave from `rate` to 0 over the given number of steps.
    pub fn cosine(rate: f64, steps: u32) -> Self {
        Self { rate, decay: Decay::Cosine(steps), warm_up: 0 }
    }

    /// The same with a rise over the first steps.
    #[must_use]
    pub fn warm_up(self, steps: u32) -> Self {
        Self { warm_up: steps, ..self }
    }

    /// The step of a number, with its rate and that of the step before.
    pub fn step(&self, number: u32) -> Step {
        Step::new(number, self.at(number)).after(self.at(number.saturating_sub(1)))
    }

    /// The rate of a step, counted from 0.
    pub fn at(&self, step: u32) -> f64 {
        let fall = match self.decay {
            Decay::None => 1.0,
            Decay::Cosine(steps) => {
                let part = f64::from(step.min(steps)) / f64::from(steps.max(1));
                0.5 + 0.5 * (std::f64::consts::PI * part).cos()
            }
            Decay::Steps { every, factor } => factor.powf(f64::from(step / every.max(1))),
        };
        let rise = f64::from(step + 1) / f64::from(self.warm_up.max(1));
        self.rate * fall * rise.min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Decay, Schedule};

    #[test]
    fn rates_rise_fall_by_cosine_and_by_steps() {
        let s = Schedule::cosine(0.5, 100).warm_up(10);
        assert!((s.at(0) - 0.05).abs() < 1e-3 && s.at(9) < 0.5);
        assert!((s.at(50) - 0.25).abs() < 1e-12);
        assert!(s.at(100) < 1e-12 && s.at(1000) < 1e-12);
        let s =
            Schedule { decay: Decay::Steps { every: 3, factor: 0.5 }, ..Schedule::constant(1.0) };
        assert_eq!([0, 2, 3, 8].map(|step| s.at(step)), [1.0, 1.0, 0.5, 0.25]);
    }
}
