//! The guard: notices on shares that values have left the range in which arithmetic is right.
//!
//! A product that leaves 62 bits before `t` of them are dropped comes out with a multiple of `2^(64 - t)` too
//! much or too little. No party sees the words, and some of them look like any other. So each product is
//! computed a second time, with fewer bits. Weighted sums of the results are compared with the same sums made
//! of the operands ([`fold`]), from which `a` bits are dropped first. That leaves them `a` bits more room. So
//! the two differ by a multiple of `2^(64 - a)` if the result has wrapped around, and else by a rounding error.
//! Some functions are right only on a domain: their operands are compared with its ends, where nothing else
//! keeps them in it. So are numerators with multiples of their denominators.

mod factors;
mod fold;
#[cfg(test)]
mod mutants;
mod part;
mod recheck;

use mpc_core::{
    Compare, Format, Linear, Operand, Protocol, SecretTensor, ShareTensor, SplitMix64, Sums, Then,
    functions as f,
};
use ring_arith::{Bilinear, Engine, Shape, Tensor, View};

use crate::graph::{LinearFinish, Op};
use crate::ops;
use crate::plan::Plan;
use crate::plan::analyse::{magnitude::Danger, products::maps};
use crate::plan::run::Watch;
use crate::plan::run::exec::Made;
use crate::{Error, Result};
use factors::Factors;
use fold::{Fold, Right, fold, fold_addend, fold_dot};
use part::Part;
use recheck::{BOUND, COARSER, Coarse, Recheck, differences, failed, flat};

/// Watches products, and returns at the end which of them left their range.
///
/// A sum of products of at least `2^62` before truncation sets the guard, and one below does not. A value that
/// a ReLU follows is watched before it. A single element that wrapped around is missed with probability about
/// `2^-12`. Several cancel out with probability at most `(1/16 + 1/32)^3 < 2^-10`, where they wrapped around
/// equally often.
///
/// The second computation has rounding errors too. They set the guard on right results only if the root of the
/// sum of squares of a layer's weights exceeds about `2^27`. For the larger operand of an elementwise product
/// the limit is `2^29`. So does a value of which fewer than [`COARSER`] bits are dropped and that a ReLU follows, where
/// its weighted sums exceed `2^62`: without the ReLU its elements are made coarser before they are summed.
#[derive(Debug)]
pub(super) struct Guard<'a, P: Protocol> {
    plan: &'a Plan,
    random: SplitMix64,
    /// The number of examples of each caller, if there are several.
    callers: &'a [usize],
    /// The factors of the step that runs.
    drawn: Vec<Drawn>,
    /// The dangers at each node besides those of its product.
    dangers: Vec<Danger>,
    /// One for each guarded value and caller.
    entries: Vec<Entry<P>>,
}

/// The checks of a value for one caller.
#[derive(Debug)]
enum Entry<P: Protocol> {
    /// A product.
    Product(Recheck<P>),
    /// Comparisons with the ends of a function's domain.
    Operands(Vec<Ended<P>>),
}

/// Words whose signs count, and their width. The sum of all counts of a value is 0 unless one is out of its domain.
#[derive(Debug)]
struct Ended<P: Protocol> {
    words: P::Share,
    width: u32,
    count: Count,
}

/// The number that a negative word adds: 1 or a factor of its own, or its negative.
#[derive(Debug, Default)]
struct Count {
    factors: Option<Vec<u64>>,
    minus: bool,
}

/// The factors of a node's sums.
#[derive(Debug)]
struct Drawn {
    node: usize,
    factors: Factors,
}

impl<'a, P: Protocol> Guard<'a, P> {
    /// A guard whose factors come from a seed that all parties know; it returns separate findings for each of
    /// `callers`, or one for all if there are none.
    ///
    /// # Errors
    /// [`Error::Node`] if the plan's shapes do not fit.
    pub fn new(plan: &'a Plan, seed: u64, callers: &'a [usize]) -> Result<Self> {
        let random = SplitMix64::new(seed);
        let dangers = plan.dangers()?;
        Ok(Self { plan, random, callers, drawn: vec![], dangers, entries: vec![] })
    }

    /// The callers' examples.
    fn examples(&self) -> Vec<Part> {
        let of = self.parts();
        if of == 1 {
            return vec![Part { start: 0, end: 1, of }];
        }
        let mut start = 0;
        let part = |&examples: &usize| {
            let first = start;
            start += examples;
            mutant!("guard: every caller's examples from the first on", first = 0);
            Part { start: first, end: first + examples, of }
        };
        self.callers.iter().map(part).collect()
    }

    /// Takes the operands of a function into guard. Local.
    fn watch_operands(
        &mut self,
        mpc: &P,
        node: usize,
        made: &Made<P>,
        values: &[Option<Operand<P>>],
    ) -> Result<()> {
        let shape = made.value.shape();
        for part in self.examples() {
            let mut ended = vec![];
            let danger = &self.dangers[node];
            for &(at, domain) in &danger.operands {
                let x = value(self.plan, node, at, mpc, values)?;
                let op = &self.plan.nodes[node].op;
                let alone = self.plan.nodes[node].inputs.len() == 1 || *op == Op::Lookup;
                let cut = part.of > 1 && x.shape().dims().first().is_some_and(|n| n % part.of == 0);
                // The results of reductions and tables have another rank.
                let x = match alone && cut {
                    true => part.slice(mpc, &x)?,
                    false => part.aligned(mpc, x, shape)?,
                };
                let words = flat(mpc, x.share())?;
                if words.shape().len() == 0 {
                    continue;
                }
                for end in domain.ends(x.frac(), x.width()) {
                    let words = mpc.combine(&[(end.factor as u64, &words)], end.offset as u64)?;
                    let count = Count { factors: None, minus: end.minus };
                    ended.push(Ended { words, width: end.width, count });
                }
            }
            if let Some(limit) = danger.quotient {
                let [x, y] = [0, 1].map(|at| value(self.plan, node, at, mpc, values));
                let [x, y] = [part.aligned(mpc, x?, shape)?, part.aligned(mpc, y?, shape)?];
                ended.extend(within_multiple(mpc, &mut self.random, [x, y], limit)?);
            }
            if let Some(faint) = made.faint.as_ref().filter(|_| danger.faint) {
                for (words, minus) in faint.iter().zip([false, true]) {
                    let count = Count { factors: None, minus };
                    let words = if part.of > 1 { part.slice(mpc, words)? } else { words.clone() };
                    let width = words.width();
                    ended.push(Ended { words: flat(mpc, words.share())?, width, count });
                }
            }
            self.entries.push(Entry::Operands(ended));
        }
        Ok(())
    }

    /// Sums of one result's elements, for as many callers as there are.
    fn parts(&self) -> usize {
        if self.callers.len() < 2 { 1 } else { self.callers.iter().sum() }
    }

    /// Takes a product into guard, given the sums of its elements, `[parts, SUMS]`. Local.
    fn watch(
        &mut self,
        mpc: &P,
        node: usize,
        factors: &Factors,
        made: (&SecretTensor<P>, &P::Share),
        values: &[Option<Operand<P>>],
    ) -> Result<()> {
        for part in self.examples() {
            let recheck = self.recheck(mpc, node, factors, made, values, part)?;
            self.entries.push(Entry::Product(recheck));
        }
        Ok(())
    }

    /// The operands of one caller's sums.
    fn recheck(
        &self,
        mpc: &P,
        node: usize,
        factors: &Factors,
        (made, sums): (&SecretTensor<P>, &P::Share),
        values: &[Option<Operand<P>>],
        part: Part,
    ) -> Result<Recheck<P>> {
        let shape = made.shape();
        let dropped = self.plan.dropped(node);
        let value = |at: usize| value(self.plan, node, at, mpc, values);
        let frac = self.plan.fracs[node] + dropped;
        let factors = &factors.part(part.start, part.end, part.of);
        let mut dims = shape.dims().to_vec();
        if part.of > 1 {
            dims[0] = dims[0] / part.of * (part.end - part.start);
        }
        let coarse = |fold: Fold<P>, up: u32| Coarse {
            fold,
            drop: COARSER.saturating_sub(up),
            up: up.saturating_sub(COARSER),
        };
        let own = if dropped < COARSER && self.plan.ends_as_product(node) {
            // Each is made coarser before they are added up: their sum may leave the range of a truncation.
            fold_addend(mpc, &part.aligned(mpc, made.clone(), shape)?, factors, &dims)?
        } else {
            let view = View::Slice { axis: 0, start: part.start, end: part.end, step: 1 };
            let sums = mpc.linear(&Linear::View(&view), sums)?;
            Fold { left: flat(mpc, &mpc.linear(&Linear::Sum(&[0]), &sums)?)?, right: Right::None }
        };
        let mut recheck = Recheck { own: coarse(own, dropped), terms: vec![] };
        for (map, [x, weight]) in maps(&self.plan.nodes[node].op) {
            let [x, weight] = [value(x)?, value(weight)?];
            let up = frac - x.frac() - weight.frac();
            let [x, weight] = part.operands(mpc, &map, [x, weight], shape)?;
            let fold = fold(mpc, &map, [&x, &weight], factors, &dims)?;
            recheck.terms.push(coarse(fold, up));
        }
        if let Op::Dot(_) = &self.plan.nodes[node].op {
            let [x, y] = [value(0)?, value(1)?];
            let up = frac - x.frac() - y.frac();
            let [x, y] = [part.aligned(mpc, x, shape)?, part.aligned(mpc, y, shape)?];
            let fold = fold_dot(mpc, [&x, &y], factors, &dims)?;
            recheck.terms.push(coarse(fold, up));
        }
        if let Op::Linear(l) = &self.plan.nodes[node].op {
            let addends = l.addends();
            mutant!("guard: addends left out", addends = 0..0);
            for at in addends {
                let addend = value(at)?;
                let up = frac - addend.frac();
                let addend = part.aligned(mpc, addend, shape)?;
                recheck.terms.push(coarse(fold_addend(mpc, &addend, factors, &dims)?, up));
            }
        }
        Ok(recheck)
    }

    /// A word for each guarded value, and within it for each caller: 0, or another if one of its checks failed.
    ///
    /// # Cost
    /// 9 rounds for all values together, of which two are the plan's last ones. For each value and caller
    /// [`factors::SUMS`] products of one word and two comparisons each. A truncation of as many words as one result is
    /// made of products, for each sum, or once where the value has one row; and one of the result, where fewer bits
    /// of it were dropped than of the operands.
    ///
    /// # Errors
    /// [`Error::Plan`] if nothing was watched; [`Error::Mpc`] if the protocol fails.
    pub fn finish(self, mpc: &mut P) -> Result<SecretTensor<P>> {
        if self.entries.is_empty() {
            return Err(Error::plan("there is nothing to guard"));
        }
        mpc.step("guard");
        let mut products = vec![];
        let mut operands = vec![];
        let mut order = vec![];
        for entry in self.entries {
            order.push(match entry {
                Entry::Product(recheck) => {
                    products.push(recheck);
                    None
                }
                Entry::Operands(ended) => {
                    operands.extend(ended);
                    Some(operands.len())
                }
            });
        }
        let differences = differences(mpc, &products)?;
        let mut shifted = vec![];
        for difference in &differences {
            let bound = BOUND;
            mutant!("guard: the least difference far too large", bound = 1 << 62);
            for by in [bound, bound.wrapping_neg()] {
                shifted.push(mpc.combine(&[(1, difference)], by)?);
            }
        }
        // One tensor of all of them: bits of comparisons are sent in words of 64.
        let shifted = match &shifted[..] {
            [] => None,
            shifted => Some(mpc.concat(&shifted.iter().collect::<Vec<_>>(), 0)?),
        };
        let of_products =
            shifted.iter().map(|value| Compare { value, width: 64, then: Then::word() });
        let of_operands = operands.iter().map(|Ended { words, width, .. }| Compare {
            value: words,
            width: *width,
            then: Then::word(),
        });
        let mut below =
            mpc.compare(&of_products.chain(of_operands).collect::<Vec<_>>())?.into_iter();
        let unanswered = || Error::invalid("guard", "the protocol left a comparison unanswered");
        let mut of_products = None;
        if shifted.is_some() {
            let below = below.next().ok_or_else(unanswered)?.into_word()?;
            of_products = Some(failed(mpc, &below, differences.len())?);
        }
        let mut of_operands = vec![];
        for (outside, Ended { count, .. }) in below.zip(&operands) {
            of_operands.push(counted(mpc, outside.into_word()?, count)?);
        }
        let none = mpc.constant(&mpc.engine().upload(Tensor::zeros(Shape::new([1])?))?)?;
        let mut words = vec![];
        let mut next = 0;
        let mut start = 0;
        for end in order {
            words.push(match (end, &of_products) {
                (None, Some(all)) => {
                    let view = View::Slice { axis: 0, start: next, end: next + 1, step: 1 };
                    next += 1;
                    mpc.linear(&Linear::View(&view), all)?
                }
                (None, None) => return Err(unanswered()),
                (Some(end), _) => {
                    let mut sum = none.clone();
                    for outside in &of_operands[start..end] {
                        sum = mpc.add(&sum, outside)?;
                    }
                    start = end;
                    sum
                }
            });
        }
        let left = mpc.concat(&words.iter().collect::<Vec<_>>(), 0)?;
        Ok(SecretTensor::new(left, Format::integer(64)))
    }
}

/// The sum that a comparison's words, 1 where it is negative, add to a value's count.
fn counted<P: Protocol>(mpc: &P, negative: P::Share, count: &Count) -> Result<P::Share> {
    let weighed = match &count.factors {
        None => negative,
        Some(factors) => {
            let shape = Shape::new([factors.len()])?;
            let factors = mpc.engine().upload(Tensor::new(shape, factors.clone())?)?;
            mpc.linear(&Linear::TimesPublic(&Bilinear::Mul, &factors), &negative)?
        }
    };
    let sum = mpc.linear(&Linear::Sum(&[0]), &weighed)?;
    Ok(if count.minus { mpc.linear(&Linear::Negate, &sum)? } else { sum })
}

/// Comparisons that count unless `|x| < limit |y|`: then `x - limit y` is negative where `x + limit y` is not.
/// Counts of either sign have random factors, so that they do not cancel out.
fn within_multiple<P: Protocol>(
    mpc: &P,
    random: &mut SplitMix64,
    [x, y]: [SecretTensor<P>; 2],
    limit: f64,
) -> Result<[Ended<P>; 2]> {
    let shape = x.shape().broadcast(y.shape(), "div")?;
    let frac = x.frac().max(y.frac());
    let [x, y] = [f::broadcast(mpc, &x, &shape)?, f::broadcast(mpc, &y, &shape)?];
    let up = |operand: &SecretTensor<P>| 1u64 << (frac - operand.frac());
    let [x_factor, y_factor] = [up(&x), up(&y).wrapping_mul(limit as u64)];
    let minus = |factor: u64| factor.wrapping_neg();
    let below = mpc.combine(&[(x_factor, x.share()), (minus(y_factor), y.share())], 0)?;
    let above =
        mpc.combine(&[(minus(x_factor), x.share()), (minus(y_factor), y.share())], minus(1))?;
    // Sums of few bits, as the reference in the clear asks for.
    let factors: Vec<_> = (0..shape.len()).map(|_| random.next_u64() >> 34 | 1).collect();
    mutant!("guard: counts of quotients cancel out", factors = vec![1; factors.len()]);
    let ended = |words: &P::Share, minus| -> Result<Ended<P>> {
        let count = Count { factors: Some(factors.clone()), minus };
        Ok(Ended { words: flat(mpc, words)?, width: 64, count })
    };
    Ok([ended(&below, false)?, ended(&above, true)?])
}

/// An operand of a node.
fn value<P: Protocol>(
    plan: &Plan,
    node: usize,
    at: usize,
    mpc: &P,
    values: &[Option<Operand<P>>],
) -> Result<SecretTensor<P>> {
    let value = values[plan.nodes[node].inputs[at]].as_ref();
    ops::secret(mpc, value.ok_or_else(|| Error::plan("a value was dropped too early"))?)
}

impl<P: Protocol> Watch<P> for Guard<'_, P> {
    fn begins(&mut self, group: &[usize], shapes: &[Shape]) {
        self.drawn.clear();
        for &node in group {
            if self.plan.dropped(node) > 0 && shapes[node].len() > 0 {
                let op = &self.plan.nodes[node].op;
                let factors = Factors::draw(&mut self.random, op, shapes[node].dims());
                self.drawn.push(Drawn { node, factors });
            }
        }
    }

    fn sums(&self, node: usize) -> Option<Sums<'_>> {
        let drawn = self.drawn.iter().find(|drawn| drawn.node == node)?;
        Some(Sums { factors: &drawn.factors.lists, parts: self.parts() })
    }

    fn made(
        &mut self,
        mpc: &mut P,
        node: usize,
        made: &Made<P>,
        values: &[Option<Operand<P>>],
    ) -> Result<()> {
        if self.plan.dropped(node) == 0 {
            return match self.dangers[node].is_none() {
                true => Ok(()),
                false => self.watch_operands(mpc, node, made, values),
            };
        }
        let Some(at) = self.drawn.iter().position(|drawn| drawn.node == node) else {
            // Of no elements none has left its range.
            let none = self.examples().into_iter().map(|_| Entry::Operands(vec![]));
            self.entries.extend(none.collect::<Vec<_>>());
            return Ok(());
        };
        let sums = made.sums.as_ref().ok_or_else(|| Error::plan("a guarded value has no sums"))?;
        let drawn = self.drawn.swap_remove(at);
        self.watch(mpc, node, &drawn.factors, (&made.value, sums), values)
    }
}

impl Plan {
    /// The same plan, marked to be run with a guard, or without.
    #[must_use]
    pub fn with_guard(mut self, guard: bool) -> Self {
        self.guard = guard;
        self
    }

    /// The names of the operations that a guard watches, in its order: products of which bits are dropped, and
    /// functions whose operands can leave their domain. Empty if the plan is not to be run with one, or does
    /// not contain such an operation.
    pub fn guarded(&self) -> Vec<&str> {
        let dangers = self.dangers().unwrap_or_default();
        let domains = |i: usize| dangers.get(i).is_some_and(|danger| !danger.is_none());
        let watched = |i: usize| self.dropped(i) > 0 || domains(i);
        let all = self.steps.iter().flatten().filter(|&&i| self.guard && watched(i));
        all.map(|&i| self.nodes[i].name.as_str()).collect()
    }

    /// True if the result of a node's product is that of the node: no ReLU or mask follows within it.
    fn ends_as_product(&self, node: usize) -> bool {
        !matches!(&self.nodes[node].op, Op::Linear(l) if l.finish != LinearFinish::Truncate)
    }
}
