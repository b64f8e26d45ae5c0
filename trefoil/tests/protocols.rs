//! Every protocol that the program names runs its models.

use std::fs;

use serde_json::Value;

use crate::common::{Cluster, DIGITS, digits, trefoil};

#[test]
fn the_demo_recognises_digits_by_each_protocol() {
    for protocol in ["rss", "rss-dealt", "additive"] {
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
    answers_at_the_predicted_cost("additive", &["--protocol", "additive"]);
}

#[test]
fn three_servers_that_prove_their_messages_answer_a_client_at_the_predicted_cost() {
    let checked = answers_at_the_predicted_cost("checked", &["--security", "checked"]);
    let unchecked = answers_at_the_predicted_cost("unchecked", &[]);
    // 316 bits for 252 where a product is truncated, and proofs of some kilobytes.
    let [checked, unchecked] = [checked, unchecked].map(|cost| cost["bytes"].as_u64().unwrap());
    assert!(checked > unchecked, "{checked} bytes, {unchecked} without proofs");
}

/// Starts servers and asks them about digits. Returns the cost of one answer.
fn answers_at_the_predicted_cost(name: &str, options: &[&str]) -> Value {
    let cluster = Cluster::start_with(name, "alice", options);
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
