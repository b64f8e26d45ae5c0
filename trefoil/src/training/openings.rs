//! Openings of a run, and the conditions of the owners of data.

use serde::{Deserialize, Serialize};

use super::privacy::Budget;
use crate::base::{Error, Result};

/// The most steps after which weights are opened.
const MOST: usize = 1000;

/// The least number of rows of a batch, unless the owner of the data sets another.
const LEAST_BATCH: usize = 2;

/// The least number of rows that metrics are summed over, unless the owner of the data sets another.
const METRIC_ROWS: u64 = 100;

/// The part of the numbers that went in, of which more going out is worth a warning: a tenth.
const SHARE: u64 = 10;

/// The steps after which weights and metrics leave the servers. The fingerprint of a run covers it, and each server
/// counts what has left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Openings {
    /// The steps after which the weights and running statistics leave for the run's owner and its recipients, or a
    /// model is made of them; ascending.
    pub weights: Vec<u32>,
    /// Metrics leave as sums over this many steps each. What the guard found leaves with them, and with weights.
    pub metrics: u32,
}

/// The conditions of a data set's owner for every run on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Conditions {
    /// Rows that a batch has at least.
    pub least_batch: usize,
    /// Rows that metrics are summed over at least; all of them where there are fewer.
    pub metric_rows: u64,
    /// The most numbers that may leave in all: weights, metrics, and what the guard found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_numbers_out: Option<u64>,
    /// The privacy budget of all runs together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub privacy: Option<Budget>,
}

/// The numbers that go into a run, and those that may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Flow {
    /// Rows of the data.
    pub rows: u64,
    /// Numbers of all rows.
    pub numbers_in: u64,
    /// Numbers of the weights and running statistics, each time they leave.
    pub weights: u64,
    /// The number of openings.
    pub times: u64,
    /// Numbers of all metrics that leave.
    pub metrics: u64,
    /// Numbers of the guard that leave: one for each layer that it watches, 0 if the layer kept within its range.
    pub checks: u64,
}

impl Openings {
    /// Weights after the last step alone, metrics once in `metrics` steps.
    #[must_use]
    pub fn last(steps: u32, metrics: u32) -> Self {
        Self { weights: vec![steps], metrics }
    }

    /// The openings that a run's owner asks for: metrics once in `every` steps, or after each epoch of `epoch` steps;
    /// weights after the steps `after`, and after the last. The servers refuse openings that do not fit.
    #[must_use]
    pub fn asked(epoch: usize, epochs: u32, every: Option<u32>, after: &[u32]) -> Self {
        let number = |steps: usize| u32::try_from(steps).unwrap_or(u32::MAX);
        let steps = number(epoch.saturating_mul(epochs as usize));
        let mut openings = Self::last(steps, every.unwrap_or_else(|| number(epoch)));
        openings.weights.extend(after);
        openings.weights.sort_unstable();
        openings.weights.dedup();
        openings
    }

    /// Checks them for a run of this many steps.
    ///
    /// # Errors
    /// [`Error::Refused`] that states what is not sound.
    pub(super) fn check(&self, steps: u32) -> Result<()> {
        let bad = |reason: String| Err(Error::refused("openings", reason));
        if !(1..=MOST).contains(&self.weights.len()) {
            let count = self.weights.len();
            return bad(format!("weights leave {count} times; 1 to {MOST} are possible"));
        }
        let ascending = self.weights.windows(2).all(|two| two[0] < two[1]);
        let within = self.weights.iter().all(|&step| (1..=steps).contains(&step));
        if !ascending || !within {
            let list = &self.weights;
            return bad(format!(
                "weights leave after steps {list:?}; name steps from 1 to {steps}, ascending"
            ));
        }
        if !(1..=steps).contains(&self.metrics) {
            let every = self.metrics;
            return bad(format!("metrics leave every {every} steps; 1 to {steps} are possible"));
        }
        Ok(())
    }

    /// The number of times that metrics leave in a run of this many steps.
    pub(super) fn windows(&self, steps: u32) -> u32 {
        (steps / self.metrics.max(1)).max(1)
    }

    /// The steps whose metrics leave together, as one sum, that `step` is among. Steps that do not fill a window at
    /// the end belong to the last one.
    #[must_use]
    pub fn window(&self, step: u32, steps: u32) -> std::ops::Range<u32> {
        let every = self.metrics.max(1);
        let last = self.windows(steps) - 1;
        let at = (step / every).min(last);
        let end = if at == last { steps } else { (at + 1) * every };
        at * every..end
    }

    /// True if weights leave after this step.
    #[must_use]
    pub fn opens_weights(&self, step: u32) -> bool {
        self.weights.contains(&step)
    }

    /// True if anything leaves after this step: weights, or metrics. Nothing of a slice that ends elsewhere leaves.
    #[must_use]
    pub fn opens(&self, step: u32, steps: u32) -> bool {
        step > 0 && self.slice_end(step - 1, steps) == step
    }

    /// The number of steps after which anything leaves.
    pub(super) fn times(&self, steps: u32) -> u64 {
        let ends = |step: u32| self.window(step - 1, steps).end == step;
        let apart = self.weights.iter().filter(|&&step| !ends(step)).count();
        u64::from(self.windows(steps)) + apart as u64
    }

    /// The last step of a slice from `from` on: the end of a window, or a step after which weights leave.
    #[must_use]
    pub fn slice_end(&self, from: u32, steps: u32) -> u32 {
        let next = self.weights.iter().copied().find(|&step| step > from).unwrap_or(steps);
        next.min(self.window(from, steps).end)
    }
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            least_batch: LEAST_BATCH,
            metric_rows: METRIC_ROWS,
            most_numbers_out: None,
            privacy: None,
        }
    }
}

impl Conditions {
    /// The conditions of both.
    #[must_use]
    pub(super) fn and(&self, other: &Self) -> Self {
        let limits = [self.most_numbers_out, other.most_numbers_out];
        Self {
            least_batch: self.least_batch.max(other.least_batch),
            metric_rows: self.metric_rows.max(other.metric_rows),
            most_numbers_out: limits.into_iter().flatten().min(),
            privacy: self.privacy.or(other.privacy),
        }
    }

    /// Compares a run with the conditions of a data set: `batch` rows make a gradient, and `rows` a metric.
    ///
    /// # Errors
    /// [`Error::Refused`] that names the condition, what the run does, and what would be allowed.
    pub(super) fn allow(&self, set: &str, (batch, rows): (usize, u64), flow: &Flow) -> Result<()> {
        let refused = |reason: String| {
            Err(Error::refused(format_args!("conditions of data set `{set}`"), reason))
        };
        let least = self.least_batch.max(LEAST_BATCH);
        if batch < least {
            return refused(format!(
                "a batch of {batch} rows shows single rows to anyone who sees weights or metrics; use at least {least}"
            ));
        }
        let wanted = self.metric_rows.min(flow.rows / batch as u64 * batch as u64);
        if rows < wanted {
            let steps = wanted.div_ceil(batch as u64);
            return refused(format!(
                "metrics leave as sums over {rows} rows, and its owner asks for {wanted}; open them every {steps} \
                 steps or less often"
            ));
        }
        match self.most_numbers_out {
            Some(most) if flow.numbers_out() > most => refused(format!(
                "{} numbers would leave, and its owner allows {most}; train fewer weights, open them less often, or ask for fewer results",
                flow.numbers_out()
            )),
            _ => Ok(()),
        }
    }
}

impl Flow {
    /// Numbers that leave in all.
    #[must_use]
    pub fn numbers_out(&self) -> u64 {
        let weights = self.weights.saturating_mul(self.times);
        weights.saturating_add(self.metrics).saturating_add(self.checks)
    }

    /// True if more may leave than a tenth of what went in.
    #[must_use]
    pub fn leaves_much(&self) -> bool {
        self.numbers_out().saturating_mul(SHARE) > self.numbers_in
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOW: Flow =
        Flow { rows: 200, numbers_in: 20_000, weights: 650, times: 1, metrics: 20, checks: 10 };

    #[test]
    fn windows_cover_all_steps_and_none_is_shorter_than_agreed() {
        for (every, steps) in [(1, 1), (1, 7), (3, 7), (7, 7), (5, 7), (10, 100)] {
            let openings = Openings::last(steps, every);
            let mut at = 0;
            while at < steps {
                let window = openings.window(at, steps);
                assert_eq!(window.start, at);
                assert!(window.len() as u32 >= every.min(steps), "{window:?} of {every}");
                assert!(window.clone().all(|step| openings.window(step, steps) == window));
                at = window.end;
            }
            assert_eq!(at, steps);
        }
    }

    #[test]
    fn a_slice_ends_where_something_leaves() {
        let openings = Openings { weights: vec![4, 9], metrics: 3 };
        let ends: Vec<_> = (0..9).map(|from| openings.slice_end(from, 9)).collect();
        assert_eq!(ends, [3, 3, 3, 4, 6, 6, 9, 9, 9]);
    }

    #[test]
    fn openings_that_a_run_cannot_have_are_refused() {
        for (weights, metrics, reason) in [
            (vec![], 1, "0 times"),
            (vec![0], 1, "1 to 9, ascending"),
            (vec![3, 3], 1, "ascending"),
            (vec![10], 1, "1 to 9"),
            (vec![9], 0, "every 0 steps"),
            (vec![9], 10, "every 10 steps"),
        ] {
            let text = Openings { weights, metrics }.check(9).unwrap_err().to_string();
            assert!(text.contains(reason), "{reason}: {text}");
        }
        Openings { weights: vec![1, 9], metrics: 9 }.check(9).unwrap();
    }

    #[test]
    fn something_leaves_at_the_ends_of_windows_and_with_weights() {
        let openings = Openings { weights: vec![4, 9], metrics: 3 };
        let steps = (0..=9).filter(|&step| openings.opens(step, 9));
        assert_eq!(steps.collect::<Vec<_>>(), [3, 4, 6, 9]);
        assert_eq!(openings.times(9), 4);
    }

    #[test]
    fn the_conditions_of_an_owner_are_compared_with_what_a_run_does() {
        let conditions = Conditions {
            least_batch: 8,
            metric_rows: 64,
            most_numbers_out: Some(680),
            privacy: None,
        };
        conditions.allow("a", (8, 64), &FLOW).unwrap();
        for (batch, rows, flow, reason) in [
            (7, 700, FLOW, "at least 8"),
            (8, 56, FLOW, "every 8 steps"),
            (8, 64, Flow { times: 2, ..FLOW }, "1330 numbers would leave"),
        ] {
            let text = conditions.allow("a", (batch, rows), &flow).unwrap_err().to_string();
            assert!(text.contains(reason) && text.contains("`a`"), "{text}");
        }
        let none =
            Conditions { least_batch: 0, metric_rows: 0, most_numbers_out: None, privacy: None };
        let text = none.allow("a", (1, 1), &FLOW).unwrap_err().to_string();
        assert!(text.contains("a batch of 1 rows"), "batch 1 is never allowed: {text}");
        // Of a small set metrics are summed over all rows.
        Conditions::default().allow("a", (4, 8), &Flow { rows: 9, ..FLOW }).unwrap();
        let both = conditions.and(&Conditions { most_numbers_out: Some(9), ..none });
        assert_eq!(both, Conditions { most_numbers_out: Some(9), ..conditions });
    }

    #[test]
    fn weights_that_could_hold_a_tenth_of_the_data_are_much() {
        assert!(!FLOW.leaves_much());
        assert!(Flow { times: 3, ..FLOW }.numbers_out() == 1980);
        assert!(Flow { times: 4, ..FLOW }.leaves_much());
    }
}
