//! `cargo xtask bench --hosts`, with a program in the place of ssh that runs commands on this machine.
#![cfg(unix)]

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// A folder for one test, which is the home directory of its hosts too.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("trefoil-hosts-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Runs a suite on three hosts. The stand-in has the host's name in `$host` and its command in `$command`.
fn bench(home: &Path, stand_in: &str, args: &[&str]) -> (Output, [String; 3]) {
    let ssh = home.join("ssh");
    // As ssh does, it begins in the home directory.
    let skip = "cd \"$HOME\"\nwhile [ \"$1\" = -o ]; do shift 2; done\nhost=$1\ncommand=$2\n";
    fs::write(&ssh, format!("#!/bin/sh\n{skip}{stand_in}\n")).unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let ports = listeners.map(|listener| listener.local_addr().unwrap().port());
    let names = ["localhost", "me@127.0.0.1", "localhost"];
    let mut ports = ports.into_iter();
    let hosts = names.map(|name| format!("{name}:{}", ports.next().unwrap()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    command.args(args).args(["--quick", "--hosts", &hosts.join(",")]);
    let output = command.env("TREFOIL_SSH", &ssh).env("HOME", home).output().unwrap();
    (output, hosts)
}

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

const LOCAL: &str = r#"exec sh -c "$command""#;

#[test]
fn three_hosts_measure_what_three_processes_do() {
    let home = folder("measure");
    let json = home.join("results.jsonl");
    let cases = ["protocols", "--only", "relu/1e4", "--json", json.to_str().unwrap()];
    let (output, _) = bench(&home, LOCAL, &cases);
    assert!(output.status.success(), "{}", text(&output));
    let cases = ["models", "--only", "lenet/1/slow-links", "--json", json.to_str().unwrap()];
    let (output, hosts) = bench(&home, LOCAL, &cases);
    assert!(output.status.success(), "{}", text(&output));
    // The program is there already.
    assert!(!text(&output).contains("copying"), "{}", text(&output));
    let lines = fs::read_to_string(&json).unwrap();
    assert_eq!(lines.matches(r#""network":"hosts/tls""#).count(), 2, "{lines}");
    // A party that fails names its host.
    let failing = format!("case $host in me@*) command=\"exit 3\";; esac; {LOCAL}");
    let (output, _) = bench(&home, &failing, &["protocols", "--only", "relu/1e4"]);
    assert!(
        !output.status.success() && text(&output).contains(&hosts[1][..12]),
        "{}",
        text(&output)
    );
    fs::remove_dir_all(&home).unwrap();
}

#[test]
fn a_host_that_is_lost_is_named() {
    let home = folder("lost");
    let cases = ["protocols", "--only", "relu/1e4"];
    let refused = format!("case $host in me@*) echo refused >&2; exit 255;; esac; {LOCAL}");
    let (output, hosts) = bench(&home, &refused, &cases);
    let said = format!("{} ended with exit status: 255", hosts[1]);
    assert!(
        text(&output).contains(&said) && text(&output).contains("refused"),
        "{}",
        text(&output)
    );
    // The party's process is stopped a moment after it was started.
    let later =
        format!("case $host,$command in me@*,*__party*) (sleep 1; kill -STOP $$)& esac; {LOCAL}");
    let long = ["protocols", "--only", "matmul/1024"];
    for (stand_in, cases) in [
        ("case $host in me@*) exec sleep 60;; esac; exec sh -c \"$command\"", cases),
        (&later, long),
    ] {
        let (output, hosts) = bench(&home, stand_in, &cases);
        let said = format!("{} is lost: nothing came from it for 4.5 seconds", hosts[1]);
        assert!(!output.status.success() && text(&output).contains(&said), "{}", text(&output));
    }
    fs::remove_dir_all(&home).unwrap();
}

#[test]
fn options_that_do_not_go_with_hosts_are_refused() {
    let home = folder("options");
    for (args, said) in [
        (&["ring"][..], "only the suites protocols, models, training know --hosts"),
        (&["models", "--network", "in-process"], "leave out --network in-process"),
        (&["models", "--protocol", "dealt-3"], "3 hosts; name 4"),
    ] {
        let (output, _) = bench(&home, LOCAL, args);
        assert!(!output.status.success() && text(&output).contains(said), "{}", text(&output));
    }
    fs::remove_dir_all(&home).unwrap();
}
