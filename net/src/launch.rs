//! Starts all parties of a session on this machine, for tests and demos.

use std::{panic, thread};

use crate::{Session, in_process};

/// Runs `program` once for each of `parties` parties, each in a thread of this process, and returns
/// what they returned, in their order. Pair keys follow from the seed, so a run can be repeated.
///
/// # Panics
/// If a party panics, once all have ended: the others' sessions are cancelled by it. Unless
/// `2 <= parties <= 256`.
pub fn threads<R: Send>(
    parties: usize,
    seed: u64,
    program: impl Fn(Session) -> R + Sync,
) -> Vec<R> {
    let sessions = in_process::sessions_from_seed(parties, seed);
    run_all(sessions, program)
}

/// Runs `program` on each session, each in a thread of its own, and returns what they returned.
///
/// # Panics
/// If a party panics, once all have ended.
pub fn run_all<R: Send>(sessions: Vec<Session>, program: impl Fn(Session) -> R + Sync) -> Vec<R> {
    let program = &program;
    let outcomes: Vec<thread::Result<R>> = thread::scope(|scope| {
        let parties: Vec<_> = sessions
            .into_iter()
            .map(|session| {
                let name = format!("party-{}", session.transport.me().0);
                let party = thread::Builder::new().name(name);
                party
                    .spawn_scoped(scope, move || program(session))
                    .expect("the system can start a thread for each party")
            })
            .collect();
        parties.into_iter().map(|party| party.join()).collect()
    });
    let unwind = |outcome: thread::Result<R>| {
        outcome.unwrap_or_else(|payload| panic::resume_unwind(payload))
    };
    outcomes.into_iter().map(unwind).collect()
}
