#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod error;
pub mod in_process;
pub mod launch;
mod life;
mod metered;
mod transport;

pub use error::{Error, Result};
pub use metered::{Meter, Metered, Report, Stats, StepReport, StepStats, Traffic, UNTRACED};
pub use transport::{Message, PairKey, Party, Session, Transport};
