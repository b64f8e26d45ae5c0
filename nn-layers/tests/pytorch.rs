//! Steps of training as PyTorch takes them: recorded by `models/scripts/train_fixtures.py`.

use std::collections::BTreeMap;

use crate::common::{self, distance};
use mpc_core::{Operand, Plaintext, Protocol, TestWorld};
use net::Party;
use nn_layers::layers::{BatchNorm, Conv2d, Flatten, Layer, LayerNorm, Linear, Weight};
use nn_layers::train::{Adam, Classes, Loss, Metric, Optimiser, Step, TrainOptions, TrainPlan};
use nn_layers::{Binary, Centre, Dim, Graph, HostTensor, Kernel, Op, Pool, Reduce, Unary, ValueId};
use ring_arith::{CpuEngine, EngineTensor, Tensor};
use rss_protocols::Rss;
use serde_json::Value;

/// A recorded training with PyTorch.
struct Recorded {
    network: String,
    smoothing: f64,
    start: BTreeMap<String, HostTensor>,
    end: BTreeMap<String, HostTensor>,
    batches: Vec<[HostTensor; 2]>,
    losses: Vec<f64>,
}

fn tensor(value: &Value) -> HostTensor {
    let dims: Vec<usize> = serde_json::from_value(value["dims"].clone()).unwrap();
    let values: Vec<f64> = serde_json::from_value(value["values"].clone()).unwrap();
    HostTensor::new(dims, values).unwrap()
}

fn tensors(value: &Value) -> BTreeMap<String, HostTensor> {
    value.as_object().unwrap().iter().map(|(name, x)| (name.clone(), tensor(x))).collect()
}

impl Recorded {
    fn read(text: &str) -> Self {
        let value: Value = serde_json::from_str(text).unwrap();
        let batch = |batch: &Value| {
            let labels: Vec<usize> = serde_json::from_value(batch["labels"].clone()).unwrap();
            let hot = labels.iter().flat_map(|&l| (0..3).map(move |c| i64::from(c == l)));
            let labels = HostTensor::integers([labels.len(), 3], hot.collect()).unwrap();
            [tensor(&batch["x"]), labels]
        };
        Self {
            network: value["network"].as_str().unwrap().to_owned(),
            smoothing: value["smoothing"].as_f64().unwrap(),
            start: tensors(&value["start"]),
            end: tensors(&value["end"]),
            batches: value["batches"].as_array().unwrap().iter().map(batch).collect(),
            losses: serde_json::from_value(value["losses"].clone()).unwrap(),
        }
    }

    fn get(&self, name: &str) -> HostTensor {
        self.start[name].clone()
    }

    fn graph(&self) -> (Graph, ValueId) {
        let x = &self.batches[0][0];
        let mut graph = Graph::new(x.dims()[0]);
        let own: Vec<_> = x.dims()[1..].iter().map(|&d| Dim::Fixed(d)).collect();
        let input = graph.input("x", &[&[Dim::Batch(1)], &own[..]].concat()).unwrap();
        let y = match self.network.as_str() {
            "residual" => self.residual(&mut graph, input),
            "dense" => self.dense(&mut graph, input),
            "attention" => self.attention(&mut graph, input),
            "convolutions" => self.convolutions(&mut graph, input),
            other => panic!("unknown network {other}"),
        };
        graph.train(|_| true);
        (graph, y)
    }

    fn linear(&self, g: &mut Graph, name: &str, x: ValueId) -> ValueId {
        let weight = self.get(&format!("{name}.weight")).into();
        let bias = self.start.get(&format!("{name}.bias")).cloned().map(Weight::from);
        Linear { weight, bias }.forward(g, name, x).unwrap()
    }

    fn conv(&self, g: &mut Graph, name: &str, x: ValueId, window: Pool) -> ValueId {
        let layer = Conv2d::new(self.get(&format!("{name}.weight")), None);
        let Pool { stride, padding, dilation, .. } = window;
        Conv2d { stride, padding, dilation, ..layer }.forward(g, name, x).unwrap()
    }

    fn norm(
        &self,
        g: &mut Graph,
        name: &str,
        x: ValueId,
        [epsilon, momentum]: [f64; 2],
    ) -> ValueId {
        let part = |what: &str| self.get(&format!("{name}.{what}")).into();
        let norm = BatchNorm {
            scale: part("weight"),
            shift: part("bias"),
            mean: part("running_mean"),
            variance: part("running_var"),
            epsilon,
            momentum,
        };
        norm.forward(g, name, x).unwrap()
    }

    fn residual(&self, g: &mut Graph, x: ValueId) -> ValueId {
        let same = Pool::new([3; 2], [1; 2]).padded([1; 4]);
        let half = Pool::new([3; 2], [2; 2]).padded([1; 4]);
        let x = self.conv(g, "conv1", x, same);
        let x = self.norm(g, "bn1", x, [1e-5, 0.1]);
        let x = common::relu(g, x);
        let y = self.conv(g, "conv2", x, half);
        let y = self.norm(g, "bn2", y, [1e-3, 0.25]);
        let down = self.conv(g, "down", x, Pool::new([1; 2], [2; 2]));
        let down = self.norm(g, "bn3", down, [1e-5, 0.1]);
        let x = g.add("sum", Op::Binary(Binary::Add), &[y, down]).unwrap();
        let x = common::relu(g, x);
        let mean = Op::Reduce { kind: Reduce::Mean, axes: vec![2, 3], keep: false };
        let x = g.add("mean", mean, &[x]).unwrap();
        self.linear(g, "fc", x)
    }

    fn dense(&self, g: &mut Graph, x: ValueId) -> ValueId {
        let x = self.linear(g, "fc1", x);
        let x = self.norm(g, "bn", x, [1e-5, 0.1]);
        let x = g.add("tanh", Op::Unary(Unary::Tanh), &[x]).unwrap();
        let x = Flatten.forward(g, "flatten", x).unwrap();
        self.linear(g, "fc2", x)
    }

    fn attention(&self, g: &mut Graph, x: ValueId) -> ValueId {
        let norm = LayerNorm {
            scale: self.get("norm.weight").into(),
            shift: self.get("norm.bias").into(),
            epsilon: 1e-5,
        };
        let y = norm.forward(g, "norm", x).unwrap();
        let [query, key, value] = ["query", "key", "value"].map(|name| self.linear(g, name, y));
        let product = |transpose_rhs| Op::MatMul { transpose_lhs: false, transpose_rhs };
        let scores = g.add("scores", product(true), &[query, key]).unwrap();
        let scores = g.add("scaled", Op::Scale(1.0 / 6f64.sqrt()), &[scores]).unwrap();
        let weights = g.add("softmax", Op::Softmax { axis: 2, log: false }, &[scores]).unwrap();
        let mixed = g.add("mixed", product(false), &[weights, value]).unwrap();
        let x = g.add("sum", Op::Binary(Binary::Add), &[x, mixed]).unwrap();
        let x = g.add("gelu", Op::Unary(Unary::Gelu), &[x]).unwrap();
        let mean = Op::Reduce { kind: Reduce::Mean, axes: vec![1], keep: false };
        let x = g.add("mean", mean, &[x]).unwrap();
        self.linear(g, "fc", x)
    }

    /// A convolution with a bias for each channel.
    fn biased(&self, g: &mut Graph, name: &str, x: ValueId, kernel: Kernel) -> ValueId {
        let weight = g.weight(&format!("{name}.weight"), self.get(&format!("{name}.weight")));
        let y = g.add(name, Op::Conv(kernel), &[x, weight]).unwrap();
        self.shifted(g, name, y)
    }

    fn shifted(&self, g: &mut Graph, name: &str, x: ValueId) -> ValueId {
        let bias = self.get(&format!("{name}.bias"));
        let bias = g.weight(&format!("{name}.bias"), bias.reshape([bias.len(), 1, 1]).unwrap());
        g.add(name, Op::Binary(Binary::Add), &[x, bias]).unwrap()
    }

    fn convolutions(&self, g: &mut Graph, x: ValueId) -> ValueId {
        let same = Pool::new([3; 2], [1; 2]).padded([1; 4]);
        let x = self.biased(g, "conv1", x, Kernel { window: same, groups: 2 });
        // Group norm: rows of a group's channels.
        let dims = g.shape(x).dims().to_vec();
        let rows = vec![Dim::Batch(1), Dim::Fixed(2), Dim::Rest];
        let y = g.add("rows", Op::Reshape(rows), &[x]).unwrap();
        let y = g
            .add("norm", Op::Normalize { axis: 2, centre: Centre::Mean, epsilon: 1e-5 }, &[y])
            .unwrap();
        let back = [&[Dim::Batch(1)], &[dims[1], dims[2], dims[3]].map(Dim::Fixed)[..]].concat();
        let y = g.add("back", Op::Reshape(back), &[y]).unwrap();
        let scale = self.get("norm.weight").reshape([8, 1, 1]).unwrap();
        let scale = g.weight("norm.weight", scale);
        let y = g.add("norm", Op::Binary(Binary::Mul), &[y, scale]).unwrap();
        let y = self.shifted(g, "norm", y);
        let y = g.add("silu", Op::Unary(Unary::Silu), &[y]).unwrap();
        let window = Pool { dilation: [2; 2], ..Pool::new([3; 2], [2; 2]).padded([2; 4]) };
        let y = self.biased(g, "conv2", y, Kernel::new(window));
        let y = g.add("silu", Op::Unary(Unary::Silu), &[y]).unwrap();
        let kernel = Kernel::new(Pool::new([3; 2], [2; 2]));
        let weight = g.weight("up.weight", self.get("up.weight"));
        let up = Op::ConvTranspose { kernel, extra: [0; 2] };
        let y = g.add("up", up, &[y, weight]).unwrap();
        let y = self.shifted(g, "up", y);
        let mean = Op::Reduce { kind: Reduce::Mean, axes: vec![2, 3], keep: false };
        let y = g.add("mean", mean, &[y]).unwrap();
        self.linear(g, "fc", y)
    }

    /// The name that a tensor of the state has in PyTorch.
    fn name(of: &str) -> String {
        let renamed = [
            (".mean", ".running_mean"),
            (".variance", ".running_var"),
            (".scale", ".weight"),
            (".shift", ".bias"),
        ];
        let found = renamed.iter().find_map(|(ours, theirs)| {
            of.strip_suffix(ours).map(|layer| format!("{layer}{theirs}"))
        });
        found.unwrap_or_else(|| of.to_owned())
    }

    fn plan(&self, optimiser: Optimiser, rate: f64) -> (TrainPlan, Vec<HostTensor>) {
        let (graph, y) = self.graph();
        let options = TrainOptions::default()
            .with_loss(Loss::CrossEntropy(Classes {
                smoothing: self.smoothing,
                ..Classes::default()
            }))
            .with_optimiser(optimiser)
            .with_largest_rate(rate)
            .with_metrics([Metric::Loss]);
        TrainPlan::new(&graph, y, &options).unwrap()
    }

    /// Largest difference of the weights and running statistics from PyTorch's at the end.
    fn off(&self, plan: &TrainPlan, state: &[HostTensor]) -> f64 {
        let mut worst: f64 = 0.0;
        let mut seen = 0;
        for (spec, value) in plan.state().iter().zip(state) {
            if let Some(expected) = self.end.get(&Self::name(&spec.name)) {
                let off = distance(&value.reshape(expected.dims()).unwrap(), expected);
                worst = if off.is_nan() { f64::INFINITY } else { worst.max(off) };
                seen += 1;
            }
        }
        assert_eq!(seen, self.end.len(), "{:?} of {:?}", plan.state(), self.end.keys());
        worst
    }

    fn check(&self, optimiser: Optimiser, rate: f64, tolerance: f64) {
        let (plan, start) = self.plan(optimiser, rate);
        let mut state = start.clone();
        for (number, (batch, loss)) in (0..).zip(self.batches.iter().zip(&self.losses)) {
            let step = Step::new(number, rate);
            let seen = plan.step_in_the_clear(&mut state, batch, step).unwrap();
            let ours = seen[0].single().unwrap() / batch[0].dims()[0] as f64;
            if self.smoothing == 0.0 {
                assert!((ours - loss).abs() < 1e-5, "step {number}: loss {ours}, not {loss}");
            }
        }
        let off = self.off(&plan, &state);
        assert!(off < 1e-9, "{}: in floats off by {off:e}", self.network);

        let mut words = vec![plan.encode_state(&start).unwrap()];
        words.extend(self.batches.iter().map(|batch| plan.encode_batch(batch).unwrap()));
        let mut mpc = Plaintext::new(CpuEngine::new(1));
        let fixed = run(&plan, rate, &mut mpc, &words).unwrap();
        let off = self.off(&plan, &plan.decode_state(&fixed).unwrap());
        assert!(off < tolerance, "{}: in fixed point off by {off:e}", self.network);

        let shared = plan.clone();
        let opened = TestWorld::new(3).run(
            |session| Rss::new(session, CpuEngine::new(1)),
            move |mpc| run(&shared, rate, mpc, &words),
        );
        let off = self.off(&plan, &plan.decode_state(&opened[0]).unwrap());
        assert!(off < tolerance, "{}: on shares off by {off:e}", self.network);
    }
}

const RATE: f64 = 0.125;
const TOLERANCE: f64 = 1.0 / 4096.0;

/// Shares the state and, step by step, a batch; opens the state at the end.
fn run<P: Protocol>(
    plan: &TrainPlan,
    rate: f64,
    mpc: &mut P,
    words: &[Vec<Tensor>],
) -> mpc_core::Result<Vec<Tensor>>
where
    P::Engine: ring_arith::Engine<Tensor = Tensor>,
{
    let mine = mpc.me() == Party(0);
    let share = |mpc: &mut P, words: &[Tensor]| {
        let shapes: Vec<_> = words.iter().map(|w| w.shape().clone()).collect();
        mpc.input(Party(0), &shapes, mine.then_some(words))
    };
    let state = share(mpc, &words[0])?;
    let mut state = plan.secret_state(state).expect("the shares have the state's shapes");
    for (number, batch) in (0..).zip(&words[1..]) {
        let shares = share(mpc, batch)?;
        let batch: Vec<Operand<P>> = plan.step_plan().secret_inputs(shares);
        plan.step(mpc, &mut state, &batch, Step::new(number, rate), &mut ())
            .expect("the step runs");
    }
    mpc.open(&state.shares())
}

/// Adam's numbers in the recordings.
fn adam() -> Adam {
    Adam { betas: [0.906_25, 0.99], epsilon: 1e-13, ..Adam::default() }
}

/// Adam divides gradients by their own size, so the rounding of small ones counts.
const ADAM_RATE: f64 = 1.0 / 128.0;
const ADAM_TOLERANCE: f64 = ADAM_RATE / 8.0;

#[test]
fn residual_blocks_with_batch_norms_are_trained_as_by_pytorch() {
    let recorded = Recorded::read(include_str!("data/residual-sgd.json"));
    recorded.check(Optimiser::sgd(0.5), RATE, TOLERANCE);
}

#[test]
fn a_batch_norm_of_rows_is_trained_as_by_pytorch() {
    let recorded = Recorded::read(include_str!("data/dense-sgd.json"));
    let optimiser = Optimiser::Sgd { momentum: 0.5, nesterov: true, decay: 1.0 / 64.0 };
    recorded.check(optimiser, RATE, TOLERANCE);
}

#[test]
fn convolutions_of_all_kinds_are_trained_as_by_pytorch() {
    let recorded = Recorded::read(include_str!("data/convolutions-sgd.json"));
    recorded.check(Optimiser::sgd(0.0), RATE, TOLERANCE);
}

#[test]
fn adam_moves_weights_as_pytorch_does() {
    let recorded = Recorded::read(include_str!("data/dense-adam.json"));
    recorded.check(Optimiser::Adam(adam()), ADAM_RATE, ADAM_TOLERANCE);
}

#[test]
fn amsgrad_moves_weights_as_pytorch_does() {
    let recorded = Recorded::read(include_str!("data/dense-amsgrad.json"));
    let adam = Adam { amsgrad: true, decay: 1.0 / 64.0, ..adam() };
    recorded.check(Optimiser::Adam(adam), ADAM_RATE, ADAM_TOLERANCE);
}

#[test]
fn adamw_moves_weights_as_pytorch_does() {
    let recorded = Recorded::read(include_str!("data/dense-adamw.json"));
    let adam = Adam { decoupled: true, decay: 1.0 / 16.0, ..adam() };
    recorded.check(Optimiser::Adam(adam), ADAM_RATE, ADAM_TOLERANCE);
}

#[test]
fn attention_is_trained_as_by_pytorch() {
    let recorded = Recorded::read(include_str!("data/attention-sgd.json"));
    recorded.check(Optimiser::sgd(0.5), RATE, TOLERANCE);
}
