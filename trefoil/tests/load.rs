//! Three servers under load: eight clients at once, and a server killed in the middle.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::common::{Cluster, DIGITS, digits, logits};
use ring_arith::{FixedPoint, FracBits, Shape, Tensor};
use trefoil::{
    Error,
    client::{self, Client},
    config::ClientConfig,
    wire::PublicModel,
};

const CLIENTS: usize = 8;
const JOBS: usize = 200;

/// The largest error of a logit: 2^-9.
const ERROR: f64 = 1.0 / 512.0;

/// How long a client tries again after an error.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the clients have done together.
#[derive(Default)]
struct Tally {
    next: AtomicUsize,
    right: AtomicUsize,
    errors: Mutex<Vec<Error>>,
}

#[test]
fn two_hundred_inferences_of_eight_clients_are_right_though_a_server_is_killed() {
    let names: Vec<_> = (0..CLIENTS).map(|client| format!("c{client}")).collect();
    let mut cluster = Cluster::start("load", &names.join(","));
    cluster.json("c0", &["model", "put", "digits", DIGITS, "--readers", "everyone"]);
    let tally = Tally::default();
    let began = Instant::now();
    thread::scope(|scope| {
        for name in &names {
            let path = cluster.client_config(name);
            let tally = &tally;
            scope.spawn(move || work(&ClientConfig::read(&path).unwrap(), tally));
        }
        while tally.right.load(Ordering::SeqCst) < JOBS / 3 {
            assert!(began.elapsed() < PATIENCE, "the first third takes too long");
            thread::yield_now();
        }
        cluster.kill(1);
        cluster.start_party(1);
    });
    assert_eq!(tally.right.load(Ordering::SeqCst), JOBS);
    let errors = tally.errors.into_inner().unwrap();
    assert!(!errors.is_empty(), "the killed server had no job");
    for error in &errors {
        let clear = matches!(error, Error::Unreachable { .. } | Error::Refused { .. });
        assert!(clear && error.to_string().contains("party"), "{error}");
    }
    println!("{JOBS} jobs in {:?}, {} of them twice", began.elapsed(), errors.len());
    // No model is lost, no server has fallen, nothing waits.
    assert_eq!(cluster.json("c1", &["model", "list"])[0]["state"], "ready");
    assert!((0..3).all(|party| cluster.runs(party)));
    let waiting = || {
        let status = cluster.json("c2", &["status"]);
        status.as_array().unwrap().iter().any(|status| status["waiting"] != 0)
    };
    // Parts of clients that left while the servers were not linked go within ten seconds.
    while waiting() {
        assert!(began.elapsed() < 2 * PATIENCE, "parts of lost jobs stay");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Takes jobs until none is left; after an error, connects anew and repeats the job.
fn work(config: &ClientConfig, tally: &Tally) {
    let (digits, logits) = (digits(), logits());
    let mut client: Option<(Client, PublicModel)> = None;
    loop {
        let job = tally.next.fetch_add(1, Ordering::SeqCst);
        if job >= JOBS {
            return;
        }
        let began = Instant::now();
        while let Err(error) = attempt(&mut client, config, &digits[job], &logits[job]) {
            assert!(began.elapsed() < PATIENCE, "job {job} never succeeds: {error}");
            client = None;
            tally.errors.lock().unwrap().push(error);
        }
        tally.right.fetch_add(1, Ordering::SeqCst);
    }
}

fn attempt(
    client: &mut Option<(Client, PublicModel)>,
    config: &ClientConfig,
    digit: &str,
    logits: &[f32],
) -> trefoil::Result<()> {
    if client.is_none() {
        let mut new = client::connect(config)?;
        let public = new.model("digits")?;
        *client = Some((new, public));
    }
    let Some((client, public)) = client else { unreachable!("it was just made") };
    let about = &public.about;
    let pixels: Vec<f64> =
        digit.split(',').take(64).map(|cell| cell.parse::<f64>().unwrap() / 16.0).collect();
    let code = FixedPoint(FracBits::new(about.fraction_bits)?);
    let input = Tensor::new(Shape::new([1, 1, 8, 8])?, code.encode(&pixels)?)?;
    let answer = client.infer("digits", public.version, &[input], false, &())?;
    let found = &about.decode(1, &answer.outputs)?[0][0];
    assert_eq!(found.len(), 10);
    for (&found, &expected) in found.iter().zip(logits) {
        let error = (found - f64::from(expected)).abs();
        assert!(error < ERROR, "a wrong answer: error {error}");
    }
    Ok(())
}
