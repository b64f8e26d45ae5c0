//! The kernels that only Hopper runs, on an emulated device of compute capability 9.0, and that others
//! refuse them.

use gpu_kernels::{
    CudaEngine, Method,
    check::{CHECKS, Extent},
};
use ring_arith::{Bilinear, Engine, Shape, Tensor};

/// A stand-in of one compute capability. Each test needs a process of its own, which nextest gives; run
/// in one process they would share the first one's device, so that there is one test.
fn engine(capability: u32) -> CudaEngine {
    ptx_emu_driver::stand_in_as(capability);
    CudaEngine::open(0).expect("the device opens")
}

#[test]
fn products_by_wgmma_agree_on_hopper_and_are_refused_elsewhere() {
    let x = Tensor::full(Shape::new([64, 64]).expect("small"), 3);
    let product = |e: &CudaEngine| {
        let x = e.upload(x.clone()).expect("upload");
        e.bilinear(&Bilinear::MATMUL, &[(&x, &x)], &[])
    };
    let ampere = engine(80);
    assert!(!ampere.methods().contains(&Method::Wgmma));
    let refused = product(&ampere.with_method(Method::Wgmma)).expect_err("not on Ampere");
    assert!(refused.to_string().contains("capability 9.x, the device has 8.0"), "{refused}");

    let hopper = engine(90);
    assert!(hopper.methods().contains(&Method::Wgmma));
    for name in ["wgmma-limbs", "matmul", "longest-sums", "convolutions"] {
        let check = CHECKS.iter().find(|c| c.name == name).expect("there is such a check");
        check.run_only(&hopper, Extent::Small, Method::Wgmma).expect("wgmma agrees with the CPU");
        if name == "matmul" {
            // Also with every operand cut into single tiles.
            let hopper = hopper.clone().with_limb_memory(1);
            check.run_only(&hopper, Extent::Small, Method::Wgmma).expect("parts agree");
        }
    }
}
