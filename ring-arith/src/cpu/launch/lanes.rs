//! The common interface of the vectors of every instruction set.

use crate::Word;

/// A vector of words.
///
/// # Safety
/// Methods may be called only in code compiled for the vector's instruction set, on a CPU that has
/// it. Loads and stores need valid memory for the lanes they name and no others.
pub(in crate::cpu) unsafe trait Lanes: Word {
    /// Number of lanes, at most [`MOST`].
    const COUNT: usize;

    /// All lanes from memory.
    unsafe fn load(from: *const u64) -> Self;

    /// All lanes to memory.
    unsafe fn store(self, to: *mut u64);

    /// All lanes to memory that is aligned to the vector, without reading it into the cache.
    unsafe fn store_past_cache(self, to: *mut u64);

    /// The first `count < COUNT` lanes from memory, the others 0.
    unsafe fn load_part(from: *const u64, count: usize) -> Self;

    /// The first `count < COUNT` lanes to memory.
    unsafe fn store_part(self, to: *mut u64, count: usize);
}

/// Lanes of the longest vector.
pub(super) const MOST: usize = 8;

/// Implements the operators of a vector type.
macro_rules! operators {
    ($vector:ident: $($trait:ident $method:ident |$x:ident, $y:ident| $body:expr;)*) => {$(
        impl std::ops::$trait for $vector {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                let ($x, $y) = (self.0, other.0);
                Self($body)
            }
        }
    )*};
}

pub(super) use operators;
