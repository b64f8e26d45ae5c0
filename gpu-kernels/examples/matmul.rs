//! Multiplies two matrices on the GPU and on the CPU and compares; says what is missing without a GPU.
use gpu_kernels::CudaEngine;
use ring_arith::{Bilinear, CpuEngine, Engine, Shape, Tensor};

fn main() -> Result<(), ring_arith::Error> {
    let gpu = match CudaEngine::open(0) {
        Ok(gpu) => gpu,
        Err(error) => {
            println!("{error}");
            return Ok(());
        }
    };
    let x = Tensor::from_fn(Shape::new([300, 200])?, |i| {
        (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    let op = Bilinear::MatMul { transpose_lhs: false, transpose_rhs: true };
    let on_device = gpu.upload(x.clone())?;
    let y = gpu.bilinear(&op, &[(&on_device, &on_device)], &[])?;
    let expected = CpuEngine::new(0).bilinear(&op, &[(&x, &x)], &[])?;
    println!(
        "{}: {}",
        gpu.name(),
        if gpu.download(&y)? == expected { "equal" } else { "DIFFERENT" }
    );
    Ok(())
}
