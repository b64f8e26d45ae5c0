//! A block's shared memory, with a shadow that finds races, missing waits and unwritten bytes.

use crate::Fault;

/// When an access happened: how many barriers the block, and how many meetings the warp, had passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    pub thread: u32,
    pub block_epoch: u32,
    pub warp_epoch: u32,
}

/// The block's shared memory.
#[derive(Debug)]
pub(crate) struct Shared {
    bytes: Vec<u8>,
    shadow: Vec<Shadow>,
}

/// The state of one byte.
#[derive(Debug, Clone, Copy, Default)]
struct Shadow {
    written: bool,
    in_flight: bool,
    write: Option<Stamp>,
    read: Option<Stamp>,
    /// Another reader since the last barrier, so that a write meets at least one foreign reader.
    read_too: Option<Stamp>,
}

#[derive(Debug, Clone, Copy)]
struct Stamp {
    thread: u32,
    block_epoch: u32,
    warp_epoch: u32,
}

impl Shared {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { bytes: vec![0x5A; bytes], shadow: vec![Shadow::default(); bytes] }
    }

    fn range(&self, address: u64, bytes: usize) -> Result<std::ops::Range<usize>, Fault> {
        let start = usize::try_from(address).unwrap_or(usize::MAX);
        match start.checked_add(bytes) {
            Some(end) if end <= self.bytes.len() => Ok(start..end),
            _ => Err(Fault::OutOfBounds { space: "shared", address, bytes }),
        }
    }

    pub(crate) fn read(&mut self, address: u64, now: Moment, out: &mut [u8]) -> Result<(), Fault> {
        let range = self.range(address, out.len())?;
        for i in range.clone() {
            let shadow = &mut self.shadow[i];
            let byte = i as u64;
            if shadow.in_flight {
                return Err(Fault::InFlight(byte));
            }
            if !shadow.written {
                return Err(Fault::Uninitialised(byte));
            }
            now.meet(shadow.write, byte, "read what was written by")?;
            if shadow
                .read
                .is_none_or(|r| r.thread == now.thread || r.block_epoch != now.block_epoch)
            {
                shadow.read = Some(now.into());
            } else {
                shadow.read_too = Some(now.into());
            }
        }
        out.copy_from_slice(&self.bytes[range]);
        Ok(())
    }

    pub(crate) fn write(&mut self, address: u64, now: Moment, value: &[u8]) -> Result<(), Fault> {
        let range = self.range(address, value.len())?;
        for i in range.clone() {
            self.shadow[i].claim(i as u64, now)?;
            self.shadow[i].written = true;
        }
        self.bytes[range].copy_from_slice(value);
        Ok(())
    }

    /// Marks bytes as the target of a copy that has not arrived.
    pub(crate) fn begin_copy(
        &mut self,
        address: u64,
        now: Moment,
        bytes: usize,
    ) -> Result<(), Fault> {
        for i in self.range(address, bytes)? {
            self.shadow[i].claim(i as u64, now)?;
            self.shadow[i].in_flight = true;
        }
        Ok(())
    }

    /// The copy arrives: a write by the thread that waited for it, or by none where every thread waits
    /// for itself.
    pub(crate) fn end_copy(
        &mut self,
        address: u64,
        waiter: Option<Moment>,
        value: &[u8],
    ) -> Result<(), Fault> {
        let range = self.range(address, value.len())?;
        for shadow in &mut self.shadow[range.clone()] {
            *shadow = Shadow { written: true, write: waiter.map(Stamp::from), ..Shadow::default() };
        }
        self.bytes[range].copy_from_slice(value);
        Ok(())
    }

    /// An atomic's cell: atomics do not race with one another.
    pub(crate) fn cell(&mut self, address: u64, bytes: usize) -> Result<&mut [u8], Fault> {
        let range = self.range(address, bytes)?;
        if let Some(i) = range.clone().find(|&i| !self.shadow[i].written) {
            return Err(Fault::Uninitialised(i as u64));
        }
        Ok(&mut self.bytes[range])
    }
}

impl Shadow {
    /// A write at `now`: other threads must not have touched the byte since the last barrier.
    fn claim(&mut self, byte: u64, now: Moment) -> Result<(), Fault> {
        if self.in_flight {
            return Err(Fault::InFlight(byte));
        }
        now.meet(self.write, byte, "written by")?;
        now.meet(self.read, byte, "read by")?;
        now.meet(self.read_too, byte, "read by")?;
        self.write = Some(now.into());
        Ok(())
    }
}

impl Moment {
    /// Fails if an earlier access by another thread is not ordered before this one.
    fn meet(self, earlier: Option<Stamp>, byte: u64, what: &'static str) -> Result<(), Fault> {
        let Some(earlier) = earlier else { return Ok(()) };
        let same_warp = earlier.thread / 32 == self.thread / 32;
        let ordered = earlier.thread == self.thread
            || earlier.block_epoch != self.block_epoch
            || (same_warp && earlier.warp_epoch != self.warp_epoch);
        if ordered {
            return Ok(());
        }
        Err(Fault::Race { space: "shared", address: byte, what, other: earlier.thread })
    }
}

impl From<Moment> for Stamp {
    fn from(now: Moment) -> Self {
        Self { thread: now.thread, block_epoch: now.block_epoch, warp_epoch: now.warp_epoch }
    }
}
