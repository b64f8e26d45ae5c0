//! A training: the network, its images and their order.

use anyhow::{Result, bail, ensure};
use models::architectures::{Pooling, RandomWeights, by_name};
use models::data::{Dataset, Order};
use nn_layers::HostTensor;
use nn_layers::train::{
    Metric, Optimiser, Privacy, Schedule, Step, TrainOptions, TrainPlan, multiplier_for,
};

use super::{Name, Options, Pools};

/// Classes of every data set here.
const CLASSES: usize = 10;

/// Of the network's start and of the order of the images.
const SEED: u64 = 7;

/// Of epsilon.
const DELTA: f64 = 1e-5;

/// Images that are read at once when accuracy is measured.
const READ: usize = 250;

/// A training: network, data, and course.
pub(super) struct Task {
    name: Name,
    pub(super) network: &'static str,
    pub(super) plan: TrainPlan,
    pub(super) start: Vec<HostTensor>,
    train: Dataset,
    pub(super) test: Dataset,
    order: Order,
    schedule: Schedule,
    epochs: u32,
    /// The last step, if the training is cut short.
    last: u32,
}

impl Task {
    pub(super) fn new(options: &Options, train: Dataset, test: Dataset) -> Result<Self> {
        let name = options.name;
        let (network, epochs, rate, decay) = match name {
            Name::Cifar10 if options.epsilon.is_some() => {
                bail!("a trained batch normalisation cannot be private: take mnist or fashion")
            }
            Name::Mnist | Name::Fashion if options.epsilon.is_some() => ("small-cnn", 3, 0.05, 0.0),
            Name::Mnist | Name::Fashion => ("lenet", 3, 0.05, 0.0),
            Name::Cifar10 => ("resnet8", 5, 0.1, 5e-4),
        };
        let epochs = options.epochs.unwrap_or(epochs);
        let pooling = Pooling::from(options.pooling);
        let graph = by_name(network, pooling, &mut RandomWeights::new(SEED))?;
        let mut graph = graph.for_batch(options.batch)?;
        graph.train(|_| true);
        let rate = options.rate.unwrap_or(rate);
        let train_options = TrainOptions::default()
            .with_optimiser(Optimiser::Sgd { momentum: 0.9, nesterov: false, decay })
            .with_largest_rate(rate);
        let train_options = match options.epsilon {
            None => train_options.with_metrics([Metric::Loss]),
            // Every image takes part once in an epoch, in a step that everybody knows.
            Some(epsilon) => {
                let noise = multiplier_for(epsilon, DELTA, epochs)?;
                train_options.with_privacy(Privacy::new(options.clip, noise).with_delta(DELTA))
            }
        };
        let (plan, start) = TrainPlan::new(&graph, graph.only_output()?, &train_options)?;
        let order = Order::new(train.len(), options.batch, SEED);
        ensure!(order.steps() > 0, "{} images do not fill a batch", train.len());
        let all = epochs * order.steps() as u32;
        let schedule = Schedule::cosine(rate, all).warm_up(100.min(all / 10));
        let last = options.steps.map_or(all, |steps| steps.min(all));
        let network = match (network, options.pooling) {
            ("lenet", Pools::Max) => "LeNet, max pools",
            ("lenet", Pools::Average) => "LeNet, mean pools",
            ("small-cnn", _) => "a small network",
            _ => "ResNet-8, batch normalisation",
        };
        Ok(Self { name, network, plan, start, train, test, order, schedule, epochs, last })
    }

    /// The data set's name.
    pub(super) fn name(&self) -> &'static str {
        match self.name {
            Name::Mnist => "mnist",
            Name::Fashion => "fashion",
            Name::Cifar10 => "cifar10",
        }
    }

    /// Images to train on.
    pub(super) fn images(&self) -> usize {
        self.train.len()
    }

    pub(super) fn describe(&self) -> String {
        format!(
            "{}: {} epochs of {} steps of {} images, rate up to {}",
            self.network,
            self.epochs,
            self.epoch_steps(),
            self.plan.batch(),
            self.schedule.rate
        )
    }

    /// The privacy of an image after `epochs` epochs, in words.
    pub(super) fn told(&self, epochs: u32) -> Result<String> {
        let Some(privacy) = &self.plan.options().privacy else { return Ok(String::new()) };
        let epsilon = privacy.epsilon(epochs)?;
        Ok(format!("epsilon {epsilon:.3} at delta {DELTA:e} with noise {:.3}", privacy.noise))
    }

    /// Steps of the whole training.
    pub(super) fn steps(&self) -> u32 {
        self.epochs * self.epoch_steps()
    }

    /// Steps that are done.
    pub(super) fn last(&self) -> u32 {
        self.last
    }

    /// True if the training stops early, so that its accuracy is not measured.
    pub(super) fn is_cut(&self) -> bool {
        self.last < self.steps()
    }

    pub(super) fn epoch_steps(&self) -> u32 {
        self.order.steps() as u32
    }

    pub(super) fn step(&self, number: u32) -> Step {
        self.schedule.step(number)
    }

    /// The rows of each step of an epoch.
    pub(super) fn epoch(&self, epoch: u32) -> Vec<Vec<usize>> {
        self.order.epoch(epoch)
    }

    /// Images and one-hot labels.
    pub(super) fn batch(&self, rows: &[usize]) -> Result<[HostTensor; 2]> {
        let some = self.train.rows(rows)?;
        let labels = some.one_hot(CLASSES)?;
        Ok([self.normalised(&some.images)?, labels])
    }

    /// Numbers of the held-out images that are read at once.
    pub(super) fn test_parts(&self) -> Vec<Vec<usize>> {
        let all: Vec<usize> = (0..self.test.len()).collect();
        all.chunks(READ).map(<[usize]>::to_vec).collect()
    }

    /// Some of the held-out images.
    pub(super) fn test_images(&self, rows: &[usize]) -> Result<HostTensor> {
        self.normalised(&self.test.images.rows(rows)?)
    }

    /// The number of rows of logits whose largest is at the image's class.
    pub(super) fn right(&self, rows: &[usize], logits: &HostTensor) -> usize {
        let best = |row: &[f64]| (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b]));
        let logits = logits.floats();
        let each = logits.chunks(CLASSES).zip(rows);
        each.filter(|(logits, row)| best(logits) == Some(self.test.labels[**row])).count()
    }

    /// Pixels by mean and deviation of the images to train on, each colour by its own: published numbers.
    fn normalised(&self, images: &HostTensor) -> Result<HostTensor> {
        let statistics: &[[f64; 2]] = match self.name {
            Name::Mnist => &[[0.1307, 0.3081]],
            Name::Fashion => &[[0.2860, 0.3530]],
            Name::Cifar10 => &[[0.4914, 0.2470], [0.4822, 0.2435], [0.4465, 0.2616]],
        };
        let area: usize = images.dims()[2..].iter().product();
        let pixels = images.floats();
        let colours = pixels.chunks(area).zip(statistics.iter().cycle());
        let values = colours.flat_map(|(plane, [mean, deviation])| {
            plane.iter().map(move |p| (p - mean) / deviation)
        });
        Ok(HostTensor::new(images.dims(), values.collect())?)
    }
}
