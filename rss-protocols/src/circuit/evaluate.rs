//! Evaluation of the comparison circuit on planes of bits.
//!
//! | round | dealer | left | right |
//! |---|---|---|---|
//! | 1 | encoded digits of `a` to right; products of masks and shares of masks to left | | |
//! | one a level | | factors of the level's products, masked, to right | the same, to left |
//!
//! Masks of leaves are known to the dealer as the sum of both evaluators' masks; of merged nodes it shares the masks.

use std::sync::Arc;

use mpc_core::Result;
use ring_arith::{Engine, Source, Target};

use super::schedule::{Batch, Child, Circuit, DigitGroup, Gate, Predicate, dealt};
use crate::{
    kernels::{
        Codes, Deal2, Deal3, Deal4, DealAll2, DealAll3, DealAll4, DealLow2, DealLow3, DealLow4,
        Digits, DigitsEqual, DigitsGreater, LeafMask, Merge2, Merge3, Merge4, MergeAll2, MergeAll3,
        MergeAll4, MergeLow2, MergeLow3, MergeLow4,
    },
    runtime::{
        launch::{plane_of, planes, to_plane},
        prss::{Key, Planes, Sample},
        roles::Role,
        rounds::{Incoming, Port},
    },
};

/// The samples of one evaluation, on planes of `cols` words.
#[derive(Clone)]
pub(crate) struct Evaluation {
    pub(super) circuit: Arc<Circuit>,
    pub(super) cols: usize,
    /// Left's shares of the encoded digits.
    pub(super) digits: Sample,
    /// Masks of the bits that the evaluators open, by the evaluator that adds them.
    pub(super) masks: [Sample; 2],
    /// Right's shares of the masks of merged nodes.
    pub(super) shares: Sample,
    /// Right's shares of the products of masks.
    pub(super) products: Sample,
}

/// The dealer's message to an evaluator.
pub(crate) enum CircuitMessage<T> {
    /// By batch of merges: shares of products of masks, and of the masks of its opened bits.
    Left { products: Vec<T>, shares: Vec<T> },
    /// By size: shares of the encoded digits.
    Right { digits: Vec<T> },
}

/// An evaluator's bits of the batches so far.
struct State<T> {
    /// Opened bits as sent, and as received.
    own: Vec<T>,
    other: Vec<T>,
    /// Shares of those bits that are addends of the next level, or the result.
    kept: Vec<T>,
}

impl Evaluation {
    pub fn sample<E: Engine>(circuit: Arc<Circuit>, p: &mut Port<'_, E>, cols: usize) -> Self {
        let digits = p.sample(Key::Left, circuit.digit_planes * cols);
        let masks = p.sample_both(circuit.opened * cols);
        let shares = p.sample(Key::Right, circuit.shares * cols);
        let products = p.sample(Key::Right, circuit.dealt * cols);
        Self { circuit, cols, digits, masks, shares, products }
    }

    /// The first batch that merges; those before it are leaves.
    fn leaves(&self) -> usize {
        self.circuit.levels[0].end
    }

    // -- the dealer ------------------------------------------------------------------------------

    /// The dealer's whole work, given the planes of `a`: its part of the result, unless that is a leaf.
    pub fn deal<E: Engine>(&self, p: &Port<'_, E>, a: &E::Tensor) -> Result<Option<E::Tensor>> {
        self.deal_digits(p, a)?;
        let leaves = self.leaves();
        if leaves == self.circuit.batches.len() {
            return Ok(None);
        }
        let leaf = self.leaf_masks(p)?;
        let mut masks = Vec::new();
        let mut kept = Vec::new();
        for batch in &self.circuit.batches[leaves..] {
            let [products, mask, share, top] = self.deal_batch(p, batch, &leaf, &masks, &kept)?;
            p.to_left(&products)?;
            p.to_left(&share)?;
            masks.push(mask);
            kept.push(top);
        }
        Ok(kept.pop())
    }

    fn deal_digits<E: Engine>(&self, p: &Port<'_, E>, a: &E::Tensor) -> Result<()> {
        let cols = self.cols;
        for group in &self.circuit.digits {
            let digit = group.digit;
            let code = (1 << digit) - 1;
            let bits = (0..digit).map(|j| plane_of(a, group.bit + j, digit, cols));
            let masks = (group.first..group.first + code).map(|first| {
                let rows = Planes { first, stride: code, count: group.rows };
                p.streams.planes(self.digits, rows, cols)
            });
            let sources = bits.chain(masks).collect();
            let targets = (0..code).map(|k| to_plane(0, k, code, cols)).collect();
            let space = [group.rows, cols];
            let outputs = [group.rows * code];
            let [encoded] = match digit {
                1 => planes(p.engine, &Codes::<1>, space, sources, &[], outputs, targets)?,
                2 => planes(p.engine, &Codes::<2>, space, sources, &[], outputs, targets)?,
                3 => planes(p.engine, &Codes::<3>, space, sources, &[], outputs, targets)?,
                _ => planes(p.engine, &Codes::<4>, space, sources, &[], outputs, targets)?,
            };
            #[cfg(test)]
            p.links.borrow_mut().note_codes(code, cols);
            p.to_right(&encoded)?;
        }
        Ok(())
    }

    /// The masks of all that leaves open.
    fn leaf_masks<E: Engine>(&self, p: &Port<'_, E>) -> Result<E::Tensor> {
        let rows = self.circuit.leaf_opened;
        let all = Planes { first: 0, stride: 1, count: rows };
        let sources = self.masks.iter().map(|&m| p.streams.planes(m, all, self.cols)).collect();
        let targets = vec![to_plane(0, 0, 1, self.cols)];
        let space = [rows, self.cols];
        let [masks] = planes(p.engine, &LeafMask, space, sources, &[], [rows], targets)?;
        Ok(masks)
    }

    /// Deals one batch of merges: left's shares of products, the masks of the opened bits, left's shares of those
    /// masks, and the dealer's part of the kept bits.
    fn deal_batch<E: Engine>(
        &self,
        p: &Port<'_, E>,
        batch: &Batch,
        leaf: &E::Tensor,
        masks: &[E::Tensor],
        kept: &[E::Tensor],
    ) -> Result<[E::Tensor; 4]> {
        let Gate::Merge { children, dealt: first, low } = &batch.gate else {
            unreachable!("levels above 0 merge")
        };
        let Self { cols, .. } = *self;
        let (rows, k) = (batch.rows, batch.opened_planes());
        let predicate = self.circuit.predicate;
        let leaves = self.leaves();
        let count = dealt(predicate, *low, children.len());
        let mut sources = Vec::new();
        for (child, from, slot) in self.factors(children) {
            let (tensor, base) = match child.batch.checked_sub(leaves) {
                Some(merged) => (&masks[merged], 0),
                None => (leaf, from.opened),
            };
            sources.push(row_plane(tensor, base, child, from, slot, cols));
        }
        sources.extend((*first..first + count).map(|first| {
            let rows = Planes { first, stride: count, count: rows };
            p.streams.planes(self.products, rows, cols)
        }));
        if predicate == Predicate::Carry {
            let top = &children[children.len() - 1];
            sources.push(match top.batch.checked_sub(leaves) {
                Some(merged) => plane_of(&kept[merged], top.row, top.stride, cols),
                None => p.zero(),
            });
        }
        let mut targets: Vec<Target> = (0..count).map(|j| to_plane(0, j, count, cols)).collect();
        for slot in self.results(batch) {
            match slot {
                Some(slot) => {
                    let opened = Planes { first: batch.opened + slot, stride: k, count: rows };
                    sources.extend(self.masks.map(|mask| p.streams.planes(mask, opened, cols)));
                    let shares = Planes { first: batch.shares + slot, stride: k, count: rows };
                    sources.push(p.streams.planes(self.shares, shares, cols));
                    targets.extend([to_plane(1, slot, k, cols), to_plane(2, slot, k, cols)]);
                }
                None => {
                    sources.extend([p.zero(), p.zero(), p.zero()]);
                    targets.extend([to_plane(3, 0, 1, cols), to_plane(4, 0, 1, cols)]);
                }
            }
        }
        let keeps = rows * usize::from(batch.keeps);
        // The last is the share of a mask that is not needed, since nothing is opened under it.
        let outputs = [rows * count, rows * k, rows * k, keeps, keeps];
        macro_rules! run {
            ($kernel:expr) => {
                planes(p.engine, &$kernel, [rows, cols], sources, &[], outputs, targets)?
            };
        }
        let [products, mask, share, top, _] = match (predicate, low, children.len()) {
            (Predicate::Carry, false, 2) => run!(Deal2),
            (Predicate::Carry, false, 3) => run!(Deal3),
            (Predicate::Carry, false, _) => run!(Deal4),
            (Predicate::Carry, true, 2) => run!(DealLow2),
            (Predicate::Carry, true, 3) => run!(DealLow3),
            (Predicate::Carry, true, _) => run!(DealLow4),
            (Predicate::Equal, _, 2) => run!(DealAll2),
            (Predicate::Equal, _, 3) => run!(DealAll3),
            (Predicate::Equal, _, _) => run!(DealAll4),
        };
        Ok([products, mask, share, top])
    }

    // -- the evaluators --------------------------------------------------------------------------

    /// Reads the dealer's message.
    pub fn read<E: Engine>(
        &self,
        role: Role,
        incoming: &Incoming<'_, '_, E>,
    ) -> Result<CircuitMessage<E::Tensor>> {
        let cols = self.cols;
        if role == Role::Right {
            let mut digits = Vec::with_capacity(self.circuit.digits.len());
            for DigitGroup { rows, digit, .. } in &self.circuit.digits {
                digits.push(incoming.planes(rows * ((1 << digit) - 1), cols)?);
            }
            return Ok(CircuitMessage::Right { digits });
        }
        let mut products = Vec::new();
        let mut shares = Vec::new();
        for batch in &self.circuit.batches[self.leaves()..] {
            if let Gate::Merge { children, low, .. } = &batch.gate {
                let count = dealt(self.circuit.predicate, *low, children.len());
                products.push(incoming.planes(batch.rows * count, cols)?);
                shares.push(incoming.planes(batch.rows * batch.opened_planes(), cols)?);
            }
        }
        Ok(CircuitMessage::Left { products, shares })
    }

    /// An evaluator's share of the result, given the planes of `b`.
    pub async fn evaluate<E: Engine>(
        &self,
        p: &Port<'_, E>,
        mut message: CircuitMessage<E::Tensor>,
        b: E::Tensor,
    ) -> Result<E::Tensor> {
        let levels = &self.circuit.levels;
        let mut state = State { own: Vec::new(), other: Vec::new(), kept: Vec::new() };
        for at in levels[0].clone() {
            let [opened, kept] = self.leaf(p, at, &message, &b)?;
            state.own.push(opened);
            state.kept.push(kept);
        }
        // Only leaves need these words: chunks that wait should not keep them.
        drop(b);
        if let CircuitMessage::Right { digits } = &mut message {
            digits.clear();
        }
        for level in 1..levels.len() {
            let below = levels[level - 1].clone();
            state.own[below.clone()].iter().try_for_each(|opened| p.to_peer(opened))?;
            let received = p.received().await;
            for batch in &self.circuit.batches[below] {
                let opened = batch.rows * batch.opened_planes();
                state.other.push(received.planes(opened, self.cols)?);
            }
            for at in levels[level].clone() {
                let [opened, kept] = self.merge(p, at, &message, &state)?;
                state.own.push(opened);
                state.kept.push(kept);
            }
        }
        // The root is the last batch, and the only node of its level.
        Ok(state.kept.swap_remove(self.circuit.batches.len() - 1))
    }

    fn leaf<E: Engine>(
        &self,
        p: &Port<'_, E>,
        at: usize,
        message: &CircuitMessage<E::Tensor>,
        b: &E::Tensor,
    ) -> Result<[E::Tensor; 2]> {
        let batch = &self.circuit.batches[at];
        let Gate::Leaf { digits: size, first, stride } = batch.gate else {
            unreachable!("level 0 has leaves only")
        };
        let cols = self.cols;
        let group = &self.circuit.digits[size];
        let digit = group.digit;
        let code = (1 << digit) - 1;
        let mut sources: Vec<Source<'_, E::Tensor>> = Vec::with_capacity(code + digit + 2);
        for k in first * code..(first + 1) * code {
            sources.push(match message {
                CircuitMessage::Right { digits } => plane_of(&digits[size], k, stride * code, cols),
                CircuitMessage::Left { .. } => {
                    let (first, stride) = (group.first + k, stride * code);
                    p.streams.planes(self.digits, Planes { first, stride, count: batch.rows }, cols)
                }
            });
        }
        let bits = group.bit + first * digit..group.bit + (first + 1) * digit;
        sources.extend(bits.map(|bit| plane_of(b, bit, stride * digit, cols)));
        let (outputs, targets) = self.add_results(p, batch, &mut sources);
        let parity = [!p.if_left()];
        macro_rules! run {
            ($kernel:expr) => {
                planes(p.engine, &$kernel, [batch.rows, cols], sources, &parity, outputs, targets)?
            };
        }
        Ok(match (self.circuit.predicate, targets.len(), digit) {
            (Predicate::Carry, 2, 1) => run!(Digits::<1>),
            (Predicate::Carry, 2, 2) => run!(Digits::<2>),
            (Predicate::Carry, 2, 3) => run!(Digits::<3>),
            (Predicate::Carry, 2, _) => run!(Digits::<4>),
            (Predicate::Carry, _, 1) => run!(DigitsGreater::<1>),
            (Predicate::Carry, _, 2) => run!(DigitsGreater::<2>),
            (Predicate::Carry, _, 3) => run!(DigitsGreater::<3>),
            (Predicate::Carry, _, _) => run!(DigitsGreater::<4>),
            (Predicate::Equal, _, 1) => run!(DigitsEqual::<1>),
            (Predicate::Equal, _, 2) => run!(DigitsEqual::<2>),
            (Predicate::Equal, _, 3) => run!(DigitsEqual::<3>),
            (Predicate::Equal, _, _) => run!(DigitsEqual::<4>),
        })
    }

    fn merge<E: Engine>(
        &self,
        p: &Port<'_, E>,
        at: usize,
        message: &CircuitMessage<E::Tensor>,
        state: &State<E::Tensor>,
    ) -> Result<[E::Tensor; 2]> {
        let batch = &self.circuit.batches[at];
        let Gate::Merge { children, dealt: first, low } = &batch.gate else {
            unreachable!("levels above 0 merge")
        };
        let cols = self.cols;
        let predicate = self.circuit.predicate;
        let leaves = self.leaves();
        let mut sources = Vec::new();
        for side in [&state.own, &state.other] {
            for (child, from, slot) in self.factors(children) {
                sources.push(row_plane(&side[child.batch], 0, child, from, slot, cols));
            }
        }
        for (child, from, slot) in self.factors(children) {
            let k = from.opened_planes();
            let first = child.row * k + slot;
            let rows = Planes { first, stride: child.stride * k, count: batch.rows };
            sources.push(match (child.batch.checked_sub(leaves), message) {
                // The mask of a leaf's bit is this party's share of the leaf's mask.
                (None, _) => {
                    let rows = Planes { first: from.opened + first, ..rows };
                    p.streams.planes_again(p.own(self.masks), rows, cols)
                }
                (Some(merged), CircuitMessage::Left { shares, .. }) => {
                    plane_of(&shares[merged], first, rows.stride, cols)
                }
                (Some(_), CircuitMessage::Right { .. }) => {
                    let rows = Planes { first: from.shares + first, ..rows };
                    p.streams.planes(self.shares, rows, cols)
                }
            });
        }
        let count = dealt(predicate, *low, children.len());
        for j in 0..count {
            sources.push(match message {
                CircuitMessage::Left { products, .. } => {
                    plane_of(&products[at - leaves], j, count, cols)
                }
                CircuitMessage::Right { .. } => {
                    let rows = Planes { first: first + j, stride: count, count: batch.rows };
                    p.streams.planes(self.products, rows, cols)
                }
            });
        }
        if predicate == Predicate::Carry {
            let top = &children[children.len() - 1];
            sources.push(plane_of(&state.kept[top.batch], top.row, top.stride, cols));
        }
        let (outputs, targets) = self.add_results(p, batch, &mut sources);
        let left = [p.if_left()];
        macro_rules! run {
            ($kernel:expr) => {
                planes(p.engine, &$kernel, [batch.rows, cols], sources, &left, outputs, targets)?
            };
        }
        Ok(match (predicate, low, children.len()) {
            (Predicate::Carry, false, 2) => run!(Merge2),
            (Predicate::Carry, false, 3) => run!(Merge3),
            (Predicate::Carry, false, _) => run!(Merge4),
            (Predicate::Carry, true, 2) => run!(MergeLow2),
            (Predicate::Carry, true, 3) => run!(MergeLow3),
            (Predicate::Carry, true, _) => run!(MergeLow4),
            (Predicate::Equal, _, 2) => run!(MergeAll2),
            (Predicate::Equal, _, 3) => run!(MergeAll3),
            (Predicate::Equal, _, _) => run!(MergeAll4),
        })
    }

    /// Adds the masks of a batch's results to the sources; the outputs, opened planes and kept ones, and where the
    /// results go.
    fn add_results<'x, E: Engine>(
        &self,
        p: &'x Port<'_, E>,
        batch: &Batch,
        sources: &mut Vec<Source<'x, E::Tensor>>,
    ) -> ([usize; 2], Vec<Target>) {
        let cols = self.cols;
        let k = batch.opened_planes();
        let mut targets = Vec::new();
        for slot in self.results(batch) {
            match slot {
                Some(slot) => {
                    let rows = Planes { first: batch.opened + slot, stride: k, count: batch.rows };
                    sources.push(p.streams.planes(p.own(self.masks), rows, cols));
                    targets.push(to_plane(0, slot, k, cols));
                }
                None => {
                    sources.push(p.zero());
                    targets.push(to_plane(1, 0, 1, cols));
                }
            }
        }
        ([batch.rows * k, batch.rows * usize::from(batch.keeps)], targets)
    }

    // -- both ------------------------------------------------------------------------------------

    /// The factors of merges with these children, lowest first, `greater` before `equal`.
    pub(super) fn factors<'x>(
        &'x self,
        children: &'x [Child],
    ) -> impl Iterator<Item = (&'x Child, &'x Batch, usize)> {
        children.iter().flat_map(|child| {
            let batch = &self.circuit.batches[child.batch];
            (0..batch.opened_planes()).map(move |slot| (child, batch, slot))
        })
    }

    /// For each result of a node: its place among the opened bits, or `None` if it is kept.
    pub(super) fn results(&self, batch: &Batch) -> Vec<Option<usize>> {
        let greater = batch.opens_g.then_some(0);
        let equal = batch.opens_e.then_some(usize::from(batch.opens_g));
        match (self.circuit.predicate, &batch.gate) {
            (Predicate::Equal, _) => vec![equal],
            (Predicate::Carry, Gate::Merge { low: true, .. }) => vec![greater],
            (Predicate::Carry, Gate::Leaf { .. }) if !batch.opens_e => vec![greater],
            (Predicate::Carry, _) => vec![greater, equal],
        }
    }
}

/// The plane of a child's factor, from a tensor that holds its batch from plane `base` on.
fn row_plane<'x, T>(
    tensor: &'x T,
    base: usize,
    child: &Child,
    batch: &Batch,
    slot: usize,
    cols: usize,
) -> Source<'x, T> {
    let k = batch.opened_planes();
    plane_of(tensor, base + child.row * k + slot, child.stride * k, cols)
}
