#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod conformance;
mod error;
pub mod functions;
mod plaintext;
pub mod privacy;
mod protocol;
mod provided;
mod secret;
mod seed;
mod tournament;
mod world;

pub use error::{Error, Result};
pub use plaintext::{PlainBits, PlainShare, Plaintext, Rounding};
pub use protocol::{
    Compare, Compared, Finish, Linear, MOST_DROPPED, Product, Protocol, ShareTensor, Then,
    TruncationMode, Words,
};
pub use secret::{Arg, Operand, PublicTensor, SecretTensor};
pub use seed::SplitMix64;
pub use world::{SEED_VARIABLE, TestWorld, Traffic};
