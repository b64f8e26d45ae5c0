//! Spoils messages on purpose, to test the code that relies on them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{Error, Message, Party, Result, Transport};

/// The faults that a message may suffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// One bit is inverted, counted from the lowest of the first byte and modulo the length.
    Flip(usize),
    /// The message is lost.
    Drop,
    /// The message comes twice.
    Duplicate,
    /// Only the first `n` bytes come.
    Truncate(usize),
    /// The message comes after the next one to the same peer, or when the session closes.
    Reorder,
    /// The message, and all that this party does after it, comes later by this time.
    Delay(Duration),
}

/// The message that a fault strikes: the `nth` (from 0) of those sent to a peer in a step.
#[derive(Debug, Clone)]
pub struct Strike {
    fault: Fault,
    to: Option<Party>,
    step: Option<String>,
    nth: usize,
    seen: usize,
}

impl Strike {
    /// Strikes the first message of all.
    #[must_use]
    pub fn new(fault: Fault) -> Self {
        Self { fault, to: None, step: None, nth: 0, seen: 0 }
    }

    /// Only messages to this peer count.
    #[must_use]
    pub fn to(mut self, peer: Party) -> Self {
        self.to = Some(peer);
        self
    }

    /// Only messages sent in the step of this name count.
    #[must_use]
    pub fn in_step(mut self, name: &str) -> Self {
        self.step = Some(name.to_owned());
        self
    }

    /// Strikes the message that `nth` such messages precede.
    #[must_use]
    pub fn nth(mut self, nth: usize) -> Self {
        self.nth = nth;
        self
    }

    fn hits(&mut self, to: Party, step: &str) -> bool {
        let counts = self.to.is_none_or(|peer| peer == to)
            && self.step.as_deref().is_none_or(|name| name == step);
        let hits = counts && self.seen == self.nth;
        self.seen += usize::from(counts);
        hits
    }
}

/// A transport that spoils what its party sends. See [`Strike`].
pub struct Tamper<T> {
    inner: T,
    strikes: Vec<Strike>,
    step: String,
    held: Vec<Option<Message>>,
    struck: Arc<AtomicUsize>,
}

impl<T: Transport> Tamper<T> {
    /// Strikes are independent of each other; of those that hit one message the first counts.
    pub fn new(inner: T, strikes: Vec<Strike>) -> Self {
        let held = (0..inner.parties()).map(|_| None).collect();
        Self { inner, strikes, step: "start".to_owned(), held, struck: Arc::default() }
    }

    /// The number of messages that have been struck. Stays valid when the transport is given away;
    /// a test that expects an error should also see that this is not 0.
    #[must_use]
    pub fn struck(&self) -> Arc<AtomicUsize> {
        self.struck.clone()
    }

    fn fault(&mut self, to: Party) -> Option<Fault> {
        let mut hit = None;
        for strike in &mut self.strikes {
            if strike.hits(to, &self.step) {
                hit = hit.or(Some(strike.fault));
            }
        }
        hit
    }

    fn release(&mut self, to: Party) -> Result<()> {
        match self.held[to.0].take() {
            Some(message) => self.inner.send(to, message),
            None => Ok(()),
        }
    }
}

fn flip(body: &[u8], bit: usize) -> Vec<u8> {
    let mut body = body.to_vec();
    if !body.is_empty() {
        let bit = bit % (body.len() * 8);
        body[bit / 8] ^= 1 << (bit % 8);
    }
    body
}

impl<T: Transport> Transport for Tamper<T> {
    fn me(&self) -> Party {
        self.inner.me()
    }

    fn parties(&self) -> usize {
        self.inner.parties()
    }

    fn send(&mut self, to: Party, message: Message) -> Result<()> {
        if to == self.me() || to.0 >= self.parties() {
            return self.inner.send(to, message);
        }
        let Some(fault) = self.fault(to) else {
            self.inner.send(to, message)?;
            return self.release(to);
        };
        self.struck.fetch_add(1, Ordering::Relaxed);
        let Message { body, depth } = message;
        match fault {
            Fault::Flip(bit) => {
                self.inner.send(to, Message { body: flip(&body, bit).into(), depth })?;
            }
            Fault::Drop => {}
            Fault::Duplicate => {
                self.inner.send(to, Message { body: body.clone(), depth })?;
                self.inner.send(to, Message { body, depth })?;
            }
            Fault::Truncate(len) => {
                let len = len.min(body.len());
                self.inner.send(to, Message { body: body.slice(..len), depth })?;
            }
            Fault::Reorder => {
                self.release(to)?;
                self.held[to.0] = Some(Message { body, depth });
                return Ok(());
            }
            Fault::Delay(time) => {
                thread::sleep(time);
                self.inner.send(to, Message { body, depth })?;
            }
        }
        self.release(to)
    }

    fn receive(&mut self, from: Party) -> Result<Message> {
        self.inner.receive(from)
    }

    fn on_tape(&self, peer: Party) -> bool {
        self.inner.on_tape(peer)
    }

    fn step(&mut self, name: &str) {
        self.step.clear();
        self.step.push_str(name);
        self.inner.step(name);
    }

    fn accuse(&mut self, peer: Party, reason: &str) -> Error {
        self.inner.accuse(peer, reason)
    }

    fn fail(&mut self, reason: &str) {
        self.inner.fail(reason);
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        for peer in 0..self.parties() {
            self.release(Party(peer))?;
        }
        Box::new(self.inner).close()
    }
}
