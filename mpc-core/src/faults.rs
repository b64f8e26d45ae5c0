//! The faults that are planted into this crate's functions, and what notices each.

use std::path::Path;

use ring_arith::CpuEngine;

use crate::{
    Plaintext, Rounding, TestWorld, conformance,
    conformance::accuracy,
    fault::{Fault, every_fault_is_noticed},
};

const fn fault(name: &'static str, check: &'static str) -> Fault {
    Fault { name, check }
}

const FAULTS: &[Fault] = &[
    // A width a bit too narrow.
    fault("shifted: a bit too narrow", "tight widths"),
    fault("sum of two: a bit too narrow", "tight widths"),
    fault("truncated: a bit too narrow", "tight widths"),
    fault("sums: a bit too narrow", "tight widths"),
    fault("products: as wide as one term", "tight widths"),
    fault("products: a summand takes no room", "tight widths"),
    fault("max: differences as wide as numbers", "tight widths"),
    fault("with_bound: half the bound", "tight widths"),
    fault("div: numerators of 40 bits", "tight widths"),
    fault("look-up: powers of two compared a bit short", "tight widths"),
    // A wrong number.
    fault("look-up: exponents one too high", "bounds of log"),
    fault("normalised argument in the working mode", "bounds of log"),
    fault("exp: clamped at -10", "bounds of exp"),
    fault("exp: one e beyond its ceiling", "bounds of exp"),
    fault("mul_scalar: fourteen bits of a factor", "bounds of mul_scalar 1/3"),
    fault("silu: eight bits fewer", "bounds of silu"),
    fault("tanh: clamped as if not doubled", "bounds of tanh"),
    fault("gelu: clamped at 3.5", "bounds of gelu"),
    fault("erf: clamped at 2.5", "bounds of erf"),
    fault("max pool: a border of zeros", "tight widths"),
    fault("log: eight units too much", "bounds of log"),
    fault("roots: half an exponent rounded to zero", "bounds of inv_sqrt"),
    fault("reciprocal: large numbers count as 0", "bounds of reciprocal"),
    fault("sine: folded at an eighth", "bounds of sin"),
    fault("softmax: a power of two missed", "rows of exponentials"),
    fault("softmax: long rows as short ones", "a row of many exponentials"),
    fault("log-softmax: ln 2 to four digits", "rows of exponentials"),
    fault("sum of squares: a mixed product once", "rows"),
    fault("normalize: a mixed product once", "rows"),
    fault("tournament: equals keep the later", "maxima"),
];

fn make(_: net::Session) -> crate::Result<Plaintext<CpuEngine>> {
    Ok(Plaintext::with_rounding(CpuEngine::new(1), Rounding::Drawn { seed: 11 }))
}

fn check(name: &str) {
    let world = &TestWorld::new(1).with_seed(5);
    if let Some(function) = name.strip_prefix("bounds of ") {
        let functions = accuracy::functions();
        let stated = functions.iter().find(|stated| stated.name == function);
        let stated = stated.unwrap_or_else(|| panic!("there is no function `{function}`"));
        for frac in [8, 9, 20, 24] {
            let measured = stated.measure(world, make, frac, 400);
            assert!(measured.of_bound < 1.0, "{function} at {frac} bits: {measured}");
        }
        return;
    }
    match name {
        "tight widths" => conformance::tight_widths(world, make),
        "rows" => accuracy::rows(world, make),
        "rows of exponentials" => accuracy::exponentials(world, make, &[8, 20, 26]),
        "a row of many exponentials" => {
            let measured = accuracy::exponentials_measured(world, make, 20, &[1 << 17]);
            assert!(measured.iter().all(|measured| measured.of_bound < 1.0), "{measured:?}");
        }
        "maxima" => conformance::maxima(world, make),
        _ => panic!("there is no check `{name}`"),
    }
}

#[test]
fn every_planted_fault_is_noticed() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    every_fault_is_noticed("faults::every_planted_fault_is_noticed", &source, FAULTS, &[], check);
}
