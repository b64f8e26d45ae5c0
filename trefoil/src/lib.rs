#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod cli;
pub mod client;
pub mod cluster;
pub mod commands;
pub mod config;
pub mod inputs;
pub mod local;
pub mod model;
pub mod output;
pub mod server;
pub mod store;
pub mod tapes;
pub mod training;
pub mod wire;

mod base;
#[cfg(test)]
mod testing;

pub use cluster_protocols as protocols;

pub use crate::base::{
    Accusation, ClusterId, Digest, Error, Id, PROGRAM, Result, Shares, check::check_name,
    encryption::StoreKey, log,
};
pub use crate::model::{About, Input, Longer, OutputTensor, Preprocess, Text};
