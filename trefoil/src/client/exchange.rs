//! One job as each server is asked for it: requests, replies, and the first failure, which ends all.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use mpc_core::{Parcel, Released, Sharing};
use ring_arith::{EngineTensor, Tensor};

use super::Watch;
use crate::{
    base::{Accusation, Error, Result},
    wire::{Channel, Cost, Pace, Reply, Request, check_shapes, hear, receive_tensor, say},
};

/// Largest result that a client takes, in bytes.
const RESULT: u64 = 1 << 32;

/// The time in which a server says whom it accuses, after another one has.
const ACCUSATIONS: Duration = Duration::from_secs(5);

/// The state that the conversations of one job share.
pub(super) struct Joint {
    pub(super) over: AtomicBool,
    pub(super) first: Mutex<Option<Error>>,
}

impl Joint {
    /// True if a server has accused others, which all others may have noticed too.
    fn is_accused(&self) -> bool {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(*first, Some(Error::Cheated(_)))
    }

    /// Keeps the first error and makes the other conversations end.
    pub(super) fn note<T>(&self, outcome: Result<T>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(error) => {
                let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
                match (&mut *first, error) {
                    // All accusations are told: one of them may be the liar's.
                    (Some(Error::Cheated(known)), Error::Cheated(new)) => known.extend(new),
                    (first, error @ Error::Cheated(_)) => *first = Some(error),
                    // A conversation that was made to end has nothing to add.
                    (Some(_), _) => {}
                    (first, error) => *first = Some(error),
                }
                self.over.store(true, Ordering::Release);
                None
            }
        }
    }
}

/// Counts what leaves for all servers together.
pub(super) struct Sent<'a> {
    watch: &'a dyn Watch,
    bytes: Mutex<u64>,
    of: u64,
}

impl<'a> Sent<'a> {
    pub(super) fn new(watch: &'a dyn Watch, parcels: &[Parcel]) -> Self {
        let words = parcels.iter().flat_map(|parcel| &parcel.words);
        let of = words.map(|words| 8 * words.len() as u64).sum();
        Self { watch, bytes: Mutex::new(0), of }
    }

    pub(super) fn add(&self, bytes: u64) {
        let mut sum = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        *sum += bytes;
        self.watch.sent(*sum, self.of);
    }
}

pub(super) fn ask(
    channel: &mut dyn Channel,
    request: &Request,
    silence: Duration,
) -> Result<Reply> {
    match say(channel, request) {
        Ok(()) => hear(channel, silence),
        Err(error) => Err(last_word(channel, error)),
    }
}

/// The reason that a server may have sent before it closed the connection.
pub(super) fn last_word(channel: &mut dyn Channel, error: Error) -> Error {
    match hear(channel, Duration::from_secs(1)) {
        Ok(reply @ (Reply::Failed { .. } | Reply::Stopping { .. })) => unexpected(&reply),
        _ => error,
    }
}

/// Announces a job; returns once the server takes its data.
pub(super) fn start(channel: &mut dyn Channel, request: &Request, silence: Duration) -> Result<()> {
    match ask(channel, request, silence)? {
        Reply::Send => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// Waits for the end of a job.
pub(super) fn outcome(
    party: usize,
    channel: &mut dyn Channel,
    silence: Duration,
    watch: &dyn Watch,
    joint: &Joint,
) -> Result<Reply> {
    let mut over = None;
    loop {
        match hear(channel, silence)? {
            // What the servers say of one of them names it already.
            Reply::Failed { reason } if reason.starts_with("party ") => {
                return Err(Error::refused("servers", reason));
            }
            Reply::Failed { reason } => return Err(Error::refused(name_of(party), reason)),
            Reply::Cheated { suspects, step } => {
                return Err(Error::Cheated(vec![Accusation { by: party, suspects, step }]));
            }
            Reply::Waiting { before: Some(before) } => {
                watch.word(&format!("waiting for {before} jobs before this one"));
            }
            Reply::Waiting { before: None } => {}
            Reply::Working(place) => watch.works(&place),
            end @ (Reply::Done | Reply::Result { .. }) => return Ok(end),
            other => return Err(unexpected(&other)),
        }
        if joint.over.load(Ordering::Acquire) {
            let since = *over.get_or_insert_with(Instant::now);
            if !joint.is_accused() || since.elapsed() > ACCUSATIONS {
                return Err(Error::Internal("the job has failed at another server".to_owned()));
            }
        }
    }
}

/// Reads what a server releases of a job's results.
pub(super) fn result(
    party: usize,
    channel: &mut dyn Channel,
    silence: Duration,
    reply: Reply,
) -> Result<(Vec<Released>, Cost)> {
    let Reply::Result { outputs, next, cost } = reply else {
        return Err(Error::refused(name_of(party), "it returned no result"));
    };
    if !next.is_empty() && outputs.len() != next.len() {
        return Err(Error::refused(name_of(party), "it returned an incomplete result"));
    }
    let shapes = check_shapes(&outputs, RESULT)?;
    let pace = &mut Pace::frames(silence);
    let mut vouched = next.into_iter().map(|digest| *digest.as_bytes());
    let released = shapes.iter().map(|shape| {
        let words = receive_tensor(channel, shape, pace)?;
        Ok(Released { words, vouched: vouched.next() })
    });
    Ok((released.collect::<Result<Vec<_>>>()?, *cost))
}

/// Puts together what each server released of several results.
pub(crate) fn reveal_all(
    sharing: &dyn Sharing,
    released: Vec<Vec<Released>>,
) -> Result<Vec<Tensor>> {
    let count = released.first().map_or(0, Vec::len);
    if released.iter().any(|each| each.len() != count) {
        return Err(Error::refused("servers", "they returned different numbers of results"));
    }
    let mut released: Vec<_> = released.into_iter().map(Vec::into_iter).collect();
    let one = |_| {
        let parts: Vec<_> = released.iter_mut().filter_map(Iterator::next).collect();
        sharing.reveal(&parts).map_err(|error| Error::refused_parcel("servers", error))
    };
    (0..count).map(one).collect()
}

/// The answer of all servers, if they agree.
pub(super) fn agreed<T: PartialEq>(told: &[T]) -> Option<&T> {
    let (first, others) = told.split_first()?;
    others.iter().all(|other| other == first).then_some(first)
}

pub(super) fn done(reply: Reply) -> Result<()> {
    match reply {
        Reply::Done => Ok(()),
        other => Err(unexpected(&other)),
    }
}

pub(super) fn name_of(party: usize) -> String {
    format!("party {party}")
}

pub(super) fn unexpected(reply: &Reply) -> Error {
    let text = match reply {
        Reply::Failed { reason } => return Error::refused("servers", reason),
        Reply::Stopping { party } => return Error::Stopping { party: *party },
        Reply::Result { .. } => "a result".to_owned(),
        other => format!("{other:?}").chars().take(80).collect(),
    };
    let advice = "run the same program on all machines";
    Error::refused("server", format_args!("answered with {text}; {advice}"))
}
