//! A party of the protocol.

use std::{collections::HashMap, fmt, sync::Arc};

use mpc_core::{Error, Result};
use net::{Party, Session};
use ring_arith::{Engine, Generator, Shape, Tensor};

use crate::{
    cut::{Parts, Piece, SMALL, Turns, elements},
    links::Links,
    plan::{Goal, Plan, Tree},
    random::{Keys, Streams},
    seat::Seat,
    unit::Cx,
};

/// What the parties of a session agree on. All three must use the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub struct Options {
    pub(crate) generator: Generator,
    pub(crate) tree: Tree,
    pub(crate) parts: Parts,
    pub(crate) early_relu: bool,
}

impl Default for Options {
    fn default() -> Self {
        let (tree, parts) = (Tree::default(), Parts::default());
        Self { generator: Generator::Aes128Ctr, tree, parts, early_relu: true }
    }
}

impl Options {
    /// The generator of correlated randomness: AES-128-CTR unless chosen otherwise; ChaCha12 when a
    /// party computes on a GPU.
    pub fn generator(self, generator: Generator) -> Self {
        Self { generator, ..self }
    }

    /// How comparisons trade bytes for rounds.
    pub fn tree(self, tree: Tree) -> Self {
        Self { tree, ..self }
    }

    /// Whether the fused linear layer rounds early, which is the default: 40 bits fewer for an error
    /// below 1.5 units instead of 1 (with 20 fraction bits).
    pub fn early_relu(self, early_relu: bool) -> Self {
        Self { early_relu, ..self }
    }

    /// How large operations are shared out.
    pub fn parts(self, parts: Parts) -> Self {
        Self { parts, ..self }
    }
}

/// One of three parties that compute on replicated shares over Z_2^64.
///
/// Semi-honest security against one party. See the crate's front page for what that means.
pub struct Rss<E: Engine> {
    pub(crate) engine: E,
    pub(crate) links: Links,
    pub(crate) keys: Keys,
    pub(crate) options: Options,
    pub(crate) turns: Turns,
    pub(crate) zeros: E::Tensor,
    plans: HashMap<(Goal, usize), Arc<Plan>>,
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
    /// If the session is not one of three parties with a key for each pair.
    pub fn with_options(session: Session, engine: E, options: Options) -> Result<Self> {
        let keys = Keys::new(&session, options.generator)?;
        let zeros = engine.upload(Tensor::new(Shape::new([64])?, vec![0; 64])?)?;
        Ok(Self {
            engine,
            links: Links::new(session.transport),
            keys,
            options,
            turns: Turns::new(),
            zeros,
            plans: HashMap::new(),
            dead: None,
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
        self.links.close()
    }

    pub(crate) fn party(&self) -> Party {
        self.links.me()
    }

    /// Runs something that talks. After an error the session is dead: parties are out of step.
    pub(crate) fn talk<R>(&mut self, program: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        if let Some(reason) = &self.dead {
            return Err(Error::Net(net::Error::Dead(reason.clone())));
        }
        let result = program(self);
        if let Err(error) = &result {
            self.dead = Some(error.to_string());
        }
        result
    }

    pub(crate) fn cx(&mut self) -> Cx<'_, E> {
        Cx::new(&self.engine, &mut self.links, &self.zeros)
    }

    /// The circuit for so many bits.
    pub(crate) fn plan(&mut self, goal: Goal, bits: usize) -> Arc<Plan> {
        let tree = self.options.tree;
        let make = || Arc::new(Plan::new(tree, goal, bits));
        self.plans.entry((goal, bits)).or_insert_with(make).clone()
    }

    /// Cuts an operation on so many elements.
    pub(crate) fn pieces(&mut self, elements_: usize) -> Vec<Piece> {
        if elements_ < SMALL {
            return vec![Piece::whole(elements_, self.turns.next(elements_))];
        }
        elements(self.options.parts, elements_)
    }

    /// The seat of a piece and the streams of one operation on it.
    pub(crate) fn seat(&mut self, piece: &Piece) -> (Seat, Streams) {
        let seat = piece.seat(self.party());
        let nonce = self.keys.operation();
        let streams = self.keys.streams(&seat, nonce);
        (seat, streams)
    }
}

/// Shows the party and the engine alone.
impl<E: Engine> fmt::Debug for Rss<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rss({}, {})", self.party(), self.engine.name())
    }
}
