//! A client's allowance of a day, leased from the store in blocks, so that all cells together keep to its limit.
//!
//! A worker takes 1 % of what is left, or what it needs if that is more, and counts down what it has taken. So the store
//! is asked seldom, and a client is never given more than its limit, whichever cells it asks. A worker that stops gives
//! back what it has left; one that is killed takes it along.

use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use super::ledger::{DAYS, Ledger};
use crate::base::{Digest, Result};

/// Seconds of a day.
const DAY: u64 = 86_400;

/// The part of what is left that is leased at once.
const BLOCKS: u64 = 100;

/// An amount that a client may use each day (UTC).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowance<'a> {
    /// The name of the unit.
    pub what: &'static str,
    pub client: &'a str,
    /// The model, where each counts for itself.
    pub model: &'a str,
    /// The amount.
    pub limit: u64,
}

/// The amounts that this worker has leased and not used.
pub(crate) struct Leases {
    ledger: Ledger,
    held: Mutex<Held>,
    /// Days since 1970.
    today: Box<dyn Fn() -> u64 + Send + Sync>,
}

#[derive(Debug, Default)]
struct Held {
    day: u64,
    /// Negative where more was used than leased, since it was not known before.
    left: HashMap<String, i64>,
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases").finish_non_exhaustive()
    }
}

impl Allowance<'_> {
    fn key(&self) -> String {
        Digest::of(&[self.what.as_bytes(), self.client.as_bytes(), self.model.as_bytes()]).letters()
    }
}

impl Leases {
    pub(crate) fn new(ledger: Ledger) -> Self {
        Self::with_clock(ledger, || {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            now.as_secs() / DAY
        })
    }

    /// Leases of days that something else counts.
    pub(crate) fn with_clock(
        ledger: Ledger,
        today: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Self {
        Self { ledger, held: Mutex::default(), today: Box::new(today) }
    }

    /// Makes sure that `amount` can be used here, and leases more if need be. If the day's limit does not allow it, the
    /// inner error is the amount that was used or is leased by other workers.
    ///
    /// # Errors
    /// [`Error::File`](crate::base::Error::File) or [`Error::Refused`](crate::base::Error::Refused) if the count cannot be read or written; nothing may be used then.
    pub(crate) fn ensure(&self, of: &Allowance<'_>, amount: u64) -> Result<Result<(), u64>> {
        let mut held = self.today();
        let key = of.key();
        let left = held.left.get(&key).copied().unwrap_or_default();
        let needed = i64::try_from(amount).unwrap_or(i64::MAX).saturating_sub(left);
        let Ok(needed @ 1..) = u64::try_from(needed) else { return Ok(Ok(())) };
        let (granted, taken) = self.ledger.update(&folder(held.day), &key, |taken: &mut u64| {
            let free = of.limit.saturating_sub(*taken);
            let block = if needed > free { 0 } else { (free / BLOCKS).max(needed) };
            *taken += block;
            Ok((block, *taken))
        })?;
        if granted == 0 {
            return Ok(Err(taken.saturating_sub(left.max(0) as u64)));
        }
        held.left.insert(key, left.saturating_add_unsigned(granted));
        Ok(Ok(()))
    }

    /// Counts what was used.
    pub(crate) fn spend(&self, of: &Allowance<'_>, amount: u64) {
        let mut held = self.today();
        let left = held.left.entry(of.key()).or_default();
        *left = left.saturating_sub_unsigned(amount);
    }

    /// Gives back what is left, so that other workers can lease it.
    ///
    /// # Errors
    /// As [`Leases::ensure`].
    pub(crate) fn give_back(&self) -> Result<()> {
        let mut held = self.today();
        let day = folder(held.day);
        for (key, left) in std::mem::take(&mut held.left) {
            if left == 0 {
                continue;
            }
            self.ledger.update(&day, &key, |taken: &mut u64| {
                *taken = taken.saturating_add_signed(left.saturating_neg());
                Ok(())
            })?;
        }
        Ok(())
    }

    /// The amounts that are leased today. The counts of days before are forgotten, here and in the store.
    fn today(&self) -> MutexGuard<'_, Held> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let day = (self.today)();
        if held.day != day {
            *held = Held { day, left: HashMap::new() };
            let old = |name: &str| name.parse().is_ok_and(|counted: u64| counted < day);
            if let Err(error) = self.ledger.forget(DAYS, old) {
                tracing::warn!(%error, "what was used on days before is still counted");
            }
        }
        held
    }
}

fn folder(day: u64) -> String {
    format!("{DAYS}/{day}")
}
