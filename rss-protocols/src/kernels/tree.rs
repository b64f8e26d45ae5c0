//! Merging neighbouring digits of a comparison.
//!
//! Nodes carry `greater` (`g`) and `equal` (`e`), shared among the parties. Merging needs products:
//! `g3 ^ e3 g2 ^ e3 e2 g1` and `e3 e2 e1`. Each factor is opened to the evaluators as
//! `v = bit ^ u` under a mask `u` that the dealer knows. Expanding `(v1 ^ u1)(v2 ^ u2)..` leaves sums of
//! known bits times products of masks, which the dealer deals (or, the product of all, keeps as its part).

use ring_arith::{Word, WordKernel};

/// A factor as an evaluator sees it.
#[derive(Clone, Copy)]
struct Factor<W> {
    /// Opened bit.
    v: W,
    /// This party's share of the mask.
    s: W,
    /// The same, plus at left the opened bit itself.
    t: W,
}

/// Reads factors: own message, the peer's, shares of the masks, each `N` words.
#[inline(always)]
fn factors<W: Word, const N: usize>(inputs: &[W], left: W) -> [Factor<W>; N] {
    let zero = W::constant(0);
    let mut factors = [Factor { v: zero, s: zero, t: zero }; N];
    for (i, factor) in factors.iter_mut().enumerate() {
        let v = inputs[i] ^ inputs[N + i];
        let s = inputs[2 * N + i];
        *factor = Factor { v, s, t: s ^ (v & left) };
    }
    factors
}

/// This party's part of `x y`; the dealer's is the product of both masks.
#[inline(always)]
fn pair<W: Word>(x: Factor<W>, y: Factor<W>) -> W {
    (x.t & y.v) ^ (y.s & x.v)
}

/// This party's part of `x y z`, given shares of the masks' products `xy`, `xz`, `yz`.
#[inline(always)]
fn triple<W: Word>([x, y, z]: [Factor<W>; 3], [xy, xz, yz]: [W; 3]) -> W {
    ((pair(x, y) ^ xy) & z.v) ^ (((z.s & x.v) ^ xz) & y.v) ^ (yz & x.v)
}

/// This party's part of `x y z w`, given shares of the products of two and of three masks.
#[inline(always)]
fn quad<W: Word>([x, y, z, w]: [Factor<W>; 4], two: [W; 6], three: [W; 4]) -> W {
    let [xy, xz, xw, yz, yw, zw] = two;
    let [xyz, xyw, xzw, yzw] = three;
    let first = (triple([x, y, z], [xy, xz, yz]) ^ xyz) & w.v;
    let both = ((w.s & x.v) ^ xw) & y.v;
    mutant!("circuit: a term of a product of four left out", xyw = W::constant(0));
    first ^ ((both ^ (yw & x.v) ^ xyw) & z.v) ^ (((zw & x.v) ^ xzw) & y.v) ^ (yzw & x.v)
}

macro_rules! merge {
    ($name:ident $title:literal $factors:literal $inputs:literal $outputs:literal
        |$f:ident, $d:ident, $rest:ident| $body:expr) => {
        /// A merge at an evaluator. Inputs: factors, dealt shares, the top's `greater`, masks.
        #[derive(Debug)]
        pub(crate) struct $name;
        impl WordKernel<$inputs, $outputs> for $name {
            fn name(&self) -> &'static str {
                $title
            }
            #[inline(always)]
            fn step<W: Word>(&self, inputs: [W; $inputs], params: &[W]) -> [W; $outputs] {
                let $f: [Factor<W>; $factors] = factors(&inputs, params[0]);
                let $d = &inputs[3 * $factors..];
                let $rest = $d;
                $body
            }
        }
    };
}

merge! { Merge2 "merge-2" 3 12 2 |f, _d, rest| {
    let [g1, e1, e2] = f;
    [rest[0] ^ pair(g1, e2) ^ rest[1], pair(e1, e2) ^ rest[2]]
}}
merge! { MergeLow2 "merge-low-2" 2 8 1 |f, _d, rest| {
    let [g1, e2] = f;
    [rest[0] ^ pair(g1, e2) ^ rest[1]]
}}
merge! { MergeAll2 "merge-all-2" 2 7 1 |f, _d, rest| [pair(f[0], f[1]) ^ rest[0]] }
merge! { Merge3 "merge-3" 5 23 2 |f, d, rest| {
    let [g1, e1, g2, e2, e3] = f;
    let g = rest[5] ^ pair(g2, e3) ^ triple([g1, e2, e3], [d[0], d[1], d[2]]);
    [g ^ rest[6], triple([e1, e2, e3], [d[3], d[4], d[2]]) ^ rest[7]]
}}
merge! { MergeLow3 "merge-low-3" 4 17 1 |f, d, rest| {
    let [g1, g2, e2, e3] = f;
    [rest[3] ^ pair(g2, e3) ^ triple([g1, e2, e3], [d[0], d[1], d[2]]) ^ rest[4]]
}}
merge! { MergeAll3 "merge-all-3" 3 13 1 |f, d, rest| [triple(f, [d[0], d[1], d[2]]) ^ rest[3]] }
merge! { Merge4 "merge-4" 7 42 2 |f, d, rest| {
    let [g1, e1, g2, e2, g3, e3, e4] = f;
    let (two, three) = quad_shares(d);
    let g = quad([g1, e2, e3, e4], two, three)
        ^ triple([g2, e3, e4], [d[10], d[11], d[5]]) ^ pair(g3, e4);
    let two = [d[12], d[13], d[14], d[3], d[4], d[5]];
    let e = quad([e1, e2, e3, e4], two, [d[15], d[16], d[17], d[9]]);
    [rest[18] ^ g ^ rest[19], e ^ rest[20]]
}}
merge! { MergeLow4 "merge-low-4" 6 32 1 |f, d, rest| {
    let [g1, g2, e2, g3, e3, e4] = f;
    let (two, three) = quad_shares(d);
    let g = quad([g1, e2, e3, e4], two, three)
        ^ triple([g2, e3, e4], [d[10], d[11], d[5]]) ^ pair(g3, e4);
    [rest[12] ^ g ^ rest[13]]
}}
merge! { MergeAll4 "merge-all-4" 4 23 1 |f, d, rest| {
    let (two, three) = quad_shares(d);
    [quad(f, two, three) ^ rest[10]]
}}

/// Shares of the products of two and of three of four masks, in the order of dealing.
#[inline(always)]
fn quad_shares<W: Word>(d: &[W]) -> ([W; 6], [W; 4]) {
    ([d[0], d[1], d[2], d[3], d[4], d[5]], [d[6], d[7], d[8], d[9]])
}

/// Products of two and of three of four masks, in the order of dealing, and of all.
#[inline(always)]
fn quad_masks<W: Word>([x, y, z, w]: [W; 4]) -> ([W; 10], W) {
    let (xy, xz, xw, yz, yw, zw) = (x & y, x & z, x & w, y & z, y & w, z & w);
    ([xy, xz, xw, yz, yw, zw, xy & z, xy & w, xz & w, yz & w], xy & zw)
}

/// The dealer's side of opening a new bit: its mask, and the share of it that left gets. `masks`
/// are the evaluators' masks, and right's share of the result.
#[inline(always)]
fn open<W: Word>(part: W, masks: &[W]) -> (W, W) {
    let u = part ^ masks[0] ^ masks[1];
    (u, u ^ masks[2])
}

macro_rules! deal {
    ($name:ident $title:literal $factors:literal $dealt:literal $inputs:literal $outputs:literal
        |$u:ident, $rest:ident, $out:ident| $body:expr) => {
        /// A merge at the dealer. Inputs: masks of the factors, streams for dealt words, the dealer's
        /// part of the top's `greater` if it has one, and three masks for each result. Outputs: the
        /// dealt shares, then for each result its mask and the share of that for left.
        #[derive(Debug)]
        pub(crate) struct $name;
        impl WordKernel<$inputs, $outputs> for $name {
            fn name(&self) -> &'static str {
                $title
            }
            #[inline(always)]
            fn step<W: Word>(&self, inputs: [W; $inputs], _: &[W]) -> [W; $outputs] {
                let mut $u = [W::constant(0); $factors];
                $u.copy_from_slice(&inputs[..$factors]);
                let $rest = &inputs[$factors + $dealt..];
                let mut $out = [W::constant(0); $outputs];
                let results = $body;
                for (out, &mask) in $out.iter_mut().zip(&inputs[$factors..$factors + $dealt]) {
                    *out = *out ^ mask;
                }
                for (i, (mask, share)) in results.into_iter().enumerate() {
                    $out[$dealt + 2 * i] = mask;
                    $out[$dealt + 2 * i + 1] = share;
                }
                $out
            }
        }
    };
}

deal! { Deal2 "deal-2" 3 0 10 4 |u, rest, out| {
    let [g1, e1, e2] = u;
    [open(rest[0] ^ (g1 & e2), &rest[1..]), open(e1 & e2, &rest[4..])]
}}
deal! { DealLow2 "deal-low-2" 2 0 6 2 |u, rest, out| [open(rest[0] ^ (u[0] & u[1]), &rest[1..])] }
deal! { DealAll2 "deal-all-2" 2 0 5 2 |u, rest, out| [open(u[0] & u[1], rest)] }
deal! { Deal3 "deal-3" 5 5 17 9 |u, rest, out| {
    let [g1, e1, g2, e2, e3] = u;
    let both = e2 & e3;
    (out[0], out[1], out[2], out[3], out[4]) = (g1 & e2, g1 & e3, both, e1 & e2, e1 & e3);
    [open(rest[0] ^ (g2 & e3) ^ (g1 & both), &rest[1..]), open(e1 & both, &rest[4..])]
}}
deal! { DealLow3 "deal-low-3" 4 3 11 5 |u, rest, out| {
    let [g1, g2, e2, e3] = u;
    let both = e2 & e3;
    (out[0], out[1], out[2]) = (g1 & e2, g1 & e3, both);
    [open(rest[0] ^ (g2 & e3) ^ (g1 & both), &rest[1..])]
}}
deal! { DealAll3 "deal-all-3" 3 3 9 5 |u, rest, out| {
    let [x, y, z] = u;
    (out[0], out[1], out[2]) = (x & y, x & z, y & z);
    [open(x & y & z, rest)]
}}
deal! { Deal4 "deal-4" 7 18 32 22 |u, rest, out| {
    let [g1, e1, g2, e2, g3, e3, e4] = u;
    let (dealt, all) = quad_masks([g1, e2, e3, e4]);
    out[..10].copy_from_slice(&dealt);
    let (equal, every) = quad_masks([e1, e2, e3, e4]);
    (out[10], out[11]) = (g2 & e3, g2 & e4);
    (out[12], out[13], out[14]) = (equal[0], equal[1], equal[2]);
    (out[15], out[16], out[17]) = (equal[6], equal[7], equal[8]);
    let g = rest[0] ^ all ^ (g2 & e3 & e4) ^ (g3 & e4);
    [open(g, &rest[1..]), open(every, &rest[4..])]
}}
deal! { DealLow4 "deal-low-4" 6 12 22 14 |u, rest, out| {
    let [g1, g2, e2, g3, e3, e4] = u;
    let (dealt, all) = quad_masks([g1, e2, e3, e4]);
    out[..10].copy_from_slice(&dealt);
    (out[10], out[11]) = (g2 & e3, g2 & e4);
    [open(rest[0] ^ all ^ (g2 & e3 & e4) ^ (g3 & e4), &rest[1..])]
}}
deal! { DealAll4 "deal-all-4" 4 10 17 12 |u, rest, out| {
    let (dealt, all) = quad_masks(u);
    out[..10].copy_from_slice(&dealt);
    [open(all, rest)]
}}

kernel! {
    /// The dealer's mask of a leaf: the sum of the evaluators' masks.
    LeafMask("leaf-mask") [m, n; 2] _ => [1] [m ^ n]
}
kernel! {
    /// The dealer's mask of a result: `part ^ top ^ m ^ n`.
    OpenDealer("open-dealer") [part, top, m, n; 4] _ => [1] [part ^ top ^ m ^ n]
}
