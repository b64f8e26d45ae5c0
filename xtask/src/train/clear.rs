//! The training in 64-bit floats.

use std::time::Instant;

use anyhow::Result;
use nn_layers::HostTensor;

use super::Epoch;
use super::task::Task;

/// A training in floats.
pub(super) struct Clear {
    pub(super) epochs: Vec<Epoch>,
    /// The loss of each step.
    pub(super) losses: Vec<f64>,
    /// Seconds of a step.
    pub(super) seconds: f64,
}

pub(super) fn train(task: &Task) -> Result<Clear> {
    let mut state = task.start.clone();
    let mut clear = Clear { epochs: Vec::new(), losses: Vec::new(), seconds: 0.0 };
    let mut step = 0;
    let mut all = 0.0;
    while step < task.last() {
        let number = step / task.epoch_steps();
        let began = step as usize;
        let clock = Instant::now();
        for rows in task.epoch(number) {
            if step == task.last() {
                break;
            }
            let metrics =
                task.plan.step_in_the_clear(&mut state, &task.batch(&rows)?, task.step(step))?;
            let loss = metrics[0].floats().iter().sum::<f64>() / rows.len() as f64;
            clear.losses.push(loss);
            step += 1;
            if step % 20 == 0 {
                let seconds = clock.elapsed().as_secs_f64() / (step as usize - began) as f64;
                eprintln!(
                    "in floats  step {step}/{}  loss {loss:.4}  {seconds:.3} s a step",
                    task.last()
                );
            }
        }
        let seconds = clock.elapsed().as_secs_f64();
        all += seconds;
        if task.is_cut() {
            continue;
        }
        let losses = &clear.losses[began..];
        let loss = losses.iter().sum::<f64>() / losses.len() as f64;
        let accuracy = accuracy(task, &state)?;
        eprintln!(
            "in floats  epoch {}  loss {loss:.4}  held out {:.2} %",
            number + 1,
            100.0 * accuracy
        );
        clear.epochs.push(Epoch { number, loss, accuracy, seconds });
    }
    clear.seconds = all / f64::from(step.max(1));
    Ok(clear)
}

pub(super) fn accuracy(task: &Task, state: &[HostTensor]) -> Result<f64> {
    let weights = task.plan.finish_in_the_clear(state)?;
    let mut right = 0;
    for rows in task.test_parts() {
        let images = task.test_images(&rows)?;
        let logits = task.plan.inference().evaluate(&weights, std::slice::from_ref(&images))?;
        right += task.right(&rows, &logits[0]);
    }
    Ok(right as f64 / task.test.len() as f64)
}
