//! The sleep of an endpoint's thread while another thread leads.

use std::{sync::OnceLock, time::Duration};

use crate::sync::{AtomicBool, Ordering, Thread, fence, park_timeout};

/// The endpoint's thread, and whether it sleeps until the leader leaves.
#[derive(Default)]
pub(crate) struct Rest {
    thread: OnceLock<Thread>,
    pub(super) resting: AtomicBool,
}

impl Rest {
    /// Names the endpoint's thread, once.
    pub(crate) fn set_thread(&self, thread: Thread) {
        // Set once, by the thread that starts it.
        let _ = self.thread.set(thread);
    }

    /// Wakes the endpoint's thread.
    pub(crate) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Wakes the endpoint's thread if it sleeps until the leader leaves. The caller has led, and let go of the lead.
    ///
    /// A resting thread has set its flag before it found a thread leading, or it finds that no thread leads.
    pub(crate) fn left(&self) {
        fence(Ordering::SeqCst);
        if self.resting.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// The endpoint's thread sleeps until the leader leaves, or for a while, if `is_led` finds that a thread leads.
    pub(crate) fn rest(&self, longest: Duration, is_led: impl FnOnce() -> bool) {
        self.resting.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if is_led() {
            park_timeout(longest);
        }
        self.resting.store(false, Ordering::SeqCst);
    }
}
