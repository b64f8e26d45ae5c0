//! Peers that have introduced themselves and wait to be taken.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{
    hello::Hello,
    link::{End, Link},
    parker::Parker,
};

/// The most arrivals that wait to be accepted; further ones are refused.
const LONGEST: usize = 64;

/// A peer that has introduced itself.
pub(crate) struct Arrival {
    pub(crate) link: Arc<Link>,
    pub(crate) hello: Hello,
}

/// Arrivals of one kind, and the threads that wait for them.
#[derive(Default)]
pub(crate) struct Lobby {
    arrivals: Mutex<Vec<Arrival>>,
    takers: Mutex<Vec<Arc<Parker>>>,
}

/// A thread's registration for news of arrivals, until it is dropped.
pub(crate) struct Taker<'a> {
    lobby: &'a Lobby,
    parker: Arc<Parker>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lobby {
    /// Adds a peer that waits. The caller then wakes the threads that take arrivals:
    /// [`Self::takers`].
    ///
    /// # Errors
    /// [`End::Violation`] if too many wait.
    pub(super) fn add(&self, arrival: Arrival) -> Result<(), End> {
        let mut arrivals = lock(&self.arrivals);
        arrivals.retain(|arrival| arrival.link.end().is_none());
        if arrivals.len() >= LONGEST {
            return Err(End::Violation("a hello while too many wait".to_owned()));
        }
        arrivals.push(arrival);
        Ok(())
    }

    /// The parkers of the threads that wait for arrivals.
    pub(super) fn takers(&self) -> Vec<Arc<Parker>> {
        lock(&self.takers).clone()
    }

    /// Registers a thread, which is woken at each arrival from now on.
    pub(crate) fn attend(&self, parker: &Arc<Parker>) -> Taker<'_> {
        lock(&self.takers).push(parker.clone());
        Taker { lobby: self, parker: parker.clone() }
    }

    /// Takes the first arrival of this kind that is still there.
    pub(crate) fn take(&self, wanted: impl Fn(&Arrival) -> bool) -> Option<Arrival> {
        let mut arrivals = lock(&self.arrivals);
        arrivals.retain(|arrival| arrival.link.end().is_none());
        let found = arrivals.iter().position(wanted)?;
        Some(arrivals.remove(found))
    }

    /// The first answer of `look` that is not `None`, over the arrivals in their order.
    pub(crate) fn find<T>(&self, look: impl Fn(&Arrival) -> Option<T>) -> Option<T> {
        lock(&self.arrivals).iter().find_map(look)
    }
}

impl Drop for Taker<'_> {
    fn drop(&mut self) {
        lock(&self.lobby.takers).retain(|parker| !Arc::ptr_eq(parker, &self.parker));
    }
}
