//! The public description of a model.

use std::fmt;

use ring_arith::{EngineTensor, Tensor};
use serde::{Deserialize, Serialize};

use super::{Column, NAME, Range, check_columns, check_size};
use crate::base::{Digest, Error, Result};

/// The most classes that may have a name.
const LABELS: usize = 100_000;

/// The most layers that a guard is over: as many as a plan may have.
const LAYERS: usize = 100_000;

/// The most bytes of all classes' names together.
const LABEL_BYTES: usize = 1 << 20;

/// The most inputs, and most outputs, that a model may have.
const TENSORS: usize = 64;

/// The public description of a model: servers and clients see it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// The inputs of the model, in their order.
    pub inputs: Vec<Input>,
    /// The outputs of the model, in their order.
    pub outputs: Vec<OutputTensor>,
    /// The only batch size that the model takes, or none if it takes every one.
    pub batch: Option<usize>,
    /// True if inputs and outputs do not all begin with the batch, as where a recurrent network returns its last state, or
    /// an input is a vector: then one example is all of them, and their dimensions are whole.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
    /// The positions that a step of a conversation adds, 0 if it keeps nothing from step to step.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub positions: u32,
    /// Number of weights.
    pub weights: u64,
    /// True if every server has the weights in the clear, and only what clients send is secret.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub public_weights: bool,
    /// Fraction bits of inputs, except of those that have their own.
    pub fraction_bits: u32,
    /// The preparation of an image by a client before it shares it.
    pub preprocess: Preprocess,
    /// Names of the classes, or none.
    pub labels: Vec<String>,
    /// True if the outputs are numbers, and not scores of classes, though they have the shape of such.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub numbers: bool,
    /// The column of tables that holds the truth, or none if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Column>,
    /// The tokenizer and the form of texts, of a language model that was put with its tokenizer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Text>,
    /// The layers over which an answer has a guard: a number for each, 0 unless its values have left their range.
    /// Empty if the model is without a guard.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guard: Vec<String>,
    /// Steps of more positions that it takes as well, the longest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub longer: Vec<Longer>,
}

/// A step of a conversation that adds more positions than usual: a prompt goes in by those.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Longer {
    /// The positions that it adds.
    pub positions: u32,
    /// The layers over which it has a guard, as [`About::guard`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guard: Vec<String>,
}

/// As serde asks for it.
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The relation of a language model's tokens to text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Text {
    /// The hash of the tokenizer's file, which servers keep beside the description.
    pub tokenizer: Digest,
    /// The text around what a person writes; `{}` stands for it.
    pub form: String,
    /// The tokens behind which an answer ends.
    pub stop: Vec<u64>,
}

/// The largest tokenizer, in bytes: of a file, and of one that a client or a server takes.
pub(crate) const LARGEST_TOKENIZER: u64 = 64 << 20;

/// The most bytes of the text around what a person writes.
const FORM: usize = 16 << 10;

/// The most tokens behind which an answer ends.
const STOPS: usize = 256;

impl Text {
    /// Checks what an owner says of its tokenizer.
    ///
    /// # Errors
    /// The reason.
    pub fn check(&self) -> Result<(), String> {
        if self.form.matches("{}").count() != 1 || self.form.len() > FORM {
            return Err(format!(
                "the form has {{}} once, where a person's words go, and at most {FORM} bytes"
            ));
        }
        if self.stop.len() > STOPS {
            return Err(format!("an answer ends behind at most {STOPS} tokens"));
        }
        Ok(())
    }
}

/// One input of a model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Its name in the model.
    pub name: String,
    /// Its dimensions for one example.
    pub dims: Vec<usize>,
    /// True if it consists of integers, for instance positions in a table.
    pub integer: bool,
    /// Its fraction bits, where they are not the model's: large numbers have fewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fraction_bits: Option<u32>,
    /// The columns of tables whose cells become its numbers, in their order; empty if they have no names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<Column>,
}

/// One output of a model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputTensor {
    /// Its name in the model.
    pub name: String,
    /// Its dimensions for one example.
    pub dims: Vec<usize>,
    /// Its fraction bits: 0 if it consists of integers.
    pub fraction_bits: u32,
}

/// The ways in which a client prepares an image file before it shares it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", tag = "kind")]
pub enum Preprocess {
    /// Resizes the image to the model's input and maps black to 0, white to `white`.
    Scale {
        /// The value of a white pixel.
        white: f64,
    },
    /// Resizes the shorter side to 256/224 of the model's, cuts the centre and normalises the channels by
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

    /// True if an example does not have any numbers.
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

impl fmt::Display for OutputTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.name, self.dims)
    }
}

impl About {
    /// Reads what a client sent about its model, and checks it.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is not a description, or names the field that is not sound.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let about: Self = serde_json::from_slice(bytes).map_err(|cause| {
            Error::refused("model", format_args!("its description is not understood: {cause}"))
        })?;
        about.check()?;
        Ok(about)
    }

    /// The description, written.
    ///
    /// # Errors
    /// [`Error::Internal`] if it cannot be written, which does not happen.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|cause| Error::Internal(format!("description: {cause}")))
    }

    /// Gives each input its columns, and the model that of the truth, whose categories name the classes unless they have
    /// names.
    pub fn describe(&mut self, columns: Vec<Vec<Column>>, label: Option<Column>) {
        for (input, columns) in self.inputs.iter_mut().zip(columns) {
            input.columns = columns;
        }
        if let Some(label) = &label
            && self.labels.is_empty()
        {
            self.labels = label.class_names();
        }
        self.label = label;
    }

    /// The word for one example: an image where the only input is one.
    pub(crate) fn example(&self) -> &'static str {
        match self.inputs.as_slice() {
            [Input { dims, integer: false, .. }] if matches!(dims[..], [1 | 3, _, _]) => "image",
            _ => "example",
        }
    }

    /// The shape of a tensor of this many examples, each of which has these dimensions.
    #[must_use]
    pub fn shape_of(&self, examples: usize, dims: &[usize]) -> Vec<usize> {
        if self.whole { dims.to_vec() } else { [&[examples], dims].concat() }
    }

    /// The number of examples in tensors of which the first has these dimensions.
    #[must_use]
    pub fn examples(&self, first: &[usize]) -> usize {
        if self.whole { 1 } else { first.first().copied().unwrap_or(0) }
    }

    /// Checks a client's description of its model.
    ///
    /// # Errors
    /// [`Error::Refused`] that names the field.
    pub fn check(&self) -> Result<()> {
        let bad = |reason: &str| Err(Error::refused("model", reason));
        let label_bytes: usize = self.labels.iter().map(String::len).sum();
        if self.labels.len() > LABELS
            || self.labels.iter().any(|label| label.len() > NAME)
            || label_bytes > LABEL_BYTES
        {
            return bad(
                "at most 100000 labels of at most 256 bytes each and 1 MiB together are kept",
            );
        }
        let guarded = || self.longer.iter().flat_map(|step| &step.guard).chain(&self.guard);
        if guarded().count() > LAYERS || guarded().any(|name| name.len() > NAME) {
            return bad("at most 100000 layers with names of at most 256 bytes are guarded");
        }
        let counts = [self.inputs.len(), self.outputs.len()];
        if counts.iter().any(|count| !(1..=TENSORS).contains(count)) {
            return bad("it must have 1 to 64 inputs and 1 to 64 outputs");
        }
        if self.inputs.iter().any(Input::is_empty)
            || self.outputs.iter().any(|output| output.dims.contains(&0))
        {
            return bad("an input or output has no elements");
        }
        let least = usize::from(!self.whole);
        let sound =
            |input: &Input| (least..=8).contains(&input.dims.len()) && input.name.len() <= NAME;
        let returned = |output: &OutputTensor| output.dims.len() <= 8 && output.name.len() <= NAME;
        if !self.inputs.iter().all(sound) || !self.outputs.iter().all(returned) {
            return bad(
                "its inputs and outputs must have names of at most 256 bytes, inputs 1 to 8 \
                 dimensions and outputs at most 8",
            );
        }
        let given = self.inputs.iter().map(|input| &input.name);
        let given = given.chain(self.outputs.iter().map(|output| &output.name));
        if let Some(name) = given.chain(guarded()).find(|name| name.chars().any(char::is_control)) {
            return bad(&format!("the name {name:?} has a control character; rename it"));
        }
        let bits = self.outputs.iter().map(|output| output.fraction_bits).max();
        let of_inputs = self.inputs.iter().map(|input| self.input_bits(input)).max();
        if self.fraction_bits.max(of_inputs.unwrap_or(0)) > 40
            || bits > Some(62)
            || self.batch == Some(0)
        {
            return bad(
                "its numbers must have at most 40 fraction bits, and its batch be 1 or more",
            );
        }
        if self.whole && self.batch != Some(1) {
            return bad("tensors that do not begin with the batch are those of 1 example");
        }
        for input in &self.inputs {
            check_columns(&format!("input `{}`", input.name), &input.columns, input.len())?;
        }
        check_size("model", self.inputs.iter().map(|input| input.columns.as_slice()))?;
        if let Some(Err(reason)) = self.label.as_ref().map(Column::check) {
            return bad(&reason);
        }
        if let Some(text) = &self.text {
            text.check().or_else(|reason| bad(&reason))?;
            if self.positions == 0 {
                return bad("it keeps nothing from step to step, and so takes no tokenizer");
            }
        }
        if let Preprocess::Scale { white } = self.preprocess
            && !(white.is_finite() && white > 0.0 && white <= 65536.0)
        {
            return bad("the value of white must be above 0 and at most 65536");
        }
        Ok(())
    }

    /// True if the first result of a step can be the input of the next: the step has no other input, and both have the same
    /// shape and fraction bits.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        let ([input], Some(output)) = (self.inputs.as_slice(), self.outputs.first()) else {
            return false;
        };
        let alike = input.dims == output.dims && self.input_bits(input) == output.fraction_bits;
        self.positions > 0 && alike
    }

    /// Checks that these bytes are the tokenizer that the description names: none if it names none.
    ///
    /// # Errors
    /// [`Error::Refused`] if they are not.
    pub fn check_tokenizer(&self, bytes: &[u8]) -> Result<()> {
        let named = self.text.as_ref().map(|text| text.tokenizer);
        if named == (!bytes.is_empty()).then(|| Digest::of(&[bytes])) {
            return Ok(());
        }
        Err(Error::refused("model", "its tokenizer is not the one that its description names"))
    }

    /// The fraction bits of the numbers that are shared as an input.
    pub fn input_bits(&self, input: &Input) -> u32 {
        if input.integer { 0 } else { input.fraction_bits.unwrap_or(self.fraction_bits) }
    }

    /// The numbers of an answer to `examples` examples: for each output, those of each example. Those of the first are
    /// in the units of the column with the truth.
    ///
    /// # Errors
    /// [`Error::Refused`] if the servers returned another shape, [`Error::OutOfRange`] if the guard reports that
    /// these numbers are wrong.
    pub fn decode(&self, examples: usize, outputs: &[Tensor]) -> Result<Vec<Vec<Vec<f64>>>> {
        let refused = |reason: String| Error::refused("servers", reason);
        let outputs = self.checked_by_guard(outputs)?;
        if outputs.len() != self.outputs.len() {
            let (found, wanted) = (outputs.len(), self.outputs.len());
            return Err(refused(format!("they returned {found} tensors and not {wanted}")));
        }
        let decode = |(tensor, output): (&Tensor, &OutputTensor)| {
            let OutputTensor { name, dims, fraction_bits } = output;
            let (found, wanted) = (tensor.shape(), self.shape_of(examples, dims));
            if found.dims() != wanted {
                return Err(refused(format!(
                    "they returned `{name}` as {found:?} and not {wanted:?}"
                )));
            }
            let unit = (-f64::from(*fraction_bits)).exp2();
            let value = |&word: &u64| word as i64 as f64 * unit;
            let each = tensor.words().chunks(dims.iter().product::<usize>().max(1));
            Ok(each.map(|words| words.iter().map(value).collect()).collect())
        };
        let mut all: Vec<Vec<Vec<f64>>> =
            outputs.iter().zip(&self.outputs).map(decode).collect::<Result<_>>()?;
        if let (Some(label), Some(first)) = (&self.label, all.first_mut()) {
            first.iter_mut().flatten().for_each(|value| *value = label.unscaled(*value));
        }
        Ok(all)
    }

    /// The outputs alone, if the guard behind them is quiet.
    fn checked_by_guard<'a>(&self, outputs: &'a [Tensor]) -> Result<&'a [Tensor]> {
        if self.guard.is_empty() {
            return Ok(outputs);
        }
        let (left, outputs) = outputs
            .split_last()
            .map_or((&[][..], outputs), |(left, others)| (left.words(), others));
        self.check_guard(left)?;
        Ok(outputs)
    }

    /// Checks what the guard over a run says: 0 for each layer.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is not about as many layers, [`Error::OutOfRange`] if numbers of one left their range.
    pub fn check_guard(&self, left: &[u64]) -> Result<()> {
        check_guard(&self.guard, left)
    }

    /// [`About::check_guard`] of steps that add these numbers of positions, one after the other.
    ///
    /// # Errors
    /// As [`About::check_guard`].
    pub fn check_guards(&self, steps: impl Iterator<Item = usize>, mut left: &[u64]) -> Result<()> {
        if self.guard.is_empty() {
            return Ok(());
        }
        for positions in steps {
            let longer = self.longer.iter().find(|step| step.positions as usize == positions);
            let layers = longer.map_or(&self.guard, |step| &step.guard);
            let (own, others) = left.split_at_checked(layers.len()).unwrap_or((left, &[]));
            check_guard(layers, own)?;
            left = others;
        }
        check_guard(&[], left)
    }
}

/// Checks what a guard says of these layers.
fn check_guard(layers: &[String], left: &[u64]) -> Result<()> {
    if left.len() != layers.len() {
        let reason = "they did not return what the model's guard says of each layer";
        return Err(Error::refused("servers", reason));
    }
    let outside = left.iter().zip(layers).filter(|(word, _)| **word != 0);
    let layers: Vec<_> = outside.map(|(_, name)| name.clone()).collect();
    match layers.split_first() {
        None => Ok(()),
        Some((first, others)) => {
            Err(Error::OutOfRange { layer: first.clone(), others: others.len() })
        }
    }
}

/// Checks ranges that a client sent for a model's inputs.
///
/// # Errors
/// [`Error::Refused`] if they are not as many, or one is not a range.
pub fn check_ranges(ranges: &[Option<Range>], about: &About) -> Result<()> {
    if !ranges.is_empty() && ranges.len() != about.inputs.len() {
        let reason = format!("{} ranges for {} inputs", ranges.len(), about.inputs.len());
        return Err(Error::refused("model", reason));
    }
    if !ranges.iter().flatten().all(Range::is_sound) {
        return Err(Error::refused("model", "a range of an input does not go from low to high"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ring_arith::Shape;

    use super::*;

    #[test]
    fn what_a_client_says_is_bounded() {
        let image = |dims: &[usize]| Input { dims: dims.to_vec(), ..Input::default() };
        let logits = OutputTensor { name: "y".to_owned(), dims: vec![2], fraction_bits: 1 };
        let inputs = vec![image(&[1, 8, 8])];
        let sound = About { inputs, outputs: vec![logits.clone()], ..About::default() };
        sound.check().unwrap();
        let bad = [
            About { inputs: vec![], ..sound.clone() },
            About { outputs: vec![], ..sound.clone() },
            About { outputs: vec![logits.clone(); 65], ..sound.clone() },
            About {
                outputs: vec![OutputTensor { fraction_bits: 63, ..logits.clone() }],
                ..sound.clone()
            },
            About {
                outputs: vec![OutputTensor { name: "y\nz".to_owned(), ..logits }],
                ..sound.clone()
            },
            About { guard: vec!["\u{1b}[2J".to_owned()], ..sound.clone() },
            About { inputs: vec![image(&[])], ..sound.clone() },
            About { inputs: vec![image(&[1]); 65], ..sound.clone() },
            About { labels: vec!["x".repeat(257)], ..sound.clone() },
            About { labels: vec!["x".repeat(256); 5000], ..sound.clone() },
            About { labels: vec![String::new(); 100_001], ..sound.clone() },
            About { preprocess: Preprocess::Scale { white: f64::NAN }, ..sound.clone() },
        ];
        assert!(bad.iter().all(|about| about.check().is_err()));
    }

    #[test]
    fn answers_are_decoded_output_by_output_and_only_in_the_shape_that_was_said() {
        let output = |name: &str, dims: &[usize], fraction_bits| OutputTensor {
            name: name.to_owned(),
            dims: dims.to_vec(),
            fraction_bits,
        };
        let outputs = vec![output("scores", &[2], 1), output("class", &[], 0)];
        let about = About { outputs, ..About::default() };
        let tensor = |dims: &[usize], words: &[i64]| {
            let words = words.iter().map(|&word| word as u64).collect();
            Tensor::new(Shape::new(dims).unwrap(), words).unwrap()
        };
        let (scores, class) = (tensor(&[2, 2], &[1, -2, 3, 4]), tensor(&[2], &[7, -8]));
        let found = about.decode(2, &[scores.clone(), class.clone()]).unwrap();
        assert_eq!(found, [vec![vec![0.5, -1.0], vec![1.5, 2.0]], vec![vec![7.0], vec![-8.0]]]);
        let label = Some(Column { center: 10.0, spread: 2.0, ..Column::named("price") });
        let priced = About { label, ..about.clone() };
        let found_prices = priced.decode(2, &[scores.clone(), class.clone()]).unwrap();
        assert_eq!(found_prices[0], [vec![11.0, 8.0], vec![13.0, 14.0]]);
        assert_eq!(found_prices[1], found[1]);
        let guarded = About { guard: vec!["a".to_owned(), "b".to_owned()], ..about.clone() };
        let with =
            |words: &[i64]| vec![scores.clone(), class.clone(), tensor(&[words.len()], words)];
        assert_eq!(guarded.decode(2, &with(&[0, 0])).unwrap(), found);
        let error = guarded.decode(2, &with(&[0, 3])).unwrap_err();
        assert!(error.to_string().contains("at layer `b` left"), "{error}");
        let error = guarded.decode(2, &with(&[1, 3])).unwrap_err();
        assert!(error.to_string().contains("at layer `a` and one more left"), "{error}");
        assert!(guarded.decode(2, &with(&[0])).is_err());
        assert!(guarded.decode(2, &[scores.clone(), class.clone()]).is_err());
        for (examples, wrong) in [
            (2, vec![class.clone(), scores.clone()]),
            (2, vec![scores.clone()]),
            (3, vec![scores, class]),
        ] {
            assert!(about.decode(examples, &wrong).is_err());
        }
    }

    #[test]
    fn ranges_that_do_not_fit_the_inputs_are_refused() {
        let about = About { inputs: vec![Input::default(); 2], ..About::default() };
        let sound = Some(Range { low: 0.0, high: 1.0 });
        check_ranges(&[], &about).unwrap();
        check_ranges(&[sound, None], &about).unwrap();
        let turned = Some(Range { low: 1.0, high: 0.0 });
        let endless = Some(Range { low: 0.0, high: f64::INFINITY });
        for ranges in [&[sound][..], &[turned, None], &[None, endless]] {
            assert!(check_ranges(ranges, &about).is_err());
        }
    }
}
