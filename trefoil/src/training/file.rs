//! The file that describes the training of a run.

use std::path::{Path, PathBuf};

use models::onnx::{self, ImportOptions};
use nn_layers::train::{
    Adam, Decay, Loss, Metric, Optimiser, Privacy, Schedule, Second, TrainOptions, TrainPlan,
    TrainRequest,
};
use ring_arith::Tensor;
use serde::Deserialize;

use super::{Augment, Course, Group, Join, Openings, RunSpec, Task, Used};
use crate::{
    base::{Error, Result, check::check_name},
    model::{Preprocess, import},
};

/// The file that describes a training.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RunFile {
    /// The name of the run.
    pub name: String,
    /// The ONNX file of the network at the start.
    start: PathBuf,
    data: Vec<Sets>,
    /// The name of the model that is made of the trained network.
    pub model: String,
    /// Clients that may run the model.
    #[serde(default)]
    pub readers: Vec<String>,
    #[serde(default)]
    recipients: Vec<String>,
    /// A file of the classes' names.
    pub labels: Option<PathBuf>,
    train: How,
}

/// A data set, several that hold columns of the same rows in the same order, or two that are joined by their keys.
#[derive(Debug, Clone, Deserialize)]
#[serde(
    untagged,
    expecting = "expected the name of a data set, a list of names for columns of the same rows, or \
                 { join = [\"a\", \"b\"], rows = N }"
)]
enum Sets {
    One(String),
    Beside(Vec<String>),
    Joined(Joined),
}

/// Two data sets that are joined by their keys.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Joined {
    join: [String; 2],
    #[serde(default = "default_kind")]
    kind: String,
    rows: Option<usize>,
}

/// The settings of the training.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct How {
    epochs: u32,
    batch: usize,
    rate: f64,
    #[serde(default)]
    warm_up: u32,
    #[serde(default)]
    decay: Fall,
    #[serde(default)]
    loss: Kind,
    #[serde(default)]
    optimiser: Follows,
    #[serde(default)]
    momentum: f64,
    #[serde(default)]
    nesterov: bool,
    #[serde(default)]
    weight_decay: f64,
    /// The largest norm of the batch's gradient; with noise, of each row's.
    clip: Option<f64>,
    /// The noise multiplier.
    noise: Option<f64>,
    /// The delta at which epsilon is stated.
    delta: Option<f64>,
    /// Rows whose mean gradient is clipped together.
    microbatch: Option<usize>,
    #[serde(default)]
    only: Vec<String>,
    /// The network begins with a layer that standardises the columns, by numbers that the servers make of all rows.
    #[serde(default)]
    standardize: bool,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    flip: bool,
    #[serde(default)]
    crop: usize,
    #[serde(default = "default_keep")]
    keep_seconds: u64,
    /// Metrics leave as sums over this many steps; an epoch's unless given.
    metrics_every: Option<u32>,
    /// Steps after which the weights leave, in addition to the last.
    #[serde(default)]
    weights_after: Vec<u32>,
}

/// The schedule of the rate.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Fall {
    #[default]
    None,
    Cosine,
}

/// The loss.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    #[default]
    CrossEntropy,
    BinaryCrossEntropy,
    MeanSquare,
}

/// The optimiser.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Follows {
    #[default]
    Sgd,
    Adam,
    AdamByRow,
}

fn default_keep() -> u64 {
    120
}

fn default_kind() -> String {
    "inner".to_owned()
}

impl RunFile {
    /// Reads the text of a file at `path`. Files that it names are relative to that path.
    ///
    /// # Errors
    /// [`Error::Input`] that states where it is wrong.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let bad = |reason: String| Error::input(path.display(), reason);
        let mut config: Self = toml::from_str(text).map_err(|cause| {
            let at = cause.span().map_or(0, |span| span.start.min(text.len()));
            let line = text[..at].matches('\n').count() + 1;
            bad(format!("line {line}: {}", cause.message()))
        })?;
        for (what, name) in [("name", &config.name), ("model", &config.model)] {
            check_name(what, name).map_err(&bad)?;
        }
        if config.groups().map_err(&bad)?.iter().all(|group| group.names().is_empty()) {
            return Err(bad("`data` names no data set".to_owned()));
        }
        if config.train.epochs == 0 || config.train.batch == 0 {
            return Err(bad("`epochs` and `batch` must be 1 or more".to_owned()));
        }
        let how = &config.train;
        if how.optimiser != Follows::Sgd && (how.momentum != 0.0 || how.nesterov) {
            return Err(
                bad("`momentum` and `nesterov` belong to `optimiser = \"sgd\"`".to_owned()),
            );
        }
        how.privacy().map_err(bad)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        config.start = folder.join(&config.start);
        config.labels = config.labels.map(|labels| folder.join(labels));
        Ok(config)
    }

    /// The data sets, those that stand side by side or are joined together.
    ///
    /// # Errors
    /// A sentence that states why a join is not one.
    pub fn groups(&self) -> Result<Vec<Group>, String> {
        let group = |sets: &Sets| match sets {
            Sets::One(name) => Ok(Group::Beside(vec![name.clone()])),
            Sets::Beside(names) => Ok(Group::Beside(names.clone())),
            Sets::Joined(Joined { join, kind, rows }) => {
                let how = Join::asked(kind, *rows)
                    .map_err(|reason| format!("join of {}: {reason}", join.join(", ")))?;
                Ok(Group::Joined(join.clone(), how))
            }
        };
        self.data.iter().map(group).collect()
    }

    /// The time for which the servers keep a state in memory alone, in seconds.
    pub fn keep_seconds(&self) -> u64 {
        self.train.keep_seconds
    }

    /// The settings of the training.
    ///
    /// # Errors
    /// The settings that do not go together.
    pub fn options(&self) -> Result<TrainOptions, String> {
        let how = &self.train;
        let loss = match how.loss {
            Kind::CrossEntropy => Loss::default(),
            Kind::BinaryCrossEntropy => Loss::BinaryCrossEntropy { positive: vec![] },
            Kind::MeanSquare => Loss::MeanSquare,
        };
        let options = TrainOptions::default()
            .with_loss(loss)
            .with_optimiser(how.optimiser())
            .with_standardize(how.standardize)
            .with_largest_rate(how.rate);
        Ok(match (how.privacy()?, how.clip) {
            // Metrics are sums over training rows, which no noise protects.
            (Some(privacy), _) => options.with_privacy(privacy),
            (None, Some(clip)) => options.with_clip(clip).with_metrics(how.metrics()),
            (None, None) => options.with_metrics(how.metrics()),
        })
    }

    /// The training request, the plan of a step, and the words of the state at the start.
    ///
    /// # Errors
    /// [`Error::Input`] if the network cannot be read, or cannot be trained so.
    pub fn plan(&self) -> Result<(TrainRequest, TrainPlan, Vec<Tensor>)> {
        let what = self.start.display().to_string();
        let bad = |cause: nn_layers::Error| Error::input(&what, cause);
        let graph = import::checked(&what, || {
            onnx::import_file(&self.start, &ImportOptions::default().for_training())
        })?;
        let mut graph = graph.for_batch(self.train.batch).map_err(bad)?;
        let output = graph.only_output().map_err(bad)?;
        let only = &self.train.only;
        let trained =
            graph.train(|name| only.is_empty() || only.iter().any(|part| name.contains(part)));
        if trained.is_empty() {
            let reason = format!("no weight has one of {only:?} in its name");
            return Err(Error::input(&what, reason));
        }
        let options = self.options().map_err(|reason| Error::input(&what, reason))?;
        let (request, plan, start) =
            TrainPlan::with_request(&graph, output, &options).map_err(bad)?;
        let words = plan.encode_state(&start).map_err(bad)?;
        Ok((request, plan, words))
    }

    /// The training on these versions of the data sets, which have `rows` rows, for classes of these names.
    pub fn spec(&self, data: Vec<Used>, rows: usize, labels: Vec<String>) -> RunSpec {
        let how = &self.train;
        let epoch = rows / how.batch;
        let steps = epoch.saturating_mul(how.epochs as usize);
        let openings = Openings::asked(epoch, how.epochs, how.metrics_every, &how.weights_after);
        let decay = match how.decay {
            Fall::None => Decay::None,
            Fall::Cosine => Decay::Cosine(u32::try_from(steps).unwrap_or(u32::MAX)),
        };
        let schedule = Schedule { rate: how.rate, decay, warm_up: how.warm_up };
        let augment = Augment { flip: how.flip, crop: how.crop };
        let course = Course { epochs: how.epochs, seed: how.seed, schedule, augment };
        let preprocess = Preprocess::Scale { white: 1.0 };
        let recipients = self.recipients.clone();
        let task = Task::Training { course, preprocess, labels };
        RunSpec { data, task, openings, recipients }
    }
}

impl How {
    /// The differential privacy, if any.
    fn privacy(&self) -> std::result::Result<Option<Privacy>, String> {
        let Some(noise) = self.noise else {
            return match (self.delta, self.microbatch) {
                (None, None) => Ok(None),
                _ => Err("`delta` and `microbatch` belong to `noise`".to_owned()),
            };
        };
        let clip = self.clip.ok_or("`noise` needs `clip`, the largest norm of a row's gradient")?;
        if self.metrics_every.is_some() {
            return Err(
                "no metrics leave a training with `noise`: leave `metrics-every` out".to_owned()
            );
        }
        let privacy = Privacy::new(clip, noise).with_rows(self.microbatch.unwrap_or(1));
        Ok(Some(self.delta.map_or(privacy, |delta| privacy.with_delta(delta))))
    }

    /// The metrics of a training without noise.
    fn metrics(&self) -> Vec<Metric> {
        match self.loss {
            Kind::CrossEntropy => vec![Metric::Loss, Metric::Right],
            _ => vec![Metric::Loss],
        }
    }

    /// Adam's weight decay is that of AdamW: it leaves the moments alone.
    fn optimiser(&self) -> Optimiser {
        let (momentum, nesterov, decay) = (self.momentum, self.nesterov, self.weight_decay);
        let adam = |second| Adam { decay, decoupled: decay > 0.0, second, ..Adam::default() };
        match self.optimiser {
            Follows::Sgd => Optimiser::Sgd { momentum, nesterov, decay },
            Follows::Adam => Optimiser::Adam(adam(Second::Weight)),
            Follows::AdamByRow => Optimiser::Adam(adam(Second::Row)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(data: &str) -> Result<Vec<Group>> {
        let text = format!(
            "name = \"r\"\nstart = \"n.onnx\"\ndata = {data}\nmodel = \"m\"\n[train]\nepochs = 1\nbatch = 2\nrate = 0.1\n"
        );
        let file = RunFile::parse(&text, Path::new("run.toml"))?;
        Ok(file.groups().unwrap())
    }

    #[test]
    fn data_sets_are_named_alone_side_by_side_and_joined() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let pair = || ["a", "b"].map(str::to_owned);
        let groups = read(
            r#"["x", ["a", "b"], { join = ["a", "b"], rows = 500 }, { join = ["a", "b"], kind = "left" }]"#,
        );
        let wanted = [
            Group::Beside(names(&["x"])),
            Group::Beside(names(&["a", "b"])),
            Group::Joined(pair(), Join::Inner { rows: 500 }),
            Group::Joined(pair(), Join::Left),
        ];
        assert_eq!(groups.unwrap(), wanted);
        for (data, reason) in [
            (r#"[{ join = ["a", "b"] }]"#, "join of a, b: an inner join needs `rows`"),
            (r#"[{ join = ["a", "b"], kind = "left", rows = 5 }]"#, "leave `rows` out"),
            (r#"[{ join = ["a", "b"], kind = "outer", rows = 5 }]"#, "not \"outer\""),
            (r#"[{ join = ["a", "b", "c"], rows = 5 }]"#, "{ join = [\"a\", \"b\"], rows = N }"),
            (r#"[{ join = ["a", "b"], row = 5 }]"#, "line 3: expected the name of a data set"),
            ("[]", "names no data set"),
        ] {
            let said = read(data).unwrap_err().to_string();
            assert!(said.contains(reason) && said.starts_with("run.toml"), "{said}");
        }
    }
}
