//! Global memory: separate allocations, with a record of each byte's accesses in the current
//! launch.

use std::collections::BTreeMap;

use crate::{Error, Fault, Result};

/// The first allocated address; 0 and the addresses near it stay invalid.
const FIRST: u64 = 0x1_0000_0000;
/// Allocations are aligned to this, with a gap of this size between them.
const ALIGN: u64 = 512;
/// The bytes of fresh memory.
const POISON: u8 = 0xA5;

/// The device's memory.
#[derive(Debug)]
pub(crate) struct Memory {
    allocations: BTreeMap<u64, Allocation>,
    next: u64,
    used: u64,
    capacity: u64,
    /// Number of the current launch; marks of earlier ones do not count.
    launch: u32,
}

#[derive(Debug)]
struct Allocation {
    bytes: Vec<u8>,
    /// For each four bytes.
    marks: Vec<Mark>,
}

/// The last accesses to four bytes of global memory.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    launch: u32,
    /// Block that wrote, plus 1.
    writer: u32,
    /// Block that read, plus 1; `u32::MAX` for several.
    reader: u32,
}

impl Memory {
    pub(crate) fn new(capacity: u64) -> Self {
        Self { allocations: BTreeMap::new(), next: FIRST, used: 0, capacity, launch: 0 }
    }

    pub(crate) fn begin_launch(&mut self) {
        self.launch += 1;
    }

    /// `None` if the memory is full.
    pub(crate) fn allocate(&mut self, bytes: usize) -> Option<u64> {
        if self.used + bytes as u64 > self.capacity {
            return None;
        }
        let address = self.next;
        self.next += (bytes as u64).next_multiple_of(ALIGN) + ALIGN;
        self.used += bytes as u64;
        let marks = vec![Mark::default(); bytes.div_ceil(4)];
        self.allocations.insert(address, Allocation { bytes: vec![POISON; bytes], marks });
        Some(address)
    }

    pub(crate) fn free(&mut self, address: u64) -> Result<()> {
        match self.allocations.remove(&address) {
            Some(gone) => {
                self.used -= gone.bytes.len() as u64;
                Ok(())
            }
            None => Err(Error::Host {
                address,
                bytes: 0,
                reason: "not the start of an allocation".into(),
            }),
        }
    }

    pub(crate) fn room(&self) -> (u64, u64) {
        (self.capacity - self.used, self.capacity)
    }

    fn find(&mut self, address: u64, bytes: usize) -> Option<(&mut Allocation, usize)> {
        let (start, allocation) = self.allocations.range_mut(..=address).next_back()?;
        let offset = usize::try_from(address - start).ok()?;
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= allocation.bytes.len());
        fits.then_some((allocation, offset))
    }

    /// The host's view of some bytes.
    pub(crate) fn host(&mut self, address: u64, bytes: usize) -> Result<&mut [u8]> {
        match self.find(address, bytes) {
            Some((allocation, offset)) => Ok(&mut allocation.bytes[offset..offset + bytes]),
            None => Err(Error::Host { address, bytes, reason: "outside every allocation".into() }),
        }
    }

    /// A kernel's read. Reading bytes that another block of this launch wrote is a race.
    pub(crate) fn read(&mut self, address: u64, block: u32, out: &mut [u8]) -> Result<(), Fault> {
        let launch = self.launch;
        let bytes = out.len();
        let Some((allocation, offset)) = self.find(address, bytes) else {
            return Err(outside(address, bytes));
        };
        out.copy_from_slice(&allocation.bytes[offset..offset + bytes]);
        for mark in &mut allocation.marks[offset / 4..(offset + bytes).div_ceil(4)] {
            let mark = mark.current(launch);
            // Words shared by narrow accesses of several blocks are not followed.
            if bytes >= 4 && mark.writer != 0 && mark.writer != block + 1 {
                let other = mark.writer - 1;
                return Err(Fault::Race {
                    space: "global",
                    address,
                    what: "read what was written by",
                    other,
                });
            }
            mark.reader =
                if mark.reader == 0 || mark.reader == block + 1 { block + 1 } else { u32::MAX };
        }
        Ok(())
    }

    /// A kernel's write. Writing bytes that another block of this launch accessed is a race.
    pub(crate) fn write(&mut self, address: u64, block: u32, value: &[u8]) -> Result<(), Fault> {
        let launch = self.launch;
        let bytes = value.len();
        let Some((allocation, offset)) = self.find(address, bytes) else {
            return Err(outside(address, bytes));
        };
        for mark in &mut allocation.marks[offset / 4..(offset + bytes).div_ceil(4)] {
            let mark = mark.current(launch);
            if bytes >= 4 {
                for (what, other) in [("written by", mark.writer), ("read by", mark.reader)] {
                    if other != 0 && other != block + 1 {
                        let other = other - 1;
                        return Err(Fault::Race { space: "global", address, what, other });
                    }
                }
                mark.writer = block + 1;
            }
        }
        allocation.bytes[offset..offset + bytes].copy_from_slice(value);
        Ok(())
    }

    /// An atomic's cell, without marks: atomics do not race with one another.
    pub(crate) fn cell(&mut self, address: u64, bytes: usize) -> Result<&mut [u8], Fault> {
        match self.find(address, bytes) {
            Some((allocation, offset)) => Ok(&mut allocation.bytes[offset..offset + bytes]),
            None => Err(outside(address, bytes)),
        }
    }
}

impl Mark {
    /// This mark, emptied if it is of an earlier launch.
    fn current(&mut self, launch: u32) -> &mut Self {
        if self.launch != launch {
            *self = Self { launch, writer: 0, reader: 0 };
        }
        self
    }
}

fn outside(address: u64, bytes: usize) -> Fault {
    Fault::OutOfBounds { space: "global", address, bytes }
}
