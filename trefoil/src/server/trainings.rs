//! Trainings and analyses under way at one server.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use mpc_core::{Operand, Released, ServerProtocol, ShareTensor};
use nn_layers::{Observer, train::State};

use super::{
    Core,
    access::bytes_held,
    cache::Hashes,
    jobs::Offer,
    rows::{Loaded, Rows, Unjoined},
};
use crate::{
    analysis::{Analysis, Values},
    base::{Digest, Error, Id, Result, Shares},
    model::{Program, shapes_of},
    store::{Charge, Content, Manifest, NewItem, Opened, Readers, StoredShares},
    training::{Budget, Openings, Planned, Run, Seen, Task, Training, Work},
};

/// Bytes that a word of a training under way takes, at most: two components, and their sum, which products keep.
const WORD: u64 = 24;

/// The most steps of a slice before it is known how long a step takes.
const FIRST: u32 = 16;

/// The trainings whose state and data are in memory; the one used last stands last.
pub(super) struct Trainings<P: ServerProtocol> {
    kept: Vec<Progress<P>>,
    /// The most bytes that they take together, unless one alone takes more.
    most: u64,
}

/// A run under way.
pub(super) struct Progress<P: ServerProtocol> {
    manifest: Manifest,
    run: Run,
    /// The request as it is written: part of every version that is kept.
    request: Vec<u8>,
    stage: Stage<P>,
    rows: Rows<P>,
    /// Hashes of all components of the data sets that this server holds.
    data: Hashes,
    /// Owner, name and privacy budget of each data set.
    budgets: Vec<(String, String, Option<Budget>)>,
    /// The openings of the run at this server.
    opened: Opened,
    /// The time of the last step at this server.
    step_time: Option<Duration>,
}

/// The work of a run, and how far it is.
enum Stage<P: ServerProtocol> {
    Training {
        training: Box<Training>,
        state: State<P>,
        /// The metrics of the steps from `run.sums_from` on, summed.
        sums: Vec<P::Share>,
    },
    Analysis {
        analysis: Box<Analysis>,
        values: Values<P>,
    },
}

/// The results of a slice of a run.
pub(super) struct Slice<S> {
    /// Sums of the metrics of a whole window, if one ends here.
    pub(super) metrics: Option<Vec<S>>,
    /// The guard's result for the last step.
    pub(super) left: Option<S>,
}

/// The work that a client asks for, derived here.
pub(super) struct Derived {
    /// The digest of the request as it was sent.
    pub(super) request: Digest,
    pub(super) planned: Planned,
}

impl<P: ServerProtocol> Trainings<P> {
    pub(super) fn new(most: u64) -> Self {
        Self { kept: Vec::new(), most }
    }

    /// A run after this many steps, from memory or from disk.
    ///
    /// # Errors
    /// [`Error::Refused`] if the state is that of another step, which it names.
    pub(super) fn take(
        &mut self,
        core: &Core,
        mpc: &mut P,
        manifest: &Manifest,
        step: u32,
    ) -> Result<Progress<P>> {
        let run = manifest.run()?;
        let opened = core.store.ledger().opened(run.fingerprint)?;
        let known = self.kept.iter().position(|known| known.run.fingerprint == run.fingerprint);
        if let Some(at) = known {
            let progress = self.kept.remove(at);
            if progress.run.step == step {
                return Ok(Progress { manifest: manifest.clone(), opened, ..progress });
            }
        }
        if run.step != step {
            let reason = format!(
                "this server has kept its state after step {}, and not after step {step}; continue from there",
                run.step
            );
            return Err(Error::refused(format_args!("run `{}`", manifest.name), reason));
        }
        Progress::load(core, mpc, manifest, run.clone(), opened)
    }

    /// Keeps the state of a run in memory.
    pub(super) fn keep(&mut self, progress: Progress<P>) {
        self.forget(progress.name());
        self.kept.push(progress);
        let held = |known: &Progress<P>| (known.manifest.owner.clone(), known.bytes());
        let held: Vec<_> = self.kept.iter().map(held).collect();
        let dropped = surplus(&held, self.most);
        let mut at = 0..;
        self.kept.retain(|_| at.next().is_none_or(|at| !dropped.contains(&at)));
    }

    /// Drops a run that was removed.
    pub(super) fn forget(&mut self, name: &str) {
        self.kept.retain(|known| known.name() != name);
    }
}

/// The trainings to drop so that the others take `most` bytes at most. The owner whose trainings take most loses the
/// one not used for longest, and so on. So a client's trainings never drive out those of a client that has less. The
/// last, which was used just now, stays.
fn surplus(held: &[(String, u64)], most: u64) -> Vec<usize> {
    let mut gone = Vec::new();
    loop {
        let mut sums = BTreeMap::<&str, u64>::new();
        let left = || held.iter().enumerate().filter(|(at, _)| !gone.contains(at));
        left().for_each(|(_, (owner, bytes))| *sums.entry(owner).or_default() += bytes);
        if sums.values().sum::<u64>() <= most {
            return gone;
        }
        let others = || left().filter(|(at, _)| at + 1 < held.len());
        let Some(largest) = others().map(|(_, (owner, _))| sums[owner.as_str()]).max() else {
            return gone;
        };
        let next = others().find(|(_, (owner, _))| sums[owner.as_str()] == largest);
        gone.extend(next.map(|(at, _)| at));
    }
}

impl<P: ServerProtocol> Progress<P> {
    fn load(
        core: &Core,
        mpc: &mut P,
        manifest: &Manifest,
        run: Run,
        opened: Opened,
    ) -> Result<Self> {
        let name = &manifest.name;
        let request = core.store.plan(name, manifest)?;
        let Derived { planned, .. } =
            Derived::new(&request, &run.spec.task, core.limits.upload_bytes())?;
        if planned.digest()? != run.plan {
            let reason = "this server's program derives another plan than the one that was consented to; make the run \
                          again";
            return Err(Error::refused(format_args!("run `{name}`"), reason));
        }
        let stored = core.store.shares(name, manifest)?;
        let mut shares = mpc.accept(&shapes_of(&stored)?, stored)?;
        let stage = match Work::new(planned, &run.spec, run.rows)? {
            Work::Training(training) => {
                let sums = shares.split_off(training.plan().state().len().min(shares.len()));
                let state = training.plan().secret_state(shares)?;
                Stage::Training { training, state, sums }
            }
            Work::Analysis(analysis) => {
                let values = Values::restore(&analysis, run.step, shares)?;
                Stage::Analysis { analysis, values }
            }
        };
        let Loaded { rows, hashes: data, budgets } =
            Loaded::read(core, mpc, &manifest.owner, &run)?;
        let (manifest, step_time) = (manifest.clone(), None);
        Ok(Self { manifest, run, request, stage, rows, data, budgets, opened, step_time })
    }

    pub(super) fn name(&self) -> &str {
        &self.manifest.name
    }

    /// Bytes that its data and state take.
    fn bytes(&self) -> u64 {
        let state = match &self.stage {
            Stage::Training { state, .. } => {
                state.shares().into_iter().map(|share| share.shape().len() as u64).sum()
            }
            Stage::Analysis { values, .. } => values.words(),
        };
        WORD * (self.rows.words() + state)
    }

    /// This server's message to the others before they go on with the training.
    pub(super) fn offer(&self, mpc: &P) -> Result<Offer> {
        let (model, stored) = (Some(self.identity()), Some(self.hashes(mpc)?));
        Ok(Offer { model, stored, tapes: None, opened: self.opened.metrics })
    }

    /// The values that must be the same at all servers: the version that is kept, and the run with
    /// its step.
    fn identity(&self) -> (Id, Digest) {
        let step = self.run.step.to_le_bytes();
        (self.manifest.version, Digest::of(&[self.run.fingerprint.as_bytes(), &step]))
    }

    /// Hashes of all components of data and state that this server holds.
    fn hashes(&self, mpc: &P) -> Result<Hashes> {
        let Hashes { sharing, of: state } = Hashes::new(mpc.sharing(), &self.state_shares(mpc)?);
        let both = self.data.of.iter().zip(&state);
        let of = both.map(|(data, state)| Digest::of(&[data.as_bytes(), state.as_bytes()]));
        Ok(Hashes { sharing, of: of.collect() })
    }

    /// Checks that the run may have a slice of this many steps now, and that it takes no more than `limit`.
    pub(super) fn check_steps(&self, steps: u32, limit: Duration) -> Result<()> {
        let (done, all) = (self.run.step, self.run.steps);
        let refused =
            |reason: String| Err(Error::refused(format_args!("run `{}`", self.name()), reason));
        if steps == 0 || done.checked_add(steps).is_none_or(|end| end > all) {
            return refused(format!("{steps} steps from step {done} on; it has {all}"));
        }
        if done < self.opened.weights {
            let opened = self.opened.weights;
            return refused(format!(
                "its {} after step {opened} have left; no step before that is done again",
                self.run.spec.task.leaves()
            ));
        }
        let end = self.openings().slice_end(done, all);
        if done + steps > end {
            return refused(format!(
                "{steps} steps from step {done} on lead beyond step {end}, after which something leaves; end a slice \
                 there"
            ));
        }
        let most = self
            .step_time
            .map_or(FIRST, |one| (2.0 * limit.as_secs_f64() / one.as_secs_f64().max(1e-6)) as u32);
        if steps > most.max(1) {
            return refused(format!(
                "{steps} steps at once; at most {most} fit into the {} s of limits.train_seconds",
                limit.as_secs()
            ));
        }
        Ok(())
    }

    /// Checks that the run keeps within the privacy budgets of its data sets.
    pub(super) fn check_budgets(&self, core: &Core) -> Result<()> {
        self.each_charge(|charge| core.store.ledger().affords(charge))
    }

    /// Counts the privacy cost of the whole run for its data sets, unless that is counted already. No step is done
    /// before.
    pub(super) fn spend(&self, core: &Core) -> Result<()> {
        self.each_charge(|charge| core.store.ledger().spend(charge))
    }

    fn each_charge(&self, mut act: impl FnMut(&Charge<'_>) -> Result<()>) -> Result<()> {
        let cost = match &self.stage {
            Stage::Training { training, .. } => training.privacy()?,
            Stage::Analysis { .. } => None,
        };
        let run = self.run.fingerprint;
        self.budgets.iter().try_for_each(|(owner, set, budget)| {
            act(&Charge { owner, set, budget: budget.as_ref(), run, cost: cost.as_ref() })
        })
    }

    /// True if the state must be kept after this many more steps: something of it may leave then.
    pub(super) fn keeps_after(&self, steps: u32) -> bool {
        self.openings().opens_weights(self.run.step + steps)
    }

    fn openings(&self) -> &Openings {
        &self.run.spec.openings
    }

    /// The numbers in an opening of weights, or of an analysis's results.
    pub(super) fn numbers(&self) -> u64 {
        match &self.stage {
            Stage::Training { training, .. } => {
                training.learnt().map(|spec| spec.shape.len() as u64).sum()
            }
            Stage::Analysis { analysis, .. } => analysis.flow().weights,
        }
    }

    /// True if it is a training.
    pub(super) fn trains(&self) -> bool {
        matches!(self.stage, Stage::Training { .. })
    }

    /// The run that this is, and how far it is.
    pub(super) fn run(&self) -> &Run {
        &self.run
    }

    /// The bits that joins before the next step open; 0 if none is to be made.
    pub(super) fn join_bits(&self) -> u64 {
        self.rows.join_bits()
    }

    /// Makes these joins, and before the first step of a run that standardises its rows the numbers by which it does. The
    /// inner result is the reason why sets cannot be joined, at all servers alike.
    pub(super) fn prepare(&mut self, mpc: &mut P) -> Result<Result<(), Unjoined>> {
        if let Err(reason) = self.rows.bring_together(mpc)? {
            return Ok(Err(reason));
        }
        if let Stage::Training { training, state, .. } = &mut self.stage
            && self.run.step == 0
        {
            let kept = self.run.categories();
            training.plan().standardize(mpc, state, self.rows.whole()?, &kept)?;
        }
        Ok(Ok(()))
    }

    /// Does some steps of one window.
    pub(super) fn advance(
        &mut self,
        mpc: &mut P,
        steps: u32,
        seed: u64,
        observer: &mut dyn Observer,
    ) -> Result<Slice<P::Share>> {
        let from = self.run.step;
        let (end, all) = (from + steps, self.run.steps);
        let window = self.openings().window(from, all);
        let rows = self.rows.whole()?;
        let began = Instant::now();
        let slice = match &mut self.stage {
            Stage::Training { training, state, sums } => {
                let Seen { sums: more, left } =
                    training.run(mpc, state, rows, from..end, seed, observer)?;
                if from == window.start {
                    self.run.sums_from = Some(from);
                    *sums = more;
                } else if self.run.sums_from == Some(window.start) {
                    for (sum, more) in sums.iter_mut().zip(&more) {
                        *sum = mpc.add(sum, more)?;
                    }
                }
                let mut metrics = None;
                if end == window.end {
                    let sums = std::mem::take(sums);
                    metrics = (self.run.sums_from == Some(window.start)).then_some(sums);
                    self.run.sums_from = None;
                }
                Slice { metrics, left }
            }
            Stage::Analysis { analysis, values } => {
                values.run(analysis, mpc, rows, from..end)?;
                Slice { metrics: None, left: None }
            }
        };
        self.step_time = Some(began.elapsed() / steps.max(1));
        self.run.step = end;
        Ok(slice)
    }

    /// Writes the state as a version of the run beside the current one.
    pub(super) fn stage_state(&self, core: &Core, mpc: &P, version: Id) -> Result<()> {
        let Manifest { name, owner, readers, .. } = &self.manifest;
        // Consent may have come or gone since the state was loaded; decisions until the version is current are taken
        // over then.
        let mut run = self.run.clone();
        run.take_decisions(self.manifest.run()?);
        let content = Content::Run(Box::new(run));
        let mut shares = self.state_shares(mpc)?;
        if let Stage::Training { sums, .. } = &self.stage {
            shares.extend(mpc.hold(&sums.iter().collect::<Vec<_>>())?);
        }
        core.store.stage(&NewItem {
            name,
            version,
            content: &content,
            owner,
            readers,
            plan: &self.request,
            shares: &StoredShares::of(&shares),
            tokenizer: b"",
        })
    }

    /// This server's part of the network, its weights and running statistics without the state of the optimiser; or of the
    /// results of an analysis.
    pub(super) fn released(&self, mpc: &mut P) -> Result<Vec<Released>> {
        let leaves = match &self.stage {
            Stage::Training { training, state, .. } => {
                let state = state.shares();
                let places = training.plan().network_places();
                places.into_iter().filter_map(|at| state.get(at).copied()).collect()
            }
            Stage::Analysis { analysis, values } => values.results(analysis)?,
        };
        Ok(mpc.release(&leaves)?)
    }

    /// The training, and its state.
    ///
    /// # Errors
    /// [`Error::Internal`] for an analysis: no model is made of one.
    fn trained(&self) -> Result<(&Training, &State<P>)> {
        match &self.stage {
            Stage::Training { training, state, .. } => Ok((training, state)),
            Stage::Analysis { .. } => Err(Error::Internal("an analysis as a training".to_owned())),
        }
    }

    /// This server's shares of the trained network's weights. Batch normalisations are settled for inference, for
    /// which the servers compute.
    pub(super) fn model_shares(&self, mpc: &mut P) -> Result<Shares> {
        let (training, state) = self.trained()?;
        let weights = training.plan().finish(mpc, state)?;
        let share = |weight: &'_ Operand<P>| match weight {
            Operand::Secret(weight) => Ok(weight.share().clone()),
            Operand::Public(_) => Err(Error::Internal("a trained weight is public".to_owned())),
        };
        let weights = weights.iter().map(share).collect::<Result<Vec<_>>>()?;
        Ok(mpc.hold(&weights.iter().collect::<Vec<_>>())?)
    }

    /// Writes the trained network as a model, beside the current one if there is one.
    pub(super) fn stage_model(
        &self,
        core: &Core,
        version: Id,
        owner: &str,
        name: &str,
        readers: &Readers,
        shares: &Shares,
    ) -> Result<()> {
        let (training, _) = self.trained()?;
        let plan = training.plan();
        let program = Program::new(plan.inference().clone().with_guard(true))?;
        program.check_memory(program.plan().fixed_batch().unwrap_or(1), &core.limits)?;
        let Task::Training { preprocess, labels, .. } = &self.run.spec.task else {
            return Err(Error::Internal("a training without its settings".to_owned()));
        };
        let mut about = program.about(preprocess.clone(), labels.clone())?;
        self.run.describe(&mut about);
        about.check()?;
        let plan = program.to_bytes()?;
        let stored = StoredShares::of(shares);
        let bytes = bytes_held(&stored) + plan.len() as u64;
        core.quotas.check_keep(&core.store, owner, name, bytes)?;
        let content = Content::Model { about: Box::new(about), ranges: Vec::new() };
        core.store.stage(&NewItem {
            name,
            version,
            content: &content,
            owner,
            readers,
            plan: &plan,
            shares: &stored,
            tokenizer: b"",
        })
    }

    fn state_shares(&self, mpc: &P) -> Result<Shares> {
        let state = match &self.stage {
            Stage::Training { state, .. } => state.shares(),
            Stage::Analysis { analysis, values } => values.state(analysis)?,
        };
        Ok(mpc.hold(&state)?)
    }
}

impl Derived {
    /// Derives what a request that a client sent asks for, whose state may take `most_bytes`.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is not a request of this task, is not sound, or is too large.
    pub(super) fn new(request: &[u8], task: &Task, most_bytes: u64) -> Result<Self> {
        let planned = Planned::parse(request, task, most_bytes)?;
        Ok(Self { request: Digest::of(&[request]), planned })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_most_in_memory_gives_way_first() {
        let held = |all: &[(&str, u64)]| -> Vec<_> {
            all.iter().map(|&(owner, bytes)| (owner.to_owned(), bytes)).collect()
        };
        let four = held(&[("alice", 1), ("mallory", 3), ("mallory", 3), ("bob", 2)]);
        assert!(surplus(&four, 9).is_empty());
        assert_eq!(surplus(&four, 8), [1]);
        assert_eq!(surplus(&four, 5), [1, 2]);
        assert_eq!(surplus(&four, 2), [1, 2, 0], "the last was used just now");
        assert_eq!(surplus(&held(&[("alice", 2), ("mallory", 9)]), 10), [0], "nothing else can go");
        assert!(surplus(&held(&[("alice", 20)]), 10).is_empty());
        assert!(surplus(&[], 0).is_empty());
    }
}
