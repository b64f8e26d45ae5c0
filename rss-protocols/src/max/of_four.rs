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
    compare::{Comparison, MaskedBit, StatedBit},
    kernels::{BitProducts, Difference, GainDealer, GainEvaluator, Negate},
    proofs::{Shared, Transcript, Words, bit_as_word},
    runtime::{
        launch::{array, slice, whole},
        prss::{Key, Sample},
        roles::{Pair, Role},
        rounds::{Incoming, Port},
    },
    share::output::{Slot, exchange},
};

/// The role's two components of each member of the groups.
pub(crate) type Members<T> = Vec<Pair<T>>;

/// The samples of comparisons of all pairs of three or four members, and of the largest less the last.
#[derive(Clone)]
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

// -- what is owed --------------------------------------------------------------------------------

impl OfFour {
    /// Keeps what all owe for the largest of some members.
    pub fn owe<E: Engine>(&self, p: &Port<'_, E>, tensors: &[Members<E::Tensor>]) {
        let samples = self.clone();
        let tensors = tensors.to_vec();
        p.owe(move |t| samples.relations(t, &tensors));
    }

    /// The dealer owes the comparisons, its bits as words, their products, and these times its parts; the evaluators owe
    /// their addends.
    fn relations<E: Engine>(
        &self,
        t: &mut Transcript<'_, E>,
        tensors: &[Members<E::Tensor>],
    ) -> Result<()> {
        let n = self.n;
        let pairs = self.pairs.len();
        let mut components = Vec::with_capacity(tensors.len());
        for members in tensors {
            let members = members.iter().map(|x| t.components(x));
            components.push(members.collect::<Result<Vec<[Words; 3]>>>()?);
        }
        let [x0, x1, b] = [0, 1, 2].map(|at| {
            let difference = |&[i, j]: &[usize; 2]| &components[0][i][at] - &components[0][j][at];
            let differences: Vec<_> = self.pairs.iter().map(difference).collect();
            Words::stacked(n, &differences.iter().collect::<Vec<_>>())
        });
        let (codes, top) = self.signs.bits_of_sum(t, pairs * n, [&x1, &x0])?;
        let StatedBit { u, v } = self.signs.relations(t, pairs * n, (&codes, top), &b)?;
        let v = v.words(pairs * n);

        let mut bits: Vec<Shared<Words>> = Vec::with_capacity(pairs);
        for &sample in &self.u {
            bits.push([t.sample(sample), t.dealt_right(1, n)?]);
        }
        let all = [0, 1].map(|side| {
            let shares: Vec<_> = bits.iter().map(|share| &share[side]).collect();
            Words::stacked(n, &shares).planes(0, 64)
        });
        bit_as_word(t, pairs * n, &all, &u)?;
        // By member and subset of its bits, the evaluators' shares of the product.
        let mut products = Vec::with_capacity(self.bits);
        for (member, samples) in self.products.iter().enumerate() {
            let own = self.bits_of(member);
            let mut of: Vec<Option<Shared<Words>>> = vec![None; 1 << self.bits];
            for (k, &(pair, _)) in own.iter().enumerate() {
                of[1 << k] = Some(bits[pair].clone());
            }
            for (&subset, &sample) in several(self.bits).iter().zip(samples) {
                let share = [t.sample(sample), t.dealt_right(1, n)?];
                let first = subset & subset.wrapping_neg();
                let product = joined(of[first].as_ref()) * joined(of[subset - first].as_ref());
                t.words(Role::Dealer, 64, &(product - joined(Some(&share))))?;
                of[subset] = Some(share);
            }
            products.push(of);
        }
        for (at, components) in components.iter().enumerate() {
            self.tensor_relations(t, at, components, (&products, &v))?;
        }
        Ok(())
    }

    /// The relations that are owed for one tensor.
    fn tensor_relations<E: Engine>(
        &self,
        t: &mut Transcript<'_, E>,
        tensor: usize,
        components: &[[Words; 3]],
        (products, v): (&[Vec<Option<Shared<Words>>>], &Words),
    ) -> Result<()> {
        let n = self.n;
        let [y0, y1]: [Words; 2] = t.samples(self.results[tensor]);
        let last = &components[self.bits];
        let mut addends = [Words::zero() - y1, Words::zero() - y0];
        for member in 0..self.bits {
            let x = &components[member];
            let [x0, x1, joint] = [0, 1, 2].map(|at| &x[at] - &last[at]);
            let bits = self.bits_of(member);
            for subset in 0..1 << self.bits {
                let mut coefficient = Words::one(n);
                for (k, &(pair, opposite)) in bits.iter().enumerate() {
                    let yes = v.picked(n, [pair]).map(|v| v ^ u64::from(opposite));
                    let signed = subset >> k & 1 == 1;
                    let factor = |yes: u64| if signed { 1u64.wrapping_sub(2 * yes) } else { yes };
                    coefficient = coefficient * yes.map(factor);
                }
                let known = &coefficient * &joint;
                let [left, right] = addends;
                addends = if subset == 0 {
                    [left + &x1 * &coefficient + known, right + &x0 * &coefficient]
                } else {
                    let product =
                        products[member][subset].as_ref().expect("every subset has a product");
                    let part =
                        [t.dealt_left(1, n)?, t.sample(self.parts[tensor][member][subset - 1])];
                    let owed = joined(Some(product)) * (&x0 + &x1) - joined(Some(&part));
                    t.words(Role::Dealer, 64, &owed)?;
                    [
                        left + &part[0] * &coefficient + &product[0] * &known,
                        right + &part[1] * &coefficient + &product[1] * &known,
                    ]
                };
            }
        }
        let sent = t.exchanged(1, n)?;
        for ((role, addend), sent) in [Role::Left, Role::Right].into_iter().zip(addends).zip(sent) {
            t.words(role, 64, &(addend - sent))?;
        }
        Ok(())
    }
}

/// The sum of both shares.
fn joined(shares: Option<&Shared<Words>>) -> Words {
    let [left, right] = shares.expect("products follow those of fewer bits");
    left + right
}
