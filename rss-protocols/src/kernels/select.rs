//! A bit `u ^ v`, `u` known to the pivot and `v` to the second and the third, times words; sums of such
//! bits.

use ring_arith::{Word, WordKernel};

kernel! {
    /// The pivot shares `u (x1 + x2)`: less the third's share, sent to the second. Its components of
    /// the result are streams.
    SelectLead("select-lead") [u, x1, x2, p3, y1, y2; 6] _ => [3] {
        [(-u & (x1 + x2)) - p3, y1, y2]
    }
}
kernel! {
    /// The second's or the third's summand of the product's third component, masked:
    /// `(1 - 2v)(d + u x3) + v alpha - y`, where the second adds `v x3` too; and `y`. The first
    /// parameter is all ones at the second, the second flips `v`.
    SelectOther("select-other") [v, u, d, x3, alpha, y; 6] params => [2] {
        let v = v ^ params[1];
        let yes = -v;
        let z = d + u * x3;
        let second = params[0];
        planted!("select: v x3 twice", second = Word::constant(u64::MAX));
        [((z ^ yes) + v) + (yes & (alpha + (x3 & second))) - y, y]
    }
}
kernel! {
    /// `u (1 - 2v) + v`, the last at the second alone, less `y`; and `y`. Parameters as
    /// [`SelectOther`]'s.
    ArithOther("arith-other") [v, u, y; 3] params => [2] {
        let v = v ^ params[1];
        let yes = -v;
        [((u ^ yes) + v) + (v & params[0]) - y, y]
    }
}
kernel! {
    /// The pivot shares every bit of `u` as a word, one a row: the factor brings the row's bit to the top.
    LaneLead("lane-lead") [u, place, p2; 3] _ => [1] [(u * place).shr(63) - p2]
}

/// Bits that a [`LaneSum`] adds at a time.
pub(crate) const LANES: usize = 8;

/// `total + sum(c (u (1 - 2v) + v))` over eight bits of `v` from `first` on with their shares of `u`; the
/// last summand at the second alone, where the first parameter is all ones.
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
        planted!("sums: every group by the first bits", first = 0);
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
