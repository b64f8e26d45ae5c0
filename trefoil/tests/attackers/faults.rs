//! Faults of machines, disks, clocks and operators, against three processes. `TREFOIL_FAULTS=N` makes each
//! part N times as long; without it the suite takes seconds.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant, SystemTime},
};

use net::{Authority, Identity, Role};
use ring_arith::{Shape, Tensor};
use serde_json::Value;
use trefoil::{client, config::ClientConfig};

use crate::common::{Cluster, DIGITS, digits, faults, logits, trefoil};

/// How long anything may take that happens by itself.
const LIMIT: Duration = Duration::from_secs(60);

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A cluster with a model.
fn start(name: &str) -> Cluster {
    let cluster = Cluster::start(name, "alice,bob");
    put(&cluster, "digits");
    cluster
}

fn put(cluster: &Cluster, model: &str) {
    cluster.json("alice", &["model", "put", model, DIGITS, "--readers", "everyone", "--replace"]);
}

/// What the model says about the first two digits, if the servers answer; it must be right.
fn infer(cluster: &Cluster, model: &str) -> Result<(), String> {
    let lines: Vec<_> = digits().into_iter().take(2).collect();
    let path = cluster.folder.join("two.csv");
    fs::write(&path, lines.join("\n")).unwrap();
    let path = path.to_str().unwrap();
    let run = cluster
        .run("alice", &["--json", "infer", "--model", model, "--scale=0.0625", "--label=65", path]);
    if run.code != 0 {
        return Err(run.err);
    }
    let report: Value = serde_json::from_str(&run.out).unwrap();
    for (answer, logits) in report["answers"].as_array().unwrap().iter().zip(logits()) {
        let best = logits.iter().copied().fold(f32::MIN, f32::max);
        let class = logits.iter().position(|&logit| logit == best).unwrap();
        assert_eq!(answer["top"][0]["class"], class, "{report}");
    }
    Ok(())
}

/// What `model list` says about a model.
fn state(cluster: &Cluster, model: &str) -> String {
    let list = cluster.json("alice", &["model", "list"]);
    let found = list.as_array().unwrap().iter().find(|entry| entry["name"] == model);
    found.map(|entry| entry["state"].to_string()).unwrap_or_default()
}

fn eventually(what: &str, cluster: &Cluster, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < LIMIT, "never: {what}\n{}", cluster.logs());
        thread::sleep(Duration::from_millis(20));
    }
}

/// What a server says that is not to start.
fn fails_to_start(cluster: &Cluster, party: usize) -> (i32, String) {
    let config = cluster.folder.join(format!("party-{party}/party.toml"));
    let mut server = Command::new(env!("CARGO_BIN_EXE_trefoil"))
        .args(["party", "--config", config.to_str().unwrap()])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while server.try_wait().unwrap().is_none() {
        if began.elapsed() > LIMIT {
            server.kill().unwrap();
            panic!("party {party} has started");
        }
        thread::sleep(Duration::from_millis(20));
    }
    let ended = server.wait_with_output().unwrap();
    (ended.status.code().unwrap(), String::from_utf8(ended.stderr).unwrap())
}

#[test]
fn servers_killed_at_any_moment_come_back_with_all_they_had() {
    let mut cluster = start("kills");
    for round in 0..4 * faults() {
        let (over, done) = (AtomicBool::new(false), AtomicUsize::new(0));
        let config = cluster.client_config("alice");
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    let put = ["model", "put", "other", DIGITS, "--replace"];
                    trefoil(
                        &[&["--quiet", "--config", config.to_str().unwrap()], &put[..]].concat(),
                    );
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
            // Another moment of the work each time.
            while done.load(Ordering::SeqCst) < round % 3 {
                thread::yield_now();
            }
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(37 * (round as u64 % 7)) {
                thread::yield_now();
            }
            cluster.kill(round % 3);
            cluster.start_party(round % 3);
            over.store(true, Ordering::SeqCst);
        });
        cluster.wait_until_up("alice");
        assert_eq!(state(&cluster, "digits"), "\"ready\"", "round {round}\n{}", cluster.logs());
        infer(&cluster, "digits").unwrap();
        put(&cluster, "other");
        infer(&cluster, "other").unwrap();
    }
}

/// The file of a model's version that ends so.
fn file_of(cluster: &Cluster, party: usize, model: &str, end: &str) -> PathBuf {
    let folder = cluster.folder.join(format!("party-{party}/data/models/{model}"));
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    files.into_iter().find(|path| path.to_string_lossy().ends_with(end)).unwrap()
}

/// Does something to a file that a disk may do.
fn damage(path: &Path, how: usize) {
    let mut bytes = fs::read(path).unwrap();
    match how {
        0 => {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        }
        1 => bytes.truncate(bytes.len() / 2),
        _ => return fs::remove_file(path).unwrap(),
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn damaged_files_are_named_and_their_model_alone_is_not_served() {
    let mut cluster = start("damage");
    put(&cluster, "sound");
    let all: Vec<_> = ["safetensors", "plan.json", "manifest"]
        .into_iter()
        .flat_map(|end| (0..3).map(move |how| (end, how)))
        .collect();
    // Each file and each kind of damage, in the short run not with each other.
    let cases: Vec<_> = if faults() > 1 { all } else { all.into_iter().step_by(4).collect() };
    for (round, (end, how)) in cases.into_iter().enumerate() {
        let party = round % 3;
        cluster.kill(party);
        damage(&file_of(&cluster, party, "digits", end), how);
        let config = cluster.folder.join(format!("party-{party}/party.toml"));
        let checked = trefoil(&["party", "--check", "--config", config.to_str().unwrap()]);
        // A model without its manifest is not one: the others have it, which `model list` says.
        let gone = (end, how) == ("manifest", 2);
        if !gone {
            assert_eq!(checked.code, 8, "{end} {how}: {}{}", checked.out, checked.err);
            assert!(
                checked.out.contains("damaged") && checked.out.contains("sound"),
                "{}",
                checked.out
            );
        }
        cluster.start_party(party);
        cluster.wait_until_up("alice");
        eventually("the damage is seen", &cluster, || state(&cluster, "digits") != "\"ready\"");
        let said = infer(&cluster, "digits").unwrap_err();
        let advised =
            ["put the model again", "put it again"].iter().any(|text| said.contains(text));
        assert!(advised, "{end} {how}: {said}");
        infer(&cluster, "sound").unwrap();
        put(&cluster, "digits");
        infer(&cluster, "digits").unwrap();
    }
}

#[test]
fn folders_of_two_servers_or_models_exchanged_are_refused_and_work_again_in_their_places() {
    let mut cluster = start("exchange");
    let data = |party: usize| cluster.folder.join(format!("party-{party}/data"));
    let (zero, one, aside) = (data(0), data(1), cluster.folder.join("aside"));
    let exchange = || {
        fs::rename(&zero, &aside).unwrap();
        fs::rename(&one, &zero).unwrap();
        fs::rename(&aside, &one).unwrap();
    };
    cluster.kill(0);
    cluster.kill(1);
    exchange();
    for party in [0, 1] {
        let (code, said) = fails_to_start(&cluster, party);
        assert_eq!(code, 4, "{said}");
        assert!(said.contains(&format!("belongs to party {}", 1 - party)), "{said}");
    }
    exchange();
    cluster.start_party(1);
    // A model's folder alone.
    put_under(&zero, "digits", "renamed");
    cluster.start_party(0);
    cluster.wait_until_up("alice");
    let said = infer(&cluster, "digits").unwrap_err();
    assert!(said.contains("party 0"), "{said}");
    cluster.kill(0);
    put_under(&zero, "renamed", "digits");
    cluster.start_party(0);
    cluster.wait_until_up("alice");
    infer(&cluster, "digits").unwrap();
}

fn put_under(data: &Path, from: &str, to: &str) {
    fs::rename(data.join("models").join(from), data.join("models").join(to)).unwrap();
}

/// Writes a server a certificate that began at another time.
fn certify(cluster: &Cluster, party: usize, begin: SystemTime, lifetime: Duration) -> Identity {
    let read =
        |name: &str| fs::read_to_string(cluster.folder.join("authority").join(name)).unwrap();
    let authority = Authority::from_pem(&read("authority.pem"), &read("authority.key")).unwrap();
    let identity = authority.issue_for_period(&Role::party(party), begin, lifetime).unwrap();
    let folder = cluster.folder.join(format!("party-{party}"));
    fs::write(folder.join("party.key"), identity.key_pem()).unwrap();
    fs::write(folder.join("party.pem"), identity.certificate_pem()).unwrap();
    identity
}

#[test]
fn certificates_out_of_their_time_are_named_and_new_ones_taken_up_without_a_restart() {
    let mut cluster = start("clocks");
    let now = SystemTime::now();
    // As seen by a server whose clock is wrong, or whose certificate was forgotten.
    cluster.kill(2);
    for (begin, said) in [(now - 9 * DAY, "has expired"), (now + 9 * DAY, "is valid only in")] {
        certify(&cluster, 2, begin, DAY);
        let (code, error) = fails_to_start(&cluster, 2);
        assert_eq!(code, 4, "{error}");
        assert!(error.contains(said) && error.contains("clock"), "{error}");
    }
    certify(&cluster, 2, now, 10 * DAY);
    cluster.start_party(2);
    cluster.wait_until_up("alice");
    let status = cluster.run("alice", &["status"]);
    let warning = "the certificate of party-2 ends in";
    assert!(status.out.contains(warning), "{}", status.out);
    eventually("the log warns", &cluster, || cluster.logs().contains(warning));
    let dir = cluster.folder.to_str().unwrap();
    let renewed = trefoil(&["cluster", "renew", dir, "--all"]);
    assert_eq!(renewed.code, 0, "{}", renewed.err);
    eventually("the new certificates are taken up", &cluster, || {
        let status = cluster.run("alice", &["status"]);
        status.code == 0 && !status.out.contains("ends in")
    });
    assert!((0..3).all(|party| cluster.runs(party)));
    infer(&cluster, "digits").unwrap();
}

#[test]
fn a_revoked_client_is_shut_out_while_the_servers_run() {
    let cluster = start("revoked");
    assert_eq!(cluster.run("bob", &["status"]).code, 0);
    let dir = cluster.folder.to_str().unwrap();
    let revoked = trefoil(&["cluster", "revoke", dir, "bob"]);
    assert_eq!(revoked.code, 0, "{}", revoked.err);
    eventually("bob is refused", &cluster, || {
        let status = cluster.run("bob", &["status"]);
        status.code == 5 && status.err.contains("has been revoked")
    });
    infer(&cluster, "digits").unwrap();
    let renewed = trefoil(&["cluster", "renew", dir, "bob", "--new-key"]);
    assert_eq!(renewed.code, 0, "{}", renewed.err);
    assert_eq!(cluster.run("bob", &["status"]).code, 0);
}

#[test]
fn status_does_not_wait_for_a_server_that_hangs() {
    let cluster = start("hangs");
    cluster.signal(1, "STOP");
    let began = Instant::now();
    let status = cluster.run("alice", &["status"]);
    let took = began.elapsed();
    cluster.signal(1, "CONT");
    assert_eq!(status.code, 5, "{}", status.err);
    assert!(status.err.contains("party 1") && status.err.contains("hangs"), "{}", status.err);
    let up = status.out.lines().filter(|line| line.contains("cpu")).count();
    assert!(up == 2 && status.out.contains("unreachable"), "{}", status.out);
    // A client's own limits are 5 and 30 s.
    assert!(took < Duration::from_secs(5), "{took:?}");
    cluster.wait_until_up("alice");
    infer(&cluster, "digits").unwrap();
}

#[test]
fn no_client_notices_that_servers_are_stopped_and_started_again() {
    let mut cluster = start("restarts");
    let (done, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (config, image) = (cluster.client_config("bob"), cluster.folder.join("one.csv"));
    fs::write(&image, &digits()[0]).unwrap();
    // A job of which a part is missing is waited for, `limits.parts_seconds` at most: so long are clients patient.
    let mut patient: toml::Table = fs::read_to_string(&config).unwrap().parse().unwrap();
    patient.insert("connect_seconds".to_owned(), 60.into());
    fs::write(&config, patient.to_string()).unwrap();
    thread::scope(|scope| {
        let asks = || {
            let (config, image) = (config.to_str().unwrap(), image.to_str().unwrap());
            while !over.load(Ordering::Relaxed) {
                let run = trefoil(&[
                    "--config",
                    config,
                    "infer",
                    "--model",
                    "digits",
                    "--label=65",
                    image,
                ]);
                assert_eq!(run.code, 0, "{}", run.err);
                done.fetch_add(1, Ordering::Relaxed);
            }
        };
        let clients = [scope.spawn(asks), scope.spawn(asks)];
        let answers = |more: usize| {
            let (began, wanted) = (Instant::now(), done.load(Ordering::Relaxed) + more);
            while done.load(Ordering::Relaxed) < wanted {
                assert!(began.elapsed() < LIMIT && !clients.iter().any(|it| it.is_finished()));
                thread::yield_now();
            }
        };
        for party in (0..3 * faults()).map(|n| n % 3) {
            answers(2);
            cluster.signal(party, "TERM");
            assert!(cluster.wait(party).success());
            cluster.start_party(party);
        }
        answers(2);
        over.store(true, Ordering::Relaxed);
    });
    let logs = cluster.logs();
    assert_eq!(logs.matches("trefoil::server::serve: stopped").count(), 3 * faults(), "{logs}");
    assert!(!logs.contains("job failed"), "{logs}");
}

#[test]
fn a_second_signal_ends_a_server_that_waits_for_its_jobs() {
    let mut cluster = Cluster::make("signals", "alice,bob");
    cluster.set_limits(&[("parts_seconds", 600), ("drain_seconds", 600)]);
    (0..3).for_each(|party| cluster.start_party(party));
    cluster.wait_until_up("bob");
    put(&cluster, "digits");
    let config = ClientConfig::read(&cluster.client_config("alice")).unwrap();
    let mut client = client::connect(&config).unwrap();
    let version = client.model("digits").unwrap().version;
    // The part of the third server does not reach it.
    cluster.signal(2, "STOP");
    let input = Tensor::zeros(Shape::new([1, 1, 8, 8]).unwrap());
    let asks =
        thread::spawn(move || client.infer("digits", version, &[input], false, &()).map(drop));
    let says = |cluster: &Cluster, key: &str, what: Value| {
        let began = Instant::now();
        loop {
            let status = cluster.run("alice", &["--json", "status"]).out;
            if serde_json::from_str::<Value>(&status).is_ok_and(|it| it[1][key] == what) {
                return;
            }
            assert!(began.elapsed() < LIMIT, "{status}\n{}", cluster.logs());
        }
    };
    says(&cluster, "waiting", 1.into());
    cluster.signal(1, "TERM");
    says(&cluster, "stopping", true.into());
    assert!(cluster.runs(1), "it waits for the job");
    cluster.signal(1, "TERM");
    assert_eq!(cluster.wait(1).code(), Some(128 + 15));
    assert!(asks.join().unwrap().is_err());
}

#[test]
fn a_server_that_lost_its_data_goes_on_from_a_copy_of_it_and_no_other_takes_that() {
    let mut cluster = start("copies");
    put(&cluster, "sound");
    cluster.kill(1);
    cluster.kill(2);
    let copy = cluster.folder.join("copy");
    let copy = copy.to_str().unwrap();
    let folder = |party: usize| cluster.folder.join(format!("party-{party}"));
    let store = |party: usize, arguments: &[&str]| {
        let config = folder(party).join("party.toml");
        trefoil(&[&["--config", config.to_str().unwrap(), "store"], arguments].concat())
    };
    let whole = store(1, &["verify"]);
    assert_eq!(whole.code, 0, "{whole:?}");
    assert!(whole.out.contains("digits") && whole.out.contains("sound"), "{whole:?}");
    let made = store(1, &["export", copy]);
    assert_eq!(made.code, 0, "{made:?}");
    assert!(made.out.contains("has 2 names"), "{made:?}");
    let refused = store(2, &["import", copy]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.err.contains("it is an export of party 1"), "{refused:?}");
    damage(&file_of(&cluster, 1, "digits", "safetensors"), 0);
    let damaged = store(1, &["verify"]);
    assert_eq!(damaged.code, 8, "{damaged:?}");
    assert!(damaged.err.contains("1 of 2 are damaged: `digits`"), "{damaged:?}");
    let replaced = store(1, &["import", copy, "--replace"]);
    assert!(replaced.out.contains("1 names imported, 1 were here as they are"), "{replaced:?}");
    fs::remove_dir_all(folder(1).join("data")).unwrap();
    let taken = store(1, &["import", copy]);
    assert!(taken.out.contains("2 names imported"), "{taken:?}");
    (1..3).for_each(|party| cluster.start_party(party));
    cluster.wait_until_up("alice");
    for name in ["digits", "sound"] {
        infer(&cluster, name).unwrap();
    }
}
