//! The event loop of an endpoint: one thread of its own, helped by threads that wait.
//!
//! A thread that sends writes to the socket itself, as much as that takes at once. One that receives
//! reads the socket itself, and no further than the message it wants, so that a message goes from the
//! socket to its receiver without a change of threads and while the memory it came through is still in
//! the cache. If nothing is there, the receiver gives way to other threads a few times (`patience`),
//! and then leads: whoever holds the poll's lock waits for the sockets and serves those that are
//! ready. The endpoint's own thread does what the others leave undone while they compute: it looks
//! once a millisecond whether they still lead.

use std::{
    io,
    sync::{Arc, MutexGuard, PoisonError, TryLockError, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use mio::Token;

use super::{Hub, LISTENER, Poller, TICK, WAKER, lock};
use crate::link::{End, Link, Phase};

/// How long the endpoint's thread leaves the lead to threads that waited a moment ago.
const LEAVE: Duration = Duration::from_millis(1);

/// Longest sleep of a waiting thread before it looks at its limits again.
const NAP: Duration = Duration::from_millis(100);

impl Hub {
    /// Waits until `ready` has an answer, or until the given time. Leads meanwhile if nobody does.
    pub(crate) fn wait<T>(
        &self,
        until: Option<Instant>,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let mut led = false;
        loop {
            let seen = self.news.load(Ordering::SeqCst);
            if let Some(answer) = ready() {
                if led {
                    self.hand_over();
                }
                return Some(answer);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return None;
            }
            let nap = left.map_or(NAP, |left| left.min(NAP));
            match self.try_lead() {
                Some(mut poller) => {
                    led = true;
                    self.turns.fetch_add(1, Ordering::Relaxed);
                    self.lead(&mut poller, nap);
                }
                None => self.sleep(seen, nap),
            }
        }
    }

    fn try_lead(&self) -> Option<MutexGuard<'_, Poller>> {
        match self.poller.try_lock() {
            Ok(poller) => Some(poller),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Sleeps until there is news, unless there has been since `seen`.
    fn sleep(&self, seen: u64, nap: Duration) {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let guard = lock(&self.bell.0);
        if self.news.load(Ordering::SeqCst) == seen {
            let woken = self.bell.1.wait_timeout(guard, nap);
            drop(woken.unwrap_or_else(PoisonError::into_inner));
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }

    /// Tells waiting threads to look again.
    pub(crate) fn notify(&self) {
        self.news.fetch_add(1, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.bell.0));
            self.bell.1.notify_all();
        }
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

    /// Serves what is ready now, if nobody leads.
    pub(crate) fn glance(&self) {
        if let Some(mut poller) = self.try_lead() {
            self.turns.fetch_add(1, Ordering::Relaxed);
            self.lead(&mut poller, Duration::ZERO);
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

    /// Makes somebody look at the links that are ready.
    pub(super) fn kick(&self) {
        if self.polling.load(Ordering::SeqCst) {
            // A failure leaves the next tick, a tenth of a second later.
            let _ = self.waker.wake();
        } else if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Has a link served soon by whoever leads.
    pub(crate) fn schedule(&self, link: &Link) {
        lock(&self.ready).push(link.token);
        self.kick();
    }

    /// One round of the event loop: serves what is ready, and waits for more if nothing is.
    pub(super) fn lead(&self, poller: &mut Poller, longest: Duration) {
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
    }

    pub(super) fn link(&self, token: usize) -> Option<Arc<Link>> {
        lock(&self.links).get(&token).cloned()
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
        self.watching.store(true, Ordering::SeqCst);
        while !self.may_stop() {
            let turns = self.turns.load(Ordering::Relaxed);
            let others_lead = std::mem::replace(&mut seen, turns) != turns;
            if others_lead && lock(&self.ready).is_empty() {
                self.tick();
                thread::park_timeout(LEAVE);
                continue;
            }
            let Some(mut poller) = self.try_lead() else {
                if self.polling.load(Ordering::SeqCst) && !lock(&self.unfinished).is_empty() {
                    let _ = self.waker.wake();
                }
                thread::park_timeout(LEAVE);
                continue;
            };
            let news = self.news.load(Ordering::SeqCst);
            self.watching.store(false, Ordering::SeqCst);
            self.lead(&mut poller, TICK);
            self.watching.store(true, Ordering::SeqCst);
            drop(poller);
            let brought_news = self.news.load(Ordering::SeqCst) != news;
            if brought_news
                && self.waiters.load(Ordering::SeqCst) > 0
                && lock(&self.ready).is_empty()
            {
                // Whoever waited leads its next wait itself, which is faster.
                thread::park_timeout(LEAVE);
            }
        }
        let links: Vec<_> = lock(&self.links).values().cloned().collect();
        for link in links {
            self.finish(&link, &mut link.wire(), End::Dropped);
        }
        *lock(&self.listener) = None;
    }

    fn may_stop(&self) -> bool {
        let draining = |link: &Arc<Link>| link.wire().phase == Phase::Draining;
        self.stop.load(Ordering::SeqCst) && !lock(&self.links).values().any(draining)
    }
}
