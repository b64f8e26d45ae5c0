//! Statements that a member of a cluster signs, and that others check later.

use rustls::{
    SignatureScheme,
    pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime},
};
use webpki::{
    BorrowedCertRevocationList, CertRevocationList, EndEntityCert, KeyUsage, RevocationCheckDepth,
    RevocationOptionsBuilder, anchor_from_trusted_cert,
};

use crate::{
    Error, Identity, Result, Role,
    cert::{self, parse_certificate, parse_list},
    tls::provider,
};

/// The usage of a certificate that signs statements, `id-kp-codeSigning` of RFC 5280: no connection accepts it.
const SIGNS: &[u8] = &[43, 6, 1, 5, 5, 7, 3, 3];

/// The authority of a cluster, and the certificates that it revoked: all that is needed to know who signed a statement.
#[derive(Debug, Clone)]
pub struct Trust {
    authority: CertificateDer<'static>,
    revoked: Option<CertificateRevocationListDer<'static>>,
}

impl Identity {
    /// Signs a statement: ECDSA on P-256 with SHA-256, of a hash of the statement under `context`, which names its kind.
    ///
    /// # Errors
    /// [`Error::Config`] if the key is not of the kind that an authority certifies.
    pub fn sign(&self, context: &'static str, statement: &[u8]) -> Result<Vec<u8>> {
        let unusable = |error: rcgen::Error| Error::Config {
            what: format!("key of {}", self.role()),
            reason: error.to_string(),
        };
        let key = rcgen::KeyPair::from_pem(self.key_pem()).map_err(unusable)?;
        rcgen::SigningKey::sign(&key, &blake3::derive_key(context, statement)).map_err(unusable)
    }
}

impl Trust {
    /// Trust in an authority, less the certificates on its list. Both in PEM.
    ///
    /// # Errors
    /// [`Error::Config`] if a text is not PEM of the right kind.
    pub fn new(authority: &str, revoked: Option<&str>) -> Result<Self> {
        let authority = parse_certificate("authority's certificate", authority)?;
        Ok(Self { authority, revoked: revoked.map(parse_list).transpose()? })
    }

    /// The role of whoever signed a statement of a kind, by a certificate in PEM.
    ///
    /// # Errors
    /// [`Error::Config`] if the signature is not of this statement, or the certificate is not one that this authority
    /// issued for signing, is not valid now, or is revoked.
    pub fn signer(
        &self,
        certificate: &str,
        context: &'static str,
        statement: &[u8],
        signature: &[u8],
    ) -> Result<Role> {
        let der = parse_certificate("signer's certificate", certificate)?;
        let bad = |error: webpki::Error| Error::Config {
            what: "signer's certificate".to_owned(),
            reason: explain(&error),
        };
        let certificate = EndEntityCert::try_from(&der).map_err(bad)?;
        let anchors = [anchor_from_trusted_cert(&self.authority).map_err(bad)?];
        let list = self.revoked.as_ref().map(|list| BorrowedCertRevocationList::from_der(list));
        let list: Option<CertRevocationList<'_>> =
            list.transpose().map_err(bad)?.map(CertRevocationList::from);
        let lists: Vec<_> = list.iter().collect();
        let revocation = RevocationOptionsBuilder::new(&lists).ok();
        let revocation =
            revocation.map(|options| options.with_depth(RevocationCheckDepth::EndEntity).build());
        let algorithms = provider().signature_verification_algorithms;
        certificate
            .verify_for_usage(
                algorithms.all,
                &anchors,
                &[],
                UnixTime::now(),
                KeyUsage::required(SIGNS),
                revocation,
                None,
            )
            .map_err(bad)?;
        let known = algorithms.mapping.iter();
        let mut known =
            known.filter(|(scheme, _)| *scheme == SignatureScheme::ECDSA_NISTP256_SHA256);
        let algorithm = known.next().and_then(|(_, algorithms)| algorithms.first());
        let algorithm = algorithm.ok_or_else(|| bad(webpki::Error::BadDer))?;
        let hash = blake3::derive_key(context, statement);
        certificate.verify_signature(*algorithm, &hash, signature).map_err(|_| Error::Config {
            what: "signature".to_owned(),
            reason: "it is not of this statement, or was made with another key".to_owned(),
        })?;
        cert::role_of(&der)
    }
}

/// The fault of a certificate and its remedy.
fn explain(error: &webpki::Error) -> String {
    match error {
        webpki::Error::CertRevoked => "it is revoked".to_owned(),
        webpki::Error::CertExpired { .. } => "it has expired".to_owned(),
        webpki::Error::RequiredEkuNotFoundContext(_) => {
            "it is not one for signing, as dealers have".to_owned()
        }
        webpki::Error::UnknownIssuer | webpki::Error::InvalidSignatureForPublicKey => {
            "it was issued by another cluster's authority".to_owned()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::{Authority, Endpoint, Security, Serial, Settings};

    const DAY: Duration = Duration::from_secs(86_400);

    const KIND: &str = "trefoil net 2026 a statement of a test";

    #[test]
    fn a_statement_is_of_the_dealer_who_signed_it() {
        let authority = Authority::generate(DAY).unwrap();
        let role = Role::dealer("maker").unwrap();
        let dealer = authority.issue(&role, DAY).unwrap();
        let trust = Trust::new(authority.certificate_pem(), None).unwrap();
        let signature = dealer.sign(KIND, b"statement").unwrap();
        let certificate = dealer.certificate_pem();
        let signer = |trust: &Trust, certificate: &str, context, statement: &[u8], bytes: &[u8]| {
            trust.signer(certificate, context, statement, bytes).map_err(|error| error.to_string())
        };
        assert_eq!(signer(&trust, certificate, KIND, b"statement", &signature), Ok(role.clone()));

        // Another statement, another kind of statement, another key, and no signature at all.
        let other = authority.issue(&role, DAY).unwrap();
        for (certificate, context, statement, bytes) in [
            (certificate, KIND, &b"statemenu"[..], &signature[..]),
            (certificate, "trefoil net 2026 another kind", b"statement", &signature),
            (other.certificate_pem(), KIND, b"statement", &signature),
            (certificate, KIND, b"statement", &[]),
        ] {
            let refused = signer(&trust, certificate, context, statement, bytes).unwrap_err();
            assert!(refused.contains("not of this statement"), "{refused}");
        }

        // Another authority, an earlier time, a list of revoked certificates, and certificates of other roles.
        let elsewhere = Authority::generate(DAY).unwrap();
        let elsewhere = Trust::new(elsewhere.certificate_pem(), None).unwrap();
        let refused = signer(&elsewhere, certificate, KIND, b"statement", &signature).unwrap_err();
        assert!(refused.contains("another cluster"), "{refused}");
        let begin = SystemTime::now() - 9 * DAY;
        let late = authority.issue_for_period(&role, begin, DAY).unwrap();
        let signed = late.sign(KIND, b"statement").unwrap();
        let refused = signer(&trust, late.certificate_pem(), KIND, b"statement", &signed);
        assert!(refused.as_ref().unwrap_err().contains("expired"), "{refused:?}");
        let list = authority.revocation_list(&[Serial::of_pem(certificate).unwrap()], 1).unwrap();
        let careful = Trust::new(authority.certificate_pem(), Some(&list)).unwrap();
        let refused = signer(&careful, certificate, KIND, b"statement", &signature).unwrap_err();
        assert!(refused.contains("revoked"), "{refused}");
        let signed = other.sign(KIND, b"statement").unwrap();
        assert_eq!(
            signer(&careful, other.certificate_pem(), KIND, b"statement", &signed),
            Ok(role)
        );
        for role in [Role::party(1), Role::client("alice").unwrap()] {
            let member = authority.issue(&role, DAY).unwrap();
            let signed = member.sign(KIND, b"statement").unwrap();
            let refused = signer(&trust, member.certificate_pem(), KIND, b"statement", &signed);
            assert!(refused.as_ref().unwrap_err().contains("not one for signing"), "{refused:?}");
        }
    }

    #[test]
    fn a_dealers_certificate_opens_no_connection() {
        let authority = Authority::generate(DAY).unwrap();
        let dealer = authority.issue(&Role::dealer("maker").unwrap(), DAY).unwrap();
        let settings = Settings::new(Security::Tls(dealer));
        let error = Endpoint::open(settings).map(drop).unwrap_err().to_string();
        assert!(error.contains("opens no connection"), "{error}");
    }
}
