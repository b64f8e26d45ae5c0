//! The files of a version: shares as safetensors, and sums by which changes are found.

use std::io::{self, Read, Write};

use bytes::Bytes;
use mpc_core::{
    Parcel, ParcelKey, Sharing,
    sharing::{check_words, expand},
};
use ring_arith::{EngineTensor, Shape, Tensor};
use safetensors::{Dtype, SafeTensors};
use serde_json::json;

use super::FileSum;
use crate::base::{Digest, Result, Shares};

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

/// The name, among the public notes of a file, of the shapes of all tensors.
const SHAPES: &str = "shapes";

/// Writes shares as a file of safetensors: its header, then the words of each component. Of a component that is the stream
/// of a key, the file has the key in place of the words; it then has the shapes of all tensors.
pub(super) fn write_shares(shares: &StoredShares, file: &mut dyn Write) -> io::Result<()> {
    let StoredShares { shapes, components } = shares;
    let named = || components.iter().zip(COMPONENTS);
    let keys = || {
        named().filter_map(|(stored, name)| match stored {
            Stored::Stream(key) => Some((name, key)),
            Stored::Words(_) => None,
        })
    };
    let words = || {
        (0..shapes.len()).flat_map(move |index| {
            named().filter_map(move |(stored, name)| match stored {
                Stored::Words(words) => Some((format!("{index:06}.{name}"), words.get(index)?)),
                Stored::Stream(_) => None,
            })
        })
    };
    let mut header = serde_json::Map::new();
    let mut at = 0;
    for (name, key) in keys() {
        let (length, end) = (key.0.len(), at + key.0.len());
        let entry = json!({ "dtype": "U8", "shape": [length], "data_offsets": [at, end] });
        header.insert(key_of(name), entry);
        at = end;
    }
    if at > 0 {
        let dims: Vec<_> = shapes.iter().map(|shape| shape.dims()).collect();
        header.insert("__metadata__".to_owned(), json!({ SHAPES: serde_json::to_string(&dims)? }));
    }
    for (name, words) in words() {
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
    keys().try_for_each(|(_, key)| file.write_all(&key.0))?;
    words().try_for_each(|(_, words)| file.write_all(&words.to_bytes()))
}

/// The name of the key of a component.
fn key_of(component: &str) -> String {
    format!("{component}.key")
}

/// A server's components of several tensors, as its store keeps them. `Debug` is missing since it would show keys.
pub struct StoredShares {
    /// The shape of each tensor.
    shapes: Vec<Shape>,
    /// For each component, that of all tensors.
    components: Vec<Stored>,
}

/// A component of all tensors.
enum Stored {
    Words(Vec<Tensor>),
    /// The key of which it is the stream.
    Stream(ParcelKey),
}

impl StoredShares {
    /// Components whose words are kept.
    #[must_use]
    pub fn of(shares: &Shares) -> Self {
        let shapes = shares.iter().filter_map(|held| Some(held.first()?.shape().clone())).collect();
        let count = shares.first().map_or(0, Vec::len);
        let words = |at: usize| shares.iter().filter_map(|held| held.get(at).cloned()).collect();
        Self { shapes, components: (0..count).map(|at| Stored::Words(words(at))).collect() }
    }

    /// A server's components of tensors of these shapes, from the parcel that a client sent it. Streams are not expanded.
    ///
    /// # Errors
    /// As [`Sharing::accept`].
    pub fn received(
        sharing: &dyn Sharing,
        server: usize,
        parcel: Parcel,
        shapes: &[Shape],
    ) -> mpc_core::Result<Self> {
        let (streams, contents) = (sharing.streams(server), sharing.contents(server));
        let keys = streams.iter().flatten().count();
        let each_is_one = (keys, streams.len() - keys) == (contents.keys, contents.words.into());
        if !each_is_one || parcel.keys.len() != keys {
            return Ok(Self::of(&sharing.accept(server, parcel, shapes)?));
        }
        let Parcel { keys, words } = parcel;
        check_words(&words, if contents.words { shapes } else { &[] })?;
        let stored = |at: &Option<usize>| match at.and_then(|at| keys.get(at)) {
            Some(key) => Stored::Stream(key.clone()),
            None => Stored::Words(words.clone()),
        };
        Ok(Self { shapes: shapes.to_vec(), components: streams.iter().map(stored).collect() })
    }

    /// Hashes of the components, by which servers that hold the same one compare it: of its words, or of its key.
    #[must_use]
    pub fn hashes(&self) -> Vec<Digest> {
        let hash = |stored: &Stored| match stored {
            Stored::Words(words) => Digest::of_tensors(words),
            Stored::Stream(key) => Digest::of(&[b"stream", &key.0]),
        };
        self.components.iter().map(hash).collect()
    }

    /// The words of all components, streams among them.
    #[must_use]
    pub fn expanded_words(&self) -> u64 {
        let words: usize = self.shapes.iter().map(Shape::len).sum();
        (words * self.components.len()) as u64
    }

    /// The words that the file itself has.
    #[must_use]
    pub fn words(&self) -> usize {
        let words = |stored: &Stored| match stored {
            Stored::Words(words) => words.iter().map(EngineTensor::len).sum(),
            Stored::Stream(_) => 0,
        };
        self.components.iter().map(words).sum()
    }

    /// The shares: components that are streams are made again.
    ///
    /// # Errors
    /// If memory cannot be allocated.
    pub fn shares(self) -> Result<Shares, String> {
        let Self { shapes, components } = self;
        let mut shares: Shares = shapes.iter().map(|_| Vec::new()).collect();
        for stored in components {
            let words = match stored {
                Stored::Words(words) => words,
                Stored::Stream(key) => expand(&key, &shapes).map_err(|cause| cause.to_string())?,
            };
            shares.iter_mut().zip(words).for_each(|(held, words)| held.push(words));
        }
        Ok(shares)
    }
}

/// The contents of a server's file of shares (safetensors of 64-bit words, or of keys whose streams they are).
///
/// # Errors
/// A sentence that states what is wrong with it.
pub fn parse_shares(bytes: Bytes) -> Result<StoredShares, String> {
    let file = SafeTensors::deserialize(&bytes).map_err(|cause| cause.to_string())?;
    let tensor = |name: &str| -> Result<Tensor, String> {
        let view = file.tensor(name).map_err(|cause| cause.to_string())?;
        if view.dtype() != Dtype::U64 {
            return Err(format!("tensor {name} is not of 64-bit words"));
        }
        let shape = Shape::new(view.shape()).map_err(|cause| cause.to_string())?;
        Tensor::from_bytes(shape, bytes.slice_ref(view.data())).map_err(|cause| cause.to_string())
    };
    let key = |name: &str| file.tensor(&key_of(name)).ok();
    let has = |name: &&&str| file.tensor(&format!("000000.{name}")).is_ok() || key(name).is_some();
    let found = COMPONENTS.iter().take_while(has).count().max(1);
    let shapes = match keyed_shapes(&bytes)? {
        Some(shapes) => shapes,
        None => {
            let first = |index: usize| tensor(&format!("{index:06}.{}", COMPONENTS[0]));
            let all = (0..file.len() / found).map(first);
            all.map(|tensor| Ok(tensor?.shape().clone())).collect::<Result<_, String>>()?
        }
    };
    let stored = |name: &&str| match key(name) {
        Some(view) => {
            let key = view.data().try_into();
            key.map(|key| Stored::Stream(ParcelKey(key)))
                .map_err(|_| format!("tensor {} is not a key of 32 bytes", key_of(name)))
        }
        None => {
            let words = (0..shapes.len()).map(|index| tensor(&format!("{index:06}.{name}")));
            let words = words.collect::<Result<Vec<_>, _>>()?;
            if words.iter().map(EngineTensor::shape).ne(&shapes) {
                return Err(format!("components {name} have other shapes than the file says"));
            }
            Ok(Stored::Words(words))
        }
    };
    let components = COMPONENTS[..found].iter().map(stored).collect::<Result<_, _>>()?;
    Ok(StoredShares { shapes, components })
}

/// The shapes of all tensors, which a file with keys has.
fn keyed_shapes(bytes: &[u8]) -> Result<Option<Vec<Shape>>, String> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|cause| cause.to_string())?;
    let Some(text) = header.metadata().as_ref().and_then(|notes| notes.get(SHAPES)) else {
        return Ok(None);
    };
    let dims: Vec<Vec<usize>> = serde_json::from_str(text).map_err(|cause| cause.to_string())?;
    let shapes = dims.into_iter().map(|dims| Shape::new(dims).map_err(|cause| cause.to_string()));
    shapes.collect::<Result<_, _>>().map(Some)
}
