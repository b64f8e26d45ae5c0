//! The files that a running server reads again when they change: certificates, whose end it also watches, and the
//! level of its log.

use std::{
    fs,
    sync::Arc,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use net::{Endpoint, Identity, Period};
use serde::{Deserialize, Serialize};

use crate::{
    base::{Result, log},
    cluster::{identity, trust},
    config::PartyConfig,
    server::Server,
};

/// The interval at which the files are checked.
const LOOK: Duration = Duration::from_secs(1);

/// The interval at which the log warns of an end that is near.
const REMIND: Duration = Duration::from_secs(24 * 3600);

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

/// Reads certificate, key, authority and list of revoked certificates again whenever their files
/// change, and warns of ends that are near. Also logs the number of lines that were left out. Never
/// returns.
pub(crate) fn watch(config: &PartyConfig, endpoint: &Arc<Endpoint>, server: &Server) -> ! {
    let mut seen = contents(config);
    let mut level = config.log.clone();
    let mut reminded = None;
    loop {
        if reminded.is_none_or(|when: Instant| when.elapsed() >= REMIND) {
            reminded = Some(Instant::now());
            for warning in server.certificates().iter().filter_map(|end| end.warning(now())) {
                tracing::warn!("{warning}");
            }
        }
        thread::sleep(LOOK);
        server.log_left_out();
        take_up_level(config, &mut level);
        let found = contents(config);
        if found == seen {
            continue;
        }
        seen = found;
        match take_up(config, endpoint, server) {
            Ok(()) => {
                reminded = None;
                tracing::info!("certificates have changed and are taken up");
            }
            Err(error) => {
                tracing::error!(%error, "certificates have changed and cannot be used; the old ones stay");
            }
        }
    }
}

/// Follows the line `log` of the server's file. One that is taken out, or cannot be read, changes nothing.
fn take_up_level(config: &PartyConfig, level: &mut Option<String>) {
    let Ok(found) = PartyConfig::read(&config.file) else { return };
    if found.log == *level {
        return;
    }
    *level = found.log;
    let Some(wanted) = level.as_deref() else { return };
    match log::set(wanted) {
        Ok(()) => tracing::info!(level = wanted, "the log's level has changed"),
        Err(error) => tracing::error!(%error, "the log's level cannot be changed"),
    }
}

fn take_up(config: &PartyConfig, endpoint: &Endpoint, server: &Server) -> Result<()> {
    let identity = identity(&net::Role::party(config.party), &config.files())?;
    server.check_revocations(&identity)?;
    endpoint.set_identity(&identity)?;
    server.trust(trust(&config.files())?);
    server.set_certificates(CertificateEnd::of(&identity)?);
    Ok(())
}

/// A hash of what the files hold now.
fn contents(config: &PartyConfig) -> blake3::Hash {
    let mut hash = blake3::Hasher::new();
    for path in config.files().all() {
        let bytes = zeroize::Zeroizing::new(fs::read(path).unwrap_or_default());
        hash.update(&(bytes.len() as u64).to_le_bytes());
        hash.update(&bytes);
    }
    hash.finalize()
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
