//! A custom layer: a gated linear unit, `(x a) * sigmoid(x b)`, over any protocol.
//!
//! It is written once. Here it runs on the plaintext reference, which checks ranges, and then on shares
//! of three parties.

use mpc_core::{Plaintext, Protocol, Result, SecretTensor, TestWorld, functions as f};
use net::Party;
use ring_arith::{CpuEngine, FracBits, Shape};
use rss_protocols::Rss;

/// The layer's weights.
struct Gated<P: Protocol> {
    value: SecretTensor<P>,
    gate: SecretTensor<P>,
}

impl<P: Protocol> Gated<P> {
    fn forward(&self, mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
        let value = f::matmul(mpc, x, &self.value)?;
        let gate = f::matmul(mpc, x, &self.gate)?;
        let gate = f::sigmoid(mpc, &gate)?;
        f::mul(mpc, &value, &gate)
    }
}

const X: [f64; 3] = [1.0, -2.0, 0.5];
const VALUE: [f64; 6] = [0.5, 1.0, -1.5, 0.25, 2.0, -0.5];
const GATE: [f64; 6] = [1.0, 0.0, 0.5, -1.0, 0.0, 2.0];

/// Party 0 owns weights and input; all learn the result.
fn run<P: Protocol>(mpc: &mut P) -> Result<Vec<f64>> {
    let mut share = |dims: &[usize], values: &[f64]| {
        let mine = (mpc.me() == Party(0)).then_some(values);
        f::input(mpc, Party(0), &Shape::new(dims)?, mine, FracBits::DEFAULT)
    };
    let x = share(&[1, 3], &X)?;
    let layer = Gated { value: share(&[3, 2], &VALUE)?, gate: share(&[3, 2], &GATE)? };
    let y = layer.forward(mpc, &x)?;
    f::reveal(mpc, &y)
}

fn main() -> Result<()> {
    let reference = run(&mut Plaintext::new(CpuEngine::new(1)))?;
    let shared = TestWorld::new(3).run(|session| Rss::new(session, CpuEngine::new(1)), run);
    let column = |w: &[f64], j: usize| (0..3).map(|i| X[i] * w[2 * i + j]).sum::<f64>();
    let exact = [0, 1].map(|j| column(&VALUE, j) / (1.0 + (-column(&GATE, j)).exp()));
    println!("in floats   {exact:.5?}\nreference   {reference:.5?}\non shares   {:.5?}", shared[0]);
    for (a, b) in shared[0].iter().zip(exact) {
        assert!((a - b).abs() < 1e-4, "the layer computes what it says");
    }
    Ok(())
}
