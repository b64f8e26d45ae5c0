//! Device buffers, page-locked memory, and places in the order of queued work.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use cudarc::driver::{result::event, sys};

use super::{Driver, GRAIN, lock};

/// Free device buffers by size.
#[derive(Default)]
pub(super) struct Shelves {
    pub(super) free: BTreeMap<usize, Vec<sys::CUdeviceptr>>,
}

/// Device memory that returns to its driver's shelves when dropped.
pub(crate) struct Buffer {
    pub(super) driver: Arc<Driver>,
    pub(super) pointer: sys::CUdeviceptr,
    pub(super) bytes: usize,
}

/// A place in the order of queued work.
pub(crate) struct Mark {
    pub(super) driver: Arc<Driver>,
    pub(super) event: sys::CUevent,
}

/// Page-locked host memory, read and written by the device directly. Returns to its driver.
pub(crate) struct Pinned {
    pub(super) driver: Arc<Driver>,
    pub(super) pointer: usize,
    pub(super) capacity: usize,
    pub(super) len: usize,
}

// SAFETY: an event may be asked from any thread.
unsafe impl Send for Mark {}
// SAFETY: page-locked memory belongs to one `Pinned` at a time and may be touched from any thread.
unsafe impl Send for Pinned {}
// SAFETY: shared access is read-only.
unsafe impl Sync for Pinned {}

impl Buffer {
    /// The device address.
    pub(crate) fn address(&self) -> u64 {
        self.pointer
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        lock(&self.driver.memory).free.entry(self.bytes).or_default().push(self.pointer);
    }
}

impl Mark {
    /// True if all work queued before has ended. A failure counts: the next wait reports it.
    pub(crate) fn passed(&self) -> bool {
        use sys::cudaError_enum::CUDA_ERROR_NOT_READY;
        // SAFETY: the event lives.
        let outcome = self.driver.enter().map(|()| unsafe { event::query(self.event) });
        !matches!(outcome, Ok(Err(e)) if e.0 == CUDA_ERROR_NOT_READY)
    }

    /// Waits for all work queued before.
    pub(crate) fn wait(&self) {
        if self.driver.enter().is_ok() {
            // SAFETY: the event lives. A failure is reported by whatever waits for results.
            let _ = unsafe { event::synchronize(self.event) };
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        if self.driver.enter().is_ok() {
            // SAFETY: the event is not used any more.
            let _ = unsafe { event::destroy(self.event) };
        }
    }
}

/// Ranges of page-locked memory that any engine of this process has allocated: start and length.
pub(super) static PINNED: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// True if a device can read these bytes in place.
pub(crate) fn is_pinned(bytes: &[u8]) -> bool {
    let start = bytes.as_ptr() as usize;
    let ranges = lock(&PINNED);
    let found = ranges.range(..=start).next_back();
    found.is_some_and(|(from, len)| start + bytes.len() <= from + len)
}

impl Pinned {
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the memory is initialised, `capacity >= len` bytes long and borrowed mutably here.
        unsafe { std::slice::from_raw_parts_mut(self.pointer as *mut u8, self.len) }
    }
}

impl AsRef<[u8]> for Pinned {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the memory is initialised and `capacity >= len` bytes long.
        unsafe { std::slice::from_raw_parts(self.pointer as *const u8, self.len) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        lock(&self.driver.pinned).entry(self.capacity).or_default().push(self.pointer);
    }
}

/// Sizes a quarter of a power of two apart.
pub(super) fn size_class(bytes: usize) -> usize {
    let bytes = bytes.max(GRAIN);
    let step = (bytes.next_power_of_two() / 8).max(GRAIN);
    bytes.next_multiple_of(step)
}
