//! Networks between two parties with a dealer: the result is right, and bytes and rounds are those stated.

use models::architectures::{Pooling, RandomWeights, by_name};
use mpc_core::{Protocol, Result, SecretTensor, TestWorld};
use net::{Metered, Session};
use nn_layers::{Compiled, HostTensor, Plan, PlanOptions};
use ring_arith::{CpuEngine, Engine, Shape, ShapeEngine, Tensor};
use rss_protocols::{Options, Rss};

const SEED: u64 = 2021;

/// What a run took: bytes that both parties sent, bytes that party 0 and party 1 played, rounds.
#[derive(Debug, PartialEq)]
struct Took {
    online: [u64; 2],
    tape: [u64; 2],
    rounds: u32,
}

fn compiled(network: &str, pooling: Pooling) -> Compiled {
    let graph = by_name(network, pooling, &mut RandomWeights::new(SEED)).unwrap();
    Compiled::new(&graph, &PlanOptions::default()).unwrap()
}

/// Runs a plan at all parties, each of whom holds an addend of the weights and of the input: party 0 all, party 1
/// zeros. What is counted begins when both are shared.
fn run<E: Engine>(
    plan: &Plan,
    secrets: [Vec<Tensor>; 2],
    batch: usize,
    engine: E,
) -> (Vec<Vec<Tensor>>, Took) {
    let plan = plan.clone();
    let shapes: [Vec<Shape>; 2] = [
        plan.weights().into_iter().map(|weight| weight.shape).collect(),
        plan.input_shapes(batch).unwrap(),
    ];
    let program = move |mut session: Session| -> Result<_> {
        let metered = Metered::new(session.transport);
        let meter = metered.meter();
        session.transport = Box::new(metered);
        let mut mpc = Rss::dealt(session, engine.clone(), Options::default())?;
        let me = mpc.me().0;
        let mut shared = Vec::new();
        for (shapes, secrets) in shapes.iter().zip(&secrets) {
            let zeros = || shapes.iter().cloned().map(Tensor::zeros).collect();
            let words: Vec<Tensor> = if me == 0 { secrets.clone() } else { zeros() };
            let words = words.into_iter().map(|tensor| engine.upload(tensor));
            let words = words.collect::<ring_arith::Result<Vec<_>>>()?;
            shared.push(mpc.input_sums(shapes, Some(&words))?);
        }
        let x = plan.secret_inputs(shared.remove(1));
        let weights = plan.secret_weights(shared.remove(0));
        meter.reset();
        let results = plan.run(&mut mpc, &weights, &x, &mut ()).unwrap();
        let stats = meter.stats();
        let shares: Vec<_> = results.iter().map(SecretTensor::share).collect();
        let opened = mpc.open(&shares)?;
        let opened = opened.iter().map(|words| engine.download(words));
        Ok((opened.collect::<ring_arith::Result<Vec<_>>>()?, stats))
    };
    let outcomes = TestWorld::new(2).with_dealer().try_sessions(program);
    let (opened, stats): (Vec<_>, Vec<_>) = outcomes.into_iter().map(Result::unwrap).unzip();
    let online = [0, 1].map(|me: usize| stats[me].bytes_sent());
    let tape = [0, 1].map(|me: usize| stats[me].bytes_played());
    (opened, Took { online, tape, rounds: net::Report::of(&stats).rounds })
}

/// What a run takes, counted without words. It depends on nothing but shapes.
fn takes(network: &str, pooling: Pooling, batch: usize) -> Took {
    let plan = compiled(network, pooling).plan;
    let zeros = |shapes: Vec<Shape>| shapes.into_iter().map(Tensor::zeros).collect();
    let weights = plan.weights().into_iter().map(|weight| weight.shape).collect();
    let secrets = [zeros(weights), zeros(plan.input_shapes(batch).unwrap())];
    run(&plan, secrets, batch, ShapeEngine).1
}

#[test]
fn a_network_from_tapes_gives_what_it_gives_in_the_clear() {
    for batch in [1, 9] {
        let Compiled { plan, weights, .. } = compiled("lenet", Pooling::Max);
        let dims = plan.input_shapes(batch).unwrap().remove(0);
        let x = RandomWeights::new(SEED + 1).around(dims.dims(), 0.0, 1.0).unwrap();
        let expected = plan.evaluate(&weights, std::slice::from_ref(&x)).unwrap().remove(0);
        let secrets = [
            plan.encode_weights(&weights).unwrap(),
            vec![plan.encode_input(0, batch, &x).unwrap()],
        ];
        let (opened, took) = run(&plan, secrets, batch, CpuEngine::new(1));
        assert_eq!(opened[0], opened[1]);
        let logits: HostTensor = plan.decode_output(0, &opened[0][0]).unwrap();
        for (got, want) in logits.floats().iter().zip(expected.floats().iter()) {
            assert!((got - want).abs() < 1e-3, "{got} for {want}");
        }
        assert_eq!(took, takes("lenet", Pooling::Max, batch));
    }
}

#[test]
fn networks_take_the_bytes_and_rounds_stated() {
    let stated = [
        ("lenet", Pooling::Average, 75_920, [82_272, 106_992], 20),
        ("vgg16-cifar", Pooling::Average, 4_948_816, [5_428_592, 7_021_376], 92),
        ("resnet50", Pooling::Max, 182_680_384, [195_745_024, 254_681_664], 317),
    ];
    for (network, pooling, online, tape, rounds) in stated {
        let took = Took { online: [online; 2], tape, rounds };
        assert_eq!(takes(network, pooling, 1), took, "{network}");
    }
}
