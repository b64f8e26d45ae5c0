//! Adam, its relatives, and second moments that rows of weights share.

use serde::{Deserialize, Serialize};

use super::TrainOptions;
use crate::graph::norm::Count;
use crate::graph::{Binary, Dim, Format, Graph, Op, Unary, ValueId};
use crate::{Error, HostTensor, Result};

/// Adam as PyTorch has it, but for three things: the first of `betas` is taken to the nearest 32nd, which lets the
/// gradient be found in the new first moment without another truncation; `epsilon` is added below the root, as
/// its square; and a second moment below `2^-38` is 0 in fixed point, where with an `epsilon` as small the weight stays
/// instead of moving by the learning rate. From an `epsilon` of `2^-12` on it moves as it does in floats.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Adam {
    /// The parts of first and second moment that go on.
    pub betas: [f64; 2],
    /// Keeps the smallest second moments from making large steps.
    pub epsilon: f64,
    /// Times the weight: added to the gradient, or taken from the weight if `decoupled`.
    pub decay: f64,
    /// Whether the decay leaves the moments alone, as in AdamW.
    pub decoupled: bool,
    /// Which gradients share a second moment.
    pub second: Second,
    /// Steps from one inverse root of the second moments to the next; in the first 16, steps 1, 2, 4 and 8 have
    /// one as well. A gradient whose second moment was 0 at the last root is divided by `epsilon` alone, which
    /// should not be small then.
    pub every: u32,
    /// Whether steps follow the largest second moment so far, as in AMSGrad.
    pub amsgrad: bool,
}

/// Which gradients share a second moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Second {
    /// Each has its own, as published. An inverse root for each weight is by far the largest part of a step.
    Weight,
    /// All weights of an output neuron or of a filter; vectors, such as biases, element by element.
    Row,
}

impl Default for Adam {
    /// PyTorch's numbers.
    fn default() -> Self {
        Self {
            betas: [0.9, 0.999],
            epsilon: 1e-8,
            decay: 0.0,
            decoupled: false,
            second: Second::Weight,
            every: 1,
            amsgrad: false,
        }
    }
}

/// Fraction bits of first moments, and of their part that goes on: their difference is the gradient.
const FIRST: u32 = 22;
const KEPT: u32 = FIRST + BETA_BITS;
const BETA_BITS: u32 = 5;

/// Fraction bits of second moments, the most that an inverse root takes.
const SECOND: u32 = 38;

/// Fraction bits of inverse roots, and of their product with the learning rate.
const ROOT: u32 = 20;
const STEP: u32 = 32;

/// A gradient of the batch's mean loss as it joins the first moment, beside `1 - beta`: its square is summed over 256
/// weights and stays below 1 on the mean up to gradients of 2.6.
const UNIT: f64 = 4.0;

/// Added to the square of a norm.
const LEAST_NORM: f64 = 1.0 / 137_438_953_472.0;

impl Adam {
    /// The same with the first decay as it is computed with.
    fn first(&self) -> f64 {
        (self.betas[0] * 32.0).round() / 32.0
    }

    /// What gradients of the batch's mean loss are multiplied by.
    pub(super) fn unit(&self) -> f64 {
        (1.0 - self.first()) * UNIT
    }

    pub(super) fn check(&self) -> Result<()> {
        let invalid = |reason: String| Err(Error::invalid("optimiser", reason));
        if !(0.0..1.0).contains(&self.first()) || !(0.0..1.0).contains(&self.betas[1]) {
            return invalid(format!(
                "{:?} are not within 0 to 1; 1 is no 32nd below it",
                self.betas
            ));
        }
        if !(self.epsilon > 0.0 && self.epsilon < 1.0 && (0.0..=1.0).contains(&self.decay)) {
            return invalid(format!(
                "epsilon {} is not between 0 and 1, or decay {} not up to 1",
                self.epsilon, self.decay
            ));
        }
        if self.every == 0 {
            return invalid("roots are made every 0 steps; 1 is for each".to_owned());
        }
        Ok(())
    }

    /// Fraction bits of the learning rate: with the largest root, of the smallest moment, it must fit.
    pub(super) fn rate_frac(options: &TrainOptions) -> u32 {
        let room = (-options.largest_rate.log2()).floor() as i32;
        (22 + room).clamp(16, 36) as u32
    }

    /// Whether the inverse roots are made in a step.
    pub(super) fn refreshes(&self, number: u32) -> bool {
        self.last_refresh(number) == number
    }

    /// The last step up to this one in which the inverse roots are made.
    fn last_refresh(&self, number: u32) -> u32 {
        let count = number + 1;
        let regular = count / self.every * self.every;
        let early = 1 << count.min(8).ilog2();
        regular.max(early) - 1
    }

    /// The numbers that everybody knows in a step: the learning rate with the moments' corrections for their
    /// start at 0, and what the weights lose.
    pub(super) fn public(&self, number: u32, rate: f64) -> Vec<f64> {
        let beta = self.first();
        let power =
            |beta: f64, number: u32| 1.0 - beta.powi(i32::try_from(number + 1).unwrap_or(i32::MAX));
        let first = power(beta, number);
        let second = power(self.betas[1], self.last_refresh(number));
        let scaled = rate * second.sqrt() / first * (1.0 - beta);
        let decay = self.decay_input().then_some(-rate * self.decay);
        [scaled].into_iter().chain(decay).collect()
    }

    /// Whether the decay is a public input of a step.
    pub(super) fn decay_input(&self) -> bool {
        self.decoupled && self.decay > 0.0
    }
}

/// One parameter on its way.
struct Moved {
    name: String,
    weight: ValueId,
    /// Its new first moment.
    first: ValueId,
    /// Where its second moments lie among those of all, and their shape.
    start: usize,
    len: usize,
    wide: Vec<usize>,
}

/// Adds the new values of the parameters and of their moments, by name. Second moments of all parameters are one
/// vector, whose roots share their rounds.
pub(super) fn update(
    adam: &Adam,
    graph: &mut Graph,
    options: &TrainOptions,
    rate: ValueId,
    parameters: &[(ValueId, ValueId)],
    refresh: bool,
) -> Result<Vec<(String, ValueId)>> {
    let mut to = Updater { adam, graph };
    let decay = if adam.decay_input() {
        Some(to.graph.input_with_frac(
            "decay",
            &[Dim::Fixed(1)],
            FIRST + STEP - options.formats.weights,
        )?)
    } else {
        None
    };
    let mut updates = vec![];
    let mut moved = vec![];
    let mut squares = vec![];
    let mut total = 0;
    for &(weight, grad) in parameters {
        let (mut one, square) = to.moments(options, weight, grad)?;
        one.start = total;
        one.len = to.graph.shape(square).len();
        total += one.len;
        updates.push((format!("{}.momentum", one.name), one.first));
        squares.push(square);
        moved.push(one);
    }
    let squares = to.add(Format::Fixed(SECOND), Op::Concat(0), &squares)?;
    let steps = to.steps(squares, total, rate, refresh, &mut updates)?;
    for one in &moved {
        updates.push((one.name.clone(), to.moved(one, steps, decay)?));
    }
    Ok(updates)
}

struct Updater<'a> {
    adam: &'a Adam,
    graph: &'a mut Graph,
}

impl Updater<'_> {
    fn add(&mut self, format: Format, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
        self.graph.add_as(format, "adam", op, inputs)
    }

    fn binary(&mut self, format: Format, f: Binary, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.add(format, Op::Binary(f), &[x, y])
    }

    /// A tensor that goes from step to step, 0 at the start.
    fn state(&mut self, name: &str, dims: &[usize], frac: u32) -> Result<ValueId> {
        let zeros = HostTensor::new(dims, vec![0.0; dims.iter().product()])?;
        let id = self.graph.parameter(name, zeros);
        self.graph.nodes[id.0].format = Format::Fixed(frac);
        Ok(id)
    }

    /// The new first moment of a parameter, and what joins its second moments, as a vector.
    fn moments(
        &mut self,
        options: &TrainOptions,
        weight: ValueId,
        grad: ValueId,
    ) -> Result<(Moved, ValueId)> {
        let name = self.graph.start_of(weight).map(|constant| constant.name.clone());
        let name = name.ok_or_else(|| Error::plan("not a parameter"))?;
        let dims = self.graph.shape(weight).dims().to_vec();
        let grad = self.decayed(options, weight, grad)?;
        let last = self.state(&format!("{name}.momentum"), &dims, FIRST)?;
        let kept = self.add(Format::Fixed(KEPT), Op::Scale(self.adam.first()), &[last])?;
        let sum = self.binary(Format::Gradient, Binary::Add, grad, kept)?;
        let first = self.add(Format::Fixed(FIRST), Op::Cast, &[sum])?;
        // What has joined: the gradient, rounded once.
        let joined = self.binary(Format::Fixed(KEPT), Binary::Sub, first, kept)?;
        let fine = Format::Fixed(SECOND);
        let by_row = self.adam.second == Second::Row && dims.len() > 1;
        let (square, wide) = if by_row {
            let mut wide = vec![1; dims.len()];
            wide[0] = dims[0];
            (self.mean_square(joined, &dims)?, wide)
        } else {
            (self.binary(fine, Binary::Mul, joined, joined)?, dims)
        };
        let len = self.graph.shape(square).len();
        let square = self.add(fine, Op::Reshape(vec![Dim::Fixed(len)]), &[square])?;
        Ok((Moved { name, weight, first, start: 0, len, wide }, square))
    }

    /// The gradient with the weight's decay, unless that leaves the moments alone.
    fn decayed(
        &mut self,
        options: &TrainOptions,
        weight: ValueId,
        grad: ValueId,
    ) -> Result<ValueId> {
        let Adam { decay, decoupled, .. } = *self.adam;
        if decay == 0.0 || decoupled {
            return Ok(grad);
        }
        let formats = options.plan_formats(self.graph.batch());
        let format = Format::Fixed(formats.values + formats.gradients);
        let part = self.add(format, Op::Scale(decay * self.adam.unit()), &[weight])?;
        self.binary(Format::Gradient, Binary::Add, grad, part)
    }

    /// The mean of the squares of each row.
    fn mean_square(&mut self, x: ValueId, dims: &[usize]) -> Result<ValueId> {
        let count = Count::new(dims[1..].iter().product());
        let axes = (1..dims.len()).collect();
        let coarse = Format::Fixed(SECOND - count.bits);
        let fine = Format::Fixed(SECOND);
        let sum = self.add(coarse, Op::Dot(axes), &[x, x])?;
        let mean = self.add(fine, Op::Scale((-f64::from(count.bits)).exp2()), &[sum])?;
        if count.rest == 1.0 { Ok(mean) } else { self.add(fine, Op::Scale(count.rest), &[mean]) }
    }

    /// What each first moment is multiplied by and added to the weight, for all second moments.
    fn steps(
        &mut self,
        squares: ValueId,
        total: usize,
        rate: ValueId,
        refresh: bool,
        updates: &mut Vec<(String, ValueId)>,
    ) -> Result<ValueId> {
        let fine = Format::Fixed(SECOND);
        let last = self.state("second moments", &[total], SECOND)?;
        let change = self.binary(fine, Binary::Sub, squares, last)?;
        let change = self.add(fine, Op::Scale(1.0 - self.adam.betas[1]), &[change])?;
        let mut moments = self.binary(fine, Binary::Add, last, change)?;
        updates.push(("second moments".to_owned(), moments));
        if self.adam.amsgrad {
            let largest = self.state("largest moments", &[total], SECOND)?;
            moments = self.binary(fine, Binary::Max, largest, moments)?;
            updates.push(("largest moments".to_owned(), moments));
        }
        let root = self.root(moments, total, refresh, updates)?;
        let steps = self.binary(Format::Fixed(STEP), Binary::Mul, root, rate)?;
        self.add(Format::Fixed(STEP), Op::Scale(-1.0), &[steps])
    }

    /// The inverse roots: new ones, or those of an earlier step.
    fn root(
        &mut self,
        moments: ValueId,
        total: usize,
        refresh: bool,
        updates: &mut Vec<(String, ValueId)>,
    ) -> Result<ValueId> {
        let name = "inverse roots";
        let stored = match self.adam.every {
            1 => None,
            _ => Some(self.state(name, &[total], ROOT)?),
        };
        match stored {
            Some(old) if !refresh => return Ok(old),
            _ => {}
        }
        let epsilon = self.adam.epsilon * self.adam.unit();
        let epsilon = self.graph.public("adam.epsilon", HostTensor::scalar(epsilon * epsilon));
        let noisy = self.binary(Format::Fixed(SECOND), Binary::Add, moments, epsilon)?;
        let root = self.add(Format::Fixed(ROOT), Op::Unary(Unary::InvSqrt), &[noisy])?;
        let Some(old) = stored else { return Ok(root) };
        // The old ones are weights of this plan too, so that both plans have the same state.
        let nothing = self.add(Format::Fixed(ROOT), Op::Scale(0.0), &[old])?;
        let root = self.binary(Format::Fixed(ROOT), Binary::Add, root, nothing)?;
        updates.push((name.to_owned(), root));
        Ok(root)
    }

    /// The new value of a parameter.
    fn moved(&mut self, one: &Moved, steps: ValueId, decay: Option<ValueId>) -> Result<ValueId> {
        let format = Format::Fixed(STEP);
        let end = Dim::Fixed(one.start + one.len);
        let own = Op::Slice { axis: 0, start: one.start, end, step: 1 };
        let own = self.add(format, own, &[steps])?;
        let wide = one.wide.iter().map(|&d| Dim::Fixed(d)).collect();
        let own = self.add(format, Op::Reshape(wide), &[own])?;
        let step = self.binary(Format::Weight, Binary::Mul, one.first, own)?;
        let mut kept = one.weight;
        if let Some(decay) = decay {
            let lost = self.binary(Format::Exact, Binary::Mul, one.weight, decay)?;
            kept = self.binary(Format::Weight, Binary::Add, one.weight, lost)?;
        }
        self.binary(Format::Weight, Binary::Add, step, kept)
    }
}

/// The factor by which gradients are multiplied so that the norm of all of them is at most `limit`; the gradients are
/// those of the batch's mean loss times `unit`, a number, or times a public value.
pub(super) fn clip_factor(
    graph: &mut Graph,
    grads: &[ValueId],
    limit: f64,
    unit: Option<ValueId>,
) -> Result<ValueId> {
    let mut total: Option<ValueId> = None;
    for &grad in grads {
        let axes = (0..graph.shape(grad).rank()).collect::<Vec<_>>();
        let norm = graph.add_as(Format::Fixed(SECOND), "clip", Op::Dot(axes), &[grad, grad])?;
        let norm = graph.add_as(
            Format::Fixed(SECOND),
            "clip",
            Op::Reshape(vec![Dim::Fixed(1)]),
            &[norm],
        )?;
        total = Some(match total {
            Some(sum) => graph.add_as(
                Format::Fixed(SECOND),
                "clip",
                Op::Binary(Binary::Add),
                &[sum, norm],
            )?,
            None => norm,
        });
    }
    let total = total.ok_or_else(|| Error::invalid("clip", "there are no gradients"))?;
    // A norm that is too small for its square would stop the training.
    let least = graph.public("clip.least", HostTensor::scalar(LEAST_NORM));
    let total =
        graph.add_as(Format::Fixed(SECOND), "clip", Op::Binary(Binary::Add), &[total, least])?;
    let inverse = graph.add_as(Format::Fixed(ROOT), "clip", Op::Unary(Unary::InvSqrt), &[total])?;
    let inverse = match unit {
        Some(unit) => {
            graph.add_as(Format::Fixed(STEP), "clip", Op::Binary(Binary::Mul), &[inverse, unit])?
        }
        None => inverse,
    };
    let factor = graph.add_as(Format::Fixed(ROOT), "clip", Op::Scale(limit), &[inverse])?;
    graph.add_as(Format::Fixed(ROOT), "clip", Op::Unary(Unary::Clip(None, Some(1.0))), &[factor])
}
