//! Trainings in floats, in fixed point and on shares.

use mpc_core::{Operand, Plaintext, Protocol, Result as MpcResult, TestWorld};
use net::Party;
use nn_layers::train::{Loss, Step, TrainOptions, TrainPlan};
use nn_layers::{Graph, HostTensor, ValueId};
use ring_arith::{CpuEngine, Tensor};
use rss_protocols::Rss;

use super::{Random, dense, distance, planned, relu};

pub const BATCH: usize = 4;
pub const RATE: f64 = 0.25;

/// Stochastic gradient descent at rates up to [`RATE`].
pub fn options() -> TrainOptions {
    TrainOptions::default().with_largest_rate(RATE)
}

/// Two dense layers with a ReLU between them; three results.
pub fn perceptron(g: &mut Graph, r: &mut Random, x: ValueId) -> ValueId {
    let y = dense(g, r, x, "fc1", 8);
    let y = relu(g, y);
    dense(g, r, y, "fc2", 3)
}

/// The largest difference between fixed point and floats.
pub const TOLERANCE: f64 = 1.0 / 4096.0;

/// A training and its batches.
pub struct Training {
    pub plan: TrainPlan,
    pub start: Vec<HostTensor>,
    pub batches: Vec<[HostTensor; 2]>,
    pub rate: f64,
}

/// The result of a training: the state, and the metrics of every step.
pub struct Outcome {
    pub state: Vec<HostTensor>,
    pub metrics: Vec<Vec<f64>>,
}

impl Training {
    /// Trains all weights of the network that `build` makes for an input of shape `dims`, for some steps.
    pub fn new(
        dims: &[usize],
        options: &TrainOptions,
        build: impl Fn(&mut Graph, &mut Random, ValueId) -> ValueId,
    ) -> Self {
        let mut r = Random(1);
        let (plan, start, result) = planned(BATCH, dims, options, &mut r, build);
        let batch = |_| {
            let x = r.tensor(&[&[BATCH], dims].concat(), 1.0);
            [x, labels(&mut r, &options.loss, &result)]
        };
        Self { plan, start, batches: (0..4).map(batch).collect(), rate: RATE }
    }

    /// The same at another learning rate.
    pub fn at(self, rate: f64) -> Self {
        Self { rate, ..self }
    }

    pub fn in_the_clear(&self) -> Outcome {
        let mut state = self.start.clone();
        let mut metrics = vec![];
        for (number, batch) in (0..).zip(&self.batches) {
            let step = Step::new(number, self.rate);
            let seen = self.plan.step_in_the_clear(&mut state, batch, step).unwrap();
            metrics.push(seen.iter().map(|x| x.single().unwrap()).collect());
        }
        Outcome { state, metrics }
    }

    pub fn in_fixed_point(&self) -> Outcome {
        let mut mpc = Plaintext::new(CpuEngine::new(1));
        let words = run(&self.plan, self.rate, &mut mpc, &self.words()).unwrap();
        self.outcome(words)
    }

    pub fn on_shares(&self) -> Outcome {
        let (plan, words) = (self.plan.clone(), self.words());
        let rate = self.rate;
        let mut opened = TestWorld::new(3).run(
            |session| Rss::new(session, CpuEngine::new(1)),
            move |mpc| run(&plan, rate, mpc, &words),
        );
        self.outcome(opened.swap_remove(0))
    }

    /// The words of the state, and of every batch.
    pub fn words(&self) -> Vec<Vec<Tensor>> {
        let mut all = vec![self.plan.encode_state(&self.start).unwrap()];
        all.extend(self.batches.iter().map(|b| self.plan.encode_batch(b).unwrap()));
        all
    }

    /// Numbers of the words that [`run`] opens.
    pub fn outcome(&self, mut words: Vec<Tensor>) -> Outcome {
        let metrics = words.split_off(self.plan.state().len());
        let state = self.plan.decode_state(&words).unwrap();
        let kinds = &self.plan.options().metrics;
        let first = self.plan.state().iter().filter(|s| s.trained).count();
        let decoded = metrics.iter().enumerate().map(|(i, words)| {
            let value = self.plan.step_plan().decode_output(first + i % kinds.len(), words);
            value.unwrap().single().unwrap()
        });
        let decoded: Vec<_> = decoded.collect();
        let metrics = decoded.chunks(kinds.len().max(1)).map(<[f64]>::to_vec).collect();
        Outcome { state, metrics }
    }
}

/// Labels for a loss and a result of the network.
pub fn labels(r: &mut Random, loss: &Loss, result: &[usize]) -> HostTensor {
    let len = result.iter().product::<usize>();
    match loss {
        Loss::CrossEntropy(own) | Loss::LogLikelihood(own) if own.soft => {
            r.tensor(result, 1.0).map(f64::abs)
        }
        Loss::CrossEntropy(own) | Loss::LogLikelihood(own) => {
            let classes = result[own.axis];
            let inner: usize = result[own.axis + 1..].iter().product();
            // Every third place is ignored if some are.
            let label = |place: usize| match place % 3 {
                1 if own.ignore => classes,
                _ => (place * 7 + 3) % classes,
            };
            let hot = |k: usize| {
                let place = k / (classes * inner) * inner + k % inner;
                i64::from(label(place) == k / inner % classes)
            };
            HostTensor::integers(result, (0..len).map(hot).collect()).unwrap()
        }
        Loss::BinaryCrossEntropy { .. } | Loss::ProbabilityCrossEntropy => {
            r.tensor(result, 1.0).map(|v| if v > 0.0 { 1.0 } else { 0.0 })
        }
        _ => r.tensor(result, 1.0),
    }
}

/// Shares the state and, step by step, a batch; opens the state at the end and all metrics.
pub fn run<P: Protocol>(
    plan: &TrainPlan,
    rate: f64,
    mpc: &mut P,
    words: &[Vec<Tensor>],
) -> MpcResult<Vec<Tensor>>
where
    P::Engine: ring_arith::Engine<Tensor = Tensor>,
{
    let state = shared(mpc, &words[0])?;
    let mut state = plan.secret_state(state).expect("the shares have the state's shapes");
    let mut seen = vec![];
    for (number, batch) in (0..).zip(&words[1..]) {
        let shares = shared(mpc, batch)?;
        let batch: Vec<Operand<P>> = plan.step_plan().secret_inputs(shares);
        let step = Step::new(number, rate);
        let metrics = plan.step(mpc, &mut state, &batch, step, &mut ()).expect("the step runs");
        seen.extend(metrics);
    }
    let mut shares = state.shares();
    shares.extend(seen.iter().map(|x| x.share()));
    mpc.open(&shares)
}

/// Shares tensors that party 0 has.
pub fn shared<P: Protocol>(mpc: &mut P, words: &[Tensor]) -> MpcResult<Vec<P::Share>>
where
    P::Engine: ring_arith::Engine<Tensor = Tensor>,
{
    let shapes: Vec<_> = words.iter().map(|w| ring_arith::EngineTensor::shape(w).clone()).collect();
    let mine = mpc.me() == Party(0);
    mpc.input(Party(0), &shapes, mine.then_some(words))
}

/// Asserts that the network's weights agree.
pub fn assert_weights_close(
    name: &str,
    training: &Training,
    got: &Outcome,
    expected: &Outcome,
    tolerance: f64,
) {
    let state = training.plan.state();
    let weights = |name: &str| name.ends_with(".weight") || name.ends_with(".bias");
    for ((spec, a), b) in state.iter().zip(&got.state).zip(&expected.state) {
        if weights(&spec.name) {
            let error = distance(a, b);
            assert!(error < tolerance, "{name}: {} is off by {error:e}", spec.name);
        }
    }
}

/// Asserts that weights and metrics agree.
pub fn assert_close(name: &str, got: &Outcome, expected: &Outcome, tolerance: f64) {
    for (i, (a, b)) in got.state.iter().zip(&expected.state).enumerate() {
        let error = distance(a, b);
        assert!(error < tolerance, "{name}: tensor {i} of the state is off by {error:e}");
    }
    let (got, expected) = (got.metrics.concat(), expected.metrics.concat());
    assert_eq!(got.len(), expected.len());
    for (a, b) in got.iter().zip(&expected) {
        assert!((a - b).abs() < 16.0 * tolerance, "{name}: a metric is {a}, not {b}");
    }
}
