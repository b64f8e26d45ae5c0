//! Renewing and revoking certificates, in the folder of a cluster's authority.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use net::{Authority, Identity, Role, Serial};

use super::{
    AUTHORITY, LIST, MEMBER_YEARS, Member, YEAR, YEARS, client_role, dealer_role, files::replace,
    member_folder, read_authority, stem,
};
use crate::base::{Error, Result};

/// The file of all certificates issued: a line each, serial number and role.
const ISSUED: &str = "issued";

/// The file of the serial numbers that are revoked, one a line.
const REVOKED: &str = "revoked";

/// The certificates to renew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewal {
    /// Those of these members: `party-N`, a client's name, `dealer NAME`, or `authority`.
    Of(Vec<String>),
    /// Those of all members that have a folder here, and the authority's if it would end before them.
    All,
}

/// Makes new certificates in the folders of members, for the keys that they have or for new ones. Each
/// file is replaced as a whole; what is to be copied to the members' machines is returned.
///
/// # Errors
/// [`Error::Config`] if the folder holds no cluster, [`Error::Input`] if a member is unknown, or its key
/// was revoked and is not to be replaced, [`Error::File`] if files cannot be written.
pub fn renew(folder: &Path, which: &Renewal, new_key: bool) -> Result<Vec<Member>> {
    let mut authority = read_authority(folder)?;
    let mut renewed = Vec::new();
    let names = match which {
        Renewal::Of(names) => names.clone(),
        Renewal::All => all_members(folder, &authority)?,
    };
    for name in names {
        if name == AUTHORITY {
            authority = renew_authority(folder, authority, &mut renewed)?;
        } else {
            renewed.push(renew_member(folder, &authority, &member_role(&name)?, new_key)?);
        }
    }
    Ok(renewed)
}

/// Revokes all certificates of a member: the list in each folder names them from now on. Returns the
/// lists' files, which are to be copied to the members' machines, servers first.
///
/// # Errors
/// [`Error::Config`] if the folder does not hold a cluster, [`Error::Input`] if the member lacks a certificate that
/// can be revoked, [`Error::File`] if files cannot be written.
pub fn revoke(folder: &Path, name: &str) -> Result<Vec<PathBuf>> {
    let authority = read_authority(folder)?;
    let role = member_role(name)?;
    let mut revoked = read_revoked(folder)?;
    let mut fresh = read_issued(folder)?;
    fresh.retain(|(serial, holder)| *holder == role && !revoked.contains(serial));
    if fresh.is_empty() {
        let reason =
            format!("no certificate of {role} was issued here that is not revoked already");
        return Err(Error::input(name, reason));
    }
    revoked.extend(fresh.into_iter().map(|(serial, _)| serial));
    let lines: String = revoked.iter().map(|serial| format!("{serial}\n")).collect();
    replace(&folder.join(AUTHORITY).join(REVOKED), &lines, false)?;
    write_lists(folder, &authority, &revoked)
}

/// Notes a certificate, so that it can be revoked whatever becomes of the member's folder.
pub(super) fn note_issued(folder: &Path, role: &Role, certificate: &str) -> Result<()> {
    let path = folder.join(AUTHORITY).join(ISSUED);
    let serial = Serial::of_pem(certificate)?;
    let note = || {
        let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
        writeln!(file, "{serial}\t{role}")?;
        file.sync_all()
    };
    note().map_err(|cause| Error::file(&path, cause))
}

/// Writes the signed list of revoked certificates where the authority and all members have it.
pub(super) fn write_lists(
    folder: &Path,
    authority: &Authority,
    revoked: &[Serial],
) -> Result<Vec<PathBuf>> {
    let number = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let list = authority.revocation_list(revoked, number)?;
    replace(&folder.join(AUTHORITY).join(LIST), &list, false)?;
    let mut written = Vec::new();
    for member in member_folders(folder)? {
        let path = member.join(LIST);
        replace(&path, &list, false)?;
        written.push(path);
    }
    Ok(written)
}

/// The list of revoked certificates as it is now, for the folder of a new member.
pub(super) fn current_list(folder: &Path) -> Result<String> {
    let path = folder.join(AUTHORITY).join(LIST);
    fs::read_to_string(&path).map_err(|cause| Error::file(&path, cause))
}

fn renew_authority(
    folder: &Path,
    authority: Authority,
    renewed: &mut Vec<Member>,
) -> Result<Authority> {
    let authority = authority.renewed(YEARS * YEAR)?;
    let home = folder.join(AUTHORITY);
    for place in [home.clone()].into_iter().chain(member_folders(folder)?) {
        replace(&place.join("authority.pem"), authority.certificate_pem(), false)?;
    }
    renewed.push(Member {
        role: AUTHORITY.to_owned(),
        config: home.join("authority.pem"),
        folder: home,
    });
    Ok(authority)
}

fn renew_member(
    folder: &Path,
    authority: &Authority,
    role: &Role,
    new_key: bool,
) -> Result<Member> {
    let home = folder.join(member_folder(role));
    let stem = stem(role);
    let path = home.join(format!("{stem}.pem"));
    let old = fs::read_to_string(&path).map_err(|cause| {
        let reason = format!(
            "{} cannot be read ({cause}); its public certificate is needed here",
            path.display()
        );
        Error::input(role, reason)
    })?;
    if !new_key && read_revoked(folder)?.contains(&Serial::of_pem(&old)?) {
        let reason = "its certificate is revoked, so its key may be known to others; use --new-key";
        return Err(Error::input(role, reason));
    }
    let certificate = if new_key {
        let identity = authority.issue(role, MEMBER_YEARS * YEAR)?;
        replace(&home.join(format!("{stem}.key")), identity.key_pem(), true)?;
        identity.certificate_pem().to_owned()
    } else {
        let renewed = authority.renew(&old, MEMBER_YEARS * YEAR)?;
        if renewed.role != *role {
            let reason = format!("{} is of {}", path.display(), renewed.role);
            return Err(Error::input(role, reason));
        }
        renewed.certificate_pem
    };
    note_issued(folder, role, &certificate)?;
    replace(&path, &certificate, false)?;
    Ok(Member { role: role.to_string(), folder: home, config: path })
}

/// The names of all members with a folder here; the authority first if it would end before them.
fn all_members(folder: &Path, authority: &Authority) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let path = folder.join("party-0").join("party.pem");
    if let Ok(certificate) = fs::read_to_string(&path) {
        let key = fs::read_to_string(path.with_extension("key")).unwrap_or_default();
        let identity = Identity::from_pem(authority.certificate_pem(), &certificate, &key);
        let end = identity.and_then(|identity| identity.authority_period());
        if end.is_ok_and(|period| period.end < SystemTime::now() + MEMBER_YEARS * YEAR) {
            names.push(AUTHORITY.to_owned());
        }
    }
    for home in member_folders(folder)? {
        let name = home.file_name().unwrap_or_default().to_string_lossy().into_owned();
        names.push(match name.split_once('-') {
            Some(("client", name)) => name.to_owned(),
            Some(("dealer", name)) => format!("dealer {name}"),
            _ => name,
        });
    }
    Ok(names)
}

/// The folders of servers, then those of clients and of dealers.
fn member_folders(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|cause| Error::file(folder, cause))?;
    let name = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
    let mut names: Vec<_> = entries.filter_map(name).collect();
    let is_party = |name: &String| matches!(name.parse(), Ok(Role::Party(_)));
    let is_other = |name: &String| ["client-", "dealer-"].iter().any(|kind| name.starts_with(kind));
    names.retain(|name| is_party(name) || is_other(name));
    names.sort_by_key(|name| (!is_party(name), name.clone()));
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

/// `party-1`, `dealer NAME`, or a client's name with or without `client ` before it.
pub(super) fn member_role(name: &str) -> Result<Role> {
    match name.split_once(' ') {
        Some(("dealer", dealer)) => dealer_role(dealer),
        Some(("client", client)) => client_role(client),
        _ => match name.parse() {
            Ok(role @ Role::Party(_)) => Ok(role),
            _ => client_role(name),
        },
    }
}

fn read_issued(folder: &Path) -> Result<Vec<(Serial, Role)>> {
    let path = folder.join(AUTHORITY).join(ISSUED);
    let text = fs::read_to_string(&path).map_err(|cause| Error::file(&path, cause))?;
    let bad = |line: &str| {
        Error::config(path.display(), format_args!("the line {line:?} is not a number and a role"))
    };
    let entry = |line: &str| {
        let (serial, role) = line.split_once('\t').ok_or_else(|| bad(line))?;
        Ok((serial.parse()?, role.parse()?))
    };
    text.lines().map(entry).collect()
}

fn read_revoked(folder: &Path) -> Result<Vec<Serial>> {
    let path = folder.join(AUTHORITY).join(REVOKED);
    match fs::read_to_string(&path) {
        Ok(text) => text.lines().map(|line| Ok(line.parse()?)).collect(),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(cause) => Err(Error::file(&path, cause)),
    }
}
