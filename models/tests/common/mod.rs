//! Helpers of the tests: running compiled networks on protocols.
#![allow(dead_code)] // each test file uses its own part

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use models::{Result, onnx, weights};
use mpc_core::{Operand, Plaintext, Protocol, SecretTensor};
use net::Party;
use nn_layers::{Compiled, HostTensor, PlanOptions};
use ring_arith::{CpuEngine, Engine, EngineTensor, Tensor};

/// A file that ships with the crate.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(name)
}

/// A model file with the inputs that it was run on and the results that it is to give.
pub struct Case {
    pub name: String,
    pub compiled: Result<Compiled>,
    pub inputs: Vec<HostTensor>,
    pub outputs: Vec<HostTensor>,
}

impl Case {
    /// The file, and the tensors beside it.
    pub fn of(file: &Path) -> Self {
        let tensors = weights::read_safetensors(&file.with_extension("safetensors")).unwrap();
        let compiled = onnx::import_file(file, &Default::default())
            .and_then(|graph| Ok(Compiled::new(&graph, &PlanOptions::default())?));
        Self {
            name: file.file_stem().unwrap().to_str().unwrap().to_owned(),
            compiled,
            inputs: numbered(&tensors, "in"),
            outputs: numbered(&tensors, "out"),
        }
    }
}

/// Tensors `in.0, in.1, ..` or `out.0, ..` of the file beside a model.
fn numbered(tensors: &BTreeMap<String, HostTensor>, what: &str) -> Vec<HostTensor> {
    (0..).map_while(|i| tensors.get(&format!("{what}.{i}")).cloned()).collect()
}

/// The model files of a folder, by name.
pub fn cases_of(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "onnx"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no models", folder.display());
    files
}

/// Where results differ from those wanted by more than a part of the larger of 1 and the largest of them.
pub fn unlike(got: &[HostTensor], wanted: &[HostTensor], limit: f64) -> Option<String> {
    if got.len() != wanted.len() {
        return Some(format!("{} results, {} are wanted", got.len(), wanted.len()));
    }
    for (i, (a, b)) in got.iter().zip(wanted).enumerate() {
        // The files have shape [1] for a scalar.
        let scalar = a.shape().rank() == 0 && b.len() == 1;
        if a.shape() != b.shape() && !scalar {
            return Some(format!("result {i}: {:?} for {:?}", a.shape(), b.shape()));
        }
        let scale = b.floats().iter().fold(1.0, |m: f64, v| m.max(v.abs()));
        let error = distance(a, b) / scale;
        if error.is_nan() || error > limit {
            return Some(format!("result {i}: off by {error}"));
        }
    }
    None
}

/// Shares tensors that party 0 holds.
pub fn share<P: Protocol>(mpc: &mut P, tensors: &[Tensor]) -> mpc_core::Result<Vec<P::Share>> {
    let shapes: Vec<_> = tensors.iter().map(|t| t.shape().clone()).collect();
    let words = tensors.iter().map(|t| mpc.engine().upload(t.clone()));
    let words = words.collect::<Result<Vec<_>, _>>()?;
    let mine = mpc.me() == Party(0);
    mpc.input(Party(0), &shapes, mine.then_some(words.as_slice()))
}

/// Runs a network with secret weights and inputs, and reveals the results. No value may leave its range: a guard sees it.
pub fn run<P: Protocol>(
    mpc: &mut P,
    compiled: &Compiled,
    inputs: &[HostTensor],
) -> Result<Vec<HostTensor>> {
    let (results, left) = run_watched(mpc, compiled, inputs)?;
    let at = left.iter().position(|&word| word != 0);
    let guarded = || compiled.plan.clone().with_guard(true);
    assert!(at.is_none(), "values of `{}` left their range", guarded().guarded()[at.unwrap()]);
    Ok(results)
}

/// The results, and what the guard says of each of its layers.
pub fn run_watched<P: Protocol>(
    mpc: &mut P,
    compiled: &Compiled,
    inputs: &[HostTensor],
) -> Result<(Vec<HostTensor>, Vec<u64>)> {
    let plan = compiled.plan.clone().with_guard(true);
    let shapes: Vec<_> = inputs.iter().map(HostTensor::shape).collect();
    let batch = plan.batch_of(&shapes)?;
    let words = plan.encode_weights(&compiled.weights)?;
    let weights = share(mpc, &words).map_err(nn_layers::Error::from)?;
    let words: Vec<_> = inputs
        .iter()
        .enumerate()
        .map(|(i, x)| plan.encode_input(i, batch, x))
        .collect::<Result<_, _>>()?;
    let inputs = share(mpc, &words).map_err(nn_layers::Error::from)?;
    let (weights, inputs): (Vec<Operand<P>>, _) =
        (plan.secret_weights(weights), plan.secret_inputs(inputs));
    let guarded = !plan.guarded().is_empty();
    let results = if guarded {
        let (mut results, left) = plan.run_guarded(mpc, &weights, &inputs, 7, &mut ())?;
        results.push(left);
        results
    } else {
        plan.run(mpc, &weights, &inputs, &mut ())?
    };
    let shares: Vec<_> = results.iter().map(SecretTensor::share).collect();
    let mut words = mpc.open(&shares).map_err(nn_layers::Error::from)?;
    let mut left = vec![];
    if guarded {
        let words = mpc.engine().download(&words.pop().unwrap()).map_err(nn_layers::Error::from)?;
        left.extend_from_slice(words.words());
    }
    let decode = |(i, w)| {
        let host: Tensor = mpc.engine().download(w).map_err(nn_layers::Error::from)?;
        Ok(plan.decode_output(i, &host)?)
    };
    Ok((words.iter().enumerate().map(decode).collect::<Result<_>>()?, left))
}

/// A party of the plaintext protocol.
pub fn plaintext() -> Plaintext<CpuEngine> {
    Plaintext::new(CpuEngine::new(2))
}

/// Largest difference of two tensors.
pub fn distance(x: &HostTensor, y: &HostTensor) -> f64 {
    let (a, b) = (x.floats(), y.floats());
    assert_eq!(a.len(), b.len());
    a.iter().zip(b.iter()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}
