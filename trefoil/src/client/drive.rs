//! Going through a run from its owner's side: slice by slice, also when servers are gone for a while.
//!
//! A slice is a job like any other, of about a second, so that inferences wait no longer than that. The client sets
//! the number of steps of each slice; the state stays on the servers, in memory, and now and then on disk. If a
//! server or a link fails, the run continues from the state on disk.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{Client, NewRun, Total, Watch, agree_on_item};
use crate::{
    base::{Digest, Error, Result},
    training::{DataSet, Group, Halt, Position, Used, Work, together},
    wire::{DataState, RunState},
};

/// The time that a slice should take, in seconds.
const SLICE: f64 = 1.0;

/// The most steps of a slice.
const MOST: u32 = 10_000;

/// The pause between checks for the consent of all owners, and before servers are tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest time that a run may stand still because servers cannot be reached or fail, before that is an error.
const PATIENCE: Duration = Duration::from_secs(120);

/// The number of refusals in the same words after which linked servers are taken at their word.
const REFUSALS: u32 = 3;

/// A run that its owner goes through.
pub struct Driven {
    /// Its name.
    pub name: String,
    /// The fingerprint that the owners of the data have consented to.
    pub fingerprint: Digest,
    /// Its steps.
    pub work: Work,
    /// The time between two states on the servers' disks.
    pub keep: Duration,
}

/// News of a run under way.
pub enum Event<'a> {
    /// A slice is done.
    Slice(&'a Slice),
    /// A slice has failed; the run continues from what the servers have kept.
    Failed(&'a Error),
}

/// The results of a slice.
#[derive(Debug, Clone)]
pub struct Slice {
    /// The number of steps that are done after it.
    pub step: u32,
    /// The number of its steps.
    pub steps: u32,
    /// The metrics as means over the rows of the window that ends with it, if one does and its metrics have not left
    /// before.
    pub metrics: Option<Vec<f64>>,
    /// The cost.
    pub total: Total,
    /// The epoch that it belongs to, from 1.
    pub epoch: u32,
    /// True if the epoch ends with it.
    pub ends_epoch: bool,
    /// The sums over the epoch so far.
    pub so_far: Epoch,
}

/// The sums over an epoch under way.
#[derive(Debug, Clone, Default)]
pub struct Epoch {
    /// Steps that were done.
    pub steps: u32,
    /// Steps whose metrics are known. There are fewer than were done if the run continued an epoch that was begun
    /// before, or the metrics of a window were lost with a link.
    pub seen: u32,
    /// The metrics as means over the rows of the steps that were seen.
    pub metrics: Vec<f64>,
    /// Seconds of the slices.
    pub seconds: f64,
}

impl Epoch {
    /// Adds a slice of `steps` steps, and its metrics with the number of their steps if they came
    /// with it.
    fn add(&mut self, steps: u32, metrics: Option<(u32, &[f64])>, seconds: f64) {
        self.steps += steps;
        self.seconds += seconds;
        let Some((seen, metrics)) = metrics else { return };
        self.metrics.resize(metrics.len(), 0.0);
        let part = f64::from(seen) / f64::from(self.seen + seen);
        for (mean, metric) in self.metrics.iter_mut().zip(metrics) {
            *mean += (metric - *mean) * part;
        }
        self.seen += seen;
    }
}

impl Driven {
    /// Goes through all steps after step `from`. `connect` makes a client again after a failure; `told` gets the
    /// events and returns false to stop. After that, one more step is made and the state is kept. Returns the step
    /// after which the run stands.
    ///
    /// # Errors
    /// The error of the last slice if it does not pass: none has succeeded for two minutes, linked servers have
    /// refused three times in the same words, or it comes from this machine. Also [`Error::Refused`] if the run
    /// cannot continue: it was removed, replaced or stopped, or lacks consent.
    pub fn run(
        &self,
        client: Client,
        from: u32,
        connect: &dyn Fn() -> Result<Client>,
        watch: &dyn Watch,
        told: &mut dyn FnMut(Event<'_>) -> bool,
    ) -> Result<u32> {
        let all = self.work.steps();
        let mut client = Some(client);
        let mut step = from;
        let mut size = 1;
        let mut epoch = Epoch::default();
        // The state of the epoch after the last slice that the servers keep.
        let mut known = (from, Epoch::default());
        let mut kept = Instant::now();
        let mut trouble = Trouble::default();
        let mut going = true;
        while step < all {
            let begun = step / self.work.epoch_steps();
            let end = (begun + 1) * self.work.epoch_steps();
            let stops = self.work.openings().slice_end(step, all).min(end);
            let steps = if going { size.min(stops - step) } else { 1 };
            let keep = !going || step + steps == all || kept.elapsed() >= self.keep;
            let (metrics, total) =
                match self.slice(&mut client, connect, (step, steps, keep), watch) {
                    Ok(done) => done,
                    Err(error) if going => {
                        client = None;
                        // A server that has restarted does not know how long a step takes.
                        size = 1;
                        going = told(Event::Failed(&error));
                        thread::sleep(PAUSE);
                        let standing = self.standing(connect)?;
                        trouble.check(error, standing.as_ref())?;
                        if let Some(standing) = standing {
                            step = standing.step;
                            let same = known.0 == step;
                            epoch = if same { known.1.clone() } else { Epoch::default() };
                        }
                        continue;
                    }
                    Err(error) => return Err(error),
                };
            trouble = Trouble::default();
            step += steps;
            size = ((f64::from(steps) / total.seconds.max(1e-6) * SLICE) as u32).clamp(1, MOST);
            let window = self.work.openings().window(step - 1, all);
            let seen = metrics.as_deref().map(|metrics| (window.len() as u32, metrics));
            epoch.add(steps, seen, total.seconds);
            let ends_epoch = step == end;
            let so_far = epoch.clone();
            let slice = Slice { step, steps, metrics, total, epoch: begun + 1, ends_epoch, so_far };
            let more = told(Event::Slice(&slice));
            if !going {
                break;
            }
            going = more;
            if ends_epoch {
                epoch = Epoch::default();
            }
            if keep {
                kept = Instant::now();
                known = (step, epoch.clone());
            }
        }
        Ok(step)
    }

    /// One slice. Returns the metrics for each row of the window that ends with it, and what it took.
    fn slice(
        &self,
        client: &mut Option<Client>,
        connect: &dyn Fn() -> Result<Client>,
        (from, steps, keep): (u32, u32, bool),
        watch: &dyn Watch,
    ) -> Result<(Option<Vec<f64>>, Total)> {
        let connected = match client {
            Some(client) => client,
            None => client.insert(connect()?),
        };
        let answer = connected.train(&self.name, self.fingerprint, from, steps, keep, watch)?;
        let metrics = self.work.decode_metrics(&answer.outputs, from + steps);
        if matches!(metrics, Err(Error::Diverged { .. })) {
            // The guard tells nobody but this client. A server that does not hear it now hears it of the others.
            drop(connected.halt(&self.name, Halt::Diverge));
        }
        Ok((metrics?, Total::of(&answer.costs)))
    }

    /// The run's state at the servers, if all can be asked and have the same.
    ///
    /// # Errors
    /// [`Error::Refused`] if the run cannot go on: it is not there any more, or another one, lacks consent, or was
    /// stopped.
    fn standing(&self, connect: &dyn Fn() -> Result<Client>) -> Result<Option<Standing>> {
        let name = &self.name;
        let Ok(mut client) = connect() else { return Ok(None) };
        let (Ok(runs), Ok(linked)) = (client.runs(), client.linked()) else { return Ok(None) };
        let gone = |reason: &str| Err(Error::refused(format_args!("run `{name}`"), reason));
        if !runs.iter().flatten().any(|run| run.name == *name) {
            return gone("was removed meanwhile");
        }
        // A server may be on its way from one kept state to the next.
        let Ok(state) = agree_on_item(name, &runs) else { return Ok(None) };
        if state.run.fingerprint != self.fingerprint {
            return gone("was replaced by another one meanwhile");
        }
        let missing = state.run.missing(&state.owner);
        if !missing.is_empty() {
            return gone(&format!("lacks the consent of {}", missing.join(", ")));
        }
        if state.run.stopped {
            return gone(&format!("was stopped; `trefoil run resume {name}` resumes it"));
        }
        Ok(Some(Standing { step: state.run.step, linked }))
    }
}

impl Client {
    /// The data sets of these names in the versions that the servers have, and the rows that a run on them takes: of each
    /// group, one after the other.
    ///
    /// # Errors
    /// [`Error::Refused`] naming the one that is missing, about which the servers differ, or that does not go with the others
    /// of its group.
    pub fn used(&mut self, groups: &[Group]) -> Result<(Vec<Used>, Vec<DataSet>)> {
        let known = self.data_sets()?;
        let mut data = Vec::new();
        let mut sets = Vec::new();
        for group in groups {
            for (at, name) in group.names().iter().enumerate() {
                let set = agree_on_item::<DataState>(name, &known)?;
                let position = match group {
                    _ if at == 0 => Position::After,
                    Group::Beside(_) => Position::Beside,
                    Group::Joined(_, join) => Position::Joined(*join),
                };
                data.push(Used { name: name.clone(), version: set.version, position });
                sets.push(set.set);
            }
        }
        let rows = together(&data, &sets)?.into_iter().map(|(_, set)| set).collect();
        Ok((data, rows))
    }

    /// Shares the start of a run among the servers, unless they have this very run already: then it continues.
    ///
    /// # Errors
    /// [`Error::Refused`] if another run has its name and must not be replaced.
    pub fn begin_run(&mut self, run: &NewRun<'_>, watch: &dyn Watch) -> Result<RunState> {
        let runs = self.runs()?;
        if !run.replace && runs.iter().flatten().any(|known| known.name == run.name) {
            let known = agree_on_item(run.name, &runs)?;
            if known.run.spec == *run.spec && known.run.request == Digest::of(&[run.request]) {
                return Ok(known);
            }
            let reason = "the servers have another run of that name; replace it (--replace, in Python \
                          replace=True), or use another name";
            return Err(Error::refused(format_args!("run `{}`", run.name), reason));
        }
        self.put_run(run, watch)?;
        self.run(run.name)
    }

    /// Waits until the owners of all data have consented. `waits` gets a run that lacks consent, and returns false to
    /// stop waiting. Returns the run as it is then.
    ///
    /// # Errors
    /// As [`Client::run`].
    pub fn wait_for_consent(
        &mut self,
        mut state: RunState,
        waits: &mut dyn FnMut(&RunState) -> bool,
    ) -> Result<RunState> {
        while !state.run.missing(&state.owner).is_empty() && waits(&state) {
            thread::sleep(PAUSE);
            state = self.run(&state.name)?;
        }
        Ok(state)
    }
}

/// A run as the servers have it.
struct Standing {
    /// The step after which they have kept the state.
    step: u32,
    /// True if each has a session with the others.
    linked: bool,
}

/// The failures since the last slice that was done.
struct Trouble {
    since: Instant,
    /// The last error of linked servers, and how often it came in a row.
    said: String,
    times: u32,
}

impl Default for Trouble {
    fn default() -> Self {
        Self { since: Instant::now(), said: String::new(), times: 0 }
    }
}

impl Trouble {
    /// Returns the error if it does not pass: it comes from this machine, or linked servers have given the same
    /// reason several times, or it has lasted too long.
    fn check(&mut self, error: Error, standing: Option<&Standing>) -> Result<()> {
        // The first server that answers counts: its name does not matter.
        let (said, refused) = match &error {
            Error::Unreachable { .. } | Error::Stopping { .. } => ("", false),
            Error::Refused { reason, .. } => {
                (reason.as_str(), standing.is_some_and(|found| found.linked))
            }
            _ => return Err(error),
        };
        if refused && said == self.said {
            self.times += 1;
        } else {
            self.times = u32::from(refused);
            self.said = said.to_owned();
        }
        if self.times >= REFUSALS || self.since.elapsed() >= PATIENCE {
            return Err(error);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linked(linked: bool) -> Option<Standing> {
        Some(Standing { step: 0, linked })
    }

    #[test]
    fn what_linked_servers_say_three_times_is_their_last_word() {
        let mut trouble = Trouble::default();
        let mut party = 0;
        let mut refused = |reason: &str| {
            party = (party + 1) % 3;
            Error::refused(format_args!("party {party}"), reason)
        };
        for _ in 0..5 {
            // While servers look for each other, or cannot be asked, anything may pass.
            trouble.check(refused("no room"), linked(false).as_ref()).unwrap();
            trouble.check(refused("no room"), None).unwrap();
        }
        let unreachable = || Error::Unreachable { server: "0".into(), reason: "gone".into() };
        (0..5).for_each(|_| trouble.check(unreachable(), linked(true).as_ref()).unwrap());
        for reason in ["no room", "no room", "another", "no room", "no room"] {
            trouble.check(refused(reason), linked(true).as_ref()).unwrap();
        }
        trouble.check(refused("no room"), linked(true).as_ref()).unwrap_err();
    }

    #[test]
    fn what_comes_of_this_machine_and_what_lasts_too_long_does_not_pass() {
        let mut trouble = Trouble::default();
        trouble.check(Error::input("a file", "is not there"), None).unwrap_err();
        let refused = || Error::refused("party 1", "busy");
        trouble.check(refused(), None).unwrap();
        trouble.since = Instant::now().checked_sub(PATIENCE).unwrap();
        trouble.check(refused(), None).unwrap_err();
    }

    #[test]
    fn an_epoch_is_the_mean_of_its_steps() {
        let mut epoch = Epoch::default();
        epoch.add(1, Some((1, &[4.0, 0.0])), 0.25);
        epoch.add(2, None, 0.25);
        epoch.add(1, Some((3, &[2.0, 1.0])), 1.0);
        assert_eq!((epoch.steps, epoch.seen), (4, 4));
        assert_eq!((epoch.metrics, epoch.seconds), (vec![2.5, 0.75], 1.5));
    }
}
