//! Three servers within one process, links and all, and clients that behave or do not.

use std::{
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::Duration,
};

use bytes::Bytes;
use net::in_process::sessions_from_seed;
use nn_layers::{Dim, Graph, HostTensor, LinearOp, Op};
use ring_arith::{EngineTensor, FixedPoint, FracBits, Shape};

use super::*;
use crate::{
    client::{Client, NewModel},
    import::{Imported, plan},
    share::Dealt,
    testing::{connection, folder},
    wire::{Channel, Reply, Request, hear, say, send_bytes, send_part},
};

const LIMIT: Duration = Duration::from_secs(20);

/// Three servers. When a session dies, all get a new one.
struct World {
    servers: [Server; 3],
}

impl World {
    fn new(limits: &Limits) -> Self {
        let (ask, asked) = channel();
        let servers = [0, 1, 2].map(|me| {
            let store = Store::open(&folder("server")).unwrap();
            Server::new(me, limits.clone(), store, CpuEngine::new(1))
        });
        for (me, server) in servers.iter().cloned().enumerate() {
            let ask: Sender<(usize, Sender<net::Session>)> = ask.clone();
            thread::spawn(move || {
                loop {
                    let (give, given) = channel();
                    if ask.send((me, give)).is_err() {
                        return;
                    }
                    let Ok(session) = given.recv() else { return };
                    let error = server.run_session(session).unwrap_err();
                    server.link_down(error);
                }
            });
        }
        thread::spawn(move || hand_out(&asked));
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

/// Waits until all three ask for a session, then gives them one.
fn hand_out(asked: &Receiver<(usize, Sender<net::Session>)>) {
    for seed in 1.. {
        let mut waiting: [Option<Sender<net::Session>>; 3] = [None, None, None];
        while waiting.iter().any(Option::is_none) {
            let Ok((me, give)) = asked.recv() else { return };
            waiting[me] = Some(give);
        }
        for (give, session) in waiting.into_iter().flatten().zip(sessions_from_seed(3, seed)) {
            let _ = give.send(session);
        }
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
