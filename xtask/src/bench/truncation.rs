//! Benchmarks of the forms of truncation: their costs and errors.

use std::time::Instant;

use anyhow::{Result, ensure};
use mpc_core::{Finish, Product, Protocol, SplitMix64, TruncationMode};
use net::{Party, Report, Session};
use ring_arith::{Bilinear, Shape, Tensor};

use super::party::{self, Setup};
use super::{Bench, Network, Timing};

/// Fraction bits, and bits dropped.
const FRAC: u32 = 20;

/// Products computed at once.
const BATCH: usize = 1 << 20;

/// Every form, with its name and its largest error in units of the last place; none where large
/// errors happen.
const FORMS: [(&str, TruncationMode, Option<f64>); 5] = [
    ("default", TruncationMode::Default, Some(1.0)),
    ("early", TruncationMode::Early, Some(1.5)),
    ("exact", TruncationMode::Exact, Some(1.0)),
    ("dither", TruncationMode::Dither, Some(1.0)),
    ("aby3_local", TruncationMode::Aby3Local, None),
];

/// Errors against the exact quotient, in units of the last place.
#[derive(Debug, Clone, Copy, Default)]
struct Errors {
    count: f64,
    sum: f64,
    squares: f64,
    largest: f64,
    /// Results that are off by more than two units.
    failures: usize,
    /// Multiples of `2^20` whose results were not exact.
    inexact: usize,
    /// Results that are not the floor.
    above: usize,
}

impl Errors {
    fn add(&mut self, z: i64, y: i64) {
        let unit = 1i128 << FRAC;
        let error = ((i128::from(y) << FRAC) - i128::from(z)) as f64 / unit as f64;
        self.largest = self.largest.max(error.abs());
        self.inexact += usize::from(z & (unit as i64 - 1) == 0 && error != 0.0);
        self.above += usize::from(y != z >> FRAC);
        if error.abs() > 2.0 {
            self.failures += 1;
            return;
        }
        self.count += 1.0;
        self.sum += error;
        self.squares += error * error;
    }

    fn mean(&self) -> f64 {
        self.sum / self.count
    }

    /// The mean's distance from zero in standard errors.
    fn bias(&self) -> f64 {
        let variance = (self.squares / self.count - self.mean().powi(2)).max(0.0);
        self.mean() / (variance / self.count).sqrt().max(f64::MIN_POSITIVE)
    }
}

/// The cases of this module.
///
/// # Errors
/// If a form does not keep its error bound.
pub fn cases(bench: &mut Bench) -> Result<()> {
    let batches = if bench.quick() { 2 } else { 96 };
    let setup = Setup { network: Network::InProcess, ..bench.setup(Network::InProcess) };
    for (name, mode, bound) in FORMS {
        let case_name = format!("truncation/{name}");
        if !bench.wants(&case_name) {
            bench.case(&case_name, |_| Ok(()))?;
            continue;
        }
        let start = Instant::now();
        let (errors, report, names) = measure(mode, batches, &setup)?;
        let seconds = start.elapsed().as_secs_f64() / batches as f64;
        bench.case(&case_name, |case| {
            case.run_by(&names).network(setup.network).threads(setup.threads);
            case.size(format!("{} products below 2^61", batches * BATCH));
            case.timing(Timing::from_runs(vec![seconds], None));
            case.bytes_per_party(report.bytes / 3 / batches as u64);
            case.rounds(u64::from(report.rounds) / batches as u64);
            case.max_abs_error(errors.largest);
            Ok(())
        })?;
        println!(
            "    {name}: largest error {:.4} units, mean {:+.2e} ({:+.1} standard errors), {} failures, \
             {} multiples inexact, {} not the floor",
            errors.largest,
            errors.mean(),
            errors.bias(),
            errors.failures,
            errors.inexact,
            errors.above
        );
        check(name, &errors, bound)?;
    }
    Ok(())
}

/// Holds a form to its promise.
fn check(name: &str, errors: &Errors, bound: Option<f64>) -> Result<()> {
    let Some(bound) = bound else {
        ensure!(errors.failures > 0, "{name} should have shown its failures");
        return Ok(());
    };
    ensure!(errors.failures == 0 && errors.largest < bound, "{name} errs by {}", errors.largest);
    match name {
        "exact" => ensure!(errors.above == 0, "{name}: {} are not the floor", errors.above),
        _ => ensure!(errors.bias().abs() < 5.0, "{name} is biased: {}", errors.bias()),
    }
    ensure!(name == "early" || errors.inexact == 0, "{name}: {} inexact", errors.inexact);
    Ok(())
}

/// Runs a form on batches of products and compares each result with the exact one.
fn measure(
    mode: TruncationMode,
    batches: usize,
    setup: &Setup,
) -> Result<(Errors, Report, [String; 2])> {
    let run = |session: Session| -> Result<_> {
        let (mut mpc, meter) = party::join(session, setup)?;
        let mut errors = Errors::default();
        let (mut bytes, mut rounds) = (0, 0);
        for batch in 0..batches {
            let factors = factors(batch as u64)?;
            let mine = (mpc.me() == Party(0)).then_some(&factors[..]);
            let shapes = [Shape::new([BATCH])?, Shape::new([BATCH])?];
            let x = party::input(&mut mpc, &shapes, mine)?;
            mpc.open(&[&x[0]])?;
            let before = meter.stats();
            let finish = Finish::Truncate { bits: FRAC, mode };
            let y = mpc.product(Product::new(Bilinear::Mul, &x[0], &x[1], finish))?.share;
            let after = meter.stats();
            bytes += after.bytes_sent() - before.bytes_sent();
            rounds += after.depth - before.depth;
            let opened = party::open(&mut mpc, &[&y])?;
            if mpc.me() == Party(0) {
                let pairs = factors[0].words().iter().zip(factors[1].words());
                for ((&a, &b), &y) in pairs.zip(opened[0].words()) {
                    errors.add((a as i64).wrapping_mul(b as i64), y as i64);
                }
            }
        }
        Ok((errors, bytes, rounds, party::names(&mpc)))
    };
    let outcomes = party::threads("truncation", setup, run)?;
    let bytes = outcomes.iter().map(|(_, bytes, ..)| bytes).sum();
    let rounds = outcomes.iter().map(|(_, _, rounds, _)| *rounds).max().unwrap_or(0);
    let report = Report { bytes, messages: 0, played: 0, rounds, steps: Vec::new() };
    let (errors, _, _, names) = outcomes.into_iter().next().expect("three parties");
    Ok((errors, report, names))
}

/// Factors of products of all magnitudes up to `2^61`; one product in sixteen is a multiple of `2^20`.
fn factors(batch: u64) -> Result<[Tensor; 2]> {
    let mut draw = SplitMix64::new(batch + 1);
    let (mut x, mut y) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
    for i in 0..BATCH {
        let bits = 20 + (draw.next_u64() % 11) as u32;
        x.push(draw.signed(bits));
        let other = draw.signed(31);
        y.push(if i % 16 == 0 { other & !((1 << FRAC) - 1) } else { other });
    }
    Ok([Tensor::vector(x), Tensor::vector(y)])
}
