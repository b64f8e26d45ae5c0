//! The frame of the benchmarks: command line, suites, measuring, reports.
//!
//! A suite is a module with `pub fn cases(bench: &mut Bench) -> Result<()>` that names its cases:
//!
//! ```no_run
//! # use anyhow::Result;
//! use xtask::bench::Bench;
//!
//! fn cases(bench: &mut Bench) -> Result<()> {
//!     bench.case("sum/1M", |case| {
//!         let words = vec![1u64; 1 << 20];
//!         let (mine, limit) = case.measure_pair(
//!             || words.iter().copied().fold(0, u64::wrapping_add),
//!             || words.iter().sum::<u64>(),
//!         );
//!         case.engine("cpu").size("2^20").threads(1).timing(mine);
//!         case.rate((8 << 20) as f64 / 1e9, "GB/s");
//!         case.reference("Iterator::sum", limit);
//!         Ok(())
//!     })
//! }
//! ```
//!
//! Case names are stable: they key a history of results.

mod cli;
pub mod launch;
mod machine;
mod measure;
mod record;
mod report;

mod additive;
#[cfg(test)]
mod counted;
mod embed;
mod figures;
mod hosts;
mod models;
mod net;
mod net_baseline;
mod onnx;
pub(crate) mod party;
mod peers;
mod proofs;
mod protocols;
mod python;
mod ring;
mod ring_words;
mod service;
mod store;
mod timing;
mod training;
mod truncation;

pub use crate::record::Record;
pub use cli::{Network, Options, main};
pub use machine::{cpu_seconds, describe, peak_memory_bytes};
pub use measure::{Effort, Timing};
pub use record::{Bench, Case};

use anyhow::Result;

/// A named group of cases.
pub struct Suite {
    /// The name on the command line.
    pub name: &'static str,
    /// One line for `--help`.
    pub about: &'static str,
    /// The modules whose cases make up the suite.
    pub cases: &'static [fn(&mut Bench) -> Result<()>],
}

/// Every suite, in the order in which a run without a name takes them.
pub const SUITES: &[Suite] = &[
    Suite {
        name: "ring",
        about: "matrix products, convolutions, word kernels, transposes, PRGs",
        cases: &[ring::cases, ring_words::cases],
    },
    Suite {
        name: "embed",
        about: "products by limbs against products of words",
        cases: &[embed::cases],
    },
    Suite { name: "net", about: "rounds and bandwidth of the transports", cases: &[net::cases] },
    Suite {
        name: "protocols",
        about: "operations on shares: seconds, bytes, rounds",
        cases: &[protocols::cases, additive::cases],
    },
    Suite {
        name: "proofs",
        about: "proofs of relations against one lying party",
        cases: &[proofs::cases],
    },
    Suite {
        name: "timing",
        about: "whether the time of local work depends on secrets: for quiet machines",
        cases: &[timing::cases],
    },
    Suite {
        name: "truncation",
        about: "forms of truncation: cost and error",
        cases: &[truncation::cases],
    },
    Suite { name: "onnx", about: "exported networks against onnxruntime", cases: &[onnx::cases] },
    Suite {
        name: "figures",
        about: "cost over size, by layer and by network: what `cargo xtask report` draws",
        cases: &[figures::cases],
    },
    Suite { name: "models", about: "private inference of whole models", cases: &[models::cases] },
    Suite {
        name: "python",
        about: "calls of the Python package beside the same in Rust",
        cases: &[python::cases],
    },
    Suite {
        name: "training",
        about: "steps of private training, in turn with inference of the same batch",
        cases: &[training::cases],
    },
    Suite {
        name: "service",
        about: "three servers and many clients: CPU beside idle ones, answers a second",
        cases: &[service::cases],
    },
    Suite {
        name: "store",
        about: "reading a model from a server's disk, encrypted and plain",
        cases: &[store::cases],
    },
];
