//! A case under measurement, and the record it leaves: one line of JSON.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use gpu_kernels::EngineChoice;
use mpc_core::Security;

use super::hosts::Hosts;
use super::measure::{measure, measure_all};
use super::party::Setup;
use super::peers::Peers;
use super::{Effort, Network, Options, Timing, describe, report};
use crate::cases::selects;
use crate::gpu::commit;
use crate::record::{OURS, Record};

/// A run of the benchmarks: offers the options to the suites and collects the records.
pub struct Bench {
    options: Options,
    suite: &'static str,
    json: Option<PathBuf>,
    peers: Option<Peers>,
    hosts: Option<&'static Hosts>,
    skipped: Vec<String>,
    listed: Vec<String>,
    records: usize,
    machine: String,
    commit: String,
}

impl Bench {
    /// A run of nothing yet. Its records also go to the file that the options name, or to one for each suite in the folder.
    pub fn new(options: Options) -> Bench {
        // A program that was carried elsewhere knows its commit from when it was built.
        let commit = option_env!("TREFOIL_COMMIT").map_or_else(commit, str::to_owned);
        let machine = describe();
        let (peers, hosts, skipped, listed) = (None, None, Vec::new(), Vec::new());
        let json = options.json.clone();
        Bench {
            options,
            suite: "",
            json,
            peers,
            hosts,
            skipped,
            listed,
            records: 0,
            machine,
            commit,
        }
    }

    /// Times other systems too, after each case.
    pub(super) fn with_peers(self, peers: Peers) -> Bench {
        Bench { peers: Some(peers), ..self }
    }

    /// Runs parties on other hosts, until the program ends.
    pub(super) fn on(self, hosts: Hosts) -> Bench {
        Bench { hosts: Some(Box::leak(Box::new(hosts))), ..self }
    }

    /// The user's options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// True if the user wants quick runs.
    pub fn quick(&self) -> bool {
        self.options.quick
    }

    /// The time for each measurement, by the user's options.
    pub fn effort(&self) -> Effort {
        if self.quick() { Effort::QUICK } else { Effort::FULL }
    }

    /// The network asked for, else `default`.
    pub fn network_or(&self, default: Network) -> Network {
        self.options.network.unwrap_or(default)
    }

    /// The threads per party asked for, else `default`.
    pub fn threads_or(&self, default: usize) -> usize {
        self.options.threads.unwrap_or(default)
    }

    /// The set-up of the parties by the user's options; the defaults are `network` and one thread.
    pub(super) fn setup(&self, network: Network) -> Setup {
        Setup {
            network: self.network_or(network),
            hosts: self.hosts,
            threads: self.threads_or(1),
            engine: self.options.engine.unwrap_or(EngineChoice::Cpu),
            protocol: self.options.protocol,
            security: if self.options.checked { Security::Checked } else { Security::SemiHonest },
        }
    }

    /// Selects one case, or those below it, for what follows.
    pub(super) fn select(&mut self, only: Option<&str>) {
        self.options.only = only.map(str::to_owned);
    }

    /// True if `name` is among the cases to be measured; for set-up shared by several cases.
    pub fn wants(&self, name: &str) -> bool {
        !self.options.list && self.selects(name)
    }

    fn selects(&self, name: &str) -> bool {
        self.options.only.as_deref().is_none_or(|only| selects(only, name))
    }

    /// The cases that were asked for and, since only a list was wanted, not measured.
    pub(super) fn names(&self) -> &[String] {
        &self.listed
    }

    /// Runs one case if it is asked for, prints its line and writes its JSON.
    ///
    /// # Errors
    /// If the case fails or the JSON file cannot be written.
    pub fn case(&mut self, name: &str, work: impl FnOnce(&mut Case) -> Result<()>) -> Result<()> {
        if !self.wants(name) {
            let names = if self.selects(name) { &mut self.listed } else { &mut self.skipped };
            names.push(format!("{}: {name}", self.suite));
            return Ok(());
        }
        let mut case = Case {
            record: Record {
                suite: self.suite.to_owned(),
                case: name.to_owned(),
                system: OURS.to_owned(),
                machine: self.machine.clone(),
                commit: self.commit.clone(),
                ..Record::default()
            },
            timing: None,
            references: Vec::new(),
            effort: self.effort(),
        };
        work(&mut case).with_context(|| format!("case {name}"))?;
        let effort = case.effort;
        let mut records = case.records();
        if let (Some(peers), Some(ours)) = (&mut self.peers, records.first()) {
            records.extend(peers.measure(ours, effort)?);
        }
        records.iter().try_for_each(|record| self.write(record))
    }

    /// Names the suite of the cases that follow.
    pub fn start_suite(&mut self, name: &'static str) {
        self.suite = name;
    }

    /// Ends the run.
    ///
    /// # Errors
    /// If the user asked for a case that does not exist.
    pub fn finish(self) -> Result<()> {
        match &self.options.only {
            Some(only) if self.records == 0 && self.listed.is_empty() => {
                bail!("no case is called {only:?}; there are: {}", self.skipped.join(", "))
            }
            _ => Ok(()),
        }
    }

    fn write(&mut self, record: &Record) -> Result<()> {
        if self.records == 0 {
            println!("{} | commit {}", self.machine, self.commit);
            println!("{}", report::HEADING);
        }
        println!("{}", report::row(record));
        self.records += 1;
        if let Some(path) = &self.json {
            let line = serde_json::to_string(record)?;
            writeln!(appending(path, self.suite)?, "{line}")
                .context("cannot write the JSON file")?;
        }
        Ok(())
    }
}

/// Opens a file to append to, that of a suite if a folder is named; makes it, and its folder, where they are not there.
fn appending(path: &Path, suite: &str) -> Result<File> {
    let path = if path.is_dir() { path.join(format!("{suite}.jsonl")) } else { path.to_owned() };
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    let opened = made.and_then(|()| File::options().create(true).append(true).open(&path));
    opened.with_context(|| format!("cannot write {}", path.display()))
}

/// A case under measurement. The setters fill its record; each returns the case for chaining.
pub struct Case {
    record: Record,
    timing: Option<Timing>,
    references: Vec<(String, f64)>,
    effort: Effort,
}

impl Case {
    /// The time for this measurement, by the user's options; change it for long runs with
    /// [`Case::set_effort`].
    pub fn effort(&self) -> Effort {
        self.effort
    }

    /// Replaces the effort of the measurements that follow.
    pub fn set_effort(&mut self, effort: Effort) -> &mut Case {
        self.effort = effort;
        self
    }

    /// Times `work` and makes it the case's timing.
    pub fn measure<R>(&mut self, work: impl FnMut() -> R) -> Timing {
        let timing = measure(self.effort, work);
        self.timing(timing);
        timing
    }

    /// Times work that can fail and makes it the case's timing.
    ///
    /// # Errors
    /// The first error of a run.
    pub fn try_measure<R, E>(
        &mut self,
        mut work: impl FnMut() -> Result<R, E>,
    ) -> Result<Timing, E> {
        let mut failure = None;
        let timing = measure(self.effort, || {
            if failure.is_none() {
                failure = work().err();
            }
        });
        match failure {
            Some(error) => Err(error),
            None => {
                self.timing(timing);
                Ok(timing)
            }
        }
    }

    /// Times two pieces of work in turn and makes the first the case's timing: for a ratio that
    /// a drifting clock does not touch.
    pub fn measure_pair<A, B>(
        &mut self,
        mut mine: impl FnMut() -> A,
        mut other: impl FnMut() -> B,
    ) -> (Timing, Timing) {
        let mut mine = || drop(std::hint::black_box(mine()));
        let mut other = || drop(std::hint::black_box(other()));
        let both = measure_all(self.effort, &mut [&mut mine, &mut other]);
        self.timing(both[0]);
        (both[0], both[1])
    }

    /// Times any number of pieces of work in turn. The caller picks which is the case's.
    pub fn measure_all(&mut self, work: &mut [&mut dyn FnMut()]) -> Vec<Timing> {
        measure_all(self.effort, work)
    }

    /// Sets the case's timing, for work measured elsewhere, such as in the parties' processes.
    pub fn timing(&mut self, timing: Timing) -> &mut Case {
        self.timing = Some(timing);
        self.record.seconds_median = Some(timing.median);
        self.record.seconds_min = Some(timing.min);
        self.record.runs = Some(timing.runs);
        self.record.cpu_seconds = timing.cpu;
        self
    }

    /// Sets the rate from the work of one run, such as `512f64.powi(3) / 1e9` for `GMAC/s`.
    ///
    /// # Panics
    /// If nothing was timed yet.
    pub fn rate(&mut self, work_per_run: f64, unit: &str) -> &mut Case {
        let timing = self.timing.expect("a case is timed before its rate is asked for");
        self.rate_is(work_per_run / timing.median, unit)
    }

    /// Sets a rate known by itself.
    pub fn rate_is(&mut self, rate: f64, unit: &str) -> &mut Case {
        self.record.rate = Some(rate);
        self.record.rate_unit = Some(unit.to_owned());
        self
    }

    /// Compares with another form of the same work per run. More than one reference gives more
    /// than one line.
    ///
    /// # Panics
    /// If nothing was timed yet.
    pub fn reference(&mut self, name: &str, other: Timing) -> &mut Case {
        let timing = self.timing.expect("a case is timed before it is compared");
        self.references.push((name.to_owned(), other.median / timing.median));
        self
    }

    /// Says how many times as long the case takes as something else that was timed in turn with it.
    pub fn times(&mut self, name: &str, ratio: f64) -> &mut Case {
        self.references.push((format!("{name}, times its seconds"), ratio));
        self
    }

    /// Compares with another rate in the unit of this case's.
    ///
    /// # Panics
    /// If the rate is not set yet.
    pub fn reference_rate(&mut self, name: &str, other: f64) -> &mut Case {
        let rate = self.record.rate.expect("a case has its rate before it is compared");
        self.references.push((name.to_owned(), rate / other));
        self
    }

    /// Names protocol and engine.
    pub fn run_by(&mut self, [protocol, engine]: &[String; 2]) -> &mut Case {
        self.protocol(protocol).engine(engine)
    }

    /// Names the protocol.
    pub fn protocol(&mut self, name: &str) -> &mut Case {
        self.record.protocol = Some(name.to_owned());
        self
    }

    /// Names the engine.
    pub fn engine(&mut self, name: &str) -> &mut Case {
        self.record.engine = Some(name.to_owned());
        self
    }

    /// Names the network of parties, and whether they are on other hosts.
    pub(super) fn network_of(&mut self, setup: &Setup) -> &mut Case {
        let name = setup.network.name();
        let name = setup.hosts.map_or_else(|| name.to_owned(), |_| format!("hosts/{name}"));
        self.record.network = Some(name);
        self
    }

    /// Names the network.
    pub fn network(&mut self, network: Network) -> &mut Case {
        self.record.network = Some(network.name().to_owned());
        self
    }

    /// Describes the size.
    pub fn size(&mut self, size: impl Into<String>) -> &mut Case {
        self.record.size = Some(size.into());
        self
    }

    /// Sets the threads per party.
    pub fn threads(&mut self, threads: usize) -> &mut Case {
        self.record.threads = Some(threads);
        self
    }

    /// Sets the bytes that one party sends in one run, the largest of the parties.
    pub fn bytes_per_party(&mut self, bytes: u64) -> &mut Case {
        self.record.bytes_per_party = Some(bytes);
        self
    }

    /// Sets the rounds of one run.
    pub fn rounds(&mut self, rounds: u64) -> &mut Case {
        self.record.rounds = Some(rounds);
        self
    }

    /// Sets the largest absolute error against the clear result.
    pub fn max_abs_error(&mut self, error: f64) -> &mut Case {
        self.record.max_abs_error = Some(error);
        self
    }

    fn records(self) -> Vec<Record> {
        if self.references.is_empty() {
            return vec![self.record];
        }
        let record = self.record;
        let with =
            |(name, ratio)| Record { reference: Some(name), ratio: Some(ratio), ..record.clone() };
        self.references.into_iter().map(with).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bench(only: Option<&str>) -> Bench {
        let options = Options { only: only.map(str::to_owned), quick: true, ..Options::default() };
        Bench::new(options)
    }

    #[test]
    fn only_takes_in_a_case_and_the_cases_below_it() {
        assert!(selects("gemm", "gemm/512"));
        assert!(selects("gemm/1024", "gemm/1024/avx2"));
        assert!(!selects("gemm/1024/avx2", "gemm/1024"));
        assert!(!selects("gem", "gemm/512"));
    }

    #[test]
    fn a_name_that_selects_nothing_is_an_error_that_lists_the_cases() {
        let mut bench = bench(Some("gemv"));
        bench.start_suite("ring");
        bench.case("gemm/512", |_| unreachable!("not asked for")).unwrap();
        let error = bench.finish().unwrap_err().to_string();
        assert!(error.contains("gemv") && error.contains("ring: gemm/512"), "{error}");
    }

    #[test]
    fn each_reference_gives_a_line_with_its_ratio() {
        let mut bench = bench(None);
        let mut lines = Vec::new();
        bench
            .case("x", |case| {
                let run = |seconds| Timing::from_runs(vec![seconds], None);
                case.timing(run(2.0)).rate(8.0, "GB/s");
                case.reference("naive", run(10.0)).reference_rate("limit", 5.0);
                lines = case.references.clone();
                Ok(())
            })
            .unwrap();
        assert_eq!(lines, [("naive".to_owned(), 5.0), ("limit".to_owned(), 0.8)]);
        assert_eq!(bench.records, 2);
    }
}
