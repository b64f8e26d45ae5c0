//! Privacy: the cost of runs, and the budget of a data set.

use nn_layers::train::Accountant;
use serde::{Deserialize, Serialize};

use crate::base::{Error, Result};

/// The privacy budget of all runs on a data set together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The largest epsilon.
    pub epsilon: f64,
    /// The delta at which it holds.
    pub delta: f64,
}

/// The privacy that runs on a data set have spent, as a server has counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spent {
    /// The cost of all runs with privacy.
    pub accountant: Accountant,
    /// True if there were runs without: no epsilon holds for those.
    pub unprotected: bool,
}

impl Budget {
    /// Checks what a client asks for.
    ///
    /// # Errors
    /// [`Error::Refused`] that states what is possible.
    pub(super) fn check(&self) -> Result<()> {
        let Self { epsilon, delta } = *self;
        if epsilon > 0.0 && epsilon <= 1000.0 && delta > 0.0 && delta < 1.0 {
            return Ok(());
        }
        let reason = format!(
            "epsilon {epsilon} at delta {delta}; epsilon is above 0 and at most 1000, delta between 0 and 1"
        );
        Err(Error::refused("privacy budget", reason))
    }

    /// True if a run keeps within the budget after what was spent; `cost` is `None` for a run without privacy.
    ///
    /// # Errors
    /// [`Error::Refused`] with both numbers, and what would be allowed.
    pub fn allow(&self, set: &str, spent: &Spent, cost: Option<&Accountant>) -> Result<()> {
        let refused = |reason: String| {
            Err(Error::refused(format_args!("privacy of data set `{set}`"), reason))
        };
        let Self { epsilon, delta } = *self;
        let Some(cost) = cost else {
            return refused(format!(
                "its owner allows epsilon {epsilon} at delta {delta}, and this run has no noise; give `clip` and `noise` \
                 under `[train]`"
            ));
        };
        if spent.unprotected {
            return refused(
                "it has been in runs without noise, of which no epsilon is known; its owner can put rows that were in none \
                 under another name"
                    .to_owned(),
            );
        }
        let mut all = spent.accountant.clone();
        all.add(cost);
        let after = all.epsilon(delta)?;
        if after <= epsilon {
            return Ok(());
        }
        refused(format!(
            "after this run epsilon would be {after:.3} at delta {delta}; its owner allows {epsilon}, of which runs \
             have spent {:.3}. More noise or fewer epochs cost less",
            spent.accountant.epsilon(delta)?
        ))
    }
}

impl Spent {
    /// Adds a run's cost.
    pub fn add(&mut self, cost: Option<&Accountant>) {
        match cost {
            Some(cost) => self.accountant.add(cost),
            None => self.unprotected = true,
        }
    }

    /// The larger of what two servers have counted.
    #[must_use]
    pub(crate) fn worse(self, other: &Self) -> Self {
        let epsilon = |spent: &Self| spent.accountant.epsilon(DELTA).unwrap_or(f64::INFINITY);
        let unprotected = self.unprotected || other.unprotected;
        let worse = if epsilon(other) > epsilon(&self) { other.clone() } else { self };
        Self { unprotected, ..worse }
    }

    /// Epsilon so far, in words.
    ///
    /// # Errors
    /// [`Error::Nn`] for a delta that is not between 0 and 1.
    pub fn told(&self, delta: f64) -> Result<String> {
        if self.unprotected {
            return Ok("unlimited, by runs without noise".to_owned());
        }
        Ok(format!("{:.3} at delta {delta}", self.accountant.epsilon(delta)?))
    }
}

/// The delta at which counts are stated and compared unless another one is named.
pub const DELTA: f64 = 1e-5;

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(multiplier: f64, uses: u32) -> Accountant {
        let mut accountant = Accountant::default();
        accountant.add_known(multiplier, uses).unwrap();
        accountant
    }

    #[test]
    fn runs_are_allowed_until_their_sum_is_beyond_the_budget() {
        let budget = Budget { epsilon: 3.0, delta: 1e-5 };
        let run = cost(2.0, 1);
        let mut spent = Spent::default();
        let mut runs = 0;
        while budget.allow("a", &spent, Some(&run)).is_ok() {
            spent.add(Some(&run));
            runs += 1;
        }
        // One run has epsilon 1.99, and two 2.96.
        assert_eq!(runs, 2, "{}", spent.told(1e-5).unwrap());
        let text = budget.allow("a", &spent, Some(&run)).unwrap_err().to_string();
        assert!(text.contains("allows 3") && text.contains("after this run epsilon"), "{text}");
    }

    #[test]
    fn runs_without_noise_are_refused_and_remembered() {
        let budget = Budget { epsilon: 3.0, delta: 1e-5 };
        let mut spent = Spent::default();
        let text = budget.allow("a", &spent, None).unwrap_err().to_string();
        assert!(text.contains("has no noise"), "{text}");
        spent.add(None);
        let text = budget.allow("a", &spent, Some(&cost(100.0, 1))).unwrap_err().to_string();
        assert!(text.contains("runs without noise"), "{text}");
        assert!(Spent::default().worse(&spent).unprotected);
    }

    #[test]
    fn of_two_counts_the_larger_holds() {
        let of = |uses| Spent { accountant: cost(2.0, uses), unprotected: false };
        assert_eq!(of(1).worse(&of(3)), of(3));
        assert_eq!(of(3).worse(&of(1)), of(3));
    }

    #[test]
    fn a_budget_that_means_nothing_is_refused() {
        for (epsilon, delta) in [(0.0, 1e-5), (f64::NAN, 1e-5), (1.0, 0.0), (1.0, 1.0), (1e9, 0.1)]
        {
            assert!(Budget { epsilon, delta }.check().is_err(), "{epsilon} {delta}");
        }
        Budget { epsilon: 3.0, delta: 1e-6 }.check().unwrap();
    }
}
