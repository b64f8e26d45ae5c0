//! The files of a version: shares as safetensors, and sums by which changes are found.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

use bytes::Bytes;
use ring_arith::{EngineTensor, Shape, Tensor};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use super::FileSum;
use crate::base::{
    Error, Result, Shares,
    encryption::{Place, StoreKey},
    files::write_synced,
};

pub(super) fn read_checked(path: &Path, sum: &FileSum) -> Result<Vec<u8>, String> {
    let bytes = fs::read(path).map_err(|cause| cause.to_string())?;
    let file = path.display();
    if bytes.len() as u64 != sum.bytes {
        return Err(format!("{file}: {} bytes where {} were written", bytes.len(), sum.bytes));
    }
    if blake3::hash(&bytes).to_hex().as_str() != sum.blake3 {
        return Err(format!("{file}: its contents have changed"));
    }
    Ok(bytes)
}

pub(super) fn sum_of(path: &Path) -> Result<FileSum> {
    let fail = |cause| Error::file(path, cause);
    let mut file = File::open(path).map_err(fail)?;
    let (mut hash, mut bytes) = (blake3::Hasher::new(), 0);
    let mut block = vec![0; 1 << 20];
    loop {
        match file.read(&mut block).map_err(fail)? {
            0 => break,
            n => {
                hash.update(&block[..n]);
                bytes += n as u64;
            }
        }
    }
    Ok(FileSum { bytes, blake3: hash.finalize().to_hex().to_string() })
}

/// The key by which a file is sealed, and what it is.
pub(super) type Sealing<'a> = (&'a StoreKey, Place<'a>);

/// The names of the components of a tensor that a server holds.
const COMPONENTS: [&str; 2] = ["mine", "next"];

/// The bytes of a file of shares, which are written to `path` at once unless they are to be sealed first.
pub(super) fn write_shares(path: &Path, shares: &Shares, seal: Option<&Sealing<'_>>) -> Result<()> {
    let components = shares.iter().enumerate().flat_map(|(index, held)| {
        held.iter().zip(COMPONENTS).map(move |(words, name)| (format!("{index:06}.{name}"), words))
    });
    let components: Vec<_> =
        components.map(|(name, words)| (name, words, words.to_bytes())).collect();
    let mut views = Vec::with_capacity(components.len());
    for (name, words, bytes) in &components {
        let view = TensorView::new(Dtype::U64, words.shape().dims().to_vec(), bytes)
            .map_err(|cause| Error::Internal(format!("shares: {cause}")))?;
        views.push((name.clone(), view));
    }
    if let Some((key, place)) = seal {
        let bytes = safetensors::serialize(views, None)
            .map_err(|cause| Error::Internal(format!("shares: {cause}")))?;
        return write_synced(path, &key.seal(*place, &bytes)?);
    }
    let temporary = path.with_added_extension("tmp");
    let write = || {
        safetensors::serialize_to_file(views, None, &temporary).map_err(io::Error::other)?;
        File::open(&temporary)?.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|cause| Error::file(path, cause))
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
