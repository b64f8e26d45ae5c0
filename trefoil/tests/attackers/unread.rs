//! Clients that do not read what they asked for.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use bytes::Bytes;
use mpc_core::Sharing;
use net::{Endpoint, Identity, Limits, Party, Security, Settings};
use nn_layers::{Dim, Graph, Op};
use ring_arith::{Shape, Tensor};
use rss_protocols::Replicated;
use trefoil::{
    Id, Result,
    config::ClientConfig,
    wire::{Channel, Reply, Request, hear, say, send_parcel},
};

use super::honest::{beside, cluster};
use super::quotas::{mallory, put};
use crate::common::Cluster;

const LIMIT: Duration = Duration::from_secs(30);

/// A connection that takes one message and no more before its user has read that.
struct Deaf(net::Channel);

impl Channel for Deaf {
    fn send(&mut self, frame: Bytes) -> Result<()> {
        Ok(self.0.send(frame)?)
    }

    fn send_within(&mut self, frame: Bytes, limit: Duration) -> Result<()> {
        Ok(self.0.send_within(frame, limit)?)
    }

    fn receive(&mut self, limit: Duration) -> Result<Bytes> {
        Ok(self.0.receive(limit)?.expect("something comes"))
    }

    fn is_over(&self) -> bool {
        self.0.is_over()
    }
}

/// Such connections of mallory's to the three servers.
fn deaf(cluster: &Cluster) -> [Deaf; 3] {
    let config = ClientConfig::read(&cluster.client_config("mallory")).unwrap();
    let read = |path: &Path| fs::read_to_string(path).unwrap();
    let [authority, certificate, key] =
        [&config.authority, &config.certificate, &config.key].map(|path| read(path));
    let identity = Identity::from_pem(&authority, &certificate, &key).unwrap();
    let limits = Limits { queue: 1, ..Limits::default() };
    let endpoint = Endpoint::open(Settings::new(Security::Tls(identity)).limits(limits)).unwrap();
    [0, 1, 2].map(|party| {
        Deaf(endpoint.dial(Party(party), config.servers[party].parse().unwrap()).unwrap())
    })
}

/// Numbers of an answer: 16 MiB of each component.
const WORDS: usize = 2 << 20;

#[test]
fn answers_that_nobody_reads_take_one_clients_share_of_memory_and_no_more() {
    let cluster = cluster("unread", &[("client_memory_mib", 80)]);
    let mut graph = Graph::new(1);
    let x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(1)]).unwrap();
    let wide = Op::Broadcast(vec![Dim::Batch(1), Dim::Fixed(WORDS)]);
    let y = graph.add("wide", wide, &[x]).unwrap();
    graph.output("y", y);
    put(&cluster, "wide", &graph);
    let version = mallory(&cluster).model("wide").unwrap().version;
    let before = least(&cluster, "done");
    let held = [(); 2].map(|()| {
        let (channels, replies) = ask(&cluster, version);
        assert_eq!(replies, [(); 3].map(|()| Reply::Send));
        channels
    });
    let began = Instant::now();
    while least(&cluster, "done") < before + 2 {
        assert!(began.elapsed() < LIMIT, "{}", cluster.logs());
    }
    beside(&cluster, || {
        // The jobs have run, and their answers are on their way.
        assert!(least(&cluster, "reserved") >= 2 * 16 * (WORDS as u64 + 1));
        let (_, replies) = ask(&cluster, version);
        for reply in replies {
            let Reply::Failed { reason } = reply else { panic!("{reply:?}") };
            assert!(reason.contains("limits.client_memory_mib"), "{reason}");
        }
        drop(held);
    });
}

/// Asks for an answer, and sends the parts if the servers take them. Returns their first replies.
fn ask(cluster: &Cluster, version: Id) -> ([Deaf; 3], [Reply; 3]) {
    let (job, model) = (Id::random().unwrap(), "wide".to_owned());
    let inputs = vec![vec![1, 1]];
    let request = Request::Infer { job, model, version, inputs, profile: false };
    let input = Tensor::new(Shape::new([1, 1]).unwrap(), vec![1]).unwrap();
    let dealt = Replicated.deal(vec![input]).unwrap();
    let mut channels = deaf(cluster);
    let replies = [0, 1, 2].map(|party| {
        let channel = &mut channels[party];
        say(channel, &request).unwrap();
        let reply = hear(channel, LIMIT).unwrap();
        if reply == Reply::Send {
            send_parcel(channel, &dealt[party], &mut |_| {}).unwrap();
        }
        reply
    });
    (channels, replies)
}

/// The least of a number that the three servers tell mallory of what is its own.
fn least(cluster: &Cluster, what: &str) -> u64 {
    let status = cluster.json("mallory", &["status"]);
    let all = status.as_array().unwrap().iter().map(|server| server[what].as_u64().unwrap());
    all.min().unwrap()
}
