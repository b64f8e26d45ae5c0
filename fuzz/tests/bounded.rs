//! Damaged inputs to all readers of foreign bytes: they do not panic, and their memory stays below
//! a bound.

use std::{
    collections::HashSet,
    env, fs,
    sync::atomic::{AtomicU32, Ordering},
};

use fuzz::edits::damage;
use proptest::{
    prelude::*,
    sample::Index,
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};

/// The most memory this process has ever asked the system for, in KiB, whether it used it or not.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Bytes of a heap that glibc reserves for a thread that finds the others taken, aligned to as many.
const HEAP: u64 = 64 << 20;

/// The memory that is reserved for such heaps, in KiB. It says how many threads asked for memory at once, and nothing about
/// an input.
fn heaps() -> u64 {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let range = |line: &str| -> Option<(u64, u64)> {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
    };
    let ranges: Vec<_> = maps.lines().filter_map(range).collect();
    let (starts, ends): (HashSet<u64>, HashSet<u64>) = ranges.iter().copied().unzip();
    let whole = |start: &&u64| start.is_multiple_of(HEAP) && ends.contains(&(**start + HEAP));
    starts.iter().filter(whole).count() as u64 * (HEAP >> 10)
}

/// Feeds a target its seeds, its corpus and damaged seeds. The same inputs in every run.
fn feed(name: &str) {
    let target = fuzz::target(name).unwrap();
    let seeds = (target.seeds)();
    for (place, seed) in seeds.iter().enumerate() {
        assert!((target.read)(seed), "seed {place} is refused");
    }
    let before = peak();
    for (path, input) in target.corpus() {
        eprintln!("{}", path.display());
        (target.read)(&input);
    }
    let cases = env::var("FUZZ_INPUTS").map_or(target.inputs, |count| count.parse().unwrap());
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let sound = AtomicU32::new(0);
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    TestRunner::new_with_rng(config, rng)
        .run(&(any::<Index>(), damage()), |(seed, damage)| {
            let input = damage.apply(&seeds, &seeds[seed.index(seeds.len())]);
            sound.fetch_add(u32::from((target.read)(&input)), Ordering::Relaxed);
            let (grown, most) = (peak() - before, target.memory << 10);
            let grown = if grown < most { grown } else { grown.saturating_sub(heaps()) };
            prop_assert!(grown < most, "{grown} KiB more than its seeds took");
            Ok(())
        })
        .unwrap();
    // An input that is refused at its first byte tests little.
    let sound = sound.into_inner();
    eprintln!("{sound} of {cases} damaged inputs of {name} were taken for sound");
    assert!(
        sound > cases / 200,
        "{sound} of {cases} damaged inputs of {name} were taken for sound"
    );
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                feed(stringify!($name));
            }
        )*

        #[test]
        fn every_target_is_fed() {
            let fed = [$(stringify!($name)),*];
            let all: Vec<_> = fuzz::TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(fed[..], all[..]);
        }

        #[test]
        fn every_target_is_a_program_of_libfuzzer() {
            let all: Vec<_> = fuzz::TARGETS.iter().map(|target| target.name).collect();
            let programs = include_str!("../libfuzzer/Cargo.toml").split("[[bin]]").skip(1);
            let names = programs.map(|program| program.split('"').nth(1).unwrap());
            assert_eq!(names.collect::<Vec<_>>(), all);
        }
    };
}

targets! {
    frames handshake request reply queue plan analysis train_request manifest config run_file shares saved tape revoked http onnx
    weights picture csv npy idx
}
