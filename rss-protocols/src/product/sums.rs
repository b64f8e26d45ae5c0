//! Weighted sums of truncated values that do not exist as shares, because a selection follows.
//!
//! The evaluators of a chunk hold the truncated value as two addends ([`super::gated`]). Sums with public factors are
//! local; they go through the last round of the chunk's protocol as its result does.
//!
//! Cost: 128 bits for each sum and chunk, and no round.

use mpc_core::{Error, Result, Sums};
use ring_arith::{Bilinear, Engine, EngineTensor, Shape, Tensor, View};

use crate::{
    kernels::Difference,
    runtime::{
        chunks::Chunk,
        launch::map,
        prss::{Key, Sample},
        roles::Pair,
        rounds::Port,
    },
};

/// The factors of a chunk's elements.
pub(crate) struct ChunkSums<T> {
    parts: usize,
    lists: usize,
    /// For each part the first of its elements in the chunk, their number, and their factors `[lists, len]`.
    /// `None` for a part without elements in the chunk.
    pieces: Vec<Option<(usize, usize, T)>>,
}

/// The samples of a chunk's sums: components 0 and 1.
pub(crate) struct SampledSums<T> {
    of: ChunkSums<T>,
    y: [Sample; 2],
    rectified: bool,
}

impl<T> ChunkSums<T> {
    /// The factors of a chunk of a result of `elements` elements.
    pub fn new<E: Engine<Tensor = T>>(
        engine: &E,
        sums: Sums<'_>,
        elements: usize,
        chunk: &Chunk,
    ) -> Result<Self> {
        let lists = sums.lists(elements)?;
        let part = elements / sums.parts;
        let mut pieces = Vec::with_capacity(sums.parts);
        for at in 0..sums.parts {
            let start = chunk.range.start.max(at * part);
            let end = chunk.range.end.min((at + 1) * part);
            if start >= end {
                pieces.push(None);
                continue;
            }
            let factors = Tensor::new(Shape::new([lists, end - start])?, sums.of(start..end))?;
            pieces.push(Some((start - chunk.range.start, end - start, engine.upload(factors)?)));
        }
        Ok(Self { parts: sums.parts, lists, pieces })
    }

    /// The number of sums.
    fn len(&self) -> usize {
        self.parts * self.lists
    }

    /// The sums of one addend of the chunk's elements.
    pub fn of_addend<E: Engine<Tensor = T>>(&self, engine: &E, addend: &T) -> Result<T> {
        let mut sums = Vec::with_capacity(self.parts);
        for piece in &self.pieces {
            sums.push(match piece {
                None => engine.upload(Tensor::zeros(Shape::new([self.lists])?))?,
                Some((start, len, factors)) => {
                    let slice = View::Slice { axis: 0, start: *start, end: start + len, step: 1 };
                    let column = engine.view(addend, &slice)?;
                    let column = engine.view(&column, &View::Reshape(Shape::new([*len, 1])?))?;
                    let sums = engine.bilinear(&Bilinear::MATMUL, &[(factors, &column)], &[])?;
                    engine.view(&sums, &View::Reshape(Shape::new([self.lists])?))?
                }
            });
        }
        Ok(engine.concat(&sums.iter().collect::<Vec<_>>(), 0)?)
    }
}

impl<T: EngineTensor> SampledSums<T> {
    /// Of a value that is rectified, or masked.
    pub fn sample<E: Engine<Tensor = T>>(
        p: &mut Port<'_, E>,
        of: ChunkSums<T>,
        rectified: bool,
    ) -> Self {
        let y = [Key::Right, Key::Left].map(|key| p.sample(key, of.len()));
        Self { of, y, rectified }
    }

    /// True if the selecting bit is the value's own sign: then it must match the value.
    pub fn rectified(&self) -> bool {
        self.rectified
    }

    /// The dealer's two components.
    pub fn deal<E: Engine<Tensor = T>>(&self, p: &Port<'_, E>) -> Result<Pair<T>> {
        let [y0, y1] = self.y;
        Ok(Pair(p.tensor_of(y0)?, p.tensor_of(y1)?))
    }

    /// An evaluator's addend of component 2, and the component that it shares with the dealer, given its addend of the
    /// chunk's elements.
    pub fn addend<E: Engine<Tensor = T>>(&self, p: &Port<'_, E>, addend: &T) -> Result<[T; 2]> {
        let [y0, y1] = self.y;
        let y = p.tensor_of(p.own([y1, y0]))?;
        let sums = self.of.of_addend(p.engine, addend)?;
        let addend = map(p.engine, &Difference, sums.shape(), [&sums, &y], &[])?;
        Ok([addend, y])
    }
}

/// The error of sums that a protocol left out.
pub(crate) fn unanswered() -> Error {
    Error::Invalid { op: "sums", reason: "a chunk has no sums".to_owned() }
}
