//! The recording of an analysis: the calls of a session whose parties know shapes alone.

use std::collections::HashMap;

use trefoil::analysis::{Call, Leaves, Operand, Step};

use crate::{
    errors::{Failure, Kind, Result},
    party::Command,
};

/// The steps so far, and the places of the session's secrets in them.
pub(crate) struct Recorder {
    places: HashMap<u64, u64>,
    steps: Vec<Step>,
    next: u64,
}

impl Recorder {
    /// A recording that begins with the rows of data sets, which have these numbers in the session.
    pub(crate) fn new(rows: impl IntoIterator<Item = u64>) -> Self {
        let places: HashMap<_, _> = rows.into_iter().zip(0..).collect();
        let next = places.len() as u64;
        Self { places, steps: Vec::new(), next }
    }

    /// Refuses a command that is no step of an analysis.
    ///
    /// # Errors
    /// A [`Kind::Input`] that says what to do instead.
    pub(crate) fn allows(command: &Command) -> Result<()> {
        let reason = match command {
            Command::Call { .. }
            | Command::Bound { .. }
            | Command::Forget(_)
            | Command::Undo { .. }
            | Command::Close => return Ok(()),
            Command::Reveal { .. } => {
                "an analysis shows its results alone, after its last step: return what is to leave, and let no step \
                 depend on a number"
            }
            Command::Input { .. } | Command::Import { .. } => {
                "an analysis takes its secret numbers from data sets; numbers of the program are public: use them as they \
                 are"
            }
            Command::Export { .. } | Command::Addend { .. } => {
                "the numbers of an analysis are at the servers: return what is to leave"
            }
            Command::Run { .. } | Command::Train { .. } | Command::Finish { .. } => {
                "an analysis runs and trains no network; `cluster.train` does"
            }
        };
        Err(Failure::input(reason))
    }

    /// Notes a step that made secrets with these numbers.
    pub(crate) fn note(
        &mut self,
        command: &Command,
        made: impl Iterator<Item = u64>,
    ) -> Result<()> {
        let step = match command {
            Command::Call { call, .. } => {
                let operand = |operand: &Operand| match operand {
                    Operand::Secret(id) => Ok(Operand::Secret(self.place(*id)?)),
                    Operand::Known(known) => Ok(Operand::Known(known.clone())),
                };
                Step::Call(Call {
                    function: call.function.clone(),
                    operands: call.operands.iter().map(operand).collect::<Result<_>>()?,
                    params: call.params.clone(),
                })
            }
            Command::Bound { id, bound, .. } => Step::Bound { of: self.place(*id)?, bound: *bound },
            other => return Self::allows(other),
        };
        self.steps.push(step);
        for id in made {
            self.places.insert(id, self.next);
            self.next += 1;
        }
        Ok(())
    }

    /// The steps, and the results of these names and numbers.
    pub(crate) fn recorded(&self, results: &[(String, u64)]) -> Result<(Vec<Step>, Vec<Leaves>)> {
        let leaves =
            |(name, id): &(String, u64)| Ok(Leaves { name: name.clone(), place: self.place(*id)? });
        Ok((self.steps.clone(), results.iter().map(leaves).collect::<Result<_>>()?))
    }

    fn place(&self, id: u64) -> Result<u64> {
        let unknown = || Failure::new(Kind::Failed, "a secret array was made by no step");
        self.places.get(&id).copied().ok_or_else(unknown)
    }
}
