//! Tensors of a model file as numbers in memory.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path};

use nn_layers::{HostTensor, MAX_ELEMENTS};

use super::dtype;
use super::proto::TensorProto;
use crate::weights::elements;
use crate::{Error, Result};

/// The location of a tensor's numbers in another file.
pub(super) const EXTERNAL: i32 = 1;

/// Reads a tensor; numbers in a separate file are read from `folder`. Texts become their positions.
pub(crate) fn decode(tensor: &TensorProto, folder: Option<&Path>) -> Result<HostTensor> {
    let fail = |reason: String| wrong(tensor, reason);
    let (dims, len) = size(tensor)?;
    let kind = tensor.data_type;
    if kind == dtype::STRING && tensor.string_data.len() == len {
        // Labels: a text is replaced by its position in their list.
        return Ok(HostTensor::integers(dims, (0..len as i64).collect())?);
    }
    let float = dtype::is_float(kind)
        .ok_or_else(|| fail(format!("element type {} is not supported", dtype::name(kind))))?;
    let external;
    let bytes = (len * dtype::bits(kind)).div_ceil(8);
    let packed: Vec<u8>;
    let raw: Option<&[u8]> = if tensor.data_location == EXTERNAL {
        external = external_data(tensor, folder)?;
        Some(&external)
    } else if !tensor.raw_data.is_empty() {
        Some(&tensor.raw_data)
    } else if dtype::bits(kind) < 8 {
        packed = tensor.int32_data.iter().map(|&v| v as u8).collect();
        Some(&packed)
    } else {
        None
    };
    // Lengths are compared before anything of the claimed size is allocated.
    let fits = raw.map_or_else(|| typed_len(tensor) == len, |raw| raw.len() == bytes);
    if !fits {
        let found = raw.map_or_else(|| typed_len(tensor), |r| r.len() * 8 / dtype::bits(kind));
        return Err(fail(format!("{found} elements do not fill shape {dims:?}")));
    }
    let value = match (raw, float) {
        (Some(raw), true) => match raw_singles(raw, kind) {
            Some(values) => HostTensor::singles(dims, values)?,
            None => HostTensor::new(dims, raw_floats(raw, kind, len))?,
        },
        (Some(raw), false) => HostTensor::integers(dims, raw_integers(raw, kind, len))?,
        (None, true) if kind == dtype::FLOAT => {
            HostTensor::singles(dims, tensor.float_data.clone())?
        }
        (None, true) => HostTensor::new(dims, typed_floats(tensor))?,
        (None, false) => HostTensor::integers(dims, typed_integers(tensor))?,
    };
    let large = kind == dtype::UINT64 && value.as_ints()?.iter().any(|&v| v < 0);
    if large { Err(fail("it has integers from 2^63 on".to_owned())) } else { Ok(value) }
}

fn wrong(tensor: &TensorProto, reason: String) -> Error {
    Error::format("ONNX model", format!("tensor `{}`: {reason}", tensor.name))
}

/// The dimensions, and the number of elements.
fn size(tensor: &TensorProto) -> Result<(Vec<usize>, usize)> {
    let dims = tensor.dims.iter().map(|&d| usize::try_from(d)).collect::<Result<Vec<_>, _>>();
    let dims =
        dims.map_err(|_| wrong(tensor, format!("shape {:?} has a negative size", tensor.dims)))?;
    let len = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    let len = len.filter(|&n| n <= MAX_ELEMENTS);
    let len = len.ok_or_else(|| wrong(tensor, format!("shape {dims:?} is too large")))?;
    Ok((dims, len))
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
        dtype::DOUBLE => t.double_data.clone(),
        dtype::FLOAT16 => t.int32_data.iter().map(|&v| half_bits(v as u16)).collect(),
        dtype::BFLOAT16 => {
            t.int32_data.iter().map(|&v| half::bf16::from_bits(v as u16).into()).collect()
        }
        kind => t.int32_data.iter().map(|&v| dtype::small_float(kind, v as u8)).collect(),
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

/// Floats of 16 and 32 bits; `None` for others.
fn raw_singles(raw: &[u8], kind: i32) -> Option<Vec<f32>> {
    Some(match kind {
        dtype::FLOAT => elements(raw, f32::from_le_bytes),
        dtype::FLOAT16 => elements(raw, |b| half::f16::from_le_bytes(b).into()),
        dtype::BFLOAT16 => elements(raw, |b| half::bf16::from_le_bytes(b).into()),
        _ => return None,
    })
}

fn raw_floats(raw: &[u8], kind: i32, len: usize) -> Vec<f64> {
    match kind {
        dtype::DOUBLE => elements(raw, f64::from_le_bytes),
        _ => parts(raw, dtype::bits(kind), len).map(|b| dtype::small_float(kind, b)).collect(),
    }
}

fn raw_integers(raw: &[u8], kind: i32, len: usize) -> Vec<i64> {
    match kind {
        dtype::INT64 => elements(raw, i64::from_le_bytes),
        dtype::UINT64 => elements(raw, |b| u64::from_le_bytes(b) as i64),
        dtype::INT32 => elements(raw, |b| i32::from_le_bytes(b).into()),
        dtype::UINT32 => elements(raw, |b| u32::from_le_bytes(b).into()),
        dtype::INT16 => elements(raw, |b| i16::from_le_bytes(b).into()),
        dtype::UINT16 => elements(raw, |b| u16::from_le_bytes(b).into()),
        _ => parts(raw, dtype::bits(kind), len).map(|b| dtype::wrapped(kind, b.into())).collect(),
    }
}

/// Elements of a byte or less, the lower bits first.
fn parts(raw: &[u8], bits: usize, len: usize) -> impl Iterator<Item = u8> {
    let mask = ((1u16 << bits) - 1) as u8;
    let each = 8 / bits;
    (0..len).map(move |i| raw[i / each] >> (i % each * bits) & mask)
}

/// The bytes of a tensor that the exporter put in a separate file.
pub(super) fn external_data(tensor: &TensorProto, folder: Option<&Path>) -> Result<Vec<u8>> {
    let fail = |reason: String| wrong(tensor, reason);
    let len = (size(tensor)?.1 * dtype::bits(tensor.data_type)).div_ceil(8);
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
