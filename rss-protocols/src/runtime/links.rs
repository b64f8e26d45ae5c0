//! Tensors in and out of the session's links.

use bytes::{Bytes, BytesMut};
use mpc_core::{Error, Result};
use net::{Message, Party, Transport};
use ring_arith::{Engine, EngineTensor, Shape, Tensor};

/// Fields below this many bytes wait for others to fill a message with.
const SMALL: usize = 1 << 15;

/// The links to both peers. Tensors follow one another; small ones share a message.
pub(crate) struct Links {
    transport: Box<dyn Transport>,
    outgoing: [Outgoing; 3],
    /// Received and not yet read, by sender.
    incoming: [Bytes; 3],
    /// The receivers and numbers of words of sent tensors.
    #[cfg(test)]
    pub puts: Vec<(Party, usize)>,
    /// Sent tensors that are codes of digits.
    #[cfg(test)]
    pub codes: Vec<Codes>,
    /// Lies: bits of a word of a sent tensor, by the tensor's number, that are changed.
    #[cfg(test)]
    pub lies: Vec<(usize, usize, u64)>,
}

/// Codes of digits among the sent tensors.
#[cfg(test)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Codes {
    /// The tensor's number.
    pub tensor: usize,
    /// Planes of each digit, and their words.
    pub planes: usize,
    pub cols: usize,
}

#[derive(Default)]
struct Outgoing {
    fields: Vec<Bytes>,
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
            #[cfg(test)]
            codes: Vec::new(),
            #[cfg(test)]
            lies: Vec::new(),
        }
    }

    /// The links themselves, when nothing waits to be sent.
    pub fn transport(&mut self) -> &mut dyn Transport {
        &mut *self.transport
    }

    pub fn me(&self) -> Party {
        self.transport.me()
    }

    pub fn step(&mut self, name: &str) {
        self.transport.step(name);
    }

    /// Ends the session because of a peer's message.
    pub fn accuse(&mut self, peer: Party, reason: &str) -> Error {
        self.transport.accuse(peer, reason).into()
    }

    /// Queues a tensor for a peer.
    pub fn send<E: Engine>(&mut self, engine: &E, to: Party, tensor: &E::Tensor) -> Result<()> {
        // A download waits for the device.
        if tensor.len() == 0 {
            return Ok(());
        }
        let bytes = engine.download(tensor)?.to_bytes();
        #[cfg(test)]
        let bytes = self.changed(bytes);
        #[cfg(test)]
        self.puts.push((to, tensor.len()));
        let large = bytes.len() >= SMALL;
        if large || self.outgoing[to.0].bytes + bytes.len() > SMALL {
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

    /// The next sent tensor will be codes of digits.
    #[cfg(test)]
    pub fn note_codes(&mut self, planes: usize, cols: usize) {
        self.codes.push(Codes { tensor: self.puts.len(), planes, cols });
    }

    /// The next sent tensor, with its lies.
    #[cfg(test)]
    fn changed(&self, bytes: Bytes) -> Bytes {
        let mut bytes = bytes.to_vec();
        for &(_, word, bits) in self.lies.iter().filter(|(put, ..)| *put == self.puts.len()) {
            let word = &mut bytes[8 * word..8 * word + 8];
            word.iter_mut().zip(bits.to_le_bytes()).for_each(|(byte, bits)| *byte ^= bits);
        }
        bytes.into()
    }

    /// Sends all waiting fields. Every receive does this first.
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

    /// The next tensor of a peer.
    pub fn receive<E: Engine>(
        &mut self,
        engine: &E,
        from: Party,
        shape: Shape,
    ) -> Result<E::Tensor> {
        let data = self.take(from, shape.len() * 8)?;
        Ok(engine.upload(Tensor::from_bytes(shape, data)?)?)
    }

    /// The next bytes of a peer. They are copied only if they came in several messages.
    fn take(&mut self, from: Party, bytes: usize) -> Result<Bytes> {
        let mut gathered = BytesMut::new();
        loop {
            let rest = &mut self.incoming[from.0];
            let piece = rest.split_to(rest.len().min(bytes - gathered.len()));
            if piece.len() == bytes {
                return Ok(piece);
            }
            gathered.reserve(bytes - gathered.len());
            gathered.extend_from_slice(&piece);
            if gathered.len() == bytes {
                return Ok(gathered.freeze());
            }
            self.flush_all()?;
            let body = self.transport.receive(from)?.body;
            if body.is_empty() || body.len() % 8 != 0 {
                let reason = format!("a message of {} bytes is not one of words", body.len());
                return Err(self.accuse(from, &reason));
            }
            self.incoming[from.0] = body;
        }
    }

    /// Refuses words that were received and not read.
    pub fn check_empty(&mut self) -> Result<()> {
        match self.incoming.iter().position(|rest| !rest.is_empty()) {
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
