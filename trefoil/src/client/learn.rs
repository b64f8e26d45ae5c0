//! What a client does to have something trained.

use std::{thread, time::Duration};

use nn_layers::train::TrainPlan;
use ring_arith::Tensor;

use super::{Answer, Client, Watch, agreed, ask, outcome, result, status, unexpected};
use crate::{
    Digest, Error, Id, Result,
    store::Readers,
    training::{DataSet, Decision, RunSpec},
    wire::{DataState, Link, Pace, Reply, Request, RunState, receive_bytes, say},
};

/// How often servers that do not say the same of a run are asked again, and how long after.
const LOOKS: u32 = 6;
const PAUSE: Duration = Duration::from_millis(200);

/// Longest plan that a client reads, in bytes.
const PLAN: u64 = 64 << 20;

/// The start of a run.
pub struct NewRun<'a> {
    /// Its name.
    pub name: &'a str,
    /// What is to be trained on what.
    pub spec: &'a RunSpec,
    /// The plan of a step, written.
    pub plan: &'a [u8],
    /// The state at the start, encoded. It stays on this machine; shares of it leave it.
    pub state: &'a [Tensor],
    /// Whether it may take the place of a run of the same name.
    pub replace: bool,
}

/// An item of the servers' lists.
pub trait Listed: PartialEq {
    /// What kind of thing it is.
    const KIND: &'static str;

    /// Its name.
    fn name(&self) -> &str;

    /// Why it cannot be used, if it cannot.
    fn damage(&self) -> Option<&str>;

    /// Whether two servers say the same of it.
    fn same(&self, other: &Self) -> bool;
}

impl Listed for DataState {
    const KIND: &'static str = "data set";

    fn name(&self) -> &str {
        &self.name
    }

    fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    fn same(&self, other: &Self) -> bool {
        // When each wrote it down is its own.
        *self == Self { put_at: self.put_at, ..other.clone() }
    }
}

impl Listed for RunState {
    const KIND: &'static str = "run";

    fn name(&self) -> &str {
        &self.name
    }

    fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    fn same(&self, other: &Self) -> bool {
        *self == Self { put_at: self.put_at, ..other.clone() }
    }
}

/// What the lists of the servers say of one name, if all have it and say the same.
///
/// # Errors
/// [`Error::Refused`] that names the server that lacks it or says something else.
pub fn agree_on_item<'a, T: Listed>(name: &str, lists: &'a [Vec<T>]) -> Result<&'a T> {
    let what = format!("{} `{name}`", T::KIND);
    let found = lists.iter().map(|list| list.iter().find(|item| item.name() == name));
    let found: Vec<_> = found.collect();
    if found.iter().all(Option::is_none) {
        let reason = "there is none of that name that you may use";
        return Err(Error::refused(what, reason));
    }
    let mut items = Vec::new();
    for (party, item) in found.into_iter().enumerate() {
        let lacks = || Error::refused(what.clone(), format_args!("party {party} lacks it"));
        let item = item.ok_or_else(lacks)?;
        if let Some(damage) = item.damage() {
            return Err(Error::refused(format_args!("party {party}"), damage));
        }
        items.push(item);
    }
    if items.windows(2).all(|two| two[0].same(two[1])) {
        return Ok(items[0]);
    }
    let reason = "the servers do not say the same of it; its owner can put it again";
    Err(Error::refused(what, reason))
}

impl Client {
    /// The data sets at each server that this client may use.
    ///
    /// # Errors
    /// [`Error::Unreachable`] naming the server that does not answer.
    pub fn data_sets(&mut self) -> Result<Vec<Vec<DataState>>> {
        let ask = |last: Option<&DataState>| Request::DataSets {
            after: last.map(|set| set.name.clone()),
        };
        self.pages(ask, |reply| match reply {
            Reply::DataSets { sets, more } => Ok((sets, more)),
            other => Err(unexpected(&other)),
        })
    }

    /// This client's runs at each server, and those that use its data.
    ///
    /// # Errors
    /// [`Error::Unreachable`] naming the server that does not answer.
    pub fn runs(&mut self) -> Result<Vec<Vec<RunState>>> {
        let ask =
            |last: Option<&RunState>| Request::Runs { after: last.map(|run| run.name.clone()) };
        self.pages(ask, |reply| match reply {
            Reply::Runs { runs, more } => Ok((runs, more)),
            other => Err(unexpected(&other)),
        })
    }

    /// A run of that name, as all servers know it. What somebody else changes is known to one before another: that is
    /// waited for, a second at most.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is none, or they do not say the same.
    pub fn run(&mut self, name: &str) -> Result<RunState> {
        let mut looks = LOOKS;
        loop {
            let runs = self.runs()?;
            let agreed = agree_on_item(name, &runs).cloned();
            looks -= 1;
            if agreed.is_ok() || looks == 0 || !runs.iter().flatten().any(|run| run.name == name) {
                return agreed;
            }
            thread::sleep(PAUSE);
        }
    }

    /// Whether each server has a session with the others.
    ///
    /// # Errors
    /// [`Error::Unreachable`] naming the server that does not answer.
    pub fn linked(&mut self) -> Result<bool> {
        let links = self.all(|_, channel, silence, _| {
            status(channel, silence).map(|status| status.link == Link::Up)
        })?;
        Ok(links.iter().all(|up| *up))
    }

    /// Shares the rows of a data set among the servers. `rows` are the words of each of its tensors.
    ///
    /// # Errors
    /// [`Error::Refused`] with the servers' reason; what is in force is as before then.
    pub fn put_data(
        &mut self,
        name: &str,
        set: &DataSet,
        rows: &[Tensor],
        readers: &Readers,
        replace: bool,
        watch: &dyn Watch,
    ) -> Result<()> {
        let request = Request::PutData {
            job: Id::random()?,
            name: name.to_owned(),
            set: set.clone(),
            readers: readers.clone(),
            replace,
        };
        self.upload(&request, &[], rows, watch)
    }

    /// Shares the start of a run among the servers. It begins with [`Client::train`], once the owners of its
    /// data consent.
    ///
    /// # Errors
    /// [`Error::Refused`] with the servers' reason; what is in force is as before then.
    pub fn put_run(&mut self, run: &NewRun<'_>, watch: &dyn Watch) -> Result<()> {
        let request = Request::PutRun {
            job: Id::random()?,
            name: run.name.to_owned(),
            spec: Box::new(run.spec.clone()),
            plan: run.plan.len() as u64,
            replace: run.replace,
        };
        let plan = bytes::Bytes::copy_from_slice(run.plan);
        self.upload(&request, &[plan], run.state, watch)
    }

    /// Consents to a run on this client's data, as its fingerprint says it is.
    ///
    /// # Errors
    /// [`Error::Refused`] with the servers' reason.
    pub fn approve(&mut self, name: &str, fingerprint: Digest, watch: &dyn Watch) -> Result<()> {
        self.decide(name, fingerprint, Decision::Approve, watch)
    }

    /// Decides about a run of this client's, or one that uses its data. A step that runs ends first.
    ///
    /// # Errors
    /// [`Error::Refused`] with the servers' reason.
    pub fn decide(
        &mut self,
        name: &str,
        fingerprint: Digest,
        decision: Decision,
        watch: &dyn Watch,
    ) -> Result<()> {
        let (job, name) = (Id::random()?, name.to_owned());
        self.change(&Request::Decide { job, name, fingerprint, decision }, watch)
    }

    /// Has the servers do some steps of a run of this client's, from step `from` on, and write the state after
    /// them to their disks if `keep`. Returns the metrics' words, summed over the steps.
    ///
    /// # Errors
    /// [`Error::Refused`] with the servers' reason.
    pub fn train(
        &mut self,
        name: &str,
        fingerprint: Digest,
        from: u32,
        steps: u32,
        keep: bool,
        watch: &dyn Watch,
    ) -> Result<Answer> {
        let (job, name) = (Id::random()?, name.to_owned());
        self.asked(&Request::Train { job, name, fingerprint, from, steps, keep }, watch)
    }

    /// The plan of a step of a run, as all servers have it and as the run's fingerprint covers it.
    ///
    /// # Errors
    /// [`Error::Refused`] with a server's reason, or if they have different ones, another than the run's, or one
    /// that is not sound.
    pub fn run_plan(&mut self, state: &RunState) -> Result<TrainPlan> {
        let name = &state.name;
        let request = Request::RunPlan { name: name.clone() };
        let told = self.all(|_, channel, silence, _| match ask(channel, &request, silence)? {
            Reply::Plan { bytes } if bytes <= PLAN => {
                receive_bytes(channel, bytes as usize, &mut Pace::frames(silence))
            }
            other => Err(unexpected(&other)),
        })?;
        let refused = |reason: &str| Error::refused(format_args!("run `{name}`"), reason);
        let Some(plan) = agreed(&told) else {
            return Err(refused("the servers do not have the same plan of it"));
        };
        if Digest::of(&[plan]) != state.run.plan {
            return Err(refused("its plan is another one by now; try again"));
        }
        serde_json::from_slice(plan).map_err(|cause| refused(&format!("its plan: {cause}")))
    }

    /// The words of the state of a run of this client's after so many steps, added up here.
    ///
    /// # Errors
    /// [`Error::Refused`] with the servers' reason.
    pub fn release(
        &mut self,
        name: &str,
        fingerprint: Digest,
        step: u32,
        watch: &dyn Watch,
    ) -> Result<Vec<Tensor>> {
        let (job, name) = (Id::random()?, name.to_owned());
        let request = Request::Release { job, name, fingerprint, step };
        Ok(self.asked(&request, watch)?.outputs)
    }

    /// Makes a model of the state of a run of this client's after so many steps. No weight leaves the servers.
    ///
    /// # Errors
    /// [`Error::Refused`] with the servers' reason.
    pub fn publish(
        &mut self,
        (run, fingerprint, step): (&str, Digest, u32),
        name: &str,
        readers: &Readers,
        replace: bool,
        watch: &dyn Watch,
    ) -> Result<()> {
        let request = Request::Publish {
            job: Id::random()?,
            run: run.to_owned(),
            fingerprint,
            step,
            name: name.to_owned(),
            readers: readers.clone(),
            replace,
        };
        self.change(&request, watch)
    }

    /// The answer to a request that sends nothing besides, added up here.
    fn asked(&mut self, request: &Request, watch: &dyn Watch) -> Result<Answer> {
        let replies = self.all(|party, channel, silence, joint| {
            say(channel, request)?;
            let reply = outcome(party, channel, silence, watch, joint)?;
            result(party, channel, silence, reply)
        })?;
        self.add_up(replies)
    }
}
