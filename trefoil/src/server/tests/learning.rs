//! Trainings on the servers: data of several owners, their consent, and states that are kept.

use nn_layers::{
    layers::{BatchNorm, Layer},
    train::{Adam, Metric, Optimiser, Schedule, Second, TrainOptions, TrainPlan, TrainRequest},
};

use super::*;
use crate::{
    client::NewRun,
    training::{
        Augment, Conditions, Course, DataSet, Decision, Halt, Openings, Position, RowTensor,
        RunSpec, Task, Training, Used, tensors,
    },
};

pub(super) const BATCH: usize = 4;

/// Rows of three numbers, and which of two classes they are of.
pub(super) struct Rows {
    pub(super) values: HostTensor,
    pub(super) labels: HostTensor,
}

pub(super) fn rows(count: usize, salt: u64) -> Rows {
    let mut state = salt;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0
    };
    let values: Vec<f64> = (0..3 * count).map(|_| next()).collect();
    let class = |row: &[f64]| i64::from(row[0] + row[1] > row[2]);
    let labels = values.chunks(3).flat_map(|row| [1 - class(row), class(row)]).collect();
    Rows {
        values: HostTensor::new([count, 3], values).unwrap(),
        labels: HostTensor::integers([count, 2], labels).unwrap(),
    }
}

/// The parts of a training: the request, the plan that is derived from it, and the state at the
/// start.
pub(super) struct Learner {
    pub(super) request: TrainRequest,
    pub(super) plan: TrainPlan,
    pub(super) start: Vec<HostTensor>,
}

impl Learner {
    pub(super) fn new(graph: &Graph, output: nn_layers::ValueId, options: &TrainOptions) -> Self {
        let (request, plan, start) = TrainPlan::with_request(graph, output, options).unwrap();
        Self { request, plan, start }
    }
}

pub(super) fn network() -> Learner {
    learner(Optimiser::sgd(0.5), false)
}

/// A product with a matrix, and a batch normalisation behind it if `normalised`.
fn learner(optimiser: Optimiser, normalised: bool) -> Learner {
    let mut graph = Graph::new(BATCH);
    let x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(3)]).unwrap();
    let w = HostTensor::new([3, 2], vec![0.1, -0.2, 0.3, 0.2, -0.1, 0.4]).unwrap();
    let w = graph.weight("w", w);
    let mut y = graph.add("y", matmul(), &[x, w]).unwrap();
    if normalised {
        let two = |a, b| HostTensor::new([2], vec![a, b]).unwrap().into();
        let (scale, shift) = (two(1.0, 0.8), two(0.1, -0.1));
        let (mean, variance) = (two(0.0, 0.05), two(1.0, 0.9));
        let norm = BatchNorm { scale, shift, mean, variance, epsilon: 1e-3, momentum: 0.1 };
        y = norm.forward(&mut graph, "norm", y).unwrap();
    }
    graph.train(|_| true);
    let options = TrainOptions::default()
        .with_optimiser(optimiser)
        .with_metrics([Metric::Loss, Metric::Right]);
    Learner::new(&graph, y, &options)
}

fn put_data(client: &mut Client, name: &str, rows: &Rows, replace: bool) -> Result<()> {
    put_data_under(client, name, rows, Conditions::default(), replace)
}

pub(super) fn put_data_under(
    client: &mut Client,
    name: &str,
    rows: &Rows,
    conditions: Conditions,
    replace: bool,
) -> Result<()> {
    let plan = network().plan;
    let count = rows.values.dims()[0];
    let set =
        DataSet { rows: count, tensors: tensors(&plan).unwrap(), conditions, key: Vec::new() };
    let words = [&rows.values, &rows.labels];
    let words = [0, 1].map(|at| plan.encode_rows(at, words[at]).unwrap());
    client.put_data(name, &set, words.into(), &Readers::Everyone, replace, &())
}

fn course() -> Course {
    let schedule = Schedule::constant(0.1);
    Course { epochs: 3, seed: 5, schedule, augment: Augment::default() }
}

pub(super) fn spec(client: &mut Client, names: &[&str]) -> RunSpec {
    let sets = client.data_sets().unwrap();
    let version = |name: &str| sets[0].iter().find(|set| set.name == name).unwrap().version;
    let used = |name: &&str| Used {
        name: (*name).to_owned(),
        version: version(name),
        position: Position::After,
    };
    RunSpec {
        data: names.iter().map(used).collect(),
        task: Task::Training {
            course: course(),
            preprocess: crate::model::Preprocess::default(),
            labels: Vec::new(),
        },
        openings: Openings::last(9, 3),
        recipients: Vec::new(),
    }
}

/// The course of a training.
fn course_of(spec: &mut RunSpec) -> &mut Course {
    match &mut spec.task {
        Task::Training { course, .. } => course,
        Task::Analysis => panic!("an analysis has no course"),
    }
}

fn put_run(client: &mut Client, name: &str, spec: &RunSpec, replace: bool) -> Result<()> {
    put_run_of(client, name, spec, &network(), replace)
}

pub(super) fn put_run_of(
    client: &mut Client,
    name: &str,
    spec: &RunSpec,
    learner: &Learner,
    replace: bool,
) -> Result<()> {
    let state = learner.plan.encode_state(&learner.start).unwrap();
    let request = serde_json::to_vec(&learner.request).unwrap();
    client.put_run(&NewRun { name, spec, request: &request, state: &state, replace }, &())
}

/// Data of alice and bob, and a run of carol's on both.
pub(super) fn prepared(world: &World) -> [Client; 3] {
    let [mut alice, mut bob, mut carol] = ["alice", "bob", "carol"].map(|name| world.client(name));
    put_data(&mut alice, "a", &rows(9, 1), false).unwrap();
    put_data(&mut bob, "b", &rows(6, 2), false).unwrap();
    let spec = spec(&mut carol, &["a", "b"]);
    put_run(&mut carol, "run", &spec, false).unwrap();
    [alice, bob, carol]
}

/// All rows as the run sees them, and the run in the clear.
fn in_the_clear(steps: std::ops::Range<u32>, state: &mut [HostTensor]) -> Vec<f64> {
    in_the_clear_of(&training(), steps, state)
}

fn in_the_clear_of(
    training: &Training,
    steps: std::ops::Range<u32>,
    state: &mut [HostTensor],
) -> Vec<f64> {
    let (first, second) = (rows(9, 1), rows(6, 2));
    let values = [first.values.floats(), second.values.floats()].concat();
    let labels = [first.labels.as_ints().unwrap(), second.labels.as_ints().unwrap()].concat();
    let all =
        [HostTensor::new([15, 3], values).unwrap(), HostTensor::integers([15, 2], labels).unwrap()];
    let count = training.rows_of(steps.len() as u32) as f64;
    let sums = training.run_in_the_clear(state, &all, steps).unwrap();
    sums.into_iter().map(|sum| sum / count).collect()
}

pub(super) fn training() -> Training {
    training_of(network().plan)
}

fn training_of(plan: TrainPlan) -> Training {
    Training::of_epochs(plan, course(), 15).unwrap()
}

pub(super) fn said(outcome: Result<impl Sized>) -> String {
    outcome.map(|_| ()).unwrap_err().to_string()
}

#[test]
fn a_run_on_two_owners_data_waits_for_both_and_learns_what_the_same_in_the_clear_learns() {
    let world = World::new(&Limits::default());
    let [mut alice, mut bob, mut carol] = prepared(&world);
    let state = carol.run("run").unwrap();
    assert_eq!((state.run.rows, state.run.step), (15, 0));
    let mark = state.run.fingerprint;
    let text = said(carol.train("run", mark, 0, 1, false, &()));
    assert!(text.contains("waits for the consent of alice, bob"), "{text}");
    alice.approve("run", mark, &()).unwrap();
    let text = said(world.client("carol").train("run", mark, 0, 1, false, &()));
    assert!(text.contains("waits for the consent of bob"), "{text}");
    bob.approve("run", mark, &()).unwrap();

    let mut carol = world.client("carol");
    let mut floats = network().start;
    for (from, steps, window) in
        [(0, 1, None), (1, 2, Some(0..3)), (3, 3, Some(3..6)), (6, 3, Some(6..9))]
    {
        let answer = carol.train("run", mark, from, steps, from == 1, &()).unwrap();
        let metrics = training().decode_metrics(&answer.outputs, from + steps).unwrap();
        assert_eq!(metrics.is_some(), window.is_some(), "metrics leave once an epoch");
        let wanted = window.map(|window| in_the_clear(window, &mut floats)).unwrap_or_default();
        for (found, wanted) in metrics.iter().flatten().zip(wanted) {
            assert!((found - wanted).abs() < 1e-3, "{metrics:?} {wanted}");
        }
        assert!(answer.costs.iter().all(|cost| cost.bytes > 0));
    }
    // Weights leave after that step, so the state after it is kept whether the client asks for it or not.
    assert_eq!(carol.run("run").unwrap().run.step, 9);

    // The owner alone gets the weights, as they are after that step.
    let plan = carol.run_plan(&state).unwrap();
    let words = carol.release("run", mark, 9, &()).unwrap();
    assert_eq!(words.len(), 1, "the momentum stays with the servers");
    let weights = plan.train_plan("run").unwrap().decode_network(&words).unwrap();
    for (found, wanted) in weights[0].floats().iter().zip(floats[0].floats().iter()) {
        assert!((found - wanted).abs() < 1e-3, "{found} {wanted}");
    }
    let text = said(world.client("alice").release("run", mark, 9, &()));
    assert!(text.contains("belongs to client carol"), "{text}");
    let text = said(world.client("mallory").run_plan(&state));
    assert!(text.contains("not shared with"), "{text}");

    carol.publish(("run", mark, 9), "learnt", &Readers::Everyone, false, &()).unwrap();
    let found = infer(&mut bob, "learnt", [1.0, 0.5, -0.25]).unwrap();
    let weights = floats[0].floats();
    let wanted = [0, 1].map(|at| weights[at] + 0.5 * weights[2 + at] - 0.25 * weights[4 + at]);
    close(&found, wanted);
}

/// Columns `from..to` of a tensor.
pub(super) fn columns(all: &HostTensor, from: usize, to: usize) -> HostTensor {
    let wide = all.dims()[1];
    let picked = |row: &[f64]| row[from..to].to_vec();
    let values = all.floats().chunks(wide).flat_map(picked).collect();
    HostTensor::new([all.dims()[0], to - from], values).unwrap()
}

fn put_part(client: &mut Client, name: &str, tensor: &str, part: &HostTensor, fraction_bits: u32) {
    let dims = part.dims()[1..].to_vec();
    let row = RowTensor { name: tensor.to_owned(), dims, fraction_bits, ..RowTensor::default() };
    let set = DataSet { rows: part.dims()[0], tensors: vec![row], ..DataSet::default() };
    let unit = f64::from(fraction_bits).exp2();
    let words = part.floats().iter().map(|x| (x * unit).round() as i64 as u64).collect();
    let words = Tensor::new(Shape::new(part.dims()).unwrap(), words).unwrap();
    client.put_data(name, &set, vec![words], &Readers::Everyone, false, &()).unwrap();
}

#[test]
fn a_run_learns_from_rows_whose_columns_and_labels_have_an_owner_each() {
    let world = World::new(&Limits::default());
    let [mut alice, mut bob, mut carol] = ["alice", "bob", "carol"].map(|name| world.client(name));
    let (apart, whole) = (rows(9, 1), rows(6, 2));
    put_part(&mut alice, "left", "values", &columns(&apart.values, 0, 2), 20);
    put_part(&mut bob, "right", "values", &columns(&apart.values, 2, 3), 20);
    put_part(&mut carol, "labels", "labels", &apart.labels, 0);
    put_part(&mut carol, "few", "labels", &whole.labels, 0);
    put_data(&mut bob, "whole", &whole, false).unwrap();
    let beside = |client: &mut Client, names: &[&str], places: &[usize]| {
        let mut spec = spec(client, names);
        places.iter().for_each(|&at| spec.data[at].position = Position::Beside);
        spec
    };

    for (names, places, reason) in [
        (&["left", "right", "few"][..], &[1, 2][..], "they have 9 and 6 rows"),
        (&["left", "labels"], &[1], "data set `left` beside `labels`: a row of it has"),
        (&["left", "right", "labels"], &[0, 1, 2], "no data set stands before `left`"),
        (&["left", "right", "left"], &[1, 2], "data set `left` is named twice"),
    ] {
        let mut carol = world.client("carol");
        let bad = beside(&mut carol, names, places);
        let text = said(put_run(&mut carol, "bad", &bad, false));
        assert!(text.contains(reason), "{text}");
    }

    let spec = beside(&mut carol, &["left", "right", "labels", "whole"], &[1, 2]);
    put_run(&mut carol, "run", &spec, false).unwrap();
    let state = carol.run("run").unwrap();
    assert_eq!((state.run.rows, state.run.missing("carol")), (15, vec!["alice", "bob"]));
    let mark = state.run.fingerprint;
    alice.approve("run", mark, &()).unwrap();
    bob.approve("run", mark, &()).unwrap();
    let mut floats = network().start;
    for from in [0, 3, 6] {
        let answer = carol.train("run", mark, from, 3, false, &()).unwrap();
        let metrics = training().decode_metrics(&answer.outputs, from + 3).unwrap().unwrap();
        let wanted = in_the_clear(from..from + 3, &mut floats);
        for (found, wanted) in metrics.iter().zip(wanted) {
            assert!((found - wanted).abs() < 1e-3, "{metrics:?} {wanted}");
        }
    }
}

/// Pixels move on shares as they do in the clear; nothing is sent for it, and the fingerprint covers it.
#[test]
fn pictures_that_are_mirrored_and_moved_teach_on_servers_what_they_teach_in_the_clear() {
    let world = World::new(&Limits::default());
    let mut carol = world.client("carol");
    let mut graph = Graph::new(BATCH);
    let picture = [Dim::Batch(1), Dim::Fixed(1), Dim::Fixed(2), Dim::Fixed(3)];
    let x = graph.input("x", &picture).unwrap();
    let flat = graph.add("flat", Op::Reshape(vec![Dim::Batch(1), Dim::Fixed(6)]), &[x]).unwrap();
    let w = (0..12).map(|at| f64::from(at) / 16.0 - 0.375).collect();
    let w = graph.weight("w", HostTensor::new([6, 2], w).unwrap());
    let y = graph.add("y", matmul(), &[flat, w]).unwrap();
    graph.train(|_| true);
    let options = TrainOptions::default().with_metrics([Metric::Loss, Metric::Right]);
    let learner = Learner::new(&graph, y, &options);
    let Learner { plan, start, .. } = &learner;

    let values = rows(24, 1).values.reshape([12, 1, 2, 3]).unwrap();
    let labels = rows(12, 2).labels;
    let set = DataSet { rows: 12, tensors: tensors(plan).unwrap(), ..DataSet::default() };
    let words = [plan.encode_rows(0, &values).unwrap(), plan.encode_rows(1, &labels).unwrap()];
    carol.put_data("pictures", &set, words.into(), &Readers::Everyone, false, &()).unwrap();

    let mut marks = Vec::new();
    let mut bytes = Vec::new();
    let mut losses = Vec::new();
    for (name, augment) in
        [("still", Augment::default()), ("moved", Augment { flip: true, crop: 1 })]
    {
        let mut spec = spec(&mut carol, &["pictures"]);
        course_of(&mut spec).augment = augment;
        spec.openings.metrics = 9;
        put_run_of(&mut carol, name, &spec, &learner, false).unwrap();
        let mark = carol.run(name).unwrap().run.fingerprint;
        let answer = carol.train(name, mark, 0, 9, false, &()).unwrap();
        let training = Training::new(plan.clone(), &spec, 12).unwrap();
        let found = training.decode_metrics(&answer.outputs, 9).unwrap().unwrap();
        let all = [values.clone(), labels.clone()];
        let wanted = training.run_in_the_clear(&mut start.clone(), &all, 0..9).unwrap();
        assert!((found[0] - wanted[0] / 36.0).abs() < 1e-3, "{name}: {found:?} {wanted:?}");
        marks.push(mark);
        bytes.push(answer.costs.iter().map(|cost| cost.bytes).collect::<Vec<_>>());
        losses.push(found[0]);
    }
    assert_ne!(marks[0], marks[1]);
    assert_eq!(bytes[0], bytes[1]);
    assert!((losses[0] - losses[1]).abs() > 1e-2, "{losses:?}");

    let mut spec = spec(&mut carol, &["pictures"]);
    course_of(&mut spec).augment.crop = 2;
    let text = said(put_run_of(&mut world.client("carol"), "far", &spec, &learner, false));
    assert!(text.contains("leaves nothing of a picture [1, 2, 3]"), "{text}");
}

/// Second moments, roots that are taken again, and running statistics survive slices and storage on disk; a model of
/// them equals the one in the clear.
#[test]
fn adam_and_batch_normalisations_learn_on_servers_what_they_learn_in_the_clear() {
    let world = World::new(&Limits::default());
    let [mut alice, mut bob, mut carol] = prepared(&world);
    let adam = |second, every| Optimiser::Adam(Adam { second, every, ..Adam::default() });
    for (name, optimiser, normalised) in [
        ("adam", adam(Second::Weight, 3), false),
        ("adam-by-row", adam(Second::Row, 1), true),
        ("normalised", Optimiser::sgd(0.5), true),
    ] {
        let start = learner(optimiser, normalised);
        let mut spec = spec(&mut carol, &["a", "b"]);
        spec.openings.metrics = 9;
        put_run_of(&mut carol, name, &spec, &start, false).unwrap();
        let mark = carol.run(name).unwrap().run.fingerprint;
        alice.approve(name, mark, &()).unwrap();
        bob.approve(name, mark, &()).unwrap();
        let Learner { plan, start: mut floats, .. } = start;
        let training = Training::new(plan, &spec, 15).unwrap();
        // The last slice begins with what was kept, the sums of the metrics too: what was in memory is that of another
        // step.
        for (from, steps, keep) in [(0, 5, true), (5, 2, false), (5, 4, true)] {
            let answer = carol.train(name, mark, from, steps, keep, &()).unwrap();
            let found = training.decode_metrics(&answer.outputs, from + steps).unwrap();
            if (from, keep) != (5, true) {
                assert_eq!(found, None);
                continue;
            }
            let wanted = in_the_clear_of(&training, 0..9, &mut floats);
            let found = found.unwrap();
            assert!((found[0] - wanted[0]).abs() < 1e-3, "{name}: {found:?} {wanted:?}");
        }
        let words = carol.release(name, mark, 9, &()).unwrap();
        let state = training.plan().decode_network(&words).unwrap();
        let network = training.plan().network_places();
        let all = training.plan().state();
        for ((spec, found), wanted) in
            network.iter().map(|&at| ((&all[at], &state[at]), &floats[at]))
        {
            for (found, wanted) in found.floats().iter().zip(wanted.floats().iter()) {
                let limit = 2e-3 * wanted.abs().max(1.0);
                assert!((found - wanted).abs() < limit, "{name} {}: {found} {wanted}", spec.name);
            }
        }
        carol.publish((name, mark, 9), "learnt", &Readers::Everyone, true, &()).unwrap();
        let found = infer(&mut bob, "learnt", [1.0, 0.5, -0.25]).unwrap();
        let weights = training.plan().finish_in_the_clear(&floats).unwrap();
        let x = HostTensor::new([1, 3], vec![1.0, 0.5, -0.25]).unwrap();
        let wanted = training.plan().inference().evaluate(&weights, &[x]).unwrap();
        for (found, wanted) in found.iter().zip(wanted[0].floats().iter()) {
            assert!((found - wanted).abs() < 5e-3, "{name}: {found} {wanted}");
        }
    }
}

#[test]
fn consent_covers_all_of_a_run_and_nobody_else_can_give_or_use_it() {
    let world = World::new(&Limits::default());
    let [mut alice, _, mut carol] = prepared(&world);
    let mark = carol.run("run").unwrap().run.fingerprint;
    for name in ["carol", "mallory"] {
        let text = said(world.client(name).approve("run", mark, &()));
        assert!(text.contains("no data of yours") || text.contains("not shared with"), "{text}");
    }
    let text = said(world.client("mallory").train("run", mark, 0, 1, false, &()));
    assert!(text.contains("not shared with client mallory"), "{text}");
    let text = said(world.client("alice").train("run", mark, 0, 1, false, &()));
    assert!(text.contains("belongs to client carol"), "{text}");
    alice.approve("run", mark, &()).unwrap();
    world.client("bob").approve("run", mark, &()).unwrap();

    // The same under another course is another run, which needs new consent.
    let mut longer = spec(&mut carol, &["a", "b"]);
    course_of(&mut longer).epochs = 4;
    put_run(&mut carol, "run", &longer, true).unwrap();
    let state = carol.run("run").unwrap();
    assert_ne!(state.run.fingerprint, mark);
    let text = said(world.client("carol").train("run", mark, 0, 1, false, &()));
    assert!(text.contains("another run by now"), "{text}");
    let text = said(world.client("alice").approve("run", mark, &()));
    assert!(text.contains("another run by now"), "{text}");
    let fresh = state.run.fingerprint;
    let text = said(world.client("carol").train("run", fresh, 0, 1, false, &()));
    assert!(text.contains("waits for the consent of alice, bob"), "{text}");

    // Nor does it cover other data under the same name.
    alice = world.client("alice");
    alice.approve("run", fresh, &()).unwrap();
    world.client("bob").approve("run", fresh, &()).unwrap();
    put_data(&mut alice, "a", &rows(9, 3), true).unwrap();
    let text = said(world.client("carol").train("run", fresh, 0, 1, false, &()));
    assert!(text.contains("data set `a`") && text.contains("replaced"), "{text}");
}

#[test]
fn recipients_that_the_run_names_get_the_weights_too_and_its_data_owners_see_who() {
    let world = World::new(&Limits::default());
    let [mut alice, mut bob, mut carol] = prepared(&world);
    let mut shared = spec(&mut carol, &["a", "b"]);
    shared.recipients = vec!["dave".to_owned()];
    shared.openings.weights = vec![1, 9];
    put_run(&mut carol, "shared", &shared, false).unwrap();
    let state = alice.run("shared").unwrap();
    assert_eq!(state.run.spec.recipients, ["dave"]);
    let mark = state.run.fingerprint;
    assert_ne!(mark, carol.run("run").unwrap().run.fingerprint);
    alice.approve("shared", mark, &()).unwrap();
    bob.approve("shared", mark, &()).unwrap();
    carol.train("shared", mark, 0, 1, true, &()).unwrap();
    let mine = carol.release("shared", mark, 1, &()).unwrap();
    let mut dave = world.client("dave");
    assert_eq!(dave.run("shared").unwrap(), carol.run("shared").unwrap());
    assert_eq!(dave.release("shared", mark, 1, &()).unwrap(), mine);
    for name in ["alice", "mallory"] {
        let text = said(world.client(name).release("shared", mark, 1, &()));
        assert!(text.contains("belongs to client carol") || text.contains("not shared"), "{text}");
    }
    // To get is all that a recipient may.
    let text = said(world.client("dave").train("shared", mark, 1, 1, false, &()));
    assert!(text.contains("belongs to client carol"), "{text}");
    let text = said(world.client("dave").run("run"));
    assert!(text.contains("none of that name"), "{text}");
    shared.recipients = vec!["no name".to_owned()];
    assert!(said(put_run(&mut carol, "other", &shared, false)).contains("no name"));
}

#[test]
fn an_owner_of_data_takes_consent_back_and_the_owner_of_a_run_stops_it() {
    let world = World::new(&Limits::default());
    let [mut alice, mut bob, mut carol] = prepared(&world);
    let mark = carol.run("run").unwrap().run.fingerprint;
    alice.approve("run", mark, &()).unwrap();
    bob.approve("run", mark, &()).unwrap();
    carol.train("run", mark, 0, 2, true, &()).unwrap();

    bob.halt("run", Halt::Withdraw).into_iter().for_each(|heard| heard.unwrap());
    let text = said(world.client("carol").train("run", mark, 2, 1, false, &()));
    assert!(text.contains("waits for the consent of bob"), "{text}");
    for name in ["carol", "mallory"] {
        for heard in world.client(name).halt("run", Halt::Withdraw) {
            let text = said(heard);
            assert!(
                text.contains("no data of yours") || text.contains("not shared with"),
                "{text}"
            );
        }
    }
    bob.approve("run", mark, &()).unwrap();
    carol.train("run", mark, 2, 1, true, &()).unwrap();

    carol.halt("run", Halt::Stop).into_iter().for_each(|heard| heard.unwrap());
    let text = said(world.client("carol").train("run", mark, 3, 1, false, &()));
    assert!(text.contains("is stopped"), "{text}");
    for heard in world.client("alice").halt("run", Halt::Stop) {
        let text = said(heard);
        assert!(text.contains("belongs to client carol"), "{text}");
    }
    let text = said(world.client("alice").decide("run", mark, Decision::Resume, &()));
    assert!(text.contains("belongs to client carol"), "{text}");
    carol.decide("run", mark, Decision::Resume, &()).unwrap();
    // Decisions survive the states that are kept after them.
    carol.train("run", mark, 3, 1, true, &()).unwrap();
    let run = carol.run("run").unwrap().run;
    assert_eq!((run.step, run.stopped, run.missing("carol").len()), (4, false, 0));
}

/// One server that gets it is enough, even if the others have noted something else.
#[test]
fn consent_that_one_server_knows_to_be_withdrawn_is_withdrawn() {
    let world = World::new(&Limits::default());
    let [mut alice, mut bob, mut carol] = prepared(&world);
    let mark = carol.run("run").unwrap().run.fingerprint;
    for party in 0..3 {
        alice.approve("run", mark, &()).unwrap();
        bob.approve("run", mark, &()).unwrap();
        let mut channel = world.connect("bob").into_iter().nth(party).unwrap();
        crate::client::halt_at(&mut *channel, "run", Halt::Withdraw, LIMIT).unwrap();
        let state = carol.run("run").unwrap();
        assert_eq!(
            state.run.missing("carol"),
            ["bob"],
            "clients believe the one that knows less consent"
        );
        let text = said(world.client("carol").train("run", mark, 0, 1, false, &()));
        assert!(text.contains("waits for the consent of bob"), "{text}");
    }
}

/// The job of a run's owner ends while it runs, and what was learnt does not leave.
#[test]
fn a_withdrawal_ends_the_step_that_runs_and_no_weights_leave_after_it() {
    let world = World::new(&Limits::default());
    let [mut alice, mut bob, mut carol] = prepared(&world);
    let mut long = spec(&mut carol, &["a", "b"]);
    course_of(&mut long).epochs = 100_000;
    long.openings = Openings { weights: vec![1, 300_000], metrics: 300_000 };
    put_run(&mut carol, "long", &long, false).unwrap();
    let mark = carol.run("long").unwrap().run.fingerprint;
    alice.approve("long", mark, &()).unwrap();
    bob.approve("long", mark, &()).unwrap();
    carol.train("long", mark, 0, 1, true, &()).unwrap();
    thread::scope(|scope| {
        let trains = scope.spawn(|| {
            let mut from = 1;
            let mut carol = world.client("carol");
            // Slices of more and more steps, until one is ended.
            for steps in [16, 200, 100_000] {
                match carol.train("long", mark, from, steps, false, &()) {
                    Ok(_) => from += steps,
                    Err(error) => return (from, error.to_string()),
                }
            }
            (from, "it has done all of its steps".to_owned())
        });
        thread::sleep(Duration::from_millis(500));
        for heard in bob.halt("long", Halt::Withdraw) {
            heard.unwrap();
        }
        let (done, text) = trains.join().unwrap();
        assert!(done < 100_000, "{done} steps: {text}");
        assert!(
            text.contains("client bob has withdrawn its consent")
                || text.contains("consent of bob"),
            "{text}"
        );
    });
    let text = said(world.client("carol").release("long", mark, 1, &()));
    assert!(text.contains("waits for the consent of bob"), "{text}");
    let mut carol = world.client("carol");
    let text = said(carol.publish(("long", mark, 1), "m", &Readers::Everyone, false, &()));
    assert!(text.contains("waits for the consent of bob"), "{text}");
}

/// The weights leave after the steps that were agreed, metrics as sums over the steps that were agreed, and no step is
/// done twice whose result has left.
#[test]
fn nothing_leaves_a_run_that_its_owners_did_not_agree_to() {
    let world = World::new(&Limits::default());
    let [mut alice, mut bob, mut carol] = prepared(&world);
    let mut twice = spec(&mut carol, &["a", "b"]);
    twice.openings.weights = vec![4, 9];
    put_run(&mut carol, "twice", &twice, false).unwrap();
    let mark = carol.run("twice").unwrap().run.fingerprint;
    alice.approve("twice", mark, &()).unwrap();
    bob.approve("twice", mark, &()).unwrap();
    let refused = |act: &dyn Fn(&mut Client) -> Result<()>, reason: &str| {
        let text = said(act(&mut world.client("carol")));
        assert!(text.contains(reason), "{reason}: {text}");
    };
    let train = |from: u32, steps: u32| {
        move |client: &mut Client| client.train("twice", mark, from, steps, true, &()).map(drop)
    };
    train(0, 1)(&mut carol).unwrap();
    refused(
        &|client| client.release("twice", mark, 1, &()).map(drop),
        "after steps [4, 9] and not after step 1",
    );
    let model = |client: &mut Client, step| {
        client.publish(("twice", mark, step), "m", &Readers::Everyone, false, &())
    };
    refused(&|client| model(client, 1), "not after step 1");
    // A window of metrics ends after step 3, and weights leave after step 4.
    refused(&train(1, 3), "lead beyond step 3");
    train(1, 2)(&mut carol).unwrap();
    refused(&train(3, 2), "lead beyond step 4");
    train(3, 1)(&mut carol).unwrap();
    let first = carol.release("twice", mark, 4, &()).unwrap();
    assert_eq!(
        carol.release("twice", mark, 4, &()).unwrap(),
        first,
        "the same state may be fetched again"
    );
    let log = std::fs::read_to_string(&world.audits[2]).unwrap();
    let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let letters = mark.letters();
    let told: Vec<_> = lines.filter(|line| line["fingerprint"] == letters.as_str()).collect();
    let kind = |line: &serde_json::Value| {
        let what = line["decision"].as_str().or(line["what"].as_str());
        [line["client"].as_str(), what].map(|word| word.unwrap().to_owned())
    };
    let wanted = [
        "alice approve",
        "bob approve",
        "carol metrics",
        "carol guard",
        "carol weights",
        "carol weights",
    ];
    assert_eq!(told.iter().map(|line| kind(line).join(" ")).collect::<Vec<_>>(), wanted);
    let numbers = [2, 3, 4].map(|at| told[at]["numbers"].as_u64().unwrap());
    let watched = training().plan().most_guarded() as u64;
    assert_eq!(numbers, [2 + watched, watched, 6]);
    assert_eq!(told[2]["step"].as_u64(), Some(3));
    refused(&|client| client.release("twice", mark, 9, &()).map(drop), "and not after step 9");
    train(4, 2)(&mut carol).unwrap();
    refused(
        &|client| client.release("twice", mark, 4, &()).map(drop),
        "kept its state after step 6",
    );
    train(6, 3)(&mut carol).unwrap();
    model(&mut carol, 9).unwrap();
    refused(&train(9, 1), "it has 9");
}

/// A state that is older than what has left comes back from a backup of all three servers: the counts do not.
#[test]
fn counts_of_what_has_left_are_kept_apart_from_the_run() {
    let world = World::new(&Limits::default());
    let [mut alice, mut bob, mut carol] = prepared(&world);
    let mut twice = spec(&mut carol, &["a", "b"]);
    twice.openings.weights = vec![4, 9];
    put_run(&mut carol, "twice", &twice, false).unwrap();
    let mark = carol.run("twice").unwrap().run.fingerprint;
    alice.approve("twice", mark, &()).unwrap();
    bob.approve("twice", mark, &()).unwrap();
    // One server alone has counted: the metrics of the first epoch, and weights after step 4.
    world.servers[1].0.store.ledger().open(mark, 0, 3).unwrap();
    let answer = carol.train("twice", mark, 0, 3, true, &()).unwrap();
    assert_eq!(
        training().decode_metrics(&answer.outputs, 3).unwrap(),
        None,
        "they have left before"
    );
    world.servers[2].0.store.ledger().open(mark, 4, 0).unwrap();
    let text = said(carol.train("twice", mark, 3, 1, true, &()));
    assert!(text.contains("weights after step 4 have left"), "{text}");
}

/// A run that the owner of a data set does not allow is refused before any client is asked.
#[test]
fn a_run_that_breaks_an_owners_conditions_is_not_kept() {
    let world = World::new(&Limits::default());
    let [mut alice, _, mut carol] = prepared(&world);
    // Six weights, and two metrics and the guard's numbers in each of three epochs.
    let beside = 3 * (2 + training().plan().most_guarded() as u64);
    let strict = Conditions { most_numbers_out: Some(6 + beside), ..Conditions::default() };
    put_data_under(&mut alice, "strict", &rows(12, 4), strict, false).unwrap();
    let spec = spec(&mut carol, &["strict"]);
    put_run(&mut carol, "once", &spec, false).unwrap();
    let mut often = spec.clone();
    often.openings.weights = vec![3, 6, 9];
    let text = said(put_run(&mut world.client("carol"), "often", &often, false));
    let reason =
        format!("{} numbers would leave, and its owner allows {}", 18 + beside, 6 + beside);
    assert!(text.contains(&reason), "{text}");
    let mut fine = spec.clone();
    fine.openings.metrics = 1;
    let text = said(put_run(&mut world.client("carol"), "fine", &fine, false));
    assert!(text.contains("sums over 4 rows, and its owner asks for 12"), "{text}");
    assert_eq!(world.client("carol").runs().unwrap()[0].len(), 2);
}

#[test]
fn a_run_goes_on_from_the_state_that_is_kept() {
    let world = World::new(&Limits::default());
    let [mut alice, mut bob, mut carol] = prepared(&world);
    let mark = carol.run("run").unwrap().run.fingerprint;
    alice.approve("run", mark, &()).unwrap();
    bob.approve("run", mark, &()).unwrap();
    carol.train("run", mark, 0, 3, true, &()).unwrap();
    carol.train("run", mark, 3, 2, false, &()).unwrap();
    // A client that asks for another step gets the number of the kept one, and continues from
    // there.
    let text = said(world.client("carol").train("run", mark, 4, 1, false, &()));
    assert!(text.contains("kept its state after step 3"), "{text}");
    let mut carol = world.client("carol");
    let mut floats = network().start;
    in_the_clear(0..3, &mut floats);
    for from in [3, 6] {
        let answer = carol.train("run", mark, from, 3, true, &()).unwrap();
        let metrics = training().decode_metrics(&answer.outputs, from + 3).unwrap().unwrap();
        let wanted = in_the_clear(from..from + 3, &mut floats);
        assert!((metrics[0] - wanted[0]).abs() < 1e-3);
    }
    let text = said(carol.train("run", mark, 9, 1, false, &()));
    assert!(text.contains("it has 9"), "{text}");
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_kept() {
    let world = World::new(&Limits::default());
    let [mut alice, _, mut carol] = prepared(&world);
    put(&mut alice, "m", &model(ONE), false).unwrap();
    let text = said(put_data(&mut world.client("alice"), "m", &rows(2, 1), true));
    assert!(text.contains("there is a model of that name"), "{text}");
    let text = said(world.client("alice").model("a"));
    assert!(text.contains("is a data set, not a model"), "{text}");

    let set = DataSet {
        rows: 2,
        tensors: vec![RowTensor {
            name: "x".to_owned(),
            dims: vec![3],
            fraction_bits: 20,
            ..RowTensor::default()
        }],
        ..DataSet::default()
    };
    let words = Tensor::new(Shape::new([2, 3]).unwrap(), vec![0; 6]).unwrap();
    alice = world.client("alice");
    alice.put_data("unlabelled", &set, vec![words], &Readers::Everyone, false, &()).unwrap();
    let unlabelled = spec(&mut carol, &["unlabelled"]);
    let text = said(put_run(&mut world.client("carol"), "other", &unlabelled, false));
    assert!(text.contains("a row of it has x [3] (20 bits)"), "{text}");
    let mut endless = RunSpec { data: spec(&mut carol, &["b"]).data, ..unlabelled };
    course_of(&mut endless).epochs = u32::MAX;
    let text = said(put_run(&mut world.client("carol"), "other", &endless, false));
    assert!(text.contains("steps; there must be"), "{text}");
    assert_eq!(carol.runs().unwrap()[0].len(), 1);
}
