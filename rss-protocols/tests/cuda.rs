//! The conformance suite with all local work on a CUDA device: the emulator, or a GPU where
//! `TREFOIL_GPU` is set.

use gpu_kernels::CudaEngine;
use mpc_core::Result;
use rss_protocols::{Options, Rss};

fn engine() -> Result<CudaEngine> {
    ptx_emu_driver::stand_in();
    Ok(CudaEngine::open(0)?)
}

mpc_core::conformance! {
    rss: 3, |session| {
        let options = Options::default().generator(CudaEngine::GENERATOR);
        Rss::with_options(session, engine()?, options)
    };
}
