//! `trefoil store`: encryption of what a server keeps, checks and copies of it, and rebuilding what it has lost.

use std::{io::Write, time::Duration};

use net::Role;
use serde_json::json;

use crate::{
    base::{
        Error, Result,
        encryption::StoreKey,
        files::new_private,
        format::{bytes, table},
    },
    cli::{
        arguments::{Global, Store},
        output::Output,
    },
    cluster::rekey_private,
    config::PartyConfig,
    server,
    store::{self, Exported, Holding, Imported},
    tapes::Shelf,
};

pub(super) fn run(command: &Store, global: &Global, output: Output) -> Result<()> {
    match command {
        Store::Key { file } => {
            let text = StoreKey::generate()?;
            let mut made = new_private(file).map_err(|cause| Error::file(file, cause))?;
            made.write_all(text.as_bytes())
                .and_then(|()| made.sync_all())
                .map_err(|cause| Error::file(file, cause))?;
            output.result(&json!({ "key": file }), || format!("{}", file.display()))
        }
        Store::Rekey { from } => {
            let config = party_config(global, "rekey")?;
            let from = from.as_deref().map(StoreKey::read).transpose()?;
            // First: it is needed to know whose store it is.
            rekey_private(&Role::party(config.party), &config.files(), from.as_ref())?;
            let store = server::open_store(&config, &server::party_identity(&config)?)?;
            let progress = output.progress("encrypting");
            let versions = store.rekey(from.as_ref())?;
            let tapes = Shelf::new(store.root(), store.holder(), store.key().cloned());
            let tapes = tapes.rekey(from.as_ref())?;
            drop(progress);
            let encrypted = config.store.is_some();
            let how = if encrypted { "under its key" } else { "plain" };
            output.result(
                &json!({ "versions": versions, "tapes": tapes, "encrypted": encrypted }),
                || {
                    format!(
                        "{versions} models, data sets and runs, {tapes} tapes and the private key lie {how}"
                    )
                },
            )
        }
        Store::Verify => verify(&stopped(global, "verify")?, output),
        Store::Export { folder, names, key } => {
            let store = stopped(global, "export")?;
            let key = key.as_deref().map(StoreKey::read).transpose()?;
            let progress = output.progress("exporting");
            let mut done = |at, of| progress.job(at, of);
            let exported = store.export(folder, names, key.as_ref(), &mut done)?;
            drop(progress);
            output.result(&exported, || {
                let Exported { names, bytes: length, encrypted } = &exported;
                let how = if *encrypted { "encrypted" } else { "not encrypted" };
                let (folder, length) = (folder.display(), bytes(*length));
                format!("{folder} has {} names, {length}, {how}", names.len())
            })
        }
        Store::Import { folder, names, key, replace } => {
            let store = stopped(global, "import")?;
            let key = key.as_deref().map(StoreKey::read).transpose()?;
            let progress = output.progress("importing");
            let mut done = |at, of| progress.job(at, of);
            let imported = store.import(folder, names, key.as_ref(), *replace, &mut done)?;
            drop(progress);
            output.result(&imported, || {
                let Imported { taken, unchanged } = &imported;
                format!("{} names imported, {} were here as they are", taken.len(), unchanged.len())
            })
        }
        Store::Rebuild { party, wait } => {
            let config = party_config(global, "rebuild")?;
            let Ok(Role::Party(lost)) = party.parse() else {
                let reason = "is not a server; write party-0, party-1 or party-2";
                return Err(Error::input(format_args!("`{}`", party.escape_default()), reason));
            };
            let progress = output.progress("rebuilding");
            let wait = Duration::from_secs(*wait);
            let report =
                server::rebuild_store(&config, lost.0, wait, &mut |at, of| progress.job(at, of))?;
            drop(progress);
            output.result(&report, || {
                let mut lines = vec![format!("{party} holds {} names again", report.rebuilt.len())];
                let left = report.left.iter();
                lines.extend(left.map(|(name, reason)| format!("not `{name}`: {reason}")));
                lines.join("\n")
            })?;
            match report.left.len() {
                0 => Ok(()),
                left => Err(Error::refused("rebuild", format!("{left} names were left"))),
            }
        }
    }
}

/// Reads every file of every name, and every count, and lists those that are damaged.
pub(super) fn verify(store: &store::Store, output: Output) -> Result<()> {
    let mut rows = Vec::new();
    let mut values = Vec::new();
    let mut damaged = Vec::new();
    let kept = store.inventory()?.into_iter().filter(Holding::is_kept);
    let names =
        kept.map(|held| (store.verify(&held.name).map_err(|error| error.to_string()), held.name));
    let counts = store.ledger().damage()?.into_iter().map(|(place, reason)| (Err(reason), place));
    for (read, name) in names.chain(counts) {
        let length = read.as_ref().copied().unwrap_or_default();
        let state = read.err().unwrap_or_else(|| "sound".to_owned());
        if state != "sound" {
            damaged.push(format!("`{name}`"));
        }
        values.push(json!({ "model": name, "bytes": length, "state": state }));
        rows.push(vec![name, if length == 0 { String::new() } else { bytes(length) }, state]);
    }
    output.result(&values, || table(&["model", "read", "state"], &rows))?;
    if damaged.is_empty() {
        return Ok(());
    }
    let reason = format!("{} of {} are damaged: {}", damaged.len(), rows.len(), damaged.join(", "));
    Err(Error::damaged(store.root().display(), reason))
}

/// The store of a server that is stopped.
fn stopped(global: &Global, command: &str) -> Result<store::Store> {
    let config = party_config(global, command)?;
    server::open_store(&config, &server::party_identity(&config)?)
}

/// The file of the server whose store it is.
fn party_config(global: &Global, command: &str) -> Result<PartyConfig> {
    let Some(path) = &global.config else {
        let reason =
            format!("name this server's file: trefoil --config party.toml store {command}");
        return Err(Error::config("--config", reason));
    };
    PartyConfig::read(path)
}
