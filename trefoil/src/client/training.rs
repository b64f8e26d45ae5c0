//! The requests of a client that trains.

use std::{thread, time::Duration};

use ring_arith::Tensor;

use super::{
    Answer, Client, Watch,
    exchange::{agreed, ask, outcome, result, unexpected},
    status,
};
use crate::{
    base::{Digest, Error, Id, Result, format::did_you_mean},
    store::Readers,
    training::{DataSet, Decision, Halt, Planned, RunSpec},
    wire::{Channel, DataState, Link, Pace, Reply, Request, RunState, receive_bytes, say},
};

/// The number of times that servers that differ about a run are asked again, and the pause between.
const LOOKS: u32 = 6;
const PAUSE: Duration = Duration::from_millis(200);

/// Longest training request that a client reads, in bytes.
const REQUEST: u64 = 64 << 20;

/// The start of a run.
pub struct NewRun<'a> {
    /// Its name.
    pub name: &'a str,
    /// The data, the course and the openings.
    pub spec: &'a RunSpec,
    /// The request of the training or analysis, written.
    pub request: &'a [u8],
    /// The state at the start, encoded. It stays on this machine; shares of it leave it.
    pub state: &'a [Tensor],
    /// True if it may take the place of a run of the same name.
    pub replace: bool,
}

/// An item of the servers' lists.
pub trait Listed: PartialEq + Clone {
    /// The kind of the content.
    const KIND: &'static str;

    /// Its name.
    fn name(&self) -> &str;

    /// Why it cannot be used, if it cannot.
    fn damage(&self) -> Option<&str>;

    /// Takes over the fields in which servers may differ. Returns true if the rest is the same.
    fn merge(&mut self, other: &Self) -> bool;
}

impl Listed for DataState {
    const KIND: &'static str = "data set";

    fn name(&self) -> &str {
        &self.name
    }

    fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    fn merge(&mut self, other: &Self) -> bool {
        // When each wrote it down is its own, and a server may have counted a run that another has not.
        self.spent = std::mem::take(&mut self.spent).worse(&other.spent);
        *self == Self { put_at: self.put_at, spent: self.spent.clone(), ..other.clone() }
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

    /// A run continues only with the consent that all servers have, and if it is not stopped at any of them.
    fn merge(&mut self, other: &Self) -> bool {
        self.run.approved.retain(|name| other.run.approved.contains(name));
        self.run.stopped |= other.run.stopped;
        let mut other = other.clone();
        other.put_at = self.put_at;
        other.run.take_decisions(&self.run);
        *self == other
    }
}

/// Halts a run at one server.
///
/// # Errors
/// [`Error::Refused`] with the server's reason, [`Error::Unreachable`] if it does not answer.
pub fn halt_at(channel: &mut dyn Channel, name: &str, halt: Halt, silence: Duration) -> Result<()> {
    match ask(channel, &Request::Halt { name: name.to_owned(), halt }, silence)? {
        Reply::Done => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// The item of this name in the lists of the servers, if all have it and agree on it.
///
/// # Errors
/// [`Error::Refused`] that names the server that lacks it or differs.
pub fn agree_on_item<T: Listed>(name: &str, lists: &[Vec<T>]) -> Result<T> {
    let what = format!("{} `{name}`", T::KIND);
    let found = lists.iter().map(|list| list.iter().find(|item| item.name() == name));
    let found: Vec<_> = found.collect();
    if found.iter().all(Option::is_none) {
        let near = did_you_mean(name, lists.iter().flatten().map(Listed::name));
        let reason = format!("there is none of that name that you may use{near}");
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
    let mut agreed = items[0].clone();
    for (party, item) in items.iter().enumerate().skip(1) {
        if !agreed.merge(item) {
            let reason = format!(
                "party {party} and party 0 do not say the same of it: one of them may be back from an older backup. \
                 Its owner can put it again; `trefoil run withdraw` and `stop` work all the same"
            );
            return Err(Error::refused(what, reason));
        }
    }
    Ok(agreed)
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

    /// A run of that name, as all servers know it. A change by another client reaches one server before another: this
    /// waits for it, a second at most.
    ///
    /// # Errors
    /// [`Error::Refused`] if it does not exist, or the servers differ.
    pub fn run(&mut self, name: &str) -> Result<RunState> {
        let mut looks = LOOKS;
        loop {
            let runs = self.runs()?;
            let agreed = agree_on_item(name, &runs);
            looks -= 1;
            if agreed.is_ok() || looks == 0 || !runs.iter().flatten().any(|run| run.name == name) {
                return agreed;
            }
            thread::sleep(PAUSE);
        }
    }

    /// True if each server has a session with the others.
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
    /// [`Error::Refused`] with the servers' reason; the current version then stays as it was.
    pub fn put_data(
        &mut self,
        name: &str,
        set: &DataSet,
        rows: Vec<Tensor>,
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
        self.upload(&request, &[], self.sharing.deal(rows)?, watch)
    }

    /// Shares the start of a run among the servers. It begins with [`Client::train`], once the owners of its
    /// data consent.
    ///
    /// # Errors
    /// [`Error::Refused`] with the servers' reason; the current version then stays as it was.
    pub fn put_run(&mut self, run: &NewRun<'_>, watch: &dyn Watch) -> Result<()> {
        let request = Request::PutRun {
            job: Id::random()?,
            name: run.name.to_owned(),
            spec: Box::new(run.spec.clone()),
            request: run.request.len() as u64,
            replace: run.replace,
        };
        let written = bytes::Bytes::copy_from_slice(run.request);
        self.upload(&request, &[written], self.sharing.deal(run.state.to_vec())?, watch)
    }

    /// Consents to a run on this client's data, with this fingerprint.
    ///
    /// # Errors
    /// [`Error::Refused`] with the servers' reason.
    pub fn approve(&mut self, name: &str, fingerprint: Digest, watch: &dyn Watch) -> Result<()> {
        self.decide(name, fingerprint, Decision::Approve, watch)
    }

    /// Decides about this client's run, or one that uses its data, at all servers.
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

    /// Halts a run at each server separately: one server that gets it is enough, since a run needs all of them.
    /// Returns the result at each.
    pub fn halt(&mut self, name: &str, halt: Halt) -> Vec<Result<()>> {
        let silence = self.silence;
        self.channels
            .iter_mut()
            .map(|channel| halt_at(&mut **channel, name, halt, silence))
            .collect()
    }

    /// Has the servers do some steps of this client's run, from step `from` on, and write the state after them to
    /// their disks if `keep`. Returns the words of the metrics, if they leave after these steps, and of what the
    /// guard found.
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

    /// The work of a run, which this client derives from the run's request. The fingerprint covers both.
    ///
    /// # Errors
    /// [`Error::Refused`] with a server's reason. Also if the servers have different requests, a request other than
    /// the run's, one that is not sound, or one from which this program derives another plan than they did.
    pub fn run_plan(&mut self, state: &RunState) -> Result<Planned> {
        let name = &state.name;
        let request = Request::RunRequest { name: name.clone() };
        let told = self.all(|_, channel, silence, _| match ask(channel, &request, silence)? {
            Reply::RunRequest { bytes } if bytes <= REQUEST => {
                receive_bytes(channel, bytes as usize, &mut Pace::frames(silence))
            }
            other => Err(unexpected(&other)),
        })?;
        let refused = |reason: &str| Error::refused(format_args!("run `{name}`"), reason);
        let Some(written) = agreed(&told) else {
            return Err(refused("the servers do not have the same request of it"));
        };
        if Digest::of(&[written]) != state.run.request {
            return Err(refused("its request is another one by now; try again"));
        }
        let planned = Planned::parse(written, &state.run.spec.task, u64::MAX)?;
        if planned.digest()? != state.run.plan {
            return Err(refused(
                "the servers run another plan than this program derives; use the program of the servers' version",
            ));
        }
        Ok(planned)
    }

    /// The words of the network of this client's run after `step` steps, added up here.
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

    /// Makes a model of the state of this client's run after `step` steps. No weight leaves the servers.
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

    /// The answer to a request without data, added up here.
    fn asked(&mut self, request: &Request, watch: &dyn Watch) -> Result<Answer> {
        let replies = self.all(|party, channel, silence, joint| {
            say(channel, request)?;
            let reply = outcome(party, channel, silence, watch, joint)?;
            result(party, channel, silence, reply)
        })?;
        self.add_up(replies)
    }
}
