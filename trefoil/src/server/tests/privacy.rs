//! Trainings with noise on the servers, and the privacy budgets of data sets.

use nn_layers::train::{Metric, Privacy, TrainOptions};

use super::{
    learning::{BATCH, Learner, Rows, put_data_under, put_run_of, rows, said, spec},
    *,
};
use crate::training::{Budget, Conditions, Spent, Training};

/// Epsilon 2.99 at delta 1e-5 after three epochs.
const NOISE: f64 = 2.42;

fn network(privacy: Option<Privacy>) -> Learner {
    let mut graph = Graph::new(BATCH);
    let x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(3)]).unwrap();
    let w = HostTensor::new([3, 2], vec![0.1, -0.2, 0.3, 0.2, -0.1, 0.4]).unwrap();
    let w = graph.weight("w", w);
    let y = graph.add("y", matmul(), &[x, w]).unwrap();
    graph.train(|_| true);
    let options = match privacy {
        Some(privacy) => TrainOptions::default().with_privacy(privacy),
        None => TrainOptions::default().with_metrics([Metric::Loss]),
    };
    Learner::new(&graph, y, &options)
}

fn private() -> Learner {
    network(Some(Privacy::new(0.5, NOISE)))
}

/// Alice's rows under a budget, and a client that trains on them.
fn prepared(world: &World, epsilon: f64) -> [Client; 2] {
    let [mut alice, carol] = ["alice", "carol"].map(|name| world.client(name));
    let budget = Budget { epsilon, delta: 1e-5 };
    let conditions = Conditions { privacy: Some(budget), ..Conditions::default() };
    put_data_under(&mut alice, "a", &rows(12, 1), conditions, false).unwrap();
    [alice, carol]
}

fn spent(client: &mut Client) -> Vec<Spent> {
    let sets = client.data_sets().unwrap();
    sets.into_iter().flatten().filter(|set| set.name == "a").map(|set| set.spent).collect()
}

/// Makes a run of three epochs and has it consented to.
fn begin(alice: &mut Client, carol: &mut Client, name: &str) -> Digest {
    let spec = spec(carol, &["a"]);
    put_run_of(carol, name, &spec, &private(), false).unwrap();
    let mark = carol.run(name).unwrap().run.fingerprint;
    alice.approve(name, mark, &()).unwrap();
    mark
}

#[test]
fn a_run_with_noise_shows_nothing_but_its_weights_and_is_charged_before_its_first_step() {
    let world = World::new(&Limits::default());
    let [mut alice, mut carol] = prepared(&world, 3.0);
    let mark = begin(&mut alice, &mut carol, "run");
    assert_eq!(spent(&mut carol), vec![Spent::default(); 3], "nothing before the first step");
    for from in [0, 3, 6] {
        let answer = carol.train("run", mark, from, 3, true, &()).unwrap();
        assert!(answer.outputs.is_empty(), "neither metrics nor what a guard found");
        for spent in spent(&mut carol) {
            let epsilon = spent.accountant.epsilon(1e-5).unwrap();
            assert!((2.9..3.0).contains(&epsilon), "{epsilon}");
        }
    }
    let weights = private().plan.decode_network(&carol.release("run", mark, 9, &()).unwrap());
    let learnt = weights.unwrap().remove(0);
    let wanted = spec(&mut carol, &["a"]);
    let training = Training::new(private().plan, &wanted, 12).unwrap();
    let Rows { values, labels } = rows(12, 1);
    let mut clear = private().start;
    training.run_in_the_clear(&mut clear, &[values, labels], 0..9).unwrap();
    // Nine steps at rate 0.1 of noise of 0.37 in the mean of 4 rows: 0.27 for six weights together.
    let (learnt, clear) = (learnt.floats(), clear[0].floats());
    let squares = learnt.iter().zip(clear.iter()).map(|(a, b)| (a - b) * (a - b));
    let apart = squares.sum::<f64>().sqrt();
    assert!((0.05..1.0).contains(&apart), "{apart} from what is learnt without noise");
}

#[test]
fn runs_beyond_the_budget_are_refused_at_every_server_also_after_they_were_put() {
    let world = World::new(&Limits::default());
    let [mut alice, mut carol] = prepared(&world, 3.0);
    let first = begin(&mut alice, &mut carol, "first");
    // Both are put before either has begun.
    let second = begin(&mut alice, &mut carol, "second");
    carol.train("first", first, 0, 3, true, &()).unwrap();
    let text = said(carol.train("second", second, 0, 1, true, &()));
    assert!(text.contains("privacy of data set `a`") && text.contains("allows 3"), "{text}");
    // The first one continues, also if it is done again from a state that was kept.
    let mut carol = world.client("carol");
    carol.train("first", first, 3, 2, false, &()).unwrap();
    let counts = spent(&mut carol);
    carol.train("first", first, 3, 3, true, &()).unwrap();
    assert_eq!(spent(&mut carol), counts);
    // Data put again under its name continues its count.
    let conditions =
        Conditions { privacy: Some(Budget { epsilon: 4.0, delta: 1e-5 }), ..Conditions::default() };
    put_data_under(&mut alice, "a", &rows(12, 1), conditions, true).unwrap();
    let third = begin(&mut alice, &mut carol, "third");
    let text = said(carol.train("third", third, 0, 1, true, &()));
    assert!(text.contains("have spent 2.9"), "{text}");
}

#[test]
fn runs_without_noise_are_refused_on_data_with_a_budget_and_remembered_elsewhere() {
    let world = World::new(&Limits::default());
    let [mut alice, mut carol] = prepared(&world, 3.0);
    let wanted = spec(&mut carol, &["a"]);
    let open = network(None);
    let text = said(put_run_of(&mut carol, "open", &wanted, &open, false));
    assert!(text.contains("this run has no noise"), "{text}");
    let loud = network(Some(Privacy::new(0.5, 1.0)));
    let text = said(put_run_of(&mut world.client("carol"), "loud", &wanted, &loud, false));
    assert!(text.contains("after this run epsilon would be"), "{text}");
    put_data_under(&mut alice, "b", &rows(12, 1), Conditions::default(), false).unwrap();
    let mut carol = world.client("carol");
    let on_b = spec(&mut carol, &["b"]);
    put_run_of(&mut carol, "open", &on_b, &open, false).unwrap();
    let mark = carol.run("open").unwrap().run.fingerprint;
    alice.approve("open", mark, &()).unwrap();
    carol.train("open", mark, 0, 1, false, &()).unwrap();
    let ledgers = world.servers.iter().map(|server| server.0.store.ledger().spent("alice", "b"));
    assert!(ledgers.into_iter().all(|spent| spent.unwrap().unprotected));
}
