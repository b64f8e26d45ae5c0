//! Word kernels on the device: from a launch to generated code and its arguments.

use std::hash::{DefaultHasher, Hash, Hasher};

use ring_arith::{
    EngineTensor, Generator, Launch, Result, Shape, Source, Stream, WordKernel,
    trace::{Node, Trace, Value},
};

use crate::{
    CudaTensor,
    device::{Device, Shipped, pointer},
    driver::{Arg, Grid},
    emit::{self, Input, Spec},
    streams,
};

/// Threads of a block, and blocks for each multiprocessor: as many threads as one holds.
const THREADS: u32 = 128;
const BLOCKS: usize = 16;

/// Work on `rows x cols` words, with its results' places known.
pub(crate) struct Job<'a> {
    pub name: &'static str,
    /// The operations, and which of them are results.
    pub nodes: Vec<Node>,
    pub results: Vec<Value>,
    pub rows: usize,
    pub cols: usize,
    pub params: &'a [u64],
    /// For each result the address of its word `(0, 0)` and words from one row to the next.
    pub targets: Vec<(u64, usize)>,
}

pub(crate) fn launch<K: WordKernel<I, O>, const I: usize, const O: usize>(
    device: &Device,
    kernel: &K,
    launch: &Launch<'_, CudaTensor, I, O>,
) -> Result<Vec<CudaTensor>> {
    launch.check()?;
    let (rows, cols) = (launch.rows, launch.cols);
    let outputs: Vec<CudaTensor> =
        launch.outputs.iter().map(|shape| device.empty(shape.clone())).collect::<Result<_>>()?;
    for (_, out) in outputs.iter().enumerate().filter(|(i, _)| !launch.covers(*i)) {
        let args = [pointer(out), Arg::word(out.len() as u64), Arg::word(0)];
        // SAFETY: the kernel writes the tensor's words.
        unsafe { device.stride(Shipped::Words, "fill_words", out.len(), &args)? };
    }
    if rows * cols == 0 {
        return Ok(outputs);
    }
    let trace = Trace::record(kernel, launch.params.len());
    let targets =
        launch.targets.iter().map(|t| (address(&outputs[t.tensor], t.offset), t.row_stride));
    let job = Job {
        name: kernel.name(),
        nodes: trace.nodes().to_vec(),
        results: trace.outputs().to_vec(),
        rows,
        cols,
        params: launch.params,
        targets: targets.collect(),
    };
    run(device, job, &launch.sources)?;
    Ok(outputs)
}

/// Runs generated code for work that is not empty and whose sources and targets fit.
pub(crate) fn run(device: &Device, job: Job<'_>, sources: &[Source<'_, CudaTensor>]) -> Result<()> {
    let Job { rows, cols, .. } = job;
    // Neighbouring words are read and written in pairs where every row starts at a pair.
    let paired = |address: u64, stride: usize| {
        address.is_multiple_of(16) && (rows == 1 || stride.is_multiple_of(2))
    };
    let mut args = vec![Arg::word(rows as u64), Arg::word(cols as u64)];
    // Tensors of stream words that cannot be generated in registers, kept until the launch is
    // queued.
    let mut held = Vec::new();
    let mut inputs = Vec::with_capacity(sources.len());
    for source in sources {
        let input = match *source {
            Source::Tensor { tensor, offset, row_stride } => {
                let address = address(tensor, offset);
                args.extend([address, row_stride as u64].map(Arg::word));
                Input::Rows { paired: paired(address, row_stride) }
            }
            Source::PerRow { tensor, offset } => {
                args.push(Arg::word(address(tensor, offset)));
                Input::PerRow
            }
            Source::Stream { stream, offset, row_stride } => {
                if let Some(input) = generated(stream, offset, row_stride, rows) {
                    args.push(streams::chacha_key(stream));
                    args.extend([stream.nonce(), offset, row_stride].map(Arg::word));
                    input
                } else {
                    let words = (rows - 1) * row_stride as usize + cols;
                    let tensor = streams::fill(device, stream, offset, Shape::new([words])?)?;
                    args.extend([tensor.address(), row_stride].map(Arg::word));
                    let paired = paired(tensor.address(), row_stride as usize);
                    held.push(tensor);
                    Input::Rows { paired }
                }
            }
        };
        inputs.push(input);
    }
    args.extend(job.targets.iter().flat_map(|&(a, stride)| [a, stride as u64].map(Arg::word)));
    args.extend(job.params.iter().map(|&p| Arg::word(p)));
    let spec = Spec {
        nodes: job.nodes,
        results: job.results,
        inputs,
        targets: job.targets.iter().map(|&(a, stride)| paired(a, stride)).collect(),
        params: job.params.len(),
        one_row: rows == 1,
    };
    let mut hasher = DefaultHasher::new();
    spec.hash(&mut hasher);
    let module = device.driver.module(hasher.finish(), || emit::text(job.name, &spec))?;
    let function = device.driver.function(&module, emit::ENTRY, 0)?;
    let items = rows * cols.div_ceil(spec.columns());
    let most = device.driver.processors() as usize * BLOCKS;
    let blocks = items.div_ceil(THREADS as usize).clamp(1, most) as u32;
    let grid = Grid { blocks: [blocks, 1, 1], threads: THREADS, shared: 0 };
    // SAFETY: sources and targets fit, and the arguments are in the order in which `emit` declares them.
    unsafe { device.driver.launch(function, grid, &args) }
}

fn address(tensor: &CudaTensor, offset: usize) -> u64 {
    tensor.address() + 8 * offset as u64
}

/// The stream as an input made in registers: ChaCha, if its blocks have the same positions in every
/// row.
fn generated(stream: &Stream, offset: u64, row_stride: u64, rows: usize) -> Option<Input> {
    let rounds = match stream.key().generator() {
        Generator::ChaCha12 => 12,
        Generator::ChaCha20 => 20,
        _ => return None,
    };
    let alike = rows == 1 || row_stride.is_multiple_of(emit::BLOCK as u64);
    alike.then_some(Input::ChaCha { rounds, skip: (offset % emit::BLOCK as u64) as u32 })
}
