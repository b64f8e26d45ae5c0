//! All parties of a session as threads of a test.

use std::{
    env,
    panic::{self, AssertUnwindSafe},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use net::{Error as NetError, Message, Metered, Party, Report, Session, Stats, Transport};

use crate::{Protocol, Result};

/// The environment variable that replays a test: set it to the seed that a failed test printed.
pub const SEED_VARIABLE: &str = "TREFOIL_SEED";

/// Runs the same program as every party of a session, a thread each, over in-process links.
///
/// Keys, session id and [`TestWorld::seed`] follow from one seed, which a failure prints; setting
/// `TREFOIL_SEED` to it replays the run. A world that is not done within its time limit fails.
#[derive(Debug, Clone)]
pub struct TestWorld {
    parties: usize,
    /// One more party runs before the others.
    dealer: bool,
    seed: u64,
    limit: Duration,
}

impl From<usize> for TestWorld {
    /// [`TestWorld::new`].
    fn from(parties: usize) -> Self {
        Self::new(parties)
    }
}

/// The messages and bytes that a run of a [`TestWorld`] sent.
pub type Traffic = Report;

impl TestWorld {
    /// A world of `parties` parties, with a fresh seed unless `TREFOIL_SEED` is set, and a limit of
    /// four minutes.
    ///
    /// # Panics
    /// If `TREFOIL_SEED` is set and is not a number.
    pub fn new(parties: usize) -> Self {
        let seed = match env::var(SEED_VARIABLE) {
            Ok(text) => text.parse().expect("TREFOIL_SEED is a decimal number"),
            Err(_) => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(1, |now| now.as_nanos() as u64 % 1_000_000_007),
        };
        Self { parties, dealer: false, seed, limit: Duration::from_secs(240) }
    }

    /// The same world of at least two parties with a dealer: one more party, numbered after the others,
    /// that runs the whole program before they begin. A message to it is an error, and the others play the
    /// messages that it sent (see [`net::tape`]). Its result is dropped, and its messages are not counted.
    #[must_use]
    pub fn with_dealer(self) -> Self {
        Self { dealer: true, ..self }
    }

    /// The same world with a given seed, independent of the environment.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The same world with another time limit.
    #[must_use]
    pub fn with_limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// The seed: test data should follow from it too.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Number of parties.
    pub fn parties(&self) -> usize {
        self.parties
    }

    /// Runs `program` as every party and returns their results, in their order. `make` builds a
    /// party's protocol from its session.
    ///
    /// # Panics
    /// If a party fails, panics, or is not done within the time limit. The text names party and seed.
    pub fn run<P: Protocol, T: Send + 'static>(
        &self,
        make: impl Fn(Session) -> Result<P> + Send + Sync + 'static,
        program: impl Fn(&mut P) -> Result<T> + Send + Sync + 'static,
    ) -> Vec<T> {
        let program = move |session| make(session).and_then(|mut mpc| program(&mut mpc));
        self.expect_all(self.try_sessions(program))
    }

    /// [`TestWorld::run`] that also counts the messages of `program` (not those of `make`) and its
    /// rounds.
    ///
    /// # Panics
    /// As [`TestWorld::run`].
    pub fn run_metered<P: Protocol, T: Send + 'static>(
        &self,
        make: impl Fn(Session) -> Result<P> + Send + Sync + 'static,
        program: impl Fn(&mut P) -> Result<T> + Send + Sync + 'static,
    ) -> (Vec<T>, Traffic) {
        let program = move |mut session: Session| {
            let metered = Metered::new(session.transport);
            let meter = metered.meter();
            session.transport = Box::new(metered);
            let mut mpc = make(session)?;
            meter.reset();
            let value = program(&mut mpc)?;
            Ok((value, meter.stats()))
        };
        let outcomes = self.expect_all(self.try_sessions(program));
        let (values, stats): (Vec<T>, Vec<Stats>) = outcomes.into_iter().unzip();
        (values, Report::of(&stats))
    }

    /// Runs `program` on every party's bare session; each party's own outcome is returned, so that a
    /// test can expect errors.
    ///
    /// # Panics
    /// If a party panics or is not done within the time limit.
    pub fn try_sessions<T: Send + 'static>(
        &self,
        program: impl Fn(Session) -> Result<T> + Send + Sync + 'static,
    ) -> Vec<Result<T>> {
        let program = Arc::new(program);
        let deadline = Instant::now() + self.limit;
        let mut sessions = sessions(self.parties, self.dealer, self.seed);
        if self.dealer {
            let dealer = sessions.split_off(self.parties);
            if let Err(error) = self.run_threads(dealer, &program, deadline).remove(0) {
                self.fail(&format!("the dealer: {error}"));
            }
        }
        self.run_threads(sessions, &program, deadline)
    }

    /// Runs a thread for each session, and waits for all.
    fn run_threads<T: Send + 'static>(
        &self,
        sessions: Vec<Session>,
        program: &Arc<impl Fn(Session) -> Result<T> + Send + Sync + 'static>,
        deadline: Instant,
    ) -> Vec<Result<T>> {
        let (report, reports) = mpsc::channel();
        let mut outcomes: Vec<Option<Result<T>>> = sessions.iter().map(|_| None).collect();
        for (at, session) in sessions.into_iter().enumerate() {
            let (program, report) = (program.clone(), report.clone());
            let me = session.transport.me();
            let party = move || {
                let outcome = panic::catch_unwind(AssertUnwindSafe(|| program(session)));
                // Nobody listens any more after the time limit.
                let _ = report.send((at, outcome));
            };
            let thread = thread::Builder::new().name(me.to_string());
            thread.spawn(party).expect("a thread for every party");
        }
        drop(report);
        let mut panicked = None;
        for _ in 0..outcomes.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            match reports.recv_timeout(left) {
                Ok((at, Ok(outcome))) => outcomes[at] = Some(outcome),
                Ok((_, Err(payload))) => panicked = panicked.or(Some(payload)),
                Err(_) => self.fail(&format!("not done after {:?}", self.limit)),
            }
        }
        if let Some(payload) = panicked {
            eprintln!("a party panicked; {}", self.replay());
            panic::resume_unwind(payload);
        }
        outcomes.into_iter().map(|o| o.expect("every party reported")).collect()
    }

    fn expect_all<T>(&self, outcomes: Vec<Result<T>>) -> Vec<T> {
        // The first failure in time is unknown; a party that was only cut off returns an error that
        // states it.
        let failed = |o: &Result<T>| o.is_err();
        if outcomes.iter().any(failed) {
            let texts = outcomes.iter().enumerate().filter_map(|(i, o)| {
                let error = o.as_ref().err()?;
                Some(format!("{}: {error}", Party(i)))
            });
            self.fail(&texts.collect::<Vec<_>>().join("; "));
        }
        outcomes.into_iter().filter_map(Result::ok).collect()
    }

    fn fail(&self, what: &str) -> ! {
        panic!("{what}; {}", self.replay())
    }

    /// The way to replay a failure of this world: for a test's own messages.
    pub fn replay(&self) -> String {
        format!("{} parties, replay with {SEED_VARIABLE}={}", self.parties, self.seed)
    }
}

/// Sessions of a world: `net`'s for several parties, a silent one for a protocol of one; after them the
/// dealer's, if the world has one.
fn sessions(parties: usize, dealer: bool, seed: u64) -> Vec<Session> {
    if dealer {
        let sessions = net::in_process::sessions_from_seed(parties + 1, seed);
        let transports = net::tape::in_memory(parties);
        let sessions = sessions.into_iter().zip(transports);
        return sessions.map(|(session, transport)| Session { transport, ..session }).collect();
    }
    match parties {
        1 => vec![Session {
            transport: Box::new(Alone),
            pair_keys: vec![None],
            id: u128::from(seed).to_le_bytes(),
            prg: None,
        }],
        _ => net::in_process::sessions_from_seed(parties, seed),
    }
}

/// The links of a party without peers.
struct Alone;

impl Transport for Alone {
    fn me(&self) -> Party {
        Party(0)
    }

    fn parties(&self) -> usize {
        1
    }

    fn send(&mut self, to: Party, _message: Message) -> net::Result<()> {
        Err(NetError::Misuse(format!("{to} does not exist: the session has one party")))
    }

    fn receive(&mut self, from: Party) -> net::Result<Message> {
        Err(NetError::Misuse(format!("{from} does not exist: the session has one party")))
    }

    fn step(&mut self, _name: &str) {}

    fn accuse(&mut self, peer: Party, _reason: &str) -> NetError {
        NetError::Misuse(format!("{peer} does not exist: the session has one party"))
    }

    fn fail(&mut self, _reason: &str) {}

    fn close(self: Box<Self>) -> net::Result<()> {
        Ok(())
    }
}
