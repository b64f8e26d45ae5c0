//! The ONNX files in `data/onnx`, exported by PyTorch, give onnxruntime's results.

mod common;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use common::{data, distance, plaintext, run};
use models::{onnx, weights};
use mpc_core::TestWorld;
use nn_layers::{Compiled, HostTensor, PlanOptions};
use ring_arith::CpuEngine;
use rss_protocols::Rss;

/// A file with the inputs it was run on and onnxruntime's results.
struct Case {
    name: String,
    compiled: models::Result<Compiled>,
    inputs: Vec<HostTensor>,
    outputs: Vec<HostTensor>,
}

fn cases() -> Vec<Case> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(data("onnx"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "onnx"))
        .collect();
    files.sort();
    assert!(files.len() > 20);
    files.into_iter().map(case).collect()
}

fn case(file: PathBuf) -> Case {
    let tensors = weights::read_safetensors(&file.with_extension("safetensors")).unwrap();
    let compiled = onnx::import_file(&file, &Default::default())
        .and_then(|graph| Ok(Compiled::new(&graph, &PlanOptions::default())?));
    Case {
        name: file.file_stem().unwrap().to_str().unwrap().to_owned(),
        compiled,
        inputs: numbered(&tensors, "in"),
        outputs: numbered(&tensors, "out"),
    }
}

/// Tensors `in.0, in.1, ..` or `out.0, ..` of the file beside a model.
fn numbered(tensors: &BTreeMap<String, HostTensor>, what: &str) -> Vec<HostTensor> {
    (0..).map_while(|i| tensors.get(&format!("{what}.{i}")).cloned()).collect()
}

/// Compares results with onnxruntime's, relative to the larger of 1 and the largest of them.
fn compare(case: &Case, got: models::Result<Vec<HostTensor>>, limit: f64) -> Vec<String> {
    let name = &case.name;
    let got = match got {
        Ok(got) => got,
        Err(e) => return vec![format!("{name}: {e}")],
    };
    assert_eq!(got.len(), case.outputs.len(), "{name}");
    let mut failures = vec![];
    for (i, (a, b)) in got.iter().zip(&case.outputs).enumerate() {
        // The files have shape [1] for a scalar.
        let scalar = a.shape().rank() == 0 && b.len() == 1;
        if a.shape() != b.shape() && !scalar {
            failures.push(format!("{name} result {i}: {:?} for {:?}", a.shape(), b.shape()));
            continue;
        }
        let scale = b.floats().iter().fold(1.0, |m: f64, v| m.max(v.abs()));
        let error = distance(a, b) / scale;
        if error.is_nan() || error > limit {
            failures.push(format!("{name} result {i}: off by {error}"));
        }
    }
    failures
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
