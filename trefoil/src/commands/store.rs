//! `trefoil store`: encryption of what a server keeps.

use std::io::Write;

use serde_json::json;

use crate::{
    Error, Result,
    cli::{Global, Store},
    config::PartyConfig,
    links,
    output::Output,
    store::{StoreKey, new_private},
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
            let Some(path) = &global.config else {
                let reason = "name this server's file: trefoil --config party.toml store rekey";
                return Err(Error::config("--config", reason));
            };
            let config = PartyConfig::read(path)?;
            let from = from.as_deref().map(StoreKey::read).transpose()?;
            let store = links::open_store(&config, &links::party_identity(&config)?)?;
            let progress = output.progress("encrypting");
            let versions = store.rekey(from.as_ref())?;
            drop(progress);
            let how = if config.store.is_some() { "under its key" } else { "plain" };
            output.result(
                &json!({ "versions": versions, "encrypted": config.store.is_some() }),
                || format!("{versions} models, data sets and runs lie {how}"),
            )
        }
    }
}
