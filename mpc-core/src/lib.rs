#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[macro_use]
pub mod testing;

mod error;
pub mod functions;
#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod instances;
mod normal;
mod plaintext;
mod protocol;
mod tensor;

pub use error::{Error, Result};
pub use normal::Normal;
pub use plaintext::{PlainBits, PlainShare, Plaintext, Rounding};
pub use protocol::{
    BitMap, Chain, Compare, Compared, ComparedBy, Deal, Ends, Finish, Finishing, FinishingOf,
    Found, FoundBy, Held, Info, Largest, Line, Linear, MOST_DROPPED, Parcel, ParcelKey, Produced,
    ProducedBy, Product, ProductOf, Profile, Protocol, Recipients, Released, Security,
    ServerProtocol, Settings, ShareBits, ShareTensor, Sharing, ShuffledBy, Step, Sum, SumFactors,
    Sums, Term, TermOf, Then, TrigSum, TrigTerm, TruncationMode, Value, Words, angles, provided,
    sharing,
};
pub use tensor::{Arg, Format, Operand, PublicTensor, SecretTensor};
pub use testing::{SEED_VARIABLE, SplitMix64, TestWorld, Traffic};
