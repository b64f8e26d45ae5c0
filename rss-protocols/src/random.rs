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
        Ok(Self { pairs, common, next: 0, used: [0; 3] })
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
        Streams { streams, drawn: [0; 4] }
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

    /// The stream that a draw belongs to, and its first word there.
    pub fn locate(&self, draw: Draw) -> (&Stream, u64) {
        (self.stream(draw), draw.first)
    }

    fn stream(&self, draw: Draw) -> &Stream {
        self.streams[draw.pair as usize].as_ref().expect("a role uses the streams it can expand")
    }
}
