//! The mutants of this crate's functions, and the check that detects each.

use std::path::Path;

use ring_arith::CpuEngine;

use crate::{
    Plaintext, Rounding, TestWorld, functions,
    testing::{
        conformance::{self, accuracy},
        mutants::{Mutant, every_mutant_is_noticed},
    },
};

const fn mutant(name: &'static str, check: &'static str) -> Mutant {
    Mutant { name, check }
}

const MUTANTS: &[Mutant] = &[
    // A width a bit too narrow.
    mutant("shifted: a bit too narrow", "tight widths"),
    mutant("sum of two: a bit too narrow", "tight widths"),
    mutant("truncated: a bit too narrow", "tight widths"),
    mutant("sums: a bit too narrow", "tight widths"),
    mutant("products: as wide as one term", "tight widths"),
    mutant("products: a summand takes no room", "tight widths"),
    mutant("max: differences as wide as numbers", "tight widths"),
    mutant("sort: differences as wide as numbers", "tight widths"),
    mutant("with_bound: half the bound", "tight widths"),
    mutant("div: numerators of 40 bits", "tight widths"),
    mutant("look-up: powers of two compared a bit short", "widest results for slow links"),
    // A wrong number.
    mutant("look-up: exponents one too high", "bounds of log"),
    mutant("normalised argument in the working mode", "bounds of log"),
    mutant("exp: clamped at -10", "bounds of exp"),
    mutant("exp: one e beyond its ceiling", "bounds of exp"),
    mutant("mul_scalar: fourteen bits of a factor", "bounds of mul_scalar 1/3"),
    mutant("silu: eight bits fewer", "bounds of silu"),
    mutant("tanh: clamped as if not doubled", "bounds of tanh"),
    mutant("gelu: clamped at 3.5", "bounds of gelu"),
    mutant("erf: clamped at 2.5", "bounds of erf"),
    mutant("max pool: a border of zeros", "tight widths"),
    mutant("log: eight units too much", "bounds of log"),
    mutant("roots: half an exponent rounded to zero", "bounds of inv_sqrt"),
    mutant("reciprocal: large numbers count as 0", "bounds of reciprocal"),
    mutant("sine: folded at an eighth", "bounds of sin"),
    mutant("softmax: a power of two missed", "rows of exponentials"),
    mutant("softmax: long rows as short ones", "a row of many exponentials"),
    mutant("log-softmax: ln 2 to four digits", "rows of exponentials"),
    mutant("sum of squares: a mixed product once", "rows"),
    mutant("normalize: a mixed product once", "rows"),
    mutant("sort: places in the bits of numbers", "sorting"),
    mutant("permutation: every place from all", "orders of shuffles"),
    mutant("uniform: one bit short", "random numbers"),
    mutant("discrete Laplace: the lowest digit left out", "random numbers"),
    mutant("discrete normal: no sign", "random numbers"),
    mutant("radix sort: places opened in the order of rows", "openings of sorts"),
    mutant("radix sort: numbers of rows opened with their places", "openings of sorts"),
    mutant("join: rows without a partner keep their words", "joins"),
    mutant("join: a key that is there twice is not seen", "joins"),
    mutant("tournament: equals keep the later", "maxima"),
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
        "widest results for slow links" => {
            conformance::widest_results_for_slow_links(world, make);
        }
        "rows" => accuracy::rows(world, make),
        "rows of exponentials" => accuracy::exponentials(world, make, &[8, 20, 26]),
        "a row of many exponentials" => {
            let measured = accuracy::exponentials_measured(world, make, 20, &[1 << 17]);
            assert!(measured.iter().all(|measured| measured.of_bound < 1.0), "{measured:?}");
        }
        "random numbers" => conformance::randomness(world, make),
        "orders of shuffles" => conformance::shuffle_orders(world, make),
        "openings of sorts" => {
            functions::radix_tests::opened_places_are_uniform_whatever_the_keys_are().unwrap();
        }
        "joins" => conformance::joins(world, make),
        "sorting" => conformance::sorting(world, make),
        "maxima" => conformance::maxima(world, make),
        _ => panic!("there is no check `{name}`"),
    }
}

#[test]
fn all_mutants_are_noticed() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    every_mutant_is_noticed(
        "testing::mutant_list::all_mutants_are_noticed",
        &source,
        MUTANTS,
        &[],
        check,
    );
}
