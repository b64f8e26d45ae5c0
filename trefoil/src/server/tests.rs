//! Three servers within one process, links and all, and clients that behave or do not.

use std::{thread, time::Duration};

use bytes::Bytes;
use net::launch::{Network, endpoints};
use nn_layers::{Dim, Graph, HostTensor, Op, Unary};
use ring_arith::{EngineTensor, FixedPoint, FracBits, Shape};

use super::*;
use crate::{
    client::{Client, NewModel},
    import::{Imported, plan},
    program::Program,
    share::Dealt,
    testing::{connection, folder, holder},
    wire::{Channel, Reply, Request, hear, say, send_bytes, send_part},
};

const LIMIT: Duration = Duration::from_secs(20);

/// Three servers. When a session dies, all get a new one.
struct World {
    servers: [Server; 3],
}

impl World {
    fn new(limits: &Limits) -> Self {
        Self::with_stores(limits, |_, _| {})
    }

    /// Servers whose stores hold something already.
    fn with_stores(limits: &Limits, prepare: impl Fn(usize, &Store)) -> Self {
        let servers = [0, 1, 2].map(|me| {
            let store = Store::open(&folder("server"), holder(me)).unwrap();
            prepare(me, &store);
            Server::new(me, limits.clone(), store, CpuEngine::new(1))
        });
        let endpoints = endpoints(Network::InsecurePlainTcp, 3, &net::Limits::default()).unwrap();
        for (server, endpoint) in servers.iter().cloned().zip(endpoints) {
            thread::spawn(move || server.keep_session(&endpoint));
        }
        Self { servers }
    }

    /// Connections to the three servers.
    fn connect(&self, name: &str) -> [Box<dyn Channel>; 3] {
        [0, 1, 2].map(|party| {
            let (mine, mut theirs) = connection();
            let (server, name) = (self.servers[party].clone(), name.to_owned());
            thread::spawn(move || server.serve_client(&mut theirs, &name));
            Box::new(mine) as Box<dyn Channel>
        })
    }

    fn client(&self, name: &str) -> Client {
        Client::new(self.connect(name), LIMIT)
    }
}

/// `y = x W`, for `x` of three numbers and `y` of two.
fn model(weights: [f64; 6]) -> Imported {
    let mut graph = Graph::new(1);
    let x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(3)]).unwrap();
    let w = graph.weight("w", HostTensor::new([3, 2], weights.to_vec()).unwrap());
    let y = graph.add("y", matmul(), &[x, w]).unwrap();
    graph.output("y", y);
    plan("test", &graph, 20, crate::Preprocess::default(), Vec::new()).unwrap()
}

fn matmul() -> Op {
    Op::MatMul { transpose_lhs: false, transpose_rhs: false }
}

fn put(client: &mut Client, name: &str, model: &Imported, replace: bool) -> Result<()> {
    let plan = model.program.to_bytes()?;
    let (about, weights) = (&model.about, model.weights.as_slice());
    client.put(&NewModel { name, about, plan: &plan, weights, replace }, &())
}

fn input(values: [f64; 3]) -> Tensor {
    let words = FixedPoint(FracBits::new(20).unwrap()).encode(&values).unwrap();
    Tensor::new(Shape::new([1, 3]).unwrap(), words).unwrap()
}

fn infer(client: &mut Client, name: &str, values: [f64; 3]) -> Result<Vec<f64>> {
    let answer = client.infer(name, &[input(values)], true, &())?;
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
    let text = put(&mut world.client("bob"), "m", &model(TWO), false).unwrap_err().to_string();
    assert!(text.contains("--replace"), "{text}");
    put(&mut client, "m", &model(TWO), true).unwrap();
    close(&infer(&mut client, "m", [1.0, 2.0, 4.0]).unwrap(), [6.0, 0.0]);
    assert_eq!(client.about("m").unwrap().weights, 6);
    client.remove("m", &()).unwrap();
    let text = infer(&mut client, "m", [1.0; 3]).unwrap_err().to_string();
    assert!(text.contains("no such model"), "{text}");
    let status = world.servers[1].status().unwrap();
    assert_eq!((status.models, status.waiting, status.failed), (0, 0, 0));
    assert!(status.done >= 5);
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
    let dealt = Dealt::new(&[input([1.0; 3])]).unwrap();
    for &party in parties {
        let channel = &mut *channels[party];
        say(channel, &requests[party]).unwrap();
        assert_eq!(hear::<Reply>(channel, LIMIT).unwrap(), Reply::Send);
        send_part(channel, &dealt.part(party), &mut |_| {}).unwrap();
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

fn request(profile: bool) -> Request {
    let (job, model) = (Id::random().unwrap(), "check".to_owned());
    Request::Infer { job, model, inputs: vec![vec![1, 3]], profile }
}

#[test]
fn a_job_that_does_not_reach_all_servers_is_given_back_and_blocks_nobody() {
    let world = World::new(&Limits { parts_seconds: 2, ..Limits::default() });
    works(&world);
    thread::scope(|scope| {
        for parties in [&[0, 1][..], &[0], &[1, 2], &[2]] {
            let (world, request) = (&world, request(false));
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
    let same = request(false);
    let Request::Infer { job, model, inputs, .. } = same.clone() else { unreachable!() };
    let other = Request::Infer { job, model, inputs, profile: true };
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
    let sound = model(ONE);
    let about = Box::new(sound.about.clone());
    let put = |about: &About, plan: u64, weights: Vec<Vec<usize>>| Request::Put {
        job: job(),
        name: "bad".to_owned(),
        about: Box::new(about.clone()),
        plan,
        weights,
        replace: false,
    };
    let infer = |model: &str, inputs: Vec<Vec<usize>>| Request::Infer {
        job: job(),
        model: model.to_owned(),
        inputs,
        profile: false,
    };
    let none = About { inputs: vec![], ..(*about).clone() };
    for (request, said) in [
        (infer("nothing", vec![vec![1, 3]]), "no such model"),
        (infer("../../etc", vec![vec![1, 3]]), "not a name"),
        (infer("check", vec![vec![1, 4]]), "the model takes [batch, 3]"),
        (infer("check", vec![]), "inputs"),
        (infer("check", vec![vec![0, 3]]), "the model takes"),
        (infer("check", vec![vec![1 << 40, 3]]), "MiB"),
        (infer("check", vec![vec![usize::MAX, 3]]), "too many elements"),
        (put(&none, 10, vec![]), "1 to 64 inputs"),
        (put(&about, u64::MAX, vec![]), "plan"),
        (put(&about, 10, vec![vec![1 << 30]]), "upload_mib"),
        (Request::Remove { job: job(), name: "..".to_owned() }, "not a name"),
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
    let plan = sound.program.to_bytes().unwrap();
    let dealt = Dealt::new(&sound.weights).unwrap();
    for (plan, weights, cut, said) in [
        (b"{}".to_vec(), vec![vec![3, 2]], false, "not sound"),
        (vec![b'['; 100_000], vec![vec![3, 2]], false, "not sound"),
        (plan.clone(), vec![vec![2, 3]], false, "planned is"),
        (plan.clone(), vec![], false, "0 weights came"),
        (plan.clone(), vec![vec![3, 2]], true, "keys are not"),
    ] {
        for (party, channel) in world.connect("mallory").iter_mut().enumerate() {
            let request = Request::Put {
                job: Id::random().unwrap(),
                name: "bad".to_owned(),
                about: Box::new(sound.about.clone()),
                plan: plan.len() as u64,
                weights: weights.clone(),
                replace: false,
            };
            say(&mut **channel, &request).unwrap();
            assert_eq!(hear::<Reply>(&mut **channel, LIMIT).unwrap(), Reply::Send);
            send_bytes(&mut **channel, plan.clone().into(), &mut |_| {}).unwrap();
            if cut {
                channel.send(Bytes::from_static(b"short")).unwrap();
            } else {
                // The server may have hung up already.
                let _ = send_part(&mut **channel, &dealt.part(party), &mut |_| {});
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

#[test]
fn mutated_plans_are_refused_or_sound_but_never_a_panic() {
    let good = model(ONE).program.to_bytes().unwrap();
    let mut state = 0x9876_5432_1234_5671u64;
    for _ in 0..20_000 {
        let mut bytes = good.clone();
        for _ in 0..2 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = (state >> 32) as usize % bytes.len();
            match state % 3 {
                0 => bytes[at] = b"0123456789-[]{},\"ae"[(state >> 8) as usize % 19],
                1 => bytes.insert(at, b"0123456789"[(state >> 8) as usize % 10]),
                _ => drop(bytes.remove(at).min(1)),
            }
        }
        if let Ok(program) = Program::parse(&bytes) {
            let _ = program.check_inputs(&[Shape::new([1, 3]).unwrap()], 1 << 20);
        }
    }
}

#[test]
fn a_damaged_share_is_named_and_leaves_the_session_up() {
    let world = World::new(&Limits::default());
    let mut client = world.client("alice");
    put(&mut client, "m", &model(ONE), false).unwrap();
    let folder = world.servers[2].0.store.folder("m");
    let shares = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|end| end == "safetensors"))
        .unwrap();
    let mut bytes = std::fs::read(&shares).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&shares, bytes).unwrap();
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
    let mut graph = Graph::new(1);
    let mut x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(3)]).unwrap();
    for layer in 0..4000 {
        x = graph.add(&format!("layer{layer}"), Op::Unary(Unary::Sigmoid), &[x]).unwrap();
    }
    graph.output("y", x);
    let endless = plan("test", &graph, 20, crate::Preprocess::default(), Vec::new()).unwrap();
    let mut client = world.client("alice");
    put(&mut client, "endless", &endless, false).unwrap();
    let text = infer(&mut client, "endless", [1.0; 3]).unwrap_err().to_string();
    assert!(text.contains("ran longer than 1 s (limits.job_seconds"), "{text}");
    works(&world);
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
    let dealt = Dealt::new(&model.weights).unwrap();
    let shapes: Vec<_> = model.weights.iter().map(|weight| weight.shape().clone()).collect();
    let [whole, half] = [Id::random().unwrap(), Id::random().unwrap()];
    let stage = |party: usize, store: &Store, name: &str, version: Id| {
        let shares = dealt.part(party).expand(party, &shapes).unwrap();
        let (about, plan, shares) = (&model.about, plan.as_slice(), &shares);
        let owner = "alice";
        let (readers, ranges) = (&crate::store::Readers::Everyone, &[][..]);
        let new =
            crate::store::NewModel { name, version, about, owner, readers, ranges, plan, shares };
        store.stage(&new).unwrap();
    };
    let world = World::with_stores(&Limits::default(), |party, store| {
        // All had staged `whole`, one had brought it into force when the power failed.
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
