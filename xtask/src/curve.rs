//! Training curves: `cargo xtask train` writes and `cargo xtask report` draws them. A curve is a whole
//! training on shares next to the same in 64-bit floats.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::report::chart::{Curves, Series};

/// A whole training. Of two numbers, the first is on shares, the second in floats.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curve {
    /// The images.
    pub name: String,
    /// The trained network.
    pub network: String,
    /// Images of a step.
    pub batch: usize,
    /// Steps in all.
    pub steps: u32,
    /// Images to train on.
    pub images: usize,
    /// Images that accuracy was measured on.
    pub held_out: usize,
    /// Mean seconds of a step on shares.
    pub seconds_a_step: f64,
    /// Bytes that a party sent in a step, the largest of the parties.
    pub bytes_a_step: u64,
    /// The parties' engine.
    pub engine: String,
    /// Threads of each party.
    pub threads: usize,
    /// CPU and cores.
    pub machine: String,
    /// The commit that was run.
    pub commit: String,
    /// Step, and both mean losses up to it from the point before.
    pub losses: Vec<[f64; 3]>,
    /// After each epoch.
    pub epochs: Vec<Point>,
}

/// The results after an epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Counted from 1.
    pub epoch: u32,
    /// Mean losses of its steps.
    pub loss: [f64; 2],
    /// Fractions of the held-out images that were classified correctly.
    pub accuracy: [f64; 2],
    /// Seconds of its steps.
    pub seconds: [f64; 2],
}

impl Curve {
    /// The images, network, machine and time of the training, in words.
    pub fn about(&self) -> String {
        format!(
            "{}: {}, {} images, {} a step; on {}, {} thread(s) a party; a step takes {:.3} s, {:.2} MB a party",
            self.name,
            self.network,
            self.images,
            self.batch,
            self.machine,
            self.threads,
            self.seconds_a_step,
            self.bytes_a_step as f64 / 1e6
        )
    }

    /// Epoch by epoch, as Markdown.
    pub fn table(&self) -> String {
        let mut text = String::from(
            "| epoch | loss on shares | in floats | held out, on shares | in floats |\n|---|---|---|---|---|",
        );
        for point in &self.epochs {
            let [a, b] = point.accuracy.map(|part| 100.0 * part);
            let [x, y] = point.loss;
            text += &format!("\n| {} | {x:.4} | {y:.4} | {a:.2} % | {b:.2} % |", point.epoch);
        }
        text
    }

    /// Draws both losses over the steps.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn draw(&self, path: &Path) -> Result<()> {
        let series = |name: &str, which: usize| Series {
            name: name.to_owned(),
            points: self.losses.iter().map(|point| (point[0], point[which])).collect(),
            joined: true,
        };
        let series = [series("on shares", 1), series("in 64-bit floats", 2)];
        let title = format!("{}: loss of {}", self.name, self.network);
        Curves { title: &title, x: "step", y: "loss", series: &series }.save(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_a_table_and_is_read_as_it_was_written() {
        let point =
            Point { epoch: 1, accuracy: [0.98765, 0.99], loss: [0.5, 0.25], ..Point::default() };
        let curve = Curve { name: "mnist".to_owned(), epochs: vec![point], ..Curve::default() };
        assert!(curve.table().ends_with("| 1 | 0.5000 | 0.2500 | 98.77 % | 99.00 % |"));
        let text = serde_json::to_string(&curve).unwrap();
        assert_eq!(serde_json::from_str::<Curve>(&text).unwrap(), curve);
    }
}
