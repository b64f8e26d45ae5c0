//! Functions on shares: each in every format, over its domain, within the error that it states.

use std::{fmt::Write, path::Path};

use mpc_core::{
    Profile, TestWorld,
    testing::conformance::accuracy::{self, Measured},
};
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

/// Names the file into which the page of accuracies is to be written.
const VARIABLE: &str = "TREFOIL_ACCURACY_PAGE";

/// The beginning of the page.
const HEAD: &str = "\
# Accuracy of the functions

What each function of secret numbers promises, and what it does. `cargo xtask accuracy` writes this page, and a test
holds it to the functions. All errors are absolute. `u` is a unit in the last place, `2^-f` with `f` bits behind the
point; with fewer than 20 such bits the last rounding adds up to a unit. The figures are measured among three servers
with 20 bits behind the point, over the whole domain and more densely near 0: the largest error, and the largest part
of the stated error that was used anywhere. The tests do the same for every format from 8 to 26 bits, and for slow
links. An argument outside of its domain is an error where the guard is on.

## Functions of one number

";

/// Formats and samples of the page.
const FRAC: u32 = 20;
const SAMPLES: usize = 3000;

/// The largest change of a figure, which is a part of a bound, with which the page still holds: every change of a
/// protocol draws other masks and dithers.
const TOLERANCE: f64 = 0.5;

#[test]
fn the_page_of_accuracies_says_what_functions_do() {
    let make = |session| Rss::new(session, CpuEngine::new(1));
    let world = TestWorld::new(3);
    let mut lines = vec![];
    for stated in accuracy::functions() {
        let measured = stated.measure(&world, make, FRAC, SAMPLES);
        let [low, high] = stated.domain(FRAC).map(power);
        lines.push((stated.name, format!("{low} to {high}"), stated.bound, measured));
    }
    let mut page = HEAD.to_owned();
    page += &table("arguments", &lines);
    let mut lines = vec![];
    let rows = accuracy::rows_measured(&world, make);
    for ((name, bound), measured) in accuracy::OF_ROWS.into_iter().zip(rows) {
        let whose = if name == "norm" { "sums of squares" } else { "results" };
        lines.push((name, format!("{whose} with an encoding"), bound, measured));
    }
    let of_scores = accuracy::exponentials_measured(&world, make, FRAC, &accuracy::COUNTS);
    for (name, measured) in ["softmax", "log_softmax"].into_iter().zip(of_scores) {
        let domain = format!("-2^{0} to 2^{0}", 61 - FRAC - 2);
        lines.push((name, domain, accuracy::EXPONENTIALS, measured));
    }
    page += "\n## Functions of rows\n\nFor a row of `n` numbers: `mean`, `total` (the sum of squares around it) and `d` \
             (the root of the\nvariance with epsilon) are those of the row, `y` is a result. The first four are measured in formats from 8 to 26\nbits.\n\n";
    page += &table("domain", &lines);

    if let Some(file) = std::env::var_os(VARIABLE) {
        std::fs::write(file, page).unwrap();
        return;
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/accuracy.md");
    let there = std::fs::read_to_string(file).unwrap_or_default();
    assert_eq!(page.lines().count(), there.lines().count(), "docs/accuracy.md has other lines");
    for (now, then) in page.lines().zip(there.lines()) {
        let same = match (measured(now), measured(then)) {
            (Some((now, part)), Some((then, was))) => now == then && (part - was).abs() < TOLERANCE,
            _ => now == then,
        };
        assert!(same, "docs/accuracy.md is older; `cargo xtask accuracy` writes it\n{now}\n{then}");
    }
}

fn table(of: &str, lines: &[(&str, String, &str, Measured)]) -> String {
    let mut table = format!(
        "| function | {of} | stated error | largest error | part of what is stated |\n|---|---|---|---|---|\n"
    );
    for (name, domain, bound, measured) in lines {
        let (bound, largest) = (bound.replace('|', "\\|"), measured.largest.log2());
        let part = measured.of_bound;
        assert!(part <= 1.0, "{name}: {measured}");
        writeln!(table, "| `{name}` | {domain} | {bound} | 2^{largest:.1} | {part:.2} |").unwrap();
    }
    table
}

/// A number as a power of two, if it nearly is one.
fn power(x: f64) -> String {
    let exponent = x.abs().log2();
    let near = (exponent - exponent.round()).abs() < 0.02;
    let sign = if x < 0.0 { "-" } else { "" };
    if x == 0.0 {
        "0".to_owned()
    } else if near {
        format!("{sign}2^{}", exponent.round())
    } else {
        format!("{sign}2^{exponent:.1}")
    }
}

/// A line of a table without its figures, and the part of the stated error.
fn measured(line: &str) -> Option<(String, f64)> {
    let cells: Vec<_> = line.split(" | ").collect();
    let part = cells.last()?.trim_end_matches(" |").parse().ok()?;
    Some((cells[..cells.len().checked_sub(2)?].join(" | "), part))
}
