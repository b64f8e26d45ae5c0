//! The integration tests of the CUDA engine. One program: code that they have in common is compiled once.

mod common;
mod cublas;
mod engine;
mod hopper;
mod planted;
mod refused;
