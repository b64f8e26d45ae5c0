//! Two layers with bias and ReLU become two steps, each one call to the protocol. The same plan
//! runs on shares; here it runs on the plaintext protocol, which computes the same words.

use std::time::Duration;

use mpc_core::{Operand, Plaintext, Protocol, SecretTensor};
use nn_layers::{
    Binary, Compiled, Dim, Graph, HostTensor, Observer, Op, PlanOptions, StepInfo, Unary, ValueId,
};
use ring_arith::{CpuEngine, Shape};

/// Prints every step as it ends.
struct Printer;

impl Observer for Printer {
    fn ended(&mut self, step: &StepInfo<'_>, elapsed: Duration) {
        println!("step {} of {}, {}: {elapsed:?}", step.index + 1, step.of, step.kind);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut graph = Graph::new(1);
    let x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(3)])?;
    let x = dense(&mut graph, "hidden", x, [4, 3])?;
    let x = dense(&mut graph, "output", x, [2, 4])?;
    graph.output("y", x);
    let Compiled { plan, weights } = Compiled::new(&graph, &PlanOptions::default())?;
    println!("{} steps", plan.steps());

    let mut mpc = Plaintext::new(CpuEngine::new(1));
    let me = mpc.me();
    let x = HostTensor::new([1, 3], vec![1.0, -2.0, 0.5])?;
    let words = plan.encode_weights(&weights)?;
    let shapes: Vec<Shape> = plan.weights().into_iter().map(|weight| weight.shape).collect();
    let shares = mpc.input(me, &shapes, Some(&words))?;
    let secret: Vec<Operand<_>> = plan.secret_weights(shares);
    let input = [plan.encode_input(0, 1, &x)?];
    let shares = mpc.input(me, &plan.input_shapes(1)?, Some(&input))?;
    let y = plan.run(&mut mpc, &secret, &plan.secret_inputs(shares), &mut Printer)?;
    let shares: Vec<_> = y.iter().map(SecretTensor::share).collect();
    let y = plan.decode_output(0, &mpc.open(&shares)?[0])?;
    println!("in fixed point {:?}", y.floats());
    println!("in floats      {:?}", plan.evaluate(&weights, &[x])?[0].floats());
    Ok(())
}

/// `relu(x * w^T + b)` with some weights.
fn dense(
    graph: &mut Graph,
    name: &str,
    x: ValueId,
    size: [usize; 2],
) -> nn_layers::Result<ValueId> {
    let some = |n: usize| (0..n).map(|i| (i as f64 * 0.7).sin()).collect();
    let w = graph.weight(&format!("{name}.w"), HostTensor::new(size, some(size[0] * size[1]))?);
    let b = graph.weight(&format!("{name}.b"), HostTensor::new([size[0]], some(size[0]))?);
    let product = Op::MatMul { transpose_lhs: false, transpose_rhs: true };
    let y = graph.add(name, product, &[x, w])?;
    let y = graph.add(name, Op::Binary(Binary::Add), &[y, b])?;
    graph.add(name, Op::Unary(Unary::Relu), &[y])
}
