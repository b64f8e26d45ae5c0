//! Clients that take more than their share of memory, connections and places.

use std::{fs, thread, time::Duration};

use bytes::Bytes;
use nn_layers::{Dim, Graph, Op, PlanOptions, Unary};
use ring_arith::{Shape, Tensor};
use trefoil::{
    Id, Preprocess,
    client::{self, Client, NewModel},
    config::ClientConfig,
    model::import,
    store::Readers,
    wire::{Channel, Reply, Request, hear, say},
};

use super::honest::{beside, cluster, connect};
use crate::common::Cluster;

/// A model whose outputs are no scores of classes, so that it may have any names.
const ROWS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../models/data/onnx/embedding-opset17.onnx");

const LIMIT: Duration = Duration::from_secs(30);

/// A request to run `digits` on so many examples.
fn infer(cluster: &Cluster, examples: usize) -> Request {
    let mut channel = connect(cluster);
    let request = Request::Model { name: "digits".to_owned() };
    say(&mut *channel[0], &request).unwrap();
    let Reply::Model { .. } = hear(&mut *channel[0], LIMIT).unwrap() else { panic!("no model") };
    let text = String::from_utf8(channel[0].receive(LIMIT).unwrap().to_vec()).unwrap();
    let public: serde_json::Value = serde_json::from_str(&text).unwrap();
    Request::Infer {
        job: Id::random().unwrap(),
        model: "digits".to_owned(),
        version: public["version"].as_str().unwrap().parse().unwrap(),
        inputs: vec![vec![examples, 1, 8, 8]],
        profile: false,
    }
}

/// The same request under a job of its own.
fn again(request: &Request) -> Request {
    let mut request = request.clone();
    if let Request::Infer { job, .. } = &mut request {
        *job = Id::random().unwrap();
    }
    request
}

fn reply(channel: &mut dyn Channel) -> Reply {
    hear(channel, LIMIT).unwrap()
}

fn reason(channel: &mut dyn Channel) -> String {
    match reply(channel) {
        Reply::Failed { reason } => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_client_takes_its_share_of_connections_and_no_more() {
    let cluster = cluster("connections", &[("clients", 12), ("client_connections", 4)]);
    beside(&cluster, || {
        let mut held = Vec::new();
        for _ in 0..4 {
            let mut channels = connect(&cluster);
            for channel in &mut channels {
                say(&mut **channel, &Request::Ping).unwrap();
                assert!(matches!(reply(&mut **channel), Reply::Pong { .. }));
            }
            held.push(channels);
        }
        for _ in 0..20 {
            for channel in &mut connect(&cluster) {
                let reason = reason(&mut **channel);
                assert!(reason.contains("limits.client_connections"), "{reason}");
            }
        }
    });
}

#[test]
fn announced_uploads_that_never_come_take_one_clients_share_of_memory_and_no_more() {
    let limits = [("memory_mib", 64), ("client_memory_mib", 32), ("activation_mwords", 4096)];
    let cluster = cluster("uploads", &limits);
    beside(&cluster, || {
        // 16 bytes for each of 64 words of an example and 10 of its answer: 9.25 MiB each.
        let request = infer(&cluster, 8 << 10);
        let mut held = Vec::new();
        for count in 0..8 {
            let mut channels = connect(&cluster);
            for channel in &mut channels {
                say(&mut **channel, &again(&request)).unwrap();
                match reply(&mut **channel) {
                    Reply::Send => assert!(count < 3),
                    Reply::Failed { reason } => {
                        assert!(
                            count >= 3 && reason.contains("limits.client_memory_mib"),
                            "{reason}"
                        );
                    }
                    other => panic!("{other:?}"),
                }
            }
            held.push(channels);
        }
    });
}

#[test]
fn jobs_that_never_get_complete_take_one_clients_places_and_no_more() {
    let cluster = cluster("places", &[("queue", 16), ("client_jobs", 4), ("parts_seconds", 3)]);
    beside(&cluster, || {
        let request = infer(&cluster, 1);
        let mut held = Vec::new();
        for count in 0..12 {
            let mut channels = connect(&cluster);
            // Never to party 2.
            for (party, channel) in channels.iter_mut().enumerate().take(2) {
                say(&mut **channel, &again(&request)).unwrap();
                match reply(&mut **channel) {
                    Reply::Send => {
                        let keys = 32 * (2 - party);
                        channel.send(Bytes::from(vec![7; keys])).unwrap();
                        if party > 0 {
                            channel.send(Bytes::from(vec![7; 8 * 64])).unwrap();
                        }
                    }
                    Reply::Failed { reason } => {
                        assert!(count >= 4 && reason.contains("limits.client_jobs"), "{reason}");
                    }
                    other => panic!("{other:?}"),
                }
            }
            held.push(channels);
        }
    });
}

#[test]
fn long_headers_crumbs_and_nonsense_cost_a_server_nothing() {
    let cluster = cluster("headers", &[]);
    beside(&cluster, || {
        let brackets = Bytes::from("[]".repeat(2 << 20));
        let deep = Bytes::from("[".repeat(60_000));
        let many = format!(r#"{{"trefoil":2,"say":[{}1]}}"#, "[],".repeat(20_000));
        for frame in [brackets, deep, Bytes::from(many)] {
            for channel in &mut connect(&cluster) {
                for _ in 0..8 {
                    channel.send(frame.clone()).unwrap();
                    reason(&mut **channel);
                }
            }
        }
        let request = infer(&cluster, 1 << 10);
        for (party, channel) in connect(&cluster).iter_mut().enumerate().skip(1) {
            say(&mut **channel, &again(&request)).unwrap();
            assert_eq!(reply(&mut **channel), Reply::Send);
            channel.send(Bytes::from(vec![7; 32])).unwrap();
            // A byte a frame, until the server has had enough.
            while channel.send(Bytes::from_static(b"x")).is_ok() && !channel.is_over() {
                if let Ok(Reply::Failed { reason }) = hear(&mut **channel, Duration::from_millis(1))
                {
                    assert!(reason.contains("frames of less than"), "party {party}: {reason}");
                    break;
                }
            }
        }
    });
}

#[test]
fn a_running_job_is_cancelled_by_its_client_and_others_are_served_at_once() {
    let cluster = cluster("cancel", &[]);
    put(&cluster, "long", &chain(4000));
    let inputs = cluster.folder.join("long.csv");
    fs::write(&inputs, "1,2,3\n").unwrap();
    let arguments = ["infer", "--model", "long", inputs.to_str().unwrap()];
    beside(&cluster, || {
        for _ in 0..3 {
            thread::scope(|scope| {
                let runs = scope.spawn(|| cluster.run("mallory", &arguments));
                let job = loop {
                    let jobs = cluster.json("mallory", &["job", "list"]);
                    if let Some(job) = jobs.as_array().unwrap().first()
                        && job["stage"]["working"].is_object()
                    {
                        break job["job"].as_str().unwrap().to_owned();
                    }
                };
                let foreign = cluster.run("alice", &["job", "cancel", &job]);
                assert!(foreign.err.contains("no such job"), "{}", foreign.err);
                cluster.json("mallory", &["job", "cancel", &job]);
                let run = runs.join().unwrap();
                assert_eq!(run.code, 6, "{}", run.err);
                assert!(run.err.contains("client mallory has cancelled it"), "{}", run.err);
            });
        }
    });
}

#[test]
fn many_jobs_of_one_client_let_others_take_their_turns() {
    let cluster = cluster("turns", &[]);
    let many = cluster.folder.join("many.csv");
    fs::write(&many, vec![["1"; 64].join(","); 640].join("\n")).unwrap();
    let many = many.to_str().unwrap();
    beside(&cluster, || {
        thread::scope(|scope| {
            let run = || cluster.run("mallory", &["infer", "--model", "digits", many]);
            let runs: Vec<_> = (0..6).map(|_| scope.spawn(run)).collect();
            for run in runs {
                let run = run.join().unwrap();
                assert_eq!(run.code, 0, "{}", run.err);
            }
        });
    });
}

#[test]
fn a_model_that_makes_gigabytes_of_a_word_is_refused_before_it_runs() {
    let cluster = cluster("wide", &[("job_memory_mib", 2048)]);
    beside(&cluster, || {
        let mut graph = Graph::new(1);
        let x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(1)]).unwrap();
        let wide = Op::Broadcast(vec![Dim::Batch(1), Dim::Fixed(1 << 26)]);
        let y = graph.add("wide", wide, &[x]).unwrap();
        let y = graph.add("relu", Op::Unary(Unary::Relu), &[y]).unwrap();
        graph.output("y", y);
        let text = try_put(&cluster, "wide", &graph).unwrap_err().to_string();
        assert!(text.contains("limits.job_memory_mib"), "{text}");
        // Small for one example, and too large for many.
        put(&cluster, "chain", &chain(4));
        let inputs = cluster.folder.join("inputs.csv");
        fs::write(&inputs, "1,2,3\n").unwrap();
        cluster.json("mallory", &["infer", "--model", "chain", inputs.to_str().unwrap()]);
        let mut client = mallory(&cluster);
        let version = client.model("chain").unwrap().version;
        let zeros = Tensor::new(Shape::new([1 << 21, 3]).unwrap(), vec![0; 3 << 21]).unwrap();
        let text = client.infer("chain", version, &[zeros], false, &()).unwrap_err().to_string();
        assert!(text.contains("limits.job_memory_mib"), "{text}");
    });
}

#[test]
fn a_server_that_gets_no_memory_for_a_job_refuses_it_and_goes_on() {
    let mut cluster = cluster("memory", &[]);
    cluster.kill(0);
    // 4 GiB of addresses, which is enough for the digits.
    cluster.start_party_within(0, 4 << 20);
    cluster.wait_until_up("alice");
    beside(&cluster, || {
        let mut graph = Graph::new(1);
        let x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(1)]).unwrap();
        let wide = Op::Broadcast(vec![Dim::Batch(1), Dim::Fixed(1 << 24)]);
        let y = graph.add("wide", wide, &[x]).unwrap();
        let y = graph.add("sigmoid", Op::Unary(Unary::Sigmoid), &[y]).unwrap();
        graph.output("y", y);
        put(&cluster, "wide", &graph);
        let mut client = mallory(&cluster);
        let version = client.model("wide").unwrap().version;
        let one = Tensor::new(Shape::new([1, 1]).unwrap(), vec![1]).unwrap();
        let text = client.infer("wide", version, &[one], false, &()).unwrap_err().to_string();
        let said = text.contains("party 0") && text.contains("no memory for a job that may need");
        assert!(said, "{text}");
    });
    assert!((0..3).all(|party| cluster.runs(party)));
}

#[test]
fn long_labels_and_many_models_lock_nobody_out() {
    let cluster = cluster("labels", &[("client_models", 3)]);
    let labels = cluster.folder.join("labels");
    fs::write(&labels, vec!["x".repeat(250); 4000].join("\n")).unwrap();
    let labels = labels.to_str().unwrap();
    let put = |name: &str, more: &[&str]| {
        let arguments = ["model", "put", name, ROWS, "--readers", "everyone"];
        cluster.run("mallory", &[&arguments, more].concat())
    };
    beside(&cluster, || {
        for name in ["a", "b", "c"] {
            let run = put(name, &["--labels", labels]);
            assert_eq!(run.code, 0, "{}", run.err);
        }
        let run = put("d", &[]);
        assert!(run.err.contains("limits.client_models"), "{}", run.err);
        assert_eq!(cluster.json("alice", &["model", "list"]).as_array().unwrap().len(), 4);
        for name in ["a", "b", "c"] {
            cluster.json("mallory", &["model", "remove", name]);
        }
    });
}

#[test]
fn lists_of_long_labels_asked_for_again_and_again_keep_nobody_waiting() {
    let cluster = cluster("lists", &[]);
    let labels = cluster.folder.join("labels");
    fs::write(&labels, vec!["x".repeat(250); 4000].join("\n")).unwrap();
    for model in 0..20 {
        let name = format!("m{model}");
        let more = ["--labels", labels.to_str().unwrap()];
        cluster.json("mallory", &[&["model", "put", &name, ROWS], &more[..]].concat());
    }
    beside(&cluster, || {
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    let mut channels = connect(&cluster);
                    for _ in 0..10 {
                        for request in [Request::Status, Request::Models { after: None }] {
                            let ask =
                                |channel: &mut Box<dyn Channel>| say(&mut **channel, &request);
                            channels.iter_mut().try_for_each(ask).unwrap();
                            for channel in &mut channels {
                                let told = reply(&mut **channel);
                                assert!(matches!(told, Reply::Status(_) | Reply::Models { .. }));
                            }
                        }
                    }
                });
            }
        });
    });
}

/// A model of three numbers and so many layers.
fn chain(layers: usize) -> Graph {
    let mut graph = Graph::new(1);
    let mut x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(3)]).unwrap();
    for layer in 0..layers {
        x = graph.add(&format!("layer{layer}"), Op::Unary(Unary::Sigmoid), &[x]).unwrap();
    }
    graph.output("y", x);
    graph
}

pub fn put(cluster: &Cluster, name: &str, graph: &Graph) {
    try_put(cluster, name, graph).unwrap();
}

fn try_put(cluster: &Cluster, name: &str, graph: &Graph) -> trefoil::Result<()> {
    let model =
        import::plan(name, graph, &PlanOptions::default(), Preprocess::default(), Vec::new())?;
    let plan = model.program.to_bytes()?;
    let (about, weights) = (&model.about, model.weights()?);
    let (readers, tokenizer) = (&Readers::Everyone, &b""[..]);
    let (plan, ranges, replace) = (plan.as_slice(), &[][..], false);
    let new = NewModel { name, about, plan, weights, readers, ranges, tokenizer, replace };
    mallory(cluster).put(new, &())
}

pub fn mallory(cluster: &Cluster) -> Client {
    client::connect(&ClientConfig::read(&cluster.client_config("mallory")).unwrap()).unwrap()
}
