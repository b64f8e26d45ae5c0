//! What every transport keeps: the current step, and whether the session has died of what.

use std::io;

use crate::{Error, Party, Result};

/// What a peer did wrong that has said farewell to a party that is not done with it.
pub(crate) const CLOSED_EARLY: &str = "closed the session while this party still waits for its \
                                       messages or sends it some";

/// The step a party is in, and why its session is over, if it is.
pub(crate) struct Life {
    step: String,
    dead: Option<String>,
}

impl Life {
    pub(crate) fn new() -> Self {
        Self { step: "start".to_owned(), dead: None }
    }

    pub(crate) fn step(&self) -> &str {
        &self.step
    }

    pub(crate) fn set_step(&mut self, name: &str) {
        self.step.clear();
        self.step.push_str(name);
    }

    /// Refuses a call on a dead session.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.dead {
            Some(reason) => Err(Error::Dead(reason.clone())),
            None => Ok(()),
        }
    }

    /// Remembers an outcome: any error but a misuse ends the session.
    pub(crate) fn record<T>(&mut self, outcome: Result<T>) -> Result<T> {
        if let Err(error) = &outcome
            && !matches!(error, Error::Misuse(_))
            && self.dead.is_none()
        {
            self.dead = Some(error.to_string());
        }
        outcome
    }

    /// What peers are told when this party leaves without closing.
    pub(crate) fn last_words(&self) -> String {
        match &self.dead {
            Some(reason) => format!("ended in step `{}`: {reason}", self.step),
            None => format!("left in step `{}`", self.step),
        }
    }

    pub(crate) fn link_error(&self, peer: Party, cause: io::Error) -> Error {
        Error::Link { peer, step: self.step.clone(), cause }
    }

    pub(crate) fn violation(&self, peer: Party, reason: impl Into<String>) -> Error {
        Error::Violation { peer, step: self.step.clone(), reason: reason.into() }
    }

    pub(crate) fn closed_early(&self, peer: Party) -> Error {
        self.violation(peer, CLOSED_EARLY)
    }

    pub(crate) fn unread(&self, peer: Party) -> Error {
        self.violation(peer, "sent messages that this party did not receive before it closed")
    }
}
