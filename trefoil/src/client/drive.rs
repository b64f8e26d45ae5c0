//! Going through a run from its owner's side: slice by slice, also when servers are gone for a while.
//!
//! A slice is a job like any other, of about a second, so that inferences wait no longer than that. This side
//! says how many steps the next one has; the state stays on the servers, in memory, and now and then on disk. If
//! a server or a link fails, the run goes on from the state on disk.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{Client, NewRun, Watch, agree_on_item};
use crate::{
    Digest, Error, Result,
    profile::Total,
    training::{Training, Used},
    wire::RunState,
};

/// How long a slice should take, in seconds.
const SLICE: f64 = 1.0;

/// The most steps of a slice.
const MOST: u32 = 10_000;

/// How long to wait between questions whether all have consented, and before servers are tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a run may stand still because servers cannot be reached or fail, before that is an error.
const PATIENCE: Duration = Duration::from_secs(120);

/// A run that its owner goes through.
pub struct Driven {
    /// Its name.
    pub name: String,
    /// What its data's owners have consented to.
    pub fingerprint: Digest,
    /// Its steps.
    pub training: Training,
    /// How often its state is written to the servers' disks.
    pub keep: Duration,
}

/// What is told of a run under way.
pub enum Event<'a> {
    /// A slice is done.
    Slice(&'a Slice),
    /// A slice has failed; the run goes on from what the servers have kept.
    Failed(&'a Error),
}

/// What a slice was like.
#[derive(Debug, Clone)]
pub struct Slice {
    /// How many steps are done after it, and how many it had.
    pub step: u32,
    /// How many it had.
    pub steps: u32,
    /// The metrics as means over its rows.
    pub metrics: Vec<f64>,
    /// What it took.
    pub total: Total,
    /// The epoch that it belongs to, from 1.
    pub epoch: u32,
    /// Whether the epoch ends with it.
    pub ends_epoch: bool,
    /// What is known of the epoch so far.
    pub so_far: Epoch,
}

/// What is known of an epoch under way.
#[derive(Debug, Clone, Default)]
pub struct Epoch {
    /// Steps that were seen: fewer than are done if the run went on with one that was begun before.
    pub steps: u32,
    /// The metrics as means over their rows.
    pub metrics: Vec<f64>,
    /// Seconds of the slices.
    pub seconds: f64,
}

impl Epoch {
    fn add(&mut self, steps: u32, metrics: &[f64], seconds: f64) {
        self.metrics.resize(metrics.len(), 0.0);
        let part = f64::from(steps) / f64::from(self.steps + steps);
        for (mean, metric) in self.metrics.iter_mut().zip(metrics) {
            *mean += (metric - *mean) * part;
        }
        self.steps += steps;
        self.seconds += seconds;
    }
}

impl Driven {
    /// Goes through all steps after step `from`. `connect` makes a client again after a failure; `told` hears what
    /// happens and says whether to go on. If not, one more step is made, after which the state is kept. Returns
    /// the step after which the run stands.
    ///
    /// # Errors
    /// That of the last slice if none has succeeded for two minutes, or [`Error::Refused`] if another run has
    /// taken the place of this one.
    pub fn run(
        &self,
        client: Client,
        from: u32,
        connect: &dyn Fn() -> Result<Client>,
        watch: &dyn Watch,
        told: &mut dyn FnMut(Event<'_>) -> bool,
    ) -> Result<u32> {
        let all = self.training.steps();
        let mut client = Some(client);
        let mut step = from;
        let mut size = 1;
        let mut epoch = Epoch::default();
        let mut kept = Instant::now();
        let mut well = Instant::now();
        let mut going = true;
        while step < all {
            let begun = step / self.training.epoch_steps();
            let end = (begun + 1) * self.training.epoch_steps();
            let steps = if going { size.min(end - step) } else { 1 };
            let keep = !going || step + steps == all || kept.elapsed() >= self.keep;
            let (metrics, total) =
                match self.slice(&mut client, connect, (step, steps, keep), watch) {
                    Ok(done) => done,
                    Err(error) if going && well.elapsed() < PATIENCE => {
                        client = None;
                        going = told(Event::Failed(&error));
                        if let Some(found) = self.kept_step(connect)? {
                            step = found;
                            epoch = Epoch::default();
                        }
                        continue;
                    }
                    Err(error) => return Err(error),
                };
            well = Instant::now();
            if keep {
                kept = Instant::now();
            }
            step += steps;
            size = ((f64::from(steps) / total.seconds.max(1e-6) * SLICE) as u32).clamp(1, MOST);
            epoch.add(steps, &metrics, total.seconds);
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
        }
        Ok(step)
    }

    /// One slice. Returns the metrics for each row, and what it took.
    fn slice(
        &self,
        client: &mut Option<Client>,
        connect: &dyn Fn() -> Result<Client>,
        (from, steps, keep): (u32, u32, bool),
        watch: &dyn Watch,
    ) -> Result<(Vec<f64>, Total)> {
        let connected = match client {
            Some(client) => client,
            None => client.insert(connect()?),
        };
        let answer = connected.train(&self.name, self.fingerprint, from, steps, keep, watch)?;
        let metrics = self.training.decode_metrics(&answer.outputs, steps)?;
        Ok((metrics, Total::of(&answer.costs)))
    }

    /// After which step the servers have kept the state, if they can be asked.
    fn kept_step(&self, connect: &dyn Fn() -> Result<Client>) -> Result<Option<u32>> {
        thread::sleep(PAUSE);
        let Ok(mut client) = connect() else { return Ok(None) };
        let Ok(state) = client.run(&self.name) else { return Ok(None) };
        if state.run.fingerprint != self.fingerprint {
            let reason = "was replaced by another one meanwhile";
            return Err(Error::refused(format_args!("run `{}`", self.name), reason));
        }
        Ok(Some(state.run.step))
    }
}

impl Client {
    /// The data sets of these names in the versions that the servers have, and the rows of all together.
    ///
    /// # Errors
    /// [`Error::Refused`] naming the one that is not there, or of which the servers do not say the same.
    pub fn used(&mut self, names: &[String]) -> Result<(Vec<Used>, usize)> {
        let sets = self.data_sets()?;
        let mut data = Vec::with_capacity(names.len());
        let mut rows = 0;
        for name in names {
            let set = agree_on_item(name, &sets)?;
            rows += set.set.rows;
            data.push(Used { name: name.clone(), version: set.version });
        }
        Ok((data, rows))
    }

    /// Shares the start of a run among the servers, unless they have this very run already: it goes on then.
    ///
    /// # Errors
    /// [`Error::Refused`] if another run has its name and must not be replaced.
    pub fn begin_run(&mut self, run: &NewRun<'_>, watch: &dyn Watch) -> Result<RunState> {
        let runs = self.runs()?;
        if !run.replace && runs.iter().flatten().any(|known| known.name == run.name) {
            let known = agree_on_item(run.name, &runs)?;
            if known.run.spec == *run.spec && known.run.plan == Digest::of(&[run.plan]) {
                return Ok(known.clone());
            }
            let reason =
                "the servers have another run of that name; replace it, or use another name";
            return Err(Error::refused(format_args!("run `{}`", run.name), reason));
        }
        self.put_run(run, watch)?;
        self.run(run.name)
    }

    /// Waits until the owners of all data have consented. `waits` is told of a run that they have not, and says
    /// whether to go on waiting. Returns the run as it is then.
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

#[cfg(test)]
mod tests {
    use super::Epoch;

    #[test]
    fn an_epoch_is_the_mean_of_its_steps() {
        let mut epoch = Epoch::default();
        epoch.add(1, &[4.0, 0.0], 0.5);
        epoch.add(3, &[2.0, 1.0], 1.0);
        assert_eq!((epoch.steps, epoch.metrics, epoch.seconds), (4, vec![2.5, 0.75], 1.5));
    }
}
