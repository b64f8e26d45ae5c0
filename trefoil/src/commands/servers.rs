//! `trefoil status` and `trefoil ping`.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    Error, Result,
    cli::{Global, Ping},
    client, links,
    output::{Output, seconds, table},
    wire::{Channel, Link, Status},
};

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
        state.models.to_string(),
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
