//! The files of a version: shares as safetensors, and sums by which changes are found.

use std::io::{self, Read, Write};

use bytes::Bytes;
use ring_arith::{EngineTensor, Shape, Tensor};
use safetensors::{Dtype, SafeTensors};
use serde_json::json;

use super::FileSum;
use crate::base::{Result, Shares};

/// Checks the bytes of a file against its length and hash.
pub(super) fn check_sum(place: &str, bytes: &[u8], sum: &FileSum) -> Result<(), String> {
    if bytes.len() as u64 != sum.bytes {
        return Err(format!("{place}: {} bytes where {} were written", bytes.len(), sum.bytes));
    }
    if blake3::hash(bytes).to_hex().as_str() != sum.blake3 {
        return Err(format!("{place}: its contents have changed"));
    }
    Ok(())
}

/// Adds up what passes through it.
pub(super) struct Summed<T> {
    inner: T,
    hash: blake3::Hasher,
    bytes: u64,
}

impl<T> Summed<T> {
    pub(super) fn new(inner: T) -> Self {
        Self { inner, hash: blake3::Hasher::new(), bytes: 0 }
    }

    pub(super) fn sum(&self) -> FileSum {
        FileSum { bytes: self.bytes, blake3: self.hash.finalize().to_hex().to_string() }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
    }
}

impl<T: Write> Write for Summed<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.add(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// The length and hash of all that can be read.
pub(super) fn sum_of(mut reader: impl Read) -> io::Result<FileSum> {
    let mut sum = Summed::new(io::sink());
    let mut block = vec![0; 1 << 20];
    loop {
        match reader.read(&mut block)? {
            0 => return Ok(sum.sum()),
            count => sum.write_all(&block[..count])?,
        }
    }
}

/// The names of the components of a tensor that a server holds.
const COMPONENTS: [&str; 2] = ["mine", "next"];

/// Writes shares as a file of safetensors: its header, then the words of each component.
pub(super) fn write_shares(shares: &Shares, file: &mut dyn Write) -> io::Result<()> {
    let components = || {
        shares.iter().enumerate().flat_map(|(index, held)| {
            held.iter()
                .zip(COMPONENTS)
                .map(move |(words, name)| (format!("{index:06}.{name}"), words))
        })
    };
    let mut header = serde_json::Map::new();
    let mut at = 0;
    for (name, words) in components() {
        let end = at + 8 * words.len();
        let dims = words.shape().dims();
        header.insert(name, json!({ "dtype": "U64", "shape": dims, "data_offsets": [at, end] }));
        at = end;
    }
    let mut header = serde_json::to_vec(&header)?;
    // Words begin at a multiple of their length.
    header.resize(header.len().next_multiple_of(8), b' ');
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(&header)?;
    components().try_for_each(|(_, words)| file.write_all(&words.to_bytes()))
}

/// The shares in the bytes of a server's file (safetensors of 64-bit words).
///
/// # Errors
/// A sentence that states what is wrong with it.
pub fn parse_shares(bytes: Bytes) -> Result<Shares, String> {
    let file = SafeTensors::deserialize(&bytes).map_err(|cause| cause.to_string())?;
    let tensor = |name: &str| -> Result<Tensor, String> {
        let view = file.tensor(name).map_err(|cause| cause.to_string())?;
        if view.dtype() != Dtype::U64 {
            return Err(format!("tensor {name} is not of 64-bit words"));
        }
        let shape = Shape::new(view.shape()).map_err(|cause| cause.to_string())?;
        Tensor::from_bytes(shape, bytes.slice_ref(view.data())).map_err(|cause| cause.to_string())
    };
    let has = |index: usize, name: &str| file.tensor(&format!("{index:06}.{name}")).is_ok();
    let components = COMPONENTS.iter().take_while(|name| has(0, name)).count().max(1);
    let held = |index: usize| {
        let names = COMPONENTS[..components].iter();
        names.map(|name| tensor(&format!("{index:06}.{name}"))).collect()
    };
    (0..file.len() / components).map(held).collect()
}
