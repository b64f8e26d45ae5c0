//! Attributes of a node.

use std::path::Path;

use nn_layers::HostTensor;

use super::proto::{AttributeProto, GraphProto, NodeProto};
use super::tensor;
use crate::{Error, Result};

/// Reads a node's attributes by name.
pub(crate) struct Attributes<'a> {
    node: &'a NodeProto,
    pub name: &'a str,
}

impl<'a> Attributes<'a> {
    pub fn new(node: &'a NodeProto, name: &'a str) -> Self {
        Self { node, name }
    }

    /// Refuses attributes that are not among these names: without them the node would mean something else.
    pub fn check(&self, names: &[&str]) -> Result<()> {
        let known = |attribute: &&AttributeProto| names.contains(&attribute.name.as_str());
        match self.node.attribute.iter().find(|attribute| !known(attribute)) {
            None => Ok(()),
            Some(other) => Err(self.error(format!(
                "`{}` is not an attribute of this operator: it has {}",
                other.name,
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            ))),
        }
    }

    fn find(&self, name: &str) -> Option<&'a AttributeProto> {
        self.node.attribute.iter().find(|a| a.name == name)
    }

    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    pub fn int(&self, name: &str, default: i64) -> i64 {
        self.find(name).map_or(default, |a| a.i)
    }

    pub fn float(&self, name: &str, default: f64) -> f64 {
        self.find(name).map_or(default, |a| a.f.into())
    }

    pub fn ints(&self, name: &str) -> Option<&'a [i64]> {
        self.find(name).map(|a| a.ints.as_slice())
    }

    pub fn floats(&self, name: &str) -> Option<&'a [f32]> {
        self.find(name).map(|a| a.floats.as_slice())
    }

    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.find(name).and_then(|a| std::str::from_utf8(&a.s).ok())
    }

    /// A tensor; its numbers are in the model file itself.
    pub fn tensor(&self, name: &str) -> Result<Option<HostTensor>> {
        let tensor = self.find(name).and_then(|a| a.t.as_ref());
        tensor.map(|t| tensor::decode(t, None::<&Path>)).transpose()
    }

    /// Non-negative integers, or the default where the attribute is missing.
    pub fn sizes<const N: usize>(&self, name: &str, default: [usize; N]) -> Result<[usize; N]> {
        let Some(ints) = self.ints(name) else { return Ok(default) };
        let sizes = ints.iter().map(|&i| usize::try_from(i)).collect::<Result<Vec<_>, _>>();
        sizes.ok().and_then(|s| s.try_into().ok()).ok_or_else(|| {
            self.error(format!("attribute {name} should be {N} sizes, it is {ints:?}"))
        })
    }

    /// A body.
    pub fn graph(&self, name: &str) -> Result<&'a GraphProto> {
        let body = self.find(name).and_then(|a| a.g.as_deref());
        body.ok_or_else(|| self.error(format!("attribute {name} is missing")))
    }

    /// Texts, or None where the attribute is missing.
    pub fn texts(&self, name: &str) -> Option<Vec<&'a str>> {
        let found = self.find(name)?;
        found.strings.iter().map(|s| std::str::from_utf8(s).ok()).collect()
    }

    /// The element type of a tensor.
    pub fn kind_of(&self, name: &str) -> Option<i32> {
        self.find(name).and_then(|a| a.t.as_ref()).map(|t| t.data_type)
    }

    /// True if result number `i` has a name.
    pub fn is_named(&self, i: usize) -> bool {
        self.node.output.get(i).is_some_and(|name| !name.is_empty())
    }

    /// Number of results that the node names.
    pub fn outputs(&self) -> usize {
        self.node.output.len()
    }

    /// The error of this node.
    pub fn error(&self, reason: impl Into<String>) -> Error {
        Error::Node {
            node: self.name.to_owned(),
            operator: self.node.op_type.clone(),
            reason: reason.into(),
        }
    }

    /// An unsupported use of this node's operator.
    pub fn unsupported(&self, reason: impl Into<String>) -> Error {
        Error::Unsupported {
            node: self.name.to_owned(),
            operator: self.node.op_type.clone(),
            reason: reason.into(),
        }
    }
}
