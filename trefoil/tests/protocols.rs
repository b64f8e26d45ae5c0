//! Every protocol that the program names runs its models.

use std::fs;

use serde_json::Value;

use crate::common::{Cluster, DIGITS, digits, trefoil};

#[test]
fn the_demo_recognises_digits_by_each_protocol() {
    for protocol in ["rss", "rss-dealt", "additive", "dealt-2", "dealt-3", "dealt-5"] {
        let run = trefoil(&["demo", "--images", "20", "--json", "--protocol", protocol]);
        assert_eq!(run.code, 0, "{protocol}: {}", run.err);
        let report: Value = serde_json::from_str(&run.out).unwrap();
        let number = |key: &str| report[key].as_f64().unwrap();
        assert_eq!((number("images"), number("agreement")), (20.0, 1.0), "{protocol}");
        assert!(number("largest_error_of_a_logit") < 1.0 / 512.0, "{protocol}: {report}");
    }
}

#[test]
fn servers_with_tapes_train_nothing_and_the_demo_says_so() {
    let run = trefoil(&["demo", "--train", "--epochs", "1", "--protocol", "rss-dealt"]);
    assert_eq!(run.code, 3, "{}", run.err);
    assert!(run.err.contains("servers with a dealer's tapes do not train"), "{}", run.err);
}

#[test]
fn two_servers_and_their_dealer_answer_a_client_at_the_predicted_cost() {
    answers_at_the_predicted_cost::<3>("additive", &["--protocol", "additive"]);
}

#[test]
fn three_servers_and_their_dealer_answer_a_client_at_the_predicted_cost() {
    answers_at_the_predicted_cost::<4>("dealt", &["--protocol", "dealt-3"]);
}

#[test]
fn a_protocol_that_is_not_there_is_refused_by_name() {
    for protocol in ["dealt-1", "dealt-17", "dealt"] {
        let run = trefoil(&["demo", "--images", "1", "--protocol", protocol]);
        assert_eq!(run.code, 2, "{}", run.err);
        assert!(run.err.contains("dealt-2 to dealt-16"), "{}", run.err);
    }
}

#[test]
fn three_servers_that_prove_their_messages_answer_a_client_at_the_predicted_cost() {
    let checked = answers_at_the_predicted_cost::<3>("checked", &["--security", "checked"]);
    let unchecked = answers_at_the_predicted_cost::<3>("unchecked", &[]);
    // 316 bits for 252 where a product is truncated, and proofs of some kilobytes.
    let [checked, unchecked] = [checked, unchecked].map(|cost| cost["bytes"].as_u64().unwrap());
    assert!(checked > unchecked, "{checked} bytes, {unchecked} without proofs");
}

/// Starts `N` servers and asks them about digits. Returns the cost of one answer.
fn answers_at_the_predicted_cost<const N: usize>(name: &str, options: &[&str]) -> Value {
    let cluster = Cluster::start_servers::<N>(name, "alice", options);
    let put = ["model", "put", "digits", DIGITS, "--range", "0,1"];
    let predicted = cluster.json("alice", &put)["predicted"].clone();
    let path = cluster.folder.join("images.csv");
    let infer = |count: usize| {
        fs::write(&path, digits()[..count].join("\n")).unwrap();
        let path = path.to_str().unwrap();
        cluster.json("alice", &["infer", "--model", "digits", "--scale=0.0625", "--label=65", path])
    };
    let demo = trefoil(&["demo", "--images", "5", "--json"]);
    let demo: Value = serde_json::from_str(&demo.out).unwrap();
    let answers = infer(5)["answers"].clone();
    let classes =
        answers.as_array().unwrap().iter().map(|answer| answer["top"][0]["class"].clone());
    assert_eq!(Value::from_iter(classes), demo["predictions"]);
    let cost = infer(1)["cost"].clone();
    for what in ["bytes", "rounds"] {
        assert_eq!(cost[what], predicted[what], "{what}");
    }
    cost
}

#[test]
fn a_client_that_asks_for_proofs_sends_nothing_to_servers_without_them() {
    let cluster = Cluster::start_with("unproven", "alice", &[]);
    let path = cluster.client_config("alice");
    let file = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("security = \"checked\"\n{file}")).unwrap();
    let put = cluster.run("alice", &["model", "put", "digits", DIGITS, "--range", "0,1"]);
    assert_eq!(put.code, 4, "{}", put.err);
    assert!(put.err.contains("it does not prove its messages"), "{}", put.err);
    fs::write(&path, file).unwrap();
    assert_eq!(cluster.json("alice", &["model", "list"]).as_array().unwrap().len(), 0);
}

/// Starts servers that prove their messages. One changes a bit of one message: the first of a layer.
#[cfg(feature = "liar")]
fn with_a_liar(name: &str, liar: usize) -> Cluster {
    let mut cluster = Cluster::make_checked(name, "alice");
    for party in 0..3 {
        let lies = [("TREFOIL_LIES_IN", "node_conv2d")];
        cluster.start_party_with(party, if party == liar { &lies } else { &[] });
    }
    cluster.wait_until_up("alice");
    cluster
}

/// Runs a command whose job is the first with that layer. Both honest servers notice the lie; then it runs again.
#[cfg(feature = "liar")]
fn is_caught_once(cluster: &Cluster, liar: usize, arguments: &[&str]) {
    let caught = cluster.run("alice", arguments);
    assert_eq!(caught.code, 7, "{}{}", caught.out, caught.err);
    assert!(caught.err.contains("Nothing was revealed"), "{}", caught.err);
    for honest in (0..3).filter(|party| *party != liar) {
        let other = 3 - liar - honest;
        let said = [(liar, other), (other, liar)].map(|(one, other)| {
            format!("party {honest} says that party {one} or party {other} did not follow")
        });
        assert!(said.iter().any(|said| caught.err.contains(said)), "{}", caught.err);
        let log = cluster.folder.join(format!("party-{honest}/audit.log"));
        let log = fs::read_to_string(log).unwrap();
        assert!(log.contains(r#""outcome":"cheated""#), "{log}");
    }
    cluster.wait_until_up("alice");
    let again = cluster.run("alice", arguments);
    assert_eq!(again.code, 0, "{}", again.err);
}

#[cfg(feature = "liar")]
#[test]
fn a_server_that_lies_is_caught_and_the_servers_go_on() {
    for liar in 0..3 {
        let cluster = with_a_liar(&format!("liar-{liar}"), liar);
        cluster.json("alice", &["model", "put", "digits", DIGITS, "--range", "0,1"]);
        let path = cluster.folder.join("images.csv");
        fs::write(&path, digits()[..2].join("\n")).unwrap();
        let path = path.to_str().unwrap();
        let infer = ["infer", "--model", "digits", "--scale=0.0625", "--label=65", path];
        is_caught_once(&cluster, liar, &infer);
    }
}

#[cfg(feature = "liar")]
#[test]
fn a_server_that_lies_in_a_training_is_caught_and_the_run_goes_on() {
    let cluster = with_a_liar("liar-trains", 1);
    let written = |name: &str, text: &str| {
        let path = cluster.folder.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let rows = written("rows.csv", &digits()[..64].join("\n"));
    let mut put = vec!["data", "put", "rows", rows.as_str()];
    put.extend("--dims 1,8,8 --scale 0.0625 --label 65 --classes 10".split(' '));
    cluster.json("alice", &put);
    let run = format!(
        "name = \"run\"\nstart = \"{DIGITS}\"\ndata = [\"rows\"]\nmodel = \"learnt\"\n\
         [train]\nepochs = 1\nbatch = 32\nrate = 0.02\n"
    );
    let file = written("run.toml", &run);
    is_caught_once(&cluster, 1, &["train", &file]);
    let infer = ["infer", "--model", "learnt", "--scale=0.0625", "--label=65", &rows];
    let report = cluster.json("alice", &infer);
    assert!(report["accuracy"].as_f64().unwrap() > 0.9, "{report}");
}
