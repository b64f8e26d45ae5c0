//! Host memory that queued copies still read.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use ring_arith::Result;

use crate::driver::{Buffer, Driver, Mark, is_pinned};

/// Copies under way before the oldest is waited for, so that page-locked memory does not pile up.
const MOST: usize = 64;

/// Copies to the device, each with the memory it reads. Engines own it and tensors do not, since that memory
/// may itself be a tensor's that holds on to the device.
#[derive(Default)]
pub(crate) struct Uploads(Mutex<VecDeque<(Mark, Bytes)>>);

impl Uploads {
    /// Queues a copy to the start of a buffer, and returns without waiting for it. Bytes in page-locked
    /// memory, such as a tensor that a peer in this process has downloaded, are read in place.
    pub(crate) fn write(&self, driver: &Arc<Driver>, buffer: &Buffer, bytes: Bytes) -> Result<()> {
        let bytes = if is_pinned(&bytes) {
            bytes
        } else {
            let mut staged = driver.pin(bytes.len())?;
            staged.bytes_mut().copy_from_slice(&bytes);
            Bytes::from_owner(staged)
        };
        // SAFETY: the bytes are kept until the mark after the copy is passed.
        unsafe { driver.write(buffer, &bytes)? };
        let mark = match driver.mark() {
            Ok(mark) => mark,
            Err(error) => {
                // The end of the copy would be unknown, so its memory must stay.
                std::mem::forget(bytes);
                return Err(error);
            }
        };
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back((mark, bytes));
        if queue.len() > MOST
            && let Some((mark, _)) = queue.front()
        {
            mark.wait();
        }
        drop(queue);
        self.reap();
        Ok(())
    }

    /// Lets go of memory whose copies have ended.
    pub(crate) fn reap(&self) {
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while queue.front().is_some_and(|(mark, _)| mark.passed()) {
            queue.pop_front();
        }
    }
}

impl Drop for Uploads {
    fn drop(&mut self) {
        let queue = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        queue.iter().for_each(|(mark, _)| mark.wait());
    }
}
