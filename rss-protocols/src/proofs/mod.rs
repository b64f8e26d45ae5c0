//! The relations that a party owes for its messages: statements that it can prove to both others.
//!
//! In a checked session every chunk of an operation keeps its messages, and its protocol states the relations between
//! them in a function beside it. The function is the same for the prover and both verifiers, who take what they hold
//! and received. It is run before something is opened, and the statements are proven then (`Rss::verify`).

mod gadgets;
mod ledger;
mod transcript;
mod value;

pub(crate) use gadgets::{Shared, adder, adder_from, bit_as_word};
pub(crate) use ledger::{Ledger, Link, Recorder};
pub(crate) use transcript::Transcript;
pub(crate) use value::{Bits, Holders, Words};
