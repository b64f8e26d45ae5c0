//! A place where one thread sleeps until something happens that concerns it.

use std::time::Duration;

use crate::sync::{AtomicU8, Condvar, Mutex, Ordering, PoisonError};

/// The events that a thread may wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change(u8);

impl Change {
    const NONE: Self = Self(0);
    /// A message, a hello, a peer or the end of a link has come.
    pub(crate) const ARRIVED: Self = Self(1);
    /// There is room to send, or all has been sent.
    pub(crate) const ROOM: Self = Self(2);
    /// Either change.
    pub(crate) const ANY: Self = Self(3);
}

/// A place where one thread at a time sleeps: the user of a session or of a channel, or a thread
/// that waits for arrivals. A link has the parker of the thread that uses it, so that an event on
/// the link wakes only that thread.
pub(crate) struct Parker {
    /// True if its thread serves the endpoint's sockets while it waits, unless another thread does.
    pub(crate) leads: bool,
    /// The [`Change`]s that its thread waits for now.
    wants: AtomicU8,
    state: Mutex<State>,
    condvar: Condvar,
}

#[derive(Default)]
struct State {
    asleep: bool,
    /// Woken since it last slept.
    woken: bool,
}

impl Parker {
    /// A parker for a thread that serves sockets while it waits.
    pub(crate) fn leading() -> Self {
        Self {
            leads: true,
            wants: AtomicU8::new(Change::NONE.0),
            state: Mutex::default(),
            condvar: Condvar::new(),
        }
    }

    /// A parker for one of possibly many threads, which only sleeps.
    pub(crate) fn sleeping() -> Self {
        Self { leads: false, ..Self::leading() }
    }

    /// Sets the change that the thread waits for from now on. The thread calls this before it looks
    /// whether the change has already happened: anything later wakes it.
    pub(crate) fn want(&self, change: Change) {
        self.wants.store(change.0, Ordering::SeqCst);
    }

    /// The thread stops waiting.
    pub(crate) fn want_nothing(&self) {
        self.want(Change::NONE);
    }

    /// Has the thread look again if it waits for this. To be called after the change was made under a
    /// lock that the thread takes when it looks. True if it was asleep.
    pub(crate) fn wake(&self, change: Change) -> bool {
        if self.wants.load(Ordering::SeqCst) & change.0 == 0 {
            return false;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let first = !std::mem::replace(&mut state.woken, true);
        if first && state.asleep {
            self.condvar.notify_one();
        }
        first && state.asleep
    }

    /// Sleeps until it is woken, unless it was since it last slept; at most for the given time.
    pub(crate) fn sleep(&self, longest: Option<Duration>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.woken {
            state.asleep = true;
            state = match longest {
                Some(longest) => {
                    let woken = self.condvar.wait_timeout(state, longest);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.condvar.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
            state.asleep = false;
        }
        state.woken = false;
    }
}
