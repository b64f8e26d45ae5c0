//! Two servers, processes of the program, that answer from a dealer's tapes.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::common::{self, Cluster, DIGITS, digits, trefoil};

/// The shipped model's plan, as its owner gives it to the dealer.
fn plan(cluster: &Cluster) -> String {
    let path = cluster.folder.join("digits.plan.json").to_str().unwrap().to_owned();
    let written = trefoil(&["tape", "plan", DIGITS, "--output", &path]);
    assert_eq!(written.code, 0, "{}", written.err);
    path
}

/// Has a dealer, a process that ends, make a pair of tapes.
fn make(cluster: &Cluster, plan: &str, name: &str, options: &[&str]) -> [PathBuf; 2] {
    let out = cluster.folder.join(name);
    let dealer = cluster.folder.join("dealer-dealer/dealer.toml");
    let config = ["--config", dealer.to_str().unwrap()];
    let made = ["tape", "make", plan, out.to_str().unwrap()];
    let made = trefoil(&[&config[..], &made, options].concat());
    assert_eq!(made.code, 0, "{}", made.err);
    [0, 1].map(|party| out.join(format!("party-{party}.tape")))
}

/// Gives a server a tape.
fn add(cluster: &Cluster, party: usize, tape: &Path) -> common::Run {
    let config = cluster.folder.join(format!("party-{party}/party.toml"));
    trefoil(&["--config", config.to_str().unwrap(), "tape", "add", tape.to_str().unwrap()])
}

/// The file of a tape's label.
fn label(tape: &Path) -> PathBuf {
    tape.with_added_extension("signed")
}

/// Gives each server its tape; returns where they lie.
fn add_both(cluster: &Cluster, tapes: &[PathBuf; 2]) -> [PathBuf; 2] {
    [0, 1].map(|party| {
        let added = add(cluster, party, &tapes[party]);
        assert_eq!(added.code, 0, "{}", added.err);
        assert!(!tapes[party].exists() && !label(&tapes[party]).exists(), "a tape is moved");
        PathBuf::from(added.out.lines().next().unwrap())
    })
}

fn start(cluster: &mut Cluster) {
    (0..2).for_each(|party| cluster.start_party(party));
    cluster.wait_until_up("alice");
}

/// A file of the first test images.
fn images(cluster: &Cluster, count: usize) -> String {
    let path = cluster.folder.join(format!("{count}.csv"));
    fs::write(&path, digits()[..count].join("\n")).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Answers that are left at each server.
fn left(cluster: &Cluster) -> Vec<u64> {
    let status = cluster.json("alice", &["status"]);
    let left = |server: &Value| server["tapes"][0]["left"].as_u64().unwrap();
    status.as_array().unwrap().iter().map(left).collect()
}

fn infer(cluster: &Cluster, path: &str, more: &[&str]) -> common::Run {
    let arguments = ["--json", "infer", "--model", "digits", "--scale=0.0625", "--label=65", path];
    cluster.run("alice", &[&arguments, more].concat())
}

#[test]
fn two_servers_answer_from_tapes_until_they_are_spent() {
    let mut cluster = Cluster::make_dealt("dealt", "alice");
    let plan = plan(&cluster);
    start(&mut cluster);
    cluster.json("alice", &["model", "put", "digits", DIGITS]);
    let forty = images(&cluster, 40);
    let none = infer(&cluster, &forty, &[]);
    assert_eq!(none.code, 6, "{}", none.err);
    assert!(none.err.contains("there is no tape for this model"), "{}", none.err);

    // Servers that run take them in.
    let tapes = make(&cluster, &plan, "one", &["--answers", "4", "--batch", "16"]);
    let foreign = add(&cluster, 1, &tapes[0]);
    assert!(foreign.err.contains("not of party 1"), "{}", foreign.err);
    let kept = [&tapes[0], &label(&tapes[0])].map(|file| fs::read(file).unwrap());
    add_both(&cluster, &tapes);
    fs::write(&tapes[0], &kept[0]).unwrap();
    fs::write(label(&tapes[0]), &kept[1]).unwrap();
    let copy = add(&cluster, 0, &tapes[0]);
    assert!(copy.err.contains("is here already"), "{}", copy.err);
    let many = infer(&cluster, &forty, &[]);
    assert!(many.err.contains("for 16 examples at once, and the job has 40"), "{}", many.err);
    assert_eq!(left(&cluster), [4, 4]);

    // Three jobs, of 16, 16 and 8 examples, which are filled up.
    let done = infer(&cluster, &forty, &["--batch", "16", "--profile"]);
    assert_eq!(done.code, 0, "{}\n{}", done.err, cluster.logs());
    let report: Value = serde_json::from_str(&done.out).unwrap();
    assert!(report["accuracy"].as_f64().unwrap() > 0.9, "{report}");
    let cost = &report["cost"];
    for what in ["bytes", "rounds", "tape"] {
        assert_eq!(report["predicted"][what], cost[what], "{what}");
        assert!(cost[what].as_u64().unwrap() > 0, "{what}");
    }
    assert_eq!(left(&cluster), [1, 1]);
    let put = ["data", "put", "rows", &forty, "--label", "65", "--classes", "10"];
    let trains = cluster.run("alice", &put);
    assert!(trains.err.contains("train nothing"), "{}", trains.err);

    // Another client's model of the same plan is another version: its weights are not for these masks.
    let one = images(&cluster, 1);
    cluster.json("alice", &["model", "put", "digits", DIGITS, "--replace"]);
    let bound = infer(&cluster, &one, &[]);
    assert!(bound.err.contains("begun with another version"), "{}", bound.err);

    // Of two makings.
    let [zero, _] = make(&cluster, &plan, "two", &["--answers", "1"]);
    let [_, one_of_three] = make(&cluster, &plan, "three", &["--answers", "1"]);
    let odd = add_both(&cluster, &[zero, one_of_three]);
    let unlike = infer(&cluster, &one, &[]);
    assert!(unlike.err.contains("not of one pair: party 0 has"), "{}", unlike.err);
    add_both(&cluster, &make(&cluster, &plan, "four", &["--answers", "1"]));
    let done = infer(&cluster, &one, &[]);
    assert_eq!(done.code, 0, "{}\n{}", done.err, cluster.logs());
    odd.iter().for_each(|tape| fs::remove_file(tape).unwrap());
    let spent = infer(&cluster, &one, &[]);
    assert!(spent.err.contains("the tape for this model is spent"), "{}", spent.err);

    // A tape that ends in the middle: what was answered before is printed.
    add_both(&cluster, &make(&cluster, &plan, "five", &["--answers", "2", "--batch", "16"]));
    let part = infer(&cluster, &forty, &["--batch", "16"]);
    assert_eq!(part.code, 6, "{}", part.err);
    assert!(part.err.contains("the tape for this model is spent"), "{}", part.err);
    let report: Value = serde_json::from_str(&part.out).unwrap();
    assert_eq!(report["answers"].as_array().unwrap().len(), 32);
    assert_eq!(report["unanswered"], 8);
}

#[test]
fn no_answer_of_a_tape_is_given_twice_whenever_a_server_is_killed() {
    const ANSWERS: u64 = 40;
    let mut cluster = Cluster::make_dealt("dealt-killed", "alice");
    let plan = plan(&cluster);
    add_both(&cluster, &make(&cluster, &plan, "one", &["--answers", &ANSWERS.to_string()]));
    start(&mut cluster);
    cluster.json("alice", &["model", "put", "digits", DIGITS]);
    let one = images(&cluster, 1);
    let config = cluster.client_config("alice").to_str().unwrap().to_owned();
    let ask = || {
        let infer = ["--json", "infer", "--model", "digits", "--scale=0.0625", "--label=65", &one];
        trefoil(&[&["--config", &config], &infer[..]].concat()).code
    };
    let mut answered = 0;
    for trial in 0..5 {
        let party = trial % 2;
        let before = left(&cluster);
        assert_eq!(before[0], before[1], "both take the same");
        // Somewhere in an answer, or between two.
        answered += thread::scope(|scope| {
            let asks = scope.spawn(|| (0..4).take_while(|_| ask() == 0).count() as u64);
            thread::sleep(Duration::from_millis(20 + 37 * trial as u64));
            cluster.kill(party);
            cluster.start_party(party);
            asks.join().unwrap()
        });
        cluster.wait_until_up("alice");
        assert_eq!(ask(), 0, "{}", cluster.logs());
        answered += 1;
        let after = left(&cluster);
        assert_eq!(after[0], after[1], "what one has spent the other has too");
        assert!(after[0] < before[0]);
        assert!(answered <= ANSWERS - after[0], "{answered} answers of {after:?} left");
    }
}

/// Tapes of both servers that come back from a backup would use their places twice, under the same masks.
#[test]
fn tapes_that_are_put_back_or_exchanged_give_no_answer() {
    let mut cluster = Cluster::make_dealt("dealt-put-back", "alice");
    let plan = plan(&cluster);
    let tapes = add_both(&cluster, &make(&cluster, &plan, "one", &["--answers", "3"]));
    let backup = tapes.each_ref().map(|tape| fs::read(tape).unwrap());
    start(&mut cluster);
    cluster.json("alice", &["model", "put", "digits", DIGITS]);
    let one = images(&cluster, 1);
    assert_eq!(infer(&cluster, &one, &[]).code, 0, "{}", cluster.logs());
    (0..2).for_each(|party| cluster.kill(party));
    for (tape, bytes) in tapes.iter().zip(&backup) {
        fs::write(tape, bytes).unwrap();
    }
    start(&mut cluster);
    let twice = infer(&cluster, &one, &[]);
    assert_eq!(twice.code, 6, "{}", twice.err);
    assert!(
        twice.err.contains("was put back from a backup: 1 of its answers were used"),
        "{}",
        twice.err
    );

    // Each other's tapes, copied past `tape add`: the job is refused, and the session goes on.
    (0..2).for_each(|party| cluster.kill(party));
    tapes.iter().for_each(|tape| fs::remove_file(tape).unwrap());
    let fresh = add_both(&cluster, &make(&cluster, &plan, "two", &["--answers", "1"]));
    for file in [PathBuf::clone, |tape: &PathBuf| label(tape)] {
        let [zero, one] = fresh.each_ref().map(file);
        let [at_zero, at_one] = [&zero, &one].map(|file| fs::read(file).unwrap());
        fs::write(zero, at_one).unwrap();
        fs::write(one, at_zero).unwrap();
    }
    start(&mut cluster);
    let exchanged = infer(&cluster, &one, &[]);
    assert_eq!(exchanged.code, 6, "{}", exchanged.err);
    assert!(exchanged.err.contains("give each server its own"), "{}", exchanged.err);
    assert_eq!(cluster.run("alice", &["status"]).code, 0, "the servers are linked");
    let states = cluster.json("alice", &["status"]);
    assert_eq!((&states[0]["failed"], &states[0]["done"]), (&1.into(), &0.into()));
}

/// A dealer that is shown an answer could learn an input from it, if it lied: so servers know who made a tape.
#[test]
fn servers_play_tapes_of_dealers_whom_they_know_and_who_see_no_answers() {
    let mut cluster = Cluster::make_dealt("dealt-signed", "alice");
    let plan = plan(&cluster);
    start(&mut cluster);
    cluster.json("alice", &["model", "put", "digits", DIGITS]);
    let tapes = make(&cluster, &plan, "one", &["--answers", "3"]);
    let refused = |party: usize, reason: &str| {
        let added = add(&cluster, party, &tapes[party]);
        assert_ne!(added.code, 0);
        assert!(added.err.contains(reason), "{reason}: {}", added.err);
        assert!(tapes[party].exists(), "what is refused stays");
    };

    // Without a label, with that of another tape, with one of another cluster's dealer, and changed since it was made.
    let labels = tapes.each_ref().map(|tape| fs::read(label(tape)).unwrap());
    fs::remove_file(label(&tapes[0])).unwrap();
    refused(0, "nobody signed it");
    fs::write(label(&tapes[0]), &labels[1]).unwrap();
    refused(0, "its dealer signed another tape");
    let elsewhere = Cluster::make_dealt("dealt-elsewhere", "alice");
    let theirs = make(&elsewhere, &plan, "one", &["--answers", "1"]);
    let added = add(&cluster, 0, &theirs[0]);
    assert!(added.err.contains("issued by another cluster's authority"), "{}", added.err);
    fs::write(label(&tapes[0]), &labels[0]).unwrap();
    let mut bytes = fs::read(&tapes[0]).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&tapes[0], &bytes).unwrap();
    refused(0, "not as its dealer made it");
    bytes[last] ^= 1;
    fs::write(&tapes[0], &bytes).unwrap();
    // A client makes none.
    let client = cluster.client_config("alice");
    let out = cluster.folder.join("two");
    let made = ["tape", "make", &plan, out.to_str().unwrap(), "--answers", "1"];
    let made = trefoil(&[&["--config", client.to_str().unwrap()], &made[..]].concat());
    assert_ne!(made.code, 0, "{}", made.out);

    let added = add(&cluster, 0, &tapes[0]);
    assert!(added.out.contains("signed by dealer dealer"), "{}", added.out);
    let added = add(&cluster, 1, &tapes[1]);
    assert_eq!(added.code, 0, "{}", added.err);
    let one = images(&cluster, 1);
    assert_eq!(infer(&cluster, &one, &[]).code, 0, "{}", cluster.logs());
    assert_eq!(cluster.json("alice", &["status"])[0]["tapes"][0]["dealer"], "dealer");

    // Once the dealer may see answers of the model, as a client of that name, its tapes give none.
    cluster.json("alice", &["model", "share", "digits", "--with", "dealer"]);
    let seen = infer(&cluster, &one, &[]);
    assert_eq!(seen.code, 6, "{}", seen.err);
    assert!(seen.err.contains("may see answers of this model as client dealer"), "{}", seen.err);
    cluster.json("alice", &["model", "share", "digits", "--not-with", "dealer"]);
    assert_eq!(infer(&cluster, &one, &[]).code, 0, "{}", cluster.logs());

    // A dealer that is revoked is known within seconds.
    let folder = cluster.folder.to_str().unwrap();
    assert_eq!(trefoil(&["cluster", "revoke", folder, "dealer dealer"]).code, 0);
    let revoked = (0..100).any(|_| {
        thread::sleep(Duration::from_millis(100));
        infer(&cluster, &one, &[]).err.contains("it is revoked")
    });
    assert!(revoked, "{}", cluster.logs());
}

/// Runs `trefoil store` for a server.
fn store(cluster: &Cluster, party: usize, arguments: &[&str]) -> common::Run {
    let config = cluster.folder.join(format!("party-{party}/party.toml"));
    trefoil(&[&["--config", config.to_str().unwrap(), "store"], arguments].concat())
}

#[test]
fn tapes_and_private_keys_lie_encrypted_where_the_store_has_a_key() {
    let mut cluster = Cluster::make_dealt("dealt-sealed", "alice");
    let plan = plan(&cluster);
    start(&mut cluster);
    cluster.json("alice", &["model", "put", "digits", DIGITS]);
    let tapes = add_both(&cluster, &make(&cluster, &plan, "one", &["--answers", "3"]));
    let one = images(&cluster, 1);
    assert_eq!(infer(&cluster, &one, &[]).code, 0, "{}", cluster.logs());
    (0..2).for_each(|party| cluster.kill(party));

    let root = cluster.folder.clone();
    let folder = |party: usize| root.join(format!("party-{party}"));
    let has = |file: &Path, bytes: &[u8]| {
        fs::read(file).unwrap().windows(bytes.len()).any(|found| found == bytes)
    };
    let key_of = |tape: &Path| fs::read(tape).unwrap()[224..256].to_vec();
    let plain: Vec<_> = tapes.iter().map(|tape| key_of(tape)).collect();
    let settings: Vec<_> =
        (0..2).map(|party| fs::read_to_string(folder(party).join("party.toml")).unwrap()).collect();
    for party in 0..2 {
        assert!(has(&folder(party).join("party.key"), b"PRIVATE KEY"));
        let key = folder(party).join("store.key");
        assert_eq!(trefoil(&["store", "key", key.to_str().unwrap()]).code, 0);
        let text = format!("{}\n[store]\nkey = \"store.key\"\n", settings[party]);
        fs::write(folder(party).join("party.toml"), text).unwrap();
        let done = store(&cluster, party, &["rekey"]);
        assert!(done.out.contains("1 tapes and the private key lie under its key"), "{done:?}");
        assert!(!has(&folder(party).join("party.key"), b"PRIVATE KEY"));
        assert_eq!(key_of(&tapes[party]), [0; 32]);
        let beside = tapes[party].with_extension("key");
        assert!(!has(&beside, &plain[party]), "the tape's key lies in the clear");
    }
    start(&mut cluster);
    assert_eq!(infer(&cluster, &one, &[]).code, 0, "{}", cluster.logs());
    // One that comes while the servers run.
    let fresh = add_both(&cluster, &make(&cluster, &plan, "two", &["--answers", "1"]));
    for _ in 0..2 {
        assert_eq!(infer(&cluster, &one, &[]).code, 0, "{}", cluster.logs());
    }
    assert!(fresh.iter().all(|tape| key_of(tape) == [0; 32]));
    assert!(infer(&cluster, &one, &[]).err.contains("is spent"));
    let more = add_both(&cluster, &make(&cluster, &plan, "three", &["--answers", "2"]));
    (0..2).for_each(|party| cluster.kill(party));

    // Without the key nothing starts, and says why; with it all comes back as it was.
    for party in 0..2 {
        fs::write(folder(party).join("party.toml"), &settings[party]).unwrap();
        let refused = store(&cluster, party, &["rekey"]);
        assert!(refused.err.contains("--from"), "{refused:?}");
        let key = folder(party).join("store.key");
        let done = store(&cluster, party, &["rekey", "--from", key.to_str().unwrap()]);
        assert!(done.out.contains("3 tapes and the private key lie plain"), "{done:?}");
        assert!(has(&folder(party).join("party.key"), b"PRIVATE KEY"));
        assert_eq!(fs::read(more[party].with_extension("key")).unwrap().len(), 32);
    }
    start(&mut cluster);
    assert_eq!(infer(&cluster, &one, &[]).code, 0, "{}", cluster.logs());
}
