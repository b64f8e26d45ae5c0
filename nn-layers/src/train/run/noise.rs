//! The noise of a step of a training with [`crate::train::Privacy`].

use mpc_core::{Operand, Protocol, SecretTensor, TruncationMode, functions};
use ring_arith::Shape;

use crate::plan::Observer;
use crate::train::plan::TrainPlan;
use crate::train::schedule::Step;
use crate::train::state::State;
use crate::{Error, Result};

impl TrainPlan {
    /// The noise of one step of a training with [`crate::train::Privacy`], as shares of tensors that no party knows.
    /// Empty for other trainings.
    ///
    /// # Cost
    /// That of [`mpc_core::functions::gaussian`], for each trained number.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the protocol truncates with large errors, which would reveal a row; [`Error::Mpc`]
    /// if a peer failed.
    pub fn noise<P: Protocol>(&self, mpc: &mut P) -> Result<Vec<Operand<P>>> {
        let Some(privacy) = &self.options.privacy else { return Ok(vec![]) };
        if mpc.truncation() == TruncationMode::Aby3Local {
            let reason = "truncation as ABY3 does it fails at random, and a failure reveals a row: take another";
            return Err(Error::invalid("privacy", reason));
        }
        mpc.step("noise");
        let shapes = self.noise_shapes()?;
        let frac = self.noise_frac();
        let noise = functions::gaussian(mpc, &shapes, privacy.deviation(), frac)?;
        Ok(noise.into_iter().map(Operand::Secret).collect())
    }

    /// The shapes of a step's tensors of noise. Their numbers are in units of 127/128 of the clip norm.
    ///
    /// # Errors
    /// As [`crate::Plan::input_shapes`].
    pub fn noise_shapes(&self) -> Result<Vec<Shape>> {
        let mut shapes = self.full.plan.input_shapes(self.batch)?;
        Ok(shapes.split_off(shapes.len() - self.noises))
    }

    /// Fraction bits of the noise.
    fn noise_frac(&self) -> u32 {
        self.full.plan.input_frac(self.full.plan.inputs().len().saturating_sub(1))
    }

    /// [`TrainPlan::step`] with noise from [`TrainPlan::noise`], which serves one step.
    ///
    /// # Errors
    /// As [`TrainPlan::step`]; [`Error::Plan`] if the noise is not that of a step.
    pub fn step_with_noise<P: Protocol>(
        &self,
        mpc: &mut P,
        state: &mut State<P>,
        batch: &[Operand<P>],
        step: impl Into<Step>,
        noise: Vec<Operand<P>>,
        observer: &mut dyn Observer,
    ) -> Result<Vec<SecretTensor<P>>> {
        let step = step.into();
        let variant = self.variant(step);
        let inputs = self.inputs(mpc, batch, (step, 0), noise)?;
        let weights = variant.operands(state.operands());
        let results = variant.plan.run(mpc, &weights, &inputs, observer)?;
        Ok(variant.settle(state, results))
    }

    pub(super) fn check_noise(&self, given: usize) -> Result<()> {
        if given == self.noises {
            return Ok(());
        }
        Err(Error::plan(format!("expected {} tensors of noise, got {given}", self.noises)))
    }
}
