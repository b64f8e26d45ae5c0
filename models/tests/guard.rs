//! The guard notices a layer of a network whose numbers leave their range.

use models::architectures::{Pooling, RandomWeights, by_name};
use mpc_core::TestWorld;
use nn_layers::{Compiled, HostTensor, PlanOptions};
use ring_arith::CpuEngine;
use rss_protocols::Rss;

use crate::common::{distance, run_watched};

/// Set to measure with all magnitudes; otherwise every third.
const VARIABLE: &str = "TREFOIL_GUARD";

/// A kernel with its weights, or those of its first output channel, larger by a power of two.
fn larger(kernel: &HostTensor, channel: bool, power: i32) -> HostTensor {
    // Kernels of convolutions begin with their outputs; those of dense layers end with them.
    let (dims, rank) = (kernel.dims(), kernel.dims().len());
    let outputs = if rank == 2 { dims[1] } else { dims[0] };
    let first = |at: usize| {
        if rank == 2 { at.is_multiple_of(outputs) } else { at < kernel.len() / outputs }
    };
    let factor = |at: usize| if channel && !first(at) { 1.0 } else { f64::from(power).exp2() };
    let values = kernel.floats().iter().enumerate().map(|(at, v)| v * factor(at)).collect();
    HostTensor::new(dims, values).unwrap()
}

/// Every layer of three networks, the whole layer or one channel of it, with weights larger by powers of two: wrong
/// answers end in an error, but for one in a thousand.
#[test]
fn wrong_answers_are_noticed_whichever_layer_leaves_its_range() {
    let every = if std::env::var_os(VARIABLE).is_some() { 1 } else { 3 };
    let powers: Vec<i32> = (22..40).step_by(2 * every).collect();
    let (mut layers, mut wrong, mut noticed, mut alarms) = (0, 0, 0, 0);
    for name in ["lenet", "small-cnn", "resnet8"] {
        let mut random = RandomWeights::new(11);
        let graph = by_name(name, Pooling::Max, &mut random).unwrap();
        let honest = Compiled::new(&graph, &PlanOptions::default()).unwrap();
        let dims = honest.plan.input_shapes(1).unwrap().remove(0).dims().to_vec();
        let input = random.around(&dims, 0.5, 0.5).unwrap();
        let kernels: Vec<_> =
            (0..honest.weights.len()).filter(|&at| honest.weights[at].dims().len() > 1).collect();
        layers += kernels.len();
        let cases = kernels.into_iter().flat_map(|at| [false, true].map(|channel| (at, channel)));
        for (at, channel) in cases {
            let made: Vec<_> = powers
                .iter()
                .map(|&power| {
                    let mut weights = honest.weights.clone();
                    weights[at] = larger(&weights[at], channel, power);
                    Compiled { plan: honest.plan.clone(), weights }
                })
                .collect();
            let (ours, x) = (made.clone(), input.clone());
            let run = move |mpc: &mut Rss<CpuEngine>| {
                let each = ours.iter().map(|own| run_watched(mpc, own, std::slice::from_ref(&x)));
                Ok(each.map(|ran| ran.map_err(|e| e.to_string())).collect::<Vec<_>>())
            };
            let world = TestWorld::new(3).with_seed(5);
            let outcomes =
                world.run(|session| Rss::new(session, CpuEngine::new(1)), run).swap_remove(0);
            for (compiled, ran) in made.iter().zip(outcomes) {
                // Weights without an encoding are refused.
                let Ok((results, left)) = ran else {
                    assert!(ran.unwrap_err().contains("weight"));
                    continue;
                };
                let right = compiled.plan.evaluate(&compiled.weights, std::slice::from_ref(&input));
                let right = right.unwrap().remove(0);
                let largest = right.floats().iter().fold(0.0, |most: f64, v| v.abs().max(most));
                let is_wrong = distance(&results[0], &right) > largest / 1e2;
                let calls = left.iter().any(|word| *word != 0);
                wrong += usize::from(is_wrong);
                noticed += usize::from(is_wrong && calls);
                alarms += usize::from(!is_wrong && calls);
            }
        }
    }
    println!(
        "{layers} layers: {noticed} of {wrong} wrong answers noticed, {alarms} right ones called wrong"
    );
    assert!(wrong > layers * powers.len() && noticed * 1000 >= wrong * 999, "{noticed} of {wrong}");
}
