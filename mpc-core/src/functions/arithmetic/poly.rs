//! Polynomials in few products and three levels of multiplication, in fixed point, as parts of chains.
//!
//! A polynomial in `v` is cut into a low part, a sum of public multiples of known powers, and a high
//! power times a second such sum. The sums cost nothing, so degree 6 takes three products and degree 8
//! four. Coefficients of the low part are added before the last truncation and have all the precision
//! that fits 62 bits; those of the second factor have what its fraction bits leave and were rounded one
//! by one, the rest being fitted again after each (weighted minimax by linear programming).

use crate::{Chain, ShareTensor, Sum, TruncationMode, Value};

/// Degree 6: `low(1, v, v^2, v^3) + v^3 * high(v, v^2, v^3)`.
pub(in crate::functions) struct Sextic {
    /// Fraction bits of `v`.
    pub input: u32,
    /// Fraction bits of its powers.
    pub power: u32,
    /// Fraction bits of the sum before the last truncation.
    pub total: u32,
    /// Coefficients of `1, v, v^2, v^3`, in words that bring each term to `total` fraction bits.
    pub low: [i64; 4],
    /// Coefficients of `v^4, v^5, v^6`, in words that bring each term to `total - power` bits.
    pub high: [i64; 3],
}

/// Degree 8: `low(1, v, .., v^4) + v^4 * high(v, .., v^4)`.
pub(in crate::functions) struct Octic {
    /// As in [`Sextic`], like the other fields.
    pub input: u32,
    pub power: u32,
    pub total: u32,
    pub low: [i64; 5],
    pub high: [i64; 4],
}

/// Degree 7, odd: `v` times degree 3 in `v^2`.
pub(in crate::functions) struct OddSeptic {
    /// As in [`Sextic`], like the other fields.
    pub input: u32,
    pub power: u32,
    pub total: u32,
    /// Coefficients of `v, v^3`.
    pub low: [i64; 2],
    /// Coefficients of `v^5, v^7`.
    pub high: [i64; 2],
}

/// Degree 11 as `b0 + v^4 (b1 + v^4 b2)` with cubic blocks, by Horner's rule on the blocks.
pub(in crate::functions) struct Undecic {
    /// Fraction bits of `v` and of its powers.
    pub power: u32,
    /// Fraction bits of the inner and of the outer sum before truncation.
    pub inner: u32,
    pub total: u32,
    /// Coefficients of `1, v, v^2, v^3` in each block, from the lowest.
    pub blocks: [[i64; 4]; 3],
}

/// `sum(c * x) + constant` with signed factors.
fn combined<const N: usize>(terms: [(i64, &Sum); N], constant: i64) -> Sum {
    Sum::combined(terms.map(|(c, x)| (c as u64, x)), constant as u64)
}

impl Sextic {
    /// Three products in three levels.
    pub fn eval<S: ShareTensor>(&self, chain: &mut Chain<'_, S>, v: &Sum, out: u32) -> Value {
        let y = chain.product(v.clone(), v.clone(), 2 * self.input - self.power);
        let t = chain.product(v.clone(), y, self.input);
        let [y, third] = [&y.into(), &t.into()];
        let [a, b, c] = self.high;
        let high = combined([(a, v), (b, y), (c, third)], 0);
        let [k, a, b, c] = self.low;
        let low = combined([(a, v), (b, y), (c, third)], k);
        chain.product_plus(t, high, low, self.total - out)
    }
}

impl Octic {
    /// Four products in three levels.
    pub fn eval<S: ShareTensor>(&self, chain: &mut Chain<'_, S>, v: &Sum, out: u32) -> Value {
        let y = chain.product(v.clone(), v.clone(), 2 * self.input - self.power);
        let t = chain.product(v.clone(), y, self.input);
        let q = chain.product(y, y, self.power);
        let [y, t, fourth] = [&y.into(), &t.into(), &q.into()];
        let terms = |[a, b, c, d]: [i64; 4], k| combined([(a, v), (b, y), (c, t), (d, fourth)], k);
        let [k, a, b, c, d] = self.low;
        chain.product_plus(q, terms(self.high, 0), terms([a, b, c, d], k), self.total - out)
    }
}

impl OddSeptic {
    /// Four products in three levels; the last drops bits in its own mode.
    pub fn eval<S: ShareTensor>(
        &self,
        chain: &mut Chain<'_, S>,
        v: &Sum,
        out: u32,
        last: TruncationMode,
    ) -> Value {
        let y = chain.product(v.clone(), v.clone(), 2 * self.input - self.power);
        let t = chain.product(v.clone(), y, self.input);
        let q = chain.product(y, y, self.power);
        let [a, b] = self.high;
        let high = combined([(a, &y.into()), (b, &q.into())], 0);
        let [a, b] = self.low;
        let low = combined([(a, v), (b, &t.into())], 0);
        chain.set_mode(last);
        chain.product_plus(t, high, low, self.total - out)
    }
}

impl Undecic {
    /// Five products in four levels.
    pub fn eval<S: ShareTensor>(&self, chain: &mut Chain<'_, S>, v: &Sum, out: u32) -> Value {
        let f = self.power;
        let y = chain.product(v.clone(), v.clone(), f);
        let t = chain.product(v.clone(), y, f);
        let q = chain.product(y, y, f);
        let [y, t] = [&y.into(), &t.into()];
        let block = |[k, a, b, c]: [i64; 4]| combined([(a, v), (b, y), (c, t)], k);
        let [b0, b1, b2] = self.blocks.map(block);
        // The outer sum has `total` bits, `power` of them the fourth power's.
        let h = chain.product_plus(q, b2, b1, self.inner + f - self.total);
        chain.product_plus(q, h, b0, self.total - out)
    }
}
