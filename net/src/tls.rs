//! TLS 1.3, mutual, under the cluster's own authority.

use std::sync::Arc;

use rustls::{AlertDescription, CertificateError};
use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
    SupportedCipherSuite,
    client::WebPkiServerVerifier,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
    version::TLS13,
};

use crate::{Error, Result, Role, cert, cert::Identity};

/// Ciphertext that may wait for the socket before a link takes no more plaintext. With more, the
/// allocator gives memory back to the system and faults it in again for every batch of records.
pub(crate) const BUFFERED: usize = 64 << 10;

/// The configuration with which an endpoint opens and accepts TLS connections.
#[derive(Clone)]
pub(crate) struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    verifier: Arc<dyn ClientCertVerifier>,
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
            .with_webpki_verifier(
                WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone())
                    .with_crls(identity.revocations()?)
                    .only_check_end_entity_revocation()
                    .build()
                    .map_err(|error| unusable(&error))?,
            )
            .with_client_auth_cert(identity.chain()?, identity.private_key()?)
            .map_err(|error| unusable(&error))?;
        // Every connection is proved again.
        client.resumption = rustls::client::Resumption::disabled();

        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
            .with_crls(identity.revocations()?)
            .only_check_end_entity_revocation()
            .build()
            .map_err(|error| unusable(&error))?;
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| unusable(&error))?
            .with_client_cert_verifier(verifier.clone())
            .with_single_cert(identity.chain()?, identity.private_key()?)
            .map_err(|error| unusable(&error))?;
        server.send_tls13_tickets = 0;
        let tls = Self { client: Arc::new(client), server: Arc::new(server), verifier };
        tls.check_list(identity)?;
        Ok(tls)
    }

    /// A list of another authority would make every certificate unusable: it is refused as such.
    fn check_list(&self, identity: &Identity) -> Result<()> {
        let [own] = &identity.chain()?[..] else { return Ok(()) };
        match (self.verify(own), identity.revocations()?) {
            (
                Err(
                    rustls::Error::InvalidCertificate(
                        CertificateError::BadSignature | CertificateError::UnknownRevocationStatus,
                    )
                    | rustls::Error::InvalidCertRevocationList(_),
                ),
                Some(_),
            ) => Err(Error::Config {
                what: "list of revoked certificates".to_owned(),
                reason: "is not signed by the cluster's authority; copy the file that it made"
                    .to_owned(),
            }),
            _ => Ok(()),
        }
    }

    fn verify(&self, certificate: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        self.verifier.verify_client_cert(certificate, &[], UnixTime::now()).map(drop)
    }

    /// True if a certificate is on the list of those revoked.
    pub(crate) fn is_revoked(&self, certificate: &CertificateDer<'_>) -> bool {
        let revoked = rustls::Error::InvalidCertificate(CertificateError::Revoked);
        self.verify(certificate) == Err(revoked)
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

    /// A connection that a peer opened to this side.
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

/// The role the peer has proved, and the certificate by which it did.
pub(crate) fn peer_role(
    connection: &Connection,
) -> Result<(Role, CertificateDer<'static>), String> {
    let chain = connection.peer_certificates().unwrap_or_default();
    let certificate = chain.first().ok_or("no certificate")?;
    let role = cert::role_of(certificate).map_err(|error| error.to_string())?;
    Ok((role, certificate.clone().into_owned()))
}

/// Describes a fault in TLS and its remedy, in words for the cluster's operator.
pub(crate) fn explain(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(error) => explain_certificate(error),
        rustls::Error::AlertReceived(alert) => explain_alert(*alert),
        rustls::Error::NoCertificatesPresented => "it has shown no certificate".to_owned(),
        other => other.to_string(),
    }
}

fn explain_certificate(error: &CertificateError) -> String {
    const CLOCK: &str = "or correct this machine's clock if it is wrong";
    match error {
        CertificateError::ExpiredContext { time, not_after } => {
            let age = days(time.as_secs().saturating_sub(not_after.as_secs()));
            format!("its certificate has expired {age} ago; renew it, {CLOCK}")
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            let wait = days(not_before.as_secs().saturating_sub(time.as_secs()));
            format!("its certificate is not valid yet, for {wait}; wait, {CLOCK}")
        }
        CertificateError::Revoked => "its certificate has been revoked".to_owned(),
        // The authorities of all clusters have the same name, but not the same key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate is of another authority: it belongs to another cluster, or one of the \
             two sides has the files of an earlier one"
                .to_owned()
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let name = |shown: &String| {
                Some(shown.split('"').nth(1)?.trim_start_matches("trefoil:").to_owned())
            };
            // A party's certificate names it twice.
            let mut roles: Vec<_> = presented.iter().filter_map(name).collect();
            roles.dedup();
            let roles = if roles.is_empty() { "another role".to_owned() } else { roles.join(", ") };
            format!("its certificate is of {roles} and not of {}", expected.to_str())
        }
        CertificateError::InvalidPurposeContext { .. } | CertificateError::InvalidPurpose => {
            "its certificate is a client's, and a server's was expected".to_owned()
        }
        other => format!("its certificate is not usable: {other}"),
    }
}

fn explain_alert(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateExpired => {
            "it says that this side's certificate has expired or is not valid yet by its clock; renew \
             the certificate, or correct the clock that is wrong"
                .to_owned()
        }
        AlertDescription::CertificateRevoked => {
            "it says that this side's certificate has been revoked".to_owned()
        }
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "it says that this side's certificate is of another authority: this side belongs to \
             another cluster, or one of the two has the files of an earlier one"
                .to_owned()
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied => {
            "it does not accept this side's certificate".to_owned()
        }
        other => format!("it has ended the connection: {other:?}"),
    }
}

/// A time for people.
fn days(seconds: u64) -> String {
    match seconds {
        0..7200 => format!("{} minutes", seconds.div_ceil(60)),
        7200..172_800 => format!("{} hours", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// AES-128-GCM where the CPU has instructions for it, ChaCha20-Poly1305 first where it has none.
pub(crate) fn provider() -> CryptoProvider {
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
