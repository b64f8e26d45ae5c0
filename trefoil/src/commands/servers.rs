//! `trefoil party`, `trefoil status` and `trefoil ping`.

use std::{io, time::Duration};

use serde_json::{Value, json};

use crate::{
    Error, Result,
    cli::{Global, Party, Ping},
    client,
    config::PartyConfig,
    links,
    output::{Output, bytes, seconds, table},
    store::{Holding, Store},
    wire::{Channel, Link, Status},
};

/// Runs a server, or checks what it would start with.
pub(super) fn party(arguments: &Party, global: &Global, output: Output) -> Result<()> {
    let Some(path) = &global.config else {
        let reason = "name this server's file: trefoil party --config party-0/party.toml";
        return Err(Error::config("--config", reason));
    };
    let config = PartyConfig::read(path)?;
    if !arguments.check {
        return links::serve(&config);
    }
    let store = links::open_store(&config, &links::party_identity(&config)?)?;
    let (rows, values): (Vec<_>, Vec<_>) =
        store.inventory()?.iter().map(|held| checked(&store, held)).unzip();
    output.result(&values, || table(&["model", "read", "state"], &rows))?;
    let bad = values.iter().filter(|value| value["state"] != "sound").count();
    if bad == 0 {
        return Ok(());
    }
    let reason = format!("{bad} of {} models are damaged", values.len());
    Err(Error::file(&config.data, io::Error::other(reason)))
}

/// Reads one model's files: a line for people, a value for machines.
fn checked(store: &Store, held: &Holding) -> (Vec<String>, Value) {
    let name = &held.name;
    match store.verify(name) {
        Ok(read) => (
            vec![name.clone(), bytes(read), "sound".to_owned()],
            json!({ "model": name, "bytes": read, "state": "sound" }),
        ),
        Err(error) => (
            vec![name.clone(), String::new(), error.to_string()],
            json!({ "model": name, "bytes": 0, "state": error.to_string() }),
        ),
    }
}

/// Every server is asked on its own, since this is the command for when something is wrong.
pub(super) fn status(global: &Global, output: Output) -> Result<()> {
    let config = super::client_config(global)?;
    let silence = config.silence_limit();
    let ask = |channel: Result<Box<dyn Channel>>| client::status(&mut *channel?, silence);
    let states = links::dial_all(&config)?.map(ask);
    let values: Vec<_> =
        states.iter().enumerate().map(|(party, state)| value(party, state)).collect();
    output.result(&values, || {
        let heading = ["party", "link", "models", "waiting", "done", "failed", "up", "engine"];
        let rows: Vec<_> =
            states.iter().enumerate().map(|(party, state)| row(party, state)).collect();
        table(&heading, &rows)
    })?;
    for state in states {
        let state = state?;
        if let Link::Down { reason } = state.link {
            let advice = "start the server that is missing; the others find it by themselves";
            return Err(Error::refused(
                format_args!("party {}", state.party),
                format_args!("not linked with the other servers: {reason}; {advice}"),
            ));
        }
    }
    Ok(())
}

fn value(party: usize, state: &Result<Status>) -> Value {
    match state {
        Ok(state) => json!(state),
        Err(error) => json!({ "party": party, "error": error.to_string() }),
    }
}

fn row(party: usize, state: &Result<Status>) -> Vec<String> {
    let Ok(state) = state else {
        return vec![party.to_string(), "unreachable".to_owned()];
    };
    let link = match (&state.link, &state.step) {
        (Link::Down { .. }, _) => "down".to_owned(),
        (Link::Up, Some(step)) => format!("up, in {step}"),
        (Link::Up, None) => "up".to_owned(),
    };
    vec![
        state.party.to_string(),
        link,
        match state.damaged.len() {
            0 => state.models.to_string(),
            damaged => format!("{}, {damaged} damaged", state.models),
        },
        state.waiting.to_string(),
        state.done.to_string(),
        state.failed.to_string(),
        format!("{} s", state.up_seconds),
        state.engine.clone(),
    ]
}

pub(super) fn ping(arguments: &Ping, global: &Global, output: Output) -> Result<()> {
    let mut client = super::connect(global)?;
    let mut times: [Vec<Duration>; 3] = Default::default();
    let mut programs: [String; 3] = Default::default();
    for _ in 0..arguments.count {
        for (party, (program, time)) in client.ping()?.into_iter().enumerate() {
            times[party].push(time);
            programs[party] = program;
        }
    }
    let mut rows = Vec::new();
    let mut values = Vec::new();
    for (party, times) in times.iter_mut().enumerate() {
        times.sort();
        let [least, median, most] =
            [0, times.len() / 2, times.len() - 1].map(|at| times[at].as_secs_f64());
        let mut row = vec![party.to_string(), programs[party].clone()];
        row.extend([least, median, most].map(seconds));
        rows.push(row);
        values.push(json!({
            "party": party, "program": programs[party],
            "least_seconds": least, "median_seconds": median, "most_seconds": most,
        }));
    }
    output.result(&values, || table(&["party", "program", "least", "median", "most"], &rows))
}
