//! `trefoil store`: encryption of what a server keeps, and rebuilding what it has lost.

use std::{io::Write, time::Duration};

use net::Role;
use serde_json::json;

use crate::{
    base::{Error, Result, encryption::StoreKey, files::new_private},
    cli::{
        arguments::{Global, Store},
        output::Output,
    },
    cluster::rekey_private,
    config::PartyConfig,
    server,
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

/// The file of the server whose store it is.
fn party_config(global: &Global, command: &str) -> Result<PartyConfig> {
    let Some(path) = &global.config else {
        let reason =
            format!("name this server's file: trefoil --config party.toml store {command}");
        return Err(Error::config("--config", reason));
    };
    PartyConfig::read(path)
}
