//! The honest client beside an attack, and what servers hold when it is over.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use ring_arith::{FixedPoint, FracBits, Shape, Tensor};
use trefoil::{client, config::ClientConfig, wire::Channel};

use crate::common::{Cluster, DIGITS, digits, logits};

/// The largest error of a logit: 2^-9.
const ERROR: f64 = 1.0 / 512.0;

/// How long an honest client may wait for an answer, connecting included.
const WAIT: Duration = Duration::from_secs(2);

/// On a machine where even an answer that nobody disturbs takes long, since it does much else, the honest client
/// may wait so many times as long as for that.
const TIMES: u32 = 10;

/// Answers by which it is known how long one takes that nobody disturbs: so many before an attack, and after it.
const UNDISTURBED: usize = 3;

/// How long servers may take until they have given back what an attacker held.
const LIMIT: Duration = Duration::from_secs(60);

/// Memory that a server may have more after an attack than before: what an allocator keeps.
const SLACK_KIB: u64 = 96 << 10;

/// A cluster of alice, who owns the model `digits` that everyone may run, and mallory. `limits` replaces
/// values in all servers' files.
pub fn cluster(name: &str, limits: &[(&str, u64)]) -> Cluster {
    let mut cluster = Cluster::make(name, "alice,mallory");
    cluster.set_limits(limits);
    (0..3).for_each(|party| cluster.start_party(party));
    cluster.wait_until_up("alice");
    cluster.json("alice", &["model", "put", "digits", DIGITS, "--readers", "everyone"]);
    ask(&cluster, 0);
    cluster
}

/// Runs an attack while alice asks again and again; checks all she gets and how long she waits, and that
/// afterwards the servers hold no more than before.
pub fn beside<T>(cluster: &Cluster, attack: impl FnOnce() -> T) -> T {
    let before = held(cluster);
    let alone = undisturbed(cluster);
    let over = AtomicBool::new(false);
    let (outcome, waited) = thread::scope(|scope| {
        let asks = scope.spawn(|| {
            let mut waited = Duration::ZERO;
            for job in 0.. {
                waited = waited.max(ask(cluster, job));
                if over.load(Ordering::Acquire) {
                    break;
                }
            }
            waited
        });
        let outcome = {
            let _ended = Ended(&over);
            attack()
        };
        (outcome, asks.join().unwrap())
    });
    let alone = alone.max(undisturbed(cluster));
    let most = WAIT.max(TIMES * alone);
    println!("an honest client waited {waited:?} at most beside the attack, {alone:?} without it");
    assert!(waited < most, "{waited:?} beside the attack, {alone:?} without it");
    nothing_is_left(cluster, before);
    outcome
}

/// Says that the attack is over, also where it is since the attack has failed.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The longest of several waits beside which nothing happens.
fn undisturbed(cluster: &Cluster) -> Duration {
    (0..UNDISTURBED).map(|job| ask(cluster, job)).max().unwrap_or_default()
}

/// Asks for one digit over new connections; returns how long that took.
fn ask(cluster: &Cluster, job: usize) -> Duration {
    let config = ClientConfig::read(&cluster.client_config("alice")).unwrap();
    let (digits, logits) = (digits(), logits());
    let job = job % digits.len();
    let pixels: Vec<f64> =
        digits[job].split(',').take(64).map(|cell| cell.parse::<f64>().unwrap() / 16.0).collect();
    let began = Instant::now();
    let mut client = client::connect(&config).unwrap();
    let public = client.model("digits").unwrap();
    let words = FixedPoint(FracBits::new(20).unwrap()).encode(&pixels).unwrap();
    let input = Tensor::new(Shape::new([1, 1, 8, 8]).unwrap(), words).unwrap();
    let answer = client.infer("digits", public.version, &[input], false, &()).unwrap();
    let took = began.elapsed();
    let found = public.about.decode(1, &answer.outputs).unwrap();
    for (found, expected) in found[0][0].iter().zip(&logits[job]) {
        assert!((found - f64::from(*expected)).abs() < ERROR, "a wrong answer");
    }
    took
}

/// Mallory's connections to the three servers.
pub fn connect(cluster: &Cluster) -> Vec<Box<dyn Channel>> {
    connect_as(cluster, "mallory")
}

/// A client's connection to each server.
pub fn connect_as(cluster: &Cluster, name: &str) -> Vec<Box<dyn Channel>> {
    let config = ClientConfig::read(&cluster.client_config(name)).unwrap();
    client::dial_all(&config).unwrap().into_iter().map(|channel| channel.unwrap()).collect()
}

/// Descriptors and resident memory of each server.
fn held(cluster: &Cluster) -> [(usize, u64); 3] {
    [0, 1, 2].map(|party| cluster.holds(party))
}

fn nothing_is_left(cluster: &Cluster, before: [(usize, u64); 3]) {
    let began = Instant::now();
    loop {
        // Each is told of what is its own.
        let states = ["alice", "mallory"].map(|name| cluster.json(name, &["status"]));
        let mut all = states.iter().flat_map(|state| state.as_array().unwrap());
        let idle = |status: &serde_json::Value| {
            status["waiting"] == 0 && status["reserved"] == 0 && status["clients"] == 1
        };
        let after = held(cluster);
        let fits = |(after, before): (&(usize, u64), &(usize, u64))| {
            after.0 <= before.0 && after.1 <= before.1 + SLACK_KIB
        };
        if all.all(idle) && after.iter().zip(&before).all(fits) {
            return;
        }
        assert!(began.elapsed() < LIMIT, "{before:?} before, {after:?} after; {states:?}");
    }
}
