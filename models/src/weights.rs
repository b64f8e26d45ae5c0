//! Weights in `safetensors` files.

use std::collections::BTreeMap;
use std::path::Path;

use nn_layers::{HostData, HostTensor};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

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
/// [`Error::Format`] if this is not a `safetensors` file, or a number is NaN or infinite.
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

/// Writes tensors as a `safetensors` file: floats of 32 bits, as PyTorch has them, and integers of 64.
///
/// # Errors
/// [`Error::Format`] if there is nothing to write, or a number is too large for 32 bits.
pub fn to_safetensors(tensors: &BTreeMap<String, HostTensor>) -> Result<Vec<u8>> {
    let wrong = |reason: String| Error::format("safetensors file", reason);
    let mut data = Vec::with_capacity(tensors.len());
    for (name, tensor) in tensors {
        data.push(match tensor.data() {
            HostData::Int(values) => {
                (Dtype::I64, values.iter().flat_map(|value| value.to_le_bytes()).collect())
            }
            HostData::Float(_) | HostData::Single(_) => {
                let short: Vec<f32> = tensor.floats().iter().map(|&value| value as f32).collect();
                if short.iter().any(|value| !value.is_finite()) {
                    return Err(wrong(format!("a number of `{name}` does not fit 32 bits")));
                }
                let bytes: Vec<u8> = short.iter().flat_map(|value| value.to_le_bytes()).collect();
                (Dtype::F32, bytes)
            }
        });
    }
    let mut views = Vec::with_capacity(tensors.len());
    for ((name, tensor), (kind, bytes)) in tensors.iter().zip(&data) {
        let view = TensorView::new(*kind, tensor.dims().to_vec(), bytes);
        views.push((name, view.map_err(|cause| wrong(format!("tensor `{name}`: {cause}")))?));
    }
    safetensors::serialize(views, None).map_err(|cause| wrong(cause.to_string()))
}

fn tensor(kind: Dtype, dims: &[usize], data: &[u8]) -> Option<Result<HostTensor>> {
    let floats = |values| HostTensor::new(dims, values).map_err(Error::from);
    let singles = |values| HostTensor::singles(dims, values).map_err(Error::from);
    let ints = |values| HostTensor::integers(dims, values).map_err(Error::from);
    Some(match kind {
        Dtype::F64 => floats(elements(data, f64::from_le_bytes)),
        Dtype::F32 => singles(elements(data, f32::from_le_bytes)),
        Dtype::F16 => singles(elements(data, |b| half::f16::from_le_bytes(b).into())),
        Dtype::BF16 => singles(elements(data, |b| half::bf16::from_le_bytes(b).into())),
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
    raw.as_chunks().0.iter().map(|chunk| read(*chunk)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_as_it_was() {
        let mut tensors = BTreeMap::new();
        let values = vec![0.5, -1.25, 3.0e-3f32.into(), 0.0, 7.0, -0.125];
        tensors.insert("weight".to_owned(), HostTensor::new([2, 3], values).unwrap());
        tensors.insert("places".to_owned(), HostTensor::integers([2], vec![-5, 1 << 40]).unwrap());
        tensors.insert("number".to_owned(), HostTensor::scalar(1.5));
        assert_eq!(from_safetensors(&to_safetensors(&tensors).unwrap()).unwrap(), tensors);
        tensors.insert("large".to_owned(), HostTensor::scalar(1e300));
        let text = to_safetensors(&tensors).unwrap_err().to_string();
        assert!(text.contains("`large`") && text.contains("32 bits"), "{text}");
    }
}
