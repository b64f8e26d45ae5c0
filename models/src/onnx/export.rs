//! Weights back into the model file that they came from.
//!
//! The rest of the file stays the same, byte for byte: all fields are copied, known or not, and only the named tensors
//! are written again, and those whose numbers lie in another file: what is written needs no other.

use std::collections::BTreeMap;
use std::path::Path;

use nn_layers::HostTensor;
use prost::Message;

use super::proto::TensorProto;
use super::tensor::{EXTERNAL, external_data};
use crate::{Error, Result};

/// Fields of `ModelProto` and `GraphProto`.
const GRAPH: u64 = 7;
const INITIALIZER: u64 = 5;

/// Element types of `TensorProto`.
const FLOAT: i32 = 1;
const DOUBLE: i32 = 11;

/// The most bytes of a file: a message of protocol buffers is shorter than 2 GiB.
const MOST: usize = i32::MAX as usize;

/// A model file with other numbers for some of its weights, by the names of its initialisers. Shapes and element types
/// stay those of the file; a weight may have another shape with as many numbers. Numbers that lie in other files of
/// `folder`, where the model file is, become part of the written one.
///
/// # Errors
/// [`Error::Format`] if this is not an ONNX model, if it has 2 GiB or more in one file, or naming a weight that cannot
/// be replaced. Such a weight is missing in the file, or has another number of elements or another type than 32-bit or
/// 64-bit floats. Also if numbers in another file cannot be found, [`Error::Io`] if that file cannot be read.
pub fn with_weights(
    bytes: &[u8],
    folder: Option<&Path>,
    weights: &BTreeMap<String, HostTensor>,
) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut missing: Vec<_> = weights.keys().map(String::as_str).collect();
    for field in fields(bytes)? {
        match field.message(GRAPH) {
            Some(graph) => {
                let graph = rewritten(graph, folder, weights, &mut missing)?;
                put(&mut out, GRAPH, &graph);
            }
            None => out.extend(field.bytes),
        }
    }
    if out.len() > MOST {
        let reason = "it would have 2 GiB or more, which one ONNX file cannot hold; take the weights without it";
        return Err(wrong(reason.to_owned()));
    }
    match missing.first() {
        Some(name) => Err(wrong(format!("it has no weight `{name}` of its own"))),
        None => Ok(out),
    }
}

fn wrong(reason: String) -> Error {
    Error::format("ONNX model", reason)
}

/// The graph with these weights instead of the file's.
fn rewritten(
    graph: &[u8],
    folder: Option<&Path>,
    weights: &BTreeMap<String, HostTensor>,
    missing: &mut Vec<&str>,
) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(graph.len());
    for field in fields(graph)? {
        let Some(tensor) = field.message(INITIALIZER) else {
            out.extend(field.bytes);
            continue;
        };
        let tensor = TensorProto::decode(tensor).map_err(|e| wrong(format!("a tensor: {e}")))?;
        match weights.get(&tensor.name) {
            Some(value) => {
                missing.retain(|name| *name != tensor.name);
                put(&mut out, INITIALIZER, &filled(tensor, value)?.encode_to_vec());
            }
            None if tensor.data_location == EXTERNAL => {
                put(&mut out, INITIALIZER, &inlined(tensor, folder)?.encode_to_vec());
            }
            None => out.extend(field.bytes),
        }
    }
    Ok(out)
}

/// A tensor with its numbers from another file.
fn inlined(tensor: TensorProto, folder: Option<&Path>) -> Result<TensorProto> {
    let raw = external_data(&tensor, folder)?;
    let TensorProto { dims, data_type, name, .. } = tensor;
    Ok(TensorProto { dims, data_type, name, raw_data: raw.into(), ..TensorProto::default() })
}

/// A tensor with other numbers.
fn filled(tensor: TensorProto, value: &HostTensor) -> Result<TensorProto> {
    let name = &tensor.name;
    let len = tensor.dims.iter().try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?));
    if len != Some(value.len()) {
        let reason = format!("has {:?} elements, {} are to be written", tensor.dims, value.len());
        return Err(wrong(format!("weight `{name}` {reason}")));
    }
    let values = value.floats();
    let raw: Vec<u8> = match tensor.data_type {
        FLOAT => values.iter().flat_map(|&v| (v as f32).to_le_bytes()).collect(),
        DOUBLE => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        kind => {
            let reason = format!("has element type {kind}; 32-bit and 64-bit floats are written");
            return Err(wrong(format!("weight `{name}` {reason}")));
        }
    };
    let TensorProto { dims, data_type, name, .. } = tensor;
    Ok(TensorProto { dims, data_type, name, raw_data: raw.into(), ..TensorProto::default() })
}

/// A field of a message with its bytes in the file.
struct Field<'a> {
    number: u64,
    /// Key, length and content.
    bytes: &'a [u8],
    /// The content, if it has a length.
    content: Option<&'a [u8]>,
}

impl<'a> Field<'a> {
    /// The content if this is the field of a number, and has a length.
    fn message(&self, number: u64) -> Option<&'a [u8]> {
        self.content.filter(|_| self.number == number)
    }
}

/// Cuts a message into its fields.
fn fields(message: &[u8]) -> Result<Vec<Field<'_>>> {
    let damaged = || wrong("this is no ONNX file, or a damaged one".to_owned());
    let mut fields = Vec::new();
    let mut rest = message;
    while !rest.is_empty() {
        let start = rest;
        let key = varint(&mut rest).ok_or_else(damaged)?;
        let mut content = None;
        let skipped = match key & 7 {
            0 => varint(&mut rest).map(|_| 0),
            1 => Some(8),
            2 => varint(&mut rest).and_then(|len| usize::try_from(len).ok()),
            5 => Some(4),
            _ => None,
        };
        let skipped = skipped.filter(|&len| len <= rest.len()).ok_or_else(damaged)?;
        let (own, behind) = rest.split_at(skipped);
        if key & 7 == 2 {
            content = Some(own);
        }
        rest = behind;
        let bytes = &start[..start.len() - rest.len()];
        fields.push(Field { number: key >> 3, bytes, content });
    }
    Ok(fields)
}

/// Takes a number of variable length.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Adds a field with a length.
fn put(out: &mut Vec<u8>, number: u64, content: &[u8]) {
    for mut value in [number << 3 | 2, content.len() as u64] {
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    }
    out.extend(content);
}
