//! The time that one side waits for the other's data, or for the other to read.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::Channel;
use crate::base::{Error, Result};

/// The time that one side waits: for each frame, and for the whole of what was announced.
#[derive(Debug)]
pub struct Pace {
    /// The time for one frame.
    silence: Duration,
    /// Bytes a second that must come, once `silence` has passed.
    least: Option<u64>,
    began: Instant,
    /// Bytes that have come, or that have been taken for sending.
    moved: u64,
}

impl Pace {
    /// Waits `silence` for each frame, and as long as need be in all.
    #[must_use]
    pub fn frames(silence: Duration) -> Self {
        Self { silence, least: None, began: Instant::now(), moved: 0 }
    }

    /// Waits `silence` for each frame, and no longer than the transfer may take at `least` bytes a second. Otherwise
    /// a client that sends or reads a byte now and then would keep its reserved memory forever.
    #[must_use]
    pub fn at_least(silence: Duration, least: u64) -> Self {
        Self { least: Some(least), ..Self::frames(silence) }
    }

    /// Waits for a frame.
    ///
    /// # Errors
    /// [`Error::Unreachable`] as the channel, [`Error::Refused`] if all that has come is too little.
    pub(super) fn receive(&mut self, channel: &mut dyn Channel) -> Result<Bytes> {
        let late = |least: u64| {
            let reason = format!(
                "its data come slower than {} KiB/s (limits.upload_kib_per_second); try again over a \
                 better connection, or lower the limit on all servers",
                least >> 10
            );
            Error::refused("message", reason)
        };
        match (channel.receive(self.left().min(self.silence)), self.least) {
            (_, Some(least)) if self.left().is_zero() => Err(late(least)),
            (Ok(frame), _) => {
                self.moved += frame.len() as u64;
                Ok(frame)
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// [`Error::Unreachable`] as the channel, if too little of what was sent before has been read.
    pub(super) fn send(&mut self, channel: &mut dyn Channel, frame: Bytes) -> Result<()> {
        let bytes = frame.len() as u64;
        channel.send_within(frame, self.left())?;
        self.moved += bytes;
        Ok(())
    }

    /// The time until more must have passed.
    fn left(&self) -> Duration {
        let Some(least) = self.least else { return Duration::MAX };
        let earned = Duration::from_secs_f64(self.moved as f64 / least.max(1) as f64);
        (self.silence + earned).saturating_sub(self.began.elapsed())
    }
}
