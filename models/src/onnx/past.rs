//! Models that go on from keys and values of earlier steps, as onnxruntime-genai and optimum export them.
//!
//! Their inputs `past_key_values.N.key` and `.value` become states, which the results `present.N.key` and `.value`
//! extend. Positions and the mask of those that count are public: a step's positions follow the cached ones, and
//! all count.

use std::collections::HashSet;

use nn_layers::{Dim, Graph, HostTensor, Op, ValueId};

use super::proto::{GraphProto, ValueInfoProto};
use super::value::Typed;
use super::{Answers, ImportOptions, Importer, Stored, sizes};
use crate::{Error, Result};

/// Cached positions for which a graph is built. Comparing the first two finds what grows; the third must follow.
const LENGTHS: [usize; 3] = [3, 5, 8];

/// The beginnings of the names of keys and values that come in, and of those that go out.
const PAST: &str = "past_key_values.";
const PRESENT: [&str; 2] = ["present.", "present_key_values."];

/// The name of the scores of tokens, `[batch, positions, tokens]`, and that of the token with the highest one.
const LOGITS: &str = "logits";
const TOKEN: &str = "token";

/// The axis of positions in `[batch, heads, positions, size]`.
const AXIS: usize = 2;

/// A step of a model with states.
#[derive(Debug, Clone, Copy)]
pub(super) struct Growing {
    /// Positions that are cached.
    pub past: usize,
    /// Positions of the step.
    pub new: usize,
}

/// An input of such a model that is not one of the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// Keys or values.
    State,
    /// `[batch, new]` or `[new]`: the step's positions.
    Positions,
    /// `[batch, past + new]`: 1 for each position that counts.
    Mask,
    /// `[1]`: true for the branch of a file with two of them that goes on from caches, also from empty ones.
    Branch,
}

impl Known {
    fn of(name: &str) -> Option<Self> {
        match name {
            "position_ids" | "cache_position" => Some(Self::Positions),
            "attention_mask" => Some(Self::Mask),
            "use_cache_branch" => Some(Self::Branch),
            _ if name.starts_with(PAST) => Some(Self::State),
            _ => None,
        }
    }
}

/// The positions of a step, if a model has states that grow: those of the options, or as many as `input_ids` or
/// `inputs_embeds` have, one where both leave that open. A model whose caches have a fixed length has inputs like others.
///
/// # Errors
/// [`Error::Format`] if it has neither of these inputs.
pub(super) fn new_positions(graph: &GraphProto, options: &ImportOptions) -> Result<Option<usize>> {
    let grows = |info: &ValueInfoProto| {
        info.name.starts_with(PAST) && sizes(info, options).get(AXIS).is_some_and(Result::is_err)
    };
    if !graph.input.iter().any(grows) {
        return Ok(None);
    }
    let of_tokens =
        |info: &&ValueInfoProto| matches!(info.name.as_str(), "input_ids" | "inputs_embeds");
    let tokens = graph.input.iter().find(of_tokens).ok_or_else(|| {
        let reason =
            "it has keys and values of earlier steps, but no input `input_ids` or `inputs_embeds`";
        Error::format("ONNX model", reason)
    })?;
    let own = sizes(tokens, options).get(1).copied().and_then(Result::ok);
    match (own, options.positions) {
        // What a file says of one number of positions may not be so for another: its mask, for instance.
        (Some(own), Some(asked)) if own != asked => {
            let reason =
                format!("its steps have {own} positions, not {asked}; export it with any number");
            Err(Error::format("ONNX model", reason))
        }
        (own, asked) => Ok(Some(asked.or(own).unwrap_or(1))),
    }
}

/// The longest text for which a graph is built.
const LONGEST: usize = 1 << 15;

/// Builds the graph of a step of `new` positions, for any number of cached ones up to a limit.
pub(super) fn build(
    proto: &GraphProto,
    stored: &[Stored],
    opset: i64,
    options: &ImportOptions,
    new: usize,
) -> Result<Graph> {
    let graph = |past| {
        let growing = Growing { past, new };
        Ok::<_, Error>(Importer::build(proto, stored, opset, options, (1, Some(growing)))?.0)
    };
    let [first, second, third] = LENGTHS.map(graph);
    let (first, third) = (first?, third?);
    let joined = first.clone().unify_past([&second?, &third])?;
    // What changes behind many positions, as a window of attention does, is not seen with few. Tables of positions and masks
    // have their lengths: behind more the network cannot be built.
    let up_to = |past| joined.clone().up_to_past(&first, &graph(past)?).map_err(Error::from);
    let most = LONGEST.saturating_sub(new);
    if let Ok(all) = up_to(most) {
        return Ok(all);
    }
    let mut longest = joined.clone().up_to_past(&first, &third)?;
    let (mut is, mut is_not) = (LENGTHS[2], most);
    // Twice as long each time, and then between the last two.
    while is + 1 < is_not {
        let past = if is_not == most { 2 * is + new } else { is.midpoint(is_not) };
        let past = past.min(is_not - 1);
        match up_to(past) {
            Ok(graph) => (longest, is) = (graph, past),
            Err(_) => is_not = past,
        }
    }
    Ok(longest)
}

/// The names of the numbers that make angles of positions: tables of cosines and sines, and numbers of whose products
/// cosines and sines alone are taken. They are public: the angles belong to the structure.
pub(super) fn angles(graph: &GraphProto) -> HashSet<&str> {
    let (mut angles, mut others) = (HashSet::new(), HashSet::new());
    // Users of a value come after the node that makes it.
    for node in graph.node.iter().rev() {
        let turned = match node.op_type.as_str() {
            "Cos" | "Sin" => true,
            "Mul" | "Div" | "MatMul" | "Einsum" | "Reshape" | "Transpose" | "Squeeze"
            | "Unsqueeze" | "Expand" | "Cast" | "CastLike" | "Identity" | "Concat" | "Slice"
            | "Tile" => {
                let mut outputs = node.output.iter().map(String::as_str);
                outputs.all(|output| angles.contains(output) && !others.contains(output))
            }
            _ => false,
        };
        let inputs = node.input.iter().map(String::as_str);
        if turned { angles.extend(inputs) } else { others.extend(inputs) }
    }
    others.extend(graph.output.iter().map(|output| output.name.as_str()));
    let tables = graph.node.iter().flat_map(|node| {
        let places: &[usize] = match (node.domain.as_str(), node.op_type.as_str()) {
            ("com.microsoft", "RotaryEmbedding") => &[2, 3],
            (_, "RotaryEmbedding") => &[1, 2],
            ("com.microsoft", "GroupQueryAttention") => &[7, 8],
            _ => &[],
        };
        places.iter().filter_map(|&place| node.input.get(place))
    });
    angles.retain(|name| !others.contains(name));
    angles.extend(tables.map(String::as_str));
    angles
}

impl Importer<'_> {
    /// True if the model has keys and values of earlier steps, for any number of them.
    pub(super) fn grows(&self) -> bool {
        self.growing.is_some()
    }

    /// Defines an input of a model with states if its name says what it is: returns false for others.
    pub(super) fn known_input(
        &mut self,
        info: &ValueInfoProto,
        Growing { past, new }: Growing,
    ) -> Result<bool> {
        let Some(known) = Known::of(&info.name) else { return Ok(false) };
        let wrong =
            |reason: String| Error::format("ONNX model", format!("input `{}` {reason}", info.name));
        let kind = info.kind.as_ref().and_then(|kind| kind.tensor.as_ref());
        let kind = kind.ok_or_else(|| wrong("is not a tensor".to_owned()))?.elem_type;
        let dims = sizes(info, self.options);
        let id = match (known, dims.as_slice()) {
            (Known::State, &[_, Ok(heads), Err(_), Ok(size)]) => {
                let dims = [1, heads, 0, size].map(Dim::Fixed);
                let id = self.graph.state(&info.name, &dims, AXIS)?;
                self.states.insert(info.name.clone(), id);
                id
            }
            (Known::Positions, [_] | [_, _]) => {
                let values = (past..past + new).map(|at| at as i64).collect();
                let dims = if dims.len() == 1 { vec![new] } else { vec![1, new] };
                self.graph.public(&info.name, HostTensor::integers(dims, values)?)
            }
            (Known::Mask, [_, _]) => {
                let all = past + new;
                self.graph.public(&info.name, HostTensor::integers([1, all], vec![1; all])?)
            }
            (Known::Branch, [] | [_]) => {
                let dims = vec![1; dims.len()];
                self.graph.public(&info.name, HostTensor::integers(dims, vec![1])?)
            }
            _ => {
                let form = match known {
                    Known::State => "[batch, heads, past, size] with heads and size given",
                    Known::Positions => "[batch, positions]",
                    Known::Mask => "[batch, past + positions]",
                    Known::Branch => "[1]",
                };
                return Err(wrong(format!("has {} dimensions; it is {form}", dims.len())));
            }
        };
        self.define(&info.name, Typed { id, kind }.into());
        Ok(true)
    }

    /// Makes a result what a state is at the next step if its name says so: returns false for others.
    pub(super) fn known_output(&mut self, name: &str, value: ValueId) -> Result<bool> {
        let Some(rest) = PRESENT.iter().find_map(|start| name.strip_prefix(start)) else {
            return Ok(false);
        };
        let Some(state) = self.states.remove(&format!("{PAST}{rest}")) else { return Ok(false) };
        self.graph.grow(name, state, value)?;
        Ok(true)
    }

    /// Puts the next token in the place of the scores, if that is asked for and `name` says that these are scores:
    /// returns false for other results.
    pub(super) fn token_of(&mut self, name: &str, scores: ValueId) -> Result<bool> {
        let answers = self.options.answers;
        if !self.grows() || answers == Answers::Logits || name != LOGITS {
            return Ok(false);
        }
        let &[_, positions, _] = self.graph.shape(scores).dims() else { return Ok(false) };
        let (start, end) = (positions - 1, Dim::Fixed(positions));
        let slice = Op::Slice { axis: 1, start, end, step: 1 };
        let last = self.graph.add(TOKEN, slice, &[scores])?;
        let token = match answers {
            Answers::Sample { temperature } => {
                let scaled = self.graph.add(TOKEN, Op::Scale(1.0 / temperature), &[last])?;
                let softmax = Op::Softmax { axis: 2, log: false };
                let weights = self.graph.add(TOKEN, softmax, &[scaled])?;
                self.graph.add(TOKEN, Op::Draw, &[weights])?
            }
            _ => {
                let choice = Op::ArgMax { axis: 2, keep: false, min: false };
                self.graph.add(TOKEN, choice, &[last])?
            }
        };
        self.graph.output(TOKEN, token);
        Ok(true)
    }

    /// Refuses states that no result extends.
    pub(super) fn check_states(&self) -> Result<()> {
        match self.states.keys().min() {
            None => Ok(()),
            Some(name) => {
                let rest = name.trim_start_matches(PAST);
                let reason = format!("input `{name}` has no result `present.{rest}`");
                Err(Error::format("ONNX model", reason))
            }
        }
    }
}
