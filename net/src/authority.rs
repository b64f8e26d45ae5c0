//! The cluster's own authority, the certificates it issues, and those it revokes.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PublicKeyData, RevokedCertParams, SanType, SerialNumber,
    SignatureAlgorithm,
};
use webpki::anchor_from_trusted_cert;
use zeroize::Zeroizing;

use crate::{
    Error, Identity, Result, Role, Serial,
    cert::{self, parse_certificate, public_key_of},
};

/// The cluster's certificate authority. A holder of it can enter the cluster in any role.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Authority {
    /// A new authority with a fresh key, valid for `lifetime` from now.
    ///
    /// # Errors
    /// [`Error::Config`] if the system's random generator fails.
    pub fn generate(lifetime: Duration) -> Result<Self> {
        let key = KeyPair::generate().map_err(cannot_make)?;
        let params = Self::params(lifetime);
        let certificate = params.self_signed(&key).map_err(cannot_make)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), certificate })
    }

    /// The parameters that every authority's certificate has.
    fn params(lifetime: Duration) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "trefoil cluster authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        set_validity(&mut params, SystemTime::now(), lifetime);
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
    /// [`Error::Config`] if the system's random generator fails.
    pub fn issue(&self, role: &Role, lifetime: Duration) -> Result<Identity> {
        self.issue_for_period(role, SystemTime::now(), lifetime)
    }

    /// As [`Self::issue`], for a period that does not begin now.
    ///
    /// # Errors
    /// As [`Self::issue`].
    pub fn issue_for_period(
        &self,
        role: &Role,
        begin: SystemTime,
        lifetime: Duration,
    ) -> Result<Identity> {
        let key = KeyPair::generate().map_err(cannot_make)?;
        let certificate = self.certify(role, &key, begin, lifetime)?;
        Identity::new(role.clone(), self.certificate.clone(), certificate, &key.serialize_pem())
    }

    /// A new certificate for the role and the key of an earlier one of this authority. The key itself
    /// stays where it is.
    ///
    /// # Errors
    /// [`Error::Config`] if the earlier one was not issued by this authority.
    pub fn renew(&self, certificate: &str, lifetime: Duration) -> Result<Renewed> {
        let role = cert::role_of(&parse_certificate("certificate", certificate)?)?;
        let key = KnownKey::of(certificate)?;
        let certificate_pem = self.certify(&role, &key, SystemTime::now(), lifetime)?;
        Ok(Renewed { role, certificate_pem })
    }

    /// A certificate for the key of a [`KeyRequest`], in the role that the authority gives it: the
    /// request's own claims are ignored. Its sender should confirm [`key_fingerprint`] over another
    /// way.
    ///
    /// # Errors
    /// [`Error::Config`] if it is not a request, or its key is of another kind.
    pub fn sign(&self, request: &str, role: &Role, lifetime: Duration) -> Result<String> {
        self.certify(role, &KnownKey::of(request)?, SystemTime::now(), lifetime)
    }

    /// This authority with a new certificate of the same key: what it has issued stays valid.
    ///
    /// # Errors
    /// [`Error::Config`] if the certificate cannot be made.
    pub fn renewed(self, lifetime: Duration) -> Result<Self> {
        let params = Self::params(lifetime);
        let certificate = params.self_signed(self.issuer.key()).map_err(cannot_make)?.pem();
        Ok(Self { certificate, ..self })
    }

    /// A signed list of certificates that are not to be accepted any more, in PEM. Lists of one
    /// authority have growing numbers.
    ///
    /// # Errors
    /// [`Error::Config`] if it cannot be made.
    pub fn revocation_list(&self, serials: &[Serial], number: u64) -> Result<String> {
        let now = SystemTime::now();
        let revoked = |serial: &Serial| RevokedCertParams {
            serial_number: SerialNumber::from_slice(&serial.0),
            revocation_time: now.into(),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: (now - CLOCK_SKEW).into(),
            // Verifiers here do not ask for a newer list: the operator who revokes a certificate
            // hands out the list.
            next_update: (now + LIST_LIFETIME).into(),
            crl_number: SerialNumber::from_slice(&number.to_be_bytes()),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).and_then(|list| list.pem()).map_err(cannot_make)
    }

    fn certify(
        &self,
        role: &Role,
        key: &impl PublicKeyData,
        begin: SystemTime,
        lifetime: Duration,
    ) -> Result<String> {
        let names = match role {
            Role::Party(_) => vec![role.to_string()],
            Role::Client(_) | Role::Dealer(_) => Vec::new(),
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
            // It signs files; no connection accepts it.
            Role::Dealer(_) => vec![ExtendedKeyUsagePurpose::CodeSigning],
        };
        set_validity(&mut params, begin, lifetime);
        params.serial_number = Some(fresh_serial()?);
        Ok(params.signed_by(key, &self.issuer).map_err(cannot_make)?.pem())
    }
}

/// A fresh key, which stays where it was made, and what asks the authority for a certificate of it: a certificate that
/// the key signed itself.
pub struct KeyRequest {
    /// The request. Public.
    pub request_pem: String,
    /// The private key. Secret.
    pub key_pem: Zeroizing<String>,
}

impl KeyRequest {
    /// A fresh key with its request.
    ///
    /// # Errors
    /// [`Error::Config`] if the system's random generator fails.
    pub fn generate() -> Result<Self> {
        let key = KeyPair::generate().map_err(cannot_make)?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "trefoil key request");
        let request_pem = params.self_signed(&key).map_err(cannot_make)?.pem();
        Ok(Self { request_pem, key_pem: Zeroizing::new(key.serialize_pem()) })
    }
}

/// The fingerprint by which people compare a public key: 128 bits of a hash, for which a second key
/// cannot be found.
///
/// # Errors
/// [`Error::Config`] if the text is neither a certificate nor a request.
pub fn key_fingerprint(pem: &str) -> Result<String> {
    let hash = blake3::derive_key("trefoil 2026 public key", &public_key_of(pem)?);
    Ok(hash[..16].iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A certificate made for the key of an earlier one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewed {
    /// The role that it names.
    pub role: Role,
    /// The certificate. Public.
    pub certificate_pem: String,
}

/// A public key of which only X.509's form is known.
struct KnownKey(Vec<u8>);

impl KnownKey {
    /// Reads the key of a certificate, or of a request.
    fn of(pem: &str) -> Result<Self> {
        let key = public_key_of(pem)?;
        if key.len() == P256_KEY {
            return Ok(Self(key));
        }
        let reason = "its key is not of the kind that this authority certifies".to_owned();
        Err(Error::Config { what: "certificate or request".to_owned(), reason })
    }
}

impl PublicKeyData for KnownKey {
    fn der_bytes(&self) -> &[u8] {
        // A point of the curve, uncompressed, stands at the end.
        &self.0[self.0.len() - POINT..]
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

/// Length of an uncompressed point of P-256.
const POINT: usize = 65;

/// Length of an X.509 public key of P-256.
const P256_KEY: usize = 91;

/// The largest difference between the clocks of a cluster's machines.
const CLOCK_SKEW: Duration = Duration::from_secs(300);

/// The lifetime that a list of revoked certificates states, which no verifier here checks.
const LIST_LIFETIME: Duration = Duration::from_secs(10 * 365 * 86_400);

/// A number of 16 bytes, positive and without leading zeros as X.509 writes it.
fn fresh_serial() -> Result<SerialNumber> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| Error::Config {
        what: "the system's randomness".to_owned(),
        reason: error.to_string(),
    })?;
    bytes[0] = bytes[0] & 0x3f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

fn set_validity(params: &mut CertificateParams, begin: SystemTime, lifetime: Duration) {
    params.not_before = (begin - CLOCK_SKEW).into();
    params.not_after = (begin + lifetime).into();
}

fn cannot_make(error: rcgen::Error) -> Error {
    Error::Config { what: "making a certificate".to_owned(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

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
    fn a_renewed_certificate_has_another_number_and_period_for_the_same_key() {
        let authority = Authority::generate(DAY).unwrap();
        for role in [Role::party(1), Role::client("bob").unwrap()] {
            let old = authority.issue(&role, DAY).unwrap();
            let new = authority.renew(old.certificate_pem(), 30 * DAY).unwrap();
            assert_eq!(new.role, role);
            let key = public_key_of(&new.certificate_pem).unwrap();
            assert_eq!(key, public_key_of(old.certificate_pem()).unwrap());
            let [one, other] = [old.certificate_pem(), &new.certificate_pem]
                .map(|pem| Serial::of_pem(pem).unwrap());
            assert_ne!(one, other);
            assert_eq!(one.to_string().parse::<Serial>().unwrap(), one);
            let new = Identity::from_pem(old.authority_pem(), &new.certificate_pem, old.key_pem());
            let (old, new) = (old.period().unwrap(), new.unwrap().period().unwrap());
            assert!(new.end > old.end + 28 * DAY && old.begin < SystemTime::now());
        }
        assert!(authority.renew(authority.certificate_pem(), DAY).is_err(), "it has no role");
    }

    #[test]
    fn a_renewed_authority_has_the_same_key() {
        let authority = Authority::generate(DAY).unwrap();
        let member = authority.issue(&Role::party(0), DAY).unwrap();
        let renewed = authority.renewed(30 * DAY).unwrap();
        let same = Identity::from_pem(
            renewed.certificate_pem(),
            member.certificate_pem(),
            member.key_pem(),
        );
        let same = same.unwrap();
        assert_eq!(same.authority_public_key().unwrap(), member.authority_public_key().unwrap());
        assert!(same.authority_period().unwrap().end > member.authority_period().unwrap().end);
    }
}
