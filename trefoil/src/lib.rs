#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod audit;
pub mod certificates;
pub mod cli;
pub mod client;
pub mod cluster;
pub mod commands;
pub mod config;
pub mod images;
pub mod import;
pub mod links;
pub mod local;
pub mod observe;
pub mod output;
pub mod profile;
pub mod program;
pub mod queue;
pub mod range;
pub mod rebuild;
pub mod saved;
pub mod server;
pub mod store;
pub mod tables;
pub mod tapes;
pub mod text;
pub mod training;
pub mod trial;
pub mod watch;
pub mod wire;

mod about;
mod base;
#[cfg(test)]
mod testing;

pub use cluster_protocols as protocols;

pub use about::{About, Input, Longer, OutputTensor, Preprocess, Text};
pub use base::{
    Accusation, ClusterId, Digest, Error, Id, PROGRAM, Result, Shares, check::check_name,
    encryption::StoreKey, log,
};
