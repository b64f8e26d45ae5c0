//! Training with clipped gradients and noise: against a clipping by hand, against floats, and against crafted networks.

use crate::common::{Random, conv, dense, distance, flatten, relu};
use mpc_core::{Operand, Plaintext, Protocol, PublicTensor, TestWorld};
use net::{Metered, Party, Session, Stats};
use nn_layers::layers::{BatchNorm, Layer};
use nn_layers::train::{Adam, Metric, Optimiser, Privacy, Step, TrainOptions, TrainPlan};
use nn_layers::{Binary, Dim, Graph, HostTensor, Op, Pool, Unary, ValueId};
use ring_arith::{CpuEngine, EngineTensor, Tensor};
use rss_protocols::Rss;

const BATCH: usize = 6;
const RATE: f64 = 0.25;
const CLIP: f64 = 0.75;

/// Fraction bits of the noise, as plans take it.
const NOISE_FRAC: u32 = 46;

type Build = fn(&mut Graph, &mut Random, ValueId) -> ValueId;

/// A training, its start and one batch.
struct Training {
    plan: TrainPlan,
    start: Vec<HostTensor>,
    batch: [HostTensor; 2],
}

fn graph(batch: usize, dims: &[usize], build: Build) -> (Graph, ValueId) {
    let mut graph = Graph::new(batch);
    let own: Vec<_> = dims.iter().map(|&d| Dim::Fixed(d)).collect();
    let x = graph.input("x", &[&[Dim::Batch(1)], &own[..]].concat()).unwrap();
    let y = build(&mut graph, &mut Random(1), x);
    graph.train(|_| true);
    (graph, y)
}

impl Training {
    fn new(dims: &[usize], options: &TrainOptions, build: Build) -> Self {
        let (graph, y) = graph(BATCH, dims, build);
        let (plan, start) = TrainPlan::new(&graph, y, options).unwrap();
        let mut r = Random(9);
        let x = r.tensor(&[&[BATCH], dims].concat(), 1.0);
        let hot = |i: usize| i64::from((i / 3 * 7 + 1) % 3 == i % 3);
        let labels = HostTensor::integers([BATCH, 3], (0..BATCH * 3).map(hot).collect()).unwrap();
        Self { plan, start, batch: [x, labels] }
    }

    /// Numbers as noise, of this size.
    fn noise(&self, scale: f64) -> Vec<HostTensor> {
        let mut r = Random(5);
        let shapes = self.plan.noise_shapes().unwrap();
        shapes.iter().map(|shape| r.tensor(shape.dims(), scale)).collect()
    }

    fn in_the_clear(&self, noise: &[HostTensor]) -> Vec<HostTensor> {
        let mut state = self.start.clone();
        let step = Step::new(0, RATE);
        self.plan.step_in_the_clear_with_noise(&mut state, &self.batch, step, noise).unwrap();
        state
    }

    /// The state after a step with this noise, or with the noise that the parties draw.
    fn run<P>(&self, mpc: &mut P, noise: Option<&[HostTensor]>) -> Vec<HostTensor>
    where
        P: Protocol,
        P::Engine: ring_arith::Engine<Tensor = Tensor>,
    {
        let mut shared = |words: Vec<Tensor>| {
            let shapes: Vec<_> = words.iter().map(|w| w.shape().clone()).collect();
            let mine = (mpc.me() == Party(0)).then_some(&words[..]);
            mpc.input(Party(0), &shapes, mine).unwrap()
        };
        let state = shared(self.plan.encode_state(&self.start).unwrap());
        let batch = shared(self.plan.encode_batch(&self.batch).unwrap());
        let mut state = self.plan.secret_state(state).unwrap();
        let batch: Vec<Operand<P>> = self.plan.step_plan().secret_inputs(batch);
        let step = Step::new(0, RATE);
        match noise {
            Some(noise) => {
                let noise = noise.iter().map(public).collect();
                self.plan.step_with_noise(mpc, &mut state, &batch, step, noise, &mut ()).unwrap();
            }
            None => {
                self.plan.step(mpc, &mut state, &batch, step, &mut ()).unwrap();
            }
        }
        let words = mpc.open(&state.shares()).unwrap();
        self.plan.decode_state(&words).unwrap()
    }

    fn in_fixed_point(&self, noise: &[HostTensor]) -> Vec<HostTensor> {
        self.run(&mut Plaintext::new(CpuEngine::new(1)), Some(noise))
    }

    fn on_shares(self, noise: Option<Vec<HostTensor>>) -> Vec<HostTensor> {
        let party = |session| Rss::new(session, CpuEngine::new(1));
        let program = move |mpc: &mut Rss<CpuEngine>| Ok(self.run(mpc, noise.as_deref()));
        TestWorld::new(3).run(party, program).remove(0)
    }

    /// The change of each tensor of the network, over the learning rate: the mean of the clipped gradients.
    fn moved(&self, after: &[HostTensor]) -> Vec<Vec<f64>> {
        let moved = |(a, b): (&HostTensor, &HostTensor)| {
            let pairs = a.floats().into_owned().into_iter().zip(b.floats().into_owned());
            pairs.map(|(a, b)| (a - b) / RATE).collect()
        };
        self.start.iter().zip(after).map(moved).collect()
    }
}

fn public<P: Protocol>(x: &HostTensor) -> Operand<P>
where
    P::Engine: ring_arith::Engine<Tensor = Tensor>,
{
    let unit = f64::from(NOISE_FRAC).exp2();
    let words = x.floats().iter().map(|v| (v * unit) as i64 as u64).collect();
    Operand::Public(PublicTensor::new(Tensor::new(x.shape().clone(), words).unwrap(), NOISE_FRAC))
}

fn options() -> TrainOptions {
    TrainOptions::default().with_largest_rate(RATE)
}

fn private() -> TrainOptions {
    options().with_privacy(Privacy::new(CLIP, 1.0))
}

fn perceptron(g: &mut Graph, r: &mut Random, x: ValueId) -> ValueId {
    let y = dense(g, r, x, "fc1", 8);
    let y = relu(g, y);
    dense(g, r, y, "fc2", 3)
}

fn convolutions(g: &mut Graph, r: &mut Random, x: ValueId) -> ValueId {
    let y = conv(g, r, x, "conv1", 4, Pool::new([3; 2], [1; 2]).padded([1; 4]));
    let y = relu(g, y);
    let y = g.add("pool", Op::MaxPool(Pool::new([2; 2], [2; 2])), &[y]).unwrap();
    let y = conv(g, r, y, "conv2", 3, Pool::new([2; 2], [1; 2]));
    let y = relu(g, y);
    let y = flatten(g, y);
    dense(g, r, y, "fc", 3)
}

/// A convolution under an average, which a training without privacy joins to its weight.
fn averages(g: &mut Graph, r: &mut Random, x: ValueId) -> ValueId {
    let y = conv(g, r, x, "conv", 4, Pool::new([3; 2], [1; 2]));
    let pool = Op::AvgPool { pool: Pool::new([2; 2], [2; 2]), count_border: true };
    let y = g.add("pool", pool, &[y]).unwrap();
    let y = relu(g, y);
    let y = flatten(g, y);
    dense(g, r, y, "fc", 3)
}

/// Rows of a sequence under one weight, and a trained factor for each feature.
fn sequences(g: &mut Graph, r: &mut Random, x: ValueId) -> ValueId {
    let y = dense(g, r, x, "each", 4);
    let scale = g.weight("scale.weight", r.tensor(&[4], 0.5));
    let y = g.add("scale", Op::Binary(Binary::Mul), &[y, scale]).unwrap();
    let y = g.add("tanh", Op::Unary(Unary::Tanh), &[y]).unwrap();
    let y = flatten(g, y);
    dense(g, r, y, "fc", 3)
}

fn networks() -> [(&'static str, &'static [usize], Build); 4] {
    [
        ("perceptron", &[5], perceptron),
        ("convolutions", &[2, 6, 6], convolutions),
        ("averages", &[2, 6, 6], averages),
        ("sequences", &[3, 5], sequences),
    ]
}

/// The mean of the gradients of parts of the batch, each clipped, computed by steps of the same network on one part.
fn by_hand(dims: &[usize], build: Build, training: &Training, rows: usize) -> Vec<Vec<f64>> {
    let (graph, y) = graph(rows, dims, build);
    let (plan, start) = TrainPlan::new(&graph, y, &options()).unwrap();
    let mut sum: Vec<Vec<f64>> = start.iter().map(|x| vec![0.0; x.len()]).collect();
    for unit in 0..BATCH / rows {
        let part = training.batch.each_ref().map(|x| {
            let len = x.len() / BATCH * rows;
            let own = x.floats()[unit * len..][..len].to_vec();
            let dims = [&[rows], &x.dims()[1..]].concat();
            let own = HostTensor::new(dims, own).unwrap();
            if x.is_int() {
                HostTensor::integers(own.dims(), own.floats().iter().map(|&v| v as i64).collect())
                    .unwrap()
            } else {
                own
            }
        });
        let mut state = start.clone();
        plan.step_in_the_clear(&mut state, &part, RATE).unwrap();
        let gradient: Vec<Vec<f64>> = start
            .iter()
            .zip(&state)
            .map(|(a, b)| {
                a.floats().iter().zip(b.floats().iter()).map(|(a, b)| (a - b) / RATE).collect()
            })
            .collect();
        let norm = gradient.iter().flatten().map(|v| v * v).sum::<f64>().sqrt();
        let factor = (CLIP * 127.0 / 128.0 / norm).min(1.0) / (BATCH / rows) as f64;
        for (sum, part) in sum.iter_mut().zip(&gradient) {
            sum.iter_mut().zip(part).for_each(|(sum, v)| *sum += factor * v);
        }
    }
    sum
}

#[test]
fn the_gradient_of_each_unit_is_clipped_as_by_hand() {
    for (name, dims, build) in networks() {
        for rows in [1, 2] {
            let privacy = Privacy::new(CLIP, 1.0).with_rows(rows);
            let training = Training::new(dims, &options().with_privacy(privacy), build);
            let expected = by_hand(dims, build, &training, rows);
            let got = training.moved(&training.in_the_clear(&training.noise(0.0)));
            for (got, expected) in got.iter().flatten().zip(expected.iter().flatten()) {
                assert!(
                    (got - expected).abs() < 1e-9,
                    "{name}, {rows} rows: {got}, not {expected}"
                );
            }
        }
    }
}

#[test]
fn every_optimiser_in_fixed_point_follows_floats_with_the_same_noise() {
    let adam = Adam { betas: [0.906_25, 0.99], epsilon: 1e-3, ..Adam::default() };
    let optimisers = [
        Optimiser::sgd(0.0),
        Optimiser::Sgd { momentum: 0.9, nesterov: true, decay: 0.01 },
        Optimiser::Adam(adam),
        Optimiser::Adam(Adam { every: 2, ..adam }),
    ];
    for (name, dims, build) in networks() {
        for optimiser in optimisers {
            let training = Training::new(dims, &private().with_optimiser(optimiser), build);
            let noise = training.noise(2.0);
            let expected = training.in_the_clear(&noise);
            let got = training.in_fixed_point(&noise);
            for (i, (a, b)) in got.iter().zip(&expected).enumerate() {
                let spec = &training.plan.state()[i];
                let error = distance(a, b);
                let moments = spec.name == "second moments" || spec.name == "inverse roots";
                assert!(moments || error < 1e-3, "{name}, {optimiser:?}: {} by {error}", spec.name);
            }
        }
    }
}

#[test]
fn steps_on_shares_follow_floats_with_the_same_noise() {
    for (name, dims, build) in networks() {
        for rows in [1, 3] {
            let privacy = Privacy::new(CLIP, 1.0).with_rows(rows);
            let training = Training::new(dims, &options().with_privacy(privacy), build);
            let noise = training.noise(2.0);
            let expected = training.in_the_clear(&noise);
            let got = training.on_shares(Some(noise));
            for (a, b) in got.iter().zip(&expected) {
                let error = distance(a, b);
                assert!(error < 1e-3, "{name}, {rows} rows: off by {error}");
            }
        }
    }
}

/// A network whose second layer makes gradients `SIZE` times larger.
fn amplified<const SIZE: u64>(g: &mut Graph, r: &mut Random, x: ValueId) -> ValueId {
    let y = dense(g, r, x, "fc1", 8);
    let weight = r.tensor(&[8, 8], 1.0).map(|v| v * SIZE as f64);
    let weight = g.weight("crafted.weight", weight);
    let product = Op::MatMul { transpose_lhs: false, transpose_rhs: true };
    let y = g.add("crafted", product, &[y, weight]).unwrap();
    dense(g, r, y, "fc2", 3)
}

#[test]
fn no_network_makes_rows_move_weights_beyond_the_limit() {
    let crafted: [Build; 4] = [
        amplified::<1_000>,
        amplified::<1_000_000>,
        amplified::<1_000_000_000>,
        amplified::<30_000_000_000>,
    ];
    for (i, build) in crafted.into_iter().enumerate() {
        let training = Training::new(&[5], &private(), build);
        let moved = Training::new(&[5], &private(), build);
        let noise = training.noise(0.0);
        let after = training.on_shares(Some(noise));
        let moved = moved.moved(&after);
        let norm = moved.iter().flatten().map(|v| v * v).sum::<f64>().sqrt();
        // Each of 6 rows adds at most a 6th; roundings of weights are not part of the rows' addends.
        assert!(norm <= CLIP + 1e-6, "network {i} moves by {norm}");
    }
}

#[test]
fn rows_without_a_gradient_add_nothing() {
    let square = private().with_loss(nn_layers::train::Loss::MeanSquare);
    // A network of zeros returns 0 for every row, like the labels: every slope is 0.
    let zeros: Build = |g, _, x| {
        let weight = g.weight("fc.weight", HostTensor::new([3, 5], vec![0.0; 15]).unwrap());
        let product = Op::MatMul { transpose_lhs: false, transpose_rhs: true };
        g.add("fc", product, &[x, weight]).unwrap()
    };
    let make = || {
        let mut training = Training::new(&[5], &square, zeros);
        training.batch[1] = HostTensor::new([BATCH, 3], vec![0.0; 3 * BATCH]).unwrap();
        training
    };
    let after = make().on_shares(Some(make().noise(0.0)));
    let moved = make().moved(&after);
    assert!(moved.iter().flatten().all(|v| v.abs() < 1e-6), "{moved:?}");
}

#[test]
fn the_noise_of_a_step_is_that_of_all_parties_and_is_there() {
    let wide: Build = |g, r, x| {
        let y = dense(g, r, x, "fc1", 400);
        let y = relu(g, y);
        dense(g, r, y, "fc2", 3)
    };
    let training = || Training::new(&[20], &private(), wide);
    let clear = training().in_the_clear(&training().noise(0.0));
    let noisy = training().on_shares(None);
    let still = training().moved(&clear);
    let moved = training().moved(&noisy);
    let noise: Vec<_> =
        moved.iter().flatten().zip(still.iter().flatten()).map(|(a, b)| a - b).collect();
    let variance = noise.iter().map(|v| v * v).sum::<f64>() / noise.len() as f64;
    // The noise multiplier is 1; the mean is over 6 rows, and three parties add 1.5 times the variance.
    let expected = 1.5 * (CLIP / BATCH as f64).powi(2);
    assert!(noise.len() > 9000);
    assert!((variance / expected - 1.0).abs() < 0.06, "{} of the variance", variance / expected);
}

/// The error with which a training is refused.
fn refusal(options: &TrainOptions, dims: &[usize], build: Build) -> String {
    let (graph, y) = graph(BATCH, dims, build);
    TrainPlan::new(&graph, y, options).unwrap_err().to_string()
}

#[test]
fn what_cannot_be_clipped_for_each_example_is_refused_with_advice() {
    let normed: Build = |g, r, x| {
        let y = conv(g, r, x, "conv1", 4, Pool::new([3; 2], [1; 2]));
        let norm = BatchNorm {
            scale: HostTensor::new([4], vec![1.0; 4]).unwrap().into(),
            shift: HostTensor::new([4], vec![0.0; 4]).unwrap().into(),
            mean: HostTensor::new([4], vec![0.0; 4]).unwrap().into(),
            variance: HostTensor::new([4], vec![1.0; 4]).unwrap().into(),
            epsilon: 1e-5,
            momentum: 0.1,
        };
        let y = norm.forward(g, "norm", y).unwrap();
        let y = flatten(g, y);
        dense(g, r, y, "fc", 3)
    };
    let text = refusal(&private(), &[2, 6, 6], normed);
    assert!(text.contains("mixes the examples") && text.contains("layer normalisation"), "{text}");
    let shared: Build = |g, r, x| {
        let weight = g.weight("tied.weight", r.tensor(&[5, 5], 0.5));
        let product = Op::MatMul { transpose_lhs: false, transpose_rhs: true };
        let y = g.add("a", product.clone(), &[x, weight]).unwrap();
        let y = g.add("b", product, &[y, weight]).unwrap();
        dense(g, r, y, "fc", 3)
    };
    let text = refusal(&private(), &[5], shared);
    assert!(text.contains("`tied.weight` is used more than once"), "{text}");
    let mixed: Build = |g, r, x| {
        let y = dense(g, r, x, "fc", 3);
        let mean = Op::Reduce { kind: nn_layers::Reduce::Mean, axes: vec![0], keep: true };
        let mean = g.add("mean", mean, &[y]).unwrap();
        g.add("centred", Op::Binary(Binary::Sub), &[y, mean]).unwrap()
    };
    let text = refusal(&private(), &[5], mixed);
    assert!(text.contains("mixes the examples of a batch"), "{text}");
}

#[test]
fn options_that_would_make_the_promise_wrong_are_refused() {
    let cases = [
        (private().with_metrics([Metric::Loss]), "metrics are exact sums"),
        (private().with_clip(1.0), "give one of the two"),
        (options().with_privacy(Privacy::new(0.0, 1.0)), "a clip norm of 0"),
        (options().with_privacy(Privacy::new(1.0, 0.0)), "noise multiplier of 0"),
        (options().with_privacy(Privacy::new(1.0, 1.0).with_rows(4)), "do not divide a batch of 6"),
        (options().with_privacy(Privacy::new(1000.0, 1.0)), "at the learning rate"),
    ];
    for (options, reason) in cases {
        let text = refusal(&options, &[5], perceptron);
        assert!(text.contains(reason), "{reason}: {text}");
    }
    let training = Training::new(&[5], &private(), perceptron);
    let mut mpc = Plaintext::new(CpuEngine::new(1));
    let state = training.plan.encode_state(&training.start).unwrap();
    let shapes: Vec<_> = state.iter().map(|w| w.shape().clone()).collect();
    let state = mpc.input(Party(0), &shapes, Some(&state)).unwrap();
    let mut state = training.plan.secret_state(state).unwrap();
    let step = Step::new(0, RATE);
    let guarded = training.plan.step_guarded(&mut mpc, &mut state, &[], step, 1, &mut ());
    assert!(guarded.unwrap_err().to_string().contains("a guard tells exactly"));
    assert!(training.plan.guarded(step).is_empty());
}

/// Bytes in all and rounds of a step.
fn cost(options: &TrainOptions) -> (u64, u32) {
    let options = options.clone();
    let program = move |mut session: Session| {
        let metered = Metered::new(session.transport);
        let meter = metered.meter();
        session.transport = Box::new(metered);
        let mut mpc = Rss::new(session, CpuEngine::new(1))?;
        let training = Training::new(&[2, 12, 12], &options, convolutions);
        let before = training.run(&mut mpc, None);
        meter.reset();
        let after = training.run(&mut mpc, None);
        assert_eq!(before.len(), after.len());
        Ok(meter.stats())
    };
    let stats = TestWorld::new(3).try_sessions(program);
    let stats: Vec<Stats> = stats.into_iter().map(|stats| stats.unwrap()).collect();
    (stats.iter().map(Stats::bytes_sent).sum(), net::Report::of(&stats).rounds)
}

#[test]
fn the_price_of_privacy_is_what_is_stated() {
    let (plain, plain_rounds) = cost(&options());
    let (bytes, rounds) = cost(&private());
    println!("{plain} bytes in {plain_rounds} rounds without, {bytes} in {rounds} with");
    assert_eq!((plain, plain_rounds, bytes, rounds), (504_856, 69, 635_424, 146));
}
