//! Proofs of three provers at once, over a session's links.
//!
//! Each party proves its statement to the two others, and is the left verifier of the party before it and the right one of
//! the party after it. So proofs travel to the party before, challenges and the left verifiers' messages to the party
//! after.
//!
//! 1. The left verifier says that it has all of the batch's messages, with the number of their words and a digest of the
//!    statement's shape. The right verifier compares them with its own.
//! 2. The right verifier releases a challenge to the prover, from a key that it has in common with the left one. The prover
//!    answers by a message of its proof; then the next challenge is released.
//! 3. After the last, the left verifier sends its last values to the right one, which decides.
//! 4. All parties tell each other their decisions, and then what they concluded from all decisions, so that no honest
//!    party accepts what another one refuses.

use bytes::Bytes;
use net::{Error, Party, Result, Session, Transport};
use ring_arith::Generator;

use crate::{
    inner::Halves,
    keys::Keys,
    part::{self, Parameters, PartShape, ProverPart, Setting, VerifierPart},
    scratch::Scratch,
    statement::{Side, Statements},
};

/// Words of what a left verifier announces.
pub(crate) const ANNOUNCEMENT: usize = 6;

/// The outcome of the proofs of a batch.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All three proofs are right, as all parties found.
    Accepted,
    /// Some proof is not, or a party says so. One of the suspects lied; which one, this party cannot know.
    Rejected {
        /// The two other parties.
        suspects: [Party; 2],
        /// The proof, and who refused it.
        step: String,
    },
}

/// One batch's statements at one party.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// Of its own messages, as the prover.
    pub prover: &'a Statements,
    /// Of the messages of the party before it, as the left verifier.
    pub left: &'a Statements,
    /// Of the messages of the party after it, as the right verifier.
    pub right: &'a Statements,
}

/// The proofs of a session at one party.
pub struct Proofs {
    keys: Keys,
    me: Party,
    ended: bool,
    parameters: Parameters,
    scratch: Scratch,
}

impl Proofs {
    /// Derives the keys of a session of three parties. All take the same generator, which must be a secure one.
    ///
    /// # Errors
    /// If the session has another number of parties or lacks a pair key.
    pub fn new(session: &Session, generator: Generator) -> Result<Self> {
        Ok(Self {
            keys: Keys::new(session, generator)?,
            me: session.transport.me(),
            ended: false,
            parameters: Parameters::default(),
            scratch: Scratch::default(),
        })
    }

    /// Begins a job, at all parties with the same number, which no other job of the session has. Batches are counted from
    /// the beginning.
    pub fn begin_job(&mut self, job: u64) {
        self.keys.job = job;
        self.keys.batch = 0;
    }

    /// Proves this party's statement, and verifies those of the two others. To be called when all messages have been
    /// received of which the statements speak, and before anything that depends on them is opened. Its messages are in the
    /// steps `proofs` and `proofs/verdict`.
    ///
    /// # Cost
    /// As [`Statements::cost`] says of each statement.
    ///
    /// # Errors
    /// If a link fails, or a party sends what is not a proof; and after a batch was rejected, since no other may follow
    /// it.
    pub fn run(&mut self, transport: &mut dyn Transport, batch: Batch<'_>) -> Result<Verdict> {
        if self.ended {
            return Err(Error::Dead("a proof was rejected".to_owned()));
        }
        let verdict = self.exchange_proofs(transport, batch)?;
        self.ended = verdict != Verdict::Accepted;
        Ok(verdict)
    }

    /// Sends and receives what [`Proofs::run`] does, of statements that need not be true, and decides nothing: to count the
    /// messages of a program that runs without data.
    ///
    /// # Errors
    /// As [`Proofs::run`], but for a batch that would be rejected.
    pub fn rehearse(&mut self, transport: &mut dyn Transport, batch: Batch<'_>) -> Result<()> {
        self.exchange_proofs(transport, batch).map(drop)
    }

    fn exchange_proofs(
        &mut self,
        transport: &mut dyn Transport,
        batch: Batch<'_>,
    ) -> Result<Verdict> {
        let sides = [batch.prover, batch.left, batch.right].map(Statements::side);
        if sides != [Side::Prover, Side::Left, Side::Right] {
            return Err(Error::Misuse(format!("statements of the sides {sides:?}")));
        }
        let batch_number = self.keys.batch + 1;
        mutant!("the batch is not counted", batch_number = 1);
        self.keys.batch = batch_number;
        let accepted = self.prove(transport, batch)?;
        self.agree(transport, accepted)
    }

    /// Steps 1 to 3. Returns whether the proof of the party after this one is right.
    fn prove(&self, transport: &mut dyn Transport, batch: Batch<'_>) -> Result<bool> {
        let [next, previous] = [self.me.after(1, 3), self.me.after(2, 3)];
        transport.step("proofs");
        send(transport, next, self.announcement(batch.left))?;
        let waits = true;
        mutant!("challenges before all messages are there", waits = false);
        if waits && receive(transport, previous, ANNOUNCEMENT)? != self.announcement(batch.right) {
            return Err(
                transport.accuse(previous, "has other messages or another statement of them")
            );
        }
        let mut prover = Prover::new(self, batch.prover);
        let mut left = Verifier::new(self, batch.left, previous);
        let mut right = Verifier::new(self, batch.right, next);
        let rounds = [prover.rounds(), left.rounds, right.rounds]
            .into_iter()
            .max()
            .expect("there are three");
        for round in 0..=rounds {
            if round < right.rounds {
                let challenge = self.keys.challenge(next, round as u64);
                transport.send(next, Bytes::copy_from_slice(&challenge).into())?;
            }
            if round < prover.rounds() {
                let challenge = receive(transport, previous, 4)?;
                let answer = prover.answer(self, &challenge, round);
                send(transport, previous, answer)?;
            }
            let not_one = "sends numbers that are not elements of a field";
            if right.absorb(self, round).is_none() {
                return Err(transport.accuse(next, not_one));
            }
            left.absorb(self, round).expect("halves from a stream are elements");
            if round < right.rounds {
                right.take(receive(transport, next, right.message_len(round))?, round);
            }
        }
        send(transport, next, left.opening())?;
        Ok(right.accepts(&receive(transport, previous, right.opening_len())?))
    }

    fn setting<'a>(&'a self, statements: &'a Statements) -> Setting<'a> {
        Setting { statements, parameters: self.parameters, scratch: &self.scratch }
    }

    /// A verifier's announcement of a prover's messages: the batch, the words of which the statement speaks, and its shape.
    fn announcement(&self, statements: &Statements) -> Vec<u64> {
        let words = statements.spoken().map(|spoken| spoken.words.len() as u64).sum();
        let mut announcement = vec![self.keys.batch, words];
        announcement.extend(words_of(&statements.digest()));
        announcement
    }

    /// Step 4.
    fn agree(&self, transport: &mut dyn Transport, accepted: bool) -> Result<Verdict> {
        let peers = [self.me.after(1, 3), self.me.after(2, 3)];
        transport.step("proofs/verdict");
        let decisions = exchange(transport, peers, accepted)?;
        let refusing = [(self.me, accepted), (peers[0], decisions[0]), (peers[1], decisions[1])];
        let refusing = refusing.into_iter().find(|(_, accepted)| !accepted).map(|(party, _)| party);
        mutant!(
            "one verifier's verdict is enough",
            refusing = refusing.filter(|party| *party == self.me)
        );
        let conclusions = exchange(transport, peers, refusing.is_none())?;
        mutant!("conclusions are not compared", conclusions = [true; 2]);
        let batch = self.keys.batch;
        let step = match refusing {
            Some(party) => {
                format!("proof of {} in batch {batch}, refused by {party}", party.after(1, 3))
            }
            None if conclusions == [true; 2] => return Ok(Verdict::Accepted),
            None => format!("verdicts of batch {batch}, which were not the same at all parties"),
        };
        Ok(Verdict::Rejected { suspects: peers, step })
    }
}

/// The parts of a party's own proof.
struct Prover<'a> {
    shapes: Vec<PartShape>,
    parts: Vec<Box<dyn ProverPart + 'a>>,
}

impl<'a> Prover<'a> {
    fn new(proofs: &'a Proofs, statements: &'a Statements) -> Self {
        let shapes = part::shapes(statements, proofs.parameters);
        let shares = proofs.keys.seed(proofs.keys.shares(proofs.me));
        let blinding = proofs.keys.seed(proofs.keys.blinding(proofs.me));
        let parts = shapes
            .iter()
            .map(|shape| part::prover(shape.kind, proofs.setting(statements), &shares, &blinding))
            .collect();
        Self { shapes, parts }
    }

    fn rounds(&self) -> usize {
        rounds(&self.shapes)
    }

    fn answer(&mut self, proofs: &Proofs, challenge: &[u64], round: usize) -> Vec<u64> {
        let seed = proofs.keys.seed(bytes_of(challenge));
        let mut answer = Vec::new();
        for (shape, part) in self.shapes.iter().zip(&mut self.parts) {
            if round < shape.messages.len() {
                answer.extend(part.answer(&mut seed.draw(shape.kind as u64)));
            }
        }
        answer
    }
}

/// The parts of a proof that this party verifies.
struct Verifier<'a> {
    prover: Party,
    rounds: usize,
    shapes: Vec<PartShape>,
    parts: Vec<(Box<dyn VerifierPart + 'a>, Halves)>,
}

impl<'a> Verifier<'a> {
    fn new(proofs: &'a Proofs, statements: &'a Statements, prover: Party) -> Self {
        let shapes = part::shapes(statements, proofs.parameters);
        let seed = proofs.keys.seed(match statements.side() {
            Side::Right => proofs.keys.blinding(prover),
            _ => proofs.keys.shares(prover),
        });
        let parts = shapes
            .iter()
            .map(|shape| part::verifier(shape.kind, proofs.setting(statements), &seed));
        Self { prover, rounds: rounds(&shapes), parts: parts.collect(), shapes }
    }

    /// Words of the prover's message of a round.
    fn message_len(&self, round: usize) -> usize {
        self.shapes.iter().filter_map(|shape| shape.messages.get(round)).sum()
    }

    /// Words of the left verifier's last message.
    fn opening_len(&self) -> usize {
        self.shapes.iter().map(|shape| shape.opening).sum()
    }

    /// Takes the prover's message of a round, at the right verifier.
    fn take(&mut self, message: Vec<u64>, round: usize) {
        let mut rest = message.into_iter();
        for (shape, (_, halves)) in self.shapes.iter().zip(&mut self.parts) {
            if let Some(&words) = shape.messages.get(round) {
                *halves = Halves::Right(rest.by_ref().take(words).collect::<Vec<_>>().into_iter());
            }
        }
    }

    /// Takes a challenge, and with it the message before. `None` if that is not one.
    fn absorb(&mut self, proofs: &Proofs, round: usize) -> Option<()> {
        let seed = proofs.keys.seed(proofs.keys.challenge(self.prover, round as u64));
        for (shape, (part, halves)) in self.shapes.iter().zip(&mut self.parts) {
            if round <= shape.messages.len() {
                part.absorb(&mut seed.draw(shape.kind as u64), halves)?;
            }
        }
        Some(())
    }

    fn opening(&self) -> Vec<u64> {
        self.parts.iter().flat_map(|(part, _)| part.last()).collect()
    }

    fn accepts(&self, left: &[u64]) -> bool {
        let mut rest = left;
        self.shapes.iter().zip(&self.parts).all(|(shape, (part, _))| {
            let (opening, others) = rest.split_at(shape.opening);
            rest = others;
            part.accepts(opening)
        })
    }
}

fn rounds(shapes: &[PartShape]) -> usize {
    shapes.iter().map(|shape| shape.messages.len()).max().unwrap_or(0)
}

/// Sends a bit to both peers, and receives theirs.
fn exchange(transport: &mut dyn Transport, peers: [Party; 2], bit: bool) -> Result<[bool; 2]> {
    for peer in peers {
        send(transport, peer, vec![u64::from(bit)])?;
    }
    let mut bits = [false; 2];
    for (bit, peer) in bits.iter_mut().zip(peers) {
        *bit = receive(transport, peer, 1)? == [1];
    }
    Ok(bits)
}

fn send(transport: &mut dyn Transport, to: Party, words: Vec<u64>) -> Result<()> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    transport.send(to, Bytes::from(bytes).into())
}

/// The words of the next message, which must have `words` of them.
fn receive(transport: &mut dyn Transport, from: Party, words: usize) -> Result<Vec<u64>> {
    let body = transport.receive(from)?.body;
    if body.len() != 8 * words {
        let reason = format!("sent {} bytes of a proof that has {}", body.len(), 8 * words);
        return Err(transport.accuse(from, &reason));
    }
    Ok(words_of(&body))
}

fn words_of(bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks_exact(8)
        .map(|bytes| u64::from_le_bytes(bytes.try_into().expect("chunks have 8 bytes")))
        .collect()
}

fn bytes_of(words: &[u64]) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes
        .chunks_exact_mut(8)
        .zip(words)
        .for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_le_bytes()));
    bytes
}
