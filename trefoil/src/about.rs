//! What is public about a model.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Most classes that may have a name.
const LABELS: usize = 100_000;

/// Most inputs that a model may have.
const INPUTS: usize = 64;

/// What is public about a model: servers and clients see it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// What the model is applied to, in its order.
    pub inputs: Vec<Input>,
    /// Dimensions of one output, without the batch.
    pub output: Vec<usize>,
    /// The only batch size that the model takes, or none if it takes every one.
    pub batch: Option<usize>,
    /// Number of secret weights.
    pub weights: u64,
    /// Fraction bits of inputs.
    pub fraction_bits: u32,
    /// Fraction bits of outputs.
    pub output_fraction_bits: u32,
    /// What a client does to an image before it shares it.
    pub preprocess: Preprocess,
    /// Names of the classes, or none.
    pub labels: Vec<String>,
}

/// One input of a model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Its name in the model.
    pub name: String,
    /// Its dimensions, without the batch.
    pub dims: Vec<usize>,
    /// Whether it consists of integers, for instance positions in a table.
    pub integer: bool,
}

/// What a client does to an image file before it shares it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", tag = "kind")]
pub enum Preprocess {
    /// Resizes the image to the model's input and maps black to 0, white to `white`.
    Scale {
        /// What a white pixel becomes.
        white: f64,
    },
    /// Resizes the shorter side to 256, cuts the centre of 224 x 224 and normalises the channels by
    /// ImageNet's means and deviations.
    Imagenet,
}

impl Default for Preprocess {
    fn default() -> Self {
        Self::Scale { white: 1.0 }
    }
}

impl Input {
    /// Numbers of one example.
    #[must_use]
    pub fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Whether an example has no numbers at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// `image [3, 224, 224]`, or `ids [12] of integers`.
impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.integer { " of integers" } else { "" };
        write!(f, "{} {:?}{kind}", self.name, self.dims)
    }
}

impl About {
    /// Checks what a client said about its model.
    ///
    /// # Errors
    /// [`Error::Refused`] that names the field.
    pub fn check(&self) -> Result<()> {
        let bad = |reason: &str| Err(Error::refused("model", reason));
        if self.labels.len() > LABELS || self.labels.iter().any(|label| label.len() > 256) {
            return bad("at most 100000 labels of at most 256 bytes are kept");
        }
        if self.inputs.is_empty() || self.inputs.len() > INPUTS {
            return bad("it must have 1 to 64 inputs");
        }
        if self.inputs.iter().any(Input::is_empty) || self.output.contains(&0) {
            return bad("an input or its output has no elements");
        }
        let sound = |input: &Input| (1..=8).contains(&input.dims.len()) && input.name.len() <= 256;
        if !self.inputs.iter().all(sound) || self.output.len() > 8 {
            return bad(
                "its inputs must have names of at most 256 bytes and 1 to 8 dimensions, its output \
                 at most 8",
            );
        }
        if self.fraction_bits > 40 || self.output_fraction_bits > 62 || self.batch == Some(0) {
            return bad(
                "its numbers must have at most 40 fraction bits, and its batch be 1 or more",
            );
        }
        if let Preprocess::Scale { white } = self.preprocess
            && !(white.is_finite() && white > 0.0 && white <= 65536.0)
        {
            return bad("the value of white must be above 0 and at most 65536");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_says_is_bounded() {
        let image = |dims: &[usize]| Input { dims: dims.to_vec(), ..Input::default() };
        let sound = About { inputs: vec![image(&[1, 8, 8])], ..About::default() };
        sound.check().unwrap();
        let bad = [
            About { inputs: vec![], ..sound.clone() },
            About { inputs: vec![image(&[])], ..sound.clone() },
            About { inputs: vec![image(&[1]); 65], ..sound.clone() },
            About { labels: vec!["x".repeat(257)], ..sound.clone() },
            About { preprocess: Preprocess::Scale { white: f64::NAN }, ..sound.clone() },
        ];
        assert!(bad.iter().all(|about| about.check().is_err()));
    }
}
