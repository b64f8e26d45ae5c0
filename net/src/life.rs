//! The state that every transport keeps: the current step, and the reason if the session has died.

use std::io;

use crate::{Error, Party, Result, step::StepTag};

/// The offence of a peer that has said farewell to a party that is not done with it.
pub(crate) const CLOSED_EARLY: &str = "closed the session while this party still waits for its \
                                       messages or sends it some";

/// The step a party is in, and why its session is over, if it is.
pub(crate) struct Life {
    step: String,
    tag: StepTag,
    dead: Option<Death>,
}

struct Death {
    reason: String,
    /// The party that broke the protocol and how, if that is why.
    offence: Option<(Party, String)>,
}

/// The message to the peers when a party leaves without closing.
#[derive(Debug, Clone)]
pub(crate) enum LastWords {
    /// It left without a local error.
    Left(String),
    /// Its session failed.
    Failed(String),
    /// It found that a party broke the protocol.
    Accused(Party, String),
}

impl LastWords {
    /// The error of a peer that got this from `by`.
    pub(crate) fn error(self, by: Party) -> Error {
        match self {
            Self::Left(reason) | Self::Failed(reason) => Error::Cancelled { by, reason },
            Self::Accused(peer, reason) => Error::Accused { peer, by, reason },
        }
    }
}

impl Life {
    pub(crate) fn new() -> Self {
        Self { step: "start".to_owned(), tag: StepTag::of("start"), dead: None }
    }

    pub(crate) fn step(&self) -> &str {
        &self.step
    }

    pub(crate) fn set_step(&mut self, name: &str) {
        self.step.clear();
        self.step.push_str(name);
        self.tag = StepTag::of(name);
    }

    /// The tag that messages of this step carry.
    pub(crate) fn tag(&self) -> StepTag {
        self.tag
    }

    /// Refuses a message that a peer sent in another step than this party receives it in.
    pub(crate) fn check_tag(&self, me: Party, from: Party, tag: StepTag) -> Result<()> {
        if tag == self.tag {
            return Ok(());
        }
        let mine = self.tag;
        Err(self.violation(
            from,
            format!(
                "{me} is in this step (tag {mine}) and {from} sent in another (tag {tag}); the two \
                 do not run the same program"
            ),
        ))
    }

    /// Refuses a call on a dead session.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.dead {
            Some(death) => Err(Error::Dead(death.reason.clone())),
            None => Ok(()),
        }
    }

    /// Remembers an outcome: any error but a misuse ends the session.
    pub(crate) fn record<T>(&mut self, outcome: Result<T>) -> Result<T> {
        if let Err(error) = &outcome
            && !matches!(error, Error::Misuse(_))
            && self.dead.is_none()
        {
            let offence = match error {
                Error::Violation { peer, step, reason } => {
                    Some((*peer, format!("in step `{step}`: {reason}")))
                }
                Error::Accused { peer, reason, .. } => Some((*peer, reason.clone())),
                _ => None,
            };
            self.dead = Some(Death { reason: error.to_string(), offence });
        }
        outcome
    }

    /// The message to the peers when this party leaves without closing.
    pub(crate) fn last_words(&self) -> LastWords {
        match &self.dead {
            Some(Death { offence: Some((peer, reason)), .. }) => {
                LastWords::Accused(*peer, reason.clone())
            }
            Some(Death { reason, .. }) => {
                LastWords::Failed(format!("ended in step `{}`: {reason}", self.step))
            }
            None => LastWords::Left(format!("left in step `{}`", self.step)),
        }
    }

    /// Ends the session because of what a peer sent.
    pub(crate) fn accuse(&mut self, peer: Party, reason: &str) -> Error {
        let _ = self.record(Err::<(), _>(self.violation(peer, reason)));
        self.violation(peer, reason)
    }

    /// Ends the session for a reason of this party's own.
    pub(crate) fn fail(&mut self, reason: &str) {
        self.dead.get_or_insert_with(|| Death { reason: reason.to_owned(), offence: None });
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
