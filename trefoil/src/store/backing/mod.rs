//! The place of a store's objects: whole objects under names, with one atomic step.
//!
//! Several workers of a party use one store. They exclude each other by that step alone: an object is created if there
//! is none, or replaced or removed if it is what it was when it was read. Nothing else is assumed of what keeps the
//! objects, so that a folder and an object store can both do it.

mod files;

use std::{
    fmt,
    io::{self, Read, Write},
};

pub(crate) use files::Files;

use super::Worker;
use crate::base::Result;

/// The state of an object when it was read: equal only if its content is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tag(pub(super) String);

/// A small object, read as a whole.
#[derive(Debug)]
pub(crate) struct Object {
    pub bytes: Vec<u8>,
    pub tag: Tag,
}

/// The facts about an object that are known without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Its length.
    pub bytes: u64,
    /// Differs from the mark before if the object has changed since. None if that is not certain yet.
    pub mark: Option<String>,
}

/// Writes the content of an object.
pub(crate) type Body<'a> = dyn FnMut(&mut dyn Write) -> io::Result<()> + 'a;

/// Objects under names of the form `models/digits/manifest`. An object is there as a whole or not at all, and is on the
/// disk, or wherever it is kept, once a call that made it returns. Errors are [`crate::base::Error::File`].
pub(crate) trait Backing: fmt::Debug + Send + Sync {
    /// The place of an object, for people.
    fn place(&self, name: &str) -> String;

    /// The facts about an object, without reading it. None if there is none.
    fn look(&self, name: &str) -> Result<Option<Seen>>;

    /// Opens an object that may be large.
    fn open(&self, name: &str) -> Result<Option<Box<dyn Read>>>;

    /// Reads an object as a whole, to change it later.
    fn read(&self, name: &str) -> Result<Option<Object>>;

    /// Writes an object, whatever was there.
    fn write(&self, name: &str, body: &mut Body<'_>) -> Result<()>;

    /// Writes an object in the place of one that is unchanged; without a tag, if there is none of that name. Says
    /// whether it did.
    fn swap(&self, name: &str, bytes: &[u8], was: Option<&Tag>) -> Result<bool>;

    /// Removes an object, if it is unchanged where a tag is given. Says whether there was one to remove.
    fn remove(&self, name: &str, was: Option<&Tag>) -> Result<bool>;

    /// The first parts of the names that begin with `under` and a slash, in no order.
    fn list(&self, under: &str) -> Result<Vec<String>>;

    /// Forgets that there was something under a name, where a folder would stay.
    fn prune(&self, under: &str);
}

/// The prefix of what a worker alone makes.
fn prefix(worker: Worker) -> String {
    match worker {
        Worker::Alone => "server.".to_owned(),
        Worker::Cell(cell) => format!("cell-{cell}."),
    }
}
