//! Three checks on everything that each party receives, for every operation and every dealer:
//!
//! 1. *Uniform*: over many seeds, bytes and differences of bytes between seeds at one place are
//!    uniform. The statistic is chi-square with 255 degrees of freedom, below 400: by chance about one
//!    in 10^8 exceeds that. Two chosen secrets give the same distribution (two-sample chi-square, same
//!    threshold).
//! 2. *Masked by a key that the receiver lacks*: with fixed inputs and fixed other randomness, a
//!    change of the key that the receiver lacks changes half of the bits of every piece of every
//!    message. Without its mask a message would not change.
//! 3. *No mask twice*: two pieces of a party's received messages differ in half of their bits.
//!
//! They test distributions with everything redrawn: a mask used twice in different combinations passes. The
//! certificate matches each received bit with its mask.

use super::{N, OPERATIONS, Run, World, observe};

/// Bytes of a plane, and the pieces that messages are compared in.
const PIECE: usize = N / 8;

/// The number of the key that a party does not hold.
fn foreign(party: usize) -> usize {
    2 - party
}

/// Pieces of `receiver`'s messages that a change of the foreign key leaves too similar.
fn unmasked_pieces(world: World, run: Run, receiver: usize) -> usize {
    let mut other = world.clone();
    other.keys[foreign(receiver)] ^= 0xabcdef;
    let [one, two] = [world, other].map(|world| observe(&world, run).by_receiver());
    let (one, two) = (&one[receiver], &two[receiver]);
    assert_eq!(one.len(), two.len());
    let pieces = one.chunks(PIECE).zip(two.chunks(PIECE));
    pieces.filter(|(a, b)| !half_apart(a, b)).count()
}

/// True if about half of the bits differ: within eight standard deviations.
fn half_apart(a: &[u8], b: &[u8]) -> bool {
    let bits = 8.0 * a.len() as f64;
    let apart: u32 = a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum();
    (f64::from(apart) - bits / 2.0).abs() < 8.0 * bits.sqrt() / 2.0
}

fn chi_square(counts: &[f64; 256]) -> f64 {
    let expected = counts.iter().sum::<f64>() / 256.0;
    counts.iter().map(|count| (count - expected).powi(2) / expected).sum()
}

fn two_samples(a: &[f64; 256], b: &[f64; 256]) -> f64 {
    let (all_a, all_b) = (a.iter().sum::<f64>(), b.iter().sum::<f64>());
    let cell = |(a, b): (&f64, &f64)| {
        let (x, y) = ((all_b / all_a).sqrt() * a, (all_a / all_b).sqrt() * b);
        if a + b > 0.0 { (x - y).powi(2) / (a + b) } else { 0.0 }
    };
    a.iter().zip(b).map(cell).sum()
}

/// Counts of bytes, and of differences of bytes from one seed to the next.
fn histograms(secret: u64, dealer: usize, run: Run) -> [[[f64; 256]; 2]; 3] {
    let mut counts = [[[0.0; 256]; 2]; 3];
    let mut last: Option<[Vec<u8>; 3]> = None;
    for seed in 0..12 {
        let world = World::new(secret, dealer, 1000 * u64::from(secret.count_ones()) + seed);
        let received = observe(&world, run).by_receiver();
        for (party, bytes) in received.iter().enumerate() {
            bytes.iter().for_each(|&byte| counts[party][0][usize::from(byte)] += 1.0);
            let Some(last) = &last else { continue };
            let pairs = bytes.iter().zip(&last[party]);
            pairs.for_each(|(a, b)| counts[party][1][usize::from(a ^ b)] += 1.0);
        }
        last = Some(received);
    }
    counts
}

const LIMIT: f64 = 400.0;

#[test]
fn what_a_party_receives_is_uniform_for_every_secret() {
    for operation in OPERATIONS {
        let (name, run) = (operation.name, operation.run);
        let all = [5 << 20, (1u64 << 40).wrapping_neg()].map(|secret| histograms(secret, 1, run));
        for party in 0..3 {
            for kind in 0..2 {
                let [a, b] = [&all[0][party][kind], &all[1][party][kind]];
                if a.iter().sum::<f64>() == 0.0 {
                    continue;
                }
                assert_ne!(party, 1, "{name}: the dealer receives nothing");
                for counts in [a, b] {
                    let distance = chi_square(counts);
                    assert!(distance < LIMIT, "{name}, party {party}, {kind}: {distance}");
                }
                let distance = two_samples(a, b);
                assert!(distance < LIMIT, "{name}, party {party}: secrets differ by {distance}");
            }
        }
    }
}

#[test]
fn every_message_is_masked_by_a_key_that_its_receiver_lacks() {
    for operation in OPERATIONS {
        let (name, run) = (operation.name, operation.run);
        for (dealer, receiver) in (0..3).flat_map(|p| [(p, (p + 1) % 3), (p, (p + 2) % 3)]) {
            let bare = unmasked_pieces(World::new(77 << 20, dealer, 5), run, receiver);
            assert_eq!(bare, 0, "{name}: pieces to party {receiver}, dealer {dealer}");
        }
    }
}

#[test]
fn no_two_pieces_have_the_same_mask() {
    for operation in OPERATIONS {
        let (name, run) = (operation.name, operation.run);
        let received = observe(&World::new(5 << 20, 0, 9), run).by_receiver();
        for (party, bytes) in received.iter().enumerate() {
            let pieces: Vec<_> = bytes.chunks_exact(PIECE).collect();
            for (i, a) in pieces.iter().enumerate() {
                for b in &pieces[..i] {
                    assert!(half_apart(a, b), "{name}: two pieces to party {party} are alike");
                }
            }
        }
    }
}
