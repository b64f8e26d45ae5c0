//! Owners of runs who want the rows of others, with a run that its data's owner has consented to.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use mpc_core::SplitMix64;
use nn_layers::{
    Binary, Dim, Graph, HostTensor, Op,
    train::{Accountant, Metric, Optimiser, Privacy, Schedule, TrainOptions, TrainPlan},
};
use ring_arith::Tensor;
use serde_json::{Value, json};
use trefoil::{
    Digest, Id, Preprocess, Result,
    client::{self, Client, NewRun},
    config::ClientConfig,
    store::Readers,
    training::{Augment, Course, DataSet, Group, Halt, Openings, RowTensor, RunSpec, Task},
    wire::{Reply, Request, hear, say, send_bytes},
};

use super::honest::{cluster, connect, connect_as};
use crate::common::{Cluster, all_digits, faults};

const LIMIT: Duration = Duration::from_secs(30);

/// Rows of alice's data set, and numbers of a row: pixels and one-hot labels.
const ROWS: usize = 100;
const PIXELS: usize = 64;
const CLASSES: usize = 10;

fn client(cluster: &Cluster, name: &str) -> Client {
    client::connect(&ClientConfig::read(&cluster.client_config(name)).unwrap()).unwrap()
}

fn said(outcome: Result<impl Sized>) -> String {
    outcome.map(|_| ()).unwrap_err().to_string()
}

/// Puts a hundred digits of alice's that mallory may name in runs. `options` are further ones of `data put`.
fn put_data(cluster: &Cluster, name: &str, options: &[&str]) {
    let file = cluster.folder.join("rows.csv");
    fs::write(&file, all_digits()[..ROWS].join("\n")).unwrap();
    let file = file.to_str().unwrap();
    let how = ["--label", "65", "--classes", "10", "--scale", "0.0625", "--readers", "mallory"];
    cluster.json("alice", &[&["data", "put", name, file][..], &how, options].concat());
}

/// A network that learns the digits.
fn honest(batch: usize) -> Graph {
    let mut graph = Graph::new(batch);
    let x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(PIXELS)]).unwrap();
    let zeros = HostTensor::new([PIXELS, CLASSES], vec![0.0; PIXELS * CLASSES]).unwrap();
    let w = graph.weight("w", zeros);
    let product = Op::MatMul { transpose_lhs: false, transpose_rhs: false };
    let y = graph.add("y", product, &[x, w]).unwrap();
    graph.output("y", y);
    graph.train(|_| true);
    graph
}

/// A network that copies: each place of a batch has weights of its own, whose gradient is the row in that place.
fn copying(batch: usize) -> Graph {
    let mut graph = Graph::new(batch);
    let x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(PIXELS)]).unwrap();
    let w = HostTensor::new([batch, PIXELS], vec![0.0; batch * PIXELS]).unwrap();
    let w = graph.weight("w", w);
    let y = graph.add("copy", Op::Binary(Binary::Mul), &[x, w]).unwrap();
    let ones = HostTensor::new([PIXELS, CLASSES], vec![1.0; PIXELS * CLASSES]).unwrap();
    let ones = graph.public("ones", ones);
    let product = Op::MatMul { transpose_lhs: false, transpose_rhs: false };
    let y = graph.add("y", product, &[y, ones]).unwrap();
    graph.output("y", y);
    graph.train(|_| true);
    graph.fix_batch();
    graph
}

fn options() -> TrainOptions {
    TrainOptions::default().with_optimiser(Optimiser::sgd(0.9))
}

/// A request, written, and the words of the start.
fn request(graph: &Graph, options: &TrainOptions) -> (Vec<u8>, Vec<Tensor>) {
    let output = graph.only_output().unwrap();
    let (request, plan, start) = TrainPlan::with_request(graph, output, options).unwrap();
    (serde_json::to_vec(&request).unwrap(), plan.encode_state(&start).unwrap())
}

fn spec(client: &mut Client, data: &str, epochs: u32, openings: Openings) -> RunSpec {
    let (data, _) = client.used(&[Group::Beside(vec![data.to_owned()])]).unwrap();
    let schedule = Schedule::constant(0.1);
    RunSpec {
        data,
        task: Task::Training {
            course: Course { epochs, seed: 1, schedule, augment: Augment::default() },
            preprocess: Preprocess::default(),
            labels: Vec::new(),
        },
        openings,
        recipients: Vec::new(),
    }
}

fn put_run(client: &mut Client, name: &str, spec: &RunSpec, graph: &Graph) -> Result<Digest> {
    let (request, state) = request(graph, &options());
    client
        .put_run(&NewRun { name, spec, request: &request, state: &state, replace: false }, &())?;
    Ok(client.run(name)?.run.fingerprint)
}

fn approve(cluster: &Cluster, name: &str) {
    let mark = client(cluster, "alice").run(name).unwrap().run.fingerprint;
    cluster.json("alice", &["run", "approve", name, &mark.letters()]);
}

/// Parts that do as they like beside options that promise something else: nothing but the request is read.
#[test]
fn a_crafted_step_is_refused() {
    let cluster = cluster("crafted-step", &[]);
    put_data(&cluster, "rows", &[]);
    let mut mallory = client(&cluster, "mallory");
    let spec = spec(&mut mallory, "rows", 1, Openings::last(10, 10));
    let (honest, state) = request(&honest(10), &options());
    let plan: Value = {
        let graph = copying(10);
        let output = graph.only_output().unwrap();
        serde_json::to_value(TrainPlan::new(&graph, output, &options()).unwrap().0).unwrap()
    };
    let mut beside: Value = serde_json::from_slice(&honest).unwrap();
    beside["step"] = plan["full"]["plan"].clone();
    let mut linear: Value = serde_json::from_slice(&honest).unwrap();
    let last = linear["nodes"].as_array().unwrap().len() - 1;
    linear["nodes"][last]["op"] = json!({ "linear": { "map": "mul", "bias": false, "residual": false, "finish": "truncate" } });
    for (crafted, reason) in [
        (plan, "training request is not sound"),
        (beside, "unknown field `step`"),
        (linear, "only the planner makes these"),
    ] {
        let bytes = serde_json::to_vec(&crafted).unwrap();
        let new = NewRun { name: "r", spec: &spec, request: &bytes, state: &state, replace: false };
        let text = said(client(&cluster, "mallory").put_run(&new, &()));
        assert!(text.contains(reason), "{reason}: {text}");
    }
    // An optimiser's state never leaves, however large it is.
    let mark = put_run(&mut mallory, "honest", &spec, &self::honest(10)).unwrap();
    approve(&cluster, "honest");
    mallory.train("honest", mark, 0, 10, true, &()).unwrap();
    let words = mallory.release("honest", mark, 10, &()).unwrap();
    let sizes: Vec<_> = words.iter().map(|words| words.words().len()).collect();
    assert_eq!(sizes, [PIXELS * CLASSES], "weights alone leave, no momentum");
}

/// A batch of one, or the weights after each step, would give each row: the change of the weights is the row times the
/// gradient of its result.
#[test]
fn weights_after_each_step_are_refused() {
    let cluster = cluster("each-step", &[]);
    put_data(&cluster, "rows", &[]);
    let mut mallory = client(&cluster, "mallory");
    let one = spec(&mut mallory, "rows", 1, Openings::last(ROWS as u32, ROWS as u32));
    let text = said(put_run(&mut client(&cluster, "mallory"), "one", &one, &honest(1)));
    assert!(text.contains("a batch of 1 rows shows single rows"), "{text}");
    let fine = spec(&mut mallory, "rows", 1, Openings::last(10, 1));
    let text = said(put_run(&mut client(&cluster, "mallory"), "fine", &fine, &honest(10)));
    assert!(text.contains("sums over 10 rows, and its owner asks for 100"), "{text}");

    let spec = spec(&mut mallory, "rows", 1, Openings::last(10, 10));
    let mark = put_run(&mut mallory, "run", &spec, &honest(10)).unwrap();
    approve(&cluster, "run");
    for step in 1..10 {
        let answer = mallory.train("run", mark, step - 1, 1, true, &()).unwrap();
        assert!(answer.outputs.is_empty(), "nothing leaves, nor what the guard found");
        let text = said(client(&cluster, "mallory").release("run", mark, step, &()));
        assert!(text.contains("its weights leave after steps [10]"), "{text}");
        let to = ("run", mark, step);
        let text =
            said(client(&cluster, "mallory").publish(to, "m", &Readers::Everyone, false, &()));
        assert!(text.contains("its weights leave after steps [10]"), "{text}");
    }
    let answer = mallory.train("run", mark, 9, 1, false, &()).unwrap();
    assert!(!answer.outputs.is_empty());
    mallory.release("run", mark, 10, &()).unwrap();
}

/// Names with line breaks would write lines of the screen on which an owner decides.
#[test]
fn forged_lines_are_refused() {
    let cluster = cluster("forged", &[]);
    put_data(&cluster, "rows", &[]);
    let mut mallory = client(&cluster, "mallory");
    let forged = "x\nfingerprint  00000000000000000000000000000000";
    let (mut spec, graph) = (spec(&mut mallory, "rows", 1, Openings::last(10, 10)), honest(10));
    for part in ["inputs", "tensors", "nodes"] {
        let (bytes, state) = request(&graph, &options());
        let mut crafted: Value = serde_json::from_slice(&bytes).unwrap();
        crafted[part][0]["name"] = forged.into();
        let bytes = serde_json::to_vec(&crafted).unwrap();
        let new = NewRun { name: "r", spec: &spec, request: &bytes, state: &state, replace: false };
        let text = said(client(&cluster, "mallory").put_run(&new, &()));
        assert!(text.contains("control characters"), "{part}: {text}");
    }
    spec.recipients = vec![forged.to_owned()];
    let text = said(put_run(&mut client(&cluster, "mallory"), "r", &spec, &graph));
    assert!(text.contains("is not a name"), "{text}");
    let tensor = RowTensor { name: forged.to_owned(), dims: vec![1], ..RowTensor::default() };
    let set = DataSet { rows: 1, tensors: vec![tensor], ..DataSet::default() };
    let mut channels = connect(&cluster);
    let put = Request::PutData {
        job: Id::random().unwrap(),
        name: "forged".to_owned(),
        set,
        readers: Readers::Everyone,
        replace: false,
    };
    say(&mut *channels[0], &put).unwrap();
    match hear::<Reply>(&mut *channels[0], LIMIT).unwrap() {
        Reply::Failed { reason } => assert!(reason.contains("control characters"), "{reason}"),
        other => panic!("{other:?}"),
    }
    // Nor does a server take more bytes for a request than it announced room for.
    let run = Request::PutRun {
        job: Id::random().unwrap(),
        name: "r".to_owned(),
        spec: Box::new(RunSpec { recipients: Vec::new(), ..spec }),
        request: 4,
        replace: false,
    };
    say(&mut *channels[1], &run).unwrap();
    assert_eq!(hear::<Reply>(&mut *channels[1], LIMIT).unwrap(), Reply::Send);
    send_bytes(&mut *channels[1], b"null".to_vec().into(), &mut |_| {}).unwrap();
    match hear::<Reply>(&mut *channels[1], LIMIT).unwrap() {
        Reply::Failed { reason } => assert!(reason.contains("is not sound"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

/// What the owner of data takes back ends at once, with one server gone as well, and no weights leave after it.
#[test]
fn a_withdrawal_during_a_long_job_ends_it() {
    let mut cluster = cluster("withdraw", &[]);
    put_data(&cluster, "rows", &[]);
    let data = cluster.folder.join("party-1/data");
    let backup = cluster.folder.join("backup");
    cluster.kill(1);
    copy(&data, &backup);
    cluster.start_party(1);
    cluster.wait_until_up("alice");
    let mut mallory = client(&cluster, "mallory");
    let steps = 1_000_000;
    let openings = Openings { weights: vec![1, steps], metrics: steps };
    let spec = spec(&mut mallory, "rows", steps / 10, openings);
    let mark = put_run(&mut mallory, "long", &spec, &honest(10)).unwrap();
    approve(&cluster, "long");
    let began = Instant::now();
    mallory.train("long", mark, 0, 1, true, &()).unwrap();
    let step = began.elapsed();
    // All servers hear it, or one alone.
    for hearers in [&[0, 1, 2][..], &[1]] {
        let (ended, said_at) = thread::scope(|scope| {
            let trains = scope.spawn(|| {
                let mut mallory = client(&cluster, "mallory");
                let (mut from, mut steps) = (1, 16);
                loop {
                    match mallory.train("long", mark, from, steps, false, &()) {
                        Ok(_) => from += steps,
                        Err(error) => return (Instant::now(), error.to_string()),
                    }
                    steps = 200;
                }
            });
            thread::sleep(Duration::from_millis(700));
            let mut alice = connect_as(&cluster, "alice");
            let said_at = Instant::now();
            let request = Request::Halt { name: "long".to_owned(), halt: Halt::Withdraw };
            for &party in hearers {
                say(&mut *alice[party], &request).unwrap();
            }
            for &party in hearers {
                assert_eq!(hear::<Reply>(&mut *alice[party], LIMIT).unwrap(), Reply::Done);
            }
            (trains.join().unwrap(), said_at)
        });
        let (at, text) = ended;
        assert!(
            text.contains("withdrawn its consent") || text.contains("the consent of alice"),
            "{text}"
        );
        let late = at.saturating_duration_since(said_at);
        println!("{hearers:?}: the last step ended {late:?} after it; a step takes up to {step:?}");
        let text = said(client(&cluster, "mallory").release("long", mark, 1, &()));
        assert!(text.contains("waits for the consent of alice"), "{text}");
        approve(&cluster, "long");
        client(&cluster, "mallory").train("long", mark, 1, 1, false, &()).unwrap();
    }

    // With one server gone the others hear it, and the run needs all three.
    cluster.kill(2);
    let told = cluster.run("alice", &["--json", "run", "withdraw", "long"]);
    assert_eq!(told.code, 0, "{}", told.err);
    let told: Value = serde_json::from_str(&told.out).unwrap();
    assert_eq!(told["heard"], json!([0, 1]));
    cluster.start_party(2);
    cluster.wait_until_up("alice");
    let text = said(client(&cluster, "mallory").train("long", mark, 1, 1, false, &()));
    assert!(text.contains("waits for the consent of alice"), "{text}");
    // The server that did not hear it agrees again once the owner of the data says so to all.
    approve(&cluster, "long");
    client(&cluster, "mallory").train("long", mark, 1, 1, false, &()).unwrap();

    // So do they if one comes back from a backup that knows nothing of the run.
    cluster.kill(1);
    fs::remove_dir_all(&data).unwrap();
    fs::rename(&backup, &data).unwrap();
    cluster.start_party(1);
    cluster.wait_until_up("alice");
    let told = cluster.run("alice", &["--json", "run", "withdraw", "long"]);
    assert_eq!(told.code, 0, "{}", told.err);
    let told: Value = serde_json::from_str(&told.out).unwrap();
    assert_eq!(told["heard"], json!([0, 2]));
    said(client(&cluster, "mallory").train("long", mark, 1, 1, false, &()));
    said(client(&cluster, "mallory").release("long", mark, 1, &()));
}

/// Copies a folder with all that is in it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// The network itself may copy. Its owner is shown how many numbers leave beside those that went in, and a limit
/// of the data's owner refuses it.
#[test]
fn a_network_that_copies_rows_is_shown_and_a_limit_refuses_it() {
    let cluster = cluster("copying", &[]);
    put_data(&cluster, "rows", &[]);
    put_data(&cluster, "few", &["--most-numbers-out", "700"]);
    let mut mallory = client(&cluster, "mallory");
    let graph = copying(50);
    let openings = Openings { weights: vec![1, 2], metrics: 2 };
    let run = spec(&mut mallory, "rows", 1, openings.clone());
    put_run(&mut mallory, "copy", &run, &graph).unwrap();
    let text = cluster.run("alice", &["run", "show", "copy"]).out;
    let leaves = cluster.json("alice", &["run", "show", "copy"])["leaves"].clone();
    let numbers = 50 * PIXELS;
    let checks = leaves["flow"]["checks"].as_u64().unwrap();
    assert!(checks > 0, "what the guard finds leaves too");
    for line in [
        format!(
            "leaves       {numbers} numbers of the trained network, 2 times, after steps [1, 2] of 2, to mallory"
        ),
        format!("went in      {} numbers of {ROWS} rows", ROWS * (PIXELS + CLASSES)),
        format!("{checks} numbers that say which layers kept within their range, to mallory"),
        format!("WARNING      {} numbers may leave", 2 * numbers as u64 + checks),
        "WARNING      the network treats the rows of a batch differently by their place".to_owned(),
    ] {
        assert!(text.contains(&line), "{line}\n{text}");
    }
    let run = spec(&mut mallory, "few", 1, openings);
    let text = said(put_run(&mut client(&cluster, "mallory"), "limited", &run, &graph));
    assert!(text.contains("numbers would leave, and its owner allows 700"), "{text}");

    // An honest run beside it: 640 weights once, and no warning.
    let run = spec(&mut mallory, "few", 1, Openings::last(10, 10));
    put_run(&mut mallory, "honest", &run, &honest(10)).unwrap();
    let text = cluster.run("alice", &["run", "show", "honest"]).out;
    assert!(
        text.contains("640 numbers of the trained network, once, after step 10 of 10"),
        "{text}"
    );
    assert!(!text.contains("WARNING"), "{text}");
}

/// Servers are killed at any moment of runs with openings: what was agreed leaves once at most, and the counts are right.
#[test]
fn kills_at_any_moment_let_nothing_leave_twice() {
    const STEPS: u32 = 30;
    let mut cluster = cluster("killed-openings", &[]);
    put_data(&cluster, "rows", &[]);
    let graph = honest(10);
    let metered = options().with_metrics([Metric::Loss]);
    let (bytes, state) = request(&graph, &metered);
    let mut random = SplitMix64::new(7);
    for trial in 0..6 * faults() {
        let name = format!("run-{trial}");
        let openings = Openings { weights: vec![7, STEPS], metrics: 10 };
        let mark = {
            let mut mallory = client(&cluster, "mallory");
            let spec = spec(&mut mallory, "rows", STEPS / 10, openings.clone());
            let new =
                NewRun { name: &name, spec: &spec, request: &bytes, state: &state, replace: false };
            mallory.put_run(&new, &()).unwrap();
            mallory.run(&name).unwrap().run.fingerprint
        };
        approve(&cluster, &name);
        let (party, delay) = (random.next_u64() as usize % 3, random.next_u64() % 150);
        let config = ClientConfig::read(&cluster.client_config("mallory")).unwrap();
        let seen = thread::scope(|scope| {
            let owner = scope.spawn(|| go_through(&config, &name, mark, &openings, STEPS));
            thread::sleep(Duration::from_millis(delay));
            cluster.kill(party);
            cluster.start_party(party);
            owner.join().unwrap()
        });
        for (end, times) in &seen.metrics {
            assert!([10, 20, 30].contains(end) && *times == 1, "{:?}", seen.metrics);
        }
        for party in 0..3 {
            let kept =
                cluster.folder.join(format!("party-{party}/data/counts/opened/{}", mark.letters()));
            let text = fs::read_to_string(kept).unwrap();
            let counts: Value = serde_json::from_str(text.split_once('\n').unwrap().1).unwrap();
            assert_eq!(counts["weights"], STEPS, "trial {trial}, party {party}");
            // The last window may have left some servers and not others when one was killed.
            assert!(counts["metrics"].as_u64().unwrap() <= u64::from(STEPS));
        }
        client(&cluster, "mallory").remove(&name, &()).unwrap();
    }
}

/// Servers are killed at any moment of runs with noise: each counts every run once, before it does a step of it.
#[test]
fn kills_at_any_moment_never_make_a_privacy_count_wrong() {
    const STEPS: u32 = 20;
    let mut cluster = cluster("killed-budgets", &[]);
    put_data(&cluster, "rows", &["--privacy-budget", "900", "--delta", "1e-6"]);
    let privacy = Privacy::new(1.0, 2.0);
    let (bytes, state) = request(&honest(10), &options().with_privacy(privacy));
    let mut random = SplitMix64::new(11);
    let mut expected = Accountant::default();
    for trial in 0..3 * faults() {
        let name = format!("noisy-{trial}");
        let openings = Openings::last(STEPS, STEPS / 2);
        let mark = {
            let mut mallory = client(&cluster, "mallory");
            let spec = spec(&mut mallory, "rows", STEPS / 10, openings.clone());
            let new =
                NewRun { name: &name, spec: &spec, request: &bytes, state: &state, replace: false };
            mallory.put_run(&new, &()).unwrap();
            mallory.run(&name).unwrap().run.fingerprint
        };
        approve(&cluster, &name);
        let (party, delay) = (random.next_u64() as usize % 3, random.next_u64() % 150);
        let config = ClientConfig::read(&cluster.client_config("mallory")).unwrap();
        thread::scope(|scope| {
            let owner = scope.spawn(|| go_through(&config, &name, mark, &openings, STEPS));
            thread::sleep(Duration::from_millis(delay));
            cluster.kill(party);
            cluster.start_party(party);
            owner.join().unwrap()
        });
        // Each row is seen in two steps.
        expected.add(&privacy.accountant(2).unwrap());
        for sets in client(&cluster, "mallory").data_sets().unwrap() {
            assert_eq!(sets[0].spent.accountant, expected, "trial {trial}");
        }
        client(&cluster, "mallory").remove(&name, &()).unwrap();
    }
}

/// What a run's owner was given.
#[derive(Default)]
struct Given {
    /// How often the metrics of the window that ends with a step came.
    metrics: BTreeMap<u32, u32>,
    /// The weights after each step that they left after.
    weights: BTreeMap<u32, Vec<Tensor>>,
}

/// A run's owner who takes all it can get, and tries again whatever fails.
fn go_through(
    config: &ClientConfig,
    name: &str,
    mark: Digest,
    openings: &Openings,
    steps: u32,
) -> Given {
    let began = Instant::now();
    let mut given = Given::default();
    loop {
        assert!(began.elapsed() < LIMIT, "{name} does not go on");
        let done = step(config, name, mark, openings, steps, &mut given);
        match done {
            Ok(true) => return given,
            Ok(false) => {}
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// One slice, and the weights after it if they leave. Whether the run has ended, and its weights have come.
fn step(
    config: &ClientConfig,
    name: &str,
    mark: Digest,
    openings: &Openings,
    steps: u32,
    given: &mut Given,
) -> Result<bool> {
    let mut mallory = client::connect(config)?;
    let at = mallory.run(name)?.run.step;
    if openings.opens_weights(at) && !given.weights.contains_key(&at) {
        for _ in 0..2 {
            let words = mallory.release(name, mark, at, &())?;
            // Fetched again, whatever was killed meanwhile, they are the same words.
            assert_eq!(given.weights.entry(at).or_insert_with(|| words.clone()), &words);
        }
    }
    if at == steps {
        return Ok(given.weights.contains_key(&at));
    }
    let end = openings.slice_end(at, steps);
    let answer = mallory.train(name, mark, at, end - at, true, &())?;
    // One metric, and what the guard found.
    if answer.outputs.len() > 1 {
        *given.metrics.entry(end).or_default() += 1;
    }
    Ok(false)
}
