//! The progress and the cost of a job, watched on its transport: the protocol computes with one hand on it, and the
//! server reports to clients with another.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use net::{Message, Metered, Party, Result, Traffic, Transport};
use nn_layers::{Observer, StepInfo};

use super::{Cost, Place, StepCost};

/// The most steps of one job that are kept.
const STEPS: usize = 1 << 16;

/// One hand on a transport. Clones are further hands on the same one; since every party runs one
/// straight-line program, they are used in turn and never at once.
pub struct Watched {
    me: Party,
    parties: usize,
    inner: Arc<Mutex<Inner>>,
    place: Arc<Mutex<Place>>,
}

struct Inner {
    transport: Metered<Box<dyn Transport>>,
    job: Job,
}

/// A job's beginning and its steps so far.
struct Job {
    began: Instant,
    first_depth: u32,
    steps: Vec<StepCost>,
    /// The step that runs.
    name: String,
    entered: Instant,
    /// Bytes that the job had sent when it was entered.
    before: u64,
}

impl Watched {
    /// Takes a transport in hand.
    #[must_use]
    pub fn new(transport: Box<dyn Transport>) -> Self {
        let (me, parties) = (transport.me(), transport.parties());
        let inner = Inner { transport: Metered::new(transport), job: Job::begin(0) };
        Self { me, parties, inner: Arc::new(Mutex::new(inner)), place: Arc::default() }
    }

    /// Another hand on the same transport.
    #[must_use]
    pub fn hand(&self) -> Self {
        Self { inner: self.inner.clone(), place: self.place.clone(), ..*self }
    }

    /// The place of the job. Never waits for the network.
    #[must_use]
    pub fn place(&self) -> Place {
        self.locked_place().clone()
    }

    fn locked_place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts counting again.
    pub fn begin(&self) {
        let mut inner = self.lock();
        let meter = inner.transport.meter();
        meter.reset();
        inner.job = Job::begin(meter.depth());
        *self.locked_place() = Place::default();
    }

    /// The cost since [`Watched::begin`].
    #[must_use]
    pub fn cost(&self) -> Cost {
        let mut inner = self.lock();
        inner.leave_step();
        let stats = inner.transport.meter().stats();
        let job = &inner.job;
        Cost {
            seconds: job.began.elapsed().as_secs_f64(),
            bytes: stats.bytes_sent(),
            messages: stats.messages_sent(),
            rounds: stats.depth - job.first_depth,
            first_depth: job.first_depth,
            tape: stats.bytes_played(),
            profile: None,
            steps: job.steps.clone(),
        }
    }

    /// The traffic sent to each peer since [`Watched::begin`], and received from it.
    #[must_use]
    pub fn traffic(&self) -> [Vec<Traffic>; 2] {
        let stats = self.lock().transport.meter().stats();
        [stats.sent, stats.received]
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // After a panic in a send or receive the transport is dead and its calls return errors.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Job {
    fn begin(depth: u32) -> Self {
        let now = Instant::now();
        let (steps, name) = (Vec::new(), String::new());
        Self { began: now, first_depth: depth, steps, name, entered: now, before: 0 }
    }
}

impl Inner {
    fn leave_step(&mut self) {
        let meter = self.transport.meter();
        let (now, sent, job) = (Instant::now(), meter.bytes_sent(), &mut self.job);
        let (name, bytes) = (std::mem::take(&mut job.name), sent - job.before);
        if (!name.is_empty() || bytes > 0) && job.steps.len() < STEPS {
            let seconds = now.duration_since(job.entered).as_secs_f64();
            job.steps.push(StepCost { name, seconds, bytes, depth: meter.depth() });
        }
        (job.before, job.entered) = (sent, now);
    }
}

impl Transport for Watched {
    fn me(&self) -> Party {
        self.me
    }

    fn parties(&self) -> usize {
        self.parties
    }

    fn send(&mut self, to: Party, message: Message) -> Result<()> {
        self.lock().transport.send(to, message)
    }

    fn receive(&mut self, from: Party) -> Result<Message> {
        // A peer's depth serves only the profile, so a wrong one does no harm.
        self.lock().transport.receive(from)
    }

    fn on_tape(&self, peer: Party) -> bool {
        self.lock().transport.on_tape(peer)
    }

    fn step(&mut self, name: &str) {
        let mut inner = self.lock();
        inner.leave_step();
        inner.job.name.push_str(name);
        inner.transport.step(name);
        let step = &mut self.locked_place().step;
        step.clear();
        step.push_str(name);
    }

    fn accuse(&mut self, peer: Party, reason: &str) -> net::Error {
        self.lock().transport.accuse(peer, reason)
    }

    fn fail(&mut self, reason: &str) {
        self.lock().transport.fail(reason);
    }

    fn close(self: Box<Self>) -> Result<()> {
        match Arc::try_unwrap(self.inner) {
            Ok(inner) => {
                let inner = inner.into_inner().unwrap_or_else(PoisonError::into_inner);
                Box::new(inner.transport).close()
            }
            Err(_) => Err(net::Error::Misuse("another hand holds this transport".to_owned())),
        }
    }
}

impl Observer for Watched {
    fn started(&mut self, step: &StepInfo<'_>) {
        let mut place = self.locked_place();
        (place.done, place.of) = (step.index, step.of);
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watched({})", self.me)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn bytes_and_rounds_are_counted_by_step_since_the_beginning() {
        let costs = net::launch::threads(3, 1, |session| {
            let mut watched = Watched::new(session.transport);
            let (next, previous) = (watched.me().after(1, 3), watched.me().after(2, 3));
            let mut exchange = |step: &str, bytes: usize, times: usize| {
                watched.step(step);
                for _ in 0..times {
                    watched.send(next, Bytes::from(vec![0; bytes]).into()).unwrap();
                    watched.receive(previous).unwrap();
                }
            };
            exchange("before", 7, 2);
            let hand = watched.hand();
            hand.begin();
            let mut exchange = |step: &str, bytes: usize, times: usize| {
                watched.step(step);
                for _ in 0..times {
                    watched.send(next, Bytes::from(vec![0; bytes]).into()).unwrap();
                    watched.receive(previous).unwrap();
                }
            };
            exchange("one", 10, 1);
            exchange("two", 20, 3);
            assert_eq!(hand.place(), Place { step: "two".to_owned(), done: 0, of: 0 });
            let cost = hand.cost();
            drop(hand);
            Box::new(watched).close().unwrap();
            cost
        });
        for cost in costs {
            assert_eq!((cost.bytes, cost.messages, cost.rounds), (70, 4, 4));
            let steps: Vec<_> = cost
                .steps
                .iter()
                .map(|step| (step.name.as_str(), step.bytes, step.depth))
                .collect();
            assert_eq!(steps, [("one", 10, 3), ("two", 60, 6)]);
        }
    }
}
