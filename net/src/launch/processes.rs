//! Three parties as processes of this machine: the program starts itself again, once for each.

use std::{
    env,
    ffi::OsString,
    fmt::Write as _,
    io::{self, BufRead, BufReader, Read, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use zeroize::Zeroizing;

use super::{Network, identities};
use crate::{Endpoint, Error, Identity, Limits, Result, Role, Security, Settings};

/// Set in the environment of a party's process: it reads what else it must know from its input.
pub const VARIABLE: &str = "TREFOIL_NET_PARTY";

/// Parties as processes on loopback, to be started. Each runs this program again, with the arguments
/// given here; it finds out what it is by [`joined`].
///
/// ```no_run
/// use net::{Job, launch};
///
/// fn main() -> net::Result<()> {
///     if let Some(endpoint) = launch::joined()? {
///         let session = endpoint.session(&Job::new("demo"))?;
///         println!("{} is here", session.transport.me());
///         return session.transport.close();
///     }
///     let mut running = launch::Processes::new(3, launch::Network::Tls).start()?;
///     for party in 0..3 {
///         let (status, lines) = running.wait(party, std::time::Duration::from_secs(60))?;
///         assert!(status.success(), "{lines:?}");
///     }
///     Ok(())
/// }
/// ```
pub struct Processes {
    parties: usize,
    network: Network,
    limits: Limits,
    program: Option<PathBuf>,
    args: Vec<OsString>,
    variables: Vec<(usize, String, String)>,
    late: Vec<(usize, Duration)>,
}

impl Processes {
    /// A launch of `parties` processes, without arguments.
    #[must_use]
    pub fn new(parties: usize, network: Network) -> Self {
        let (limits, program, args) = (Limits::default(), None, Vec::new());
        Self { parties, network, limits, program, args, variables: Vec::new(), late: Vec::new() }
    }

    /// Arguments for every process.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Another program than this one.
    #[must_use]
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.program = Some(path.into());
        self
    }

    /// Sets a variable in the environment of one party.
    #[must_use]
    pub fn variable(mut self, party: usize, name: &str, value: &str) -> Self {
        self.variables.push((party, name.to_owned(), value.to_owned()));
        self
    }

    /// Bounds for every party. The times and [`Limits::queue`] are passed on.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Starts one party later than the others, by this time.
    #[must_use]
    pub fn late(mut self, party: usize, by: Duration) -> Self {
        self.late.push((party, by));
        self
    }

    /// Starts the processes, and returns when those that are not late have been started.
    ///
    /// # Errors
    /// [`Error::Config`] if a process cannot be started, and [`Error::Misuse`] for
    /// [`Network::InProcess`].
    pub fn start(self) -> Result<Running> {
        let identities = identities_for(self.network, self.parties)?;
        let ports = free_ports(self.parties)?;
        let peers: Vec<_> = ports.iter().map(ToString::to_string).collect();
        let mut running = Running { processes: Vec::new() };
        for party in 0..self.parties {
            let identity = identities.as_ref().map(|identities| &identities[party]);
            let (listen, limits) = (ports[party], &self.limits);
            let brief = Brief { party, listen, peers: &peers, limits, identity };
            let command = self.command(party)?;
            let late = self.late.iter().find(|(who, _)| *who == party);
            let delay = late.map_or(Duration::ZERO, |(_, by)| *by);
            running.processes.push(Process::start(command, brief.write(), delay)?);
        }
        Ok(running)
    }

    fn command(&self, party: usize) -> Result<Command> {
        let program = match &self.program {
            Some(path) => path.clone(),
            None => env::current_exe().map_err(|error| cannot_start(&error))?,
        };
        let mut command = Command::new(program);
        command.args(&self.args).env(VARIABLE, party.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        for (_, name, value) in self.variables.iter().filter(|(who, ..)| *who == party) {
            command.env(name, value);
        }
        Ok(command)
    }
}

fn cannot_start(error: &io::Error) -> Error {
    Error::Config { what: "starting a party's process".to_owned(), reason: error.to_string() }
}

/// Ports that were free a moment ago, below those that the system gives to outgoing connections.
fn free_ports(parties: usize) -> Result<Vec<SocketAddr>> {
    let mut held = Vec::new();
    for _ in 0..1000 {
        let mut random = [0; 2];
        getrandom::fill(&mut random).map_err(|error| Error::Config {
            what: "the system's randomness".to_owned(),
            reason: error.to_string(),
        })?;
        let port = 10_240 + u16::from_le_bytes(random) % 22_000;
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            held.push((listener, SocketAddr::from((Ipv4Addr::LOCALHOST, port))));
        }
        if held.len() == parties {
            return Ok(held.into_iter().map(|(_, address)| address).collect());
        }
    }
    let reason = "no free loopback ports".to_owned();
    Err(Error::Config { what: "starting the parties' processes".to_owned(), reason })
}

/// The standard inputs of parties that another launcher starts, on other hosts for instance, in their order. With
/// [`VARIABLE`] in its environment, each finds its endpoint by [`joined`]. It listens on every interface, at the port of its
/// own address `host:port`. The texts hold private keys.
///
/// # Errors
/// [`Error::Config`] for an address without a port, and [`Error::Misuse`] for [`Network::InProcess`].
pub fn inputs(network: Network, addresses: &[String]) -> Result<Vec<Zeroizing<String>>> {
    let identities = identities_for(network, addresses.len())?;
    let brief = |party: usize| {
        let port = addresses[party].rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        let port: u16 = port.ok_or_else(|| Error::Config {
            what: format!("address {:?} of party {party}", addresses[party]),
            reason: "expected host:port".to_owned(),
        })?;
        let listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        let identity = identities.as_ref().map(|identities| &identities[party]);
        Ok(Brief { party, listen, peers: addresses, limits: &Limits::default(), identity }.write())
    };
    (0..addresses.len()).map(brief).collect()
}

/// Certificates of all parties, if the network needs them.
fn identities_for(network: Network, parties: usize) -> Result<Option<Vec<Identity>>> {
    match network {
        Network::InProcess(_) => {
            let reason = "processes do not share memory; use another network";
            Err(Error::Misuse(reason.to_owned()))
        }
        Network::InsecurePlainTcp => Ok(None),
        Network::Tls => identities(parties).map(Some),
    }
}

/// Processes that were started. Dropping this ends those that still run.
pub struct Running {
    processes: Vec<Process>,
}

struct Process {
    /// Dropped to keep a late process from being started.
    hold: Option<mpsc::Sender<()>>,
    /// Set once the process has been started.
    child: Receiver<io::Result<Child>>,
    started: Option<Child>,
    starter: Option<JoinHandle<()>>,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Process {
    fn start(command: Command, brief: Zeroizing<String>, delay: Duration) -> Result<Self> {
        let (tell_child, child) = mpsc::channel();
        let (tell_line, lines) = mpsc::channel();
        let run = move |mut command: Command| {
            let mut begun = command.spawn().and_then(|mut child| {
                let input = child.stdin.take();
                input.map_or(Ok(()), |mut input| input.write_all(brief.as_bytes()))?;
                Ok(child)
            });
            let output = begun.as_mut().ok().and_then(|child| child.stdout.take());
            let _ = tell_child.send(begun);
            let Some(output) = output else { return };
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { break };
                // Without a reader the lines are of no use, but the pipe must not fill up.
                let _ = tell_line.send(line);
            }
        };
        let name = "party-process".to_owned();
        let (hold, held) = mpsc::channel::<()>();
        let late = move || {
            if held.recv_timeout(delay) == Err(RecvTimeoutError::Timeout) {
                run(command);
            }
        };
        let starter = thread::Builder::new().name(name).spawn(late);
        let starter = Some(starter.map_err(|error| cannot_start(&error))?);
        let mut process =
            Self { hold: Some(hold), child, started: None, starter, lines, seen: Vec::new() };
        if delay == Duration::ZERO {
            process.child()?;
        }
        Ok(process)
    }

    fn child(&mut self) -> Result<&mut Child> {
        if self.started.is_none() {
            let gone = || io::Error::other("its thread has ended");
            let child = self.child.recv().map_err(|_| cannot_start(&gone()))?;
            self.started = Some(child.map_err(|error| cannot_start(&error))?);
        }
        match &mut self.started {
            Some(child) => Ok(child),
            None => Err(Error::Misuse("the process was not started".to_owned())),
        }
    }
}

impl Running {
    /// The system's number of a party's process.
    ///
    /// # Errors
    /// [`Error::Config`] if it could not be started.
    pub fn id(&mut self, party: usize) -> Result<u32> {
        Ok(self.processes[party].child()?.id())
    }

    /// Ends a party's process without warning.
    ///
    /// # Errors
    /// [`Error::Config`] if it could not be started.
    pub fn kill(&mut self, party: usize) -> Result<()> {
        self.processes[party].child()?.kill().map_err(|error| cannot_start(&error))
    }

    /// Waits until a party has written a line that contains `text`, and returns the line.
    ///
    /// # Errors
    /// [`Error::Config`] with what it wrote instead, if it has not done so within `limit`.
    pub fn line(&mut self, party: usize, text: &str, limit: Duration) -> Result<String> {
        let process = &mut self.processes[party];
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match process.lines.recv_timeout(left) {
                Ok(line) => {
                    process.seen.push(line.clone());
                    if line.contains(text) {
                        return Ok(line);
                    }
                }
                Err(error) => {
                    let why = match error {
                        RecvTimeoutError::Timeout => format!("not written within {limit:?}"),
                        RecvTimeoutError::Disconnected => "not written".to_owned(),
                    };
                    let what = format!("line {text:?} of party {party}");
                    return Err(Error::Config {
                        what,
                        reason: format!("{why}: {:?}", process.seen),
                    });
                }
            }
        }
    }

    /// Waits until a party's process has ended; returns its status and all lines it wrote.
    ///
    /// # Errors
    /// [`Error::Config`] with what it wrote if it has not ended within `limit`.
    pub fn wait(&mut self, party: usize, limit: Duration) -> Result<(ExitStatus, Vec<String>)> {
        let process = &mut self.processes[party];
        let until = Instant::now() + limit;
        process.child()?;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match process.lines.recv_timeout(left) {
                Ok(line) => process.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    let what = format!("party {party}");
                    let reason = format!("still runs after {limit:?}: {:?}", process.seen);
                    return Err(Error::Config { what, reason });
                }
            }
        }
        let status = process.child()?.wait().map_err(|error| cannot_start(&error))?;
        Ok((status, process.seen.clone()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for process in &mut self.processes {
            process.hold = None;
            if let Ok(child) = process.child() {
                // An error means that it has ended already.
                let _ = child.kill();
                let _ = child.wait();
            }
            if let Some(starter) = process.starter.take() {
                let _ = starter.join();
            }
        }
    }
}

/// The endpoint of the party that this process plays, or `None` if it was not started by
/// [`Processes`] or with one of the [`inputs`]. To be called first, and once: it reads the standard input to its end.
///
/// # Errors
/// [`Error::Config`] if the input is not what [`Processes`] writes or the port is taken.
pub fn joined() -> Result<Option<Endpoint>> {
    if env::var_os(VARIABLE).is_none() {
        return Ok(None);
    }
    let mut text = Zeroizing::new(String::new());
    let unusable =
        |reason: String| Error::Config { what: format!("input under {VARIABLE}"), reason };
    io::stdin().read_to_string(&mut text).map_err(|error| unusable(error.to_string()))?;
    let settings = read_brief(&text).ok_or_else(|| unusable("is incomplete".to_owned()))??;
    Endpoint::open(settings).map(Some)
}

/// The settings that a party's process needs.
struct Brief<'a> {
    party: usize,
    listen: SocketAddr,
    peers: &'a [String],
    limits: &'a Limits,
    identity: Option<&'a Identity>,
}

impl Brief<'_> {
    /// A line of numbers and addresses, then three PEM texts, each after a line with its length.
    fn write(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::new());
        let Limits { stall, heartbeat, start, handshake, report, linger, queue, .. } = self.limits;
        let times = [stall, heartbeat, start, handshake, report, linger];
        let times: Vec<_> = times.iter().map(|time| time.as_micros().to_string()).collect();
        let (times, peers) = (times.join(","), self.peers.join(","));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} {queue} {times} {} {peers}", self.party, self.listen);
        if let Some(identity) = self.identity {
            for pem in [identity.authority_pem(), identity.certificate_pem(), identity.key_pem()] {
                let _ = write!(text, "{}\n{pem}", pem.len());
            }
        }
        text
    }
}

fn read_brief(text: &str) -> Option<Result<Settings>> {
    let (line, rest) = text.split_once('\n')?;
    let mut words = line.split(' ');
    let party: usize = words.next()?.parse().ok()?;
    let queue = words.next()?.parse().ok()?;
    let mut times = words.next()?.split(',').map(|time| time.parse().map(Duration::from_micros));
    let mut time = || times.next()?.ok();
    let limits = Limits {
        stall: time()?,
        heartbeat: time()?,
        start: time()?,
        handshake: time()?,
        report: time()?,
        linger: time()?,
        queue,
        ..Limits::default()
    };
    let listen: SocketAddr = words.next()?.parse().ok()?;
    let peers: Vec<_> = words.next()?.split(',').collect();
    let security = match rest.is_empty() {
        true => {
            let beyond_loopback = !listen.ip().is_loopback();
            Security::InsecurePlainTcp { role: Role::party(party), beyond_loopback }
        }
        false => match read_identity(rest)? {
            Ok(identity) if *identity.role() == Role::party(party) => Security::Tls(identity),
            Ok(_) => return None,
            Err(error) => return Some(Err(error)),
        },
    };
    peers.get(party)?;
    Some(Settings::new(security).limits(limits).peers(peers).listen(listen))
}

fn read_identity(mut rest: &str) -> Option<Result<Identity>> {
    let mut pem = || {
        let (len, after) = rest.split_once('\n')?;
        let (pem, after) = after.split_at_checked(len.parse().ok()?)?;
        rest = after;
        Some(pem)
    };
    let (authority, certificate, key) = (pem()?, pem()?, pem()?);
    Some(Identity::from_pem(authority, certificate, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_of_other_hosts_are_read_and_an_address_without_a_port_is_refused() {
        let port = free_ports(1).unwrap()[0].port();
        let addresses = [format!("a.example:{port}"), "b.example:7200".to_owned()];
        for network in [Network::Tls, Network::InsecurePlainTcp] {
            let inputs = inputs(network, &addresses).unwrap();
            let settings = read_brief(&inputs[0]).unwrap().unwrap();
            assert_eq!(settings.peers, addresses);
        }
        let error = inputs(Network::Tls, &["a.example".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("a.example"), "{error}");
    }

    #[test]
    fn a_brief_is_read_as_it_was_written() {
        let identities = identities(2).unwrap();
        let listen = free_ports(1).unwrap()[0];
        let peers = ["a.example:7200".to_owned(), listen.to_string()];
        let limits = Limits { stall: Duration::from_millis(1234), ..Limits::default() };
        for identity in [None, Some(&identities[1])] {
            let brief =
                Brief { party: 1, listen, peers: &peers, limits: &limits, identity }.write();
            let settings = read_brief(&brief).unwrap().unwrap();
            assert_eq!(settings.limits.stall, limits.stall);
            assert_eq!(settings.peers, peers);
            for len in 0..brief.len() {
                let cut = brief.get(..len).and_then(read_brief);
                assert!(!matches!(cut, Some(Ok(_))) || identity.is_none() || len < 200);
            }
        }
    }
}
