#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod authority;
mod buffer;
mod cert;
mod collectives;
mod endpoint;
mod error;
mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod hello;
mod hub;
pub mod in_process;
pub mod launch;
mod life;
mod limits;
mod link;
mod log_limit;
mod metered;
mod parker;
mod parse;
mod patience;
mod session;
mod shaped;
mod signed;
mod step;
mod stream;
mod sync;
mod tamper;
pub mod tape;
mod tcp;
mod tls;
mod transport;

pub use authority::{Authority, KeyRequest, Renewed, key_fingerprint};
pub use cert::{Identity, Period, Role, Serial};
pub use collectives::Collectives;
pub use endpoint::{Channel, Endpoint, Resolver, Security, Settings, system_resolver};
pub use error::{Error, Result};
pub use limits::Limits;
pub use log_limit::{LeftOut, LogLimit};
pub use metered::{Meter, Metered, Report, Stats, StepReport, StepStats, Traffic, UNTRACED};
pub use session::{Canceller, Job};
pub use shaped::{Shape, Shaped};
pub use signed::Trust;
pub use tamper::{Fault, Strike, Tamper};
pub use transport::{Message, PairKey, Party, Session, Transport};
