#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod architectures;
pub mod data;
mod error;
pub mod onnx;
pub mod weights;

pub use error::{Error, Result};
