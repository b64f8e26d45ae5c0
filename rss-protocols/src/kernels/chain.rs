//! Steps of a chain of products, whose truncations' wraps are settled at its end.

use ring_arith::{Word, WordKernel};

use super::rounding::{base, early_sum, not_top, offset, round_up};

fields! {
    /// A truncated product at the pivot: `a >> t`, the second's share of it, the third's share of `na` modulo `2^t`,
    /// and `na`. Inputs: the factors' and the summand's `A`, both masks of halves, and the masks of those shares.
    ChainLead("chain-lead") [ax, ay, ap, w12, w13, y1, e12; 7] _ => [4] |t| {
        let a = ax * ay + ap - w12 - w13;
        let (half, na) = (a.shr(t), not_top(a));
        [half, half - y1, (na - e12) & W::constant((1 << t) - 1), na]
    }
}

kernel! {
    /// A product as it is at the pivot: `a`, and the second's share of it.
    ChainRawLead("chain-raw-lead") [ax, ay, ap, w12, w13, y1; 6] _ => [2] {
        let a = ax * ay + ap - w12 - w13;
        [a, a - y1]
    }
}

fields! {
    /// The third's share of `na` times what the wrap meets, modulo `2^t`. Parameters: the wrap's factors in both factors.
    ChainDeal("chain-deal") [na, ax, ay, f12; 4] params => [1] |t| {
        let met = ay * params[0] + ax * params[1];
        [((-na & met) - f12) & W::constant((1 << t) - 1)]
    }
}

kernel! {
    /// The second's or the third's part of a product without wraps, masked. Inputs: `B` and the share of `A` of both
    /// factors, `B` of the summand, a mask. What both know the second adds, where the parameter is all ones.
    ChainHalf("chain-half") [bx, sx, by, sy, bp, m; 6] params => [1] [
        bx * sy + sx * by + ((bx * by + bp) & params[0]) + m
    ]
}

fields! {
    /// Adds the wrap of a factor times the other factor. Inputs: the sum, `nb`, the share of `na` times the pivot's
    /// part of what the wrap meets, `nb` times the share of `na`, `B` of both factors.
    ChainWrap("chain-wrap") [sum, nb, g, n, bx, by; 6] params => [1] |t| {
        let met = by * params[0] + bx * params[1];
        [sum + ((g & -nb) + n * met).shl(64 - t)]
    }
}

fields! {
    /// Both halves of `b` and a share of `na`: `B`, `nb`, and `nb` times the share.
    ChainWhole("chain-whole") [b2, b3, e; 3] _ => [3] |t| {
        let b = b2 + b3 + W::constant(offset());
        let nb = not_top(b);
        [base(round_up(b, t), t), nb, e & -nb]
    }
}

fields! {
    /// [`ChainWhole`] from halves that were rounded before they were sent.
    ChainEarly("chain-early") [r2, r3, e; 3] _ => [3] |t| {
        let hi = early_sum(r2, r3, t);
        let nb = not_top(hi.shl(t));
        [base(hi, t), nb, e & -nb]
    }
}

fields! {
    /// The wrap of a result at the second or the third: component 3 as far as it is known here, the masked field, and
    /// the component shared with the pivot.
    ChainSettle("chain-settle") [b, n, share, m; 4] _ => [3] |t| {
        let top = 64 - t;
        let field = (n + m.shr(top)) & W::constant((1 << t) - 1);
        [b + field.shl(top), field, share - (m & W::constant(u64::MAX << top))]
    }
}

fields! {
    /// The pivot's components of a result: from `a >> t`.
    ChainSettleLead("chain-settle-lead") [half, y1, m12, m13; 4] _ => [2] |t| {
        let high = W::constant(u64::MAX << (64 - t));
        [y1 - (m13 & high), half - y1 - (m12 & high)]
    }
}
