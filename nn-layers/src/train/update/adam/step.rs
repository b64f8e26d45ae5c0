//! Adam's update as operations of a step's graph.

use super::moment_factors::MomentFactors;
use super::{Inputs, ROOT, ROOTS};
use crate::graph::norm::Count;
use crate::graph::{Binary, Dim, Format, Graph, Op, Unary, ValueId};
use crate::train::options::TrainOptions;
use crate::train::options::adam::{Adam, Second};
use crate::train::update::clip::{SQUARES, norm_squared};
use crate::{Error, HostTensor, Result};

/// The largest product of root and epsilon for which [`Updater::damped`] needs no reciprocal.
const SMALL: f64 = 1.05;

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
pub(in crate::train::update) fn update(
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
    let squares = to.add(Format::Fixed(SQUARES), Op::Concat(0), &squares)?;
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
        let parameter = self.graph.parameter_behind(weight);
        let name = self.graph.start_of(parameter).map(|constant| constant.name.clone());
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
        let square = self.add(Format::Fixed(SQUARES), lifted, &[square])?;
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
        let most = self.adam.decay * self.adam.unit() * MomentFactors::most(self.adam.betas[0]);
        let part = self.add(format, Op::ScaleBy(most), &[weight, decay])?;
        self.binary(Format::Gradient, Binary::Add, grad, part)
    }

    /// The mean of the squares of each row.
    fn mean_square(&mut self, x: ValueId, dims: &[usize]) -> Result<ValueId> {
        let count = Count::new(dims[1..].iter().product());
        let square = SQUARES + 2 * self.adam.lift();
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
        let fine = Format::Fixed(SQUARES);
        let last = self.state("second moments", &[total], SQUARES)?;
        let change = self.binary(fine, Binary::Sub, squares, last)?;
        let most = MomentFactors::most_second(self.adam.betas);
        let change = self.add(fine, Op::ScaleBy(most), &[change, self.inputs.second])?;
        let mut moments = self.binary(fine, Binary::Add, last, change)?;
        updates.push(("second moments".to_owned(), moments));
        if let Some(growth) = self.inputs.growth {
            let largest = self.state("largest moments", &[total], SQUARES)?;
            let most = MomentFactors::most_growth(self.adam.betas[0]);
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
        let moments = self.binary(Format::Fixed(SQUARES), Binary::Add, moments, least)?;
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

/// The number `a` for which `a - p / 2` has the smallest error of `1 / (1 + p)` for `p` up to a bound of at least 1.
fn line(bound: f64) -> f64 {
    // The inverse is farthest above the line at the bound, and farthest below where it falls by one half.
    let above = 1.0 / (1.0 + bound) + bound / 2.0;
    let below = 2f64.sqrt() - 0.5;
    (above + below) / 2.0
}
