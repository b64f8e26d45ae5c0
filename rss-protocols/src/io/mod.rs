//! Into and out of the protocol: inputs, openings, and the clients' secrets and results.

pub(crate) mod clients;
pub(crate) mod open;
pub(crate) mod two_party;
