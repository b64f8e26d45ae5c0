//! Keys that are made where they stay: a member asks the authority for a certificate of its key.

use std::{
    fs,
    path::{Path, PathBuf},
};

use net::{KeyRequest, key_fingerprint};
use serde::Serialize;

use super::{
    MEMBER_YEARS, YEAR,
    files::{make_folder, replace, write_new},
    member::{Servers, write_client, write_dealer},
    member_folder, read_authority,
    renew::{self, note_issued},
    stem,
};
use crate::{
    base::{Error, Result},
    config::PartyConfig,
};

/// The file that goes to the authority.
const REQUEST: &str = "request.pem";

/// A key that waits for its certificate.
#[derive(Debug, Serialize)]
pub struct Requested {
    /// The request, which goes to the authority. Public.
    pub request: PathBuf,
    /// The private key, which stays.
    pub key: PathBuf,
    /// The fingerprint that the authority's operator should get over another way.
    pub fingerprint: String,
}

/// A certificate that the authority has made.
#[derive(Debug, Serialize)]
pub struct Signed {
    /// The party.
    pub role: String,
    /// The folder whose files go to the member. None of them is secret.
    pub folder: PathBuf,
    /// The fingerprint of the member's key.
    pub fingerprint: String,
}

/// Makes the key of a member on its own machine, in a separate folder, and the request for the authority.
///
/// # Errors
/// [`Error::Input`] if the name is not a member's; [`Error::File`] if files are there already or cannot be written.
pub fn request(folder: &Path, name: &str) -> Result<Requested> {
    let role = renew::member_role(name)?;
    make_folder(folder)?;
    let made = KeyRequest::generate()?;
    let key = folder.join(format!("{}.key", stem(&role)));
    write_new(&key, &made.key_pem, true)?;
    let request = folder.join(REQUEST);
    replace(&request, &made.request_pem, false)?;
    Ok(Requested { request, key, fingerprint: key_fingerprint(&made.request_pem)? })
}

/// Makes a certificate for a member's key, where the authority is. A client or dealer that is not known yet gets its
/// folder.
///
/// # Errors
/// [`Error::Config`] if the folder does not hold a cluster, or the file is not a request; [`Error::Input`] if the
/// name is not a member's; [`Error::File`] if files cannot be written.
pub fn sign(cluster: &Path, name: &str, request: &Path) -> Result<Signed> {
    let role = renew::member_role(name)?;
    let authority = read_authority(cluster)?;
    let asked =
        fs::read_to_string(request).map_err(|cause| Error::input(request.display(), cause))?;
    let fingerprint =
        key_fingerprint(&asked).map_err(|cause| Error::input(request.display(), cause))?;
    let folder = cluster.join(member_folder(&role));
    let stem = stem(&role);
    if folder.join(format!("{stem}.key")).exists() {
        let reason = format!(
            "{} holds a key that was made here; remove that file if the member has made its own since",
            folder.display()
        );
        return Err(Error::input(name, reason));
    }
    if !folder.exists() {
        let party = PartyConfig::read(&cluster.join("party-0").join("party.toml"))?;
        match &role {
            net::Role::Dealer(_) => write_dealer(cluster, &authority, &role, false)?,
            _ => write_client(cluster, Servers::from(&party), &authority, &role, false)?,
        };
    }
    let certificate = authority.sign(&asked, &role, MEMBER_YEARS * YEAR)?;
    note_issued(cluster, &role, &certificate)?;
    replace(&folder.join(format!("{stem}.pem")), &certificate, false)?;
    Ok(Signed { role: role.to_string(), folder, fingerprint })
}

#[cfg(test)]
mod tests {
    use cluster_protocols::ProtocolChoice;
    use net::Role;

    use super::*;
    use crate::{
        cluster::{Plan, addresses, identity, init},
        config::{Files, PORT},
        testing::folder,
    };

    #[test]
    fn keys_are_made_where_they_stay_and_the_authority_never_has_them() {
        let cluster = folder("without-keys");
        init(&Plan {
            folder: cluster.clone(),
            protocol: ProtocolChoice::Rss,
            security: mpc_core::Security::SemiHonest,
            servers: addresses(ProtocolChoice::Rss, &[], PORT).unwrap(),
            clients: vec!["alice".to_owned()],
            dealers: Vec::new(),
            without_keys: true,
        })
        .unwrap();
        for (name, role) in [
            ("party-1", Role::party(1)),
            ("alice", Role::client("alice").unwrap()),
            ("bob", Role::client("bob").unwrap()),
            ("dealer maker", Role::dealer("maker").unwrap()),
        ] {
            let own = folder("member");
            let asked = request(&own, name).unwrap();
            request(&own, name).unwrap_err();
            let signed = sign(&cluster, name, &asked.request).unwrap();
            assert_eq!(signed.fingerprint, asked.fingerprint);
            for file in fs::read_dir(&signed.folder).unwrap() {
                let path = file.unwrap().path();
                assert!(
                    !fs::read_to_string(&path).unwrap().contains("PRIVATE"),
                    "{}",
                    path.display()
                );
                fs::copy(&path, own.join(path.file_name().unwrap())).unwrap();
            }
            let [authority, list] = ["authority.pem", "revoked.pem"].map(|name| own.join(name));
            let certificate = own.join(format!("{}.pem", stem(&role)));
            let files = Files {
                authority: &authority,
                certificate: &certificate,
                key: &asked.key,
                revoked: Some(&list),
                store: None,
            };
            identity(&role, &files).unwrap();
            // The request's own claims are ignored: the authority names the role.
            let other = Role::client("mallory").unwrap();
            assert!(identity(&other, &files).unwrap_err().to_string().contains("certificate of"));
        }
        let text =
            sign(&cluster, "alice", &cluster.join("party-0/party.toml")).unwrap_err().to_string();
        assert!(text.contains("party.toml"), "{text}");
    }

    #[test]
    fn a_member_whose_key_was_made_here_is_not_signed_for_another() {
        let cluster = folder("with-keys");
        init(&Plan {
            folder: cluster.clone(),
            protocol: ProtocolChoice::Rss,
            security: mpc_core::Security::SemiHonest,
            servers: addresses(ProtocolChoice::Rss, &[], PORT).unwrap(),
            clients: vec!["alice".to_owned()],
            dealers: Vec::new(),
            without_keys: false,
        })
        .unwrap();
        let asked = request(&folder("member"), "alice").unwrap();
        let text = sign(&cluster, "alice", &asked.request).unwrap_err().to_string();
        assert!(text.contains("holds a key that was made here"), "{text}");
    }
}
