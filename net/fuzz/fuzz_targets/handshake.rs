//! The bodies of the frames with which a link opens.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| net::fuzzing::handshake(input));
