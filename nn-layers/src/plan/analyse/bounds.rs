//! Bounds of values: intervals through the plan, from the weights and the inputs' ranges.

use std::sync::Arc;

use ring_arith::Shape;

use crate::graph::eval::{elementwise, views};
use crate::graph::{Binary, Linear, LinearFinish, LinearMap, Op, Reduce, Unary, eval};
use crate::plan::analyse::domain::Domain;
use crate::plan::{Plan, shapes};
use crate::{Error, HostData, HostTensor, Result};

/// The number nearest to 0 that inverses and logarithms are asked for: the finest format's unit.
const LEAST: f64 = 1.0 / (1u64 << 28) as f64;

/// A value that can leave the range in which arithmetic on shares is right, as far as its bounds show.
#[derive(Debug, Clone, PartialEq)]
pub struct Excess {
    /// The node's name in the model.
    pub name: String,
    /// The kind of operation, such as `conv+relu`.
    pub kind: &'static str,
    /// The bound of its magnitude, or of the operand that leaves a function's domain.
    pub largest: f64,
    /// Bits by which that is too large.
    pub bits: f64,
    /// The most fraction bits at which it would not be, if nothing else is wrong.
    pub fits_at: Option<u32>,
}

/// Bounds of every element of a value.
#[derive(Debug, Clone)]
struct Interval {
    low: HostTensor,
    high: HostTensor,
}

/// The same interval by its middle and its reach to either side.
struct Around {
    middle: HostTensor,
    /// None where it is a point.
    reach: Option<HostTensor>,
}

impl Plan {
    /// The values that can leave the range in which arithmetic on shares is right, for one batch of inputs each
    /// of which keeps its range, `(least, greatest)`. Bounds go from operation to operation, so that those of
    /// deep networks are far larger than actual values. But values within their bounds are certain to keep
    /// their range.
    ///
    /// # Cost
    /// Twice the network's products, in 64-bit floats, and two numbers for each number that lives.
    ///
    /// # Errors
    /// [`Error::Argument`] or [`Error::Plan`] if weights or ranges do not fit the plan.
    pub fn excesses(&self, weights: &[HostTensor], ranges: &[(f64, f64)]) -> Result<Vec<Excess>> {
        if ranges.len() != self.inputs.len() {
            let reason = format!("{} ranges for {} inputs", ranges.len(), self.inputs.len());
            return Err(Error::plan(reason));
        }
        let shapes = shapes::shapes(self, self.batch.unwrap_or(1))?;
        let constants = self.constant_values(weights)?;
        let public = self.public_values(self.batch.unwrap_or(1).into())?;
        let mut uses = vec![0; self.nodes.len()];
        self.nodes.iter().flat_map(|node| &node.inputs).for_each(|&x| uses[x] += 1);
        let mut values: Vec<Option<Interval>> = vec![None; self.nodes.len()];
        let mut found = vec![];
        for (at, node) in self.nodes.iter().enumerate() {
            let interval = match node.op {
                Op::Input(i) => Interval::filled(&shapes[at], ranges[i]),
                Op::Constant(i) => Interval::point(constants[i].clone()),
                _ if self.public[at] => {
                    let value = public[at].clone();
                    Interval::point(value.ok_or_else(|| Error::plan("a number is not known"))?)
                }
                ref op => {
                    let xs: Option<Vec<_>> =
                        node.inputs.iter().map(|&x| values[x].as_ref()).collect();
                    let xs = xs.ok_or_else(|| Error::plan("a node is used too early"))?;
                    let (interval, sum) = bounded(op, &xs, &shapes[at], self.batch.unwrap_or(1))
                        .map_err(|e| e.at(&node.name))?;
                    found.extend(self.excess(at, &xs, sum));
                    interval
                }
            };
            values[at] = Some(interval);
            for &x in &node.inputs {
                uses[x] -= 1;
                if uses[x] == 0 {
                    values[x] = None;
                }
            }
        }
        Ok(found)
    }

    /// The excess at a node whose sum before truncation reaches `sum`.
    fn excess(&self, at: usize, xs: &[&Interval], sum: f64) -> Option<Excess> {
        let node = &self.nodes[at];
        let make = |largest, bits, fits_at| Excess {
            name: node.name.clone(),
            kind: node.op.name(),
            largest,
            bits,
            fits_at,
        };
        // Fraction bits of the sum; those of a product are twice the plan's by default.
        let frac = self.fracs[at] + self.dropped(at);
        let bits = sum.log2() + f64::from(frac) - 62.0;
        if bits >= 0.0 {
            let each = if self.dropped(at) > 0 { 2.0 } else { 1.0 };
            let fits = f64::from(self.frac) - (bits / each).floor() - 1.0;
            return Some(make(sum, bits, (fits >= 8.0).then_some(fits as u32)));
        }
        let outside = |(i, x): (usize, &&Interval)| {
            let domain = Domain::of(&node.op, i, self.target(at), self.fracs[node.inputs[i]])?;
            let room = domain.room(&x.low.floats()).min(domain.room(&x.high.floats()));
            (room < 0.0).then(|| (x.largest(), -room))
        };
        let (largest, bits) = xs.iter().enumerate().find_map(outside)?;
        Some(make(largest, bits, None))
    }
}

impl Interval {
    fn point(value: HostTensor) -> Self {
        Self { low: value.clone(), high: value }
    }

    fn filled(shape: &Shape, (low, high): (f64, f64)) -> Self {
        let fill = |v| {
            HostTensor::from_parts(shape.clone(), HostData::Float(Arc::new(vec![v; shape.len()])))
        };
        Self { low: fill(low), high: fill(high) }
    }

    fn largest(&self) -> f64 {
        let both = [self.low.floats(), self.high.floats()];
        both.iter().flat_map(|values| values.iter()).fold(0.0, |most, v| v.abs().max(most))
    }

    /// A function that grows with every element.
    fn map(&self, f: impl Fn(&HostTensor) -> Result<HostTensor>) -> Result<Self> {
        Ok(Self { low: f(&self.low)?, high: f(&self.high)? })
    }

    fn negated(self) -> Self {
        Self { low: self.high.map(|v| -v), high: self.low.map(|v| -v) }
    }

    /// The function of two ends, applied to every element.
    fn ends(&self, f: impl Fn(f64, f64) -> (f64, f64)) -> Self {
        let (low, high) = (self.low.floats(), self.high.floats());
        let pairs = low.iter().zip(high.iter()).map(|(&low, &high)| f(low, high));
        let (low, high): (Vec<_>, Vec<_>) = pairs.unzip();
        let tensor = |values| {
            HostTensor::from_parts(self.low.shape().clone(), HostData::Float(Arc::new(values)))
        };
        Self { low: tensor(low), high: tensor(high) }
    }

    /// The same with 0 among them.
    fn with_zero(&self) -> Self {
        self.ends(|low, high| (low.min(0.0), high.max(0.0)))
    }

    fn around(&self) -> Result<Around> {
        let is_point = self.low.floats() == self.high.floats();
        if is_point {
            return Ok(Around { middle: self.low.to_float(), reach: None });
        }
        let sum = eval::evaluate(
            &Op::Binary(Binary::Add),
            &[&self.low.to_float(), &self.high.to_float()],
            1,
        )?;
        let span = eval::evaluate(
            &Op::Binary(Binary::Sub),
            &[&self.high.to_float(), &self.low.to_float()],
            1,
        )?;
        Ok(Around { middle: sum.map(|v| v / 2.0), reach: Some(span.map(|v| v / 2.0)) })
    }
}

/// The bounds of an operation's result, and how far the sum reaches that is truncated: that of a linear layer
/// before its ReLU.
fn bounded(op: &Op, xs: &[&Interval], shape: &Shape, batch: usize) -> Result<(Interval, f64)> {
    if let Op::Linear(l) = op {
        let sum = linear(l, xs, batch)?;
        let reach = sum.largest();
        let made = match l.finish {
            LinearFinish::Truncate => sum,
            LinearFinish::Relu => sum.ends(|low, high| (low.max(0.0), high.max(0.0))),
            LinearFinish::Mask => sum.with_zero(),
        };
        return Ok((made, reach));
    }
    let made = match op {
        Op::Conv(_)
        | Op::ConvTranspose { .. }
        | Op::ConvWeightGrad(_)
        | Op::MatMul { .. }
        | Op::Dot(_) => product(op, xs[0], xs[1], batch)?,
        Op::Unary(f) => xs[0].ends(|low, high| reached(*f, low, high)),
        Op::Binary(f) => binary(*f, xs, shape, op, batch)?,
        Op::Scale(c) if *c < 0.0 => xs[0].map(|x| Ok(x.map(|v| v * c.abs())))?.negated(),
        Op::Where => hull(&spread(xs[1], shape)?, &spread(xs[2], shape)?)?,
        Op::Mask => xs[0].with_zero(),
        Op::Softmax { axis, log } => {
            let length = xs[0].low.dims()[*axis].max(1) as f64;
            let least = xs[0].low.floats().iter().copied().fold(f64::INFINITY, f64::min);
            let most = xs[0].high.floats().iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let ends = if *log { (least - most - length.ln(), 0.0) } else { (0.0, 1.0) };
            Interval::filled(shape, ends)
        }
        Op::Normalize { axis, .. } => {
            let root = (xs[0].low.dims()[*axis..].iter().product::<usize>() as f64).sqrt();
            Interval::filled(shape, (-root, root))
        }
        &Op::Lrn { beta, bias, alpha, .. } if bias > 0.0 && alpha >= 0.0 && beta >= 0.0 => {
            let factor = bias.powf(-beta);
            xs[0].with_zero().map(|x| Ok(x.map(|v| v * factor)))?
        }
        Op::ArgMax { axis, .. } => {
            Interval::filled(shape, (0.0, xs[0].low.dims()[*axis].saturating_sub(1) as f64))
        }
        Op::Draw => {
            let positions = xs[0].low.dims().last().copied().unwrap_or(1);
            Interval::filled(shape, (0.0, positions.saturating_sub(1) as f64))
        }
        Op::ClipFactor { .. } => {
            let [low, high] = op.info().results;
            Interval::filled(shape, (low, high))
        }
        Op::Lookup => rows(xs[0], shape)?,
        Op::Reduce { kind: Reduce::L1 | Reduce::L2 | Reduce::SumSquare, .. } => {
            let magnitudes = xs[0].ends(|low, high| reached(Unary::Abs, low, high));
            magnitudes.map(|x| eval::evaluate(op, &[x], batch))?
        }
        Op::MaxPoolGrad(_) | Op::Lrn { .. } => {
            return Err(Error::invalid(op.name(), "has no bounds"));
        }
        // The other operations grow with all of their operands, or move them.
        _ => {
            let low: Vec<_> = xs.iter().map(|x| &x.low).collect();
            let high: Vec<_> = xs.iter().map(|x| &x.high).collect();
            Interval {
                low: eval::evaluate(op, &low, batch)?,
                high: eval::evaluate(op, &high, batch)?,
            }
        }
    };
    let reach = made.largest();
    Ok((made, reach))
}

/// The sum of a layer's maps and of their addends.
fn linear(l: &Linear, xs: &[&Interval], batch: usize) -> Result<Interval> {
    let mut sum: Option<Interval> = None;
    for (map, [x, weight]) in l.maps() {
        let part = product(&alone(map), xs[x], xs[weight], batch)?;
        sum = Some(match sum {
            None => part,
            Some(sum) => added(&sum, &part, batch)?,
        });
    }
    let mut sum = sum.ok_or_else(|| Error::plan("a layer needs a map"))?;
    for addend in &xs[l.addends()] {
        sum = added(&sum, addend, batch)?;
    }
    Ok(sum)
}

/// A map as a separate operation.
fn alone(map: &LinearMap) -> Op {
    match map {
        LinearMap::Conv(k) => Op::Conv(*k),
        LinearMap::ConvTranspose { kernel, extra } => {
            Op::ConvTranspose { kernel: *kernel, extra: *extra }
        }
        &LinearMap::MatMul { transpose_lhs, transpose_rhs } => {
            Op::MatMul { transpose_lhs, transpose_rhs }
        }
        LinearMap::ConvWeightGrad(k) => Op::ConvWeightGrad(*k),
        LinearMap::Mul => Op::Binary(Binary::Mul),
    }
}

fn added(x: &Interval, y: &Interval, batch: usize) -> Result<Interval> {
    let add = |x: &HostTensor, y: &HostTensor| {
        eval::evaluate(&Op::Binary(Binary::Add), &[&x.to_float(), &y.to_float()], batch)
    };
    Ok(Interval { low: add(&x.low, &y.low)?, high: add(&x.high, &y.high)? })
}

/// A bilinear map of two intervals: the middles' product, and how far it reaches around that.
fn product(op: &Op, x: &Interval, y: &Interval, batch: usize) -> Result<Interval> {
    let (x, y) = (x.around()?, y.around()?);
    let map = |x: &HostTensor, y: &HostTensor| eval::evaluate(op, &[x, y], batch);
    let size = |x: &HostTensor| x.map(f64::abs);
    let middle = map(&x.middle, &y.middle)?;
    let mut reach = middle.map(|_| 0.0);
    let mut widen = |more: &HostTensor| -> Result<()> {
        reach = eval::evaluate(&Op::Binary(Binary::Add), &[&reach, more], batch)?;
        Ok(())
    };
    if let Some(reach_x) = &x.reach {
        widen(&map(reach_x, &size(&y.middle))?)?;
    }
    if let Some(reach_y) = &y.reach {
        let mut around_x = size(&x.middle);
        if let Some(reach_x) = &x.reach {
            around_x = eval::evaluate(&Op::Binary(Binary::Add), &[&around_x, reach_x], batch)?;
        }
        widen(&map(&around_x, reach_y)?)?;
    }
    let middle = Interval::point(middle);
    let reach = Interval { low: reach.map(|v| -v), high: reach };
    added(&middle, &reach, batch)
}

/// The least and the greatest that a function makes of the numbers between two.
fn reached(f: Unary, low: f64, high: f64) -> (f64, f64) {
    let positive = matches!(f, Unary::Log | Unary::Sqrt | Unary::InvSqrt | Unary::Damping)
        || matches!(f, Unary::Pow(n) if n.fract() != 0.0);
    let pole = matches!(f, Unary::Reciprocal) || matches!(f, Unary::Pow(n) if n < 0.0);
    let crosses = low <= 0.0 && high >= 0.0;
    // Every function grows or falls on either side of 0.
    let points = match (crosses, pole) {
        (false, _) => [low, high, low, high],
        (true, false) => [low, high, 0.0, 0.0],
        (true, true) => [low.min(-LEAST), high.max(LEAST), -LEAST, LEAST],
    };
    let made = points.map(|v| elementwise::unary_f64(f, if positive { v.max(LEAST) } else { v }));
    let least = made.into_iter().fold(f64::INFINITY, f64::min);
    let most = made.into_iter().fold(f64::NEG_INFINITY, f64::max);
    let [lowest, highest] = f.info().results;
    match f {
        Unary::Sin | Unary::Cos => (lowest, highest),
        Unary::Not => (1.0 - high, 1.0 - low),
        // But these, which dip below 0 before they come back to it.
        Unary::Gelu | Unary::GeluTanh | Unary::Silu | Unary::HardSwish if low < 0.0 => {
            (lowest, most.max(0.0))
        }
        _ => (least, most),
    }
}

fn binary(f: Binary, xs: &[&Interval], shape: &Shape, op: &Op, batch: usize) -> Result<Interval> {
    let (x, y) = (xs[0], xs[1]);
    Ok(match f {
        Binary::Mul => product(op, x, y, batch)?,
        Binary::Sub => added(x, &y.clone().negated(), batch)?,
        Binary::Div => {
            let inverse = y.ends(|low, high| reached(Unary::Reciprocal, low, high));
            product(&Op::Binary(Binary::Mul), x, &inverse, batch)?
        }
        Binary::Add | Binary::Max | Binary::Min => {
            let both = |x: &HostTensor, y: &HostTensor| {
                eval::evaluate(op, &[&x.to_float(), &y.to_float()], batch)
            };
            Interval { low: both(&x.low, &y.low)?, high: both(&x.high, &y.high)? }
        }
        Binary::PRelu => {
            let scaled = product(&Op::Binary(Binary::Mul), x, y, batch)?;
            hull(&spread(x, shape)?, &scaled)?
        }
        _ => Interval::filled(shape, (0.0, 1.0)),
    })
}

/// Everything in either of two, and between them.
fn hull(x: &Interval, y: &Interval) -> Result<Interval> {
    let pick = |f: Binary, x: &HostTensor, y: &HostTensor| {
        eval::evaluate(&Op::Binary(f), &[&x.to_float(), &y.to_float()], 1)
    };
    Ok(Interval {
        low: pick(Binary::Min, &x.low, &y.low)?,
        high: pick(Binary::Max, &x.high, &y.high)?,
    })
}

fn spread(x: &Interval, shape: &Shape) -> Result<Interval> {
    x.map(|x| views::broadcast(x, shape))
}

/// Any row of a table.
fn rows(table: &Interval, shape: &Shape) -> Result<Interval> {
    let least = table.low.floats().iter().copied().fold(f64::INFINITY, f64::min);
    let most = table.high.floats().iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Ok(Interval::filled(shape, (least, most)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Centre;
    use crate::graph::{Kernel, Pool};
    use mpc_core::SplitMix64;

    /// Numbers between two, and sometimes the ends.
    fn drawn(draw: &mut SplitMix64, within: &Interval) -> HostTensor {
        let (low, high) = (within.low.floats(), within.high.floats());
        let values = low.iter().zip(high.iter()).map(|(&low, &high)| match draw.next_u64() % 4 {
            0 => low,
            1 => high,
            _ => draw.real(low, high),
        });
        HostTensor::new(within.low.dims(), values.collect()).unwrap()
    }

    fn interval(draw: &mut SplitMix64, dims: &[usize]) -> Interval {
        let shape = Shape::new(dims).unwrap();
        let ends = [-3.0, 0.5].map(|from| {
            let mut one = || draw.real(from, from + 3.0);
            HostTensor::new(dims, (0..shape.len()).map(|_| one()).collect()).unwrap()
        });
        let [a, b] = ends;
        hull(&Interval::point(a), &Interval::point(b)).unwrap()
    }

    #[test]
    fn no_operation_leaves_its_bounds() {
        let kernel = Kernel::new(Pool::new([2; 2], [1; 2]).padded([1, 0, 0, 1]));
        let unary = [
            Unary::Relu,
            Unary::LeakyRelu(-0.5),
            Unary::Clip(Some(-0.5), None),
            Unary::Sigmoid,
            Unary::Gelu,
            Unary::GeluTanh,
            Unary::Silu,
            Unary::HardSwish,
            Unary::Elu(1.5),
            Unary::Softplus,
            Unary::Softsign,
            Unary::Exp,
            Unary::Neg,
            Unary::Abs,
            Unary::Sign,
            Unary::Sin,
            Unary::Pow(2.0),
            Unary::Pow(3.0),
        ];
        let binary =
            [Binary::Add, Binary::Sub, Binary::Mul, Binary::Max, Binary::Min, Binary::PRelu];
        let mut ops: Vec<(Op, Vec<&[usize]>)> = vec![
            (Op::Conv(kernel), vec![&[1, 2, 3, 3], &[2, 2, 2, 2]]),
            (Op::MatMul { transpose_lhs: false, transpose_rhs: true }, vec![&[3, 4], &[2, 4]]),
            (Op::Softmax { axis: 1, log: true }, vec![&[2, 4]]),
            (Op::Softmax { axis: 1, log: false }, vec![&[2, 4]]),
            (Op::Normalize { axis: 1, centre: Centre::Mean, epsilon: 1e-5 }, vec![&[2, 4]]),
            (Op::Normalize { axis: 1, centre: Centre::Zero, epsilon: 1e-5 }, vec![&[2, 4]]),
            (Op::Reduce { kind: Reduce::SumSquare, axes: vec![1], keep: true }, vec![&[2, 4]]),
            (Op::Reduce { kind: Reduce::Min, axes: vec![0], keep: false }, vec![&[2, 4]]),
            (Op::Scale(-1.5), vec![&[4]]),
            (Op::Mask, vec![&[4], &[4]]),
            (Op::MaxPool(Pool::new([2; 2], [2; 2])), vec![&[1, 1, 4, 4]]),
        ];
        ops.extend(unary.map(|f| (Op::Unary(f), vec![&[40][..]])));
        ops.extend(binary.map(|f| (Op::Binary(f), vec![&[2, 5][..], &[5]])));
        let mut draw = SplitMix64::new(11);
        for (op, dims) in ops {
            for _ in 0..20 {
                let given: Vec<_> = dims.iter().map(|dims| interval(&mut draw, dims)).collect();
                let xs: Vec<_> = given.iter().map(|x| drawn(&mut draw, x)).collect();
                let y = eval::evaluate(&op, &xs.iter().collect::<Vec<_>>(), 1).unwrap();
                let xs: Vec<_> = given.iter().collect();
                let (bounds, reach) = bounded(&op, &xs, y.shape(), 1).unwrap();
                let ends = (bounds.low.floats(), bounds.high.floats());
                for (i, &v) in y.floats().iter().enumerate() {
                    let inside = ends.0[i] - 1e-9 <= v && v <= ends.1[i] + 1e-9;
                    assert!(inside, "{op:?}: {v} is not in {}..{}", ends.0[i], ends.1[i]);
                    assert!(v.abs() <= reach + 1e-9, "{op:?}");
                }
            }
        }
    }
}
