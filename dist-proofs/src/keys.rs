//! Keys and streams: challenges of two verifiers, and what a prover has in common with each of them.

use net::{Error, PairKey, Party, Result, Session};
use ring_arith::{Generator, Stream, StreamKey};

/// The context of challenges, which two verifiers draw.
pub(crate) const CHALLENGES: &str = "trefoil dist-proofs 2026 challenges of two verifiers";
/// The context of the left verifier's halves of a proof, which it has in common with the prover.
const SHARES: &str = "trefoil dist-proofs 2026 proof shares of a pair";
/// The context of what blinds the right verifier's last value, which it has in common with the prover.
const BLINDING: &str = "trefoil dist-proofs 2026 blinding of the right verifier";

/// The keys of a session, and the place in it.
pub(crate) struct Keys {
    me: Party,
    session: [u8; 16],
    generator: Generator,
    /// With the party after this one, and with the one before.
    peers: [PairKey; 2],
    pub job: u64,
    /// Batches of this job so far.
    pub batch: u64,
}

impl Keys {
    /// # Errors
    /// If the session does not have three parties or lacks a pair key.
    pub fn new(session: &Session, generator: Generator) -> Result<Self> {
        let me = session.transport.me();
        let parties = session.transport.parties();
        if parties != 3 || session.pair_keys.len() != 3 {
            return Err(Error::Misuse(format!("proofs need 3 parties, not {parties}")));
        }
        let pair = |peer: Party| {
            let key = session.pair_keys[peer.0].clone();
            key.ok_or_else(|| Error::Misuse(format!("the session has no key with {peer}")))
        };
        let peers = [pair(me.after(1, 3))?, pair(me.after(2, 3))?];
        Ok(Self { me, session: session.id, generator, peers, job: 0, batch: 0 })
    }

    /// The challenge of a round for a prover whose verifiers are this party and the third one.
    pub fn challenge(&self, prover: Party, round: u64) -> [u8; 32] {
        self.derive(CHALLENGES, self.third(prover), prover, round)
    }

    /// The left verifier's halves of a proof: at the prover and at that verifier.
    pub fn shares(&self, prover: Party) -> [u8; 32] {
        let left = prover.after(1, 3);
        let peer = if self.me == prover { left } else { prover };
        let context = SHARES;
        mutant!("proof shares under the context of challenges", context = CHALLENGES);
        self.derive(context, peer, prover, 0)
    }

    /// The blinding of the right verifier's last value: at the prover and at that verifier.
    pub fn blinding(&self, prover: Party) -> [u8; 32] {
        let right = prover.after(2, 3);
        let peer = if self.me == prover { right } else { prover };
        self.derive(BLINDING, peer, prover, 0)
    }

    /// The streams of a key.
    pub fn seed(&self, bytes: [u8; 32]) -> Seed {
        Seed::new(StreamKey::new(self.generator, &bytes))
    }

    fn third(&self, other: Party) -> Party {
        Party(3 - self.me.0 - other.0)
    }

    pub(crate) fn derive(&self, context: &str, peer: Party, prover: Party, round: u64) -> [u8; 32] {
        let key = &self.peers[(peer.0 + 3 - self.me.0) % 3 - 1];
        let mut hash = blake3::Hasher::new_derive_key(context);
        hash.update(&key.0).update(&self.session);
        for number in [self.job, self.batch, prover.0 as u64, round] {
            hash.update(&number.to_le_bytes());
        }
        hash.finalize().into()
    }
}

/// A key of streams, one for each part of a proof.
pub(crate) struct Seed {
    key: StreamKey,
    /// Words in place of every stream's first.
    #[cfg(test)]
    script: Vec<u64>,
}

impl Seed {
    fn new(key: StreamKey) -> Self {
        Self {
            key,
            #[cfg(test)]
            script: Vec::new(),
        }
    }

    /// The stream of a part of a proof, from its beginning.
    pub fn draw(&self, part: u64) -> Draw {
        Draw {
            stream: self.key.stream(part),
            next: 0,
            buffer: [0; 64],
            used: 64,
            #[cfg(test)]
            script: self.script.clone().into(),
        }
    }

    /// The streams of a test.
    #[cfg(test)]
    pub fn for_test(seed: u64) -> Self {
        Self::new(StreamKey::new(Generator::ChaCha12, &blake3::hash(&seed.to_le_bytes()).into()))
    }

    /// Streams that begin with these words.
    #[cfg(test)]
    pub fn scripted(script: Vec<u64>) -> Self {
        Self { script, ..Self::for_test(0) }
    }
}

/// Words of a stream, one after the other.
pub(crate) struct Draw {
    stream: Stream,
    next: u64,
    buffer: [u64; 64],
    used: usize,
    #[cfg(test)]
    script: std::collections::VecDeque<u64>,
}

impl Draw {
    /// The next word.
    pub fn word(&mut self) -> u64 {
        #[cfg(test)]
        if let Some(word) = self.script.pop_front() {
            return word;
        }
        if self.used == self.buffer.len() {
            self.stream.fill(self.next, &mut self.buffer);
            self.next += self.buffer.len() as u64;
            self.used = 0;
        }
        self.used += 1;
        self.buffer[self.used - 1]
    }

    /// The next `n` words.
    pub fn words(&mut self, n: usize) -> Vec<u64> {
        #[cfg(test)]
        if !self.script.is_empty() {
            return (0..n).map(|_| self.word()).collect();
        }
        let mut words = vec![0; n];
        let first = self.next - (self.buffer.len() - self.used) as u64;
        self.stream.fill(first, &mut words);
        self.next = first + n as u64;
        self.used = self.buffer.len();
        words
    }

    /// The first of a sequence of numbers that is neither 0 nor 1.
    pub fn beyond_one(&mut self, mut number: impl FnMut(&mut Self) -> u64) -> u64 {
        loop {
            let number = number(self);
            let excluded = number <= 1;
            mutant!("all challenges are taken", excluded = false);
            if !excluded {
                return number;
            }
        }
    }

    /// A stream for a test.
    #[cfg(test)]
    pub fn for_test(seed: u64) -> Self {
        Seed::for_test(seed).draw(0)
    }

    /// A number below another, for a test.
    #[cfg(test)]
    pub fn below(&mut self, end: usize) -> usize {
        (self.word() % end as u64) as usize
    }
}
