//! Plans as they are written and read.

use mpc_core::Profile;
use ring_arith::Shape;
use serde::{Deserialize, Serialize};

use super::complete::{Parts, complete};
use super::{ConstantSpec, InputSpec, Plan, PlanNode, StateSpec};
use crate::graph::Op;
use crate::host::checked_shape;
use crate::{Error, HostTensor, Result};

/// The version written; older ones are read as long as they mean the same.
const VERSION: u32 = 1;

/// The most nodes, constants or operands that a plan from outside may have.
const MAX_NODES: usize = 100_000;

/// The longest name that a plan from outside may have.
const MAX_NAME: usize = 1000;

/// A plan without the properties that follow from the rest.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    version: u32,
    frac: u32,
    batch: Option<usize>,
    inputs: Vec<InputSpec>,
    constants: Vec<ConstantRecord>,
    nodes: Vec<NodeRecord>,
    outputs: Vec<(String, usize)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    states: Vec<StateSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    most_past: Option<usize>,
    #[serde(default, skip_serializing_if = "is_false")]
    guard: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    profile: Option<Profile>,
    #[serde(default, skip_serializing_if = "is_false")]
    public_weights: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConstantRecord {
    name: String,
    dims: Vec<usize>,
    frac: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    public: Option<Values>,
}

/// The numbers of a public tensor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Values {
    Floats(Vec<f64>),
    Ints(Vec<i64>),
}

impl Values {
    /// The tensor of these numbers.
    pub(crate) fn tensor(self, dims: &[usize]) -> Result<HostTensor> {
        match self {
            Self::Floats(values) => {
                let value = HostTensor::new(dims, values)?;
                value.check_finite()?;
                Ok(value)
            }
            Self::Ints(values) => HostTensor::integers(dims, values),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeRecord {
    name: String,
    op: Op,
    inputs: Vec<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    frac: Option<u32>,
}

impl From<Plan> for Record {
    fn from(plan: Plan) -> Self {
        let constants = plan.constants.into_iter().map(|c| ConstantRecord {
            name: c.name,
            dims: c.shape.dims().to_vec(),
            frac: c.frac,
            public: c.public.map(|t| match t.as_ints() {
                Ok(values) => Values::Ints(values.to_vec()),
                Err(_) => Values::Floats(t.floats().into_owned()),
            }),
        });
        let nodes = plan.nodes.into_iter();
        let nodes =
            nodes.map(|n| NodeRecord { name: n.name, op: n.op, inputs: n.inputs, frac: n.frac });
        Self {
            version: VERSION,
            frac: plan.frac,
            batch: plan.batch,
            inputs: plan.inputs,
            constants: constants.collect(),
            nodes: nodes.collect(),
            outputs: plan.outputs,
            states: plan.states,
            most_past: plan.most_past,
            guard: plan.guard,
            profile: plan.profile,
            public_weights: plan.public_weights,
        }
    }
}

impl TryFrom<Record> for Plan {
    type Error = Error;

    fn try_from(record: Record) -> Result<Self> {
        if record.version != VERSION {
            let reason = format!("version {} is unknown, this is {VERSION}", record.version);
            return Err(Error::plan(reason));
        }
        check_sizes(&record)?;
        let constants = record.constants.into_iter().map(read_constant);
        let nodes = record.nodes.into_iter();
        let nodes =
            nodes.map(|n| PlanNode { name: n.name, op: n.op, inputs: n.inputs, frac: n.frac });
        complete(Parts {
            frac: record.frac,
            batch: record.batch,
            inputs: record.inputs,
            constants: constants.collect::<Result<_>>()?,
            nodes: nodes.collect(),
            outputs: record.outputs,
            states: record.states,
            most_past: record.most_past,
            guard: record.guard,
            profile: record.profile,
            public_weights: record.public_weights,
        })
    }
}

// Serde asks with a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_false(value: &bool) -> bool {
    !value
}

fn check_sizes(record: &Record) -> Result<()> {
    let counts = [
        record.inputs.len(),
        record.constants.len(),
        record.nodes.len(),
        record.outputs.len(),
        record.states.len(),
    ];

    let operands = record.nodes.iter().map(|n| n.inputs.len()).max().unwrap_or(0);
    if counts.into_iter().any(|n| n > MAX_NODES) || operands > MAX_NODES {
        return Err(Error::plan(format!("more than {MAX_NODES} parts")));
    }
    let names = record.inputs.iter().map(|i| &i.name);
    let names = names.chain(record.constants.iter().map(|c| &c.name));
    let names = names.chain(record.nodes.iter().map(|n| &n.name));
    if names.chain(record.outputs.iter().map(|o| &o.0)).any(|n| n.len() > MAX_NAME) {
        return Err(Error::plan(format!("a name has more than {MAX_NAME} bytes")));
    }
    Ok(())
}

fn read_constant(c: ConstantRecord) -> Result<ConstantSpec> {
    let shape: Shape = checked_shape("constant", c.dims)?;
    let public = c.public.map(|values| values.tensor(shape.dims())).transpose()?;
    Ok(ConstantSpec { name: c.name, shape, frac: c.frac, public })
}
