//! The messages between clients and servers, the connections that carry them, and the progress that they report.
//!
//! A message is a small JSON header in one frame, followed by the bytes it announces in frames of at most [`CHUNK`]
//! bytes. A server knows from the header how many bytes will come and refuses what is too much before it reads any of
//! it. Data that may be long, labels and plans for instance, are never part of a request's header; keys and words are
//! never in a header at all.

mod connection;
mod messages;
mod pace;
mod progress;
mod states;
#[cfg(test)]
mod tests;

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ring_arith::{Shape, Tensor};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub(crate) use connection::{Connection, resolve};
pub use messages::{Reply, Request};
pub use pace::Pace;
pub use progress::Watched;
pub use states::{
    Cell, Cost, DataState, JobState, Link, ModelState, Place, PublicModel, RunState, Stage, Status,
    StepCost,
};

use mpc_core::{Parcel, ParcelKey, sharing::Contents};

use crate::base::{Error, PROGRAM, Result};

/// The version of this protocol.
pub const VERSION: u32 = 10;

/// Largest frame of data.
pub const CHUNK: usize = 4 << 20;

/// Smallest frame of data, but for the last: so that frames cost their receiver little beside what
/// they carry.
const LEAST_CHUNK: usize = 1 << 10;

/// Largest header of a request: the columns of a data set make it long.
pub const REQUEST: usize = 256 << 10;

/// Largest header of a reply: the profile of a job makes it long.
const REPLY: usize = 16 << 20;

/// The most inputs or outputs in one message.
pub(crate) const MOST_TENSORS: usize = 64;

/// In every reply to a client whose conversation is not here, or not of this model any more.
pub(crate) const GONE: &str = "send its text again";

/// In every reply about a job that was lost with a server or a link, and not for what it is: another cell can do it.
pub(crate) const LOST: &str = "it can be sent again";

/// A connection between a client and a server: whole frames in order.
pub trait Channel: Send {
    /// Sends a frame.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if the other side has gone.
    fn send(&mut self, frame: Bytes) -> Result<()>;

    /// Sends a frame to a receiver that may never read it: waits for room at most `limit`.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if the other side has gone, or reads too little.
    fn send_within(&mut self, frame: Bytes, limit: Duration) -> Result<()>;

    /// Waits for a frame.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if the other side has gone or nothing came within the limit.
    fn receive(&mut self, limit: Duration) -> Result<Bytes>;

    /// True if the other side has gone.
    fn is_over(&self) -> bool;
}

/// A message, with the version of this protocol.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Versioned<T> {
    trefoil: u32,
    say: T,
}

/// A header: the messages of one direction.
pub trait Header: Serialize + DeserializeOwned {
    /// Its largest length in bytes.
    const LONGEST: usize;
}

impl Header for Request {
    const LONGEST: usize = REQUEST;
}

impl Header for Reply {
    const LONGEST: usize = REPLY;
}

/// Sends a header.
///
/// # Errors
/// [`Error::Refused`] if it is longer than the other side reads, [`Error::Unreachable`] if that has gone.
pub fn say<T: Header>(channel: &mut dyn Channel, body: &T) -> Result<()> {
    channel.send(header(body)?.into())
}

/// A header, written.
///
/// # Errors
/// [`Error::Refused`] if it is longer than the other side reads.
pub fn header<T: Header>(body: &T) -> Result<Vec<u8>> {
    let frame = serde_json::to_vec(&Versioned { trefoil: VERSION, say: body })
        .map_err(|cause| Error::Internal(format!("message: {cause}")))?;
    check_length::<T>(frame.len())?;
    Ok(frame)
}

/// Waits for a header.
///
/// # Errors
/// [`Error::Unreachable`] as the channel, [`Error::Refused`] if it is not a header of this version.
pub fn hear<T: Header>(channel: &mut dyn Channel, limit: Duration) -> Result<T> {
    parse(&channel.receive(limit)?)
}

/// Reads a header.
///
/// # Errors
/// [`Error::Refused`] if it is not a header of this version.
pub fn parse<T: Header>(frame: &[u8]) -> Result<T> {
    #[derive(Deserialize)]
    struct Version {
        trefoil: u32,
    }
    let bad = |reason: String| Error::refused("message", reason);
    check_length::<T>(frame.len())?;
    let version: Version = serde_json::from_slice(frame)
        .map_err(|_| bad("it is not a header of this protocol".to_owned()))?;
    if version.trefoil != VERSION {
        return Err(bad(format!(
            "the other side speaks version {} of the protocol, and this program (trefoil {}) version \
             {VERSION}; run the same program on all machines",
            version.trefoil, PROGRAM
        )));
    }
    let message: Versioned<T> =
        serde_json::from_slice(frame).map_err(|cause| bad(format!("not understood: {cause}")))?;
    Ok(message.say)
}

fn check_length<T: Header>(length: usize) -> Result<()> {
    if length <= T::LONGEST {
        return Ok(());
    }
    let reason = format!("a header of {length} bytes; at most {} are read", T::LONGEST);
    Err(Error::refused("message", reason))
}

/// Sends a server its parcel of a secret: its keys, then its words.
///
/// # Errors
/// [`Error::Unreachable`] if the other side has gone.
pub fn send_parcel(
    channel: &mut dyn Channel,
    parcel: &Parcel,
    sent: &mut dyn FnMut(u64),
) -> Result<()> {
    if !parcel.keys.is_empty() {
        let mut keys = BytesMut::new();
        parcel.keys.iter().for_each(|key| keys.extend_from_slice(&key.0));
        channel.send(keys.freeze())?;
    }
    parcel.words.iter().try_for_each(|words| send_bytes(channel, words.to_bytes(), sent))
}

/// Receives a server's parcel of a secret, with the announced contents.
///
/// # Errors
/// [`Error::Unreachable`] as the channel, [`Error::Refused`] if it is not as announced.
pub fn receive_parcel(
    channel: &mut dyn Channel,
    contents: Contents,
    shapes: &[Shape],
    pace: &mut Pace,
) -> Result<Parcel> {
    let frame = if contents.keys > 0 { pace.receive(channel)? } else { Bytes::new() };
    let bad = || Error::refused("request", "its keys are not of the announced length");
    if frame.len() != 32 * contents.keys {
        return Err(bad());
    }
    let keys = frame.chunks_exact(32).map(|key| key.try_into().map(ParcelKey).map_err(|_| bad()));
    let keys = keys.collect::<Result<_>>()?;
    let words = if contents.words { shapes } else { &[] };
    let words = words.iter().map(|shape| receive_tensor(channel, shape, pace));
    Ok(Parcel { keys, words: words.collect::<Result<_>>()? })
}

/// Sends bytes in frames of at most [`CHUNK`].
///
/// # Errors
/// [`Error::Unreachable`] if the other side has gone.
pub fn send_bytes(
    channel: &mut dyn Channel,
    mut bytes: Bytes,
    sent: &mut dyn FnMut(u64),
) -> Result<()> {
    while !bytes.is_empty() {
        let frame = bytes.split_to(bytes.len().min(CHUNK));
        let count = frame.len() as u64;
        channel.send(frame)?;
        sent(count);
    }
    Ok(())
}

/// Sends bytes in frames of at most [`CHUNK`] to a receiver that may read slowly or not at all. The queue holds
/// copies of the frames, so that waiting frames do not keep all bytes in memory.
///
/// # Errors
/// [`Error::Unreachable`] if the other side has gone, or reads too slowly.
pub fn send_bytes_at(channel: &mut dyn Channel, bytes: &[u8], pace: &mut Pace) -> Result<()> {
    bytes.chunks(CHUNK).try_for_each(|frame| pace.send(channel, Bytes::copy_from_slice(frame)))
}

/// Receives exactly `count` bytes into one buffer, which grows with what has come, not with what was
/// announced.
///
/// # Errors
/// [`Error::Unreachable`] as the channel. [`Error::Refused`] if more bytes come, if they come in crumbs or too
/// slowly, or if the memory for them is lacking.
pub fn receive_bytes(channel: &mut dyn Channel, count: usize, pace: &mut Pace) -> Result<Bytes> {
    let mut all: Vec<u8> = Vec::new();
    while all.len() < count {
        let frame = pace.receive(channel)?;
        let left = count - all.len();
        if frame.len() > left {
            return Err(Error::refused("message", "its data are longer than announced"));
        }
        if frame.len() < LEAST_CHUNK.min(left) {
            let reason = format!("its data come in frames of less than {LEAST_CHUNK} bytes");
            return Err(Error::refused("message", reason));
        }
        if frame.len() == count {
            return Ok(frame);
        }
        grow(&mut all, frame.len(), count)?;
        all.extend_from_slice(&frame);
    }
    Ok(all.into())
}

/// Room for `more` bytes; with each growth the buffer doubles, up to the `count` that it will hold.
fn grow(all: &mut Vec<u8>, more: usize, count: usize) -> Result<()> {
    if all.capacity() - all.len() >= more {
        return Ok(());
    }
    let room = (2 * all.capacity()).clamp(all.len() + more, count);
    all.try_reserve_exact(room - all.len()).map_err(|_| {
        let reason = format!("this machine has no memory for {room} bytes; try again later");
        Error::refused("message", reason)
    })
}

/// Receives a tensor of known shape.
///
/// # Errors
/// As [`receive_bytes`].
pub fn receive_tensor(channel: &mut dyn Channel, shape: &Shape, pace: &mut Pace) -> Result<Tensor> {
    let bytes = receive_bytes(channel, shape.len() * 8, pace)?;
    Ok(Tensor::from_bytes(shape.clone(), bytes)?)
}

/// Checks announced shapes and their size in all.
///
/// # Errors
/// [`Error::Refused`] that names the limit.
pub fn check_shapes(dims: &[Vec<usize>], limit_bytes: u64) -> Result<Vec<Shape>> {
    let bad = |reason: String| Error::refused("request", reason);
    if dims.len() > MOST_TENSORS {
        return Err(bad(format!("{} tensors; at most {MOST_TENSORS} are taken", dims.len())));
    }
    let mut words = 0u64;
    let mut shapes = Vec::with_capacity(dims.len());
    for dims in dims {
        if dims.len() > 8 {
            return Err(bad(format!("a tensor of {} dimensions; at most 8 are taken", dims.len())));
        }
        let shape = Shape::new(dims.as_slice()).map_err(|cause| bad(cause.to_string()))?;
        words = words.saturating_add(shape.len() as u64);
        shapes.push(shape);
    }
    check_upload(words, limit_bytes)?;
    Ok(shapes)
}

/// Checks the number of words in one job.
///
/// # Errors
/// [`Error::Refused`] that names the limit.
pub fn check_upload(words: u64, limit_bytes: u64) -> Result<()> {
    let bytes = words.saturating_mul(8);
    if bytes <= limit_bytes {
        return Ok(());
    }
    let reason = format!(
        "{} MiB in one job; this server takes {} MiB (limits.upload_mib); send fewer images at once, or \
         raise the limit on all servers",
        bytes >> 20,
        limit_bytes >> 20
    );
    Err(Error::refused("request", reason))
}
