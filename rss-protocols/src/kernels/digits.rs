//! Digits of the two halves of a shared word, compared.
//!
//! The dealer shares the one-hot code of each digit of `a`. Both evaluators know `b`, so sums of code
//! bits that `b` selects are local. The bit at the digit of `~b` marks equal digits, the bits above it a
//! greater digit of `a`.

use ring_arith::{Word, WordKernel};

/// The dealer's code of digits of `D` bits, masked: all its bits but the last.
#[derive(Debug)]
pub(crate) struct Codes<const D: usize>;

/// `greater` and `equal` of digits of `D` bits, masked, from shares of the code.
///
/// Inputs: `2^D - 1` code bits, `D` bits of `b`, two masks. The parameter is the parity of this
/// party's row of the code, which fixes its last bit.
#[derive(Debug)]
pub(crate) struct Digits<const D: usize>;

/// [`Digits`] without `equal`.
#[derive(Debug)]
pub(crate) struct DigitsGreater<const D: usize>;

/// [`Digits`] without `greater`.
#[derive(Debug)]
pub(crate) struct DigitsEqual<const D: usize>;

/// `(greater, equal)` from the code bits that are sent, `D` bits of `b` and the row's parity.
#[inline(always)]
fn fold<W: Word>(codes: &[W], b: &[W], parity: W) -> (W, W) {
    let mut last = parity;
    for &code in codes {
        last = last ^ code;
    }
    let zero = W::constant(0);
    // Per node: the bits above ~b's digit, the bit at it, and the sum of all.
    let mut nodes = [(zero, zero, zero); 16];
    for (node, &code) in nodes.iter_mut().zip(codes) {
        *node = (zero, code, code);
    }
    nodes[codes.len()] = (zero, last, last);
    let mut len = codes.len() + 1;
    for &bit in b {
        let up = !bit;
        len /= 2;
        for i in 0..len {
            let ((low_g, low_e, low_sum), (high_g, high_e, high_sum)) =
                (nodes[2 * i], nodes[2 * i + 1]);
            let below = low_g ^ high_sum;
            let greater = below ^ (up & (below ^ high_g));
            let equal = low_e ^ (up & (low_e ^ high_e));
            nodes[i] = (greater, equal, low_sum ^ high_sum);
        }
    }
    (nodes[0].0, nodes[0].1)
}

macro_rules! digits {
    ($($d:literal $codes:literal $code_inputs:literal $one:literal $two:literal;)*) => {$(
        impl WordKernel<$code_inputs, $codes> for Codes<$d> {
            fn name(&self) -> &'static str {
                concat!("codes-", $d)
            }
            #[inline(always)]
            fn step<W: Word>(&self, inputs: [W; $code_inputs], _: &[W]) -> [W; $codes] {
                let mut codes = [W::constant(0); $codes];
                for (k, code) in codes.iter_mut().enumerate() {
                    let mut hot = if k & 1 == 1 { inputs[0] } else { !inputs[0] };
                    for (j, &bit) in inputs[..$d].iter().enumerate().skip(1) {
                        hot = hot & if k >> j & 1 == 1 { bit } else { !bit };
                    }
                    *code = hot ^ inputs[$d + k];
                }
                codes
            }
        }
        impl WordKernel<$two, 2> for Digits<$d> {
            fn name(&self) -> &'static str {
                concat!("digits-", $d)
            }
            #[inline(always)]
            fn step<W: Word>(&self, inputs: [W; $two], params: &[W]) -> [W; 2] {
                let (codes, rest) = inputs.split_at($codes);
                let (g, e) = fold(codes, &rest[..$d], params[0]);
                [g ^ rest[$d], e ^ rest[$d + 1]]
            }
        }
        impl WordKernel<$one, 1> for DigitsGreater<$d> {
            fn name(&self) -> &'static str {
                concat!("digits-greater-", $d)
            }
            #[inline(always)]
            fn step<W: Word>(&self, inputs: [W; $one], params: &[W]) -> [W; 1] {
                let (codes, rest) = inputs.split_at($codes);
                [fold(codes, &rest[..$d], params[0]).0 ^ rest[$d]]
            }
        }
        impl WordKernel<$one, 1> for DigitsEqual<$d> {
            fn name(&self) -> &'static str {
                concat!("digits-equal-", $d)
            }
            #[inline(always)]
            fn step<W: Word>(&self, inputs: [W; $one], params: &[W]) -> [W; 1] {
                let (codes, rest) = inputs.split_at($codes);
                [fold(codes, &rest[..$d], params[0]).1 ^ rest[$d]]
            }
        }
    )*};
}

digits! {
    1 1 2 3 4;
    2 3 5 6 7;
    3 7 10 11 12;
    4 15 19 20 21;
}
