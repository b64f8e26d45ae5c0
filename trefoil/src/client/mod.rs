//! A client's connections to the servers.

mod agree;
mod cells;
mod connect;
mod conversation;
mod cost;
mod drive;
mod exchange;
mod training;

use std::{
    sync::{Mutex, PoisonError, atomic::AtomicBool},
    thread,
    time::{Duration, Instant},
};

use mpc_core::{Parcel, Released, Security, Sharing};
use ring_arith::{EngineTensor, Tensor};

pub(crate) use agree::refused_by_all;
pub use agree::{Told, agree_on, agree_on_line};
use cells::Cells;
pub use connect::{Dialler, connect, connect_to, dial_all, halt};
pub use conversation::Talk;
pub use cost::{Layer, Predicted, PredictedLayer, Total};
pub use drive::{Driven, Epoch, Event, Slice};
pub(crate) use exchange::reveal_all;
use exchange::{
    Joint, Sent, agreed, ask, done, last_word, name_of, outcome, result, start, unexpected,
};
pub use training::{Listed, NewRun, agree_on_item, halt_at};

use crate::{
    base::{Digest, Error, Id, Result},
    model::{About, LARGEST_TOKENIZER, Range, weight_sharing},
    store::Readers,
    tapes::TapeState,
    wire::{
        Channel, Cost, JobState, ModelState, Pace, Place, PublicModel, Reply, Request, Status,
        receive_bytes, say, send_bytes, send_parcel,
    },
};

/// Longest description of a model that a client reads, in bytes.
const PUBLIC: u64 = 8 << 20;

/// News of a job under way.
pub trait Watch: Sync {
    /// Reports that `bytes` bytes of the job have left, out of `of`.
    fn sent(&self, bytes: u64, of: u64) {
        let _ = (bytes, of);
    }

    /// A server's word about the job before it runs.
    fn word(&self, text: &str) {
        let _ = text;
    }

    /// The progress of the running job.
    fn works(&self, place: &Place) {
        let _ = place;
    }
}

/// Watches nothing.
impl Watch for () {}

/// A model to be put.
pub struct NewModel<'a> {
    /// Its name.
    pub name: &'a str,
    /// The public description.
    pub about: &'a About,
    /// Its plan, written.
    pub plan: &'a [u8],
    /// Its weights, encoded. They stay on this machine; shares of them leave it.
    pub weights: Vec<Tensor>,
    /// The tokenizer's file, if the description names one; else nothing. It is public.
    pub tokenizer: &'a [u8],
    /// The clients that may run it, in addition to this one.
    pub readers: &'a Readers,
    /// The range of each input, in their order; empty if none is stated.
    pub ranges: &'a [Option<Range>],
    /// True if it may take the place of a model of the same name.
    pub replace: bool,
}

/// The answer to an inference.
#[derive(Debug)]
pub struct Answer {
    /// The results, added up.
    pub outputs: Vec<Tensor>,
    /// The cost at each server.
    pub costs: Vec<Cost>,
}

/// A client's connections to the servers. After an error they cannot be used, unless it takes one of several cells: then
/// it goes on to another one if the one that it uses is lost.
pub struct Client {
    channels: Vec<Box<dyn Channel>>,
    cells: Option<Cells>,
    sharing: &'static dyn Sharing,
    silence: Duration,
}

/// A server's answer to a ping.
#[derive(Debug, Clone)]
pub struct Pong {
    /// The version of its program.
    pub program: String,
    /// The servers' defence against one that lies, as this one says.
    pub security: Security,
    /// The time until the answer came.
    pub round_trip: Duration,
}

impl Client {
    /// A client over a connection to each server, in their order, of a cluster of that sharing; a server is given up
    /// after a silence of `silence`.
    pub fn new(
        channels: Vec<Box<dyn Channel>>,
        sharing: &'static dyn Sharing,
        silence: Duration,
    ) -> Self {
        Self { channels, cells: None, sharing, silence }
    }

    /// What each server answers to a ping.
    ///
    /// # Errors
    /// [`Error::Unreachable`] naming the server that does not answer.
    pub fn ping(&mut self) -> Result<Vec<Pong>> {
        self.all(|party, channel, silence, _| {
            let began = Instant::now();
            match ask(channel, &Request::Ping, silence)? {
                Reply::Pong { party: found, program, security } if found == party => {
                    Ok(Pong { program, security, round_trip: began.elapsed() })
                }
                Reply::Pong { party: found, .. } => Err(Error::config(
                    format_args!("servers[{party}]"),
                    format_args!("party {found} answers there; exchange the addresses"),
                )),
                other => Err(unexpected(&other)),
            }
        })
    }

    /// Refuses servers of which one says that it does not prove its messages.
    ///
    /// # Errors
    /// [`Error::Config`] that names it, [`Error::Unreachable`] naming a server that does not answer.
    pub fn require_proofs(&mut self) -> Result<()> {
        let answers = self.ping()?;
        let Some(party) = answers.iter().position(|pong| pong.security != Security::Checked) else {
            return Ok(());
        };
        let reason = "it does not prove its messages, and this client's file asks for `security = \"checked\"`; \
                      set the same in `party.toml` of all servers, or send them nothing";
        Err(Error::config(name_of(party), reason))
    }

    /// The models at each server that this client may use.
    ///
    /// # Errors
    /// [`Error::Unreachable`] naming the server that does not answer.
    pub fn models(&mut self) -> Result<Vec<Vec<ModelState>>> {
        let ask = |last: Option<&ModelState>| Request::Models {
            after: last.map(|model| model.name.clone()),
        };
        self.in_any_cell(|client| {
            client.pages(ask, |reply| match reply {
                Reply::Models { models, more } => Ok((models, more)),
                other => Err(unexpected(&other)),
            })
        })
    }

    /// All pages of a list at each server.
    fn pages<T: Send>(
        &mut self,
        request: impl Fn(Option<&T>) -> Request + Sync,
        page: impl Fn(Reply) -> Result<(Vec<T>, bool)> + Sync,
    ) -> Result<Vec<Vec<T>>> {
        self.all(|_, channel, silence, _| {
            let mut all: Vec<T> = Vec::new();
            loop {
                let (items, more) = page(ask(channel, &request(all.last()), silence)?)?;
                let ended = items.is_empty() || !more;
                all.extend(items);
                if ended {
                    return Ok(all);
                }
            }
        })
    }

    /// The public description of a model, if all servers agree on it.
    ///
    /// # Errors
    /// [`Error::Refused`] that names the servers that differ, and in what.
    pub fn model(&mut self, name: &str) -> Result<PublicModel> {
        agree_on(name, self.described(name)?)
    }

    /// The tokenizer of a language model, as its description names it. One server sends it.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is not that one, [`Error::Unreachable`] if the server does not answer.
    pub fn tokenizer(&mut self, name: &str, wanted: Digest) -> Result<bytes::Bytes> {
        let (silence, request) = (self.silence, Request::Tokenizer { name: name.to_owned() });
        let Some(channel) = self.channels.first_mut() else {
            return Err(Error::Internal("there is no server".to_owned()));
        };
        match ask(&mut **channel, &request, silence)? {
            Reply::Tokenizer { bytes } if bytes <= LARGEST_TOKENIZER => {
                let pace = &mut Pace::frames(silence);
                let bytes = receive_bytes(&mut **channel, bytes as usize, pace)?;
                if Digest::of(&[&bytes]) == wanted {
                    return Ok(bytes);
                }
                let reason = "its tokenizer is not the one of the model's description; try again";
                Err(Error::refused(name_of(0), reason))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Each server's description of a model, or its error.
    ///
    /// # Errors
    /// [`Error::Unreachable`] naming the server that does not answer.
    pub fn described(&mut self, name: &str) -> Result<Vec<Told>> {
        let request = Request::Model { name: name.to_owned() };
        let describe = |_, channel: &mut dyn Channel, silence, _: &Joint| match ask(
            channel, &request, silence,
        )? {
            Reply::Model { bytes } if bytes <= PUBLIC => {
                let bytes = receive_bytes(channel, bytes as usize, &mut Pace::frames(silence))?;
                let public = serde_json::from_slice(&bytes).map_err(|cause| {
                    Error::refused("server", format_args!("its description: {cause}"))
                })?;
                Ok(Ok(public))
            }
            Reply::Failed { reason } => Ok(Err(reason)),
            other => Err(unexpected(&other)),
        };
        self.in_any_cell(|client| client.all(describe))
    }

    /// The answers that are left of a model on tapes with room for this many examples in each, at the server with the
    /// fewest. None if no answer comes from tapes.
    ///
    /// # Errors
    /// [`Error::Unreachable`] naming the server that does not answer.
    pub fn answers_on_tapes(&mut self, model: &str, examples: usize) -> Result<Option<u64>> {
        let states = self.all(|_, channel, silence, _| status(channel, silence))?;
        if states.iter().all(|state| state.tapes.is_empty()) {
            return Ok(None);
        }
        let fits = |tape: &&TapeState| {
            tape.model.as_deref() == Some(model) && tape.examples >= examples as u64
        };
        let left = |state: &Status| state.tapes.iter().filter(fits).map(|tape| tape.left).sum();
        Ok(states.iter().map(left).min())
    }

    /// This client's jobs at each server.
    ///
    /// # Errors
    /// [`Error::Unreachable`] naming the server that does not answer.
    pub fn jobs(&mut self) -> Result<Vec<Vec<JobState>>> {
        self.all(|_, channel, silence, _| match ask(channel, &Request::Jobs, silence)? {
            Reply::Jobs(jobs) => Ok(jobs),
            other => Err(unexpected(&other)),
        })
    }

    /// Ends a job of this client's, whether it waits or runs.
    ///
    /// # Errors
    /// [`Error::Refused`] if no server has it.
    pub fn cancel(&mut self, job: Id) -> Result<()> {
        let told = self.all(|_, channel, silence, _| {
            match ask(channel, &Request::Cancel { job }, silence)? {
                Reply::Done => Ok(Ok(())),
                Reply::Failed { reason } => Ok(Err(reason)),
                other => Err(unexpected(&other)),
            }
        })?;
        // One that has ended at one server already is still cancelled at the others.
        if told.iter().any(Result::is_ok) {
            return Ok(());
        }
        told.into_iter()
            .collect::<Result<(), String>>()
            .map_err(|reason| Error::refused("servers", reason))
    }

    /// Shares a model among the servers. It is there once all have it.
    ///
    /// # Errors
    /// [`Error::Refused`] with the servers' reason; the current version then stays as it was.
    pub fn put(&mut self, model: NewModel<'_>, watch: &dyn Watch) -> Result<()> {
        let about = bytes::Bytes::from(model.about.to_bytes()?);
        let request = Request::Put {
            job: Id::random()?,
            name: model.name.to_owned(),
            about: about.len() as u64,
            plan: model.plan.len() as u64,
            tokenizer: model.tokenizer.len() as u64,
            words: model.weights.iter().map(|tensor| tensor.len() as u64).sum(),
            public_weights: model.about.public_weights,
            readers: model.readers.clone(),
            ranges: model.ranges.to_vec(),
            replace: model.replace,
        };
        let plan = bytes::Bytes::copy_from_slice(model.plan);
        let tokenizer = bytes::Bytes::copy_from_slice(model.tokenizer);
        let sharing = weight_sharing(model.about.public_weights, self.sharing)?;
        self.upload(&request, &[about, plan, tokenizer], sharing.deal(model.weights)?, watch)
    }

    /// Sends each server its parcel for a job without a result; `clear` goes before it.
    fn upload(
        &mut self,
        request: &Request,
        clear: &[bytes::Bytes],
        parcels: Vec<Parcel>,
        watch: &dyn Watch,
    ) -> Result<()> {
        self.find_cell()?;
        let sent = Sent::new(watch, &parcels);
        let replies = self.all(|party, channel, silence, joint| {
            start(channel, request, silence)?;
            let mut clear = clear.iter();
            clear
                .try_for_each(|bytes| send_bytes(channel, bytes.clone(), &mut |_| {}))
                .and_then(|()| send_parcel(channel, &parcels[party], &mut |bytes| sent.add(bytes)))
                .map_err(|error| last_word(channel, error))?;
            outcome(party, channel, silence, watch, joint)
        })?;
        replies.into_iter().try_for_each(done)
    }

    /// Sets the clients that may run a model of this client's: these, and no others.
    ///
    /// # Errors
    /// [`Error::Refused`] with the servers' reason.
    pub fn share(&mut self, name: &str, readers: &Readers, watch: &dyn Watch) -> Result<()> {
        let (job, readers) = (Id::random()?, readers.clone());
        self.change(&Request::Share { job, name: name.to_owned(), readers }, watch)
    }

    /// Removes a model from all servers.
    ///
    /// # Errors
    /// [`Error::Refused`] with the servers' reason.
    pub fn remove(&mut self, name: &str, watch: &dyn Watch) -> Result<()> {
        self.change(&Request::Remove { job: Id::random()?, name: name.to_owned() }, watch)
    }

    /// A job without data.
    fn change(&mut self, request: &Request, watch: &dyn Watch) -> Result<()> {
        self.find_cell()?;
        let replies = self.all(|party, channel, silence, joint| {
            say(channel, request)?;
            outcome(party, channel, silence, watch, joint)
        })?;
        replies.into_iter().try_for_each(done)
    }

    /// The predicted traffic of a version of a model on inputs of these shapes, behind `at` positions of a conversation,
    /// at each server and by step, if all servers agree. Nothing is run.
    ///
    /// # Errors
    /// [`Error::Refused`] with the servers' reason, or if they differ.
    pub fn predict(
        &mut self,
        model: &str,
        version: Id,
        inputs: &[Vec<usize>],
        at: u64,
    ) -> Result<Vec<Cost>> {
        let (model, inputs) = (model.to_owned(), inputs.to_vec());
        let request = Request::Predict { model, version, inputs, at };
        let predict = |_, channel: &mut dyn Channel, silence, _: &Joint| match ask(
            channel, &request, silence,
        )? {
            Reply::Predicted(costs) => Ok(costs.into_iter().map(Cost::timeless).collect()),
            other => Err(unexpected(&other)),
        };
        let told = self.in_any_cell(|client| client.all(predict))?;
        agreed::<Vec<Cost>>(&told).cloned().ok_or_else(|| {
            let reason = "they predict different costs; run the same program on all machines";
            Error::refused("servers", reason)
        })
    }

    /// Runs a version of a model on inputs, which are shared here, and adds up what the servers return. A job that is lost
    /// with a cell is asked for again in another one, as another job with other shares.
    ///
    /// # Errors
    /// [`Error::Refused`] with the servers' reason.
    pub fn infer(
        &mut self,
        model: &str,
        version: Id,
        inputs: &[Tensor],
        profile: bool,
        watch: &dyn Watch,
    ) -> Result<Answer> {
        self.in_any_cell(|client| {
            let (job, model) = (Id::random()?, model.to_owned());
            let request = Request::Infer { job, model, version, inputs: dims_of(inputs), profile };
            client.answer(&request, inputs, watch)
        })
    }

    /// Runs steps of a version of a model that keeps values from step to step. Conversation and position are this
    /// client's to choose: `at` are the positions before the first step, and what lies behind them is forgotten. `inputs`
    /// are those of the first steps, one step after the other; each further step takes the first result of the step
    /// before, which servers do not open to each other. Each result has what comes behind the last
    /// input and behind each step after it, along its first axis; what the guard says is of all steps.
    ///
    /// # Errors
    /// [`Error::Refused`] with the servers' reason. A conversation ends where a server does, or runs out of memory: then
    /// its text is sent again from position 0.
    pub fn extend(
        &mut self,
        (model, version): (&str, Id),
        (conversation, at): (Id, u64),
        (inputs, steps): (&[Tensor], u32),
        profile: bool,
        watch: &dyn Watch,
    ) -> Result<Answer> {
        let (job, model, inputs) = (Id::random()?, model.to_owned(), inputs);
        let request = Request::Extend {
            job,
            model,
            version,
            conversation,
            at,
            inputs: dims_of(inputs),
            steps,
            profile,
        };
        self.answer(&request, inputs, watch)
    }

    /// Makes the servers forget a conversation.
    ///
    /// # Errors
    /// [`Error::Refused`] with the servers' reason.
    pub fn close(&mut self, conversation: Id, watch: &dyn Watch) -> Result<()> {
        self.change(&Request::Close { job: Id::random()?, conversation }, watch)
    }

    /// Shares a job's inputs, and adds up what the servers return.
    fn answer(
        &mut self,
        request: &Request,
        inputs: &[Tensor],
        watch: &dyn Watch,
    ) -> Result<Answer> {
        let parcels = self.sharing.deal(inputs.to_vec())?;
        let sent = Sent::new(watch, &parcels);
        let replies = self.all(|party, channel, silence, joint| {
            start(channel, request, silence)?;
            send_parcel(channel, &parcels[party], &mut |bytes| sent.add(bytes))
                .map_err(|error| last_word(channel, error))?;
            let reply = outcome(party, channel, silence, watch, joint)?;
            result(party, channel, silence, reply)
        })?;
        self.add_up(replies)
    }

    /// Has one conversation with each server, all at once. The first failure ends all.
    fn all<T: Send>(
        &mut self,
        talk: impl Fn(usize, &mut dyn Channel, Duration, &Joint) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let joint = Joint { over: AtomicBool::new(false), first: Mutex::new(None) };
        let silence = self.silence;
        let told: Vec<Option<T>> = thread::scope(|scope| {
            let (talk, joint) = (&talk, &joint);
            let channels = self.channels.iter_mut().enumerate();
            let threads: Vec<_> = channels
                .map(|(party, channel)| {
                    scope.spawn(move || joint.note(talk(party, &mut **channel, silence, joint)))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or(None)).collect()
        });
        if let Some(error) = joint.first.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        let all: Option<Vec<T>> = told.into_iter().collect();
        all.ok_or_else(|| Error::Internal("a conversation with a server was lost".to_owned()))
    }

    /// Adds up what the servers released.
    fn add_up(&self, replies: Vec<(Vec<Released>, Cost)>) -> Result<Answer> {
        let (released, costs): (Vec<_>, _) = replies.into_iter().unzip();
        Ok(Answer { outputs: reveal_all(self.sharing, released)?, costs })
    }
}

fn dims_of(tensors: &[Tensor]) -> Vec<Vec<usize>> {
    tensors.iter().map(|tensor| tensor.shape().dims().to_vec()).collect()
}

/// The state of a server.
///
/// # Errors
/// [`Error::Unreachable`] if it does not answer within `silence`.
pub fn status(channel: &mut dyn Channel, silence: Duration) -> Result<Status> {
    match ask(channel, &Request::Status, silence)? {
        Reply::Status(status) => Ok(*status),
        other => Err(unexpected(&other)),
    }
}
