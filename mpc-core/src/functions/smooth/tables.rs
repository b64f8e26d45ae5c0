//! Coefficients of the approximations. Fitted as described in [`crate::functions::arithmetic::poly`]; the errors given are
//! those of the rounded coefficients in exact arithmetic.

use crate::functions::arithmetic::poly::{Octic, OddSeptic, Sextic, Undecic};

/// `e^(2v)` for `v` in `[-14.6 / 16, ln(2^16) / 16]`: the eighth power is `e^(16 v)` with an error below
/// `2^-16.5 max(1, e^(16 v))`.
pub(in crate::functions) const EXP: Sextic = Sextic {
    input: 24,
    power: 24,
    total: 59,
    low: [576461529737047808, 68718509576, 68711429426, 45899283597],
    high: [1363, 495, 291],
};

/// `e^(v - 1.25)` for `v` in `[-1.25, 1.25]`: the eighth power is `e^x`, `x = 8v - 10`, with an error below
/// `2^-19.3 max(2^-10, e^x)`.
pub(in crate::functions) const EXP_NONPOSITIVE: Sextic = Sextic {
    input: 23,
    power: 22,
    total: 61,
    low: [660635090080023936, 78755638372, 78736821680, 26249066712],
    high: [797, 258, 90],
};

/// `e^(v - 1.5625)` for `v` in `[-1.5625, 1.5625]`: the eighth power is `e^x`, `x = 8v - 12.5`, with an error
/// below `2^-20.7 max(2^-18, e^x)`.
pub(in crate::functions) const EXP_OF_MANY: Octic = Octic {
    input: 23,
    power: 21,
    total: 61,
    low: [483330920226797632, 57617592338, 115235500650, 38408085385, 9604504240],
    high: [230, 148, 22, 4],
};

/// `1 / x` for `x = (v + 3) / 4` in `[1/2, 1]`; relative error below `2^-21.5`.
pub(in crate::functions) const RECIPROCAL: Octic = Octic {
    input: 22,
    power: 20,
    total: 58,
    low: [384307197501921792, -30541772706, 40722306931, -13585671622, 4528520683],
    high: [-350, 467, -208, 69],
};

/// `sqrt(x)` for `x = (v + 3) / 4` in `[1/2, 1]` and for `x = 0`; error below `2^-21.5`.
pub(in crate::functions) const SQRT: Octic = Octic {
    input: 22,
    power: 20,
    total: 61,
    low: [1996918715515418112, 79350445968, -26437467226, 4408021503, -997552389],
    high: [51, 79, 15, -71],
};

/// `1 / sqrt(x)` for `x = (v + 3) / 4` in `[1/2, 1]`; error below `2^-22.9`.
pub(in crate::functions) const INV_SQRT: Octic = Octic {
    input: 22,
    power: 20,
    total: 60,
    low: [1331279146279976192, -52900157318, 52899187703, -14702308835, 4291033110],
    high: [-300, 364, -148, 47],
};

/// `ln(x)` for `x = (v + 3) / 4` in `[1/2, 1]`; error below `2^-23.1`.
pub(in crate::functions) const LOG: Octic = Octic {
    input: 22,
    power: 20,
    total: 60,
    low: [-331674912911166720, 91625891025, -61084001409, 13578822473, -3394165129],
    high: [212, -236, 86, -25],
};

/// `sin(pi/2 v)` for `v` in `[-1, 1]`; error below `2^-20.5`.
pub(in crate::functions) const SIN: OddSeptic = OddSeptic {
    input: 24,
    power: 22,
    total: 60,
    low: [107943985279, -177542491293],
    high: [5206, -284],
};

/// `erf(x) / x` for `v = x^2 / 8 - 1`, `|x| <= 3.5`; error below `2^-19.3 / x`.
pub(in crate::functions) const ERF: Undecic = Undecic {
    power: 20,
    inner: 58,
    total: 59,
    blocks: [
        [203796958155836672, -97075364608, 72355839405, -59145946349],
        [26408260587148692, -20840988824, 13146991452, -12606186118],
        [21079831691, 515, -10773, -16856],
    ],
};

/// `erf(x / sqrt 2) / (2x)` for `v = x^2 / 16 - 1`, `|x| <= 4.95`; error below `2^-19.4 / x^2`.
pub(in crate::functions) const GELU: Undecic = Undecic {
    power: 20,
    inner: 58,
    total: 59,
    blocks: [
        [72053076768357992, -34320627944, 25586393192, -20941571560],
        [9282593760322318, -7203828180, 5091268113, -5041079244],
        [5757576312, 450, -1542, -4785],
    ],
};

/// `tanh(sqrt(2 / pi) (x + 0.044715 x^3)) / (2x)` for `v = x^2 / 16 - 1`, `|x| <= 4.8`; error below `2^-20 / x^2`.
pub(in crate::functions) const GELU_TANH: Undecic = Undecic {
    power: 20,
    inner: 58,
    total: 59,
    blocks: [
        [72055088196105144, -34334702078, 25633041939, -20994167893],
        [9313821544518636, -7472816803, 4929796926, -3466768684],
        [7618971798, -1328, -7328, -8335],
    ],
};
