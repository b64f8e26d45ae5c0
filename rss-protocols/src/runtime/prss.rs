//! Correlated randomness: streams that two parties expand from their common key.

use mpc_core::{Error, Result};
use net::{PairKey, Party, Session};
use ring_arith::{Generator, Source, Stream, StreamKey};
use zeroize::Zeroizing;

use crate::{
    runtime::chunks::DEALER,
    runtime::roles::{Role, Roles},
};

/// The context of a pair's keys.
const PAIR: &str = "trefoil rss-protocols 2026 correlated randomness of a pair";

/// The streams of a session. A position is (session, job, operation, word): jobs have keys of their
/// own, no two operations of a job share a nonce, and within one every draw takes the words after the
/// one before.
pub(crate) struct Keys {
    master: Master,
    /// Jobs begun; 0 until the first.
    job: u64,
    /// With each party; at this party's own place a key that nobody else knows.
    pairs: [StreamKey; 3],
    /// Known to all. For rounding that should look random, never for a mask.
    common: StreamKey,
    next: u64,
    /// The nonce after the last one used with each key; checked in debug builds.
    used: [u64; 3],
    /// What tests watch and spoil.
    #[cfg(test)]
    pub probe: probe::Probe,
}

/// What the keys of all jobs of a session are derived from.
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
    streams: [Option<Stream>; 4],
    /// Words drawn so far from each, the same on all parties.
    drawn: [u64; 4],
    /// Where planes begin that were taken, by pair.
    #[cfg(debug_assertions)]
    taken: std::cell::RefCell<std::collections::HashSet<(usize, u64)>>,
    #[cfg(test)]
    probe: probe::Probe,
}

/// Words of one stream that belong to one use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draw {
    pair: Key,
    first: u64,
    words: u64,
}

/// Planes of a draw, one for each row of a launch.
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
            next: 0,
            used: [0; 3],
            #[cfg(test)]
            probe: probe::Probe::default(),
        })
    }

    /// Derives all keys anew from the session's, the number of jobs begun in it, which no other job
    /// has, and the digest. Operations are numbered from the beginning.
    ///
    /// # Errors
    /// If there were 2^64 jobs.
    pub fn begin_job(&mut self, digest: &[u8; 32]) -> Result<()> {
        self.begin_at(self.job, digest)
    }

    /// As [`Keys::begin_job`], for a place of a tape, which has keys of its own between the dealer and each of
    /// the two others.
    ///
    /// # Errors
    /// If this place or a later one was begun before.
    pub fn begin_place(
        &mut self,
        place: u64,
        digest: &[u8; 32],
        seeds: [PairKey; 2],
    ) -> Result<()> {
        if place < self.job {
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
        let overflow = || misuse("too many jobs in a session".to_owned());
        self.job = job.checked_add(1).ok_or_else(overflow)?;
        (self.pairs, self.common) = self.master.of_job(self.job, digest);
        self.next = 0;
        self.used = [0; 3];
        Ok(())
    }

    /// Operations of this job so far.
    pub fn operations(&self) -> u64 {
        self.next
    }

    /// The job that was begun last; 0 before the first.
    pub fn job(&self) -> u64 {
        self.job
    }

    /// The nonce of the next operation. All parties number operations alike.
    pub fn operation(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The streams for a roles under a nonce from [`Keys::operation`].
    pub fn streams(&mut self, roles: &Roles, nonce: u64) -> Streams {
        let [one, two, three] = [roles.dealer(), roles.left(), roles.right()];
        let mut with = |peer: Party| Some(self.stream(peer, nonce));
        let streams = match roles.role {
            Role::Dealer => [with(two), with(three), None, with(one)],
            Role::Left => [with(one), None, with(three), None],
            Role::Right => [None, with(one), with(two), None],
        };
        Streams {
            streams,
            drawn: [0; 4],
            #[cfg(debug_assertions)]
            taken: Default::default(),
            #[cfg(test)]
            probe: self.probe.at(nonce),
        }
    }

    /// The stream with one peer under a nonce, once.
    ///
    /// # Panics
    /// In debug builds, if the peer's key met this nonce or a later one before.
    pub fn stream(&mut self, peer: Party, nonce: u64) -> Stream {
        debug_assert!(self.used[peer.0] < nonce, "stream {nonce} with {peer} is drawn twice");
        self.used[peer.0] = nonce;
        self.pairs[peer.0].stream(nonce)
    }

    /// What makes the streams.
    pub fn generator(&self) -> Generator {
        self.common.generator()
    }

    /// Public coins under a nonce.
    pub fn public(&self, nonce: u64) -> Stream {
        self.common.stream(nonce)
    }
}

impl Master {
    /// The keys of a job with each party, at the own place one that nobody else knows; and one that all
    /// know.
    fn of_job(&self, job: u64, digest: &[u8; 32]) -> ([StreamKey; 3], StreamKey) {
        let derive = |context: &str, secrets: &[&PairKey]| {
            planted!("stream keys without the pairs' secrets", secrets = &secrets[..0]);
            let mut hash = blake3::Hasher::new_derive_key(context);
            hash.update(&self.session).update(&job.to_le_bytes()).update(digest);
            for secret in secrets {
                hash.update(&secret.0);
            }
            let key = Zeroizing::new(*hash.finalize().as_bytes());
            StreamKey::new(self.generator, &key)
        };
        let [next, previous] = &self.peers;
        // Each peer lacks one of the two keys, so neither can derive what is this party's own.
        let both = &[next, previous][..];
        planted!("a party's own stream from one pair's key", both = &both[..1]);
        let pairs = [0, 1, 2].map(|party| match (party + 3 - self.me.0) % 3 {
            0 => derive("trefoil rss-protocols 2026 randomness of one party", both),
            1 => derive(PAIR, &[next]),
            _ => derive(PAIR, &[previous]),
        });
        (pairs, derive("trefoil rss-protocols 2026 public coins", &[]))
    }
}

impl Streams {
    /// Takes the next words of a pair's stream. Every party takes them, also the one that cannot
    /// expand them, so that all count alike.
    pub fn draw(&mut self, pair: Key, words: usize) -> Draw {
        let drawn = &mut self.drawn[pair as usize];
        // Whole cache lines, so that generators start at a block.
        let first = drawn.next_multiple_of(8);
        planted!("all draws at one place", first = 0);
        *drawn = first + words as u64;
        let draw = Draw { pair, first, words: words as u64 };
        #[cfg(test)]
        self.probe.note(draw, self.streams[pair as usize].as_ref());
        draw
    }

    /// A draw of zeros: a mask left out.
    #[cfg(test)]
    pub fn blank(&mut self, pair: Key, words: usize) -> Draw {
        let draw = self.draw(pair, words);
        self.rewritten(draw, |_, _| 0)
    }

    /// A draw whose words are made of those that it had.
    #[cfg(test)]
    pub fn rewritten(&mut self, draw: Draw, word: impl Fn(&[u64], usize) -> u64) -> Draw {
        let make = |old: &[u64]| (0..old.len()).map(|i| word(old, i)).collect();
        self.probe.change(draw, self.streams[draw.pair as usize].as_ref(), make);
        draw
    }

    /// A draw as input of a kernel of one row.
    pub fn words<T: 'static>(&self, draw: Draw) -> Source<'_, T> {
        self.source(draw, 0, 0)
    }

    /// Planes of a draw, of `cols` words each, as input of a kernel.
    ///
    /// # Panics
    /// In debug builds, if a plane lies outside the draw or was taken before.
    pub fn planes<T: 'static>(&self, draw: Draw, planes: Planes, cols: usize) -> Source<'_, T> {
        #[cfg(debug_assertions)]
        for place in planes.places(draw, cols) {
            let fresh = self.taken.borrow_mut().insert((draw.pair as usize, place));
            assert!(fresh, "words from {place} on of a draw are taken twice");
        }
        self.planes_again(draw, planes, cols)
    }

    /// Planes that were taken before, where they serve again as what they are.
    ///
    /// # Panics
    /// In debug builds, if a plane lies outside the draw.
    pub fn planes_again<T: 'static>(
        &self,
        draw: Draw,
        planes: Planes,
        cols: usize,
    ) -> Source<'_, T> {
        let end = |place: u64| place + cols as u64 - draw.first;
        debug_assert!(
            planes.places(draw, cols).all(|place| end(place) <= draw.words),
            "{planes:?} of {cols} words lie outside of a draw of {} words",
            draw.words
        );
        self.source(draw, planes.first * cols, planes.stride * cols)
    }

    fn source<T: 'static>(&self, draw: Draw, offset: usize, row_stride: usize) -> Source<'_, T> {
        #[cfg(test)]
        if let Some(tensor) = self.probe.changed(draw) {
            return Source::Tensor { tensor, offset, row_stride };
        }
        let stream = self.streams[draw.pair as usize].as_ref();
        let stream = stream.expect("a role uses the streams it can expand");
        Source::Stream { stream, offset: draw.first + offset as u64, row_stride: row_stride as u64 }
    }
}

impl Planes {
    /// One plane.
    pub fn one(first: usize) -> Self {
        Self { first, stride: 0, count: 1 }
    }

    /// Where they begin in the stream.
    fn places(self, draw: Draw, cols: usize) -> impl Iterator<Item = u64> {
        (0..self.count).map(move |r| draw.first + ((self.first + r * self.stride) * cols) as u64)
    }
}

#[cfg(test)]
pub(crate) mod probe {
    //! Lets a test list all draws, and change words of them for all parties alike.

    use std::{
        any::Any,
        ops::Range,
        sync::{Arc, Mutex},
    };

    use ring_arith::{Stream, Tensor};

    use super::{Draw, Key};

    /// Operation, pair and first word of a draw.
    pub(crate) type Place = (u64, Key, u64);

    /// Bits of words of a draw that are flipped.
    #[derive(Debug, Clone)]
    pub(crate) struct Flip {
        pub place: Place,
        pub words: Range<usize>,
        pub bits: u64,
    }

    #[derive(Clone, Default)]
    pub(crate) struct Probe {
        nonce: u64,
        /// Draws, and how many words they have.
        pub seen: Arc<Mutex<Vec<(Place, usize)>>>,
        pub flips: Arc<Vec<Flip>>,
        changed: Vec<((Key, u64), Tensor)>,
    }

    impl Probe {
        pub fn at(&self, nonce: u64) -> Self {
            Self { nonce, ..self.clone() }
        }

        pub fn note(&mut self, draw: Draw, stream: Option<&Stream>) {
            if draw.words == 0 {
                return;
            }
            let place = (self.nonce, draw.pair, draw.first);
            self.seen.lock().unwrap().push((place, draw.words as usize));
            let flips = self.flips.clone();
            let mut flips = flips.iter().filter(|flip| flip.place == place).peekable();
            if flips.peek().is_none() {
                return;
            }
            self.change(draw, stream, |words| {
                let mut words = words.to_vec();
                for flip in flips {
                    words[flip.words.clone()].iter_mut().for_each(|word| *word ^= flip.bits);
                }
                words
            });
        }

        pub fn change(
            &mut self,
            draw: Draw,
            stream: Option<&Stream>,
            make: impl FnOnce(&[u64]) -> Vec<u64>,
        ) {
            let Some(stream) = stream else { return };
            let place = (draw.pair, draw.first);
            let words = match self.changed.iter().position(|(at, _)| *at == place) {
                Some(i) => make(self.changed.remove(i).1.words()),
                None => {
                    let mut words = vec![0; draw.words as usize];
                    stream.fill(draw.first, &mut words);
                    make(&words)
                }
            };
            self.changed.push((place, Tensor::vector(words)));
        }

        pub fn changed<T: 'static>(&self, draw: Draw) -> Option<&T> {
            let (_, tensor) =
                self.changed.iter().find(|(place, _)| *place == (draw.pair, draw.first))?;
            let tensor: &dyn Any = tensor;
            Some(tensor.downcast_ref().expect("draws are changed on the CPU alone"))
        }
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
    #[should_panic(expected = "drawn twice")]
    #[cfg(debug_assertions)]
    fn a_stream_drawn_twice_is_caught() {
        let mut keys = keys();
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
            let mut keys = Keys::new(&session, Generator::Aes128Ctr).unwrap();
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

    fn planes(first: usize, count: usize) -> Planes {
        Planes { first, stride: 1, count }
    }

    #[test]
    #[should_panic(expected = "lie outside")]
    #[cfg(debug_assertions)]
    fn planes_past_the_end_of_a_draw_are_caught() {
        let mut keys = keys();
        let mut streams = keys.streams(&Roles::new(Party(0), Party(0), false), 1);
        let draw = streams.draw(Key::Left, 100);
        streams.draw(Key::Left, 100);
        let _: Source<'_, u64> = streams.planes(draw, planes(0, 10), 10);
        let _: Source<'_, u64> = streams.planes_again(draw, planes(1, 10), 10);
    }

    #[test]
    #[should_panic(expected = "taken twice")]
    #[cfg(debug_assertions)]
    fn a_plane_taken_twice_is_caught() {
        let mut keys = keys();
        let mut streams = keys.streams(&Roles::new(Party(0), Party(0), false), 1);
        let draw = streams.draw(Key::Left, 100);
        let _: Source<'_, u64> = streams.planes(draw, planes(0, 5), 10);
        let _: Source<'_, u64> = streams.planes_again(draw, planes(0, 5), 10);
        let _: Source<'_, u64> = streams.planes(draw, planes(4, 2), 10);
    }

    #[test]
    fn draws_of_one_operation_do_not_overlap() {
        let mut keys = keys();
        let roles = Roles::new(Party(0), Party(0), false);
        let nonce = keys.operation();
        let mut streams = keys.streams(&roles, nonce);
        let mut end = 0;
        for words in [1, 0, 64, 7, 1000] {
            let draw = streams.draw(Key::Left, words);
            assert!(draw.first >= end);
            end = draw.first + words as u64;
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
        let mut all: Vec<_> = sessions.iter().map(make).collect();
        let mut seen = |me: usize, with: usize| word(&all[me].stream(Party(with), 1));
        let pairs = [(0, 1), (0, 2), (1, 2)];
        let mut words: Vec<_> = pairs.iter().map(|&(a, b)| (seen(a, b), seen(b, a))).collect();
        assert!(words.iter().all(|(one, other)| one == other));
        words.extend((0..3).map(|me| (seen(me, me), 0)));
        let distinct: std::collections::HashSet<_> = words.iter().map(|(word, _)| word).collect();
        assert_eq!(distinct.len(), 6);
    }

    #[test]
    fn no_job_has_a_key_of_another() {
        let first = |keys: &mut Keys| {
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
        let mut seen = std::collections::HashSet::from(first(&mut keys));
        // Also where a digest comes twice.
        for digest in [[1; 32], [2; 32], [1; 32], [0; 32]] {
            keys.begin_job(&digest).unwrap();
            assert_eq!(keys.operations(), 0);
            assert!(first(&mut keys).into_iter().all(|word| seen.insert(word)));
        }
        assert_eq!(seen.len(), 20);
    }

    #[test]
    fn a_session_of_two_is_refused() {
        let session = net::in_process::sessions_from_seed(2, 1).remove(0);
        assert!(Keys::new(&session, Generator::Aes128Ctr).is_err());
    }
}
