#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod block;
mod bulk;
mod collective;
mod decode;
mod device;
mod error;
mod instr;
mod memory;
mod parse;
mod scalar;
mod shared;
mod thread;
mod wgmma;

pub use device::{Device, Launch};
pub use error::{Error, Fault, Place, Result};
pub use parse::{Kernel, Module, Param};
