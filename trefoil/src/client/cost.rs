//! The cost of a job, combined from the servers.

use mpc_core::Profile;
use serde::Serialize;

use crate::{
    base::format::{bytes, seconds, table},
    wire::Cost,
};

/// The cost of a job at all servers together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Total {
    /// Seconds at the slowest server.
    pub seconds: f64,
    /// Bytes that the servers sent to each other.
    pub bytes: u64,
    /// Rounds.
    pub rounds: u32,
    /// Bytes that the servers took from a dealer's tapes.
    #[serde(skip_serializing_if = "is_zero")]
    pub tape: u64,
    /// The profile, where the servers choose it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// The cost by layer, in the order of execution; empty unless a profile was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<Layer>,
}

/// The predicted cost of jobs at all servers together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Predicted {
    /// Examples in all.
    pub examples: usize,
    /// Bytes that the servers send to each other.
    pub bytes: u64,
    /// Rounds.
    pub rounds: u32,
    /// Bytes that the servers take from a dealer's tapes.
    #[serde(skip_serializing_if = "is_zero")]
    pub tape: u64,
    /// The profile, where the servers choose it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// The cost of each layer, in the order of execution.
    pub layers: Vec<PredictedLayer>,
}

/// The predicted cost of a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PredictedLayer {
    /// Its name in the model.
    pub name: String,
    /// Bytes that the servers send to each other.
    pub bytes: u64,
    /// Rounds.
    pub rounds: u32,
}

/// The cost of a layer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Layer {
    /// Its name in the model.
    pub name: String,
    /// Seconds at each server.
    pub seconds: Vec<f64>,
    /// Bytes that each server sent.
    pub bytes: Vec<u64>,
    /// Rounds.
    pub rounds: u32,
}

impl Predicted {
    /// The sum of the costs that [`crate::local::predict`] counted.
    #[must_use]
    pub fn of(costs: &[Cost], examples: usize) -> Self {
        let Total { bytes, rounds, tape, profile, layers, .. } = Total::of(costs);
        let layers = layers.into_iter().map(|Layer { name, bytes, rounds, .. }| PredictedLayer {
            name,
            bytes: bytes.iter().sum(),
            rounds,
        });
        Self { examples, bytes, rounds, tape, profile, layers: layers.collect() }
    }

    /// Adds a job that runs after the others.
    pub fn add(&mut self, other: &Self) {
        self.examples += other.examples;
        self.profile = self.profile.or(other.profile);
        self.tape += other.tape;
        self.bytes += other.bytes;
        self.rounds += other.rounds;
        for layer in &other.layers {
            match self.layers.iter_mut().find(|mine| mine.name == layer.name) {
                Some(mine) => {
                    mine.bytes += layer.bytes;
                    mine.rounds += layer.rounds;
                }
                None => self.layers.push(layer.clone()),
            }
        }
    }

    /// One line: examples, bytes, rounds.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { examples, rounds, .. } = self;
        let examples = match examples {
            1 => "one example takes".to_owned(),
            many => format!("{many} examples at once take"),
        };
        let between = bytes(self.bytes);
        let (tape, profile) = (taken(self.tape), chosen(self.profile));
        format!("{examples} {between} between the servers and {rounds} rounds{tape}{profile}")
    }
}

impl Total {
    /// Puts together what the servers counted.
    #[must_use]
    pub fn of(costs: &[Cost]) -> Self {
        let start = costs.iter().map(|cost| cost.first_depth).max().unwrap_or(0);
        let end = costs.iter().map(|cost| cost.first_depth + cost.rounds).max().unwrap_or(0);
        let mut total = Self {
            seconds: costs.iter().map(|cost| cost.seconds).fold(0.0, f64::max),
            bytes: costs.iter().map(|cost| cost.bytes).sum(),
            rounds: end.saturating_sub(start),
            tape: costs.iter().map(|cost| cost.tape).sum(),
            profile: costs.iter().find_map(|cost| cost.profile),
            layers: Vec::new(),
        };
        total.add_layers(costs, start);
        total
    }

    /// Adds a job that ran after the others.
    pub fn add(&mut self, other: &Self) {
        self.seconds += other.seconds;
        self.profile = self.profile.or(other.profile);
        self.tape += other.tape;
        self.bytes += other.bytes;
        self.rounds += other.rounds;
        for layer in &other.layers {
            let at = self.layer(&layer.name, layer.bytes.len());
            let mine = &mut self.layers[at];
            mine.rounds += layer.rounds;
            for (mine, more) in mine.seconds.iter_mut().zip(&layer.seconds) {
                *mine += more;
            }
            for (mine, more) in mine.bytes.iter_mut().zip(&layer.bytes) {
                *mine += more;
            }
        }
    }

    /// One line: seconds, bytes, rounds.
    #[must_use]
    pub fn line(&self) -> String {
        let (seconds, sent) = (seconds(self.seconds), bytes(self.bytes));
        let (tape, profile) = (taken(self.tape), chosen(self.profile));
        format!("{seconds}, {sent}, {} rounds{tape}{profile}", self.rounds)
    }

    /// The layers as a table, by layer and party, beside what was predicted of each if it was.
    #[must_use]
    pub fn layer_table(&self, predicted: Option<&Predicted>) -> String {
        let row = |layer: &Layer| {
            let mut row = vec![layer.name.clone()];
            row.extend(layer.seconds.iter().map(|&time| format!("{:.3}", time * 1e3)));
            row.extend(layer.bytes.iter().map(ToString::to_string));
            row.push(layer.rounds.to_string());
            if let Some(predicted) = predicted {
                let found = predicted.layers.iter().find(|known| known.name == layer.name);
                let shown = |of: fn(&PredictedLayer) -> String| found.map_or("-".to_owned(), of);
                row.push(shown(|layer| layer.bytes.to_string()));
                row.push(shown(|layer| layer.rounds.to_string()));
            }
            row
        };
        let rows: Vec<_> = self.layers.iter().map(row).collect();
        let servers = self.layers.first().map_or(0, |layer| layer.bytes.len());
        let mut heading = vec!["layer".to_owned()];
        heading.extend((0..servers).map(|party| format!("ms at {party}")));
        heading.extend((0..servers).map(|party| format!("B from {party}")));
        heading.push("rounds".to_owned());
        if predicted.is_some() {
            heading.extend(["B predicted", "rounds predicted"].map(str::to_owned));
        }
        let heading: Vec<_> = heading.iter().map(String::as_str).collect();
        table(&heading, &rows)
    }

    /// Steps of all servers in their common order; the growth of the largest depth is their rounds.
    fn add_layers(&mut self, costs: &[Cost], start: u32) {
        let longest = costs.iter().map(|cost| cost.steps.len()).max().unwrap_or(0);
        let mut reached = start;
        for at in 0..longest {
            for (party, cost) in costs.iter().enumerate() {
                let Some(step) = cost.steps.get(at) else { continue };
                let layer = self.layer(layer_of(&step.name), costs.len());
                let layer = &mut self.layers[layer];
                layer.seconds[party] += step.seconds;
                layer.bytes[party] += step.bytes;
                layer.rounds += step.depth.saturating_sub(reached);
                reached = reached.max(step.depth);
            }
        }
    }

    fn layer(&mut self, name: &str, servers: usize) -> usize {
        self.layers.iter().position(|layer| layer.name == name).unwrap_or_else(|| {
            let seconds = vec![0.0; servers];
            let bytes = vec![0; servers];
            self.layers.push(Layer { name: name.to_owned(), seconds, bytes, rounds: 0 });
            self.layers.len() - 1
        })
    }
}

/// The profile that the servers chose, if they did.
fn chosen(profile: Option<Profile>) -> String {
    profile.map(|profile| format!(", in profile {profile}")).unwrap_or_default()
}

/// The bytes taken from tapes, if any.
fn taken(tape: u64) -> String {
    if tape == 0 { String::new() } else { format!(", {} from tapes", bytes(tape)) }
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// The layer that a step belongs to. The protocol adds its own steps behind the last `:`.
fn layer_of(step: &str) -> &str {
    if step.is_empty() { "start" } else { step }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::StepCost;

    fn cost(depths: [u32; 3], rounds: u32) -> Cost {
        let names = ["conv", "pool", "conv"];
        let step = |(name, depth): (&str, u32)| StepCost {
            name: name.to_owned(),
            seconds: 0.5,
            bytes: 10,
            depth,
        };
        Cost {
            seconds: 1.5,
            bytes: 30,
            messages: 3,
            rounds,
            first_depth: 4,
            tape: 0,
            profile: None,
            steps: names.into_iter().zip(depths).map(step).collect(),
        }
    }

    #[test]
    fn rounds_are_the_growth_of_the_largest_depth() {
        let costs = [cost([6, 6, 9], 5), cost([5, 8, 9], 5), cost([4, 4, 4], 0)];
        let total = Total::of(&costs);
        assert_eq!((total.rounds, total.bytes), (5, 90));
        let layers: Vec<_> =
            total.layers.iter().map(|layer| (layer.name.as_str(), layer.rounds)).collect();
        assert_eq!(layers, [("conv", 3), ("pool", 2)]);
        assert_eq!(total.layers[0].bytes, [20, 20, 20]);
        assert_eq!(total.layers[1].seconds, [0.5; 3]);
        let mut twice = total.clone();
        twice.add(&total);
        assert_eq!((twice.rounds, twice.layers[0].rounds), (10, 6));
        assert_eq!(twice.layer_table(None).lines().count(), 3);
    }

    #[test]
    fn what_was_predicted_stands_beside_what_was_counted() {
        let costs = [cost([6, 6, 9], 5), cost([5, 8, 9], 5), cost([4, 4, 4], 0)];
        let mut predicted = Predicted::of(&costs, 2);
        assert_eq!((predicted.bytes, predicted.rounds, predicted.examples), (90, 5, 2));
        let conv = PredictedLayer { name: "conv".to_owned(), bytes: 60, rounds: 3 };
        assert_eq!(predicted.layers[0], conv);
        let one = predicted.clone();
        predicted.add(&one);
        assert_eq!((predicted.bytes, predicted.rounds, predicted.examples), (180, 10, 4));
        assert_eq!((predicted.layers[0].bytes, predicted.layers[1].rounds), (120, 4));
        let table = Total::of(&costs).layer_table(Some(&one));
        let conv = table.lines().find(|line| line.starts_with("conv")).unwrap();
        assert!(conv.trim_end().ends_with('3') && conv.contains(" 60 "), "{table}");
    }
}
