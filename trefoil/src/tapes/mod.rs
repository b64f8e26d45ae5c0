//! A dealer's tapes: what they are made of, and the folder of a server where they lie until they are spent.

mod label;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use crate::{
    base::{
        Digest, Error, Holder, PROGRAM, Result,
        encryption::{Place, StoreKey, opened, rekeyed},
        files::{new_private, sync_folder, write_synced},
        id::fill_random,
    },
    model::Program,
};
use cluster_protocols::{Dealer, Tape, TapeKey, TapePlayer};
use gpu_kernels::AnyEngine;
use label::Label;
use mpc_core::{Deal, Settings};
use net::{Identity, Trust};
use ring_arith::Generator;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// The folder of tapes among a server's data.
const FOLDER: &str = "tapes";

/// The ending of tapes' files.
const SUFFIX: &str = "tape";

/// The ending of their keys' files, at a server whose store has a key.
const KEY: &str = "key";

/// A tape that waits to be played, or is spent, as a server reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeState {
    /// The name that both tapes of a pair have.
    pub tape: String,
    /// The model that it is for, if this server has one.
    pub model: Option<String>,
    /// The dealer who made it.
    pub dealer: String,
    /// Examples of each place, at most.
    pub examples: u64,
    /// Places that are left: each gives the answers of one run.
    pub left: u64,
    /// Places that there were.
    pub answers: u64,
}

/// A server's tapes. The server opens them when their files appear in the folder, and keeps them open.
///
/// If the server's store has a key, the key of each tape is taken out of the tape's file and lies beside it,
/// encrypted.
#[derive(Debug)]
pub struct Shelf {
    folder: PathBuf,
    holder: Holder,
    key: Option<StoreKey>,
    /// The authority that certifies dealers.
    trust: Mutex<Option<Trust>>,
    known: Mutex<BTreeMap<PathBuf, Result<Labelled, String>>>,
}

/// A tape that can be played.
#[derive(Debug, Clone)]
pub struct Labelled {
    /// The tape.
    pub tape: Tape,
    /// The name of the dealer who made it, by the dealer's signature.
    pub dealer: String,
}

/// The digest of all that a dealer's run depends on, which must be the same at the servers: the program and its
/// settings.
#[must_use]
pub fn digest(program: &Program, settings: &Settings, examples: u64) -> Digest {
    let settings = format!("{settings:?}");
    Digest::of(&[
        b"rss-dealt, a guard for each example",
        PROGRAM.as_bytes(),
        program.digest().as_bytes(),
        settings.as_bytes(),
        &examples.to_le_bytes(),
    ])
}

/// The name of a pair of tapes for people: a hash of its secret name, which only the servers know.
#[must_use]
pub fn shown_name(id: &[u8; 16]) -> String {
    Digest::of(&[b"tape", id]).to_string()
}

/// The computation that tapes are made for.
#[derive(Debug)]
pub struct Order<'a> {
    /// The program that the servers run.
    pub program: &'a Program,
    /// Examples of each place, at most, of all jobs that share it.
    pub examples: usize,
    /// Number of places, each for the answers of one run.
    pub answers: u64,
    /// The settings of the servers' protocol.
    pub settings: Settings,
    /// The generator of the streams that the servers have in common with the dealer.
    pub generator: Generator,
}

impl Order<'_> {
    /// Makes the tapes of both servers in two new files, and a label signed by the dealer beside each. `made` gets the
    /// number of answers that are done.
    ///
    /// # Errors
    /// [`Error::File`] if a file exists already or cannot be written, [`Error::Mpc`] if the plan cannot be run.
    pub fn make(
        &self,
        engine: AnyEngine,
        dealer: &Identity,
        paths: &[PathBuf; 2],
        made: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let files = [new_file(&paths[0])?, new_file(&paths[1])?];
        let done = self.deal(engine, files, made).and_then(|files| {
            let synced = files
                .iter()
                .zip(paths)
                .map(|(file, path)| file.sync_all().map_err(|cause| Error::file(path, cause)));
            synced.collect::<Result<()>>()
        });
        let done = done.and_then(|()| {
            paths.iter().try_for_each(|path| Label::sign(dealer, path)?.write(path))
        });
        if done.is_err() {
            // An unfinished file is not a tape, and only takes room.
            for path in paths {
                drop(fs::remove_file(path));
                drop(fs::remove_file(Label::beside(path)));
            }
        }
        done
    }

    fn deal(
        &self,
        engine: AnyEngine,
        files: [File; 2],
        made: &mut dyn FnMut(u64),
    ) -> Result<[File; 2]> {
        let Self { program, examples, answers, settings, generator } = *self;
        let mut secret = Zeroizing::new([0; 32]);
        fill_random(&mut *secret)?;
        let digest = *digest(program, &settings, examples as u64).as_bytes();
        let files = files.map(io::BufWriter::new);
        let mut dealer = Dealer::new(engine, settings.into(), generator, &secret, digest, files)?
            .examples(examples as u64);
        let weights =
            dealer.set_up(|mpc| Deal::accept(mpc, &program.weight_shapes(), Vec::new()))?;
        let weights = program.plan().secret_weights(weights);
        let shapes = program.plan().input_shapes(examples)?;
        for done in 0..answers {
            dealer.deal(|mpc: &mut TapePlayer| {
                let run = program.run_place(mpc, &weights, &shapes, Vec::new(), &mut ());
                run.map(drop).map_err(|error| mpc_core::Error::Invalid {
                    op: "plan",
                    reason: error.to_string(),
                })
            })?;
            made(done + 1);
        }
        let [zero, one] = dealer.finish()?.map(io::BufWriter::into_inner);
        let unwritten = |error: io::IntoInnerError<_>| Error::File {
            what: "tape".to_owned(),
            cause: error.into_error(),
        };
        Ok([zero.map_err(unwritten)?, one.map_err(unwritten)?])
    }
}

impl Shelf {
    /// The tapes in the data folder of a server, under the key of its store. None is played before [`Shelf::trust`].
    #[must_use]
    pub fn new(data: &Path, holder: Holder, key: Option<StoreKey>) -> Self {
        let (trust, known) = (Mutex::default(), Mutex::default());
        Self { folder: data.join(FOLDER), holder, key, trust, known }
    }

    /// The place of a tape's key, which its encryption is bound to.
    fn place_of<'a>(&self, tape: &'a str) -> Place<'a> {
        Place::unversioned(self.holder, tape, "tape")
    }

    /// Takes the tapes of dealers whom an authority certifies. Tapes that are open already are checked again.
    pub fn trust(&self, authority: Trust) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        *self.trust.lock().unwrap_or_else(PoisonError::into_inner) = Some(authority);
        for (path, found) in known.iter_mut() {
            let signed = Label::read(path).and_then(|label| self.dealer(&label));
            if let (Ok(_), Err(reason)) = (&*found, signed) {
                *found = Err(reason);
            }
        }
    }

    /// Moves a tape's file with its label to the folder of party `party`, where it is played from. The server may run.
    /// Returns where it is now, and its dealer's name.
    ///
    /// # Errors
    /// [`Error::Input`] if it is not a whole tape of this party, no dealer of the cluster signed it as it is, or it was
    /// added before; [`Error::File`] if it cannot be moved.
    pub fn add(&self, file: &Path, party: usize) -> Result<(PathBuf, String)> {
        let bad = |reason: String| Error::input(file.display(), reason);
        let tape = Tape::open(file, None).map_err(|error| bad(reason_of(&error)))?;
        if tape.party().0 != party {
            let reason = format!("it is the tape of {}, not of party {party}", tape.party());
            return Err(bad(reason));
        }
        let label = Label::read(file).map_err(bad)?;
        label.check_tape(&tape).map_err(bad)?;
        let dealer = self.dealer(&label).map_err(bad)?;
        label.check_file(file).map_err(bad)?;
        let place = self.folder.join(format!("{}.{SUFFIX}", shown_name(&tape.id())));
        drop(tape);
        if place.exists() {
            let reason = "this tape is here already; a copy of it would use its answers twice";
            return Err(bad(reason.to_owned()));
        }
        fs::create_dir_all(&self.folder).map_err(|cause| Error::file(&self.folder, cause))?;
        label.write(&place)?;
        let moved = match fs::rename(file, &place) {
            Err(cause) if cause.kind() == io::ErrorKind::CrossesDevices => carry(file, &place),
            outcome => outcome,
        };
        moved
            .and_then(|()| File::open(&self.folder)?.sync_all())
            .map_err(|cause| Error::file(&place, cause))?;
        drop(fs::remove_file(Label::beside(file)));
        // Takes the tape's key out of it, unless a server that runs has the tape already and does so.
        drop(self.open(&place));
        Ok((place, dealer))
    }

    /// The name of the dealer who signed a label.
    fn dealer(&self, label: &Label) -> Result<String, String> {
        let trust = self.trust.lock().unwrap_or_else(PoisonError::into_inner);
        label.dealer(trust.as_ref().ok_or("no authority is known that certifies dealers")?)
    }

    /// Opens a tape that a dealer of the cluster has signed.
    fn open_labelled(&self, path: &Path) -> Result<Labelled, String> {
        let label = Label::read(path)?;
        let dealer = self.dealer(&label)?;
        let tape = self.open(path)?;
        label.check_tape(&tape)?;
        Ok(Labelled { tape, dealer })
    }

    /// Encrypts the keys of all tapes again: those that are under `from`, or plain, under the store's key, or plain
    /// if it has none. Returns the number of tapes.
    ///
    /// # Errors
    /// [`Error::Refused`] if a tape cannot be opened, [`Error::File`] if the folder cannot be read or written.
    pub fn rekey(&self, from: Option<&StoreKey>) -> Result<usize> {
        let tapes = self.files()?;
        for tape in &tapes {
            let bad = |reason: String| Error::refused(format_args!("`{}`", tape.display()), reason);
            let beside = tape.with_extension(KEY);
            match fs::read(&beside) {
                Ok(bytes) => {
                    let name = name_of(tape);
                    let fresh = rekeyed(self.place_of(&name), bytes, from, self.key.as_ref());
                    if let Some(bytes) = fresh.map_err(bad)? {
                        write_synced(&beside, &Zeroizing::new(bytes))?;
                    }
                }
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                    self.open(tape).map(drop).map_err(bad)?;
                }
                Err(cause) => return Err(Error::file(&beside, cause)),
            }
        }
        Ok(tapes.len())
    }

    /// Opens a tape with its key, which is from then on in its place.
    fn open(&self, path: &Path) -> Result<Tape, String> {
        let (beside, name) = (path.with_extension(KEY), name_of(path));
        let place = self.place_of(&name);
        let kept = match fs::read(&beside) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => None,
            Err(cause) => return Err(format!("its key cannot be read: {cause}")),
            Ok(bytes) => {
                let bytes = Zeroizing::new(opened(self.key.as_ref(), place, bytes)?);
                let bytes = <&[u8; 32]>::try_from(&bytes[..]);
                Some(TapeKey::new(bytes.map_err(|_| "its key is damaged".to_owned())?))
            }
        };
        let tape = Tape::open(path, kept.as_ref()).map_err(|error| reason_of(&error))?;
        if let Some(key) = &self.key {
            let take_out = || {
                if kept.is_none() {
                    write_synced(&beside, &key.seal(place, tape.key().bytes())?)?;
                    sync_folder(&self.folder)?;
                }
                Ok(tape.without_key()?)
            };
            take_out().map_err(|error: Error| error.to_string())?;
        }
        Ok(tape)
    }

    /// The files of tapes.
    fn files(&self) -> Result<Vec<PathBuf>> {
        match fs::read_dir(&self.folder) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(cause) => Err(Error::file(&self.folder, cause)),
            Ok(entries) => {
                let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
                Ok(paths.filter(|path| path.extension().is_some_and(|it| it == SUFFIX)).collect())
            }
        }
    }

    /// The tapes that are there, and why files in the folder cannot be used.
    ///
    /// # Errors
    /// [`Error::File`] if the folder cannot be read.
    pub fn tapes(&self) -> Result<(Vec<Labelled>, Vec<String>)> {
        let found = self.files()?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|path, _| found.contains(path));
        for path in found {
            // A file that could not be used may have been repaired.
            if !matches!(known.get(&path), Some(Ok(_))) {
                let tape = self.open_labelled(&path);
                known.insert(path, tape);
            }
        }
        let usable = known.values().filter_map(|tape| tape.as_ref().ok()).cloned().collect();
        let reasons = known.values().filter_map(|tape| tape.as_ref().err()).cloned().collect();
        Ok((usable, reasons))
    }
}

/// The name of a tape, which its file bears.
fn name_of(tape: &Path) -> String {
    tape.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Moves a file between file systems: it is there as a whole before the old one goes.
fn carry(from: &Path, to: &Path) -> io::Result<()> {
    let temporary = to.with_added_extension("tmp");
    let _ = fs::remove_file(&temporary);
    let mut copy = new_private(&temporary)?;
    io::copy(&mut File::open(from)?, &mut copy)?;
    copy.sync_all()?;
    fs::rename(&temporary, to)?;
    fs::remove_file(from)
}

fn new_file(path: &Path) -> Result<File> {
    new_private(path).map_err(|cause| Error::file(path, cause))
}

/// The fault, without the name of the file.
fn reason_of(error: &mpc_core::Error) -> String {
    match error {
        mpc_core::Error::Net(net::Error::Config { reason, .. }) => reason.clone(),
        other => other.to_string(),
    }
}
