//! Products by limbs of f64 on the stand-in's part of cuBLAS, or on a real one where `TREFOIL_GPU` is set.

use std::path::Path;

use crate::common::engine;
use gpu_kernels::{
    CudaEngine, Method,
    check::{CHECKS, Extent},
};
use ring_arith::{Bilinear, Engine, Shape, Tensor};

#[test]
fn products_of_float_limbs_agree() {
    let real = std::env::var_os("TREFOIL_GPU").is_some();
    let library = (!real).then(ptx_emu_driver::library);
    let engine = match engine().with_cublas(library.as_deref()) {
        Err(error) if real => return println!("skipped: {error}"),
        engine => engine.expect("the stand-in's cuBLAS loads"),
    };
    for method in [Method::F64Limbs16, Method::F64Limbs22] {
        assert!(engine.methods().contains(&method));
        for name in ["matmul", "longest-sums", "convolutions"] {
            let check = CHECKS.iter().find(|c| c.name == name).expect("there is such a check");
            check
                .run_only(&engine, Extent::Small, method)
                .expect("limbs of f64 agree with the CPU");
        }
    }
}

#[test]
fn without_cublas_the_error_says_what_is_missing() {
    let error =
        engine().with_cublas(Some(Path::new("/no/such/library.so"))).expect_err("not there");
    assert!(error.to_string().contains("cuBLAS is not installed"), "{error}");
    let e: CudaEngine = engine().with_method(Method::F64Limbs16);
    let x = e.upload(Tensor::full(Shape::new([2, 2]).expect("small"), 1)).expect("upload");
    let error = e.bilinear(&Bilinear::MATMUL, &[(&x, &x)], &[]).expect_err("not loaded");
    assert!(error.to_string().contains("with_cublas"), "{error}");
}
