//! The integration tests of importers and architectures. One program: code that they have in common is compiled once.

mod architectures;
mod common;
mod cuda;
mod dealt;
mod digits;
mod exported;
mod guard;
mod onnx_files;
mod training;
mod transformers;
