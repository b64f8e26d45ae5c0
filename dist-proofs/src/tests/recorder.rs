//! Three parties that prove statements, and a transport that keeps what a party sends and waits for.

use std::sync::{Arc, Mutex};

use net::{Error, Message, Party, Result, Session, Transport};
use ring_arith::Generator;

use super::Example;
use crate::{Batch, Proofs, keys::Draw, statement::Statements};

/// An action of a party.
#[derive(Debug, Clone)]
pub enum Event {
    /// It sent these bytes.
    Sent(Party, Vec<u8>),
    /// It waited for a message.
    Received(Party),
}

pub type Log = Arc<Mutex<Vec<Event>>>;

/// A transport that keeps what its party does.
pub struct Recorder {
    pub inner: Box<dyn Transport>,
    pub log: Log,
}

impl Recorder {
    fn push(&self, event: Event) {
        self.log.lock().expect("no thread panics while it holds it").push(event);
    }
}

impl Transport for Recorder {
    fn me(&self) -> Party {
        self.inner.me()
    }

    fn parties(&self) -> usize {
        self.inner.parties()
    }

    fn send(&mut self, to: Party, message: Message) -> Result<()> {
        self.push(Event::Sent(to, message.body.to_vec()));
        self.inner.send(to, message)
    }

    fn receive(&mut self, from: Party) -> Result<Message> {
        self.push(Event::Received(from));
        self.inner.receive(from)
    }

    fn step(&mut self, name: &str) {
        self.inner.step(name);
    }

    fn accuse(&mut self, peer: Party, reason: &str) -> Error {
        self.inner.accuse(peer, reason)
    }

    fn fail(&mut self, reason: &str) {
        self.inner.fail(reason);
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.inner.close()
    }
}

/// Statements of three provers, by prover and side.
pub fn statements(draw: &mut Draw) -> [[Statements; 3]; 3] {
    [0; 3].map(|_| small(draw).sides())
}

/// Few relations of all kinds.
pub fn small(draw: &mut Draw) -> Example {
    let mut example = Example::bits(1, 70, draw);
    example.add_words(64, 3, 2, draw);
    example.add_matmul([1, 2, 1], draw);
    example
}

/// What a party holds of the statements.
pub fn batch(statements: &[[Statements; 3]; 3], me: Party) -> Batch<'_> {
    let [next, previous] = [me.after(1, 3).0, me.after(2, 3).0];
    Batch {
        prover: &statements[me.0][0],
        left: &statements[previous][1],
        right: &statements[next][2],
    }
}

pub fn proofs(session: &Session) -> Result<Proofs> {
    Proofs::new(session, Generator::Aes128Ctr)
}
