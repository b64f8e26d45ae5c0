//! The relations that all owe for an evaluation of the comparison circuit.
//!
//! The dealer owes that its codes of digits are one-hot: with `m_S` the sum of the code bits whose number contains the
//! set `S` of bits, `m_S` is the product of `m` of its highest bit and of the others. The `m` of single bits are the
//! digit's bits, which whoever knows where `a` comes from binds to it. It also owes each product of masks that it deals,
//! and the shares of masks of merged nodes. An evaluator owes each bit that it opens: from codes and indicators of `b`
//! at leaves, from shares of products of masks and opened bits above.

use std::collections::HashMap;

use mpc_core::Result;
use ring_arith::Engine;

use super::{
    evaluate::Evaluation,
    schedule::{Batch, Child, Gate, Predicate, dealt},
};
use crate::{
    proofs::{Bits, Shared, Transcript},
    runtime::roles::Role,
};

/// The evaluators' shares of the dealer's codes.
pub(crate) struct StatedCodes {
    /// By size of digit and by code bit: a plane for each digit of this size.
    codes: Vec<Vec<Shared<Bits>>>,
    /// The bits of `a`, lowest first.
    pub bits: Shared<Bits>,
}

/// A bit that is not opened: the dealer's part, which may have products of masks, left's and right's.
#[derive(Clone)]
pub(crate) struct Unopened {
    pub dealer: Bits,
    pub evaluators: [Bits; 2],
}

/// A bit that was opened under a mask: what the evaluators know, and their shares of the mask.
struct Opened {
    v: Bits,
    u: Shared<Bits>,
}

/// The nodes of a batch.
#[derive(Default)]
struct Nodes {
    opened: Vec<Opened>,
    kept: Option<Unopened>,
}

/// All samples of an evaluation, expanded once.
struct Samples {
    masks: [Bits; 2],
    shares: Bits,
    products: Bits,
}

/// A set of factors of a merge, by their numbers.
type Set = u8;

impl Evaluation {
    /// The relations that the dealer owes for its codes of the digits of `n` elements.
    pub fn code_relations<E: Engine>(
        &self,
        t: &mut Transcript<'_, E>,
        n: usize,
    ) -> Result<StatedCodes> {
        let cols = self.cols;
        let left: Bits = t.sample(self.digits);
        let mut all = Vec::new();
        let mut bits: [Vec<Bits>; 2] = Default::default();
        for group in &self.circuit.digits {
            let sent = (1 << group.digit) - 1;
            let right: Bits = t.dealt_right(group.rows * sent, cols)?;
            let rows = |first: usize| (0..group.rows).map(move |row| first + row * sent);
            let mut codes: Vec<_> = (0..sent)
                .map(|k| [left.picked(cols, rows(group.first + k)), right.picked(cols, rows(k))])
                .collect();
            let sum = |codes: &[Shared<Bits>], at: usize| codes.iter().map(|c| c[at].clone()).sum();
            let last: Shared<Bits> = [sum(&codes, 0), sum(&codes, 1)];
            let [last_left, last_right] = last;
            // The code's parity is right's.
            codes.push([last_left, last_right + Bits::one(group.rows * cols)]);
            let moments: Vec<Shared<Bits>> = (0..codes.len())
                .map(|set| {
                    let within: Vec<_> = (0..codes.len())
                        .filter(|k| k & set == set)
                        .map(|k| codes[k].clone())
                        .collect();
                    [sum(&within, 0), sum(&within, 1)]
                })
                .collect();
            for set in (1..codes.len()).filter(|set| set.count_ones() > 1) {
                let highest = 1 << set.ilog2();
                let product = joined(&moments[set - highest]) * joined(&moments[highest]);
                t.bits(Role::Dealer, group.rows, n, &(product + joined(&moments[set])))?;
            }
            for (at, bits) in bits.iter_mut().enumerate() {
                let of_digit: Vec<_> = (0..group.digit).map(|j| &moments[1 << j][at]).collect();
                let order = (0..group.rows)
                    .flat_map(|row| (0..group.digit).map(move |j| j * group.rows + row));
                bits.push(Bits::stacked(cols, &of_digit).picked(cols, order));
            }
            all.push(codes);
        }
        let bits = bits.map(|bits| Bits::stacked(cols, &bits.iter().collect::<Vec<_>>()));
        Ok(StatedCodes { codes: all, bits })
    }

    /// The relations that all owe for the circuit on `n` elements, given the codes and the planes of `b`: the result.
    pub fn relations<E: Engine>(
        &self,
        t: &mut Transcript<'_, E>,
        n: usize,
        codes: &StatedCodes,
        b: &Bits,
    ) -> Result<Unopened> {
        let samples = Samples {
            masks: t.samples(self.masks),
            shares: t.sample(self.shares),
            products: t.sample(self.products),
        };
        let mut all: Vec<Nodes> = Vec::new();
        for batch in &self.circuit.batches {
            let nodes = match &batch.gate {
                &Gate::Leaf { digits, first, stride } => {
                    let rows = (0..batch.rows).map(|row| first + row * stride);
                    let results = self.stated_leaf(&codes.codes[digits], digits, rows, b);
                    self.results_of(t, n, (batch, &samples), results, None)?
                }
                Gate::Merge { children, dealt: first, low } => {
                    self.stated_merge(t, n, (batch, &samples), (children, *first, *low), &all)?
                }
            };
            all.push(nodes);
        }
        Ok(all.pop().and_then(|root| root.kept).expect("the root is kept"))
    }

    /// `greater` and `equal` of digits of one size, the latter alone in a test for equality.
    fn stated_leaf(
        &self,
        codes: &[Shared<Bits>],
        size: usize,
        rows: impl Iterator<Item = usize> + Clone,
        b: &Bits,
    ) -> Vec<Unopened> {
        let cols = self.cols;
        let group = &self.circuit.digits[size];
        let digit: Vec<_> = (0..group.digit)
            .map(|j| b.picked(cols, rows.clone().map(|row| group.bit + row * group.digit + j)))
            .collect();
        let len = rows.clone().count() * cols;
        // True where the digit of ~b is k.
        let at: Vec<_> = (0..codes.len())
            .map(|k| {
                let bits = digit.iter().enumerate();
                bits.fold(Bits::one(len), |at, (j, bit)| {
                    if k >> j & 1 == 1 { at * (bit + Bits::one(len)) } else { at * bit }
                })
            })
            .collect();
        let codes: Vec<_> = codes
            .iter()
            .map(|code| code.each_ref().map(|share| share.picked(cols, rows.clone())))
            .collect();
        let with = |indicators: &[Bits], first: usize| {
            let evaluators = [0, 1].map(|side| {
                let terms = codes[first..].iter().zip(indicators);
                terms.map(|(code, indicator)| &code[side] * indicator).sum()
            });
            Unopened { dealer: Bits::zero(), evaluators }
        };
        let mut above = vec![at[0].clone()];
        for at in &at[1..at.len() - 1] {
            above.push(above[above.len() - 1].clone() + at);
        }
        match self.circuit.predicate {
            Predicate::Carry => vec![with(&above, 1), with(&at, 0)],
            Predicate::Equal => vec![with(&at, 0)],
        }
    }

    fn stated_merge<E: Engine>(
        &self,
        t: &mut Transcript<'_, E>,
        n: usize,
        (batch, samples): (&Batch, &Samples),
        (children, first, low): (&[Child], usize, bool),
        below: &[Nodes],
    ) -> Result<Nodes> {
        let cols = self.cols;
        let rows = batch.rows;
        let of = |child: &Child| {
            let Child { row, stride, .. } = *child;
            (0..rows).map(move |r| row + r * stride)
        };
        let mut v = HashMap::new();
        let mut u = HashMap::new();
        for (at, (child, _, slot)) in self.factors(children).enumerate() {
            let opened = &below[child.batch].opened[slot];
            v.insert(1 << at, opened.v.picked(cols, of(child)));
            u.insert(1 << at, opened.u.each_ref().map(|share| share.picked(cols, of(child))));
        }
        let predicate = self.circuit.predicate;
        let terms = terms(predicate, low, children.len());
        let dealt_sets = dealt_sets(&terms);
        let count = dealt_sets.len();
        assert_eq!(count, dealt(predicate, low, children.len()), "products of masks");
        let left: Bits = t.dealt_left(rows * count, cols)?;
        for (j, &set) in dealt_sets.iter().enumerate() {
            let planes = |first: usize| (0..rows).map(move |row| first + row * count + j);
            let shares =
                [left.picked(cols, planes(0)), samples.products.picked(cols, planes(first))];
            let owed = joined(&shares);
            u.insert(set, shares);
            t.bits(Role::Dealer, rows, n, &(product_of_masks(&u, set) + owed))?;
        }
        let top = &children[children.len() - 1];
        let mut results = Vec::new();
        for (at, terms) in terms.iter().enumerate() {
            let mut sum =
                Unopened { dealer: Bits::zero(), evaluators: [Bits::zero(), Bits::zero()] };
            if predicate == Predicate::Carry && at == 0 {
                let kept = below[top.batch].kept.as_ref().expect("the top is an addend");
                sum.dealer = kept.dealer.picked(cols, of(top));
                sum.evaluators =
                    kept.evaluators.each_ref().map(|share| share.picked(cols, of(top)));
            }
            for &set in terms {
                sum.dealer = sum.dealer + product_of_masks(&u, set);
                let [left, right] = sum.evaluators;
                let [of_left, of_right] =
                    [0, 1].map(|side| share_of_product(&mut v, &u, set, side));
                sum.evaluators =
                    [left + of_left + product_of_opened(&mut v, set), right + of_right];
            }
            results.push(sum);
        }
        let shares = t.dealt_left(rows * batch.opened_planes(), cols)?;
        self.results_of(t, n, (batch, samples), results, Some(&shares))
    }

    /// The relations that are owed for those of a batch's results that are opened. `shares` are left's, of the masks of merged nodes.
    fn results_of<E: Engine>(
        &self,
        t: &mut Transcript<'_, E>,
        n: usize,
        (batch, samples): (&Batch, &Samples),
        results: Vec<Unopened>,
        shares: Option<&Bits>,
    ) -> Result<Nodes> {
        let cols = self.cols;
        let rows = batch.rows;
        let k = batch.opened_planes();
        let sent = t.exchanged(rows * k, cols)?;
        let mut nodes = Nodes::default();
        for (slot, result) in self.results(batch).into_iter().zip(results) {
            let Some(slot) = slot else {
                nodes.kept = Some(result);
                continue;
            };
            let planes = |first: usize| (0..rows).map(move |row| first + row * k + slot);
            let masks = samples.masks.each_ref().map(|m| m.picked(cols, planes(batch.opened)));
            let sent = sent.each_ref().map(|sent| sent.picked(cols, planes(0)));
            for (side, role) in [Role::Left, Role::Right].into_iter().enumerate() {
                let opened = &result.evaluators[side] + &masks[side] + &sent[side];
                t.bits(role, rows, n, &opened)?;
            }
            let u = match shares {
                // The mask of a leaf's bit is the sum of both evaluators' masks.
                None => masks,
                Some(shares) => {
                    let shares = [
                        shares.picked(cols, planes(0)),
                        samples.shares.picked(cols, planes(batch.shares)),
                    ];
                    let mask = result.dealer + joined(&masks) + joined(&shares);
                    t.bits(Role::Dealer, rows, n, &mask)?;
                    shares
                }
            };
            let [left, right] = sent;
            nodes.opened.push(Opened { v: left + right, u });
        }
        Ok(nodes)
    }
}

/// The sum of both shares.
fn joined([left, right]: &Shared<Bits>) -> Bits {
    left + right
}

/// The products whose sum is a result, for `greater` and `equal`: sets of factors.
fn terms(predicate: Predicate, low: bool, n: usize) -> Vec<Vec<Set>> {
    // By child the numbers of its factors.
    let mut number = 0;
    let mut next = |is: bool| {
        let own: Set = if is { 1 << number } else { 0 };
        number += u32::from(is);
        own
    };
    let carry = predicate == Predicate::Carry;
    let factors: Vec<[Set; 2]> =
        (0..n).map(|i| [next(carry && i + 1 < n), next(!carry || !low || i > 0)]).collect();
    let equal = |from: usize| factors[from..].iter().fold(0, |set, [_, equal]| set | equal);
    let mut all = Vec::new();
    if carry {
        all.push((0..n - 1).map(|i| factors[i][0] | equal(i + 1)).collect());
    }
    if !carry || !low {
        all.push(vec![equal(0)]);
    }
    all
}

/// The sets of masks whose products are dealt, in the order of dealing: of each term its pairs, then its threes.
fn dealt_sets(terms: &[Vec<Set>]) -> Vec<Set> {
    let mut all = Vec::new();
    for &term in terms.iter().flatten() {
        for size in 2..term.count_ones() {
            let mut sets: Vec<Set> =
                (1..=term).filter(|set| set & term == *set && set.count_ones() == size).collect();
            // Lowest factors first.
            sets.sort_by_key(|set| std::cmp::Reverse(set.reverse_bits()));
            sets.retain(|set| !all.contains(set));
            all.extend(sets);
        }
    }
    all
}

/// The product of the masks of a set, from the first one and from the product of the others.
fn product_of_masks(u: &HashMap<Set, Shared<Bits>>, set: Set) -> Bits {
    let first = set & set.wrapping_neg();
    joined(&u[&first]) * joined(&u[&(set - first)])
}

/// The product of the opened bits of a set.
fn product_of_opened(v: &mut HashMap<Set, Bits>, set: Set) -> Bits {
    if let Some(product) = v.get(&set) {
        return product.clone();
    }
    let first = set & set.wrapping_neg();
    let product = &v[&first].clone() * product_of_opened(v, set - first);
    v.insert(set, product.clone());
    product
}

/// An evaluator's share of the product of all `v + u` of a set, but for the products of all `v` and of all `u`.
fn share_of_product(
    v: &mut HashMap<Set, Bits>,
    u: &HashMap<Set, Shared<Bits>>,
    set: Set,
    side: usize,
) -> Bits {
    let parts = (1..set).filter(|part| part & set == *part);
    parts.map(|part| &u[&part][side] * product_of_opened(v, set - part)).sum()
}
