//! `cargo xtask train`: whole trainings on shares and in 64-bit floats, of the same plan on real images.
//!
//! Three threads of this process are the parties. Party 0 secret-shares every batch, as an owner of data would,
//! and receives each step's loss. Weights stay shared until the end. The parties read the held-out images
//! privately after each epoch, and only the answers are opened.

mod clear;
mod fetch;
mod parties;
mod private;
mod task;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use models::architectures::Pooling;

use crate::bench::describe;
use crate::curve::{Curve, Point};
use crate::gpu::commit;
use crate::report::CURVES;
use task::Task;

/// The folder for packages and data.
const DATA: &str = "target/data";

/// The data sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// Digits: LeNet
    Mnist,
    /// Clothes: LeNet
    Fashion,
    /// Photographs of ten classes: ResNet-8 with batch normalisation
    Cifar10,
}

/// Trains a network on shares and in 64-bit floats, and draws both curves.
#[derive(Parser, Clone, Debug)]
#[command(name = "cargo xtask train", bin_name = "cargo xtask train")]
pub struct Options {
    /// The images
    #[arg(value_enum)]
    pub name: Name,
    /// Epochs, each of which uses every image once: 3, for CIFAR-10 5
    #[arg(long)]
    pub epochs: Option<u32>,
    /// Train on only this many images, the first ones, to save time
    #[arg(long)]
    pub images: Option<usize>,
    /// Stop after this many steps, to measure the time of a step; writes nothing
    #[arg(long)]
    pub steps: Option<u32>,
    /// Images of a step
    #[arg(long, default_value_t = 128)]
    pub batch: usize,
    /// The largest learning rate: 0.05, for CIFAR-10 0.1
    #[arg(long)]
    pub rate: Option<f64>,
    /// Train a small network with differential privacy: this epsilon at delta 1e-5, for one who knows the order of the
    /// images. Nothing is written
    #[arg(long)]
    pub epsilon: Option<f64>,
    /// The largest norm of an image's gradient, with --epsilon
    #[arg(long, default_value_t = 1.0)]
    pub clip: f64,
    /// Pooling of LeNet
    #[arg(long, value_enum, default_value = "max")]
    pub pooling: Pools,
    /// Threads of each party
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// Only in floats, to look for a learning rate; nothing is written
    #[arg(long)]
    pub only_plaintext: bool,
    /// Only get the data
    #[arg(long)]
    pub only_data: bool,
}

/// The pooling of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pools {
    /// By maxima
    Max,
    /// By averages
    Average,
}

impl From<Pools> for Pooling {
    fn from(pools: Pools) -> Self {
        match pools {
            Pools::Max => Pooling::Max,
            Pools::Average => Pooling::Average,
        }
    }
}

/// The results after an epoch, on shares or in floats.
pub(crate) struct Epoch {
    pub(crate) number: u32,
    /// Mean of the steps' losses.
    pub(crate) loss: f64,
    /// The fraction of the held-out images that are classified correctly.
    pub(crate) accuracy: f64,
    /// Seconds of its steps.
    pub(crate) seconds: f64,
}

/// Runs the training that the command line asks for.
///
/// # Errors
/// If the data cannot be had, a party fails, or a file cannot be written.
pub fn main() -> Result<()> {
    let options = Options::parse();
    // Hours may pass before it is written down.
    let commit = commit();
    ensure!(options.batch > 0 && options.epochs != Some(0), "a training has images and epochs");
    let [mut train, test] = fetch::images(options.name)?;
    if let Some(images) = options.images {
        let some: Vec<usize> = (0..images.min(train.len())).collect();
        train = train.rows(&some)?;
    }
    eprintln!("{} images, {} held out", train.len(), test.len());
    if options.only_data {
        return Ok(());
    }
    let task = Task::new(&options, train, test)?;
    eprintln!("{}", task.describe());
    if options.epsilon.is_some() {
        return private::train(&task, options.threads);
    }
    let clear = clear::train(&task)?;
    if options.only_plaintext {
        return Ok(());
    }
    let (private, cost) = parties::train(&task, options.threads)?;
    eprintln!(
        "a step on shares: {:.3} s, {:.2} MB a party; in floats {:.3} s",
        cost.seconds,
        cost.bytes as f64 / 1e6,
        clear.seconds,
    );
    if options.steps.is_some() {
        let all = f64::from(task.steps()) * cost.seconds / 3600.0;
        eprintln!("all {} steps would take {all:.2} hours on shares", task.steps());
        return Ok(());
    }
    let point = |(private, clear): (&Epoch, &Epoch)| Point {
        epoch: private.number + 1,
        loss: [private.loss, clear.loss],
        accuracy: [private.accuracy, clear.accuracy],
        seconds: [private.seconds, clear.seconds],
    };
    let curve = Curve {
        name: task.name().to_owned(),
        network: task.network.to_owned(),
        batch: options.batch,
        steps: task.steps(),
        images: task.images(),
        held_out: task.test.len(),
        seconds_a_step: cost.seconds,
        bytes_a_step: cost.bytes,
        engine: cost.engine,
        threads: options.threads,
        machine: describe(),
        commit,
        losses: losses(&cost.losses, &clear.losses),
        epochs: private.iter().zip(&clear.epochs).map(point).collect(),
    };
    println!("{}", curve.table());
    let path = PathBuf::from(CURVES).join(format!("{}.json", curve.name));
    fs::create_dir_all(CURVES)?;
    fs::write(&path, serde_json::to_string_pretty(&curve)? + "\n")
        .with_context(|| format!("cannot write {}", path.display()))?;
    let chart = PathBuf::from("target").join(format!("train-{}.svg", curve.name));
    curve.draw(&chart)?;
    println!("{} and {} are written", path.display(), chart.display());
    Ok(())
}

/// Losses of private steps and those in floats: means over equal parts of the training, at most 100.
fn losses(private: &[f64], clear: &[f64]) -> Vec<[f64; 3]> {
    let each = private.len().div_ceil(100).max(1);
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let parts = private.chunks(each).zip(clear.chunks(each)).enumerate();
    parts
        .map(|(i, (private, clear))| {
            let end = (i * each + private.len()) as f64;
            [end, mean(private), mean(clear)]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::losses;

    #[test]
    fn a_curve_has_at_most_a_hundred_points_and_ends_with_the_last_step() {
        let private: Vec<f64> = (0..250).map(f64::from).collect();
        let curve = losses(&private, &vec![1.0; 250]);
        assert_eq!(curve.len(), 84);
        assert_eq!(curve[0], [3.0, 1.0, 1.0]);
        assert_eq!(curve[83], [250.0, 249.0, 1.0]);
        assert!(losses(&[], &[]).is_empty());
    }
}
