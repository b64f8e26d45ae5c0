//! Steps of a chain of products; the carries of its truncations are added last.

use ring_arith::{Word, WordKernel};

use super::rounding::{base, early_sum, nearest, not_top, offset, round_up, rounded_part};

fields! {
    /// A truncated product at the dealer: `a >> t`, left's share of it, right's share of `na` modulo `2^t`,
    /// and `na`. Inputs: the factors' and the addend's `A`, both masks of halves, and the masks of those shares.
    ChainDealer("chain-dealer") [ax, ay, ap, w_left, w_right, y0, e_left; 7] _ => [4] |t| {
        let a = ax * ay + ap - w_left - w_right;
        let (half, na) = (a.shr(t), not_top(a));
        [half, half - y0, (na - e_left) & W::constant((1 << t) - 1), na]
    }
}

kernel! {
    /// An exact product at the dealer: `a`, and left's share of it.
    ChainRawDealer("chain-raw-dealer") [ax, ay, ap, w_left, w_right, y0; 6] _ => [2] {
        let a = ax * ay + ap - w_left - w_right;
        [a, a - y0]
    }
}

fields! {
    /// Right's share of `na` times the other factor, modulo `2^t`. Parameters: the carry's factors in both factors.
    ChainDeal("chain-deal") [na, ax, ay, f_left; 4] params => [1] |t| {
        let factor = ay * params[0] + ax * params[1];
        [((-na & factor) - f_left) & W::constant((1 << t) - 1)]
    }
}

kernel! {
    /// An evaluator's part of a product without carries, masked. Inputs: `B` and the share of `A` of both
    /// factors, `B` of the addend, a mask. Left, where the parameter is all ones, adds the terms that
    /// both know.
    ChainHalf("chain-half") [bx, sx, by, sy, bp, m; 6] params => [1] [
        bx * sy + sx * by + ((bx * by + bp) & params[0]) + m
    ]
}

fields! {
    /// Adds the carry of a factor times the other factor. Inputs: the sum, `nb`, the share of `na` times the dealer's
    /// part of the other factor, `nb` times the share of `na`, `B` of both factors.
    ChainCarry("chain-carry") [sum, nb, g, n, bx, by; 6] params => [1] |t| {
        let factor = by * params[0] + bx * params[1];
        [sum + ((g & -nb) + n * factor).shl(64 - t)]
    }
}

fields! {
    /// Both halves of `b` and a share of `na`: `B`, `nb`, and `nb` times the share.
    ChainWhole("chain-whole") [own, other, e; 3] _ => [3] |t| {
        let b = own + other + W::constant(offset());
        let nb = not_top(b);
        [base(round_up(b, t), t), nb, e & -nb]
    }
}

fields! {
    /// [`ChainWhole`] from halves that were rounded before they were sent.
    ChainEarly("chain-early") [own, other, e; 3] _ => [3] |t| {
        let hi = early_sum(own, other, t);
        let nb = not_top(hi.shl(t));
        [base(hi, t), nb, e & -nb]
    }
}

fields! {
    /// The carry of a result at an evaluator: the part of component 2 that is known here, the masked field,
    /// and the component shared with the dealer.
    ChainSettle("chain-settle") [b, n, share, m; 4] _ => [3] |t| {
        let top = 64 - t;
        let field = (n + m.shr(top)) & W::constant((1 << t) - 1);
        [b + field.shl(top), field, share - (m & W::constant(u64::MAX << top))]
    }
}

fields! {
    /// The dealer's components of a result: from `a >> t`.
    ChainSettleDealer("chain-settle-dealer") [half, y0, m_left, m_right; 4] _ => [2] |t| {
        let high = W::constant(u64::MAX << (64 - t));
        [y0 - (m_right & high), half - y0 - (m_left & high)]
    }
}

fields! {
    /// [`ChainDealer`] of a checked truncation. Inputs: the same, `a_right` for the mask of `A`, and left's share of
    /// the carry of the rounded parts. Outputs: their sum, `a_left`, right's shares of `na` and of the carry, `na`,
    /// and right's share of the sum.
    ChainCheckedDealer("chain-checked-dealer")
        [ax, ay, ap, w_left, w_right, a_right, e_left, g_left; 8] _ => [6] |t| {
        let top = 64 - t;
        let low = W::constant((1 << t) - 1);
        let a_left = ax * ay + ap - w_left - w_right - a_right;
        let right = rounded_part(a_right, t, W::constant(0));
        let sum = a_left.shr(t) + right;
        let hi = sum & W::constant(u64::MAX >> t);
        let na = not_top(hi.shl(t));
        let g_right = (sum.shr(top) - g_left) & low;
        [hi, a_left, (na - e_left) & low, g_right, na, right - g_right.shl(top)]
    }
}

fields! {
    /// [`ChainWhole`] of a checked truncation: with an evaluator's part of `a` and its share of the carry of the rounded
    /// parts. Outputs: the same, and the share of `A`. The parameter is all ones at left.
    ChainChecked("chain-checked") [own, other, e, a, g; 5] params => [4] |t| {
        let hi = nearest(own + other + W::constant(offset()), t) & W::constant(u64::MAX >> t);
        let nb = not_top(hi.shl(t));
        let share = rounded_part(a, t, params[0]) - g.shl(64 - t);
        [base(hi, t), nb, e & -nb, share]
    }
}
