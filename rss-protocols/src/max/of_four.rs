//! The largest of three or four words at once: all pairs are compared in the same rounds.
//!
//! A word is the largest if it beats all others, equals going to the earlier one. That is a product of bits
//! `u ^ v`, the outcomes of its comparisons, `u` known to the pivot and `v` to both others. The pivot shares
//! the products of all subsets of each word's bits of `u`, and those times its part of the word less the last
//! one; once `v` is known the rest is local but for one exchange, as of a selection ([`crate::compare::select`]). The
//! last word's own bits are not needed: where no other is the largest, it is.
//! Cost of four words at width 44 by fours: 1416 bits for six comparisons, 2624 for what follows, 1344 for a further
//! tensor. Rounds: those of a selection by a comparison.

use std::sync::Arc;

use mpc_core::Result;
use ring_arith::{Engine, EngineTensor, Shape, Source};

use crate::{
    circuit::schedule::Plan,
    compare::protocol::{Opening, Question, Stage},
    kernels::{BitProducts, Difference, GainLead, GainOther, Negate, Sum},
    runtime::launch::{made, map, slice, whole, words},
    runtime::links::Reader,
    runtime::prss::{Draw, Key, Streams},
    runtime::roles::{Role, Roles},
    runtime::rounds::{Cx, Unit},
    share::add,
};

/// The role's two components of each member of the groups.
pub(crate) type Members<T> = Vec<(T, T)>;

/// Comparisons of all pairs of three or four members, and what the largest has more than the last.
pub(crate) struct GroupUnit<T: EngineTensor> {
    roles: Roles,
    streams: Streams,
    /// Groups.
    n: usize,
    /// Pairs of members, the earlier one first.
    pairs: Vec<[usize; 2]>,
    /// By tensor: values, and positions if they are wanted.
    tensors: Vec<Members<T>>,
    opening: Opening,
    masks: Masks,
    stage: Option<Stage<T>>,
    top: Option<T>,
    left: usize,
    /// What the pivot sent: at the third the products of bits, at the second those times its parts.
    dealt: Vec<T>,
    /// For each tensor this party's summand of component 3, and its component shared with the pivot.
    sent: Vec<[T; 2]>,
    results: Vec<(T, T)>,
}

/// Places of one group level in the streams.
struct Masks {
    /// By pair: the second's share of its bit of `u`.
    bits: Vec<Draw>,
    /// By member but the last, the second's shares of the products of several bits.
    products: Vec<Vec<Draw>>,
    /// By tensor and member but the last, the third's shares of the pivot's part times the products of each subset.
    parts: Vec<Vec<Vec<Draw>>>,
    /// By tensor, components 1 and 2 of the result.
    results: Vec<[Draw; 2]>,
}

/// Subsets of several of so many bits, in the order of kernels.
fn several(bits: usize) -> &'static [usize] {
    if bits == 2 { &[3] } else { &[3, 5, 6, 7] }
}

/// Words that the pivot shares for each group besides the comparisons: to the second and to the third.
pub(crate) fn dealt(members: usize, tensors: usize) -> [usize; 2] {
    let bits = members - 1;
    let pairs = members * bits / 2;
    [tensors * bits * ((1 << bits) - 1), pairs + bits * several(bits).len()]
}

impl Masks {
    fn new(streams: &mut Streams, n: usize, pairs: usize, members: usize, tensors: usize) -> Self {
        let bits = members - 1;
        let mut draws = |pair, count: usize| -> Vec<Draw> {
            (0..count).map(|_| streams.draw(pair, n)).collect()
        };
        let of_bits = draws(Key::Left, pairs);
        let products: Vec<_> = (0..bits).map(|_| draws(Key::Left, several(bits).len())).collect();
        let parts: Vec<Vec<_>> = (0..tensors)
            .map(|_| (0..bits).map(|_| draws(Key::Right, (1 << bits) - 1)).collect())
            .collect();
        let results: Vec<_> =
            (0..tensors).map(|_| [draws(Key::Right, 1)[0], draws(Key::Left, 1)[0]]).collect();
        planted!(
            "largest of four: a product of bits under a bit's mask",
            products = {
                let mut products = products;
                products[0][0] = of_bits[0];
                products
            }
        );
        planted!(
            "largest of four: parts of two subsets under one mask",
            parts = {
                let mut parts = parts;
                parts[0][0][1] = parts[0][0][0];
                parts
            }
        );
        planted!(
            "largest of four: y1 is the mask of a part",
            results = {
                let mut results = results;
                results[0][0] = parts[0][0][0];
                results
            }
        );
        planted!(
            "largest of four: y2 is the mask of a bit",
            results = {
                let mut results = results;
                results[0][1] = of_bits[0];
                results
            }
        );
        Self { bits: of_bits, products, parts, results }
    }
}

impl<T: EngineTensor> GroupUnit<T> {
    pub fn new(
        roles: Roles,
        mut streams: Streams,
        tensors: Vec<Members<T>>,
        plan: Arc<Plan>,
    ) -> Self {
        let (members, n) = (tensors[0].len(), tensors[0][0].0.len());
        let pairs: Vec<_> = (0..members).flat_map(|j| (0..j).map(move |i| [i, j])).collect();
        let question = Question { plan, top: true, low: 0 };
        let opening = Opening::new(question, &mut streams, pairs.len() * n, false);
        let masks = Masks::new(&mut streams, n, pairs.len(), members, tensors.len());
        let left = opening.exchanges();
        Self {
            roles,
            streams,
            n,
            pairs,
            tensors,
            opening,
            masks,
            stage: None,
            top: None,
            left,
            dealt: Vec::new(),
            sent: Vec::new(),
            results: Vec::new(),
        }
    }

    /// For each tensor the role's two components of what the largest has more than the last member.
    pub fn done(self) -> Vec<(T, T)> {
        self.results
    }

    /// Members but the last: those with bits of their own.
    fn bits(&self) -> usize {
        self.tensors[0].len() - 1
    }

    fn shape(&self) -> Result<Shape> {
        Ok(Shape::new([self.n])?)
    }

    /// For each bit of a member: its pair, and whether the bit is the outcome's opposite. An outcome says that the
    /// earlier of a pair is less.
    fn bits_of(&self, member: usize) -> Vec<(usize, bool)> {
        let pair = |(at, pair): (usize, &[usize; 2])| match *pair {
            [i, _] if i == member => Some((at, true)),
            [_, j] if j == member => Some((at, false)),
            _ => None,
        };
        self.pairs.iter().enumerate().filter_map(pair).collect()
    }

    /// Differences of all pairs, of one component of the values.
    fn differences<E: Engine<Tensor = T>>(
        &self,
        engine: &E,
        component: impl Fn(&(T, T)) -> &T,
    ) -> Result<T> {
        let values = &self.tensors[0];
        let difference = |&[i, j]: &[usize; 2]| {
            let (x, y) = (component(&values[i]), component(&values[j]));
            map(engine, &Difference, x.shape(), [x, y], &[])
        };
        let differences = self.pairs.iter().map(difference).collect::<ring_arith::Result<Vec<_>>>();
        let differences = differences?;
        Ok(engine.concat(&differences.iter().collect::<Vec<_>>(), 0)?)
    }

    /// The bits of a plane as words, by pair.
    fn by_pair<E: Engine<Tensor = T>>(&self, engine: &E, plane: &T) -> Result<Vec<T>> {
        let all = engine.from_planes(plane, 0, &Shape::new([self.pairs.len() * self.n])?)?;
        let pair = |at| Ok(slice(engine, &all, 0, at * self.n, (at + 1) * self.n)?);
        (0..self.pairs.len()).map(pair).collect()
    }

    /// The pivot shares the products of bits between the others.
    fn deal_bits<E: Engine<Tensor = T>>(&self, cx: &mut Cx<'_, E>, u: &[T]) -> Result<()> {
        let (shape, third) = (self.shape()?, self.roles.right());
        let mask = |draw: Draw| self.streams.words(draw);
        for (u, &draw) in u.iter().zip(&self.masks.bits) {
            let [share] = words(cx.engine, &Difference, &shape, [whole(u), mask(draw)], &[])?;
            cx.put(third, &share)?;
        }
        for (member, draws) in self.masks.products.iter().enumerate() {
            let mut sources: Vec<_> =
                self.bits_of(member).iter().map(|&(pair, _)| whole(&u[pair])).collect();
            sources.extend(draws.iter().map(|&draw| mask(draw)));
            let shares = match draws.len() {
                1 => words(cx.engine, &BitProducts::<2>, &shape, array(sources), &[])?.to_vec(),
                _ => words(cx.engine, &BitProducts::<3>, &shape, array(sources), &[])?.to_vec(),
            };
            shares.iter().try_for_each(|share| cx.put(third, share))?;
        }
        Ok(())
    }

    /// The pivot shares its parts times the products of bits.
    fn deal_parts<E: Engine<Tensor = T>>(&self, cx: &mut Cx<'_, E>, u: &[T]) -> Result<()> {
        let (shape, bits) = (self.shape()?, self.bits());
        for (members, masks) in self.tensors.iter().zip(&self.masks.parts) {
            let last = &members[bits];
            for (member, draws) in masks.iter().enumerate() {
                let x = &members[member];
                let mut sources: Vec<_> =
                    self.bits_of(member).iter().map(|&(pair, _)| whole(&u[pair])).collect();
                sources.extend([&x.0, &x.1, &last.0, &last.1].map(whole));
                sources.extend(draws.iter().map(|&draw| self.streams.words(draw)));
                let shares = match bits {
                    2 => words(cx.engine, &GainLead::<2>, &shape, array(sources), &[])?.to_vec(),
                    _ => words(cx.engine, &GainLead::<3>, &shape, array(sources), &[])?.to_vec(),
                };
                let second = self.roles.left();
                shares.iter().try_for_each(|share| cx.put(second, share))?;
            }
        }
        Ok(())
    }

    /// Words that follow the opening's: to the second and to the third.
    fn dealt(&self) -> [usize; 2] {
        dealt(self.bits() + 1, self.tensors.len()).map(|words| words * self.n)
    }

    /// This party's share of the product of a subset of a member's bits.
    fn product_share(&self, member: usize, subset: usize) -> Source<'_, T> {
        let place = several(self.bits()).iter().position(|&other| other == subset);
        let (draw, at) = match place {
            Some(place) => {
                let before = self.pairs.len() + member * several(self.bits()).len();
                (self.masks.products[member][place], before + place)
            }
            None => {
                let pair = self.bits_of(member)[subset.trailing_zeros() as usize].0;
                (self.masks.bits[pair], pair)
            }
        };
        if self.roles.role == Role::Left {
            self.streams.words(draw)
        } else {
            whole(&self.dealt[at])
        }
    }

    /// This party's share of the pivot's part of a member times the product of a subset of its bits.
    fn part_share(&self, tensor: usize, member: usize, subset: usize) -> Source<'_, T> {
        let subsets = (1 << self.bits()) - 1;
        let at = (tensor * self.bits() + member) * subsets + subset - 1;
        match self.roles.role {
            Role::Left => whole(&self.dealt[at]),
            _ => self.streams.words(self.masks.parts[tensor][member][subset - 1]),
        }
    }

    /// All outcomes are known to the second and the third: their summands leave.
    fn apply<E: Engine<Tensor = T>>(&mut self, cx: &mut Cx<'_, E>, v: &T) -> Result<()> {
        let (shape, bits) = (self.shape()?, self.bits());
        let second = self.roles.role == Role::Left;
        let v = self.by_pair(cx.engine, v)?;
        for (tensor, members) in self.tensors.iter().enumerate() {
            let y = self.masks.results[tensor][usize::from(second)];
            let y = made(cx.engine, &shape, self.streams.words(y))?;
            let mut total = map(cx.engine, &Negate, &shape, [&y], &[])?;
            let order = |(first, last): &'_ (T, T)| {
                if second { (last.clone(), first.clone()) } else { (first.clone(), last.clone()) }
            };
            let (last_joint, last_own) = order(&members[bits]);
            for member in 0..bits {
                let (joint, own) = order(&members[member]);
                let of = self.bits_of(member);
                let mut sources = vec![whole(&total)];
                sources.extend(of.iter().map(|&(pair, _)| whole(&v[pair])));
                sources.extend((1..1 << bits).map(|subset| self.product_share(member, subset)));
                sources
                    .extend((1..1 << bits).map(|subset| self.part_share(tensor, member, subset)));
                sources.extend([&joint, &last_joint, &own, &last_own].map(whole));
                let mut params = vec![if second { u64::MAX } else { 0 }];
                params.extend(of.iter().map(|&(_, opposite)| u64::from(opposite)));
                let [sum] = match bits {
                    2 => words(cx.engine, &GainOther::<2>, &shape, array(sources), &params)?,
                    _ => words(cx.engine, &GainOther::<3>, &shape, array(sources), &params)?,
                };
                total = sum;
            }
            self.sent.push([total, y]);
        }
        let partner = self.roles.peer();
        self.sent.iter().try_for_each(|[summand, _]| cx.put(partner, summand))
    }

    fn finish<E: Engine<Tensor = T>>(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        let sent = std::mem::take(&mut self.sent);
        let mut reader = cx.receive(self.roles.peer(), sent.len() * self.n)?;
        for [summand, y] in sent {
            let other = reader.words(cx.engine, self.n)?;
            let y3 = map(cx.engine, &Sum, summand.shape(), [&summand, &other], &[])?;
            let second = self.roles.role == Role::Left;
            self.results.push(if second { (y, y3) } else { (y3, y) });
        }
        Ok(())
    }
}

impl<E: Engine> Unit<E> for GroupUnit<E::Tensor> {
    fn roles(&self) -> &Roles {
        &self.roles
    }

    fn bundle(&self) -> [usize; 2] {
        let (opened, dealt) = (self.opening.bundle(), self.dealt());
        [opened[0] + dealt[0], opened[1] + dealt[1]]
    }

    fn lead(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        let first = self.differences(cx.engine, |x| &x.0)?;
        let a = add(cx.engine, &first, &self.differences(cx.engine, |x| &x.1)?)?;
        let [u, _] = self.opening.lead(cx, &self.roles, &self.streams, &a)?;
        let u = self.by_pair(cx.engine, &u)?;
        self.deal_bits(cx, &u)?;
        self.deal_parts(cx, &u)?;
        let shape = self.shape()?;
        for draws in &self.masks.results {
            let [y1, y2] = draws.map(|draw| made(cx.engine, &shape, self.streams.words(draw)));
            self.results.push((y1?, y2?));
        }
        Ok(())
    }

    fn start(&mut self, cx: &mut Cx<'_, E>, mut bundle: Reader) -> Result<()> {
        let second = self.roles.role == Role::Left;
        let b = self.differences(cx.engine, |x| if second { &x.1 } else { &x.0 })?;
        let (stage, top) = self.opening.start(cx, &self.roles, &self.streams, &mut bundle, &b)?;
        (self.stage, self.top) = (Some(stage), top);
        let count = dealt(self.bits() + 1, self.tensors.len())[usize::from(!second)];
        self.dealt = (0..count).map(|_| bundle.words(cx.engine, self.n)).collect::<Result<_>>()?;
        Ok(())
    }

    fn advance(&mut self, cx: &mut Cx<'_, E>) -> Result<bool> {
        let Some(stage) = self.stage.take() else {
            self.finish(cx)?;
            return Ok(true);
        };
        let (top, left) = (self.top.as_ref(), &mut self.left);
        match self.opening.advance(cx, &self.roles, &self.streams, stage, top, left)? {
            Stage::Known(v) => self.apply(cx, &v)?,
            stage => self.stage = Some(stage),
        }
        Ok(false)
    }
}

/// As many sources as a kernel has inputs.
fn array<S, const N: usize>(sources: Vec<S>) -> [S; N] {
    sources.try_into().ok().expect("as many sources as the kernel has inputs")
}
