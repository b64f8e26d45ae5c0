//! Functions that a model defines itself, written out where they are called.

use std::collections::HashMap;

use super::node;
use super::proto::{FunctionProto, GraphProto, NodeProto};
use crate::{Error, Result};

/// The most nodes that writing out makes of a model.
const MOST: usize = 1 << 18;

/// The most functions within each other.
const DEEPEST: usize = 32;

/// Writes out every call in the graph and in all bodies within.
///
/// # Errors
/// [`Error::Node`] if functions call each other without end, or make too many nodes.
pub(crate) fn inline(graph: &mut GraphProto, functions: &[FunctionProto]) -> Result<()> {
    let known = functions.iter().map(|f| ((f.domain.as_str(), f.name.as_str()), f)).collect();
    let mut work = Inliner { known, made: 0 };
    work.graph(graph, 0)
}

struct Inliner<'a> {
    known: HashMap<(&'a str, &'a str), &'a FunctionProto>,
    made: usize,
}

impl Inliner<'_> {
    fn graph(&mut self, graph: &mut GraphProto, depth: usize) -> Result<()> {
        let nodes = std::mem::take(&mut graph.node);
        graph.node = self.nodes(nodes, depth)?;
        Ok(())
    }

    fn nodes(&mut self, nodes: Vec<NodeProto>, depth: usize) -> Result<Vec<NodeProto>> {
        let mut out = vec![];
        for (i, mut node) in nodes.into_iter().enumerate() {
            self.made += 1;
            if depth > DEEPEST || self.made > MOST {
                let reason = "the model's functions call each other without end".to_owned();
                let (name, operator) = (node::name(&node, i), node.op_type);
                return Err(Error::Node { node: name, operator, reason });
            }
            for body in node.attribute.iter_mut().filter_map(|a| a.g.as_deref_mut()) {
                self.graph(body, depth)?;
            }
            match self.known.get(&(node.domain.as_str(), node.op_type.as_str())).copied() {
                None => out.push(node),
                Some(function) => {
                    let label = node::name(&node, i);
                    out.extend(self.nodes(written_out(function, &node, &label), depth + 1)?);
                }
            }
        }
        Ok(out)
    }
}

/// The body of a function with the names of a call.
fn written_out(function: &FunctionProto, call: &NodeProto, label: &str) -> Vec<NodeProto> {
    let mut names: HashMap<&str, &str> = HashMap::new();
    for (i, name) in function.input.iter().enumerate() {
        names.insert(name, call.input.get(i).map_or("", String::as_str));
    }
    let wanted = function.output.iter().zip(&call.output).filter(|(_, given)| !given.is_empty());
    names.extend(wanted.map(|(name, given)| (name.as_str(), given.as_str())));
    let renamed = |name: &String| match names.get(name.as_str()) {
        _ if name.is_empty() => String::new(),
        Some(given) => (*given).to_owned(),
        None => format!("{label}/{name}"),
    };
    let body = function.node.iter().enumerate();
    body.map(|(i, inner)| with_names(inner, i, function, call, label, &renamed)).collect()
}

fn with_names(
    inner: &NodeProto,
    index: usize,
    function: &FunctionProto,
    call: &NodeProto,
    label: &str,
    renamed: &dyn Fn(&String) -> String,
) -> NodeProto {
    let mut node = inner.clone();
    node.name = format!("{label}/{}", node::name(inner, index));
    node.input = inner.input.iter().map(renamed).collect();
    node.output = inner.output.iter().map(renamed).collect();
    node.attribute.retain_mut(|attribute| {
        if let Some(body) = attribute.g.as_deref_mut() {
            for t in &mut body.initializer {
                t.name = renamed(&t.name);
            }
            for value in body.input.iter_mut().chain(&mut body.output) {
                value.name = renamed(&value.name);
            }
            let nodes = body.node.iter().enumerate();
            body.node =
                nodes.map(|(i, n)| with_names(n, i, function, call, label, renamed)).collect();
        }
        if attribute.ref_attr_name.is_empty() {
            return true;
        }
        // The call's own value, or the function's default. Without either the attribute is left out.
        let mut all = call.attribute.iter().chain(&function.attribute);
        let Some(given) = all.find(|a| a.name == attribute.ref_attr_name) else { return false };
        let name = std::mem::take(&mut attribute.name);
        *attribute = super::proto::AttributeProto { name, ..given.clone() };
        true
    });
    node
}
