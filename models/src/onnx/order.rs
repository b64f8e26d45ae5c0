//! The nodes of a graph that are needed, in an order in which each comes after those that it needs.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use super::node;
use super::proto::{GraphProto, NodeProto};
use crate::{Error, Result};

/// Leaves the nodes that the results need, sorted, in the graph and in all bodies within. Unused results lose their
/// names, so that no operator computes them.
///
/// # Errors
/// [`Error::Node`] naming a node that needs its own result, or one that computes a value that another computes too.
pub(crate) fn sort(graph: &mut GraphProto) -> Result<()> {
    for node in &mut graph.node {
        for body in node.attribute.iter_mut().filter_map(|a| a.g.as_deref_mut()) {
            sort(body)?;
        }
    }
    let nodes = &graph.node;
    let mut makers: HashMap<&str, usize> = HashMap::new();
    for (i, node) in nodes.iter().enumerate() {
        for output in node.output.iter().filter(|o| !o.is_empty()) {
            if makers.insert(output, i).is_some() {
                return Err(wrong(node, i, format!("`{output}` is computed twice")));
            }
        }
    }
    let needs: Vec<Vec<usize>> = nodes
        .iter()
        .map(|node| reads(node).iter().filter_map(|name| makers.get(name).copied()).collect())
        .collect();
    let needed = needed(graph, &makers, &needs);
    let order = ordered(nodes, &needs, &needed)?;
    let mut read: HashSet<String> =
        order.iter().flat_map(|&i| reads(&nodes[i])).map(str::to_owned).collect();
    read.extend(graph.output.iter().map(|output| output.name.clone()));
    let mut left: Vec<Option<NodeProto>> = graph.node.drain(..).map(Some).collect();
    for i in order {
        if let Some(mut node) = left[i].take() {
            node.output.iter_mut().filter(|name| !read.contains(*name)).for_each(String::clear);
            graph.node.push(node);
        }
    }
    Ok(())
}

fn wrong(node: &NodeProto, index: usize, reason: String) -> Error {
    Error::Node { node: node::name(node, index), operator: node.op_type.clone(), reason }
}

/// The names that a node reads, those inside its bodies included.
fn reads(node: &NodeProto) -> Vec<&str> {
    let mut names: Vec<&str> = node.input.iter().map(String::as_str).collect();
    for body in node.attribute.iter().filter_map(|a| a.g.as_deref()) {
        names.extend(body.node.iter().flat_map(reads));
        names.extend(body.output.iter().map(|output| output.name.as_str()));
    }
    names
}

/// For each node, true if a result needs it.
fn needed(graph: &GraphProto, makers: &HashMap<&str, usize>, needs: &[Vec<usize>]) -> Vec<bool> {
    let mut needed = vec![false; needs.len()];
    let results = graph.output.iter().filter_map(|output| makers.get(output.name.as_str()));
    let mut next: Vec<usize> = results.copied().collect();
    while let Some(i) = next.pop() {
        if !std::mem::replace(&mut needed[i], true) {
            next.extend(&needs[i]);
        }
    }
    needed
}

/// The needed nodes, each after what it needs, and otherwise in the order of the file.
fn ordered(nodes: &[NodeProto], needs: &[Vec<usize>], needed: &[bool]) -> Result<Vec<usize>> {
    let mut users = vec![vec![]; nodes.len()];
    let mut open = vec![0usize; nodes.len()];
    for i in (0..nodes.len()).filter(|&i| needed[i]) {
        open[i] = needs[i].len();
        needs[i].iter().for_each(|&maker| users[maker].push(i));
    }
    let ready = (0..nodes.len()).filter(|&i| needed[i] && open[i] == 0);
    let mut ready: BinaryHeap<_> = ready.map(Reverse).collect();
    let mut order = vec![];
    while let Some(Reverse(i)) = ready.pop() {
        order.push(i);
        for &user in &users[i] {
            open[user] -= 1;
            if open[user] == 0 {
                ready.push(Reverse(user));
            }
        }
    }
    match (0..nodes.len()).find(|&i| needed[i] && open[i] > 0) {
        None => Ok(order),
        Some(i) => Err(wrong(&nodes[i], i, "it needs its own result".to_owned())),
    }
}
