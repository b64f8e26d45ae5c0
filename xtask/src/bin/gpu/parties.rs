//! Three parties in one process on one GPU.

use std::time::Instant;

use anyhow::{Result, ensure};
use gpu_kernels::CudaEngine;
use mpc_core::{Compare, Linear, Protocol, SplitMix64, Then};
use net::{Metered, Party, Session, launch};
use ring_arith::{Engine, Shape, Tensor, View};
use rss_protocols::{Options, Rss};

use xtask::bench::Network;

use super::{Run, Timing};

/// Width of the values, in bits; they are below 2^40 in magnitude.
const WIDTH: u32 = 64;
/// Elements whose result is opened and compared.
const OPENED: usize = 1000;

/// The parties measured ReLU on `n` elements.
struct Measured {
    seconds: Vec<f64>,
    bytes: u64,
    rounds: u64,
}

pub(crate) fn run(run: &mut Run) {
    let n = if run.small { 1000 } else { 32_000_000 };
    let (warm_up, runs) = if run.small { (0, 1) } else { (2, 7) };
    let (ordinal, engine) = (run.ordinal, run.engine.clone());
    run.part("relu/32e6", |case| {
        let parties = launch::threads(3, 1, |session| {
            relu(session, CudaEngine::open(ordinal)?, n, [warm_up, runs])
        });
        let parties = parties.into_iter().collect::<Result<Vec<_>>>()?;
        // A run lasts until the last party is done.
        let slowest = |i: usize| parties.iter().map(|p| p.seconds[i]).fold(0.0, f64::max);
        case.timing(Timing::from_runs((0..runs).map(slowest).collect(), None));
        case.protocol("rss").engine(&engine.name()).network(Network::InProcess);
        case.size(format!("{n}")).rate(n as f64 / 1e6, "million/s");
        case.bytes_per_party(parties.iter().map(|p| p.bytes).max().unwrap_or(0));
        case.rounds(parties.iter().map(|p| p.rounds).max().unwrap_or(0));
        case.reference("bar: 0.15 s", Timing::from_runs(vec![0.15], None));
        Ok(())
    });
}

fn relu(
    mut session: Session,
    engine: CudaEngine,
    n: usize,
    [warm_up, runs]: [usize; 2],
) -> Result<Measured> {
    let metered = Metered::new(session.transport);
    let meter = metered.meter();
    session.transport = Box::new(metered);
    let options = Options::default().generator(CudaEngine::GENERATOR);
    let mut mpc = Rss::with_options(session, engine.clone(), options)?;
    let mut draw = SplitMix64::new(7);
    let words: Vec<u64> = (0..n).map(|_| draw.signed(40)).collect();
    let expected: Vec<u64> =
        words[..n.min(OPENED)].iter().map(|&w| if (w as i64) < 0 { 0 } else { w }).collect();
    let shape = Shape::new([n])?;
    let mine = match mpc.me() {
        Party(0) => Some([engine.upload(Tensor::new(shape.clone(), words)?)?]),
        _ => None,
    };
    let x = mpc.input(Party(0), &[shape], mine.as_ref().map(|m| &m[..]))?.remove(0);
    let mut measured = Measured { seconds: Vec::new(), bytes: 0, rounds: 0 };
    for run in 0..warm_up + runs {
        let zero = mpc.constant(&engine.upload(Tensor::of([1], &[0])?)?)?;
        mpc.open(&[&zero])?;
        engine.synchronize()?;
        let (before, clock) = (meter.stats(), Instant::now());
        let then = Then { not_negative: &[&x], ..Then::default() };
        let y = mpc.compare_one(Compare { value: &x, width: WIDTH, then })?.into_word()?;
        engine.synchronize()?;
        let seconds = clock.elapsed().as_secs_f64();
        let after = meter.stats();
        measured.bytes = after.bytes_sent() - before.bytes_sent();
        measured.rounds = u64::from(after.depth - before.depth);
        if run >= warm_up {
            measured.seconds.push(seconds);
        }
        if run == 0 {
            let first = View::Slice { axis: 0, start: 0, end: expected.len(), step: 1 };
            let part = mpc.linear(&Linear::View(&first), &y)?;
            let opened = engine.download(&mpc.open(&[&part])?[0])?;
            ensure!(opened.words() == expected, "ReLU is wrong");
        }
    }
    mpc.close()?;
    Ok(measured)
}
