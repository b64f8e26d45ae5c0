//! Analyses: functions called on the rows of data sets, one after the other. Their list is public, and the same at every
//! party.

mod call;
mod shapes;
mod values;

use std::collections::HashMap;

use mpc_core::{Format, Protocol, SecretTensor};
use nn_layers::HostTensor;
use ring_arith::{EngineTensor, FixedPoint, FracBits, Shape, Tensor};
use serde::{Deserialize, Serialize};

pub use call::{Call, FUNCTIONS, Known, Operand, Param};
pub use values::Values;

use crate::{
    base::{Digest, Error, Result},
    training::{Flow, Openings, RowTensor},
};

/// The most steps of an analysis.
const STEPS: usize = 1 << 20;

/// The most results.
const RESULTS: usize = 256;

/// The most bytes of a result's name.
const NAME: usize = 256;

/// A client's analysis, as it is sent and as owners of data consent to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnalysisRequest {
    /// The tensors of a row; all rows of each are the first places.
    pub inputs: Vec<RowTensor>,
    /// The number of rows.
    pub rows: usize,
    /// The steps. Their results take the next places, in order.
    pub steps: Vec<Step>,
    /// The places that leave the servers, with their names.
    pub results: Vec<Leaves>,
}

/// A step of an analysis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// A function is called.
    Call(Call),
    /// The numbers of a place are promised to be at most this large.
    Bound {
        /// The place.
        of: u64,
        /// The largest magnitude.
        bound: f64,
    },
}

/// A result of an analysis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leaves {
    /// Its name.
    pub name: String,
    /// The place of its numbers.
    pub place: u64,
}

/// The shape and format of a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// The shape.
    pub shape: Shape,
    /// The format of its numbers.
    pub format: Format,
}

/// The messages of an analysis.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Bytes that the server sends which sends most.
    pub bytes: u64,
    /// Rounds.
    pub rounds: u32,
}

/// An analysis whose shapes are known.
#[derive(Debug, Clone, PartialEq)]
pub struct Analysis {
    request: AnalysisRequest,
    /// Of each place.
    made: Vec<Made>,
    /// The first place after each step.
    next: Vec<usize>,
    /// The last step that needs each place; none that are results go before the end.
    last_use: Vec<usize>,
    traffic: Traffic,
    peak: u64,
    openings: Openings,
}

impl Step {
    /// The function's name, or `bound`.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Call(call) => &call.function,
            Self::Bound { .. } => "bound",
        }
    }

    /// The places that it needs.
    #[must_use]
    pub fn needs(&self) -> Vec<u64> {
        match self {
            Self::Call(call) => call.secrets().collect(),
            Self::Bound { of, .. } => vec![*of],
        }
    }

    /// Makes the step at one party, on the numbers of the places in `table`.
    fn run<P: Protocol>(
        &self,
        mpc: &mut P,
        table: &HashMap<u64, SecretTensor<P>>,
    ) -> mpc_core::Result<Vec<SecretTensor<P>>> {
        mpc.step(self.name());
        match self {
            Self::Call(call) => call.run(mpc, table),
            Self::Bound { of, bound } => {
                let there = table.get(of).ok_or_else(|| mpc_core::Error::Invalid {
                    op: "bound",
                    reason: format!("there are no numbers at place {of}"),
                })?;
                Ok(vec![there.clone().with_bound(*bound)])
            }
        }
    }
}

impl Analysis {
    /// Derives the shapes of all places, the messages and the memory of an analysis that a client sent. No place may have
    /// more than `most` numbers.
    ///
    /// # Errors
    /// [`Error::Refused`] that names the step that is not sound, or is too large.
    pub fn new(request: AnalysisRequest, most: u64) -> Result<Self> {
        request.check()?;
        let derived = shapes::derive(&request, most)?;
        let count = derived.made.len();
        let mut last_use: Vec<usize> = vec![0; count];
        let begin = request.inputs.len();
        let mut from = begin;
        for (at, (step, &next)) in request.steps.iter().zip(&derived.next).enumerate() {
            last_use[from..next].fill(at);
            from = next;
            for place in step.needs() {
                last_use[place as usize] = at;
            }
        }
        for result in &request.results {
            let last = last_use.get_mut(result.place as usize);
            *last.ok_or_else(|| {
                refused(format_args!("result `{}` has no numbers", result.name))
            })? = request.steps.len();
        }
        let steps = request.steps.len() as u32;
        let openings = Openings::last(steps, steps);
        let shapes::Derived { made, next, traffic } = derived;
        let peak = peak(begin, &made, &next, &last_use);
        Ok(Self { request, made, next, last_use, traffic, peak, openings })
    }

    /// The request.
    #[must_use]
    pub fn request(&self) -> &AnalysisRequest {
        &self.request
    }

    /// Steps in all.
    #[must_use]
    pub fn steps(&self) -> u32 {
        self.request.steps.len() as u32
    }

    /// The step after which the results leave: the last.
    #[must_use]
    pub fn openings(&self) -> &Openings {
        &self.openings
    }

    /// The messages among three servers with replicated shares.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Words that are there at the same time at most, beside the rows.
    #[must_use]
    pub fn peak_words(&self) -> u64 {
        self.peak
    }

    /// The shapes and formats of a step's results.
    #[must_use]
    pub fn made(&self, step: usize) -> &[Made] {
        let from =
            step.checked_sub(1).map_or(self.request.inputs.len(), |before| self.next[before]);
        &self.made[from..self.next[step]]
    }

    /// The results, with their shapes and formats.
    pub fn results(&self) -> impl Iterator<Item = (&str, &Made)> {
        let made = |leaves: &Leaves| &self.made[leaves.place as usize];
        self.request.results.iter().map(move |leaves| (leaves.name.as_str(), made(leaves)))
    }

    /// The numbers that go in, and those that leave.
    #[must_use]
    pub fn flow(&self) -> Flow {
        let inputs = 0..self.request.inputs.len();
        Flow {
            rows: self.request.rows as u64,
            numbers_in: inputs.map(|place| self.words(place)).sum(),
            weights: self.results().map(|(_, made)| made.shape.len() as u64).sum(),
            times: 1,
            metrics: 0,
            checks: 0,
        }
    }

    /// The digest of the steps and of all shapes that were derived: two programs that derive others differ in it.
    ///
    /// # Errors
    /// [`Error::Internal`] if it cannot be written, which does not happen.
    pub fn digest(&self) -> Result<Digest> {
        let written = serde_json::to_vec(&self.request)
            .map_err(|cause| Error::Internal(format!("an analysis: {cause}")))?;
        let made = |made: &Made| format!("{:?} {:?};", made.shape.dims(), made.format);
        let made: String = self.made.iter().map(made).collect();
        Ok(Digest::of(&[b"analysis", &written, made.as_bytes()]))
    }

    /// The numbers of the results, whose words have been added up.
    ///
    /// # Errors
    /// [`Error::Refused`] if they are not the results' words.
    pub fn decode(&self, words: &[Tensor]) -> Result<Vec<(String, HostTensor)>> {
        let like = |(words, (_, made)): (&Tensor, (&str, &Made))| *words.shape() == made.shape;
        if words.len() != self.request.results.len() || !words.iter().zip(self.results()).all(like)
        {
            return Err(refused("the servers sent other numbers than its results"));
        }
        let each = words.iter().zip(self.results()).map(|(words, (name, made))| {
            let dims = made.shape.dims().to_vec();
            let numbers = match made.format.frac {
                0 => words.words().iter().map(|&word| word as i64 as f64).collect(),
                frac => FixedPoint(FracBits::new(frac)?).decode(words.words()),
            };
            Ok((name.to_owned(), HostTensor::new(dims, numbers)?))
        });
        each.collect()
    }

    /// The places that are kept after this many steps: made before, and needed later or a result.
    fn live(&self, step: u32) -> impl Iterator<Item = usize> + use<'_> {
        let step = step as usize;
        let inputs = self.request.inputs.len();
        let made = step.checked_sub(1).map_or(inputs, |before| self.next[before]);
        (inputs..made).filter(move |&place| self.last_use[place] >= step)
    }

    fn words(&self, place: usize) -> u64 {
        self.made[place].shape.len() as u64
    }
}

/// The most words that are there at the same time, beside those of the first `begin` places: what a step needs is still
/// there while it makes its results.
fn peak(begin: usize, made: &[Made], next: &[usize], last_use: &[usize]) -> u64 {
    let words = |place: usize| made[place].shape.len() as u64;
    let mut dropped = vec![0; next.len() + 1];
    for place in begin..made.len() {
        dropped[last_use[place]] += words(place);
    }
    let (mut live, mut most, mut from) = (0, 0, begin);
    for (&next, dropped) in next.iter().zip(dropped) {
        live += (from..next).map(words).sum::<u64>();
        most = live.max(most);
        live -= dropped;
        from = next;
    }
    most
}

impl AnalysisRequest {
    /// Checks what does not depend on shapes.
    fn check(&self) -> Result<()> {
        let bad = |reason: String| Err(refused(reason));
        if !(1..=STEPS).contains(&self.steps.len()) {
            return bad(format!("{} steps; there must be 1 to {STEPS}", self.steps.len()));
        }
        if !(1..=RESULTS).contains(&self.results.len()) {
            return bad(format!("{} results; there must be 1 to {RESULTS}", self.results.len()));
        }
        for (at, Leaves { name, place }) in self.results.iter().enumerate() {
            if (*place as usize) < self.inputs.len() {
                return bad(format!("result `{name}` is the rows themselves"));
            }
            let sound =
                !name.is_empty() && name.len() <= NAME && !name.chars().any(char::is_control);
            if !sound {
                return bad(format!(
                    "names of results have 1 to {NAME} bytes and no control characters; number {at} has not"
                ));
            }
            if self.results[..at].iter().any(|other| other.name == *name) {
                return bad(format!("two results have the name `{name}`"));
            }
        }
        for step in &self.steps {
            if let Step::Call(Call { function, .. }) = step
                && function == "join"
            {
                return bad("`join` opens bits: name a join among the data instead".to_owned());
            }
        }
        Ok(())
    }
}

fn refused(reason: impl std::fmt::Display) -> Error {
    Error::refused("analysis", reason)
}

#[cfg(test)]
mod tests;
