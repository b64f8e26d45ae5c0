//! Import of ONNX models, as PyTorch and others export them.

mod advice;
mod attributes;
mod dtype;
mod export;
mod functions;
mod node;
mod ops;
mod order;
mod past;
mod proto;
mod schema;
mod tensor;
#[cfg(test)]
mod tests;
mod value;

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::mem;
use std::path::Path;

use nn_layers::{Dim, Graph, HostTensor, ValueId};
use prost::Message;
use prost::bytes::Bytes;

use crate::error::read;
use crate::{Error, Result};
pub use export::with_weights;
use ops::conv::Pooled;
use ops::masks::Mask;
use ops::quantise::Scale;
use past::Growing;
use proto::{DimensionValue, GraphProto, ModelProto, NodeProto, ValueInfoProto};
use value::{Typed, Value};

/// The opsets that are understood.
const OPSETS: std::ops::RangeInclusive<i64> = 7..=28;

/// The most nodes that loops may make of a model.
const MAX_NODES: usize = 1 << 18;

/// Choices in importing a model.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ImportOptions {
    /// Sizes for named dimensions other than the batch, for instance the length of a sentence.
    pub dims: HashMap<String, usize>,
    /// True if the model is to be trained.
    training: bool,
    /// The result of each step of a language model.
    answers: Answers,
    /// The positions of each step of a language model.
    positions: Option<usize>,
}

/// The result of each step of a language model that keeps keys and values: one whose graph has states.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Answers {
    /// What the file returns: `logits`, the scores of all tokens at each position.
    #[default]
    Logits,
    /// The token with the highest score behind the step's last position, as `token` in the place of `logits`. Among equals
    /// it is the first.
    Token,
    /// A token drawn at random in its place: its probability is that of the softmax of the scores over the temperature, a
    /// positive number. No party knows what is drawn.
    Sample {
        /// Small ones prefer the highest scores.
        temperature: f64,
    },
}

impl ImportOptions {
    /// Returns this of each step of a language model. Other models stay as they are.
    #[must_use]
    pub fn with_answers(mut self, answers: Answers) -> Self {
        self.answers = answers;
        self
    }

    /// Gives each step of a language model this number of positions. Plans for several numbers of them go on from the same
    /// caches. Other models stay as they are.
    #[must_use]
    pub fn with_positions(mut self, positions: usize) -> Self {
        self.positions = Some(positions);
        self
    }

    /// Gives a named dimension its size.
    #[must_use]
    pub fn with_dim(mut self, name: &str, size: usize) -> Self {
        self.dims.insert(name.to_owned(), size);
        self
    }

    /// Takes nodes in training mode too. A plan of inference made from them computes the results of the model
    /// as it is after training, not those that the file defines.
    #[must_use]
    pub fn for_training(mut self) -> Self {
        self.training = true;
        self
    }
}

/// Imports a model file, and the file of numbers that an exporter may have put in the same folder.
///
/// Constants are computed in the clear; real numbers of the model become secret weights. If the
/// model leaves its inputs' first dimension open, the plan made from the graph serves every batch
/// size.
///
/// # Errors
/// [`Error::Io`] if a file cannot be read, and those of [`import`].
pub fn import_file(path: &Path, options: &ImportOptions) -> Result<Graph> {
    let model = decoded(read(path)?.into())?;
    import_from(model, path.parent(), options)
}

/// Imports a model from memory.
///
/// # Errors
/// [`Error::Format`] if this is not an ONNX model, or a damaged one; [`Error::Unsupported`] naming the
/// first node with an operator that cannot be run; [`Error::Node`] or [`Error::Network`] if a node
/// is not valid or its operands do not fit.
///
/// # Example
/// ```
/// let error = models::onnx::import(b"not a model", &Default::default()).unwrap_err();
/// assert!(error.to_string().starts_with("ONNX model: "));
/// ```
pub fn import(bytes: &[u8], options: &ImportOptions) -> Result<Graph> {
    import_from(decoded(Bytes::copy_from_slice(bytes))?, None, options)
}

fn decoded(bytes: Bytes) -> Result<ModelProto> {
    ModelProto::decode(bytes).map_err(|cause| {
        let reason = format!("this is no ONNX file, or a damaged one ({cause})");
        Error::format("ONNX model", reason)
    })
}

fn import_from(model: ModelProto, folder: Option<&Path>, options: &ImportOptions) -> Result<Graph> {
    let wrong = |reason: String| Error::format("ONNX model", reason);
    let opset = opset(&model)?;
    let mut graph = model.graph.ok_or_else(|| wrong("it has no graph".to_owned()))?;
    if let Some(f) = model.functions.iter().find(|f| imported(&f.opset_import) != Some(opset)) {
        let reason = format!("function `{}` is of another opset than the model, {opset}", f.name);
        return Err(wrong(reason));
    }
    functions::inline(&mut graph, &model.functions)?;
    order::sort(&mut graph)?;
    check_supported(&graph.node, opset)?;
    check_texts(&graph)?;
    let mut stored = Vec::with_capacity(graph.initializer.len());
    // Large files: their numbers are not held twice.
    for t in mem::take(&mut graph.initializer) {
        let value = tensor::decode(&t, folder)?;
        // Minus infinity may be a mask's; where it is not, planning refuses it.
        let mut wild = false;
        value.each_chunk(4096, |chunk| {
            wild |= chunk.iter().any(|v| v.is_nan() || *v == f64::INFINITY);
        });
        if wild {
            value.check_finite().map_err(|e| wrong(format!("tensor `{}`: {e}", t.name)))?;
        }
        stored.push(Stored { name: t.name, kind: t.data_type, value });
    }
    check_dims(&graph, options)?;
    if let Some(new) = past::new_positions(&graph, options)? {
        return past::build(&graph, &stored, opset, options, new);
    }
    let build = |batch| Importer::build(&graph, &stored, opset, options, (batch, None));
    // Comparing two sizes finds the dimensions that grow with the batch. A model that leaves the size open
    // but turns out to fit one only is built for size 1.
    let several = build(2).and_then(|(first, open)| match open {
        true => Ok(first.unify(&build(3)?.0)),
        false => Ok(first),
    });
    match several {
        Ok(graph) if graph.batch() == 2 && graph.serves_any_batch() => Ok(graph),
        _ => {
            let (graph, _) = build(1)?;
            Ok(graph)
        }
    }
}

/// Refuses two lists of texts: a text is its position in the only one.
fn check_texts(graph: &GraphProto) -> Result<()> {
    let mut lists = graph.initializer.iter().filter(|t| t.data_type == dtype::STRING);
    let Some(first) = lists.next() else { return Ok(()) };
    match lists.find(|other| other.string_data != first.string_data) {
        None => Ok(()),
        Some(other) => {
            let reason = format!("`{}` and `{}` are two lists of texts", first.name, other.name);
            Err(Error::format("ONNX model", format!("{reason}; give labels as integers")))
        }
    }
}

/// Refuses a size for a dimension that no input has.
fn check_dims(graph: &GraphProto, options: &ImportOptions) -> Result<()> {
    let shapes =
        graph.input.iter().filter_map(|i| i.kind.as_ref()?.tensor.as_ref()?.shape.as_ref());
    let names = shapes.flat_map(|shape| &shape.dim).filter_map(|dim| match &dim.value {
        Some(DimensionValue::Name(name)) => Some(name.as_str()),
        _ => None,
    });
    let names: std::collections::BTreeSet<_> = names.collect();
    match options.dims.keys().find(|name| !names.contains(name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let reason = format!("no input has a dimension `{name}`; there are {names:?}");
            Err(Error::format("ONNX model", reason))
        }
    }
}

/// The opset of ONNX's own operators.
fn imported(opsets: &[proto::OperatorSetIdProto]) -> Option<i64> {
    opsets.iter().find(|o| node::is_main(&o.domain)).map(|o| o.version)
}

fn opset(model: &ModelProto) -> Result<i64> {
    let wrong = |reason: String| Error::format("ONNX model", reason);
    // Files of scikit-learn's converters may name the opset of tables alone.
    let newest = (!model.opset_import.is_empty()).then_some(*OPSETS.end());
    let version = imported(&model.opset_import).or(newest);
    let version =
        version.ok_or_else(|| wrong("this is no ONNX file: it names no opset".to_owned()))?;
    if OPSETS.contains(&version) {
        return Ok(version);
    }
    let (low, high) = (OPSETS.start(), OPSETS.end());
    Err(wrong(format!("opset {version}; {low} to {high} are understood: export with one of these")))
}

/// Checks every node's operator before any work is done. An error names all that cannot be run, and replacements to
/// export instead.
fn check_supported(nodes: &[NodeProto], opset: i64) -> Result<()> {
    let mut missing = vec![];
    find_missing(nodes, &mut missing);
    let Some((node, operator)) = missing.first().cloned() else { return Ok(()) };
    let mut reason = format!("(opset {opset}): {}", advice::instead_of(&operator));
    for (at, (node, other)) in missing.iter().enumerate().skip(1) {
        if missing[..at].iter().all(|(_, before)| before != other) {
            let advice = advice::instead_of(other);
            let _ = write!(reason, "; nor is {other} (node `{node}`): {advice}");
        }
    }
    Err(Error::Unsupported { node, operator, reason })
}

/// Nodes, also those of bodies, whose operators are not understood, by name and operator.
fn find_missing(nodes: &[NodeProto], missing: &mut Vec<(String, String)>) {
    for (i, n) in nodes.iter().enumerate() {
        let operator = node::operator(n);
        if !node::is_supported(&operator) {
            missing.push((node::name(n, i), operator));
        }
        for body in n.attribute.iter().filter_map(|a| a.g.as_deref()) {
            find_missing(&body.node, missing);
        }
    }
}

/// Names of the values that every user makes a softmax's operand of, moved, added to or multiplied.
fn scores(graph: &GraphProto) -> HashMap<String, Score> {
    let mut nodes = vec![];
    let mut elsewhere = HashSet::new();
    list_nodes(graph, &mut nodes, &mut elsewhere);
    let mut scores: HashMap<&str, Score> = HashMap::new();
    // Users of a value come after the node that makes it.
    for node in nodes.iter().rev() {
        let mut outputs = node.output.iter().map(String::as_str).filter(|name| !name.is_empty());
        let used = match node.op_type.as_str() {
            "Softmax" | "LogSoftmax" => Some(Score::Added),
            // The sizes of scores are not scores.
            "Shape" | "Size" => continue,
            "Add" | "Sub" | "Mul" | "Div" | "Neg" | "Where" | "Max" | "Min" | "Sum" | "Reshape"
            | "Transpose" | "Squeeze" | "Unsqueeze" | "Expand" | "Cast" | "CastLike"
            | "Identity" | "Dropout" | "Slice" | "Gather" | "Concat" | "Tile" | "Flatten"
            | "Split" | "Trilu" | "ScatterND" | "ScatterElements" => outputs
                .find_map(|output| scores.get(output).filter(|_| !elsewhere.contains(output)))
                .copied(),
            _ => None,
        };
        for (i, name) in node.input.iter().map(String::as_str).enumerate() {
            let turns = matches!((node.op_type.as_str(), i), ("Sub", 1) | ("Neg", 0));
            let Some(score) = used.map(|score| if turns { score.turned() } else { score }) else {
                elsewhere.insert(name);
                continue;
            };
            // What is added here and taken away there is a number.
            if scores.insert(name, score).is_some_and(|before| before != score) {
                elsewhere.insert(name);
            }
        }
    }
    let alone = scores.into_iter().filter(|(name, _)| !elsewhere.contains(name));
    alone.map(|(name, score)| (name.to_owned(), score)).collect()
}

/// The way in which a value becomes part of a softmax's operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Score {
    /// Very negative numbers hide their places.
    Added,
    /// It is subtracted: very large numbers do.
    TakenAway,
}

impl Score {
    pub fn turned(self) -> Self {
        match self {
            Self::Added => Self::TakenAway,
            Self::TakenAway => Self::Added,
        }
    }
}

/// All nodes, those of a body after the node that has it, and the names of results, which are used outside.
fn list_nodes<'a>(
    graph: &'a GraphProto,
    nodes: &mut Vec<&'a NodeProto>,
    elsewhere: &mut HashSet<&'a str>,
) {
    elsewhere.extend(graph.output.iter().map(|output| output.name.as_str()));
    for node in &graph.node {
        nodes.push(node);
        let bodies = node.attribute.iter().filter_map(|a| a.g.as_deref());
        bodies.for_each(|body| list_nodes(body, nodes, elsewhere));
    }
}

/// A tensor of the file.
struct Stored {
    name: String,
    /// The type of its elements.
    kind: i32,
    value: HostTensor,
}

/// The sizes of an input's dimensions, where the file or the options give them, or else their names.
fn sizes<'a>(info: &'a ValueInfoProto, options: &ImportOptions) -> Vec<Result<usize, &'a str>> {
    let shape = info.kind.as_ref().and_then(|kind| kind.tensor.as_ref()?.shape.as_ref());
    let size = |value: &'a Option<DimensionValue>| match value {
        Some(DimensionValue::Size(n)) if *n > 0 => usize::try_from(*n).map_err(|_| ""),
        Some(DimensionValue::Name(name)) => options.dims.get(name).copied().ok_or(name.as_str()),
        _ => Err(""),
    };
    shape.into_iter().flat_map(|shape| &shape.dim).map(|dim| size(&dim.value)).collect()
}

/// The state of one import.
pub(crate) struct Importer<'a> {
    pub graph: Graph,
    pub opset: i64,
    options: &'a ImportOptions,
    /// Values by their names in the file: those of the model, and of each body that is being imported.
    scopes: Vec<HashMap<String, Value>>,
    /// Computed values that are integers or truth values.
    integers: HashSet<ValueId>,
    /// Names of the values that only a softmax sees.
    scores: HashMap<String, Score>,
    /// Masks of values that hide places from a softmax.
    pub masks: HashMap<ValueId, Mask>,
    /// Scales that depend on the input.
    pub scales: HashMap<ValueId, Scale>,
    /// Positions of largest elements.
    pub pooled: HashMap<ValueId, Pooled>,
    open_batch: bool,
    /// The step that is built, of a model with keys and values of earlier ones.
    growing: Option<Growing>,
    /// States by their names, until they are extended.
    states: HashMap<String, ValueId>,
    /// Nodes imported so far.
    nodes: usize,
}

impl<'a> Importer<'a> {
    /// Builds the graph for a batch size. Also returns true if the model leaves that size open.
    fn build(
        proto: &GraphProto,
        stored: &[Stored],
        opset: i64,
        options: &'a ImportOptions,
        (batch, growing): (usize, Option<Growing>),
    ) -> Result<(Graph, bool)> {
        let graph = Graph::new(batch);
        let mut this = Self {
            graph: match growing {
                Some(growing) => graph.with_past(growing.past),
                None => graph,
            },
            opset,
            options,
            scopes: vec![HashMap::new()],
            integers: HashSet::new(),
            scores: scores(proto),
            masks: HashMap::new(),
            scales: HashMap::new(),
            pooled: HashMap::new(),
            open_batch: false,
            growing,
            states: HashMap::new(),
            nodes: 0,
        };
        let known: HashSet<_> = stored.iter().map(|tensor| tensor.name.as_str()).collect();
        for input in proto.input.iter().filter(|i| !known.contains(i.name.as_str())) {
            this.input(input)?;
        }
        if !this.open_batch || batch == 1 {
            this.graph.fix_batch();
        }
        let angles = growing.map(|_| past::angles(proto)).unwrap_or_default();
        for Stored { name, kind, value } in stored {
            let id = if angles.contains(name.as_str()) {
                this.graph.public(name, value.clone())
            } else {
                this.weight(name, value.clone())
            };
            this.define(name, Typed { id, kind: *kind }.into());
        }
        this.nodes(&proto.node)?;
        for output in &proto.output {
            this.output(&output.name)?;
        }
        if proto.output.is_empty() {
            return Err(Error::format("ONNX model", "it has no outputs"));
        }
        this.check_states()?;
        this.graph.sweep();
        Ok((this.graph, this.open_batch))
    }

    /// A number of the model: integers belong to the structure, real numbers are weights.
    fn weight(&mut self, name: &str, value: HostTensor) -> ValueId {
        if value.is_int() { self.graph.public(name, value) } else { self.graph.weight(name, value) }
    }

    fn nodes(&mut self, nodes: &[NodeProto]) -> Result<()> {
        for (i, n) in nodes.iter().enumerate() {
            self.nodes += 1;
            if self.nodes > MAX_NODES {
                let reason = format!("its loops make more than {MAX_NODES} nodes");
                return Err(Error::format("ONNX model", reason));
            }
            node::import(self, n, i)?;
        }
        Ok(())
    }

    /// Names a value as a result of the model: a list as its members in order.
    fn output(&mut self, name: &str) -> Result<()> {
        let wrong = |reason: &str| Error::format("ONNX model", format!("output `{name}` {reason}"));
        match self.value(name).cloned() {
            Some(Value::Tensor(value)) => {
                if !self.known_output(name, value.id)? && !self.token_of(name, value.id)? {
                    self.graph.output(name, value.id);
                }
            }
            Some(Value::Sequence(values)) => {
                for (i, value) in values.iter().enumerate() {
                    self.graph.output(&format!("{name}.{i}"), value.id);
                }
            }
            Some(Value::Nothing) => return Err(wrong("is an optional value that is not there")),
            None => return Err(wrong("is never computed")),
        }
        Ok(())
    }

    /// Imports a body with its operands and returns its results. Names that it does not define are looked up outside
    /// of it.
    pub fn body(&mut self, body: &GraphProto, operands: Vec<Value>) -> Result<Vec<Value>> {
        let mut own: HashMap<_, _> = HashMap::new();
        for t in &body.initializer {
            let id = self.weight(&t.name, tensor::decode(t, None)?);
            own.insert(t.name.clone(), Typed { id, kind: t.data_type }.into());
        }
        own.extend(body.input.iter().map(|i| i.name.clone()).zip(operands));
        self.scopes.push(own);
        let made = self.nodes(&body.node).and_then(|()| {
            let result = |output: &ValueInfoProto| {
                let missing = || format!("a body's result `{}` is never computed", output.name);
                let value = self.value(&output.name).cloned();
                value.ok_or_else(|| Error::format("ONNX model", missing()))
            };
            body.output.iter().map(result).collect()
        });
        self.scopes.pop();
        made
    }

    fn input(&mut self, info: &ValueInfoProto) -> Result<()> {
        if let Some(growing) = self.growing
            && self.known_input(info, growing)?
        {
            return Ok(());
        }
        let wrong =
            |reason: String| Error::format("ONNX model", format!("input `{}` {reason}", info.name));
        let tensor = info.kind.as_ref().and_then(|k| k.tensor.as_ref());
        let tensor = tensor.ok_or_else(|| wrong("is not a tensor".to_owned()))?;
        let kind = tensor.elem_type;
        let float = dtype::is_float(kind).ok_or_else(|| {
            let remedy = match kind {
                dtype::STRING => "; encode texts as numbers before they are shared",
                _ => "",
            };
            wrong(format!("has unsupported element type {}{remedy}", dtype::name(kind)))
        })?;
        if tensor.shape.is_none() {
            return Err(wrong("has no shape".to_owned()));
        }
        let mut dims = vec![];
        for (axis, size) in sizes(info, self.options).into_iter().enumerate() {
            // A conversation is one sequence.
            let step = self.growing.and_then(|growing| [1, growing.new].get(axis).copied());
            dims.push(match size.or_else(|name| step.ok_or(name)) {
                Ok(n) => Dim::Fixed(n),
                Err(_) if axis == 0 => {
                    self.open_batch = true;
                    Dim::Batch(1)
                }
                Err(name) => {
                    let reason = if name.is_empty() {
                        "which has no name; export the model with a size for it".to_owned()
                    } else {
                        format!("give it a size: `--dim {name}=16`, or `dims` in Python")
                    };
                    return Err(wrong(format!(
                        "leaves dimension {axis} (`{name}`) open; {reason}"
                    )));
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
        self.define(&info.name, Typed { id, kind }.into());
        Ok(())
    }

    /// True if the model is to be trained.
    pub fn is_trained(&self) -> bool {
        self.options.training
    }

    /// The way in which a value becomes a softmax's operand, moved, added to or multiplied, if it does.
    pub fn score(&self, name: &str) -> Option<Score> {
        self.scores.get(name).copied()
    }

    pub fn value(&self, name: &str) -> Option<&Value> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name))
    }

    pub fn define(&mut self, name: &str, value: Value) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.to_owned(), value);
        }
    }

    /// True if a value consists of integers or truth values.
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
