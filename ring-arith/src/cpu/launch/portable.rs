//! Vectors of four words in plain Rust.

use super::block::Block;
use super::lanes::{Lanes, operators};
use crate::{Word, WordKernel};

/// Runs a kernel over a block.
///
/// # Safety
/// The block's pointers must be valid as it
/// describes, `I` inputs and `O` outputs.
pub(super) unsafe fn run<K: WordKernel<I, O>, const I: usize, const O: usize>(
    kernel: &K,
    params: &[u64],
    block: &Block<'_>,
) {
    // SAFETY: as above; the instruction set is the target's own.
    unsafe { block.run::<Vector, K, I, O>(kernel, params) }
}

/// Four words.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Vector([u64; 4]);

operators! {
    Vector:
    Add add |x, y| each(x, y, u64::wrapping_add);
    Sub sub |x, y| each(x, y, u64::wrapping_sub);
    Mul mul |x, y| each(x, y, u64::wrapping_mul);
    BitAnd bitand |x, y| each(x, y, |a, b| a & b);
    BitOr bitor |x, y| each(x, y, |a, b| a | b);
    BitXor bitxor |x, y| each(x, y, |a, b| a ^ b);
}

#[inline(always)]
fn each(x: [u64; 4], y: [u64; 4], op: impl Fn(u64, u64) -> u64) -> [u64; 4] {
    [op(x[0], y[0]), op(x[1], y[1]), op(x[2], y[2]), op(x[3], y[3])]
}

impl std::ops::Neg for Vector {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        Self(self.0.map(u64::wrapping_neg))
    }
}

impl std::ops::Not for Vector {
    type Output = Self;
    #[inline(always)]
    fn not(self) -> Self {
        Self(self.0.map(|x| !x))
    }
}

impl Word for Vector {
    #[inline(always)]
    fn constant(value: u64) -> Self {
        Self([value; 4])
    }
    #[inline(always)]
    fn shl(self, count: u32) -> Self {
        Self(self.0.map(|x| x << count))
    }
    #[inline(always)]
    fn shr(self, count: u32) -> Self {
        Self(self.0.map(|x| x >> count))
    }
    #[inline(always)]
    fn sar(self, count: u32) -> Self {
        Self(self.0.map(|x| (x as i64 >> count) as u64))
    }
}

// SAFETY: plain Rust runs everywhere; the accesses are those the trait names.
unsafe impl Lanes for Vector {
    const COUNT: usize = 4;

    #[inline(always)]
    unsafe fn load(from: *const u64) -> Self {
        // SAFETY: the caller answers for four words.
        Self(unsafe { from.cast::<[u64; 4]>().read() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u64) {
        // SAFETY: the caller answers for four words.
        unsafe { to.cast::<[u64; 4]>().write(self.0) }
    }

    #[inline(always)]
    unsafe fn store_past_cache(self, to: *mut u64) {
        // SAFETY: as the caller answers.
        unsafe { self.store(to) }
    }

    #[inline(always)]
    unsafe fn load_part(from: *const u64, count: usize) -> Self {
        let mut words = [0; 4];
        for (i, word) in words.iter_mut().enumerate().take(count) {
            // SAFETY: the caller answers for `count` words.
            *word = unsafe { from.add(i).read() };
        }
        Self(words)
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut u64, count: usize) {
        for (i, word) in self.0.into_iter().enumerate().take(count) {
            // SAFETY: the caller answers for `count` words.
            unsafe { to.add(i).write(word) }
        }
    }
}
