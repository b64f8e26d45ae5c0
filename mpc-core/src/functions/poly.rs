//! Polynomials in few products and three levels of multiplication, in fixed point.
//!
//! A polynomial in `v` is cut into a low part, a sum of public multiples of known powers, and a high
//! power times a second such sum. The sums cost nothing, so degree 6 takes three products and degree 8
//! four. Coefficients of the low part are added before the last truncation and have all the precision
//! that fits 62 bits; those of the second factor have what its fraction bits leave and were rounded one
//! by one, the rest being fitted again after each (weighted minimax by linear programming).

use super::fixed::{product_plus, products, working_mode};
use crate::{Protocol, Result};

/// Degree 6: `low(1, v, v^2, v^3) + v^3 * high(v, v^2, v^3)`.
pub(super) struct Sextic {
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
pub(super) struct Octic {
    /// As in [`Sextic`], like the other fields.
    pub input: u32,
    pub power: u32,
    pub total: u32,
    pub low: [i64; 5],
    pub high: [i64; 4],
}

/// Degree 7, odd: `v` times degree 3 in `v^2`.
pub(super) struct OddSeptic {
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
pub(super) struct Undecic {
    /// Fraction bits of `v` and of its powers.
    pub power: u32,
    /// Fraction bits of the inner and of the outer sum before truncation.
    pub inner: u32,
    pub total: u32,
    /// Coefficients of `1, v, v^2, v^3` in each block, from the lowest.
    pub blocks: [[i64; 4]; 3],
}

/// A term of [`Protocol::combine`].
fn term<S>(c: i64, x: &S) -> (u64, &S) {
    (c as u64, x)
}

impl Sextic {
    /// Three products in three levels.
    pub fn eval<P: Protocol>(&self, mpc: &mut P, v: &P::Share, out: u32) -> Result<P::Share> {
        let [y] = products(mpc, [(v, v, 2 * self.input - self.power)])?;
        let [t] = products(mpc, [(v, &y, self.input)])?;
        let [a, b, c] = self.high;
        let high = mpc.combine(&[term(a, v), term(b, &y), term(c, &t)], 0)?;
        let [k, a, b, c] = self.low;
        let low = mpc.combine(&[term(a, v), term(b, &y), term(c, &t)], k as u64)?;
        let mode = working_mode(mpc);
        product_plus(mpc, &t, &high, &low, self.total - out, mode)
    }
}

impl Octic {
    /// Four products in three levels.
    pub fn eval<P: Protocol>(&self, mpc: &mut P, v: &P::Share, out: u32) -> Result<P::Share> {
        let [y] = products(mpc, [(v, v, 2 * self.input - self.power)])?;
        let [t, q] = products(mpc, [(v, &y, self.input), (&y, &y, self.power)])?;
        let terms = |[a, b, c, d]: [i64; 4]| [term(a, v), term(b, &y), term(c, &t), term(d, &q)];
        let high = mpc.combine(&terms(self.high), 0)?;
        let [k, rest @ ..] = self.low;
        let low = mpc.combine(&terms(rest), k as u64)?;
        let mode = working_mode(mpc);
        product_plus(mpc, &q, &high, &low, self.total - out, mode)
    }
}

impl OddSeptic {
    /// Four products in three levels.
    pub fn eval<P: Protocol>(&self, mpc: &mut P, v: &P::Share, out: u32) -> Result<P::Share> {
        let [y] = products(mpc, [(v, v, 2 * self.input - self.power)])?;
        let [t, q] = products(mpc, [(v, &y, self.input), (&y, &y, self.power)])?;
        let [a, b] = self.high;
        let high = mpc.combine(&[term(a, &y), term(b, &q)], 0)?;
        let [a, b] = self.low;
        let low = mpc.combine(&[term(a, v), term(b, &t)], 0)?;
        let mode = mpc.truncation();
        product_plus(mpc, &t, &high, &low, self.total - out, mode)
    }
}

impl Undecic {
    /// Five products in four levels.
    pub fn eval<P: Protocol>(&self, mpc: &mut P, v: &P::Share, out: u32) -> Result<P::Share> {
        let f = self.power;
        let [y] = products(mpc, [(v, v, f)])?;
        let [t, q] = products(mpc, [(v, &y, f), (&y, &y, f)])?;
        let block = |mpc: &P, [k, a, b, c]: [i64; 4]| {
            mpc.combine(&[term(a, v), term(b, &y), term(c, &t)], k as u64)
        };
        let [b0, b1, b2] = self.blocks;
        let (b0, b1, b2) = (block(mpc, b0)?, block(mpc, b1)?, block(mpc, b2)?);
        let mode = working_mode(mpc);
        // The outer sum has `total` bits, `power` of them the fourth power's.
        let h = product_plus(mpc, &q, &b2, &b1, self.inner + f - self.total, mode)?;
        product_plus(mpc, &q, &h, &b0, self.total - out, mode)
    }
}
