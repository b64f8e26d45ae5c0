//! The files that a running server reads again when they change: certificates, whose end it also watches, and the
//! level of its log.

use std::{
    fs,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use net::Endpoint;

use super::Server;
use crate::{
    base::{Result, log},
    cluster::{CertificateEnd, identity, now, trust},
    config::PartyConfig,
};

/// The interval at which the files are checked.
const LOOK: Duration = Duration::from_secs(1);

/// The interval at which the log warns of an end that is near.
const REMIND: Duration = Duration::from_secs(24 * 3600);

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
    let Ok(found) = PartyConfig::read_cell(&config.file, config.cell()) else { return };
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
