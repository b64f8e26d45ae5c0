//! Correlated randomness: streams that two parties expand from their common key.

use mpc_core::{Error, Result};
use net::{Party, Session};
use ring_arith::{Generator, Source, Stream, StreamKey};
use zeroize::Zeroizing;

use crate::seat::{Role, Seat};

/// The streams of a session. A position is (session, operation, word): no two operations share a
/// nonce, and within one every draw takes the words after the one before.
pub(crate) struct Keys {
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
        let derive = |context: &str, secrets: &[&[u8]]| {
            let mut hash = blake3::Hasher::new_derive_key(context);
            hash.update(&session.id);
            for secret in secrets {
                hash.update(secret);
            }
            let key = Zeroizing::new(*hash.finalize().as_bytes());
            StreamKey::new(generator, &key)
        };
        let pair = |peer: Party| match &session.pair_keys[peer.0] {
            Some(key) => Ok(&key.0),
            None => Err(misuse(format!("the session has no key with {peer}"))),
        };
        let (next, previous) = (pair(me.after(1, 3))?, pair(me.after(2, 3))?);
        // Each peer lacks one of the two keys, so neither can derive this one.
        let own = "trefoil rss-protocols 2026 randomness of one party";
        let own = derive(own, &[next, previous]);
        let with = |peer: Party| -> Result<StreamKey> {
            let context = "trefoil rss-protocols 2026 correlated randomness of a pair";
            if peer == me { Ok(own.clone()) } else { Ok(derive(context, &[pair(peer)?])) }
        };
        let pairs = [with(Party(0))?, with(Party(1))?, with(Party(2))?];
        let common = derive("trefoil rss-protocols 2026 public coins", &[]);
        Ok(Self {
            pairs,
            common,
            next: 0,
            used: [0; 3],
            #[cfg(test)]
            probe: probe::Probe::default(),
        })
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
        spoil: Option<(Place, Arc<Stream>)>,
    }

    impl Probe {
        /// Replaces a draw.
        pub fn spoil(&mut self, place: Place) {
            let known = StreamKey::new(Generator::Aes128Ctr, &[7; 32]).stream(place.0);
            self.spoil = Some((place, Arc::new(known)));
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
            let (place, known) = self.spoil.as_ref()?;
            (*place == (self.nonce, pair, first)).then_some(&**known)
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
    fn a_session_of_two_is_refused() {
        let session = net::in_process::sessions_from_seed(2, 1).remove(0);
        assert!(Keys::new(&session, Generator::Aes128Ctr).is_err());
    }
}
