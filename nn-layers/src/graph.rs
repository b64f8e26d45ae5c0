//! Networks as graphs: operations over inputs and constants, before planning.

mod batch;
mod edit;
pub(crate) mod eval;
mod format;
pub(crate) mod grad;
pub(crate) mod independence;
pub(crate) mod infer;
pub(crate) mod norm;
pub(crate) mod op;
mod parameters;
mod past;
mod sizes;
mod state;

use ring_arith::Shape;

pub(crate) use edit::Users;
pub(crate) use format::Format;
pub use format::Formats;
pub use op::{
    BatchNorm, Binary, CrewOp, Dim, Exactness, Kernel, Linear, LinearFinish, LinearMap, Op, Pool,
    Reduce, Unary,
};
pub(crate) use op::{ResultFormat, Work};
pub use sizes::Sizes;
pub(crate) use state::State;

use crate::host::checked_shape;
use crate::{Error, HostTensor, Result};

/// The most elements of a broadcast constant that is written out to compute with it.
const MAX_WRITTEN_OUT: usize = 1 << 22;

/// A value in a [`Graph`]: the result of one of its nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueId(pub(crate) usize);

/// A network: nodes in an order in which each comes after its operands.
///
/// Shapes are inferred as nodes are added, for the batch size given at the start; operations whose
/// operands are all constants are computed at once.
#[derive(Debug, Clone)]
pub struct Graph {
    pub(crate) nodes: Vec<Node>,
    pub(crate) constants: Vec<Constant>,
    pub(crate) inputs: Vec<Input>,
    pub(crate) outputs: Vec<(String, ValueId)>,
    pub(crate) batch: usize,
    pub(crate) any_batch: bool,
    /// The cached positions that shapes are shown for, if anything grows with them.
    pub(crate) past: Option<usize>,
    pub(crate) states: Vec<State>,
    /// The most cached positions for which it is known to be the network.
    pub(crate) most_past: Option<usize>,
}

/// One operation of a [`Graph`].
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub name: String,
    pub op: Op,
    pub inputs: Vec<ValueId>,
    pub shape: Shape,
    pub format: Format,
    /// The operation on weights that this constant is the result of: a training differentiates it.
    pub folded: Option<Folded>,
}

/// An operation on weights that was replaced by its result.
#[derive(Debug, Clone)]
pub(crate) struct Folded {
    pub op: Op,
    pub inputs: Vec<ValueId>,
}

/// A number of the model.
#[derive(Debug, Clone)]
pub(crate) struct Constant {
    pub name: String,
    pub value: HostTensor,
    pub secret: bool,
    /// A parameter that stays as it is: a secret of which a training knows the shape alone.
    pub frozen: bool,
}

/// An input of the model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Input {
    pub name: String,
    pub dims: Vec<Dim>,
    pub integer: bool,
    /// Fraction bits, where they are not those of the plan.
    pub frac: Option<u32>,
}

impl Graph {
    /// An empty network, built for one batch size. Its plan serves every batch size, if all that
    /// depends on it is written with [`Dim::Batch`] or [`Dim::Rest`].
    pub fn new(batch: usize) -> Self {
        Self {
            nodes: vec![],
            constants: vec![],
            inputs: vec![],
            outputs: vec![],
            batch,
            any_batch: true,
            past: None,
            states: vec![],
            most_past: None,
        }
    }

    /// The operations, with their names in the model and their kinds; without inputs and constants.
    pub fn operations(&self) -> impl Iterator<Item = (&str, &'static str)> {
        let computed = self.nodes.iter().filter(|node| !node.op.is_given());
        computed.map(|node| (node.name.as_str(), node.op.name()))
    }

    /// The batch size that shapes are shown for.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// The sizes that shapes are shown for.
    pub(crate) fn sizes(&self) -> Sizes {
        Sizes { batch: self.batch, past: self.past.unwrap_or(0) }
    }

    /// An input of real numbers.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a dimension is missing or the shape is too large.
    pub fn input(&mut self, name: &str, dims: &[Dim]) -> Result<ValueId> {
        self.any_input(name, dims, false, None)
    }

    /// An input of integers, for instance positions in a table.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a dimension is missing or the shape is too large.
    pub fn integer_input(&mut self, name: &str, dims: &[Dim]) -> Result<ValueId> {
        self.any_input(name, dims, true, None)
    }

    /// An input of real numbers with its own format.
    pub(crate) fn input_with_frac(
        &mut self,
        name: &str,
        dims: &[Dim],
        frac: u32,
    ) -> Result<ValueId> {
        self.any_input(name, dims, false, Some(frac))
    }

    fn any_input(
        &mut self,
        name: &str,
        dims: &[Dim],
        integer: bool,
        frac: Option<u32>,
    ) -> Result<ValueId> {
        let fixed =
            dims.iter().map(|&d| infer::resolve(d, self.sizes())).collect::<Option<Vec<_>>>();
        let fixed =
            fixed.ok_or_else(|| Error::invalid("input", "every dimension must be given"))?;
        let shape = checked_shape("input", fixed)?;
        let index = self.inputs.len();
        self.inputs.push(Input { name: name.to_owned(), dims: dims.to_vec(), integer, frac });
        Ok(self.push(name, Op::Input(index), vec![], shape))
    }

    /// A weight: a secret of the model's owner.
    pub fn weight(&mut self, name: &str, value: HostTensor) -> ValueId {
        self.constant(name, value, true)
    }

    /// A public number that belongs to the structure.
    pub fn public(&mut self, name: &str, value: HostTensor) -> ValueId {
        self.constant(name, value, false)
    }

    pub(crate) fn constant(&mut self, name: &str, value: HostTensor, secret: bool) -> ValueId {
        let (index, shape) = (self.constants.len(), value.shape().clone());
        self.constants.push(Constant { name: name.to_owned(), value, secret, frozen: false });
        self.push(name, Op::Constant(index), vec![], shape)
    }

    /// Adds an operation; one on constants alone is computed now.
    ///
    /// # Errors
    /// [`Error::Node`] if the operands do not fit, before anything is added.
    pub fn add(&mut self, name: &str, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
        self.add_as(Format::Value, name, op, inputs)
    }

    /// [`Graph::add`] with the format in which the operation rounds.
    pub(crate) fn add_as(
        &mut self,
        format: Format,
        name: &str,
        op: Op,
        inputs: &[ValueId],
    ) -> Result<ValueId> {
        let shapes: Vec<_> = inputs.iter().map(|&id| self.shape(id)).collect();
        let shape = infer::output_shape(&op, &shapes, self.sizes()).map_err(|e| e.at(name))?;
        let operands: Option<Vec<_>> = inputs.iter().map(|&id| self.constant_of(id)).collect();
        // A broadcast weight is kept small, and may depend on the batch; lists of sizes are needed.
        let grows = matches!(op, Op::Broadcast(_))
            && operands.as_ref().is_some_and(|c| c.iter().any(|c| !c.value.is_int()));
        let foldable = !inputs.is_empty() && !grows && !op.grows();
        if let Some(operands) = operands.filter(|_| foldable) {
            let secret = operands.iter().any(|c| c.secret);
            let values: Vec<_> = operands.iter().map(|c| &c.value).collect();
            let value = eval::evaluate(&op, &values, self.sizes()).map_err(|e| e.at(name))?;
            // A weight under another shape keeps its name: trained, it goes back to where it came from.
            let own = matches!(op, Op::Reshape(_)).then(|| operands[0].name.clone());
            let id = self.constant(&own.unwrap_or_else(|| name.to_owned()), value, secret);
            return Ok(self.remember(id, secret, op, inputs));
        }
        if let Some((id, secret)) = self.of_one_number(name, &op, inputs, &shape)? {
            return Ok(self.remember(id, secret, op, inputs));
        }
        if let Some((id, secret)) = self.of_known(name, &op, inputs, &shape)? {
            return Ok(self.remember(id, secret, op, inputs));
        }
        let id = self.push(name, op, inputs.to_vec(), shape);
        self.nodes[id.0].format = format;
        Ok(id)
    }

    /// Notes the operation that computed a constant, if it is a weight.
    fn remember(&mut self, id: ValueId, secret: bool, op: Op, inputs: &[ValueId]) -> ValueId {
        // What grows is computed again for each length: see `Graph::unify_past`.
        if secret || self.past.is_some() {
            self.nodes[id.0].folded = Some(Folded { op, inputs: inputs.to_vec() });
        }
        id
    }

    /// The result of an operation on tensors each of which is one number everywhere: that number, broadcast, so
    /// that it stays known and small for any shape. Also returns true if it is secret.
    fn of_one_number(
        &mut self,
        name: &str,
        op: &Op,
        inputs: &[ValueId],
        shape: &Shape,
    ) -> Result<Option<(ValueId, bool)>> {
        let elements = matches!(op, Op::Unary(_) | Op::Binary(_) | Op::Where | Op::Scale(_));
        let views = matches!(
            op,
            Op::Reshape(_)
                | Op::Permute(_)
                | Op::Slice { .. }
                | Op::Gather { .. }
                | Op::Broadcast(_)
                | Op::Reduce { kind: Reduce::Max | Reduce::Min | Reduce::Mean, .. }
        );
        let one = |id: &ValueId| {
            let constant = self.constant_of(*id).or_else(|| self.broadcast_of(*id))?;
            (constant.value.len() == 1).then(|| constant.clone())
        };
        let Some(operands) = inputs.iter().map(one).collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        let spread = inputs.iter().any(|&id| self.broadcast_of(id).is_some());
        if !spread || !(elements || views) || self.has_growing(op, inputs) {
            return Ok(None);
        }
        let secret = operands.iter().any(|c| c.secret);
        let scalars = operands.iter().map(|c| c.value.reshape([])).collect::<Result<Vec<_>>>()?;
        let value = if elements {
            eval::evaluate(op, &scalars.iter().collect::<Vec<_>>(), self.sizes())?
        } else {
            scalars[0].clone()
        };
        let own = if elements { name.to_owned() } else { operands[0].name.clone() };
        let number = self.constant(&own, value, secret);
        let dims = shape.dims().iter().map(|&d| Dim::Fixed(d)).collect();
        Ok(Some((self.push(name, Op::Broadcast(dims), vec![number], shape.clone()), secret)))
    }

    /// The result of an operation on tensors that are known and of which some are broadcast, where the
    /// broadcast axes cannot be the batch's. Also returns true if the result is secret.
    fn of_known(
        &mut self,
        name: &str,
        op: &Op,
        inputs: &[ValueId],
        shape: &Shape,
    ) -> Result<Option<(ValueId, bool)>> {
        let known = |id: &ValueId| self.constant_of(*id).or_else(|| self.broadcast_of(*id));
        let Some(constants) = inputs.iter().map(known).collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        let small = inputs.iter().map(|&id| self.shape(id).len()).all(|len| len <= MAX_WRITTEN_OUT);
        let computes = !inputs.is_empty() && !matches!(op, Op::Broadcast(_));
        let open = self.any_batch || self.has_growing(op, inputs);
        if open || !computes || !small || shape.len() > MAX_WRITTEN_OUT {
            return Ok(None);
        }
        let secret = constants.iter().any(|c| c.secret);
        let whole = inputs.iter().map(|&id| self.known(id)).collect::<Result<Option<Vec<_>>>>()?;
        let Some(whole) = whole else { return Ok(None) };
        let values: Vec<_> = whole.iter().collect();
        let value = eval::evaluate(op, &values, self.sizes()).map_err(|e| e.at(name))?;
        Ok(Some((self.constant(name, value, secret), secret)))
    }

    /// True if an operation or one of its operands is written with [`Dim::Past`].
    fn has_growing(&self, op: &Op, inputs: &[ValueId]) -> bool {
        op.grows() || inputs.iter().any(|id| self.nodes[id.0].op.grows())
    }

    /// Moves some inputs after the others.
    pub(crate) fn move_inputs_last(&mut self, last: &[usize]) {
        let others = (0..self.inputs.len()).filter(|i| !last.contains(i));
        let order: Vec<_> = others.chain(last.iter().copied()).collect();
        self.inputs = order.iter().map(|&i| self.inputs[i].clone()).collect();
        for node in &mut self.nodes {
            if let Op::Input(i) = &mut node.op {
                *i = order.iter().position(|old| old == i).unwrap_or(*i);
            }
        }
    }

    /// Names a value as a result.
    pub fn output(&mut self, name: &str, value: ValueId) {
        self.outputs.push((name.to_owned(), value));
    }

    /// The value that is the only result.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is none, or there are several.
    pub fn only_output(&self) -> Result<ValueId> {
        match self.outputs.as_slice() {
            [(_, value)] => Ok(*value),
            outputs => {
                let reason = format!("the network has {} results, not one", outputs.len());
                Err(Error::invalid("output", reason))
            }
        }
    }

    /// The shape of a value for this graph's batch size.
    pub fn shape(&self, value: ValueId) -> &Shape {
        &self.nodes[value.0].shape
    }

    /// The tensor of a value that is a constant.
    pub fn constant_value(&self, value: ValueId) -> Option<&HostTensor> {
        self.constant_of(value).map(|c| &c.value)
    }

    /// The tensor of a value that belongs to the structure, broadcast or not.
    pub fn public_behind(&self, value: ValueId) -> Option<&HostTensor> {
        let constant = self.constant_of(value).or_else(|| self.broadcast_of(value))?;
        (!constant.secret).then_some(&constant.value)
    }

    /// The tensor that a value is if it is a constant, or one broadcast.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it cannot be written out.
    pub fn known(&self, value: ValueId) -> Result<Option<HostTensor>> {
        if let Some(constant) = self.constant_of(value) {
            return Ok(Some(constant.value.clone()));
        }
        let Some(constant) = self.broadcast_of(value) else { return Ok(None) };
        eval::evaluate(&self.nodes[value.0].op, &[&constant.value], self.sizes()).map(Some)
    }

    /// A broadcast constant as a constant of its full size; any other value as it is.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it cannot be written out.
    pub fn written_out(&mut self, value: ValueId) -> Result<ValueId> {
        let Some(c) = self.broadcast_of(value) else { return Ok(value) };
        let secret = c.secret;
        let Node { name, op, inputs, .. } = self.nodes[value.0].clone();
        let whole = eval::evaluate(&op, &[&c.value], self.sizes())?;
        let id = self.constant(&name, whole, secret);
        Ok(self.remember(id, secret, op, &inputs))
    }

    /// The constant that a value broadcasts.
    fn broadcast_of(&self, value: ValueId) -> Option<&Constant> {
        let node = &self.nodes[value.0];
        if matches!(node.op, Op::Broadcast(_)) { self.constant_of(node.inputs[0]) } else { None }
    }

    /// True if a value is a weight, or computed from one.
    pub fn is_secret(&self, value: ValueId) -> bool {
        self.constant_of(value).is_some_and(|c| c.secret)
    }

    /// Evaluates the network in the clear.
    ///
    /// # Errors
    /// [`Error::Argument`] if the inputs do not fit, [`Error::Node`] where an operation fails.
    pub fn evaluate(&self, inputs: &[HostTensor]) -> Result<Vec<HostTensor>> {
        let sizes = self.sizes();
        self.evaluate_each(inputs, |at, xs| {
            let node = &self.nodes[at];
            eval::evaluate(&node.op, xs, sizes).map_err(|e| e.at(&node.name))
        })
    }

    /// The same, where `each` evaluates the node at a place for its operands.
    pub(crate) fn evaluate_each(
        &self,
        inputs: &[HostTensor],
        each: impl FnMut(usize, &[&HostTensor]) -> Result<HostTensor>,
    ) -> Result<Vec<HostTensor>> {
        let constants: Vec<_> = self.constants.iter().map(|c| c.value.clone()).collect();
        let nodes: Vec<_> = self.nodes.iter().map(Node::view).collect();
        let outputs: Vec<_> = self.outputs.iter().map(|(_, id)| id.0).collect();
        eval::run_each(&nodes, &constants, inputs, &outputs, each)
    }

    pub(crate) fn constant_of(&self, value: ValueId) -> Option<&Constant> {
        match self.nodes[value.0].op {
            Op::Constant(i) => Some(&self.constants[i]),
            _ => None,
        }
    }

    pub(crate) fn push(
        &mut self,
        name: &str,
        op: Op,
        inputs: Vec<ValueId>,
        shape: Shape,
    ) -> ValueId {
        let format = Format::default();
        self.nodes.push(Node { name: name.to_owned(), op, inputs, shape, format, folded: None });
        ValueId(self.nodes.len() - 1)
    }
}

impl Node {
    /// The node without its shape.
    pub(crate) fn view(&self) -> eval::NodeView<'_> {
        let inputs = self.inputs.iter().map(|id| id.0).collect();
        eval::NodeView { name: &self.name, op: &self.op, inputs }
    }
}
