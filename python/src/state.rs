//! The state of a session: its parties, their start, and the wait of a call for them.

use std::{
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crossbeam_channel::Receiver;
use dealt_protocols::Dealt;
use gpu_kernels::{AnyEngine, EngineChoice};
use mpc_core::{Security, ServerProtocol, Settings, TruncationMode};
use net::{Meter, Metered, Shaped, Stats, in_process};
use pyo3::prelude::*;
use ring_arith::{Engine, Generator, ShapeEngine};
use rss_protocols::Rss;
use trefoil::protocols::ProtocolChoice;

use crate::{
    check::Checker,
    errors::{Failure, Kind, Result},
    ledger::{Ledger, Total},
    party::{Command, Gather, Hand, MOST_MADE, Reply, Run, Stoppable, gathered},
    record::Recorder,
    remote::Remote,
    session::Session,
};

/// The time between two checks for Ctrl-C in a waiting call.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// The time that an interrupted call gives the parties to stop.
const GRACE: Duration = Duration::from_millis(250);

/// A member of a session, whatever its protocol: a party, or the parties' dealer after them.
trait Member: Send {
    /// As [`Hand::send`].
    fn send(&self, command: Command, gather: &Arc<Gather>);

    /// Gives the member its protocol, fresh on a session. Its secrets stay.
    fn start(&self, session: net::Session, engine: AnyEngine, settings: Settings);
}

impl<P: Run + ServerProtocol<Engine = AnyEngine>> Member for Hand<P> {
    fn send(&self, command: Command, gather: &Arc<Gather>) {
        Self::send(self, command, gather);
    }

    fn start(&self, session: net::Session, engine: AnyEngine, settings: Settings) {
        Self::start(self, Box::new(move || Ok(P::start(session, engine, settings)?)));
    }
}

/// A thread for a member of a session of this protocol, as [`Hand::new`] makes it.
fn member(protocol: ProtocolChoice, name: &str, afresh: bool) -> Result<Box<dyn Member>> {
    Ok(match protocol {
        ProtocolChoice::Rss => Box::new(Hand::<Rss<AnyEngine>>::new(name, afresh)?),
        ProtocolChoice::Dealt(_) => Box::new(Hand::<Dealt<AnyEngine>>::new(name, afresh)?),
        ProtocolChoice::RssDealt | ProtocolChoice::Additive => {
            let text = format!("scripts do not run on `{protocol}`");
            return Err(Failure::new(Kind::Config, text));
        }
    })
}

/// The members of a session that are in this process.
pub(crate) struct State {
    members: Vec<Box<dyn Member>>,
    protocol: ProtocolChoice,
    start: Start,
    settings: Settings,
    /// One for each member. A party's tensors stay on its engine's device, also when it starts afresh.
    engines: Vec<AnyEngine>,
    pub(crate) next: u64,
    /// A call that was interrupted and may still run.
    pending: Option<Receiver<()>>,
    /// True if the parties must start afresh before the next call.
    broken: bool,
    stop: Arc<AtomicBool>,
    meters: Vec<Meter>,
    ledger: Ledger,
    pub(crate) checker: Option<Checker>,
    pub(crate) recorder: Option<Recorder>,
    pub(crate) closed: bool,
}

/// The way in which parties connect.
pub(crate) enum Start {
    Local {
        network: Option<net::Shape>,
    },
    /// As threads that know shapes alone, for the recording of an analysis.
    Shapes,
    Remote(Box<Remote>),
}

/// The settings of the protocol on shares, from their names in Python.
pub(crate) fn settings(truncation: &str, profile: &str, security: &str) -> Result<Settings> {
    let unknown =
        |what, name, known| Failure::new(Kind::Config, format!("{what} `{name}`: use {known}"));
    let truncation = match truncation {
        "default" => TruncationMode::Default,
        "early" => TruncationMode::Early,
        "exact" => TruncationMode::Exact,
        "dither" => TruncationMode::Dither,
        other => {
            let known = "\"default\", \"early\", \"exact\" or \"dither\"";
            return Err(unknown("truncation", other, known));
        }
    };
    let profile = profile
        .parse()
        .map_err(|advice| Failure::new(Kind::Config, format!("profile `{profile}`: {advice}")))?;
    let security = match security {
        "semi-honest" => Security::SemiHonest,
        "checked" => Security::Checked,
        other => return Err(unknown("security", other, "\"semi-honest\" or \"checked\"")),
    };
    Ok(Settings { truncation, profile, security })
}

impl State {
    /// Starts all members of a local session, or the party that is here.
    pub(crate) fn open(
        start: Start,
        protocol: ProtocolChoice,
        engine: &str,
        settings: Settings,
        threads: usize,
    ) -> Result<Self> {
        let members = match &start {
            Start::Local { .. } | Start::Shapes => protocol.servers(),
            Start::Remote(_) => 1,
        };
        let choice: EngineChoice =
            engine.parse().map_err(|reason: String| Failure::new(Kind::Config, reason))?;
        let open = |_| match (&start, choice.open(threads)) {
            (Start::Shapes, _) => Ok(AnyEngine::Shapes(ShapeEngine)),
            (_, Ok((engine, _))) => Ok(engine),
            (_, Err(reason)) => {
                Err(Failure::new(Kind::Config, format!("engine `{choice}`: {reason}")))
            }
        };
        let engines = (0..members).map(open).collect::<Result<_>>()?;
        let afresh = !matches!(start, Start::Remote(_));
        let hands =
            (0..members).map(|party| member(protocol, &format!("trefoil party {party}"), afresh));
        let mut state = Self {
            members: hands.collect::<Result<_>>()?,
            protocol,
            start,
            settings,
            engines,
            next: 0,
            pending: None,
            broken: false,
            stop: Arc::default(),
            meters: Vec::new(),
            ledger: Ledger::default(),
            checker: None,
            recorder: None,
            closed: false,
        };
        state.begin()?;
        Ok(state)
    }

    /// This party's number, or None where all are here.
    pub(crate) fn me(&self) -> Option<usize> {
        match &self.start {
            Start::Local { .. } | Start::Shapes => None,
            Start::Remote(remote) => Some(remote.me()),
        }
    }

    /// Numbers of the session's members that are here: of parties, and of their dealer after them.
    pub(crate) fn numbers(&self) -> Vec<usize> {
        self.me().map_or_else(|| (0..self.protocol.servers()).collect(), |me| vec![me])
    }

    pub(crate) fn protocol(&self) -> ProtocolChoice {
        self.protocol
    }

    /// Refuses a number that is none of a party that computes; `what` names the argument.
    pub(crate) fn check_party(&self, what: &str, party: usize) -> Result<()> {
        match self.protocol.parties() {
            parties if party < parties => Ok(()),
            2 => Err(Failure::input(format!("`{what}` is a party: 0 or 1"))),
            3 => Err(Failure::input(format!("`{what}` is a party: 0, 1 or 2"))),
            parties => Err(Failure::input(format!("`{what}` is a party: 0 to {}", parties - 1))),
        }
    }

    /// The first of the numbers that a call's results may have.
    pub(crate) fn number(&mut self) -> u64 {
        self.next += MOST_MADE;
        self.next
    }

    /// A name for a saved array, the same at all parties.
    pub(crate) fn label(&self) -> PyResult<String> {
        Ok(match &self.start {
            Start::Local { .. } | Start::Shapes => format!("{:016x}", random()?),
            Start::Remote(remote) => remote.label(self.next),
        })
    }

    /// The cost of calls since the last call of this.
    pub(crate) fn cost(&mut self) -> Total {
        self.note_sent();
        std::mem::take(&mut self.ledger).total()
    }

    /// Ends the parties. With `wait`, a party of three machines waits until the others have ended too.
    pub(crate) fn close(&mut self, py: Python<'_>, session: &Session, wait: bool) -> PyResult<()> {
        let remote = self.me().is_some();
        let ended = if wait && remote && !self.closed && !self.broken {
            self.all(py, session, "close", |_| Command::Close).map(drop)
        } else {
            Ok(())
        };
        self.stop.store(true, Ordering::Relaxed);
        self.closed = true;
        self.members.clear();
        self.checker = None;
        ended
    }

    /// Starts all members, each with fresh keys and links.
    fn begin(&mut self) -> Result<()> {
        self.note_sent();
        self.meters.clear();
        self.stop = Arc::default();
        let sessions = match &mut self.start {
            Start::Local { .. } | Start::Shapes => {
                in_process::sessions_from_seed(self.protocol.servers(), random()?)
            }
            Start::Remote(remote) => {
                let agreed = format!("{} {:?}", trefoil::PROGRAM, self.settings);
                let generators = self.engines.iter().flat_map(Engine::generators);
                vec![remote.session(&agreed, generators.map(Generator::name).collect())?]
            }
        };
        let network = match self.start {
            Start::Local { network } => network,
            Start::Shapes | Start::Remote(_) => None,
        };
        for ((member, session), engine) in self.members.iter().zip(sessions).zip(&self.engines) {
            let stop = self.stop.clone();
            let inner: Box<dyn net::Transport> = match network {
                Some(shape) => Box::new(Shaped::new(session.transport, shape)),
                None => session.transport,
            };
            let metered = Metered::new(Stoppable { inner, stop });
            self.meters.push(metered.meter());
            let engine = engine.clone();
            let own = engine.generators().first().map(|generator| generator.name().to_owned());
            let prg = session.prg.or(own);
            let session = net::Session { transport: Box::new(metered), prg, ..session };
            member.start(session, engine, self.settings);
        }
        self.broken = false;
        Ok(())
    }

    fn note_sent(&mut self) {
        let stats: Vec<Stats> = self.meters.iter().map(Meter::stats).collect();
        self.ledger.sent(&stats);
        self.meters.iter().for_each(Meter::reset);
    }

    /// Has every member forget secrets.
    pub(crate) fn forget(&mut self, ids: Vec<u64>) {
        if ids.is_empty() {
            return;
        }
        let (nobody, _) = Gather::new(0);
        for member in &self.members {
            member.send(Command::Forget(ids.clone()), &nobody);
        }
        if let Some(checker) = &mut self.checker {
            checker.forget(ids);
        }
    }

    /// Makes the session ready for a call.
    fn ready(&mut self, py: Python<'_>, session: &Session) -> PyResult<()> {
        if session.process() != process::id() {
            let text = "the session's parties are threads of another process: fork took none of them; \
                        start the session in the process that uses it";
            return Err(Failure::new(Kind::Failed, text).into());
        }
        if self.closed {
            return Err(Failure::new(Kind::Failed, "the session is closed").into());
        }
        if let Some(wait) = self.pending.clone() {
            while !py.detach(|| gathered(&wait, TICK)) {
                py.check_signals()?;
            }
            self.pending = None;
        }
        if self.broken {
            if let Start::Remote(_) = self.start {
                let text = "the session with the other parties is over; start the script again on all three";
                return Err(Failure::new(Kind::Failed, text).into());
            }
            self.begin()?;
        }
        self.forget(session.take_dropped());
        Ok(())
    }

    /// Has every member obey a command of a step whose seconds count, and waits. Ctrl-C ends the wait and the command.
    pub(crate) fn all(
        &mut self,
        py: Python<'_>,
        session: &Session,
        step: &str,
        command: impl FnMut(usize) -> Command,
    ) -> PyResult<Vec<Reply>> {
        self.ready(py, session)?;
        let began = Instant::now();
        let answers = self.ask(py, session, command);
        self.ledger.took(step, began.elapsed(), answers.as_deref().unwrap_or_default());
        answers
    }

    /// As [`State::all`], without a step that counts.
    pub(crate) fn ask(
        &mut self,
        py: Python<'_>,
        session: &Session,
        mut command: impl FnMut(usize) -> Command,
    ) -> PyResult<Vec<Reply>> {
        self.ready(py, session)?;
        let (gather, wait) = Gather::new(self.members.len());
        for (at, member) in self.members.iter().enumerate() {
            let command = command(at);
            if self.recorder.is_some() {
                Recorder::allows(&command)?;
            }
            member.send(command, &gather);
        }
        while !py.detach(|| gathered(&wait, TICK)) {
            if let Err(interrupt) = py.check_signals() {
                self.stop.store(true, Ordering::Relaxed);
                self.broken = true;
                if let Start::Remote(remote) = &self.start {
                    remote.cancel();
                }
                if !py.detach(|| gathered(&wait, GRACE)) {
                    self.pending = Some(wait);
                }
                self.undo();
                return Err(interrupt);
            }
        }
        Ok(gather.take().inspect_err(|failure| {
            self.broken = failure.echo || !matches!(self.start, Start::Remote(_));
            self.undo();
        })?)
    }

    /// Has every member forget the results of the last call.
    pub(crate) fn undo(&self) {
        let (nobody, _) = Gather::new(0);
        for member in &self.members {
            member.send(Command::Undo { first: self.next }, &nobody);
        }
    }
}

fn random() -> Result<u64> {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(|cause| Failure::new(Kind::Failed, cause))?;
    Ok(u64::from_le_bytes(seed))
}
