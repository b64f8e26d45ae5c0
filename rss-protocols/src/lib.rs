#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

// `mutant!` stands in many places, and is nothing outside of tests.
#[macro_use(mutant)]
extern crate mpc_core;

mod bits;
mod circuit;
mod compare;
pub mod costs;
mod dealer;
// Builds for release compile generic code where it is used.
#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod instances;
mod io;
mod kernels;
mod linear;
mod max;
mod party;
mod product;
mod proofs;
mod protocol;
mod random;
mod runtime;
mod share;
mod shuffle;
#[cfg(test)]
mod testing;
mod trig_sum;

pub use circuit::schedule::Tree;
pub use dealer::{Dealer, Tape, TapeKey};
pub use io::clients::{Addends, Replicated};
pub use mpc_core::Security;
pub use party::{Options, Rss};
pub use runtime::chunks::{DEALER, Partition};
pub use share::{BitShare, Share};
