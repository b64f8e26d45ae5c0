//! Delays messages as a slower network would.

use std::{
    hint, thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;

use crate::{Error, Message, Party, Result, Transport};

/// A sleep ends this late at times; the rest of a wait is spent awake.
const OVERSLEEP: Duration = Duration::from_micros(80);

/// The shape of a link in each direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The time that a bit travels, one way.
    pub delay: Duration,
    /// The number of bits that leave in a second.
    pub bits_per_second: u64,
    /// Size of the token bucket: the number of bytes that may leave at once after a pause.
    pub burst: u64,
}

impl Shape {
    /// 10 Gbit/s, 0.1 ms round trip.
    pub const LAN_10G: Self = Self::new(Duration::from_micros(50), 10_000_000_000);
    /// 1 Gbit/s, 1 ms round trip.
    pub const LAN_1G: Self = Self::new(Duration::from_micros(500), 1_000_000_000);
    /// 100 Mbit/s, 40 ms round trip.
    pub const WAN_100M: Self = Self::new(Duration::from_millis(20), 100_000_000);

    /// A link with a bucket of 64 KiB, as much as a segment-offloading network card sends at once.
    #[must_use]
    pub const fn new(delay: Duration, bits_per_second: u64) -> Self {
        Self { delay, bits_per_second, burst: 64 << 10 }
    }

    fn time_to_send(&self, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * 8_000_000_000 / u128::from(self.bits_per_second.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// A transport whose links have a given delay and bandwidth each, one way and the other apart, so
/// that networks can be timed on one machine. All parties must use it with the same shape.
///
/// The sender works out when a message's last bit would arrive and tells the receiver, which waits
/// until then. A send waits while more than [`Self::BACKLOG`] has not left by that reckoning. Parties
/// in several processes must share a clock, so they run on one machine.
///
/// # Cost
/// A message of 8 bytes more for each message, which does not count.
pub struct Shaped<T> {
    inner: T,
    shape: Shape,
    /// The time at which each link to a peer has sent all it was given, by the token bucket's reckoning.
    free: Vec<Instant>,
    /// The same moment on two clocks.
    origin: (Instant, Duration),
}

impl<T: Transport> Shaped<T> {
    /// Bytes that a link takes before its sends wait.
    pub const BACKLOG: u64 = 4 << 20;

    /// Shapes every link of a transport.
    pub fn new(inner: T, shape: Shape) -> Self {
        let now = Instant::now();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let bucket = shape.time_to_send(shape.burst);
        let free = vec![now.checked_sub(bucket).unwrap_or(now); inner.parties()];
        Self { inner, shape, free, origin: (now, since) }
    }

    /// The time at which a message given to the link now has arrived.
    fn arrival(&mut self, to: Party, bytes: u64) -> Instant {
        let now = Instant::now();
        let bucket = self.shape.time_to_send(self.shape.burst);
        let full = now.checked_sub(bucket).unwrap_or(now);
        let gone = self.free[to.0].max(full) + self.shape.time_to_send(bytes);
        self.free[to.0] = gone;
        gone.max(now) + self.shape.delay
    }

    fn wait_for_backlog(&self, to: Party) {
        let backlog = self.shape.time_to_send(Self::BACKLOG);
        if let Some(time) = self.free[to.0].checked_sub(backlog) {
            wait_until(time);
        }
    }

    fn to_wire(&self, time: Instant) -> u64 {
        let (origin, since) = self.origin;
        (time.saturating_duration_since(origin) + since).as_nanos() as u64
    }

    fn arrival_of(&self, nanos: u64) -> Instant {
        let (origin, since) = self.origin;
        origin + Duration::from_nanos(nanos).saturating_sub(since)
    }
}

fn wait_until(time: Instant) {
    let left = time.saturating_duration_since(Instant::now());
    if left > OVERSLEEP {
        thread::sleep(left - OVERSLEEP);
    }
    while Instant::now() < time {
        hint::spin_loop();
    }
}

impl<T: Transport> Transport for Shaped<T> {
    fn me(&self) -> Party {
        self.inner.me()
    }

    fn parties(&self) -> usize {
        self.inner.parties()
    }

    fn send(&mut self, to: Party, message: Message) -> Result<()> {
        if to.0 >= self.parties() {
            return self.inner.send(to, message);
        }
        self.wait_for_backlog(to);
        let arrival = self.arrival(to, message.body.len() as u64);
        let stamp = self.to_wire(arrival).to_le_bytes().to_vec();
        self.inner.send(to, Message { body: Bytes::from(stamp), depth: message.depth })?;
        self.inner.send(to, message)
    }

    fn receive(&mut self, from: Party) -> Result<Message> {
        if self.inner.on_tape(from) {
            return self.inner.receive(from);
        }
        let stamp = self.inner.receive(from)?;
        let message = self.inner.receive(from)?;
        let Ok(stamp) = <[u8; 8]>::try_from(&stamp.body[..]) else {
            let reason = format!("{from} sends over a link that is not shaped at its end");
            return Err(Error::Misuse(reason));
        };
        wait_until(self.arrival_of(u64::from_le_bytes(stamp)));
        Ok(message)
    }

    fn on_tape(&self, peer: Party) -> bool {
        self.inner.on_tape(peer)
    }

    fn step(&mut self, name: &str) {
        self.inner.step(name);
    }

    fn accuse(&mut self, peer: Party, reason: &str) -> Error {
        self.inner.accuse(peer, reason)
    }

    fn fail(&mut self, reason: &str) {
        self.inner.fail(reason);
    }

    fn close(self: Box<Self>) -> Result<()> {
        Box::new(self.inner).close()
    }
}
