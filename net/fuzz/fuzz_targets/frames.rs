//! Frames, on a link that is open and on one that is not yet.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    for longest in [None, Some(1 << 16)] {
        let outcome = net::fuzzing::frames(input, longest);
        assert!(outcome.bytes <= input.len() as u64);
    }
});
