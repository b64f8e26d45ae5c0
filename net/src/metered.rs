//! Counts bytes, messages and rounds, per peer and per named step.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{Error, Message, Party, Result, Transport};

/// Step changes of which the order is kept. A longer run still counts bytes and messages by step; its
/// further rounds are counted under the step [`UNTRACED`].
const TRACE: usize = 1 << 20;

/// The step of rounds that came after [`Report`]'s trace was full.
pub const UNTRACED: &str = "(later steps)";

/// A transport that counts what passes through it.
///
/// Rounds are counted by causal depth, so the figure does not depend on how threads are scheduled.
/// A message carries the depth of its sender, and receiving it sets this party's depth to at least
/// one more. The rounds of a step are the growth of the largest depth over all parties, which
/// [`Report::of`] works out from the parties' [`Stats`].
///
/// # Cost
/// Four bytes a message, which the transport sends anyway.
pub struct Metered<T> {
    inner: T,
    meter: Meter,
}

impl<T: Transport> Metered<T> {
    /// Counts from here on, in the step `start`.
    pub fn new(inner: T) -> Self {
        let meter = Meter::new(inner.me(), inner.parties());
        Self { inner, meter }
    }

    /// A handle to the counts that stays valid when the transport is boxed and given away.
    #[must_use]
    pub fn meter(&self) -> Meter {
        self.meter.clone()
    }
}

impl<T: Transport> Transport for Metered<T> {
    fn me(&self) -> Party {
        self.inner.me()
    }

    fn parties(&self) -> usize {
        self.inner.parties()
    }

    fn send(&mut self, to: Party, mut message: Message) -> Result<()> {
        let bytes = message.body.len() as u64;
        message.depth = self.meter.lock().depth;
        self.inner.send(to, message)?;
        let mut state = self.meter.lock();
        state.sent[to.0].add(bytes);
        state.now().sent.add(bytes);
        Ok(())
    }

    fn receive(&mut self, from: Party) -> Result<Message> {
        let began = Instant::now();
        let message = self.inner.receive(from)?;
        let waited = began.elapsed();
        let bytes = message.body.len() as u64;
        let played = self.inner.on_tape(from);
        let mut state = self.meter.lock();
        if played {
            state.played.add(bytes);
            state.now().played.add(bytes);
            return Ok(message);
        }
        state.depth = state.depth.max(message.depth.saturating_add(1));
        state.received[from.0].add(bytes);
        let step = state.now();
        step.received.add(bytes);
        step.receiving += waited;
        Ok(message)
    }

    fn on_tape(&self, peer: Party) -> bool {
        self.inner.on_tape(peer)
    }

    fn step(&mut self, name: &str) {
        self.meter.lock().enter(name);
        self.inner.step(name);
    }

    fn accuse(&mut self, peer: Party, reason: &str) -> Error {
        self.inner.accuse(peer, reason)
    }

    fn fail(&mut self, reason: &str) {
        self.inner.fail(reason);
    }

    fn close(self: Box<Self>) -> Result<()> {
        Box::new(self.inner).close()
    }
}

/// A shared handle to the counts of one [`Metered`] transport.
#[derive(Clone)]
pub struct Meter(Arc<Mutex<State>>);

impl Meter {
    fn new(me: Party, parties: usize) -> Self {
        let mut state = State {
            me,
            depth: 0,
            sent: vec![Traffic::default(); parties],
            received: vec![Traffic::default(); parties],
            played: Traffic::default(),
            steps: Vec::new(),
            index: HashMap::new(),
            current: 0,
            trace: Vec::new(),
        };
        state.enter("start");
        Self(Arc::new(Mutex::new(state)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves plain counters behind, which are still fit to be read.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counts so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut state = self.lock();
        state.mark();
        Stats {
            me: state.me,
            depth: state.depth,
            sent: state.sent.clone(),
            received: state.received.clone(),
            played: state.played,
            steps: state.steps.clone(),
            trace: state.trace.clone(),
        }
    }

    /// Bytes sent to all peers so far.
    #[must_use]
    pub fn bytes_sent(&self) -> u64 {
        self.lock().sent.iter().map(|traffic| traffic.bytes).sum()
    }

    /// The causal depth: rounds since the session began, as far as this party knows.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.lock().depth
    }

    /// Forgets all counts but the causal depth, and keeps the current step. For [`Report::of`] to be
    /// right, every party must do so at the same place of its program.
    pub fn reset(&self) {
        let mut state = self.lock();
        let name = state.now().name.clone();
        state.sent.fill(Traffic::default());
        state.received.fill(Traffic::default());
        state.played = Traffic::default();
        state.steps.clear();
        state.index.clear();
        // The depth at which counting starts again.
        let depth = state.depth;
        state.trace = vec![Mark { step: u32::MAX, depth }];
        state.enter(&name);
    }
}

/// Bytes and messages in one direction. Bytes are those of message bodies, without framing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes of message bodies.
    pub bytes: u64,
    /// Messages.
    pub messages: u64,
}

impl Traffic {
    /// Counts a message.
    pub fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.messages += 1;
    }
}

/// The traffic of one party in all steps of one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepStats {
    /// The name given to [`Transport::step`].
    pub name: String,
    /// Sent to all peers.
    pub sent: Traffic,
    /// Received from all peers.
    pub received: Traffic,
    /// Played from a tape: see [`crate::tape`].
    pub played: Traffic,
    /// Time spent in receives, waiting for the most part.
    pub receiving: Duration,
}

/// The counts of one party at one moment.
#[derive(Debug, Clone)]
pub struct Stats {
    /// The party.
    pub me: Party,
    /// Its causal depth: rounds since the session began, as far as this party knows.
    pub depth: u32,
    /// Sent, by peer.
    pub sent: Vec<Traffic>,
    /// Received, by peer.
    pub received: Vec<Traffic>,
    /// Played from a tape: see [`crate::tape`].
    pub played: Traffic,
    /// The counts by step, in the order of first use.
    pub steps: Vec<StepStats>,
    trace: Vec<Mark>,
}

impl Stats {
    /// Bytes sent to all peers.
    #[must_use]
    pub fn bytes_sent(&self) -> u64 {
        self.sent.iter().map(|traffic| traffic.bytes).sum()
    }

    /// Bytes played from a tape.
    #[must_use]
    pub fn bytes_played(&self) -> u64 {
        self.played.bytes
    }

    /// Messages sent to all peers.
    #[must_use]
    pub fn messages_sent(&self) -> u64 {
        self.sent.iter().map(|traffic| traffic.messages).sum()
    }
}

/// The depth a party had reached when it left a step.
#[derive(Debug, Clone, Copy)]
struct Mark {
    step: u32,
    depth: u32,
}

struct State {
    me: Party,
    depth: u32,
    sent: Vec<Traffic>,
    received: Vec<Traffic>,
    played: Traffic,
    steps: Vec<StepStats>,
    index: HashMap<String, usize>,
    current: usize,
    trace: Vec<Mark>,
}

impl State {
    fn now(&mut self) -> &mut StepStats {
        &mut self.steps[self.current]
    }

    fn enter(&mut self, name: &str) {
        self.mark();
        let next = match self.index.get(name) {
            Some(&index) => index,
            None => self.add_step(name),
        };
        self.current = next;
        if self.trace.len() < TRACE {
            self.trace.push(Mark { step: next as u32, depth: self.depth });
        }
    }

    fn add_step(&mut self, name: &str) -> usize {
        let name = name.to_owned();
        self.index.insert(name.clone(), self.steps.len());
        let none = Traffic::default();
        let receiving = Duration::ZERO;
        self.steps.push(StepStats { name, sent: none, received: none, played: none, receiving });
        self.steps.len() - 1
    }

    /// Notes the depth reached in the step that is being left.
    fn mark(&mut self) {
        let depth = self.depth;
        if self.trace.len() < TRACE
            && let Some(last) = self.trace.last_mut()
            && last.step != u32::MAX
        {
            last.depth = depth;
        }
    }
}

/// The traffic of all parties in all steps of one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepReport {
    /// The step.
    pub name: String,
    /// Bytes of message bodies, all parties together.
    pub bytes: u64,
    /// Messages, all parties together.
    pub messages: u64,
    /// Bytes played from tapes, all parties together.
    pub played: u64,
    /// Growth of the largest causal depth.
    pub rounds: u32,
}

/// The counts of all parties of a session together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Bytes of message bodies, all parties together.
    pub bytes: u64,
    /// Messages, all parties together.
    pub messages: u64,
    /// Bytes played from tapes, all parties together.
    pub played: u64,
    /// Growth of the largest causal depth.
    pub rounds: u32,
    /// The counts by step, in the order of first use.
    pub steps: Vec<StepReport>,
}

impl Report {
    /// Puts together what the parties counted from the same beginning. Rounds by step need that all
    /// parties entered the same steps in the same order, as parties of one program do.
    #[must_use]
    pub fn of(parties: &[Stats]) -> Self {
        let mut steps: Vec<StepReport> = Vec::new();
        for step in parties.iter().flat_map(|stats| &stats.steps) {
            let at = position(&mut steps, &step.name);
            steps[at].bytes += step.sent.bytes;
            steps[at].messages += step.sent.messages;
            steps[at].played += step.played.bytes;
        }
        let start = parties.iter().map(first_depth).max().unwrap_or(0);
        let end = parties.iter().map(|stats| stats.depth).max().unwrap_or(0);
        let traced = count_rounds(parties, start, &mut steps);
        if end > traced {
            let at = position(&mut steps, UNTRACED);
            steps[at].rounds += end - traced;
        }
        Self {
            bytes: parties.iter().map(Stats::bytes_sent).sum(),
            messages: parties.iter().map(Stats::messages_sent).sum(),
            played: parties.iter().map(Stats::bytes_played).sum(),
            rounds: end.saturating_sub(start),
            steps,
        }
    }

    /// The figures of one step.
    #[must_use]
    pub fn step(&self, name: &str) -> Option<&StepReport> {
        self.steps.iter().find(|step| step.name == name)
    }
}

fn position(steps: &mut Vec<StepReport>, name: &str) -> usize {
    steps.iter().position(|step| step.name == name).unwrap_or_else(|| {
        let name = name.to_owned();
        steps.push(StepReport { name, bytes: 0, messages: 0, played: 0, rounds: 0 });
        steps.len() - 1
    })
}

fn first_depth(stats: &Stats) -> u32 {
    stats.trace.first().map_or(0, |mark| if mark.step == u32::MAX { mark.depth } else { 0 })
}

/// Adds each step's rounds and returns the depth that the traces reach.
fn count_rounds(parties: &[Stats], start: u32, steps: &mut Vec<StepReport>) -> u32 {
    let visits: Vec<Vec<Mark>> = parties
        .iter()
        .map(|stats| stats.trace.iter().copied().filter(|mark| mark.step != u32::MAX).collect())
        .collect();
    let longest = visits.iter().map(Vec::len).max().unwrap_or(0);
    let mut reached = start;
    for visit in 0..longest {
        for (stats, marks) in parties.iter().zip(&visits) {
            let Some(mark) = marks.get(visit) else { continue };
            if mark.depth > reached {
                let at = position(steps, &stats.steps[mark.step as usize].name);
                steps[at].rounds += mark.depth - reached;
                reached = mark.depth;
            }
        }
    }
    reached
}
