//! The mutants of the guard, of domains and of crews, and the check that notices each.

// All of this file is for tests, which may name an engine and a protocol.
#[cfg(test)]
use std::path::Path;

use mpc_core::{
    Operand, Protocol, TestWorld,
    testing::mutants::{Mutant, every_mutant_is_noticed},
};
use net::Party;
use ring_arith::{CpuEngine, Engine, EngineTensor};
use rss_protocols::Rss;

use crate::{Binary, Compiled, Dim, Graph, HostTensor, Op, PlanOptions, Unary, ValueId};

const fn mutant(name: &'static str, check: &'static str) -> Mutant {
    Mutant { name, check }
}

const MUTANTS: &[Mutant] = &[
    mutant("guard: the least difference far too large", "a layer beyond its range"),
    mutant("guard: addends left out", "a layer in its range"),
    mutant("guard: every caller's examples from the first on", "callers"),
    mutant("guard: counts of quotients cancel out", "quotients"),
    mutant("domains: the lower end left out", "domains"),
    mutant("domains: the upper end left out", "domains"),
    mutant("domains: numbers near zero allowed", "domains"),
    mutant("crew: the own stretch alone", "crews"),
    mutant("crew: the mean of a machine's rows", "crews"),
    mutant("crew: every stretch is the first", "crews"),
];

/// The words that the guard leaves of a graph with one output, by value and caller.
fn left(graph: &Graph, inputs: &[HostTensor], callers: &[usize], seed: u64) -> Vec<u64> {
    let Compiled { plan, weights } = Compiled::new(graph, &PlanOptions::default()).unwrap();
    let plan = plan.with_guard(true);
    let weights = plan.encode_weights(&weights).unwrap();
    let words = inputs.iter().enumerate().map(|(i, x)| plan.encode_input(i, x.dims()[0], x));
    let inputs: Vec<_> = words.collect::<crate::Result<_>>().unwrap();
    let callers = callers.to_vec();
    let make = |session| Rss::new(session, CpuEngine::new(1));
    let mut opened = TestWorld::new(3).with_seed(11).run(make, move |mpc| {
        let share = |mpc: &mut Rss<CpuEngine>, tensors: &[ring_arith::Tensor]| {
            let shapes: Vec<_> = tensors.iter().map(|t| t.shape().clone()).collect();
            mpc.input(Party(0), &shapes, (mpc.me() == Party(0)).then_some(tensors))
        };
        let weights: Vec<Operand<_>> = plan.secret_weights(share(mpc, &weights)?);
        let inputs = plan.secret_inputs(share(mpc, &inputs)?);
        let run = match callers.len() {
            0 => plan.run_guarded(mpc, &weights, &inputs, seed, &mut ()),
            _ => plan.run_joined(mpc, &weights, &inputs, (&callers, seed), &mut ()),
        };
        let (_, left) = run
            .map_err(|error| mpc_core::Error::Invalid { op: "plan", reason: error.to_string() })?;
        let opened = mpc.open(&[left.share()])?.remove(0);
        Ok(mpc.engine().download(&opened)?.words().to_vec())
    });
    opened.remove(0)
}

fn found(graph: &Graph, inputs: &[HostTensor]) -> bool {
    left(graph, inputs, &[], 7).iter().any(|&word| word != 0)
}

fn row(values: &[f64]) -> HostTensor {
    HostTensor::new([1, values.len()], values.to_vec()).unwrap()
}

/// `relu(x W + b)` of rows of four.
fn layer(graph: &mut Graph, weight: f64, bias: f64) -> ValueId {
    let x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(4)]).unwrap();
    let weights = (0..12).map(|i| weight * f64::from(i % 5 + 1)).collect();
    let w = graph.weight("w", HostTensor::new([4, 3], weights).unwrap());
    let b = graph.weight("b", HostTensor::new([3], vec![bias, -bias, bias / 2.0]).unwrap());
    let op = Op::MatMul { transpose_lhs: false, transpose_rhs: false };
    let y = graph.add("product", op, &[x, w]).unwrap();
    let y = graph.add("sum", Op::Binary(Binary::Add), &[y, b]).unwrap();
    graph.add("relu", Op::Unary(Unary::Relu), &[y]).unwrap()
}

fn one_layer(weight: f64, bias: f64) -> Graph {
    let mut graph = Graph::new(1);
    let y = layer(&mut graph, weight, bias);
    graph.output("y", y);
    graph
}

/// A function of a row of inputs.
fn function(op: &Op, inputs: usize) -> Graph {
    let mut graph = Graph::new(1);
    let inputs: Vec<_> = (0..inputs)
        .map(|i| graph.input(&format!("x{i}"), &[Dim::Batch(1), Dim::Fixed(2)]).unwrap())
        .collect();
    let y = graph.add("f", op.clone(), &inputs).unwrap();
    graph.output("y", y);
    graph
}

fn check(name: &str) {
    match name {
        "a layer beyond its range" => {
            // Words that wrapped around differ by anything: one in eight of these is near.
            let many = (0..64).map(|i| 3e3 + 17.0 * f64::from(i));
            for x in many.chain([1e5, -4e6]) {
                assert!(found(&one_layer(1000.0, 5.0), &[row(&[x, x, x, 1.0])]), "{x}");
            }
        }
        "a layer in its range" => {
            for (x, bias) in [(1e-3, 5.0), (2.0, 2e6), (-300.0, 3e6)] {
                assert!(!found(&one_layer(1.0, bias), &[row(&[x, 1.0, -x, x])]), "{x}");
            }
        }
        "callers" => {
            let x = [[1.0; 4], [3e6; 4]].concat();
            let x = HostTensor::new([2, 4], x).unwrap();
            let left = left(&one_layer(100.0, 5.0), &[x], &[1, 1], 7);
            assert_eq!(left.len(), 2);
            assert!(left[0] == 0 && left[1] != 0, "{left:?}");
        }
        "domains" => {
            for (op, outside, inside) in [
                (Unary::Exp, 20.0, 3.0),
                (Unary::Log, -1.0, 0.5),
                (Unary::Sqrt, -2.0, 2.0),
                (Unary::Reciprocal, 1e-6, 0.5),
                (Unary::Reciprocal, -1e-6, -0.5),
            ] {
                let graph = function(&Op::Unary(op), 1);
                assert!(found(&graph, &[row(&[inside, outside])]), "{op:?} of {outside}");
                assert!(!found(&graph, &[row(&[inside, inside])]), "{op:?} of {inside}");
            }
        }
        "quotients" => {
            let graph = function(&Op::Binary(Binary::Div), 2);
            let (large, small) = (1_048_576.0, 0.125);
            assert!(found(&graph, &[row(&[large, -large]), row(&[small, small])]));
            assert!(!found(&graph, &[row(&[large, -large]), row(&[8.0, 8.0])]));
        }
        "crews" => crate::crew::tests::machines_train_like_one(),
        _ => panic!("there is no check `{name}`"),
    }
}

#[test]
fn all_mutants_are_noticed() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    every_mutant_is_noticed(
        "plan::run::guard::mutants::all_mutants_are_noticed",
        &source,
        MUTANTS,
        &[],
        check,
    );
}
