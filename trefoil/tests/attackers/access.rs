//! Clients that want what belongs to others.

use std::time::Duration;

use trefoil::{
    Id, Result, client,
    config::ClientConfig,
    store::Readers,
    wire::{Channel, Reply, Request, hear, say},
};

use super::honest::{beside, cluster, connect};
use crate::common::{Cluster, DIGITS};

const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn nobody_changes_a_model_but_its_owner() {
    let cluster = cluster("foreign", &[]);
    beside(&cluster, || {
        for arguments in [
            &["model", "put", "digits", DIGITS, "--replace"][..],
            &["model", "put", "digits", DIGITS],
            &["model", "remove", "digits"],
            &["model", "share", "digits", "--with", "mallory"],
        ] {
            let run = cluster.run("mallory", arguments);
            assert_eq!(run.code, 6, "{arguments:?}: {}", run.err);
            assert!(run.err.contains("belongs to client alice"), "{}", run.err);
        }
        // Past the program that would ask first: each server refuses by itself.
        for party in 0..3 {
            let (job, name) = (Id::random().unwrap(), "digits".to_owned());
            let share = Request::Share { job, name: name.clone(), readers: Readers::Everyone };
            for request in [Request::Remove { job, name }, share] {
                let channel = &mut *connect(&cluster)[party];
                let reason = refused(channel, &request);
                assert!(reason.contains("belongs to client alice"), "{reason}");
            }
        }
    });
}

#[test]
fn a_model_that_is_not_shared_can_be_neither_seen_nor_run() {
    let cluster = cluster("private", &[]);
    cluster.json("alice", &["model", "put", "secret", DIGITS]);
    let version = alice(&cluster).unwrap().model("secret").unwrap().version;
    let shown = |client: &str| cluster.run(client, &["model", "show", "secrt"]).err;
    assert!(shown("alice").contains("did you mean `secret`?"), "{}", shown("alice"));
    assert!(!shown("mallory").contains("did you mean"), "{}", shown("mallory"));
    beside(&cluster, || {
        let list = cluster.json("mallory", &["model", "list"]);
        assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
        for party in 0..3 {
            let name = "secret".to_owned();
            // Even one who knows the version gets the answer that a wrong name gets.
            let inputs = vec![vec![1, 1, 8, 8]];
            let job = Id::random().unwrap();
            let infer = |model| Request::Infer {
                job,
                model,
                version,
                inputs: inputs.clone(),
                profile: true,
            };
            let channel = &mut *connect(&cluster)[party];
            for (there, not_there) in [
                (infer(name.clone()), infer("nothing".to_owned())),
                (Request::Model { name }, Request::Model { name: "nothing".to_owned() }),
            ] {
                let reason = refused(channel, &there);
                assert!(reason.contains("no such model"), "{reason}");
                assert_eq!(reason.replace("secret", "nothing"), refused(channel, &not_there));
            }
        }
    });
}

#[test]
fn readers_that_differ_between_servers_are_refused_and_rights_end_when_they_are_taken() {
    let cluster = cluster("readers", &[]);
    cluster.json("alice", &["model", "put", "mine", DIGITS]);
    let config = ClientConfig::read(&cluster.client_config("alice")).unwrap();
    beside(&cluster, || {
        let dialled = client::dial_all(&config).unwrap();
        let mut channels: Vec<_> = dialled.into_iter().map(|channel| channel.unwrap()).collect();
        let (job, name) = (Id::random().unwrap(), "mine".to_owned());
        for (party, channel) in channels.iter_mut().enumerate() {
            let readers = if party == 2 { Readers::Everyone } else { Readers::Named(Vec::new()) };
            say(&mut **channel, &Request::Share { job, name: name.clone(), readers }).unwrap();
        }
        for channel in &mut channels {
            let reason = ended(&mut **channel);
            assert!(reason.contains("party 2 was asked for something else"), "{reason}");
        }
        let runs = || cluster.run("mallory", &["model", "list"]).out.contains("mine");
        assert!(!runs());
        cluster.json("alice", &["model", "share", "mine", "--with", "mallory"]);
        assert!(runs());
        cluster.json("alice", &["model", "share", "mine", "--not-with", "mallory"]);
        assert!(!runs());
    });
}

fn alice(cluster: &Cluster) -> Result<client::Client> {
    client::connect(&ClientConfig::read(&cluster.client_config("alice"))?)
}

/// Why a server refuses a request.
fn refused(channel: &mut dyn Channel, request: &Request) -> String {
    say(channel, request).unwrap();
    ended(channel)
}

/// Why a job fails.
fn ended(channel: &mut dyn Channel) -> String {
    loop {
        match hear(channel, LIMIT).unwrap() {
            Reply::Failed { reason } => return reason,
            Reply::Waiting { .. } | Reply::Working(_) => {}
            other => panic!("{other:?}"),
        }
    }
}
