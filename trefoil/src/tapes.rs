//! A dealer's tapes: what they are made of, and the folder of a server where they lie until they are spent.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use gpu_kernels::AnyEngine;
use mpc_core::Deal;
use ring_arith::Generator;
use rss_protocols::{Dealer, Options, Tape};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{
    Digest, Error, Result,
    id::fill_random,
    program::{Mpc, Program},
    store::new_private,
};

/// The folder of tapes among a server's data.
const FOLDER: &str = "tapes";

/// How the files of tapes end.
const SUFFIX: &str = "tape";

/// A tape that waits to be played, or is spent, as a server tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeState {
    /// The name that both tapes of a pair have.
    pub tape: String,
    /// The model that it is for, if this server has one.
    pub model: Option<String>,
    /// Examples of each answer, at most.
    pub examples: u64,
    /// Answers that are left.
    pub left: u64,
    /// Answers that there were.
    pub answers: u64,
}

/// A server's tapes. They are taken up when their files appear in the folder, and stay open.
#[derive(Debug)]
pub struct Shelf {
    folder: PathBuf,
    open: Mutex<BTreeMap<PathBuf, Result<Tape, String>>>,
}

/// What a dealer's run follows from, which the servers must have the same: the program and its options.
#[must_use]
pub fn digest(program: &Program, options: &Options, examples: u64) -> Digest {
    let options = format!("{options:?}");
    Digest::of(&[
        b"rss-dealt",
        crate::PROGRAM.as_bytes(),
        program.digest().as_bytes(),
        options.as_bytes(),
        &examples.to_le_bytes(),
    ])
}

/// What people see of a pair of tapes: a hash of its name, which is known to the servers alone.
#[must_use]
pub fn shown_name(id: &[u8; 16]) -> String {
    Digest::of(&[b"tape", id]).to_string()
}

/// What tapes are made for.
#[derive(Debug)]
pub struct Order<'a> {
    /// The program that the servers run.
    pub program: &'a Program,
    /// Examples of each answer, at most.
    pub examples: usize,
    /// Number of answers.
    pub answers: u64,
    /// As the servers have them.
    pub options: Options,
    /// What makes the streams that the servers have in common with the dealer.
    pub generator: Generator,
}

impl Order<'_> {
    /// Makes the tapes of both servers in two new files. `made` hears how many answers are done.
    ///
    /// # Errors
    /// [`Error::File`] if a file is there already or cannot be written, [`Error::Mpc`] if the plan cannot be run.
    pub fn make(
        &self,
        engine: AnyEngine,
        paths: &[PathBuf; 2],
        made: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let files = [new_file(&paths[0])?, new_file(&paths[1])?];
        let done = self.deal(engine, files, made).and_then(|files| {
            let synced = files
                .iter()
                .zip(paths)
                .map(|(file, path)| file.sync_all().map_err(|cause| Error::file(path, cause)));
            synced.collect()
        });
        if done.is_err() {
            // What is not finished is no tape, and only takes room.
            paths.iter().for_each(|path| drop(fs::remove_file(path)));
        }
        done
    }

    fn deal(
        &self,
        engine: AnyEngine,
        files: [File; 2],
        made: &mut dyn FnMut(u64),
    ) -> Result<[File; 2]> {
        let Self { program, examples, answers, options, generator } = *self;
        let mut secret = Zeroizing::new([0; 32]);
        fill_random(&mut *secret)?;
        let digest = *digest(program, &options, examples as u64).as_bytes();
        let files = files.map(io::BufWriter::new);
        let mut dealer = Dealer::new(engine, options, generator, &secret, digest, files)?
            .examples(examples as u64);
        let weights =
            dealer.set_up(|mpc| Deal::accept(mpc, &program.weight_shapes(), Vec::new()))?;
        let shapes = program.plan().input_shapes(examples)?;
        for done in 0..answers {
            dealer.deal(|mpc: &mut Mpc| {
                let run = program.run_on(mpc, &weights, &shapes, Vec::new(), &mut ());
                let outputs = run.map_err(|error| mpc_core::Error::Invalid {
                    op: "plan",
                    reason: error.to_string(),
                })?;
                mpc.release(&outputs.iter().collect::<Vec<_>>()).map(drop)
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
    /// The tapes in a server's data folder.
    #[must_use]
    pub fn new(data: &Path) -> Self {
        Self { folder: data.join(FOLDER), open: Mutex::default() }
    }

    /// Moves a tape's file to the folder of party `party`, where it is played from. The server may run. Returns
    /// where it is now.
    ///
    /// # Errors
    /// [`Error::Input`] if it is not a whole tape of this party, or is there already; [`Error::File`] if it cannot be
    /// moved.
    pub fn add(&self, file: &Path, party: usize) -> Result<PathBuf> {
        let bad = |reason: String| Error::input(file.display(), reason);
        let tape = Tape::open(file).map_err(|error| bad(reason_of(&error)))?;
        if tape.party().0 != party {
            let reason = format!("it is the tape of {}, not of party {party}", tape.party());
            return Err(bad(reason));
        }
        let place = self.folder.join(format!("{}.{SUFFIX}", shown_name(&tape.id())));
        drop(tape);
        if place.exists() {
            let reason = "this tape is here already; a copy of it would use its answers twice";
            return Err(bad(reason.to_owned()));
        }
        fs::create_dir_all(&self.folder).map_err(|cause| Error::file(&self.folder, cause))?;
        let moved = match fs::rename(file, &place) {
            Err(cause) if cause.kind() == io::ErrorKind::CrossesDevices => carry(file, &place),
            outcome => outcome,
        };
        moved
            .and_then(|()| File::open(&self.folder)?.sync_all())
            .map_err(|cause| Error::file(&place, cause))?;
        Ok(place)
    }

    /// The tapes that are there, and why files in the folder cannot be used.
    ///
    /// # Errors
    /// [`Error::File`] if the folder cannot be read.
    pub fn tapes(&self) -> Result<(Vec<Tape>, Vec<String>)> {
        let mut found = Vec::new();
        match fs::read_dir(&self.folder) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
            Err(cause) => return Err(Error::file(&self.folder, cause)),
            Ok(entries) => {
                let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
                found.extend(paths.filter(|path| path.extension().is_some_and(|it| it == SUFFIX)));
            }
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|path, _| found.contains(path));
        for path in found {
            // What could not be used may have been put right.
            if !matches!(open.get(&path), Some(Ok(_))) {
                let tape = Tape::open(&path).map_err(|error| reason_of(&error));
                open.insert(path, tape);
            }
        }
        let usable = open.values().filter_map(|tape| tape.as_ref().ok()).cloned().collect();
        let reasons = open.values().filter_map(|tape| tape.as_ref().err()).cloned().collect();
        Ok((usable, reasons))
    }
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

/// What is wrong, without the name of the file.
fn reason_of(error: &mpc_core::Error) -> String {
    match error {
        mpc_core::Error::Net(net::Error::Config { reason, .. }) => reason.clone(),
        other => other.to_string(),
    }
}
