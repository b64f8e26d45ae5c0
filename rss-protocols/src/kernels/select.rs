//! A bit `u ^ v`, `u` known to the dealer and `v` to the evaluators, times words; sums of such
//! bits.

use ring_arith::{Word, WordKernel};

kernel! {
    /// The dealer shares `u (x0 + x1)`: less right's share, sent to left. Its components of
    /// the result are streams.
    SelectDealer("select-dealer") [u, x0, x1, d, y0, y1; 6] _ => [3] {
        [(-u & (x0 + x1)) - d, y0, y1]
    }
}
kernel! {
    /// An evaluator's addend of the product's component 2, masked:
    /// `(1 - 2v)(d + u b) + v a - y`, where left adds `v b` too; and `y`. The first
    /// parameter is all ones at left, the second flips `v`.
    SelectEvaluator("select-evaluator") [v, u, d, b, a, y; 6] params => [2] {
        let v = v ^ params[1];
        let yes = -v;
        let z = d + u * b;
        let left = params[0];
        mutant!("select: v b twice", left = Word::constant(u64::MAX));
        [((z ^ yes) + v) + (yes & (a + (b & left))) - y, y]
    }
}
kernel! {
    /// `u (1 - 2v) + v`, the last at left alone, less `y`; and `y`. Parameters as
    /// [`SelectEvaluator`]'s.
    ArithEvaluator("arith-evaluator") [v, u, y; 3] params => [2] {
        let v = v ^ params[1];
        let yes = -v;
        [((u ^ yes) + v) + (v & params[0]) - y, y]
    }
}
kernel! {
    /// The dealer shares every bit of `u` as a word, one a row: the factor brings the row's bit to the top.
    LaneDealer("lane-dealer") [u, place, p2; 3] _ => [1] [(u * place).shr(63) - p2]
}

/// Bits that a [`LaneSum`] adds at a time.
pub(crate) const LANES: usize = 8;

/// `total + sum(c (u (1 - 2v) + v))` over eight bits of `v` from `first` on with their shares of `u`; the
/// last addend at left alone, where the first parameter is all ones.
#[derive(Debug)]
pub(crate) struct LaneSum {
    pub first: u32,
}

impl WordKernel<{ LANES + 2 }, 1> for LaneSum {
    fn name(&self) -> &'static str {
        "lane-sum"
    }
    #[inline(always)]
    fn step<W: Word>(&self, inputs: [W; LANES + 2], params: &[W]) -> [W; 1] {
        let first = self.first;
        mutant!("sums: every group by the first bits", first = 0);
        let v = inputs[1].shr(first);
        let mut total = inputs[0];
        for i in 0..LANES {
            let v = v.shr(i as u32) & W::constant(1);
            let z = ((inputs[2 + i] ^ -v) + v) + (v & params[0]);
            total = total + z * params[1 + i];
        }
        [total]
    }
}
