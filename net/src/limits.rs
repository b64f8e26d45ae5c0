//! The longest waits and the largest amounts of memory.

use std::time::Duration;

/// Longest part of a message that travels in one frame; between two frames a heartbeat can pass.
pub(crate) const CHUNK: usize = 1 << 20;

/// Bounds on time and memory of an endpoint. The default suits computations on one site.
#[derive(Debug, Clone)]
pub struct Limits {
    /// A peer that is connected but silent for this time has failed. At least four heartbeats.
    pub stall: Duration,
    /// A side with nothing to send lets the other know it lives this often.
    pub heartbeat: Duration,
    /// Parties find each other within this time, or the session does not start.
    pub start: Duration,
    /// A new connection proves its role within this time, or is dropped.
    pub handshake: Duration,
    /// A wait longer than this is reported in the log, and again each time it has doubled.
    pub report: Duration,
    /// When a session ends, what is queued is sent for at most this time.
    pub linger: Duration,
    /// Bytes queued for one peer before a send waits, and received from one peer before this side
    /// stops reading. A party that itself waits in a send continues to read, up to 64 times this
    /// bound, so that two parties sending to each other do not deadlock.
    pub queue: usize,
    /// As [`Limits::queue`], for a connection that a client made, which is never stretched. A
    /// client that sends what is not received, or does not read, takes this many bytes and one
    /// message more.
    pub client_queue: usize,
    /// Longest message in bytes. It is refused before memory is reserved for it.
    pub message: u64,
    /// Longest message in bytes that a client may send.
    pub client_message: u64,
    /// Connections that have not proved a role yet; beyond this the oldest is dropped.
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
