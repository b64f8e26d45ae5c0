//! Functions on shares: each in every format, over its domain, within the error that it states.

use mpc_core::{Profile, TestWorld, conformance::accuracy};
use ring_arith::CpuEngine;
use rss_protocols::{Options, Rss};

#[test]
fn functions_keep_their_bounds_on_shares_in_every_format() {
    let make = |session| Rss::new(session, CpuEngine::new(1));
    for frac in 8..=26 {
        for stated in accuracy::functions() {
            let measured = stated.measure(&TestWorld::new(3), make, frac, 150);
            println!("{frac:>2} bits {:<20} {measured}", stated.name);
            assert!(measured.of_bound < 1.0, "{} at {frac} bits: {measured}", stated.name);
        }
    }
}

#[test]
fn functions_keep_their_bounds_for_slow_links() {
    let make = |session| {
        let options = Options::default().profile(Profile::SlowLinks);
        Rss::with_options(session, CpuEngine::new(1), options)
    };
    for frac in [8, 20, 26] {
        for stated in accuracy::functions() {
            let measured = stated.measure(&TestWorld::new(3), make, frac, 150);
            println!("{frac:>2} bits {:<20} {measured}", stated.name);
            assert!(measured.of_bound < 1.0, "{} at {frac} bits: {measured}", stated.name);
        }
    }
}

#[test]
fn exponentials_of_rows_keep_their_bounds_on_shares_in_every_format() {
    let make = |session| Rss::new(session, CpuEngine::new(1));
    let fracs: Vec<_> = (8..=26).step_by(3).collect();
    accuracy::exponentials(&TestWorld::new(3), make, &fracs);
}

#[test]
fn rows_are_normalised_on_shares_whatever_their_size() {
    accuracy::rows(&TestWorld::new(3), |session| Rss::new(session, CpuEngine::new(1)));
}
