//! What clients and servers say to each other.
//!
//! A message is a JSON header in one frame, followed by the bytes it announces in frames of at most
//! [`CHUNK`] bytes. A server knows from the header how many bytes will come and refuses what is too
//! much before it reads any of it. Keys and words never stand in a header.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ring_arith::{EngineTensor, Shape, Tensor};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{About, Digest, Error, Id, Part, Result, share::PartKey};

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

/// What a client asks of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Request {
    /// Are you there?
    Ping,
    /// How are you?
    Status,
    /// Which models do you have?
    Models,
    /// Keep your part of a model. Keys, plan and words follow.
    Put {
        /// The job; the version of the model.
        job: Id,
        /// The model's name.
        name: String,
        /// What is public about it.
        about: Box<About>,
        /// Length of the plan.
        plan: u64,
        /// Shapes of the weights.
        weights: Vec<Vec<usize>>,
        /// Take the place of a model of the same name.
        replace: bool,
    },
    /// Forget a model.
    Remove {
        /// The job.
        job: Id,
        /// The model's name.
        name: String,
    },
    /// Run a model. Keys and words follow.
    Infer {
        /// The job.
        job: Id,
        /// The model's name.
        model: String,
        /// Shapes of the inputs, with the batch.
        inputs: Vec<Vec<usize>>,
        /// Send the profile by layer.
        profile: bool,
    },
}

/// What a server answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Reply {
    /// To [`Request::Ping`].
    Pong {
        /// Which server answers.
        party: usize,
        /// The version of its program.
        program: String,
    },
    /// To [`Request::Status`].
    Status(Box<Status>),
    /// To [`Request::Models`].
    Models(Vec<ModelState>),
    /// The request is acceptable: send what belongs to it.
    Send,
    /// The job's parts are here and wait for their turn. Said about once a second.
    Waiting {
        /// Jobs before this one, where the server knows.
        before: Option<usize>,
    },
    /// The job runs. Said about once a second.
    Working {
        /// The step it is in.
        step: String,
    },
    /// The job is done and has no result.
    Done,
    /// The job is done. This server's components of the results follow.
    Result {
        /// Shapes of the results.
        outputs: Vec<Vec<usize>>,
        /// What it took.
        cost: Box<Cost>,
    },
    /// The job, or the request, failed.
    Failed {
        /// What is wrong and what to do.
        reason: String,
    },
}

/// What one server knows about itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Which server.
    pub party: usize,
    /// The version of its program.
    pub program: String,
    /// Seconds since it started.
    pub up_seconds: u64,
    /// What it computes on.
    pub engine: String,
    /// Whether it is linked with both others, or what it waits for.
    pub link: Link,
    /// Jobs that wait here.
    pub waiting: usize,
    /// The step of the job that runs, if one does.
    pub step: Option<String>,
    /// Jobs done since the start.
    pub done: u64,
    /// Jobs failed since the start.
    pub failed: u64,
    /// Number of models in force.
    pub models: usize,
}

/// The state of a server's session with the two others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Link {
    /// All three are in one session.
    Up,
    /// This server tries to reach the others.
    Down {
        /// Why there is no session.
        reason: String,
    },
}

/// A model at one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelState {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: Option<Id>,
    /// What is public about it.
    pub about: Option<About>,
    /// The client that put it.
    pub owner: Option<String>,
    /// When, in seconds since 1970.
    pub put_at: Option<u64>,
    /// Why it cannot be used, if it cannot.
    pub damage: Option<String>,
}

/// What a job took at one server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Seconds from its start to its end.
    pub seconds: f64,
    /// Bytes sent to the other servers.
    pub bytes: u64,
    /// Messages sent to the other servers.
    pub messages: u64,
    /// Rounds, as this server counted them.
    pub rounds: u32,
    /// Causal depth at the start.
    pub first_depth: u32,
    /// In the order of execution; empty unless a profile was asked for.
    pub steps: Vec<StepCost>,
}

/// What one step took at one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepCost {
    /// The step.
    pub name: String,
    /// Seconds spent in it.
    pub seconds: f64,
    /// Bytes sent to the other servers.
    pub bytes: u64,
    /// Causal depth at its end: the growth of the largest of the three is its rounds.
    pub depth: u32,
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

impl Request {
    /// The hash that servers compare: all of the request, the client, and the version of the model it
    /// meets.
    #[must_use]
    pub fn digest(&self, client: &str, version: Option<Id>) -> Digest {
        let header = serde_json::to_vec(self).unwrap_or_default();
        let version = version.map(|version| version.to_string()).unwrap_or_default();
        Digest::of(&[&header, client.as_bytes(), version.as_bytes()])
    }
}

/// Sends a header.
///
/// # Errors
/// [`Error::Unreachable`] if the other side has gone.
pub fn say<T: Serialize>(channel: &mut dyn Channel, body: &T) -> Result<()> {
    let message = Versioned { trefoil: VERSION, body: Body::Say(body) };
    let frame = serde_json::to_vec(&message)
        .map_err(|cause| Error::Internal(format!("message: {cause}")))?;
    channel.send(frame.into())
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
