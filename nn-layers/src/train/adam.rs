//! Adam, its relatives, and second moments that rows of weights share.

use serde::{Deserialize, Serialize};

use super::course::{BETA_BITS, Course, PARTS};
use super::{Privacy, StateSpec, TrainOptions};
use crate::graph::norm::Count;
use crate::graph::{Binary, Dim, Format, Graph, Op, Unary, ValueId};
use crate::{Error, HostTensor, Result};

/// Adam as in PyTorch, with one difference. Gradients below about `2^-21` are mostly rounding, so that their weights
/// move by less than in floats. [`super::TrainPlan::inspect`] shows by how much.
///
/// First moments are kept times a public factor near 1 that changes from step to step, so that the part that
/// continues is always a multiple of 1/32. The gradient can then be found in the new first moment without another
/// truncation, and any first decay costs the same (`course.rs`).
///
/// Gradients of the batch's mean loss above 20 in magnitude leave the range of their squares, which a guard notices.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Adam {
    /// The parts of first and second moment that go on. The first is 0 or from 1/32 to below 1.
    pub betas: [f64; 2],
    /// Keeps the smallest second moments from making large steps.
    pub epsilon: f64,
    /// Times the weight: added to the gradient, or taken from the weight if `decoupled`.
    pub decay: f64,
    /// True if the decay leaves the moments alone, as in AdamW.
    pub decoupled: bool,
    /// The gradients that share a second moment.
    pub second: Second,
    /// Steps from one inverse root of the second moments to the next; in the first 16, steps 1, 2, 4 and 8 have
    /// one as well. A gradient whose second moment was 0 at the last root is divided by `epsilon` alone, which
    /// should not be small then.
    pub every: u32,
    /// True if steps follow the largest second moment so far, as in AMSGrad.
    pub amsgrad: bool,
}

/// The gradients that share a second moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Second {
    /// Each weight has a separate one, as published. An inverse root for each weight is by far the largest part
    /// of a step.
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

/// Fraction bits of a step's factors of second moments, decays and limits.
const NUMBER: u32 = 40;

/// Fraction bits of the factor of a step's gradients.
const GRADIENT_FACTOR: u32 = 30;

/// Fraction bits of second moments, the most that an inverse root takes.
const SECOND: u32 = 38;

/// The largest product of root and epsilon for which [`Updater::damped`] needs no reciprocal.
const SMALL: f64 = 1.05;

/// A second moment is raised to this part of the smallest epsilon, which keeps its root in range.
const LEAST_PART: f64 = 1.0 / 64.0;

/// Fraction bits of inverse roots.
const ROOT: u32 = 16;

/// The most fraction bits of a root's product with the learning rate.
const MOST_STEP: u32 = 37;

/// The factor of a gradient of the batch's mean loss in the first moment, in addition to `1 - beta`. Its square
/// is summed over 256 weights, and the mean stays below 1 up to gradients of 2.6.
const UNIT: f64 = 4.0;

/// Fraction bits of the factor by which gradients are scaled down, and of its product with a public value.
pub(super) const FACTOR: u32 = 20;
const UNIT_STEP: u32 = 32;

/// The name in a state of an earlier step's inverse roots.
const ROOTS: &str = "inverse roots";

/// Added to the square of a norm.
const LEAST_NORM: f64 = 1.0 / 137_438_953_472.0;

impl Adam {
    /// Fraction bits of first moments. A row's sum of squares needs room.
    fn first_frac(&self) -> u32 {
        match self.second {
            Second::Weight => 23,
            Second::Row => 22,
        }
    }

    /// Fraction bits of the part of a first moment that continues.
    pub(super) fn kept_frac(&self) -> u32 {
        self.first_frac() + BETA_BITS
    }

    /// Second moments are taken of gradients times a power of two with this exponent, so that small ones have
    /// more bits: all that the square of a gradient has.
    fn lift(&self) -> u32 {
        self.kept_frac() - SECOND / 2
    }

    /// The numbers added to the roots of second moments, in the end and in the first step: PyTorch adds
    /// `epsilon` once the root is corrected for its start at 0.
    fn epsilons(&self) -> [f64; 2] {
        let last = self.epsilon * self.unit() * f64::from(self.lift()).exp2();
        [last, last * (1.0 - self.betas[1]).sqrt()]
    }

    /// The least second moment that a root is taken of. It is the larger of one unit, because rounding may
    /// leave a moment of 0 one unit below 0, and a number that is negligible compared with epsilon.
    fn least(&self) -> f64 {
        let part = self.epsilons()[1] * LEAST_PART;
        (part * part).max((-f64::from(SECOND)).exp2())
    }

    /// The factor of gradients of the batch's mean loss, which a step's [`Course::scale`] multiplies.
    pub(super) fn unit(&self) -> f64 {
        let nearest = (self.betas[0] * PARTS).round().min(PARTS - 1.0) / PARTS;
        (1.0 - nearest) * UNIT
    }

    pub(super) fn check(&self) -> Result<()> {
        let invalid = |reason: String| Err(Error::invalid("optimiser", reason));
        let [first, second] = self.betas;
        if !(0.0..1.0).contains(&first) || !(0.0..1.0).contains(&second) {
            return invalid(format!("betas are from 0 to below 1, not {:?}", self.betas));
        }
        if first > 0.0 && first < 1.0 / PARTS {
            return invalid(format!("the first beta is 0 or at least 1/32, not {first}"));
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

    /// Fraction bits of the factors of first moments. Moves of the learning rate, thousands of which a guard
    /// adds up, stay far below `2^57` as products.
    fn step_frac(options: &TrainOptions) -> u32 {
        let room = (-options.largest_rate.log2()).floor() as i32;
        (24 + room).clamp(ROOT as i32 + 1, MOST_STEP as i32) as u32
    }

    /// Fraction bits of the learning rate: its product with a root need not be rounded, but for the smallest rates.
    pub(super) fn rate_frac(options: &TrainOptions) -> u32 {
        let least = if Self::step_frac(options) == MOST_STEP { 3 } else { 0 };
        Self::step_frac(options) - ROOT + least
    }

    /// True if a step computes new inverse roots.
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

    /// The public numbers of a step, in the order of [`Inputs`].
    pub(super) fn public(
        &self,
        number: u32,
        rate: f64,
        batch: usize,
        options: &TrainOptions,
    ) -> Vec<f64> {
        let Course { kept, scale, second, .. } = Course::at(self.betas, number);
        let (rate, epsilon) = self.rate_and_epsilon(number, rate);
        let gradient = scale * self.gradient_factor(batch, options);
        let decay = (self.decay > 0.0).then(|| match self.decoupled {
            true => -rate.plain * self.decay,
            false => scale * self.unit() * self.decay,
        });
        let limit = options.clip.map(|limit| scale * self.unit() * limit);
        let growth = self.amsgrad.then(|| Course::growth(self.betas, number));
        let always = [rate.scaled, gradient, kept, second, epsilon];
        always.into_iter().chain(decay).chain(limit).chain(growth).collect()
    }

    /// The number of a step's public numbers.
    pub(super) fn public_inputs(&self, options: &TrainOptions) -> usize {
        let optional = [self.decay > 0.0, options.clip.is_some(), self.amsgrad];
        5 + optional.into_iter().filter(|there| *there).count()
    }

    /// The factor that makes gradients of the sum of a batch's losses, or the sum of clipped ones, those of the mean
    /// loss times [`Adam::unit`].
    fn gradient_factor(&self, batch: usize, options: &TrainOptions) -> f64 {
        let clipped = options.privacy.as_ref().map_or(1.0, Privacy::unit);
        clipped * self.unit() / options.rows(batch)
    }

    /// The learning rate and epsilon of a step with the moments' corrections for their start at 0 and for their
    /// factors.
    fn rate_and_epsilon(&self, number: u32, rate: f64) -> (Rate, f64) {
        let refreshed = self.last_refresh(number);
        let power =
            |beta: f64, number: u32| 1.0 - beta.powi(i32::try_from(number + 1).unwrap_or(i32::MAX));
        let first = power(self.betas[0], number) * Course::at(self.betas, number).scale;
        let second = power(self.betas[1], refreshed) * Course::at(self.betas, refreshed).spread;
        let lift = f64::from(self.lift()).exp2();
        // First moments are sums of gradients, not means.
        let sum = 1.0 - self.betas[0];
        let scaled = rate * second.sqrt() / first * sum * lift;
        (Rate { plain: rate, scaled }, self.epsilons()[0] * second.sqrt())
    }

    /// Moves the weights of a state in 64-bit floats, given the state before the step and one after it whose
    /// moments are right. It follows the published formula, without the floor that keeps the roots of fixed
    /// point in range. `updated` are the places that a step changes, in the order of [`update`].
    pub(super) fn move_in_floats(
        &self,
        specs: &[StateSpec],
        updated: impl Iterator<Item = usize>,
        before: &[HostTensor],
        after: &mut [HostTensor],
        (number, rate): (u32, f64),
    ) -> Result<()> {
        let place = |name: &str| specs.iter().position(|spec| spec.name == name);
        let found = |name: &str| place(name).ok_or_else(|| Error::plan(format!("no `{name}`")));
        let (rate, epsilon) = self.rate_and_epsilon(number, rate);
        let decay = if self.decoupled { -rate.plain * self.decay } else { 0.0 };
        let roots = if self.refreshes(number) {
            let kept = if self.amsgrad { "largest moments" } else { "second moments" };
            after[found(kept)?].map(|moment| 1.0 / (moment.sqrt() + epsilon))
        } else {
            after[found(ROOTS)?].clone()
        };
        let all = roots.floats();
        let mut start = 0;
        for at in updated {
            let spec = &specs[at];
            let Some(weight) = spec.name.strip_suffix(".momentum").and_then(place) else {
                continue;
            };
            let rows = match self.second {
                Second::Row if spec.shape.rank() > 1 => spec.shape.dims()[0],
                _ => spec.shape.len(),
            };
            let own = all.get(start..start + rows);
            let own = own.ok_or_else(|| Error::plan("a moment has no root"))?;
            start += rows;
            let each = (spec.shape.len() / rows.max(1)).max(1);
            let firsts = after[at].floats().into_owned();
            let old = before[weight].floats();
            let moved = firsts.iter().zip(old.iter()).enumerate().map(|(i, (first, weight))| {
                weight * (1.0 + decay) - rate.scaled * own[i / each] * first
            });
            after[weight] = HostTensor::new(spec.shape.dims(), moved.collect())?;
        }
        if self.every > 1 {
            after[found(ROOTS)?] = roots;
        }
        Ok(())
    }

    /// The largest product of root and epsilon.
    fn largest_part(&self) -> f64 {
        self.epsilons()[0] * Course::most(self.betas[0]) / self.least().sqrt()
    }

    /// Fraction bits of epsilon: its product with the largest root stays below `2^48`.
    fn epsilon_frac(&self) -> u32 {
        let largest = self.largest_part().log2().ceil() as i32;
        (48 - ROOT as i32 - largest).clamp(1, 40) as u32
    }

    /// Fraction bits of the factors of roots: a product stays below `2^48`.
    fn factor_frac(&self) -> u32 {
        let largest = (-self.least().log2() / 2.0).ceil() as i32;
        (48 - ROOT as i32 - largest).clamp(8, 20) as u32
    }

    /// Adds a step's public numbers to its graph.
    pub(super) fn inputs(&self, graph: &mut Graph, options: &TrainOptions) -> Result<Inputs> {
        let mut input = |name, frac| graph.input_with_frac(name, &[Dim::Fixed(1)], frac);
        let decay_frac = match self.decoupled {
            true => self.first_frac() + Self::step_frac(options) - options.formats.weights,
            false => NUMBER,
        };
        Ok(Inputs {
            rate: input("learning rate", Self::rate_frac(options))?,
            gradient: input("gradient factor", GRADIENT_FACTOR)?,
            kept: input("first decay", BETA_BITS)?,
            second: input("second decay", NUMBER)?,
            epsilon: input("epsilon", self.epsilon_frac())?,
            decay: (self.decay > 0.0).then(|| input("decay", decay_frac)).transpose()?,
            limit: options.clip.map(|_| input("limit", NUMBER)).transpose()?,
            growth: self.amsgrad.then(|| input("growth", NUMBER)).transpose()?,
        })
    }

    /// The limit of a step's gradients.
    pub(super) fn limit(&self, inputs: &Inputs, limit: f64) -> Result<Limit> {
        let most = limit * self.unit() * Course::most(self.betas[0]);
        let number = inputs.limit.ok_or_else(|| Error::plan("a step without a limit"))?;
        Ok(Limit::Number { most, number })
    }
}

/// A learning rate, and its product with all that corrects the moments.
struct Rate {
    plain: f64,
    scaled: f64,
}

/// A step's public numbers in its graph.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inputs {
    rate: ValueId,
    /// The factor of gradients.
    pub(super) gradient: ValueId,
    /// The part of the first moments that continues.
    kept: ValueId,
    /// The part of the second moments that squares replace.
    second: ValueId,
    epsilon: ValueId,
    decay: Option<ValueId>,
    /// The norm to which gradients are clipped.
    limit: Option<ValueId>,
    /// The growth of the factor of second moments since the last step.
    growth: Option<ValueId>,
}

/// One parameter on its way.
struct Moved {
    name: String,
    weight: ValueId,
    /// Its new first moment.
    first: ValueId,
    /// The start, number and shape of its second moments among those of all.
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
    inputs: Inputs,
    parameters: &[(ValueId, ValueId)],
    refresh: bool,
) -> Result<Vec<(String, ValueId)>> {
    let step = Format::Fixed(Adam::step_frac(options));
    let mut to = Updater { adam, graph, inputs, step };
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
    let steps = to.steps(squares, total, refresh, &mut updates)?;
    for one in &moved {
        updates.push((one.name.clone(), to.moved(one, steps)?));
    }
    Ok(updates)
}

struct Updater<'a> {
    adam: &'a Adam,
    graph: &'a mut Graph,
    inputs: Inputs,
    /// The format of the factors of first moments.
    step: Format,
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

    /// The new first moment of a parameter, and the square that joins its second moments, as a vector.
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
        let frac = self.adam.first_frac();
        let last = self.state(&format!("{name}.momentum"), &dims, frac)?;
        let finer = Format::Fixed(self.adam.kept_frac());
        let kept = self.add(finer, Op::ScaleBy(1.0), &[last, self.inputs.kept])?;
        let sum = self.binary(Format::Gradient, Binary::Add, grad, kept)?;
        let first = self.add(Format::Fixed(frac), Op::Cast, &[sum])?;
        // The part that has joined: the gradient, rounded once.
        let joined = self.binary(finer, Binary::Sub, first, kept)?;
        let fine = Format::Fixed(2 * self.adam.kept_frac());
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
        // The same words, read as numbers larger by a power of two.
        let lifted = Op::Scale(f64::from(2 * self.adam.lift()).exp2());
        let square = self.add(Format::Fixed(SECOND), lifted, &[square])?;
        Ok((Moved { name, weight, first, start: 0, len, wide }, square))
    }

    /// The gradient with the weight's decay, unless that leaves the moments alone.
    fn decayed(
        &mut self,
        options: &TrainOptions,
        weight: ValueId,
        grad: ValueId,
    ) -> Result<ValueId> {
        let Some(decay) = self.inputs.decay.filter(|_| !self.adam.decoupled) else {
            return Ok(grad);
        };
        let formats = options.plan_formats(self.graph.batch());
        let format = Format::Fixed(formats.values + formats.gradients);
        let most = self.adam.decay * self.adam.unit() * Course::most(self.adam.betas[0]);
        let part = self.add(format, Op::ScaleBy(most), &[weight, decay])?;
        self.binary(Format::Gradient, Binary::Add, grad, part)
    }

    /// The mean of the squares of each row.
    fn mean_square(&mut self, x: ValueId, dims: &[usize]) -> Result<ValueId> {
        let count = Count::new(dims[1..].iter().product());
        let square = SECOND + 2 * self.adam.lift();
        let coarse = Format::Fixed(square - count.bits);
        let fine = Format::Fixed(square);
        let sum = norm_squared(self.graph, coarse, "adam", x, dims[0])?;
        let mean = self.add(fine, Op::Scale((-f64::from(count.bits)).exp2()), &[sum])?;
        if count.rest == 1.0 { Ok(mean) } else { self.add(fine, Op::Scale(count.rest), &[mean]) }
    }

    /// The factors of the first moments, whose products are added to the weights, for all second moments.
    fn steps(
        &mut self,
        squares: ValueId,
        total: usize,
        refresh: bool,
        updates: &mut Vec<(String, ValueId)>,
    ) -> Result<ValueId> {
        let fine = Format::Fixed(SECOND);
        let last = self.state("second moments", &[total], SECOND)?;
        let change = self.binary(fine, Binary::Sub, squares, last)?;
        let most = Course::most_second(self.adam.betas);
        let change = self.add(fine, Op::ScaleBy(most), &[change, self.inputs.second])?;
        let mut moments = self.binary(fine, Binary::Add, last, change)?;
        updates.push(("second moments".to_owned(), moments));
        if let Some(growth) = self.inputs.growth {
            let largest = self.state("largest moments", &[total], SECOND)?;
            let most = Course::most_growth(self.adam.betas[0]);
            let largest = self.add(fine, Op::ScaleBy(most), &[largest, growth])?;
            moments = self.binary(fine, Binary::Max, largest, moments)?;
            updates.push(("largest moments".to_owned(), moments));
        }
        let root = self.root(moments, total, refresh, updates)?;
        let steps = self.binary(self.step, Binary::Mul, root, self.inputs.rate)?;
        self.add(self.step, Op::Scale(-1.0), &[steps])
    }

    /// The inverse roots: new ones, or those of an earlier step.
    fn root(
        &mut self,
        moments: ValueId,
        total: usize,
        refresh: bool,
        updates: &mut Vec<(String, ValueId)>,
    ) -> Result<ValueId> {
        let stored = match self.adam.every {
            1 => None,
            _ => Some(self.state(ROOTS, &[total], ROOT)?),
        };
        match stored {
            Some(old) if !refresh => return Ok(old),
            _ => {}
        }
        let least = self.graph.public("adam.least", HostTensor::scalar(self.adam.least()));
        let moments = self.binary(Format::Fixed(SECOND), Binary::Add, moments, least)?;
        let root = self.add(Format::Fixed(ROOT), Op::Unary(Unary::Damping), &[moments])?;
        let root = self.damped(root)?;
        let Some(old) = stored else { return Ok(root) };
        // The old ones are weights of this plan too, so that both plans have the same state.
        let nothing = self.add(Format::Fixed(ROOT), Op::Scale(0.0), &[old])?;
        let root = self.binary(Format::Fixed(ROOT), Binary::Add, root, nothing)?;
        updates.push((ROOTS.to_owned(), root));
        Ok(root)
    }

    /// `1 / (1 / root + epsilon)`, as `root / (1 + root * epsilon)`.
    fn damped(&mut self, root: ValueId) -> Result<ValueId> {
        let format = Format::Fixed(self.adam.factor_frac());
        let part = self.binary(format, Binary::Mul, root, self.inputs.epsilon)?;
        let factor = if self.adam.largest_part() <= SMALL {
            // 1 / (1 + p) = 1 - p / (1 + p), the last by a line that falls by one half, which rounds nothing: with an
            // error below p / 20.
            let half = self.add(format, Op::Scale(0.5), &[part])?;
            let start = self.graph.public("adam.line", HostTensor::scalar(line(SMALL)));
            let inverse = self.binary(format, Binary::Sub, start, half)?;
            let product = self.binary(format, Binary::Mul, part, inverse)?;
            let one = self.graph.public("adam.one", HostTensor::scalar(1.0));
            self.binary(format, Binary::Sub, one, product)?
        } else {
            let one = self.graph.public("adam.one", HostTensor::scalar(1.0));
            let sum = self.binary(format, Binary::Add, part, one)?;
            let inverse = self.add(Format::Fixed(20), Op::Unary(Unary::Reciprocal), &[sum])?;
            self.add(format, Op::Cast, &[inverse])?
        };
        self.binary(Format::Fixed(ROOT), Binary::Mul, root, factor)
    }

    /// The new value of a parameter.
    fn moved(&mut self, one: &Moved, steps: ValueId) -> Result<ValueId> {
        let format = self.step;
        let end = Dim::Fixed(one.start + one.len);
        let own = Op::Slice { axis: 0, start: one.start, end, step: 1 };
        let own = self.add(format, own, &[steps])?;
        let wide = one.wide.iter().map(|&d| Dim::Fixed(d)).collect();
        let own = self.add(format, Op::Reshape(wide), &[own])?;
        let step = self.binary(Format::Weight, Binary::Mul, one.first, own)?;
        let mut kept = one.weight;
        if let Some(decay) = self.inputs.decay.filter(|_| self.adam.decoupled) {
            let lost = self.binary(Format::Exact, Binary::Mul, one.weight, decay)?;
            kept = self.binary(Format::Weight, Binary::Add, one.weight, lost)?;
        }
        self.binary(Format::Weight, Binary::Add, step, kept)
    }
}

/// The sum of the squares of each row, as products of matrices, which a guard watches.
fn norm_squared(
    graph: &mut Graph,
    format: Format,
    name: &str,
    x: ValueId,
    rows: usize,
) -> Result<ValueId> {
    let each = graph.shape(x).len() / rows.max(1);
    let dims = [rows, 1, each].map(Dim::Fixed).to_vec();
    let x = graph.add_as(Format::Gradient, name, Op::Reshape(dims), &[x])?;
    let product = Op::MatMul { transpose_lhs: false, transpose_rhs: true };
    let norms = graph.add_as(format, name, product, &[x, x])?;
    graph.add_as(format, name, Op::Reshape(vec![Dim::Fixed(rows)]), &[norms])
}

/// The number `a` for which `a - p / 2` has the smallest error of `1 / (1 + p)` for `p` up to a bound of at least 1.
fn line(bound: f64) -> f64 {
    // The inverse is farthest above the line at the bound, and farthest below where it falls by one half.
    let above = 1.0 / (1.0 + bound) + bound / 2.0;
    let below = 2f64.sqrt() - 0.5;
    (above + below) / 2.0
}

/// The factor by which gradients are multiplied so that the norm of all of them is at most `limit`; the gradients are
/// those of the batch's mean loss times a factor of the limit.
pub(super) fn clip_factor(graph: &mut Graph, grads: &[ValueId], limit: &Limit) -> Result<ValueId> {
    let mut total: Option<ValueId> = None;
    for &grad in grads {
        let norm = norm_squared(graph, Format::Fixed(SECOND), "clip", grad, 1)?;
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
    let inverse =
        graph.add_as(Format::Fixed(FACTOR), "clip", Op::Unary(Unary::Damping), &[total])?;
    let format = Format::Fixed(FACTOR);
    let factor = match *limit {
        Limit::Times { limit, unit } => {
            let (finer, product) = (Format::Fixed(UNIT_STEP), Op::Binary(Binary::Mul));
            let inverse = graph.add_as(finer, "clip", product, &[inverse, unit])?;
            graph.add_as(format, "clip", Op::Scale(limit), &[inverse])?
        }
        Limit::Number { most, number } => {
            graph.add_as(format, "clip", Op::ScaleBy(most), &[inverse, number])?
        }
    };
    graph.add_as(format, "clip", Op::Unary(Unary::Clip(None, Some(1.0))), &[factor])
}

/// The largest norm of gradients, times the factor that they have.
pub(super) enum Limit {
    /// A number, and a public value that it is multiplied by.
    Times { limit: f64, unit: ValueId },
    /// A public number of the step, and the most that it is.
    Number { most: f64, number: ValueId },
}
