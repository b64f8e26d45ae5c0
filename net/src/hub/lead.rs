//! The event loop of an endpoint: one dedicated thread, helped by threads that wait.
//!
//! A thread that sends writes to the socket itself, as much as the socket takes at once. A thread
//! that receives reads the socket itself, and no further than the message it wants. So a message
//! needs no change of threads between the socket and its receiver, and the memory it came through
//! is still in the cache. If nothing is there, the receiver gives way to other threads a few times
//! (`patience`), and then leads. It takes the poll's lock, waits for the sockets and serves those
//! that are ready. If many threads wait, each for one client, they do not lead but sleep, each in a
//! separate [`Parker`]. A message on a link wakes only the thread that uses that link. The
//! endpoint's thread does what the others leave undone while they compute. It looks once a
//! millisecond whether they still lead, and sleeps while one of them waits for the sockets for
//! long.

use std::{
    io,
    sync::{Arc, MutexGuard, TryLockError, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use mio::Token;

use super::{Hub, LISTENER, Poller, TICK, WAKER, lock};
use crate::{
    link::{End, Link, Phase},
    parker::{Change, Parker},
};

/// The time for which the endpoint's thread leaves the lead to threads that waited a moment ago.
const LEAVE: Duration = Duration::from_millis(1);

/// Longest sleep of a thread that may lead before it looks again whether it has been cancelled.
const NAP: Duration = Duration::from_millis(100);

/// The number of times that the endpoint's thread finds the same leader waiting before it sleeps
/// for longer.
const LOOKS: u32 = 16;

impl Hub {
    /// Waits until `ready` returns an answer, or until the given time. The thread asks `ready`
    /// again after each change of the given kind on a link or in a lobby that has the parker.
    pub(crate) fn wait<T>(
        &self,
        parker: &Arc<Parker>,
        change: Change,
        until: Option<Instant>,
        ready: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        parker.want(change);
        let mut led = false;
        let answer = self.wait_or_lead(parker, until, &mut led, ready);
        parker.want_nothing();
        if led {
            self.leave();
        }
        answer
    }

    fn wait_or_lead<T>(
        &self,
        parker: &Arc<Parker>,
        until: Option<Instant>,
        led: &mut bool,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        loop {
            if let Some(answer) = ready() {
                return Some(answer);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return None;
            }
            if !parker.leads {
                parker.sleep(left);
                continue;
            }
            let nap = left.map_or(NAP, |left| left.min(NAP));
            match self.try_lead() {
                Some(mut poller) => {
                    *led = true;
                    self.take_turn(&mut poller, nap);
                }
                None => self.sleep(parker, nap),
            }
        }
    }

    /// Leads for one round, as a thread that waits.
    fn take_turn(&self, poller: &mut Poller, longest: Duration) {
        if self.lead(poller, longest) {
            self.turns.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn try_lead(&self) -> Option<MutexGuard<'_, Poller>> {
        match self.poller.try_lock() {
            Ok(poller) => Some(poller),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Sleeps until something has come, or the leader leaves, or for a while.
    fn sleep(&self, parker: &Arc<Parker>, nap: Duration) {
        lock(&self.candidates).push(parker.clone());
        parker.sleep(Some(nap));
        lock(&self.candidates).retain(|other| !Arc::ptr_eq(other, parker));
    }

    /// Wakes the thread that uses a link if it waits for this change.
    pub(super) fn wake_user(&self, link: &Link, change: Change) {
        if let Some(parker) = link.parker.get() {
            self.wake(parker, change);
        }
    }

    pub(super) fn wake(&self, parker: &Parker, change: Change) {
        if parker.wake(change) {
            self.wakes.fetch_add(1, Ordering::Relaxed);
            self.woken_leaders.fetch_add(u64::from(parker.leads), Ordering::Relaxed);
        }
    }

    /// A thread that led goes its way: another that waits leads instead, if there is one, else the
    /// endpoint's own sees to it that nothing is left undone.
    fn leave(&self) {
        let next = lock(&self.candidates).pop();
        if let Some(next) = next {
            self.wake(&next, Change::ANY);
        }
        self.hand_over();
        self.rest.left();
    }

    /// Takes in what the socket of a link has now, without waiting for the poll. True if that is
    /// something.
    pub(crate) fn look(&self, link: &Arc<Link>) -> bool {
        let Some(mut wire) = link.try_wire() else { return false };
        if wire.phase != Phase::Open {
            return false;
        }
        let Some(stream) = &mut wire.stream else { return false };
        stream.look_again();
        self.turns.fetch_add(1, Ordering::Relaxed);
        let came = self.serve(link, &mut wire);
        drop(wire);
        self.hand_over();
        came
    }

    /// Serves what is ready now, if no thread leads.
    pub(crate) fn glance(&self) {
        if let Some(mut poller) = self.try_lead() {
            self.take_turn(&mut poller, Duration::ZERO);
            drop(poller);
            self.leave();
        }
    }

    /// Sees to it that what this thread leaves undone is done if it does not come back soon.
    pub(super) fn hand_over(&self) {
        let urgent = !lock(&self.ready).is_empty();
        let any = urgent || !lock(&self.unfinished).is_empty();
        if urgent || any && !self.watching.load(Ordering::SeqCst) {
            self.kick();
        }
    }

    /// Wakes a thread to look at the links that are ready.
    pub(super) fn kick(&self) {
        if self.polling.load(Ordering::SeqCst) {
            // A failure leaves the next tick, a tenth of a second later.
            let _ = self.waker.wake();
        } else {
            self.rest.wake();
        }
    }

    /// Has a link served soon by the thread that leads.
    pub(crate) fn schedule(&self, link: &Link) {
        lock(&self.ready).push(link.token);
        self.kick();
    }

    /// One round of the event loop: serves what is ready, and waits for more if nothing is. True if
    /// there was something.
    pub(super) fn lead(&self, poller: &mut Poller, longest: Duration) -> bool {
        self.polling.store(true, Ordering::SeqCst);
        let mut ready = std::mem::take(&mut *lock(&self.ready));
        ready.extend_from_slice(&lock(&self.unfinished));
        let wait = if ready.is_empty() { longest.min(TICK) } else { Duration::ZERO };
        let outcome = poller.poll.poll(&mut poller.events, Some(wait));
        self.polling.store(false, Ordering::SeqCst);
        if let Err(error) = outcome
            && error.kind() != io::ErrorKind::Interrupted
        {
            tracing::error!(%error, "waiting for sockets failed");
        }
        let some = !ready.is_empty() || !poller.events.is_empty();
        for token in ready {
            self.serve_token(token, None);
        }
        for event in poller.events.iter() {
            match event.token() {
                WAKER => {}
                LISTENER => self.accept(),
                Token(token) => self.serve_token(token, Some(event)),
            }
        }
        poller.events.clear();
        self.tick();
        some
    }

    pub(super) fn link(&self, token: usize) -> Option<Arc<Link>> {
        lock(&self.links).all.get(&token).cloned()
    }

    pub(crate) fn all_links(&self) -> Vec<Arc<Link>> {
        lock(&self.links).all.values().cloned().collect()
    }

    pub(super) fn serve_token(&self, token: usize, event: Option<&mio::event::Event>) {
        let Some(link) = self.link(token) else { return };
        let mut wire = link.wire();
        if let (Some(event), Some(stream)) = (event, &mut wire.stream) {
            stream.ready(event);
        }
        self.serve(&link, &mut wire);
    }

    /// The endpoint's own thread.
    pub(super) fn run(&self) {
        let mut seen = 0;
        let mut looks = 0;
        self.watching.store(true, Ordering::SeqCst);
        while !self.may_stop() {
            let turns = self.turns.load(Ordering::Relaxed);
            let others_lead = std::mem::replace(&mut seen, turns) != turns;
            if others_lead && lock(&self.ready).is_empty() {
                looks = 0;
                self.tick();
                thread::park_timeout(LEAVE);
                continue;
            }
            let Some(mut poller) = self.try_lead() else {
                if self.polling.load(Ordering::SeqCst) && !lock(&self.unfinished).is_empty() {
                    let _ = self.waker.wake();
                }
                looks += 1;
                if looks < LOOKS {
                    thread::park_timeout(LEAVE);
                } else {
                    self.rest();
                }
                continue;
            };
            looks = 0;
            let woken = self.woken_leaders.load(Ordering::Relaxed);
            self.watching.store(false, Ordering::SeqCst);
            self.lead(&mut poller, TICK);
            self.watching.store(true, Ordering::SeqCst);
            drop(poller);
            if self.woken_leaders.load(Ordering::Relaxed) != woken && lock(&self.ready).is_empty() {
                // The thread that waited leads its next wait itself, which is faster.
                thread::park_timeout(LEAVE);
            }
        }
        for link in self.all_links() {
            self.finish(&link, &mut link.wire(), End::Dropped);
        }
        self.stop_listening();
    }

    /// The endpoint's thread sleeps until the leader leaves, or for a tick.
    fn rest(&self) {
        self.watching.store(false, Ordering::SeqCst);
        self.rest.rest(TICK, || self.try_lead().is_none());
        self.watching.store(true, Ordering::SeqCst);
    }

    fn may_stop(&self) -> bool {
        let draining = |link: &Arc<Link>| link.wire().phase == Phase::Draining;
        self.stop.load(Ordering::SeqCst) && !self.all_links().iter().any(draining)
    }
}
