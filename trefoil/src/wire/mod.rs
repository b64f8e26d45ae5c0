//! What clients and servers say to each other.
//!
//! A message is a JSON header in one frame, followed by the bytes it announces in frames of at most
//! [`CHUNK`] bytes. A server knows from the header how many bytes will come and refuses what is too
//! much before it reads any of it. Keys and words never stand in a header.

mod messages;
#[cfg(test)]
mod tests;

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ring_arith::{Shape, Tensor};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use messages::{Cost, Link, ModelState, Reply, Request, Status, StepCost};

use crate::{Error, Part, Result, share::PartKey};

/// The version of this protocol.
pub const VERSION: u32 = 1;

/// Largest frame of data.
pub const CHUNK: usize = 4 << 20;

/// Largest header.
pub const HEADER: usize = 16 << 20;

/// Most tensors in one message.
const TENSORS: usize = 1 << 16;

/// A connection between a client and a server: whole frames in order.
pub trait Channel: Send {
    /// Sends a frame.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if the other side has gone.
    fn send(&mut self, frame: Bytes) -> Result<()>;

    /// Waits for a frame.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if the other side has gone or nothing came within the limit.
    fn receive(&mut self, limit: Duration) -> Result<Bytes>;

    /// Whether the other side has gone.
    fn is_over(&self) -> bool;
}

/// A request with its version.
#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    trefoil: u32,
    #[serde(flatten)]
    body: Body<T>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Body<T> {
    Say(T),
}

/// Sends a header.
///
/// # Errors
/// [`Error::Unreachable`] if the other side has gone.
pub fn say<T: Serialize>(channel: &mut dyn Channel, body: &T) -> Result<()> {
    channel.send(header(body)?.into())
}

/// A header, written.
///
/// # Errors
/// [`Error::Internal`] if it cannot be written, which does not happen.
pub fn header<T: Serialize>(body: &T) -> Result<Vec<u8>> {
    let message = Versioned { trefoil: VERSION, body: Body::Say(body) };
    serde_json::to_vec(&message).map_err(|cause| Error::Internal(format!("message: {cause}")))
}

/// Waits for a header.
///
/// # Errors
/// [`Error::Unreachable`] as the channel, [`Error::Refused`] if it is not a header of this version.
pub fn hear<T: DeserializeOwned>(channel: &mut dyn Channel, limit: Duration) -> Result<T> {
    parse(&channel.receive(limit)?)
}

/// Reads a header.
///
/// # Errors
/// [`Error::Refused`] if it is not a header of this version.
pub fn parse<T: DeserializeOwned>(frame: &[u8]) -> Result<T> {
    #[derive(Deserialize)]
    struct Version {
        trefoil: u32,
    }
    let bad = |reason: String| Error::refused("message", reason);
    if frame.len() > HEADER {
        return Err(bad(format!("a header of {} bytes; at most {HEADER} are read", frame.len())));
    }
    let version: Version = serde_json::from_slice(frame)
        .map_err(|_| bad("it is not a header of this protocol".to_owned()))?;
    if version.trefoil != VERSION {
        return Err(bad(format!(
            "version {} of the protocol, here is version {VERSION}; run the same program on all \
             machines",
            version.trefoil
        )));
    }
    let message: Versioned<T> =
        serde_json::from_slice(frame).map_err(|cause| bad(format!("not understood: {cause}")))?;
    let Body::Say(body) = message.body;
    Ok(body)
}

/// Sends a party its part of a secret: its keys, then its words.
///
/// # Errors
/// [`Error::Unreachable`] if the other side has gone.
pub fn send_part(channel: &mut dyn Channel, part: &Part, sent: &mut dyn FnMut(u64)) -> Result<()> {
    let mut keys = BytesMut::new();
    part.keys.iter().for_each(|key| keys.extend_from_slice(&key.0));
    channel.send(keys.freeze())?;
    part.words.iter().try_for_each(|words| send_bytes(channel, words.to_bytes(), sent))
}

/// Receives a party's part of a secret.
///
/// # Errors
/// [`Error::Unreachable`] as the channel, [`Error::Refused`] if it is not as announced.
pub fn receive_part(
    channel: &mut dyn Channel,
    party: usize,
    shapes: &[Shape],
    limit: Duration,
) -> Result<Part> {
    let frame = channel.receive(limit)?;
    let bad = || Error::refused("request", "its keys are not of the announced length");
    if frame.len() != 32 * Part::keys_of(party) {
        return Err(bad());
    }
    let keys = frame.chunks_exact(32).map(|key| key.try_into().map(PartKey).map_err(|_| bad()));
    let keys = keys.collect::<Result<_>>()?;
    let words = if Part::has_words(party) { shapes } else { &[] };
    let words = words.iter().map(|shape| receive_tensor(channel, shape, limit));
    Ok(Part { keys, words: words.collect::<Result<_>>()? })
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

/// Receives exactly `count` bytes. Memory grows with what has come, not with what was announced.
///
/// # Errors
/// [`Error::Unreachable`] as the channel, [`Error::Refused`] if more come.
pub fn receive_bytes(channel: &mut dyn Channel, count: usize, limit: Duration) -> Result<Bytes> {
    let mut frames: Vec<Bytes> = Vec::new();
    let mut have = 0;
    while have < count {
        let frame = channel.receive(limit)?;
        if frame.is_empty() || frame.len() > count - have {
            return Err(Error::refused("message", "its data are not as long as announced"));
        }
        have += frame.len();
        frames.push(frame);
    }
    if frames.len() == 1 {
        return Ok(frames.remove(0));
    }
    let mut all = Vec::with_capacity(have);
    frames.drain(..).for_each(|frame| all.extend_from_slice(&frame));
    Ok(all.into())
}

/// Receives a tensor of known shape.
///
/// # Errors
/// [`Error::Unreachable`] as the channel, [`Error::Refused`] if it is not of that length.
pub fn receive_tensor(channel: &mut dyn Channel, shape: &Shape, limit: Duration) -> Result<Tensor> {
    let bytes = receive_bytes(channel, shape.len() * 8, limit)?;
    Ok(Tensor::from_bytes(shape.clone(), bytes)?)
}

/// Checks announced shapes and their size in all.
///
/// # Errors
/// [`Error::Refused`] that names the limit.
pub fn check_shapes(dims: &[Vec<usize>], limit_bytes: u64) -> Result<Vec<Shape>> {
    let bad = |reason: String| Error::refused("request", reason);
    if dims.len() > TENSORS {
        return Err(bad(format!("{} tensors; at most {TENSORS} are taken", dims.len())));
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
    let bytes = words.saturating_mul(8);
    if bytes > limit_bytes {
        return Err(bad(format!(
            "{} MiB in one job; this server takes {} MiB (limits.upload_mib); send fewer images at \
             once, or raise the limit on all three servers",
            bytes >> 20,
            limit_bytes >> 20
        )));
    }
    Ok(shapes)
}
