#![doc = include_str!("../README.md")]

mod device;
mod driver;
mod emit;
mod engine;
mod launch;
mod limbs;
mod moves;
mod products;
mod streams;
mod sums;
mod tensor;

pub use engine::{CudaEngine, Method};
pub use tensor::CudaTensor;
