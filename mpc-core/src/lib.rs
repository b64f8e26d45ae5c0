#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[macro_use]
pub mod mutants;

mod chain;
pub mod conformance;
pub mod deal;
mod error;
pub mod functions;
#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod instances;
mod jobs;
#[cfg(test)]
mod mutant_list;
mod normal;
mod plaintext;
pub mod privacy;
mod protocol;
pub mod provided;
mod seed;
mod server;
mod shuffle;
mod tensor;
mod tournament;
mod trig_sum;
mod world;

pub use chain::{Chain, Step, Sum, Value};
pub use deal::{Deal, Held, Parcel, ParcelKey, Released, Sharing};
pub use error::{Error, Result};
pub use jobs::{
    Compare, Compared, Finish, Found, Largest, MOST_DROPPED, Produced, Product, Profile, Security,
    SumFactors, Sums, Term, Then, TruncationMode,
};
pub use normal::Normal;
pub use plaintext::{PlainBits, PlainShare, Plaintext, Rounding};
pub use protocol::{
    BitMap, ComparedBy, FoundBy, Info, Linear, ProducedBy, ProductOf, Protocol, Recipients,
    ShareBits, ShareTensor, ShuffledBy, Words,
};
pub use seed::SplitMix64;
pub use server::{ServerProtocol, Settings};
pub use tensor::{Arg, Format, Operand, PublicTensor, SecretTensor};
pub use trig_sum::{Ends, Line, TrigSum, TrigTerm};
pub use world::{SEED_VARIABLE, TestWorld, Traffic};
