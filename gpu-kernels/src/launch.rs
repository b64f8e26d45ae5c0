//! Word kernels on the device: from a launch to generated code and its arguments.

use std::hash::{DefaultHasher, Hash, Hasher};

use ring_arith::{
    EngineTensor, Generator, Launch, Result, Shape, Source, Stream, WordKernel, trace::Trace,
};

use crate::{
    CudaTensor,
    device::{Device, Fields, Shipped, pointer},
    driver::{Arg, Grid},
    emit::{self, Input, Spec},
    streams,
};

const THREADS: u32 = 128;

pub(crate) fn launch<K: WordKernel<I, O>, const I: usize, const O: usize>(
    device: &Device,
    kernel: &K,
    launch: &Launch<'_, CudaTensor, I, O>,
) -> Result<Vec<CudaTensor>> {
    launch.check()?;
    let (rows, cols) = (launch.rows, launch.cols);
    let outputs: Vec<CudaTensor> =
        launch.outputs.iter().map(|shape| device.empty(shape.clone())).collect::<Result<_>>()?;
    for (i, out) in outputs.iter().enumerate().filter(|(i, _)| !launch.covers(*i)) {
        debug_assert!(!launch.covers(i), "only what no target writes is cleared");
        let args = [pointer(out), Arg::word(out.len() as u64), Arg::word(0)];
        // SAFETY: the kernel writes the tensor's words.
        unsafe { device.stride(Shipped::Words, "fill_words", out.len(), &args)? };
    }
    if rows * cols == 0 {
        return Ok(outputs);
    }
    let mut args = vec![Arg::word(rows as u64), Arg::word(cols as u64)];
    // Tensors that hold what a stream cannot give in registers, kept until the launch is queued.
    let mut held = Vec::new();
    let mut inputs = Vec::with_capacity(I);
    for source in &launch.sources {
        let input = match *source {
            Source::Tensor { tensor, offset, row_stride } => {
                args.extend([address(tensor, offset), Arg::word(row_stride as u64)]);
                Input::Rows
            }
            Source::PerRow { tensor, offset } => {
                args.push(address(tensor, offset));
                Input::PerRow
            }
            Source::Stream { stream, offset, row_stride } => {
                if let Some(input) = generated(stream, offset, row_stride, rows) {
                    args.extend([
                        key(stream),
                        Arg::word(stream.nonce()),
                        Arg::word(offset),
                        Arg::word(row_stride),
                    ]);
                    input
                } else {
                    let words = (rows - 1) * row_stride as usize + cols;
                    let tensor = streams::fill(device, stream, offset, Shape::new([words])?)?;
                    args.extend([pointer(&tensor), Arg::word(row_stride)]);
                    held.push(tensor);
                    Input::Rows
                }
            }
        };
        inputs.push(input);
    }
    for target in &launch.targets {
        args.extend([
            address(&outputs[target.tensor], target.offset),
            Arg::word(target.row_stride as u64),
        ]);
    }
    args.extend(launch.params.iter().map(|&p| Arg::word(p)));
    let trace = Trace::record(kernel, launch.params.len());
    let spec = Spec { trace, inputs, params: launch.params.len(), one_row: rows == 1 };
    let mut hasher = DefaultHasher::new();
    spec.hash(&mut hasher);
    let module = device.0.module(hasher.finish(), || emit::text(kernel.name(), &spec))?;
    let function = device.0.function(&module, emit::ENTRY, 0)?;
    let items = rows * cols.div_ceil(spec.columns());
    let blocks = device.blocks(items.div_ceil(THREADS as usize) / 2 + 1);
    let grid = Grid { blocks: [blocks, 1, 1], threads: THREADS, shared: 0 };
    // SAFETY: the launch was checked, and the arguments are in the order in which `emit` declares them.
    unsafe { device.0.launch(function, grid, &args)? };
    Ok(outputs)
}

fn address(tensor: &CudaTensor, offset: usize) -> Arg {
    Arg::word(tensor.address() + 8 * offset as u64)
}

/// The stream as an input made in registers: ChaCha, if its blocks lie alike in every row.
fn generated(stream: &Stream, offset: u64, row_stride: u64, rows: usize) -> Option<Input> {
    let rounds = match stream.key().generator() {
        Generator::ChaCha12 => 12,
        Generator::ChaCha20 => 20,
        _ => return None,
    };
    let alike = rows == 1 || row_stride.is_multiple_of(emit::BLOCK as u64);
    alike.then_some(Input::ChaCha { rounds, skip: (offset % emit::BLOCK as u64) as u32 })
}

fn key(stream: &Stream) -> Arg {
    let words = stream.key().expose().chunks_exact(4);
    let word = |w: &[u8]| u32::from_le_bytes(w.try_into().expect("four bytes"));
    words.fold(Fields::default(), |f, w| f.u32(word(w))).done()
}
