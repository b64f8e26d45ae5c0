//! A million random inputs to what parses a peer's bytes: no panic, no memory beyond the bound.

use std::{
    fs,
    sync::atomic::{AtomicUsize, Ordering},
};

use net::fuzzing::{self, Outcome};
use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};

/// Longest message that the parser under test accepts.
const LONGEST: u64 = 100_000;

/// The most memory this process has ever asked the system for, in KiB, whether it used it or not.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A frame whose fields are near what is right, so that inputs get past the first checks.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let total = prop_oneof![0..300u64, Just(LONGEST), Just(LONGEST + 1), any::<u64>()];
    let len = prop_oneof![0..300u32, Just(1 << 20), any::<u32>()];
    let depth = prop_oneof![Just(0u32), any::<u32>()];
    (0..10u8, len, 0..4u32, depth, total, any::<bool>()).prop_map(
        |(kind, len, sequence, depth, total, right)| {
            let (len, depth, total) = match kind {
                1 | 2 if right => (total as u32 % 300, depth, total % 300),
                3 | 4 if right => (0, 0, 0),
                _ if right => (len % 300, 0, 0),
                _ => (len, depth, total),
            };
            let sequence = if right { u32::MAX } else { sequence };
            let mut bytes = vec![kind, 0, 0, 0];
            bytes.extend(len.to_le_bytes());
            bytes.extend(sequence.to_le_bytes());
            bytes.extend(depth.to_le_bytes());
            bytes.extend(total.to_le_bytes());
            bytes.extend((0..len.min(400)).map(|at| at as u8));
            bytes
        },
    )
}

/// Frames in a row. Where one says so, its place in the row is put right.
fn row() -> impl Strategy<Value = Vec<u8>> {
    vec(frame(), 0..4).prop_map(|mut frames| {
        for (place, frame) in frames.iter_mut().enumerate() {
            if frame[8..12] == [0xff; 4] {
                frame[8..12].copy_from_slice(&(place as u32).to_le_bytes());
            }
        }
        frames.concat()
    })
}

/// Runs the cases, the same ones each time, and fails with the input that failed.
fn run<S: Strategy>(cases: u32, inputs: S, check: impl Fn(S::Value)) {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    runner
        .run(&inputs, |input| {
            check(input);
            Ok(())
        })
        .unwrap();
}

fn check_frames(input: &[u8]) -> Outcome {
    let closed = fuzzing::frames(input, None);
    assert_eq!(closed.messages, 0);
    let open = fuzzing::frames(input, Some(LONGEST));
    assert!(open.bytes <= input.len() as u64);
    open
}

#[test]
fn a_million_random_inputs_cause_no_panic_and_no_memory_beyond_the_bound() {
    // One of each first, so that what the test itself needs is there.
    fuzzing::frames(&[0; 100], Some(LONGEST));
    let before = peak();
    run(400_000, vec(any::<u8>(), 0..120), |input| {
        check_frames(&input);
    });
    let passed = AtomicUsize::new(0);
    run(300_000, (any::<u8>(), row()), |(piece, frames)| {
        let input = [&[piece][..], &frames].concat();
        let outcome = check_frames(&input);
        passed.fetch_add(outcome.messages + outcome.controls, Ordering::Relaxed);
    });
    // The inputs are not all refused at their first byte.
    assert!(passed.into_inner() > 10_000);
    let magic = |(mut input, magic): (Vec<u8>, bool)| {
        if magic {
            input.splice(..input.len().min(6), *b"TRFL\x01\x00");
        }
        fuzzing::handshake(&input);
    };
    run(300_000, (vec(any::<u8>(), 0..200), any::<bool>()), magic);
    // Many of the inputs announce up to 2^64 bytes.
    assert!(peak() - before < 64 << 10, "{} KiB after {before} KiB", peak());
}
