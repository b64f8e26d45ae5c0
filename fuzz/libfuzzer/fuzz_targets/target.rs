//! One program for each target: the program's name is the target's.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let target = fuzz::target(env!("CARGO_BIN_NAME")).expect("each program is named after a target");
    (target.read)(input);
});
