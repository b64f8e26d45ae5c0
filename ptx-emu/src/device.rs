//! The device: its memory, and launches.

use crate::{
    Error, Place, Result,
    block::{Block, GridShape, Order},
    memory::Memory,
    parse::Kernel,
};

/// Largest shared memory of a block, static and dynamic, as on compute capability 9.0.
const SHARED_LIMIT: usize = 227 * 1024;
/// Largest number of threads of a block.
const THREADS_LIMIT: u32 = 1024;

/// An emulated device.
#[derive(Debug)]
pub struct Device {
    memory: Memory,
    order: Order,
    limit: u64,
    steps: u64,
}

/// Dimensions of a launch and its parameter block.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: usize,
    /// The parameters, in the layout of [`Kernel::params`].
    pub params: &'a [u8],
}

impl Device {
    /// A device with `capacity` bytes of memory. `seed` decides the order of blocks and threads.
    pub fn new(capacity: u64, seed: u64) -> Self {
        Self { memory: Memory::new(capacity), order: Order(seed), limit: 1 << 40, steps: 0 }
    }

    /// Stops a block that executes more than `steps` instructions, summed over its threads.
    pub fn limit_steps(&mut self, steps: u64) {
        self.limit = steps;
    }

    /// Instructions executed so far, summed over threads.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Free bytes and all bytes.
    pub fn room(&self) -> (u64, u64) {
        self.memory.room()
    }

    /// Allocates bytes, filled with a pattern; `None` if the memory is full.
    pub fn allocate(&mut self, bytes: usize) -> Option<u64> {
        self.memory.allocate(bytes)
    }

    /// Frees an allocation.
    ///
    /// # Errors
    /// [`Error::Host`] if `address` is not the start of one.
    pub fn free(&mut self, address: u64) -> Result<()> {
        self.memory.free(address)
    }

    /// Bytes of global memory, for the host to read and write.
    ///
    /// # Errors
    /// [`Error::Host`] unless they lie in one allocation.
    pub fn bytes(&mut self, address: u64, bytes: usize) -> Result<&mut [u8]> {
        self.memory.host(address, bytes)
    }

    /// Runs a kernel over its grid, blocks in shuffled order, one after the other.
    ///
    /// # Errors
    /// [`Error::Launch`] if the launch itself is wrong, [`Error::Kernel`] at the first fault.
    pub fn launch(&mut self, kernel: &Kernel, launch: &Launch<'_>) -> Result<()> {
        let wrong = |reason: String| Error::Launch { kernel: kernel.name.clone(), reason };
        let threads = product(launch.block).filter(|n| (1..=THREADS_LIMIT).contains(n));
        let threads =
            threads.ok_or_else(|| wrong(format!("a block of {:?} threads", launch.block)))?;
        if kernel.max_threads.is_some_and(|max| threads > max) {
            return Err(wrong(format!("{threads} threads, more than its bound")));
        }
        let blocks = product(launch.grid).filter(|n| *n > 0);
        let blocks = blocks.ok_or_else(|| wrong(format!("a grid of {:?} blocks", launch.grid)))?;
        let shared = kernel.static_shared + launch.shared;
        if shared > SHARED_LIMIT {
            return Err(wrong(format!(
                "{shared} bytes of shared memory, more than {SHARED_LIMIT}"
            )));
        }
        let needed = kernel.params.last().map_or(0, |p| p.offset + p.bytes);
        if launch.params.len() < needed {
            return Err(wrong(format!(
                "{} bytes of parameters, {needed} needed",
                launch.params.len()
            )));
        }
        self.memory.begin_launch();
        let shape = GridShape { grid: launch.grid, block: launch.block };
        for number in self.order.shuffled(blocks as usize) {
            let seed = self.order.next();
            let parts = (kernel, launch.params, &mut self.memory);
            let mut block =
                Block::new(parts, shape, number as u32, launch.shared, seed, self.limit);
            let outcome = block.run().map_err(|(thread, fault)| Error::Kernel {
                place: Box::new(Place {
                    kernel: kernel.name.clone(),
                    line: kernel.code[block.threads[thread].pc].line,
                    block: block.index,
                    thread: thread as u32,
                }),
                fault,
            });
            self.steps += block.steps;
            outcome?;
        }
        Ok(())
    }
}

/// The product of three dimensions, if it is a number of 32 bits.
fn product(dims: [u32; 3]) -> Option<u32> {
    dims[0].checked_mul(dims[1])?.checked_mul(dims[2])
}
