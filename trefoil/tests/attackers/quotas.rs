//! Clients that take more than their share of memory, connections and places.

use std::time::Duration;

use bytes::Bytes;
use trefoil::{
    Id,
    wire::{Channel, Reply, Request, hear, say},
};

use crate::{
    common::Cluster,
    honest::{beside, cluster, connect},
};

const LIMIT: Duration = Duration::from_secs(30);

/// A request to run `digits` on so many examples.
fn infer(cluster: &Cluster, examples: usize) -> Request {
    let mut channel = connect(cluster);
    let request = Request::Model { name: "digits".to_owned() };
    say(&mut *channel[0], &request).unwrap();
    let Reply::Model { .. } = hear(&mut *channel[0], LIMIT).unwrap() else { panic!("no model") };
    let text = String::from_utf8(channel[0].receive(LIMIT).unwrap().to_vec()).unwrap();
    let public: serde_json::Value = serde_json::from_str(&text).unwrap();
    Request::Infer {
        job: Id::random().unwrap(),
        model: "digits".to_owned(),
        version: public["version"].as_str().unwrap().parse().unwrap(),
        inputs: vec![vec![examples, 1, 8, 8]],
        profile: false,
    }
}

/// The same request under a job of its own.
fn again(request: &Request) -> Request {
    let mut request = request.clone();
    if let Request::Infer { job, .. } = &mut request {
        *job = Id::random().unwrap();
    }
    request
}

fn reply(channel: &mut dyn Channel) -> Reply {
    hear(channel, LIMIT).unwrap()
}

fn reason(channel: &mut dyn Channel) -> String {
    match reply(channel) {
        Reply::Failed { reason } => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_client_takes_its_share_of_connections_and_no_more() {
    let cluster = cluster("connections", &[("clients", 12), ("client_connections", 4)]);
    beside(&cluster, || {
        let mut held = Vec::new();
        for _ in 0..4 {
            let mut channels = connect(&cluster);
            for channel in &mut channels {
                say(&mut **channel, &Request::Ping).unwrap();
                assert!(matches!(reply(&mut **channel), Reply::Pong { .. }));
            }
            held.push(channels);
        }
        for _ in 0..20 {
            for channel in &mut connect(&cluster) {
                let reason = reason(&mut **channel);
                assert!(reason.contains("limits.client_connections"), "{reason}");
            }
        }
    });
}

#[test]
fn announced_uploads_that_never_come_take_one_clients_share_of_memory_and_no_more() {
    let limits = [("memory_mib", 64), ("client_memory_mib", 32), ("activation_mwords", 4096)];
    let cluster = cluster("uploads", &limits);
    beside(&cluster, || {
        // 16 bytes for each of 64 words of an example: 10 MiB each.
        let request = infer(&cluster, 10 << 10);
        let mut held = Vec::new();
        for count in 0..8 {
            let mut channels = connect(&cluster);
            for channel in &mut channels {
                say(&mut **channel, &again(&request)).unwrap();
                match reply(&mut **channel) {
                    Reply::Send => assert!(count < 3),
                    Reply::Failed { reason } => {
                        assert!(
                            count >= 3 && reason.contains("limits.client_memory_mib"),
                            "{reason}"
                        );
                    }
                    other => panic!("{other:?}"),
                }
            }
            held.push(channels);
        }
    });
}

#[test]
fn jobs_that_never_get_complete_take_one_clients_places_and_no_more() {
    let cluster = cluster("places", &[("queue", 16), ("client_jobs", 4), ("parts_seconds", 3)]);
    beside(&cluster, || {
        let request = infer(&cluster, 1);
        let mut held = Vec::new();
        for count in 0..12 {
            let mut channels = connect(&cluster);
            // Never to party 2.
            for (party, channel) in channels.iter_mut().enumerate().take(2) {
                say(&mut **channel, &again(&request)).unwrap();
                match reply(&mut **channel) {
                    Reply::Send => {
                        let keys = 32 * (2 - party);
                        channel.send(Bytes::from(vec![7; keys])).unwrap();
                        if party > 0 {
                            channel.send(Bytes::from(vec![7; 8 * 64])).unwrap();
                        }
                    }
                    Reply::Failed { reason } => {
                        assert!(count >= 4 && reason.contains("limits.client_jobs"), "{reason}");
                    }
                    other => panic!("{other:?}"),
                }
            }
            held.push(channels);
        }
    });
}

#[test]
fn long_headers_crumbs_and_nonsense_cost_a_server_nothing() {
    let cluster = cluster("headers", &[]);
    beside(&cluster, || {
        let brackets = Bytes::from("[]".repeat(2 << 20));
        let deep = Bytes::from("[".repeat(60_000));
        let many = format!(r#"{{"trefoil":2,"say":[{}1]}}"#, "[],".repeat(20_000));
        for frame in [brackets, deep, Bytes::from(many)] {
            for channel in &mut connect(&cluster) {
                for _ in 0..8 {
                    channel.send(frame.clone()).unwrap();
                    reason(&mut **channel);
                }
            }
        }
        let request = infer(&cluster, 1 << 10);
        for (party, channel) in connect(&cluster).iter_mut().enumerate().skip(1) {
            say(&mut **channel, &again(&request)).unwrap();
            assert_eq!(reply(&mut **channel), Reply::Send);
            channel.send(Bytes::from(vec![7; 32])).unwrap();
            // A byte a frame, until the server has had enough.
            while channel.send(Bytes::from_static(b"x")).is_ok() && !channel.is_over() {
                if let Ok(Reply::Failed { reason }) = hear(&mut **channel, Duration::from_millis(1))
                {
                    assert!(reason.contains("frames of less than"), "party {party}: {reason}");
                    break;
                }
            }
        }
    });
}

#[test]
fn jobs_cancelled_over_and_over_harm_nobody_else() {
    let cluster = cluster("cancel", &[]);
    beside(&cluster, || {
        let request = infer(&cluster, 1);
        let Request::Infer { job, .. } = &request else { unreachable!() };
        for _ in 0..20 {
            for channel in &mut connect(&cluster) {
                say(&mut **channel, &Request::Cancel { job: *job }).unwrap();
                let reason = reason(&mut **channel);
                assert!(reason.contains("no such job"), "{reason}");
            }
        }
    });
}
