//! The largest of three or four words at once: all pairs are compared in the same rounds.
//!
//! A word is the largest if it beats all others, equals going to the earlier one. That is a product of bits `u ^ v`, the
//! outcomes of its comparisons, `u` known to the dealer and `v` to both evaluators. The dealer shares the products of
//! all subsets of each word's bits of `u`, and those times its part of the word less the last one; once `v` is known the
//! rest is local but for one exchange, as of a selection ([`crate::compare::select`]). The last word's own bits are not
//! needed: where no other is the largest, it is.
//! Cost of four words at width 44 by fours: 1416 bits for six comparisons, 2624 for what follows, 1344 for a further
//! tensor. Rounds: those of a selection by a comparison.

use std::sync::Arc;

use mpc_core::Result;
use ring_arith::{Engine, Source};

use crate::{
    circuit::{evaluate::CircuitMessage, schedule::Circuit},
    compare::{Comparison, MaskedBit},
    kernels::{BitProducts, Difference, GainDealer, GainEvaluator, Negate},
    runtime::{
        launch::{array, slice, whole},
        prss::{Key, Sample},
        roles::Pair,
        rounds::{Incoming, Port},
    },
    share::output::{Slot, exchange},
};

/// The role's two components of each member of the groups.
pub(crate) type Members<T> = Vec<Pair<T>>;

/// The samples of comparisons of all pairs of three or four members, and of the largest less the last.
pub(crate) struct OfFour {
    /// Groups.
    n: usize,
    /// Members but the last: those with their own bits.
    bits: usize,
    /// Pairs of members, the earlier one first.
    pairs: Vec<[usize; 2]>,
    signs: MaskedBit,
    /// By pair: left's share of its bit of `u`.
    u: Vec<Sample>,
    /// By member but the last, left's shares of the products of several bits.
    products: Vec<Vec<Sample>>,
    /// By tensor and member but the last, right's shares of the dealer's part times the products of each subset.
    parts: Vec<Vec<Vec<Sample>>>,
    /// By tensor, components 0 and 1 of the result.
    results: Vec<[Sample; 2]>,
}

/// The dealer's message to an evaluator: at right the products of bits, at left those times its parts.
pub(crate) struct GroupMessage<T> {
    circuit: CircuitMessage<T>,
    shares: Vec<T>,
}

/// Subsets of more than one of two or three bits, in the order of kernels.
fn several(bits: usize) -> &'static [usize] {
    if bits == 2 { &[3] } else { &[3, 5, 6, 7] }
}

impl OfFour {
    /// For `n` groups of three or four members, of one tensor or two.
    pub fn sample<E: Engine>(
        p: &mut Port<'_, E>,
        circuit: Arc<Circuit>,
        n: usize,
        members: usize,
        tensors: usize,
    ) -> Self {
        let pairs: Vec<_> = (0..members).flat_map(|j| (0..j).map(move |i| [i, j])).collect();
        let comparison = Comparison { circuit, top: true, low: 0 };
        let signs = MaskedBit::sample(p, comparison, pairs.len() * n);
        let bits = members - 1;
        let mut samples =
            |key, count: usize| -> Vec<Sample> { (0..count).map(|_| p.sample(key, n)).collect() };
        let u = samples(Key::Left, pairs.len());
        let products = (0..bits).map(|_| samples(Key::Left, several(bits).len())).collect();
        let parts = (0..tensors)
            .map(|_| (0..bits).map(|_| samples(Key::Right, (1 << bits) - 1)).collect())
            .collect();
        let results =
            (0..tensors).map(|_| [Key::Right, Key::Left].map(|key| p.sample(key, n))).collect();
        Self { n, bits, pairs, signs, u, products, parts, results }
    }

    /// For each bit of a member: its pair, and true if the bit is the outcome's opposite. An outcome is 1 if the
    /// earlier of a pair is less.
    fn bits_of(&self, member: usize) -> Vec<(usize, bool)> {
        let mut bits = Vec::with_capacity(self.bits);
        for (at, &[earlier, later]) in self.pairs.iter().enumerate() {
            if earlier == member || later == member {
                bits.push((at, earlier == member));
            }
        }
        bits
    }

    /// Differences of all pairs, of one component of the values.
    fn differences<E: Engine>(
        &self,
        p: &Port<'_, E>,
        values: &Members<E::Tensor>,
        component: impl Fn(&Pair<E::Tensor>) -> &E::Tensor,
    ) -> Result<E::Tensor> {
        let mut differences = Vec::with_capacity(self.pairs.len());
        for &[i, j] in &self.pairs {
            let operands = [component(&values[i]), component(&values[j])];
            differences.push(p.map(&Difference, operands, &[])?);
        }
        Ok(p.engine.concat(&differences.iter().collect::<Vec<_>>(), 0)?)
    }

    /// The bits of a plane as words, by pair.
    fn by_pair<E: Engine>(&self, p: &Port<'_, E>, plane: &E::Tensor) -> Result<Vec<E::Tensor>> {
        let n = self.n;
        let all = p.bits_as_words(plane, self.pairs.len() * n)?;
        (0..self.pairs.len())
            .map(|at| Ok(slice(p.engine, &all, 0, at * n, (at + 1) * n)?))
            .collect()
    }

    // -- the dealer ------------------------------------------------------------------------------

    /// The dealer's work: for each tensor its two components of the largest less the last.
    pub fn deal<E: Engine>(
        &self,
        p: &Port<'_, E>,
        tensors: &[Members<E::Tensor>],
    ) -> Result<Vec<Pair<E::Tensor>>> {
        let first = self.differences(p, &tensors[0], |x| &x.0)?;
        let second = self.differences(p, &tensors[0], |x| &x.1)?;
        let u = self.signs.deal(p, &p.dealers(&Pair(first, second))?)?;
        let u = self.by_pair(p, &u)?;
        self.deal_bits(p, &u)?;
        self.deal_parts(p, tensors, &u)?;
        self.results.iter().map(|&[y0, y1]| Ok(Pair(p.tensor_of(y0)?, p.tensor_of(y1)?))).collect()
    }

    /// Shares the products of bits.
    fn deal_bits<E: Engine>(&self, p: &Port<'_, E>, u: &[E::Tensor]) -> Result<()> {
        let n = self.n;
        for (u, &mask) in u.iter().zip(&self.u) {
            let [share] = p.words(&Difference, n, [whole(u), p.words_of(mask)], &[])?;
            p.to_right(&share)?;
        }
        for (member, masks) in self.products.iter().enumerate() {
            let mut sources = self.sources_of(member, u);
            sources.extend(masks.iter().map(|&mask| p.words_of(mask)));
            let shares = match self.bits {
                2 => p.words(&BitProducts::<2>, n, array(sources), &[])?.to_vec(),
                _ => p.words(&BitProducts::<3>, n, array(sources), &[])?.to_vec(),
            };
            shares.iter().try_for_each(|share| p.to_right(share))?;
        }
        Ok(())
    }

    /// Shares the dealer's parts times the products of bits.
    fn deal_parts<E: Engine>(
        &self,
        p: &Port<'_, E>,
        tensors: &[Members<E::Tensor>],
        u: &[E::Tensor],
    ) -> Result<()> {
        for (members, masks) in tensors.iter().zip(&self.parts) {
            let last = &members[self.bits];
            for (member, masks) in masks.iter().enumerate() {
                let x = &members[member];
                let mut sources = self.sources_of(member, u);
                sources.extend([&x.0, &x.1, &last.0, &last.1].map(whole));
                sources.extend(masks.iter().map(|&mask| p.words_of(mask)));
                let shares = match self.bits {
                    2 => p.words(&GainDealer::<2>, self.n, array(sources), &[])?.to_vec(),
                    _ => p.words(&GainDealer::<3>, self.n, array(sources), &[])?.to_vec(),
                };
                shares.iter().try_for_each(|share| p.to_left(share))?;
            }
        }
        Ok(())
    }

    /// A member's bits, of those of all pairs.
    fn sources_of<'x, T>(&self, member: usize, bits: &'x [T]) -> Vec<Source<'x, T>> {
        self.bits_of(member).iter().map(|&(pair, _)| whole(&bits[pair])).collect()
    }

    // -- the evaluators --------------------------------------------------------------------------

    /// An evaluator reads the dealer's message.
    pub fn read<E: Engine>(
        &self,
        p: &Port<'_, E>,
        dealt: &Incoming<'_, '_, E>,
    ) -> Result<GroupMessage<E::Tensor>> {
        let circuit = self.signs.read(p, dealt)?;
        let count = if p.is_left() {
            self.parts.len() * self.bits * ((1 << self.bits) - 1)
        } else {
            self.pairs.len() + self.bits * several(self.bits).len()
        };
        let shares = (0..count).map(|_| dealt.words(self.n)).collect::<Result<_>>()?;
        Ok(GroupMessage { circuit, shares })
    }

    /// For each tensor an evaluator's two components of the largest less the last.
    pub async fn evaluate<E: Engine>(
        &self,
        p: &Port<'_, E>,
        GroupMessage { circuit, shares }: GroupMessage<E::Tensor>,
        tensors: &[Members<E::Tensor>],
    ) -> Result<Vec<Pair<E::Tensor>>> {
        let b = self.differences(p, &tensors[0], |x| p.joint(x))?;
        let v = self.signs.open(p, circuit, b).await?;
        let v = self.by_pair(p, &v)?;
        let mut addends = Vec::with_capacity(tensors.len());
        for (tensor, members) in tensors.iter().enumerate() {
            let [y0, y1] = self.results[tensor];
            let shared = p.tensor_of(p.own([y1, y0]))?;
            let addend = self.addend(p, (tensor, members), &shares, &v, &shared)?;
            addends.push([addend, shared]);
        }
        exchange(p, addends, std::iter::repeat(&Slot::anywhere())).await
    }

    /// An evaluator's addend of component 2, masked by `y`.
    fn addend<E: Engine>(
        &self,
        p: &Port<'_, E>,
        (tensor, members): (usize, &Members<E::Tensor>),
        shares: &[E::Tensor],
        v: &[E::Tensor],
        y: &E::Tensor,
    ) -> Result<E::Tensor> {
        let Self { n, bits, .. } = *self;
        let mut total = p.map(&Negate, [y], &[])?;
        let last = &members[bits];
        for (member, x) in members[..bits].iter().enumerate() {
            let mut sources = vec![whole(&total)];
            sources.extend(self.sources_of(member, v));
            let subsets = 1..1 << bits;
            sources.extend(subsets.clone().map(|subset| self.product(p, shares, member, subset)));
            sources.extend(subsets.map(|subset| self.part(p, shares, [tensor, member, subset])));
            let words = [p.joint(x), p.joint(last), p.shared(x), p.shared(last)];
            sources.extend(words.map(whole));
            let mut params = vec![p.if_left()];
            params.extend(self.bits_of(member).iter().map(|&(_, opposite)| u64::from(opposite)));
            [total] = match bits {
                2 => p.words(&GainEvaluator::<2>, n, array(sources), &params)?,
                _ => p.words(&GainEvaluator::<3>, n, array(sources), &params)?,
            };
        }
        Ok(total)
    }

    /// This party's share of the product of a subset of a member's bits.
    fn product<'x, E: Engine>(
        &self,
        p: &'x Port<'_, E>,
        shares: &'x [E::Tensor],
        member: usize,
        subset: usize,
    ) -> Source<'x, E::Tensor> {
        let several = several(self.bits);
        let (sample, at) = match several.iter().position(|&other| other == subset) {
            Some(place) => {
                let at = self.pairs.len() + member * several.len() + place;
                (self.products[member][place], at)
            }
            None => {
                let pair = self.bits_of(member)[subset.trailing_zeros() as usize].0;
                (self.u[pair], pair)
            }
        };
        if p.is_left() { p.words_of(sample) } else { whole(&shares[at]) }
    }

    /// This party's share of the dealer's part of a member times the product of a subset of its bits.
    fn part<'x, E: Engine>(
        &self,
        p: &'x Port<'_, E>,
        shares: &'x [E::Tensor],
        [tensor, member, subset]: [usize; 3],
    ) -> Source<'x, E::Tensor> {
        let subsets = (1 << self.bits) - 1;
        let at = (tensor * self.bits + member) * subsets + subset - 1;
        if p.is_left() {
            whole(&shares[at])
        } else {
            p.words_of(self.parts[tensor][member][subset - 1])
        }
    }
}
