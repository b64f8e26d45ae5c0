//! Tensors of a model file as numbers in memory.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path};

use nn_layers::{HostTensor, MAX_ELEMENTS};

use super::proto::TensorProto;
use crate::{Error, Result};

/// Element types of ONNX by their numbers.
pub(crate) mod dtype {
    pub const FLOAT: i32 = 1;
    pub const UINT8: i32 = 2;
    pub const INT8: i32 = 3;
    pub const UINT16: i32 = 4;
    pub const INT16: i32 = 5;
    pub const INT32: i32 = 6;
    pub const INT64: i32 = 7;
    pub const BOOL: i32 = 9;
    pub const FLOAT16: i32 = 10;
    pub const DOUBLE: i32 = 11;
    pub const UINT32: i32 = 12;
    pub const UINT64: i32 = 13;
    pub const BFLOAT16: i32 = 16;

    /// Whether elements are real numbers, or `None` for types that no tensor here has.
    pub fn is_float(kind: i32) -> Option<bool> {
        match kind {
            FLOAT | FLOAT16 | DOUBLE | BFLOAT16 => Some(true),
            UINT8 | INT8 | UINT16 | INT16 | INT32 | INT64 | BOOL | UINT32 | UINT64 => Some(false),
            _ => None,
        }
    }
}

/// Bytes of one element in raw data.
fn size_of(kind: i32) -> usize {
    match kind {
        dtype::DOUBLE | dtype::INT64 | dtype::UINT64 => 8,
        dtype::FLOAT | dtype::INT32 | dtype::UINT32 => 4,
        dtype::FLOAT16 | dtype::BFLOAT16 | dtype::INT16 | dtype::UINT16 => 2,
        _ => 1,
    }
}

/// Reads a tensor; numbers kept in a file beside the model are looked for in `folder`.
pub(crate) fn decode(tensor: &TensorProto, folder: Option<&Path>) -> Result<HostTensor> {
    let fail =
        |reason: String| Error::format("ONNX model", format!("tensor `{}`: {reason}", tensor.name));
    let dims = tensor.dims.iter().map(|&d| usize::try_from(d)).collect::<Result<Vec<_>, _>>();
    let dims = dims.map_err(|_| fail(format!("shape {:?} has a negative size", tensor.dims)))?;
    let len = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    let len = len.filter(|&n| n <= MAX_ELEMENTS);
    let len = len.ok_or_else(|| fail(format!("shape {dims:?} is too large")))?;
    let float = dtype::is_float(tensor.data_type)
        .ok_or_else(|| fail(format!("element type {} is not supported", tensor.data_type)))?;
    let external;
    let raw: Option<&[u8]> = if tensor.data_location == 1 {
        external = external_data(tensor, folder, len * size_of(tensor.data_type), &fail)?;
        Some(&external)
    } else if tensor.raw_data.is_empty() {
        None
    } else {
        Some(&tensor.raw_data)
    };
    // Lengths are compared before anything of the claimed size is allocated.
    let found = match raw {
        Some(raw) => raw.len() / size_of(tensor.data_type),
        None => typed_len(tensor),
    };
    let whole = raw.is_none_or(|r| r.len() % size_of(tensor.data_type) == 0);
    if found != len || !whole {
        return Err(fail(format!("{found} elements do not fill shape {dims:?}")));
    }
    let value = match (raw, float) {
        (Some(raw), true) => HostTensor::new(dims, raw_floats(raw, tensor.data_type))?,
        (Some(raw), false) => HostTensor::integers(dims, raw_integers(raw, tensor.data_type))?,
        (None, true) => HostTensor::new(dims, typed_floats(tensor))?,
        (None, false) => HostTensor::integers(dims, typed_integers(tensor))?,
    };
    Ok(value)
}

fn typed_len(t: &TensorProto) -> usize {
    match t.data_type {
        dtype::FLOAT => t.float_data.len(),
        dtype::DOUBLE => t.double_data.len(),
        dtype::INT64 => t.int64_data.len(),
        dtype::UINT32 | dtype::UINT64 => t.uint64_data.len(),
        _ => t.int32_data.len(),
    }
}

fn typed_floats(t: &TensorProto) -> Vec<f64> {
    match t.data_type {
        dtype::FLOAT => t.float_data.iter().map(|&v| v.into()).collect(),
        dtype::DOUBLE => t.double_data.clone(),
        dtype::FLOAT16 => t.int32_data.iter().map(|&v| half_bits(v as u16)).collect(),
        _ => t.int32_data.iter().map(|&v| half::bf16::from_bits(v as u16).into()).collect(),
    }
}

fn typed_integers(t: &TensorProto) -> Vec<i64> {
    match t.data_type {
        dtype::INT64 => t.int64_data.clone(),
        dtype::UINT32 | dtype::UINT64 => t.uint64_data.iter().map(|&v| v as i64).collect(),
        _ => t.int32_data.iter().map(|&v| v.into()).collect(),
    }
}

fn half_bits(bits: u16) -> f64 {
    half::f16::from_bits(bits).into()
}

/// Little-endian elements of a fixed size.
fn elements<const N: usize, T>(raw: &[u8], read: impl Fn([u8; N]) -> T) -> Vec<T> {
    raw.chunks_exact(N).map(|c| read(c.try_into().expect("chunks have N bytes"))).collect()
}

fn raw_floats(raw: &[u8], kind: i32) -> Vec<f64> {
    match kind {
        dtype::FLOAT => elements(raw, |b| f32::from_le_bytes(b).into()),
        dtype::DOUBLE => elements(raw, f64::from_le_bytes),
        dtype::FLOAT16 => elements(raw, |b| half_bits(u16::from_le_bytes(b))),
        _ => elements(raw, |b| half::bf16::from_bits(u16::from_le_bytes(b)).into()),
    }
}

fn raw_integers(raw: &[u8], kind: i32) -> Vec<i64> {
    match kind {
        dtype::INT64 => elements(raw, i64::from_le_bytes),
        dtype::UINT64 => elements(raw, |b| u64::from_le_bytes(b) as i64),
        dtype::INT32 => elements(raw, |b| i32::from_le_bytes(b).into()),
        dtype::UINT32 => elements(raw, |b| u32::from_le_bytes(b).into()),
        dtype::INT16 => elements(raw, |b| i16::from_le_bytes(b).into()),
        dtype::UINT16 => elements(raw, |b| u16::from_le_bytes(b).into()),
        dtype::INT8 => elements(raw, |b| i8::from_le_bytes(b).into()),
        _ => raw.iter().map(|&b| b.into()).collect(),
    }
}

/// The bytes of a tensor that the exporter put beside the model.
fn external_data(
    tensor: &TensorProto,
    folder: Option<&Path>,
    len: usize,
    fail: &impl Fn(String) -> Error,
) -> Result<Vec<u8>> {
    let entry = |key: &str| tensor.external_data.iter().find(|e| e.key == key).map(|e| &e.value);
    let location = entry("location").ok_or_else(|| fail("its file is not named".to_owned()))?;
    let plain = Path::new(location).components().all(|c| matches!(c, Component::Normal(_)));
    let folder = folder.filter(|_| plain && !location.is_empty()).ok_or_else(|| {
        fail(format!("its numbers are in `{location}`, which cannot be opened from here"))
    })?;
    let number = |key: &str| match entry(key) {
        None => Ok(None),
        Some(v) => {
            v.parse::<usize>().map(Some).map_err(|_| fail(format!("{key} `{v}` is no size")))
        }
    };
    let offset = number("offset")?.unwrap_or(0);
    if number("length")?.is_some_and(|l| l != len) {
        return Err(fail(format!("its length in `{location}` is not {len} bytes")));
    }
    let path = folder.join(location);
    let io = |source| Error::Io { path: path.clone(), source };
    let mut file = File::open(&path).map_err(io)?;
    let size = file.metadata().map_err(io)?.len();
    let end = (offset as u64).checked_add(len as u64).filter(|&e| e <= size);
    if end.is_none() {
        return Err(fail(format!("`{location}` is too short")));
    }
    file.seek(SeekFrom::Start(offset as u64)).map_err(io)?;
    let mut bytes = vec![0; len];
    file.read_exact(&mut bytes).map_err(io)?;
    Ok(bytes)
}
