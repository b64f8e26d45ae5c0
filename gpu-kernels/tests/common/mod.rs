//! An engine for tests: on a GPU where there is one, else on the emulator.

use std::{path::PathBuf, sync::OnceLock};

use gpu_kernels::CudaEngine;

/// The engine of this test process.
pub fn engine() -> CudaEngine {
    static ENGINE: OnceLock<CudaEngine> = OnceLock::new();
    ENGINE.get_or_init(open).clone()
}

fn open() -> CudaEngine {
    if std::env::var_os("TREFOIL_GPU").is_none() {
        emulate();
    }
    CudaEngine::open(0).expect("the device opens")
}

/// Loads the stand-in driver, which cargo builds as this crate depends on `ptx_emu_driver` for tests, and
/// which lies beside the executable. It carries the name of the real
/// one, so that whoever asks for that afterwards gets it.
fn emulate() {
    let here = std::env::current_exe().expect("this test has a path");
    let deps: PathBuf = here.parent().expect("it lies in a folder").into();
    let found = [deps.join("libcuda.so"), deps.join("../libcuda.so")];
    let path =
        found.iter().find(|p| p.exists()).expect("the stand-in driver was built with this test");
    // SAFETY: the library's initialisers do nothing.
    let library = unsafe { libloading::Library::new(path) }.expect("the stand-in driver loads");
    // It stays for the rest of the process.
    std::mem::forget(library);
}
