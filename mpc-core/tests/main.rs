//! The integration tests of functions and of the plaintext reference. One program: code that they have in common is compiled once.

mod arithmetic;
mod functions;
mod plaintext;
