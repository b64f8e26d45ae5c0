//! A party of the protocol.

use std::{cell::RefCell, collections::HashMap, fmt, sync::Arc};

use dist_proofs::{Batch, Proofs, Side, Statements, Verdict};
use mpc_core::{Error, Profile, Result, Security, ServerProtocol, Settings, TruncationMode};
use net::{Party, Session};
use ring_arith::{Engine, Generator, Shape, Tensor};
use zeroize::Zeroizing;

use crate::{
    Share,
    circuit::schedule::{Circuit, Predicate, Tree},
    product::unproven,
    proofs::{Ledger, Recorder, Transcript},
    runtime::{
        chunks::{Chunk, DEALER, Partition, Rotation, SMALL, elements, take},
        launch::flat,
        links::Links,
        prss::Keys,
        roles::Pair,
        rounds::Port,
    },
    share::output::Outputs,
};

/// The options of a session. All three parties must use the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub struct Options {
    generator: Option<Generator>,
    pub(crate) truncation: TruncationMode,
    pub(crate) profile: Profile,
    tree: Tree,
    pub(crate) partition: Partition,
    pub(crate) security: Security,
    pub(crate) batch: Option<usize>,
}

/// The elements after which a checked session proves its messages. Of a ReLU each takes about half a kilobyte while it is
/// proven. With more, time goes into fresh memory; with fewer, into rounds.
const BATCH: usize = 1 << 18;

/// The same where rounds are dear.
const BATCH_OF_SLOW_LINKS: usize = 1 << 21;

/// The most elements that are compared by [`Tree::Fours`] in the balanced profile: two rounds fewer for some 3 bytes more
/// of a party for each.
const FEW_COMPARED: usize = 1 << 14;

impl Default for Options {
    fn default() -> Self {
        Self {
            generator: None,
            truncation: TruncationMode::default(),
            profile: Profile::Bytes,
            tree: Tree::default(),
            partition: Partition::default(),
            security: Security::default(),
            batch: None,
        }
    }
}

impl Options {
    /// The generator for a session.
    fn generator_for(self, session: &Session) -> Result<Generator> {
        match (self.generator, &session.prg) {
            (Some(generator), _) => Ok(generator),
            (None, None) => Ok(Generator::Aes128Ctr),
            (None, Some(name)) => Generator::named(name).ok_or_else(|| {
                Error::Net(net::Error::Misuse(format!("there is no generator `{name}`")))
            }),
        }
    }

    /// The generator of correlated randomness. The default is the one that the session agreed on, for
    /// which each party names the fast ones on its machine ([`Engine::generators`]), or AES-128-CTR if
    /// none was named.
    pub fn generator(self, generator: Generator) -> Self {
        Self { generator: Some(generator), ..self }
    }

    /// The truncation of functions. The steps of a plan name their own.
    pub fn truncation(self, truncation: TruncationMode) -> Self {
        Self { truncation, ..self }
    }

    /// The resource to save; bytes unless it is given. Where rounds are saved, comparisons are by [`Tree::Fours`], whatever
    /// tree is chosen.
    pub fn profile(self, profile: Profile) -> Self {
        Self { profile, ..self }
    }

    /// The circuit of comparisons: it trades bytes for rounds.
    pub fn tree(self, tree: Tree) -> Self {
        Self { tree, ..self }
    }

    /// The partition of large operations among the parties.
    pub fn partition(self, partition: Partition) -> Self {
        Self { partition, ..self }
    }

    /// The security of the session.
    pub fn security(self, security: Security) -> Self {
        Self { security, ..self }
    }

    /// The number of elements after which a checked session proves its messages. A party keeps them until then, so
    /// fewer take less memory and more rounds. Everything is proven before an opening in any case. The default is 2^18,
    /// and 2^21 for slow links.
    pub fn batch(self, elements: usize) -> Self {
        Self { batch: Some(elements), ..self }
    }

    /// The elements after which a checked session proves its messages.
    fn most_unproven(self) -> usize {
        self.batch.unwrap_or(match self.profile {
            Profile::Bytes | Profile::Balanced => BATCH,
            Profile::SlowLinks => BATCH_OF_SLOW_LINKS,
        })
    }
}

/// The parties of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setting {
    /// Three parties who talk to each other.
    Three,
    /// Two, which read the third one's messages from a tape: nothing is ever sent to [`DEALER`].
    Dealt,
}

/// The state of a checked session.
struct Checks<E: Engine> {
    /// Messages that are not proven yet.
    ledger: RefCell<Ledger<E>>,
    proofs: RefCell<Proofs>,
}

/// One of three parties that compute on replicated shares over Z_2^64, or one of two with a dealer.
///
/// Semi-honest security against one party. See the crate's front page for the meaning.
pub struct Rss<E: Engine> {
    pub(crate) engine: E,
    me: Party,
    /// In a cell, as the next fields, since all chunks of an operation send and receive.
    pub(crate) links: RefCell<Links>,
    pub(crate) keys: Keys,
    pub(crate) options: Options,
    /// The parties of the session.
    pub(crate) setting: Setting,
    pub(crate) rotation: RefCell<Rotation>,
    pub(crate) zeros: E::Tensor,
    /// A key that the three servers alone know, once they have agreed on it.
    pub(crate) common: Option<Zeroizing<[u8; 32]>>,
    circuits: RefCell<HashMap<(Tree, Predicate, usize), Arc<Circuit>>>,
    checks: Option<Checks<E>>,
    /// The name of the program's step, which goes on after proofs.
    step: String,
    /// The number of a relation that is not stated.
    #[cfg(test)]
    pub(crate) omitted: std::cell::Cell<Option<usize>>,
    /// Why the session ended, if it did.
    dead: Option<String>,
}

impl<E: Engine> Rss<E> {
    /// A party with the default options. Nothing is sent: keys follow from the session's.
    ///
    /// # Errors
    /// If the session is not one of three parties with a key for each pair.
    pub fn new(session: Session, engine: E) -> Result<Self> {
        Self::with_options(session, engine, Options::default())
    }

    /// A party with chosen options, which must be the same on all three. Nothing is sent.
    ///
    /// # Errors
    /// If the session is not one of three parties with a key for each pair, or has agreed on a generator
    /// that does not exist.
    pub fn with_options(session: Session, engine: E, options: Options) -> Result<Self> {
        Self::in_setting(session, engine, options, Setting::Three)
    }

    pub(crate) fn in_setting(
        session: Session,
        engine: E,
        options: Options,
        setting: Setting,
    ) -> Result<Self> {
        check_security(options, setting)?;
        let generator = options.generator_for(&session)?;
        let keys = Keys::new(&session, generator)?;
        let checks = match options.security {
            Security::SemiHonest => None,
            Security::Checked => Some(Checks {
                ledger: RefCell::default(),
                proofs: RefCell::new(Proofs::new(&session, generator)?),
            }),
        };
        let zeros = engine.upload(Tensor::new(Shape::new([64])?, vec![0; 64])?)?;
        let me = session.transport.me();
        Ok(Self {
            engine,
            me,
            links: RefCell::new(Links::new(session.transport)),
            keys,
            options,
            setting,
            rotation: RefCell::new(Rotation::new(options.partition)),
            zeros,
            common: None,
            circuits: RefCell::default(),
            checks,
            step: "start".to_owned(),
            #[cfg(test)]
            omitted: Default::default(),
            dead: None,
        })
    }

    pub(crate) fn begin(&mut self, rekey: impl FnOnce(&mut Keys) -> Result<()>) -> Result<()> {
        self.talk(|mpc| {
            mpc.links.get_mut().check_empty()?;
            rekey(&mut mpc.keys)?;
            if let Some(checks) = &mut mpc.checks {
                checks.ledger = RefCell::default();
                checks.proofs.get_mut().begin_job(mpc.keys.job());
            }
            mpc.rotation = RefCell::new(Rotation::new(mpc.options.partition));
            Ok(())
        })
    }

    /// The options.
    pub fn options(&self) -> Options {
        self.options
    }

    /// Waits until both peers have ended too, and closes the links. No words are sent.
    ///
    /// # Errors
    /// If a peer failed or sent more than was due.
    pub fn close(self) -> Result<()> {
        self.links.into_inner().close()
    }

    /// The generator of correlated randomness.
    pub fn generator(&self) -> Generator {
        self.keys.generator()
    }

    pub(crate) fn party(&self) -> Party {
        self.me
    }

    /// True at the dealer of two others, which shares and opens nothing.
    pub(crate) fn deals(&self) -> bool {
        self.setting == Setting::Dealt && self.party() == DEALER
    }

    /// Parties that compute.
    pub(crate) fn computing(&self) -> usize {
        if self.setting == Setting::Dealt { DEALER.0 } else { 3 }
    }

    /// Names the messages that follow.
    pub(crate) fn enter(&mut self, step: &str) {
        step.clone_into(&mut self.step);
        self.links.get_mut().step(step);
    }

    /// Runs something that talks, and proves its messages if enough are kept. After an error the session is dead:
    /// parties are out of step.
    pub(crate) fn talk<R>(&mut self, program: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        if let Some(reason) = &self.dead {
            return Err(Error::Net(net::Error::Dead(reason.clone())));
        }
        let result = program(self).and_then(|result| {
            if self.unproven() >= self.options.most_unproven() {
                self.verify()?;
            }
            Ok(result)
        });
        if let Err(error) = &result {
            self.dead = Some(error.to_string());
        }
        result
    }

    /// The circuit of a predicate on `bits` bits, for so many elements in the same rounds.
    pub(crate) fn circuit(
        &self,
        predicate: Predicate,
        bits: usize,
        elements: usize,
    ) -> Arc<Circuit> {
        let fours = self.options.profile.saves_rounds(elements, FEW_COMPARED, usize::MAX);
        let tree = if fours { Tree::Fours } else { self.options.tree };
        let mut circuits = self.circuits.borrow_mut();
        let circuit = circuits.entry((tree, predicate, bits));
        circuit.or_insert_with(|| Arc::new(Circuit::new(tree, predicate, bits))).clone()
    }

    /// The chunks of an operation on `len` elements.
    pub(crate) fn chunks(&self, len: usize) -> Vec<Chunk> {
        if len < SMALL {
            return vec![self.whole(len, len)];
        }
        elements(self.options.partition, len)
    }

    /// The only chunk of a small operation with `len` results of so many elements.
    pub(crate) fn whole(&self, len: usize, elements: usize) -> Chunk {
        let chunk = Chunk::whole(len, self.next_dealer(elements));
        #[cfg(test)]
        let chunk = Chunk { swapped: self.rotation.borrow().swapped, ..chunk };
        chunk
    }

    /// The dealer of a small operation, given its number of elements.
    pub(crate) fn next_dealer(&self, elements: usize) -> Party {
        self.rotation.borrow_mut().next(elements)
    }

    /// The roles of a chunk and the streams of one operation on it.
    pub(crate) fn port(&self, chunk: &Chunk) -> Port<'_, E> {
        let roles = chunk.roles(self.party());
        let streams = self.keys.streams(&roles, self.keys.operation());
        let recorder = self
            .checks
            .as_ref()
            .map(|checks| Recorder::begin(&checks.ledger, chunk.len(), roles, streams.again()));
        let (engine, links, zeros) = (&self.engine, &self.links, &self.zeros);
        Port { engine, roles, streams, links, zeros, recorder }
    }

    /// True if the parties prove their messages.
    pub fn is_checked(&self) -> bool {
        self.checks.is_some()
    }

    /// The elements of operations whose messages are not proven yet: the same number at all parties.
    pub(crate) fn unproven(&self) -> usize {
        self.checks.as_ref().map_or(0, |checks| checks.ledger.borrow().elements)
    }

    /// In a checked session, proves that all messages since the last call were the prescribed ones, and verifies the
    /// proofs of both others. Every opening, release and `hold` does this first.
    ///
    /// # Errors
    /// [`Error::Cheated`] if a proof is wrong. Then nothing may be opened any more.
    pub(crate) fn verify(&self) -> Result<()> {
        let Some(Checks { ledger, proofs }) = &self.checks else { return Ok(()) };
        if ledger.borrow().chunks.is_empty() {
            return Ok(());
        }
        let statements = self.statements()?;
        let links = &mut *self.links.borrow_mut();
        links.flush_all()?;
        links.check_empty()?;
        let of = |party: Party| &statements[party.0];
        let batch = Batch {
            prover: of(self.me),
            left: of(self.me.after(2, 3)),
            right: of(self.me.after(1, 3)),
        };
        let mut proofs = proofs.borrow_mut();
        let verdict = if self.engine.computes() {
            proofs.run(links.transport(), batch)?
        } else {
            // A run of shapes counts the words of proofs, and has no messages to prove.
            proofs.rehearse(links.transport(), batch)?;
            Verdict::Accepted
        };
        links.step(&self.step);
        match verdict {
            Verdict::Accepted => Ok(()),
            Verdict::Rejected { suspects, step } => Err(Error::Cheated { suspects, step }),
        }
    }

    /// By party, what it owes for its messages since the last call, as this party holds it.
    ///
    /// # Errors
    /// If a message is not covered by the relations of its operation.
    pub(crate) fn statements(&self) -> Result<[Statements; 3]> {
        let mut statements = [0, 1, 2].map(|prover| {
            Statements::new(match (self.me.0 + 3 - prover) % 3 {
                0 => Side::Prover,
                1 => Side::Left,
                _ => Side::Right,
            })
        });
        let Some(Checks { ledger, .. }) = &self.checks else { return Ok(statements) };
        let Ledger { chunks, .. } = ledger.take();
        for (at, record) in chunks.into_iter().enumerate() {
            let transcript = Transcript::new(&self.engine, at, record, &mut statements);
            #[cfg(test)]
            let transcript = transcript.omitting(&self.omitted);
            transcript.state()?;
        }
        Ok(statements)
    }

    /// Buffers for `results` tensors of a shape, made by chunks of consecutive elements.
    pub(crate) fn outputs(
        &self,
        chunks: Vec<Chunk>,
        shape: Shape,
        results: usize,
    ) -> Outputs<E::Tensor> {
        Outputs::new(&self.engine, self.party(), chunks, shape, results)
    }

    /// A share's own component and the next, each as one axis.
    pub(crate) fn flat_pair(&self, x: &Share<E::Tensor>) -> Result<[E::Tensor; 2]> {
        Ok([flat(&self.engine, x.mine())?, flat(&self.engine, x.next())?])
    }

    /// The role's two components of a chunk, given a share's own and the next.
    pub(crate) fn chunk_of(
        &self,
        [mine, next]: &[E::Tensor; 2],
        chunk: &Chunk,
    ) -> Result<Pair<E::Tensor>> {
        let mine = take(&self.engine, mine, chunk)?;
        Ok(chunk.roles(self.party()).pair(mine, take(&self.engine, next, chunk)?))
    }
}

/// Refuses what a checked session does not have.
fn check_security(options: Options, setting: Setting) -> Result<()> {
    if options.security == Security::SemiHonest {
        return Ok(());
    }
    if setting == Setting::Dealt {
        let reason = "a checked session has no relations for two servers and a dealer".to_owned();
        return Err(Error::Invalid { op: "security", reason });
    }
    match options.truncation {
        mode @ TruncationMode::Aby3Local => Err(unproven(mode)),
        _ => Ok(()),
    }
}

/// Three servers. Truncation, profile and security are those of the settings, all other options the default.
impl<E: Engine> ServerProtocol for Rss<E> {
    fn start(session: Session, engine: E, settings: Settings) -> Result<Self> {
        Self::with_options(session, engine, settings.into())
    }

    /// All streams are keyed by the session, the number of jobs begun in it and `digest`; operations are numbered from
    /// 0, and the dealers' rotation starts again. No two jobs of a session have a key in common, whatever their
    /// digests.
    fn begin_job(&mut self, digest: &[u8; 32]) -> Result<()> {
        self.begin(|keys| keys.begin_job(digest))
    }

    fn operations(&self) -> u64 {
        self.keys.operations()
    }

    fn described(&self) -> String {
        format!("{:?} {:?}", self.options, self.generator())
    }
}

impl From<Settings> for Options {
    fn from(Settings { truncation, profile, security }: Settings) -> Self {
        Self::default().truncation(truncation).profile(profile).security(security)
    }
}

/// Shows the party and the engine alone.
impl<E: Engine> fmt::Debug for Rss<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rss({}, {})", self.party(), self.engine.name())
    }
}

#[cfg(test)]
mod tests {
    use mpc_core::{Finish, Product, Protocol, TruncationMode};
    use ring_arith::{Bilinear, CpuEngine};

    use super::*;

    #[test]
    fn a_job_is_right_after_one_in_which_parties_fell_out_of_step() {
        let sessions = net::in_process::sessions_from_seed(3, 1);
        let opened = net::launch::run_all(sessions, |session| {
            let me = session.transport.me();
            let mut mpc = Rss::new(session, CpuEngine::new(1)).unwrap();
            // One counts an operation and elements more than the others.
            if me == Party(1) {
                mpc.keys.operation();
                mpc.next_dealer(1 << 20);
                mpc.next_dealer(1);
            }
            mpc.begin_job(&[7; 32]).unwrap();
            assert_eq!(mpc.operations(), 0);
            let value = [Tensor::of([1, 1], &[6 << 20]).unwrap()];
            let values = (me == Party(0)).then_some(&value[..]);
            let x = mpc.input(Party(0), &[Shape::new([1, 1]).unwrap()], values).unwrap().remove(0);
            let mode = TruncationMode::Early;
            let finish = Finish::TruncateRelu { bits: 20, mode, keep: false };
            let square = Product::new(Bilinear::MATMUL, &x, &x, finish);
            let square = mpc.product(square).unwrap().share;
            let opened = mpc.open(&[&square]).unwrap().remove(0).words()[0];
            mpc.close().unwrap();
            opened
        });
        assert!(opened.iter().all(|word| word.abs_diff(36 << 20) <= 2), "{opened:?}");
    }

    #[test]
    fn the_generator_is_the_chosen_one_else_the_agreed_one_else_aes() {
        let party = |prg: Option<&str>, options| {
            let mut session = net::in_process::sessions_from_seed(3, 1).remove(0);
            session.prg = prg.map(str::to_owned);
            Rss::with_options(session, CpuEngine::new(1), options).map(|party| party.generator())
        };
        let options = Options::default();
        assert_eq!(party(None, options).unwrap(), Generator::Aes128Ctr);
        assert_eq!(party(Some("chacha12"), options).unwrap(), Generator::ChaCha12);
        let chosen = options.generator(Generator::ChaCha20);
        assert_eq!(party(Some("chacha12"), chosen).unwrap(), Generator::ChaCha20);
        let error = party(Some("rot13"), options).unwrap_err().to_string();
        assert!(error.contains("no generator `rot13`"), "{error}");
    }
}
