//! Training requests: the record of a network, and the plan that every party derives from it.

use crate::common::{self, Random, conv, dense, flatten, image, relu};
use nn_layers::train::{Adam, Metric, Optimiser, TrainOptions, TrainPlan, TrainRequest};
use nn_layers::{Dim, Graph, HostTensor, Op, Pool, ValueId};
use serde_json::{Value, json};

const BATCH: usize = 4;

/// A frozen convolution with its batch normalisation, a trained one with a trained batch normalisation,
/// dropout, and a product whose result is divided by a frozen number.
fn network(seed: u64) -> (Graph, ValueId) {
    let mut r = Random(seed);
    let mut graph = Graph::new(BATCH);
    let x = image(&mut graph, 2, 6);
    let y = conv(&mut graph, &mut r, x, "frozen", 4, Pool::new([3; 2], [1; 2]));
    let y = common::norm(&mut graph, &mut r, y, "frozen.norm");
    let y = relu(&mut graph, y);
    let y = conv(&mut graph, &mut r, y, "conv", 3, Pool::new([2; 2], [1; 2]));
    let y = common::norm(&mut graph, &mut r, y, "norm");
    let y = graph.add("some", Op::Dropout(0.25), &[y]).unwrap();
    let y = flatten(&mut graph, y);
    let y = dense(&mut graph, &mut r, y, "fc", 3);
    let divisor = graph.weight("divisor", HostTensor::scalar(2.0 + seed as f64));
    let y = graph.add("quotient", Op::Binary(nn_layers::Binary::Div), &[y, divisor]).unwrap();
    graph.train(|name| !name.starts_with("frozen") && name != "divisor");
    (graph, y)
}

fn options() -> TrainOptions {
    TrainOptions::default()
        .with_optimiser(Optimiser::Adam(Adam { every: 3, ..Adam::default() }))
        .with_metrics([Metric::Loss])
}

fn written() -> Value {
    let (graph, y) = network(1);
    let (request, _) = TrainRequest::new(&graph, y, &options()).unwrap();
    serde_json::to_value(&request).unwrap()
}

fn read(written: Value) -> nn_layers::Result<TrainPlan> {
    let request: TrainRequest = serde_json::from_value(written)
        .map_err(|cause| nn_layers::Error::invalid("request", cause.to_string()))?;
    request.derive()
}

#[test]
fn whoever_reads_a_request_derives_the_plan_that_its_writer_runs() {
    let (graph, y) = network(1);
    let (plan, start) = TrainPlan::new(&graph, y, &options()).unwrap();
    let derived = read(written()).unwrap();
    assert_eq!(derived, plan);
    assert_eq!(start.len(), plan.state().len());
    let different: Vec<_> = start.iter().map(|x| x.floats().iter().any(|v| *v != 0.0)).collect();
    assert!(different.iter().any(|it| *it), "the start has the network's numbers");
}

#[test]
fn a_request_and_its_plan_depend_on_no_secret_number() {
    let of = |seed: u64| {
        let (graph, y) = network(seed);
        let (request, _) = TrainRequest::new(&graph, y, &options()).unwrap();
        let plan = TrainPlan::new(&graph, y, &options()).unwrap().0;
        (serde_json::to_string(&request).unwrap(), serde_json::to_string(&plan).unwrap())
    };
    assert_eq!(of(1), of(2));
}

#[test]
fn a_frozen_norm_joins_its_convolution_before_anything_is_written() {
    let written = written();
    let names: Vec<_> = written["tensors"].as_array().unwrap().iter().map(|t| &t["name"]).collect();
    assert!(names.contains(&&json!("frozen.weight")) && names.contains(&&json!("frozen.bias")));
    assert!(
        !names.iter().any(|name| name.as_str().unwrap().starts_with("frozen.norm")),
        "{names:?}"
    );
    let ops = written["nodes"].to_string();
    assert!(!ops.contains("\"div\""), "a division by a frozen number is a product: {ops}");
}

#[test]
fn a_request_that_does_not_hold_together_is_refused() {
    type Change = fn(&mut Value);
    let changes: [(Change, &str); 13] = [
        (|v| v["version"] = 9.into(), "version 9 of a training request"),
        (|v| v["batch"] = 0.into(), "0 rows a step"),
        (|v| v["batch"] = (1u64 << 40).into(), "rows a step"),
        (|v| v["options"]["largest_rate"] = (-1.0).into(), "learning rate"),
        (|v| v["nodes"][3]["inputs"] = json!([999]), "comes after it"),
        (|v| v["nodes"][1]["op"] = json!({ "constant": 999 }), "is not there"),
        (|v| v["nodes"][1]["op"] = json!({ "parameter": 0 }), "only the planner"),
        (|v| v["tensors"][1]["name"] = v["tensors"][0]["name"].clone(), "two weights"),
        (|v| v["tensors"][0]["name"] = "w\nfingerprint 00".into(), "control characters"),
        (|v| v["tensors"][0]["dims"] = json!([1u64 << 60, 1u64 << 60]), "elements"),
        (|v| v["inputs"][0]["frac"] = 3.into(), "format of its own"),
        (|v| v["output"] = 999.into(), "result"),
        (|v| v["step"] = json!({}), "unknown field"),
    ];
    for (change, reason) in changes {
        let mut changed = written();
        change(&mut changed);
        let text = read(changed).unwrap_err().to_string();
        assert!(text.contains(reason), "{reason}: {text}");
    }
}

#[test]
fn public_numbers_and_what_folding_makes_of_them_are_bounded() {
    let mut graph = Graph::new(2);
    let x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(4)]).unwrap();
    let w = graph.weight("w", HostTensor::new([4, 3], vec![0.5; 12]).unwrap());
    let product = Op::MatMul { transpose_lhs: false, transpose_rhs: false };
    let y = graph.add("y", product, &[x, w]).unwrap();
    graph.train(|_| true);
    let (request, _) = TrainRequest::new(&graph, y, &TrainOptions::default()).unwrap();
    let written = serde_json::to_value(&request).unwrap();
    let mut many = written.clone();
    let numbers = json!({ "public": { "floats": [] } });
    many["tensors"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "name": "c", "dims": [1u64 << 23], "numbers": numbers }));
    assert!(read(many).unwrap_err().to_string().contains("public numbers"));
}
