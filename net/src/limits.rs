//! How long to wait and how much to hold.

use std::time::Duration;

/// Longest part of a message that travels in one frame; between two frames a heartbeat can pass.
pub(crate) const CHUNK: usize = 1 << 20;

/// Bounds on time and memory of an endpoint. The default suits computations on one site.
#[derive(Debug, Clone)]
pub struct Limits {
    /// A peer that is connected but silent for so long has failed. At least four heartbeats.
    pub stall: Duration,
    /// A side with nothing to send lets the other know it lives this often.
    pub heartbeat: Duration,
    /// Parties find each other within this time, or the session does not start.
    pub start: Duration,
    /// A new connection has proved who it is within this time, or is dropped.
    pub handshake: Duration,
    /// A wait longer than this is reported in the log, and again each time it has doubled.
    pub report: Duration,
    /// When a session ends, what is queued is sent for at most so long.
    pub linger: Duration,
    /// Bytes queued for one peer before a send waits, and received from one peer before this side
    /// stops reading. A party that itself waits in a send goes on reading, up to 64 times this
    /// bound, so that two parties sending to each other do not wait for ever.
    pub queue: usize,
    /// As [`Limits::queue`], for a connection that a client made, which is never stretched: a client that
    /// sends what nobody reads, or does not read, takes so much and one message beside.
    pub client_queue: usize,
    /// Longest message in bytes. It is refused before memory is reserved for it.
    pub message: u64,
    /// Longest message in bytes that a client may send.
    pub client_message: u64,
    /// Connections that have not yet proved who they are; beyond this the oldest is dropped.
    pub pending: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            stall: Duration::from_secs(10),
            heartbeat: Duration::from_secs(1),
            start: Duration::from_secs(60),
            handshake: Duration::from_secs(10),
            report: Duration::from_secs(5),
            linger: Duration::from_secs(2),
            queue: 64 << 20,
            client_queue: 4 << 20,
            message: 8 << 30,
            client_message: 1 << 30,
            pending: 128,
        }
    }
}
