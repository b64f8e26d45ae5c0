//! The training on shares, by three threads of this process.

use std::time::Instant;

use anyhow::{Context, Result};
use mpc_core::{Operand, Protocol as _};
use net::{Meter, Party, Session};
use nn_layers::train::State;
use ring_arith::{Shape, Tensor};

use super::Epoch;
use super::task::Task;
use crate::bench::party::{self, Mpc, Setup, input, open};

/// The parties' measurements of a training.
pub(super) struct Cost {
    /// The loss of each step.
    pub(super) losses: Vec<f64>,
    /// Seconds of a step, without the sharing of its batch and the opening of its loss.
    pub(super) seconds: f64,
    /// Bytes that the busiest party sends in a step.
    pub(super) bytes: u64,
    pub(super) engine: String,
}

pub(super) fn train(task: &Task, threads: usize) -> Result<(Vec<Epoch>, Cost)> {
    let setup = Setup::in_process(threads);
    let parties = party::threads("train", &setup, |session| run(task, session, &setup))?;
    let bytes = parties.iter().map(|(_, cost)| cost.bytes).max().unwrap_or(0);
    let (epochs, cost) = parties.into_iter().next().context("three parties return nothing")?;
    Ok((epochs, Cost { bytes, ..cost }))
}

/// One party's part. All return the same but for the bytes.
fn run(task: &Task, session: Session, setup: &Setup) -> Result<(Vec<Epoch>, Cost)> {
    let (mut mpc, meter) = party::join(session, setup)?;
    let first = mpc.me() == Party(0);
    let words = if first { Some(task.plan.encode_state(&task.start)?) } else { None };
    let shapes: Vec<Shape> = task.plan.state().into_iter().map(|spec| spec.shape).collect();
    let mut state = task.plan.secret_state(input(&mut mpc, &shapes, words.as_deref())?)?;
    let engine = party::names(&mpc)[1].clone();
    let mut cost = Cost { losses: Vec::new(), seconds: 0.0, bytes: 0, engine };
    let mut epochs = Vec::new();
    let mut step = 0;
    while step < task.last() {
        let number = step / task.epoch_steps();
        let began = step as usize;
        let before = cost.seconds;
        for rows in task.epoch(number) {
            if step == task.last() {
                break;
            }
            let loss = one(task, &mut mpc, &meter, &mut state, (step, &rows), &mut cost)?;
            cost.losses.push(loss);
            step += 1;
            if first && step % 20 == 0 {
                let seconds = cost.seconds / f64::from(step);
                let left = f64::from(task.last() - step) * seconds / 60.0;
                eprintln!(
                    "on shares  step {step}/{}  loss {loss:.4}  {seconds:.3} s a step, {left:.1} min left",
                    task.last()
                );
            }
        }
        if task.is_cut() {
            continue;
        }
        let losses = &cost.losses[began..];
        let loss = losses.iter().sum::<f64>() / losses.len() as f64;
        let accuracy = accuracy(task, &mut mpc, &state)?;
        if first {
            let percent = 100.0 * accuracy;
            eprintln!("on shares  epoch {}  loss {loss:.4}  held out {percent:.2} %", number + 1);
        }
        epochs.push(Epoch { number, loss, accuracy, seconds: cost.seconds - before });
    }
    cost.seconds /= f64::from(step.max(1));
    mpc.close()?;
    Ok((epochs, cost))
}

/// One step on a batch that party 0 shares. Returns the batch's mean loss, which is opened.
fn one(
    task: &Task,
    mpc: &mut Mpc,
    meter: &Meter,
    state: &mut State<Mpc>,
    (number, rows): (u32, &[usize]),
    cost: &mut Cost,
) -> Result<f64> {
    let words =
        if mpc.me() == Party(0) { Some(task.plan.encode_batch(&task.batch(rows)?)?) } else { None };
    let shares = input(mpc, &task.plan.batch_shapes()?, words.as_deref())?;
    let batch: Vec<Operand<Mpc>> = task.plan.step_plan().secret_inputs(shares);
    party::barrier(mpc)?;
    let before = meter.stats();
    let clock = Instant::now();
    let metrics = task.plan.step(mpc, state, &batch, task.step(number), &mut ())?;
    cost.seconds += clock.elapsed().as_secs_f64();
    let after = meter.stats();
    cost.bytes = after.bytes_sent() - before.bytes_sent();
    let shares: Vec<_> = metrics.iter().map(|metric| metric.share()).collect();
    let words: Vec<Tensor> = open(mpc, &shares)?;
    Ok(task.plan.decode_metrics(&words)?[0] / rows.len() as f64)
}

/// The part of the held-out images that are read rightly, of which the logits alone are opened.
pub(super) fn accuracy(task: &Task, mpc: &mut Mpc, state: &State<Mpc>) -> Result<f64> {
    let weights = task.plan.finish(mpc, state)?;
    let plan = task.plan.inference();
    let mut right = 0;
    for rows in task.test_parts() {
        let words = if mpc.me() == Party(0) {
            Some([plan.encode_input(0, rows.len(), &task.test_images(&rows)?)?])
        } else {
            None
        };
        let shapes = plan.input_shapes(rows.len())?;
        let shares = input(mpc, &shapes, words.as_ref().map(|words| &words[..]))?;
        let logits = plan.run(mpc, &weights, &plan.secret_inputs(shares), &mut ())?;
        let words = open(mpc, &[logits[0].share()])?;
        right += task.right(&rows, &plan.decode_output(0, &words[0])?);
    }
    Ok(right as f64 / task.test.len() as f64)
}
