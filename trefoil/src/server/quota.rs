//! The use of a server by each client, and its limits.
//!
//! Memory, connections and places in the queue are counted while they are held, by values that give them back when
//! they are dropped. Seconds and answers are counted by the day (UTC), in memory. Each of the three servers counts
//! for itself and a job needs all three. So the restart of one or two servers does not give any client more than its
//! share.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use crate::{
    base::{Error, Result},
    config::Limits,
};

/// Seconds of a day.
const DAY: u64 = 86_400;

/// The use of one server by its clients.
#[derive(Debug)]
pub(super) struct Quotas {
    me: usize,
    limits: Limits,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The amounts that are held now, by client. Clients that hold nothing are left out.
    held: HashMap<String, Held>,
    /// The amounts that were used on `day`, by client.
    used: HashMap<String, Used>,
    /// Days since 1970.
    day: u64,
    connections: usize,
    bytes: u64,
    /// The sizes of the current models, by name.
    models: HashMap<String, Kept>,
}

#[derive(Debug, Default, PartialEq)]
struct Held {
    connections: usize,
    jobs: usize,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Used {
    time: Duration,
    /// Answers by model.
    answers: HashMap<String, u64>,
}

/// A model on disk.
#[derive(Debug)]
struct Kept {
    owner: String,
    bytes: u64,
}

/// A connection of a client. It counts until it is dropped.
#[derive(Debug)]
pub(super) struct Connected(Arc<Quotas>, String);

/// A place for a job of a client, and room for its parts. Both are given back when it is dropped.
#[derive(Debug)]
pub(super) struct Reserved {
    quotas: Arc<Quotas>,
    client: String,
    bytes: u64,
}

impl Quotas {
    pub(super) fn new(me: usize, limits: Limits) -> Self {
        Self { me, limits, inner: Mutex::default() }
    }

    /// Takes in a connection.
    pub(super) fn connect(self: &Arc<Self>, client: &str) -> Result<Connected> {
        let mut inner = self.lock();
        let all = inner.connections;
        let mine = inner.held.get(client).map_or(0, |held| held.connections);
        if all >= self.limits.clients {
            let reason = format!("{all} clients are connected already; try again later");
            return Err(self.full(reason));
        }
        if mine >= self.limits.client_connections {
            let reason = format!(
                "client {client} has {mine} connections already (limits.client_connections); close some"
            );
            return Err(self.full(reason));
        }
        inner.connections += 1;
        inner.held.entry(client.to_owned()).or_default().connections += 1;
        Ok(Connected(self.clone(), client.to_owned()))
    }

    /// Keeps a place for a job, and room for `bytes` of its parts.
    pub(super) fn reserve(self: &Arc<Self>, client: &str, bytes: u64) -> Result<Reserved> {
        let limits = &self.limits;
        let mut inner = self.lock();
        let (jobs, mine) = inner.held.get(client).map_or((0, 0), |held| (held.jobs, held.bytes));
        if jobs >= limits.client_jobs {
            let reason = format!(
                "client {client} has {jobs} jobs under way (limits.client_jobs); wait for one to end"
            );
            return Err(self.full(reason));
        }
        let fits =
            |held: u64, mib: u64| held.checked_add(bytes).is_some_and(|all| all <= mib << 20);
        if !fits(mine, limits.client_memory_mib) {
            let reason = format!(
                "no room for a job of {} MiB beside {} MiB of client {client}'s waiting ones \
                 (limits.client_memory_mib is {}); send less at once",
                bytes >> 20,
                mine >> 20,
                limits.client_memory_mib
            );
            return Err(self.full(reason));
        }
        if !fits(inner.bytes, limits.memory_mib) {
            let reason = format!(
                "no room for a job of {} MiB beside {} MiB of waiting ones (limits.memory_mib is {}); \
                 try again later",
                bytes >> 20,
                inner.bytes >> 20,
                limits.memory_mib
            );
            return Err(self.full(reason));
        }
        inner.bytes += bytes;
        let held = inner.held.entry(client.to_owned()).or_default();
        held.jobs += 1;
        held.bytes += bytes;
        Ok(Reserved { quotas: self.clone(), client: client.to_owned(), bytes })
    }

    /// Checks that a client may run a model on this many more examples today.
    pub(super) fn check_run(&self, client: &str, model: &str, examples: u64) -> Result<()> {
        let limits = &self.limits;
        let mut inner = self.lock();
        let Some(used) = inner.today().get(client) else { return Ok(()) };
        let seconds = used.time.as_secs();
        if seconds >= limits.client_seconds_per_day {
            let reason = format!(
                "client {client} has had its {seconds} seconds of computing today \
                 (limits.client_seconds_per_day); try again tomorrow"
            );
            return Err(self.full(reason));
        }
        let had = used.answers.get(model).copied().unwrap_or(0);
        if had.saturating_add(examples) > limits.client_answers_per_day {
            let reason = format!(
                "client {client} has had {had} answers of model `{model}` today, of {} \
                 (limits.client_answers_per_day); try again tomorrow",
                limits.client_answers_per_day
            );
            return Err(self.full(reason));
        }
        Ok(())
    }

    /// Counts a run.
    pub(super) fn ran(&self, client: &str, model: &str, examples: u64, time: Duration) {
        let mut inner = self.lock();
        let used = inner.today().entry(client.to_owned()).or_default();
        used.time += time;
        *used.answers.entry(model.to_owned()).or_default() += examples;
    }

    /// Checks that a client may keep a model of this many bytes, which replaces the model of that
    /// name.
    pub(super) fn check_keep(&self, client: &str, name: &str, bytes: u64) -> Result<()> {
        let limits = &self.limits;
        let inner = self.lock();
        let others = || {
            let models = inner.models.iter();
            models.filter(|(other, kept)| *other != name && kept.owner == client)
        };
        let count = others().count();
        if count >= limits.client_models {
            let reason = format!(
                "client {client} has {count} models (limits.client_models); remove one that is not needed"
            );
            return Err(self.full(reason));
        }
        let held: u64 = others().map(|(_, kept)| kept.bytes).sum();
        if held.saturating_add(bytes) > limits.client_disk_mib << 20 {
            let reason = format!(
                "a model of {} MiB beside {} MiB that client {client} has (limits.client_disk_mib is {}); \
                 remove one that is not needed",
                bytes >> 20,
                held >> 20,
                limits.client_disk_mib
            );
            return Err(self.full(reason));
        }
        Ok(())
    }

    /// Notes a model that has become current.
    pub(super) fn keep(&self, name: &str, owner: &str, bytes: u64) {
        let kept = Kept { owner: owner.to_owned(), bytes };
        self.lock().models.insert(name.to_owned(), kept);
    }

    /// Notes that a model has gone.
    pub(super) fn forget(&self, name: &str) {
        self.lock().models.remove(name);
    }

    /// Connections and reserved bytes of all clients.
    pub(super) fn held(&self) -> (usize, u64) {
        let inner = self.lock();
        (inner.connections, inner.bytes)
    }

    /// Connections and reserved bytes of one client.
    pub(super) fn held_by(&self, client: &str) -> (usize, u64) {
        let inner = self.lock();
        inner.held.get(client).map_or((0, 0), |held| (held.connections, held.bytes))
    }

    /// Jobs whose parts come, wait, run or are being answered.
    pub(super) fn jobs(&self) -> usize {
        self.lock().held.values().map(|held| held.jobs).sum()
    }

    fn full(&self, reason: String) -> Error {
        Error::refused(format_args!("party {}", self.me), reason)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every change is done before anything can panic.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// The amounts that were used today.
    fn today(&mut self) -> &mut HashMap<String, Used> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let day = now.as_secs() / DAY;
        if self.day != day {
            self.day = day;
            self.used.clear();
        }
        &mut self.used
    }

    fn give_back(&mut self, client: &str, give: impl FnOnce(&mut Held)) {
        if let Some(held) = self.held.get_mut(client) {
            give(held);
            if *held == Held::default() {
                self.held.remove(client);
            }
        }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        inner.connections -= 1;
        inner.give_back(&self.1, |held| held.connections -= 1);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut inner = self.quotas.lock();
        inner.bytes -= self.bytes;
        inner.give_back(&self.client, |held| {
            held.jobs -= 1;
            held.bytes -= self.bytes;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quotas(limits: Limits) -> Arc<Quotas> {
        Arc::new(Quotas::new(1, limits))
    }

    fn said(outcome: Result<impl Sized>) -> String {
        outcome.map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn what_one_client_holds_leaves_room_for_the_others_and_comes_back() {
        let limits = Limits {
            clients: 3,
            client_connections: 2,
            memory_mib: 3,
            client_memory_mib: 2,
            client_jobs: 2,
            ..Limits::default()
        };
        let quotas = quotas(limits);
        let two = [(); 2].map(|()| quotas.connect("a").unwrap());
        assert!(said(quotas.connect("a")).contains("limits.client_connections"));
        let third = quotas.connect("b").unwrap();
        assert!(said(quotas.connect("c")).contains("3 clients are connected already"));
        let parts = quotas.reserve("a", 2 << 20).unwrap();
        assert!(said(quotas.reserve("a", 1)).contains("limits.client_memory_mib"));
        let last = quotas.reserve("a", 0).unwrap();
        assert!(said(quotas.reserve("a", 0)).contains("limits.client_jobs"));
        assert!(said(quotas.reserve("b", 2 << 20)).contains("limits.memory_mib"));
        assert!(said(quotas.reserve("b", u64::MAX)).contains("no room"));
        quotas.reserve("b", 1 << 20).unwrap();
        drop((two, third, parts, last));
        assert_eq!(quotas.held(), (0, 0));
        assert!(quotas.lock().held.is_empty());
    }

    #[test]
    fn seconds_and_answers_are_counted_by_client_model_and_day() {
        let limits =
            Limits { client_answers_per_day: 10, client_seconds_per_day: 5, ..Limits::default() };
        let quotas = quotas(limits);
        quotas.check_run("a", "m", 10).unwrap();
        quotas.ran("a", "m", 8, Duration::from_secs(2));
        quotas.check_run("a", "m", 2).unwrap();
        assert!(said(quotas.check_run("a", "m", 3)).contains("limits.client_answers_per_day"));
        quotas.check_run("a", "n", 10).unwrap();
        quotas.check_run("b", "m", 10).unwrap();
        quotas.ran("a", "n", 1, Duration::from_secs(3));
        assert!(said(quotas.check_run("a", "n", 1)).contains("limits.client_seconds_per_day"));
        quotas.lock().day -= 1;
        quotas.check_run("a", "m", 10).unwrap();
    }

    #[test]
    fn models_and_disk_are_counted_by_owner_and_a_replaced_one_does_not_count() {
        let limits = Limits { client_models: 2, client_disk_mib: 4, ..Limits::default() };
        let quotas = quotas(limits);
        quotas.keep("m", "a", 3 << 20);
        assert!(said(quotas.check_keep("a", "n", 2 << 20)).contains("limits.client_disk_mib"));
        quotas.check_keep("a", "m", 4 << 20).unwrap();
        quotas.check_keep("b", "n", 4 << 20).unwrap();
        quotas.keep("n", "a", 0);
        assert!(said(quotas.check_keep("a", "o", 0)).contains("limits.client_models"));
        quotas.forget("n");
        quotas.check_keep("a", "o", 0).unwrap();
    }
}
