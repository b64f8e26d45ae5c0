#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod error;
mod protocol;
mod secret;
mod tournament;

pub use error::{Error, Result};
pub use protocol::{
    Compare, Compared, Finish, Linear, Product, Protocol, ShareTensor, Then, TruncationMode, Words,
};
pub use secret::{Operand, PublicTensor, SecretTensor};
