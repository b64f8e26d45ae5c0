//! The work of jobs at one server, in one session.

use std::{cmp::Reverse, collections::VecDeque, sync::Arc};

use gpu_kernels::AnyEngine;
use mpc_core::{Profile, ServerProtocol};
use net::{Canceller, PairKey, Party, Session};
use nn_layers::{Observer, StepInfo};

use super::{
    Core, Job, Outcome, Phase,
    agreement::{Marks, Proposal, Tally, Terms},
    cache::{Hashes, Loaded, Models, bytes_of_word},
    control::exchange,
    conversations::Conversations,
    jobs::{Agreed, JobInfo, Kind, Offer, Ready, Work},
    tapes::Players,
    trainings::{Progress, Trainings},
};
use crate::{
    base::{Digest, Error, Id, Result},
    store::{self, Change, Manifest},
    wire::Watched,
};

/// Runs jobs within one session, by the protocol `P`.
pub(super) struct Worker<'a, P: ServerProtocol> {
    pub(super) core: &'a Core,
    pub(super) computing: Computing<P>,
    pub(super) control: Watched,
    /// The keys shared with each other server.
    keys: Vec<Option<PairKey>>,
    /// Ends the session, and the job that runs with it.
    pub(super) canceller: Canceller,
    /// Jobs begun in this session, the same number at all servers.
    pub(super) jobs: u64,
    /// Models in memory.
    models: Models<P>,
    /// Trainings under way.
    pub(super) trainings: Trainings<P>,
    /// Conversations under way.
    pub(super) conversations: Conversations<P>,
    /// Names of models that are to be loaded before a job asks for them. Others are passed over.
    pub(super) ahead: VecDeque<String>,
}

/// The protocol that computes in a session.
pub(super) enum Computing<P> {
    /// Its protocol.
    Session(Box<P>),
    /// The protocols of the tapes that are played in it.
    Tapes(Players),
}

impl<P> Computing<P> {
    fn session(&mut self) -> Option<&mut P> {
        match self {
            Self::Session(mpc) => Some(mpc),
            Self::Tapes(_) => None,
        }
    }

    pub(super) fn mpc(&mut self) -> Result<&mut P> {
        let none = || Error::Internal("no tape was chosen for this job".to_owned());
        self.session().ok_or_else(none)
    }
}

/// The models of a store, the newest first.
fn newest_models(core: &Core) -> VecDeque<String> {
    let put_at = |name: &String| {
        let manifest = core.store.entry(name).usable(name).ok()?;
        manifest.model().is_ok().then_some(manifest.put_at)
    };
    let names = core.store.names().unwrap_or_default().into_iter();
    let mut models: Vec<_> =
        names.filter_map(|name| Some((Reverse(put_at(&name)?), name))).collect();
    models.sort();
    models.into_iter().map(|(_, name)| name).collect()
}

/// Notes where a job is, and ends it if the session has been, also where it computes without a message.
pub(super) struct Observing {
    place: Watched,
    canceller: Canceller,
}

impl Observing {
    /// Starts counting again.
    pub(super) fn begin(control: &Watched, canceller: &Canceller) -> Self {
        control.begin();
        Self { place: control.hand(), canceller: canceller.clone() }
    }

    /// The result of the work; if the session was ended, the reason for that, in the same words at every place that
    /// notices it.
    pub(super) fn end<T>(mut self, me: usize, done: Result<T>) -> Result<T> {
        match self.stops() {
            Some(reason) => Err(Error::Net(net::Error::Cancelled { by: Party(me), reason })),
            None => done,
        }
    }
}

impl Observer for Observing {
    fn stops(&mut self) -> Option<String> {
        self.canceller.reason()
    }

    fn started(&mut self, step: &StepInfo<'_>) {
        self.place.started(step);
    }
}

impl<'a, P: ServerProtocol<Engine = AnyEngine>> Worker<'a, P> {
    pub(super) fn start(
        core: &'a Core,
        session: Session,
        control: Watched,
        canceller: Canceller,
    ) -> Result<Self> {
        let keys = session.pair_keys.clone();
        let computing = if core.shelf.is_some() {
            Computing::Tapes(Players::new(&session))
        } else {
            let mut mpc = P::start(session, core.engine.clone(), core.computing.settings)?;
            mpc.agree()?;
            Computing::Session(Box::new(mpc))
        };
        let most = core.limits.cache_mib << 20;
        core.metrics.loaded(0);
        let (models, trainings) = (Models::new(most), Trainings::new(most));
        let conversations = Conversations::new(core.limits.conversations_mib << 20);
        Ok(Self {
            core,
            computing,
            control,
            keys,
            canceller,
            jobs: 0,
            models,
            trainings,
            conversations,
            ahead: newest_models(core),
        })
    }

    /// Brings the next of the models that no job has asked for yet to where they are computed, while no job waits, so that
    /// its first job takes no longer than others. What is wrong with one its jobs say.
    pub(super) fn load_ahead(&mut self) {
        let Some(name) = self.ahead.pop_front() else { return };
        let manifest = self.core.store.entry(&name).usable(&name);
        let Ok(manifest) = manifest else { return };
        let (Ok((about, _)), Ok(sharing)) =
            (manifest.model(), manifest.content.sharing(self.core.sharing()))
        else {
            return;
        };
        let bytes = about.weights.saturating_mul(bytes_of_word(sharing));
        let fits = self.models.has_room(&name, bytes);
        if fits && let Err(error) = self.load(&name, &manifest) {
            tracing::info!(model = name, %error, "the model was not loaded ahead");
        }
    }

    /// Runs a job. The inner result is for the client; the outer one is the session's.
    pub(super) fn run(&mut self, id: Id, job: &mut Job) -> Result<Outcome> {
        let Job { client, digest, work, .. } = job;
        let info = JobInfo { id, client, digest: *digest };
        let parts = work.hashes(self.core.sharing())?;
        let changed = work.changes().map(str::to_owned);
        let (change, refused) = match self.begin_change(changed.as_deref()) {
            Ok(change) => (change, None),
            Err(error) => (None, Some(error)),
        };
        let outcome = match work {
            Work::Put(put) => self.run_kind(info, refused, parts, put),
            Work::Share(share) => self.run_kind(info, refused, parts, share),
            Work::Remove(remove) => self.run_kind(info, refused, parts, remove),
            Work::Infer(infer) => self.run_kind(info, refused, parts, infer),
            Work::Extend(extend) => self.run_kind(info, refused, parts, extend),
            Work::Close(close) => self.run_kind(info, refused, parts, close),
            Work::Decide(decide) => self.run_kind(info, refused, parts, decide),
            Work::Train(train) => self.run_kind(info, refused, parts, train),
            Work::Release(release) => self.run_kind(info, refused, parts, release),
            Work::Publish(publish) => self.run_kind(info, refused, parts, publish),
        }?;
        if changed.is_some() {
            self.end_change(change)?;
        }
        Ok(outcome)
    }

    /// Keeps other cells from changing the name that a job changes. Party 0 says which cell does.
    fn begin_change(&self, name: Option<&str>) -> Result<Option<Change>> {
        match name {
            Some(name) if self.core.me == 0 => self.core.store.begin_change(name).map(Some),
            _ => Ok(None),
        }
    }

    /// Lets other cells change the name, once all servers have.
    fn end_change(&mut self, change: Option<Change>) -> Result<()> {
        if self.core.store.worker() == store::Worker::Alone {
            return Ok(());
        }
        exchange::<()>(&mut self.control, "end of a change", &())?;
        change.map_or(Ok(()), |change| self.core.store.end_change(change))
    }

    fn run_kind<K: Kind<P>>(
        &mut self,
        job: JobInfo<'_>,
        refused: Option<Error>,
        parts: Hashes,
        kind: &mut K,
    ) -> Result<Outcome> {
        self.jobs += 1;
        self.take_profile(self.core.computing.settings.profile);
        let prepared = refused.map_or_else(|| kind.prepare(self, job), Err);
        let offer = match &prepared {
            Ok(ready) => Ok(ready.offer(self)?),
            Err(error) => Err(error.to_string()),
        };
        let agreed = self.vote(job.digest, parts, offer)?;
        if let Some(reason) = agreed.verdict() {
            if let Ok(ready) = prepared {
                ready.give_up(self)?;
            }
            return Ok(Err(reason.into()));
        }
        if K::COMPUTES {
            self.core.compute();
        } else {
            self.core.end();
        }
        kind.run(prepared?, self, job, &agreed)
    }

    /// Sends the others this server's terms with its offer, or its reason against the job, and receives the same from
    /// them. All servers decide the same from the proposals.
    pub(super) fn vote(
        &mut self,
        request: Digest,
        parts: Hashes,
        offer: Result<Offer, String>,
    ) -> Result<Agreed> {
        let me = self.core.me;
        let (Offer { model, stored, tapes, opened }, against) = match offer {
            Ok(offer) => (offer, None),
            Err(reason) => (Offer::default(), Some(reason)),
        };
        let described = match &self.computing {
            Computing::Session(mpc) => mpc.described(),
            Computing::Tapes(_) => format!("{:?} from tapes", self.core.computing.settings),
        };
        let terms = Terms::new(described, self.jobs, request, model);
        let digest = terms.digest();
        let stored = stored.unwrap_or_else(|| Hashes::none(self.core.sharing()));
        let sharings = [parts.sharing, stored.sharing];
        let mark = |what: &str, hashes: &Hashes| Marks::new(hashes, me, &self.keys, &digest, what);
        let (parts, stored) = (mark("parts", &parts), mark("stored", &stored));
        let against = against.or(self.core.vote());
        let mine = Proposal { terms, against, parts, stored, tapes, opened };
        let mut proposals = exchange::<Proposal>(&mut self.control, "prepare job", &mine)?;
        proposals[me] = mine;
        Ok(Agreed { terms: digest, proposals, sharings })
    }

    /// From here on, computes in this profile. The servers compare it before the job.
    pub(super) fn take_profile(&mut self, profile: Profile) {
        if let Some(mpc) = self.computing.session() {
            mpc.set_profile(profile);
        }
    }

    /// A version of a model, with its shares.
    pub(super) fn load(&mut self, name: &str, manifest: &Manifest) -> Result<Arc<Loaded<P>>> {
        self.models.load(self.core, self.computing.session(), name, manifest)
    }

    /// A training after this many steps.
    pub(super) fn progress(&mut self, manifest: &Manifest, step: u32) -> Result<Box<Progress<P>>> {
        let mpc = self.computing.mpc()?;
        self.trainings.take(self.core, mpc, manifest, step).map(Box::new)
    }

    /// Drops what is in memory of an item that was removed.
    pub(super) fn forget(&mut self, name: &str) {
        self.core.programs.forget(name);
        self.models.forget(self.core, name);
        self.trainings.forget(name);
        self.conversations.forget(name);
    }

    /// Counts and watches what the protocol does, and ends it if the session has been ended.
    pub(super) fn observed<T>(
        &mut self,
        work: impl FnOnce(&mut P, &mut dyn Observer) -> Result<T>,
    ) -> Result<T> {
        let mut observer = Observing::begin(&self.control, &self.canceller);
        let done = work(self.computing.mpc()?, &mut observer);
        observer.end(self.core.me, done)
    }

    /// Makes each server's staged version current, if all have one. Returns why not, if one has not.
    pub(super) fn bring_into_force(
        &mut self,
        name: &str,
        version: Id,
        staged: Result<()>,
    ) -> Result<Option<String>> {
        let mine = staged.as_ref().err().map(ToString::to_string);
        let mut all = exchange::<Option<String>>(&mut self.control, "keep the result", &mine)?;
        all[self.core.me] = mine;
        let failed = all.iter().enumerate().find_map(|(party, reason)| {
            reason
                .as_ref()
                .map(|reason| format!("party {party} could not keep the result: {reason}"))
        });
        if failed.is_some() {
            if staged.is_ok() {
                self.core.store.discard(name, version)?;
            }
            return Ok(failed);
        }
        self.core.store.commit(name, version)?;
        Ok(None)
    }
}

/// Makes sure that all servers did the same work. A server that did not must not answer: its results, or the others',
/// belong to another job.
pub(super) fn compare_counters(core: &Core, control: &mut Watched, operations: u64) -> Result<()> {
    core.end();
    let [sent, received] = control.traffic();
    let mine = Tally::new(operations, &sent, &received);
    let mut all = exchange::<Tally>(control, "finish job", &mine)?;
    all[core.me] = mine;
    match Tally::difference(&all) {
        None => Ok(()),
        Some(reason) => {
            let text = format!("{reason}; nothing was answered");
            Err(Error::refused("servers", text))
        }
    }
}

impl Core {
    /// This server is about to give its word on the running job. Returns why its client, or its time, is
    /// against it.
    fn vote(&self) -> Option<String> {
        match self.enter(Phase::Voting(None)) {
            Some(Phase::Preparing(cancel)) => cancel,
            _ => None,
        }
    }

    /// All servers run the job.
    pub(super) fn compute(&self) {
        if let Some(Phase::Voting(Some(reason))) = self.enter(Phase::Computing)
            && let Some(running) = &mut self.state().running
        {
            running.end(&reason);
        }
    }

    /// This server has done its part in how the job ends.
    fn end(&self) {
        self.enter(Phase::Ending);
    }

    fn enter(&self, phase: Phase) -> Option<Phase> {
        let mut state = self.state();
        state.running.as_mut().map(|running| std::mem::replace(&mut running.phase, phase))
    }
}
