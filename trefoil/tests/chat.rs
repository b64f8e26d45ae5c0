//! Texts that clients write in turn with the language model that ships, over servers that are processes.

use std::{fs, path::PathBuf};

use serde_json::Value;
use trefoil::{
    client::{self, Client, Talk},
    config::ClientConfig,
    inputs::Tokenizer,
};

use crate::common::Cluster;

/// The text around a person's words, and the token behind which an answer ends.
const FORM: &str = "<|question|>{}\\n";
const STOP: &str = "<|end|>";

fn helper(file: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../models/data/helper");
    folder.join(file).display().to_string()
}

/// What the model says in floats: questions with their answers and tokens.
fn turns() -> Vec<(String, String, Vec<u64>)> {
    let turns: Value = serde_json::from_slice(&fs::read(helper("texts.json")).unwrap()).unwrap();
    let turn = |turn: &Value| {
        let text = |key: &str| turn[key].as_str().unwrap().to_owned();
        let tokens = turn["tokens"].as_array().unwrap().iter();
        (text("question"), text("answer"), tokens.map(|token| token.as_u64().unwrap()).collect())
    };
    turns.as_array().unwrap().iter().map(turn).collect()
}

fn connect(cluster: &Cluster) -> Client {
    client::connect(&ClientConfig::read(&cluster.client_config("alice")).unwrap()).unwrap()
}

#[test]
fn a_model_answers_as_in_floats_also_after_a_server_was_killed() {
    let mut cluster = Cluster::start("chat", "alice");
    let (model, tokenizer) = (helper("helper.onnx"), helper("tokenizer.json"));
    let put = ["model", "put", "helper", &model, "--tokenizer", &tokenizer, "--replace"];
    let with = |more: &[&str]| cluster.run("alice", &[&put[..], more].concat());
    for (more, said) in [
        (&["--stop", "none"][..], "it has no token `none`"),
        (&["--form", "no place"], "where a person's words go"),
        (&["--tokenizer", &model], "cannot be used multiple times"),
    ] {
        let run = with(more);
        assert!(run.code != 0 && run.err.contains(said), "{}", run.err);
    }
    let run = with(&["--form", FORM, "--stop", STOP]);
    assert_eq!(run.code, 0, "{}", run.err);
    let (question, answer, tokens) = turns().swap_remove(0);
    let words: Vec<_> = question.split(' ').collect();
    let chat = [&["chat", "helper", "--ahead", "5"], &words[..]].concat();
    let turn = cluster.json("alice", &chat);
    assert_eq!((turn["answer"].as_str(), &turn["ended"]), (Some(&*answer), &Value::Bool(true)));
    assert_eq!(turn["tokens"], serde_json::json!(tokens));
    let short = cluster.run("alice", &["--quiet", "chat", "helper", "--new", "2", &question]);
    let shown = short.out.trim_end_matches('\n');
    assert!(!shown.is_empty() && answer.starts_with(shown), "{shown:?}");
    // A server that is killed has lost the conversation, and gets its text again.
    let (tokenizer, _) = Tokenizer::read(tokenizer.as_ref()).unwrap();
    let prompt = tokenizer.encode(&format!("<|question|>{question}\n"), true).unwrap();
    let mut client = connect(&cluster);
    let mut talk = Talk::new("helper", client.model("helper").unwrap()).unwrap();
    assert_eq!(talk.say(&mut client, &prompt, 3, &()).unwrap().0, tokens[..3]);
    cluster.kill(1);
    assert!(talk.say(&mut client, &[], 1, &()).is_err());
    cluster.start_party(1);
    cluster.wait_until_up("alice");
    let mut client = connect(&cluster);
    assert_eq!(talk.say(&mut client, &[], 4, &()).unwrap().0, tokens[3..7]);
    // Models that return no tokens, or have none.
    let digits = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/data/digits.onnx");
    let run = cluster.run("alice", &["model", "put", "digits", digits, "--answers", "token"]);
    assert!(run.code != 0 && run.err.contains("no language model"), "{}", run.err);
    assert_eq!(cluster.run("alice", &["model", "put", "digits", digits]).code, 0);
    let run = cluster.run("alice", &["chat", "digits", "hello"]);
    assert!(run.code != 0 && run.err.contains("no tokenizer"), "{}", run.err);
}
