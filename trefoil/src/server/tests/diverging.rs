//! A training whose numbers leave their range: its owner learns where, and nobody goes on with it.

use super::{
    learning::{network, prepared, put_run_of, said, spec, training},
    *,
};
use crate::{
    client::Driven,
    training::{Decision, Work},
};

#[test]
fn a_run_whose_values_leave_their_range_says_where_and_is_over() {
    let world = World::new(&Limits::default());
    let [mut alice, mut bob, mut carol] = prepared(&world);
    let mut wild = network();
    // Times a number of about 1, it leaves the 62 bits of a product.
    wild.start[0] = wild.start[0].map(|v| v * 2f64.powi(30));
    let spec = spec(&mut carol, &["a", "b"]);
    put_run_of(&mut carol, "wild", &spec, &wild, false).unwrap();
    let mark = carol.run("run").unwrap().run.fingerprint;
    alice.approve("run", mark, &()).unwrap();
    bob.approve("run", mark, &()).unwrap();
    // The guard tells at the end of an epoch, with the metrics.
    let answer = carol.train("run", mark, 0, 2, false, &()).unwrap();
    assert!(answer.outputs.is_empty());
    let answer = carol.train("run", mark, 2, 1, false, &()).unwrap();
    training().decode_metrics(&answer.outputs, 3).unwrap();

    let mark = carol.run("wild").unwrap().run.fingerprint;
    alice.approve("wild", mark, &()).unwrap();
    bob.approve("wild", mark, &()).unwrap();
    let (name, work) = ("wild".to_owned(), Work::Training(Box::new(training())));
    let driven = Driven { name, fingerprint: mark, work, keep: Duration::from_secs(600) };
    let connect = || Ok(world.client("carol"));
    let ended = driven.run(world.client("carol"), 0, &connect, &(), &mut |_| true);
    let Err(Error::Diverged { step: 2, layer, .. }) = ended else { panic!("{ended:?}") };
    assert_eq!(layer, "y");
    // It is over: nobody goes on with numbers that are wrong, or makes a model of them.
    assert!(carol.run("wild").unwrap().run.diverged);
    let readers = Readers::Named(vec![]);
    for refused in [
        said(carol.train("wild", mark, 0, 1, false, &())),
        said(world.client("carol").decide("wild", mark, Decision::Resume, &())),
        said(world.client("carol").publish(("wild", mark, 0), "wild-model", &readers, false, &())),
        said(world.client("carol").release("wild", mark, 0, &())),
    ] {
        assert!(refused.contains("it has diverged"), "{refused}");
    }
    assert!(!carol.run("run").unwrap().run.diverged);
}
