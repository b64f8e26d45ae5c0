//! Graphs that serve any number of cached positions, from graphs built for some.

use super::eval::views;
use super::state::along;
use super::{Binary, Constant, Dim, Graph, Op, ValueId};
use crate::host::MOST_INTEGER;
use crate::{Error, HostTensor, Result};

impl Graph {
    /// Joins graphs of the same network, built for different numbers of cached positions, into one whose plan serves
    /// every number. What the second differs in from the first gives the lengths that grow and the public numbers
    /// that change; the third must follow from these.
    ///
    /// # Errors
    /// [`Error::Node`] with the operation or number that depends on the cached positions in another way.
    pub fn unify_past(self, others: [&Self; 2]) -> Result<Self> {
        let [joined, again] = others.map(|other| self.joined(other));
        let joined = joined?;
        joined.check_same(&again?)?;
        Ok(joined)
    }

    /// The same with those of `far` as the most cached positions of its plan, if joining `far` with `first`, from which this
    /// was joined, makes the same. A mask that begins to hide behind many positions is not seen with few.
    ///
    /// # Errors
    /// [`Error::Node`] with an operation that is another one there.
    pub fn up_to_past(mut self, first: &Self, far: &Self) -> Result<Self> {
        self.check_same(&first.joined(far)?)?;
        self.most_past = far.past;
        Ok(self)
    }

    /// Checks that both have the same nodes.
    fn check_same(&self, again: &Self) -> Result<()> {
        let pairs = self.nodes.iter().zip(&again.nodes);
        let differs = pairs.into_iter().find(|(x, y)| {
            let values = match (&x.op, &y.op) {
                (Op::Constant(i), Op::Constant(j)) => {
                    self.constants[*i].value == again.constants[*j].value
                }
                (x, y) => x == y,
            };
            !values || x.inputs != y.inputs
        });
        match differs {
            Some((node, _)) => Err(unlike(&node.name)),
            None if self.nodes.len() != again.nodes.len() => Err(unlike("")),
            None => Ok(()),
        }
    }

    /// The graph for any number of cached positions for which it is this one at its own number and `other` at
    /// that one's.
    fn joined(&self, other: &Self) -> Result<Self> {
        let (Some(p), Some(q)) = (self.past, other.past) else {
            return Err(Error::invalid("past", "the graphs have no cached positions"));
        };
        let same = self.nodes.len() == other.nodes.len()
            && self.inputs == other.inputs
            && self.states == other.states
            && self.outputs == other.outputs;
        if !same {
            let reason = format!("{p} and {q} cached positions make networks of different nodes");
            return Err(Error::invalid("past", reason));
        }
        let mut joined = self.clone();
        let mut seen = vec![false; self.nodes.len()];
        let mut stack: Vec<_> = self.outputs.iter().map(|(_, id)| *id).collect();
        while let Some(id) = stack.pop() {
            if std::mem::replace(&mut seen[id.0], true) {
                continue;
            }
            let (x, y) = (&self.nodes[id.0], &other.nodes[id.0]);
            let (op, inputs) =
                if let (Some(own), Some(their)) = (self.constant_of(id), other.constant_of(id)) {
                    if own.value == their.value {
                        continue;
                    }
                    match (&x.folded, &y.folded) {
                        (Some(f), Some(g)) if f.inputs == g.inputs => {
                            match grown_op(&f.op, &g.op, [p, q]) {
                                Some(op) => (op, f.inputs.clone()),
                                None => joined.number(id, own, their, [p, q])?,
                            }
                        }
                        _ => joined.number(id, own, their, [p, q])?,
                    }
                } else {
                    let op = grown_op(&x.op, &y.op, [p, q]).filter(|_| x.inputs == y.inputs);
                    (op.ok_or_else(|| unlike(&x.name))?, x.inputs.clone())
                };
            stack.extend(inputs.iter().filter(|x| x.0 < seen.len()));
            joined.rewrite(id, op, inputs);
        }
        joined.nodes.iter_mut().for_each(|node| node.folded = None);
        joined.sweep();
        joined.reshape()?;
        Ok(joined)
    }

    /// The operation and operands of a public number that is `own` at `p` and `their` at `q`.
    fn number(
        &mut self,
        id: ValueId,
        own: &Constant,
        their: &Constant,
        [p, q]: [usize; 2],
    ) -> Result<(Op, Vec<ValueId>)> {
        let name = own.name.clone();
        let other = || unlike(&self.nodes[id.0].name);
        if own.secret || their.secret {
            return Err(other());
        }
        let (x, y) = (&own.value, &their.value);
        if x.dims() == y.dims() {
            let (each, rest) = affine(x, y, [p, q]).ok_or_else(other)?;
            let at = Op::Positions { from: past(0), to: past(1) };
            let at = self.late(&name, at, vec![])?;
            let at = self.late(&name, Op::Reshape(vec![]), vec![at])?;
            let [each, rest] = [each, rest].map(|value| self.constant(&name, value, false));
            let grown = self.late(&name, Op::Binary(Binary::Mul), vec![each, at])?;
            return Ok((Op::Binary(Binary::Add), vec![grown, rest]));
        }
        let axes = x.dims().iter().zip(y.dims()).enumerate();
        let differing: Vec<_> = axes.filter(|(_, (m, n))| m != n).map(|(axis, _)| axis).collect();
        let &[axis] = differing.as_slice() else { return Err(other()) };
        if x.dims().len() != y.dims().len() {
            return Err(other());
        }
        let dim = along(x.dims()[axis], y.dims()[axis], [p, q]).ok_or_else(other)?;
        if let Some([first, step]) = counted(x).filter(|first| counted(y) == Some(*first)) {
            let at = self.late(&name, Op::Positions { from: Dim::Fixed(0), to: dim }, vec![])?;
            let [first, step] = [first, step].map(|v| HostTensor::integers([], vec![v]));
            let step = self.constant(&name, step?, false);
            let first = self.constant(&name, first?, false);
            let at = self.late(&name, Op::Binary(Binary::Mul), vec![at, step])?;
            let mut at = self.late(&name, Op::Binary(Binary::Add), vec![at, first])?;
            if !x.is_int() {
                at = self.late(&name, Op::Scale(1.0), vec![at])?;
            }
            return Ok((Op::Reshape(with_dim(x, axis, dim)), vec![at]));
        }
        // The same entry again and again, and then others.
        let Dim::Past { times, .. } = dim else { return Err(other()) };
        let entry = views::slice(x, axis, 0, 1, 1)?;
        let rest = views::slice(x, axis, times * p, x.dims()[axis], 1)?;
        let whole = |past: usize| {
            let mut parts = vec![&entry; times * past];
            parts.push(&rest);
            views::concat(&parts, axis)
        };
        if p == 0 || whole(p)? != *x || whole(q)? != *y {
            return Err(other());
        }
        let dims = with_dim(x, axis, Dim::Past { times, more: 0 });
        let [entry, rest] = [entry, rest].map(|value| self.constant(&name, value, false));
        let many = self.late(&name, Op::Broadcast(dims), vec![entry])?;
        Ok((Op::Concat(axis), vec![many, rest]))
    }

    /// A node whose shape is computed later.
    fn late(&mut self, name: &str, op: Op, inputs: Vec<ValueId>) -> Result<ValueId> {
        let shape = ring_arith::Shape::new([])?;
        Ok(self.push(name, op, inputs, shape))
    }
}

fn unlike(name: &str) -> Error {
    Error::invalid("past", "depends on the number of cached positions in an unknown way").at(name)
}

/// One dimension for each cached position, and `more` besides.
fn past(more: usize) -> Dim {
    Dim::Past { times: 1, more }
}

/// A tensor's dimensions with one of them replaced.
fn with_dim(x: &HostTensor, axis: usize, dim: Dim) -> Vec<Dim> {
    let dims = x.dims().iter().enumerate();
    dims.map(|(i, &n)| if i == axis { dim } else { Dim::Fixed(n) }).collect()
}

/// Integers, also written as real numbers.
fn whole(x: &HostTensor) -> Option<Vec<i64>> {
    let values = x.floats();
    let fits = values.iter().all(|v| v.fract() == 0.0 && v.abs() < MOST_INTEGER);
    fits.then(|| values.iter().map(|&v| v as i64).collect())
}

/// The numbers that each cached position adds, and those without any.
fn affine(x: &HostTensor, y: &HostTensor, [p, q]: [usize; 2]) -> Option<(HostTensor, HostTensor)> {
    let (own, their) = (whole(x)?, whole(y)?);
    let past = (q as i64).checked_sub(p as i64).filter(|past| *past != 0)?;
    let mut each = vec![];
    let mut rest = vec![];
    for (a, b) in own.iter().zip(&their) {
        if (b - a) % past != 0 {
            return None;
        }
        each.push((b - a) / past);
        rest.push(a - (b - a) / past * p as i64);
    }
    let made = |values: Vec<i64>| match x.is_int() {
        true => HostTensor::integers(x.dims(), values).ok(),
        false => HostTensor::new(x.dims(), values.iter().map(|&v| v as f64).collect()).ok(),
    };
    Some((made(each)?, made(rest)?))
}

/// The first of a tensor's integers and the distance of each to the next, if they lie in one axis.
fn counted(x: &HostTensor) -> Option<[i64; 2]> {
    let values = whole(x)?;
    let [first, second, ..] = values.as_slice() else { return None };
    let step = second - first;
    let regular = values.windows(2).all(|pair| pair[1] - pair[0] == step);
    let flat = x.dims().iter().filter(|n| **n != 1).count() == 1;
    (regular && flat && step != 0).then_some([*first, step])
}

/// The operation that is `x` at `p` cached positions and `y` at `q`.
fn grown_op(x: &Op, y: &Op, at: [usize; 2]) -> Option<Op> {
    let dim = |m: Dim, n: Dim| match (m, n) {
        _ if m == n => Some(m),
        (Dim::Fixed(m), Dim::Fixed(n)) => along(m, n, at),
        _ => None,
    };
    let dims = |m: &[Dim], n: &[Dim]| {
        let pairs = m.iter().zip(n).map(|(&m, &n)| dim(m, n));
        if m.len() == n.len() { pairs.collect::<Option<Vec<_>>>() } else { None }
    };
    match (x, y) {
        _ if x == y => Some(x.clone()),
        (Op::Reshape(m), Op::Reshape(n)) => dims(m, n).map(Op::Reshape),
        (Op::Broadcast(m), Op::Broadcast(n)) => dims(m, n).map(Op::Broadcast),
        (
            &Op::Slice { axis, start, end, step },
            &Op::Slice { axis: other, start: start2, end: end2, step: step2 },
        ) if (axis, step) == (other, step2) => {
            let end = dim(end, end2)?;
            if start == start2 {
                return Some(Op::Slice { axis, start, end, step });
            }
            let start = along(start, start2, at)?;
            (step == 1).then_some(Op::Window { axis, start, end })
        }
        (
            Op::Gather { axis, indices, squeeze: false },
            Op::Gather { axis: other, indices: indices2, squeeze: false },
        ) if axis == other && indices.len() == indices2.len() => {
            let in_row = |list: &[usize]| list.windows(2).all(|pair| pair[1] == pair[0] + 1);
            let (first, first2) = (*indices.first()?, *indices2.first()?);
            let start = along(first, first2, at).filter(|_| in_row(indices) && in_row(indices2))?;
            let end = along(first + indices.len(), first2 + indices.len(), at)?;
            Some(Op::Window { axis: *axis, start, end })
        }
        _ => None,
    }
}
