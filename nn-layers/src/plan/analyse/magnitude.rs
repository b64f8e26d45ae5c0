//! Public bounds of values on shares: from formats and operations, not from weights.

use std::cmp::Ordering;

use ring_arith::Shape;

use crate::Result;
use crate::graph::{Binary, LinearMap, Op, Reduce, Unary};
use crate::host::MOST_INTEGER;
use crate::plan::analyse::domain::Domain;
use crate::plan::{Plan, shapes};

/// Units of the last place by which an operand of a root may be below 0.
const BELOW_ZERO: f64 = 4.0;

/// The size of those words at most: the root's error grows with that of its root.
const NARROW: f64 = (1u64 << 43) as f64;

/// Integers up to this can be multiplied by numbers that may be large themselves.
const COUNTS: f64 = 1024.0;

/// The dangers that a guard watches at an operation besides its product.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::plan) struct Danger {
    /// The operands, by their places, that can leave the domain in which the operation is right although every
    /// product is in range; with that domain.
    pub operands: Vec<(usize, Domain)>,
    /// The limit of a quotient that can reach it.
    pub quotient: Option<f64>,
    /// True if the operation tells rows of numbers that are too small for it.
    pub faint: bool,
}

impl Danger {
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Public bounds of a value's elements.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// Of their magnitudes; infinite where nothing is known.
    most: f64,
    /// Of the elements from below.
    low: f64,
    /// True if inputs reach it through sums: no product on the way would be called out of range.
    grows: bool,
}

impl Plan {
    /// For each node what can go wrong at it although every product is in range.
    pub(in crate::plan) fn dangers(&self) -> Result<Vec<Danger>> {
        let shapes = shapes::shapes(self, self.batch.unwrap_or(1))?;
        let mut bounds: Vec<Bounds> = Vec::with_capacity(self.nodes.len());
        let mut all = Vec::with_capacity(self.nodes.len());
        for (i, node) in self.nodes.iter().enumerate() {
            let xs: Vec<_> = node.inputs.iter().map(|&x| (bounds[x].most, &shapes[x])).collect();
            let lows: Vec<_> = node.inputs.iter().map(|&x| bounds[x].low).collect();
            let reach = self.magnitude(i, &xs);
            let grows = match node.op {
                Op::Input(_) => true,
                ref op if op.is_given() || self.dropped(i) > 0 => false,
                // The number is bounded.
                Op::ScaleBy(_) => bounds[node.inputs[0]].grows,
                _ => node.inputs.iter().any(|&x| bounds[x].grows),
            };
            let within = |at: usize| {
                let mut domain = self.domain_among(i, at, &shapes, (reach, grows), &xs)?;
                let unit = (-f64::from(self.fracs[node.inputs[at]])).exp2();
                if domain.low == 0.0 && unit < 1.0 && xs[at].0 <= NARROW * unit {
                    // Rounding may make a number negative whose root is right as that of 0, if its words have few bits.
                    domain.low = -BELOW_ZERO * unit;
                }
                let open = domain.open_for(lows[at].max(-xs[at].0), xs[at].0);
                (open != Domain::ALL).then_some((at, open))
            };
            // What is computed in the clear is checked there.
            all.push(if self.public[i] {
                Danger { operands: vec![], quotient: None, faint: false }
            } else {
                Danger {
                    operands: (0..node.inputs.len()).filter_map(within).collect(),
                    quotient: self.quotient_limit(i, &xs, &lows),
                    faint: self.leaves_rows_faint(i),
                }
            });
            let low = self.low(i, &xs, &lows);
            // What leaves it was called out before.
            bounds.push(Bounds { most: reach.min(encoded(self.fracs[i])), low, grows });
        }
        Ok(all)
    }

    /// The domain of a node's operand, given the number of elements that it combines and how far it reaches.
    fn domain_among(
        &self,
        node: usize,
        at: usize,
        shapes: &[Shape],
        (reach, grows): (f64, bool),
        xs: &[(f64, &Shape)],
    ) -> Option<Domain> {
        let x = self.nodes[node].inputs[at];
        let op = &self.nodes[node].op;
        if *op == Op::Lookup && at == 1 {
            // The owner of an inference's inputs compares their positions with the table. Rows of a training are shared
            // before anyone knows which network takes them.
            let rows = shapes[self.nodes[node].inputs[0]].dims()[0];
            let given = self.moved_input(x).is_some() && !self.is_training_step();
            return (!given).then_some(Domain { low: 0.0, high: rows as f64 - 1.0, least: 0.0 });
        }
        let own = Domain::of(op, at, self.target(node), self.fracs[x]);
        // The root of the sum of a group's squares has the same domain as one number.
        let own = match op {
            Op::Normalize { axis, .. } => Some(own?.over(row(&shapes[x], *axis))),
            Op::Reduce { axes, .. } => own.map(|domain| {
                let group = axes.iter().map(|&axis| shapes[x].dims()[axis] as f64);
                domain.over(group.product::<f64>().max(1.0).sqrt())
            }),
            _ if self.is_whole_square(node) => {
                Some(Domain::around(encoded(self.fracs[node]).sqrt()))
            }
            _ => own,
        };
        let grown = if grows { self.room_to_grow(node, at, reach, xs) } else { None };
        let grown = grown.map(Domain::around);
        match (own, grown) {
            (Some(own), Some(grown)) => {
                Some(Domain { low: own.low.max(grown.low), high: own.high.min(grown.high), ..own })
            }
            (own, grown) => own.or(grown),
        }
    }

    /// The magnitude up to which an operand of a sum, or of what is as large as its operands are, cannot take the
    /// result out of the numbers that have an encoding; `None` where it cannot in any case.
    fn room_to_grow(
        &self,
        node: usize,
        at: usize,
        reach: f64,
        xs: &[(f64, &Shape)],
    ) -> Option<f64> {
        let op = &self.nodes[node].op;
        if self.dropped(node) > 0 || op.is_given() {
            return None;
        }
        // Functions bring their operands to their format first.
        let end = encoded(self.fracs[node].max(self.operand_frac(node)));
        let most = xs[at].0;
        match op {
            Op::Binary(Binary::Add | Binary::Sub) if reach > end => {
                let inputs = &self.nodes[node].inputs;
                if at == 1 && inputs[0] == inputs[1] {
                    return None;
                }
                let small: f64 = xs.iter().map(|x| x.0).filter(|x| *x < end / 4.0).sum();
                let large = xs.iter().filter(|x| x.0 >= end / 4.0).count().max(1);
                Some((end - small) / large as f64)
            }
            Op::Binary(Binary::Mul) if self.is_counted(node) && reach > end => {
                let [own, other] = [most, xs[1 - at].0];
                let counts = |small: f64| (end / small).max(COUNTS);
                Some(match own.partial_cmp(&other) {
                    Some(Ordering::Greater) => counts(other),
                    Some(Ordering::Less) => end / counts(own),
                    _ => end.sqrt(),
                })
                .filter(|limit| *limit < most)
            }
            Op::Binary(_) | Op::Where | Op::Concat(_) => (most > end).then_some(end),
            Op::Reduce { kind: Reduce::Mean, axes, .. } => {
                let length = axes.iter().map(|&axis| xs[0].1.dims()[axis] as f64).product::<f64>();
                (most * length > end).then_some(end / length.max(1.0))
            }
            // A step's number.
            Op::ScaleBy(_) if at == 1 => None,
            Op::Scale(_)
            | Op::ScaleBy(_)
            | Op::SumPool(_)
            | Op::Reduce { kind: Reduce::Sum | Reduce::L1, .. }
            | Op::Unary(Unary::LeakyRelu(_) | Unary::Selu(..) | Unary::Elu(_))
                if reach.is_finite() && reach > end =>
            {
                Some(end * (most / reach).min(1.0))
            }
            Op::Cast
            | Op::Unary(_)
            | Op::Softmax { .. }
            | Op::Normalize { .. }
            | Op::Lrn { .. } => (most > end).then_some(end),
            _ => None,
        }
    }

    /// True if a node multiplies integers, or numbers by integers.
    fn is_counted(&self, node: usize) -> bool {
        self.nodes[node].inputs.iter().any(|&x| self.fracs[x] == 0)
    }

    /// The fraction bits to which an operation brings its operands first.
    fn operand_frac(&self, node: usize) -> u32 {
        match &self.nodes[node].op {
            op if op.info().rounds_operands => self.target(node),
            Op::Binary(_) => {
                self.nodes[node].inputs.iter().map(|&x| self.fracs[x]).max().unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// The limit of a quotient that may reach it, given the bounds of its operands.
    fn quotient_limit(&self, node: usize, xs: &[(f64, &Shape)], lows: &[f64]) -> Option<f64> {
        let op = &self.nodes[node].op;
        if *op != Op::Binary(Binary::Div) {
            return None;
        }
        let frac = self.target(node);
        let limit = (61.0 - 2.0 * f64::from(frac.max(20))).exp2();
        let own = self.fracs[self.nodes[node].inputs[1]];
        let least = Domain::of(op, 1, frac, own).map_or(0.0, |domain| domain.least);
        (xs[0].0 > limit * lows[1].max(least)).then_some(limit)
    }

    fn leaves_rows_faint(&self, node: usize) -> bool {
        match self.nodes[node].op {
            Op::Normalize { epsilon, .. } => {
                mpc_core::functions::leaves_rows_faint(epsilon, self.target(node))
            }
            _ => false,
        }
    }

    /// A bound of a node's elements from below.
    fn low(&self, node: usize, xs: &[(f64, &Shape)], lows: &[f64]) -> f64 {
        let unknown = f64::NEG_INFINITY;
        let x = lows.first().copied().unwrap_or(unknown);
        let least = || lows.iter().copied().fold(f64::INFINITY, f64::min);
        let inputs = &self.nodes[node].inputs;
        let length = |axes: &[usize]| -> f64 {
            axes.iter().map(|&axis| xs[0].1.dims()[axis] as f64).product()
        };
        match &self.nodes[node].op {
            Op::Constant(i) => match &self.constants[*i].public {
                Some(value) => value.floats().iter().copied().fold(f64::INFINITY, f64::min),
                None => unknown,
            },
            Op::Unary(f) => f.least(x),
            Op::Binary(f) => match f {
                Binary::Add => lows.iter().sum(),
                Binary::Mul if inputs[0] == inputs[1] || least() >= 0.0 => 0.0,
                Binary::Max => lows.iter().copied().fold(unknown, f64::max),
                Binary::Min => least(),
                Binary::Div if least() >= 0.0 => 0.0,
                _ => f.info().results[0],
            },
            Op::Dot(_) if inputs[0] == inputs[1] => 0.0,
            Op::Scale(c) | Op::ScaleBy(c) if *c > 0.0 && x >= 0.0 => 0.0,
            Op::SumPool(_) if x >= 0.0 => 0.0,
            Op::Reduce { kind, axes, .. } => match kind {
                Reduce::Max | Reduce::Min => x,
                Reduce::Sum if x >= 0.0 => x * length(axes),
                Reduce::Mean if x >= 0.0 => 0.0,
                _ => self.nodes[node].op.info().results[0],
            },
            Op::Where => lows[1..].iter().copied().fold(f64::INFINITY, f64::min),
            Op::Pad { value, .. } => x.min(*value),
            Op::Concat(_) => least(),
            Op::Cast | Op::MaxPool(_) | Op::Lookup => x,
            op if op.info().moves_elements => x,
            op => op.info().results[0],
        }
    }

    /// True if a node is a square of which no bit is dropped: the guard cannot compute it a second time.
    fn is_whole_square(&self, node: usize) -> bool {
        let product = match &self.nodes[node].op {
            Op::Binary(Binary::Mul) => true,
            Op::Linear(l) => l.map == LinearMap::Mul,
            _ => false,
        };
        match self.nodes[node].inputs[..] {
            [x, y] => product && x == y && self.fracs[x] > 0 && self.dropped(node) == 0,
            _ => false,
        }
    }

    /// A bound of the magnitudes of a node's elements, given those of its operands; infinite where nothing is known.
    fn magnitude(&self, node: usize, xs: &[(f64, &Shape)]) -> f64 {
        let dropped = self.dropped(node);
        let encoded = encoded(self.fracs[node]);
        if dropped > 0 {
            // A value that leaves it sets the guard.
            return self::encoded(self.fracs[node] + dropped);
        }
        let x = xs.first().map_or(f64::INFINITY, |x| x.0);
        let most = || xs.iter().map(|x| x.0).fold(0.0, f64::max);
        let length = |axes: &[usize]| -> f64 {
            axes.iter().map(|&axis| xs[0].1.dims()[axis] as f64).product()
        };
        match &self.nodes[node].op {
            Op::Constant(i) => match &self.constants[*i].public {
                Some(value) => value.floats().iter().fold(0.0, |most, v| v.abs().max(most)),
                None => encoded,
            },
            Op::Input(i) if self.inputs[*i].integer => MOST_INTEGER,
            Op::Input(_) | Op::Parameter(_) => encoded,
            Op::Unary(f) => f.most(x),
            _ if self.is_whole_square(node) => x * x,
            Op::Binary(f) => match f {
                Binary::Add | Binary::Sub => xs.iter().map(|x| x.0).sum(),
                Binary::Max | Binary::Min => most(),
                Binary::Mul => xs.iter().map(|x| x.0).product(),
                _ => f.info().most(),
            },
            Op::Normalize { axis, .. } => row(xs[0].1, *axis),
            Op::Pad { value, .. } => x.max(value.abs()),
            Op::Concat(_) => most(),
            Op::Where => xs[1..].iter().map(|x| x.0).fold(0.0, f64::max),
            Op::SumPool(p) => x * p.taps() as f64,
            Op::Scale(c) | Op::ScaleBy(c) => x * c.abs(),
            Op::Reduce { kind, axes, .. } => match kind {
                Reduce::Sum | Reduce::L1 => x * length(axes),
                Reduce::Mean | Reduce::Max | Reduce::Min => x,
                Reduce::SumSquare => x * x * length(axes),
                Reduce::L2 => x * length(axes).sqrt(),
            },
            Op::ArgMax { axis, .. } => xs[0].1.dims()[*axis] as f64,
            Op::Draw => xs[0].1.dims().last().copied().unwrap_or(1) as f64,
            Op::Softmax { log: true, .. } => 2.0 * x + 64.0,
            Op::Cast | Op::Mask | Op::MaxPool(_) | Op::Lookup => x,
            &Op::Lrn { beta, bias, .. } if bias > 0.0 && beta >= 0.0 => x * bias.powf(-beta),
            op if op.info().moves_elements => x,
            Op::Crew { size, .. } => x * *size as f64,
            op => op.info().most(),
        }
    }
}

/// The end of the numbers that have an encoding with `frac` fraction bits.
fn encoded(frac: u32) -> f64 {
    (62.0 - f64::from(frac)).exp2()
}

/// The root of the number of elements from an axis on.
fn row(shape: &Shape, axis: usize) -> f64 {
    (shape.dims()[axis..].iter().product::<usize>().max(1) as f64).sqrt()
}
