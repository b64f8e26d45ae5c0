//! Baselines for the transports: bare sockets, bare rustls, bare channels.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use net::{Authority, Identity, Role};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};

/// One direction of a connection: bytes written to the first end are read from the second.
pub(super) struct Pipe {
    pub(super) source: Box<dyn Write + Send>,
    pub(super) sink: Box<dyn Read + Send>,
}

/// Two connected sockets on the loopback device.
pub(super) fn sockets() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    let (other, _) = listener.accept()?;
    one.set_nodelay(true)?;
    other.set_nodelay(true)?;
    Ok((one, other))
}

/// A pipe over bare TCP.
pub(super) fn plain_pipe() -> Result<Pipe> {
    let (source, sink) = sockets()?;
    Ok(Pipe { source: Box::new(source), sink: Box::new(sink) })
}

/// A pipe over bare rustls with the cipher that `net` takes.
pub(super) fn tls_pipe() -> Result<Pipe> {
    let (source, sink) = tls_ends()?;
    Ok(Pipe { source: Box::new(source), sink: Box::new(sink) })
}

/// Two ends of a bare rustls connection.
pub(super) fn tls_ends() -> Result<(TlsClient, TlsServer)> {
    let (one, other) = sockets()?;
    let (client, server) = connections()?;
    let mut other = StreamOwned::new(server, other);
    let handshake = thread::spawn(move || -> Result<_> {
        other.conn.complete_io(&mut other.sock)?;
        Ok(other)
    });
    let mut one = StreamOwned::new(client, one);
    one.conn.complete_io(&mut one.sock)?;
    let other = handshake.join().map_err(|_| anyhow::anyhow!("the handshake panicked"))??;
    Ok((one, other))
}

/// One end of a bare rustls connection.
pub(super) type TlsClient = StreamOwned<ClientConnection, TcpStream>;

/// The other end.
pub(super) type TlsServer = StreamOwned<ServerConnection, TcpStream>;

/// Both ends of a TLS 1.3 connection that is still to be negotiated.
pub(super) fn connections() -> Result<(ClientConnection, ServerConnection)> {
    let day = Duration::from_secs(86_400);
    let authority = Authority::generate(day)?;
    let identity = authority.issue(&Role::party(0), day)?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(identity.authority_pem().as_bytes())?)?;
    let (roots, provider) = (Arc::new(roots), Arc::new(provider()));
    let client = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain(&identity)?, key(&identity)?)?;
    let server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain(&identity)?, key(&identity)?)?;
    let name = ServerName::try_from("party-0").context("a name for the server")?;
    let client = ClientConnection::new(Arc::new(client), name)?;
    Ok((client, ServerConnection::new(Arc::new(server))?))
}

fn provider() -> CryptoProvider {
    let cipher_suites = vec![ring::cipher_suite::TLS13_AES_128_GCM_SHA256];
    CryptoProvider { cipher_suites, ..ring::default_provider() }
}

fn chain(identity: &Identity) -> Result<Vec<CertificateDer<'static>>> {
    Ok(vec![CertificateDer::from_pem_slice(identity.certificate_pem().as_bytes())?])
}

fn key(identity: &Identity) -> Result<PrivateKeyDer<'static>> {
    Ok(PrivateKeyDer::from_pem_slice(identity.key_pem().as_bytes())?)
}

/// Three parties with a writing and a reading thread each send `sizes` to their neighbours at once.
///
/// # Errors
/// If a connection fails.
pub(super) fn exchange(ring: &mut [Pipe], sizes: &[usize], body: &[u8]) -> Result<()> {
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for Pipe { source, sink } in ring {
            threads.push(scope.spawn(move || -> Result<()> {
                for &size in sizes {
                    source.write_all(&body[..size])?;
                }
                Ok(source.flush()?)
            }));
            threads.push(scope.spawn(move || -> Result<()> {
                let mut buffer = vec![0; body.len()];
                for &size in sizes {
                    sink.read_exact(&mut buffer[..size])?;
                }
                Ok(())
            }));
        }
        let join = |thread: thread::ScopedJoinHandle<'_, Result<()>>| {
            thread.join().map_err(|_| anyhow::anyhow!("a thread of the exchange panicked"))?
        };
        threads.into_iter().try_for_each(join)
    })
}

/// Sends 64 bytes back and forth `times` times between two threads over bare sockets.
///
/// # Errors
/// If a connection fails.
pub(super) fn round_trips(
    ends: &mut (impl Read + Write, impl Read + Write + Send),
    times: usize,
) -> Result<()> {
    let (one, other) = ends;
    thread::scope(|scope| {
        let echo = scope.spawn(move || -> Result<()> {
            let mut buffer = [0; 64];
            for _ in 0..times {
                other.read_exact(&mut buffer)?;
                other.write_all(&buffer)?;
                other.flush()?;
            }
            Ok(())
        });
        let mut buffer = [0; 64];
        for _ in 0..times {
            one.write_all(&buffer)?;
            one.flush()?;
            one.read_exact(&mut buffer)?;
        }
        echo.join().map_err(|_| anyhow::anyhow!("the echo panicked"))?
    })
}
