//! Certificates of the cluster's members, and the roles they name.

use std::{
    fmt,
    str::FromStr,
    time::{Duration, SystemTime},
};

use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime, pem::PemObject,
};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use zeroize::Zeroizing;

use crate::{Error, Party, Result};

/// The role that a certificate gives its holder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Role {
    /// `party-N`: computes.
    Party(Party),
    /// `client NAME`: owns a model or data and asks for results.
    Client(String),
    /// `dealer NAME`: signs the correlated randomness that it has made, and opens no connection.
    Dealer(String),
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
        Ok(Self::Client(checked("client", name)?))
    }

    /// The role of a dealer.
    ///
    /// # Errors
    /// As [`Role::client`].
    pub fn dealer(name: &str) -> Result<Self> {
        Ok(Self::Dealer(checked("dealer", name)?))
    }
}

/// A name that a role may have.
fn checked(kind: &str, name: &str) -> Result<String> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if (1..=40).contains(&name.len()) && name.chars().all(allowed) {
        return Ok(name.to_owned());
    }
    let reason = "use 1 to 40 characters out of a-z, 0-9 and -".to_owned();
    Err(Error::Config { what: format!("{kind} name {name:?}"), reason })
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Party(party) => write!(f, "party-{}", party.0),
            Self::Client(name) => write!(f, "client {name}"),
            Self::Dealer(name) => write!(f, "dealer {name}"),
        }
    }
}

impl FromStr for Role {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.split_once(' ') {
            Some(("client", name)) => Self::client(name),
            Some(("dealer", name)) => Self::dealer(name),
            _ => Self::from_party(text),
        }
    }
}

impl Role {
    /// The alternative name, a URI, under which a certificate names its holder's role.
    pub(crate) fn uri(&self) -> String {
        match self {
            Self::Party(_) => format!("{SCHEME}{self}"),
            Self::Client(name) => format!("{SCHEME}client/{name}"),
            Self::Dealer(name) => format!("{SCHEME}dealer/{name}"),
        }
    }

    /// The role of a party from its name.
    fn from_party(text: &str) -> Result<Self> {
        let number = text.strip_prefix("party-").and_then(|number| number.parse().ok());
        match number {
            Some(number) if Self::party(number).to_string() == text => Ok(Self::party(number)),
            _ => {
                let reason = "a role is `party-N`, `client NAME` or `dealer NAME`".to_owned();
                Err(Error::Config { what: format!("role {text:?}"), reason })
            }
        }
    }

    /// The role that a URI names; `None` for one of another kind.
    fn from_uri(uri: &str) -> Option<Result<Self>> {
        let name = uri.strip_prefix(SCHEME)?;
        Some(match name.split_once('/') {
            Some(("client", client)) => Self::client(client),
            Some(("dealer", dealer)) => Self::dealer(dealer),
            _ => Self::from_party(name),
        })
    }
}

/// The scheme that begins the URI of a role.
const SCHEME: &str = "trefoil:";

/// A certificate of a role, its key, and the authority that issued it.
#[derive(Clone)]
pub struct Identity {
    role: Role,
    authority: String,
    certificate: String,
    key: Zeroizing<String>,
    revoked: Option<String>,
}

/// The period in which a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    /// Its first second.
    pub begin: SystemTime,
    /// Its last.
    pub end: SystemTime,
}

/// The number of a certificate, by which its authority revokes it: 32 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Serial(pub(crate) Vec<u8>);

impl Identity {
    /// An identity from PEM text.
    ///
    /// # Errors
    /// [`Error::Config`] if a text is not PEM of the right kind or the certificate names no role.
    pub fn from_pem(authority: &str, certificate: &str, key: &str) -> Result<Self> {
        let role = role_of(&parse_certificate("certificate", certificate)?)?;
        parse_certificate("authority's certificate", authority)?;
        let (authority, certificate) = (authority.to_owned(), certificate.to_owned());
        Self::new(role, authority, certificate, key)
    }

    pub(crate) fn new(
        role: Role,
        authority: String,
        certificate: String,
        key: &str,
    ) -> Result<Self> {
        let key = Zeroizing::new(key.to_owned());
        let identity = Self { role, authority, certificate, key, revoked: None };
        identity.private_key()?;
        Ok(identity)
    }

    /// Refuses the certificates of this list, which [`crate::Authority::revocation_list`] made. In PEM.
    #[must_use]
    pub fn revoked(self, list: &str) -> Self {
        Self { revoked: Some(list.to_owned()), ..self }
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

    /// The period in which this certificate is valid.
    ///
    /// # Errors
    /// [`Error::Config`] if it is not a certificate.
    pub fn period(&self) -> Result<Period> {
        period_of("certificate", &self.certificate)
    }

    /// The period in which the authority's certificate is valid.
    ///
    /// # Errors
    /// [`Error::Config`] if it is not a certificate.
    pub fn authority_period(&self) -> Result<Period> {
        period_of("authority's certificate", &self.authority)
    }

    /// The number of the list of revoked certificates, if there is a list: a later list has a larger one.
    ///
    /// # Errors
    /// [`Error::Config`] if it is not a list, or lacks a number.
    pub fn revocation_number(&self) -> Result<Option<u64>> {
        let Some(list) = self.revocations()? else { return Ok(None) };
        crl_number(&list).map(Some).ok_or_else(|| Error::Config {
            what: "list of revoked certificates".to_owned(),
            reason: "it has no number; give the PEM file made by the cluster's authority"
                .to_owned(),
        })
    }

    pub(crate) fn revocations(&self) -> Result<Option<CertificateRevocationListDer<'static>>> {
        self.revoked.as_deref().map(parse_list).transpose()
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

impl Serial {
    /// The number of a certificate in PEM.
    ///
    /// # Errors
    /// [`Error::Config`] if the text is not a certificate.
    pub fn of_pem(certificate: &str) -> Result<Self> {
        let certificate = parse_certificate("certificate", certificate)?;
        Ok(Self(end_entity("certificate", &certificate)?.serial().to_vec()))
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Serial {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
        match bytes {
            Some(bytes) if bytes.len() == 16 => Ok(Self(bytes)),
            _ => {
                let reason = "is not 32 hexadecimal digits".to_owned();
                Err(Error::Config { what: format!("serial number {text:?}"), reason })
            }
        }
    }
}

/// The period in which a certificate in PEM is valid. The code that verifies certificates also
/// reads their dates: it is asked about moments before and after all of them.
fn period_of(what: &str, pem: &str) -> Result<Period> {
    let der = parse_certificate(what, pem)?;
    let certificate = end_entity(what, &der)?;
    let ask = |seconds: u64| {
        let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let usage = KeyUsage::client_auth();
        certificate.verify_for_usage(&[], &[], &[], time, usage, None, None).err()
    };
    let at = |time: UnixTime| SystemTime::UNIX_EPOCH + Duration::from_secs(time.as_secs());
    match (ask(0), ask(u64::from(u32::MAX) << 16)) {
        (
            Some(webpki::Error::CertNotValidYet { not_before, .. }),
            Some(webpki::Error::CertExpired { not_after, .. }),
        ) => Ok(Period { begin: at(not_before), end: at(not_after) }),
        _ => {
            let reason = "its dates cannot be read".to_owned();
            Err(Error::Config { what: what.to_owned(), reason })
        }
    }
}

fn end_entity<'a>(what: &str, der: &'a CertificateDer<'a>) -> Result<EndEntityCert<'a>> {
    EndEntityCert::try_from(der).map_err(|error| Error::Config {
        what: what.to_owned(),
        reason: format!("is not an X.509 certificate: {error}"),
    })
}

/// The public key that a certificate in PEM is for, as X.509 writes it.
pub(crate) fn public_key_of(pem: &str) -> Result<Vec<u8>> {
    let der = parse_certificate("certificate", pem)?;
    Ok(end_entity("certificate", &der)?.subject_public_key_info().to_vec())
}

pub(crate) fn parse_certificate(what: &str, pem: &str) -> Result<CertificateDer<'static>> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| Error::Config {
        what: what.to_owned(),
        reason: format!("{error}; give the PEM file made with the cluster"),
    })
}

pub(crate) fn parse_list(pem: &str) -> Result<CertificateRevocationListDer<'static>> {
    let list = CertificateRevocationListDer::from_pem_slice(pem.as_bytes());
    list.map_err(|error| Error::Config {
        what: "list of revoked certificates".to_owned(),
        reason: format!("{error}; give the PEM file made by the cluster's authority"),
    })
}

/// The role that a certificate names, as its one URI of that kind.
///
/// # Errors
/// [`Error::Config`] if it names none.
pub(crate) fn role_of(certificate: &CertificateDer<'_>) -> Result<Role> {
    let unusable =
        |reason: &str| Error::Config { what: "certificate".to_owned(), reason: reason.to_owned() };
    let certificate = end_entity("certificate", certificate)?;
    let mut roles = certificate.valid_uri_names().filter_map(Role::from_uri);
    match (roles.next(), roles.next()) {
        (Some(role), None) => role,
        _ => Err(unusable("does not name exactly one role")),
    }
}

/// The extension `cRLNumber` (RFC 5280, 5.2.3): an octet string with an integer behind the identifier 2.5.29.20.
fn crl_number(list: &[u8]) -> Option<u64> {
    const ID: [u8; 5] = [0x06, 0x03, 0x55, 0x1d, 0x14];
    let at = list.windows(ID.len()).position(|bytes| bytes == ID)? + ID.len();
    let [0x04, outer, 0x02, len, ref rest @ ..] = list[at..] else { return None };
    let digits = rest.get(..usize::from(len))?;
    if outer != len + 2 || digits.is_empty() || digits.len() > 9 {
        return None;
    }
    digits
        .iter()
        .try_fold(0u64, |number, &digit| number.checked_mul(256)?.checked_add(u64::from(digit)))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;
    use crate::Authority;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn an_issued_identity_names_its_role_and_survives_pem() {
        let authority = Authority::generate(DAY).unwrap();
        let key = authority.key_pem();
        let authority = Authority::from_pem(authority.certificate_pem(), &key).unwrap();
        let named = [Role::client("alice-2").unwrap(), Role::dealer("alice-2").unwrap()];
        for role in [Role::party(0), Role::party(2)].into_iter().chain(named) {
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
            &["trefoil:dealer/"],
            &["trefoil:owner/a"],
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
        assert_eq!("dealer bob".parse::<Role>().unwrap(), Role::dealer("bob").unwrap());
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
