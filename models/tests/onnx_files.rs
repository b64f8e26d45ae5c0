//! The ONNX files in `data/onnx`, exported by PyTorch, give onnxruntime's results.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Case, cases_of, data, plaintext, run, unlike};
use mpc_core::TestWorld;
use nn_layers::HostTensor;
use ring_arith::CpuEngine;
use rss_protocols::Rss;

fn cases() -> Vec<Case> {
    let files = cases_of(&data("onnx"));
    assert!(files.len() > 20);
    files.iter().map(|file| Case::of(file)).collect()
}

/// Compares results with onnxruntime's.
fn compare(case: &Case, got: models::Result<Vec<HostTensor>>, limit: f64) -> Vec<String> {
    let name = &case.name;
    let got = match got {
        Ok(got) => got,
        Err(e) => return vec![format!("{name}: {e}")],
    };
    let difference = unlike(&got, &case.outputs, limit);
    difference.map(|difference| format!("{name}: {difference}")).into_iter().collect()
}

#[test]
fn evaluated_in_floats_every_file_gives_onnxruntimes_results() {
    let mut failures = vec![];
    for case in cases() {
        // Both forms of GELU are computed as the exact one, 4.8e-4 from its approximation.
        let limit = if case.name == "activations-opset20" { 5e-4 } else { 1e-4 };
        let got = match &case.compiled {
            Ok(c) => c.plan.evaluate(&c.weights, &case.inputs).map_err(Into::into),
            Err(e) => Err(models::Error::format("import", e.to_string())),
        };
        failures.extend(compare(&case, got, limit));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn in_fixed_point_every_file_gives_onnxruntimes_results() {
    let mut failures = vec![];
    for case in cases() {
        let Ok(compiled) = &case.compiled else { continue };
        let got = run(&mut plaintext(), compiled, &case.inputs);
        failures.extend(compare(&case, got, 1.0 / 64.0));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn shared_among_three_parties_every_file_gives_onnxruntimes_results() {
    let cases = Arc::new(cases());
    let shared = cases.clone();
    let results = TestWorld::new(3).with_limit(Duration::from_secs(280)).run(
        |session| Rss::new(session, CpuEngine::new(1)),
        move |mpc| {
            let run = |case: &Case| run(mpc, case.compiled.as_ref().unwrap(), &case.inputs);
            Ok(shared.iter().map(run).collect::<Vec<_>>())
        },
    );
    let party = results.into_iter().next().unwrap();
    let failures = cases.iter().zip(party).flat_map(|(case, got)| compare(case, got, 1.0 / 64.0));
    let failures: Vec<_> = failures.collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
