//! The gradient of a maximum: words return to the elements that won, the dealer running ahead.
//!
//! From the last level of the tournament down, each word is selected by the level's choice, which can be used again
//! since it was opened. The dealer's components of a selection's result are streams, so it computes all levels before
//! the evaluators begin; they need one exchange a level. Cost: 192 bits for each comparison of the tournament;
//! `1 + ceil(log2 k)` rounds.

use mpc_core::{Result, ShareTensor};
use ring_arith::{Engine, Shape, Source, Target};

use crate::{
    BitShare, Rss, Share,
    compare::select::{Factor, MaskWords, Selected, Selection},
    kernels::Split,
    proofs::Bits,
    runtime::{
        chunks::{Chunk, Layout},
        launch::{self, slice},
        roles::Pair,
        rounds::{Port, Rounds},
    },
    share::{
        output::{Outputs, Slot},
        reusable::{ReusableBit, ReusableChunk},
    },
};

/// A level of a tournament whose choices are used again.
struct Level<'a, E: Engine> {
    p: Port<'a, E>,
    /// Elements before the level.
    len: usize,
    /// The plane of the choices that this party knows.
    known: E::Tensor,
    opposite: bool,
    u: MaskWords<E::Tensor>,
    selection: Selection,
}

impl<E: Engine> Rss<E> {
    /// The reusable bits of a tournament's choices, if all levels have the same chunks.
    pub(crate) fn reusable_choices(
        choices: &[BitShare<E::Tensor>],
    ) -> Option<Vec<&ReusableBit<E::Tensor>>> {
        let bits: Vec<_> = choices.iter().map(BitShare::reusable).collect::<Option<_>>()?;
        let first = bits.first()?;
        let alike = bits.iter().zip(choices).all(|(bit, choice)| {
            let chunks = bit.chunks.iter().map(|part| &part.chunk);
            bit.layout.rows == choice.shape().dims()[0]
                && chunks.eq(first.chunks.iter().map(|part| &part.chunk))
        });
        mutant!("gradient: choices that were cut otherwise", alike = true);
        alike.then_some(bits)
    }

    /// The gradient of a tournament's largest elements; `levels` have the lengths before each.
    pub(crate) fn scatter(
        &mut self,
        gradient: &Share<E::Tensor>,
        levels: &[(usize, &ReusableBit<E::Tensor>)],
    ) -> Result<Share<E::Tensor>> {
        let words = self.flat_pair(gradient)?;
        let chunks: Vec<Chunk> = levels[0].1.chunks.iter().map(|part| part.chunk.clone()).collect();
        let mut rounds = Rounds::new();
        for (i, chunk) in chunks.iter().enumerate() {
            let mut steps = Vec::with_capacity(levels.len());
            for &(len, bit) in levels {
                let part = &bit.chunks[i];
                steps.push(Level::sample(self.port(chunk), len, chunk.len(), bit.negated, part));
            }
            let nodes = self.chunk_of(&words, chunk)?;
            rounds.add(chunk.roles(self.party()).role, scatter(steps, nodes, chunk.len()));
        }
        let made = rounds.run(&self.links)?;
        let rows = levels[0].0;
        let shape = Shape::new([&[rows], &gradient.shape().dims()[1..]].concat())?;
        let output = Outputs::scattered(self.party(), chunks, Layout { rows }, shape, 1);
        output.share(&self.engine, made)
    }
}

/// The gradient of one chunk with `results` results, from the last level down to the first.
async fn scatter<E: Engine>(
    levels: Vec<Level<'_, E>>,
    mut nodes: Pair<E::Tensor>,
    results: usize,
) -> Result<Pair<E::Tensor>> {
    match &levels[..] {
        [] => {}
        [.., last] if last.p.deals() => {
            for level in levels.iter().rev() {
                let selected = level.selected(&nodes, results)?;
                let later = level.selection.deal(&level.p, &level.words(results)?, &selected)?;
                nodes = level.spread(&nodes, &later[0], results)?;
            }
        }
        [.., last] => {
            let dealt = last.p.dealt().await;
            let mut products = Vec::with_capacity(levels.len());
            for level in levels.iter().rev() {
                let dealt = dealt.at(&level.p);
                let u = level.u.read(level.p.role(), &dealt)?;
                products.push((u, level.selection.read(level.p.role(), &dealt, 1)?));
            }
            for (level, (u, products)) in levels.iter().rev().zip(products) {
                let p = &level.p;
                let v = level.words(results)?;
                let selected = level.selected(&nodes, results)?;
                let later = level.selection.select(p, &u, products, v, &selected).await?;
                nodes = level.spread(&nodes, &later[0], results)?;
            }
        }
    }
    Ok(nodes)
}

impl<'a, E: Engine> Level<'a, E> {
    fn sample(
        mut p: Port<'a, E>,
        len: usize,
        results: usize,
        opposite: bool,
        ReusableChunk { known, share, .. }: &ReusableChunk<E::Tensor>,
    ) -> Self {
        mutant!("gradient: to those that lost", opposite = !opposite);
        let u = MaskWords::Reused(share.clone());
        let selection = Selection::sample(&mut p, len / 2 * results, 1);
        Self { p, len, known: known.clone(), opposite, u, selection }
    }

    /// This party's part of the choices, as words.
    fn words(&self, results: usize) -> Result<E::Tensor> {
        self.p.bits_as_words(&self.known, self.len / 2 * results)
    }

    /// The words of the later one of each pair.
    fn selected(
        &self,
        nodes: &Pair<E::Tensor>,
        results: usize,
    ) -> Result<Vec<Selected<E::Tensor>>> {
        let n = self.len / 2 * results;
        let winners = nodes.try_map(|x| Ok(slice(self.p.engine, x, 0, 0, n)?))?;
        let factor = Factor::Word(winners);
        let selected = Selected { factor, opposite: self.opposite, slot: Slot::anywhere() };
        self.p.owe({
            let u = self.u.clone();
            let selection = self.selection.clone();
            let known = self.known.clone();
            let stated = [selected.stated()];
            move |t| {
                let k = u.relations(t, n, &Bits::zero())?;
                let v = t.joint(&known)?;
                selection.relations(t, &k, &v, &stated).map(drop)
            }
        });
        Ok(vec![selected])
    }

    /// The words of all elements of the level, given those of the later ones.
    fn spread(
        &self,
        nodes: &Pair<E::Tensor>,
        later: &Pair<E::Tensor>,
        results: usize,
    ) -> Result<Pair<E::Tensor>> {
        let first = self.spread_one([&nodes.0, &later.0], results)?;
        Ok(Pair(first, self.spread_one([&nodes.1, &later.1], results)?))
    }

    fn spread_one(&self, [nodes, later]: [&E::Tensor; 2], cols: usize) -> Result<E::Tensor> {
        let engine = self.p.engine;
        let pairs = self.len / 2;
        let sources = [Source::rows_of(nodes, cols), Source::rows_of(later, cols)];
        let shape = Shape::new([2 * pairs * cols])?;
        let targets = [0, cols].map(|offset| Target { tensor: 0, offset, row_stride: 2 * cols });
        let both = launch::rows(engine, &Split, [pairs, cols], sources, shape, targets)?;
        if self.len.is_multiple_of(2) {
            return Ok(both);
        }
        // The element without a pair moved up unchanged.
        let odd = slice(engine, nodes, 0, pairs * cols, (pairs + 1) * cols)?;
        Ok(engine.concat(&[&both, &odd], 0)?)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use mpc_core::{Largest, Protocol, SplitMix64, TestWorld, provided};
    use net::Party;
    use ring_arith::{CpuEngine, Tensor};

    use super::*;

    const RESULTS: usize = 70;

    /// Choices that two dealers made cannot be taken chunk by chunk: they give the gradient all the same.
    #[test]
    pub(crate) fn choices_that_were_cut_otherwise_give_the_same_gradient() {
        let world = TestWorld::new(3).with_seed(17);
        let make = |session| Rss::new(session, CpuEngine::new(1));
        let opened = world.run(make, |mpc| {
            let mut draw = SplitMix64::new(23);
            let shapes = [vec![4, RESULTS], vec![1, RESULTS]];
            let shapes = shapes.map(|dims| Shape::new(dims).unwrap());
            let values = shapes.clone().map(|shape| Tensor::from_fn(shape, |_| draw.signed(20)));
            let mine = (mpc.me() == Party(0)).then_some(&values[..]);
            let shares = mpc.input(Party(0), &shapes, mine)?;
            let want = Largest { choices: true, ..Largest::default() };
            let mut choices = mpc.max_first(&shares[0], 22, want)?.choices;
            // So many elements later another party deals.
            mpc.next_dealer(1 << 20);
            choices[1] = mpc.max_first(&shares[0], 22, want)?.choices.remove(1);
            let bits: Vec<_> = choices.iter().map(|bits| bits.reusable().unwrap()).collect();
            let chunks = |bit: &ReusableBit<Tensor>| -> Vec<Chunk> {
                bit.chunks.iter().map(|part| part.chunk.clone()).collect()
            };
            assert_ne!(chunks(bits[0]), chunks(bits[1]));
            let here = mpc.max_first_gradient(&shares[1], &choices)?;
            let there = provided::max_first_gradient(mpc, &shares[1], &choices)?;
            mpc.open(&[&here, &there])
        });
        assert_eq!(opened[0][0].words(), opened[0][1].words());
        assert!(opened[0][0].words().iter().any(|word| *word != 0));
    }
}
