//! A training request: the network without its secret numbers, and how it is trained.
//!
//! Everything that a step does follows from the request, so that servers and the owners of data derive the plan
//! by themselves and need not believe anybody's.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::graphs::standardized::standardize_inputs;
use super::options::TrainOptions;
use crate::graph::{Graph, Op, ValueId};
use crate::host::{HostData, checked_shape};
use crate::plan::{InputSpec, Values, compile::passes};
use crate::{Error, HostTensor, Result};

/// The version of the record, and of how a plan is derived from it.
const VERSION: u32 = 5;

/// The most rows of a step.
const MAX_BATCH: usize = 1 << 20;

/// The most operations, tensors and inputs, and operands of one operation.
const MAX_NODES: usize = 20_000;

/// The longest name, in bytes.
const MAX_NAME: usize = 1000;

/// The most public numbers of a network, and the most that folding them may make.
const MAX_PUBLIC: usize = 1 << 22;
const MAX_FOLDED: usize = 1 << 26;

/// A request for training: a network and the options. [`TrainRequest::derive`] makes the plan of a step from
/// it, the same for every reader.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Record", into = "Record")]
pub struct TrainRequest(Record);

/// A request as it is written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    version: u32,
    batch: usize,
    any_batch: bool,
    options: TrainOptions,
    inputs: Vec<InputSpec>,
    tensors: Vec<TensorRecord>,
    nodes: Vec<NodeRecord>,
    /// The node that the loss compares with the labels.
    output: usize,
}

/// A tensor of the network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TensorRecord {
    name: String,
    dims: Vec<usize>,
    numbers: Numbers,
}

/// The public knowledge about a tensor's numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Numbers {
    /// All of them.
    Public(Values),
    /// None: they are secret and change.
    Trained,
    /// None: they are secret and stay as they are.
    Frozen,
    /// None: they are secret integers.
    FrozenIntegers,
}

/// An operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeRecord {
    name: String,
    op: Op,
    inputs: Vec<usize>,
}

impl TrainRequest {
    /// The request for training `graph` with its batch size, and the numbers of its tensors by name, which stay
    /// with their owner. The loss compares `output` with the labels.
    ///
    /// Frozen parts are simplified first as far as their numbers allow: a batch normalisation joins the layer
    /// before it. The plan itself depends on no secret number.
    ///
    /// # Errors
    /// [`Error::Invalid`] if nothing is trained or the options are out of their range; [`Error::Node`] naming an
    /// operation that cannot be written.
    pub fn new(
        graph: &Graph,
        output: ValueId,
        options: &TrainOptions,
    ) -> Result<(Self, HashMap<String, HostTensor>)> {
        options.check(graph.batch())?;
        let mut network = graph.clone();
        network.outputs.clear();
        network.output("output", output);
        let followed = network.running_statistics(|node| graph.follows_batches(node));
        followed.into_iter().for_each(|id| network.make_parameter(id));
        if options.standardize {
            standardize_inputs(&mut network)?;
        }
        passes::lower::invert_frozen_divisors(&mut network)?;
        passes::norms::fold_frozen(&mut network)?;
        network.sweep();
        network.hide_secrets();
        name_parameters(&mut network)?;
        let secrets = network.constants.iter().filter(|constant| constant.secret);
        let numbers = secrets.map(|c| (c.name.clone(), c.value.clone())).collect();
        let request = Self(Record::new(&network, options)?);
        request.0.check()?;
        Ok((request, numbers))
    }

    /// Rows of a step.
    pub fn batch(&self) -> usize {
        self.0.batch
    }

    /// The number of secret numbers in the network.
    pub fn numbers(&self) -> u64 {
        let secret = self.0.tensors.iter().filter(|t| !matches!(t.numbers, Numbers::Public(_)));
        let len = |t: &TensorRecord| t.dims.iter().fold(1u64, |n, &d| n.saturating_mul(d as u64));
        secret.map(len).fold(0, u64::saturating_add)
    }

    /// The training options.
    pub fn options(&self) -> &TrainOptions {
        &self.0.options
    }

    /// The network for the rows of one machine. Its secret tensors are parameters whose numbers are zeros here.
    pub(super) fn network(&self) -> Result<Graph> {
        let record = &self.0;
        let machines = record.options.crew;
        if machines > 1 && !record.any_batch {
            let reason = "the network is written for one batch size, and each machine has a part of it: write what \
                          depends on it with Dim::Batch";
            return Err(Error::invalid("crew", reason));
        }
        let mut graph = Graph::new(record.batch / machines);
        graph.any_batch = record.any_batch;
        let mut places: Vec<ValueId> = Vec::with_capacity(record.nodes.len());
        let mut folded = 0;
        for node in &record.nodes {
            let place = match node.op {
                Op::Input(k) => {
                    let InputSpec { name, dims, integer, .. } = &record.inputs[k];
                    if *integer {
                        graph.integer_input(name, dims)?
                    } else {
                        graph.input(name, dims)?
                    }
                }
                Op::Constant(k) => record.tensors[k].add_to(&mut graph)?,
                ref op => {
                    let inputs: Vec<_> = node.inputs.iter().map(|&x| places[x]).collect();
                    let known = graph.constants.len();
                    let place = graph.add(&node.name, op.clone(), &inputs)?;
                    if graph.constants.len() > known {
                        folded += graph.shape(place).len();
                    }
                    place
                }
            };
            if folded > MAX_FOLDED {
                let reason = format!("folding makes more than {MAX_FOLDED} public numbers");
                return Err(Error::Node { node: node.name.clone(), reason });
            }
            places.push(place);
        }
        graph.output("output", places[record.output]);
        Ok(graph)
    }
}

impl Record {
    /// A network whose secrets are hidden.
    fn new(network: &Graph, options: &TrainOptions) -> Result<Self> {
        let input = |input: &crate::graph::Input| InputSpec {
            name: input.name.clone(),
            dims: input.dims.clone(),
            integer: input.integer,
            frac: None,
        };
        let mut nodes = Vec::with_capacity(network.nodes.len());
        for node in &network.nodes {
            if node.format != crate::graph::Format::Value {
                let reason = "it has a format of its own, which a request cannot state".to_owned();
                return Err(Error::Node { node: node.name.clone(), reason });
            }
            let op = match node.op {
                Op::Parameter(k) => Op::Constant(k),
                ref op => op.clone(),
            };
            let inputs = node.inputs.iter().map(|x| x.0).collect();
            nodes.push(NodeRecord { name: node.name.clone(), op, inputs });
        }
        Ok(Self {
            version: VERSION,
            batch: network.batch,
            any_batch: network.any_batch,
            options: options.clone(),
            inputs: network.inputs.iter().map(input).collect(),
            tensors: network.constants.iter().map(TensorRecord::new).collect(),
            nodes,
            output: network.only_output()?.0,
        })
    }

    /// Checks a request that was received.
    fn check(&self) -> Result<()> {
        if self.version != VERSION {
            let reason = format!(
                "version {} of a training request is unknown, this is {VERSION}; all programs must be of one version",
                self.version
            );
            return Err(Error::plan(reason));
        }
        if !(1..=MAX_BATCH).contains(&self.batch) {
            let batch = self.batch;
            return Err(Error::plan(format!(
                "{batch} rows a step are not within 1 to {MAX_BATCH}"
            )));
        }
        self.options.check(self.batch)?;
        self.check_sizes()?;
        self.check_names()?;
        self.check_references()
    }

    fn check_sizes(&self) -> Result<()> {
        let operands = self.nodes.iter().map(|node| node.inputs.len()).max().unwrap_or(0);
        let counts = [self.inputs.len(), self.tensors.len(), self.nodes.len(), operands];
        if counts.iter().any(|&count| count > MAX_NODES) {
            return Err(Error::plan(format!("more than {MAX_NODES} parts")));
        }
        let mut public: usize = 0;
        for tensor in &self.tensors {
            let shape = checked_shape("tensor", tensor.dims.clone())?;
            if let Numbers::Public(_) = tensor.numbers {
                public = public.saturating_add(shape.len());
            }
        }
        if public > MAX_PUBLIC {
            return Err(Error::plan(format!("{public} public numbers; at most {MAX_PUBLIC}")));
        }
        Ok(())
    }

    /// Checks that names are short, without control characters, and that no two weights share one.
    fn check_names(&self) -> Result<()> {
        let inputs = self.inputs.iter().map(|input| &input.name);
        let tensors = self.tensors.iter().map(|tensor| &tensor.name);
        let nodes = self.nodes.iter().map(|node| &node.name);
        for name in inputs.chain(tensors).chain(nodes) {
            if name.len() > MAX_NAME || name.chars().any(char::is_control) {
                let reason =
                    format!("names have at most {MAX_NAME} bytes and no control characters");
                return Err(Error::plan(format!("name {name:?}: {reason}")));
            }
        }
        let mut known = HashSet::new();
        let secret = |tensor: &&TensorRecord| !matches!(tensor.numbers, Numbers::Public(_));
        match self.tensors.iter().filter(secret).find(|tensor| !known.insert(&tensor.name)) {
            Some(twice) => Err(Error::plan(format!("two weights are called {:?}", twice.name))),
            None => Ok(()),
        }
    }

    /// Checks that every operation comes after its operands, and is one that networks consist of.
    fn check_references(&self) -> Result<()> {
        let mut inputs = HashSet::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let refused = |reason: &str| {
                Err(Error::Node { node: node.name.clone(), reason: reason.to_owned() })
            };
            match node.op {
                Op::Input(k) if k < self.inputs.len() && k == inputs.len() => {
                    inputs.insert(k);
                }
                Op::Constant(k) if k < self.tensors.len() => {}
                Op::Input(_) | Op::Constant(_) => {
                    return refused("it takes an input or a tensor that is not there");
                }
                Op::Parameter(_) | Op::Linear(_) | Op::Crew { .. } => {
                    return refused("only the planner makes these");
                }
                _ => {}
            }
            let given = matches!(node.op, Op::Input(_) | Op::Constant(_));
            if node.inputs.iter().any(|&x| x >= at) || (given && !node.inputs.is_empty()) {
                return refused("it needs what comes after it");
            }
        }
        if inputs.len() != self.inputs.len() || self.output >= self.nodes.len() {
            return Err(Error::plan("inputs or result are not among the operations"));
        }
        // An input declares the network's properties; formats are the planner's.
        match self.inputs.iter().find(|input| input.frac.is_some()) {
            Some(input) => {
                Err(Error::plan(format!("input {:?} has a format of its own", input.name)))
            }
            None => Ok(()),
        }
    }
}

impl TryFrom<Record> for TrainRequest {
    type Error = Error;

    fn try_from(record: Record) -> Result<Self> {
        record.check()?;
        Ok(Self(record))
    }
}

impl From<TrainRequest> for Record {
    fn from(request: TrainRequest) -> Self {
        request.0
    }
}

impl TensorRecord {
    fn new(constant: &crate::graph::Constant) -> Self {
        let numbers = match constant.value.data() {
            _ if constant.secret && !constant.frozen => Numbers::Trained,
            HostData::Int(_) if constant.secret => Numbers::FrozenIntegers,
            _ if constant.secret => Numbers::Frozen,
            HostData::Int(values) => Numbers::Public(Values::Ints(values.to_vec())),
            _ => Numbers::Public(Values::Floats(constant.value.floats().into_owned())),
        };
        Self { name: constant.name.clone(), dims: constant.value.dims().to_vec(), numbers }
    }

    fn add_to(&self, graph: &mut Graph) -> Result<ValueId> {
        let (name, dims) = (&self.name, self.dims.as_slice());
        let len = checked_shape("tensor", dims)?.len();
        let zeros = || HostTensor::new(dims, vec![0.0; len]);
        match &self.numbers {
            Numbers::Public(values) => Ok(graph.public(name, values.clone().tensor(dims)?)),
            Numbers::Trained => Ok(graph.parameter(name, zeros()?)),
            Numbers::Frozen => Ok(graph.frozen(name, zeros()?)),
            Numbers::FrozenIntegers => {
                Ok(graph.frozen(name, HostTensor::integers(dims, vec![0; len])?))
            }
        }
    }
}

/// Gives every parameter a distinct name.
fn name_parameters(graph: &mut Graph) -> Result<()> {
    if graph.parameters().is_empty() {
        return Err(Error::invalid("train", "no weight is trained; Graph::train selects them"));
    }
    let mut names = HashSet::new();
    for constant in graph.constants.iter_mut().filter(|constant| constant.secret) {
        let mut name = constant.name.clone();
        let mut n = 1;
        while !names.insert(name.clone()) {
            n += 1;
            name = format!("{}.{n}", constant.name);
        }
        constant.name = name;
    }
    Ok(())
}
