//! Files that libraries have exported, with what the libraries answer: each is right, or refused with a reason.
//!
//! Those in `data/tables` run always, also on shares. All of a folder run where the environment names it:
//! `cargo xtask exported` makes such folders with the scripts in `models/scripts`.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::common::{self, cases_of, data, plaintext, run, unlike};
use mpc_core::TestWorld;
use ring_arith::CpuEngine;
use rss_protocols::Rss;

/// Names the folder.
const VARIABLE: &str = "TREFOIL_EXPORTED";

/// The least part of files that are right.
const LEAST: f64 = 0.95;

/// How far a number may be off in floats: libsvm stops where probabilities are right to 5e-3 by the number of classes.
const LIMIT_IN_FLOATS: f64 = 3e-3;

/// How far a number may be off in fixed point, relative to the larger of 1 and the largest result.
const LIMIT: f64 = 1.0 / 64.0;

#[test]
fn what_libraries_export_is_right_or_refused() {
    let folder = std::env::var_os(VARIABLE).map_or_else(|| data("tables"), PathBuf::from);
    let files = cases_of(&folder);
    let mut wrong = String::new();
    let mut right = 0;
    for file in &files {
        match outcome(file) {
            Ok(None) => right += 1,
            Ok(Some(refusal)) => println!("{}: refused: {refusal}", file.display()),
            Err(difference) => writeln!(wrong, "{}: {difference}", file.display()).unwrap(),
        }
    }
    println!("{} files, {right} right in fixed point", files.len());
    assert!(wrong.is_empty(), "{wrong}");
    assert!(right as f64 >= LEAST * files.len() as f64, "{right} of {} are right", files.len());
}

/// Nothing if a file is right in floats and in fixed point, or why it is refused; the difference if it is wrong.
fn outcome(file: &Path) -> Result<Option<String>, String> {
    let case = common::Case::of(file);
    let compiled = match &case.compiled {
        Ok(compiled) => compiled,
        Err(refusal) => return Ok(Some(refusal.to_string())),
    };
    let floats = compiled.plan.evaluate(&compiled.weights, &case.inputs);
    let floats = floats.map_err(|e| format!("not computed: {e}"))?;
    if let Some(difference) = unlike(&floats, &case.outputs, LIMIT_IN_FLOATS) {
        return Err(format!("in floats: {difference}"));
    }
    match run(&mut plaintext(), compiled, &case.inputs) {
        Ok(fixed) => match unlike(&fixed, &case.outputs, LIMIT) {
            None => Ok(None),
            Some(difference) => Err(format!("in fixed point: {difference}")),
        },
        Err(refusal) => Ok(Some(format!("in fixed point: {refusal}"))),
    }
}

#[test]
fn shared_among_three_parties_models_of_tables_give_their_librarys_answers() {
    let cases: Vec<_> =
        cases_of(&data("tables")).iter().map(|file| common::Case::of(file)).collect();
    let cases = Arc::new(cases);
    let shared = cases.clone();
    let results = TestWorld::new(3).with_limit(Duration::from_secs(120)).run(
        |session| Rss::new(session, CpuEngine::new(1)),
        move |mpc| {
            let run = |case: &common::Case| {
                run(mpc, case.compiled.as_ref().map_err(ToString::to_string).unwrap(), &case.inputs)
            };
            Ok(shared.iter().map(run).collect::<Vec<_>>())
        },
    );
    let party = results.into_iter().next().unwrap();
    for (case, got) in cases.iter().zip(party) {
        let difference = unlike(&got.unwrap(), &case.outputs, LIMIT);
        assert_eq!(difference, None, "{}", case.name);
    }
}
