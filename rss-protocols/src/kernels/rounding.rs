//! Division by a power of two of a sum `a + b`, `a` known to the dealer and `b` to both evaluators.
//!
//! The offset `2^62` makes `z + 2^62` lie in `0..2^63`, so that `a + b` carries exactly unless both top
//! bits are 0: the carry is `1 - na nb` with `na = not_a_msb` private to the dealer, `nb = not_b_msb`.

use ring_arith::{Word, WordKernel};

/// Added to `b`, so that the sum is never negative.
#[inline(always)]
pub(super) fn offset() -> u64 {
    let offset = 1 << 62;
    mutant!("truncation: half the offset", offset = offset >> 1);
    offset
}

/// `b / 2^t` rounded up.
#[inline(always)]
pub(super) fn round_up<W: Word>(b: W, t: u32) -> W {
    let low = W::constant((1 << t) - 1);
    mutant!("truncation rounds down", low = W::constant(0));
    b.shr(t) + ((b & low) + low).shr(t)
}

/// `b / 2^t` rounded to nearest, ties to even.
#[inline(always)]
pub(super) fn nearest<W: Word>(b: W, t: u32) -> W {
    let low = W::constant((1 << t) - 1);
    let odd = b.shr(t) & W::constant(1);
    mutant!("early: ties up", odd = W::constant(1));
    b.shr(t) + ((b & low) + odd + W::constant((1 << (t - 1)) - 1)).shr(t)
}

/// `1` where the top bit is 0.
#[inline(always)]
pub(super) fn not_top<W: Word>(x: W) -> W {
    (!x).shr(63)
}

macro_rules! fields {
    ($(#[$doc:meta])* $name:ident($title:literal) [$($input:ident),*; $inputs:literal] $params:tt
        => [$outputs:literal] |$t:ident| $body:expr) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $name {
            /// Bits dropped.
            pub t: u32,
        }
        impl WordKernel<$inputs, $outputs> for $name {
            fn name(&self) -> &'static str {
                $title
            }
            #[inline(always)]
            fn step<W: Word>(&self, [$($input),*]: [W; $inputs], $params: &[W]) -> [W; $outputs] {
                let $t = self.t;
                $body
            }
        }
    };
}

fields! {
    /// The dealer's step. Outputs: its components of the quotient, the share of `a >> t` for
    /// left, and the share of `na` modulo `2^t` for right.
    RoundDealer("round-dealer") [a, e_left, m_left, y0, m_right; 5] _ => [4] |t| {
        let top = 64 - t;
        let high = W::constant(u64::MAX << top);
        let y1 = a.shr(t) - y0;
        let e_right = (not_top(a) - e_left) & W::constant((1 << t) - 1);
        [y0 - (m_right & high), y1 - (m_left & high), y1, e_right]
    }
}

fields! {
    /// The step of the evaluators, which know `b`. Inputs: both halves of `b` (the offset not yet
    /// added), this party's share of `na`, the mask of its field, and its component shared with the
    /// dealer. Outputs: the part of component 2 that is known here, the masked field `e nb` for the
    /// peer, and the finished component.
    RoundEvaluator("round-evaluator") [own, other, e, m, y; 5] _ => [3] |t| {
        let b = own + other + W::constant(offset());
        carry_terms(round_up(b, t), not_top(b), [e, m, y], t)
    }
}

fields! {
    /// [`RoundEvaluator`] from halves that were rounded before they were sent.
    EarlyEvaluator("early-evaluator") [own, other, e, m, y; 5] _ => [3] |t| {
        let hi = early_sum(own, other, t);
        carry_terms(hi, not_top(hi.shl(t)), [e, m, y], t)
    }
}

/// The sum of two rounded halves and the offset, of `64 - t` bits.
#[inline(always)]
pub(super) fn early_sum<W: Word>(own: W, other: W, t: u32) -> W {
    (own + other + W::constant(offset() >> t)) & W::constant(u64::MAX >> t)
}

/// The rounded `b` less the offset and a carry.
#[inline(always)]
pub(super) fn base<W: Word>(hi: W, t: u32) -> W {
    let carry = 1 << (64 - t);
    mutant!("truncation: half of what a carry takes", carry = carry >> 1);
    hi - W::constant(carry + (offset() >> t))
}

#[inline(always)]
fn carry_terms<W: Word>(hi: W, nb: W, [e, m, y]: [W; 3], t: u32) -> [W; 3] {
    let (top, low) = (64 - t, W::constant((1 << t) - 1));
    let field = ((e & -nb) + m.shr(top)) & low;
    [base(hi, t) + field.shl(top), field, y - (m & W::constant(u64::MAX << top))]
}

fields! {
    /// Left's half of `b`, rounded up to `64 - t` bits.
    EarlyRoundUp("early-round-up") [b; 1] _ => [1] |t| {
        let half = round_up(b, t);
        mutant!("early: left's half rounded down", half = b.shr(t));
        [half & W::constant(u64::MAX >> t)]
    }
}

fields! {
    /// Right's half of `b`, rounded to nearest, ties to even, to `64 - t` bits.
    EarlyNearest("early-nearest") [b; 1] _ => [1] |t| {
        [nearest(b, t) & W::constant(u64::MAX >> t)]
    }
}

fields! {
    /// For the fused ReLU, from halves rounded early: `hi` less one unit, whose planes are compared
    /// with the dealer's, and component 2 without the carry.
    EarlySum("early-sum") [own, other; 2] _ => [2] |t| {
        let hi = early_sum(own, other, t);
        [hi - W::constant((offset() >> t) + 1), base(hi, t)]
    }
}

fields! {
    /// The same from whole halves.
    WholeSum("whole-sum") [own, other; 2] _ => [2] |t| {
        let hi = round_up(own + other + W::constant(offset()), t) & W::constant(u64::MAX >> t);
        [hi - W::constant((offset() >> t) + 1), base(hi, t)]
    }
}

fields! {
    /// For the fused ReLU: adds the carry `nb e` to a share of `a >> t` and `nb f` to one of
    /// `u (a >> t)`, for `hi`, the rounded `b` less the offset and one unit.
    CarryShares("carry-shares") [hi, e, f, alpha, d; 5] _ => [2] |t| {
        let top = 64 - t;
        let nb = not_top((hi + W::constant((offset() >> t) + 1)).shl(t));
        [alpha + (e & -nb).shl(top), d + (f & -nb).shl(top)]
    }
}

/// The factor in a [`SummedValue`] that separates the sign's value from the selected one: few
/// values wrap around so often.
const SIGNED: u64 = 100;

fields! {
    /// For sums of a value before its ReLU: an evaluator's addend of `y + 100 (y' - y)`, for the truncated value
    /// `y` that the ReLU selects and the value `y'` whose sign it takes. They are equal in range.
    ///
    /// Without its carry `y'` is `a' + b' + 1` for `a' = a >> t` and the planes `b'` that were compared with it.
    /// Inputs: `b'`, shares of `a'`, `na` and `u na`, the sign `u ^ v` as `v` and a share of `u`. Parameters: all ones
    /// at left, and the word that flips `v`.
    SummedValue("summed-value") [hi, half, e, f, v, u; 6] params => [1] |t| {
        let top = 64 - t;
        let left = params[0];
        let one = W::constant(1) & left;
        let v = v ^ params[1];
        let yes = -v;
        let sign = ((u ^ yes) + v) + (v & left);
        let a = one - e;
        let a_sign = (((u - f) ^ yes) + v) + (yes & a);
        // The carry of a' + b' and the sign bit, for either top bit of b'.
        let without = a + sign - a_sign;
        let carry = without + (-hi.shl(t).shr(63) & (one + a_sign - without));
        let low = (hi & W::constant(u64::MAX >> t)) + W::constant(1);
        let signed = half + (low & left) - carry.shl(top);
        let nb = not_top((hi + W::constant((offset() >> t) + 1)).shl(t));
        let known = (hi + W::constant(1u64.wrapping_sub(1 << top))) & left;
        let value = half + (e & -nb).shl(top) + known;
        [value + (signed - value) * W::constant(SIGNED)]
    }
}

fields! {
    /// Exact truncation at the dealer: its components, the share of `a >> t`, less a coin's carry, for left and of
    /// `na` for right.
    ExactDealer("exact-dealer") [a, carry, e_left, m_left, y0, m_right; 6] _ => [4] |t| {
        let y1 = a.shr(t) - carry - y0;
        let e_right = (not_top(a) - e_left) & W::constant((1 << t) - 1);
        [y0 + m_right, y1 + m_left, y1, e_right]
    }
}

fields! {
    /// Exact truncation at the evaluators. Inputs: `b` (offset and coin added), this
    /// party's share of `na`, of the carry's mask, the opened carry, the mask, and the component
    /// shared with the dealer. Outputs: this party's addend of right component, and the finished
    /// component. The parameter is all ones at left.
    ExactEvaluator("exact-evaluator") [b, e, u, v, m, y; 6] params => [2] |t| {
        let top = 64 - t;
        let yes = -v;
        let carry = ((u ^ yes) + v) + (v & params[0]);
        let top_carry = (e & -not_top(b)).shl(top);
        let known = base(b.shr(t), t) & params[0];
        [known + carry + top_carry - m, y + m]
    }
}

fields! {
    /// The local truncation of ABY3: each side shifts its own part with its sign.
    AbyDealer("aby-dealer") [a, y0; 2] _ => [2] |t| [y0, a.sar(t) - y0]
}

fields! {
    /// Shift with the sign.
    AbyShift("aby-shift") [b; 1] _ => [1] |t| [b.sar(t)]
}

fields! {
    /// For the fused ReLU at the dealer: `a >> t`, the share of it and of `u (a >> t)` for left,
    /// and of `na` and `u na` for right.
    GatedDealer("gated-dealer") [a, u, y0, d, e_left, f_left; 6] _ => [4] |t| {
        let (hi, low) = (a.shr(t), W::constant((1 << t) - 1));
        let (keep, na) = (-u, not_top(a));
        [hi - y0, (keep & hi) - d, (na - e_left) & low, ((keep & na) - f_left) & low]
    }
}

fields! {
    /// `own + other + 2^62`, and a coin of `t` bits.
    WithCoin("with-coin") [own, other, coin; 3] _ => [1] |t| {
        let low = W::constant((1 << t) - 1);
        mutant!("dither: the evaluators' coin a bit short", low = W::constant((1 << (t - 1)) - 1));
        [own + other + W::constant(offset()) + (coin & low)]
    }
}

fields! {
    /// A word and a coin of `t` bits, and the coin.
    Coin("coin") [a, coin; 2] _ => [2] |t| {
        let low = W::constant((1 << t) - 1);
        mutant!("dither: the dealer's coin a bit short", low = W::constant((1 << (t - 1)) - 1));
        let coin = coin & low;
        [a + coin, coin]
    }
}

fields! {
    /// A word and a coin that is the sum of two of `t` bits; that sum's low bits, and its carry.
    CoinOfTwo("coin-of-two") [a, left, right; 3] _ => [3] |t| {
        let low = W::constant((1 << t) - 1);
        let coin = (left & low) + (right & low);
        [a + coin, coin & low, coin.shr(t)]
    }
}

kernel! {
    /// Takes an opened carry off again: `x - (u (1 - 2v) + v)`, the last at left alone.
    TakeCarry("take-carry") [x, u, v; 3] params => [1] {
        [x - ((u ^ -v) + v + (v & params[0]))]
    }
}

fields! {
    /// Checked truncation at the dealer. Inputs: `a`, right's part of it, left's shares of `na` and of the carry of the
    /// rounded parts, both masks of fields. Outputs: its components, left's part of `a`, the sum of the rounded parts
    /// modulo `2^(64 - t)`, and right's shares.
    CheckedDealer("checked-dealer") [a, a_right, e_left, g_left, m_left, m_right; 6] _ => [6] |t| {
        let top = 64 - t;
        let low = W::constant((1 << t) - 1);
        let high = W::constant(u64::MAX << top);
        let a_left = a - a_right;
        let [right, left] = [rounded_part(a_right, t, W::constant(0)), a_left.shr(t)];
        let sum = left + right;
        let hi = sum & W::constant(u64::MAX >> t);
        let e_right = (not_top(hi.shl(t)) - e_left) & low;
        let g_right = (sum.shr(top) - g_left) & low;
        [right - (m_right & high), left - (m_left & high), a_left, hi, e_right, g_right]
    }
}

/// A part of `a`, divided by `2^t`: left's is rounded down, right's up.
#[inline(always)]
pub(super) fn rounded_part<W: Word>(part: W, t: u32, left: W) -> W {
    let down = part.shr(t);
    let up = round_up(part, t) & W::constant(u64::MAX >> t);
    up ^ ((up ^ down) & left)
}

fields! {
    /// Checked truncation at the evaluators. Inputs: both halves of `b`, shares of `na` and of the carry of the rounded
    /// parts, the mask of the field, the part of `a`. Outputs as of [`RoundEvaluator`]. The parameter is all ones at
    /// left.
    CheckedEvaluator("checked-evaluator") [own, other, e, g, m, a; 6] params => [3] |t| {
        let top = 64 - t;
        let hi = nearest(own + other + W::constant(offset()), t) & W::constant(u64::MAX >> t);
        let nb = not_top(hi.shl(t));
        let field = ((e & -nb) - g + m.shr(top)) & W::constant((1 << t) - 1);
        let part = rounded_part(a, t, params[0]);
        [base(hi, t) + field.shl(top), field, part - (m & W::constant(u64::MAX << top))]
    }
}

fields! {
    /// The rounded `b` of a checked truncation less the offset and one unit: the planes that are compared.
    CheckedCompared("checked-compared") [own, other; 2] _ => [1] |t| {
        let hi = nearest(own + other + W::constant(offset()), t);
        [hi - W::constant((offset() >> t) + 1)]
    }
}
