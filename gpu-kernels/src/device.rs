//! Common parts of all operations of the engine: memory for results, the shipped kernels, launches.

use std::sync::Arc;

use ring_arith::{EngineTensor, Result, Shape, Tensor};

use crate::{
    CudaTensor,
    driver::{Arg, Driver, Grid},
    uploads::Uploads,
};

/// A module that ships with this crate.
#[derive(Clone, Copy)]
pub(crate) enum Shipped {
    Words,
    Products,
    Limbs,
    Wgmma,
    Floats,
}

/// Default limit on the bytes of limbs of one operand of a product. Larger operands, above all a
/// convolution's columns, are cut into parts that are multiplied one after the other. Parts of this size fill
/// a device many times over, and two of them are small compared with its memory.
const ROOM: usize = 512 << 20;

/// Threads of a block in kernels that stride over their work.
const THREADS: u32 = 256;

/// An open device, and copies to it that are under way.
#[derive(Clone)]
pub(crate) struct Device {
    pub driver: Arc<Driver>,
    uploads: Arc<Uploads>,
    /// Bytes of limbs that one operand of a product may take up.
    pub room: usize,
}

impl Device {
    pub(crate) fn open(ordinal: usize) -> Result<Self> {
        Ok(Self { driver: Driver::open(ordinal)?, uploads: Arc::default(), room: ROOM })
    }

    /// A tensor whose words are about to be written.
    pub(crate) fn empty(&self, shape: Shape) -> Result<CudaTensor> {
        let buffer = self.driver.allocate(shape.len() * 8)?;
        Ok(CudaTensor::new(shape, buffer))
    }

    pub(crate) fn upload(&self, tensor: &Tensor) -> Result<CudaTensor> {
        let buffer = self.driver.allocate(tensor.len() * 8)?;
        if tensor.len() > 0 {
            self.uploads.write(&self.driver, &buffer, tensor.to_bytes())?;
        }
        Ok(CudaTensor::new(tensor.shape().clone(), buffer))
    }

    /// The words are in page-locked memory, ready to be sent.
    pub(crate) fn download(&self, tensor: &CudaTensor) -> Result<Tensor> {
        let bytes = self.driver.read(tensor.address(), tensor.len() * 8)?;
        self.uploads.reap();
        Tensor::from_bytes(tensor.shape().clone(), bytes::Bytes::from_owner(bytes))
    }

    /// Runs a shipped kernel that strides over `work` items.
    ///
    /// # Safety
    /// As for [`Driver::launch`].
    pub(crate) unsafe fn stride(
        &self,
        module: Shipped,
        kernel: &str,
        work: usize,
        args: &[Arg],
    ) -> Result<()> {
        if work == 0 {
            return Ok(());
        }
        let blocks = self.blocks(work.div_ceil(THREADS as usize));
        // SAFETY: the caller's promise.
        unsafe { self.run(module, kernel, ([blocks, 1, 1], 0), args) }
    }

    /// A grid of at most eight blocks of [`THREADS`] threads for each multiprocessor.
    pub(crate) fn blocks(&self, wanted: usize) -> u32 {
        wanted.clamp(1, self.driver.processors() as usize * 8) as u32
    }

    /// Runs a shipped kernel on blocks of 256 threads with `shared` bytes of dynamic shared memory.
    ///
    /// # Safety
    /// As for [`Driver::launch`].
    pub(crate) unsafe fn run(
        &self,
        module: Shipped,
        kernel: &str,
        (blocks, shared): ([u32; 3], u32),
        args: &[Arg],
    ) -> Result<()> {
        let text = match module {
            Shipped::Words => include_str!("../ptx/words.ptx"),
            Shipped::Products => include_str!("../ptx/products.ptx"),
            Shipped::Limbs => include_str!("../ptx/limbs.ptx"),
            Shipped::Floats => include_str!("../ptx/floats.ptx"),
            Shipped::Wgmma => include_str!("../ptx/wgmma.ptx"),
        };
        let module = self.driver.module(module as u64, || text.to_string())?;
        let function = self.driver.function(&module, kernel, shared)?;
        // SAFETY: the caller's promise.
        unsafe { self.driver.launch(function, Grid { blocks, threads: THREADS, shared }, args) }
    }
}

/// Builds a structure parameter field by field, with C's alignment.
#[derive(Clone, Default)]
pub(crate) struct Fields {
    bytes: Vec<u8>,
}

impl Fields {
    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.bytes.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn i32(self, value: i32) -> Self {
        self.u32(value as u32)
    }

    pub(crate) fn u64(mut self, value: u64) -> Self {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        self.bytes.extend(value.to_le_bytes());
        self
    }

    /// Up to eight values of 32 bits, the rest `fill`.
    pub(crate) fn eight_u32(self, values: &[u32], fill: u32) -> Self {
        (0..8).fold(self, |f, i| f.u32(values.get(i).copied().unwrap_or(fill)))
    }

    /// Up to eight values of 64 bits, the rest 0.
    pub(crate) fn eight_u64(self, values: &[u64]) -> Self {
        (0..8).fold(self, |f, i| f.u64(values.get(i).copied().unwrap_or(0)))
    }

    /// As [`Fields::done`], for a structure of `bytes` bytes whose last fields do not matter.
    pub(crate) fn done_as(mut self, bytes: usize) -> Arg {
        self.bytes.resize(bytes, 0);
        self.done()
    }

    pub(crate) fn done(mut self) -> Arg {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let words = self.bytes.chunks_exact(8);
        Arg::words(words.map(|w| u64::from_le_bytes(w.try_into().expect("8 bytes"))).collect())
    }
}

/// The address of a tensor as a parameter.
pub(crate) fn pointer(tensor: &CudaTensor) -> Arg {
    Arg::word(tensor.address())
}
