//! Runs the chunks of an operation round by round.
//!
//! A chunk is a coroutine: an `async fn` whose text is the protocol, with an `.await` where a round ends. The dealer
//! never waits. An evaluator waits once for the dealer's message and then, round by round, for its peer's. Nothing is
//! concurrent and no I/O is asynchronous: [`Rounds::run`] resumes all chunks in order, once a round, so that messages
//! leave and arrive in the same order at all parties.

use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker},
};

use mpc_core::{Result, provided::permutation};
use ring_arith::{Engine, EngineTensor, Place, Shape, Source, Tensor, WordKernel};

use super::{
    fss::{Root, SEED},
    launch::{self, made_into, words, words_into},
    links::Links,
    prss::{Key, OrderKey, Sample, Seeds, Streams},
    roles::{Pair, Role, Roles},
};
use crate::proofs::{Link, Recorder, Transcript};

/// One chunk's roles, streams and links.
pub(crate) struct Port<'a, E: Engine> {
    pub engine: &'a E,
    pub roles: Roles,
    pub streams: Streams,
    pub links: &'a RefCell<Links>,
    /// 64 words of 0.
    pub zeros: &'a E::Tensor,
    /// Keeps the messages of a checked session.
    pub recorder: Option<Recorder<'a, E>>,
}

/// A message, read tensor by tensor in the order in which it was sent.
pub(crate) struct Incoming<'p, 'a, E: Engine> {
    port: &'p Port<'a, E>,
    from: net::Party,
}

/// The chunks of an operation under way.
pub(crate) struct Rounds<'a, R> {
    chunks: Vec<(Role, Running<'a, R>)>,
}

type Running<'a, R> = Pin<Box<dyn Future<Output = Result<R>> + 'a>>;

impl<'a, R> Rounds<'a, R> {
    pub fn new() -> Self {
        Self { chunks: Vec::new() }
    }

    /// Adds a chunk, in which this party has a role.
    pub fn add(&mut self, role: Role, chunk: impl Future<Output = Result<R>> + 'a) {
        self.chunks.push((role, Box::pin(chunk)));
    }

    /// Runs all chunks, those that this party deals first; their results in the order in which they were added.
    pub fn run(self, links: &RefCell<Links>) -> Result<Vec<R>> {
        let mut context = Context::from_waker(Waker::noop());
        let mut waiting: Vec<_> = self.chunks.into_iter().enumerate().collect();
        waiting.sort_by_key(|(_, (role, _))| *role != Role::Dealer);
        let mut results = Vec::with_capacity(waiting.len());
        while !waiting.is_empty() {
            let mut unfinished = Vec::with_capacity(waiting.len());
            for (at, (role, mut chunk)) in waiting {
                match chunk.as_mut().poll(&mut context) {
                    Poll::Ready(result) => results.push((at, result?)),
                    Poll::Pending => unfinished.push((at, (role, chunk))),
                }
            }
            waiting = unfinished;
        }
        links.borrow_mut().flush_all()?;
        results.sort_by_key(|(at, _)| *at);
        Ok(results.into_iter().map(|(_, result)| result).collect())
    }
}

/// Waits until all other chunks have come to the same round.
async fn round() {
    let mut waited = false;
    poll_fn(|_| if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending })
        .await;
}

/// Runs two parts of a chunk side by side: they share rounds.
pub(crate) async fn both<A, B, E: Engine>(
    p: &Port<'_, E>,
    first: impl Future<Output = Result<A>>,
    second: impl Future<Output = Result<B>>,
) -> Result<(A, B)> {
    let mut first = pin!(first);
    let mut second = pin!(second);
    let mut results = (None, None);
    poll_fn(|context| {
        if results.0.is_none()
            && let Poll::Ready(result) = p.beside(false, || first.as_mut().poll(context))
        {
            results.0 = Some(result?);
        }
        if results.1.is_none()
            && let Poll::Ready(result) = p.beside(true, || second.as_mut().poll(context))
        {
            results.1 = Some(result?);
        }
        match std::mem::take(&mut results) {
            (Some(a), Some(b)) => Poll::Ready(Ok((a, b))),
            unfinished => {
                results = unfinished;
                Poll::Pending
            }
        }
    })
    .await
}

impl<'a, E: Engine> Port<'a, E> {
    pub fn role(&self) -> Role {
        self.roles.role
    }

    /// True at the dealer.
    pub fn deals(&self) -> bool {
        self.role() == Role::Dealer
    }

    /// True at the left evaluator.
    pub fn is_left(&self) -> bool {
        self.role() == Role::Left
    }

    /// All ones at the left evaluator, which alone adds the terms that both evaluators know.
    pub fn if_left(&self) -> u64 {
        if self.is_left() { u64::MAX } else { 0 }
    }

    // -- randomness ------------------------------------------------------------------------------

    /// Takes the next words of a stream.
    pub fn sample(&mut self, key: Key, words: usize) -> Sample {
        self.streams.sample(key, words)
    }

    /// Samples of the dealer with the left and with the right evaluator: masks of the messages between those two.
    pub fn sample_both(&mut self, words: usize) -> [Sample; 2] {
        [Key::Left, Key::Right].map(|key| self.sample(key, words))
    }

    /// The seeds of `n` keys of each evaluator.
    pub fn seeds_of_both(&mut self, n: usize) -> [Seeds; 2] {
        [Key::Left, Key::Right].map(|key| self.streams.seeds(key, n))
    }

    /// The roots of an evaluator's keys.
    pub fn roots(&self, seeds: Seeds) -> Result<Vec<Root>> {
        let shape = Shape::new([SEED * seeds.len()])?;
        let words = made_into(self.engine, &shape, self.streams.seed_words(seeds), None)?;
        Ok(seeds.roots(self.engine.download(&words)?.words()).collect())
    }

    /// The key of a permutation of the parties that have a stream.
    pub fn order_key(&mut self, key: Key) -> OrderKey {
        self.streams.order_key(key)
    }

    /// The permutation under a key: the place from which each row comes.
    pub fn order(&self, key: OrderKey, rows: usize) -> Result<Arc<[usize]>> {
        let shape = Shape::new([OrderKey::WORDS])?;
        let words = made_into(self.engine, &shape, self.streams.order_key_words(key), None)?;
        let words = self.engine.download(&words)?;
        let stream = OrderKey::stream(self.streams.generator(), words.words());
        Ok(permutation(&stream, rows))
    }

    /// That of two samples which this evaluator shares with the dealer.
    pub fn own<S: Copy>(&self, [left, right]: [S; 2]) -> S {
        if self.is_left() { left } else { right }
    }

    /// A sample as input of a kernel.
    pub fn words_of(&self, sample: Sample) -> Source<'_, E::Tensor> {
        self.streams.words(sample)
    }

    /// A sample as a tensor of one axis.
    pub fn tensor_of(&self, sample: Sample) -> Result<E::Tensor> {
        self.tensor_into(sample, None)
    }

    /// The words of a sample, on this machine.
    pub fn download_sample(&self, sample: Sample) -> Result<Tensor> {
        Ok(self.engine.download(&self.tensor_of(sample)?)?)
    }

    /// As [`Port::tensor_of`], where the tensor belongs.
    pub fn tensor_into(
        &self,
        sample: Sample,
        place: Option<Place<'_, E::Tensor>>,
    ) -> Result<E::Tensor> {
        let shape = Shape::new([sample.len()])?;
        Ok(made_into(self.engine, &shape, self.words_of(sample), place)?)
    }

    // -- local work ------------------------------------------------------------------------------

    /// A row of zeros for each row of a launch.
    pub fn zero(&self) -> Source<'a, E::Tensor> {
        Source::PerRow { tensor: self.zeros, offset: 0 }
    }

    /// Runs a kernel over `len` words.
    pub fn words<K: WordKernel<I, O>, const I: usize, const O: usize>(
        &self,
        kernel: &K,
        len: usize,
        sources: [Source<'_, E::Tensor>; I],
        params: &[u64],
    ) -> Result<[E::Tensor; O]> {
        Ok(words(self.engine, kernel, &Shape::new([len])?, sources, params)?)
    }

    /// As [`Port::words`], with outputs made where they belong.
    pub fn words_into<K: WordKernel<I, O>, const I: usize, const O: usize>(
        &self,
        kernel: &K,
        len: usize,
        sources: [Source<'_, E::Tensor>; I],
        params: &[u64],
        places: [Option<Place<'_, E::Tensor>>; O],
    ) -> Result<[E::Tensor; O]> {
        Ok(words_into(self.engine, kernel, &Shape::new([len])?, sources, params, places)?)
    }

    /// Runs a kernel with one output on whole tensors of one length.
    pub fn map<K: WordKernel<I, 1>, const I: usize>(
        &self,
        kernel: &K,
        inputs: [&E::Tensor; I],
        params: &[u64],
    ) -> Result<E::Tensor> {
        Ok(launch::map(self.engine, kernel, inputs[0].shape(), inputs, params)?)
    }

    /// One plane of bits as words.
    pub fn bits_as_words(&self, plane: &E::Tensor, len: usize) -> Result<E::Tensor> {
        Ok(self.engine.from_planes(plane, 0, &Shape::new([len])?)?)
    }

    /// The evaluators' part of a shared value: `b = x2`.
    pub fn joint<'x, T>(&self, x: &'x Pair<T>) -> &'x T {
        if self.is_left() { &x.1 } else { &x.0 }
    }

    /// The component that an evaluator shares with the dealer: its share of `a = x0 + x1`.
    pub fn shared<'x, T>(&self, x: &'x Pair<T>) -> &'x T {
        if self.is_left() { &x.0 } else { &x.1 }
    }

    /// An evaluator's two components, from the one shared with the dealer and the one shared with its peer.
    pub fn pair<T>(&self, shared: T, joint: T) -> Pair<T> {
        if self.is_left() { Pair(shared, joint) } else { Pair(joint, shared) }
    }

    /// The dealer's part of a shared value: `a = x0 + x1`.
    pub fn dealers(&self, Pair(first, second): &Pair<E::Tensor>) -> Result<E::Tensor> {
        Ok(launch::add(self.engine, first, second)?)
    }

    /// The sum of an evaluator's addend and its peer's: the component that both hold.
    pub fn sum_into(
        &self,
        own: &E::Tensor,
        other: &E::Tensor,
        place: Option<Place<'_, E::Tensor>>,
    ) -> Result<E::Tensor> {
        Ok(launch::add_into(self.engine, own, other, place)?)
    }

    /// True in a checked session.
    pub fn is_checked(&self) -> bool {
        self.recorder.is_some()
    }

    // -- messages --------------------------------------------------------------------------------

    /// In a checked session, keeps what is owed for the chunk's messages. It is stated when they are there.
    pub fn owe(
        &self,
        relations: impl FnOnce(&mut Transcript<'_, E>) -> Result<()> + Send + 'static,
    ) {
        if let Some(recorder) = &self.recorder {
            recorder.owe(relations);
        }
    }

    /// Runs a step of the first or the second of two parts that run side by side.
    fn beside<R>(&self, second: bool, step: impl FnOnce() -> R) -> R {
        match &self.recorder {
            Some(recorder) => recorder.beside(second, step),
            None => step(),
        }
    }

    /// Queues a tensor for another role.
    fn send(&self, to: Role, tensor: &E::Tensor) -> Result<()> {
        if let Some(recorder) = &self.recorder {
            recorder.note(Link::between(self.role(), to), tensor);
        }
        self.links.borrow_mut().send(self.engine, self.roles.party(to), tensor)
    }

    /// Queues a tensor for the left evaluator.
    pub fn to_left(&self, tensor: &E::Tensor) -> Result<()> {
        self.send(Role::Left, tensor)
    }

    /// Queues a tensor for the right evaluator.
    pub fn to_right(&self, tensor: &E::Tensor) -> Result<()> {
        self.send(Role::Right, tensor)
    }

    /// Queues the low bits of words for the left evaluator.
    pub fn bits_to_left(&self, words: &E::Tensor, bits: u32) -> Result<()> {
        self.to_left(&self.engine.to_planes(words, 0, bits)?)
    }

    /// Queues the low bits of words for the right evaluator.
    pub fn bits_to_right(&self, words: &E::Tensor, bits: u32) -> Result<()> {
        self.to_right(&self.engine.to_planes(words, 0, bits)?)
    }

    /// Queues a tensor for the other evaluator.
    pub fn to_peer(&self, tensor: &E::Tensor) -> Result<()> {
        self.send(if self.is_left() { Role::Right } else { Role::Left }, tensor)
    }

    /// Queues the low bits of words for the other evaluator.
    pub fn bits_to_peer(&self, words: &E::Tensor, bits: u32) -> Result<()> {
        self.to_peer(&self.engine.to_planes(words, 0, bits)?)
    }

    /// Waits for the dealer's message. The chunk reads all of it before it waits again: its messages as an evaluator
    /// of other chunks follow on the same link.
    pub async fn dealt<'p>(&'p self) -> Incoming<'p, 'a, E> {
        round().await;
        Incoming { port: self, from: self.roles.dealer() }
    }

    /// Waits for the other evaluator's message of this round.
    pub async fn received<'p>(&'p self) -> Incoming<'p, 'a, E> {
        round().await;
        Incoming { port: self, from: self.roles.peer() }
    }
}

impl<E: Engine> Incoming<'_, '_, E> {
    fn tensor(&self, shape: Shape) -> Result<E::Tensor> {
        let port = self.port;
        let tensor = port.links.borrow_mut().receive(port.engine, self.from, shape)?;
        if let Some(recorder) = &port.recorder {
            recorder.note(Link::between(port.roles.role_of(self.from), port.role()), &tensor);
        }
        Ok(tensor)
    }

    /// The rest of the message, for another port of the same roles.
    pub fn at<'q, 'b>(&self, port: &'q Port<'b, E>) -> Incoming<'q, 'b, E> {
        Incoming { port, from: self.from }
    }

    /// The next words.
    pub fn words(&self, len: usize) -> Result<E::Tensor> {
        self.tensor(Shape::new([len])?)
    }

    /// The next planes, of `cols` words each.
    pub fn planes(&self, planes: usize, cols: usize) -> Result<E::Tensor> {
        self.tensor(Shape::new([planes, cols])?)
    }

    /// The next `len` words of which `bits` bits were sent; these are the bits from `low` on.
    pub fn bits(&self, len: usize, bits: u32, low: u32) -> Result<E::Tensor> {
        let planes = self.planes(bits as usize, len.div_ceil(64))?;
        Ok(self.port.engine.from_planes(&planes, low, &Shape::new([len])?)?)
    }
}
