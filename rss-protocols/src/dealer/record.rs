//! Makes tapes.

use std::{
    io::{self, Seek, SeekFrom, Write},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use mpc_core::{Error, Result};
use net::{PairKey, Party, Session, tape::Recorder};
use ring_arith::{Engine, Generator};
use zeroize::Zeroizing;

use super::{CHUNK, COMMON, HASH, HEADER, Header, SEED, TapeKey, chunk_sum, unusable};
use crate::{DEALER, Options, Rss};

/// Makes the tapes of both parties: runs their program once for each place and records its messages.
///
/// The files can be used once [`Dealer::finish`] has written their headers.
pub struct Dealer<E: Engine, W> {
    mpc: Rss<E>,
    secret: Zeroizing<[u8; 32]>,
    digest: [u8; 32],
    id: [u8; 16],
    files: [W; 2],
    sent: Arc<Mutex<[Vec<Bytes>; 2]>>,
    places: u64,
    examples: u64,
    /// Bytes of words that every place has at each party.
    words: Option<[u64; 2]>,
}

impl<E: Engine, W: Write + Seek> Dealer<E, W> {
    /// Begins two tapes, of parties 0 and 1, in files that are empty.
    ///
    /// `secret` is fresh from the operating system. All tape contents follow from it, so it must stay secret.
    /// `digest` is a hash of all public data that the program's messages depend on. The parties compare it with
    /// that of the program they run.
    ///
    /// # Errors
    /// If a file cannot be written, or as [`Rss::dealt`].
    pub fn new(
        engine: E,
        options: Options,
        generator: Generator,
        secret: &[u8; 32],
        digest: [u8; 32],
        files: [W; 2],
    ) -> Result<Self> {
        let sent: Arc<Mutex<[Vec<Bytes>; 2]>> = Arc::default();
        let kept = sent.clone();
        let recorder = Recorder::new(DEALER.0, move |to: Party, body| {
            locked(&kept)[to.0].push(body);
            Ok(())
        });
        let secret = Zeroizing::new(*secret);
        let id = id_of(&secret);
        let seeds = [0, 1].map(|party| seed_of(&secret, party, 0));
        let [zero, one] = seeds.clone();
        let session = Session {
            transport: Box::new(recorder),
            pair_keys: vec![Some(zero), Some(one), None],
            id,
            prg: Some(generator.name().to_owned()),
        };
        let mut mpc = Rss::dealt(session, engine, options.generator(generator))?;
        mpc.begin_place(0, &digest, seeds)?;
        let (words, places, examples) = (None, 0, 0);
        let mut dealer = Self { mpc, secret, digest, id, files, sent, places, examples, words };
        for party in 0..2 {
            // The header comes last: until then a tape is not one.
            dealer.write(party, &[0; HEADER + HASH])?;
            let key = key_of(&dealer.secret, party);
            dealer.write(party, key.bytes())?;
            let seed = seed_of(&dealer.secret, party, 0);
            dealer.write(party, &key.seal(COMMON, &seed.0))?;
        }
        Ok(dealer)
    }

    /// Sets the number of examples of each place, as information for readers of the tapes.
    #[must_use]
    pub fn examples(self, examples: u64) -> Self {
        Self { examples, ..self }
    }

    /// Runs both parties' set-up, once and before their first place: it shares data for all places, for instance
    /// a model's weights, by [`Rss::input_sums`].
    ///
    /// # Errors
    /// If the program fails or sends anything.
    pub fn set_up<R>(&mut self, program: impl FnOnce(&mut Rss<E>) -> Result<R>) -> Result<R> {
        let done = program(&mut self.mpc)?;
        match locked(&self.sent).iter().all(Vec::is_empty) {
            true => Ok(done),
            false => Err(unusable("tape", "what all places have in common must need no words")),
        }
    }

    /// Runs the program for one more place.
    ///
    /// # Errors
    /// If the program fails, sends another number of words than at the places before, or a file cannot be written.
    pub fn deal<R>(&mut self, program: impl FnOnce(&mut Rss<E>) -> Result<R>) -> Result<R> {
        // Place 0 of the streams is for data that all places share.
        let number = self.places + 1;
        let seeds = [0, 1].map(|party| seed_of(&self.secret, party, number));
        self.mpc.begin_place(number, &self.digest, seeds.clone())?;
        let done = program(&mut self.mpc)?;
        let sent = mem::take(&mut *locked(&self.sent));
        let words: [u64; 2] =
            sent.each_ref().map(|bodies| bodies.iter().map(|b| b.len() as u64).sum());
        if self.words.is_some_and(|before| before != words) {
            return Err(unusable("tape", "the program's messages are not alike at all places"));
        }
        for (party, (bodies, seed)) in sent.into_iter().zip(&seeds).enumerate() {
            let header = self.header(party, words[party]);
            let at = header.start(self.places).ok_or_else(|| unusable("tape", "it is too long"))?;
            self.write(party, &key_of(&self.secret, party).seal(at, &seed.0))?;
            self.write_words(party, &seed.0, &bodies)?;
        }
        self.words = Some(words);
        self.places += 1;
        Ok(done)
    }

    /// Bytes of words that a place has for party 0 and party 1; nothing before the first.
    #[must_use]
    pub fn place_bytes(&self) -> Option<[u64; 2]> {
        self.words
    }

    /// Writes the headers and returns the files, to be synced.
    ///
    /// # Errors
    /// If the tape lacks places, or a file cannot be written.
    pub fn finish(mut self) -> Result<[W; 2]> {
        let Some(words) = self.words else {
            return Err(unusable("tape", "a tape has at least one place"));
        };
        for (party, words) in words.into_iter().enumerate() {
            let header = self.header(party, words);
            let file = &mut self.files[party];
            file.flush().and_then(|()| file.seek(SeekFrom::Start(0))).map_err(unwritable)?;
            file.write_all(&header.to_bytes()).and_then(|()| file.flush()).map_err(unwritable)?;
        }
        Ok(self.files)
    }

    /// The header of a party's tape in its present state, with `words` bytes of words in each
    /// place.
    fn header(&self, party: usize, words: u64) -> Header {
        Header {
            id: self.id,
            digest: self.digest,
            party: party as u8,
            generator: self.mpc.generator(),
            places: self.places,
            words,
            examples: self.examples,
            key: key_of(&self.secret, party).hash(),
        }
    }

    /// Writes chunks, each after its checksum.
    fn write_words(&mut self, party: usize, seed: &[u8; SEED], bodies: &[Bytes]) -> Result<()> {
        let (mut chunk, mut number) = (Vec::with_capacity(CHUNK), 0);
        for body in bodies {
            let mut rest = &body[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(CHUNK - chunk.len()));
                chunk.extend_from_slice(now);
                rest = later;
                if chunk.len() == CHUNK {
                    self.write_chunk(party, seed, number, &chunk)?;
                    chunk.clear();
                    number += 1;
                }
            }
        }
        if chunk.is_empty() { Ok(()) } else { self.write_chunk(party, seed, number, &chunk) }
    }

    fn write_chunk(
        &mut self,
        party: usize,
        seed: &[u8; SEED],
        number: u64,
        chunk: &[u8],
    ) -> Result<()> {
        let hash = chunk_sum(seed, self.places, number, chunk);
        self.write(party, &hash)?;
        self.write(party, chunk)
    }

    fn write(&mut self, party: usize, bytes: &[u8]) -> Result<()> {
        self.files[party].write_all(bytes).map_err(unwritable)
    }
}

/// The name of both tapes of a secret.
fn id_of(secret: &[u8; 32]) -> [u8; 16] {
    let id = blake3::derive_key("trefoil rss-protocols 2026 name of a pair of tapes", secret);
    super::array(&id)
}

/// The key that a party shares with the dealer at a place; 0 is for data that all places share.
fn seed_of(secret: &[u8; 32], party: usize, place: u64) -> PairKey {
    let mut hash = blake3::Hasher::new_derive_key("trefoil rss-protocols 2026 seed of a place");
    hash.update(secret).update(&(party as u64).to_le_bytes()).update(&place.to_le_bytes());
    PairKey(*hash.finalize().as_bytes())
}

/// The key of a party's tape.
fn key_of(secret: &[u8; 32], party: usize) -> TapeKey {
    let mut hash = blake3::Hasher::new_derive_key("trefoil rss-protocols 2026 key of a tape");
    TapeKey::new(hash.update(secret).update(&(party as u64).to_le_bytes()).finalize().as_bytes())
}

fn locked<T>(sent: &Mutex<T>) -> MutexGuard<'_, T> {
    // After a panic elsewhere the log still has whole messages.
    sent.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unwritable(error: io::Error) -> Error {
    unusable("tape", format!("cannot be written: {error}"))
}
