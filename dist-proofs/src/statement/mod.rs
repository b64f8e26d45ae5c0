//! Statements: what a prover owes to its two verifiers, as one of the three holds it.

mod build;
mod evaluate;
mod size;
#[cfg(test)]
mod tests;

use std::{fmt, ops::Range};

use ring_arith::{Bilinear, Engine, EngineTensor, Result, Shape, Tensor};

pub use build::{BitRelation, MapOperand, MapRelation, WordRelation};
#[cfg(test)]
pub(crate) use evaluate::sums;
pub use evaluate::{Fault, Finding, evaluate, residuals};
pub use size::{ProofCost, Size};

/// The role of a party in a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// It sent the messages, and knows everything.
    Prover,
    /// It knows the left factors and terms.
    Left,
    /// It knows the right factors and terms.
    Right,
}

/// A tensor as one side has it.
#[derive(Debug)]
pub enum Known<'a, T> {
    /// This side knows it.
    Here(&'a T),
    /// It does not.
    Elsewhere,
}

impl<T> Clone for Known<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Known<'_, T> {}

impl<'a, T> From<Option<&'a T>> for Known<'a, T> {
    fn from(value: Option<&'a T>) -> Self {
        value.map_or(Self::Elsewhere, Self::Here)
    }
}

/// A factor that the prover and the left verifier know. It can serve in any number of relations of its [`Statements`];
/// one that serves in several is best declared once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeftOperand(Factor);

/// A factor that the prover and the right verifier know. See [`LeftOperand`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RightOperand(Factor);

impl LeftOperand {
    /// This factor, of one plane, in every plane of a relation of bits.
    pub fn in_every_plane(self) -> Self {
        Self(Factor { every_plane: true, ..self.0 })
    }
}

impl RightOperand {
    /// This factor, of one plane, in every plane of a relation of bits.
    pub fn in_every_plane(self) -> Self {
        Self(Factor { every_plane: true, ..self.0 })
    }
}

/// A use of an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Factor {
    /// Its number.
    pub(crate) operand: usize,
    /// One plane of bits serves all planes of the relation.
    pub(crate) every_plane: bool,
}

/// Words of a message of the prover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spoken {
    /// The message's name, which is public and the same at all parties.
    pub message: String,
    /// The words of it, counted from 0.
    pub words: Range<usize>,
}

/// The arithmetic of a relation, and its size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Planes of bits: `&` and `^`.
    Bits {
        /// Planes, each of `ceil(elements / 64)` words.
        planes: usize,
        /// Bits of a plane that count.
        elements: usize,
    },
    /// Words modulo `2^modulus_bits`.
    Words {
        /// Low bits that count, 1 to 64.
        modulus_bits: u32,
        /// Words.
        elements: usize,
    },
    /// Tensors modulo `2^64`, multiplied by a bilinear map.
    Map {
        /// The map.
        map: Bilinear,
        /// Shape of the first factors.
        lhs: Shape,
        /// Shape of the second factors.
        rhs: Shape,
    },
}

impl Kind {
    /// Words of a left or right term.
    pub(crate) fn words(&self) -> usize {
        match self {
            Self::Bits { planes, elements } => planes * elements.div_ceil(64),
            Self::Words { elements, .. } => *elements,
            Self::Map { map, lhs, rhs } => {
                map.output_shape(lhs, rhs).expect("checked when the relation was made").len()
            }
        }
    }
}

/// The relations of one prover, as one side has them. All three sides make the same calls, and pass what they know.
///
/// Tensors are kept by reference; a relation copies none.
#[must_use]
#[derive(Clone)]
pub struct Statements<T = Tensor> {
    side: Side,
    pub(crate) operands: Vec<Operand<T>>,
    pub(crate) relations: Vec<Relation<T>>,
}

#[derive(Clone)]
pub(crate) struct Operand<T> {
    /// The verifier that knows it.
    pub verifier: Side,
    pub tensor: Option<T>,
}

#[derive(Clone)]
pub(crate) struct Relation<T> {
    pub kind: Kind,
    /// Pairs of factors. Of bits and words, the first is the left verifier's and the second the right one's.
    pub products: Vec<[Factor; 2]>,
    pub left: Vec<Term<T>>,
    pub right: Vec<Term<T>>,
    spoken: Vec<Spoken>,
}

#[derive(Clone)]
pub(crate) struct Term<T> {
    pub negative: bool,
    pub tensor: Option<T>,
}

impl<T: EngineTensor> Statements<T> {
    /// No relations yet.
    pub fn new(side: Side) -> Self {
        Self { side, operands: Vec::new(), relations: Vec::new() }
    }

    /// This party's side.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Number of relations.
    #[allow(clippy::len_without_is_empty)] // nobody asks
    pub fn len(&self) -> usize {
        self.relations.len()
    }

    /// The words of messages of which the relations speak, in their order: a protocol's test compares them with what
    /// the prover sent.
    pub fn spoken(&self) -> impl Iterator<Item = &Spoken> {
        self.relations.iter().flat_map(|relation| &relation.spoken)
    }

    /// The same statements in the host's memory.
    ///
    /// # Errors
    /// If the device fails.
    pub fn download(&self, engine: &impl Engine<Tensor = T>) -> Result<Statements> {
        let host =
            |tensor: &Option<T>| tensor.as_ref().map(|tensor| engine.download(tensor)).transpose();
        let terms = |terms: &[Term<T>]| {
            let term =
                |term: &Term<T>| Ok(Term { negative: term.negative, tensor: host(&term.tensor)? });
            terms.iter().map(term).collect::<Result<Vec<_>>>()
        };
        let operand = |operand: &Operand<T>| {
            Ok(Operand { verifier: operand.verifier, tensor: host(&operand.tensor)? })
        };
        let relation = |relation: &Relation<T>| {
            Ok(Relation {
                kind: relation.kind.clone(),
                products: relation.products.clone(),
                left: terms(&relation.left)?,
                right: terms(&relation.right)?,
                spoken: relation.spoken.clone(),
            })
        };
        Ok(Statements {
            side: self.side,
            operands: self.operands.iter().map(operand).collect::<Result<_>>()?,
            relations: self.relations.iter().map(relation).collect::<Result<_>>()?,
        })
    }

    /// A hash of what is public: kinds, sizes, operands of products, and the messages spoken of. Equal at all three
    /// sides.
    pub fn digest(&self) -> [u8; 32] {
        let mut hash =
            blake3::Hasher::new_derive_key("trefoil dist-proofs 2026 shape of statements");
        let (mut public, mut texts) = (Vec::new(), String::new());
        let mut number = |value: usize| public.extend((value as u64).to_le_bytes());
        number(self.operands.len());
        self.operands
            .iter()
            .for_each(|operand| number(usize::from(operand.verifier == Side::Right)));
        number(self.relations.len());
        for relation in &self.relations {
            number(relation.products.len());
            relation.products.iter().flatten().for_each(|factor| {
                number(factor.operand);
                number(usize::from(factor.every_plane));
            });
            for terms in [&relation.left, &relation.right] {
                number(terms.len());
                terms.iter().for_each(|term| number(usize::from(term.negative)));
            }
            // The text names every field of the kind and of the words spoken of, with lengths and quotes.
            let text = format!("{:?} {:?}", relation.kind, relation.spoken);
            number(text.len());
            texts += &text;
        }
        // The lengths say where each text ends.
        hash.update(&(public.len() as u64).to_le_bytes());
        hash.update(&public).update(texts.as_bytes());
        hash.finalize().into()
    }
}

/// Shows sizes alone: tensors hold shares.
impl<T> fmt::Debug for Statements<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Statements({:?}, {} relations)", self.side, self.relations.len())
    }
}
