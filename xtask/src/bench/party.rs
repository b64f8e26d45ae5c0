//! One party of a measurement, and how all of them are run.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use additive_dealer::Additive;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use dealt_protocols::Dealt;
use gpu_kernels::{AnyEngine, EngineChoice};
use mpc_core::{Deal, Profile, Protocol, Security, ServerProtocol, Settings};
use net::{Job, Meter, Metered, Party, Session, Shaped, Transport, launch};
use ring_arith::{Engine, Generator, Shape, Tensor};
use rss_protocols::{Dealer, Options, Rss, Tape};
use serde::{Deserialize, Serialize};
use trefoil::{protocols::ProtocolChoice, wire::Watched};

use super::hosts::Hosts;
use super::launch::PARTY;
use super::{Effort, Network};

/// The type of a party of replicated sharing.
pub(crate) type Mpc = Rss<AnyEngine>;

/// The digest of a measured job.
pub(super) const JOB: [u8; 32] = [0; 32];

/// A protocol whose parties can be measured.
pub(crate) trait Measurable: ServerProtocol<Engine = AnyEngine> + 'static {
    /// Its name with its generator, as the results have it.
    fn title(&self) -> String;

    /// A party of a metered session, set up with its tape if there is one.
    fn join(session: Session, setup: &Setup, tape: Option<&Tape>) -> Result<Self>;

    /// Begins a job, of the next place of a tape if the session has one: dealers take turns from its begin, and so the
    /// bytes and rounds of all runs are those of a served job.
    fn begin_run(&mut self, tape: Option<&Tape>) -> Result<()>;

    /// Ends the session, once all parties end it.
    fn finish(self) -> Result<()>;
}

impl Measurable for Mpc {
    fn title(&self) -> String {
        let checked = if self.is_checked() { "/checked" } else { "" };
        format!("{}/{}{checked}", self.info().name, self.generator().name())
    }

    fn join(session: Session, setup: &Setup, tape: Option<&Tape>) -> Result<Self> {
        let (engine, _) = setup.engine.open(setup.threads)?;
        let Some(tape) = tape else {
            let options = Options::default().profile(Profile::default()).security(setup.security);
            return Ok(Rss::with_options(session, engine, options)?);
        };
        let mut mpc = Rss::dealt(session, engine, Options::default())?;
        tape.set_up(&mut mpc, &VERSION)?;
        Ok(mpc)
    }

    fn begin_run(&mut self, tape: Option<&Tape>) -> Result<()> {
        match tape {
            Some(tape) => drop(tape.begin(self)?),
            None => self.begin_job(&JOB)?,
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        Ok(self.close()?)
    }
}

/// Parties with a dealer among them, who have no tapes.
macro_rules! measurable_with_live_dealer {
    ($mpc:ty) => {
        impl Measurable for $mpc {
            fn title(&self) -> String {
                self.sharing().name().to_owned()
            }

            fn join(session: Session, setup: &Setup, _: Option<&Tape>) -> Result<Self> {
                let (engine, _) = setup.engine.open(setup.threads)?;
                let settings = Settings { security: setup.security, ..Settings::default() };
                Ok(Self::start(session, engine, settings)?)
            }

            fn begin_run(&mut self, _: Option<&Tape>) -> Result<()> {
                Ok(self.begin_job(&JOB)?)
            }

            fn finish(self) -> Result<()> {
                Ok(self.close()?)
            }
        }
    };
}
measurable_with_live_dealer!(Additive<AnyEngine>);
measurable_with_live_dealer!(Dealt<AnyEngine>);

/// The network, threads, engine, protocol and security of the parties.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) network: Network,
    /// The hosts of the parties, if they are not processes or threads of this machine.
    #[serde(skip)]
    pub(super) hosts: Option<&'static Hosts>,
    /// Threads of each party.
    pub(crate) threads: usize,
    pub(crate) engine: EngineChoice,
    pub(crate) protocol: ProtocolChoice,
    pub(crate) security: Security,
}

impl Setup {
    /// Three parties of replicated sharing in one process, on the CPU, without proofs.
    pub(crate) fn in_process(threads: usize) -> Self {
        Self {
            network: Network::InProcess,
            hosts: None,
            threads,
            engine: EngineChoice::Cpu,
            protocol: ProtocolChoice::Rss,
            security: Security::SemiHonest,
        }
    }

    /// The same for replicated sharing, if the protocol is one with a live dealer: what it is compared with.
    pub(super) fn beside(self) -> Option<Self> {
        let live = self.protocol.servers() > self.protocol.parties();
        live.then_some(Self { protocol: ProtocolChoice::Rss, ..self })
    }
}

/// A case that takes longer than this many seconds, in our system or another one, runs only twice.
pub(super) const LONG: f64 = 2.0;

/// A case that takes longer than this many seconds runs only once after the run that shows it.
const VERY_LONG: f64 = 20.0;

/// The session's job, with the generators that are fast on the parties' engine.
pub(super) fn job(name: &str, setup: &Setup) -> Result<Job> {
    let (engine, _) = setup.engine.open(1)?;
    let job = Job::new(name).parties(setup.protocol.servers() as u16);
    Ok(job.prgs(engine.generators().into_iter().map(Generator::name)))
}

/// The transport of the parties' messages; [`join`] adds delay and bandwidth.
pub(super) fn link(network: Network) -> launch::Network {
    match network {
        Network::InProcess => launch::Network::InProcess(1),
        Network::Tcp => launch::Network::InsecurePlainTcp,
        Network::Tls | Network::Lan | Network::Wan => launch::Network::Tls,
    }
}

/// A party of a session, slowed down as the network asks for, and the meter of its messages.
pub(crate) fn join(session: Session, setup: &Setup) -> Result<(Mpc, Meter)> {
    let (session, meter) = watched(session, setup, None)?;
    Ok((Mpc::join(session, setup, None)?, meter))
}

/// A party that is measured.
pub(super) struct Joined<P> {
    pub(super) mpc: P,
    pub(super) meter: Meter,
    pub(super) tape: Option<Tape>,
    control: Watched,
}

impl<P: Measurable> Joined<P> {
    /// As [`join`], for any protocol, and for a party that may have a tape in a folder.
    pub(super) fn new(session: Session, setup: &Setup, tapes: Option<&Path>) -> Result<Self> {
        let open = |folder| Tape::open(&tape_path(folder, session.transport.me().0), None);
        let tape = tapes.map(open).transpose()?;
        let (session, meter) = watched(session, setup, tape.as_ref())?;
        let control = Watched::new(session.transport);
        let session = Session { transport: Box::new(control.hand()), ..session };
        Ok(Self { mpc: P::join(session, setup, tape.as_ref())?, meter, tape, control })
    }

    /// The other members of the session, a live dealer among them.
    fn others(&self) -> Vec<Party> {
        let others = (0..self.control.parties()).map(Party);
        others.filter(|&peer| peer != self.control.me() && !self.control.on_tape(peer)).collect()
    }

    /// Begins a job, of the next place of a tape if there is one, and waits until all are here.
    pub(super) fn next_run(&mut self) -> Result<()> {
        self.mpc.begin_run(self.tape.as_ref())?;
        self.say(0).map(drop)
    }

    /// The number of runs of all: party 0 decides from the seconds of one run.
    pub(super) fn agree_on_runs(&mut self, effort: &Effort, one: f64) -> Result<usize> {
        let said = self.say(runs_for(effort, one) as u64)?;
        let left = self.tape.as_ref().map_or(usize::MAX, |tape| tape.left()[0] as usize);
        Ok((said as usize).min(left))
    }

    /// Sends a number to all others. Returns party 0's.
    fn say(&mut self, number: u64) -> Result<u64> {
        for peer in self.others() {
            self.control.send(peer, Bytes::copy_from_slice(&number.to_le_bytes()).into())?;
        }
        let mut first = number;
        for peer in self.others() {
            let said = self.control.receive(peer)?.body;
            if peer == Party(0) {
                first = u64::from_le_bytes(said[..].try_into().context("a number has 8 bytes")?);
            }
        }
        Ok(first)
    }

    /// Names of protocol and engine.
    pub(super) fn names(&self) -> [String; 2] {
        names(&self.mpc)
    }

    /// Ends the session.
    pub(super) fn finish(self) -> Result<()> {
        drop(self.control);
        self.mpc.finish()
    }
}

/// The version in the tapes of a measurement.
const VERSION: [u8; 32] = [1; 32];

/// The tapes that [`deal`] makes in a folder.
pub(super) fn tapes(folder: Option<&PathBuf>) -> Vec<PathBuf> {
    folder.iter().flat_map(|folder| [0, 1].map(|party| tape_path(folder, party))).collect()
}

fn tape_path(folder: &Path, party: usize) -> PathBuf {
    folder.join(format!("{party}.tape"))
}

/// Makes the tapes of both parties, with as many places as a measurement of this effort needs in addition to
/// those for warming up; prints the time.
pub(super) fn deal<S>(
    setup: &Setup,
    effort: &Effort,
    folder: &Path,
    warm_up: usize,
    set_up: impl FnOnce(&mut Mpc) -> mpc_core::Result<S>,
    mut run: impl FnMut(&mut Mpc, &mut S) -> mpc_core::Result<()>,
) -> Result<()> {
    fs::create_dir_all(folder)?;
    let create = |party| File::create(tape_path(folder, party)).map(BufWriter::new);
    let (engine, _) = setup.engine.open(setup.threads)?;
    let generator = *engine.generators().first().context("an engine has a generator")?;
    // These values do not protect real secrets, so they may be known.
    let (secret, digest, options) = ([7; 32], [0; 32], Options::default());
    let files = [create(0)?, create(1)?];
    let mut dealer = Dealer::new(engine, options, generator, &secret, digest, files)?;
    let mut state = dealer.set_up(set_up)?;
    let clock = Instant::now();
    dealer.deal(|mpc| run(mpc, &mut state))?;
    let seconds = clock.elapsed().as_secs_f64();
    let runs = if seconds > LONG { 2 } else { effort.min_runs };
    for _ in 1..warm_up + runs {
        dealer.deal(|mpc| run(mpc, &mut state))?;
    }
    let bytes = dealer.place_bytes().unwrap_or_default();
    dealer.finish()?;
    let [zero, one] = bytes.map(|bytes| bytes as f64 / 1e6);
    eprintln!("  tapes for one run: {zero:.3} and {one:.3} MB, made in {:.1} ms", seconds * 1e3);
    Ok(())
}

/// A session that is slowed down, plays a tape if it has one, and is metered.
fn watched(mut session: Session, setup: &Setup, tape: Option<&Tape>) -> Result<(Session, Meter)> {
    let shape = match setup.network {
        Network::Lan => Some(net::Shape::LAN_1G),
        Network::Wan => Some(net::Shape::WAN_100M),
        Network::InProcess | Network::Tcp | Network::Tls => None,
    };
    if let Some(shape) = shape {
        session.transport = Box::new(Shaped::new(session.transport, shape));
    }
    if let Some(tape) = tape {
        session = tape.session(session)?;
    }
    let metered = Metered::new(session.transport);
    let meter = metered.meter();
    session.transport = Box::new(metered);
    Ok((session, meter))
}

/// Protocol with its generator, and engine, as the results name them.
pub(crate) fn names<P: Measurable>(mpc: &P) -> [String; 2] {
    [mpc.title(), mpc.engine().name()]
}

/// Runs `program` as the threads of this process, one for each party.
pub(crate) fn threads<R: Send>(
    name: &str,
    setup: &Setup,
    program: impl Fn(Session) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let (job, parties) = (job(name, setup)?, setup.protocol.servers());
    launch::threads_over(link(Network::InProcess), parties, &job, program)?.into_iter().collect()
}

/// Runs this program as a process for each party and reads their output. The arguments name the files.
pub(super) fn processes<R>(
    setup: &Setup,
    args: &[String],
    files: &[PathBuf],
    read: impl Fn(&str) -> Option<R>,
) -> Result<Vec<R>> {
    let parties = setup.protocol.servers();
    if let Some(hosts) = setup.hosts {
        return hosts.processes(link(setup.network), parties, args, files, read);
    }
    let args = std::iter::once(PARTY).chain(args.iter().map(String::as_str));
    let mut running = launch::Processes::new(parties, link(setup.network)).args(args).start()?;
    let mut results = Vec::with_capacity(parties);
    for party in 0..parties {
        let (status, lines) = running.wait(party, Duration::from_secs(1200))?;
        match lines.iter().find_map(|line| read(line)) {
            Some(result) if status.success() => results.push(result),
            _ => bail!("party {party} ended with {status}: {lines:?}"),
        }
    }
    Ok(results)
}

/// Shares tensors that party 0 holds in the host's memory.
pub(crate) fn input<P: Protocol<Engine = AnyEngine>>(
    mpc: &mut P,
    shapes: &[Shape],
    mine: Option<&[Tensor]>,
) -> mpc_core::Result<Vec<P::Share>> {
    let upload = |tensor: &Tensor| mpc.engine().upload(tensor.clone());
    let mine = mine.map(|mine| mine.iter().map(upload).collect::<Result<Vec<_>, _>>());
    mpc.input(Party(0), shapes, mine.transpose()?.as_deref())
}

/// Reveals tensors to all parties, in the host's memory.
pub(crate) fn open<P: Protocol<Engine = AnyEngine>>(
    mpc: &mut P,
    shares: &[&P::Share],
) -> mpc_core::Result<Vec<Tensor>> {
    let opened = mpc.open(shares)?;
    Ok(opened.iter().map(|tensor| mpc.engine().download(tensor)).collect::<Result<_, _>>()?)
}

/// Waits until all parties are here.
pub(crate) fn barrier(mpc: &mut Mpc) -> mpc_core::Result<()> {
    let zero = mpc.engine().upload(Tensor::of([1], &[0])?)?;
    let zero = mpc.constant(&zero)?;
    mpc.open(&[&zero]).map(drop)
}

/// The number of runs for a case of which one run takes these seconds.
fn runs_for(effort: &Effort, one: f64) -> usize {
    let one = one.max(1e-6);
    let least = match one {
        one if one > VERY_LONG => 1,
        one if one > LONG => effort.min_runs.min(2),
        _ => effort.min_runs,
    };
    ((effort.total.as_secs_f64() / one) as usize).clamp(least, effort.max_runs)
}

/// The number of runs of all parties: party 0 decides from the seconds of one run.
pub(super) fn agree_on_runs(mpc: &mut Mpc, effort: &Effort, one: f64) -> Result<usize> {
    let mine = [Tensor::of(Vec::new(), &[runs_for(effort, one) as u64])?];
    let mine = (mpc.me() == Party(0)).then_some(&mine[..]);
    let shared = input(mpc, &[Shape::default()], mine)?;
    Ok(open(mpc, &[&shared[0]])?[0].words()[0] as usize)
}
