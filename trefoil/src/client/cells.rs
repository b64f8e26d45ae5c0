//! A client's choice among the cells of its servers: of two at random, the one with less work waiting.

use std::{
    collections::HashMap,
    thread,
    time::{Duration, Instant},
};

use mpc_core::Security;

use super::{
    Client, Dialler,
    connect::{PAUSE, open_all},
    status,
};
use crate::{
    base::{Error, Id, Result},
    config::ClientConfig,
    wire::{Channel, LOST, Link},
};

/// The time for which a cell that could not be used is left out.
const AVOIDED: Duration = Duration::from_secs(10);

/// The number of times that a job goes on to another cell, so that one which brings servers down does so to few.
pub(super) const MOVES: usize = 8;

/// The cells of a client's servers.
pub(super) struct Cells {
    dialler: Dialler,
    config: ClientConfig,
    count: u16,
    /// The cell in use.
    current: u16,
    /// Cells that could not be used, and when.
    avoided: HashMap<u16, Instant>,
}

/// Connections to the servers of a cell, and the seconds of work that wait there.
type Opened = (Vec<Box<dyn Channel>>, f64);

impl Cells {
    pub(super) fn new(config: &ClientConfig, count: u16) -> Result<Self> {
        let (dialler, config, avoided) = (Dialler::new(config)?, config.clone(), HashMap::new());
        Ok(Self { dialler, config, count, current: 0, avoided })
    }

    /// Connects to a cell that has little to do. Tries until the limit, since cells may be about to start.
    ///
    /// # Errors
    /// [`Error::Unreachable`] that says why the last one could not be used.
    pub(super) fn connect(&mut self) -> Result<Vec<Box<dyn Channel>>> {
        let (began, mut pause) = (Instant::now(), PAUSE);
        loop {
            match self.attempt() {
                Ok(channels) => return Ok(channels),
                Err(error) if began.elapsed() + pause >= self.config.connect_limit() => {
                    return Err(error);
                }
                Err(_) => thread::sleep(pause),
            }
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// Connects to another cell than the one in use, which is left out for a while.
    fn leave(&mut self) -> Result<Vec<Box<dyn Channel>>> {
        self.avoided.insert(self.current, Instant::now());
        self.connect()
    }

    /// Tries all cells that have not failed lately; if none can be used, the others.
    fn attempt(&mut self) -> Result<Vec<Box<dyn Channel>>> {
        self.avoided.retain(|_, since| since.elapsed() < AVOIDED);
        let all = 0..self.count;
        let (mut avoided, mut left): (Vec<u16>, Vec<u16>) =
            all.partition(|cell| self.avoided.contains_key(cell));
        let mut last = Error::Internal("there is no cell".to_owned());
        loop {
            if left.is_empty() {
                left.append(&mut avoided);
            }
            let mut two = Vec::new();
            while two.len() < 2 && !left.is_empty() {
                two.push(left.swap_remove(random(left.len())?));
            }
            if two.is_empty() {
                return Err(last);
            }
            let opened = self.open(&two);
            let mut best: Option<(u16, Opened)> = None;
            for (cell, opened) in two.into_iter().zip(opened) {
                match opened {
                    Ok(opened) if best.as_ref().is_none_or(|(_, best)| opened.1 < best.1) => {
                        best = Some((cell, opened));
                    }
                    Ok(_) => {}
                    Err(error) => {
                        self.avoided.insert(cell, Instant::now());
                        last = error;
                    }
                }
            }
            if let Some((cell, (channels, _))) = best {
                self.current = cell;
                return Ok(channels);
            }
        }
    }

    /// Connects to cells, to all at once.
    fn open(&self, cells: &[u16]) -> Vec<Result<Opened>> {
        let silence = self.config.silence_limit();
        let open = |cell: u16| {
            let dialler = self.dialler.of(self.config.addresses(Some(cell)));
            let channels = open_all(&dialler, Dialler::dial_once);
            let mut channels = channels.into_iter().collect::<Result<Vec<_>>>()?;
            // Party 0 keeps the order of all jobs.
            let Some(first) = channels.first_mut() else { return Ok((channels, 0.0)) };
            let state = status(&mut **first, silence)?;
            match state.link {
                _ if state.stopping => Err(Error::Stopping { party: state.party }),
                Link::Up => Ok((channels, state.waiting_seconds)),
                Link::Down { reason } => {
                    let server = format!("cell {cell}");
                    Err(Error::Unreachable { server, reason: format!("not linked: {reason}") })
                }
            }
        };
        thread::scope(|scope| {
            let threads: Vec<_> =
                cells.iter().map(|&cell| scope.spawn(move || open(cell))).collect();
            let lost = |_| Err(Error::Internal("a connection attempt was lost".to_owned()));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(lost)).collect()
        })
    }
}

impl Client {
    /// Does something that may be done twice, in another cell if the one in use is lost meanwhile. What is shared for a
    /// job is shared afresh each time: no shares leave this machine twice.
    pub(super) fn in_any_cell<T>(
        &mut self,
        mut act: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let mut moves = 0;
        loop {
            match act(self) {
                Err(error) if moves < MOVES && self.move_on(&error)? => moves += 1,
                outcome => return outcome,
            }
        }
    }

    /// Makes sure that the cell in use is there, before something is done that must not be done twice.
    pub(super) fn find_cell(&mut self) -> Result<()> {
        if self.cells.is_none() {
            return Ok(());
        }
        self.in_any_cell(|client| client.ping().map(drop))
    }

    /// Goes on to another cell if an error is of the one in use, not of what was asked. Says whether it did.
    ///
    /// # Errors
    /// Those of a connection, if no cell can be reached.
    pub(super) fn move_on(&mut self, error: &Error) -> Result<bool> {
        let Some(cells) = self.cells.as_mut().filter(|_| is_lost(error)) else { return Ok(false) };
        self.channels = cells.leave()?;
        if cells.config.security == Security::Checked {
            self.require_proofs()?;
        }
        Ok(true)
    }
}

/// True if a cell was lost or is being stopped: another one can do what this one did not.
fn is_lost(error: &Error) -> bool {
    match error {
        Error::Unreachable { .. } | Error::Stopping { .. } => true,
        Error::Refused { reason, .. } => reason.contains(LOST),
        _ => false,
    }
}

/// A number below `end`.
fn random(end: usize) -> Result<usize> {
    let [low, high, ..] = Id::random()?.bytes();
    Ok(usize::from(u16::from_le_bytes([low, high])) % end)
}
