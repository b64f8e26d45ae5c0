//! The use of a server by each client, and its limits.
//!
//! Memory, connections and places in the queue are counted while they are held, by values that give them back when
//! they are dropped. Seconds and answers are counted by the day (UTC) in the store, where all cells of a party lease them
//! ([`Leases`]). Each of the three servers counts for itself and a job needs all three.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    base::{Error, Result},
    config::Limits,
    store::{Allowance, Leases, Ledger, Store},
};

/// The use of one server by its clients.
#[derive(Debug)]
pub(super) struct Quotas {
    me: usize,
    limits: Limits,
    inner: Mutex<Inner>,
    /// The seconds and answers of the day.
    leases: Leases,
}

#[derive(Debug, Default)]
struct Inner {
    /// The amounts that are held now, by client. Clients that hold nothing are left out.
    held: HashMap<String, Held>,
    connections: usize,
    bytes: u64,
}

#[derive(Debug, Default, PartialEq)]
struct Held {
    connections: usize,
    jobs: usize,
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
    /// Quotas whose days are counted in a ledger.
    pub(super) fn new(me: usize, limits: Limits, ledger: &Ledger) -> Self {
        Self { me, limits, inner: Mutex::default(), leases: Leases::new(ledger.clone()) }
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
        // Any time that is left will do: how long a run takes is known afterwards.
        if self.leases.ensure(&self.time_of(client), 1)?.is_err() {
            let reason = format!(
                "client {client} has had its {} seconds of computing today (limits.client_seconds_per_day); try again \
                 tomorrow",
                limits.client_seconds_per_day
            );
            return Err(self.full(reason));
        }
        if let Err(had) = self.leases.ensure(&self.answers_of(client, model), examples)? {
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
        self.leases.spend(&self.time_of(client), time.as_millis() as u64);
        self.leases.spend(&self.answers_of(client, model), examples);
    }

    /// Gives back what was leased of the day and not used: this server stops.
    pub(super) fn give_back(&self) -> Result<()> {
        self.leases.give_back()
    }

    /// A client's milliseconds of computing.
    fn time_of<'a>(&self, client: &'a str) -> Allowance<'a> {
        let limit = self.limits.client_seconds_per_day.saturating_mul(1000);
        Allowance { what: "milliseconds", client, model: "", limit }
    }

    /// A client's answers of a model.
    fn answers_of<'a>(&self, client: &'a str, model: &'a str) -> Allowance<'a> {
        let limit = self.limits.client_answers_per_day;
        Allowance { what: "answers", client, model, limit }
    }

    /// Checks that a client may keep a model of this many bytes, which replaces the model of that
    /// name.
    pub(super) fn check_keep(
        &self,
        store: &Store,
        client: &str,
        name: &str,
        bytes: u64,
    ) -> Result<()> {
        let limits = &self.limits;
        let mut count = 0;
        let mut held = 0u64;
        for other in store.names()?.iter().filter(|other| *other != name) {
            if let Some(manifest) = store.entry(other).manifest()
                && manifest.owner == client
            {
                count += 1;
                held += manifest.bytes();
            }
        }
        if count >= limits.client_models {
            let reason = format!(
                "client {client} has {count} models (limits.client_models); remove one that is not needed"
            );
            return Err(self.full(reason));
        }
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
    use std::{
        sync::atomic::{AtomicU64, Ordering},
        thread,
    };

    use super::*;
    use crate::{
        base::Id,
        store::{Content, NewItem, StoredShares, Worker},
        testing::{folder, holder, new_item},
    };

    /// Quotas of a server that has its store to itself.
    fn quotas(limits: Limits) -> Arc<Quotas> {
        let store = Store::open(&folder("quota"), holder(1), None).unwrap();
        Arc::new(Quotas::new(1, limits, store.ledger()))
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
        let store = Store::open(&folder("quota"), holder(1), None).unwrap();
        let day = Arc::new(AtomicU64::new(7));
        let today = day.clone();
        let leases =
            Leases::with_clock(store.ledger().clone(), move || today.load(Ordering::Relaxed));
        let quotas = Quotas { leases, ..Quotas::new(1, limits, store.ledger()) };
        quotas.check_run("a", "m", 10).unwrap();
        quotas.ran("a", "m", 8, Duration::from_secs(2));
        quotas.check_run("a", "m", 2).unwrap();
        let text = said(quotas.check_run("a", "m", 3));
        assert!(text.contains("has had 8 answers of model `m` today, of 10"), "{text}");
        quotas.check_run("a", "n", 10).unwrap();
        quotas.check_run("b", "m", 10).unwrap();
        quotas.ran("a", "n", 1, Duration::from_secs(3));
        assert!(said(quotas.check_run("a", "n", 1)).contains("limits.client_seconds_per_day"));
        day.store(8, Ordering::Relaxed);
        quotas.check_run("a", "m", 10).unwrap();
    }

    #[test]
    fn all_cells_together_keep_to_a_clients_limit_and_give_back_what_they_do_not_use() {
        let root = folder("quota");
        let limits = Limits { client_answers_per_day: 60, ..Limits::default() };
        let open = |cell| {
            let hold = Duration::from_secs(60);
            let store = Store::open_as(&root, holder(1), None, Worker::Cell(cell), hold).unwrap();
            Quotas::new(1, limits.clone(), store.ledger())
        };
        let answered = AtomicU64::new(0);
        {
            let cells = [0, 1].map(open);
            // The jobs of a cell run one after the other, as does the check before each of them.
            let turns = [Mutex::new(()), Mutex::new(())];
            thread::scope(|scope| {
                for request in 0..100 {
                    let (quotas, turn) = (&cells[request % 2], &turns[request % 2]);
                    let answered = &answered;
                    scope.spawn(move || {
                        let asked = quotas.check_run("a", "m", 1);
                        let _turn = turn.lock().unwrap();
                        if asked.and_then(|()| quotas.check_run("a", "m", 1)).is_ok() {
                            quotas.ran("a", "m", 1, Duration::ZERO);
                            answered.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
            });
            assert!((59..=60).contains(&answered.load(Ordering::Relaxed)), "{answered:?}");
            for quotas in &cells {
                quotas.give_back().unwrap();
            }
        }
        // Another cell has what is left, and no more.
        let other = open(2);
        let left = 60 - answered.load(Ordering::Relaxed);
        assert!(other.check_run("a", "m", left).is_ok());
        assert!(other.check_run("a", "m", left + 1).is_err());
        other.check_run("b", "m", 60).unwrap();
    }

    #[test]
    fn models_and_disk_are_counted_by_owner_and_a_replaced_one_does_not_count() {
        let limits = Limits { client_models: 2, client_disk_mib: 1, ..Limits::default() };
        let store = Store::open(&folder("quota"), holder(1), None).unwrap();
        let quotas = Quotas::new(1, limits, store.ledger());
        let keep = |name: &str, bytes: usize| {
            let version = Id::random().unwrap();
            let content = Content::Model { about: Box::default(), ranges: Vec::new() };
            let (plan, shares) = (vec![0; bytes], Vec::new());
            let stored = StoredShares::of(&shares);
            let item = new_item((name, version), &content, &plan, &stored);
            store.stage(&NewItem { owner: "a", ..item }).unwrap();
            store.commit(name, version).unwrap();
        };
        let check =
            |client: &str, name: &str, kib: u64| quotas.check_keep(&store, client, name, kib << 10);
        keep("m", 700 << 10);
        assert!(said(check("a", "n", 500)).contains("limits.client_disk_mib"));
        check("a", "m", 1024).unwrap();
        check("b", "n", 1024).unwrap();
        keep("n", 0);
        assert!(said(check("a", "o", 0)).contains("limits.client_models"));
        store.remove("n").unwrap();
        check("a", "o", 0).unwrap();
    }
}
