//! The integration tests of words: kernels, layouts and launches. One program: code that they have in common is compiled once.

mod buffers;
mod common;
mod fixed;
mod launch;
mod moves;
mod planes;
mod trace;
