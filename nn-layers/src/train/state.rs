//! The state that goes from step to step.

use mpc_core::{Format, Operand, Protocol, SecretTensor, ShareTensor};
use ring_arith::{EngineTensor, Shape, Tensor};

use crate::host::decode;
use crate::{Error, HostTensor, Result};

/// A tensor that goes from step to step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateSpec {
    /// Its name, unique in the plan.
    pub name: String,
    /// Its shape.
    pub shape: Shape,
    /// Its fraction bits.
    pub frac: u32,
    /// The tensor's purpose.
    pub role: Role,
    /// True if the training changes it: a step, or [`super::TrainPlan::standardize`] before the first one. Weights that are
    /// not trained stay as they are.
    pub trained: bool,
}

/// The purpose of a tensor of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A weight of the network, or a running statistic.
    Network,
    /// A tensor of the optimiser: momenta, second moments, inverse roots. 0 at the start.
    Optimiser,
}

/// The shares of a training's tensors, in the order of [`super::TrainPlan::state`].
#[derive(Debug, Clone)]
pub struct State<P: Protocol>(Vec<Operand<P>>);

impl<P: Protocol> State<P> {
    pub(super) fn new(specs: &[StateSpec], shares: Vec<P::Share>) -> Result<Self> {
        if specs.len() != shares.len() {
            let reason =
                format!("expected {} tensors of a state, got {}", specs.len(), shares.len());
            return Err(Error::plan(reason));
        }
        let mut operands = vec![];
        for (spec, share) in specs.iter().zip(shares) {
            if share.shape() != &spec.shape {
                let reason = format!("expected shape {:?}, got {:?}", spec.shape, share.shape());
                return Err(Error::Argument { what: "state", name: spec.name.clone(), reason });
            }
            operands.push(Operand::Secret(SecretTensor::new(share, Format::words(spec.frac))));
        }
        Ok(Self(operands))
    }

    /// The tensors, as a plan takes its weights.
    pub fn operands(&self) -> &[Operand<P>] {
        &self.0
    }

    /// The shares of all tensors, for instance to store or to open them.
    pub fn shares(&self) -> Vec<&P::Share> {
        let mut shares = vec![];
        for operand in &self.0 {
            if let Operand::Secret(x) = operand {
                shares.push(x.share());
            }
        }
        shares
    }

    /// Stores a new value. Its size counts as unknown, so that every step compares words of the same width.
    pub(super) fn replace(&mut self, place: usize, value: SecretTensor<P>) {
        self.0[place] = Operand::Secret(value.with_width(64));
    }
}

/// The numbers that a state's words encode.
pub(super) fn decode_all(specs: &[StateSpec], words: &[Tensor]) -> Result<Vec<HostTensor>> {
    if specs.len() != words.len() {
        let reason = format!("expected {} tensors of a state, got {}", specs.len(), words.len());
        return Err(Error::plan(reason));
    }
    let decode =
        |(spec, words): (&StateSpec, &Tensor)| decode(words.words(), words.shape(), spec.frac);
    specs.iter().zip(words).map(decode).collect()
}
