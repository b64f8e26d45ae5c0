#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod error;
mod transport;

pub use error::{Error, Result};
pub use transport::{Message, PairKey, Party, Session, Transport};
