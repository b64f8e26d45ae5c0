//! Connections between clients and servers over the network: mutually authenticated TLS links of the crate `net`.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use net::{Channel as NetChannel, Resolver};

use super::Channel;
use crate::base::{Error, Result};

/// A connection over a mutually authenticated TLS link.
pub(crate) struct Connection(pub(crate) NetChannel);

impl Channel for Connection {
    fn send(&mut self, frame: Bytes) -> Result<()> {
        self.0.send(frame).map_err(|error| unreachable(&error))
    }

    fn send_within(&mut self, frame: Bytes, limit: Duration) -> Result<()> {
        self.0.send_within(frame, limit).map_err(|error| unreachable(&error))
    }

    fn receive(&mut self, limit: Duration) -> Result<Bytes> {
        match self.0.receive(limit) {
            Ok(Some(frame)) => Ok(frame),
            Ok(None) => Err(Error::Unreachable {
                server: self.0.peer().to_string(),
                reason: format!("said nothing for {} s; see its log", limit.as_secs()),
            }),
            Err(error) => Err(unreachable(&error)),
        }
    }

    fn is_over(&self) -> bool {
        self.0.is_over()
    }
}

/// All addresses of a name; at least one.
pub(crate) fn resolve(resolver: &Resolver, what: &str, address: &str) -> Result<Vec<SocketAddr>> {
    let bad = |reason: String| {
        let advice = "correct the name, or write the address as numbers";
        Error::config(format_args!("{what} `{address}`"), format_args!("{reason}; {advice}"))
    };
    let found = resolver(address).map_err(|cause| bad(cause.to_string()))?;
    if found.is_empty() { Err(bad("the name has no address".to_owned())) } else { Ok(found) }
}

fn unreachable(error: &net::Error) -> Error {
    match error {
        net::Error::Channel { with, reason } => {
            Error::Unreachable { server: with.clone(), reason: reason.clone() }
        }
        other => Error::Unreachable { server: "server".to_owned(), reason: other.to_string() },
    }
}
