//! Memory of vectors, kept from one batch to the next.

use std::cell::RefCell;

/// Vectors that are not in use. The system would take memory of this size back at once, and to get it again was measured to
/// cost as much as the proof.
#[derive(Default)]
pub(crate) struct Scratch(RefCell<Vec<Vec<u64>>>);

impl Scratch {
    /// An empty vector with room for `len` words, if one of them has it.
    pub fn room(&self, len: usize) -> Vec<u64> {
        let mut free = self.0.borrow_mut();
        let fits = (0..free.len())
            .filter(|&at| free[at].capacity() >= len)
            .min_by_key(|&at| free[at].capacity());
        let mut vector = fits.map_or_else(|| Vec::with_capacity(len), |at| free.swap_remove(at));
        vector.clear();
        vector
    }

    /// Zeros.
    pub fn zeros(&self, len: usize) -> Vec<u64> {
        let mut vector = self.room(len);
        vector.resize(len, 0);
        vector
    }

    /// Takes a vector back.
    pub fn give(&self, vector: Vec<u64>) {
        self.0.borrow_mut().push(vector);
    }
}
