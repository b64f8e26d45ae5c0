//! New connections, and those that are refused.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use mio::{Interest, Token};
use rustix::net::sockopt::set_socket_send_buffer_size;

use super::{Hub, cannot, lock};
use crate::{
    LeftOut, Result, Role,
    link::{End, Link},
    stream::Stream,
};

/// Size of the socket's own queue where both ends are on one machine. Nothing is under way there, so
/// that a longer one only means that bytes have left the cache when they are read.
const SAME_MACHINE: usize = 256 << 10;

impl Hub {
    /// Adds a connection to those that are served.
    pub(crate) fn add(
        &self,
        stream: mio::net::TcpStream,
        address: SocketAddr,
        expected: Option<Role>,
    ) -> Result<Arc<Link>> {
        let tls = match (self.tls(), &expected) {
            (Some(tls), Some(role)) => Some(tls.connect(role)?),
            (Some(tls), None) => Some(tls.accept()?),
            (None, _) => None,
        };
        let failed = |error: io::Error| cannot("opening a connection", &error);
        stream.set_nodelay(true).map_err(failed)?;
        if stream.local_addr().is_ok_and(|mine| mine.ip() == address.ip()) {
            set_socket_send_buffer_size(&stream, SAME_MACHINE).map_err(|e| failed(e.into()))?;
        }
        let mut stream = Stream::new(stream, tls);
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        let both = Interest::READABLE | Interest::WRITABLE;
        self.registry.register(stream.source(), Token(token), both).map_err(failed)?;
        let pool = self.pool.clone();
        let link = Link::new(token, address, stream, expected, pool, &self.limits, self.now());
        let link = Arc::new(link);
        {
            let mut links = lock(&self.links);
            links.all.insert(token, link.clone());
            if link.expected.is_none() {
                links.unproved.insert(token, link.clone());
            }
        }
        // An event may have come before the link was known.
        self.schedule(&link);
        Ok(link)
    }

    pub(super) fn accept(&self) {
        let listener = lock(&self.listener);
        let Some(listener) = &*listener else { return };
        loop {
            match listener.accept() {
                Ok((stream, address)) => {
                    if let Err(error) = self.add(stream, address, None) {
                        self.note_refusal(address, error.to_string());
                    }
                    self.drop_oldest_unproved();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // Out of file handles, most likely: tried again at the next connection or tick.
                    if self.refusals.admits(&IpAddr::from([0; 4]), &error.to_string()) {
                        tracing::warn!(%error, "accepting a connection failed");
                    }
                    return;
                }
            }
        }
    }

    /// Stops accepting connections.
    pub(crate) fn stop_listening(&self) {
        *lock(&self.listener) = None;
    }

    pub(super) fn note_refusal(&self, address: SocketAddr, cause: String) {
        *lock(&self.refused) = Some((Instant::now(), format!("{}: {cause}", address.ip())));
        if self.refusals.admits(&address.ip(), &cause) {
            tracing::warn!(%address, cause, "connection refused");
        }
    }

    /// Says how many like lines were left out of the log.
    pub(super) fn log_left_out(&self) {
        for LeftOut { group, kind, lines } in self.refusals.left_out() {
            match (group, kind) {
                (Some(address), Some(cause)) => {
                    tracing::warn!(%address, cause, lines, "connections refused like the one before");
                }
                (Some(address), None) => {
                    tracing::warn!(%address, lines, "connections refused for other causes");
                }
                (None, _) => tracing::warn!(lines, "connections refused of other addresses"),
            }
        }
    }

    /// The connection refused last and why, if that was not longer ago than `period`.
    pub(crate) fn refused_within(&self, period: Duration) -> Option<String> {
        let refused = lock(&self.refused).clone();
        refused.filter(|(when, _)| when.elapsed() <= period).map(|(_, cause)| cause)
    }

    fn drop_oldest_unproved(&self) {
        let oldest: Vec<_> = {
            let links = lock(&self.links);
            let excess = links.unproved.len().saturating_sub(self.limits.pending);
            links.unproved.values().take(excess).cloned().collect()
        };
        for link in oldest {
            let reason = "too many connections have not proved who they are".to_owned();
            self.finish(&link, &mut link.wire(), End::Violation(reason));
        }
    }
}
