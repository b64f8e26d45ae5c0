//! Benchmarks of limb products: the cost of exactness by limbs on a CPU.

use anyhow::{Result, ensure};
use float_embed::LimbPlan;
use ring_arith::{Bilinear, CpuEngine, Engine, Shape, Tensor};

use super::Bench;

/// Rows, inner dimension and columns.
const SIZE: usize = 256;

/// The cases of this module.
pub fn cases(bench: &mut Bench) -> Result<()> {
    for (name, plan) in [
        ("matmul/f64-4x16", LimbPlan::F64_4X16),
        ("matmul/f64-3x22", LimbPlan::F64_3X22),
        ("matmul/f64-3x22-balanced", LimbPlan::F64_3X22_BALANCED),
        ("matmul/u8-8x8", LimbPlan::U8_8X8),
        ("matmul/i8-8x8", LimbPlan::I8_8X8),
        ("matmul/bf16-8x8", LimbPlan::BF16_8X8),
    ] {
        bench.case(name, |case| {
            let (x, y) = (matrix(1)?, matrix(2)?);
            let engine = CpuEngine::new(1);
            let words = || engine.bilinear(&Bilinear::MATMUL, &[(&x, &y)], &[]);
            ensure!(plan.matmul(&x, &y)? == words()?, "{plan} differs from the engine's product");
            let (_, direct) = case.measure_pair(|| plan.matmul(&x, &y), words);
            case.engine(&plan.to_string()).size(format!("{SIZE}x{SIZE}x{SIZE}")).threads(1);
            case.rate((SIZE * SIZE * SIZE) as f64 / 1e9, "GMAC/s");
            case.reference(&format!("{} matmul", engine.name()), direct);
            Ok(())
        })?;
    }
    Ok(())
}

/// A square matrix of words spread over the whole range.
fn matrix(seed: u64) -> Result<Tensor> {
    let word = |i: u64| (i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let words = (0..(SIZE * SIZE) as u64).map(word).collect();
    Ok(Tensor::new(Shape::new([SIZE, SIZE])?, words)?)
}
