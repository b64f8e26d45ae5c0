//! Counters of a server, in the text format of Prometheus.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{
    base::memory,
    wire::{Link, Status},
};

/// The most lines of one counter: names beyond are counted as `other`.
const MOST: usize = 1000;

/// The upper ends of a histogram's ranges: seconds, bytes, rounds.
const SECONDS: &[f64] =
    &[0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3600.0];
const BYTES: &[f64] = &[1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11];
const ROUNDS: &[f64] = &[10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0, 30_000.0];

/// The ways in which a job ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Its client was answered.
    Done,
    /// It was refused, cancelled, or failed.
    Failed,
    /// A party did not follow the protocol.
    Cheated,
}

/// The seconds that a job of a new kind is taken to need.
const UNKNOWN: f64 = 0.1;

impl Outcome {
    /// The name in the metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cheated => "cheated",
        }
    }
}

/// The counts of a server since its start.
#[derive(Debug, Default)]
pub struct Metrics(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The number of jobs by kind, model, client and outcome.
    jobs: BTreeMap<(&'static str, String, String, Outcome), u64>,
    /// The costs of jobs that are done, by kind and model.
    took: BTreeMap<(&'static str, String), [Histogram; 3]>,
    /// The seconds that jobs waited from their last byte to their start.
    waited: Histogram,
    /// Models in memory.
    loaded: u64,
    /// The number of requests that were refused, by client.
    refused: BTreeMap<String, u64>,
}

/// Counts in ranges.
#[derive(Debug, Default, Clone)]
struct Histogram {
    /// One for each upper end; those above the last are in `count` alone.
    ranges: Vec<u64>,
    sum: f64,
    count: u64,
}

impl Histogram {
    fn add(&mut self, ends: &[f64], value: f64) {
        self.ranges.resize(ends.len(), 0);
        let within = ends.iter().zip(&mut self.ranges).filter(|(end, _)| value <= **end);
        within.for_each(|(_, count)| *count += 1);
        self.sum += value;
        self.count += 1;
    }
}

impl Metrics {
    /// Takes note of the number of models in memory.
    pub fn loaded(&self, models: usize) {
        self.lock().loaded = models as u64;
    }

    /// Counts a job that has ended. `taken` has bytes and rounds of those that computed; of jobs that ran as one, each has
    /// its part of the bytes, and the first has the rounds.
    pub fn ended(
        &self,
        kind: &'static str,
        model: &str,
        client: &str,
        outcome: Outcome,
        seconds: f64,
        taken: Option<(u64, Option<u32>)>,
    ) {
        let mut inner = self.lock();
        let full = inner.jobs.len() >= MOST;
        let mut key = (kind, model.to_owned(), client.to_owned(), outcome);
        if full && !inner.jobs.contains_key(&key) {
            key = (kind, OTHER.to_owned(), OTHER.to_owned(), outcome);
        }
        *inner.jobs.entry(key).or_default() += 1;
        if outcome != Outcome::Done {
            return;
        }
        let full = inner.took.len() >= MOST;
        let mut key = (kind, model.to_owned());
        if full && !inner.took.contains_key(&key) {
            key.1 = OTHER.to_owned();
        }
        let [time, bytes, rounds] = inner.took.entry(key).or_default();
        time.add(SECONDS, seconds);
        if let Some((sent, went)) = taken {
            bytes.add(BYTES, sent as f64);
            went.into_iter().for_each(|went| rounds.add(ROUNDS, went.into()));
        }
    }

    /// Counts a job that begins after a wait.
    pub(in crate::server) fn begun(&self, seconds: f64) {
        self.lock().waited.add(SECONDS, seconds);
    }

    /// Counts a request that was refused.
    pub(in crate::server) fn refused(&self, client: &str) {
        let mut inner = self.lock();
        let full = inner.refused.len() >= MOST && !inner.refused.contains_key(client);
        let client = if full { OTHER } else { client };
        *inner.refused.entry(client.to_owned()).or_default() += 1;
    }

    /// The mean time of jobs of a kind on an item, or a guess before the first is done.
    pub(in crate::server) fn mean_seconds(&self, kind: &str, name: &str) -> f64 {
        let inner = self.lock();
        let took = inner.took.iter().find(|((of, item), _)| *of == kind && item == name);
        match took {
            Some((_, [time, ..])) if time.count > 0 => time.sum / time.count as f64,
            _ => UNKNOWN,
        }
    }

    /// All counts, and a server's state. `disk` are the free bytes and all bytes of the disk with its data.
    pub(super) fn page(&self, state: &Status, disk: Option<(u64, u64)>) -> String {
        let mut page = String::new();
        let inner = self.lock();
        let name = "trefoil_info";
        head(&mut page, name, "1, with the server's party, program and engine.", "gauge");
        let (party, cell) =
            (state.party.to_string(), state.cell.map(|cell| cell.number.to_string()));
        let engine = state.engine.replace(['\\', '"', '\n'], " ");
        let known = [("party", &*party), ("version", &state.program), ("engine", &engine)];
        let cell = cell.as_deref().map(|cell| ("cell", cell));
        line(&mut page, name, &known.into_iter().chain(cell).collect::<Vec<_>>(), 1.0);
        let up = f64::from(u8::from(state.link == Link::Up));
        let stopping = f64::from(u8::from(state.stopping));
        let gauges = [
            ("trefoil_up_seconds", "Seconds since the server started.", state.up_seconds as f64),
            ("trefoil_link_up", "1 if all servers are linked.", up),
            ("trefoil_stopping", "1 if the server takes no new jobs.", stopping),
            ("trefoil_jobs_waiting", "Jobs that wait.", state.waiting as f64),
            (
                "trefoil_work_waiting_seconds",
                "Seconds that the jobs which wait or run will take, as jobs like them took.",
                state.waiting_seconds,
            ),
            ("trefoil_clients", "Clients that are connected.", state.clients as f64),
            (
                "trefoil_reserved_bytes",
                "Memory kept for jobs that come or wait.",
                state.reserved as f64,
            ),
            ("trefoil_models", "Models in force.", state.models as f64),
            ("trefoil_models_loaded", "Models in memory.", inner.loaded as f64),
            ("trefoil_models_damaged", "Models that cannot be served.", state.damaged.len() as f64),
        ];
        let name = "process_resident_memory_bytes";
        let resident = memory::resident();
        let resident = resident.map(|bytes| (name, "Memory of the process.", bytes as f64));
        let disk = disk.map(|(free, all)| {
            [
                ("trefoil_disk_free_bytes", "Free bytes of the disk with the data.", free as f64),
                ("trefoil_disk_bytes", "Bytes of the disk with the data.", all as f64),
            ]
        });
        for (name, help, value) in
            gauges.into_iter().chain(resident).chain(disk.into_iter().flatten())
        {
            head(&mut page, name, help, "gauge");
            line(&mut page, name, &[], value);
        }
        let name = "trefoil_certificate_end_seconds";
        head(&mut page, name, "When a certificate in use ends, in seconds since 1970.", "gauge");
        for end in &state.certificates {
            line(&mut page, name, &[("of", &end.of)], end.end as f64);
        }
        let name = "trefoil_jobs_total";
        head(&mut page, name, "Jobs that have ended.", "counter");
        for ((kind, model, client, outcome), count) in &inner.jobs {
            let outcome = outcome.name();
            let labels =
                [("kind", *kind), ("model", model), ("client", client), ("outcome", outcome)];
            line(&mut page, name, &labels, *count as f64);
        }
        let name = "trefoil_refusals_total";
        head(&mut page, name, "Requests that were refused.", "counter");
        for (client, count) in &inner.refused {
            line(&mut page, name, &[("client", client)], *count as f64);
        }
        let name = "trefoil_job_waited_seconds";
        head(
            &mut page,
            name,
            "Seconds that jobs waited from their last byte to their start.",
            "histogram",
        );
        histogram(&mut page, name, &[], SECONDS, &inner.waited);
        let kinds = [
            ("trefoil_job_seconds", "Seconds that jobs ran.", SECONDS),
            ("trefoil_job_sent_bytes", "Bytes that jobs sent to the other servers.", BYTES),
            ("trefoil_job_rounds", "Rounds that jobs took.", ROUNDS),
        ];
        for (at, (name, help, ends)) in kinds.into_iter().enumerate() {
            head(&mut page, name, help, "histogram");
            for ((kind, model), took) in &inner.took {
                histogram(&mut page, name, &[("kind", *kind), ("model", model)], ends, &took[at]);
            }
        }
        page
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Counters are sound after each step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A name that stands for those beyond [`MOST`]. No model or client has it, since names are not empty.
const OTHER: &str = "";

fn head(page: &mut String, name: &str, help: &str, kind: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Names of models and clients never need escaping; those of certificates' holders are such names behind a word.
fn line(page: &mut String, name: &str, labels: &[(&str, &str)], value: f64) {
    let labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
    let labels =
        if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    let _ = writeln!(page, "{name}{labels} {value}");
}

fn histogram(
    page: &mut String,
    name: &str,
    labels: &[(&str, &str)],
    ends: &[f64],
    counts: &Histogram,
) {
    for (end, count) in ends.iter().zip(&counts.ranges) {
        let end = end.to_string();
        line(page, &format!("{name}_bucket"), &[labels, &[("le", &end)]].concat(), *count as f64);
    }
    let all = counts.count as f64;
    line(page, &format!("{name}_bucket"), &[labels, &[("le", "+Inf")]].concat(), all);
    line(page, &format!("{name}_sum"), labels, counts.sum);
    line(page, &format!("{name}_count"), labels, all);
}
