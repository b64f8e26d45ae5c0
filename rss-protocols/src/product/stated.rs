//! A party's addend of a sum of products, as its relations need it.
//!
//! Products word by word are written in the components of each chunk's words. A bilinear map has no part of its operands
//! for a part of its result, so the chunks of its result owe one relation together: each adds what it masks and sends.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
};

use mpc_core::{Error, Result, ShareTensor, Term};
use ring_arith::{Bilinear, Engine, EngineTensor};

use super::operands;
use crate::{
    Share,
    proofs::{Transcript, Words},
    runtime::{
        chunks::{Chunk, take},
        launch::invalid,
        roles::Role,
    },
    share::combined::Side,
};

/// A sum of products, or those of its words that belong to a chunk, and what is added to it.
#[derive(Clone)]
pub(crate) struct Stated<T> {
    products: Products<T>,
    /// This party's component and the next.
    plus: Option<[T; 2]>,
}

#[derive(Clone)]
enum Products<T> {
    /// Of tensors word by word: this party's component of each factor and the next.
    Words(Vec<[T; 4]>),
    /// Of bilinear maps.
    Map(Arc<StatedMap<T>>, Range<usize>),
}

/// A sum of bilinear maps of one kind and shape.
pub(crate) struct StatedMap<T> {
    pub op: Bilinear,
    pub terms: Vec<[Share<T>; 2]>,
    /// Words of the result.
    pub len: usize,
    /// What chunks have added.
    pub owed: Mutex<Owed>,
}

/// The terms of a map's relations, from those chunks that were stated.
pub(crate) struct Owed {
    /// Chunks that are made and not stated.
    chunks: usize,
    /// By prover.
    pub by: [OwedBy; 3],
}

/// The terms of one prover's relation.
#[derive(Default)]
pub(crate) struct OwedBy {
    /// The left verifier's and the right one's, where they are known.
    pub terms: [Option<Vec<u64>>; 2],
    /// Words of the prover's messages, by the messages' names.
    pub spoken: Vec<(String, Range<usize>)>,
}

/// True if one relation can speak of the sum of two products.
pub(crate) fn alike<T: EngineTensor>(one: &Term<'_, Share<T>>, other: &Term<'_, Share<T>>) -> bool {
    one.op == other.op
        && one.lhs.shape() == other.lhs.shape()
        && one.rhs.shape() == other.rhs.shape()
}

impl<T: EngineTensor> Stated<T> {
    /// Of tensors word by word, all as one axis.
    pub fn words(terms: Vec<[T; 4]>, plus: Option<[T; 2]>) -> Self {
        Self { products: Products::Words(terms), plus }
    }

    /// Of bilinear maps of one kind and shape, whose result has `len` words.
    pub fn map(terms: &[Term<'_, Share<T>>], plus: Option<[T; 2]>, len: usize) -> Self {
        let first = &terms[0];
        assert!(terms.iter().all(|term| alike(first, term)), "each kind is a product of its own");
        let map = StatedMap {
            op: first.op.clone(),
            terms: terms.iter().map(|term| [term.lhs.clone(), term.rhs.clone()]).collect(),
            len,
            owed: Mutex::new(Owed { chunks: 0, by: Default::default() }),
        };
        Self { products: Products::Map(Arc::new(map), 0..len), plus }
    }

    /// That of some of the words. All chunks are made before the first one is proven.
    pub fn chunk<E: Engine<Tensor = T>>(&self, engine: &E, chunk: &Chunk) -> Result<Self> {
        let part_of = |tensor: &T| take(engine, tensor, chunk);
        let products = match &self.products {
            Products::Words(terms) => {
                let mut parts = Vec::with_capacity(terms.len());
                for [x, x1, y, y1] in terms {
                    parts.push([part_of(x)?, part_of(x1)?, part_of(y)?, part_of(y1)?]);
                }
                Products::Words(parts)
            }
            Products::Map(map, _) => {
                map.owed.lock().map_err(|_| broken())?.chunks += 1;
                Products::Map(map.clone(), chunk.range.clone())
            }
        };
        let plus = match &self.plus {
            Some([plus, next]) => Some([part_of(plus)?, part_of(next)?]),
            None => None,
        };
        Ok(Self { products, plus })
    }

    /// A role owes that its addend `x_i (y_i + y_j) + x_j y_i`, with its component of what is added, and `others` are 0.
    pub fn owe<E: Engine<Tensor = T>>(
        &self,
        t: &mut Transcript<'_, E>,
        role: Role,
        others: Words,
    ) -> Result<()> {
        let [i, j] = t.roles().components(role);
        let mut sum = others;
        if let Some([plus, next]) = &self.plus {
            sum = sum + &t.components_of(plus, next)?[i];
        }
        match &self.products {
            Products::Words(terms) => {
                for [x, x1, y, y1] in terms {
                    let [x, y] = [t.components_of(x, x1)?, t.components_of(y, y1)?];
                    sum = sum + &x[i] * &(&y[i] + &y[j]) + &x[j] * &y[i];
                }
                t.words(role, 64, &sum)
            }
            Products::Map(map, range) => t.owe_of_map(role, map, range.clone(), &sum),
        }
    }

    /// All roles have stated what they owe for the chunk: with the last one, the relations of a map are complete.
    pub fn finish<E: Engine<Tensor = T>>(&self, t: &mut Transcript<'_, E>) -> Result<()> {
        let Products::Map(map, _) = &self.products else { return Ok(()) };
        let mut owed = map.owed.lock().map_err(|_| broken())?;
        owed.chunks -= 1;
        if owed.chunks > 0 {
            return Ok(());
        }
        let by = std::mem::take(&mut owed.by);
        drop(owed);
        by.into_iter().enumerate().try_for_each(|(prover, owed)| t.map(prover, map, owed))
    }
}

impl<T: EngineTensor> StatedMap<T> {
    /// An operand's component, as one factor of this party's addend: the other component is 0.
    pub fn operand<E: Engine<Tensor = T>>(
        &self,
        engine: &E,
        term: usize,
        side: Side,
        own: bool,
        component: &T,
    ) -> Result<T> {
        let [lhs, rhs] = &self.terms[term];
        Ok(operands::component(engine, &self.op, [lhs.shape(), rhs.shape()], side, own, component)?)
    }

    /// The products of components: of two that are both the next ones there is none if the map sums over one index.
    pub fn products(&self) -> &'static [[bool; 2]] {
        let [lhs, rhs] = &self.terms[0];
        if operands::is_paired(&self.op, lhs.shape(), rhs.shape()) {
            &[[true, true], [true, false], [false, true], [false, false]]
        } else {
            &[[true, true], [true, false], [false, true]]
        }
    }
}

fn broken() -> Error {
    invalid("statement", "a chunk of the same product failed")
}
