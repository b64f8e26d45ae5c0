//! The CPU engine.

mod isa;

pub use isa::{Isa, Kind};
