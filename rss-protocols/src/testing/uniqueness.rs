//! A certificate that a sender's messages are the only ones that make its relations true.
//!
//! Whatever a sender sends, what is left of its relations in the hands of the two others is a function of its messages.
//! The relations have as many bits as the messages. Each of their bits must have a message bit of its own: flipping that
//! one always flips it, and none of the bits that are not yet accounted for. In that order the messages are a bijection of
//! what is left. So one message alone leaves nothing, the prescribed one, and no combination of lies does. It is the
//! certificate of masks ([`super::certificate`]) the other way round.
//!
//! "Always" is seen around random lies in all words of the sender. Elements do not meet, so a run flips another bit in
//! each of 64.

use std::collections::HashMap;

use dist_proofs::{Kind, residuals};
use mpc_core::SplitMix64;

use super::{
    Lie, World,
    certificate::{Effect, without_masks},
    run_all,
    tampering::{Checked, OPERATIONS, honest, observe, told},
};
use crate::runtime::links::Codes;

/// Elements that do not meet.
const ELEMENTS: usize = 64;

/// A bit of every element in the tensors of a sender: words of 64 elements, or one word that is a plane of them.
#[derive(Clone, Copy)]
struct Bit {
    tensor: usize,
    first: usize,
    /// Of a word; none in a plane.
    bit: Option<u32>,
}

impl Bit {
    fn of_element(self, sender: usize, element: usize) -> Lie {
        let Self { tensor, first, bit } = self;
        match bit {
            Some(bit) => Lie { sender, tensor, word: first + element, bits: 1 << bit },
            None => Lie { sender, tensor, word: first, bits: 1 << element },
        }
    }
}

/// All bits of the tensors of a sender, each as the bits that change with it.
///
/// Where the dealer sends codes of digits, these are no message bits but sums of the code bits whose numbers contain a
/// set: one of them changes with the code bits of all subsets. The last code bit is not sent, and follows.
fn changes(sizes: &[usize], codes: &[Codes]) -> Vec<Vec<Bit>> {
    let mut all = Vec::new();
    for (tensor, &len) in sizes.iter().enumerate() {
        if len % ELEMENTS == 0 {
            for first in (0..len).step_by(ELEMENTS) {
                all.extend((0..64).map(|bit| vec![Bit { tensor, first, bit: Some(bit) }]));
            }
            continue;
        }
        let plane = |first: usize| Bit { tensor, first, bit: None };
        let Some(&Codes { planes, cols, .. }) = codes.iter().find(|at| at.tensor == tensor) else {
            all.extend((0..len).map(|first| vec![plane(first)]));
            continue;
        };
        for (digit, col) in (0..len / cols / planes).flat_map(|at| (0..cols).map(move |c| (at, c)))
        {
            for set in 1..=planes {
                let subsets = (0..planes).filter(|code| code & set == *code);
                let places = subsets.map(|code| (digit * planes + code) * cols + col);
                all.push(places.map(plane).collect());
            }
        }
    }
    all
}

/// What is left of a sender's relations, by bit: for each the bits of 64 elements.
fn left_over(world: &World, operation: &Checked, sender: usize) -> Vec<u64> {
    let (_, statements) = observe(world, operation.run);
    let [left, right] = [1, 2].map(|after| &statements[(sender + after) % 3][sender]);
    let mut bits = Vec::new();
    for (kind, words) in residuals(left, right) {
        match kind {
            Kind::Bits { .. } => bits.extend(words),
            Kind::Words { modulus_bits, .. } => {
                for words in words.chunks(ELEMENTS) {
                    bits.extend((0..modulus_bits).map(|bit| {
                        let lanes = words.iter().enumerate();
                        lanes.fold(0, |plane, (at, word)| plane | (word >> bit & 1) << at)
                    }));
                }
            }
            Kind::Map { .. } => panic!("elements of a map meet"),
        }
    }
    bits
}

/// Bits of the relations of a sender that no message bit of its own decides, seen in so many elements for each.
fn undecided(operation: &Checked, dealer: usize, sender: usize, trials: usize) -> Vec<usize> {
    let mut draw = SplitMix64::new(29);
    let world = honest(operation.elements, dealer, dealer == 1, 7);
    let (seen, _) = run_all(&world, |mpc, inputs| (operation.run)(mpc, inputs).unwrap());
    let sizes: Vec<_> = seen.puts[sender].iter().map(|(_, len)| *len).collect();
    let changes = changes(&sizes, &seen.codes[sender]);
    let mut lies = Vec::new();
    for (tensor, &len) in sizes.iter().enumerate() {
        lies.extend((0..len).map(|word| Lie { sender, tensor, word, bits: draw.next_u64() }));
    }
    let world = World { lies, ..world };
    let before = left_over(&world, operation, sender);
    assert_eq!(changes.len(), before.len(), "{}: as many bits", operation.name);
    let mut columns = Vec::with_capacity(changes.len());
    for changes in changes.chunks(ELEMENTS) {
        let mut touched: Vec<HashMap<usize, usize>> = vec![HashMap::new(); changes.len()];
        for trial in 0..trials {
            let element = |at: usize| (at + 11 * trial) % ELEMENTS;
            let mut flipped = world.clone();
            for (at, bits) in changes.iter().enumerate() {
                let lies = bits.iter().map(|bit| bit.of_element(sender, element(at)));
                flipped.lies.extend(lies);
            }
            let after = left_over(&flipped, operation, sender);
            for (bit, (before, after)) in before.iter().zip(&after).enumerate() {
                for (at, touched) in touched.iter_mut().enumerate() {
                    if (before ^ after) >> element(at) & 1 == 1 {
                        *touched.entry(bit).or_default() += 1;
                    }
                }
            }
        }
        for touched in touched {
            let effect = |n| if n == trials { Effect::Always } else { Effect::Sometimes };
            let mut column: Vec<_> = touched.into_iter().map(|(bit, n)| (bit, effect(n))).collect();
            column.sort_unstable_by_key(|(bit, _)| *bit);
            columns.push(column);
        }
    }
    without_masks(before.len(), &columns)
}

#[test]
fn every_message_is_the_only_one_that_makes_its_relations_true() {
    let trials = told().map_or(3, |_| 24);
    let operations = OPERATIONS.iter().filter(|operation| !operation.meets);
    for (dealer, operation) in [1, 2, 0].into_iter().cycle().zip(operations) {
        for sender in 0..3 {
            let undecided = undecided(operation, dealer, sender, trials);
            assert_eq!(undecided, [], "{}, dealer {dealer}, sender {sender}", operation.name);
        }
    }
}
