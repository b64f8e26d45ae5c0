//! Results of an operation, joined from its chunks.

use mpc_core::Result;
use net::Party;
use ring_arith::{BitTensor, Engine, EngineTensor, Place, Shape, View};

use super::{
    BitShare, Share,
    reusable::{OpenedBit, ReusableBit, ReusableChunk},
};
use crate::runtime::{
    chunks::{Chunk, Layout},
    launch::invalid,
    roles::{Pair, Role, Roles},
    rounds::Port,
};

/// The results of one operation: the layout of its chunks, and buffers in which these make their
/// words.
///
/// Without buffers a product of 10^6 words took 40 % longer, a ReLU 15 %, since every result was copied once more.
pub(crate) struct Outputs<T: EngineTensor> {
    me: Party,
    pub chunks: Vec<Chunk>,
    layout: Layout,
    shape: Shape,
    /// One for each result.
    buffers: Vec<Buffers<T>>,
}

/// Buffers for both components of a result. `None` for a single chunk, for chunks that are not contiguous, or for an
/// engine without rooms.
struct Buffers<T: EngineTensor>(Option<[T::Room; 2]>);

/// The place of a chunk's two components in a result's buffers.
pub(crate) struct Slot<T: EngineTensor> {
    buffers: Option<Pair<T::Room>>,
    start: usize,
}

impl<T: EngineTensor> Outputs<T> {
    /// `results` tensors of a shape, made by chunks of consecutive elements.
    pub fn new<E: Engine<Tensor = T>>(
        engine: &E,
        me: Party,
        chunks: Vec<Chunk>,
        shape: Shape,
        results: usize,
    ) -> Self {
        let mut outputs = Self::scattered(me, chunks, Layout::FLAT, shape, results);
        if outputs.chunks.len() > 1 {
            let len = outputs.shape.len();
            for Buffers(buffers) in &mut outputs.buffers {
                *buffers = engine.room(len).zip(engine.room(len)).map(|(mine, next)| [mine, next]);
            }
        }
        outputs
    }

    /// As [`Outputs::new`], for chunks in the given layout. They are copied once more.
    pub fn scattered(
        me: Party,
        chunks: Vec<Chunk>,
        layout: Layout,
        shape: Shape,
        results: usize,
    ) -> Self {
        let buffers = (0..results).map(|_| Buffers(None)).collect();
        Self { me, chunks, layout, shape, buffers }
    }

    /// This party's roles in a chunk.
    pub fn roles(&self, chunk: &Chunk) -> Roles {
        chunk.roles(self.me)
    }

    /// The place of a chunk in each result.
    pub fn slots(&self, chunk: &Chunk) -> Vec<Slot<T>> {
        let roles = self.roles(chunk);
        let mut slots = Vec::with_capacity(self.buffers.len());
        for Buffers(buffers) in &self.buffers {
            let buffers = buffers.clone().map(|[mine, next]| roles.pair(mine, next));
            slots.push(Slot { buffers, start: chunk.range.start });
        }
        slots
    }

    /// The place of a chunk in the only result.
    pub fn slot(&self, chunk: &Chunk) -> Slot<T> {
        self.slots(chunk).pop().unwrap_or_else(Slot::anywhere)
    }

    /// Both components of each result, given the role's components from each chunk.
    pub fn components<E: Engine<Tensor = T>>(
        &self,
        engine: &E,
        made: impl IntoIterator<Item = Vec<Pair<T>>>,
    ) -> Result<Vec<[T; 2]>> {
        let mut sides: Vec<[Vec<(usize, T)>; 2]> =
            self.buffers.iter().map(|_| [Vec::new(), Vec::new()]).collect();
        for (chunk, results) in self.chunks.iter().zip(made) {
            let roles = self.roles(chunk);
            for (sides, pair) in sides.iter_mut().zip(results) {
                for (side, part) in sides.iter_mut().zip(roles.mine_and_next(pair)) {
                    side.push((chunk.range.start, part));
                }
            }
        }
        let mut results = Vec::with_capacity(sides.len());
        for ([mine, next], Buffers(buffers)) in sides.into_iter().zip(&self.buffers) {
            let [first, second] =
                buffers.as_ref().map_or([None, None], |[x, y]| [Some(x), Some(y)]);
            results.push([
                self.layout.assemble(engine, first, mine, &self.shape)?,
                self.layout.assemble(engine, second, next, &self.shape)?,
            ]);
        }
        Ok(results)
    }

    /// As [`Outputs::components`], as shares.
    pub fn shares<E: Engine<Tensor = T>>(
        &self,
        engine: &E,
        made: impl IntoIterator<Item = Vec<Pair<T>>>,
    ) -> Result<Vec<Share<T>>> {
        let components = self.components(engine, made)?;
        components.into_iter().map(|[mine, next]| Ok(Share::new(mine, next)?)).collect()
    }

    /// As [`Outputs::shares`], of the only result.
    pub fn share<E: Engine<Tensor = T>>(
        &self,
        engine: &E,
        made: impl IntoIterator<Item = Pair<T>>,
    ) -> Result<Share<T>> {
        let made = made.into_iter().map(|pair| vec![pair]);
        let only = self.shares(engine, made)?.pop();
        only.ok_or_else(|| invalid("outputs", "an operation has no result"))
    }

    /// A bit that was opened in each chunk, which selections can use again if all chunks allow it.
    pub fn bits<E: Engine<Tensor = T>>(
        &self,
        engine: &E,
        opened: impl IntoIterator<Item = OpenedBit<T>>,
    ) -> Result<BitShare<T>> {
        let mut mine = Vec::new();
        let mut next = Vec::new();
        let mut reusable = Vec::new();
        for (chunk, bit) in self.chunks.iter().zip(opened) {
            let [own, other] = self.roles(chunk).mine_and_next(bit.components);
            mine.push((chunk, own));
            next.push((chunk, other));
            let chunk = chunk.clone();
            reusable.extend(bit.share.map(|share| ReusableChunk {
                chunk,
                known: bit.known,
                share,
            }));
        }
        let complete = reusable.len() == mine.len();
        let bits = BitShare::new(self.planes(engine, mine)?, self.planes(engine, next)?)?;
        let reusable = ReusableBit { layout: self.layout, chunks: reusable.into(), negated: false };
        Ok(if complete { bits.reusable_as(reusable) } else { bits })
    }

    /// One plane from those of the chunks.
    fn planes<E: Engine<Tensor = T>>(
        &self,
        engine: &E,
        planes: Vec<(&Chunk, T)>,
    ) -> Result<BitTensor<T>> {
        let shape = &self.shape;
        // Planes are contiguous if each chunk begins at a new word.
        let aligned = self.layout == Layout::FLAT
            && planes.iter().all(|(chunk, _)| chunk.range.start.is_multiple_of(64));
        mutant!("kept: pieces joined as if aligned", aligned = true);
        if aligned || planes.len() == 1 {
            let planes = planes.into_iter().map(|(chunk, bits)| (chunk.range.start, bits));
            let plane = Shape::new([1, shape.len().div_ceil(64)])?;
            let plane = assemble(engine, None, planes.collect(), 1, &plane)?;
            return Ok(BitTensor::new(shape.clone(), plane)?);
        }
        let mut words = Vec::with_capacity(planes.len());
        for (chunk, bits) in planes {
            let len = Shape::new([self.layout.len(chunk)])?;
            words.push((chunk.range.start, engine.from_planes(&bits, 0, &len)?));
        }
        let words = self.layout.assemble(engine, None, words, &Shape::new([shape.len()])?)?;
        Ok(BitTensor::new(shape.clone(), engine.to_planes(&words, 0, 1)?)?)
    }
}

impl<T: EngineTensor> Slot<T> {
    /// A slot for a separate tensor.
    pub fn anywhere() -> Self {
        Self { buffers: None, start: 0 }
    }

    /// The first component's.
    pub fn first(&self) -> Option<Place<'_, T>> {
        self.buffers.as_ref().map(|Pair(room, _)| Place { room, start: self.start })
    }

    /// The second component's.
    pub fn second(&self) -> Option<Place<'_, T>> {
        self.buffers.as_ref().map(|Pair(_, room)| Place { room, start: self.start })
    }

    /// At an evaluator, the slot of the component shared with the dealer.
    pub fn shared(&self, role: Role) -> Option<Place<'_, T>> {
        if role == Role::Left { self.first() } else { self.second() }
    }

    /// At an evaluator, the slot of the component shared with its peer.
    pub fn joint(&self, role: Role) -> Option<Place<'_, T>> {
        if role == Role::Left { self.second() } else { self.first() }
    }
}

/// The evaluators exchange their addends of component 2 of each result. This gives their two components; the one
/// shared with the dealer is known.
pub(crate) async fn exchange<'s, E: Engine>(
    p: &Port<'_, E>,
    addends: Vec<[E::Tensor; 2]>,
    slots: impl Iterator<Item = &'s Slot<E::Tensor>>,
) -> Result<Vec<Pair<E::Tensor>>> {
    addends.iter().try_for_each(|[addend, _]| p.to_peer(addend))?;
    let received = p.received().await;
    let mut results = Vec::with_capacity(addends.len());
    for ([addend, shared], slot) in addends.into_iter().zip(slots) {
        let other = received.words(addend.len())?;
        let joint = p.sum_into(&addend, &other, slot.joint(p.role()))?;
        results.push(p.pair(shared, joint));
    }
    Ok(results)
}

impl<T: EngineTensor> Slot<T> {
    /// As [`exchange`], of one result, which belongs here.
    pub async fn exchange<E: Engine<Tensor = T>>(
        &self,
        p: &Port<'_, E>,
        [addend, shared]: [T; 2],
    ) -> Result<Pair<T>> {
        p.to_peer(&addend)?;
        let other = p.received().await.words(addend.len())?;
        let joint = p.sum_into(&addend, &other, self.joint(p.role()))?;
        Ok(p.pair(shared, joint))
    }
}

impl Layout {
    /// Joins chunks of one axis, in any order, under a shape.
    fn assemble<E: Engine>(
        self,
        engine: &E,
        buffer: Option<&<E::Tensor as EngineTensor>::Room>,
        chunks: Vec<(usize, E::Tensor)>,
        shape: &Shape,
    ) -> Result<E::Tensor> {
        if self == Self::FLAT {
            return assemble(engine, buffer, chunks, 0, shape);
        }
        let mut rows = Vec::with_capacity(chunks.len());
        for (start, chunk) in chunks {
            rows.push((start, engine.view(&chunk, &View::Reshape(self.shape(chunk.len())?))?));
        }
        assemble(engine, None, rows, 1, shape)
    }
}

/// Joins chunks of one tensor, in any order, along an axis and under a shape.
pub(crate) fn assemble<E: Engine>(
    engine: &E,
    buffer: Option<&<E::Tensor as EngineTensor>::Room>,
    mut chunks: Vec<(usize, E::Tensor)>,
    axis: usize,
    shape: &Shape,
) -> Result<E::Tensor> {
    chunks.sort_by_key(|(start, _)| *start);
    let parts: Vec<_> = chunks.iter().map(|(_, chunk)| chunk).collect();
    let whole = match (&parts[..], buffer.and_then(|buffer| engine.seal(buffer, &parts, shape))) {
        (_, Some(whole)) => whole,
        (&[only], None) => only.clone(),
        _ => engine.concat(&parts, axis)?,
    };
    if whole.shape() == shape {
        return Ok(whole);
    }
    Ok(engine.view(&whole, &View::Reshape(shape.clone()))?)
}
