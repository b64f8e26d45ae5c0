//! Devices that are not there or too old.

use gpu_kernels::CudaEngine;

#[test]
fn what_is_missing_is_said() {
    // In this order: the stand-in stays once it is loaded.
    match CudaEngine::open(0) {
        Ok(_) => println!("a device is there: a missing driver cannot be shown"),
        Err(error) => {
            let text = error.to_string();
            let said =
                ["no CUDA driver (libcuda) is installed", "there are 0 devices", "cuInit failed"];
            assert!(said.iter().any(|reason| text.contains(reason)), "{text}");
        }
    }
    ptx_emu_driver::stand_in_as(75);
    let old = CudaEngine::open(0).expect_err("Turing is too old").to_string();
    assert!(old.contains("compute capability 7.5, at least 8.0 is needed"), "{old}");
    let far = CudaEngine::open(3).expect_err("there is one device").to_string();
    assert!(far.contains("cuda:3: there are 1 devices, numbered from 0"), "{far}");
}
