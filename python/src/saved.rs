//! Shares of a secret array in files, one for each party.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use mpc_core::{Held, Sharing};
use ring_arith::{EngineTensor, Shape, Tensor};
use rss_protocols::Replicated;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use crate::{
    errors::{Failure, Kind, Result},
    party::Format,
};

/// What a file holds.
#[derive(Debug)]
pub(crate) struct Saved {
    pub(crate) format: Format,
    pub(crate) dtype: String,
    pub(crate) held: Held,
    label: String,
    path: PathBuf,
}

/// What the components are called that a party holds.
const COMPONENTS: [&str; 2] = ["mine", "next"];

fn path_of(path: &str, party: usize) -> PathBuf {
    PathBuf::from(format!("{path}.party{party}"))
}

/// Writes a party's share beside the file and renames it, so that it is there as a whole or not at all.
/// `label` is the same for the three shares of an array and different for any other.
pub(crate) fn write(
    path: &str,
    party: usize,
    label: &str,
    dtype: &str,
    held: &Held,
    format: &Format,
) -> Result<String> {
    let path = path_of(path, party);
    let dims = format.shape.dims().to_vec();
    let bytes: Vec<_> = held.iter().map(Tensor::to_bytes).collect();
    let mut views = Vec::new();
    for (name, data) in COMPONENTS.into_iter().zip(&bytes) {
        let view = TensorView::new(Dtype::U64, dims.clone(), data)
            .map_err(|cause| Failure::new(Kind::Failed, format!("{}: {cause}", path.display())))?;
        views.push((name.to_owned(), view));
    }
    let about = [
        ("kind", "trefoil share".to_owned()),
        ("party", party.to_string()),
        ("label", label.to_owned()),
        ("dtype", dtype.to_owned()),
        ("frac", format.frac.to_string()),
        ("width", format.width.to_string()),
    ];
    let about = about.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let written = safetensors::serialize(views, Some(about))
        .map_err(|cause| Failure::new(Kind::Failed, format!("{}: {cause}", path.display())))?;
    let temporary = path.with_added_extension("tmp");
    let put = || {
        let mut file = create_private(&temporary)?;
        file.write_all(&written)?;
        file.sync_all()?;
        std::fs::rename(&temporary, &path)
    };
    put().map_err(|cause| file_failure(&path, &cause))?;
    Ok(path.display().to_string())
}

/// Reads a party's share.
pub(crate) fn read(path: &str, party: usize) -> Result<Saved> {
    let path = path_of(path, party);
    let bytes = std::fs::read(&path).map_err(|cause| file_failure(&path, &cause))?;
    let damaged = |what: &str| {
        Failure::input(format!("{}: it is no share of a secret array ({what})", path.display()))
    };
    let (_, header) =
        SafeTensors::read_metadata(&bytes).map_err(|cause| damaged(&cause.to_string()))?;
    let about: HashMap<_, _> = header.metadata().clone().unwrap_or_default();
    let text = |key: &str| about.get(key).cloned().ok_or_else(|| damaged(key));
    if text("kind")? != "trefoil share" {
        return Err(damaged("kind"));
    }
    if text("party")? != party.to_string() {
        let holder = text("party")?;
        let what = format!("{}: it is the share of party {holder}, not {party}", path.display());
        return Err(Failure::input(what));
    }
    let number = |key: &str| text(key)?.parse::<u32>().map_err(|_| damaged(key));
    let file = SafeTensors::deserialize(&bytes).map_err(|cause| damaged(&cause.to_string()))?;
    let tensor = |name: &str| -> Result<Tensor> {
        let view = file.tensor(name).map_err(|cause| damaged(&cause.to_string()))?;
        if view.dtype() != Dtype::U64 {
            return Err(damaged("it has no 64-bit words"));
        }
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        let words = view.data().chunks_exact(8).map(word).collect();
        Ok(Tensor::new(Shape::new(view.shape())?, words)?)
    };
    let held = COMPONENTS.into_iter().map(tensor).collect::<Result<Held>>()?;
    let shape = held[0].shape().clone();
    if held.iter().any(|component| *component.shape() != shape) {
        return Err(damaged("its two parts have different shapes"));
    }
    let (frac, width) = (number("frac")?, number("width")?);
    if frac > 62 || !(1..=64).contains(&width) {
        return Err(damaged("its format does not exist"));
    }
    let format = Format { shape, frac, width };
    Ok(Saved { format, dtype: text("dtype")?, label: text("label")?, held, path })
}

/// Checks that shares are of the same array.
pub(crate) fn same(shares: &[Saved]) -> Result<()> {
    let Some((first, rest)) = shares.split_first() else { return Ok(()) };
    for other in rest {
        if (&other.label, &other.format) != (&first.label, &first.format) {
            let (one, two) = (first.path.display(), other.path.display());
            return Err(Failure::input(format!("{one} and {two} are shares of different arrays")));
        }
    }
    for [(one, at), (other, same)] in Replicated.twins() {
        let (Some(one), Some(other)) = (shares.get(*one), shares.get(*other)) else { continue };
        if one.held[*at].words() != other.held[*same].words() {
            let path = one.path.display();
            return Err(Failure::input(format!("{path}: it does not fit the other two shares")));
        }
    }
    Ok(())
}

fn file_failure(path: &Path, cause: &io::Error) -> Failure {
    Failure::input(format!("{}: {cause}", path.display()))
}

/// A new file that only its owner may read.
fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}
