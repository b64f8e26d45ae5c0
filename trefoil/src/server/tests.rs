//! Servers within one process, links and all, and clients that behave or do not.

mod analyses;
mod conversations;
mod diverging;
mod joins;
mod learning;
mod meetings;
mod observed;
mod plans;
mod privacy;
mod public;
mod sessions;
mod standardized;
mod stopping;
mod tapes;
mod texts;
mod together;

use std::{path::PathBuf, thread, time::Duration};

use bytes::Bytes;
use mpc_core::Parcel;
use net::{
    Transport,
    launch::{Network, endpoints},
};
use nn_layers::{Binary, Dim, Graph, HostTensor, Op, PlanOptions, Unary};
use ring_arith::{CpuEngine, EngineTensor, FixedPoint, FracBits, Shape, Tensor};
use rss_protocols::Replicated;

use super::*;
use crate::{
    base::{Digest, Shares},
    client::{Client, NewModel, Watch},
    config::AuditLog,
    model::{
        About,
        import::{Imported, plan},
    },
    store::{Content, Readers, StoredShares},
    testing::{connection, folder, holder, new_item},
    wire::{Channel, JobState, Place, Reply, Request, Stage, hear, say, send_bytes, send_parcel},
};

const LIMIT: Duration = Duration::from_secs(20);

/// Servers, three unless the protocol has another number. When a session dies, all get a new one.
struct World<const N: usize = 3> {
    servers: [Server; N],
    /// The file of each server's audit log.
    audits: [PathBuf; N],
}

/// A hook between a server and its links: its party and a new session's transport become another transport.
type Between = dyn Fn(usize, Box<dyn Transport>) -> Box<dyn Transport> + Send + Sync;

impl World {
    fn new(limits: &Limits) -> Self {
        Self::with_stores(limits, |_, _| {})
    }

    /// Servers whose stores hold something already.
    fn with_stores(limits: &Limits, prepare: impl Fn(usize, &Store)) -> Self {
        Self::with(limits, |_| Access::default(), prepare, Arc::new(|_, links| links))
    }

    /// Servers that keep their audit logs at these places.
    fn audited(audits: [PathBuf; 3]) -> Self {
        let between = Arc::new(|_, links| links);
        let computing = Computing::default();
        Self::start(
            &Limits::default(),
            |_| Access::default(),
            |_, _| {},
            between,
            (audits, computing),
        )
    }

    /// Servers whose links lead through something else.
    fn over(limits: &Limits, between: Arc<Between>) -> Self {
        Self::with(limits, |_| Access::default(), |_, _| {}, between)
    }

    fn with(
        limits: &Limits,
        access: impl Fn(usize) -> Access,
        prepare: impl Fn(usize, &Store),
        between: Arc<Between>,
    ) -> Self {
        let audits = [0, 1, 2].map(|_| folder("audit").join("audit.jsonl"));
        Self::start(limits, access, prepare, between, (audits, Computing::default()))
    }
}

impl<const N: usize> World<N> {
    fn start(
        limits: &Limits,
        access: impl Fn(usize) -> Access,
        prepare: impl Fn(usize, &Store),
        between: Arc<Between>,
        (audits, computing): ([PathBuf; N], Computing),
    ) -> Self {
        let servers = std::array::from_fn(|me| {
            let store = Store::open(&folder("server"), holder(me), None).unwrap();
            prepare(me, &store);
            let engine = AnyEngine::Cpu(CpuEngine::new(1));
            let audit = AuditLog { file: audits[me].clone(), rotate_mib: 1, keep: 1 };
            let audit = Audit::open(me, Some(&audit)).unwrap();
            let (access, limits) = (access(me), limits.clone());
            Server::new(me, access, limits, store, engine, computing, audit)
        });
        let endpoints = endpoints(Network::InsecurePlainTcp, N, &net::Limits::default()).unwrap();
        for (me, (server, endpoint)) in servers.iter().cloned().zip(endpoints).enumerate() {
            let between = between.clone();
            let begin = move |job: &net::Job| {
                let session = endpoint.session(job)?;
                Ok(net::Session { transport: between(me, session.transport), ..session })
            };
            thread::spawn(move || server.keep_session(begin));
        }
        Self { servers, audits }
    }

    /// Connections to all servers.
    fn connect(&self, name: &str) -> [Box<dyn Channel>; N] {
        std::array::from_fn(|party| {
            let (mine, mut theirs) = connection();
            let (server, name) = (self.servers[party].clone(), name.to_owned());
            thread::spawn(move || server.serve_client(&mut theirs, &name));
            Box::new(mine) as Box<dyn Channel>
        })
    }

    fn client(&self, name: &str) -> Client {
        Client::new(self.connect(name).into(), self.servers[0].0.sharing(), LIMIT)
    }
}

/// Each server's shares of secrets.
fn held(secrets: &[Tensor]) -> Vec<Shares> {
    let shapes: Vec<_> = secrets.iter().map(|secret| secret.shape().clone()).collect();
    let parcels = Replicated.deal(secrets.to_vec()).unwrap().into_iter().enumerate();
    parcels.map(|(party, parcel)| Replicated.accept(party, parcel, &shapes).unwrap()).collect()
}

/// `y = x W`, for `x` of three numbers and `y` of two.
fn model(weights: [f64; 6]) -> Imported {
    let mut graph = Graph::new(1);
    let x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(3)]).unwrap();
    let w = graph.weight("w", HostTensor::new([3, 2], weights.to_vec()).unwrap());
    let y = graph.add("y", matmul(), &[x, w]).unwrap();
    graph.output("y", y);
    plan("test", &graph, &PlanOptions::default(), crate::model::Preprocess::default(), Vec::new())
        .unwrap()
}

/// A model that takes far longer than a test.
fn endless() -> Imported {
    let mut graph = Graph::new(1);
    let mut x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(3)]).unwrap();
    for layer in 0..4000 {
        x = graph.add(&format!("layer{layer}"), Op::Unary(Unary::Softplus), &[x]).unwrap();
    }
    graph.output("y", x);
    plan("test", &graph, &PlanOptions::default(), crate::model::Preprocess::default(), Vec::new())
        .unwrap()
}

/// A model that takes far longer than a test, and in which nothing is sent: sums alone.
fn silent() -> Imported {
    let mut graph = Graph::new(1);
    let x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(3)]).unwrap();
    let one = Op::Slice { axis: 1, start: 0, end: Dim::Fixed(1), step: 1 };
    let one = graph.add("one", one, &[x]).unwrap();
    let wide = Op::Broadcast(vec![Dim::Batch(1), Dim::Fixed(1 << 20)]);
    let first = graph.add("wide", wide, &[one]).unwrap();
    let mut y = first;
    for layer in 0..6000 {
        y = graph.add(&format!("sum{layer}"), Op::Binary(Binary::Sub), &[first, y]).unwrap();
    }
    let few = Op::Slice { axis: 1, start: 0, end: Dim::Fixed(2), step: 1 };
    let y = graph.add("few", few, &[y]).unwrap();
    graph.output("y", y);
    plan("test", &graph, &PlanOptions::default(), crate::model::Preprocess::default(), Vec::new())
        .unwrap()
}

/// A model that makes much of little: one word for each example, widened to 2^26.
fn wide() -> Imported {
    let mut graph = Graph::new(1);
    let x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(1)]).unwrap();
    let wide = [Dim::Batch(1), Dim::Fixed(1 << 26)];
    let y = graph.add("wide", Op::Broadcast(wide.to_vec()), &[x]).unwrap();
    let y = graph.add("relu", Op::Unary(Unary::Relu), &[y]).unwrap();
    let axes = vec![1];
    let sum = Op::Reduce { kind: nn_layers::Reduce::Sum, axes, keep: true };
    let y = graph.add("sum", sum, &[y]).unwrap();
    graph.output("y", y);
    plan("test", &graph, &PlanOptions::default(), crate::model::Preprocess::default(), Vec::new())
        .unwrap()
}

/// The same model, whose weights every server has in the clear.
fn in_the_clear(model: Imported) -> Imported {
    let program = model.program.with_public_weights(true).unwrap();
    model.with_program(program).unwrap()
}

fn matmul() -> Op {
    Op::MatMul { transpose_lhs: false, transpose_rhs: false }
}

fn put(client: &mut Client, name: &str, model: &Imported, replace: bool) -> Result<()> {
    put_for(client, name, model, replace, &Readers::Everyone)
}

fn put_for(
    client: &mut Client,
    name: &str,
    model: &Imported,
    replace: bool,
    readers: &Readers,
) -> Result<()> {
    let plan = model.program.to_bytes()?;
    let (about, weights) = (&model.about, model.weights()?);
    let (plan, ranges, tokenizer) = (plan.as_slice(), &[][..], &b""[..]);
    client.put(NewModel { name, about, plan, weights, readers, ranges, tokenizer, replace }, &())
}

fn input(values: [f64; 3]) -> Tensor {
    let words = FixedPoint(FracBits::new(20).unwrap()).encode(&values).unwrap();
    Tensor::new(Shape::new([1, 3]).unwrap(), words).unwrap()
}

fn infer(client: &mut Client, name: &str, values: [f64; 3]) -> Result<Vec<f64>> {
    let version = client.model(name)?.version;
    let answer = client.infer(name, version, &[input(values)], true, &())?;
    assert_eq!(answer.outputs[0].shape().dims(), [1, 2]);
    let words = answer.outputs[0].words();
    Ok(words.iter().map(|&word| word as i64 as f64 / f64::from(1 << 20)).collect())
}

fn close(found: &[f64], expected: [f64; 2]) {
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-4, "{found} {expected}");
    }
}

const ONE: [f64; 6] = [1.0, 0.0, 0.0, 1.0, 0.5, -0.5];
const TWO: [f64; 6] = [2.0, 0.0, 0.0, 2.0, 1.0, -1.0];

/// A model put and run, as a sign that all is well.
fn works(world: &World) {
    let mut client = world.client("alice");
    put(&mut client, "check", &model(ONE), true).unwrap();
    close(&infer(&mut client, "check", [1.0, 2.0, 4.0]).unwrap(), [3.0, 0.0]);
}

#[test]
fn models_are_put_run_replaced_and_removed() {
    let world = World::new(&Limits::default());
    let mut client = world.client("alice");
    put(&mut client, "m", &model(ONE), false).unwrap();
    close(&infer(&mut client, "m", [1.0, 2.0, 4.0]).unwrap(), [3.0, 0.0]);
    let text = put(&mut world.client("alice"), "m", &model(TWO), false).unwrap_err().to_string();
    assert!(text.contains("--replace"), "{text}");
    put(&mut client, "m", &model(TWO), true).unwrap();
    close(&infer(&mut client, "m", [1.0, 2.0, 4.0]).unwrap(), [6.0, 0.0]);
    assert_eq!(client.model("m").unwrap().about.weights, 6);
    client.remove("m", &()).unwrap();
    let text = infer(&mut client, "m", [1.0; 3]).unwrap_err().to_string();
    assert!(text.contains("no such model"), "{text}");
    let status = world.servers[1].status().unwrap();
    assert_eq!((status.models, status.waiting, status.failed), (0, 0, 0));
    assert!(status.done >= 5);
}

#[test]
fn a_model_of_a_vector_takes_it_as_one_example() {
    let world = World::new(&Limits::default());
    let mut graph = Graph::new(1);
    let x = graph.input("x", &[Dim::Fixed(3)]).unwrap();
    let y = graph.add("y", Op::Unary(Unary::Relu), &[x]).unwrap();
    graph.output("y", y);
    let vector =
        plan("test", &graph, &PlanOptions::default(), crate::model::Preprocess::default(), vec![]);
    let vector = vector.unwrap();
    assert!(vector.about.whole && vector.about.inputs[0].dims == [3]);
    let mut client = world.client("alice");
    put(&mut client, "v", &vector, false).unwrap();
    let version = client.model("v").unwrap().version;
    let words = FixedPoint(FracBits::new(20).unwrap()).encode(&[1.5, -2.0, 0.25]).unwrap();
    let input = Tensor::new(Shape::new([3]).unwrap(), words).unwrap();
    let answer = client.infer("v", version, &[input], false, &()).unwrap();
    assert_eq!(answer.outputs[0].words(), [3 << 19, 0, 1 << 18]);
}

#[test]
fn a_model_is_its_owners_alone_until_it_is_shared_and_again_after() {
    let world = World::new(&Limits::default());
    let (mut alice, mut bob) = (world.client("alice"), world.client("bob"));
    let nobody = Readers::Named(Vec::new());
    put_for(&mut alice, "m", &model(ONE), false, &nobody).unwrap();
    let infer_as = |name: &str| infer(&mut world.client(name), "m", [1.0, 2.0, 4.0]);
    close(&infer_as("alice").unwrap(), [3.0, 0.0]);
    let hidden = infer_as("bob").unwrap_err().to_string();
    let nothing = bob.model("nothing").unwrap_err().to_string();
    assert_eq!(hidden.replace("`m`", "`nothing`"), nothing);
    assert!(bob.models().unwrap().iter().all(Vec::is_empty));
    alice.share("m", &Readers::Named(vec!["bob".to_owned()]), &()).unwrap();
    close(&infer_as("bob").unwrap(), [3.0, 0.0]);
    assert!(infer_as("carol").is_err());
    let list = bob.models().unwrap();
    assert_eq!((list[1][0].name.as_str(), list[1][0].owner.as_str()), ("m", "alice"));
    assert_eq!(list[1][0].readers, None, "who else may use it is the owner's affair");
    alice.share("m", &Readers::Everyone, &()).unwrap();
    close(&infer_as("carol").unwrap(), [3.0, 0.0]);
    alice.share("m", &nobody, &()).unwrap();
    assert!(infer_as("bob").is_err() && infer_as("carol").is_err());
    close(&infer_as("alice").unwrap(), [3.0, 0.0]);
}

#[test]
fn only_its_owner_replaces_shares_and_removes_a_model() {
    let world = World::new(&Limits::default());
    put(&mut world.client("alice"), "m", &model(ONE), false).unwrap();
    let mallory = || world.client("mallory");
    let everyone = Readers::Everyone;
    for refused in [
        put(&mut mallory(), "m", &model(TWO), true),
        put(&mut mallory(), "m", &model(TWO), false),
        mallory().share("m", &everyone, &()),
        mallory().remove("m", &()),
    ] {
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("belongs to client alice"), "{text}");
    }
    close(&infer(&mut mallory(), "m", [1.0, 2.0, 4.0]).unwrap(), [3.0, 0.0]);
}

#[test]
fn what_was_allowed_when_it_was_asked_for_is_checked_again_when_it_runs() {
    let world = World::new(&Limits::default());
    let mut alice = world.client("alice");
    put(&mut alice, "check", &model(ONE), false).unwrap();
    let stale = request(&world, false);
    let mut channels = world.connect("half");
    for channel in &mut channels {
        say(&mut **channel, &stale).unwrap();
        assert_eq!(hear::<Reply>(&mut **channel, LIMIT).unwrap(), Reply::Send);
    }
    // Before the parts have come the model is shared with no client any more.
    alice.share("check", &Readers::Named(Vec::new()), &()).unwrap();
    let dealt = Replicated.deal(vec![input([1.0; 3])]).unwrap();
    for (party, channel) in channels.iter_mut().enumerate() {
        send_parcel(&mut **channel, &dealt[party], &mut |_| {}).unwrap();
    }
    for channel in &mut channels {
        let reply = hear::<Reply>(&mut **channel, LIMIT).unwrap();
        let Reply::Failed { reason } = reply else { panic!("{reply:?}") };
        assert!(reason.contains("not shared with client half"), "{reason}");
    }
    assert!(world.servers.iter().all(|server| server.status().unwrap().link == Link::Up));
}

#[test]
fn operators_of_one_server_are_enough_to_keep_a_client_from_what_it_would_do() {
    let only = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect());
    let world = World::with(
        &Limits::default(),
        |me| match me {
            0 => Access { put: only(&["alice"]), ..Access::default() },
            1 => Access { infer: only(&["alice", "bob"]), ..Access::default() },
            _ => Access { forbid: vec!["mallory".to_owned()], ..Access::default() },
        },
        |_, _| {},
        Arc::new(|_, links| links),
    );
    put(&mut world.client("alice"), "m", &model(ONE), false).unwrap();
    close(&infer(&mut world.client("bob"), "m", [1.0, 2.0, 4.0]).unwrap(), [3.0, 0.0]);
    let text = put(&mut world.client("bob"), "n", &model(ONE), false).unwrap_err().to_string();
    assert!(text.contains("party 0: client bob may not put models here"), "{text}");
    let text = infer(&mut world.client("carol"), "m", [1.0; 3]).unwrap_err().to_string();
    assert!(text.contains("party 1: client carol may not run models here"), "{text}");
    let text = world.client("mallory").ping().unwrap_err().to_string();
    assert!(text.contains("party 2: client mallory may not connect here"), "{text}");
}

#[test]
fn lists_come_in_pages_and_long_labels_lock_nobody_out() {
    let world = World::new(&Limits::default());
    let mut client = world.client("alice");
    let long = Imported {
        about: About { labels: vec!["x".repeat(256); 4000], ..model(ONE).about },
        ..model(ONE)
    };
    put(&mut client, "a", &long, false).unwrap();
    for n in 0..70 {
        put(&mut client, &format!("m{n:02}"), &model(ONE), false).unwrap();
    }
    let lists = client.models().unwrap();
    assert!(lists.iter().all(|list| list.len() == 71 && list.is_sorted_by_key(|m| m.name.clone())));
    assert_eq!(client.model("a").unwrap().about.labels.len(), 4000);
    close(&infer(&mut client, "m07", [1.0, 2.0, 4.0]).unwrap(), [3.0, 0.0]);
    client.remove("a", &()).unwrap();
}

#[test]
fn a_job_is_listed_to_its_client_and_cancelled_by_nobody_else() {
    let world = World::new(&Limits::default());
    works(&world);
    let mut client = world.client("alice");
    put(&mut client, "endless", &endless(), false).unwrap();
    thread::scope(|scope| {
        let runs = scope.spawn(|| infer(&mut world.client("alice"), "endless", [1.0; 3]));
        let running = loop {
            let jobs = world.client("alice").jobs().unwrap();
            let running = |list: &Vec<JobState>| {
                matches!(list.first()?.stage, Stage::Working(_)).then_some(())
            };
            if jobs.iter().all(|list| running(list).is_some()) {
                break jobs[0][0].clone();
            }
            thread::yield_now();
        };
        assert_eq!((running.kind.as_str(), running.model.as_str()), ("infer", "endless"));
        let waits = scope.spawn(|| infer(&mut world.client("bob"), "check", [1.0, 2.0, 4.0]));
        assert!(world.client("mallory").jobs().unwrap().iter().all(Vec::is_empty));
        let text = world.client("mallory").cancel(running.job).unwrap_err().to_string();
        assert!(text.contains("client mallory has no such job"), "{text}");
        client.cancel(running.job).unwrap();
        let text = runs.join().unwrap().unwrap_err().to_string();
        assert!(text.contains("client alice has cancelled it"), "{text}");
        close(&waits.join().unwrap().unwrap(), [3.0, 0.0]);
    });
    let queued = request(&world, false);
    let Request::Infer { job, .. } = queued else { unreachable!() };
    // Two of three parts wait for the third.
    let answers = thread::scope(|scope| {
        let requests = [(); 3].map(|()| queued.clone());
        let sent = scope.spawn(|| send_some(&world, &[0, 1], requests));
        while world.client("half").jobs().unwrap()[0].is_empty() {
            thread::yield_now();
        }
        world.client("half").cancel(job).unwrap();
        sent.join().unwrap()
    });
    assert!(answers[0].contains("client half has cancelled it"), "{answers:?}");
    works(&world);
}

#[test]
fn jobs_of_many_clients_at_once_are_all_answered() {
    let world = World::new(&Limits::default());
    put(&mut world.client("owner"), "m", &model(ONE), false).unwrap();
    thread::scope(|scope| {
        for name in 0..6 {
            let world = &world;
            scope.spawn(move || {
                let mut client = world.client(&format!("c{name}"));
                for x in 0..10 {
                    let x = f64::from(x + 10 * name);
                    close(&infer(&mut client, "m", [x, -x, 1.0]).unwrap(), [x + 0.5, -x - 0.5]);
                }
            });
        }
    });
}

/// Sends a job's parts to some servers alone; returns what they answer.
fn send_some(world: &World, parties: &[usize], requests: [Request; 3]) -> Vec<String> {
    let mut channels = world.connect("half");
    let dealt = Replicated.deal(vec![input([1.0; 3])]).unwrap();
    for &party in parties {
        let channel = &mut *channels[party];
        say(channel, &requests[party]).unwrap();
        assert_eq!(hear::<Reply>(channel, LIMIT).unwrap(), Reply::Send);
        send_parcel(channel, &dealt[party], &mut |_| {}).unwrap();
    }
    let answer = |&party: &usize| loop {
        match hear(&mut *channels[party], LIMIT).unwrap() {
            Reply::Waiting { .. } | Reply::Working(_) => {}
            Reply::Failed { reason } => return reason,
            other => panic!("{other:?}"),
        }
    };
    parties.iter().map(answer).collect()
}

fn request(world: &World, profile: bool) -> Request {
    let (job, model) = (Id::random().unwrap(), "check".to_owned());
    let version = world.client("half").model("check").unwrap().version;
    Request::Infer { job, model, version, inputs: vec![vec![1, 3]], profile }
}

#[test]
fn a_job_that_does_not_reach_all_servers_is_given_back_and_blocks_nobody() {
    let world = World::new(&Limits { parts_seconds: 2, ..Limits::default() });
    works(&world);
    thread::scope(|scope| {
        for parties in [&[0, 1][..], &[0], &[1, 2], &[2]] {
            let (world, request) = (&world, request(&world, false));
            scope.spawn(move || {
                let requests = [(); 3].map(|()| request.clone());
                for reason in send_some(world, parties, requests) {
                    assert!(reason.contains("did not reach party"), "{reason}");
                }
            });
        }
        let mut client = world.client("bob");
        for _ in 0..10 {
            close(&infer(&mut client, "check", [1.0, 2.0, 4.0]).unwrap(), [3.0, 0.0]);
        }
    });
    works(&world);
}

#[test]
fn a_job_that_is_not_the_same_at_all_servers_is_refused() {
    let world = World::new(&Limits::default());
    works(&world);
    let same = request(&world, false);
    let Request::Infer { job, model, version, inputs, .. } = same.clone() else { unreachable!() };
    let other = Request::Infer { job, model, version, inputs, profile: true };
    for reason in send_some(&world, &[0, 1, 2], [same.clone(), same, other]) {
        assert!(reason.contains("party 2 was asked for something else"), "{reason}");
    }
    works(&world);
}

#[test]
fn clients_that_send_nonsense_get_one_sentence_and_harm_nobody() {
    let world = World::new(&Limits { upload_mib: 1, ..Limits::default() });
    works(&world);
    let job = || Id::random().unwrap();
    let version = world.client("mallory").model("check").unwrap().version;
    let put = |about: u64, plan: u64, words: u64| Request::Put {
        job: job(),
        name: "bad".to_owned(),
        about,
        plan,
        tokenizer: 0,
        words,
        public_weights: false,
        readers: Readers::Everyone,
        ranges: Vec::new(),
        replace: false,
    };
    let infer = |model: &str, inputs: Vec<Vec<usize>>| Request::Infer {
        job: job(),
        model: model.to_owned(),
        version,
        inputs,
        profile: false,
    };
    let share = |readers: Vec<String>| Request::Share {
        job: job(),
        name: "check".to_owned(),
        readers: Readers::Named(readers),
    };
    let other = Request::Infer {
        job: job(),
        model: "check".to_owned(),
        version: Id::from([0; 16]),
        inputs: vec![vec![1, 3]],
        profile: false,
    };
    for (request, said) in [
        (infer("nothing", vec![vec![1, 3]]), "no such model"),
        (infer("../../etc", vec![vec![1, 3]]), "not a name"),
        (infer("check", vec![vec![1, 4]]), "the model takes [batch, 3]"),
        (infer("check", vec![]), "inputs"),
        (infer("check", vec![vec![0, 3]]), "the model takes"),
        (infer("check", vec![vec![1 << 40, 3]]), "MiB"),
        (infer("check", vec![vec![usize::MAX, 3]]), "too many elements"),
        (other, "another version"),
        (put(10, u64::MAX, 6), "plan"),
        (put(u64::MAX, 10, 6), "description"),
        (put(10, 10, 1 << 30), "upload_mib"),
        (put(10, 10, u64::MAX), "upload_mib"),
        (Request::Remove { job: job(), name: "..".to_owned() }, "not a name"),
        (Request::Model { name: "x/y".to_owned() }, "not a name"),
        (share(vec!["a b".to_owned()]), "not a name"),
        (share(vec!["a".to_owned(); 257]), "at most 256 readers"),
        (Request::Cancel { job: job() }, "no such job"),
    ] {
        for channel in &mut world.connect("mallory") {
            say(&mut **channel, &request).unwrap();
            match hear(&mut **channel, LIMIT).unwrap() {
                Reply::Failed { reason } => {
                    assert!(reason.contains(said), "{reason}");
                    assert_eq!(reason.lines().count(), 1, "{reason}");
                }
                other => panic!("{request:?}: {other:?}"),
            }
            // The connection is as good as before.
            say(&mut **channel, &Request::Ping).unwrap();
            assert!(matches!(hear(&mut **channel, LIMIT), Ok(Reply::Pong { .. })));
        }
    }
    works(&world);
}

#[test]
fn unsound_plans_and_parts_are_refused_after_they_were_announced() {
    let world = World::new(&Limits::default());
    works(&world);
    let sound = model(ONE);
    let about = sound.about.to_bytes().unwrap();
    let none = About { inputs: vec![], ..sound.about.clone() }.to_bytes().unwrap();
    let plan = sound.program.to_bytes().unwrap();
    let dealt = Replicated.deal(sound.weights().unwrap()).unwrap();
    for (about, plan, words, cut, said) in [
        (&about, b"{}".to_vec(), 6, false, "not sound"),
        (&about, vec![b'['; 100_000], 6, false, "not sound"),
        (&b"[[[]]]".to_vec(), plan.clone(), 6, false, "not understood"),
        (&none, plan.clone(), 6, false, "1 to 64 inputs"),
        (&about, plan.clone(), 7, false, "its plan has 6"),
        (&about, plan.clone(), 6, true, "keys are not"),
    ] {
        for (party, channel) in world.connect("mallory").iter_mut().enumerate() {
            let request = Request::Put {
                job: Id::random().unwrap(),
                name: "bad".to_owned(),
                about: about.len() as u64,
                plan: plan.len() as u64,
                tokenizer: 0,
                words,
                public_weights: false,
                readers: Readers::Everyone,
                ranges: Vec::new(),
                replace: false,
            };
            say(&mut **channel, &request).unwrap();
            assert_eq!(hear::<Reply>(&mut **channel, LIMIT).unwrap(), Reply::Send);
            // The server may have hung up already.
            let _ = send_bytes(&mut **channel, about.clone().into(), &mut |_| {});
            let _ = send_bytes(&mut **channel, plan.clone().into(), &mut |_| {});
            if cut {
                channel.send(Bytes::from_static(b"short")).unwrap();
            } else {
                let _ = send_parcel(&mut **channel, &dealt[party], &mut |_| {});
            }
            match hear(&mut **channel, LIMIT).unwrap() {
                Reply::Failed { reason } => assert!(reason.contains(said), "{reason}"),
                other => panic!("{other:?}"),
            }
        }
    }
    works(&world);
    let names: Vec<_> = world.servers[0].0.store.inventory().unwrap();
    assert!(names.iter().all(|holding| holding.name == "check"), "{names:?}");
}

/// Changes the last byte of a server's shares of a model on its disk.
fn damage_shares(server: &Server, model: &str) {
    let folder = server.0.store.folder(model);
    let shares = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|end| end == "safetensors"))
        .unwrap();
    let mut bytes = std::fs::read(&shares).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&shares, bytes).unwrap();
}

#[test]
fn a_damaged_share_is_named_and_leaves_the_session_up() {
    // Without room for models in memory each job reads what is on the disk.
    let world = World::new(&Limits { cache_mib: 0, ..Limits::default() });
    let mut client = world.client("alice");
    put(&mut client, "m", &model(ONE), false).unwrap();
    damage_shares(&world.servers[2], "m");
    let text = infer(&mut client, "m", [1.0; 3]).unwrap_err().to_string();
    assert!(text.contains("party 2") && text.contains("changed"), "{text}");
    assert!(world.servers.iter().all(|server| server.status().unwrap().link == Link::Up));
    let mut client = world.client("alice");
    put(&mut client, "m", &model(TWO), true).unwrap();
    close(&infer(&mut client, "m", [1.0, 2.0, 4.0]).unwrap(), [6.0, 0.0]);
}

#[test]
fn a_job_that_runs_too_long_is_ended_and_the_next_one_runs() {
    let world = World::new(&Limits { job_seconds: 1, ..Limits::default() });
    works(&world);
    let mut client = world.client("alice");
    put(&mut client, "endless", &endless(), false).unwrap();
    let text = infer(&mut client, "endless", [1.0; 3]).unwrap_err().to_string();
    assert!(text.contains("ran longer than 1 s (limits.job_seconds"), "{text}");
    works(&world);
}

#[test]
fn a_job_that_sends_nothing_for_too_long_is_ended_too() {
    let world = World::new(&Limits { job_seconds: 1, ..Limits::default() });
    works(&world);
    let mut client = world.client("alice");
    put(&mut client, "silent", &silent(), false).unwrap();
    let version = client.model("silent").unwrap().version;
    let last = Last::default();
    let ended = client.infer("silent", version, &[input([1.0; 3])], false, &last);
    let text = ended.unwrap_err().to_string();
    assert!(text.contains("ran longer than 1 s (limits.job_seconds"), "{text}");
    let Place { done, of, .. } = last.0.into_inner().unwrap();
    assert!(2 * done <= of, "{done} of {of} layers were computed");
    works(&world);
}

/// Keeps where a job was last.
#[derive(Default)]
struct Last(Mutex<Place>);

impl Watch for Last {
    fn works(&self, place: &Place) {
        self.0.lock().unwrap().clone_from(place);
    }
}

#[test]
fn a_model_that_would_need_more_memory_than_allowed_is_refused_before_it_runs() {
    let world = World::new(&Limits { job_memory_mib: 4096, ..Limits::default() });
    works(&world);
    let text = put(&mut world.client("alice"), "wide", &wide(), false).unwrap_err().to_string();
    assert!(text.contains("MiB of memory") && text.contains("limits.job_memory_mib"), "{text}");
    works(&world);
}

#[test]
fn answers_a_day_are_counted_by_examples() {
    let world = World::new(&Limits { client_answers_per_day: 3, ..Limits::default() });
    put(&mut world.client("alice"), "m", &model(ONE), false).unwrap();
    let mut bob = world.client("bob");
    (0..3).for_each(|_| drop(infer(&mut bob, "m", [1.0; 3]).unwrap()));
    let text = infer(&mut bob, "m", [1.0; 3]).unwrap_err().to_string();
    assert!(text.contains("3 answers of model `m` today, of 3"), "{text}");
    infer(&mut world.client("carol"), "m", [1.0; 3]).unwrap();
}

#[test]
fn more_clients_than_the_limit_are_told_so() {
    let world = World::new(&Limits { clients: 2, ..Limits::default() });
    let mut first = [world.client("a"), world.client("b")];
    first.iter_mut().for_each(|client| drop(client.ping().unwrap()));
    let text = world.client("c").ping().unwrap_err().to_string();
    assert!(text.contains("clients are connected already"), "{text}");
    drop(first);
    while world.client("c").ping().is_err() {
        thread::yield_now();
    }
}

#[test]
fn a_put_that_a_crash_interrupted_is_finished_or_undone_on_all_servers() {
    let model = model(ONE);
    let plan = model.program.to_bytes().unwrap();
    let held = held(&model.weights().unwrap());
    let [whole, half] = [Id::random().unwrap(), Id::random().unwrap()];
    let stage = |party: usize, store: &Store, name: &str, version: Id| {
        let content = Content::Model { about: Box::new(model.about.clone()), ranges: Vec::new() };
        store
            .stage(&new_item((name, version), &content, &plan, &StoredShares::of(&held[party])))
            .unwrap();
    };
    let world = World::with_stores(&Limits::default(), |party, store| {
        // All had staged `whole`, and it was current at one when the power failed.
        stage(party, store, "whole", whole);
        if party == 1 {
            store.commit("whole", whole).unwrap();
        }
        // Two had staged `half`.
        if party != 2 {
            stage(party, store, "half", half);
        }
    });
    let mut client = world.client("alice");
    close(
        &infer(&mut client, "whole", [1.0, 2.0, 4.0]).unwrap_or_else(|_| {
            // Before the servers have met, the model is at one of them alone.
            while world.servers.iter().any(|server| server.status().unwrap().link != Link::Up) {
                thread::yield_now();
            }
            infer(&mut world.client("alice"), "whole", [1.0, 2.0, 4.0]).unwrap()
        }),
        [3.0, 0.0],
    );
    for server in &world.servers {
        let names: Vec<_> = server.0.store.inventory().unwrap();
        assert_eq!(names.len(), 1, "{names:?}");
        assert_eq!((names[0].visible, names[0].staged.len()), (Some(whole), 0));
    }
}
