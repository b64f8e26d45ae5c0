//! Tests for secret-dependent time: does the time of a party's local work depend on its words? The method is dudect
//! (Reparaz, Balasch, Verbauwhede, DATE 2017).
//!
//! A party runs alone; its peers' messages exist in advance. Its shares and received messages are either fixed words or
//! fresh random words; a coin chooses for each run. Welch's t-test compares the times of both kinds, over all runs and
//! over those below a percentile, since disturbances only make a run longer. Use a machine on which nothing else runs.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use mpc_core::testing::privacy::{Recorder, View};
use mpc_core::{
    Compare, Finish, Format, Product, Profile, Protocol, SecretTensor, ServerProtocol, SplitMix64,
    Then,
};
use mpc_core::{TruncationMode, functions};
use net::{Message, PairKey, Party, Session, Transport};
use ring_arith::{Bilinear, CpuEngine, Shape, Tensor};
use rss_protocols::{Options, Rss, Share};

use super::{Bench, Timing};

/// Times of both kinds differ if the statistic is larger: by chance it is so in one of 10^5 tests of a quiet machine.
const SUSPICIOUS: f64 = 4.5;

/// A difference that no noise explains.
const CERTAIN: f64 = 10.0;

/// Elements of an operation: few, so that a run is short and many runs are possible.
const ELEMENTS: usize = 256;

/// Fractions of runs, the shortest ones, that are compared in addition to all runs.
const SHORTEST: [f64; 5] = [0.5, 0.7, 0.8, 0.9, 0.95];

/// Runs of an operation by each party.
const RUNS: usize = 20_000;

type Mpc = Rss<CpuEngine>;
type Run = fn(&mut Mpc, &Share<Tensor>) -> mpc_core::Result<()>;

struct Operation {
    name: &'static str,
    profile: Profile,
    run: Run,
}

const fn op(name: &'static str, run: Run) -> Operation {
    Operation { name, profile: Profile::Bytes, run }
}

const fn slow(name: &'static str, run: Run) -> Operation {
    Operation { name, profile: Profile::SlowLinks, run }
}

/// Every kernel that works on secrets is in one of these. Opened values are not secret, and are compared with a
/// hash.
const OPERATIONS: &[Operation] = &[
    op("matrix-product", |mpc, x| product(mpc, x, Bilinear::MATMUL, Finish::Raw)),
    op("product-truncated", |mpc, x| {
        product(mpc, x, Bilinear::Mul, Finish::Truncate { bits: 20, mode: TruncationMode::Default })
    }),
    op("product-exact", |mpc, x| {
        product(mpc, x, Bilinear::Mul, Finish::Truncate { bits: 20, mode: TruncationMode::Exact })
    }),
    op("layer-relu", |mpc, x| product(mpc, x, Bilinear::Mul, RELU)),
    op("relu", |mpc, x| {
        let then = [x];
        let job = Compare { value: x, width: 64, then: Then::not_negative(&then) };
        mpc.compare_one(job).map(drop)
    }),
    op("is-zero", |mpc, x| mpc.is_zero(&[(x, 64)]).map(drop)),
    op("bits", |mpc, x| {
        let bits = mpc.to_bits(&[(x, 44)])?;
        mpc.prefix_or(&[&bits[0]]).map(drop)
    }),
    op("max", |mpc, x| mpc.max_first(x, 44, mpc_core::Largest::default()).map(drop)),
    op("exp", |mpc, x| functions::exp(mpc, &number(x)).map(drop)),
    op("reciprocal", |mpc, x| functions::reciprocal(mpc, &number(x)).map(drop)),
    slow("layer-relu/slow-links", |mpc, x| product(mpc, x, Bilinear::Mul, RELU)),
    slow("sigmoid/slow-links", |mpc, x| functions::sigmoid(mpc, &number(x)).map(drop)),
    slow("max/slow-links", |mpc, x| mpc.max_first(x, 44, mpc_core::Largest::default()).map(drop)),
    slow("log/slow-links", |mpc, x| functions::log(mpc, &number(x)).map(drop)),
];

const RELU: Finish<'static, rss_protocols::BitShare<Tensor>> =
    Finish::TruncateRelu { bits: 20, mode: TruncationMode::Early, keep: false };

fn product(
    mpc: &mut Mpc,
    x: &Share<Tensor>,
    map: Bilinear,
    finish: Finish<'_, rss_protocols::BitShare<Tensor>>,
) -> mpc_core::Result<()> {
    mpc.product(Product::new(map, x, x, finish)).map(drop)
}

fn number(x: &Share<Tensor>) -> SecretTensor<Mpc> {
    SecretTensor::new(x.clone(), Format { frac: 20, width: 44 })
}

/// The cases of this module.
///
/// # Errors
/// If an operation cannot be run, or its times depend on words.
pub fn cases(bench: &mut Bench) -> Result<()> {
    let runs = if bench.quick() { RUNS / 100 } else { RUNS };
    for operation in OPERATIONS {
        bench.case(operation.name, |case| {
            let mut worst = 0.0f64;
            let mut seconds = Vec::new();
            for party in 0..3 {
                let times = operation.times(party, runs)?;
                let t = times.statistic();
                eprintln!("  party {party}: |t| = {t:.2} over {runs} runs");
                worst = worst.max(t);
                seconds.extend(times.0.into_iter().flatten());
            }
            case.engine("cpu").size(format!("{ELEMENTS} elements")).threads(1);
            case.timing(Timing::from_runs(seconds, None));
            case.rate_is(worst, &format!("|t|, suspicious above {SUSPICIOUS}"));
            ensure!(
                worst < CERTAIN,
                "the time depends on words: |t| = {worst:.1}, above {CERTAIN}; if nothing else runs on this machine"
            );
            Ok(())
        })?;
    }
    bench.case("control", |case| {
        let t = control(runs);
        case.engine("cpu").size("4096 words, until they differ").threads(1);
        case.rate_is(t, "|t| of a comparison that leaves early");
        ensure!(t > CERTAIN, "what depends on words is not noticed: |t| = {t:.1}");
        Ok(())
    })
}

/// Seconds of runs with the same words, and with drawn ones.
#[derive(Default)]
struct Times([Vec<f64>; 2]);

impl Times {
    /// The largest of Welch's statistics.
    fn statistic(&self) -> f64 {
        let mut all = self.0.concat();
        all.sort_by(f64::total_cmp);
        let limit = |part: f64| all[((all.len() - 1) as f64 * part) as usize];
        let limits = SHORTEST.map(limit).into_iter().chain([f64::INFINITY]);
        let below = |limit: f64| {
            self.0.each_ref().map(|times| times.iter().copied().filter(|t| *t <= limit).collect())
        };
        limits.map(|limit| welch(&below(limit)).abs()).fold(0.0, f64::max)
    }
}

/// Welch's t: the difference of both means over its standard deviation.
fn welch(samples: &[Vec<f64>; 2]) -> f64 {
    let [one, other] = samples.each_ref().map(|sample| {
        let n = sample.len() as f64;
        let mean = sample.iter().sum::<f64>() / n;
        let squares = sample.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>();
        (mean, squares / (n - 1.0) / n)
    });
    (one.0 - other.0) / (one.1 + other.1).sqrt()
}

/// The statistic of a comparison that ends at the first difference.
fn control(runs: usize) -> f64 {
    let (mut draw, mut times) = (SplitMix64::new(5), Times::default());
    let secret = [0u64; 4096];
    for _ in 0..runs {
        let drawn = (draw.next_u64() & 1) as usize;
        let mut guess = secret;
        if drawn == 1 {
            guess.iter_mut().for_each(|word| *word = draw.next_u64());
        }
        let clock = Instant::now();
        std::hint::black_box(std::hint::black_box(&guess) == std::hint::black_box(&secret));
        times.0[drawn].push(clock.elapsed().as_secs_f64());
    }
    times.statistic()
}

impl Operation {
    /// Times the operation at one party.
    fn times(&self, party: usize, runs: usize) -> Result<Times> {
        let lengths = self.lengths(party)?;
        let played: Arc<Mutex<[VecDeque<Bytes>; 3]>> = Arc::default();
        let transport = Box::new(Alone { me: Party(party), played: played.clone() });
        let mut mpc = self.start(transport)?;
        let (mut draw, mut times) = (SplitMix64::new(party as u64 + 1), Times::default());
        for run in 0..runs + runs / 10 {
            let drawn = (draw.next_u64() & 1) as usize;
            // Drawn in both cases, so that caches are alike.
            let mut words = |n: usize| -> Vec<u64> {
                let fresh: Vec<_> = (0..n).map(|_| draw.next_u64()).collect();
                if drawn == 1 { fresh } else { vec![0; n] }
            };
            let x = Share::new(tensor(words(ELEMENTS))?, tensor(words(ELEMENTS))?)?;
            let bodies = lengths.each_ref().map(|lengths| {
                let bodies = lengths.iter().map(|&bytes| {
                    let words = words(bytes.div_ceil(8));
                    let body: Vec<_> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                    Bytes::from(body).slice(..bytes)
                });
                bodies.collect()
            });
            *played.lock().unwrap_or_else(PoisonError::into_inner) = bodies;
            mpc.begin_job(&[7; 32])?;
            let clock = Instant::now();
            (self.run)(&mut mpc, &x)?;
            let seconds = clock.elapsed().as_secs_f64();
            // The first tenth warms up.
            if run >= runs / 10 {
                times.0[drawn].push(seconds);
            }
        }
        Ok(times)
    }

    fn start(&self, transport: Box<dyn Transport>) -> Result<Mpc> {
        let me = transport.me().0;
        let key = |peer: usize| (peer != me).then(|| PairKey([(me + peer) as u8; 32]));
        let pair_keys = (0..3).map(key).collect();
        let session = Session { transport, pair_keys, id: [3; 16], prg: None };
        let options = Options::default().profile(self.profile);
        Ok(Rss::with_options(session, CpuEngine::new(1), options)?)
    }

    /// The bytes of each message that a party receives in a job with the operation, by sender.
    fn lengths(&self, party: usize) -> Result<[Vec<usize>; 3]> {
        let log = Arc::<Mutex<View>>::default();
        let transports = net::in_process::transports(3).into_iter().map(|transport| {
            let transport: Box<dyn Transport> = Box::new(transport);
            match transport.me() == Party(party) {
                true => Box::new(Recorder::new(transport, log.clone())),
                false => transport,
            }
        });
        std::thread::scope(|scope| {
            let parties: Vec<_> = transports
                .map(|transport| {
                    scope.spawn(|| -> Result<()> {
                        let mut mpc = self.start(transport)?;
                        mpc.begin_job(&[7; 32])?;
                        let zeros = Tensor::zeros(shape()?);
                        (self.run)(&mut mpc, &Share::new(zeros.clone(), zeros)?)?;
                        Ok(mpc.close()?)
                    })
                })
                .collect();
            let mut joined = parties.into_iter().map(|party| party.join().ok());
            joined.try_for_each(|done| done.context("a party panicked")?)
        })?;
        let log = log.lock().unwrap_or_else(PoisonError::into_inner);
        Ok([0, 1, 2].map(|from| log.messages(Party(from)).map(<[u8]>::len).collect()))
    }
}

/// A square matrix.
fn shape() -> Result<Shape> {
    Ok(Shape::new([16, ELEMENTS / 16])?)
}

fn tensor(words: Vec<u64>) -> Result<Tensor> {
    Ok(Tensor::new(shape()?, words)?)
}

/// The transport of a party whose peers' messages are there before.
struct Alone {
    me: Party,
    played: Arc<Mutex<[VecDeque<Bytes>; 3]>>,
}

impl Transport for Alone {
    fn me(&self) -> Party {
        self.me
    }

    fn parties(&self) -> usize {
        3
    }

    fn send(&mut self, _: Party, _: Message) -> net::Result<()> {
        Ok(())
    }

    fn receive(&mut self, from: Party) -> net::Result<Message> {
        let mut played = self.played.lock().unwrap_or_else(PoisonError::into_inner);
        let next = played[from.0].pop_front();
        next.map(Message::from)
            .ok_or_else(|| net::Error::Misuse("more is received than was recorded".to_owned()))
    }

    fn step(&mut self, _: &str) {}

    fn accuse(&mut self, peer: Party, reason: &str) -> net::Error {
        net::Error::Misuse(format!("{peer}: {reason}"))
    }

    fn fail(&mut self, _: &str) {}

    fn close(self: Box<Self>) -> net::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statistic_is_welchs() {
        // Means 3 and 6, variances 2.5 and 10, of five numbers each.
        let samples = [vec![1.0, 2.0, 3.0, 4.0, 5.0], vec![2.0, 4.0, 6.0, 8.0, 10.0]];
        assert!((welch(&samples) + 3.0 / (12.5f64 / 5.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn a_party_alone_receives_what_it_would_among_three() {
        for operation in OPERATIONS {
            for party in 0..3 {
                let times = operation.times(party, 2);
                times.unwrap_or_else(|error| panic!("{} at {party}: {error}", operation.name));
            }
        }
    }
}
