//! Import of ONNX models, as PyTorch and others export them.

mod attributes;
mod export;
mod node;
mod ops;
mod proto;
mod tensor;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::path::Path;

use nn_layers::{Dim, Graph, HostTensor, ValueId};
use prost::Message;

use crate::error::read;
use crate::{Error, Result};
pub use export::with_weights;
use proto::{DimensionValue, GraphProto, ModelProto, ValueInfoProto};

/// The opsets that are understood.
const OPSETS: std::ops::RangeInclusive<i64> = 11..=21;

/// Choices in importing a model.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ImportOptions {
    /// Sizes for named dimensions other than the batch, for instance the length of a sentence.
    pub dims: HashMap<String, usize>,
}

impl ImportOptions {
    /// Gives a named dimension its size.
    #[must_use]
    pub fn with_dim(mut self, name: &str, size: usize) -> Self {
        self.dims.insert(name.to_owned(), size);
        self
    }
}

/// Imports a model file, and the file of numbers that an exporter may have put beside it.
///
/// Constants are computed in the clear; real numbers of the model become secret weights. If the
/// model leaves its inputs' first dimension open, the plan made from the graph serves every batch
/// size.
///
/// # Errors
/// [`Error::Io`] if a file cannot be read, and those of [`import`].
pub fn import_file(path: &Path, options: &ImportOptions) -> Result<Graph> {
    import_from(&read(path)?, path.parent(), options)
}

/// Imports a model from memory.
///
/// # Errors
/// [`Error::Format`] if this is no ONNX model, or a damaged one; [`Error::Unsupported`] naming the
/// first node with an operator that cannot be run; [`Error::Node`] or [`Error::Network`] if a node
/// is not valid or its operands do not fit.
///
/// # Example
/// ```
/// let error = models::onnx::import(b"not a model", &Default::default()).unwrap_err();
/// assert!(error.to_string().starts_with("ONNX model: "));
/// ```
pub fn import(bytes: &[u8], options: &ImportOptions) -> Result<Graph> {
    import_from(bytes, None, options)
}

fn import_from(bytes: &[u8], folder: Option<&Path>, options: &ImportOptions) -> Result<Graph> {
    let wrong = |reason: String| Error::format("ONNX model", reason);
    let model = ModelProto::decode(bytes)
        .map_err(|e| wrong(format!("this is no ONNX file, or a damaged one ({e})")))?;
    let opset = opset(&model)?;
    if let Some(f) = model.functions.first() {
        return Err(Error::Unsupported {
            node: f.name.clone(),
            operator: f.name.clone(),
            reason: "because the model defines it itself; export without functions".to_owned(),
        });
    }
    let graph = model.graph.ok_or_else(|| wrong("it has no graph".to_owned()))?;
    check_supported(&graph, opset)?;
    let mut weights = HashMap::new();
    for t in &graph.initializer {
        let value = tensor::decode(t, folder)?;
        // Minus infinity may be a mask's; where it is not, planning refuses it.
        let wild = |v: &f64| v.is_nan() || *v == f64::INFINITY;
        if !value.is_int() && value.floats().iter().any(wild) {
            value.check_finite().map_err(|e| wrong(format!("tensor `{}`: {e}", t.name)))?;
        }
        weights.insert(t.name.as_str(), value);
    }
    let build = |batch| Importer::build(&graph, &weights, opset, options, batch);
    // What grows with the batch is found by comparing two sizes; a model that leaves the size open
    // but turns out to fit one only is built for size 1.
    let several = build(2).and_then(|(first, open)| match open {
        true => Ok(first.unify(&build(3)?.0)),
        false => Ok(first),
    });
    match several {
        Ok(graph) if graph.batch() == 2 && graph.serves_any_batch() => Ok(graph),
        _ => {
            let (mut graph, open) = build(1)?;
            if open {
                graph.fix_batch();
            }
            Ok(graph)
        }
    }
}

fn opset(model: &ModelProto) -> Result<i64> {
    let main = |d: &str| d.is_empty() || d == "ai.onnx";
    let found = model.opset_import.iter().find(|o| main(&o.domain)).map(|o| o.version);
    let wrong = |reason: String| Error::format("ONNX model", reason);
    let version =
        found.ok_or_else(|| wrong("this is no ONNX file: it names no opset".to_owned()))?;
    if OPSETS.contains(&version) {
        return Ok(version);
    }
    let (low, high) = (OPSETS.start(), OPSETS.end());
    Err(wrong(format!("opset {version}; {low} to {high} are understood: export with one of these")))
}

/// Looks at every node's operator before any work is done.
fn check_supported(graph: &GraphProto, opset: i64) -> Result<()> {
    for (i, n) in graph.node.iter().enumerate() {
        let main = n.domain.is_empty() || n.domain == "ai.onnx";
        if !main || !node::is_supported(&n.op_type) {
            let operator =
                if main { n.op_type.clone() } else { format!("{}.{}", n.domain, n.op_type) };
            let reason = format!("(opset {opset})");
            return Err(Error::Unsupported { node: node::name(n, i), operator, reason });
        }
    }
    Ok(())
}

/// Names of the values that become a softmax's operand, moved, added to or multiplied.
fn scores(graph: &GraphProto) -> HashSet<String> {
    let mut scores: HashSet<String> = HashSet::new();
    for node in graph.node.iter().rev() {
        let taken = match node.op_type.as_str() {
            "Softmax" | "LogSoftmax" => &node.input[..],
            "Add" | "Sub" | "Mul" | "Div" | "Where" | "Max" | "Min" | "Sum" | "Reshape"
            | "Transpose" | "Squeeze" | "Unsqueeze" | "Expand" | "Cast" | "CastLike"
            | "Identity" | "Dropout" | "Slice" | "Gather" | "Concat" | "Tile" | "Flatten"
            | "Split" | "Trilu"
                if node.output.iter().any(|output| scores.contains(output)) =>
            {
                &node.input[..]
            }
            _ => continue,
        };
        scores.extend(taken.iter().cloned());
    }
    scores
}

/// The state of one import.
pub(crate) struct Importer<'a> {
    pub graph: Graph,
    pub opset: i64,
    options: &'a ImportOptions,
    /// Values by their names in the file.
    values: HashMap<String, ValueId>,
    /// Computed values that are integers or truth values.
    integers: HashSet<ValueId>,
    /// Names of the values that become a softmax's operand.
    scores: HashSet<String>,
    open_batch: bool,
}

impl<'a> Importer<'a> {
    /// Builds the graph for a batch size; also says whether the model leaves that open.
    fn build(
        proto: &GraphProto,
        weights: &HashMap<&str, HostTensor>,
        opset: i64,
        options: &'a ImportOptions,
        batch: usize,
    ) -> Result<(Graph, bool)> {
        let mut this = Self {
            graph: Graph::new(batch),
            opset,
            options,
            values: HashMap::new(),
            integers: HashSet::new(),
            scores: scores(proto),
            open_batch: false,
        };
        for input in proto.input.iter().filter(|i| !weights.contains_key(i.name.as_str())) {
            this.input(input)?;
        }
        for t in &proto.initializer {
            let value = weights[t.name.as_str()].clone();
            let id = if value.is_int() {
                this.graph.public(&t.name, value)
            } else {
                this.graph.weight(&t.name, value)
            };
            this.values.insert(t.name.clone(), id);
        }
        for (i, n) in proto.node.iter().enumerate() {
            node::import(&mut this, n, i)?;
        }
        for output in &proto.output {
            let id = this.values.get(&output.name).copied().ok_or_else(|| {
                Error::format("ONNX model", format!("output `{}` is never computed", output.name))
            })?;
            this.graph.output(&output.name, id);
        }
        if proto.output.is_empty() {
            return Err(Error::format("ONNX model", "it has no outputs"));
        }
        if !this.open_batch {
            this.graph.fix_batch();
        }
        this.graph.sweep();
        Ok((this.graph, this.open_batch))
    }

    fn input(&mut self, info: &ValueInfoProto) -> Result<()> {
        let wrong =
            |reason: String| Error::format("ONNX model", format!("input `{}` {reason}", info.name));
        let tensor = info.kind.as_ref().and_then(|k| k.tensor.as_ref());
        let tensor = tensor.ok_or_else(|| wrong("is not a tensor".to_owned()))?;
        let float = tensor::dtype::is_float(tensor.elem_type)
            .ok_or_else(|| wrong(format!("has unsupported element type {}", tensor.elem_type)))?;
        let shape = tensor.shape.as_ref().ok_or_else(|| wrong("has no shape".to_owned()))?;
        let mut dims = vec![];
        for (axis, dim) in shape.dim.iter().enumerate() {
            let (size, name) = match &dim.value {
                Some(DimensionValue::Size(n)) if *n > 0 => (usize::try_from(*n).ok(), ""),
                Some(DimensionValue::Name(name)) => {
                    (self.options.dims.get(name).copied(), name.as_str())
                }
                _ => (None, ""),
            };
            dims.push(match size {
                Some(n) => Dim::Fixed(n),
                None if axis == 0 => {
                    self.open_batch = true;
                    Dim::Batch(1)
                }
                None => {
                    let hint = "give it a size when importing";
                    return Err(wrong(format!("leaves dimension {axis} (`{name}`) open; {hint}")));
                }
            });
        }
        let id = if float {
            self.graph.input(&info.name, &dims)?
        } else {
            self.graph.integer_input(&info.name, &dims)?
        };
        if !float {
            self.integers.insert(id);
        }
        self.values.insert(info.name.clone(), id);
        Ok(())
    }

    /// Whether a value becomes a softmax's operand, moved, added to or multiplied.
    pub fn is_score(&self, name: &str) -> bool {
        self.scores.contains(name)
    }

    pub fn value(&self, name: &str) -> Option<ValueId> {
        self.values.get(name).copied()
    }

    pub fn define(&mut self, name: &str, id: ValueId) {
        self.values.insert(name.to_owned(), id);
    }

    /// Whether a value consists of integers or truth values.
    pub fn is_integer(&self, id: ValueId) -> bool {
        match self.graph.constant_value(id) {
            Some(c) => c.is_int(),
            None => self.integers.contains(&id),
        }
    }

    pub fn mark_integer(&mut self, id: ValueId) {
        self.integers.insert(id);
    }
}
