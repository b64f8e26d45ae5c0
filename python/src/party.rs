//! A party as a thread: it takes commands in order and keeps the shares of every secret array.

use std::{
    collections::HashMap,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender, unbounded};
use dealt_protocols::Dealt;
use gpu_kernels::AnyEngine;
use mpc_core::{
    Deal, Format, Held, Operand, Plaintext, Protocol, PublicTensor, SecretTensor, Words, functions,
};
use net::{Message, Party as Number, Transport};
use nn_layers::{
    Observer, Plan, StepInfo,
    train::{Step, TrainPlan},
};
use ring_arith::{CpuEngine, Engine, EngineTensor, Shape, Tensor};
use rss_protocols::Rss;
use trefoil::analysis::Call;

use crate::errors::{Failure, Kind, Result};

/// A command to a party. Every party gets the same commands, except for the data in them.
#[derive(Clone)]
pub(crate) enum Command {
    /// Calls a function; results get the numbers from `first` on.
    Call { first: u64, call: Arc<Call> },
    /// Shares tensors, of which the owner has the words.
    Input { first: u64, owner: usize, tensors: Vec<TensorFormat>, words: Option<Vec<Tensor>> },
    /// Shows tensors to all parties, or to one.
    Reveal { ids: Vec<u64>, to: Option<usize> },
    /// Returns this party's share of a tensor.
    Export { id: u64 },
    /// Takes this party's share of a tensor.
    Import { id: u64, format: TensorFormat, held: Held },
    /// Returns this member's addend of a tensor, for the reference beside the parties.
    Addend { id: u64 },
    /// The same words with the bound that the caller knows.
    Bound { first: u64, id: u64, bound: f64 },
    /// Runs a plan. With a seed of its signs, a plan with a guard checks the run and adds its findings.
    Run { first: u64, plan: Arc<Plan>, weights: Vec<u64>, inputs: Vec<u64>, guard: Option<u64> },
    /// Makes a step of a training: the state's new tensors and the metrics of the step. With a seed of its signs, a
    /// guard checks the step and adds its findings.
    Train {
        first: u64,
        plan: Arc<TrainPlan>,
        state: Vec<u64>,
        batch: Vec<u64>,
        step: Step,
        guard: Option<u64>,
    },
    /// Makes the weights for inference of a training's state.
    Finish { first: u64, plan: Arc<TrainPlan>, state: Vec<u64> },
    /// Forgets secrets. The caller does not wait for it.
    Forget(Vec<u64>),
    /// Ends the session in order: waits until the others have ended it too.
    Close,
    /// Forgets the results of a call that did not end at all parties. The caller does not wait for it.
    Undo { first: u64 },
}

/// The public properties of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TensorFormat {
    pub(crate) shape: Shape,
    pub(crate) numbers: Format,
}

impl TensorFormat {
    fn of<P: Protocol>(x: &SecretTensor<P>) -> Self {
        Self { shape: x.shape().clone(), numbers: x.format() }
    }
}

/// The revealed numbers of a tensor: those without fraction bits are exact.
pub(crate) enum Shown {
    Real(Vec<f64>),
    Whole(Vec<i64>),
}

impl Shown {
    fn new<P: Protocol>(mpc: &P, words: Words<P>, frac: u32) -> mpc_core::Result<Self> {
        Ok(match frac {
            0 => {
                let words = mpc.engine().download(&words)?;
                Self::Whole(words.words().iter().map(|&word| word as i64).collect())
            }
            _ => Self::Real(functions::decode(mpc, &PublicTensor::new(words, frac))?),
        })
    }

    /// The numbers in floats.
    pub(crate) fn reals(self) -> Vec<f64> {
        match self {
            Self::Real(numbers) => numbers,
            Self::Whole(numbers) => numbers.into_iter().map(|number| number as f64).collect(),
        }
    }
}

/// A party's answer to a command.
#[derive(Default)]
pub(crate) struct Reply {
    /// Of the tensors that a command made.
    pub(crate) made: Vec<TensorFormat>,
    /// Revealed numbers; none at a party to which they are not shown.
    pub(crate) opened: Option<Vec<Shown>>,
    /// The party's share of an exported tensor.
    pub(crate) held: Option<Held>,
    /// The member's addend of a tensor.
    pub(crate) addend: Option<Tensor>,
    /// Seconds of a plan's layers.
    pub(crate) layers: Vec<(String, Duration)>,
}

/// A protocol that a party's thread runs.
pub(crate) trait Run: Deal {
    fn finish(self) -> Result<()>;

    /// This member's addend of a secret: those of all members, the dealer too, add up to it. Sends nothing, and proves
    /// nothing: the process has all of them anyway.
    fn addend(&self, share: &Self::Share) -> mpc_core::Result<Tensor>;

    /// Runs a model's plan.
    fn run_plan(
        &mut self,
        plan: &Plan,
        weights: &[Operand<Self>],
        inputs: &[Operand<Self>],
        layers: &mut Layers,
    ) -> nn_layers::Result<Vec<SecretTensor<Self>>> {
        plan.run(self, weights, inputs, layers)
    }
}

impl Run for Rss<AnyEngine> {
    fn finish(self) -> Result<()> {
        Ok(self.close()?)
    }

    fn addend(&self, share: &Self::Share) -> mpc_core::Result<Tensor> {
        Ok(self.engine().download(share.mine())?)
    }
}

impl Run for Dealt<AnyEngine> {
    fn finish(self) -> Result<()> {
        Ok(self.close()?)
    }

    fn addend(&self, share: &Self::Share) -> mpc_core::Result<Tensor> {
        let words = self.engine().download(&self.addend_of(share)?)?;
        // The dealer has the whole mask, which the parties' addends make too.
        let deals = self.me().0 == self.parties();
        Ok(if deals { Tensor::zeros(words.shape().clone()) } else { words })
    }
}

impl Run for Plaintext<CpuEngine> {
    fn finish(self) -> Result<()> {
        Ok(())
    }

    fn addend(&self, share: &Self::Share) -> mpc_core::Result<Tensor> {
        let held = self.hold(&[share])?.into_iter().flatten().next();
        held.ok_or_else(|| mpc_core::Error::unanswered("hold"))
    }

    fn run_plan(
        &mut self,
        plan: &Plan,
        weights: &[Operand<Self>],
        inputs: &[Operand<Self>],
        layers: &mut Layers,
    ) -> nn_layers::Result<Vec<SecretTensor<Self>>> {
        plan.run_within_domains(self, weights, inputs, layers)
    }
}

/// Numbers that a command may use for its results.
pub(crate) const MOST_MADE: u64 = 1 << 16;

/// Makes a party's protocol; called again after a failure if the parties can start afresh.
pub(crate) type Make<P> = Box<dyn FnOnce() -> Result<P> + Send>;

/// An order to a party's thread.
enum Order<P> {
    Do(Command, Arc<Gather>),
    Start(Make<P>),
}

/// The caller's end of a party's thread. Dropping it ends the thread once it is idle.
pub(crate) struct Hand<P>(Sender<Order<P>>);

impl<P: Run> Hand<P> {
    /// A thread that waits for [`Hand::start`]. If parties can start afresh, one that fails closes its links
    /// at once, so that its peers do not wait for it.
    pub(crate) fn new(name: &str, afresh: bool) -> Result<Self> {
        let (sender, receiver) = unbounded();
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || work(&receiver, afresh))
            .map_err(|cause| Failure::new(Kind::Failed, format!("a thread for {name}: {cause}")))?;
        Ok(Self(sender))
    }

    /// Gives the party a protocol, fresh from its session. Its secrets stay.
    pub(crate) fn start(&self, make: Make<P>) {
        // A thread that is gone does not gather either, which the next command finds.
        let _ = self.0.send(Order::Start(make));
    }

    /// Queues a command.
    pub(crate) fn send(&self, command: Command, gather: &Arc<Gather>) {
        if self.0.send(Order::Do(command, gather.clone())).is_err() {
            gather.put(0, Err(Failure::new(Kind::Failed, "a party's thread is gone")));
        }
    }
}

/// Collects the parties' answers to one command; the last one wakes the caller.
pub(crate) struct Gather {
    left: AtomicUsize,
    answers: Mutex<Vec<(usize, Result<Reply>)>>,
    done: Sender<()>,
}

impl Gather {
    pub(crate) fn new(parties: usize) -> (Arc<Self>, Receiver<()>) {
        let (done, wait) = unbounded();
        let answers = Mutex::new(Vec::with_capacity(parties));
        (Arc::new(Self { left: AtomicUsize::new(parties), answers, done }), wait)
    }

    fn put(&self, party: usize, answer: Result<Reply>) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).push((party, answer));
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            // The caller no longer waits for a command that was interrupted.
            let _ = self.done.send(());
        }
    }

    /// The answers by party, or the failure that caused the others'.
    pub(crate) fn take(&self) -> Result<Vec<Reply>> {
        let mut answers =
            std::mem::take(&mut *self.answers.lock().unwrap_or_else(PoisonError::into_inner));
        answers.sort_by_key(|(party, _)| *party);
        let failures = answers.iter().filter_map(|(_, answer)| answer.as_ref().err());
        if let Some(first) =
            failures.clone().find(|failure| !failure.echo).or(failures.clone().next())
        {
            return Err(first.clone());
        }
        answers.into_iter().map(|(_, answer)| answer).collect()
    }
}

struct Party<P: Protocol> {
    /// None after a failure: its transport is gone, so that no peer waits for it.
    mpc: Option<P>,
    table: HashMap<u64, SecretTensor<P>>,
}

fn work<P: Run>(orders: &Receiver<Order<P>>, afresh: bool) {
    let mut party = Party::<P> { mpc: None, table: HashMap::new() };
    let mut refused: Option<Failure> = None;
    for order in orders {
        let (command, gather) = match order {
            Order::Start(make) => {
                party.mpc = None;
                match make() {
                    Ok(mpc) => party.mpc = Some(mpc),
                    Err(failure) => refused = Some(failure),
                }
                continue;
            }
            Order::Do(Command::Forget(ids), _) => {
                for id in &ids {
                    party.table.remove(id);
                }
                continue;
            }
            Order::Do(Command::Undo { first }, _) => {
                party.table.retain(|id, _| !(first..first + MOST_MADE).contains(id));
                continue;
            }
            Order::Do(Command::Close, gather) => {
                let ended = party.mpc.take().map_or(Ok(()), P::finish);
                gather.put(0, ended.map(|()| Reply::default()));
                continue;
            }
            Order::Do(command, gather) => (command, gather),
        };
        let Some(mpc) = party.mpc.as_mut() else {
            let over = || Failure::new(Kind::Failed, "the session is over");
            gather.put(usize::MAX, Err(refused.clone().unwrap_or_else(over)));
            continue;
        };
        let me = mpc.me().0;
        let table = &mut party.table;
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| obey(mpc, table, command)));
        let broken = outcome.is_err();
        let outcome = outcome.unwrap_or_else(|_| {
            Err(Failure::new(Kind::Failed, "a party failed in a way that was not foreseen"))
        });
        if broken || (afresh && outcome.is_err()) {
            party.mpc = None;
        }
        gather.put(me, outcome);
    }
}

fn obey<P: Run>(
    mpc: &mut P,
    table: &mut HashMap<u64, SecretTensor<P>>,
    command: Command,
) -> Result<Reply> {
    let mut reply = Reply::default();
    let (first, made) = match command {
        Command::Call { first, call } => {
            mpc.step(&call.function);
            (first, call.run(mpc, table)?)
        }
        Command::Input { first, owner, tensors, words } => {
            mpc.step("input");
            let shapes: Vec<_> = tensors.iter().map(|format| format.shape.clone()).collect();
            let upload = |words: Vec<Tensor>| {
                words.into_iter().map(|words| mpc.engine().upload(words)).collect()
            };
            let words: Option<Vec<_>> =
                words.map(upload).transpose().map_err(mpc_core::Error::from)?;
            let shares = mpc.input(Number(owner), &shapes, words.as_deref())?;
            let pairs = shares.into_iter().zip(&tensors);
            (first, pairs.map(|(share, f)| SecretTensor::new(share, f.numbers)).collect())
        }
        Command::Reveal { ids, to } => {
            mpc.step("reveal");
            let found = ids.iter().map(|&id| find(table, id)).collect::<Result<Vec<_>>>()?;
            let shares: Vec<_> = found.iter().map(SecretTensor::share).collect();
            let opened = match to {
                None => Some(mpc.open(&shares)?),
                Some(party) => mpc.open_to(Number(party), &shares)?,
            };
            if let Some(opened) = opened {
                let shown = opened.into_iter().zip(&found);
                let shown = shown.map(|(words, x)| Shown::new(mpc, words, x.frac()));
                reply.opened = Some(shown.collect::<mpc_core::Result<_>>()?);
            }
            return Ok(reply);
        }
        Command::Export { id } => {
            let x = find(table, id)?;
            reply.made.push(TensorFormat::of(&x));
            reply.held = mpc.hold(&[x.share()])?.pop();
            return Ok(reply);
        }
        Command::Import { id, format, held } => {
            let shares = mpc.accept(std::slice::from_ref(&format.shape), vec![held])?.into_iter();
            (id, shares.map(|share| SecretTensor::new(share, format.numbers)).collect())
        }
        Command::Addend { id } => {
            let x = find(table, id)?;
            reply.made.push(TensorFormat::of(&x));
            reply.addend = Some(mpc.addend(x.share())?);
            return Ok(reply);
        }
        Command::Bound { first, id, bound } => (first, vec![find(table, id)?.with_bound(bound)]),
        Command::Run { first, plan, weights, inputs, guard } => {
            let operands = |ids: &[u64]| {
                let secret = |&id| Ok(Operand::Secret(find(table, id)?.with_width(64)));
                ids.iter().map(secret).collect::<Result<Vec<_>>>()
            };
            let (weights, inputs) = (operands(&weights)?, operands(&inputs)?);
            let mut layers = Layers(Vec::new());
            let outputs = match guard {
                Some(seed) => {
                    let (mut outputs, found) =
                        plan.run_guarded(mpc, &weights, &inputs, seed, &mut layers)?;
                    outputs.push(found);
                    outputs
                }
                None => mpc.run_plan(&plan, &weights, &inputs, &mut layers)?,
            };
            reply.layers = layers.0;
            (first, outputs)
        }
        Command::Train { first, plan, state, batch, step, guard } => {
            let mut state = plan.secret_state::<P>(shares(table, &state)?)?;
            let batch = plan.step_plan().secret_inputs::<P>(shares(table, &batch)?);
            let mut layers = Layers(Vec::new());
            let (seen, found) = match guard {
                Some(seed) => {
                    let (seen, found) =
                        plan.step_guarded(mpc, &mut state, &batch, step, seed, &mut layers)?;
                    (seen, Some(found))
                }
                None => (plan.step(mpc, &mut state, &batch, step, &mut layers)?, None),
            };
            reply.layers = layers.0;
            let tensors = plan.state().into_iter().zip(state.shares());
            let after = tensors
                .map(|(spec, share)| SecretTensor::new(share.clone(), Format::words(spec.frac)));
            (first, after.chain(seen).chain(found).collect())
        }
        Command::Finish { first, plan, state } => {
            mpc.step("finish");
            let state = plan.secret_state::<P>(shares(table, &state)?)?;
            let weights = plan.finish(mpc, &state)?.into_iter().map(|weight| match weight {
                Operand::Secret(weight) => Ok(weight),
                Operand::Public(_) => Err(Failure::new(Kind::Failed, "a trained weight is public")),
            });
            (first, weights.collect::<Result<_>>()?)
        }
        Command::Forget(_) | Command::Undo { .. } | Command::Close => return Ok(reply),
    };
    for (id, x) in (first..).zip(made) {
        reply.made.push(TensorFormat::of(&x));
        table.insert(id, x);
    }
    Ok(reply)
}

fn find<P: Protocol>(table: &HashMap<u64, SecretTensor<P>>, id: u64) -> Result<SecretTensor<P>> {
    table.get(&id).cloned().ok_or_else(|| {
        Failure::new(Kind::Failed, "a secret array is used that an interrupted call never made")
    })
}

fn shares<P: Protocol>(
    table: &HashMap<u64, SecretTensor<P>>,
    ids: &[u64],
) -> Result<Vec<P::Share>> {
    ids.iter().map(|&id| Ok(find(table, id)?.share().clone())).collect()
}

/// Records the durations of a plan's layers.
pub(crate) struct Layers(Vec<(String, Duration)>);

impl Observer for Layers {
    fn ended(&mut self, step: &StepInfo<'_>, took: Duration) {
        self.0.push((step.name.to_owned(), took));
    }
}

/// A transport that fails after a request to stop.
pub(crate) struct Stoppable {
    pub(crate) inner: Box<dyn Transport>,
    pub(crate) stop: Arc<AtomicBool>,
}

impl Stoppable {
    fn check(&self) -> net::Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(net::Error::Misuse("the call was interrupted".to_owned()));
        }
        Ok(())
    }
}

impl Transport for Stoppable {
    fn me(&self) -> Number {
        self.inner.me()
    }

    fn parties(&self) -> usize {
        self.inner.parties()
    }

    fn send(&mut self, to: Number, message: Message) -> net::Result<()> {
        self.check()?;
        self.inner.send(to, message)
    }

    fn receive(&mut self, from: Number) -> net::Result<Message> {
        self.check()?;
        self.inner.receive(from)
    }

    fn step(&mut self, name: &str) {
        self.inner.step(name);
    }

    fn accuse(&mut self, peer: Number, reason: &str) -> net::Error {
        self.inner.accuse(peer, reason)
    }

    fn fail(&mut self, reason: &str) {
        self.inner.fail(reason);
    }

    fn close(self: Box<Self>) -> net::Result<()> {
        self.inner.close()
    }
}

/// Waits for a gathering, at most for the given time.
pub(crate) fn gathered(wait: &Receiver<()>, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    wait.recv_deadline(deadline).is_ok()
}
