//! A crew whose machines are threads of one process.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    time::Duration,
};

use ring_arith::{Engine, EngineTensor, Shape, View};

use super::{Crew, check_rank, stretch_of};
use crate::{Error, Result};

/// The longest wait for another machine, unless [`InProcessCrew::with_patience`] sets another.
const PATIENCE: Duration = Duration::from_secs(600);

/// A machine's message in one call.
struct Said<T> {
    call: Call,
    /// The shape that the machine brought to the call.
    shape: Shape,
    words: T,
}

/// A collective, by its number among all calls of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Call {
    name: &'static str,
    number: u64,
}

/// One of several threads of a process that are a crew: for tests, and for parties on one machine. Words go through
/// memory.
pub struct InProcessCrew<E: Engine> {
    rank: usize,
    /// To each machine, and from each; those of this machine are never used.
    to: Vec<Sender<Said<E::Tensor>>>,
    from: Vec<Receiver<Said<E::Tensor>>>,
    calls: u64,
    sent: u64,
    patience: Duration,
    /// The error of an earlier call.
    dead: Option<String>,
}

impl<E: Engine> InProcessCrew<E> {
    /// The handles of a crew of `size` machines, in the order of their numbers.
    ///
    /// # Errors
    /// [`Error::Invalid`] for no machine at all.
    pub fn new(size: usize) -> Result<Vec<Self>> {
        if size == 0 {
            return Err(Error::invalid("crew", "a crew has at least one machine"));
        }
        let mut to: Vec<Vec<_>> = (0..size).map(|_| Vec::with_capacity(size)).collect();
        let mut from: Vec<Vec<_>> = (0..size).map(|_| Vec::with_capacity(size)).collect();
        for sender in &mut to {
            for receiver in &mut from {
                let (send, receive) = channel();
                sender.push(send);
                receiver.push(receive);
            }
        }
        let ends = to.into_iter().zip(from).enumerate();
        Ok(ends
            .map(|(rank, (to, from))| Self {
                rank,
                to,
                from,
                calls: 0,
                sent: 0,
                patience: PATIENCE,
                dead: None,
            })
            .collect())
    }

    /// The same with another longest wait for another machine; 600 seconds unless it is given.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Bytes of words that this machine has sent to the others so far.
    pub fn bytes_sent(&self) -> u64 {
        self.sent
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<E> {
        let rank = self.rank;
        (0..self.to.len()).filter(move |other| *other != rank)
    }

    /// Makes one call, after which an error is remembered.
    fn call<R>(
        &mut self,
        name: &'static str,
        run: impl FnOnce(&mut Self, Call) -> Result<R>,
    ) -> Result<R> {
        if let Some(reason) = &self.dead {
            let reason = format!("is of no use after an error: {reason}");
            return Err(Error::Crew { rank: self.rank, reason });
        }
        let call = Call { name, number: self.calls };
        self.calls += 1;
        let result = run(self, call);
        if let Err(error) = &result {
            self.dead = Some(error.to_string());
        }
        result
    }

    fn send(&mut self, to: usize, call: Call, shape: &Shape, words: E::Tensor) -> Result<()> {
        self.sent += 8 * words.len() as u64;
        let said = Said { call, shape: shape.clone(), words };
        self.to[to].send(said).map_err(|_| missing(to, call))
    }

    /// The words of another machine, which must have made the same call with the same shape.
    fn receive(&mut self, from: usize, call: Call, shape: &Shape) -> Result<E::Tensor> {
        let said = match self.from[from].recv_timeout(self.patience) {
            Ok(said) => said,
            Err(RecvTimeoutError::Disconnected) => return Err(missing(from, call)),
            Err(RecvTimeoutError::Timeout) => {
                let reason = format!(
                    "has not come to `{}`, call {}, for {:?}",
                    call.name, call.number, self.patience
                );
                return Err(Error::Crew { rank: from, reason });
            }
        };
        if said.call == call && said.shape == *shape {
            return Ok(said.words);
        }
        let reason = format!(
            "made `{}` of {:?} its call {}, and this machine, {}, made `{}` of {shape:?} its call {}: all machines run \
             the same plan",
            said.call.name, said.shape, said.call.number, self.rank, call.name, call.number
        );
        Err(Error::Crew { rank: from, reason })
    }

    fn scattered(&mut self, engine: &E, call: Call, words: &E::Tensor) -> Result<E::Tensor> {
        let size = self.to.len();
        let len = stretch_of(words, size)?;
        let stretch = |of: usize| {
            let view = View::Slice { axis: 0, start: of * len, end: (of + 1) * len, step: 1 };
            engine.view(words, &view)
        };
        for other in self.others() {
            self.send(other, call, words.shape(), stretch(other)?)?;
        }
        let mut others = Vec::with_capacity(size);
        for other in self.others() {
            others.push(self.receive(other, call, words.shape())?);
        }
        mutant!("crew: the own stretch alone", others = Vec::new());
        let row = View::Reshape(Shape::new([1, len])?);
        let mut rows = vec![engine.view(&stretch(self.rank)?, &row)?];
        for theirs in &others {
            rows.push(engine.view(theirs, &row)?);
        }
        let sum = engine.sum(&engine.concat(&rows.iter().collect::<Vec<_>>(), 0)?, &[0])?;
        Ok(engine.view(&sum, &View::Reshape(Shape::new([len])?))?)
    }

    fn gathered(&mut self, engine: &E, call: Call, words: &E::Tensor) -> Result<E::Tensor> {
        for other in self.others() {
            self.send(other, call, words.shape(), words.clone())?;
        }
        let mut all = Vec::with_capacity(self.to.len());
        for machine in 0..self.to.len() {
            all.push(if machine == self.rank {
                words.clone()
            } else {
                self.receive(machine, call, words.shape())?
            });
        }
        Ok(engine.concat(&all.iter().collect::<Vec<_>>(), 0)?)
    }
}

impl<E: Engine> Crew<E> for InProcessCrew<E> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.to.len()
    }

    fn sum(&mut self, engine: &E, words: &E::Tensor) -> Result<E::Tensor> {
        let size = self.to.len();
        let shape = words.shape().clone();
        let even = shape.len().next_multiple_of(size);
        let flat = engine.view(words, &View::Reshape(Shape::new([shape.len()])?))?;
        let after = vec![even - shape.len()];
        let padded = engine.view(&flat, &View::Pad { before: vec![0], after, value: 0 })?;
        let own = self.call("sum", |crew, call| crew.scattered(engine, call, &padded))?;
        let all = self.call("sum", |crew, call| crew.gathered(engine, call, &own))?;
        let kept = View::Slice { axis: 0, start: 0, end: shape.len(), step: 1 };
        Ok(engine.view(&engine.view(&all, &kept)?, &View::Reshape(shape))?)
    }

    fn sum_scattered(&mut self, engine: &E, words: &E::Tensor) -> Result<E::Tensor> {
        self.call("sum_scattered", |crew, call| crew.scattered(engine, call, words))
    }

    fn gather(&mut self, engine: &E, words: &E::Tensor) -> Result<E::Tensor> {
        self.call("gather", |crew, call| crew.gathered(engine, call, words))
    }

    fn broadcast(&mut self, _: &E, from: usize, words: &E::Tensor) -> Result<E::Tensor> {
        check_rank(from, self.to.len())?;
        self.call("broadcast", |crew, call| {
            if crew.rank != from {
                return crew.receive(from, call, words.shape());
            }
            for other in crew.others() {
                crew.send(other, call, words.shape(), words.clone())?;
            }
            Ok(words.clone())
        })
    }
}

fn missing(rank: usize, call: Call) -> Error {
    let reason = format!("has left before `{}`, call {}", call.name, call.number);
    Error::Crew { rank, reason }
}
