//! TLS 1.3, mutual, under the cluster's own authority.

use std::sync::Arc;

use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
    SupportedCipherSuite,
    crypto::{CryptoProvider, ring},
    pki_types::ServerName,
    server::WebPkiClientVerifier,
    version::TLS13,
};

use crate::{Error, Result, Role, cert, cert::Identity};

/// Ciphertext that may wait for the socket before a link takes no more plaintext. With more, the
/// allocator gives memory back to the system and faults it in again for every batch of records.
pub(crate) const BUFFERED: usize = 64 << 10;

/// What an endpoint needs to open and accept TLS connections.
#[derive(Clone)]
pub(crate) struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Tls {
    pub(crate) fn new(identity: &Identity) -> Result<Self> {
        let provider = Arc::new(provider());
        let unusable = |error: &dyn std::fmt::Display| Error::Config {
            what: format!("certificate of {}", identity.role()),
            reason: error.to_string(),
        };
        let mut roots = RootCertStore::empty();
        roots.add(identity.authority()?).map_err(|error| unusable(&error))?;
        let roots = Arc::new(roots);

        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| unusable(&error))?
            .with_root_certificates(roots.clone())
            .with_client_auth_cert(identity.chain()?, identity.private_key()?)
            .map_err(|error| unusable(&error))?;
        // Every connection is proved anew.
        client.resumption = rustls::client::Resumption::disabled();

        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
            .build()
            .map_err(|error| unusable(&error))?;
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| unusable(&error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(identity.chain()?, identity.private_key()?)
            .map_err(|error| unusable(&error))?;
        server.send_tls13_tickets = 0;
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }

    /// A connection to be opened to a party. The handshake fails unless it has that role.
    pub(crate) fn connect(&self, role: &Role) -> Result<Connection> {
        let unusable = |reason: String| Error::Config { what: format!("link to {role}"), reason };
        let name = ServerName::try_from(role.to_string())
            .map_err(|_| unusable("only parties accept connections".to_owned()))?;
        let mut connection = ClientConnection::new(self.client.clone(), name)
            .map_err(|error| unusable(error.to_string()))?;
        connection.set_buffer_limit(Some(BUFFERED));
        Ok(connection.into())
    }

    /// A connection that somebody opened to this side.
    pub(crate) fn accept(&self) -> Result<Connection> {
        let unusable = |error: rustls::Error| Error::Config {
            what: "accepting a connection".to_owned(),
            reason: error.to_string(),
        };
        let mut connection = ServerConnection::new(self.server.clone()).map_err(unusable)?;
        connection.set_buffer_limit(Some(BUFFERED));
        Ok(connection.into())
    }
}

/// The role the peer has proved.
pub(crate) fn peer_role(connection: &Connection) -> Result<Role, String> {
    let chain = connection.peer_certificates().unwrap_or_default();
    let certificate = chain.first().ok_or("no certificate")?;
    cert::role_of(certificate).map_err(|error| error.to_string())
}

/// AES-128-GCM where the CPU has instructions for it, ChaCha20-Poly1305 first where it has none.
fn provider() -> CryptoProvider {
    let aes: SupportedCipherSuite = ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
    let chacha: SupportedCipherSuite = ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256;
    let suites = if has_aes() { vec![aes, chacha] } else { vec![chacha, aes] };
    CryptoProvider { cipher_suites: suites, ..ring::default_provider() }
}

fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("aes") && std::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    false
}
