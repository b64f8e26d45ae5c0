//! Tests of the reports to operators' tools.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
};

use serde_json::{Value, json};

use super::{sessions::wait_until, *};
use crate::server::observe;

/// The answer to these bytes.
fn told(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut text = String::new();
    // A client that is cut off gets an error, and keeps what came before.
    let _ = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut text));
    text
}

fn get(address: SocketAddr, path: &str) -> (String, String) {
    let text = told(address, &format!("GET {path} HTTP/1.1\r\nhost: localhost:9100\r\n\r\n"));
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

/// A server's page of metrics.
pub(super) fn metrics(server: &Server) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = server.clone();
    thread::spawn(move || observe::serve(&listener, &server, &[]));
    get(address, "/metrics").1
}

/// Waits until each server has a model in memory.
fn all_have_loaded(world: &World, models: u64) {
    let line = format!("trefoil_models_loaded {models}");
    let has = |server: &Server| metrics(server).lines().any(|it| it == line);
    wait_until(|| world.servers.iter().all(has));
}

#[test]
fn models_are_in_memory_before_their_first_job() {
    let world = World::new(&Limits::default());
    put(&mut world.client("alice"), "one", &model(ONE), false).unwrap();
    all_have_loaded(&world, 1);
    put(&mut world.client("alice"), "two", &model(TWO), false).unwrap();
    all_have_loaded(&world, 2);
    // Its first job does not read the disk.
    damage_shares(&world.servers[2], "two");
    close(&infer(&mut world.client("alice"), "two", [1.0, 2.0, 4.0]).unwrap(), [6.0, 0.0]);
    world.client("alice").remove("one", &()).unwrap();
    all_have_loaded(&world, 1);
}

/// A server's records of an event, without the time.
pub(super) fn audited<const N: usize>(world: &World<N>, party: usize, event: &str) -> Vec<Value> {
    let text = fs::read_to_string(&world.audits[party]).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["event"] == event && line["party"] == party).collect()
}

#[test]
fn the_audit_log_says_who_did_what_and_no_number_of_theirs() {
    let world = World::new(&Limits::default());
    works(&world);
    let _ = infer(&mut world.client("mallory"), "nothing", [1.0; 3]).unwrap_err();
    let jobs = audited(&world, 1, "job");
    let [put, infer] = jobs.as_slice() else { panic!("{jobs:?}") };
    assert_eq!(
        [&put["client"], &put["kind"], &put["name"], &put["outcome"]],
        ["alice", "put", "check", "done"]
    );
    assert_eq!((&put["received_bytes"], &put["sent_bytes"]), (&json!(6 * 16), &json!(0)));
    assert_eq!([&infer["kind"], &infer["outcome"]], ["infer", "done"]);
    assert_eq!((&infer["examples"], &infer["received_bytes"]), (&json!(1), &json!(3 * 16)));
    assert!(infer["sent_bytes"].as_u64() > Some(0) && infer["rounds"].as_u64() > Some(0));
    // The three servers speak of the same job.
    let others = [0, 2].map(|party| audited(&world, party, "job")[1]["job"].clone());
    assert_eq!(others, [infer["job"].clone(), infer["job"].clone()]);
    let refused = audited(&world, 1, "refused");
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(refused[0]["client"], "mallory");
    assert!(refused[0]["reason"].as_str().unwrap().contains("no such model"));
    assert_eq!(refused[0]["request"], "model");
    world.servers[1].stop();
    assert_eq!(audited(&world, 1, "stopping").len(), 1);
}

/// A client with many refused names uses up only its own line.
#[test]
fn a_flood_of_refusals_hides_nobody_elses() {
    let world = World::new(&Limits::default());
    let mut flood = world.connect("mallory");
    for number in 0..2000 {
        let request = Request::Model { name: format!("no-{number}") };
        say(&mut *flood[1], &request).unwrap();
        assert!(matches!(hear(&mut *flood[1], LIMIT).unwrap(), Reply::Failed { .. }));
    }
    put(&mut world.client("alice"), "m", &model(ONE), false).unwrap();
    let text = world.client("bob").remove("m", &()).unwrap_err().to_string();
    assert!(text.contains("belongs to client alice"), "{text}");
    let refused = audited(&world, 1, "refused");
    let of = |client: &str| refused.iter().filter(|line| line["client"] == client).count();
    assert_eq!((of("mallory"), of("bob")), (1, 1), "{refused:?}");
    assert_eq!(audited(&world, 1, "job").len(), 1);
    let found = audit::verify(&[world.audits[1].clone()]).unwrap();
    assert_eq!((found.first, found.last), (0, 2));
}

#[test]
fn a_server_that_cannot_keep_its_audit_log_takes_no_jobs() {
    let whole = || folder("audit").join("audit.jsonl");
    let world = World::audited([whole(), PathBuf::from("/dev/full"), whole()]);
    let text = world.client("mallory").model("nothing").unwrap_err().to_string();
    assert!(text.contains("no such model"), "{text}");
    let text = put(&mut world.client("alice"), "m", &model(ONE), false).unwrap_err().to_string();
    assert!(text.contains("party 1") && text.contains("audit log cannot be written"), "{text}");
    assert!(!text.contains("/dev/full"), "{text}");
    assert_eq!(world.servers[0].status().unwrap().models, 0);
}

#[test]
fn operators_are_told_how_a_server_is_and_what_it_has_done() {
    let world = World::new(&Limits::default());
    works(&world);
    let _ = infer(&mut world.client("mallory"), "nothing", [1.0; 3]).unwrap_err();
    // A request for an unknown model is refused before there is a job; a second put of a name is
    // refused too.
    let gone = put(&mut world.client("bob"), "check", &model(ONE), true);
    assert!(gone.is_err());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = world.servers[1].clone();
    thread::spawn(move || observe::serve(&listener, &server, &["watch.example".to_owned()]));
    assert_eq!(get(address, "/healthz"), ("HTTP/1.1 200 OK".to_owned(), "ok\n".to_owned()));
    assert_eq!(get(address, "/readyz").1, "ok\n");
    let (status, page) = get(address, "/metrics?now");
    assert_eq!(status, "HTTP/1.1 200 OK");
    for line in [
        "trefoil_link_up 1",
        "trefoil_models 1",
        "trefoil_jobs_waiting 0",
        "trefoil_jobs_total{kind=\"put\",model=\"check\",client=\"alice\",outcome=\"done\"} 1",
        "trefoil_jobs_total{kind=\"infer\",model=\"check\",client=\"alice\",outcome=\"done\"} 1",
        "trefoil_job_seconds_count{kind=\"infer\",model=\"check\"} 1",
        "trefoil_job_rounds_bucket{kind=\"infer\",model=\"check\",le=\"30\"} 1",
        "trefoil_job_sent_bytes_bucket{kind=\"infer\",model=\"check\",le=\"+Inf\"} 1",
        "trefoil_job_sent_bytes_count{kind=\"put\",model=\"check\"} 0",
        "trefoil_refusals_total{client=\"mallory\"} 1",
        "trefoil_refusals_total{client=\"bob\"} 1",
        "trefoil_job_waited_seconds_count 2",
    ] {
        assert!(page.lines().any(|it| it == line), "{line}\n{page}");
    }
    let info = page.lines().find(|line| line.starts_with("trefoil_info{party=\"1\",version=\""));
    assert!(info.is_some_and(|line| line.contains(PROGRAM)), "{page}");
    let bytes = |name: &str| -> f64 {
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name}: {page}")).trim().parse().unwrap()
    };
    let (free, all) = (bytes("trefoil_disk_free_bytes "), bytes("trefoil_disk_bytes "));
    assert!(free > 0.0 && free < all, "{free} of {all} bytes");
    // Each counter is explained once, and every line of it stands below.
    let types: Vec<_> = page.lines().filter(|line| line.starts_with("# TYPE")).collect();
    let names: std::collections::BTreeSet<_> = types.iter().collect();
    assert_eq!(types.len(), names.len());
    assert!(page.lines().all(|line| line.starts_with('#')
        || line.rsplit_once(' ').is_some_and(|(_, value)| value.parse::<f64>().is_ok())));

    // The page reads the reported values by their reported names.
    let (_, html) = get(address, "/");
    for name in html.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
        let stem = name.strip_suffix("_count").unwrap_or(name);
        let told = page.contains(&format!("# TYPE {stem} "));
        assert!(told || !name.starts_with("trefoil_"), "{name}");
    }
    assert!(html.contains("trefoil_link_up") && !html.contains("http"));

    assert!(get(address, "/nothing").0.contains("404"));
    assert!(told(address, "POST /metrics HTTP/1.1\r\nhost: [::1]:9100\r\n\r\n").contains("405"));
    // A host name of another site gets no answer, those of the operator do.
    let asked =
        |host: &str| told(address, &format!("GET /metrics HTTP/1.1\r\nhost: {host}\r\n\r\n"));
    for host in ["evil.example", "evil.example:9100", "127.0.0.1.evil.example", ""] {
        let text = asked(host);
        assert!(text.contains("403") && !text.contains("trefoil_link_up"), "{host}: {text}");
    }
    for host in ["127.0.0.1:9100", "Watch.example", "watch.example:80", "LOCALHOST", "[::1]:9100"] {
        assert!(asked(host).contains("trefoil_link_up 1"), "{host}");
    }
    // Clients that send nonsense, nothing or without end do not delay others for long.
    assert_eq!(told(address, "nonsense\r\n\r\n"), "");
    assert_eq!(told(address, &format!("GET /metrics HTTP/1.1\r\na: {}", "x".repeat(20_000))), "");
    // Nor do silent connections, however many there are: the oldest give way.
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.extend((0..5).map(|_| TcpStream::connect(address).unwrap()));
        assert_eq!(get(address, "/healthz").1, "ok\n");
    }
    drop(silent);

    world.servers[1].stop();
    let (status, body) = get(address, "/readyz");
    assert!(status.contains("503") && body.contains("being stopped"), "{status} {body}");
    // The thread that computes has ended by now.
    let ended = (0..200).any(|_| {
        thread::sleep(Duration::from_millis(20));
        get(address, "/healthz").0.contains("503")
    });
    assert!(ended, "a server without the thread that computes is not alive");
}

/// Only operators see which layer of which model runs, and how much other clients do.
#[test]
fn a_client_is_told_of_its_own_jobs_alone() {
    let world = World::new(&Limits::default());
    let mut alice = world.client("alice");
    put_for(&mut alice, "private", &endless(), false, &Readers::Named(Vec::new())).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| infer(&mut world.client("alice"), "private", [1.0; 3]).unwrap_err());
        let state = |name: &str| {
            let mut channels = world.connect(name);
            say(&mut *channels[1], &Request::Status).unwrap();
            match hear(&mut *channels[1], LIMIT).unwrap() {
                Reply::Status(status) => *status,
                other => panic!("{other:?}"),
            }
        };
        let runs = (0..500).any(|_| {
            thread::sleep(Duration::from_millis(10));
            state("alice").step.is_some()
        });
        assert!(runs, "its owner is told of the step");
        let (mine, theirs) = (state("alice"), state("mallory"));
        assert_eq!(
            (theirs.step, theirs.done, theirs.failed, theirs.waiting, theirs.models),
            (None, 0, 0, 0, 0)
        );
        assert_eq!((mine.done, mine.models), (1, 1));
        assert!(theirs.clients == 1 && theirs.reserved == 0, "its own connection alone");
        assert_eq!(world.servers[1].status().unwrap().done, 1, "its operator is told of all");
        for job in world.client("alice").jobs().unwrap().concat() {
            let _ = world.client("alice").cancel(job.job);
        }
    });
}
