//! Weights in `safetensors` files.

use std::collections::BTreeMap;
use std::path::Path;

use nn_layers::HostTensor;
use safetensors::{Dtype, SafeTensors};

use crate::error::read;
use crate::{Error, Result};

/// Reads all tensors of a `safetensors` file by their names.
///
/// # Errors
/// [`Error::Io`] if it cannot be read, and those of [`from_safetensors`].
pub fn read_safetensors(path: &Path) -> Result<BTreeMap<String, HostTensor>> {
    from_safetensors(&read(path)?)
}

/// Reads all tensors of a `safetensors` file in memory: floats of 16, 32 and 64 bits and integers.
///
/// # Errors
/// [`Error::Format`] if this is no such file, or a number is NaN or infinite.
pub fn from_safetensors(bytes: &[u8]) -> Result<BTreeMap<String, HostTensor>> {
    let wrong = |reason: String| Error::format("safetensors file", reason);
    let file = SafeTensors::deserialize(bytes).map_err(|e| wrong(e.to_string()))?;
    let mut tensors = BTreeMap::new();
    for (name, view) in file.tensors() {
        let value = tensor(view.dtype(), view.shape(), view.data());
        let value = value.ok_or_else(|| {
            wrong(format!("tensor `{name}` has unsupported type {:?}", view.dtype()))
        })??;
        value.check_finite().map_err(|e| wrong(format!("tensor `{name}`: {e}")))?;
        tensors.insert(name, value);
    }
    Ok(tensors)
}

fn tensor(kind: Dtype, dims: &[usize], data: &[u8]) -> Option<Result<HostTensor>> {
    let floats = |values| HostTensor::new(dims, values).map_err(Error::from);
    let ints = |values| HostTensor::integers(dims, values).map_err(Error::from);
    Some(match kind {
        Dtype::F64 => floats(elements(data, f64::from_le_bytes)),
        Dtype::F32 => floats(elements(data, |b| f32::from_le_bytes(b).into())),
        Dtype::F16 => floats(elements(data, |b| half::f16::from_le_bytes(b).into())),
        Dtype::BF16 => floats(elements(data, |b| half::bf16::from_le_bytes(b).into())),
        Dtype::I64 => ints(elements(data, i64::from_le_bytes)),
        Dtype::I32 => ints(elements(data, |b| i32::from_le_bytes(b).into())),
        Dtype::U32 => ints(elements(data, |b| u32::from_le_bytes(b).into())),
        Dtype::I16 => ints(elements(data, |b| i16::from_le_bytes(b).into())),
        Dtype::U16 => ints(elements(data, |b| u16::from_le_bytes(b).into())),
        Dtype::I8 => ints(elements(data, |b: [u8; 1]| i8::from_le_bytes(b).into())),
        Dtype::U8 | Dtype::BOOL => ints(data.iter().map(|&b| b.into()).collect()),
        _ => return None,
    })
}

/// Little-endian elements of a fixed size.
pub(crate) fn elements<const N: usize, T>(raw: &[u8], read: impl Fn([u8; N]) -> T) -> Vec<T> {
    raw.chunks_exact(N).map(|c| read(c.try_into().expect("chunks have N bytes"))).collect()
}
