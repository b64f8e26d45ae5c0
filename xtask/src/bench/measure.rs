//! Timing: warm-up, repeated runs, median and minimum.

use std::hint::black_box;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::cpu_seconds;

/// The time that a measurement may take.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Effort {
    /// Runs before the clock counts: at least one, and until this has passed.
    pub warm_up: Duration,
    /// Keep running until this has passed ...
    pub total: Duration,
    /// ... but at least so often ...
    pub min_runs: usize,
    /// ... and at most so often.
    pub max_runs: usize,
}

impl Effort {
    /// The effort of a published result: about a second.
    pub const FULL: Effort = Effort {
        warm_up: Duration::from_millis(100),
        total: Duration::from_millis(1000),
        min_runs: 5,
        max_runs: 2000,
    };
    /// The effort of `--quick`: a tenth of a second.
    pub const QUICK: Effort = Effort {
        warm_up: Duration::ZERO,
        total: Duration::from_millis(100),
        min_runs: 2,
        max_runs: 200,
    };
}

/// The times of the runs of one piece of work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Median, in seconds.
    pub median: f64,
    /// Minimum, in seconds.
    pub min: f64,
    /// Number of runs.
    pub runs: usize,
    /// CPU time of one run, averaged, in seconds; all threads of the process together.
    pub cpu: Option<f64>,
}

impl Timing {
    /// Sums up the seconds of single runs. `cpu` is the CPU time of all of them together.
    ///
    /// # Panics
    /// If `seconds` is empty.
    pub fn from_runs(mut seconds: Vec<f64>, cpu: Option<f64>) -> Timing {
        assert!(!seconds.is_empty(), "a timing needs at least one run");
        seconds.sort_by(f64::total_cmp);
        let runs = seconds.len();
        let median = (seconds[(runs - 1) / 2] + seconds[runs / 2]) / 2.0;
        Timing { median, min: seconds[0], runs, cpu: cpu.map(|total| total / runs as f64) }
    }
}

/// Times `work` alone.
pub(super) fn measure<R>(effort: Effort, mut work: impl FnMut() -> R) -> Timing {
    let mut work = || drop(black_box(work()));
    measure_all(effort, &mut [&mut work]).remove(0)
}

/// Times several pieces of work in turn, run by run, so that a changing clock speed affects all
/// alike. The CPU time cannot be separated, so it is given only for a single piece.
pub(super) fn measure_all(effort: Effort, work: &mut [&mut dyn FnMut()]) -> Vec<Timing> {
    let start = Instant::now();
    loop {
        work.iter_mut().for_each(|piece| piece());
        if start.elapsed() >= effort.warm_up {
            break;
        }
    }
    let mut seconds = vec![Vec::new(); work.len()];
    let cpu_before = cpu_seconds().filter(|_| work.len() == 1);
    let start = Instant::now();
    for run in 0..effort.max_runs {
        if run >= effort.min_runs && start.elapsed() >= effort.total * work.len() as u32 {
            break;
        }
        for (piece, seconds) in work.iter_mut().zip(&mut seconds) {
            let start = Instant::now();
            piece();
            seconds.push(start.elapsed().as_secs_f64());
        }
    }
    let cpu = cpu_before.zip(cpu_seconds()).map(|(before, after)| after - before);
    seconds.into_iter().map(|runs| Timing::from_runs(runs, cpu)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_of_runs_is_between_the_middle_two() {
        let timing = Timing::from_runs(vec![4.0, 1.0, 3.0, 2.0], Some(8.0));
        assert_eq!(timing, Timing { median: 2.5, min: 1.0, runs: 4, cpu: Some(2.0) });
    }

    #[test]
    fn work_runs_as_often_as_it_is_counted_plus_the_warm_up() {
        let effort = Effort { min_runs: 7, max_runs: 7, ..Effort::QUICK };
        let mut calls = 0;
        let timing = measure(effort, || calls += 1);
        assert_eq!((timing.runs, calls), (7, 8));
    }
}
