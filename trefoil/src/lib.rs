#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod analysis;
pub mod cli;
pub mod client;
pub mod cluster;
pub mod config;
pub mod inputs;
pub mod local;
pub mod model;
pub mod server;
pub mod store;
pub mod tapes;
pub mod training;
pub mod wire;

mod base;
#[cfg(test)]
mod testing;

pub use cluster_protocols as protocols;

pub use base::{
    Accusation, ClusterId, Digest, Error, Id, PROGRAM, Result, Shares, check::check_name,
    encryption::StoreKey,
};
pub use model::{About, Input, Longer, OutputTensor, Preprocess, Text};
