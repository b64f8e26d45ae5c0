//! One step of a running plan.

use mpc_core::{Format, Operand, Protocol, SecretTensor, Sums, functions as f, provided};
use ring_arith::{Shape, View};

use crate::crew::{Alone, Crew};
use crate::graph::{Binary, LinearMap, Op, ResultFormat, Sizes, Unary, infer};
use crate::ops::{self, clip, functions, linear};
use crate::plan::{Plan, PlanNode};
use crate::{Error, Result};

/// The values of all nodes that have been computed and are still needed.
type Values<P> = [Option<Operand<P>>];

/// The kept bits of all nodes that are still needed.
type KeptValues<P> = [Option<Kept<P>>];

/// The outcome of a comparison, kept for a gradient.
pub(crate) enum Kept<P: Protocol> {
    /// The bits where a ReLU's result is positive.
    Positive(P::Bits),
    /// The position of the maximum under each position of a window.
    Winners(f::Winners<P>),
}

/// A node's result, and the bits that it keeps.
pub(crate) struct Made<P: Protocol> {
    pub value: SecretTensor<P>,
    pub kept: Option<Kept<P>>,
    /// Sums of a linear layer's result before its ReLU or mask.
    pub sums: Option<P::Share>,
    /// Words that tell rows of too small numbers: see [`mpc_core::functions::Normalized`].
    pub faint: Option<[SecretTensor<P>; 2]>,
}

impl<P: Protocol> Made<P> {
    fn new(value: SecretTensor<P>, kept: Option<Kept<P>>, sums: Option<P::Share>) -> Self {
        Self { value, kept, sums, faint: None }
    }
}

/// Runs a step's nodes; several at once are linear layers or truncations.
pub(crate) fn run<'a, P: Protocol>(
    plan: &Plan,
    (mpc, crew): (&mut P, &mut dyn Crew<P::Engine>),
    group: &[usize],
    (values, kept): (&Values<P>, &KeptValues<P>),
    (sizes, shapes): (Sizes, &[Shape]),
    sums: &dyn Fn(usize) -> Option<Sums<'a>>,
) -> Result<Vec<Made<P>>> {
    let first = &plan.nodes[group[0]];
    if matches!(first.op, Op::Linear(_)) {
        return linears(plan, (mpc, crew), group, (values, kept), shapes, sums)
            .map_err(|e| e.at(&first.name));
    }
    if let Op::Crew { op, .. } = &first.op {
        let x = ops::secret(mpc, value(values, first.inputs[0])?)?;
        let made = ops::crew::exchange(mpc, crew, &x, op, &shapes[group[0]]);
        return Ok(vec![made.map_err(|e| e.at(&first.name))?.into()]);
    }
    if first.op == Op::Cast {
        let values = casts(plan, mpc, group, values).map_err(|e| e.at(&first.name))?;
        return Ok(values.into_iter().map(Made::from).collect());
    }
    if matches!(first.op, Op::Confine(_)) {
        let values = confined(plan, mpc, group, values).map_err(|e| e.at(&first.name))?;
        return Ok(values.into_iter().map(Made::from).collect());
    }
    let node = Step {
        node: first,
        values,
        kept: plan.kept.from[group[0]].and_then(|from| kept[from].as_ref()),
        keep: plan.kept.keeps[group[0]],
        sums: sums(group[0]),
        shape: &shapes[group[0]],
        sizes,
        frac: plan.fracs[group[0]],
        target: plan.target(group[0]),
    };
    Ok(vec![node.run(mpc).map_err(|e| e.at(&first.name))?])
}

fn linears<'a, P: Protocol>(
    plan: &Plan,
    (mpc, crew): (&mut P, &mut dyn Crew<P::Engine>),
    group: &[usize],
    (values, kept): (&Values<P>, &KeptValues<P>),
    shapes: &[Shape],
    sums: &dyn Fn(usize) -> Option<Sums<'a>>,
) -> Result<Vec<Made<P>>> {
    // Residuals are secret tensors; they are kept here while the jobs borrow them.
    let mut residuals = vec![];
    for &i in group {
        let Op::Linear(l) = &plan.nodes[i].op else { return Err(mixed()) };
        let residual = l.residual_at().map(|at| plan.nodes[i].inputs[at]);
        residuals.push(residual.map(|x| ops::secret(mpc, value(values, x)?)).transpose()?);
    }
    let mut jobs = vec![];
    for (&i, residual) in group.iter().zip(&residuals) {
        let node = &plan.nodes[i];
        let Op::Linear(l) = &node.op else { return Err(mixed()) };
        let map = |(map, at): (_, [usize; 2])| -> Result<_> {
            let [x, weight] = at.map(|at| value(values, node.inputs[at]));
            Ok(linear::Map { map, x: x?, weight: weight? })
        };
        let mask = match (l.mask_at(), plan.kept.from[i]) {
            (None, _) => None,
            (Some(_), Some(from)) => {
                let bits = positive(kept[from].as_ref())?;
                Some(linear::Masked::Kept(mpc.reshape_bits(&bits, &shapes[i])?))
            }
            (Some(at), None) => {
                let x = ops::secret(mpc, value(values, node.inputs[at])?)?;
                Some(linear::Masked::Positive(x))
            }
        };
        jobs.push(linear::LinearJob {
            maps: l.maps().map(map).collect::<Result<_>>()?,
            bias: if l.bias { Some(value(values, node.inputs[2])?) } else { None },
            residual: residual.as_ref(),
            finish: l.finish,
            mask,
            keep: plan.kept.keeps[i],
            frac: plan.target(i),
            mode: plan.modes[i],
            sums: sums(i),
            scattered: l.scattered.is_some(),
        });
    }
    let made = linear::run(mpc, crew, &jobs)?.into_iter();
    let kept = |positive: Option<P::Bits>| positive.map(Kept::Positive);
    Ok(made.map(|m| Made::new(m.value, kept(m.positive), m.sums)).collect())
}

/// The bits where a ReLU's result was positive.
fn positive<P: Protocol>(kept: Option<&Kept<P>>) -> Result<P::Bits> {
    match kept {
        Some(Kept::Positive(bits)) => Ok(bits.clone()),
        _ => Err(Error::plan("a ReLU's bits were dropped too early")),
    }
}

impl<P: Protocol> From<SecretTensor<P>> for Made<P> {
    fn from(value: SecretTensor<P>) -> Self {
        Self::new(value, None, None)
    }
}

/// Changes of format: those that drop bits share their rounds.
fn casts<P: Protocol>(
    plan: &Plan,
    mpc: &mut P,
    group: &[usize],
    values: &Values<P>,
) -> Result<Vec<SecretTensor<P>>> {
    let mut jobs = vec![];
    for &i in group {
        jobs.push((ops::secret(mpc, value(values, plan.nodes[i].inputs[0])?)?, plan.target(i)));
    }
    ops::rescale_all(mpc, &jobs)
}

/// Words that are confined: all share their rounds.
fn confined<P: Protocol>(
    plan: &Plan,
    mpc: &mut P,
    group: &[usize],
    values: &Values<P>,
) -> Result<Vec<SecretTensor<P>>> {
    let mut operands = vec![];
    for &i in group {
        let Op::Confine(bits) = plan.nodes[i].op else { return Err(mixed()) };
        let x = ops::secret(mpc, value(values, plan.nodes[i].inputs[0])?)?;
        operands.push((x, bits, plan.target(i)));
    }
    let jobs: Vec<_> = operands.iter().map(|(x, bits, frac)| (x, *bits, *frac)).collect();
    clip::confine(mpc, &jobs)
}

fn mixed() -> Error {
    Error::plan("only linear layers run together, and truncations")
}

fn value<P: Protocol>(values: &Values<P>, i: usize) -> Result<&Operand<P>> {
    values[i].as_ref().ok_or_else(|| Error::plan("a value was dropped too early"))
}

/// A single node with all that it needs.
struct Step<'a, P: Protocol> {
    node: &'a PlanNode,
    values: &'a Values<P>,
    /// Bits that were kept for it.
    kept: Option<&'a Kept<P>>,
    /// True if the node keeps its own bits.
    keep: bool,
    /// Sums of a product.
    sums: Option<Sums<'a>>,
    shape: &'a Shape,
    sizes: Sizes,
    /// Fraction bits of the result.
    frac: u32,
    /// The fraction bits to which the operation rounds, if it does.
    target: u32,
}

impl<P: Protocol> Step<'_, P> {
    fn operand(&self, i: usize) -> Result<&Operand<P>> {
        value(self.values, self.node.inputs[i])
    }

    fn secret(&self, mpc: &P, i: usize) -> Result<SecretTensor<P>> {
        ops::secret(mpc, self.operand(i)?)
    }

    fn run(&self, mpc: &mut P) -> Result<Made<P>> {
        match &self.node.op {
            Op::Unary(Unary::Relu) if self.keep => {
                let x = self.secret(mpc, 0)?;
                let (value, positive) = f::relu_keeping(mpc, &x)?;
                Ok(Made::new(value, Some(Kept::Positive(positive)), None))
            }
            Op::MaxPool(p) if self.keep => {
                let x = self.secret(mpc, 0)?;
                let (value, winners) = f::max_pool_keeping(mpc, &x, p.window())?;
                Ok(Made::new(value, Some(Kept::Winners(winners)), None))
            }
            Op::ConvWeightGrad(k) => self.product(mpc, &LinearMap::ConvWeightGrad(*k)),
            Op::Conv(k) => self.product(mpc, &LinearMap::Conv(*k)),
            Op::ConvTranspose { kernel, extra } => {
                self.product(mpc, &LinearMap::ConvTranspose { kernel: *kernel, extra: *extra })
            }
            &Op::MatMul { transpose_lhs, transpose_rhs } => {
                self.product(mpc, &LinearMap::MatMul { transpose_lhs, transpose_rhs })
            }
            Op::Binary(Binary::Mul) => {
                let (x, y) = (self.operand(0)?, self.operand(1)?);
                let value = ops::mul(mpc, x, y, self.target)?;
                self.summed(mpc, value)
            }
            Op::Dot(axes) => {
                let x = self.secret(mpc, 0)?;
                let value = if self.node.inputs[0] == self.node.inputs[1] {
                    f::dot(mpc, &x, None, axes, self.frac)?
                } else {
                    let y = self.secret(mpc, 1)?;
                    f::dot(mpc, &x, Some(&y), axes, self.frac)?
                };
                self.summed(mpc, value)
            }
            &Op::Normalize { axis, centre, epsilon } => {
                let x = self.in_format(mpc, 0)?;
                let made = f::normalize_watched(mpc, &x, axis, centre, epsilon)?;
                Ok(Made { faint: made.faint, ..made.rows.into() })
            }
            _ => Ok(self.value(mpc)?.into()),
        }
    }

    /// A product with the sums that are wanted of it.
    fn summed(&self, mpc: &P, value: SecretTensor<P>) -> Result<Made<P>> {
        let Some(wanted) = self.sums else { return Ok(value.into()) };
        let sums = Some(provided::sums(mpc, value.share(), wanted)?);
        let width = (value.width() + 1).min(64);
        let value = SecretTensor::new(value.share().clone(), value.format().with_width(width));
        Ok(Made::new(value, None, sums))
    }

    /// The result of an operation that keeps nothing.
    fn value(&self, mpc: &mut P) -> Result<SecretTensor<P>> {
        match &self.node.op {
            Op::Input(_) | Op::Constant(_) | Op::Parameter(_) => {
                Err(Error::plan("an input is not a step"))
            }
            Op::Linear(_)
            | Op::Conv(_)
            | Op::ConvTranspose { .. }
            | Op::ConvWeightGrad(_)
            | Op::MatMul { .. }
            | Op::Cast
            | Op::Confine(_)
            | Op::Crew { .. }
            | Op::Dot(_)
            | Op::Normalize { .. } => Err(mixed()),
            Op::BatchNorm(_) | Op::Dropout(_) => {
                Err(Error::plan("batch norms are joined to what is around them"))
            }
            Op::Unary(function) => self.unary(mpc, *function),
            Op::Binary(function) => self.binary(mpc, *function),
            Op::Mask => {
                let x = self.secret(mpc, 0)?;
                Ok(match self.kept {
                    Some(_) => f::where_bits(mpc, &x, &positive(self.kept)?)?,
                    None => f::where_positive(mpc, &x, &self.secret(mpc, 1)?)?,
                })
            }
            Op::Where => {
                let c = self.secret(mpc, 0)?;
                let (x, y) = (self.secret(mpc, 1)?, self.secret(mpc, 2)?);
                functions::choose(mpc, &c, &x, &y)
            }
            &Op::Softmax { axis, log } => {
                let x = self.in_format(mpc, 0)?;
                Ok(if log { f::log_softmax(mpc, &x, axis)? } else { f::softmax(mpc, &x, axis)? })
            }
            &Op::Lrn { size, alpha, beta, bias } => {
                let x = self.in_format(mpc, 0)?;
                functions::lrn(mpc, &x, [alpha, beta, bias], size)
            }
            Op::MaxPoolGrad(p) => {
                let Some(Kept::Winners(winners)) = self.kept else {
                    return Err(Error::plan("a maximum's winners were dropped too early"));
                };
                let gradient = self.secret(mpc, 1)?;
                Ok(f::max_pool_gradient(mpc, winners, self.shape, &gradient, p.window())?)
            }
            Op::MaxPool(p) => Ok(f::max_pool(mpc, &self.secret(mpc, 0)?, p.window())?),
            Op::SumPool(p) => Ok(f::window_sum(mpc, &self.secret(mpc, 0)?, p.window())?),
            Op::AvgPool { .. } => Err(Error::plan("averages are lowered to sums before they run")),
            Op::Reduce { kind, axes, .. } => {
                let x = self.secret(mpc, 0)?;
                functions::reduce(mpc, &x, *kind, axes, self.shape, self.frac)
            }
            Op::ArgMax { axis, min, .. } => {
                let x = self.secret(mpc, 0)?;
                functions::position(mpc, &x, *axis, *min, self.shape)
            }
            Op::Draw => Ok(f::weighted_index(mpc, &self.secret(mpc, 0)?)?),
            Op::Lookup => {
                let (table, at) = (self.secret(mpc, 0)?, self.secret(mpc, 1)?);
                functions::lookup(mpc, &table, &at, self.shape)
            }
            Op::OneHot(count) => functions::one_hot(mpc, &self.secret(mpc, 0)?, *count, self.shape),
            &Op::Scale(c) => {
                let x = self.secret(mpc, 0)?;
                ops::scale(mpc, &x, c, self.frac)
            }
            Op::ScaleBy(_) => {
                let Operand::Public(number) = self.operand(1)? else {
                    return Err(Error::plan("a step's number is secret"));
                };
                let number = ops::number(mpc, number)?;
                Ok(f::mul_scalar_to(mpc, &self.secret(mpc, 0)?, number, self.frac)?)
            }
            Op::Concat(axis) => self.concat(mpc, *axis),
            &Op::ClipFactor { pairs } => {
                let operands = (0..self.node.inputs.len()).map(|i| self.secret(mpc, i));
                clip::factors(mpc, &operands.collect::<Result<Vec<_>>>()?, pairs)
            }
            _ => self.moved(mpc),
        }
    }

    /// An operand with the fraction bits to which the operation rounds.
    fn in_format(&self, mpc: &mut P, i: usize) -> Result<SecretTensor<P>> {
        let x = self.secret(mpc, i)?;
        Ok(f::rescale(mpc, &x, self.target)?)
    }

    /// A product of two values that are both computed.
    fn product(&self, mpc: &mut P, map: &LinearMap) -> Result<Made<P>> {
        let (x, weight) = (self.operand(0)?, self.operand(1)?);
        let frac = ops::product_frac(ops::frac_of(x), ops::frac_of(weight), self.target);
        let maps = vec![linear::Map { map, x, weight }];
        let job = linear::LinearJob { sums: self.sums, ..linear::LinearJob::new(maps, frac) };
        let made = ops::only(linear::run(mpc, &mut Alone, &[job])?)?;
        Ok(Made::new(made.value, None, made.sums))
    }

    fn unary(&self, mpc: &mut P, function: Unary) -> Result<SecretTensor<P>> {
        let x = self.secret(mpc, 0)?;
        match function {
            // Not rounded before: a variance has more bits than its root.
            Unary::InvSqrt | Unary::Damping if x.frac() > self.target => {
                Ok(f::inv_sqrt_to(mpc, &x, self.target)?)
            }
            // The result has the operand's format, or none.
            _ if function.info().format != ResultFormat::Planned => {
                functions::unary(mpc, function, &x)
            }
            _ => {
                let x = f::rescale(mpc, &x, self.target)?;
                functions::unary(mpc, function, &x)
            }
        }
    }

    fn binary(&self, mpc: &mut P, function: Binary) -> Result<SecretTensor<P>> {
        if function == Binary::Div {
            let (x, y) = (self.in_format(mpc, 0)?, self.in_format(mpc, 1)?);
            return Ok(f::div(mpc, &x, &y)?);
        }
        let (x, y) = (self.secret(mpc, 0)?, self.secret(mpc, 1)?);
        functions::binary(mpc, function, &x, &y)
    }

    fn concat(&self, mpc: &mut P, axis: usize) -> Result<SecretTensor<P>> {
        let (mut parts, mut width) = (vec![], 0);
        for i in 0..self.node.inputs.len() {
            // A state is empty before the first step.
            if self.node.inputs.len() > 1 && ops::shape_of(self.operand(i)?).len() == 0 {
                continue;
            }
            let x = self.secret(mpc, i)?;
            let x = f::rescale(mpc, &x, self.frac)?;
            width = width.max(x.width());
            parts.push(x);
        }
        if parts.is_empty() {
            let x = self.secret(mpc, 0)?;
            return Ok(SecretTensor::new(
                x.share().clone(),
                Format { frac: self.frac, width: x.width() },
            ));
        }
        let shares: Vec<_> = parts.iter().map(SecretTensor::share).collect();
        Ok(SecretTensor::new(mpc.concat(&shares, axis)?, Format { frac: self.frac, width }))
    }

    /// Operations that only move words.
    fn moved(&self, mpc: &mut P) -> Result<SecretTensor<P>> {
        let x = self.secret(mpc, 0)?;
        let view = match &self.node.op {
            Op::Reshape(_) => View::Reshape(self.shape.clone()),
            Op::Broadcast(_) => View::Broadcast(self.shape.clone()),
            Op::Permute(axes) => View::Permute(axes.clone()),
            &Op::Slice { axis, start, step, .. } => {
                // The result's length determines the end of the slice, for any batch size.
                let taken = self.shape.dims()[axis];
                let end = if taken == 0 { start } else { start + (taken - 1) * step + 1 };
                View::Slice { axis, start, end, step }
            }
            &Op::Window { axis, start, end } => {
                let [start, end] = infer::between(self.node.op.name(), [start, end], self.sizes)?;
                View::Slice { axis, start, end, step: 1 }
            }
            Op::Gather { axis, indices, squeeze } => {
                let picked = View::Gather { axis: *axis, indices: indices.clone().into() };
                let picked = f::view(mpc, &x, &picked)?;
                return if *squeeze { ops::reshape(mpc, &picked, self.shape) } else { Ok(picked) };
            }
            Op::Pad { before, after, value } => {
                let word = ops::word_of(*value, x.frac())?;
                let (before, after) = (before.clone(), after.clone());
                let width =
                    x.width().max(66 - (word as i64).unsigned_abs().leading_zeros()).min(64);
                let y = f::view(mpc, &x, &View::Pad { before, after, value: word })?;
                return Ok(SecretTensor::new(y.share().clone(), y.format().with_width(width)));
            }
            op => return Err(Error::invalid(op.name(), "cannot be run")),
        };
        Ok(f::view(mpc, &x, &view)?)
    }
}
