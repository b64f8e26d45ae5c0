//! Differential privacy of a training's rows: gradients clipped for each example, and noise on their sum.

use serde::{Deserialize, Serialize};

use super::Accountant;
use super::optimiser::Placed;
use crate::graph::grad::each::OfEach;
use crate::graph::{Binary, Dim, Format, Graph, Linear, LinearFinish, LinearMap, Op, ValueId};
use crate::ops::clip;
use crate::{Error, Result};

/// DP-SGD ([ACG+16]). The gradient of each example, over all trained tensors together, is scaled down to a norm
/// of at most `clip`. Gaussian noise is added to the sum of a step.
///
/// No server and no client knows the noise: every server draws a part of it
/// ([`mpc_core::functions::gaussian`]). The noise of any two of three servers has a standard deviation of
/// `noise * clip`; the noise of all has `sqrt(3/2)` times as much.
///
/// # Sensitivity
/// A unit adds words with a norm of at most `clip` to the sum. This holds for any gradient, also one whose
/// values left their range. Clipping at `127/128` of `clip` accounts for roundings. A unit whose gradient is
/// more than 4096 times as long as `clip` adds nothing. The noise is added to the exact words of the sum,
/// before anything is rounded.
///
/// [ACG+16]: https://arxiv.org/abs/1607.00133
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Privacy {
    /// The largest norm of a unit's gradient.
    pub clip: f64,
    /// The noise multiplier: the standard deviation of the noise over `clip`.
    pub noise: f64,
    /// Rows of a unit, one after the other in a batch, whose mean gradient is clipped: 1 for each example.
    /// Larger units cost less where weights are many, but one row can turn its unit's whole gradient around: it
    /// is protected as with half the noise.
    #[serde(default = "one")]
    pub rows: usize,
    /// The delta at which epsilon is stated.
    #[serde(default = "delta")]
    pub delta: f64,
}

fn one() -> usize {
    1
}

fn delta() -> f64 {
    1e-5
}

/// A unit is clipped at this part of the limit; with all roundings it stays below the limit: `1 + 2^-17 + 2^-10`
/// for the factor (`ops/clip.rs`) and `2^-8` for the rounding of its operand are below `128 / 127`.
const ROUNDED: f64 = 127.0 / 128.0;

/// Fraction bits of a sum of clipped gradients, and of the noise that is added to it.
const SUM: u32 = 46;

/// Fraction bits of the sum with its noise.
const NOISY: u32 = 26;

/// Fraction bits of gradients as the optimiser takes them.
const UPDATE: u32 = 28;

/// The most fraction bits of confined values, and the range that is left to them in any case, in bits.
const VALUE: u32 = 14;
const GRADIENT: u32 = 16;
const RANGE: u32 = 9;

/// The most outputs of all dense layers together: with more the roundings of their scaled gradients might reach `2^-8`.
const MOST_OUTPUTS: usize = 12_000;

/// The most units of a step, whose sum and noise must have an encoding.
const MOST_UNITS: usize = 1 << 14;

/// The limits of the noise multiplier.
const NOISE: std::ops::RangeInclusive<f64> = 0.01..=1000.0;

/// The limits of the clip norm.
const CLIP: std::ops::RangeInclusive<f64> = 1e-4..=1024.0;

/// The most that a step may move a weight, with ten deviations of noise.
const LARGEST_STEP: f64 = 32.0;

impl Privacy {
    /// Each example's gradient clipped to a norm, and this noise multiplier; epsilon is stated at a delta of
    /// `1e-5`.
    pub fn new(clip: f64, noise: f64) -> Self {
        Self { clip, noise, rows: one(), delta: delta() }
    }

    /// The same with epsilon stated at another delta.
    #[must_use]
    pub fn with_delta(self, delta: f64) -> Self {
        Self { delta, ..self }
    }

    /// The privacy loss of a row that takes part in `uses` steps, at most once in each; everybody may know in
    /// which.
    ///
    /// # Errors
    /// As [`Accountant::add_known`].
    pub fn accountant(&self, uses: u32) -> Result<Accountant> {
        let mut accountant = Accountant::default();
        accountant.add_known(self.multiplier(), uses)?;
        Ok(accountant)
    }

    /// Epsilon of [`Privacy::accountant`].
    ///
    /// # Errors
    /// As [`Accountant::add_known`] and [`Accountant::epsilon`].
    pub fn epsilon(&self, uses: u32) -> Result<f64> {
        self.accountant(uses)?.epsilon(self.delta)
    }

    /// The same for the mean gradients of several rows one after the other.
    #[must_use]
    pub fn with_rows(self, rows: usize) -> Self {
        Self { rows, ..self }
    }

    /// The noise multiplier that protects a row: the noise of the sum over the norm by which one row can change
    /// the sum. Without a row, the rest of a larger unit remains, and its gradient may point anywhere.
    pub fn multiplier(&self) -> f64 {
        if self.rows == 1 { self.noise } else { self.noise / 2.0 }
    }

    /// Units of a batch.
    pub(super) fn units(&self, batch: usize) -> usize {
        batch / self.rows.max(1)
    }

    /// The standard deviation of the noise that any two servers add, in units of the sum.
    pub(super) fn deviation(&self) -> f64 {
        self.noise / ROUNDED
    }

    /// The gradient of the sum of the batch's losses that a unit of the sum is.
    pub(super) fn unit(&self) -> f64 {
        ROUNDED * self.clip * self.rows as f64
    }

    /// Bits by which gradients have fewer fraction bits, so that those of a small limit keep their range.
    pub(super) fn shift(&self) -> i32 {
        self.unit().log2().floor() as i32
    }

    pub(super) fn check(&self, batch: usize, largest_rate: f64) -> Result<()> {
        let invalid = |reason: String| Err(Error::invalid("privacy", reason));
        let Self { clip, noise, rows, delta } = *self;
        if !(delta > 0.0 && delta < 1.0) {
            return invalid(format!("a delta of {delta} is not between 0 and 1"));
        }
        if !CLIP.contains(&clip) || !NOISE.contains(&noise) {
            return invalid(format!(
                "a clip norm of {clip} and a noise multiplier of {noise}; {CLIP:?} and {NOISE:?} are possible"
            ));
        }
        if rows == 0 || !batch.is_multiple_of(rows) || batch / rows > MOST_UNITS {
            return invalid(format!(
                "units of {rows} rows do not divide a batch of {batch} into 1 to {MOST_UNITS}"
            ));
        }
        let step = largest_rate * clip * (1.0 + 10.0 * noise / self.units(batch) as f64);
        if step > LARGEST_STEP {
            return invalid(format!(
                "a step at the learning rate {largest_rate} may be {step:.0} long, more than {LARGEST_STEP}: take \
                 a smaller rate, less noise or a larger batch"
            ));
        }
        Ok(())
    }
}

/// The nodes that [`noisy_gradients`] adds.
pub(super) struct Noisy {
    /// Each trained tensor with its gradient.
    pub gradients: Vec<(ValueId, ValueId)>,
    /// The inputs that the noise comes by.
    pub inputs: Vec<usize>,
}

/// Adds, for each trained tensor, the sum of the units' clipped gradients with noise, as the optimiser takes it.
pub(super) fn noisy_gradients(
    graph: &mut Graph,
    privacy: &Privacy,
    optimiser: &Placed,
    each: &[(ValueId, OfEach)],
) -> Result<Noisy> {
    let units = privacy.units(graph.batch());
    let mut confined = vec![];
    for (_, each) in each {
        confined.push(match *each {
            OfEach::Outer { x, delta, transposed } => {
                let (x, delta) = (confine(graph, x, VALUE)?, confine(graph, delta, GRADIENT)?);
                OfEach::Outer { x, delta, transposed }
            }
            OfEach::Whole(whole) => OfEach::Whole(confine(graph, whole, GRADIENT)?),
        });
    }
    let factors = factors(graph, &confined)?;
    let mut gradients = vec![];
    let mut noise = vec![];
    for (&(weight, _), each) in each.iter().zip(&confined) {
        noise.push(graph.inputs.len());
        let sum = match *each {
            OfEach::Outer { x, delta, transposed } => {
                outer_sum(graph, weight, [x, delta, factors], units, transposed)?
            }
            OfEach::Whole(whole) => whole_sum(graph, weight, [whole, factors], units)?,
        };
        let factor = optimiser.factor();
        let gradient = add(graph, UPDATE, Op::Binary(Binary::Mul), &[sum, factor])?;
        gradients.push((weight, gradient));
    }
    Ok(Noisy { gradients, inputs: noise })
}

fn add(graph: &mut Graph, frac: u32, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
    graph.add_as(Format::Fixed(frac), "clip", op, inputs)
}

/// The same rows in words of which the squares can be added up; a value that is confined already is not confined again.
fn confine(graph: &mut Graph, x: ValueId, most: u32) -> Result<ValueId> {
    let len = graph.shape(x).dims().get(1).copied().unwrap_or(1);
    let bits = clip::bits_for(len);
    let frac = most.min(bits.saturating_sub(2 + RANGE));
    let (op, format) = (Op::Confine(bits), Format::Fixed(frac));
    let same = graph
        .nodes
        .iter()
        .position(|node| node.op == op && node.inputs == [x] && node.format == format);
    match same {
        Some(at) => Ok(ValueId(at)),
        None => add(graph, frac, op, &[x]),
    }
}

/// The factor of each unit.
fn factors(graph: &mut Graph, confined: &[OfEach]) -> Result<ValueId> {
    let mut operands = vec![];
    let mut outputs = 0;
    for each in confined {
        if let OfEach::Outer { x, delta, .. } = *each {
            operands.extend([x, delta]);
            outputs += graph.shape(delta).dims()[1];
        }
    }
    if outputs > MOST_OUTPUTS {
        let reason = format!(
            "dense layers with {outputs} outputs in all are trained; {MOST_OUTPUTS} can be clipped"
        );
        return Err(Error::invalid("privacy", reason));
    }
    let pairs = operands.len() / 2;
    operands.extend(confined.iter().filter_map(|each| match each {
        OfEach::Whole(whole) => Some(*whole),
        OfEach::Outer { .. } => None,
    }));
    add(graph, clip::FACTOR, Op::ClipFactor { pairs }, &operands)
}

/// The noise of a tensor, as an input of the step.
fn noise(graph: &mut Graph, weight: ValueId, dims: &[usize]) -> Result<ValueId> {
    let name = graph.start_of(weight).map(|constant| constant.name.clone());
    let name = format!("noise of {}", name.ok_or_else(|| Error::plan("not a parameter"))?);
    let dims: Vec<_> = dims.iter().map(|&d| Dim::Fixed(d)).collect();
    graph.input_with_frac(&name, &dims, SUM)
}

/// A product with the noise added before it is rounded: a unit's addend in its words is as exact as the clipped
/// gradient.
fn noisy_product(
    graph: &mut Graph,
    [transpose_lhs, transpose_rhs]: [bool; 2],
    operands: [ValueId; 3],
) -> Result<ValueId> {
    let linear = Linear {
        map: LinearMap::MatMul { transpose_lhs, transpose_rhs },
        bias: false,
        residual: true,
        more: vec![],
        finish: LinearFinish::Truncate,
    };
    add(graph, NOISY, Op::Linear(linear), &operands)
}

/// The sum of outer products, the rows of one factor scaled.
fn outer_sum(
    graph: &mut Graph,
    weight: ValueId,
    [x, delta, factors]: [ValueId; 3],
    units: usize,
    transposed: bool,
) -> Result<ValueId> {
    let Format::Fixed(frac) = graph.nodes[x.0].format else {
        return Err(Error::plan("a factor is confined before it is used"));
    };
    let column = add(graph, clip::FACTOR, column(units), &[factors])?;
    let scaled = add(graph, SUM - frac, Op::Binary(Binary::Mul), &[delta, column])?;
    let dims = graph.shape(weight).dims().to_vec();
    let noise = noise(graph, weight, &dims)?;
    let operands = if transposed { [scaled, x, noise] } else { [x, scaled, noise] };
    noisy_product(graph, [true, false], operands)
}

fn column(units: usize) -> Op {
    Op::Reshape(vec![Dim::Fixed(units), Dim::Fixed(1)])
}

/// The sum of gradients `[units, len]`, each times its factor.
fn whole_sum(
    graph: &mut Graph,
    weight: ValueId,
    [whole, factors]: [ValueId; 2],
    units: usize,
) -> Result<ValueId> {
    let Format::Fixed(frac) = graph.nodes[whole.0].format else {
        return Err(Error::plan("a gradient is confined before it is used"));
    };
    // As many bits as the noise has in all; they are zeros.
    let fine = add(graph, SUM - frac, Op::Cast, &[factors])?;
    let fine = add(graph, SUM - frac, column(units), &[fine])?;
    let len = graph.shape(whole).dims()[1];
    let noise = noise(graph, weight, &[1, len])?;
    let sum = noisy_product(graph, [true, false], [fine, whole, noise])?;
    let dims = graph.shape(weight).dims().iter().map(|&d| Dim::Fixed(d)).collect();
    add(graph, NOISY, Op::Reshape(dims), &[sum])
}
