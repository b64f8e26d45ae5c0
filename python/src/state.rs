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
use gpu_kernels::{AnyEngine, EngineChoice};
use mpc_core::{Profile, Security, TruncationMode};
use net::{Meter, Metered, Shaped, Stats, in_process};
use pyo3::prelude::*;
use ring_arith::{Engine, Generator};
use rss_protocols::{Options, Rss};

use crate::{
    check::Checker,
    errors::{Failure, Kind, Result},
    ledger::{Ledger, Total},
    party::{Command, Gather, Hand, MOST_MADE, Reply, Stoppable, gathered},
    remote::Remote,
    session::Session,
};

/// The time between two checks for Ctrl-C in a waiting call.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// The time that an interrupted call gives the parties to stop.
const GRACE: Duration = Duration::from_millis(250);

type Mpc = Rss<AnyEngine>;

/// The parties of a session that are in this process.
pub(crate) struct State {
    parties: Vec<Hand<Mpc>>,
    start: Start,
    options: Options,
    /// One for each party. A party's tensors stay on its engine's device, also when it starts afresh.
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
    pub(crate) closed: bool,
}

/// The way in which parties connect.
pub(crate) enum Start {
    Local { network: Option<net::Shape> },
    Remote(Box<Remote>),
}

/// The options of the protocol on shares, from their names in Python.
pub(crate) fn options(truncation: &str, profile: &str, security: &str) -> Result<Options> {
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
    let profile = match profile {
        "bytes" => Profile::Bytes,
        "slow-links" => Profile::SlowLinks,
        other => return Err(unknown("profile", other, "\"bytes\" or \"slow-links\"")),
    };
    let security = match security {
        "semi-honest" => Security::SemiHonest,
        "checked" => Security::Checked,
        other => return Err(unknown("security", other, "\"semi-honest\" or \"checked\"")),
    };
    Ok(Options::default().truncation(truncation).profile(profile).security(security))
}

impl State {
    /// Starts three parties, or the one that is here.
    pub(crate) fn open(
        start: Start,
        engine: &str,
        options: Options,
        threads: usize,
    ) -> Result<Self> {
        let parties = match &start {
            Start::Local { .. } => 3,
            Start::Remote(_) => 1,
        };
        let choice: EngineChoice =
            engine.parse().map_err(|reason: String| Failure::new(Kind::Config, reason))?;
        let open = |_| match choice.open(threads) {
            Ok((engine, _)) => Ok(engine),
            Err(reason) => Err(Failure::new(Kind::Config, format!("engine `{choice}`: {reason}"))),
        };
        let engines = (0..parties).map(open).collect::<Result<_>>()?;
        let afresh = matches!(start, Start::Local { .. });
        let hands = (0..parties).map(|party| Hand::new(&format!("trefoil party {party}"), afresh));
        let mut state = Self {
            parties: hands.collect::<Result<_>>()?,
            start,
            options,
            engines,
            next: 0,
            pending: None,
            broken: false,
            stop: Arc::default(),
            meters: Vec::new(),
            ledger: Ledger::default(),
            checker: None,
            closed: false,
        };
        state.begin()?;
        Ok(state)
    }

    /// This party's number, or None where all three are here.
    pub(crate) fn me(&self) -> Option<usize> {
        match &self.start {
            Start::Local { .. } => None,
            Start::Remote(remote) => Some(remote.me()),
        }
    }

    /// Numbers of the parties that are here.
    pub(crate) fn numbers(&self) -> Vec<usize> {
        self.me().map_or_else(|| vec![0, 1, 2], |me| vec![me])
    }

    /// The first of the numbers that a call's results may have.
    pub(crate) fn number(&mut self) -> u64 {
        self.next += MOST_MADE;
        self.next
    }

    /// A name for a saved array, the same at all parties.
    pub(crate) fn label(&self) -> PyResult<String> {
        Ok(match &self.start {
            Start::Local { .. } => format!("{:016x}", random()?),
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
        self.parties.clear();
        self.checker = None;
        ended
    }

    /// Starts the parties, each with fresh keys and links.
    fn begin(&mut self) -> Result<()> {
        self.note_sent();
        self.meters.clear();
        self.stop = Arc::default();
        let sessions = match &mut self.start {
            Start::Local { .. } => in_process::sessions_from_seed(3, random()?),
            Start::Remote(remote) => {
                let agreed = format!("{} {:?}", trefoil::PROGRAM, self.options);
                let generators = self.engines.iter().flat_map(Engine::generators);
                vec![remote.session(&agreed, generators.map(Generator::name).collect())?]
            }
        };
        let network = match self.start {
            Start::Local { network } => network,
            Start::Remote(_) => None,
        };
        for ((hand, session), engine) in self.parties.iter().zip(sessions).zip(&self.engines) {
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
            let options = self.options;
            hand.start(Box::new(move || Ok(Rss::with_options(session, engine, options)?)));
        }
        self.broken = false;
        Ok(())
    }

    fn note_sent(&mut self) {
        let stats: Vec<Stats> = self.meters.iter().map(Meter::stats).collect();
        self.ledger.sent(&stats);
        self.meters.iter().for_each(Meter::reset);
    }

    /// Has every party forget secrets.
    pub(crate) fn forget(&mut self, ids: Vec<u64>) {
        if ids.is_empty() {
            return;
        }
        let (nobody, _) = Gather::new(0);
        for hand in &self.parties {
            hand.send(Command::Forget(ids.clone()), &nobody);
        }
        if let Some(checker) = &mut self.checker {
            checker.known.retain(|id| !ids.contains(id));
            checker.hand.send(Command::Forget(ids), &nobody);
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

    /// Has every party obey a command, and waits. Ctrl-C ends the wait and the command.
    pub(crate) fn all(
        &mut self,
        py: Python<'_>,
        session: &Session,
        step: &str,
        mut command: impl FnMut(usize) -> Command,
    ) -> PyResult<Vec<Reply>> {
        self.ready(py, session)?;
        let began = Instant::now();
        let (gather, wait) = Gather::new(self.parties.len());
        for (at, hand) in self.parties.iter().enumerate() {
            hand.send(command(at), &gather);
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
        let answers = gather.take();
        self.ledger.took(step, began.elapsed(), answers.as_deref().unwrap_or_default());
        Ok(answers.inspect_err(|failure| {
            self.broken = failure.echo || matches!(self.start, Start::Local { .. });
            self.undo();
        })?)
    }

    fn undo(&self) {
        let (nobody, _) = Gather::new(0);
        for hand in &self.parties {
            hand.send(Command::Undo { first: self.next }, &nobody);
        }
    }
}

fn random() -> Result<u64> {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(|cause| Failure::new(Kind::Failed, cause))?;
    Ok(u64::from_le_bytes(seed))
}
