//! Errors of modules and faults of kernels.

use std::fmt;

/// The result of loading or running a kernel.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a module cannot be loaded or a kernel was stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not PTX that this interpreter knows.
    #[error("line {line}: {reason}")]
    Parse {
        /// Line of the module's text, from 1.
        line: u32,
        /// The unexpected text, and the supported one.
        reason: String,
    },
    /// The launch itself is wrong.
    #[error("launch of `{kernel}`: {reason}")]
    Launch {
        /// The kernel.
        kernel: String,
        /// The fault.
        reason: String,
    },
    /// The host used memory that is not allocated.
    #[error("host access to {address:#x}, {bytes} bytes: {reason}")]
    Host {
        /// The device address.
        address: u64,
        /// Number of bytes.
        bytes: usize,
        /// The fault.
        reason: String,
    },
    /// The kernel did something that is undefined on a device.
    #[error("{place}: {fault}")]
    Kernel {
        /// The place.
        place: Box<Place>,
        /// The fault.
        fault: Fault,
    },
}

/// A place in a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The kernel.
    pub kernel: String,
    /// Line of the module's text, from 1.
    pub line: u32,
    /// The block.
    pub block: [u32; 3],
    /// The thread's number in its block.
    pub thread: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.block;
        write!(
            f,
            "`{}` line {}, block ({x}, {y}, {z}), thread {}",
            self.kernel, self.line, self.thread
        )
    }
}

/// Undefined behaviour of a kernel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// An access outside every allocation, or outside the block's shared memory.
    #[error("{bytes} bytes at {address:#x} of {space} memory are out of bounds")]
    OutOfBounds {
        /// The state space.
        space: &'static str,
        /// The address.
        address: u64,
        /// Number of bytes.
        bytes: usize,
    },
    /// An address that is not a multiple of the access's size.
    #[error("address {address:#x} is not aligned to {bytes} bytes")]
    Misaligned {
        /// The address.
        address: u64,
        /// Required alignment.
        bytes: usize,
    },
    /// Two threads met in memory without a barrier between them, and one of them wrote.
    #[error("race on {space} byte {address:#x}: {what} thread {other} without a barrier between")]
    Race {
        /// The state space.
        space: &'static str,
        /// The byte.
        address: u64,
        /// The accesses of both threads, in words.
        what: &'static str,
        /// The other thread, or the other block for global memory.
        other: u32,
    },
    /// Shared memory was read before anyone wrote it.
    #[error("shared byte {0:#x} is read before it is written")]
    Uninitialised(u64),
    /// Shared memory was touched while an asynchronous copy into it had not been waited for.
    #[error("shared byte {0:#x} is used while a copy into it is in flight; a wait is missing")]
    InFlight(u64),
    /// The kernel ended with matrix products that were not waited for.
    #[error("the block ends while matrix products are in flight; a wait is missing")]
    ProductsInFlight,
    /// `wgmma` was issued without a `wgmma.fence` since registers could last be touched.
    #[error("wgmma without wgmma.fence since its registers could last be touched")]
    MissingFence,
    /// A register was written while a matrix product on it was in flight.
    #[error(
        "an accumulator is written while a matrix product on it is in flight; a wait is missing"
    )]
    Accumulator,
    /// A barrier in shared memory was used wrongly.
    #[error("mbarrier: {0}")]
    Barrier(String),
    /// Threads of a warp did not meet at a collective instruction, or of a block at a barrier.
    #[error("{0}")]
    Divergence(String),
    /// The instruction's operands are not supported or not allowed.
    #[error("{0}")]
    Unsupported(String),
    /// The kernel ran more instructions than allowed.
    #[error("more than {0} instructions; the kernel does not seem to end")]
    Endless(u64),
}
