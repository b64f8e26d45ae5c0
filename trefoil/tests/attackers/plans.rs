//! A model whose plan is another one at each server: the same bytes, another number of operations.

use std::time::Duration;

use mpc_core::Sharing;
use nn_layers::{Dim, Graph, Op, PlanOptions, Unary};
use rss_protocols::Replicated;
use trefoil::{
    Id, Preprocess,
    model::import::{Imported, plan},
    store::Readers,
    wire::{Reply, Request, hear, say, send_bytes, send_parcel},
};

use super::honest::{beside, cluster, connect};

const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn a_plan_that_differs_between_servers_is_refused_and_touches_no_other_job() {
    let cluster = cluster("plans", &[]);
    let (whole, halves) = (relu(1), relu(2));
    let plans = [&whole, &halves].map(|model| model.program.to_bytes().unwrap());
    let longest = plans.iter().map(Vec::len).max().unwrap();
    beside(&cluster, || {
        for odd in 0..3 {
            let mut models = [&halves; 3];
            models[odd] = &whole;
            let mut channels = connect(&cluster);
            let job = Id::random().unwrap();
            // Party 0 asks the others, so it gets its part last.
            for (party, (channel, model)) in channels.iter_mut().zip(models).enumerate().rev() {
                let about = model.about.to_bytes().unwrap();
                // Of one length, so that what is announced tells nothing.
                let mut plan = model.program.to_bytes().unwrap();
                plan.resize(longest, b' ');
                let request = Request::Put {
                    job,
                    name: "split".to_owned(),
                    about: about.len() as u64,
                    plan: plan.len() as u64,
                    tokenizer: 0,
                    words: 0,
                    public_weights: false,
                    readers: Readers::Everyone,
                    ranges: Vec::new(),
                    replace: false,
                };
                let channel = &mut **channel;
                say(channel, &request).unwrap();
                assert_eq!(hear::<Reply>(channel, LIMIT).unwrap(), Reply::Send);
                for bytes in [about, plan] {
                    send_bytes(channel, bytes.into(), &mut |_| {}).unwrap();
                }
                let part = &Replicated.deal(vec![]).unwrap()[party];
                send_parcel(channel, part, &mut |_| {}).unwrap();
            }
            for mut channel in channels {
                let reason = loop {
                    match hear(&mut *channel, LIMIT).unwrap() {
                        Reply::Waiting { .. } | Reply::Working(_) => {}
                        Reply::Failed { reason } => break reason,
                        other => panic!("{other:?}"),
                    }
                };
                assert!(reason.contains("was asked for something else"), "{reason}");
            }
        }
    });
    let status = cluster.json("alice", &["status"]);
    let counts = |at: usize| (&status[at]["done"], &status[at]["failed"]);
    assert!((1..3).all(|at| counts(at) == counts(0)), "{status}");
}

/// `max(0, x)` for 128 numbers in steps of equal size.
fn relu(steps: usize) -> Imported {
    let mut graph = Graph::new(1);
    let x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(128)]).unwrap();
    let mut parts = Vec::new();
    for at in 0..steps {
        let (start, end) = (at * 128 / steps, Dim::Fixed((at + 1) * 128 / steps));
        let part = Op::Slice { axis: 1, start, end, step: 1 };
        let part = graph.add(&format!("part{at}"), part, &[x]).unwrap();
        parts.push(graph.add(&format!("relu{at}"), Op::Unary(Unary::Relu), &[part]).unwrap());
    }
    let y = graph.add("y", Op::Concat(1), &parts).unwrap();
    graph.output("y", y);
    plan("relu", &graph, &PlanOptions::default(), Preprocess::default(), Vec::new()).unwrap()
}
