//! The numbers of an analysis under way at one party.

use std::{collections::HashMap, ops::Range};

use mpc_core::{Format, Protocol, SecretTensor};

use super::{Analysis, refused, shapes::WIDTH};
use crate::base::{Error, Result};

/// A party's shares of the places that later steps need.
pub struct Values<P: Protocol> {
    table: HashMap<u64, SecretTensor<P>>,
    /// The number of steps that are done.
    step: u32,
}

impl<P: Protocol> Values<P> {
    /// The numbers after `step` steps, from what [`Values::state`] returned then.
    ///
    /// # Errors
    /// [`Error::Refused`] if there are more or fewer.
    pub fn restore(analysis: &Analysis, step: u32, state: Vec<P::Share>) -> Result<Self> {
        let places: Vec<_> = analysis.live(step).collect();
        if places.len() != state.len() {
            let (found, wanted) = (state.len(), places.len());
            return Err(refused(format_args!("{found} tensors after step {step}, not {wanted}")));
        }
        let kept = |(place, share): (usize, P::Share)| {
            (place as u64, SecretTensor::new(share, analysis.made[place].format))
        };
        Ok(Self { table: places.into_iter().zip(state).map(kept).collect(), step })
    }

    /// Shares of what must be kept to go on from here, in the order of their places; after the last step, of the results.
    ///
    /// # Errors
    /// [`Error::Internal`] if one is gone, which does not happen.
    pub fn state(&self, analysis: &Analysis) -> Result<Vec<&P::Share>> {
        analysis.live(self.step).map(|place| self.share(place as u64)).collect()
    }

    /// Shares of the results, after the last step.
    ///
    /// # Errors
    /// [`Error::Internal`] before it.
    pub fn results(&self, analysis: &Analysis) -> Result<Vec<&P::Share>> {
        analysis.request.results.iter().map(|leaves| self.share(leaves.place)).collect()
    }

    /// The number of words that are shared.
    #[must_use]
    pub fn words(&self) -> u64 {
        self.table.values().map(|value| value.shape().len() as u64).sum()
    }

    /// Makes some of the steps. `rows` are shares of all rows of each tensor.
    ///
    /// # Errors
    /// Those of the functions and of the protocol.
    pub fn run(
        &mut self,
        analysis: &Analysis,
        mpc: &mut P,
        rows: &[P::Share],
        steps: Range<u32>,
    ) -> Result<()> {
        for at in steps {
            let step = &analysis.request.steps[at as usize];
            for place in step.needs() {
                let Some(share) = rows.get(place as usize) else { continue };
                let frac = analysis.request.inputs[place as usize].fraction_bits;
                let format = Format { frac, width: WIDTH };
                self.table.entry(place).or_insert_with(|| SecretTensor::new(share.clone(), format));
            }
            let made = step.run(mpc, &self.table)?;
            let first = analysis.next[at as usize] - made.len();
            self.table.extend((first as u64..).zip(made));
            self.step = at + 1;
            self.table.retain(|place, _| analysis.last_use[*place as usize] > at as usize);
        }
        Ok(())
    }

    fn share(&self, place: u64) -> Result<&P::Share> {
        let value = self.table.get(&place).map(SecretTensor::share);
        value.ok_or_else(|| Error::Internal(format!("place {place} of an analysis is empty")))
    }
}
