//! Owners of different columns of the same people, whose rows three processes join by secret keys.

use std::{fs, path::Path};

use crate::common::{Cluster, all_digits};

/// The pictures in the hospital's table: the first ones of all, with the upper half of the pixels and the digit.
const HOSPITAL: std::ops::Range<usize> = 0..900;

/// Those in the bank's table, with the lower half.
const BANK: std::ops::Range<usize> = 200..1200;

/// The perceptron that the notebooks train: 64 numbers, ten classes.
const NETWORK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../python/notebooks/perceptron.onnx");

/// The rows of both tables, and all columns of the other pictures.
fn tables(folder: &Path) -> [String; 3] {
    let pictures: Vec<Vec<String>> = all_digits()
        .iter()
        .map(|line| line.trim().split(',').map(str::to_owned).collect())
        .collect();
    let names = |range: std::ops::Range<usize>| {
        range.map(|at| format!("p{at}")).collect::<Vec<_>>().join(",")
    };
    let mut hospital = format!("id,{},digit\n", names(0..32));
    for at in HOSPITAL {
        hospital += &format!("person {at},{},{}\n", pictures[at][..32].join(","), pictures[at][64]);
    }
    let mut bank = format!("{},person\n", names(32..64));
    for at in BANK.rev() {
        bank += &format!("{},person {at}\n", pictures[at][32..64].join(","));
    }
    let mut others = format!("{},digit\n", names(0..64));
    for picture in &pictures[1200..] {
        others += &format!("{}\n", picture.join(","));
    }
    [("hospital", hospital), ("bank", bank), ("others", others)].map(|(name, text)| {
        let path = folder.join(format!("{name}.csv"));
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    })
}

fn run_file(folder: &Path, name: &str, data: &str) -> String {
    let text = format!(
        "name = \"{name}\"\nstart = \"{NETWORK}\"\ndata = [{data}]\nmodel = \"{name}-learnt\"\n\
         [train]\nepochs = 8\nbatch = 64\nrate = 0.3\n"
    );
    let path = folder.join(format!("{name}.toml"));
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn secret(cluster: &Cluster, name: &str) -> String {
    let path = cluster.folder.join(name);
    let path = path.to_str().unwrap().to_owned();
    cluster.json("alice", &["store", "key", &path]);
    // Steps see rows in the order of their keys, which are hashes under it: the same in each run.
    let letters: String = name.bytes().cycle().take(32).map(|byte| format!("{byte:02x}")).collect();
    fs::write(&path, letters + "\n").unwrap();
    path
}

const HOW: [&str; 6] = ["--scale", "0.0625", "--readers", "carol", "--replace", "--key-secret"];

fn put(cluster: &Cluster, owner: &str, name: &str, how: &[&str], secret: &str) {
    let arguments = [&["data", "put", name], how, &HOW, &[secret]].concat();
    cluster.json(owner, &arguments);
}

#[test]
fn owners_of_other_columns_in_other_orders_train_together() {
    let cluster = Cluster::start("joins", "alice,bob,carol");
    let [hospital, bank, others] = tables(&cluster.folder);
    let secret = [secret(&cluster, "join.key"), secret(&cluster, "other.key")];
    let of_hospital = [&hospital, "--label", "digit", "--classes", "10", "--key", "id"];
    let of_bank = [bank.as_str(), "--only", "values", "--key", "person"];
    put(&cluster, "alice", "hospital", &of_hospital, &secret[0]);
    put(&cluster, "bob", "bank", &of_bank, &secret[1]);
    let shown = cluster.run("carol", &["data", "show", "bank"]).out;
    assert!(shown.contains("bank: 1000 rows of values [32], put by bob"), "{shown}");
    assert!(shown.contains("every row has a secret key, made of person"), "{shown}");
    assert!(cluster.json("carol", &["data", "show", "hospital"])["key"][0] == "id");

    // Keys under other secrets have no partners, and the error says so.
    let data = "{ join = [\"hospital\", \"bank\"], rows = 700 }";
    let file = run_file(&cluster.folder, "joined", data);
    let approve = || {
        let told = cluster.json("carol", &["train", &file, "--prepare", "--replace"]);
        assert_eq!(told["run"]["rows"], 700);
        for owner in ["alice", "bob"] {
            let shown = cluster.run(owner, &["run", "show", "joined"]).out;
            let line = shown.lines().find(|line| line.starts_with("fingerprint")).unwrap();
            let letters = line.split_ascii_whitespace().nth(1).unwrap();
            cluster.json(owner, &["run", "approve", "joined", letters]);
        }
    };
    approve();
    let run = cluster.run("carol", &["train", &file]);
    assert_eq!(run.code, 6, "{}", run.err);
    for part in ["fewer than 700 of their rows", "under different secrets (--key-secret)"] {
        assert!(run.err.contains(part), "{}", run.err);
    }

    put(&cluster, "bob", "bank", &of_bank, &secret[0]);
    approve();
    let shown = cluster.run("alice", &["run", "show", "joined"]).out;
    for line in [
        "data         hospital of alice joined by key with bank of bob: 700 rows in all",
        "join         700 pairs of rows of hospital and bank with one key: the servers and the run's owner learn whether \
         there are as many",
    ] {
        assert!(shown.contains(line), "{line}\n{shown}");
    }
    let report = cluster.json("carol", &["train", &file]);
    assert_eq!((&report["steps"], &report["from"]), (&80.into(), &0.into()));
    // The model takes all columns by their names.
    let arguments = ["infer", "--model", "joined-learnt", "--label", "digit", &others];
    let answers = cluster.json("carol", &arguments);
    assert!(answers["accuracy"].as_f64().unwrap() > 0.8, "{}", answers["accuracy"]);
}

#[test]
fn keys_that_no_join_can_use_are_refused_at_their_owner() {
    let cluster = Cluster::start("join-keys", "alice");
    let secret = secret(&cluster, "join.key");
    let table = |text: &str| {
        let path = cluster.folder.join("table.csv");
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    for (text, how, code, reason) in [
        (
            "id,x\nanna,1\nbert,2\nanna,3\n",
            "--key id",
            3,
            "of rows 2, 4 is also that of another row",
        ),
        ("id,x\nanna,1\n,2\n", "--key id", 3, "the key (id) of row 3 is empty; each row needs one"),
        ("id,x\nanna,1\n", "--key name", 3, "has no column `name`"),
        ("id,x\n1,1\n", "--key id --label id --classes 3", 3, "is left out"),
    ] {
        let file = table(text);
        let mut arguments = vec!["data", "put", "t", &file, "--key-secret", &secret];
        arguments.extend(how.split(' '));
        if !how.contains("--label") {
            arguments.extend(["--only", "values"]);
        }
        let run = cluster.run("alice", &arguments);
        assert!(run.code == code && run.err.contains(reason), "{code} {}", run.err);
        assert!(!run.err.contains("anna"), "{}", run.err);
    }
    let file = table("id,x\nanna,1\n");
    for how in [&["--key", "id"][..], &["--key-secret", &secret]] {
        let run = cluster.run("alice", &[&["data", "put", "t", &file], how].concat());
        assert!(run.code == 2 && run.err.contains("required"), "{}", run.err);
    }
    assert_eq!(cluster.json("alice", &["data", "list"]).as_array().unwrap().len(), 0);
}

/// A dealer runs a training's program, and does not learn what a join opens.
#[test]
fn servers_with_a_dealer_say_that_they_join_nothing() {
    let cluster = Cluster::start_with("join-dealt", "alice,bob,carol", &["--protocol", "additive"]);
    let [hospital, bank, _] = tables(&cluster.folder);
    let secret = secret(&cluster, "join.key");
    let of_hospital = [&hospital, "--label", "digit", "--classes", "10", "--key", "id"];
    put(&cluster, "carol", "hospital", &of_hospital, &secret);
    put(&cluster, "carol", "bank", &[&bank, "--only", "values", "--key", "person"], &secret);
    let data = "{ join = [\"hospital\", \"bank\"], rows = 700 }";
    let run = cluster.run("carol", &["train", &run_file(&cluster.folder, "joined", data)]);
    assert_eq!(run.code, 6, "{}", run.err);
    assert!(run.err.contains("three servers with `protocol = \"rss\"` do"), "{}", run.err);
}
