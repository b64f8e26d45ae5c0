//! Three real processes: faults, late starts, wrong configuration.

use std::{
    process::Command,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use net::{
    Endpoint, Error, Job, Limits, Message, Result,
    launch::{self, Network, Processes, Running},
};

const SOON: Duration = Duration::from_secs(30);

/// Processes that run the test of this name again, each as one party.
fn processes(test: &str, network: Network) -> Processes {
    Processes::new(3, network).args([test, "--exact", "--nocapture", "--test-threads=1"])
}

/// Runs a party: sends and receives in a ring until told to stop or something fails. Every line it
/// writes is for the test that started it.
fn party(endpoint: &Endpoint) {
    let config = std::env::var("CONFIG").unwrap_or_default();
    let limit = std::env::var("ROUNDS").map_or(usize::MAX, |rounds| rounds.parse().unwrap());
    let job = Job::new("faults").prgs(["aes-128-ctr"]).config(config.as_bytes());
    let outcome = endpoint.session(&job).and_then(|session| {
        println!("NET started");
        ring(session.transport, limit)
    });
    match outcome {
        Ok(sum) => println!("NET done {sum}"),
        Err(error) => println!("NET failed: {error} | {error:?} | at {} us", now().as_micros()),
    }
}

/// The clock that all processes of this machine have in common.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// When a party had its error.
fn when(told: &str) -> Duration {
    let at = told.rsplit("at ").next().and_then(|rest| rest.strip_suffix(" us"));
    Duration::from_micros(at.and_then(|at| at.parse().ok()).unwrap_or_else(|| panic!("{told}")))
}

fn ring(mut link: Box<dyn net::Transport>, rounds: usize) -> Result<u64> {
    let me = link.me();
    let mut sum = 0u64;
    for round in 0..rounds {
        link.step("ring/pass");
        let body = Bytes::from(vec![(round + me.0) as u8; 1000 + round % 50_000]);
        link.send(me.after(1, 3), Message::from(body))?;
        let got = link.receive(me.after(2, 3))?;
        sum = sum.wrapping_mul(31).wrapping_add(got.body.iter().map(|&b| u64::from(b)).sum());
        if round == 20 {
            println!("NET running");
        }
    }
    link.close()?;
    Ok(sum)
}

/// Plays the party and leaves the test, if this process is one.
macro_rules! play_if_party {
    () => {
        if let Some(endpoint) = launch::joined().unwrap() {
            party(&endpoint);
            let began = Instant::now();
            drop(endpoint);
            // The system lists a thread for a moment after it was waited for.
            while threads() > 0 && began.elapsed() < Duration::from_millis(500) {
                thread::sleep(Duration::from_millis(1));
            }
            println!("NET threads {} after {:?}", threads(), began.elapsed());
            return;
        }
    };
}

/// The threads of this process whose names are the crate's.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
    tasks.filter_map(|task| name(task.unwrap())).filter(|name| name.starts_with("net-")).count()
}

/// The line with which a party reported its outcome, after checking that it ended in order.
fn outcome(running: &mut Running, party: usize, limit: Duration) -> String {
    let (status, lines) = running.wait(party, limit).unwrap();
    assert!(status.success(), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("NET threads 0 ")), "{lines:?}");
    let told = lines.iter().find(|line| line.contains("NET done") || line.contains("NET failed"));
    told.unwrap_or_else(|| panic!("no outcome in {lines:?}")).clone()
}

fn signal(running: &mut Running, party: usize, name: &str) {
    let id = running.id(party).unwrap().to_string();
    assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
}

/// Strikes each party in turn while all run. The two others name it and what they waited for, at least one of
/// them from what it saw itself, which `seen` says.
fn struck(test: &str, network: Network, limits: &Limits, name: &str, seen: &str) {
    for victim in 0..3 {
        let mut running = processes(test, network).limits(limits.clone()).start().unwrap();
        (0..3).for_each(|party| drop(running.line(party, "NET running", SOON).unwrap()));
        let struck = now();
        signal(&mut running, victim, name);
        let mut direct = 0;
        for survivor in (0..3).filter(|&party| party != victim) {
            let told = outcome(&mut running, survivor, SOON);
            println!("party {survivor} knew after {:?}", when(&told).saturating_sub(struck));
            assert!(told.contains(&format!("party {victim}")), "{told}");
            assert!(told.contains("`ring/pass`"), "{told}");
            direct += usize::from(told.contains(seen));
        }
        assert!(direct >= 1);
    }
}

#[test]
fn a_killed_party_is_named_by_the_others_without_waiting_for_the_limit() {
    play_if_party!();
    let test = "a_killed_party_is_named_by_the_others_without_waiting_for_the_limit";
    // Parties that took it for silent would know far too late.
    let limits = Limits { stall: 10 * SOON, ..Limits::default() };
    for network in [Network::Tls, Network::InsecurePlainTcp] {
        struck(test, network, &limits, "-KILL", "Link {");
    }
}

#[test]
fn a_stopped_party_is_named_by_the_others_after_the_limit() {
    play_if_party!();
    let test = "a_stopped_party_is_named_by_the_others_after_the_limit";
    let stall = Duration::from_secs(3);
    let limits = Limits { stall, heartbeat: Duration::from_millis(500), ..Limits::default() };
    struck(test, Network::Tls, &limits, "-STOP", "Stalled {");
}

#[test]
fn a_party_stopped_for_less_than_the_limit_does_no_harm() {
    play_if_party!();
    let test = "a_party_stopped_for_less_than_the_limit_does_no_harm";
    let mut start = processes(test, Network::Tls);
    for party in 0..3 {
        start = start.variable(party, "ROUNDS", "3000");
    }
    let mut running = start.start().unwrap();
    running.line(1, "NET running", SOON).unwrap();
    signal(&mut running, 1, "-STOP");
    thread::sleep(Duration::from_millis(1500));
    signal(&mut running, 1, "-CONT");
    for party in 0..3 {
        let told = outcome(&mut running, party, SOON);
        assert!(told.contains("NET done"), "{told}");
    }
}

#[test]
fn a_party_that_comes_twenty_seconds_late_is_waited_for() {
    play_if_party!();
    let test = "a_party_that_comes_twenty_seconds_late_is_waited_for";
    let late = Duration::from_secs(20);
    let mut start = processes(test, Network::Tls).late(1, late);
    for party in 0..3 {
        start = start.variable(party, "ROUNDS", "5");
    }
    let began = Instant::now();
    let mut running = start.start().unwrap();
    for party in 0..3 {
        let told = outcome(&mut running, party, SOON + late);
        assert!(told.contains("NET done"), "{told}");
    }
    assert!(began.elapsed() >= late);
}

#[test]
fn a_party_started_for_another_job_gives_every_party_one_error_with_both_values() {
    play_if_party!();
    let test = "a_party_started_for_another_job_gives_every_party_one_error_with_both_values";
    let hash = |config: &[u8]| {
        let hash = blake3::derive_key("trefoil net 2026 job configuration", config);
        hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let (usual, other) = (hash(b""), hash(b"other"));
    for odd in 0..3 {
        let start = processes(test, Network::Tls).variable(odd, "CONFIG", "other");
        let mut running = start.start().unwrap();
        for party in 0..3 {
            let told = outcome(&mut running, party, SOON);
            for part in [&usual, &other, "public job configuration differs", "Mismatch {"] {
                assert!(told.contains(part), "{part} not in {told}");
            }
        }
    }
}

#[test]
fn a_party_that_never_comes_is_named_when_the_limit_is_over() {
    play_if_party!();
    let test = "a_party_that_never_comes_is_named_when_the_limit_is_over";
    let limits = Limits { start: Duration::from_secs(2), ..Limits::default() };
    let start = processes(test, Network::Tls).limits(limits).late(2, Duration::from_secs(60));
    let mut running = start.start().unwrap();
    let told: Vec<_> = (0..2).map(|party| outcome(&mut running, party, SOON)).collect();
    for told in &told {
        assert!(told.contains("party 2") && told.contains("not found within 2s"), "{told}");
    }
}

#[test]
fn processes_do_not_share_memory() {
    let start = Processes::new(3, Network::InProcess(0)).start();
    assert!(matches!(start.map(drop), Err(Error::Misuse(_))));
}
