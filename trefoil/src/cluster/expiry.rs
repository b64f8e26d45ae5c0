//! The ends of certificates, and the warning before them.

use std::time::{SystemTime, UNIX_EPOCH};

use net::{Identity, Period};
use serde::{Deserialize, Serialize};

use crate::base::Result;

/// Seconds of a day.
const DAY: u64 = 24 * 3600;

/// The number of days before the end of a certificate from which `status` and the log warn of it.
const NEAR: i64 = 30;

/// The end of a certificate that a server uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateEnd {
    /// Whose it is: `party-0`, `authority`.
    pub of: String,
    /// Its last second, in seconds since 1970.
    pub end: u64,
}

impl CertificateEnd {
    /// The ends of the certificates that come with an identity: its own and the authority's.
    ///
    /// # Errors
    /// [`crate::base::Error::Net`] if they cannot be read.
    pub fn of(identity: &Identity) -> Result<Vec<Self>> {
        let end = |period: Period| period.end.duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
        Ok(vec![
            Self { of: identity.role().to_string(), end: end(identity.period()?) },
            Self { of: "authority".to_owned(), end: end(identity.authority_period()?) },
        ])
    }

    /// Whole days from a time, in seconds since 1970, to the end; negative after it.
    #[must_use]
    pub fn days(&self, now: u64) -> i64 {
        (self.end as i64 - now as i64).div_euclid(DAY as i64)
    }

    /// The warning about the end if it is near.
    #[must_use]
    pub fn warning(&self, now: u64) -> Option<String> {
        let Self { of, .. } = self;
        let advice =
            format!("renew it with `trefoil cluster renew DIR {of}` and copy it to its machine");
        match self.days(now) {
            days if days < 0 => Some(format!("the certificate of {of} has expired; {advice}")),
            days if days < NEAR => {
                Some(format!("the certificate of {of} ends in {days} days; {advice}"))
            }
            _ => None,
        }
    }
}

/// Seconds since 1970.
#[must_use]
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_is_near_is_told_thirty_days_before() {
        let end = CertificateEnd { of: "party-1".to_owned(), end: 100 * DAY };
        assert_eq!(end.warning(69 * DAY), None);
        let near = end.warning(71 * DAY).unwrap();
        assert!(
            near.contains("party-1 ends in 29 days") && near.contains("cluster renew"),
            "{near}"
        );
        assert!(end.warning(101 * DAY).unwrap().contains("has expired"));
    }
}
