//! Decides if a thread that has nothing to do stays awake for a moment.

use std::{
    thread,
    time::{Duration, Instant},
};

/// The number of times that it gives way to other threads before it sleeps. Each time takes less
/// than half a microsecond on a 2019 server if no other thread wants the core; falling asleep and
/// waking up takes five to ten.
const TIMES: u32 = 24;

/// A wait that took longer was not worth staying awake for. Other threads compute on this core, and
/// the system gives it back late to a thread that gave it away.
const LONG: Duration = Duration::from_micros(50);

/// The most waits that go to sleep at once before the next one that stays awake.
const REST: u32 = 1023;

/// Decides from the last waits how to begin the next one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Patience {
    /// Waits that go to sleep at once before the next that does not.
    resting: u32,
    /// The length of the last such rest.
    rest: u32,
}

/// A wait that has begun.
pub(crate) struct Vigil {
    began: Option<Instant>,
    times: u32,
}

impl Patience {
    pub(crate) fn begin(&mut self) -> Vigil {
        Vigil { began: None, times: 0 }
    }

    /// Gives way to other threads for a moment. False if it is better to sleep.
    pub(crate) fn stay(&mut self, vigil: &mut Vigil) -> bool {
        let began = match vigil.began {
            Some(began) => began,
            None if self.resting > 0 => {
                self.resting -= 1;
                return false;
            }
            None => *vigil.began.insert(Instant::now()),
        };
        if vigil.times >= TIMES || began.elapsed() > LONG {
            self.lose();
            return false;
        }
        vigil.times += 1;
        thread::yield_now();
        true
    }

    /// Ends a wait: the event has come.
    pub(crate) fn end(&mut self, vigil: &Vigil) {
        match vigil.began {
            None => {}
            Some(began) if began.elapsed() > LONG => self.lose(),
            Some(_) => self.rest = 0,
        }
    }

    fn lose(&mut self) {
        self.rest = (2 * self.rest + 1).min(REST);
        self.resting = self.rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits_in_vain(patience: &mut Patience) -> u32 {
        let mut vigil = patience.begin();
        (0..).take_while(|_| patience.stay(&mut vigil)).count() as u32
    }

    #[test]
    fn waiting_in_vain_is_soon_given_up() {
        let mut patience = Patience::default();
        let awake = (0..10_000).filter(|_| waits_in_vain(&mut patience) > 0).count();
        // After rests of 1, 3, 7 ... 511 waits, and of 1023 from then on.
        assert!((15..=20).contains(&awake), "{awake}");
    }

    #[test]
    fn what_comes_at_once_is_waited_for_awake() {
        let mut patience = Patience::default();
        waits_in_vain(&mut patience);
        assert_eq!(waits_in_vain(&mut patience), 0);
        // A machine that is busy may take long over it each time.
        for _ in 0..100_000 {
            let mut vigil = patience.begin();
            let awake = patience.stay(&mut vigil);
            patience.end(&vigil);
            if awake && patience.resting == 0 {
                return;
            }
        }
        panic!("never awake and in time");
    }
}
