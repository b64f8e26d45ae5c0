#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
// Two components of a share, and lists of them, are plain tuples here.
#![allow(clippy::type_complexity)]

#[macro_use]
#[path = "../../mpc-core/src/fault.rs"]
mod fault;

mod at_once;
mod bits;
mod chain;
mod circuit;
mod compare;
mod cut;
mod deal;
mod dealt;
mod decompose;
mod exact;
#[cfg(test)]
mod faults;
mod fused;
mod gradient;
mod group;
mod halves;
mod io;
mod kept;
mod kernels;
mod keys;
mod launch;
mod links;
mod local;
mod masked;
mod max;
mod paired;
mod piecewise;
mod plan;
#[cfg(test)]
mod privacy;
mod product;
mod protocol;
mod quotient;
mod random;
mod rss;
mod seat;
mod select;
mod share;
mod signs;
mod sums;
mod tape;
mod truncate;
mod unit;

pub use cut::{DEALER, Parts};
pub use deal::{Addends, Replicated};
pub use plan::Tree;
pub use rss::{Options, Rss};
pub use share::{BitShare, Share};
pub use tape::{Dealer, Tape};
