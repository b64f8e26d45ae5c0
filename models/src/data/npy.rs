//! NumPy's `.npy` files.

use std::path::Path;

use nn_layers::HostTensor;

use crate::error::read;
use crate::weights::elements;
use crate::{Error, Result};

const WHAT: &str = "NumPy file";

/// The magic bytes before the version.
const MAGIC: &[u8] = b"\x93NUMPY";

/// Reads a `.npy` file.
///
/// # Errors
/// [`Error::Io`] if it cannot be read, and those of [`from_npy`].
pub fn read_npy(path: &Path) -> Result<HostTensor> {
    from_npy(&read(path)?)
}

/// Writes a `.npy` file of 64-bit floats or integers.
///
/// # Errors
/// [`Error::Io`] if it cannot be written.
pub fn write_npy(path: &Path, tensor: &HostTensor) -> Result<()> {
    std::fs::write(path, to_npy(tensor))
        .map_err(|source| Error::Io { path: path.to_owned(), source })
}

/// Reads a `.npy` file in memory: floats, integers and booleans, little-endian, in C order.
///
/// # Errors
/// [`Error::Format`] if it is not a `.npy` file, has another format, or its size differs from the one in its header.
pub fn from_npy(bytes: &[u8]) -> Result<HostTensor> {
    let wrong = |reason: &str| Error::format(WHAT, reason);
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| wrong("it does not begin as one does"))?;
    let (&[major, _minor], rest) =
        rest.split_first_chunk().ok_or_else(|| wrong("its head is cut off"))?;
    let (len, rest) = match major {
        1 => rest.split_first_chunk().map(|(l, r)| (u16::from_le_bytes(*l) as usize, r)),
        _ => rest.split_first_chunk().map(|(l, r)| (u32::from_le_bytes(*l) as usize, r)),
    }
    .ok_or_else(|| wrong("its head is cut off"))?;
    let (head, data) = rest.split_at_checked(len).ok_or_else(|| wrong("its head is cut off"))?;
    let head = std::str::from_utf8(head).map_err(|_| wrong("its head is no text"))?;
    let kind = quoted(head, "descr").ok_or_else(|| wrong("its head names no element type"))?;
    if !value(head, "fortran_order").is_some_and(|v| v.starts_with("False")) {
        return Err(wrong("it is in Fortran order; save it in C order"));
    }
    let dims = shape(head).ok_or_else(|| wrong("its head names no shape"))?;
    let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    let floats = |size: usize| Some(data.len()) == count.and_then(|c| c.checked_mul(size));
    let size: usize = kind.get(2..).and_then(|s| s.parse().ok()).unwrap_or(0);
    if !floats(size) {
        return Err(wrong(&format!("{} bytes do not fill shape {dims:?} of {kind}", data.len())));
    }
    Ok(match kind {
        "<f8" => HostTensor::new(dims, elements(data, f64::from_le_bytes))?,
        "<f4" => HostTensor::new(dims, elements(data, |b| f32::from_le_bytes(b).into()))?,
        "<f2" => HostTensor::new(dims, elements(data, |b| half::f16::from_le_bytes(b).into()))?,
        "<i8" => HostTensor::integers(dims, elements(data, i64::from_le_bytes))?,
        "<i4" => HostTensor::integers(dims, elements(data, |b| i32::from_le_bytes(b).into()))?,
        "<i2" => HostTensor::integers(dims, elements(data, |b| i16::from_le_bytes(b).into()))?,
        "|i1" => HostTensor::integers(dims, elements(data, |b: [u8; 1]| (b[0] as i8).into()))?,
        "|u1" | "|b1" => HostTensor::integers(dims, data.iter().map(|&b| b.into()).collect())?,
        _ => return Err(wrong(&format!("element type {kind} is not supported"))),
    })
}

/// The bytes of a `.npy` file.
pub fn to_npy(tensor: &HostTensor) -> Vec<u8> {
    let kind = if tensor.is_int() { "<i8" } else { "<f8" };
    let dims = tensor.dims().iter().map(|d| format!("{d}, ")).collect::<String>();
    let mut head =
        format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({}), }}", dims.trim_end());
    // The data begins at a multiple of 64 bytes.
    let before = MAGIC.len() + 4;
    let padded = (before + head.len() + 1).next_multiple_of(64);
    head.push_str(&" ".repeat(padded - before - head.len() - 1));
    head.push('\n');
    let mut out = [MAGIC, &[1, 0], &(head.len() as u16).to_le_bytes(), head.as_bytes()].concat();
    match tensor.as_ints() {
        Ok(ints) => out.extend(ints.iter().flat_map(|v| v.to_le_bytes())),
        Err(_) => out.extend(tensor.floats().iter().flat_map(|v| v.to_le_bytes())),
    }
    out
}

/// The text after a key of the header, a Python dictionary.
fn value<'a>(head: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = head.split_once(&format!("'{key}'"))?;
    rest.split_once(':').map(|(_, v)| v.trim_start())
}

fn quoted<'a>(head: &'a str, key: &str) -> Option<&'a str> {
    value(head, key)?.strip_prefix('\'')?.split_once('\'').map(|(v, _)| v)
}

fn shape(head: &str) -> Option<Vec<usize>> {
    let (list, _) = value(head, "shape")?.strip_prefix('(')?.split_once(')')?;
    let sizes = list.split(',').map(str::trim).filter(|s| !s.is_empty());
    sizes.map(|s| s.parse().ok()).collect()
}
