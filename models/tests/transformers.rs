//! Networks between three parties in each profile: bytes and rounds; and what transformers compute.

use crate::common::{distance, run};
use models::architectures::{
    Pooling, RandomWeights, Transformer, bert, by_name, gpt2, gpt2_step, vit,
};
use mpc_core::{Profile, Protocol, Result, TestWorld};
use net::{Metered, Party, Report, Session};
use nn_layers::{Caches, Compiled, Graph, PlanOptions, Sizes};
use ring_arith::{CpuEngine, Engine, Shape, ShapeEngine, Tensor};
use rss_protocols::{Options, Rss};

const PROFILES: [Profile; 3] = [Profile::Bytes, Profile::Balanced, Profile::SlowLinks];

fn compiled(graph: &Graph, profile: Profile) -> Compiled {
    Compiled::new(graph, &PlanOptions::default().with_profile(profile)).unwrap()
}

/// Bytes that the three parties send together, and rounds, of a run in which shapes are computed and no words.
fn cost(graph: &Graph, profile: Profile) -> (u64, u32) {
    cost_behind(0, graph, profile)
}

/// The same behind this number of cached positions.
fn cost_behind(past: usize, graph: &Graph, profile: Profile) -> (u64, u32) {
    let plan = compiled(graph, profile).plan;
    let program = move |mut session: Session| -> Result<_> {
        let metered = Metered::new(session.transport);
        let meter = metered.meter();
        session.transport = Box::new(metered);
        let mut mpc = Rss::with_options(session, ShapeEngine, Options::default())?;
        let mut share = |shapes: Vec<Shape>| {
            let words = shapes.iter().cloned().map(Tensor::zeros).map(|x| ShapeEngine.upload(x));
            let words = words.collect::<ring_arith::Result<Vec<_>>>()?;
            let mine = mpc.me() == Party(0);
            mpc.input(Party(0), &shapes, mine.then_some(&words))
        };
        let weights = share(plan.weights().into_iter().map(|weight| weight.shape).collect())?;
        let inputs = share(plan.input_shapes(Sizes { batch: 1, past }).unwrap())?;
        meter.reset();
        let (weights, inputs) = (plan.secret_weights(weights), plan.secret_inputs(inputs));
        plan.run(&mut mpc, &weights, &inputs, &mut ()).unwrap();
        Ok(meter.stats())
    };
    let stats = TestWorld::new(3).try_sessions(program).into_iter().map(Result::unwrap);
    let report = Report::of(&stats.collect::<Vec<_>>());
    (report.bytes, report.rounds)
}

#[test]
fn lenet_takes_the_bytes_and_rounds_stated() {
    let graph = by_name("lenet", Pooling::Average, &mut RandomWeights::new(1)).unwrap();
    assert_eq!(
        PROFILES.map(|profile| cost(&graph, profile)),
        [(341_104, 20), (360_112, 17), (4_830_704, 11)]
    );
}

/// As many positions and heads as the base sizes have, and a power of four for the depth of a head: where profiles look
/// at sizes, scores are what is many or few, and activations are many either way. BERT-base itself takes as many rounds.
fn narrow(time: usize) -> Transformer {
    Transformer { width: 192, inner: 384, ..Transformer::base(time) }
}

#[test]
fn transformers_take_the_bytes_and_rounds_stated() {
    let mut random = RandomWeights::new(1);
    let bert = bert(&narrow(128), &mut random).unwrap();
    let gpt2 = gpt2(&narrow(32), 1000, &mut random).unwrap();
    let costs = [&bert, &gpt2].map(|graph| PROFILES.map(|profile| cost(graph, profile)));
    let of_bert = [(1_020_987_712, 1737), (1_044_839_680, 1421), (1_196_081_152, 1194)];
    assert_eq!(costs, [of_bert, [(106_877_704, 1616), (125_722_096, 1140), (134_385_136, 1140)]]);
}

#[test]
fn a_decoding_step_takes_the_bytes_and_rounds_stated() {
    let size = Transformer { layers: 1, ..Transformer::base(1) };
    let graph = gpt2_step(&size, 1000, &mut RandomWeights::new(1)).unwrap();
    let behind = |past| PROFILES.map(|profile| cost_behind(past, &graph, profile));
    let stated = [
        [(1_511_728, 165), (1_704_048, 112), (1_704_048, 112)],
        [(5_190_824, 183), (5_976_104, 123), (6_628_808, 119)],
    ];
    assert_eq!([127, 1023].map(behind), stated);
}

#[test]
fn steps_of_a_transformer_are_the_whole_at_once() {
    let size = Transformer { layers: 2, width: 16, heads: 2, inner: 32, time: 6 };
    let whole = gpt2(&size, 20, &mut RandomWeights::new(3)).unwrap();
    let x = RandomWeights::new(5).around(&[1, 6, 16], 0.0, 1.0).unwrap();
    let expected = whole.evaluate(std::slice::from_ref(&x)).unwrap();
    for steps in [vec![1; 6], vec![3, 1, 2], vec![6]] {
        let (mut caches, mut scores) = (Caches::new(), vec![]);
        for time in steps {
            let size = Transformer { time, ..size };
            let graph = gpt2_step(&size, 20, &mut RandomWeights::new(3)).unwrap();
            let Compiled { plan, weights } = compiled(&graph, Profile::Bytes);
            let at = 16 * caches.past();
            let rows = x.floats()[at..at + 16 * time].to_vec();
            let rows = nn_layers::HostTensor::new([1, time, 16], rows).unwrap();
            scores = plan.evaluate_step(&weights, &mut caches, &[rows]).unwrap();
        }
        let error = distance(&scores[0], &expected[0]);
        assert!(error < 1e-9, "{error}");
    }
}

#[test]
fn small_transformers_on_shares_agree_with_floats_in_each_profile() {
    let size = Transformer { layers: 1, width: 16, heads: 2, inner: 32, time: 6 };
    let mut random = RandomWeights::new(3);
    let graphs = [
        bert(&size, &mut random).unwrap(),
        gpt2(&size, 20, &mut random).unwrap(),
        vit(&Transformer { time: 5, ..size }, 4, 7, &mut random).unwrap(),
    ];
    for (graph, profile) in graphs.iter().flat_map(|graph| PROFILES.map(|p| (graph, p))) {
        let shape = compiled(graph, profile).plan.input_shapes(1).unwrap().remove(0);
        let x = random.around(shape.dims(), 0.0, 1.0).unwrap();
        let expected = graph.evaluate(std::slice::from_ref(&x)).unwrap();
        let compiled = compiled(graph, profile);
        let inputs = [x];
        let program = move |session: Session| {
            let mut mpc = Rss::new(session, CpuEngine::new(1))?;
            Ok(run(&mut mpc, &compiled, &inputs).unwrap())
        };
        for outcome in TestWorld::new(3).try_sessions(program) {
            let got = outcome.unwrap();
            assert_eq!(got[0].shape(), expected[0].shape());
            let error = distance(&got[0], &expected[0]);
            assert!(error < 1e-3, "{profile:?}: {error}");
        }
    }
}
