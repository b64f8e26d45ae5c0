//! Shared bits times words, and shared bits as words: see [`crate::compare::select`].

use mpc_core::{Result, ShareBits, ShareTensor};
use ring_arith::{BitTensor, Engine, EngineTensor};

use crate::{
    BitShare, Rss, Share,
    compare::{
        StatedBit,
        select::{Factor, MaskWords, Selected, Selection, words},
    },
    kernels::Xor,
    proofs::{Bits, Transcript},
    runtime::{
        chunks::{Chunk, Layout},
        launch::{map, slice},
        roles::{Pair, Role, Roles},
        rounds::{Port, Rounds},
    },
    share::{
        output::Outputs,
        reusable::{Bit, Origin},
    },
};

/// A bit, and words that it is multiplied with.
type BitAndWords<'a, T> = (&'a BitShare<T>, &'a [&'a Share<T>]);

/// A plane of bits, and the words that it selects.
struct Job<'a, T> {
    bits: &'a BitShare<T>,
    plane: usize,
    factors: Vec<WholeFactor<T>>,
}

/// A bit's factor: a share's own component and the next, or 1.
enum WholeFactor<T> {
    Word([T; 2]),
    One,
}

impl<E: Engine> Rss<E> {
    /// A bit times words. Cost: 64 bits unless the bit is used again, and 192 for each word; 2 rounds.
    pub(crate) fn selections(
        &mut self,
        jobs: &[BitAndWords<'_, E::Tensor>],
    ) -> Result<Vec<Vec<Share<E::Tensor>>>> {
        let mut selections = Vec::with_capacity(jobs.len());
        for (bits, xs) in jobs {
            let words = xs.iter().map(|x| Ok(WholeFactor::Word(self.flat_pair(x)?)));
            let factors = words.collect::<Result<_>>()?;
            selections.push(Job { bits, plane: 0, factors });
        }
        self.run_selections(&selections)
    }

    /// Every plane as words. Cost: 192 bits for each, 128 for a bit that is used again; 2 rounds.
    pub(crate) fn planes_as_words(
        &mut self,
        jobs: &[&BitShare<E::Tensor>],
    ) -> Result<Vec<Vec<Share<E::Tensor>>>> {
        let mut selections = Vec::new();
        for bits in jobs {
            for plane in 0..bits.width() {
                selections.push(Job { bits, plane, factors: vec![WholeFactor::One] });
            }
        }
        let mut planes = self.run_selections(&selections)?.into_iter().flatten();
        Ok(jobs.iter().map(|bits| planes.by_ref().take(bits.width()).collect()).collect())
    }

    fn run_selections(&self, jobs: &[Job<'_, E::Tensor>]) -> Result<Vec<Vec<Share<E::Tensor>>>> {
        let mut rounds = Rounds::new();
        let mut outputs = Vec::with_capacity(jobs.len());
        for Job { bits, plane, factors } in jobs {
            let shape = bits.shape().clone();
            let reusable = bits.reusable();
            let (layout, chunks) = match reusable {
                Some(bit) => {
                    (bit.layout, bit.chunks.iter().map(|part| part.chunk.clone()).collect())
                }
                None => (Layout::FLAT, self.chunks(shape.len())),
            };
            let output = match layout {
                Layout::FLAT => self.outputs(chunks, shape, factors.len()),
                _ => Outputs::scattered(self.party(), chunks, layout, shape, factors.len()),
            };
            for (i, chunk) in output.chunks.iter().enumerate() {
                let p = self.port(chunk);
                let bit = match reusable {
                    Some(bit) => {
                        let part = &bit.chunks[i];
                        let origin = Origin::Opened(part.share.clone());
                        Bit { known: part.known.clone(), opposite: bit.negated, origin }
                    }
                    None => self.shared_bit(bits, *plane, chunk, &p.roles)?,
                };
                let mut selected = Vec::with_capacity(factors.len());
                for (factor, slot) in factors.iter().zip(output.slots(chunk)) {
                    let factor = match factor {
                        WholeFactor::One => Factor::One,
                        WholeFactor::Word([mine, next]) => {
                            let mine = layout.take(&self.engine, mine, chunk)?;
                            let next = layout.take(&self.engine, next, chunk)?;
                            Factor::Word(p.roles.pair(mine, next))
                        }
                    };
                    selected.push(Selected { factor, opposite: bit.opposite, slot });
                }
                rounds.add(p.role(), select(p, bit, layout.len(chunk), selected));
            }
            outputs.push(output);
        }
        let mut made = rounds.run(&self.links)?.into_iter();
        let mut results = Vec::with_capacity(jobs.len());
        for output in outputs {
            let made = made.by_ref().take(output.chunks.len());
            results.push(output.shares(&self.engine, made)?);
        }
        Ok(results)
    }

    /// A plane of a chunk of shared bits.
    pub(crate) fn shared_bit(
        &self,
        bits: &BitShare<E::Tensor>,
        plane: usize,
        chunk: &Chunk,
        roles: &Roles,
    ) -> Result<Bit<E::Tensor>> {
        let engine = &self.engine;
        let columns = chunk.range.start / 64..chunk.range.end.div_ceil(64);
        mutant!("bits: every piece from the first column on", columns = 0..columns.len());
        let columns_of = |side: &BitTensor<E::Tensor>| -> Result<_> {
            let plane = slice(engine, side.planes(), 0, plane, plane + 1)?;
            Ok(slice(engine, &plane, 1, columns.start, columns.end)?)
        };
        let components = roles.pair(columns_of(bits.mine())?, columns_of(bits.next())?);
        let Pair(first, second) = &components;
        let known = match roles.role {
            Role::Dealer => map(engine, &Xor, first.shape(), [first, second], &[])?,
            Role::Left => second.clone(),
            Role::Right => first.clone(),
        };
        Ok(Bit { known, opposite: false, origin: Origin::Shared(components) })
    }
}

/// A bit of one chunk times words of `n` elements.
async fn select<E: Engine>(
    mut p: Port<'_, E>,
    Bit { known, origin, .. }: Bit<E::Tensor>,
    n: usize,
    selected: Vec<Selected<E::Tensor>>,
) -> Result<Vec<Pair<E::Tensor>>> {
    let u = MaskWords::sample_or_reuse(&mut p, &origin, n);
    let selection = Selection::sample(&mut p, n, selected.len());
    p.owe({
        let stated: Vec<_> = selected.iter().map(Selected::stated).collect();
        let v = known.clone();
        let u = u.clone();
        let selection = selection.clone();
        move |t| {
            let bit = stated_bit(t, &origin, &v)?;
            let k = u.relations(t, n, &bit.u)?;
            selection.relations(t, &k, &bit.v, &stated).map(drop)
        }
    });
    let known = p.bits_as_words(&known, n)?;
    if p.deals() {
        u.deal(&p, &known)?;
        return selection.deal(&p, &known, &selected);
    }
    let dealt = p.dealt().await;
    let u = u.read(p.role(), &dealt)?;
    let products = selection.read(p.role(), &dealt, words(&selected))?;
    selection.select(&p, &u, products, known, &selected).await
}

/// A bit as relations need it. Of one that was opened before, `u` was proven then.
fn stated_bit<E: Engine>(
    t: &Transcript<'_, E>,
    origin: &Origin<E::Tensor>,
    known: &E::Tensor,
) -> Result<StatedBit> {
    if let Origin::Shared(components) = origin {
        let [x0, x1, v]: [Bits; 3] = t.components(components)?;
        return Ok(StatedBit { u: x0 + x1, v });
    }
    Ok(StatedBit { u: Bits::zero(), v: t.joint(known)? })
}
