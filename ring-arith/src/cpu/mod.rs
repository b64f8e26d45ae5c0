//! The engine that computes on the host.

mod bilinear;
mod isa;
mod launch;
mod moves;
mod planes;
mod sums;

use std::fmt;
use std::sync::{Arc, OnceLock};

use rayon::prelude::*;

pub use bilinear::Microkernel;
pub use isa::{Isa, Kind};

use crate::{
    Addend, Bilinear, Buffer, BufferPool, Engine, Generator, Launch, Place, Result, Room, Shape,
    Tensor, View, Window, WordKernel,
};

/// Local work on the CPU, on as many threads as the caller asks for.
///
/// Clones share threads and buffers. Results do not depend on the number of threads or the
/// instruction set.
#[derive(Clone)]
pub struct CpuEngine(Arc<Inner>);

struct Inner {
    isa: Isa,
    threads: usize,
    buffers: BufferPool,
    /// Started by the first operation that is large enough; `None` if the system refused.
    workers: OnceLock<Option<rayon::ThreadPool>>,
}

impl CpuEngine {
    /// An engine on `threads` threads; 0 means one for every CPU that the process may use.
    pub fn new(threads: usize) -> Self {
        Self::with_buffers(threads, BufferPool::default())
    }

    /// The same with buffers from the given pool, which may be shared with other engines and with
    /// the receivers of messages.
    pub fn with_buffers(threads: usize, buffers: BufferPool) -> Self {
        Self::build(Isa::quickest(), threads, buffers)
    }

    /// The same on a chosen instruction set instead of the best one: for tests and measurements.
    pub fn with_isa(isa: Isa, threads: usize) -> Self {
        Self::build(isa, threads, BufferPool::default())
    }

    fn build(isa: Isa, threads: usize, buffers: BufferPool) -> Self {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if threads == 0 { cores() } else { threads };
        Self(Arc::new(Inner { isa, threads, buffers, workers: OnceLock::new() }))
    }

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.0.isa
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.0.threads
    }

    /// The pool that the memory of results comes from.
    pub fn buffers(&self) -> &BufferPool {
        &self.0.buffers
    }

    /// A buffer for a result of the given length, with unspecified content.
    fn buffer(&self, len: usize) -> Buffer {
        self.0.buffers.take(len)
    }

    /// The threads; `None` if the engine uses only the caller's.
    fn workers(&self) -> Option<&rayon::ThreadPool> {
        let start = || {
            let builder = rayon::ThreadPoolBuilder::new().num_threads(self.0.threads);
            builder.thread_name(|i| format!("ring-arith-{i}")).build().ok()
        };
        if self.0.threads > 1 { self.0.workers.get_or_init(start).as_ref() } else { None }
    }

    /// Calls `task` for `0..count`, on all threads if `count` is more than 1.
    fn each(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        match self.workers() {
            Some(workers) if count > 1 => {
                workers.install(|| (0..count).into_par_iter().for_each(task));
            }
            _ => (0..count).for_each(task),
        }
    }

    /// Calls `task` for `0..count`, each of which is about `words` words of work, on all threads if
    /// that pays.
    fn each_of(&self, count: usize, words: usize, task: impl Fn(usize) + Send + Sync) {
        let group = (1usize << 15).div_ceil(words.max(1));
        self.each(count.div_ceil(group), &|i| {
            (i * group..count.min((i + 1) * group)).for_each(&task);
        });
    }

    /// Calls `task` with each row of `width` words and its number, on all threads if that pays.
    fn each_row(
        &self,
        out: &mut [u64],
        width: usize,
        task: impl Fn(usize, &mut [u64]) + Send + Sync,
    ) {
        if width == 0 {
            return;
        }
        let rows = (1usize << 14).div_ceil(width);
        self.each_chunk(out, rows * width, |piece, chunk| {
            for (i, row) in chunk.chunks_exact_mut(width).enumerate() {
                task(piece * rows + i, row);
            }
        });
    }

    /// Calls `task` with each piece of `size` words and the piece's number, on all threads if it is
    /// more than one piece.
    fn each_chunk(
        &self,
        out: &mut [u64],
        size: usize,
        task: impl Fn(usize, &mut [u64]) + Send + Sync,
    ) {
        match self.workers() {
            Some(workers) if out.len() > size => workers.install(|| {
                out.par_chunks_mut(size).enumerate().for_each(|(i, chunk)| task(i, chunk));
            }),
            _ => out.chunks_mut(size.max(1)).enumerate().for_each(|(i, chunk)| task(i, chunk)),
        }
    }
}

impl Engine for CpuEngine {
    type Tensor = Tensor;

    fn name(&self) -> String {
        format!("cpu/{}/{}", self.isa().name(), self.threads())
    }

    fn generators(&self) -> Vec<Generator> {
        Generator::quick_on_this_cpu()
    }

    fn upload(&self, tensor: Tensor) -> Result<Tensor> {
        Ok(tensor)
    }

    fn download(&self, tensor: &Tensor) -> Result<Tensor> {
        Ok(tensor.clone())
    }

    fn view(&self, tensor: &Tensor, view: &View) -> Result<Tensor> {
        moves::view(self, tensor, view)
    }

    fn concat(&self, tensors: &[&Tensor], axis: usize) -> Result<Tensor> {
        moves::concat(self, tensors, axis)
    }

    fn sum(&self, tensor: &Tensor, axes: &[usize]) -> Result<Tensor> {
        sums::sum(self, tensor, axes)
    }

    fn window_sum(&self, tensor: &Tensor, window: &Window) -> Result<Tensor> {
        sums::window_sum(self, tensor, window)
    }

    fn bilinear(
        &self,
        op: &Bilinear,
        terms: &[(&Tensor, &Tensor)],
        addends: &[Addend<'_, Tensor>],
    ) -> Result<Tensor> {
        bilinear::run(self, op, terms, addends)
    }

    fn launch<K: WordKernel<I, O>, const I: usize, const O: usize>(
        &self,
        kernel: &K,
        launch: &Launch<'_, Tensor, I, O>,
    ) -> Result<Vec<Tensor>> {
        launch::run(self, kernel, launch, &[])
    }

    fn room(&self, len: usize) -> Option<Room> {
        Some(self.0.buffers.room(len))
    }

    fn launch_into<K: WordKernel<I, O>, const I: usize, const O: usize>(
        &self,
        kernel: &K,
        launch: &Launch<'_, Tensor, I, O>,
        places: &[Option<Place<'_, Tensor>>],
    ) -> Result<Vec<Tensor>> {
        launch::run(self, kernel, launch, places)
    }

    fn seal(&self, room: &Room, parts: &[&Tensor], shape: &Shape) -> Option<Tensor> {
        room.seal(parts, shape)
    }

    fn to_planes(&self, tensor: &Tensor, low: u32, width: u32) -> Result<Tensor> {
        planes::to_planes(self, tensor, low, width)
    }

    fn from_planes(&self, planes: &Tensor, low: u32, shape: &Shape) -> Result<Tensor> {
        planes::from_planes(self, planes, low, shape)
    }
}

impl fmt::Debug for CpuEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuEngine({})", self.name())
    }
}
