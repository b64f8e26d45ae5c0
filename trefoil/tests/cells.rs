//! Two cells of three parties, as processes: clients that choose, workers that are killed.

use std::{
    fs,
    process::{Child, Command},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::common::{Cluster, DIGITS, digits, faults, launch, logits};
use ring_arith::{FixedPoint, FracBits, Shape, Tensor};
use serde_json::Value;
use trefoil::{
    client::{self, Client},
    config::ClientConfig,
    wire::PublicModel,
};

const CELLS: usize = 2;
const PARTIES: usize = 3;
const CLIENTS: usize = 6;

/// The largest error of a logit: 2^-9.
const ERROR: f64 = 1.0 / 512.0;

/// The longest time that anything may take.
const LIMIT: Duration = Duration::from_secs(90);

/// The workers of all parties.
struct Workers {
    cluster: Cluster,
    running: Vec<Option<Child>>,
}

impl Workers {
    /// Makes the files of a cluster of cells, and starts all workers.
    fn start(name: &str, clients: &str) -> Self {
        let cluster = Cluster::make(name, clients);
        let [_, a, b, c] = std::process::id().to_be_bytes();
        let address = |party: usize| format!("127.{a}.{b}.{c}:8{{cell}}1{party}");
        let servers: Vec<_> = (0..PARTIES).map(address).collect();
        let file = |path: String, change: &dyn Fn(&mut toml::Table)| {
            let path = cluster.folder.join(path);
            let mut table: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
            table.insert("servers".to_owned(), servers.clone().into());
            change(&mut table);
            fs::write(&path, table.to_string()).unwrap();
        };
        for party in 0..PARTIES {
            file(format!("party-{party}/party.toml"), &|table| {
                table.insert("listen".to_owned(), address(party).into());
                table.insert("threads".to_owned(), 1.into());
                let cells = toml::toml! { count = 2 };
                table.insert("cells".to_owned(), cells.into());
            });
        }
        for client in clients.split(',') {
            file(format!("client-{client}/client.toml"), &|table| {
                table.insert("cells".to_owned(), (CELLS as i64).into());
            });
        }
        let running = (0..CELLS * PARTIES).map(|_| None).collect();
        let mut workers = Self { cluster, running };
        (0..CELLS * PARTIES).for_each(|worker| workers.start_worker(worker));
        workers
    }

    /// Starts a worker: they are counted cell by cell.
    fn start_worker(&mut self, worker: usize) {
        let (cell, party) = (worker / PARTIES, worker % PARTIES);
        let folder = self.cluster.folder.join(format!("party-{party}"));
        let command = Command::new(env!("CARGO_BIN_EXE_trefoil"));
        self.running[worker] = Some(launch(&folder, command, &["--cell", &cell.to_string()]));
    }

    /// Ends a worker as `kill -9` does.
    fn kill(&mut self, worker: usize) {
        let mut child = self.running[worker].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// The state of each worker that answers.
    fn states(&self, client: &str) -> Vec<Value> {
        let run = self.cluster.run(client, &["--json", "status"]);
        match serde_json::from_str(&run.out) {
            Ok(Value::Array(states)) => states,
            _ => Vec::new(),
        }
    }

    /// Waits until the workers' states are such.
    fn wait(&self, client: &str, what: &str, holds: impl Fn(&[Value]) -> bool) {
        let began = Instant::now();
        loop {
            let states = self.states(client);
            if holds(&states) {
                return;
            }
            assert!(began.elapsed() < LIMIT, "{what}: {states:?}\n{}", self.cluster.logs());
        }
    }

    fn wait_until_all_are_up(&self, client: &str) {
        let up = |state: &Value| state["link"] == "up";
        self.wait(client, "all are linked", |states| {
            states.len() == CELLS * PARTIES && states.iter().all(up)
        });
    }

    /// A client of one cell.
    fn client_of(&self, name: &str, cell: u16) -> Client {
        let config = ClientConfig::read(&self.cluster.client_config(name)).unwrap();
        client::connect_to(&config, Some(cell)).unwrap()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for child in self.running.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Asks for jobs until none is left. No answer is wrong, and none is lost.
fn work(config: &ClientConfig, jobs: usize, next: &AtomicUsize, right: &AtomicUsize) {
    let (digits, logits) = (digits(), logits());
    let mut client = client::connect(config).unwrap();
    let public = client.model("digits").unwrap();
    loop {
        let job = next.fetch_add(1, Ordering::SeqCst);
        if job >= jobs {
            return;
        }
        let at = job % digits.len();
        ask(&mut client, &public, &digits[at], &logits[at]);
        right.fetch_add(1, Ordering::SeqCst);
    }
}

fn ask(client: &mut Client, public: &PublicModel, digit: &str, logits: &[f32]) {
    let about = &public.about;
    let pixels: Vec<f64> =
        digit.split(',').take(64).map(|cell| cell.parse::<f64>().unwrap() / 16.0).collect();
    let code = FixedPoint(FracBits::new(about.fraction_bits).unwrap());
    let shape = Shape::new([1, 1, 8, 8]).unwrap();
    let input = Tensor::new(shape, code.encode(&pixels).unwrap()).unwrap();
    let answer = client.infer("digits", public.version, &[input], false, &()).unwrap();
    let found = &about.decode(1, &answer.outputs).unwrap()[0][0];
    for (&found, &expected) in found.iter().zip(logits) {
        let error = (found - f64::from(expected)).abs();
        assert!(error < ERROR, "a wrong answer: error {error}");
    }
}

#[test]
fn no_job_is_lost_and_no_answer_wrong_while_workers_of_two_cells_are_killed() {
    let names: Vec<_> = (0..CLIENTS).map(|client| format!("c{client}")).collect();
    let mut workers = Workers::start("cells", &names.join(","));
    workers.wait_until_all_are_up("c0");
    workers.cluster.json("c0", &["model", "put", "digits", DIGITS, "--readers", "everyone"]);
    let (jobs, kills) = (240 * faults(), 6 * faults());
    let (next, right) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for name in &names {
            let config = ClientConfig::read(&workers.cluster.client_config(name)).unwrap();
            let (next, right) = (&next, &right);
            scope.spawn(move || work(&config, jobs, next, right));
        }
        for kill in 1..=kills {
            let began = Instant::now();
            while right.load(Ordering::SeqCst) < kill * jobs / (kills + 1) {
                let slow = format!("jobs do not go on after {} kills", kill - 1);
                assert!(began.elapsed() < LIMIT, "{slow}\n{}", workers.cluster.logs());
                thread::yield_now();
            }
            // All workers have their turn, and the cells take turns.
            let worker = (kill % CELLS) * PARTIES + kill * 2 % PARTIES;
            workers.kill(worker);
            workers.start_worker(worker);
        }
    });
    assert_eq!(right.load(Ordering::SeqCst), jobs);
    workers.wait_until_all_are_up("c0");
    let lists = [0, 1].map(|cell| workers.client_of("c1", cell).models().unwrap());
    assert_eq!(lists[0], lists[1]);
    assert!(lists[0].iter().all(|models| models.len() == 1 && models[0].damage.is_none()));
    // Parts of jobs that were lost with another worker go within `limits.parts_seconds`.
    for name in &names {
        workers.wait(name, "nothing waits", |states| {
            states.len() == CELLS * PARTIES && states.iter().all(|state| state["waiting"] == 0)
        });
    }
}

#[test]
fn what_is_put_shared_and_removed_through_one_cell_is_so_in_the_other() {
    let workers = Workers::start("cells", "alice,bob");
    workers.wait_until_all_are_up("alice");
    workers.cluster.json("alice", &["model", "put", "digits", DIGITS]);
    let [mut zero, mut one] = [0, 1].map(|cell| workers.client_of("alice", cell));
    let public = one.model("digits").unwrap();
    let (digit, right) = (&digits()[0], &logits()[0]);
    ask(&mut one, &public, digit, right);
    let mut bob = workers.client_of("bob", 1);
    bob.model("digits").unwrap_err();
    zero.share("digits", &trefoil::store::Readers::Everyone, &()).unwrap();
    let mut bob = workers.client_of("bob", 1);
    ask(&mut bob, &public, digit, right);
    // Two changes of one name through two cells at once, again and again: all servers keep the same.
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for (cell, client) in [&mut zero, &mut one].into_iter().enumerate() {
            let failed = &failed;
            scope.spawn(move || {
                for turn in 0..20 {
                    let reader = format!("reader-{cell}-{turn}");
                    let readers = trefoil::store::Readers::Named(vec![reader]);
                    if let Err(error) = client.share("digits", &readers, &()) {
                        failed.lock().unwrap().push(error.to_string());
                    }
                }
            });
        }
    });
    assert_eq!(failed.into_inner().unwrap(), [""; 0]);
    let lists = [0, 1].map(|cell| workers.client_of("alice", cell).models().unwrap());
    let mut all = lists.iter().flatten();
    let first = all.next().unwrap();
    assert!(all.all(|other| other == first), "{lists:?}");
    let status = workers.states("alice");
    assert_eq!(status[4]["cell"], serde_json::json!({ "number": 1, "of": 2 }));
    zero.remove("digits", &()).unwrap();
    workers.client_of("alice", 1).model("digits").unwrap_err();
}

#[test]
fn a_cell_names_the_party_that_it_lacks_and_its_clients_go_elsewhere() {
    let mut workers = Workers::start("cells", "alice");
    workers.wait_until_all_are_up("alice");
    workers.cluster.json("alice", &["model", "put", "digits", DIGITS]);
    let config = ClientConfig::read(&workers.cluster.client_config("alice")).unwrap();
    let mut clients: Vec<_> = (0..4).map(|_| client::connect(&config).unwrap()).collect();
    let public = clients[0].model("digits").unwrap();
    workers.kill(5);
    workers.wait("alice", "the cell notices", |states| {
        let reason = states.get(3).map(|state| state["link"]["down"]["reason"].to_string());
        reason.is_some_and(|reason| reason.contains("party 2"))
    });
    let (digit, right) = (&digits()[0], &logits()[0]);
    for client in &mut clients {
        ask(client, &public, digit, right);
    }
    assert!(workers.states("alice")[..3].iter().all(|state| state["link"] == "up"));
}
