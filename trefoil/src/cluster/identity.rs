//! Reading a member's identity: its certificate and private key, and whom it knows.

use std::{
    fs, io,
    path::Path,
    time::{Duration, SystemTime},
};

use net::{Identity, Role, Trust};
use zeroize::Zeroizing;

use crate::{
    base::{
        ClusterId, Error, Result,
        encryption::{Place, StoreKey, is_sealed, opened, rekeyed},
        files::{check_private, write_synced},
    },
    config::{Files, StoreSettings},
};

/// Reads a member's certificate and key, and the list of revoked certificates.
///
/// # Errors
/// [`Error::Config`] if a file cannot be read, others may read the key, or the certificate is of another
/// role, has expired or is not valid yet.
pub fn identity(role: &Role, files: &Files<'_>) -> Result<Identity> {
    let read = |path: &Path| {
        let reason = |cause: io::Error| {
            format!("cannot be read ({cause}); copy the member's whole folder to its machine")
        };
        fs::read_to_string(path).map_err(|cause| Error::config(path.display(), reason(cause)))
    };
    check_private(files.key)?;
    let secret = private_key(role, files)?;
    let certificate = read(files.certificate)?;
    let mut identity = Identity::from_pem(&read(files.authority)?, &certificate, &secret)?;
    let bad = |reason: String| Error::config(files.certificate.display(), reason);
    if identity.role() != role {
        let found = identity.role();
        return Err(bad(format!("is a certificate of {found}; this configuration is of {role}")));
    }
    check_dates(&identity).map_err(bad)?;
    if let Some(list) = files.revoked {
        identity = identity.revoked(&read(list)?);
    }
    Ok(identity)
}

/// The authority by which a member knows signatures, less the certificates on its list.
///
/// # Errors
/// [`Error::Config`] if a file cannot be read.
pub fn trust(files: &Files<'_>) -> Result<Trust> {
    let read = |path: &Path| {
        fs::read_to_string(path).map_err(|cause| {
            let reason =
                format!("cannot be read ({cause}); copy the member's whole folder to its machine");
            Error::config(path.display(), reason)
        })
    };
    let list = files.revoked.map(read).transpose()?;
    Ok(Trust::new(&read(files.authority)?, list.as_deref())?)
}

/// A member's private key, which may be encrypted under its store's key.
fn private_key(role: &Role, files: &Files<'_>) -> Result<Zeroizing<String>> {
    let bad = |reason: String| Error::config(files.key.display(), reason);
    let mut bytes = fs::read(files.key).map_err(|cause| {
        bad(format!("cannot be read ({cause}); copy the member's whole folder to its machine"))
    })?;
    if is_sealed(&bytes) {
        let key = files.store.map(StoreSettings::key).transpose()?;
        bytes = opened(key.as_ref(), place_of(&role.to_string()), bytes).map_err(bad)?;
    }
    let text = String::from_utf8(bytes).map_err(|cause| {
        drop(Zeroizing::new(cause.into_bytes()));
        bad("is not a private key".to_owned())
    })?;
    Ok(Zeroizing::new(text))
}

/// Encrypts a member's private key again, as the rest of its store.
///
/// # Errors
/// [`Error::Config`] if it cannot be read or does not open, [`Error::File`] if it cannot be written.
pub(crate) fn rekey_private(role: &Role, files: &Files<'_>, from: Option<&StoreKey>) -> Result<()> {
    check_private(files.key)?;
    let bad = |reason: String| Error::config(files.key.display(), reason);
    let bytes = fs::read(files.key).map_err(|cause| bad(format!("cannot be read: {cause}")))?;
    let to = files.store.map(StoreSettings::key).transpose()?;
    let fresh = rekeyed(place_of(&role.to_string()), bytes, from, to.as_ref()).map_err(bad)?;
    fresh.map_or(Ok(()), |bytes| write_synced(files.key, &Zeroizing::new(bytes)))
}

/// The place of a private key, which its encryption is bound to.
fn place_of(role: &str) -> Place<'_> {
    Place::loose(role, "identity")
}

/// Says what is wrong if a certificate is not valid now.
fn check_dates(identity: &Identity) -> Result<(), String> {
    let clock = "or correct this machine's clock if it is wrong";
    let period = identity.period().map_err(|error| error.to_string())?;
    let now = SystemTime::now();
    let days = |time: Duration| time.as_secs() / (24 * 3600);
    if let Ok(age) = now.duration_since(period.end) {
        let days = days(age);
        return Err(format!(
            "has expired {days} days ago; renew it with `trefoil cluster renew`, {clock}"
        ));
    }
    match period.begin.duration_since(now) {
        Ok(wait) if !wait.is_zero() => {
            Err(format!("is valid only in {} days; wait, {clock}", days(wait)))
        }
        _ => Ok(()),
    }
}

/// The cluster that a member belongs to.
///
/// # Errors
/// [`Error::Net`] if the authority's certificate cannot be read.
pub fn cluster_id(identity: &Identity) -> Result<ClusterId> {
    Ok(ClusterId::of_key(&identity.authority_public_key()?))
}
