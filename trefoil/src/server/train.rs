//! Trainings under way at one server.

use mpc_core::{Deal, Operand, Released};
use nn_layers::{
    Observer,
    train::{State, TrainPlan},
};
use ring_arith::Shape;

use super::{
    Core,
    access::{disk_bytes, words_held},
    cache::hashes,
};
use crate::{
    Digest, Error, Id, Result, Shares,
    program::{self, Mpc, Program, Share, shapes_of},
    store::{Content, Manifest, NewItem, Readers},
    training::{DataSet, Run, Training, beside, concat},
};

/// Most trainings whose state stays in memory between jobs.
const KEPT: usize = 4;

/// The trainings whose state is in memory; the one used last stands last.
#[derive(Default)]
pub(super) struct Trainings(Vec<Progress>);

/// A training under way.
pub(super) struct Progress {
    manifest: Manifest,
    run: Run,
    training: Training,
    /// The plan of a step as it is written: part of every version that is kept.
    written: Vec<u8>,
    state: State<Mpc>,
    /// All rows of each tensor of a batch.
    rows: Vec<Share>,
    /// Of all components of the rows that this server holds.
    data: Vec<Digest>,
}

impl Trainings {
    /// A run as it is after so many steps, out of memory or as it is kept on disk.
    ///
    /// # Errors
    /// [`Error::Refused`] if the state is that of another step, which it names.
    pub(super) fn take(&mut self, core: &Core, manifest: &Manifest, step: u32) -> Result<Progress> {
        let run = manifest.run()?;
        let known = self.0.iter().position(|known| known.run.fingerprint == run.fingerprint);
        if let Some(at) = known {
            let mut progress = self.0.remove(at);
            if progress.run.step == step {
                progress.manifest = manifest.clone();
                return Ok(progress);
            }
        }
        if run.step != step {
            let reason = format!(
                "this server has kept its state after step {}, and not after step {step}; go on from there",
                run.step
            );
            return Err(Error::refused(format_args!("run `{}`", manifest.name), reason));
        }
        Progress::load(core, manifest, run.clone())
    }

    /// Keeps the state of a run in memory.
    pub(super) fn keep(&mut self, progress: Progress) {
        self.forget(progress.name());
        self.0.push(progress);
        if self.0.len() > KEPT {
            self.0.remove(0);
        }
    }

    /// Drops a run that was removed.
    pub(super) fn forget(&mut self, name: &str) {
        self.0.retain(|known| known.name() != name);
    }
}

impl Progress {
    fn load(core: &Core, manifest: &Manifest, run: Run) -> Result<Self> {
        let name = &manifest.name;
        let written = core.store.plan(name, manifest)?;
        let plan = parse_plan(&written)?;
        let training = Training::new(plan, run.spec.course, run.rows)?;
        let shares = core.store.shares(name, manifest)?;
        let state = training.plan().secret_state(program::upload(&core.engine, shares)?)?;
        let mut sets: Vec<(DataSet, Shares)> = Vec::new();
        for used in &run.spec.data {
            let data = core.usable_data(&manifest.owner, used)?;
            let shares = core.store.shares(&used.name, &data)?;
            let set = data.data()?;
            check_shapes(&used.name, &shares, &set.shapes()?)?;
            match sets.last_mut() {
                Some((known, held)) if used.beside => beside((known, held), (set, shares))?,
                _ => sets.push((set.clone(), shares)),
            }
        }
        let rows = concat(sets.into_iter().map(|(_, shares)| shares).collect())?;
        let data = hashes(&rows);
        let rows = program::upload(&core.engine, rows)?;
        Ok(Self { manifest: manifest.clone(), run, training, written, state, rows, data })
    }

    pub(super) fn name(&self) -> &str {
        &self.manifest.name
    }

    /// What must be the same at all servers: the version that is kept, and the run with its step.
    pub(super) fn identity(&self) -> (Id, Digest) {
        let step = self.run.step.to_le_bytes();
        (self.manifest.version, Digest::of(&[self.run.fingerprint.as_bytes(), &step]))
    }

    /// Of all components of data and state that this server holds.
    pub(super) fn hashes(&self, mpc: &Mpc) -> Result<Vec<Digest>> {
        let state = hashes(&self.state_shares(mpc)?);
        let both = self.data.iter().zip(&state);
        Ok(both.map(|(data, state)| Digest::of(&[data.as_bytes(), state.as_bytes()])).collect())
    }

    /// Checks that so many steps are left.
    pub(super) fn check_steps(&self, steps: u32) -> Result<()> {
        let (done, all) = (self.run.step, self.training.steps());
        if steps == 0 || done.checked_add(steps).is_none_or(|end| end > all) {
            let reason = format!("{steps} steps from step {done} on; it has {all}");
            return Err(Error::refused(format_args!("run `{}`", self.name()), reason));
        }
        Ok(())
    }

    /// Does some steps. Returns this server's shares of the metrics, summed over them, and of what the guard
    /// found.
    pub(super) fn run(
        &mut self,
        mpc: &mut Mpc,
        steps: u32,
        seed: u64,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Share>> {
        let steps = self.run.step..self.run.step + steps;
        let end = steps.end;
        let metrics = self.training.run(mpc, &mut self.state, &self.rows, steps, seed, observer)?;
        self.run.step = end;
        Ok(metrics)
    }

    /// Writes the state as a version of the run beside the one in force.
    pub(super) fn stage_state(&self, core: &Core, mpc: &Mpc, version: Id) -> Result<()> {
        let Manifest { name, owner, readers, .. } = &self.manifest;
        // Consent may have come or gone since the state was loaded.
        let Run { approved, stopped, .. } = self.manifest.run()?.clone();
        let content = Content::Run(Box::new(Run { approved, stopped, ..self.run.clone() }));
        let shares = self.state_shares(mpc)?;
        core.store.stage(&NewItem {
            name,
            version,
            content: &content,
            owner,
            readers,
            plan: &self.written,
            shares: &shares,
        })
    }

    /// What this server gives the run's owner of the state.
    pub(super) fn released(&self, mpc: &mut Mpc) -> Result<Vec<Released>> {
        Ok(mpc.release(&self.state.shares())?)
    }

    /// This server's shares of the trained network's weights. Batch normalisations are settled for inference, for
    /// which the servers compute.
    pub(super) fn model_shares(&self, mpc: &mut Mpc) -> Result<Shares> {
        let weights = self.training.plan().finish(mpc, &self.state)?;
        let share = |weight: &'_ Operand<Mpc>| match weight {
            Operand::Secret(weight) => Ok(weight.share().clone()),
            Operand::Public(_) => Err(Error::Internal("a trained weight is public".to_owned())),
        };
        let weights = weights.iter().map(share).collect::<Result<Vec<_>>>()?;
        Ok(mpc.hold(&weights.iter().collect::<Vec<_>>())?)
    }

    /// Writes the trained network as a model, beside the one in force if there is one.
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
        let about = program.about(spec.preprocess.clone(), spec.labels.clone())?;
        about.check()?;
        let plan = program.to_bytes()?;
        let bytes = disk_bytes(words_held(shares), plan.len() as u64);
        core.quotas.check_keep(owner, name, bytes)?;
        let content = Content::Model { about, ranges: Vec::new() };
        core.store.stage(&NewItem {
            name,
            version,
            content: &content,
            owner,
            readers,
            plan: &plan,
            shares,
        })
    }

    fn state_shares(&self, mpc: &Mpc) -> Result<Shares> {
        Ok(mpc.hold(&self.state.shares())?)
    }
}

/// Reads a training's plan that somebody sent.
///
/// # Errors
/// [`Error::Refused`] if it is none, or does not hold together.
pub(super) fn parse_plan(bytes: &[u8]) -> Result<TrainPlan> {
    serde_json::from_slice(bytes)
        .map_err(|cause| Error::refused("run", format_args!("its plan is not sound: {cause}")))
}

fn check_shapes(name: &str, shares: &Shares, wanted: &[Shape]) -> Result<()> {
    if shapes_of(shares)? == wanted {
        return Ok(());
    }
    let reason = "its rows are not as its description says; put it again with --replace";
    Err(Error::refused(format_args!("data set `{name}`"), reason))
}
