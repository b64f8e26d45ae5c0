//! Helpers of the tests: running compiled networks on protocols.
#![allow(dead_code)] // each test file uses its own part

use std::path::{Path, PathBuf};

use models::Result;
use mpc_core::{Operand, Plaintext, Protocol, SecretTensor};
use net::Party;
use nn_layers::{Compiled, HostTensor};
use ring_arith::{CpuEngine, Engine, EngineTensor, Tensor};

/// A file that ships with the crate.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(name)
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
    if guarded {
        let left = mpc.engine().download(&words.pop().unwrap()).map_err(nn_layers::Error::from)?;
        let at = left.words().iter().position(|&word| word != 0);
        assert!(at.is_none(), "values of `{}` left their range", plan.guarded()[at.unwrap()]);
    }
    let decode = |(i, w)| {
        let host: Tensor = mpc.engine().download(w).map_err(nn_layers::Error::from)?;
        Ok(plan.decode_output(i, &host)?)
    };
    words.iter().enumerate().map(decode).collect()
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
