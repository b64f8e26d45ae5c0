//! Relations of the dealer that several protocols need.

use mpc_core::Result;
use ring_arith::Engine;

use super::{Bits, Transcript};
use crate::runtime::roles::Role;

/// A value that is shared between the evaluators and known to the dealer: left's part and right's.
pub(crate) type Shared<V> = [V; 2];

/// The dealer owes that XOR-shared planes `h` are the bits of `s_left + s_right`, whose planes the evaluators know.
/// Gives the carry out of the highest plane.
///
/// With `p = h_left + s_left` and `q = h_right + s_right`, all modulo 2, `p + q` is the carry into a plane, and the next
/// one is `h_left h_right + p q + h_left p + p + q h_right + q`. One relation for each plane, of two products.
pub(crate) fn adder<E: Engine>(
    t: &mut Transcript<'_, E>,
    n: usize,
    h: &Shared<Bits>,
    s: &Shared<Bits>,
) -> Result<Bits> {
    adder_from(t, n, &Bits::zero(), h, s)
}

/// As [`adder`], with a carry into the lowest plane.
pub(crate) fn adder_from<E: Engine>(
    t: &mut Transcript<'_, E>,
    n: usize,
    lowest: &Bits,
    h: &Shared<Bits>,
    s: &Shared<Bits>,
) -> Result<Bits> {
    let cols = n.div_ceil(64);
    let width = h[0].part().len() / cols;
    let [p, q] = [&h[0] + &s[0], &h[1] + &s[1]];
    let next = &h[0] * &h[1] + &p * &q + &h[0] * &p + &p + &q * &h[1] + &q;
    let carry = p + q;
    t.bits(Role::Dealer, 1, n, &(carry.picked(cols, 0..1) + lowest))?;
    if width > 1 {
        let carries = carry.picked(cols, 1..width) + next.picked(cols, 0..width - 1);
        t.bits(Role::Dealer, width - 1, n, &carries)?;
    }
    Ok(next.picked(cols, width - 1..width))
}

/// The dealer owes that `k_left + k_right` modulo `2^width` is 0 or 1, and which: a plane that follows from others.
///
/// The carry into place 1 is the product of the lowest bits; where a sum's bit is 0, the next carry is one bit or the
/// other. So `k_left' + k_right' = k_left + k_right + k_left k_right` from place 1 on, and without the first two terms
/// at place 0, primes one place up. One relation for each place, of one product.
pub(crate) fn bit_as_word<E: Engine>(
    t: &mut Transcript<'_, E>,
    n: usize,
    k: &Shared<Bits>,
    bit: &Bits,
) -> Result<()> {
    let cols = n.div_ceil(64);
    let width = k[0].part().len() / cols;
    let [left, right] = k;
    if width > 1 {
        let below = |k: &Bits| k.picked(cols, 0..width - 1);
        let above = |k: &Bits| k.picked(cols, 1..width);
        // Place 0 has no linear terms.
        let linear = |k: &Bits| below(k).map_words(|at, word| if at < cols { 0 } else { word });
        let places =
            above(left) + above(right) + below(left) * below(right) + linear(left) + linear(right);
        t.bits(Role::Dealer, width - 1, n, &places)?;
    }
    let lowest = left.picked(cols, 0..1) + right.picked(cols, 0..1);
    t.bits(Role::Dealer, 1, n, &(lowest + bit))
}
