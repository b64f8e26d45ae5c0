//! The cost of calls since the last report.

use std::{collections::HashMap, time::Duration};

use net::{Report, Stats};

use crate::party::Reply;

/// The counts since the last report.
#[derive(Default)]
pub(crate) struct Ledger {
    /// Of sessions that ended since.
    past: Vec<Report>,
    seconds: f64,
    /// By step: seconds and calls.
    steps: HashMap<String, (f64, u64)>,
}

/// Bytes, messages, rounds and seconds, and for each step its name, bytes, rounds, seconds and calls.
pub(crate) type Total = (u64, u64, u32, f64, Vec<Step>);

/// A step's name, bytes, rounds, seconds and calls.
pub(crate) type Step = (String, u64, u32, f64, u64);

impl Ledger {
    /// Adds the traffic that a session's parties have sent.
    pub(crate) fn sent(&mut self, stats: &[Stats]) {
        if !stats.is_empty() {
            self.past.push(Report::of(stats));
        }
    }

    /// Adds the duration of a call: by layer where it ran a plan.
    pub(crate) fn took(&mut self, step: &str, took: Duration, replies: &[Reply]) {
        self.seconds += took.as_secs_f64();
        let layers = replies.first().map(|reply| &reply.layers[..]).unwrap_or_default();
        if layers.is_empty() {
            return self.add(step, took.as_secs_f64());
        }
        for (index, (name, _)) in layers.iter().enumerate() {
            // A party that only sends in a layer is done with it at once.
            let each = replies.iter().filter_map(|reply| reply.layers.get(index));
            let slowest = each.map(|(_, took)| took.as_secs_f64()).fold(0.0, f64::max);
            self.add(name, slowest);
        }
    }

    fn add(&mut self, step: &str, seconds: f64) {
        let entry = self.steps.entry(step.to_owned()).or_default();
        *entry = (entry.0 + seconds, entry.1 + 1);
    }

    /// The totals of all sessions and steps.
    pub(crate) fn total(&self) -> Total {
        let mut total = (0, 0, 0);
        let mut steps = Vec::new();
        for report in &self.past {
            total.0 += report.bytes;
            total.1 += report.messages;
            total.2 += report.rounds;
            for step in report.steps.iter().filter(|step| step.messages > 0 || step.rounds > 0) {
                let at = self.place(&mut steps, &step.name);
                steps[at].1 += step.bytes;
                steps[at].2 += step.rounds;
            }
        }
        let mut names: Vec<_> = self.steps.keys().collect();
        names.sort_unstable();
        for name in names {
            self.place(&mut steps, name);
        }
        (total.0, total.1, total.2, self.seconds, steps)
    }

    /// The place of a step among the others.
    fn place(&self, steps: &mut Vec<Step>, name: &str) -> usize {
        steps.iter().position(|step| step.0 == name).unwrap_or_else(|| {
            let (seconds, calls) = self.steps.get(name).copied().unwrap_or_default();
            steps.push((name.to_owned(), 0, 0, seconds, calls));
            steps.len() - 1
        })
    }
}
