//! Jobs of several clients that run as one.

use super::{
    meetings::{meet, world},
    observed::{audited, metrics},
    plans,
    sessions::{Gates, OpenAll, wait_until},
    *,
};
use crate::client::Answer;

/// Runs `m` on rows of three numbers.
pub(super) fn ask<const N: usize>(world: &World<N>, client: &str, rows: &[f64]) -> Result<Answer> {
    let mut client = world.client(client);
    let version = client.model("m")?.version;
    let words = FixedPoint(FracBits::new(20).unwrap()).encode(rows).unwrap();
    let input = Tensor::new(Shape::new([rows.len() / 3, 3]).unwrap(), words).unwrap();
    client.infer("m", version, &[input], false, &())
}

/// The first result as numbers.
fn numbers(answer: &Answer) -> Vec<f64> {
    let words = answer.outputs[0].words().iter();
    words.map(|&word| word as i64 as f64 / f64::from(1 << 20)).collect()
}

pub(super) fn is(answer: &Answer, expected: &[f64]) {
    let found = numbers(answer);
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-4, "{found} {expected}");
    }
}

fn with_model() -> (World, Arc<Gates>) {
    let (world, gates) = world();
    put(&mut world.client("owner"), "m", &model(ONE), false).unwrap();
    (world, gates)
}

fn jobs_done(world: &World) -> u64 {
    world.servers[0].status().unwrap().done
}

#[test]
fn jobs_that_wait_for_one_model_run_as_one_and_each_client_gets_its_own_answer() {
    let (world, gates) = with_model();
    let before = jobs_done(&world);
    let answers = meet::<_, 3, 3>(
        &world,
        &gates,
        [
            &|world| ask(world, "a", &[1.0, 2.0, 4.0]).unwrap(),
            &|world| ask(world, "b", &[5.0, 6.0, 2.0, 0.0, 1.0, 0.0]).unwrap(),
            &|world| ask(world, "c", &[0.0, 0.0, 2.0]).unwrap(),
        ],
    );
    is(&answers[0], &[3.0, 0.0]);
    is(&answers[1], &[6.0, 5.0, 0.0, 1.0]);
    is(&answers[2], &[1.0, -1.0]);
    // One run: they took the same time to the last digit.
    assert_eq!(answers[0].costs, answers[1].costs);
    assert_eq!(answers[0].costs, answers[2].costs);
    assert_eq!(jobs_done(&world), before + 3);
    // The audit log counts what was sent once: each job has its part, by examples.
    let whole = &answers[0].costs[0];
    let jobs = audited(&world, 0, "job");
    let of = |client: &str| jobs.iter().find(|line| line["client"] == client).unwrap();
    let sent = |client: &str| of(client)["sent_bytes"].as_u64().unwrap();
    assert_eq!(["a", "b", "c"].map(sent).iter().sum::<u64>(), whole.bytes);
    assert!(sent("a").abs_diff(whole.bytes / 4) <= 1 && sent("b").abs_diff(whole.bytes / 2) <= 1);
    for client in ["a", "b", "c"] {
        assert_eq!(of(client)["joined"], 3);
        assert_eq!(of(client)["rounds"], whole.rounds);
    }
    let metrics = metrics(&world.servers[0]);
    let sum = |name: &str| {
        let name = format!("trefoil_job_{name}_sum{{kind=\"infer\",model=\"m\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name)).unwrap().to_owned();
        line.parse::<f64>().unwrap()
    };
    assert_eq!((sum("sent_bytes"), sum("rounds")), (whole.bytes as f64, whole.rounds.into()));
    let alone = ask(&world, "a", &[1.0, 2.0, 4.0]).unwrap();
    assert_eq!(alone.costs[0].rounds, answers[0].costs[0].rounds);
    assert!(alone.costs[0].bytes < answers[0].costs[0].bytes);
    is(&alone, &[3.0, 0.0]);
}

#[test]
fn what_is_wrong_with_one_job_does_not_touch_those_that_wait_with_it() {
    let (world, gates) = with_model();
    let version = world.client("a").model("m").unwrap().version;
    let shape = vec![vec![1, 3]];
    let job = Id::random().unwrap();
    let request =
        Request::Infer { job, model: "m".to_owned(), version, inputs: shape, profile: false };
    let spoilt = |world: &World| {
        let mut sent = plans::Sent::infer(request.clone());
        plans::spoil(&mut sent.parts[1], 7);
        let replies = sent.send(world, "half");
        let reason = |reply: &Reply| match reply {
            Reply::Failed { reason } => reason.clone(),
            other => panic!("{other:?}"),
        };
        Err(Error::refused("servers", reason(&replies[0])))
    };
    let ended = meet::<_, 3, 3>(
        &world,
        &gates,
        [&|world| ask(world, "a", &[1.0, 2.0, 4.0]), &spoilt, &|world| {
            ask(world, "b", &[5.0, 6.0, 2.0])
        }],
    );
    is(ended[0].as_ref().unwrap(), &[3.0, 0.0]);
    let said = ended[1].as_ref().map(drop).unwrap_err().to_string();
    assert!(said.contains("do not fit together"), "{said}");
    is(ended[2].as_ref().unwrap(), &[6.0, 5.0]);
    assert!(world.servers.iter().all(|server| server.status().unwrap().link == Link::Up));
}

#[test]
fn a_value_out_of_range_is_told_to_its_own_client_alone() {
    let (world, gates) = with_model();
    let left = |answer: &Answer| answer.outputs.last().unwrap().words().to_vec();
    let answers = meet::<_, 3, 3>(
        &world,
        &gates,
        [
            &|world| ask(world, "a", &[1.0, 2.0, 4.0]).unwrap(),
            &|world| ask(world, "b", &[3e8, 6.0, 2.0]).unwrap(),
            &|world| ask(world, "c", &[0.0, 0.0, 2.0]).unwrap(),
        ],
    );
    assert_eq!(answers[0].costs, answers[2].costs);
    assert!(left(&answers[0]).iter().chain(&left(&answers[2])).all(|&word| word == 0));
    assert!(left(&answers[1]).iter().any(|&word| word != 0));
    is(&answers[2], &[1.0, -1.0]);
}

#[test]
fn a_job_that_is_cancelled_while_it_runs_with_others_ends_alone() {
    let (world, gates) = with_model();
    for step in ["prepare job", "guard"] {
        gates.shut("next job", 1, 0);
        wait_until(|| gates.waiting.load(Ordering::SeqCst) > 0);
        thread::scope(|scope| {
            let _guard = OpenAll(&gates);
            let mut threads = Vec::new();
            for (client, rows) in [("a", [1.0, 2.0, 4.0]), ("b", [5.0, 6.0, 2.0])] {
                let world = &world;
                threads.push(scope.spawn(move || ask(world, client, &rows)));
                let all_hold = |server: &Server| server.0.state().jobs.len() == threads.len();
                wait_until(|| world.servers.iter().all(all_hold));
            }
            for (from, to) in [(0, 1), (1, 2), (2, 0), (1, 0), (2, 1), (0, 2)] {
                gates.shut(step, from, to);
            }
            gates.open("next job");
            let works = |server: &Server| {
                let state = server.0.state();
                state.running.as_ref().is_some_and(|running| running.jobs.len() == 2)
            };
            wait_until(|| world.servers.iter().all(works));
            wait_until(|| gates.waiting.load(Ordering::SeqCst) > 0);
            let job = world.client("b").jobs().unwrap()[0][0].job;
            assert!(world.client("a").cancel(job).is_err(), "it is another's");
            world.client("b").cancel(job).unwrap();
            gates.open(step);
            let ended: Vec<_> = threads.into_iter().map(|it| it.join().unwrap()).collect();
            is(ended[0].as_ref().unwrap(), &[3.0, 0.0]);
            let said = ended[1].as_ref().map(drop).unwrap_err().to_string();
            assert!(said.contains("client b has cancelled it"), "{step}: {said}");
        });
        assert!(world.servers.iter().all(|server| server.status().unwrap().link == Link::Up));
    }
}
