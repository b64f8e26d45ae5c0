//! Three parties train a network on points that none of them sees: inside or outside a ring. Each party is a
//! thread of this program; weights stay shared from step to step.

use mpc_core::{Operand, Protocol, TestWorld};
use net::Party;
use nn_layers::train::{Metric, Optimiser, Schedule, TrainOptions, TrainPlan};
use nn_layers::{Binary, Dim, Graph, HostTensor, Op, Result, Unary, ValueId};
use ring_arith::{CpuEngine, EngineTensor, Tensor};
use rss_protocols::Rss;

const BATCH: usize = 64;
const STEPS: u32 = 60;
const RATE: f64 = 0.5;

fn main() -> Result<()> {
    let mut graph = Graph::new(BATCH);
    let x = graph.input("points", &[Dim::Batch(1), Dim::Fixed(2)])?;
    let hidden = dense(&mut graph, "hidden", x, [16, 2])?;
    let hidden = graph.add("relu", Op::Unary(Unary::Relu), &[hidden])?;
    let logits = dense(&mut graph, "output", hidden, [2, 16])?;
    graph.train(|_| true);
    let options = TrainOptions::default()
        .with_optimiser(Optimiser::sgd(0.9))
        .with_largest_rate(RATE)
        .with_metrics([Metric::Loss, Metric::Right]);
    let (plan, start) = TrainPlan::new(&graph, logits, &options)?;

    let batches = (0..STEPS).map(batch).collect::<Result<Vec<_>>>()?;
    let words = batches.iter().map(|b| plan.encode_batch(b)).collect::<Result<Vec<_>>>()?;
    let state = plan.encode_state(&start)?;
    let shared_plan = plan.clone();
    let curve = TestWorld::new(3).run(
        |session| Rss::new(session, CpuEngine::new(1)),
        move |mpc| train(mpc, &shared_plan, &state, &words),
    );

    let schedule = Schedule::cosine(RATE, STEPS);
    let mut state = start;
    let first_metric = plan.state().len();
    for (step, (private, batch)) in (0..STEPS).zip(curve[0].iter().zip(&batches)) {
        let float = plan.step_in_the_clear(&mut state, batch, schedule.step(step))?;
        if step % 10 == 9 {
            let loss = plan.step_plan().decode_output(first_metric, &private[0])?;
            let right = plan.step_plan().decode_output(first_metric + 1, &private[1])?;
            println!(
                "step {:2}: loss {:.4} on shares, {:.4} in floats; right {} and {} of {BATCH}",
                step + 1,
                loss.floats()[0] / BATCH as f64,
                float[0].floats()[0] / BATCH as f64,
                right.floats()[0],
                float[1].floats()[0],
            );
        }
    }
    Ok(())
}

/// The program of each party; party 0 owns the points. The metrics are opened to all for the sake of the
/// example.
fn train(
    mpc: &mut Rss<CpuEngine>,
    plan: &TrainPlan,
    state: &[Tensor],
    batches: &[Vec<Tensor>],
) -> mpc_core::Result<Vec<Vec<Tensor>>> {
    let schedule = Schedule::cosine(RATE, STEPS);
    let shares = share(mpc, state)?;
    let mut state = plan.secret_state(shares).expect("the shares are those of the plan's state");
    let mut curve = vec![];
    for (step, batch) in (0..STEPS).zip(batches) {
        let shares = share(mpc, batch)?;
        let batch: Vec<Operand<_>> = plan.step_plan().secret_inputs(shares);
        let seen = plan
            .step(mpc, &mut state, &batch, schedule.step(step), &mut ())
            .expect("a plan that was made runs on shares of its state");
        let seen: Vec<_> = seen.iter().map(|sum| sum.share()).collect();
        curve.push(mpc.open(&seen)?);
    }
    Ok(curve)
}

/// Shares tensors that party 0 has.
fn share<P: Protocol>(mpc: &mut P, words: &[Tensor]) -> mpc_core::Result<Vec<P::Share>>
where
    P::Engine: ring_arith::Engine<Tensor = Tensor>,
{
    let shapes: Vec<_> = words.iter().map(|word| word.shape().clone()).collect();
    let mine = mpc.me() == Party(0);
    mpc.input(Party(0), &shapes, mine.then_some(words))
}

/// Points in a square, and whether each lies in a ring around its middle.
fn batch(step: u32) -> Result<[HostTensor; 2]> {
    let (mut points, mut labels) = (vec![], vec![]);
    for i in 0..BATCH {
        let n = f64::from(step) * BATCH as f64 + i as f64;
        let [x, y] = [0.618_034, 0.754_878].map(|c| (n * c).fract() * 2.0 - 1.0);
        let inside = (0.4..0.9).contains(&x.hypot(y));
        points.extend([x, y]);
        labels.extend([i64::from(inside), i64::from(!inside)]);
    }
    Ok([HostTensor::new([BATCH, 2], points)?, HostTensor::integers([BATCH, 2], labels)?])
}

/// `x * w^T + b` with weights that anybody could make, and zeros.
fn dense(graph: &mut Graph, name: &str, x: ValueId, size: [usize; 2]) -> Result<ValueId> {
    let scale = (3.0 / size[1] as f64).sqrt();
    let weights = (0..size[0] * size[1]).map(|i| (f64::from(i as u32) * 2.4).sin() * scale);
    let w = graph.weight(&format!("{name}.w"), HostTensor::new(size, weights.collect())?);
    let b = graph.weight(&format!("{name}.b"), HostTensor::new([size[0]], vec![0.0; size[0]])?);
    let product = Op::MatMul { transpose_lhs: false, transpose_rhs: true };
    let y = graph.add(name, product, &[x, w])?;
    graph.add(name, Op::Binary(Binary::Add), &[y, b])
}
