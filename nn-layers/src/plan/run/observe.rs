//! Watching a plan run, for progress bars and profiles.

use std::time::Duration;

/// A step of a running plan: one operation, or several that share their rounds.
#[derive(Debug, Clone, Copy)]
pub struct StepInfo<'a> {
    /// Position, from 0.
    pub index: usize,
    /// Number of steps.
    pub of: usize,
    /// The name of the (first) node in the model.
    pub name: &'a str,
    /// The kind of operation: `conv+relu`, `max-pool`.
    pub kind: &'static str,
    /// The number of operations that run together.
    pub together: usize,
}

/// Receives the begin and the end of each step. Bytes and rounds are counted by the transport, under the step's
/// name.
pub trait Observer {
    /// The reason to stop the plan, if there is one; called before each step. A step that sends nothing does
    /// not notice that the session has been cancelled or that a peer has gone.
    fn stops(&mut self) -> Option<String> {
        None
    }

    /// A step begins.
    fn started(&mut self, step: &StepInfo<'_>) {
        let _ = step;
    }

    /// A step has ended on this party.
    fn ended(&mut self, step: &StepInfo<'_>, elapsed: Duration) {
        let _ = (step, elapsed);
    }
}

/// Watches nothing.
impl Observer for () {}
