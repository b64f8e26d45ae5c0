//! Correlated randomness: streams that two parties expand from their common key.

use mpc_core::{Error, Result};
use net::{PairKey, Party, Session};
use ring_arith::{Generator, Source, Stream, StreamKey};
use zeroize::Zeroizing;

use crate::seat::{Role, Seat};

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

/// Which pair draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pair {
    /// Pivot and second.
    K12,
    /// Pivot and third.
    K13,
    /// Second and third.
    K23,
    /// The pivot alone.
    Own,
}

/// The streams of one operation on one part.
pub(crate) struct Streams {
    streams: [Option<Stream>; 4],
    /// Words drawn so far from each, the same on all parties.
    drawn: [u64; 4],
    #[cfg(test)]
    probe: probe::Probe,
}

/// Words of one stream that belong to one use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draw {
    pair: Pair,
    first: u64,
    words: u64,
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
        let overflow = || Error::Net(net::Error::Misuse("too many jobs in a session".to_owned()));
        self.job = self.job.checked_add(1).ok_or_else(overflow)?;
        (self.pairs, self.common) = self.master.of_job(self.job, digest);
        self.next = 0;
        self.used = [0; 3];
        Ok(())
    }

    /// Operations of this job so far.
    pub fn operations(&self) -> u64 {
        self.next
    }

    /// The nonce of the next operation. All parties number operations alike.
    pub fn operation(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The streams for a seat under a nonce from [`Keys::operation`].
    pub fn streams(&mut self, seat: &Seat, nonce: u64) -> Streams {
        let [one, two, three] = [seat.pivot(), seat.second(), seat.third()];
        let mut with = |peer: Party| Some(self.stream(peer, nonce));
        let streams = match seat.role {
            Role::Pivot => [with(two), with(three), None, with(one)],
            Role::Second => [with(one), None, with(three), None],
            Role::Third => [None, with(one), with(two), None],
        };
        Streams {
            streams,
            drawn: [0; 4],
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
            let mut hash = blake3::Hasher::new_derive_key(context);
            hash.update(&self.session).update(&job.to_le_bytes()).update(digest);
            for secret in secrets {
                hash.update(&secret.0);
            }
            let key = Zeroizing::new(*hash.finalize().as_bytes());
            StreamKey::new(self.generator, &key)
        };
        let [next, previous] = &self.peers;
        let pairs = [0, 1, 2].map(|party| match (party + 3 - self.me.0) % 3 {
            // Each peer lacks one of the two keys, so neither can derive this one.
            0 => derive("trefoil rss-protocols 2026 randomness of one party", &[next, previous]),
            1 => derive(PAIR, &[next]),
            _ => derive(PAIR, &[previous]),
        });
        (pairs, derive("trefoil rss-protocols 2026 public coins", &[]))
    }
}

impl Streams {
    /// Takes the next words of a pair's stream. Every party takes them, also the one that cannot
    /// expand them, so that all count alike.
    pub fn draw(&mut self, pair: Pair, words: usize) -> Draw {
        let drawn = &mut self.drawn[pair as usize];
        // Whole cache lines, so that generators start at a block.
        let first = drawn.next_multiple_of(8);
        *drawn = first + words as u64;
        #[cfg(test)]
        self.probe.note(pair, first, words);
        Draw { pair, first, words: words as u64 }
    }

    /// A draw as input of a kernel of one row.
    pub fn words<T>(&self, draw: Draw) -> Source<'_, T> {
        self.planes(draw, 0, 0, 0)
    }

    /// A draw as input of a kernel: row `r` is plane `plane + r * stride`, planes of `cols` words.
    pub fn planes<T>(&self, draw: Draw, plane: usize, stride: usize, cols: usize) -> Source<'_, T> {
        let offset = (plane * cols) as u64;
        debug_assert!(offset <= draw.words, "plane {plane} lies outside the draw");
        Source::Stream {
            stream: self.stream(draw),
            offset: draw.first + offset,
            row_stride: (stride * cols) as u64,
        }
    }

    fn stream(&self, draw: Draw) -> &Stream {
        #[cfg(test)]
        if let Some(known) = self.probe.spoilt(draw.pair, draw.first) {
            return known;
        }
        self.streams[draw.pair as usize].as_ref().expect("a role uses the streams it can expand")
    }
}

#[cfg(test)]
pub(crate) mod probe {
    //! Lets a test list all draws, and replace one by a stream that everybody knows.

    use std::sync::{Arc, Mutex};

    use ring_arith::{Generator, Stream, StreamKey};

    use super::Pair;

    /// Operation, pair and first word of a draw.
    pub(crate) type Place = (u64, Pair, u64);

    #[derive(Clone, Default)]
    pub(crate) struct Probe {
        nonce: u64,
        pub seen: Arc<Mutex<Vec<Place>>>,
        spoilt: Vec<(Place, Arc<Stream>)>,
    }

    impl Probe {
        /// Replaces a draw.
        pub fn spoil(&mut self, place: Place) {
            let known = StreamKey::new(Generator::Aes128Ctr, &[7; 32]).stream(place.0);
            self.spoilt.push((place, Arc::new(known)));
        }

        pub fn at(&self, nonce: u64) -> Self {
            Self { nonce, ..self.clone() }
        }

        pub fn note(&self, pair: Pair, first: u64, words: usize) {
            if words > 0 {
                self.seen.lock().unwrap().push((self.nonce, pair, first));
            }
        }

        pub fn spoilt(&self, pair: Pair, first: u64) -> Option<&Stream> {
            let mut spoilt = self.spoilt.iter();
            spoilt.find(|(place, _)| *place == (self.nonce, pair, first)).map(|(_, known)| &**known)
        }
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn draws_of_one_operation_do_not_overlap() {
        let mut keys = keys();
        let seat = Seat::new(Party(0), Party(0), false);
        let nonce = keys.operation();
        let mut streams = keys.streams(&seat, nonce);
        let mut end = 0;
        for words in [1, 0, 64, 7, 1000] {
            let draw = streams.draw(Pair::K12, words);
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
