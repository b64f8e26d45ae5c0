//! Functions of words as sums of sines and cosines.

use std::borrow::Cow;

use crate::{Error, Result, TruncationMode};

/// Between two ends a sum of sines and cosines and a line, outside of them two lines.
///
/// Sines and cosines of a sum are sums of products, so parties that hold the addends of a word need one exchange for
/// all of them, whatever their number. A few with free frequencies approximate smooth functions far better than the
/// harmonics of one period do: five cosines give GELU's even part on `-4.9..=4.9` with an error below `2^-19`. Fourier
/// series on shares are from [SHAFT](https://www.ndss-symposium.org/ndss-paper/shaft-secure-handy-accurate-and-fast-transformer-inference/)
/// (NDSS 2025), with harmonics and an opened, masked word.
#[derive(Debug, Clone, PartialEq)]
pub struct TrigSum {
    /// The sines and cosines. Their sum is below 8 in magnitude between the ends, whatever their number.
    pub terms: Cow<'static, [TrigTerm]>,
    /// Added to them between the ends, with [`TrigSum::total`] fraction bits.
    pub line: Line,
    /// Fraction bits of the sum, from [`TrigSum::LEAST_TOTAL`] to [`TrigSum::MOST_TOTAL`]. Its magnitude is below `2^62`.
    pub total: u32,
    /// Bits dropped of the sum, `1..=total`.
    pub drop: u32,
    /// The mode of dropping them: the default or the early one.
    pub mode: TruncationMode,
    /// `None` for a function without ends.
    pub ends: Option<Ends>,
}

/// `cosine cos(w) + sine sin(w)` for the angle `w = turn x / 2^64` of a word `x`, in turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrigTerm {
    /// The angle of one word, in units of `2^-64` turns.
    pub turn: u64,
    /// The factor of the cosine, with [`TrigSum::FACTOR`] fraction bits.
    pub cosine: i64,
    /// The factor of the sine, with [`TrigSum::FACTOR`] fraction bits.
    pub sine: i64,
}

/// `constant + slope x` of a word `x`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Line {
    /// The value at 0.
    pub constant: u64,
    /// The factor of the word.
    pub slope: u64,
}

/// The words where a function becomes linear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// The lower and the upper end.
    pub at: [i64; 2],
    /// Words less than `2^slack` inside of an end may count as outside: comparisons with ends ignore so many bits.
    pub slack: u32,
    /// The results outside of them.
    pub outside: [Line; 2],
}

impl TrigSum {
    /// Fraction bits of the terms' factors.
    pub const FACTOR: u32 = 28;

    /// Fewest fraction bits of a sum.
    pub const LEAST_TOTAL: u32 = 46;

    /// Most fraction bits of a sum.
    pub const MOST_TOTAL: u32 = 60;

    /// Most bits that comparisons with ends ignore.
    pub const MOST_SLACK: u32 = 32;

    /// Checks that a protocol can evaluate it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for factors of 8 and more, more or fewer fraction bits than are allowed, or ends that are not in
    /// order, of `2^62` and more, or not `2^(slack + 1)` apart.
    pub fn check(&self) -> Result<()> {
        let wrong = |reason: String| Err(Error::Invalid { op: "trigonometric sum", reason });
        let &Self { total, drop, .. } = self;
        if !(Self::LEAST_TOTAL..=Self::MOST_TOTAL).contains(&total) || !(1..=total).contains(&drop)
        {
            return wrong(format!("cannot drop {drop} of {total} fraction bits"));
        }
        let most = 8u64 << Self::FACTOR;
        let factors = self.terms.iter().flat_map(|term| [term.cosine, term.sine]);
        if let Some(factor) = factors.map(i64::unsigned_abs).find(|&factor| factor >= most) {
            return wrong(format!("a factor of {factor} / 2^{} is 8 or more", Self::FACTOR));
        }
        let Some(Ends { at: [from, to], slack, .. }) = self.ends else { return Ok(()) };
        let reach = 1i64 << 62;
        let is_inside = -reach < from && from < to && to < reach;
        if slack > Self::MOST_SLACK || !is_inside || to - from < 2 << slack {
            return wrong(format!("there are no ends at {from} and {to}, less 2^{slack}"));
        }
        Ok(())
    }
}

impl Ends {
    /// True if all words of a width lie between the ends.
    pub fn hold(&self, width: u32) -> bool {
        let reach = 1i64 << (width.clamp(1, 62) - 1);
        width <= 62 && self.at[0] <= -reach && self.at[1] >= reach
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(cosine: i64, [total, drop]: [u32; 2], at: [i64; 2], slack: u32) -> TrigSum {
        TrigSum {
            terms: vec![TrigTerm { turn: 1, cosine, sine: 0 }].into(),
            line: Line::default(),
            total,
            drop,
            mode: TruncationMode::Early,
            ends: Some(Ends { at, slack, outside: [Line::default(); 2] }),
        }
    }

    #[test]
    fn sums_that_cannot_be_evaluated_are_refused() {
        let at = [-5 << 20, 5 << 20];
        assert!(sum(1 << 30, [58, 38], at, 18).check().is_ok());
        for (wrong, named) in [
            (sum(8 << 28, [58, 38], at, 18), "8 or more"),
            (sum(i64::MIN, [58, 38], at, 18), "8 or more"),
            (sum(1, [61, 38], at, 18), "61 fraction bits"),
            (sum(1, [45, 38], at, 18), "45 fraction bits"),
            (sum(1, [58, 0], at, 18), "drop 0"),
            (sum(1, [58, 59], at, 18), "drop 59"),
            (sum(1, [58, 38], [5, -5], 1), "no ends at 5"),
            (sum(1, [58, 38], [-2, 1], 1), "less 2^1"),
            (sum(1, [58, 38], [i64::MIN, i64::MAX], 1), "no ends"),
            (sum(1, [58, 38], at, 63), "2^63"),
        ] {
            let error = wrong.check().unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn ends_hold_all_words_of_a_width() {
        let ends = |at| Ends { at, slack: 0, outside: [Line::default(); 2] };
        assert!(ends([-8, 8]).hold(4) && !ends([-8, 8]).hold(5));
        assert!(!ends([-8, 7]).hold(4) && !ends([-8, -8]).hold(4) && !ends([8, 16]).hold(4));
        assert!(!ends([-(1 << 62), 1 << 62]).hold(64));
    }
}
