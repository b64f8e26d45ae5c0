//! Functions as sums of sines and cosines, whose frequencies are free.
//!
//! Frequencies and factors were fitted together: each further term, at the distance of the last two, starts from the fit
//! of those before; weighted least squares with rising weights where the error is large makes the error even. The outer
//! lines are used where they are as good. Errors are those between the ends, before roundings: the dealer's sines and the
//! evaluators' factors add less than `2^-17`, mostly `2^-19.5`.

use std::borrow::Cow;

use crate::{
    Ends, Format, Line, Protocol, Result, SecretTensor, TrigSum, TrigTerm, TruncationMode,
};

/// A function as a sum of sines and cosines, if the protocol has a form for it. Operand and result have 20 fraction
/// bits.
pub(in crate::functions) fn by_sines<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    function: &TrigSum,
    width: u32,
) -> Result<Option<SecretTensor<P>>> {
    let share = mpc.trig_sum(x.share(), x.width(), function)?;
    Ok(share.map(|share| SecretTensor::new(share, Format { frac: 20, width })))
}

/// The sine of angles in units of `2^-64` turns, with `frac` fraction bits that are rounded in a mode.
pub(in crate::functions) fn sine(frac: u32, mode: TruncationMode) -> TrigSum {
    TrigSum {
        terms: Cow::Borrowed(const { &[term(1, 0, 1 << TrigSum::FACTOR)] }),
        line: ZERO,
        total: 58,
        drop: 58 - frac,
        mode,
        ends: None,
    }
}

const ZERO: Line = Line { constant: 0, slope: 0 };
const ONE: Line = Line { constant: 1 << 20, slope: 0 };
const MINUS_ONE: Line = Line { constant: (1u64 << 20).wrapping_neg(), slope: 0 };
const IDENTITY: Line = Line { constant: 0, slope: 1 };

const fn term(turn: u64, cosine: i64, sine: i64) -> TrigTerm {
    TrigTerm { turn, cosine, sine }
}

/// GELU; the error of the sum is below `2^-20.4`.
pub(in crate::functions) static GELU: TrigSum = TrigSum {
    terms: Cow::Borrowed(&[
        term(1316030488034, -385130611, 0),
        term(3717558489512, -45698648, 0),
        term(6010606660906, -8551282, 0),
        term(8378191595632, -947016, 0),
        term(11006764617852, -41228, 0),
    ]),
    line: Line { constant: 1803751332170 << 18, slope: 1 << 37 },
    total: 58,
    drop: 38,
    mode: TruncationMode::Early,
    ends: Some(Ends { at: [-5190451, 5190451], slack: 18, outside: [ZERO, IDENTITY] }),
};

/// GELU by the hyperbolic tangent; the error of the sum is below `2^-21`.
pub(in crate::functions) static GELU_TANH: TrigSum = TrigSum {
    terms: Cow::Borrowed(&[
        term(1344199798864, -377619289, 0),
        term(3789775139743, -44390242, 0),
        term(6132641133691, -7870341, 0),
        term(8600584311976, -790144, 0),
        term(11401114924824, -36432, 0),
    ]),
    line: Line { constant: 1764174067939 << 18, slope: 1 << 37 },
    total: 58,
    drop: 38,
    mode: TruncationMode::Early,
    ends: Some(Ends { at: [-5033165, 5033165], slack: 18, outside: [ZERO, IDENTITY] }),
};

/// SiLU; the error of the sum is below `2^-19.3`.
pub(in crate::functions) static SILU: TrigSum = TrigSum {
    terms: Cow::Borrowed(&[
        term(545376153008, -911557614, 0),
        term(1586276641056, -112873836, 0),
        term(2605677936828, -33471452, 0),
        term(3642548144283, -10626349, 0),
        term(4706490201481, -3304632, 0),
        term(5798816592577, -995588, 0),
        term(6919432705484, -290380, 0),
        term(8068542105136, -82017, 0),
        term(9247120472482, -22425, 0),
        term(10456949443348, -5926, 0),
        term(11698354620561, -1601, 0),
    ]),
    line: Line { constant: 4395959135731 << 17, slope: 1 << 36 },
    total: 57,
    drop: 37,
    mode: TruncationMode::Early,
    ends: Some(Ends { at: [-14784922, 14784922], slack: 18, outside: [ZERO, IDENTITY] }),
};

/// Hyperbolic tangent; the error of the sum is below `2^-19.9`.
pub(in crate::functions) static TANH: TrigSum = TrigSum {
    terms: Cow::Borrowed(&[
        term(1032988108471, 0, 324393269),
        term(3134654862033, 0, 72819643),
        term(5319424823543, 0, 21700774),
        term(7598546224322, 0, 6279459),
        term(9968102329044, 0, 1724092),
        term(12423049000353, 0, 450006),
        term(14961101738607, 0, 111956),
        term(17583513586971, 0, 26569),
        term(20295246732211, 0, 6005),
        term(23099761839813, 0, 1338),
    ]),
    line: Line { constant: 0, slope: 0 },
    total: 58,
    drop: 38,
    mode: TruncationMode::Early,
    ends: Some(Ends { at: [-6501171, 6501171], slack: 17, outside: [MINUS_ONE, ONE] }),
};

/// Logistic function; the error of the sum is below `2^-20.9`.
pub(in crate::functions) static SIGMOID: TrigSum = TrigSum {
    terms: Cow::Borrowed(&[
        term(516494054235, 0, 162196634),
        term(1567327431017, 0, 36409822),
        term(2659712411772, 0, 10850387),
        term(3799273112161, 0, 3139729),
        term(4984051164522, 0, 862046),
        term(6211524500176, 0, 225003),
        term(7480550869303, 0, 55978),
        term(8791756793485, 0, 13285),
        term(10147623366106, 0, 3003),
        term(11549880919906, 0, 669),
    ]),
    line: Line { constant: 1 << 57, slope: 0 },
    total: 58,
    drop: 38,
    mode: TruncationMode::Early,
    ends: Some(Ends { at: [-13002342, 13002342], slack: 18, outside: [ZERO, ONE] }),
};

/// Error function; the error of the sum is below `2^-20.5`.
pub(in crate::functions) static ERF: TrigSum = TrigSum {
    terms: Cow::Borrowed(&[
        term(1515101740447, 0, 318125060),
        term(4572889175872, 0, 59296430),
        term(7721865041407, 0, 10649393),
        term(11060524567587, 0, 1089093),
        term(14810611992194, 0, 43598),
    ]),
    line: Line { constant: 0, slope: 0 },
    total: 58,
    drop: 38,
    mode: TruncationMode::Early,
    ends: Some(Ends { at: [-3617587, 3617587], slack: 17, outside: [MINUS_ONE, ONE] }),
};
