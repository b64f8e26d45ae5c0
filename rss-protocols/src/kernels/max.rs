//! The largest of three or four: products of two or three bits `u ^ v` with the difference of two words.
//!
//! Subsets of the bits are numbered: bit `k` of the number is 1 if the subset has bit `k`.

use ring_arith::{Word, WordKernel};

/// All ones where all bits of `u` in a subset are 1.
#[inline(always)]
fn all<W: Word>(u: &[W], subset: usize) -> W {
    let mut all = W::constant(u64::MAX);
    for (k, &bit) in u.iter().enumerate() {
        if subset >> k & 1 == 1 {
            all = all & -bit;
        }
    }
    all
}

/// The dealer's part of `x - y` times the products of all subsets, less right's shares.
#[inline(always)]
fn parts<W: Word, const SUBSETS: usize>(u: &[W], words: &[W]) -> [W; SUBSETS] {
    let part = words[0] + words[1] - words[2] - words[3];
    let mut parts = [part; SUBSETS];
    for (i, share) in parts.iter_mut().enumerate() {
        *share = (part & all(u, i + 1)) - words[4 + i];
    }
    parts
}

/// The dealer shares the products of two or three bits, less left's shares.
#[derive(Debug)]
pub(crate) struct BitProducts<const BITS: usize>;

impl WordKernel<3, 1> for BitProducts<2> {
    fn name(&self) -> &'static str {
        "bit-products-2"
    }
    #[inline(always)]
    fn step<W: Word>(&self, [u, v, mask]: [W; 3], _: &[W]) -> [W; 1] {
        [(u & v) - mask]
    }
}

impl WordKernel<7, 4> for BitProducts<3> {
    fn name(&self) -> &'static str {
        "bit-products-3"
    }
    #[inline(always)]
    fn step<W: Word>(&self, inputs: [W; 7], _: &[W]) -> [W; 4] {
        let [u, v, w, masks @ ..] = inputs;
        [(u & v) - masks[0], (u & w) - masks[1], (v & w) - masks[2], (u & v & w) - masks[3]]
    }
}

/// The dealer shares its part of `x - y` times the products of all subsets of two or three bits, less right's
/// shares. Inputs are the bits, the dealer's components of `x` and of `y`, and the shares.
#[derive(Debug)]
pub(crate) struct GainDealer<const BITS: usize>;

impl WordKernel<9, 3> for GainDealer<2> {
    fn name(&self) -> &'static str {
        "gain-dealer-2"
    }
    #[inline(always)]
    fn step<W: Word>(&self, inputs: [W; 9], _: &[W]) -> [W; 3] {
        let (u, words) = inputs.split_at(2);
        parts(u, words)
    }
}

impl WordKernel<14, 7> for GainDealer<3> {
    fn name(&self) -> &'static str {
        "gain-dealer-3"
    }
    #[inline(always)]
    fn step<W: Word>(&self, inputs: [W; 14], _: &[W]) -> [W; 7] {
        let (u, words) = inputs.split_at(3);
        parts(u, words)
    }
}

/// An evaluator's share of `x - y` where all of two or three bits `u ^ v` are 1, added to a total.
///
/// Inputs are the total, the bits of `v`, the shares of the products of `u` by subset, and those of the products
/// times the dealer's part. Two more are for `x` and `y` each: the evaluators' component and the one shared with the
/// dealer. The first parameter is all ones at left, the others flip the bits of `v`.
#[derive(Debug)]
pub(crate) struct GainEvaluator<const BITS: usize>;

impl WordKernel<13, 1> for GainEvaluator<2> {
    fn name(&self) -> &'static str {
        "gain-evaluator-2"
    }
    #[inline(always)]
    fn step<W: Word>(&self, inputs: [W; 13], params: &[W]) -> [W; 1] {
        [gain(&inputs, 2, params)]
    }
}

impl WordKernel<22, 1> for GainEvaluator<3> {
    fn name(&self) -> &'static str {
        "gain-evaluator-3"
    }
    #[inline(always)]
    fn step<W: Word>(&self, inputs: [W; 22], params: &[W]) -> [W; 1] {
        [gain(&inputs, 3, params)]
    }
}

/// The product of `u ^ v = v + (1 - 2v) u` over all bits is a sum over the subsets that give their `u`.
#[inline(always)]
fn gain<W: Word>(inputs: &[W], bits: usize, params: &[W]) -> W {
    let subsets = (1 << bits) - 1;
    let (v, rest) = inputs[1..].split_at(bits);
    let (products, rest) = rest.split_at(subsets);
    let (parts, words) = rest.split_at(subsets);
    let joint = words[0] - words[1];
    let mut total = inputs[0];
    for subset in 0..=subsets {
        let mut term = match subset {
            0 => words[2] - words[3] + (joint & params[0]),
            _ => parts[subset - 1] + products[subset - 1] * joint,
        };
        for k in 0..bits {
            let yes = -(v[k] ^ params[1 + k]);
            mutant!("largest of four: a bit's opposite forgotten", yes = -v[k]);
            // 1 - 2v where the subset has the bit, v elsewhere.
            term = if subset >> k & 1 == 1 { (term ^ yes) - yes } else { term & yes };
        }
        total = total + term;
    }
    total
}
