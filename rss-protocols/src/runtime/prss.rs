//! Correlated randomness: streams that two parties expand from their common key.

use std::cell::Cell;

use mpc_core::{Error, Result};
use net::{PairKey, Party, Session};
use ring_arith::{Generator, Source, Stream, StreamKey};
use zeroize::Zeroizing;

use crate::{
    runtime::chunks::DEALER,
    runtime::fss::{Place, Root, SEED},
    runtime::roles::{Role, Roles},
};

/// The context of a pair's keys.
const PAIR: &str = "trefoil rss-protocols 2026 correlated randomness of a pair";

/// The streams of a session. A position is (session, job, operation, word). Every job has its own keys,
/// and every operation of a job its own nonce. Within an operation every sample takes the words after
/// those of the sample before.
pub(crate) struct Keys {
    master: Master,
    /// Jobs begun; 0 until the first.
    job: u64,
    /// The keys shared with each party; at this party's own place a key that only it knows.
    pairs: [StreamKey; 3],
    /// Known to all. For rounding that should look random, never for a mask.
    common: StreamKey,
    next: Cell<u64>,
    /// The nonce after the last one used with each key; checked in debug builds.
    used: [Cell<u64>; 3],
    /// Lists and changes samples for tests.
    #[cfg(test)]
    pub probe: crate::testing::probe::Probe,
}

/// The secrets from which the keys of all jobs of a session are derived.
struct Master {
    generator: Generator,
    session: [u8; 16],
    me: Party,
    /// With the party after this one, and with the one before.
    peers: [PairKey; 2],
}

/// The key of a stream, named by those who hold it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    /// The dealer and the left evaluator.
    Left,
    /// The dealer and the right evaluator.
    Right,
    /// Both evaluators.
    Peers,
    /// The dealer alone.
    Own,
}

/// The streams of one operation on one part.
pub(crate) struct Streams {
    nonce: u64,
    streams: [Option<Stream>; 4],
    /// Words sampled so far from each, the same on all parties.
    sampled: [u64; 4],
    /// First words of planes that were used, by key.
    #[cfg(debug_assertions)]
    used: std::cell::RefCell<std::collections::HashSet<(usize, u64)>>,
    #[cfg(test)]
    probe: crate::testing::probe::Probe,
}

/// Words of one stream that mask one tensor, or are a share of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub key: Key,
    pub first: u64,
    pub words: u64,
}

/// Words of one stream that are the seeds of function keys. They cannot be taken as masks: what a key says of its seeds
/// would say it of the masked value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seeds {
    sample: Sample,
    operation: u64,
}

/// Words of one stream that are the key of another, from which a permutation is drawn. They cannot be taken as masks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OrderKey(Sample);

/// Planes of a sample, one for each row of a launch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Planes {
    pub first: usize,
    /// From one row's plane to the next one's.
    pub stride: usize,
    pub count: usize,
}

impl Keys {
    /// Derives the session's stream keys.
    ///
    /// # Errors
    /// If the session does not have three parties or lacks a pair key.
    pub fn new(session: &Session, generator: Generator) -> Result<Self> {
        let me = session.transport.me();
        let misuse = |text: String| Error::Net(net::Error::Misuse(text));
        let parties = session.transport.parties();
        if parties != 3 || session.pair_keys.len() != 3 {
            return Err(misuse(format!("replicated sharing needs 3 parties, not {parties}")));
        }
        let pair = |peer: Party| {
            let key = session.pair_keys[peer.0].clone();
            key.ok_or_else(|| misuse(format!("the session has no key with {peer}")))
        };
        let peers = [pair(me.after(1, 3))?, pair(me.after(2, 3))?];
        let master = Master { generator, session: session.id, me, peers };
        let (pairs, common) = master.of_job(0, &[0; 32]);
        Ok(Self {
            master,
            job: 0,
            pairs,
            common,
            next: Cell::new(0),
            used: Default::default(),
            #[cfg(test)]
            probe: crate::testing::probe::Probe::default(),
        })
    }

    /// Derives all keys again: from the session's, the digest, and the number of jobs begun in the session, which no
    /// other job has. Operations are numbered from the beginning.
    ///
    /// # Errors
    /// If there were 2^64 jobs.
    pub fn begin_job(&mut self, digest: &[u8; 32]) -> Result<()> {
        self.begin_at(self.job, digest)
    }

    /// As [`Keys::begin_job`], for a place of a tape, which has its own keys between the dealer and each
    /// evaluator.
    ///
    /// # Errors
    /// If this place or a later one was begun before.
    pub fn begin_place(
        &mut self,
        place: u64,
        digest: &[u8; 32],
        seeds: [PairKey; 2],
    ) -> Result<()> {
        let begun = place < self.job;
        mutant!("tape: an earlier place is begun again", begun = false);
        if begun {
            let next = self.job;
            let reason = format!("place {place} of the tape was begun before; the next is {next}");
            return Err(Error::Net(net::Error::Misuse(reason)));
        }
        let me = self.master.me;
        for (party, seed) in seeds.into_iter().enumerate() {
            if me == DEALER || me == Party(party) {
                let peer = if me == DEALER { Party(party) } else { DEALER };
                self.master.peers[(peer.0 + 3 - me.0) % 3 - 1] = seed;
            }
        }
        self.begin_at(place, digest)
    }

    fn begin_at(&mut self, job: u64, digest: &[u8; 32]) -> Result<()> {
        let misuse = |text: String| Error::Net(net::Error::Misuse(text));
        self.job =
            job.checked_add(1).ok_or_else(|| misuse("too many jobs in a session".to_owned()))?;
        (self.pairs, self.common) = self.master.of_job(self.job, digest);
        self.next = Cell::new(0);
        self.used = Default::default();
        Ok(())
    }

    /// Operations of this job so far.
    pub fn operations(&self) -> u64 {
        self.next.get()
    }

    /// The job that was begun last; 0 before the first.
    pub fn job(&self) -> u64 {
        self.job
    }

    /// The nonce of the next operation. All parties number operations alike.
    pub fn operation(&self) -> u64 {
        self.next.set(self.next.get() + 1);
        self.next.get()
    }

    /// The streams for a roles under a nonce from [`Keys::operation`].
    pub fn streams(&self, roles: &Roles, nonce: u64) -> Streams {
        let [one, two, three] = [roles.dealer(), roles.left(), roles.right()];
        let with = |peer: Party| Some(self.stream(peer, nonce));
        let streams = match roles.role {
            Role::Dealer => [with(two), with(three), None, with(one)],
            Role::Left => [with(one), None, with(three), None],
            Role::Right => [None, with(one), with(two), None],
        };
        Streams {
            nonce,
            streams,
            sampled: [0; 4],
            #[cfg(debug_assertions)]
            used: Default::default(),
            #[cfg(test)]
            probe: self.probe.at(nonce),
        }
    }

    /// The stream with one peer under a nonce, once.
    ///
    /// # Panics
    /// In debug builds, if the peer's key met this nonce or a later one before.
    pub fn stream(&self, peer: Party, nonce: u64) -> Stream {
        debug_assert!(self.used[peer.0].get() < nonce, "stream {nonce} with {peer} is used twice");
        self.used[peer.0].set(nonce);
        self.pairs[peer.0].stream(nonce)
    }

    /// The generator of the streams.
    pub fn generator(&self) -> Generator {
        self.common.generator()
    }

    /// Public coins under a nonce.
    pub fn public(&self, nonce: u64) -> Stream {
        self.common.stream(nonce)
    }
}

impl Master {
    /// The keys of a job with each party, at the own place one that only this party knows; and one that
    /// all know.
    fn of_job(&self, job: u64, digest: &[u8; 32]) -> ([StreamKey; 3], StreamKey) {
        let derive = |context: &str, secrets: &[&PairKey]| {
            mutant!("stream keys without the pairs' secrets", secrets = &secrets[..0]);
            let mut hash = blake3::Hasher::new_derive_key(context);
            hash.update(&self.session).update(&job.to_le_bytes()).update(digest);
            for secret in secrets {
                hash.update(&secret.0);
            }
            let key = Zeroizing::new(*hash.finalize().as_bytes());
            StreamKey::new(self.generator, &key)
        };
        let [next, previous] = &self.peers;
        // Each peer lacks one of the two keys, so neither can derive this party's own key.
        let both = &[next, previous][..];
        mutant!("a party's own stream from one pair's key", both = &both[..1]);
        let pairs = [0, 1, 2].map(|party| match (party + 3 - self.me.0) % 3 {
            0 => derive("trefoil rss-protocols 2026 randomness of one party", both),
            1 => derive(PAIR, &[next]),
            _ => derive(PAIR, &[previous]),
        });
        (pairs, derive("trefoil rss-protocols 2026 public coins", &[]))
    }
}

impl Streams {
    /// Takes the next words of a stream. Every party takes them, also the one that lacks the key, so that all count
    /// alike.
    pub fn sample(&mut self, key: Key, words: usize) -> Sample {
        let sample = self.take(key, words);
        #[cfg(test)]
        self.probe.note(sample, &self.streams);
        sample
    }

    /// The streams from the beginning, for statements about what they masked.
    pub fn again(&self) -> [Option<Stream>; 4] {
        self.streams.clone()
    }

    /// Takes the seeds of `n` function keys, in the same way.
    pub fn seeds(&mut self, key: Key, n: usize) -> Seeds {
        let sample = self.take(key, SEED * n);
        #[cfg(test)]
        self.probe.note_seeds(sample, &self.streams);
        Seeds { sample, operation: self.nonce }
    }

    /// Takes the key of a permutation, in the same way.
    pub fn order_key(&mut self, key: Key) -> OrderKey {
        let sample = self.take(key, OrderKey::WORDS);
        #[cfg(test)]
        self.probe.note_seeds(sample, &self.streams);
        OrderKey(sample)
    }

    /// The key of a permutation as input of a kernel of one row.
    pub fn order_key_words<T: 'static>(&self, OrderKey(sample): OrderKey) -> Source<'_, T> {
        self.words(sample)
    }

    /// The generator of all streams.
    pub fn generator(&self) -> Generator {
        let mut streams = self.streams.iter().flatten();
        streams.next().expect("every role has streams").key().generator()
    }

    fn take(&mut self, key: Key, words: usize) -> Sample {
        let sampled = &mut self.sampled[key as usize];
        // Whole cache lines, so that generators start at a block.
        let first = sampled.next_multiple_of(8);
        mutant!("all samples at one place", first = 0);
        *sampled = first + words as u64;
        Sample { key, first, words: words as u64 }
    }

    /// The seeds of function keys as input of a kernel of one row.
    pub fn seed_words<T: 'static>(&self, seeds: Seeds) -> Source<'_, T> {
        self.words(seeds.sample)
    }

    /// A sample as input of a kernel of one row.
    pub fn words<T: 'static>(&self, sample: Sample) -> Source<'_, T> {
        self.source(sample, 0, 0)
    }

    /// Planes of a sample, of `cols` words each, as input of a kernel.
    ///
    /// # Panics
    /// In debug builds, if a plane lies outside the sample or was used before.
    pub fn planes<T: 'static>(&self, sample: Sample, planes: Planes, cols: usize) -> Source<'_, T> {
        #[cfg(debug_assertions)]
        for place in planes.places(sample, cols) {
            let fresh = self.used.borrow_mut().insert((sample.key as usize, place));
            assert!(fresh, "words from {place} on of a sample are used twice");
        }
        self.planes_again(sample, planes, cols)
    }

    /// Planes that were used before and are used again with the same meaning.
    ///
    /// # Panics
    /// In debug builds, if a plane lies outside the sample.
    pub fn planes_again<T: 'static>(
        &self,
        sample: Sample,
        planes: Planes,
        cols: usize,
    ) -> Source<'_, T> {
        let end = sample.first + sample.words;
        debug_assert!(
            planes.places(sample, cols).all(|place| place + cols as u64 <= end),
            "{planes:?} of {cols} words lie outside of a sample of {} words",
            sample.words
        );
        self.source(sample, planes.first * cols, planes.stride * cols)
    }

    fn source<T: 'static>(
        &self,
        sample: Sample,
        offset: usize,
        row_stride: usize,
    ) -> Source<'_, T> {
        #[cfg(test)]
        if let Some(tensor) = self.probe.changed(sample) {
            return Source::Tensor { tensor, offset, row_stride };
        }
        let stream = self.streams[sample.key as usize].as_ref();
        let stream = stream.expect("a role uses the streams it can expand");
        Source::Stream {
            stream,
            offset: sample.first + offset as u64,
            row_stride: row_stride as u64,
        }
    }
}

impl Sample {
    /// Words.
    pub fn len(self) -> usize {
        self.words as usize
    }
}

impl Seeds {
    /// Keys.
    pub fn len(self) -> usize {
        self.sample.len() / SEED
    }

    /// The roots of the keys, given all words of the sample: the first words of all seeds, then the second ones.
    pub fn roots(self, words: &[u64]) -> impl Iterator<Item = Root> {
        let n = self.len();
        let operation = self.operation;
        (0..n).map(move |at| {
            let seed = std::array::from_fn(|i| words[i * n + at]);
            Root { seed, place: Place { operation, element: at as u64 } }
        })
    }
}

impl OrderKey {
    /// Words of a key.
    pub const WORDS: usize = 4;

    /// The stream under a key's words.
    pub fn stream(generator: Generator, words: &[u64]) -> Stream {
        let mut key = Zeroizing::new([0; 32]);
        for (bytes, word) in key.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        StreamKey::new(generator, &key).stream(0)
    }
}

impl Planes {
    /// One plane.
    pub fn one(first: usize) -> Self {
        Self { first, stride: 0, count: 1 }
    }

    /// Their first words in the stream.
    fn places(self, sample: Sample, cols: usize) -> impl Iterator<Item = u64> {
        (0..self.count).map(move |r| sample.first + ((self.first + r * self.stride) * cols) as u64)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn keys() -> Keys {
        let session = net::in_process::sessions_from_seed(3, 1).remove(0);
        Keys::new(&session, Generator::Aes128Ctr).unwrap()
    }

    #[test]
    #[should_panic(expected = "used twice")]
    #[cfg(debug_assertions)]
    fn a_stream_used_twice_is_caught() {
        let keys = keys();
        let nonce = keys.operation();
        keys.stream(Party(1), nonce);
        keys.stream(Party(1), nonce);
    }

    /// A pair's stream changes with its key and no other; a party's own with each of its keys.
    #[test]
    pub(crate) fn streams_follow_from_all_keys_of_their_parties() {
        let words = |spared: Option<usize>| {
            let mut session = net::in_process::sessions_from_seed(3, 1).remove(0);
            if let Some(key) = spared.and_then(|peer| session.pair_keys[peer].as_mut()) {
                key.0[31] ^= 1;
            }
            let keys = Keys::new(&session, Generator::Aes128Ctr).unwrap();
            [0, 1, 2].map(|peer| {
                let mut word = [0];
                keys.stream(Party(peer), 1).fill(0, &mut word);
                word[0]
            })
        };
        let before = words(None);
        for (changed, same) in [(1, 2), (2, 1)] {
            let after = words(Some(changed));
            assert_ne!(before[0], after[0], "this party's own stream ignores key {changed}");
            assert_ne!(before[changed], after[changed]);
            assert_eq!(before[same], after[same]);
        }
    }

    /// A tape's places are begun in order, each once.
    #[test]
    pub(crate) fn no_place_of_a_tape_is_begun_again() {
        let mut keys = keys();
        let seeds = || [PairKey([1; 32]), PairKey([2; 32])];
        keys.begin_place(3, &[0; 32], seeds()).unwrap();
        for place in [3, 2, 0] {
            let error = keys.begin_place(place, &[0; 32], seeds()).unwrap_err().to_string();
            assert!(error.contains("begun before"), "{error}");
        }
        keys.begin_place(7, &[0; 32], seeds()).unwrap();
    }

    fn planes(first: usize, count: usize) -> Planes {
        Planes { first, stride: 1, count }
    }

    #[test]
    #[should_panic(expected = "lie outside")]
    #[cfg(debug_assertions)]
    fn planes_past_the_end_of_a_draw_are_caught() {
        let keys = keys();
        let mut streams = keys.streams(&Roles::new(Party(0), Party(0), false), 1);
        let sample = streams.sample(Key::Left, 100);
        streams.sample(Key::Left, 100);
        let _: Source<'_, u64> = streams.planes(sample, planes(0, 10), 10);
        let _: Source<'_, u64> = streams.planes_again(sample, planes(1, 10), 10);
    }

    #[test]
    #[should_panic(expected = "used twice")]
    #[cfg(debug_assertions)]
    fn a_plane_used_twice_is_caught() {
        let keys = keys();
        let mut streams = keys.streams(&Roles::new(Party(0), Party(0), false), 1);
        let sample = streams.sample(Key::Left, 100);
        let _: Source<'_, u64> = streams.planes(sample, planes(0, 5), 10);
        let _: Source<'_, u64> = streams.planes_again(sample, planes(0, 5), 10);
        let _: Source<'_, u64> = streams.planes(sample, planes(4, 2), 10);
    }

    #[test]
    fn samples_of_one_operation_do_not_overlap() {
        let keys = keys();
        let roles = Roles::new(Party(0), Party(0), false);
        let nonce = keys.operation();
        let mut streams = keys.streams(&roles, nonce);
        let mut end = 0;
        for words in [1, 0, 64, 7, 1000] {
            let sample = streams.sample(Key::Left, words);
            assert!(sample.first >= end);
            end = sample.first + words as u64;
        }
    }

    #[test]
    fn pairs_agree_on_their_streams_and_nobody_else_does() {
        let sessions = net::in_process::sessions_from_seed(3, 1);
        let word = |stream: &Stream| {
            let mut word = [0];
            stream.fill(5, &mut word);
            word[0]
        };
        let make = |session: &Session| Keys::new(session, Generator::Aes128Ctr).unwrap();
        let all: Vec<_> = sessions.iter().map(make).collect();
        let seen = |me: usize, with: usize| word(&all[me].stream(Party(with), 1));
        let pairs = [(0, 1), (0, 2), (1, 2)];
        let mut words: Vec<_> = pairs.iter().map(|&(a, b)| (seen(a, b), seen(b, a))).collect();
        assert!(words.iter().all(|(one, other)| one == other));
        words.extend((0..3).map(|me| (seen(me, me), 0)));
        let distinct: std::collections::HashSet<_> = words.iter().map(|(word, _)| word).collect();
        assert_eq!(distinct.len(), 6);
    }

    #[test]
    fn no_job_has_a_key_of_another() {
        let first = |keys: &Keys| {
            let nonce = keys.operation();
            let mut words = [0; 4];
            for (peer, word) in words.iter_mut().enumerate() {
                let stream =
                    if peer < 3 { keys.stream(Party(peer), nonce) } else { keys.public(nonce) };
                stream.fill(0, std::slice::from_mut(word));
            }
            words
        };
        let mut keys = keys();
        let mut seen = std::collections::HashSet::from(first(&keys));
        // Also if a digest is used twice.
        for digest in [[1; 32], [2; 32], [1; 32], [0; 32]] {
            keys.begin_job(&digest).unwrap();
            assert_eq!(keys.operations(), 0);
            assert!(first(&keys).into_iter().all(|word| seen.insert(word)));
        }
        assert_eq!(seen.len(), 20);
    }

    #[test]
    fn a_session_of_two_is_refused() {
        let session = net::in_process::sessions_from_seed(2, 1).remove(0);
        assert!(Keys::new(&session, Generator::Aes128Ctr).is_err());
    }
}
