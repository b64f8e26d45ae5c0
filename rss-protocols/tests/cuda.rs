//! The conformance suite with all local work on a CUDA device, as programs reach it: the emulator, or a GPU where
//! `TREFOIL_GPU` is set.

use gpu_kernels::{AnyEngine, CudaEngine};
use mpc_core::Result;
use rss_protocols::{Options, Rss};

fn engine() -> Result<AnyEngine> {
    ptx_emu_driver::stand_in();
    Ok(AnyEngine::Cuda(CudaEngine::open(0)?))
}

mpc_core::conformance! {
    rss: 3, |session| {
        let options = Options::default().generator(CudaEngine::GENERATOR);
        Rss::with_options(session, engine()?, options)
    };
}
