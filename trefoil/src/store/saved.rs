//! Shares of one secret array in files, one for each party.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
};

use cluster_protocols::ProtocolChoice;
use mpc_core::Held;
use ring_arith::{EngineTensor, Shape, Tensor};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use zeroize::Zeroizing;

use crate::base::{
    Error, Result,
    encryption::{Place, StoreKey, is_sealed},
    files::write_synced,
};

/// The content of a party's file.
#[derive(Debug, Clone, PartialEq)]
pub struct SavedShare {
    /// The party, or a dealer after the parties.
    pub party: usize,
    /// The protocol whose share it is.
    pub protocol: ProtocolChoice,
    /// The same for all shares of an array, and different for any other.
    pub label: String,
    /// The element type of the NumPy array.
    pub dtype: String,
    /// Fraction bits of the words.
    pub frac: u32,
    /// Bits that the numbers take.
    pub width: u32,
    /// The words that the party holds: two components.
    pub held: Held,
}

/// The names of the components that a party holds.
const COMPONENTS: [&str; 2] = ["mine", "next"];

/// The mark of such a file.
const KIND: &str = "trefoil share";

/// The file of a party.
#[must_use]
pub fn path_of(path: &Path, party: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".party{party}"));
    name.into()
}

impl SavedShare {
    /// The shape of the array.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        self.held[0].shape()
    }

    /// Writes the share to the party's file, which is there as a whole or not at all and which its owner alone may read;
    /// encrypted if there is a key. Returns the file.
    ///
    /// # Errors
    /// [`Error::Input`] if it cannot be written.
    pub fn write(&self, path: &Path, key: Option<&StoreKey>) -> Result<PathBuf> {
        let path = path_of(path, self.party);
        let bytes = Zeroizing::new(self.to_bytes()?);
        let written = match key {
            None => write_synced(&path, &bytes),
            Some(key) => write_synced(&path, &key.seal(place_of(&self.party.to_string()), &bytes)?),
        };
        written.map(|()| path).map_err(|error| match error {
            // The caller chose the path, so this is an error of its input.
            Error::File { what, cause } => Error::input(what, cause),
            other => other,
        })
    }

    /// Reads the share of a party.
    ///
    /// # Errors
    /// [`Error::Input`] if the file does not exist, is not that party's, is damaged, or does not open.
    pub fn read(path: &Path, party: usize, key: Option<&StoreKey>) -> Result<Self> {
        let path = path_of(path, party);
        let bad = |reason: String| Error::input(path.display(), reason);
        let bytes = fs::read(&path).map_err(|cause: io::Error| bad(cause.to_string()))?;
        let bytes = match key {
            None if is_sealed(&bytes) => {
                return Err(
                    bad("it is encrypted: give the key that it was saved under".to_owned()),
                );
            }
            None => bytes,
            Some(_) if !is_sealed(&bytes) => {
                return Err(bad("it is not encrypted, and a key was given".to_owned()));
            }
            Some(key) => key.open(place_of(&party.to_string()), bytes).map_err(bad)?,
        };
        let share = Self::parse(&Zeroizing::new(bytes)).map_err(|what| {
            Error::input(
                path.display(),
                format_args!("it is not a share of a secret array ({what})"),
            )
        })?;
        if share.party != party {
            return Err(bad(format!("it is the share of party {}, not {party}", share.party)));
        }
        Ok(share)
    }

    /// The bytes of the party's file.
    ///
    /// # Errors
    /// [`Error::Internal`] if the components are not of one shape.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let words: Vec<_> = self.held.iter().map(Tensor::to_bytes).collect();
        let broken =
            |cause: safetensors::SafeTensorError| Error::Internal(format!("a share: {cause}"));
        let mut views = Vec::new();
        for (name, data) in COMPONENTS.into_iter().zip(&words) {
            let dims = self.shape().dims().to_vec();
            views.push((name, TensorView::new(Dtype::U64, dims, data).map_err(broken)?));
        }
        let about = [
            ("kind", KIND.to_owned()),
            ("party", self.party.to_string()),
            ("protocol", self.protocol.to_string()),
            ("label", self.label.clone()),
            ("dtype", self.dtype.clone()),
            ("frac", self.frac.to_string()),
            ("width", self.width.to_string()),
        ];
        let about = about.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        safetensors::serialize(views, Some(about)).map_err(broken)
    }

    /// The share in the bytes of a file.
    ///
    /// # Errors
    /// The fault, for people.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let said = |cause: safetensors::SafeTensorError| cause.to_string();
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(said)?;
        let about: HashMap<_, _> = header.metadata().clone().unwrap_or_default();
        let text = |key: &str| about.get(key).cloned().ok_or_else(|| key.to_owned());
        if text("kind")? != KIND {
            return Err("kind".to_owned());
        }
        let number = |key: &str| text(key)?.parse::<u32>().map_err(|_| key.to_owned());
        let file = SafeTensors::deserialize(bytes).map_err(said)?;
        let tensor = |name: &str| -> Result<Tensor, String> {
            let view = file.tensor(name).map_err(said)?;
            if view.dtype() != Dtype::U64 {
                return Err("it has no 64-bit words".to_owned());
            }
            let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
            let words = view.data().chunks_exact(8).map(word).collect();
            let shape = Shape::new(view.shape()).map_err(|cause| cause.to_string())?;
            Tensor::new(shape, words).map_err(|cause| cause.to_string())
        };
        let held = COMPONENTS.into_iter().map(tensor).collect::<Result<Held, _>>()?;
        if held.iter().any(|component| component.shape() != held[0].shape()) {
            return Err("its two parts have different shapes".to_owned());
        }
        let (party, frac, width) = (number("party")? as usize, number("frac")?, number("width")?);
        if frac > 62 || !(1..=64).contains(&width) {
            return Err("its format does not exist".to_owned());
        }
        // Files of earlier versions name none.
        let protocol =
            about.get("protocol").map_or(Ok(ProtocolChoice::Rss), |name| name.parse())?;
        let (label, dtype) = (text("label")?, text("dtype")?);
        Ok(Self { party, protocol, label, dtype, frac, width, held })
    }
}

/// Checks that shares, in the order of their parties, are of the same array and of a session's protocol.
///
/// # Errors
/// [`Error::Input`] that names the files at `path` which are not.
pub fn same(path: &Path, protocol: ProtocolChoice, shares: &[SavedShare]) -> Result<()> {
    let Some((first, rest)) = shares.split_first() else { return Ok(()) };
    let shown = |share: &SavedShare| path_of(path, share.party).display().to_string();
    if let Some(other) = shares.iter().find(|share| share.protocol != protocol) {
        let reason =
            format!("it is a share of `{}`, and the session is of `{protocol}`", other.protocol);
        return Err(Error::input(shown(other), reason));
    }
    let format = |share: &SavedShare| (share.label.clone(), share.frac, share.width);
    for other in rest {
        if format(other) != format(first) || other.shape() != first.shape() {
            let files = format!("{} and {}", shown(first), shown(other));
            return Err(Error::input(files, "they are shares of different arrays"));
        }
    }
    for [(one, at), (other, same)] in protocol.sharing().twins() {
        let (Some(one), Some(other)) = (shares.get(*one), shares.get(*other)) else { continue };
        if one.held[*at].words() != other.held[*same].words() {
            return Err(Error::input(shown(one), "it does not fit the other shares"));
        }
    }
    Ok(())
}

/// The place of a saved share, which its encryption is bound to.
fn place_of(party: &str) -> Place<'_> {
    Place::loose(party, "saved")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(party: usize, words: [u64; 2]) -> SavedShare {
        let shape = Shape::new([1]).unwrap();
        let held = words.map(|word| Tensor::new(shape.clone(), vec![word]).unwrap());
        let (label, dtype) = ("label".to_owned(), "float64".to_owned());
        let protocol = ProtocolChoice::Rss;
        SavedShare { party, protocol, label, dtype, frac: 20, width: 43, held: held.into() }
    }

    #[test]
    fn a_saved_share_is_read_as_it_was_written_and_shows_nothing_under_a_key() {
        let folder = crate::testing::folder("saved");
        let path = folder.join("x");
        let key = StoreKey::generate().unwrap();
        let file = folder.join("store.key");
        write_synced(&file, key.as_bytes()).unwrap();
        let key = StoreKey::read(&file).unwrap();
        let secret = share(1, [0x5eed_f00d_dead_beef, 7]);
        for key in [None, Some(&key)] {
            let file = secret.write(&path, key).unwrap();
            let shown = fs::read(&file)
                .unwrap()
                .windows(8)
                .any(|it| it == 0x5eed_f00d_dead_beef_u64.to_le_bytes());
            assert_eq!(shown, key.is_none());
            assert_eq!(SavedShare::read(&path, 1, key).unwrap(), secret);
        }
        let text = SavedShare::read(&path, 1, None).unwrap_err().to_string();
        assert!(text.contains("it is encrypted"), "{text}");
        // Another party's file in its place does not open.
        fs::rename(path_of(&path, 1), path_of(&path, 2)).unwrap();
        let text = SavedShare::read(&path, 2, Some(&key)).unwrap_err().to_string();
        assert!(text.contains("does not open"), "{text}");
    }

    #[test]
    fn shares_of_different_arrays_are_refused() {
        let path = Path::new("x");
        // Party p holds components p and p + 1.
        let three = [share(0, [1, 2]), share(1, [2, 3]), share(2, [3, 1])];
        let checked = |shares: &[SavedShare]| same(path, ProtocolChoice::Rss, shares);
        checked(&three).unwrap();
        let mut other = three.clone();
        other[1].label = "another".to_owned();
        let text = checked(&other).unwrap_err().to_string();
        assert!(text.contains("x.party0 and x.party1") && text.contains("different"), "{text}");
        let text = checked(&[share(0, [1, 2]), share(1, [9, 3]), share(2, [3, 1])]).unwrap_err();
        assert!(text.to_string().contains("does not fit"), "{text}");
        let dealt = "dealt-2".parse().unwrap();
        let text = same(path, dealt, &three).unwrap_err().to_string();
        assert!(text.contains("x.party0") && text.contains("`rss`"), "{text}");
        assert!(text.contains("of `dealt-2`"), "{text}");
    }
}
