//! Benchmarks of the servers as a service: three real servers over loopback TLS, and clients.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use models::architectures::{Pooling, RandomWeights, by_name};
use mpc_core::Security;
use nn_layers::PlanOptions;
use ring_arith::{Shape, Tensor};
use trefoil::{
    Preprocess,
    client::{self, Client, NewModel},
    cluster::{Plan, init},
    config::{ClientConfig, Limits, PartyConfig},
    model::import,
    protocols::ProtocolChoice,
    server,
    store::Readers,
    wire::{Channel, Link},
};

use super::launch::PARTY;
use super::{Bench, Case, Network, Timing};

/// The job name of a server's process.
pub(super) const JOB: &str = "service";

/// The model that clients ask for.
const MODEL: &str = "lenet";

/// Idle clients, and connections of each to every server.
const IDLE: [usize; 2] = [25, 10];

/// Clients that ask at once.
const BUSY: usize = 200;

/// Clients whose jobs run together.
const JOINED: usize = 32;

/// The time of a byte from one server to another on a slow link: half of its round trip.
const ONE_WAY: Duration = Duration::from_millis(20);

/// The time limit for servers to connect, and for a client to get an answer from one.
const LIMIT: Duration = Duration::from_secs(60);

/// The cases of this module.
///
/// # Errors
/// If the servers cannot be started or a job fails.
pub fn cases(bench: &mut Bench) -> Result<()> {
    let jobs = if bench.quick() { 20 } else { 200 };
    bench.case("idle/250", |case| idle(case, jobs))?;
    bench.case("clients/200", |case| clients(case, jobs))?;
    bench.case("lenet/32-clients", |case| together(case, jobs, Duration::ZERO))?;
    bench.case("lenet/32-clients/40ms", |case| together(case, jobs.min(64), ONE_WAY))
}

/// Runs this process as one server.
///
/// # Errors
/// If the server cannot start.
pub(super) fn party(args: &[String]) -> Result<()> {
    let [config] = args else { bail!("a server is started with its configuration file") };
    Ok(server::serve(&PartyConfig::read(Path::new(config))?)?)
}

/// A server's CPU time for one job with 250 idle connections, compared with that without.
fn idle(case: &mut Case, jobs: usize) -> Result<()> {
    let cluster = Cluster::start()?;
    let mut asker = cluster.client("asker")?;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..case.effort().min_runs {
        alone.push(cluster.cpu_of_a_job(&mut asker, jobs)?);
        let crowd = cluster.crowd()?;
        beside.push(cluster.cpu_of_a_job(&mut asker, jobs)?);
        drop(crowd);
    }
    let [clients, each] = IDLE;
    case.network(Network::Tls).size(format!("{} idle connections", clients * each));
    case.timing(Timing::from_runs(beside, None));
    case.reference("no idle connections", Timing::from_runs(alone, None));
    Ok(())
}

/// Answers a second to many clients at once, against those to one.
fn clients(case: &mut Case, jobs: usize) -> Result<()> {
    let cluster = Cluster::start()?;
    let rounds = case.effort().min_runs;
    let (mut one, mut many) = (Vec::new(), Vec::new());
    let mut asker = cluster.client("asker")?;
    let mut crowd: Vec<Client> =
        (0..BUSY).map(|at| cluster.client(&idle_name(at % IDLE[0]))).collect::<Result<_>>()?;
    for _ in 0..rounds {
        one.push(seconds_of_a_job(std::slice::from_mut(&mut asker), jobs)?);
        many.push(seconds_of_a_job(&mut crowd, jobs.div_ceil(BUSY))?);
    }
    case.network(Network::Tls).size(format!("{BUSY} clients"));
    case.timing(Timing::from_runs(many, None)).rate(1.0, "answers/s");
    case.reference("one client", Timing::from_runs(one, None));
    Ok(())
}

/// Answers a second to 32 clients with one image each, against servers that run one job at a time. Between the
/// servers a byte takes `delay` one way.
fn together(case: &mut Case, jobs: usize, delay: Duration) -> Result<()> {
    let joining = Cluster::start_with(Limits::default().joined_examples, delay)?;
    let alone = Cluster::start_with(1, delay)?;
    let clients = |cluster: &Cluster| {
        let all = (0..JOINED).map(|at| cluster.client(&idle_name(at % IDLE[0])));
        all.collect::<Result<Vec<_>>>()
    };
    let (mut joined, mut one) = (clients(&joining)?, clients(&alone)?);
    let each = jobs.div_ceil(JOINED).max(2);
    let (mut together, mut apart) = (Vec::new(), Vec::new());
    for _ in 0..case.effort().min_runs {
        together.push(seconds_of_a_job(&mut joined, each)?);
        apart.push(seconds_of_a_job(&mut one, each)?);
    }
    let round_trip = 2 * delay.as_millis();
    case.network(Network::Tls)
        .size(format!("{JOINED} clients, an image each, {round_trip} ms between servers"));
    case.timing(Timing::from_runs(together, None)).rate(1.0, "answers/s");
    case.reference("one job at a time", Timing::from_runs(apart, None));
    Ok(())
}

/// Wall-clock seconds for each of the jobs that all clients ask for, `each` of them in a row.
fn seconds_of_a_job(clients: &mut [Client], each: usize) -> Result<f64> {
    let jobs = clients.len() * each;
    let begun = Instant::now();
    thread::scope(|scope| {
        let threads: Vec<_> =
            clients.iter_mut().map(|client| scope.spawn(move || ask(client, each))).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(outcome) => outcome,
            Err(_) => bail!("a client's thread has panicked"),
        })
    })?;
    Ok(begun.elapsed().as_secs_f64() / jobs as f64)
}

fn ask(client: &mut Client, jobs: usize) -> Result<()> {
    let version = client.model(MODEL)?.version;
    let image = Tensor::new(Shape::new([1, 1, 28, 28])?, vec![1 << 19; 28 * 28])?;
    for _ in 0..jobs {
        client.infer(MODEL, version, std::slice::from_ref(&image), false, &())?;
    }
    Ok(())
}

fn idle_name(index: usize) -> String {
    format!("idle-{index}")
}

/// Three servers on this machine that hold one model. Dropping it ends them and removes their files.
struct Cluster {
    folder: PathBuf,
    servers: Vec<Child>,
}

impl Cluster {
    fn start() -> Result<Self> {
        Self::start_with(Limits::default().joined_examples, Duration::ZERO)
    }

    /// Starts servers that run jobs of at most `joined_examples` examples together, with a delay
    /// between servers.
    fn start_with(joined_examples: usize, delay: Duration) -> Result<Self> {
        let process = std::process::id();
        let millis = delay.as_millis();
        let name = format!("trefoil-service-{process}-{joined_examples}-{millis}");
        let folder = std::env::temp_dir().join(name);
        let mut cluster = Self { folder, servers: Vec::new() };
        let idle = (0..IDLE[0]).map(idle_name);
        let plan = Plan {
            without_keys: false,
            folder: cluster.folder.clone(),
            protocol: ProtocolChoice::Rss,
            security: Security::SemiHonest,
            servers: free_addresses()?.to_vec(),
            clients: idle.chain(["asker".to_owned()]).collect(),
            dealers: Vec::new(),
        };
        init(&plan)?;
        for party in 0..3 {
            let file = cluster.folder.join(format!("party-{party}/party.toml"));
            let text = fs::read_to_string(&file)?;
            let line = format!("joined_examples = {}", Limits::default().joined_examples);
            if !text.contains(&line) {
                bail!("{}: it has no line `{line}`", file.display());
            }
            let text = text.replace(&line, &format!("joined_examples = {joined_examples}"));
            fs::write(&file, text)?;
            if !delay.is_zero() {
                lead_peers_through_relays(&file, delay)?;
            }
        }
        for party in 0..3 {
            cluster.start_party(party)?;
        }
        cluster.wait_until_up()?;
        cluster.put_model()?;
        Ok(cluster)
    }

    fn start_party(&mut self, party: usize) -> Result<()> {
        let home = self.folder.join(format!("party-{party}"));
        let log = File::create(home.join("log"))?;
        let child = Command::new(std::env::current_exe()?)
            .args([PARTY, JOB])
            .arg(home.join("party.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("cannot start a server")?;
        self.servers.push(child);
        Ok(())
    }

    fn wait_until_up(&self) -> Result<()> {
        let config = self.config("asker")?;
        let begun = Instant::now();
        loop {
            let states = client::dial_all(&config)?;
            let up = states.into_iter().all(|channel| {
                let state = channel.and_then(|mut channel| client::status(&mut *channel, LIMIT));
                state.is_ok_and(|state| state.link == Link::Up)
            });
            if up {
                return Ok(());
            }
            if begun.elapsed() > LIMIT {
                bail!("the servers have not found each other; see {}", self.folder.display());
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn put_model(&self) -> Result<()> {
        let graph = by_name("lenet", Pooling::Average, &mut RandomWeights::new(2021))?;
        let model = import::plan(
            MODEL,
            &graph,
            &PlanOptions::default(),
            Preprocess::default(),
            Vec::new(),
        )?;
        let plan = model.program.to_bytes()?;
        let model = NewModel {
            name: MODEL,
            about: &model.about,
            plan: &plan,
            weights: model.weights()?,
            readers: &Readers::Everyone,
            ranges: &[],
            tokenizer: b"",
            replace: false,
        };
        Ok(self.client("asker")?.put(model, &())?)
    }

    fn config(&self, name: &str) -> Result<ClientConfig> {
        Ok(ClientConfig::read(&self.folder.join(format!("client-{name}/client.toml")))?)
    }

    fn client(&self, name: &str) -> Result<Client> {
        Ok(client::connect(&self.config(name)?)?)
    }

    /// Connections that ask for nothing.
    fn crowd(&self) -> Result<Vec<Box<dyn Channel>>> {
        let [clients, each] = IDLE;
        let mut crowd = Vec::new();
        for client in 0..clients {
            let config = self.config(&idle_name(client))?;
            for _ in 0..each {
                for channel in client::dial_all(&config)? {
                    crowd.push(channel?);
                }
            }
        }
        Ok(crowd)
    }

    /// CPU seconds of the servers for one job, as the mean of the three.
    fn cpu_of_a_job(&self, client: &mut Client, jobs: usize) -> Result<f64> {
        let before = self.cpu_seconds()?;
        ask(client, jobs)?;
        Ok((self.cpu_seconds()? - before) / (3 * jobs) as f64)
    }

    fn cpu_seconds(&self) -> Result<f64> {
        let used = |child: &Child| {
            super::machine::cpu_seconds_of(child.id()).context("the system tells no CPU time")
        };
        self.servers.iter().map(used).sum()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in &mut self.servers {
            // A server that has ended by itself left its log.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Changes a server's file so that it reaches the others through relays with a delay.
fn lead_peers_through_relays(file: &Path, delay: Duration) -> Result<()> {
    let config = PartyConfig::read(file)?;
    let mut text = fs::read_to_string(file)?;
    for (party, address) in config.servers.into_iter().enumerate() {
        if party != config.party {
            let relay = relay(address.clone(), delay)?;
            text = text.replace(&format!("\"{address}\""), &format!("\"{relay}\""));
        }
    }
    Ok(fs::write(file, text)?)
}

/// An address that forwards connections to another one, each byte with a delay. It lasts as long as this
/// process.
fn relay(to: String, delay: Duration) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for near in listener.incoming().flatten() {
            // A client that connects before the server listens is disconnected, and tries again.
            let Ok(far) = TcpStream::connect(&to) else { continue };
            let Ok(ends) = near.try_clone().and_then(|near| Ok((near, far.try_clone()?))) else {
                continue;
            };
            delayed(near, far, delay);
            delayed(ends.1, ends.0, delay);
        }
    });
    Ok(address)
}

/// Forwards bytes from one connection to another, each after `delay`, until either ends.
fn delayed(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (sender, pieces) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        // Without it a small message would wait for the one before to be acknowledged.
        let _ = to.set_nodelay(true);
        for (due, piece) in pieces {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&piece).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            if sender.send((Instant::now() + delay, buffer[..read].to_vec())).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
    });
}

/// Three free addresses.
fn free_addresses() -> Result<[String; 3]> {
    let listeners = [0, 1, 2].map(|_| TcpListener::bind("127.0.0.1:0"));
    let mut addresses = [const { String::new() }; 3];
    for (address, listener) in addresses.iter_mut().zip(listeners) {
        *address = listener?.local_addr()?.to_string();
    }
    Ok(addresses)
}
