//! The waiting of threads, under a model checker: every order in which their steps can follow one another is tried. Where
//! all threads sleep, a wake-up was lost, and the checker ends the test.
//!
//! Time does not pass in the model: a sleep that ends after a while would hide a lost wake-up.

// The endpoint uses more of it.
#[allow(dead_code)]
#[path = "../src/parker.rs"]
mod parker;
#[path = "../src/hub/rest.rs"]
mod rest;

/// The checker's form of `src/sync.rs`.
mod sync {
    use std::{cell::RefCell, time::Duration};

    pub(crate) use loom::sync::{
        Condvar, Mutex,
        atomic::{AtomicBool, AtomicU8, Ordering, fence},
    };
    pub(crate) use std::sync::PoisonError;

    loom::thread_local! {
        static OWN: RefCell<Option<Thread>> = RefCell::new(None);
    }

    /// A thread that can be woken. The checker's own may wake without a cause, which would hide a lost wake-up.
    #[derive(Clone)]
    pub(crate) struct Thread(std::sync::Arc<(Mutex<bool>, Condvar)>);

    impl Thread {
        /// Makes the calling thread one that can be woken.
        pub(crate) fn current() -> Self {
            let thread = Self(std::sync::Arc::new((Mutex::new(false), Condvar::new())));
            OWN.with(|own| own.replace(Some(thread.clone())));
            thread
        }

        pub(crate) fn unpark(&self) {
            let (woken, condvar) = &*self.0;
            *woken.lock().unwrap() = true;
            condvar.notify_one();
        }
    }

    pub(crate) fn park_timeout(_longest: Duration) {
        let thread = OWN.with(|own| own.borrow().clone()).expect("a thread that can be woken");
        let (woken, condvar) = &*thread.0;
        let mut woken = woken.lock().unwrap();
        while !*woken {
            woken = condvar.wait(woken).unwrap();
        }
        *woken = false;
    }
}

use std::time::Duration;

use loom::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use parker::{Change, Parker};
use rest::Rest;

/// Waits as a receiver does: it says what it waits for before it looks.
fn wait(parker: &Parker, change: Change, ready: impl Fn() -> bool) {
    parker.want(change);
    while !ready() {
        parker.sleep(None);
    }
    parker.want_nothing();
}

#[test]
fn a_message_wakes_its_receiver_in_every_order() {
    // Of three threads not all orders can be tried; those in which a thread is held up three times can.
    let mut orders = loom::model::Builder::new();
    orders.preemption_bound = Some(3);
    orders.check(|| {
        let parker = Arc::new(Parker::sleeping());
        let messages = Arc::new(Mutex::new(0));
        let senders = [(); 2].map(|()| {
            let (parker, messages) = (parker.clone(), messages.clone());
            thread::spawn(move || {
                *messages.lock().unwrap() += 1;
                parker.wake(Change::ARRIVED);
            })
        });
        wait(&parker, Change::ARRIVED, || *messages.lock().unwrap() == 2);
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
}

#[test]
fn a_change_of_another_kind_does_not_take_the_place_of_the_one_that_is_waited_for() {
    loom::model(|| {
        let parker = Arc::new(Parker::sleeping());
        let room = Arc::new(Mutex::new(false));
        let (other, made) = (parker.clone(), room.clone());
        let link = thread::spawn(move || {
            other.wake(Change::ARRIVED);
            *made.lock().unwrap() = true;
            other.wake(Change::ROOM);
        });
        wait(&parker, Change::ROOM, || *room.lock().unwrap());
        link.join().unwrap();
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_checker_finds_a_receiver_that_looks_before_it_says_what_it_waits_for() {
    loom::model(|| {
        let parker = Arc::new(Parker::sleeping());
        let message = Arc::new(Mutex::new(false));
        let (other, sent) = (parker.clone(), message.clone());
        let sender = thread::spawn(move || {
            *sent.lock().unwrap() = true;
            other.wake(Change::ARRIVED);
        });
        if !*message.lock().unwrap() {
            parker.want(Change::ARRIVED);
            parker.sleep(None);
        }
        sender.join().unwrap();
    });
}

/// An endpoint's thread that rests until it leads, beside a thread that leads and leaves; `leave` is how it does.
fn endpoint_leads_after(leave: fn(&Rest)) {
    loom::model(move || {
        let rest = Arc::new(Rest::default());
        // The poll's lock, which is only tried. The checker does not let one thread try its own lock while another has it.
        let led = Arc::new(AtomicBool::new(false));
        let take = |led: &AtomicBool| {
            led.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        rest.set_thread(sync::Thread::current());
        let (other, poll) = (rest.clone(), led.clone());
        let leader = thread::spawn(move || {
            if take(&poll) {
                poll.store(false, Ordering::Release);
                leave(&other);
            }
        });
        while !take(&led) {
            rest.rest(Duration::ZERO, || {
                let free = take(&led);
                if free {
                    led.store(false, Ordering::Release);
                }
                !free
            });
        }
        leader.join().unwrap();
    });
}

#[test]
fn the_endpoints_thread_leads_once_the_leader_has_left_in_every_order() {
    endpoint_leads_after(Rest::left);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_checker_finds_a_leader_that_leaves_without_a_word() {
    endpoint_leads_after(|_| {});
}
