//! The ranges that a model's owner expects of its inputs, so that a client refuses other inputs.
//!
//! Numbers are fixed-point, and a model is only right as long as no value within it grows too large. Its
//! owner knows for which inputs that holds: those it was trained and tried on.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::base::Result;

/// The part of the samples' span by which a measured range is wider, at each end.
const MARGIN: f64 = 0.25;

/// The values that the owner expects in one input.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// The least.
    pub low: f64,
    /// The greatest.
    pub high: f64,
}

impl Range {
    /// Reads `LOW,HIGH`.
    ///
    /// # Errors
    /// A sentence that states what to write.
    pub fn parse(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.trim().parse::<f64>().ok();
        let ends = text.split_once(',').and_then(|(low, high)| Some((number(low)?, number(high)?)));
        match ends.map(|(low, high)| Self { low, high }) {
            Some(range) if range.is_sound() => Ok(range),
            _ => Err(format!(
                "`{}` is not a range; write LOW,HIGH, for example -1,1",
                text.escape_default()
            )),
        }
    }

    /// The range of samples. For real numbers it goes beyond them by a quarter of their span at each end, since other
    /// inputs will leave the samples' range.
    #[must_use]
    pub fn of_samples(values: impl Iterator<Item = f64>, integer: bool) -> Option<Self> {
        let around = |range: Option<Self>, value: f64| {
            let Self { low, high } = range.unwrap_or(Self { low: value, high: value });
            Some(Self { low: low.min(value), high: high.max(value) })
        };
        let Self { low, high } = values.fold(None, around)?;
        let margin = if integer { 0.0 } else { MARGIN * (high - low) };
        Some(Self { low: low - margin, high: high + margin })
    }

    /// The first place where a value lies outside.
    #[must_use]
    pub fn outside(&self, values: &[f64]) -> Option<usize> {
        values.iter().position(|value| !(self.low..=self.high).contains(value))
    }

    pub(super) fn is_sound(&self) -> bool {
        self.low.is_finite() && self.high.is_finite() && self.low <= self.high
    }
}

/// `-1 to 1`.
impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.low, self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_from_text_and_from_samples() {
        assert_eq!(Range::parse("-1, 2.5").unwrap(), Range { low: -1.0, high: 2.5 });
        for text in ["", "1", "2,1", "nan,1", "0,inf", "a,b", "1,2,3"] {
            assert!(Range::parse(text).unwrap_err().contains("LOW,HIGH"), "{text}");
        }
        let samples = [3.0, -1.0, 1.0];
        let range = Range::of_samples(samples.into_iter(), false).unwrap();
        assert_eq!(range, Range { low: -2.0, high: 4.0 });
        let range = Range::of_samples(samples.into_iter(), true).unwrap();
        assert_eq!(range, Range { low: -1.0, high: 3.0 });
        assert_eq!(Range::of_samples(std::iter::empty(), false), None);
        assert_eq!(range.outside(&[0.0, 3.0, -1.0]), None);
        assert_eq!(range.outside(&[0.0, 3.1]), Some(1));
        assert_eq!(range.outside(&[f64::NAN]), Some(0));
    }
}
