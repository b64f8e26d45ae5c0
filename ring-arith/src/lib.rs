#![doc = include_str!("../README.md")]

mod bilinear;
mod bits;
mod bounds;
mod buffers;
mod cpu;
mod engine;
mod error;
mod fixed;
mod kernel;
mod prg;
mod shape;
mod shapes;
mod tensor;
pub mod trace;
mod view;

pub use bilinear::{Addend, AddendSource, Bilinear, ConvSpec};
pub use bits::BitTensor;
pub use buffers::{Buffer, BufferPool, Room};
pub use cpu::{CpuEngine, Isa, Kind, Microkernel};
pub use engine::{Engine, EngineTensor};
pub use error::{Error, Result};
pub use fixed::{FixedPoint, FracBits};
pub use kernel::{Launch, Place, Source, Target, Word, WordKernel};
pub use prg::{Generator, Stream, StreamKey, StreamReader};
pub use shape::Shape;
pub use shapes::{ShapeEngine, ShapeTensor};
pub use tensor::Tensor;
pub use view::{View, Window};
