//! The cluster's own authority, the certificates it issues, and the roles they name.

use std::{fmt, str::FromStr, time::Duration};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use webpki::{EndEntityCert, anchor_from_trusted_cert};
use zeroize::Zeroizing;

use crate::{Error, Party, Result};

/// What a certificate entitles its holder to be.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Role {
    /// `party-N`: computes.
    Party(Party),
    /// `client NAME`: owns a model or data and asks for results.
    Client(String),
}

impl Role {
    /// The role of party `number`.
    #[must_use]
    pub fn party(number: usize) -> Self {
        Self::Party(Party(number))
    }

    /// The role of a client.
    ///
    /// # Errors
    /// [`Error::Config`] unless the name has 1 to 40 characters out of `a-z`, `0-9` and `-`.
    pub fn client(name: &str) -> Result<Self> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if (1..=40).contains(&name.len()) && name.chars().all(allowed) {
            return Ok(Self::Client(name.to_owned()));
        }
        let reason = "use 1 to 40 characters out of a-z, 0-9 and -".to_owned();
        Err(Error::Config { what: format!("client name {name:?}"), reason })
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Party(party) => write!(f, "party-{}", party.0),
            Self::Client(name) => write!(f, "client {name}"),
        }
    }
}

impl FromStr for Role {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.strip_prefix("client ") {
            Some(name) => Self::client(name),
            None => Self::from_party(text),
        }
    }
}

impl Role {
    /// The alternative name, a URI, under which a certificate names its holder's role.
    fn uri(&self) -> String {
        match self {
            Self::Party(_) => format!("{SCHEME}{self}"),
            Self::Client(name) => format!("{SCHEME}client/{name}"),
        }
    }

    /// The role of a party from its name.
    fn from_party(text: &str) -> Result<Self> {
        let number = text.strip_prefix("party-").and_then(|number| number.parse().ok());
        match number {
            Some(number) if Self::party(number).to_string() == text => Ok(Self::party(number)),
            _ => {
                let reason = "a role is `party-N` or `client NAME`".to_owned();
                Err(Error::Config { what: format!("role {text:?}"), reason })
            }
        }
    }

    /// The role that a URI names; `None` for one of another kind.
    fn from_uri(uri: &str) -> Option<Result<Self>> {
        let name = uri.strip_prefix(SCHEME)?;
        Some(match name.strip_prefix("client/") {
            Some(client) => Self::client(client),
            None => Self::from_party(name),
        })
    }
}

/// What the URI of a role begins with.
const SCHEME: &str = "trefoil:";

/// The cluster's certificate authority. Whoever holds it can enter the cluster in any role.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Authority {
    /// A new authority with a fresh key, valid for `lifetime` from now.
    ///
    /// # Errors
    /// [`Error::Config`] if the system has no randomness.
    pub fn generate(lifetime: Duration) -> Result<Self> {
        let key = KeyPair::generate().map_err(cannot_make)?;
        let params = Self::params(lifetime);
        let certificate = params.self_signed(&key).map_err(cannot_make)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), certificate })
    }

    /// What every authority's certificate says.
    fn params(lifetime: Duration) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "trefoil cluster authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        set_validity(&mut params, Duration::ZERO, lifetime);
        params
    }

    /// An authority from PEM text, as given by [`Self::certificate_pem`] and [`Self::key_pem`].
    ///
    /// # Errors
    /// [`Error::Config`] if the text is not such a certificate and key, or they do not belong together.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self> {
        let unusable = |reason: String| {
            let reason = format!("{reason}; give the PEM files made with the cluster");
            Error::Config { what: "cluster authority".to_owned(), reason }
        };
        let key = KeyPair::from_pem(key).map_err(|error| unusable(error.to_string()))?;
        let params = Self::params(Duration::ZERO);
        // Another certificate of this key has the same name and the same key.
        let like = params.self_signed(&key).map_err(|error| unusable(error.to_string()))?;
        let given = parse_certificate("cluster authority", certificate)?;
        let anchor = |certificate| {
            anchor_from_trusted_cert(certificate).map_err(|error| unusable(error.to_string()))
        };
        let (given, like) = (anchor(&given)?, anchor(like.der())?);
        if (given.subject, given.subject_public_key_info)
            != (like.subject, like.subject_public_key_info)
        {
            return Err(unusable("the certificate is not that of the key".to_owned()));
        }
        Ok(Self { issuer: Issuer::new(params, key), certificate: certificate.to_owned() })
    }

    /// The authority's certificate, which every member of the cluster needs. Public.
    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.certificate
    }

    /// The authority's key. Secret.
    #[must_use]
    pub fn key_pem(&self) -> Zeroizing<String> {
        Zeroizing::new(self.issuer.key().serialize_pem())
    }

    /// A certificate and fresh key for a role, valid for `lifetime` from now.
    ///
    /// # Errors
    /// [`Error::Config`] if the system has no randomness.
    pub fn issue(&self, role: &Role, lifetime: Duration) -> Result<Identity> {
        self.issue_for_period(role, Duration::ZERO, lifetime)
    }

    /// As [`Self::issue`], for a period that began `age` ago: an expired certificate if
    /// `lifetime < age`.
    ///
    /// # Errors
    /// As [`Self::issue`].
    pub fn issue_for_period(
        &self,
        role: &Role,
        age: Duration,
        lifetime: Duration,
    ) -> Result<Identity> {
        let key = KeyPair::generate().map_err(cannot_make)?;
        let names = match role {
            Role::Party(_) => vec![role.to_string()],
            Role::Client(_) => Vec::new(),
        };
        let mut params = CertificateParams::new(names).map_err(cannot_make)?;
        let uri = role.uri().try_into().map_err(cannot_make)?;
        params.subject_alt_names.push(SanType::URI(uri));
        params.distinguished_name.push(DnType::CommonName, role.to_string());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match role {
            Role::Party(_) => {
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth]
            }
            Role::Client(_) => vec![ExtendedKeyUsagePurpose::ClientAuth],
        };
        set_validity(&mut params, age, lifetime);
        let certificate = params.signed_by(&key, &self.issuer).map_err(cannot_make)?;
        Ok(Identity {
            role: role.clone(),
            authority: self.certificate.clone(),
            certificate: certificate.pem(),
            key: Zeroizing::new(key.serialize_pem()),
        })
    }
}

/// Clocks of the machines of a cluster may differ by so much.
const CLOCK_SKEW: Duration = Duration::from_secs(300);

fn set_validity(params: &mut CertificateParams, age: Duration, lifetime: Duration) {
    let begin = std::time::SystemTime::now() - age;
    params.not_before = (begin - CLOCK_SKEW).into();
    params.not_after = (begin + lifetime).into();
}

fn cannot_make(error: rcgen::Error) -> Error {
    Error::Config { what: "making a certificate".to_owned(), reason: error.to_string() }
}

/// A certificate of a role, its key, and the authority that issued it.
#[derive(Clone)]
pub struct Identity {
    role: Role,
    authority: String,
    certificate: String,
    key: Zeroizing<String>,
}

impl Identity {
    /// An identity from PEM text.
    ///
    /// # Errors
    /// [`Error::Config`] if a text is not PEM of the right kind or the certificate names no role.
    pub fn from_pem(authority: &str, certificate: &str, key: &str) -> Result<Self> {
        let role = role_of(&parse_certificate("certificate", certificate)?)?;
        parse_certificate("authority's certificate", authority)?;
        let (authority, certificate) = (authority.to_owned(), certificate.to_owned());
        let identity = Self { role, authority, certificate, key: Zeroizing::new(key.to_owned()) };
        identity.private_key()?;
        Ok(identity)
    }

    /// The role the certificate names.
    #[must_use]
    pub fn role(&self) -> &Role {
        &self.role
    }

    /// The authority's certificate. Public.
    #[must_use]
    pub fn authority_pem(&self) -> &str {
        &self.authority
    }

    /// The certificate. Public.
    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.certificate
    }

    /// The key. Secret.
    #[must_use]
    pub fn key_pem(&self) -> &str {
        &self.key
    }

    /// The authority's public key, which stays the same when its certificate is renewed. In DER.
    ///
    /// # Errors
    /// [`Error::Config`] if the authority's certificate is not one.
    pub fn authority_public_key(&self) -> Result<Vec<u8>> {
        let certificate = self.authority()?;
        let anchor = anchor_from_trusted_cert(&certificate).map_err(|error| Error::Config {
            what: "authority's certificate".to_owned(),
            reason: format!("{error}; give the PEM file made with the cluster"),
        })?;
        Ok(anchor.subject_public_key_info.to_vec())
    }

    pub(crate) fn authority(&self) -> Result<CertificateDer<'static>> {
        parse_certificate("authority's certificate", &self.authority)
    }

    pub(crate) fn chain(&self) -> Result<Vec<CertificateDer<'static>>> {
        Ok(vec![parse_certificate("certificate", &self.certificate)?])
    }

    pub(crate) fn private_key(&self) -> Result<PrivateKeyDer<'static>> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|error| Error::Config {
            what: format!("key of {}", self.role),
            reason: format!("{error}; give the PEM file made with the cluster"),
        })
    }
}

/// Shows the role alone.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.role)
    }
}

fn parse_certificate(what: &str, pem: &str) -> Result<CertificateDer<'static>> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| Error::Config {
        what: what.to_owned(),
        reason: format!("{error}; give the PEM file made with the cluster"),
    })
}

/// The role that a certificate names, as its one URI of that kind.
///
/// # Errors
/// [`Error::Config`] if it names none.
pub(crate) fn role_of(certificate: &CertificateDer<'_>) -> Result<Role> {
    let unusable =
        |reason: &str| Error::Config { what: "certificate".to_owned(), reason: reason.to_owned() };
    let certificate = EndEntityCert::try_from(certificate)
        .map_err(|_| unusable("is not an X.509 certificate"))?;
    let mut roles = certificate.valid_uri_names().filter_map(Role::from_uri);
    match (roles.next(), roles.next()) {
        (Some(role), None) => role,
        _ => Err(unusable("does not name exactly one role")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn an_issued_identity_names_its_role_and_survives_pem() {
        let authority = Authority::generate(DAY).unwrap();
        let key = authority.key_pem();
        let authority = Authority::from_pem(authority.certificate_pem(), &key).unwrap();
        for role in [Role::party(0), Role::party(2), Role::client("alice-2").unwrap()] {
            let issued = authority.issue(&role, DAY).unwrap();
            let read = Identity::from_pem(
                issued.authority_pem(),
                issued.certificate_pem(),
                issued.key_pem(),
            );
            assert_eq!(*read.unwrap().role(), role);
            assert_eq!(format!("{issued:?}"), format!("Identity({role})"));
            let renewed = authority.issue(&role, DAY).unwrap();
            let key = issued.authority_public_key().unwrap();
            assert_eq!(renewed.authority_public_key().unwrap(), key);
        }
    }

    #[test]
    fn an_authority_with_the_key_of_another_is_refused() {
        let [one, other] = [(); 2].map(|()| Authority::generate(DAY).unwrap());
        let refused = Authority::from_pem(one.certificate_pem(), &other.key_pem()).map(drop);
        assert!(refused.unwrap_err().to_string().contains("not that of the key"));
        // Nor will the key of a member do, whose certificate has another name.
        let member = one.issue(&Role::party(0), DAY).unwrap();
        assert!(Authority::from_pem(member.certificate_pem(), member.key_pem()).is_err());
    }

    #[test]
    fn a_certificate_names_exactly_one_role() {
        let named = |uris: &[&str]| {
            let mut params = CertificateParams::default();
            let uri = |uri: &&str| SanType::URI((*uri).try_into().unwrap());
            params.subject_alt_names = uris.iter().map(uri).collect();
            let key = KeyPair::generate().unwrap();
            role_of(params.self_signed(&key).unwrap().der())
        };
        assert_eq!(named(&["trefoil:party-1"]).unwrap(), Role::party(1));
        let bob = Role::client("bob").unwrap();
        assert_eq!(named(&["https://example.org", "trefoil:client/bob"]).unwrap(), bob);
        for uris in [
            &[][..],
            &["https://example.org"],
            &["trefoil:party-1", "trefoil:party-2"],
            &["trefoil:party-01"],
            &["trefoil:client/A"],
            &["trefoil:client bob"],
        ] {
            assert!(named(uris).is_err(), "{uris:?}");
        }
    }

    #[test]
    fn text_that_is_no_role_is_refused() {
        for text in ["", "party-", "party-01", "party--1", "client", "client ", "client A", "x"] {
            assert!(text.parse::<Role>().is_err(), "{text:?}");
        }
        assert_eq!("client bob".parse::<Role>().unwrap(), Role::client("bob").unwrap());
    }

    #[test]
    fn unusable_pem_gets_a_clear_error() {
        let identity = Authority::generate(DAY).unwrap().issue(&Role::party(1), DAY).unwrap();
        let (authority, own) = (identity.authority_pem(), identity.certificate_pem());
        let refused = |result: Result<Identity>| matches!(result, Err(Error::Config { .. }));
        assert!(refused(Identity::from_pem("", own, identity.key_pem())));
        assert!(refused(Identity::from_pem(authority, "x", identity.key_pem())));
        assert!(refused(Identity::from_pem(authority, own, own)));
        assert!(refused(Identity::from_pem(authority, authority, identity.key_pem())));
    }
}
