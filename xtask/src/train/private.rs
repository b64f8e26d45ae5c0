//! A training with differential privacy on shares, and the same in 64-bit floats with the same noise.
//!
//! That party 0 may do the same in floats, the parties open their noise to it: a real training never does.

use std::time::Instant;

use anyhow::Result;
use mpc_core::{Operand, Protocol as _};
use net::{Party, Session};
use nn_layers::HostTensor;
use nn_layers::train::State;
use ring_arith::Shape;

use super::task::Task;
use super::{clear, parties};
use crate::bench::party::{self, Mpc, Setup, input, open};

/// Trains, and prints after each epoch the accuracy of both trainings and the privacy of an image.
pub(super) fn train(task: &Task, threads: usize) -> Result<()> {
    let setup = Setup::in_process(threads);
    party::threads("train", &setup, |session| run(task, session, &setup))?;
    Ok(())
}

/// One party's part.
fn run(task: &Task, session: Session, setup: &Setup) -> Result<()> {
    let (mut mpc, meter) = party::join(session, setup)?;
    let first = mpc.me() == Party(0);
    let words = if first { Some(task.plan.encode_state(&task.start)?) } else { None };
    let shapes: Vec<Shape> = task.plan.state().into_iter().map(|spec| spec.shape).collect();
    let mut state = task.plan.secret_state(input(&mut mpc, &shapes, words.as_deref())?)?;
    let mut floats = task.start.clone();
    let mut seconds = 0.0;
    let mut bytes = 0;
    let mut step = 0;
    while step < task.last() {
        let epoch = step / task.epoch_steps();
        for rows in task.epoch(epoch) {
            if step == task.last() {
                break;
            }
            let before = meter.stats().bytes_sent();
            seconds += one(task, &mut mpc, (&mut state, &mut floats), (step, &rows))?;
            bytes = meter.stats().bytes_sent() - before;
            step += 1;
            if first && step % 20 == 0 {
                let each = seconds / f64::from(step);
                eprintln!("step {step}/{}  {each:.3} s a step on shares", task.last());
            }
        }
        if task.is_cut() {
            continue;
        }
        let shared = 100.0 * parties::accuracy(task, &mut mpc, &state)?;
        if first {
            let clear = 100.0 * clear::accuracy(task, &floats)?;
            let told = task.told(epoch + 1)?;
            println!(
                "epoch {}: held out {shared:.2} % on shares, {clear:.2} % in floats; {told}",
                epoch + 1
            );
        }
    }
    if first {
        let each = seconds / f64::from(step.max(1));
        println!(
            "a step: {each:.3} s, {:.2} MB a party, opened noise included",
            bytes as f64 / 1e6
        );
    }
    mpc.close()?;
    Ok(())
}

/// One step of both, on a batch that party 0 shares. Returns the seconds of that on shares.
fn one(
    task: &Task,
    mpc: &mut Mpc,
    (state, floats): (&mut State<Mpc>, &mut Vec<HostTensor>),
    (number, rows): (u32, &[usize]),
) -> Result<f64> {
    let first = mpc.me() == Party(0);
    let values = task.batch(rows)?;
    let words = if first { Some(task.plan.encode_batch(&values)?) } else { None };
    let shares = input(mpc, &task.plan.batch_shapes()?, words.as_deref())?;
    let batch: Vec<Operand<Mpc>> = task.plan.step_plan().secret_inputs(shares);
    party::barrier(mpc)?;
    let clock = Instant::now();
    let noise = task.plan.noise(mpc)?;
    let mut seconds = clock.elapsed().as_secs_f64();
    let opened = opened(mpc, &noise)?;
    let clock = Instant::now();
    task.plan.step_with_noise(mpc, state, &batch, task.step(number), noise, &mut ())?;
    seconds += clock.elapsed().as_secs_f64();
    if first {
        task.plan.step_in_the_clear_with_noise(floats, &values, task.step(number), &opened)?;
    }
    Ok(seconds)
}

/// The numbers of the noise.
fn opened(mpc: &mut Mpc, noise: &[Operand<Mpc>]) -> Result<Vec<HostTensor>> {
    let mut numbers = vec![];
    for tensor in noise {
        let Operand::Secret(tensor) = tensor else { continue };
        let words = open(mpc, &[tensor.share()])?;
        let unit = (-f64::from(tensor.frac())).exp2();
        let values = words[0].words().iter().map(|&w| w as i64 as f64 * unit).collect();
        numbers.push(HostTensor::new(tensor.shape().dims(), values)?);
    }
    Ok(numbers)
}
