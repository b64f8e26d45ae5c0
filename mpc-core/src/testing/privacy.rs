//! Tests that a party's received messages reveal nothing, for the protocols of any crate.
//!
//! A program is run as all parties of many sessions, and every message that each party receives is
//! recorded. Four checks are made of each party's view:
//!
//! 1. *Uniform.* Over the seeds, no bit at any place of the view is (nearly) constant, and all bytes
//!    together are uniform by a chi-square test.
//! 2. *The same for two secrets.* Messages have the same lengths in the same order. The bytes at
//!    each place have the same distribution, by a chi-square test of two samples.
//! 3. *Masked by a key that the receiver lacks.* With the receiver's own keys fixed and all keys among
//!    the others changed, every bit at every place changes in more than a few runs. A missing mask, or
//!    one that the receiver could compute, does not pass.
//!
//! 4. *No mask twice.* Of any two words that a party received, no bit of their difference and of their
//!    exclusive or is the same in all runs: of two values under one mask these are the values'. Words that
//!    are always equal are one value. Values that are random themselves, such as shares, hide a mask that is
//!    used twice: count streams in one place, and write a mutant for the counter.
//!
//! The program should take its secrets as fixed sharings ([`crate::Protocol::constant`]) and open
//! nothing, so that only masks can make a message random. An opened value is reported as a leak, unless it
//! is the same for both secrets and the opened shares are random themselves, as those of a product are.
//!
//! Every bit of a message must be random: also unused lanes of packed bits, and the low bits of a word that
//! was shifted up. Seeds are the same in each run of the check, whatever `TREFOIL_SEED` says; see
//! [`PrivacyCheck::first_seed`].
//!
//! ```
//! use mpc_core::testing::privacy::PrivacyCheck;
//! use net::{Message, Party};
//!
//! // Party 0 sends its secret as it is.
//! let leak = PrivacyCheck::new(3).run(|mut session, secret| {
//!     let me = session.transport.me();
//!     if me == Party(0) {
//!         let body = vec![secret as u8; 8].into();
//!         session.transport.send(Party(1), Message { body, depth: 0 })?;
//!     } else if me == Party(1) {
//!         session.transport.receive(Party(0))?;
//!     }
//!     Ok(())
//! });
//! assert!(leak.is_err());
//! ```

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use net::{Message, PairKey, Party, Session, Transport};

use crate::{Result, SplitMix64};

/// Standard deviations by which a chi-square statistic may exceed its mean. By chance that happens
/// about once in 10^8 tests: the distribution's upper tail is heavier than a normal one's.
pub const DEVIATIONS: f64 = 7.0;

/// A test of a protocol's messages.
#[derive(Debug, Clone)]
pub struct PrivacyCheck {
    parties: usize,
    dealer: bool,
    seeds: u64,
    first: u64,
}

/// A leak: a party's messages depend on a secret or are not random.
#[derive(Debug, Clone, PartialEq)]
pub struct Leak {
    /// The party.
    pub party: Party,
    /// The fault in the messages that it received.
    pub reason: String,
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} received messages that leak: {}", self.party, self.reason)
    }
}

impl std::error::Error for Leak {}

/// The messages that a party received in one run: bodies one after the other, and their lengths.
#[derive(Debug, Clone, Default)]
pub struct View {
    bytes: Vec<u8>,
    lengths: Vec<(Party, usize)>,
}

impl View {
    /// The messages that came from one party.
    pub fn messages(&self, sender: Party) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.bytes[..];
        let bodies = self.lengths.iter().map(move |&(from, length)| {
            let (body, behind) = rest.split_at(length);
            rest = behind;
            (from, body)
        });
        bodies.filter(move |(from, _)| *from == sender).map(|(_, body)| body)
    }
}

/// The keys of a run: those among parties other than `spared` can be changed alone.
#[derive(Clone, Copy)]
struct Keys {
    seed: u64,
    others: u64,
    spared: Option<usize>,
}

impl PrivacyCheck {
    /// A check with 96 seeds.
    ///
    /// # Panics
    /// If `parties` is less than 2.
    pub fn new(parties: usize) -> Self {
        assert!(parties >= 2, "a privacy check needs at least two parties");
        Self { parties, dealer: false, seeds: 96, first: 1 }
    }

    /// The same with a dealer, who runs the program before the parties and whose messages are played from
    /// tapes: see [`crate::TestWorld::with_dealer`]. The tape that a party plays counts as received
    /// messages.
    #[must_use]
    pub fn with_dealer(self) -> Self {
        Self { dealer: true, ..self }
    }

    /// The same with another number of seeds, at least 64: fewer would take chance for leaks.
    #[must_use]
    pub fn seeds(self, seeds: u64) -> Self {
        Self { seeds: seeds.max(64), ..self }
    }

    /// The same with other seeds, counted from here.
    #[must_use]
    pub fn first_seed(self, first: u64) -> Self {
        Self { first, ..self }
    }

    /// Runs `program` with secrets 0 and 1, whose meaning is the program's choice, and checks every
    /// party's received messages.
    ///
    /// # Errors
    /// The first [`Leak`] found.
    ///
    /// # Panics
    /// If the program fails.
    pub fn run(&self, program: impl Fn(Session, usize) -> Result<()> + Sync) -> Result<(), Leak> {
        let [zero, one] = [0, 1].map(|secret| {
            let runs = self.first..self.first + self.seeds;
            runs.map(|seed| self.views(Keys { seed, others: seed, spared: None }, secret, &program))
                .collect::<Vec<_>>()
        });
        for party in 0..self.parties {
            let (zero, one) = (of_party(&zero, party), of_party(&one, party));
            let leak = |reason| Leak { party: Party(party), reason };
            same_messages(zero.iter().chain(&one)).map_err(leak)?;
            uniform(&zero).and_then(|()| uniform(&one)).map_err(leak)?;
            same_distribution(&zero, &one).map_err(leak)?;
            self.masked(party, &zero, &program).map_err(leak)?;
            distinct_masks(&zero).and_then(|()| distinct_masks(&one)).map_err(leak)?;
        }
        Ok(())
    }

    /// The third check.
    fn masked(
        &self,
        party: usize,
        before: &[&View],
        program: &(impl Fn(Session, usize) -> Result<()> + Sync),
    ) -> Result<(), String> {
        let Some(length) = before.first().map(|view| view.bytes.len()) else { return Ok(()) };
        let mut same = vec![0u32; 8 * length];
        for (seed, before) in (self.first..).zip(before) {
            let others = seed ^ (1 << 40);
            let keys = Keys { seed, others, spared: Some(party) };
            let after = &self.views(keys, 0, program)[party];
            if after.lengths != before.lengths {
                return Err("the lengths of messages depend on keys".to_owned());
            }
            count(&mut same, before.bytes.iter().zip(&after.bytes).map(|(a, b)| !(a ^ b)));
        }
        let total = before.len() as u32;
        match same.iter().position(|&same| same + few(total) >= total) {
            None => Ok(()),
            Some(bit) => Err(format!(
                "{} does not depend on keys that the receiver lacks",
                place(before[0], bit)
            )),
        }
    }

    /// The transports of the parties, and of the dealer if the check has one.
    fn transports(&self) -> Vec<Box<dyn Transport>> {
        if self.dealer {
            return net::tape::in_memory(self.parties);
        }
        let transports = net::in_process::transports(self.parties).into_iter();
        transports.map(|transport| Box::new(transport) as Box<dyn Transport>).collect()
    }

    /// One run: each party's received messages.
    fn views(
        &self,
        keys: Keys,
        secret: usize,
        program: &(impl Fn(Session, usize) -> Result<()> + Sync),
    ) -> Vec<View> {
        let logs: Vec<_> =
            (0..self.parties).map(|_| Arc::new(Mutex::new(View::default()))).collect();
        let session = |transport: Box<dyn Transport>| {
            let (me, members) = (transport.me().0, transport.parties());
            let pair_keys = (0..members).map(|peer| (peer != me).then(|| keys.of(me, peer)));
            Session { transport, pair_keys: pair_keys.collect(), id: [7; 16], prg: None }
        };
        let run = |sessions| {
            for outcome in net::launch::run_all(sessions, |session| program(session, secret)) {
                outcome.unwrap_or_else(|error| panic!("the program under test failed: {error}"));
            }
        };
        let mut transports = self.transports();
        let dealer = transports.split_off(self.parties);
        run(dealer.into_iter().map(session).collect());
        let parties = transports.into_iter().zip(&logs).map(|(inner, log)| {
            session(Box::new(Recorder::new(inner, log.clone())) as Box<dyn Transport>)
        });
        run(parties.collect());
        let take =
            |log: &Arc<Mutex<View>>| log.lock().unwrap_or_else(PoisonError::into_inner).clone();
        logs.iter().map(take).collect()
    }
}

impl Keys {
    /// The key of two parties.
    fn of(&self, one: usize, other: usize) -> PairKey {
        let (low, high) = (one.min(other) as u64, one.max(other) as u64);
        let held = self.spared.is_none_or(|p| p == one || p == other);
        let seed = if held { self.seed } else { self.others };
        let mut draw =
            SplitMix64::new(seed.wrapping_mul(0x1_0000_0001) ^ (low << 56) ^ (high << 48));
        let mut key = [0; 32];
        key.chunks_exact_mut(8).for_each(|k| k.copy_from_slice(&draw.next_u64().to_le_bytes()));
        PairKey(key)
    }
}

fn of_party(runs: &[Vec<View>], party: usize) -> Vec<&View> {
    runs.iter().map(|views| &views[party]).collect()
}

/// The number of exceptions up to which a bit counts as constant: with 64 runs or more, a random bit
/// has so few about once in 10^13.
fn few(runs: u32) -> u32 {
    runs / 32
}

/// Adds the bits of bytes to the counts at their places.
fn count(counts: &mut [u32], bytes: impl Iterator<Item = u8>) {
    for (byte, counts) in bytes.zip(counts.chunks_exact_mut(8)) {
        for (j, count) in counts.iter_mut().enumerate() {
            *count += u32::from((byte >> j) & 1);
        }
    }
}

/// Names a bit of a view.
fn place(view: &View, bit: usize) -> String {
    let mut byte = bit / 8;
    for (i, &(from, length)) in view.lengths.iter().enumerate() {
        if byte < length {
            return format!("bit {} of byte {byte} of message {i}, from {from},", bit % 8);
        }
        byte -= length;
    }
    format!("bit {bit}")
}

fn same_messages<'a>(mut views: impl Iterator<Item = &'a &'a View>) -> Result<(), String> {
    let Some(first) = views.next() else { return Ok(()) };
    match views.all(|view| view.lengths == first.lengths) {
        true => Ok(()),
        false => Err("the lengths of messages depend on the secret or on keys".to_owned()),
    }
}

/// The first check.
fn uniform(views: &[&View]) -> Result<(), String> {
    let Some(first) = views.first() else { return Ok(()) };
    let mut ones = vec![0u32; 8 * first.bytes.len()];
    let mut histogram = [0u64; 256];
    for view in views {
        count(&mut ones, view.bytes.iter().copied());
        view.bytes.iter().for_each(|&byte| histogram[usize::from(byte)] += 1);
    }
    let (total, few) = (views.len() as u32, few(views.len() as u32));
    if let Some(bit) = ones.iter().position(|&ones| ones <= few || ones + few >= total) {
        return Err(format!("{} is nearly constant over the seeds", place(first, bit)));
    }
    let n: u64 = histogram.iter().sum();
    // The test needs about five expected in each class.
    if n < 5 * 256 {
        return Ok(());
    }
    let expected = n as f64 / 256.0;
    let distance = |&h: &u64| (h as f64 - expected).powi(2) / expected;
    let statistic: f64 = histogram.iter().map(distance).sum();
    within(statistic, 255.0, "bytes are not uniform")
}

/// The second check: pairs of bits at every place, both samples.
fn same_distribution(zero: &[&View], one: &[&View]) -> Result<(), String> {
    let Some(first) = zero.first() else { return Ok(()) };
    let (mut statistic, mut freedom) = (0.0, 0.0);
    for at in 0..first.bytes.len() {
        for shift in [0, 2, 4, 6] {
            let mut counts = [[0.0f64; 4]; 2];
            for (counts, views) in counts.iter_mut().zip([zero, one]) {
                views.iter().for_each(|v| counts[usize::from(v.bytes[at] >> shift & 3)] += 1.0);
            }
            for class in 0..4 {
                let (a, b) = (counts[0][class], counts[1][class]);
                if a + b > 0.0 {
                    statistic += (a - b).powi(2) / (a + b);
                }
            }
            freedom += 3.0;
        }
    }
    if freedom == 0.0 {
        return Ok(());
    }
    within(statistic, freedom, "messages have another distribution for another secret")
}

/// Words of a view that the fourth check compares with each other: the first ones.
const COMPARED: usize = 1024;

/// The words of a view's messages; the bytes of a message behind its last whole word are left out.
fn words(view: &View) -> Vec<u64> {
    let mut rest = &view.bytes[..];
    let mut words = Vec::new();
    for &(_, length) in &view.lengths {
        let (body, behind) = rest.split_at(length);
        let chunks = body.chunks_exact(8).map(|w| w.try_into().expect("eight bytes"));
        words.extend(chunks.map(u64::from_le_bytes));
        rest = behind;
    }
    words.truncate(COMPARED);
    words
}

/// The fourth check. A random bit is the same in all of 64 runs or more about once in 10^19.
fn distinct_masks(views: &[&View]) -> Result<(), String> {
    let views: Vec<_> = views.iter().map(|view| words(view)).collect();
    let count = views.first().map_or(0, Vec::len);
    for first in 0..count {
        for second in first + 1..count {
            let pairs = views.iter().map(|view| (view[first], view[second]));
            let fixed = |combine: fn(u64, u64) -> u64| {
                let combined = pairs.clone().map(|(a, b)| combine(a, b));
                let (all, any) = combined.fold((u64::MAX, 0), |(all, any), w| (all & w, any | w));
                all != 0 || any != u64::MAX
            };
            let equal = pairs.clone().all(|(a, b)| a == b);
            if !equal && (fixed(u64::wrapping_sub) || fixed(|a, b| a ^ b)) {
                return Err(format!("words {first} and {second} of its messages have one mask"));
            }
        }
    }
    Ok(())
}

/// Checks that a chi-square statistic is below its mean plus [`DEVIATIONS`].
fn within(statistic: f64, freedom: f64, what: &str) -> Result<(), String> {
    let limit = freedom + DEVIATIONS * (2.0 * freedom).sqrt();
    if statistic < limit {
        return Ok(());
    }
    Err(format!(
        "{what}: chi-square {statistic:.0} with {freedom} degrees of freedom, above {limit:.0}"
    ))
}

/// A transport around another that records received messages: for tests of protocols.
pub struct Recorder {
    inner: Box<dyn Transport>,
    log: Arc<Mutex<View>>,
}

impl Recorder {
    /// Adds received messages to a log.
    #[must_use]
    pub fn new(inner: Box<dyn Transport>, log: Arc<Mutex<View>>) -> Self {
        Self { inner, log }
    }
}

impl Transport for Recorder {
    fn me(&self) -> Party {
        self.inner.me()
    }

    fn parties(&self) -> usize {
        self.inner.parties()
    }

    fn send(&mut self, to: Party, message: Message) -> net::Result<()> {
        self.inner.send(to, message)
    }

    fn receive(&mut self, from: Party) -> net::Result<Message> {
        let message = self.inner.receive(from)?;
        let body: &Bytes = &message.body;
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.bytes.extend_from_slice(body);
        log.lengths.push((from, body.len()));
        drop(log);
        Ok(message)
    }

    fn on_tape(&self, peer: Party) -> bool {
        self.inner.on_tape(peer)
    }

    fn step(&mut self, name: &str) {
        self.inner.step(name);
    }

    fn accuse(&mut self, peer: Party, reason: &str) -> net::Error {
        self.inner.accuse(peer, reason)
    }

    fn fail(&mut self, reason: &str) {
        self.inner.fail(reason);
    }

    fn close(self: Box<Self>) -> net::Result<()> {
        self.inner.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words that party 0 sends to party 1.
    const WORDS: usize = 24;

    /// A mask from a key: words of a generator, for these tests alone.
    fn mask(session: &Session, peer: usize) -> Vec<u64> {
        let key = session.pair_keys[peer].as_ref().expect("a key for every peer");
        let seed = u64::from_le_bytes(key.0[..8].try_into().expect("eight bytes"));
        let mut draw = SplitMix64::new(seed);
        (0..WORDS).map(|_| draw.next_u64()).collect()
    }

    /// Party 0 sends a secret to party 1 after `hide`; party 2 stays silent.
    fn toy(hide: impl Fn(&Session, Vec<u64>) -> Vec<u64> + Sync) -> Result<(), Leak> {
        PrivacyCheck::new(3).run(|mut session, secret| {
            let me = session.transport.me().0;
            if me == 0 {
                let words =
                    (0..WORDS as u64).map(|i| secret as u64 * 0x1234_5678_9abc + i).collect();
                let hidden = hide(&session, words);
                let bytes: Vec<u8> = hidden.iter().flat_map(|w| w.to_le_bytes()).collect();
                session.transport.send(Party(1), Message::from(Bytes::from(bytes)))?;
            } else if me == 1 {
                session.transport.receive(Party(0))?;
            }
            Ok(())
        })
    }

    fn plus(words: Vec<u64>, mask: Vec<u64>) -> Vec<u64> {
        words.iter().zip(mask).map(|(w, m)| w.wrapping_add(m)).collect()
    }

    #[track_caller]
    fn expect(outcome: Result<(), Leak>, text: &str) {
        let leak = outcome.expect_err("the broken toy must be caught");
        assert_eq!(leak.party, Party(1));
        assert!(leak.to_string().contains(text), "{leak}");
    }

    #[test]
    fn a_mask_that_the_receiver_lacks_passes() {
        // Party 1 does not hold the key of parties 0 and 2.
        assert_eq!(toy(|session, words| plus(words, mask(session, 2))), Ok(()));
    }

    #[test]
    fn a_mask_left_out_is_caught() {
        expect(toy(|_, words| words), "constant");
        let one_left_out = |session: &Session, words: Vec<u64>| {
            let mut hidden = plus(words.clone(), mask(session, 2));
            hidden[17] = words[17];
            hidden
        };
        expect(toy(one_left_out), "byte 136");
    }

    #[test]
    fn a_mask_that_the_receiver_can_compute_is_caught() {
        expect(toy(|session, words| plus(words, mask(session, 1))), "receiver lacks");
    }

    #[test]
    fn a_mask_that_is_used_twice_is_caught() {
        type Combine = fn(Vec<u64>, Vec<u64>) -> Vec<u64>;
        let xor: Combine = |words, mask| words.iter().zip(mask).map(|(w, m)| w ^ m).collect();
        for combine in [plus as Combine, xor] {
            let twice = |session: &Session, words: Vec<u64>| {
                let mut mask = mask(session, 2);
                mask[19] = mask[3];
                combine(words, mask)
            };
            expect(toy(twice), "words 3 and 19 of its messages have one mask");
        }
    }

    #[test]
    fn one_word_that_is_sent_twice_passes() {
        let twice = |session: &Session, words: Vec<u64>| {
            let mut hidden = plus(words, mask(session, 2));
            hidden[19] = hidden[3];
            hidden
        };
        assert_eq!(toy(twice), Ok(()));
    }

    #[test]
    fn a_narrow_mask_is_caught() {
        let narrow = |session: &Session, words: Vec<u64>| {
            plus(words, mask(session, 2).iter().map(|m| m >> 8).collect())
        };
        expect(toy(narrow), "constant");
    }

    #[test]
    fn a_biased_mask_is_caught() {
        let biased = |session: &Session, words: Vec<u64>| {
            let (a, b) = (mask(session, 2), mask(session, 2));
            let rare = a.iter().zip(b).map(|(a, b)| a | (b >> 1));
            plus(words, rare.collect())
        };
        expect(toy(biased), "uniform");
    }

    #[test]
    fn a_distribution_that_depends_on_the_secret_is_caught() {
        // For one secret bit 0 of every byte is more often 0 and bit 1 more often 1.
        const LOW: u64 = 0x0101_0101_0101_0101;
        let views = |secret: bool| -> Vec<View> {
            let mut draw = SplitMix64::new(u64::from(secret));
            let word = |draw: &mut SplitMix64| {
                let w = draw.next_u64();
                if secret && draw.next_u64().is_multiple_of(3) { (w & !LOW) | (2 * LOW) } else { w }
            };
            let view = |draw: &mut SplitMix64| View {
                bytes: (0..WORDS).flat_map(|_| word(draw).to_le_bytes()).collect(),
                lengths: vec![(Party(0), 8 * WORDS)],
            };
            (0..96).map(|_| view(&mut draw)).collect()
        };
        let (zero, one) = (views(false), views(true));
        let again = views(false);
        let list = |views: &[View]| {
            same_distribution(&zero.iter().collect::<Vec<_>>(), &views.iter().collect::<Vec<_>>())
        };
        assert!(list(&again).is_ok());
        assert!(list(&one).is_err_and(|reason| reason.contains("another secret")));
    }

    #[test]
    fn lengths_that_depend_on_the_secret_are_caught() {
        let outcome = PrivacyCheck::new(2).run(|mut session, secret| {
            if session.transport.me() == Party(0) {
                let body = Bytes::from(vec![0; 8 + secret]);
                session.transport.send(Party(1), Message::from(body))?;
            } else {
                session.transport.receive(Party(0))?;
            }
            Ok(())
        });
        expect(outcome, "lengths");
    }
}
