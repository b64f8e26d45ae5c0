//! One node of a model file: which operator, which operands.

use nn_layers::{Binary, HostTensor, Op, Unary, ValueId};

use super::Importer;
use super::attributes::Attributes;
use super::ops::{conv, einsum, math, norm, pick, reduce, shape};
use super::proto::NodeProto;
use crate::{Error, Result};

/// A node being imported.
pub(crate) struct Node<'a, 'b> {
    pub to: &'a mut Importer<'b>,
    pub attributes: Attributes<'a>,
    pub operator: &'a str,
    /// Whether a softmax takes its result as scores, as it is or with more added to it: very negative numbers
    /// then mask.
    pub before_softmax: bool,
    inputs: Vec<Option<ValueId>>,
}

/// The function that imports an operator: its results, one for each output.
type Import = fn(&mut Node<'_, '_>) -> Result<Vec<ValueId>>;

/// The node's name, or one made of operator and position.
pub(crate) fn name(node: &NodeProto, index: usize) -> String {
    if node.name.is_empty() { format!("{}_{index}", node.op_type) } else { node.name.clone() }
}

/// Whether there is an import for the operator.
pub(crate) fn is_supported(operator: &str) -> bool {
    lookup(operator).is_some()
}

/// Imports one node.
pub(crate) fn import(to: &mut Importer<'_>, node: &NodeProto, index: usize) -> Result<()> {
    let name = name(node, index);
    let attributes = Attributes::new(node, &name);
    let inputs = node.input.iter().map(|i| match i.as_str() {
        "" => Ok(None),
        i => to.value(i).map(Some).ok_or_else(|| {
            attributes.error(format!("operand `{i}` is not computed before it is used"))
        }),
    });
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let import = lookup(&node.op_type).ok_or_else(|| attributes.unsupported(""))?;
    let before_softmax = node.output.iter().any(|output| to.is_score(output));
    let mut this = Node { to, attributes, operator: &node.op_type, before_softmax, inputs };
    let results = import(&mut this)?;
    for (i, output) in node.output.iter().enumerate().filter(|(_, o)| !o.is_empty()) {
        let id = results.get(i).copied().ok_or_else(|| {
            this.attributes.unsupported(format!("with its result number {}", i + 1))
        })?;
        this.to.define(output, id);
    }
    Ok(())
}

fn lookup(operator: &str) -> Option<Import> {
    Some(match operator {
        "Conv" => conv::conv,
        "ConvTranspose" => conv::conv_transpose,
        "MaxPool" => conv::max_pool,
        "AveragePool" => conv::average_pool,
        "GlobalAveragePool" => conv::global_average,
        "GlobalMaxPool" => conv::global_max,
        "Gemm" => math::gemm,
        "MatMul" => math::matmul,
        "Einsum" => einsum::einsum,
        "BatchNormalization" => norm::batch,
        "LayerNormalization" => norm::layer,
        "InstanceNormalization" => norm::instance,
        "GroupNormalization" => norm::group,
        "LRN" => norm::lrn,
        "Relu" | "Sigmoid" | "Tanh" | "Erf" | "HardSwish" | "Softplus" | "Softsign" | "Exp"
        | "Log" | "Sqrt" | "Reciprocal" | "Neg" | "Abs" | "Sign" | "Sin" | "Cos" | "Not"
        | "Floor" | "LeakyRelu" | "HardSigmoid" | "Elu" | "Selu" | "Gelu" => math::unary,
        "Celu" => math::celu,
        "Ceil" => math::ceil,
        "IsNaN" => math::is_nan,
        "Mish" => math::mish,
        "Clip" => math::clip,
        "PRelu" => math::prelu,
        "Softmax" | "LogSoftmax" => math::softmax,
        "Add" | "Sub" | "Mul" | "Div" | "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual"
        | "Equal" | "And" | "Or" | "Xor" => math::binary,
        "Max" | "Min" | "Sum" | "Mean" => math::variadic,
        "Pow" => math::pow,
        "Mod" => math::modulo,
        "Where" => math::select,
        "ReduceSum" | "ReduceMean" | "ReduceMax" | "ReduceMin" | "ReduceSumSquare" | "ReduceL1"
        | "ReduceL2" | "ReduceLogSum" | "ReduceLogSumExp" | "ReduceProd" => reduce::reduce,
        "ArgMax" | "ArgMin" => reduce::arg,
        "CumSum" => reduce::running_sum,
        "TopK" => reduce::top,
        "Reshape" => shape::reshape,
        "Flatten" => shape::flatten,
        "Transpose" => shape::transpose,
        "Squeeze" => shape::squeeze,
        "Unsqueeze" => shape::unsqueeze,
        "Expand" => shape::expand,
        "Concat" => shape::concat,
        "Split" => shape::split,
        "Slice" => shape::slice,
        "Gather" => pick::gather,
        "GatherElements" => pick::gather_elements,
        "GatherND" => pick::gather_nd,
        "ScatterElements" => pick::scatter_elements,
        "ScatterND" => pick::scatter_nd,
        "Pad" => shape::pad,
        "Tile" => shape::tile,
        "Trilu" => shape::trilu,
        "Shape" => shape::shape,
        "Size" => shape::size,
        "Range" => shape::range,
        "Constant" => shape::constant,
        "ConstantOfShape" => shape::constant_of_shape,
        "Cast" | "CastLike" => shape::cast,
        "Identity" => shape::identity,
        "Dropout" => norm::dropout,
        _ => return None,
    })
}

impl Node<'_, '_> {
    /// An operand that must be there.
    pub fn input(&self, i: usize) -> Result<ValueId> {
        self.optional(i).ok_or_else(|| self.attributes.error(format!("operand {i} is missing")))
    }

    /// An operand that may be left out.
    pub fn optional(&self, i: usize) -> Option<ValueId> {
        self.inputs.get(i).copied().flatten()
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
            Op::Binary(
                Binary::Less
                | Binary::LessEqual
                | Binary::Greater
                | Binary::GreaterEqual
                | Binary::Equal
                | Binary::And
                | Binary::Or
                | Binary::Xor,
            ) => true,
            Op::Unary(_) | Op::Softmax { .. } | Op::Normalize { .. } | Op::Lookup => false,
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

    /// A public number.
    pub fn number(&mut self, value: f64) -> ValueId {
        self.to.graph.public(self.attributes.name, HostTensor::scalar(value))
    }

    /// A constant operand.
    pub fn constant(&self, id: ValueId, what: &str) -> Result<HostTensor> {
        self.to.graph.constant_value(id).cloned().ok_or_else(|| {
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

    /// An unsupported use of the operator.
    pub fn unsupported(&self, reason: impl Into<String>) -> Error {
        self.attributes.unsupported(reason)
    }
}

/// What a number means that counts from the end if negative.
fn from_end(i: i64, len: usize) -> Option<usize> {
    usize::try_from(if i < 0 { i.checked_add(len as i64)? } else { i }).ok()
}
