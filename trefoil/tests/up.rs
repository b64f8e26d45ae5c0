//! All servers of a trial by one command.

use std::{
    fs,
    io::Read,
    process::{Child, Command, Stdio},
};

use crate::common::{Cluster, trefoil};

fn up(cluster: &Cluster) -> Child {
    Command::new(env!("CARGO_BIN_EXE_trefoil"))
        .args(["--json", "cluster", "up", cluster.folder.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn one_command_runs_all_servers_and_ends_them() {
    let cluster = Cluster::make("up", "alice");
    let mut process = up(&cluster);
    let mut said = vec![0];
    let mut output = process.stdout.take().unwrap();
    output.read_exact(&mut said).unwrap();
    assert_eq!(cluster.run("alice", &["status"]).code, 0, "the servers are linked");
    let sent = Command::new("kill").args(["-s", "INT", &process.id().to_string()]).status();
    assert!(sent.unwrap().success());
    output.read_to_end(&mut said).unwrap();
    let ended = process.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let said: serde_json::Value = serde_json::from_slice(&said).unwrap();
    assert_eq!(said.as_array().unwrap().len(), 3);
    assert_ne!(cluster.run("alice", &["status"]).code, 0, "no server is left");
}

#[test]
fn a_server_that_ends_is_named_with_its_reason_and_the_others_end_too() {
    let cluster = Cluster::make("up-broken", "alice");
    fs::remove_file(cluster.folder.join("party-1/party.key")).unwrap();
    let folder = cluster.folder.to_str().unwrap();
    let ended = trefoil(&["cluster", "up", folder]);
    assert_ne!(ended.code, 0);
    assert!(ended.err.contains("party 1") && ended.err.contains("party.key"), "{}", ended.err);
    assert_ne!(cluster.run("alice", &["status"]).code, 0, "no server is left");
}
