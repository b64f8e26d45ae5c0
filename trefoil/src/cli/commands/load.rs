//! `trefoil load`: how many answers a second the servers give, and how soon.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use ring_arith::{Shape, Tensor};
use serde::Serialize;

use crate::{
    base::{
        Error, Result,
        format::{seconds, table},
    },
    cli::{
        arguments::{Global, Load},
        output::Output,
    },
    client::Client,
    wire::PublicModel,
};

/// Bars of the curve, and the characters of the longest.
const BARS: usize = 12;
const WIDTH: usize = 40;

/// The results of the measurement.
#[derive(Debug, Serialize)]
struct Report {
    model: String,
    clients: usize,
    /// The number of examples of each job.
    examples: usize,
    /// Jobs asked for a second; as many as are answered, unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<f64>,
    seconds: f64,
    answers: usize,
    answers_per_second: f64,
    latency: Latency,
    curve: Vec<Bar>,
    /// The number of failures, by their reason.
    failures: BTreeMap<String, usize>,
}

/// Seconds from the moment at which a job was to be asked for to its answer.
#[derive(Debug, Default, Clone, Serialize)]
struct Latency {
    least: f64,
    median: f64,
    p95: f64,
    p99: f64,
    most: f64,
}

/// Answers that took longer than those of the bar before and at most `seconds` seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Bar {
    seconds: f64,
    answers: usize,
}

/// The state that the clients share.
struct Course {
    began: Instant,
    lasts: Duration,
    rate: Option<f64>,
    /// Jobs begun.
    next: AtomicUsize,
    took: Mutex<Vec<f64>>,
    failures: Mutex<BTreeMap<String, usize>>,
}

pub(super) fn run(arguments: &Load, global: &Global, output: Output) -> Result<()> {
    let mut clients = vec![super::connect(global)?];
    let PublicModel { version, about, .. } = clients[0].model(&arguments.model)?;
    let examples = about.batch.unwrap_or(arguments.examples);
    // The time does not depend on the numbers.
    let input = |dims: &[usize]| Ok(Tensor::zeros(Shape::new(about.shape_of(examples, dims))?));
    let inputs = about.inputs.iter().map(|input_of| input(&input_of.dims));
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    while clients.len() < arguments.clients {
        clients.push(super::connect(global)?);
    }
    let progress = output.progress("asking");
    // The first answer loads the model.
    clients[0].infer(&arguments.model, version, &inputs, false, &())?;
    let course = Course {
        began: Instant::now(),
        lasts: Duration::from_secs(arguments.seconds),
        rate: arguments.rate,
        next: AtomicUsize::new(0),
        took: Mutex::default(),
        failures: Mutex::default(),
    };
    let ask = |client: &mut Client| {
        client.infer(&arguments.model, version, &inputs, false, &()).map(drop)
    };
    thread::scope(|scope| {
        for client in clients {
            scope.spawn(|| course.follow(client, global, ask));
        }
    });
    drop(progress);
    let seconds = course.began.elapsed().as_secs_f64();
    let mut took = course.took.into_inner().unwrap_or_else(PoisonError::into_inner);
    took.sort_by(f64::total_cmp);
    let report = Report {
        model: arguments.model.clone(),
        clients: arguments.clients,
        examples,
        rate: arguments.rate,
        seconds,
        answers: took.len(),
        answers_per_second: took.len() as f64 / seconds,
        latency: Latency::of(&took),
        curve: curve(&took),
        failures: course.failures.into_inner().unwrap_or_else(PoisonError::into_inner),
    };
    output.result(&report, || report.text())?;
    if let Some((reason, count)) = report.failures.iter().max_by_key(|(_, count)| **count) {
        let failed: usize = report.failures.values().sum();
        let text =
            format!("{failed} of {} jobs failed, {count} of them: {reason}", failed + took.len());
        return Err(Error::refused("servers", text));
    }
    Ok(())
}

impl Course {
    /// Asks again and again until the time is over.
    fn follow(&self, client: Client, global: &Global, ask: impl Fn(&mut Client) -> Result<()>) {
        let mut client = Some(client);
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let due = match self.rate {
                Some(rate) => self.began + Duration::from_secs_f64(number as f64 / rate),
                None => Instant::now(),
            };
            if due.saturating_duration_since(self.began) >= self.lasts {
                return;
            }
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let ended = match &mut client {
                Some(client) => ask(client),
                None => super::connect(global).and_then(|fresh| ask(client.insert(fresh))),
            };
            match ended {
                Ok(()) => lock(&self.took).push(due.elapsed().as_secs_f64()),
                Err(error) => {
                    // A client cannot be used after an error.
                    client = None;
                    *lock(&self.failures).entry(error.to_string()).or_default() += 1;
                }
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Latency {
    /// The latency figures of times in ascending order.
    fn of(took: &[f64]) -> Self {
        let at = |part: f64| {
            let rank = (part * took.len() as f64).ceil() as usize;
            took.get(rank.clamp(1, took.len().max(1)) - 1).copied().unwrap_or(0.0)
        };
        Self { least: at(0.0), median: at(0.5), p95: at(0.95), p99: at(0.99), most: at(1.0) }
    }
}

/// The number of answers took how long, from the shortest to the longest in steps of equal ratio.
fn curve(took: &[f64]) -> Vec<Bar> {
    let (Some(&least), Some(&most)) = (took.first(), took.last()) else { return Vec::new() };
    let ratio = (most / least).powf(1.0 / BARS as f64);
    let end = |bar: usize| if bar == BARS { most } else { least * ratio.powi(bar as i32) };
    let below = |end: f64| took.partition_point(|&time| time <= end);
    let mut counted = 0;
    let bars = (1..=BARS).map(|bar| {
        let answers = below(end(bar)) - counted;
        counted += answers;
        Bar { seconds: end(bar), answers }
    });
    bars.collect()
}

impl Report {
    fn text(&self) -> String {
        let Latency { least, median, p95, p99, most } = self.latency;
        let of = |examples: usize| if examples == 1 { "" } else { " batches" };
        let mut text = format!(
            "{}: {} clients, {:.1} answers{} a second over {}\n\n{}\n",
            self.model,
            self.clients,
            self.answers_per_second,
            of(self.examples),
            seconds(self.seconds),
            table(
                &["least", "median", "95 %", "99 %", "most"],
                &[[least, median, p95, p99, most].map(seconds).to_vec()]
            )
        );
        let longest = self.curve.iter().map(|bar| bar.answers).max().unwrap_or(0).max(1);
        let bars = self.curve.iter().map(|bar| {
            let length = (bar.answers * WIDTH).div_ceil(longest);
            vec![seconds(bar.seconds), bar.answers.to_string(), "#".repeat(length)]
        });
        let bars: Vec<_> = bars.collect();
        if !bars.is_empty() {
            text.push('\n');
            text.push_str(&table(&["within", "answers", ""], &bars));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let took: Vec<f64> = (1..=100).map(f64::from).collect();
        let Latency { least, median, p95, p99, most } = Latency::of(&took);
        assert_eq!([least, median, p95, p99, most], [1.0, 50.0, 95.0, 99.0, 100.0]);
        let Latency { least, median, p95, p99, most } = Latency::of(&[2.0]);
        assert_eq!([least, median, p95, p99, most], [2.0; 5]);
        assert_eq!(Latency::of(&[]).most, 0.0);
    }

    #[test]
    fn the_curve_counts_every_answer_once() {
        assert_eq!(curve(&[]), []);
        for took in [vec![0.5], vec![0.1, 0.1, 0.1], (1..500).map(|n| f64::from(n) / 7.0).collect()]
        {
            let bars = curve(&took);
            assert_eq!(bars.iter().map(|bar| bar.answers).sum::<usize>(), took.len());
            assert_eq!(bars.last().unwrap().seconds, *took.last().unwrap());
        }
    }
}
