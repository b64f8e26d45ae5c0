//! The order of a chain's steps, and the carries of their operands.

use mpc_core::{Chain, Step, Sum, TruncationMode, Value};

/// A chain as the parties carry it out.
pub(super) struct Schedule {
    pub steps: Vec<Product>,
    pub levels: usize,
    /// For each step the last one that takes it and the last level that does; none of a result.
    pub last: Vec<Option<[usize; 2]>>,
    /// Steps whose results leave the chain, in order.
    pub results: Vec<usize>,
}

/// A step with the carries of its operands.
pub(super) struct Product {
    pub step: Step,
    level: usize,
    /// Carries in the factors.
    pub carries: Vec<Carry>,
    /// Carries in the addend, by step, with their factors.
    pub added: Vec<(usize, u64)>,
}

/// The carry of a step in the factors of another: its factor in each.
pub(super) struct Carry {
    pub step: usize,
    pub factors: [u64; 2],
}

impl Schedule {
    /// `None` if products of carries would not vanish, or a step is to be truncated in another way than the two fast
    /// ones, which a checked session rounds alike.
    pub fn new<S>(chain: &Chain<'_, S>, levels: Vec<usize>, checked: bool) -> Option<Self> {
        let mut steps: Vec<Product> = Vec::with_capacity(levels.len());
        for (step, &level) in chain.steps.iter().zip(&levels) {
            let fast = matches!(step.mode, TruncationMode::Default | TruncationMode::Early);
            if step.bits > 0 && !fast {
                return None;
            }
            let [lhs, rhs, added] =
                [&step.lhs, &step.rhs, &step.plus].map(|sum| carries_of(chain, sum));
            // Products of two carries vanish.
            let most = 64;
            mutant!("chain: carries whose product is in the word", most = 72);
            for &(x, _) in &lhs {
                for &(y, _) in &rhs {
                    if x != y && chain.steps[x].bits + chain.steps[y].bits > most {
                        return None;
                    }
                }
            }
            let mut carried: Vec<usize> = lhs.iter().chain(&rhs).map(|(i, _)| *i).collect();
            carried.sort_unstable();
            carried.dedup();
            let mut carries = Vec::with_capacity(carried.len());
            for i in carried {
                let factors = [factor_of(&lhs, i), factor_of(&rhs, i)];
                mutant!("chain: a carry in the second factor forgotten", factors = [factors[0], 0]);
                carries.push(Carry { step: i, factors });
            }
            let mut step = step.clone();
            if checked {
                step.mode = TruncationMode::Default;
            }
            steps.push(Product { step, level, carries, added });
        }
        let mut results = chain.results.clone();
        results.sort_unstable();
        results.dedup();
        let mut last: Vec<_> = (0..steps.len()).map(|i| Some([i, levels[i]])).collect();
        for (at, product) in steps.iter().enumerate() {
            for (i, [step, level]) in last[..at].iter_mut().flatten().enumerate() {
                if product.step.takes(Value::Step(i)) {
                    *step = at;
                    *level = (*level).max(product.level);
                }
            }
        }
        results.iter().for_each(|&result| last[result] = None);
        Some(Self { steps, levels: levels.into_iter().max().unwrap_or(0), last, results })
    }

    /// The steps of a level.
    pub fn level(&self, level: usize) -> impl Iterator<Item = usize> {
        (0..self.steps.len()).filter(move |&i| self.steps[i].level == level)
    }

    /// Bits that a step drops.
    pub fn bits(&self, step: usize) -> u32 {
        self.steps[step].step.bits
    }
}

impl Product {
    /// Bits that each half is rounded by before it is sent.
    pub fn early(&self) -> Option<u32> {
        let early = self.step.bits > 0 && self.step.mode == TruncationMode::Early;
        early.then_some(self.step.bits)
    }
}

/// The truncated steps in a sum, each with its factor.
fn carries_of<S>(chain: &Chain<'_, S>, sum: &Sum) -> Vec<(usize, u64)> {
    let mut all: Vec<(usize, u64)> = Vec::new();
    for &(factor, value) in &sum.terms {
        let Value::Step(i) = value else { continue };
        if chain.steps[i].bits == 0 {
            continue;
        }
        match all.iter_mut().find(|(at, _)| *at == i) {
            Some((_, sum)) => {
                mutant!("chain: a step's second term in a sum forgotten", factor = 0);
                *sum = sum.wrapping_add(factor);
            }
            None => all.push((i, factor)),
        }
    }
    all
}

/// The factor of a step in a list, 0 if it is not there.
fn factor_of(list: &[(usize, u64)], step: usize) -> u64 {
    list.iter().find(|(at, _)| *at == step).map_or(0, |(_, factor)| *factor)
}
