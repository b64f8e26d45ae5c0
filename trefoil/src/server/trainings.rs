//! Trainings under way at one server.

use std::{
    collections::BTreeMap,
    panic::{self, AssertUnwindSafe},
    time::{Duration, Instant},
};

use mpc_core::{Operand, Released, ServerProtocol, ShareTensor};
use nn_layers::{
    Observer,
    train::{State, TrainPlan, TrainRequest},
};

use super::{
    Core,
    access::bytes_held,
    cache::Hashes,
    jobs::Offer,
    rows::{Loaded, Rows, Unjoined},
};
use crate::{
    base::{Digest, Error, Id, Result, Shares},
    model::{Program, shapes_of},
    store::{Charge, Content, Manifest, NewItem, Opened, Readers},
    training::{Budget, Run, Seen, Training, plan_digest},
    wire::check_upload,
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

/// A training under way.
pub(super) struct Progress<P: ServerProtocol> {
    manifest: Manifest,
    run: Run,
    training: Training,
    /// The training request as it is written: part of every version that is kept.
    request: Vec<u8>,
    state: State<P>,
    /// The metrics of the steps from `run.sums_from` on, summed.
    sums: Vec<P::Share>,
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

/// The results of a slice of a training.
pub(super) struct Slice<S> {
    /// Sums of the metrics of a whole window, if one ends here.
    pub(super) metrics: Option<Vec<S>>,
    /// The guard's result for the last step.
    pub(super) left: Option<S>,
}

/// The plan of a training that a client asks for, derived here.
pub(super) struct Derived {
    /// The digest of the request as it was sent.
    pub(super) request: Digest,
    pub(super) plan: TrainPlan,
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
        let Derived { plan, .. } = Derived::new(&request, core.limits.upload_bytes())?;
        if plan_digest(&plan)? != run.plan {
            let reason = "this server's program derives another plan than the one that was consented to; make the run \
                          again";
            return Err(Error::refused(format_args!("run `{name}`"), reason));
        }
        let training = Training::new(plan, &run.spec, run.rows)?;
        let mut shares = core.store.shares(name, manifest)?;
        let sums = shares.split_off(training.plan().state().len().min(shares.len()));
        let sums = mpc.accept(&shapes_of(&sums)?, sums)?;
        let state = mpc.accept(&shapes_of(&shares)?, shares)?;
        let state = training.plan().secret_state(state)?;
        let Loaded { rows, hashes: data, budgets } =
            Loaded::read(core, mpc, &manifest.owner, &run)?;
        let (manifest, step_time) = (manifest.clone(), None);
        Ok(Self {
            manifest,
            run,
            training,
            request,
            state,
            sums,
            rows,
            data,
            budgets,
            opened,
            step_time,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.manifest.name
    }

    /// Bytes that its data and state take.
    fn bytes(&self) -> u64 {
        let state = self.state.shares().into_iter().map(|share| share.shape().len() as u64);
        WORD * (self.rows.words() + state.sum::<u64>())
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
        let (done, all) = (self.run.step, self.training.steps());
        let refused =
            |reason: String| Err(Error::refused(format_args!("run `{}`", self.name()), reason));
        if steps == 0 || done.checked_add(steps).is_none_or(|end| end > all) {
            return refused(format!("{steps} steps from step {done} on; it has {all}"));
        }
        if done < self.opened.weights {
            let opened = self.opened.weights;
            return refused(format!(
                "its weights after step {opened} have left; no step before that is done again"
            ));
        }
        let end = self.training.openings().slice_end(done, all);
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
        let (run, cost) = (self.run.fingerprint, self.training.privacy()?);
        self.budgets.iter().try_for_each(|(owner, set, budget)| {
            act(&Charge { owner, set, budget: budget.as_ref(), run, cost: cost.as_ref() })
        })
    }

    /// True if the state must be kept after this many more steps: something of it may leave then.
    pub(super) fn keeps_after(&self, steps: u32) -> bool {
        self.training.openings().opens_weights(self.run.step + steps)
    }

    /// The number of the network's numbers in an opening of weights.
    pub(super) fn numbers(&self) -> u64 {
        self.training.learnt().map(|spec| spec.shape.len() as u64).sum()
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
        if self.run.step == 0 {
            let (plan, kept) = (self.training.plan(), self.run.categories());
            plan.standardize(mpc, &mut self.state, self.rows.whole()?, &kept)?;
        }
        Ok(Ok(()))
    }

    /// Does some steps of one window.
    pub(super) fn train(
        &mut self,
        mpc: &mut P,
        steps: u32,
        seed: u64,
        observer: &mut dyn Observer,
    ) -> Result<Slice<P::Share>> {
        let from = self.run.step;
        let (end, all) = (from + steps, self.training.steps());
        let window = self.training.openings().window(from, all);
        let began = Instant::now();
        let Seen { sums, left } = self.training.run(
            mpc,
            &mut self.state,
            self.rows.whole()?,
            from..end,
            seed,
            observer,
        )?;
        self.step_time = Some(began.elapsed() / steps.max(1));
        self.run.step = end;
        if from == window.start {
            self.run.sums_from = Some(from);
            self.sums = sums;
        } else if self.run.sums_from == Some(window.start) {
            for (sum, more) in self.sums.iter_mut().zip(&sums) {
                *sum = mpc.add(sum, more)?;
            }
        }
        let mut metrics = None;
        if end == window.end {
            let sums = std::mem::take(&mut self.sums);
            metrics = (self.run.sums_from == Some(window.start)).then_some(sums);
            self.run.sums_from = None;
        }
        Ok(Slice { metrics, left })
    }

    /// Writes the state as a version of the run beside the current one.
    pub(super) fn stage_state(&self, core: &Core, mpc: &P, version: Id) -> Result<()> {
        let Manifest { name, owner, readers, .. } = &self.manifest;
        // Consent may have come or gone since the state was loaded; decisions until the version is current are taken
        // over then.
        let Run { approved, stopped, .. } = self.manifest.run()?.clone();
        let content = Content::Run(Box::new(Run { approved, stopped, ..self.run.clone() }));
        let mut shares = self.state_shares(mpc)?;
        shares.extend(mpc.hold(&self.sums.iter().collect::<Vec<_>>())?);
        core.store.stage(&NewItem {
            name,
            version,
            content: &content,
            owner,
            readers,
            plan: &self.request,
            shares: &shares,
            tokenizer: b"",
        })
    }

    /// This server's part of the network: its weights and running statistics, without the state of the optimiser.
    pub(super) fn released(&self, mpc: &mut P) -> Result<Vec<Released>> {
        let state = self.state.shares();
        let places = self.training.plan().network_places();
        let network: Vec<_> = places.into_iter().filter_map(|at| state.get(at).copied()).collect();
        Ok(mpc.release(&network)?)
    }

    /// This server's shares of the trained network's weights. Batch normalisations are settled for inference, for
    /// which the servers compute.
    pub(super) fn model_shares(&self, mpc: &mut P) -> Result<Shares> {
        let weights = self.training.plan().finish(mpc, &self.state)?;
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
        let plan = self.training.plan();
        let program = Program::new(plan.inference().clone().with_guard(true))?;
        program.check_memory(program.plan().fixed_batch().unwrap_or(1), &core.limits)?;
        let spec = &self.run.spec;
        let mut about = program.about(spec.preprocess.clone(), spec.labels.clone())?;
        self.run.describe(&mut about);
        about.check()?;
        let plan = program.to_bytes()?;
        let bytes = bytes_held(shares) + plan.len() as u64;
        core.quotas.check_keep(&core.store, owner, name, bytes)?;
        let content = Content::Model { about: Box::new(about), ranges: Vec::new() };
        core.store.stage(&NewItem {
            name,
            version,
            content: &content,
            owner,
            readers,
            plan: &plan,
            shares,
            tokenizer: b"",
        })
    }

    fn state_shares(&self, mpc: &P) -> Result<Shares> {
        Ok(mpc.hold(&self.state.shares())?)
    }
}

impl Derived {
    /// Derives the plan of a request that a client sent, whose state may take `most_bytes`.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is not a request, is not sound, or is too large.
    pub(super) fn new(request: &[u8], most_bytes: u64) -> Result<Self> {
        let refused = |cause: &dyn std::fmt::Display| {
            Error::refused("run", format_args!("its training request is not sound: {cause}"))
        };
        let parsed: TrainRequest =
            serde_json::from_slice(request).map_err(|cause| refused(&cause))?;
        check_upload(parsed.numbers(), most_bytes)?;
        // The request is a client's: a panic of the planner must not end more than this request.
        let derived = panic::catch_unwind(AssertUnwindSafe(|| parsed.derive()));
        let plan = derived
            .unwrap_or_else(|_| {
                Err(nn_layers::Error::invalid("network", "the planner failed an assertion"))
            })
            .map_err(|cause| refused(&cause))?;
        Ok(Self { request: Digest::of(&[request]), plan })
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
