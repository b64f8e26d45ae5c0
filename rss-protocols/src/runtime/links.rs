//! Tensors in and out of the session's links.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use mpc_core::{Error, Result};
use net::{Message, Party, Transport};
use ring_arith::{Engine, Shape, Tensor};

/// Fields below this many bytes wait for others to fill a message with.
const SMALL: usize = 1 << 15;

/// The links to both peers. Fields are tensors one behind another; small ones share a message.
pub(crate) struct Links {
    transport: Box<dyn Transport>,
    outgoing: [Outgoing; 3],
    incoming: [Incoming; 3],
    /// To whom tensors went, and of how many words.
    #[cfg(test)]
    pub puts: Vec<(Party, usize)>,
}

#[derive(Default)]
struct Outgoing {
    fields: Vec<Bytes>,
    bytes: usize,
}

#[derive(Default)]
struct Incoming {
    /// Received and not yet read.
    rest: Bytes,
    /// What the peer sends as a pivot comes before all else of an operation: places still to be
    /// filled, and with how many bytes.
    expected: VecDeque<(usize, usize)>,
}

/// What a peer sent for one purpose, read field by field.
#[derive(Default)]
pub(crate) struct Reader {
    pieces: VecDeque<Bytes>,
    bytes: usize,
}

impl Links {
    pub fn new(transport: Box<dyn Transport>) -> Self {
        Self {
            transport,
            outgoing: Default::default(),
            incoming: Default::default(),
            #[cfg(test)]
            puts: Vec::new(),
        }
    }

    pub fn me(&self) -> Party {
        self.transport.me()
    }

    pub fn step(&mut self, name: &str) {
        self.transport.step(name);
    }

    /// Ends the session because of what a peer sent.
    pub fn accuse(&mut self, peer: Party, reason: &str) -> Error {
        self.transport.accuse(peer, reason).into()
    }

    /// Queues a tensor for a peer.
    pub fn put<E: Engine>(&mut self, engine: &E, to: Party, tensor: &E::Tensor) -> Result<()> {
        let bytes = engine.download(tensor)?.to_bytes();
        #[cfg(test)]
        self.puts.push((to, bytes.len() / 8));
        if bytes.is_empty() {
            return Ok(());
        }
        let (large, out) = (bytes.len() >= SMALL, &mut self.outgoing[to.0]);
        if large || out.bytes + bytes.len() > SMALL {
            self.flush(to)?;
        }
        if large {
            return Ok(self.transport.send(to, Message::from(bytes))?);
        }
        let out = &mut self.outgoing[to.0];
        out.bytes += bytes.len();
        out.fields.push(bytes);
        Ok(())
    }

    /// Sends what waits for company. Every receive does so first.
    pub fn flush_all(&mut self) -> Result<()> {
        let me = self.me().0;
        (0..3).filter(|&to| to != me).try_for_each(|to| self.flush(Party(to)))
    }

    fn flush(&mut self, to: Party) -> Result<()> {
        let out = &mut self.outgoing[to.0];
        let body = match out.fields.len() {
            0 => return Ok(()),
            1 => out.fields.remove(0),
            _ => {
                let mut all = BytesMut::with_capacity(out.bytes);
                out.fields.drain(..).for_each(|field| all.extend_from_slice(&field));
                all.freeze()
            }
        };
        out.bytes = 0;
        Ok(self.transport.send(to, Message::from(body))?)
    }

    /// Announces that a pivot's words for place `slot` are the next that come from it.
    pub fn expect(&mut self, from: Party, slot: usize, words: usize) {
        self.incoming[from.0].expected.push_back((slot, words * 8));
    }

    /// Receives the pivot's words for a place, and those that come before them into theirs.
    pub fn fill(&mut self, from: Party, slot: usize, slots: &mut [Reader]) -> Result<()> {
        while self.incoming[from.0].expected.iter().any(|&(s, _)| s == slot) {
            self.fill_next(from, slots)?;
        }
        Ok(())
    }

    fn fill_next(&mut self, from: Party, slots: &mut [Reader]) -> Result<()> {
        if let Some((slot, bytes)) = self.incoming[from.0].expected.pop_front() {
            slots[slot] = self.take(from, bytes)?;
        }
        Ok(())
    }

    /// Receives words of an exchange, after all that the peer sent as a pivot.
    pub fn receive(&mut self, from: Party, words: usize, slots: &mut [Reader]) -> Result<Reader> {
        while !self.incoming[from.0].expected.is_empty() {
            self.fill_next(from, slots)?;
        }
        self.take(from, words * 8)
    }

    fn take(&mut self, from: Party, bytes: usize) -> Result<Reader> {
        let mut reader = Reader::default();
        while reader.bytes < bytes {
            if self.incoming[from.0].rest.is_empty() {
                self.flush_all()?;
                let body = self.transport.receive(from)?.body;
                if body.is_empty() || body.len() % 8 != 0 {
                    let reason = format!("a message of {} bytes is not one of words", body.len());
                    return Err(self.accuse(from, &reason));
                }
                self.incoming[from.0].rest = body;
            }
            let rest = &mut self.incoming[from.0].rest;
            let piece = rest.split_to(rest.len().min(bytes - reader.bytes));
            reader.bytes += piece.len();
            reader.pieces.push_back(piece);
        }
        Ok(reader)
    }

    /// Whether everything received was read: the end of a session in order.
    pub fn check_empty(&mut self) -> Result<()> {
        match self.incoming.iter().position(|link| !link.rest.is_empty()) {
            Some(from) => Err(self.accuse(Party(from), "more was sent than was due")),
            None => Ok(()),
        }
    }

    pub fn close(mut self) -> Result<()> {
        self.flush_all()?;
        self.check_empty()?;
        Ok(self.transport.close()?)
    }
}

impl Reader {
    /// The next tensor of the given shape.
    pub fn field<E: Engine>(&mut self, engine: &E, shape: Shape) -> Result<E::Tensor> {
        let bytes = shape.len() * 8;
        let data = match self.pieces.front_mut() {
            _ if bytes == 0 => Bytes::new(),
            Some(piece) if piece.len() >= bytes => piece.split_to(bytes),
            _ => self.gather(bytes)?,
        };
        self.bytes -= data.len();
        while self.pieces.front().is_some_and(Bytes::is_empty) {
            self.pieces.pop_front();
        }
        Ok(engine.upload(Tensor::from_bytes(shape, data)?)?)
    }

    /// The next words, to be read by themselves.
    pub fn split(&mut self, words: usize) -> Result<Self> {
        let mut part = Self::default();
        while part.bytes < words * 8 {
            let Some(mut piece) = self.pieces.pop_front() else {
                let reason = format!("{words} words are due where {} are left", part.bytes / 8);
                return Err(Error::Invalid { op: "receive", reason });
            };
            let taken = piece.split_to(piece.len().min(words * 8 - part.bytes));
            if !piece.is_empty() {
                self.pieces.push_front(piece);
            }
            part.bytes += taken.len();
            part.pieces.push_back(taken);
        }
        self.bytes -= part.bytes;
        Ok(part)
    }

    /// Planes of `cols` words.
    pub fn planes<E: Engine>(
        &mut self,
        engine: &E,
        planes: usize,
        cols: usize,
    ) -> Result<E::Tensor> {
        self.field(engine, Shape::new([planes, cols])?)
    }

    /// Words.
    pub fn words<E: Engine>(&mut self, engine: &E, words: usize) -> Result<E::Tensor> {
        self.field(engine, Shape::new([words])?)
    }

    /// A field that lies in several messages.
    fn gather(&mut self, bytes: usize) -> Result<Bytes> {
        let mut all = BytesMut::with_capacity(bytes);
        while all.len() < bytes {
            let Some(mut piece) = self.pieces.pop_front() else {
                let reason = format!("a field of {bytes} bytes where {} are left", all.len());
                return Err(Error::Invalid { op: "receive", reason });
            };
            let part = piece.split_to(piece.len().min(bytes - all.len()));
            all.extend_from_slice(&part);
            if !piece.is_empty() {
                self.pieces.push_front(piece);
            }
        }
        Ok(all.freeze())
    }
}
