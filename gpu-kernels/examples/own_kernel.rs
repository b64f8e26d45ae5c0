//! A word kernel of one's own, written once, on the CPU's vectors and on CUDA.
//!
//! The step blinds a word: `x * c + r`, with `r` a pseudo-random mask that is made where it is needed.
//! Without a GPU an emulator runs the generated PTX; set `TREFOIL_GPU=1` to use the first real device.
//!
//! `cargo run -p trefoil-cuda --example own_kernel`

use gpu_kernels::CudaEngine;
use ring_arith::{
    CpuEngine, Engine, EngineTensor, Generator, Launch, Result, Source, StreamKey, Target, Tensor,
    Word, WordKernel,
};

/// `x * c + r`.
struct Blind;

impl WordKernel<2, 1> for Blind {
    fn name(&self) -> &'static str {
        "blind"
    }

    #[inline(always)]
    fn step<W: Word>(&self, [x, r]: [W; 2], params: &[W]) -> [W; 1] {
        [x * params[0] + r]
    }
}

/// The same launch on any engine.
fn blind<E: Engine>(engine: &E, x: &Tensor) -> Result<Tensor> {
    let x = engine.upload(x.clone())?;
    let (len, stream) = (x.shape().len(), StreamKey::new(Generator::ChaCha12, &[7; 32]).stream(1));
    let launch = Launch {
        rows: 1,
        cols: len,
        sources: [
            Source::rows_of(&x, len),
            Source::Stream { stream: &stream, offset: 0, row_stride: 0 },
        ],
        params: &[3],
        outputs: &[x.shape().clone()],
        targets: [Target { tensor: 0, offset: 0, row_stride: len }],
    };
    let blinded = engine.launch(&Blind, &launch)?;
    engine.download(&blinded[0])
}

fn main() -> Result<()> {
    ptx_emu_driver::stand_in();
    let (cpu, gpu) = (CpuEngine::new(0), CudaEngine::open(0)?);
    let x = Tensor::vector((0..1000).collect());
    let (on_cpu, on_gpu) = (blind(&cpu, &x)?, blind(&gpu, &x)?);
    println!("{}: {:016x?}", cpu.name(), &on_cpu.words()[..2]);
    println!("{}: {:016x?}", gpu.name(), &on_gpu.words()[..2]);
    assert_eq!(on_cpu, on_gpu);
    Ok(())
}
