//! One node of a model file: which operator, which operands.

use nn_layers::{Binary, Dim, HostTensor, Op, Reduce, Unary, ValueId};

use super::attributes::Attributes;
use super::ops::{self, Import};
use super::proto::NodeProto;
use super::value::{Typed, Value};
use super::{Importer, Score, dtype, schema};
use crate::{Error, Result};

/// A node being imported.
pub(crate) struct Node<'a, 'b> {
    pub to: &'a mut Importer<'b>,
    pub attributes: Attributes<'a>,
    pub operator: &'a str,
    /// The way in which a softmax takes its result as scores, unchanged or with more added to it, if one does: very
    /// negative numbers, or very large ones, then mask.
    pub score: Option<Score>,
    inputs: Vec<Value>,
}

/// The node's name, or one made of operator and position.
pub(crate) fn name(node: &NodeProto, index: usize) -> String {
    if node.name.is_empty() { format!("{}_{index}", node.op_type) } else { node.name.clone() }
}

/// True if a domain is that of ONNX's own operators.
pub(crate) fn is_main(domain: &str) -> bool {
    domain.is_empty() || domain == "ai.onnx"
}

/// The operator, with its domain if that is not ONNX's own.
pub(crate) fn operator(node: &NodeProto) -> String {
    if is_main(&node.domain) {
        node.op_type.clone()
    } else {
        format!("{}.{}", node.domain, node.op_type)
    }
}

/// True if the operator can be imported.
pub(crate) fn is_supported(operator: &str) -> bool {
    ops::lookup(operator).is_some()
}

/// Imports one node.
pub(crate) fn import(to: &mut Importer<'_>, node: &NodeProto, index: usize) -> Result<()> {
    let name = name(node, index);
    let attributes = Attributes::new(node, &name);
    let inputs = node.input.iter().map(|i| match i.as_str() {
        "" => Ok(Value::Nothing),
        i => to.value(i).cloned().ok_or_else(|| {
            attributes.error(format!("operand `{i}` is not computed before it is used"))
        }),
    });
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let own = operator(node);
    let import = ops::lookup(&own).ok_or_else(|| attributes.unsupported(""))?;
    attributes.check(schema::attributes(&own))?;
    let score = node.output.iter().find_map(|output| to.score(output));
    let mut this = Node { to, attributes, operator: &node.op_type, score, inputs };
    let results = match import {
        Import::Values(import) => import(&mut this)?,
        Import::Tensors(import) => {
            let made = import(&mut this)?;
            if let Some(&made) = made.first() {
                ops::masks::moved(&mut this, import, made)?;
            }
            let typed = made.into_iter().enumerate();
            typed.map(|(i, id)| this.typed(i, id)).collect::<Result<_>>()?
        }
    };
    for (i, output) in node.output.iter().enumerate().filter(|(_, o)| !o.is_empty()) {
        let value = results.get(i).cloned().ok_or_else(|| {
            this.attributes.unsupported(format!("with its result number {}", i + 1))
        })?;
        this.to.define(output, value);
    }
    Ok(())
}

impl Node<'_, '_> {
    /// A stretch of an axis.
    pub(super) fn part(
        &mut self,
        x: ValueId,
        axis: usize,
        start: usize,
        end: usize,
    ) -> Result<ValueId> {
        self.add(Op::Slice { axis, start, end: Dim::Fixed(end), step: 1 }, &[x])
    }

    /// An operand that must be there.
    pub fn input(&self, i: usize) -> Result<ValueId> {
        Ok(self.tensor(i)?.id)
    }

    /// Puts another operand in the place of one.
    pub fn replace(&mut self, i: usize, value: Typed) {
        self.inputs[i] = Value::Tensor(value);
    }

    /// An operand that must be there, with its element type.
    pub fn tensor(&self, i: usize) -> Result<Typed> {
        match self.inputs.get(i) {
            Some(Value::Tensor(value)) => Ok(*value),
            Some(Value::Sequence(_)) => {
                Err(self.attributes.error(format!("operand {i} is a list, not a tensor")))
            }
            Some(Value::Nothing) | None => {
                Err(self.attributes.error(format!("operand {i} is missing")))
            }
        }
    }

    /// An operand that may be left out.
    pub fn optional(&self, i: usize) -> Option<ValueId> {
        self.tensor(i).ok().map(|value| value.id)
    }

    /// An operand of any sort; [`Value::Nothing`] if it is left out.
    pub fn value(&self, i: usize) -> Value {
        self.inputs.get(i).cloned().unwrap_or(Value::Nothing)
    }

    /// An operand that is a list.
    pub fn sequence(&self, i: usize) -> Result<Vec<Typed>> {
        match self.inputs.get(i) {
            Some(Value::Sequence(values)) => Ok(values.clone()),
            _ => Err(self.attributes.error(format!("operand {i} is not a list"))),
        }
    }

    /// True if another node or the model uses result number `i`.
    pub fn reads(&self, i: usize) -> bool {
        self.attributes.is_named(i)
    }

    /// Number of operands that the node names.
    pub fn operands(&self) -> usize {
        self.inputs.len()
    }

    /// The element type of an operand, [`dtype::FLOAT`] if it is left out.
    pub fn kind(&self, i: usize) -> i32 {
        self.tensor(i).map_or(dtype::FLOAT, |value| value.kind)
    }

    /// Result number `i` with its element type, in which integers of 16 bits and fewer wrap around.
    fn typed(&mut self, i: usize, id: ValueId) -> Result<Value> {
        let kind = ops::result_kind(self, i, id);
        let id = if ops::wraps(self.operator) { ops::whole::wrapped(self, id, kind)? } else { id };
        Ok(Value::Tensor(Typed { id, kind }))
    }

    /// All operands.
    pub fn inputs(&self) -> Result<Vec<ValueId>> {
        (0..self.inputs.len()).map(|i| self.input(i)).collect()
    }

    pub fn dims(&self, id: ValueId) -> Vec<usize> {
        self.to.graph.shape(id).dims().to_vec()
    }

    /// Adds an operation under this node's name. Errors name the node once.
    pub fn add(&mut self, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
        let keeps_kind = match &op {
            Op::Unary(Unary::Not | Unary::Sign | Unary::Floor) | Op::ArgMax { .. } => true,
            Op::Binary(f) if f.gives_truth() => true,
            Op::Lookup => self.to.is_integer(inputs[0]),
            Op::OneHot(_) | Op::Draw => true,
            Op::Unary(Unary::Relu | Unary::Neg | Unary::Abs | Unary::Clip(..)) => {
                self.to.is_integer(inputs[0])
            }
            Op::Unary(_) | Op::Softmax { .. } | Op::Normalize { .. } | Op::Scale(_) => false,
            Op::Binary(Binary::Div) | Op::AvgPool { .. } => false,
            Op::Reduce { kind: Reduce::Mean | Reduce::L2, .. } => false,
            Op::Where => inputs[1..].iter().all(|&x| self.to.is_integer(x)),
            _ => inputs.iter().all(|&x| self.to.is_integer(x)),
        };
        let id = self.to.graph.add(self.attributes.name, op, inputs)?;
        if keeps_kind {
            self.to.mark_integer(id);
        }
        Ok(id)
    }

    pub fn unary(&mut self, f: Unary, x: ValueId) -> Result<ValueId> {
        self.add(Op::Unary(f), &[x])
    }

    pub fn binary_op(&mut self, f: Binary, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.add(Op::Binary(f), &[x, y])
    }

    /// A value as a real number where this number is a fraction: an integer would round it.
    pub fn for_number(&mut self, x: ValueId, number: f64) -> Result<ValueId> {
        let fits = !self.to.is_integer(x) || number.fract() == 0.0;
        if fits { Ok(x) } else { self.add(Op::Scale(1.0), &[x]) }
    }

    /// A public number.
    pub fn number(&mut self, value: f64) -> ValueId {
        self.to.graph.public(self.attributes.name, HostTensor::scalar(value))
    }

    /// A public integer.
    pub fn whole(&mut self, value: i64) -> Result<ValueId> {
        let value = HostTensor::integers([], vec![value])?;
        Ok(self.to.graph.public(self.attributes.name, value))
    }

    /// A constant operand.
    pub fn constant(&self, id: ValueId, what: &str) -> Result<HostTensor> {
        self.to.graph.known(id)?.ok_or_else(|| {
            self.attributes.unsupported(format!("with {what} that depend on the input"))
        })
    }

    /// A constant operand of integers.
    pub fn ints(&self, id: ValueId, what: &str) -> Result<Vec<i64>> {
        let value = self.constant(id, what)?;
        let ints =
            value.as_ints().map_err(|_| self.attributes.error(format!("{what} are no integers")));
        Ok(ints?.to_vec())
    }

    /// Integers from an operand, or from the attribute that it was before.
    pub fn ints_or_attribute(&self, i: usize, name: &str) -> Result<Option<Vec<i64>>> {
        match self.optional(i) {
            Some(id) => self.ints(id, name).map(Some),
            None => Ok(self.attributes.ints(name).map(<[i64]>::to_vec)),
        }
    }

    /// An axis, counted from the end if negative; `rank` itself is allowed with `end`.
    pub fn axis(&self, axis: i64, rank: usize, end: bool) -> Result<usize> {
        let limit = rank + usize::from(end);
        from_end(axis, rank).filter(|&a| a < limit).ok_or_else(|| {
            self.attributes.error(format!("axis {axis} does not exist in {rank} dimensions"))
        })
    }

    /// A position along an axis of a length, counted from the end if negative.
    pub fn position(&self, at: i64, len: usize) -> Result<usize> {
        from_end(at, len).filter(|&i| i < len).ok_or_else(|| {
            self.attributes.error(format!("position {at} is outside of an axis of length {len}"))
        })
    }

    /// Refuses attributes that ask for something that is not there.
    pub fn refuse_attributes(&self, names: &[&str]) -> Result<()> {
        match names.iter().find(|name| self.attributes.int(name, 0) != 0) {
            None => Ok(()),
            Some(name) => Err(self.unsupported(format!("with {name}"))),
        }
    }

    /// An unsupported use of the operator.
    pub fn unsupported(&self, reason: impl Into<String>) -> Error {
        self.attributes.unsupported(reason)
    }
}

/// The index for a number that counts from the end if negative.
fn from_end(i: i64, len: usize) -> Option<usize> {
    usize::try_from(if i < 0 { i.checked_add(len as i64)? } else { i }).ok()
}
