#![doc = include_str!("../README.md")]

mod any;
pub mod check;
mod chooser;
mod cublas;
mod device;
mod driver;
mod emit;
mod engine;
mod floats;
mod launch;
mod limbs;
mod moves;
mod products;
mod streams;
mod sums;
mod tensor;
mod uploads;

pub use any::{AnyEngine, AnyTensor, EngineChoice};
pub use engine::{CudaEngine, Method};
pub use tensor::CudaTensor;
