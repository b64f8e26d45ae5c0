//! The end of a training: the weights for inference, made of the state.

use mpc_core::{Operand, Protocol, SecretTensor};

use crate::train::plan::TrainPlan;
use crate::train::state::State;
use crate::{HostTensor, Result};

impl TrainPlan {
    /// The weights of [`TrainPlan::inference`], made of a state on shares. All parties call it alike.
    ///
    /// # Errors
    /// As [`crate::Plan::run`]; [`crate::Error::Argument`] naming a frozen weight that the planner has made into another for
    /// inference.
    pub fn finish<P: Protocol>(&self, mpc: &mut P, state: &State<P>) -> Result<Vec<Operand<P>>> {
        let made = match &self.finish {
            Some(plan) => {
                let weights = self.taken(&plan.weights(), state.operands())?;
                let made: Vec<SecretTensor<P>> = plan.run(mpc, &weights, &[], &mut ())?;
                made.into_iter().map(|x| Operand::Secret(x.with_width(64))).collect()
            }
            None => vec![],
        };
        self.assembled(state.operands(), made)
    }

    /// [`TrainPlan::finish`] in 64-bit floats.
    ///
    /// # Errors
    /// As [`TrainPlan::finish`].
    pub fn finish_in_the_clear(&self, state: &[HostTensor]) -> Result<Vec<HostTensor>> {
        self.check_state(state.len())?;
        let made = match &self.finish {
            Some(plan) => plan.evaluate(&self.taken(&plan.weights(), state)?, &[])?,
            None => vec![],
        };
        self.assembled(state, made)
    }

    /// The weights of [`TrainPlan::inference`] out of a state's tensors, in order, where each is one of them.
    ///
    /// # Errors
    /// [`crate::Error::Argument`] naming a weight that is none of the state's tensors: [`TrainPlan::finish`] makes those of
    /// batch normalisations.
    pub fn inference_weights<T: Clone>(&self, state: &[T]) -> Result<Vec<T>> {
        self.check_state(state.len())?;
        self.taken(&self.inference.weights(), state)
    }
}
