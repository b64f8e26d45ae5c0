//! Into and out of the protocol: inputs, openings, and what clients share and receive.

pub(crate) mod clients;
pub(crate) mod open;
pub(crate) mod two_party;
