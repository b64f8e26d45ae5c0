//! The kinds of jobs: the client's part of each, what a server prepares for it, and what all do together.

mod access;
mod converse;
mod infer;
mod publish;
mod put;
mod train;

use gpu_kernels::AnyEngine;
use mpc_core::{Held, ServerProtocol, Sharing};
use ring_arith::EngineTensor;

use super::{Job, Outcome, agreement::Proposal, cache::Hashes, tapes::Candidate, worker::Worker};
use crate::base::{Digest, Id, Result};

pub(super) use access::{Decide, Remove, Share};
pub(super) use converse::{Close, Extend};
pub(super) use infer::Infer;
pub(super) use publish::{Publish, Release};
pub(super) use put::Put;
pub(super) use train::Train;

/// A job, by its kind.
pub(super) enum Work {
    Put(Put),
    Share(Share),
    Remove(Remove),
    Infer(Infer),
    Extend(Extend),
    Close(Close),
    Decide(Decide),
    Train(Train),
    Release(Release),
    Publish(Publish),
}

/// The part of a job in the cost of those that ran as one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    /// The number of these jobs.
    pub(super) jobs: usize,
    /// Examples of the jobs before it, of itself, and of all.
    before: u64,
    own: u64,
    all: u64,
}

impl Part {
    /// That of a job that ran alone.
    pub(super) const WHOLE: Self = Self { jobs: 1, before: 0, own: 1, all: 1 };

    /// Those of these jobs, by their examples.
    pub(super) fn of_all(jobs: &[(Id, Job)]) -> Vec<Self> {
        let examples = |(_, job): &(Id, Job)| job.work.examples().unwrap_or(1);
        let all = jobs.iter().map(examples).sum();
        let mut before = 0;
        let part = |job| {
            let part = Self { jobs: jobs.len(), before, own: examples(job), all };
            before += part.own;
            part
        };
        jobs.iter().map(part).collect()
    }

    /// The examples of the job itself.
    pub(super) fn examples(self) -> u64 {
        self.own
    }

    /// True for the first job of those that ran as one.
    pub(super) fn is_first(self) -> bool {
        self.before == 0
    }

    /// The part of an amount by examples. The parts of all jobs add up to the amount.
    pub(super) fn of(self, amount: u64) -> u64 {
        let until =
            |examples: u64| u128::from(amount) * u128::from(examples) / u128::from(self.all.max(1));
        (until(self.before + self.own) - until(self.before)) as u64
    }
}

/// The job that a server works on.
#[derive(Clone, Copy)]
pub(super) struct JobInfo<'a> {
    pub(super) id: Id,
    pub(super) client: &'a str,
    /// The digest of the public part of its request.
    pub(super) digest: Digest,
}

/// The message of a server that is ready to the others, beside the job's terms.
#[derive(Default)]
pub(super) struct Offer {
    /// The version and the digest of what runs.
    pub(super) model: Option<(Id, Digest)>,
    /// Hashes of what this server holds of it.
    pub(super) stored: Option<Hashes>,
    /// The tapes from which an answer could come.
    pub(super) tapes: Option<Vec<Candidate>>,
    /// The number of a training's steps whose metrics have left this server.
    pub(super) opened: u32,
}

/// The agreement of all servers.
pub(super) struct Agreed {
    /// The digest of the job's terms.
    pub(super) terms: Digest,
    pub(super) proposals: Vec<Proposal>,
    /// The ways in which the client's parts, and what is stored of a model, came to the servers.
    pub(super) sharings: [&'static dyn Sharing; 2],
}

impl Agreed {
    /// Why the job cannot run: see [`Proposal::verdict`].
    pub(super) fn verdict(&self) -> Option<String> {
        Proposal::verdict(self.sharings, &self.proposals)
    }
}

/// The state that a server has ready for a job, under the protocol `P`.
pub(super) trait Ready<P: ServerProtocol<Engine = AnyEngine>> {
    /// The server's message to the others.
    fn offer(&self, worker: &mut Worker<'_, P>) -> Result<Offer>;

    /// Undoes what was prepared: some server is against the job.
    fn give_up(self, worker: &mut Worker<'_, P>) -> Result<()>;
}

/// Nothing is prepared.
impl<P: ServerProtocol<Engine = AnyEngine>> Ready<P> for () {
    fn offer(&self, _: &mut Worker<'_, P>) -> Result<Offer> {
        Ok(Offer::default())
    }

    fn give_up(self, _: &mut Worker<'_, P>) -> Result<()> {
        Ok(())
    }
}

/// A kind of job at one server, under the protocol `P`.
pub(super) trait Kind<P: ServerProtocol<Engine = AnyEngine>> {
    /// The state that a server has ready before all of them start together.
    type Ready: Ready<P>;

    /// True if the servers compute together, so that none can end the job alone.
    const COMPUTES: bool;

    /// Checks the job once more, since the model may have been replaced, removed or shared with others since it came.
    /// Then does all that can fail at one server alone.
    fn prepare(&self, worker: &mut Worker<'_, P>, job: JobInfo<'_>) -> Result<Self::Ready>;

    /// Does the job. The inner result is for the client; an outer error is the end of the session.
    fn run(
        &mut self,
        ready: Self::Ready,
        worker: &mut Worker<'_, P>,
        job: JobInfo<'_>,
        agreed: &Agreed,
    ) -> Result<Outcome>;
}

impl Work {
    /// The inputs of a model, of which the client has sent this server's components; none of other jobs.
    pub(super) fn inputs(&self) -> &[Held] {
        match self {
            Self::Infer(infer) => &infer.inputs,
            Self::Extend(extend) => &extend.inputs,
            _ => &[],
        }
    }

    /// The words of the components that the client has sent, or whose keys it has sent.
    pub(super) fn words(&self) -> u64 {
        match self {
            Self::Put(put) => put.shares.expanded_words(),
            _ => self.inputs().iter().flatten().map(|component| component.len() as u64).sum(),
        }
    }

    /// Hashes of the components that the client has sent to servers of which clients share secrets by `secrets`.
    ///
    /// # Errors
    /// As [`Content::sharing`](crate::store::Content::sharing).
    pub(super) fn hashes(&self, secrets: &'static dyn Sharing) -> Result<Hashes> {
        match self {
            Self::Put(put) => {
                Ok(Hashes { sharing: put.content.sharing(secrets)?, of: put.shares.hashes() })
            }
            _ => Ok(Hashes::new(secrets, self.inputs())),
        }
    }

    /// The number of examples that it answers, if it runs a model.
    pub(super) fn examples(&self) -> Option<u64> {
        match self {
            Self::Infer(infer) => Some(infer.examples),
            Self::Extend(extend) => Some(extend.steps.all as u64),
            _ => None,
        }
    }

    /// The run that it trains or opens, if it does.
    pub(super) fn run(&self) -> Option<&str> {
        match self {
            Self::Train(train) => Some(&train.name),
            Self::Release(release) => Some(&release.name),
            Self::Publish(publish) => Some(&publish.run),
            _ => None,
        }
    }

    /// The name whose entry it changes, if no other cell may change that at the same time.
    pub(super) fn changes(&self) -> Option<&str> {
        match self {
            Self::Put(_) | Self::Share(_) | Self::Remove(_) | Self::Train(_) | Self::Publish(_) => {
                Some(self.name().1)
            }
            // Decisions of several clients add up in any order.
            Self::Decide(_) => None,
            Self::Infer(_) | Self::Extend(_) | Self::Close(_) | Self::Release(_) => None,
        }
    }

    /// Its kind, and the name of the item that it makes, changes or runs.
    pub(super) fn name(&self) -> (&'static str, &str) {
        match self {
            Self::Put(put) => ("put", &put.name),
            Self::Share(share) => ("share", &share.name),
            Self::Remove(remove) => ("remove", &remove.name),
            Self::Infer(infer) => ("infer", &infer.model),
            Self::Extend(extend) => ("extend", &extend.model),
            Self::Close(_) => ("close", ""),
            Self::Decide(decide) => (decide.decision.name(), &decide.name),
            Self::Train(train) => ("train", &train.name),
            Self::Release(release) => ("release", &release.name),
            Self::Publish(publish) => ("publish", &publish.name),
        }
    }
}
