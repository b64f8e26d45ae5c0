//! A certificate that a party's received messages are jointly uniform.
//!
//! With its shares and its own streams fixed, a party's received messages are a function of the streams that it cannot
//! expand. Every received bit must have a separate mask bit in such a foreign stream. Flipping the mask bit always
//! flips the received bit, and none of the received bits that are not yet accounted for. In that order the received
//! bits are a bijection of those foreign bits, for any secrets: uniform, and independent of all else. Unlike tests of
//! distributions this detects masks that are used twice in different combinations.
//!
//! Keys of functions are not covered here: the tests of [`crate::runtime::fss`] show that each bit of a key has a
//! separate mask, if seeds are expanded to independent bits. Seeds of keys do not count as masks of anything else.
//!
//! "Always" is seen on 64 elements with drawn secrets. Each dealer has a seed of its own; an operation that only party 0 can
//! deal has two. Elements do not meet, so a run flips another bit in each 64 of them.

use std::{ops::Range, sync::Arc};

use mpc_core::{Error, Result};

use super::{
    CHECKED, DEALER, OPERATIONS, OWNED, Operation, SUMS, Secret, Seen, World, observe,
    probe::{Flip, Place},
};
use crate::{
    Security, Tree,
    runtime::{prss::Key, roles::Role},
};

/// Seeds of secrets, shares and keys, for each dealer.
const SEEDS: [u64; 3] = [11, 12, 13];

/// The setting of a run.
#[derive(Debug, Clone, Copy)]
struct Case {
    tree: Tree,
    dealer: usize,
    /// One of the three is the dealer of the evaluators.
    dealt: bool,
    /// The evaluators are exchanged.
    swapped: bool,
    security: Security,
}

impl Case {
    /// Three parties, with this dealer.
    fn of(dealer: usize) -> Self {
        let security = Security::SemiHonest;
        Self { tree: Tree::default(), dealer, dealt: false, swapped: false, security }
    }

    /// Three parties of a checked session.
    fn checked(dealer: usize) -> Self {
        Self { security: Security::Checked, ..Self::of(dealer) }
    }

    /// Two, with a dealer.
    fn dealt() -> Self {
        Self { dealt: true, ..Self::of(DEALER.0) }
    }

    /// Two parties, one of which owns the shared tensors. It is the dealer of the sharing, and the
    /// dealer is the third.
    fn owned(owner: usize) -> Self {
        Self { dealt: true, swapped: owner == 1, ..Self::of(owner) }
    }

    /// The number of an evaluator, and the pair whose streams it lacks.
    fn receiver(self, role: Role) -> (usize, Key) {
        let (after, pair) = if role == Role::Left { (1, Key::Right) } else { (2, Key::Left) };
        let after = if self.swapped { 3 - after } else { after };
        ((self.dealer + after) % 3, pair)
    }
}

/// Bits at one place of all elements: planes of one bit, or words of 64.
struct Rows {
    name: String,
    bits: usize,
    /// For 64 elements each: a word of a plane, or 64 words.
    words: Vec<u64>,
}

/// A flip of one bit of every element: its row's words of 64 elements, and the bits of each word.
struct Candidate {
    place: Place,
    row: usize,
    /// Words for 64 elements.
    step: usize,
    bits: u64,
}

/// The effect of a flip on a received bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Nothing,
    Always,
    Sometimes,
}

/// The received bits that a flip did something to.
type Touched = Vec<(usize, Effect)>;

/// Tensors are planes or words, distinguished by their lengths: planes have fewer than 64. Words for 64 elements of a
/// row.
fn step(words: usize, groups: usize) -> usize {
    if words.is_multiple_of(64 * groups) { 64 } else { 1 }
}

impl Operation {
    fn groups(&self) -> usize {
        self.results / 64
    }

    /// The bits that a receiver got.
    fn received(&self, seen: &Seen, receiver: usize) -> Vec<Rows> {
        let mut all = Vec::new();
        for from in 0..3 {
            let bytes = &seen.received[receiver][from];
            let words: Vec<u64> =
                bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap())).collect();
            let mut left = &words[..];
            let puts = seen.puts[from].iter().filter(|(to, _)| to.0 == receiver);
            for (at, &(_, len)) in puts.enumerate().filter(|(_, (_, len))| *len > 0) {
                let (words, rest) = left.split_at(len);
                left = rest;
                if len == self.keys {
                    continue;
                }
                let step = step(len, self.groups());
                for (row, words) in words.chunks(step * self.groups()).enumerate() {
                    let name = format!("row {row} of tensor {at} from party {from}");
                    all.push(Rows { name, bits: step, words: words.to_vec() });
                }
            }
            assert!(left.is_empty(), "all that was received was put");
        }
        all
    }

    /// Flips of every bit of the draws of a pair.
    fn candidates(&self, seen: &Seen, pair: Key) -> Vec<Candidate> {
        let mut all = Vec::new();
        for &(place, words) in seen.draws.iter().filter(|(place, _)| place.1 == pair) {
            let step = step(words, self.groups());
            for row in 0..words / (step * self.groups()) {
                let masks =
                    if step == 1 { vec![u64::MAX] } else { (0..64).map(|j| 1 << j).collect() };
                all.extend(masks.into_iter().map(|bits| Candidate { place, row, step, bits }));
            }
        }
        all
    }

    /// Flips, each in 64 separate elements.
    fn flips(&self, candidates: &[Candidate]) -> Arc<Vec<Flip>> {
        let flip = |(group, candidate): (usize, &Candidate)| {
            let &Candidate { place, row, step, bits } = candidate;
            Flip { place, words: span(row * self.groups() + group, step), bits }
        };
        Arc::new(candidates.iter().enumerate().map(flip).collect())
    }

    /// The received bits, and for each flip those that it does something to.
    fn effects(&self, world: &World, receiver: usize, pair: Key) -> (Vec<String>, Vec<Touched>) {
        let base = observe(world, self.run);
        let dealer = base.received[DEALER.0].concat();
        assert!(!world.dealt || dealer.is_empty(), "{}: the dealer receives", self.name);
        let before = self.received(&base, receiver);
        let name = |rows: &Rows| {
            let name = rows.name.clone();
            (0..rows.bits).map(move |bit| format!("bit {bit} of {name}"))
        };
        let names = before.iter().flat_map(name).collect();
        let mut effects = Vec::new();
        for candidates in self.candidates(&base, pair).chunks(self.groups()) {
            let flipped = World { flips: self.flips(candidates), ..world.clone() };
            let after = self.received(&observe(&flipped, self.run), receiver);
            for group in 0..candidates.len() {
                let mut touched = Vec::new();
                let mut first = 0;
                for (before, after) in before.iter().zip(&after) {
                    let effect = before.effect(after, group);
                    touched.extend(
                        (0..before.bits)
                            .map(|bit| (first + bit, effect(bit)))
                            .filter(|(_, effect)| *effect != Effect::Nothing),
                    );
                    first += before.bits;
                }
                effects.push(touched);
            }
        }
        (names, effects)
    }

    /// Shows that every bit that a role receives has a separate mask; returns the number of bits.
    fn certify(&self, case: Case, role: Role) -> Result<usize> {
        let Case { tree, dealer, dealt, security, .. } = case;
        let (receiver, pair) = case.receiver(role);
        let mut columns: Option<(Vec<String>, Vec<Touched>)> = None;
        // A party's role follows from who deals, so each dealer's seed shows the same bits.
        let last = if self.dealers == 1 && !dealt { 1 } else { dealer };
        for &seed in &SEEDS[dealer..=last] {
            let world = World {
                secret: Secret::Drawn,
                tree,
                dealt,
                security,
                ..World::new(0, dealer, seed)
            };
            let (names, effects) = self.effects(&world, receiver, pair);
            columns = Some(match columns {
                None => (names, effects),
                Some((names, old)) => {
                    (names, old.into_iter().zip(effects).map(|(a, b)| both(&a, &b)).collect())
                }
            });
        }
        let (names, columns) = columns.expect("there is a seed");
        let bare = without_masks(names.len(), &columns);
        let Some(first) = bare.first() else { return Ok(names.len()) };
        let reason = format!(
            "{}, {case:?}: of {} bits that party {receiver} receives {} have no mask \
             of their own among {} foreign bits, the first is {}",
            self.name,
            names.len(),
            bare.len(),
            columns.len(),
            names[*first]
        );
        Err(Error::Invalid { op: "certificate", reason })
    }
}

fn span(at: usize, step: usize) -> Range<usize> {
    at * step..(at + 1) * step
}

impl Rows {
    /// The effect on each bit in one 64 of the elements.
    fn effect(&self, after: &Self, group: usize) -> impl Fn(usize) -> Effect {
        let span = span(group, self.bits);
        let pairs = self.words[span.clone()].iter().zip(&after.words[span]);
        let (mut any, mut all) = (0, u64::MAX);
        for (before, after) in pairs {
            any |= before ^ after;
            all &= before ^ after;
        }
        let plane = self.bits == 1;
        move |bit| {
            let (some, every) = match plane {
                true => (any != 0, all == u64::MAX),
                false => (any >> bit & 1 == 1, all >> bit & 1 == 1),
            };
            match (some, every) {
                (false, _) => Effect::Nothing,
                (true, false) => Effect::Sometimes,
                (true, true) => Effect::Always,
            }
        }
    }
}

/// The effects of one flip under two seeds.
fn both(a: &[(usize, Effect)], b: &[(usize, Effect)]) -> Vec<(usize, Effect)> {
    let of = |list: &[(usize, Effect)], bit| {
        let found = list.binary_search_by_key(&bit, |(bit, _)| *bit);
        found.map_or(Effect::Nothing, |at| list[at].1)
    };
    let mut bits: Vec<_> = a.iter().chain(b).map(|(bit, _)| *bit).collect();
    bits.sort_unstable();
    bits.dedup();
    let merged = |bit| {
        let (a, b) = (of(a, bit), of(b, bit));
        (bit, if a == b { a } else { Effect::Sometimes })
    };
    bits.into_iter().map(merged).collect()
}

/// The bits that are left when every flip that touches a single one, always, has taken it away, again and again.
pub(super) fn without_masks(bits: usize, columns: &[Vec<(usize, Effect)>]) -> Vec<usize> {
    let mut left = vec![true; bits];
    let mut touched_by: Vec<Vec<usize>> = vec![Vec::new(); bits];
    let mut counts = Vec::with_capacity(columns.len());
    for (c, column) in columns.iter().enumerate() {
        column.iter().for_each(|&(bit, _)| touched_by[bit].push(c));
        counts.push(column.len());
    }
    let mut alone: Vec<usize> = (0..columns.len()).filter(|&c| counts[c] == 1).collect();
    while let Some(c) = alone.pop() {
        let bit = columns[c].iter().find(|(bit, _)| left[*bit]);
        let Some(&(bit, Effect::Always)) = bit else { continue };
        left[bit] = false;
        for &other in &touched_by[bit] {
            counts[other] -= 1;
            if counts[other] == 1 {
                alone.push(other);
            }
        }
    }
    (0..bits).filter(|&bit| left[bit]).collect()
}

/// Certifies the operation of a name, for the first dealer.
pub(crate) fn certify(name: &str) {
    let known = OPERATIONS.iter().map(|operation| (operation, Case::of(0)));
    let known = known.chain(CHECKED.iter().map(|operation| (operation, Case::checked(0))));
    let mut known = known.chain([(&SUMS, Case::dealt())]);
    let found = known.find(|(operation, _)| operation.name == name);
    let (operation, case) = found.unwrap_or_else(|| panic!("there is no operation `{name}`"));
    for role in [Role::Left, Role::Right] {
        operation.certify(case, role).unwrap();
    }
}

/// Certifies an operation for both who receive.
fn certify_both(operation: &Operation, case: Case) {
    let [second, third] =
        [Role::Left, Role::Right].map(|role| operation.certify(case, role).unwrap());
    assert!(second + third > 0, "{} sends nothing", operation.name);
    println!("{}, {case:?}: {second} and {third} bits", operation.name);
}

#[test]
fn every_received_bit_has_a_mask_of_its_own() {
    for operation in OPERATIONS {
        (0..operation.dealers).for_each(|dealer| certify_both(operation, Case::of(dealer)));
    }
}

#[test]
fn in_a_checked_session_every_received_bit_has_a_mask_of_its_own() {
    CHECKED.iter().for_each(|operation| certify_both(operation, Case::checked(0)));
}

#[test]
fn with_a_dealer_every_bit_that_is_played_or_received_has_a_mask_of_its_own() {
    // Whoever owns an input is the dealer of sharing it, which a dealer cannot be.
    let both = OPERATIONS.iter().filter(|operation| operation.method != "input");
    both.chain([&SUMS]).for_each(|operation| certify_both(operation, Case::dealt()));
    for (owner, operation) in OWNED.iter().enumerate() {
        certify_both(operation, Case::owned(owner));
    }
}

#[test]
fn other_trees_have_a_mask_for_every_received_bit() {
    let names = ["sign", "relu", "zero test", "fused relu, default", "product, exact", "maximum"];
    for operation in OPERATIONS.iter().filter(|operation| names.contains(&operation.name)) {
        for tree in [Tree::Twos, Tree::Fours] {
            for role in [Role::Left, Role::Right] {
                operation.certify(Case { tree, ..Case::of(0) }, role).unwrap();
            }
        }
    }
}

#[test]
fn every_method_that_talks_has_an_operation() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../mpc-core/src/protocol/mod.rs");
    let source = std::fs::read_to_string(file).expect("the trait has a file");
    let body = source.split("pub trait Protocol").nth(1).expect("the trait is there");
    let talks = |declaration: &str| {
        let (name, rest) = declaration.split_once('(').expect("a method has arguments");
        rest.trim_start().starts_with("&mut self").then(|| name.to_owned())
    };
    let methods: Vec<_> = body.split("    fn ").skip(1).filter_map(talks).collect();
    assert!(methods.len() > 15, "{methods:?}");
    for method in methods {
        // Openings are not masked: see `openings`. The others send nothing.
        let silent =
            ["step", "set_profile", "private_stream", "random_words", "random_bits", "parts"];
        let silent = silent.contains(&&method[..]);
        let elsewhere = silent || ["reveal", "open", "open_to", "open_bits"].contains(&&method[..]);
        let here = OPERATIONS.iter().any(|operation| operation.method == method);
        assert!(here != elsewhere, "`{method}` has no operation among those that are certified");
    }
}

#[test]
fn masks_in_a_chain_are_found_and_those_in_a_circle_are_not() {
    use Effect::{Always, Sometimes};
    let chain = [vec![(0, Always)], vec![(0, Sometimes), (1, Always)]];
    assert!(without_masks(2, &chain).is_empty());
    let circle = [vec![(0, Always), (1, Always)], vec![(0, Always), (1, Always)]];
    assert_eq!(without_masks(2, &circle), [0, 1]);
    assert_eq!(without_masks(1, &[vec![(0, Sometimes)]]), [0]);
}
