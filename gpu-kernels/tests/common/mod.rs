//! An engine for tests: on a GPU where `TREFOIL_GPU` is set, else on the emulator.

use std::sync::OnceLock;

use gpu_kernels::CudaEngine;

/// The engine of this test process.
pub fn engine() -> CudaEngine {
    static ENGINE: OnceLock<CudaEngine> = OnceLock::new();
    let open = || {
        ptx_emu_driver::stand_in();
        CudaEngine::open(0).expect("the device opens")
    };
    ENGINE.get_or_init(open).clone()
}
