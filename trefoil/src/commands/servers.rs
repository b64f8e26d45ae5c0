//! `trefoil status` and `trefoil ping`.

use std::time::Duration;

use serde_json::json;

use crate::{
    Error, Result,
    cli::{Global, Ping},
    output::{Output, seconds, table},
    wire::{Link, Status},
};

pub(super) fn status(global: &Global, output: Output) -> Result<()> {
    let states = super::connect(global)?.status()?;
    output.result(&states, || {
        let heading = ["party", "link", "models", "waiting", "done", "failed", "up", "engine"];
        let rows: Vec<_> = states.iter().map(row).collect();
        table(&heading, &rows)
    })?;
    match states.iter().find_map(|state| match &state.link {
        Link::Down { reason } => Some((state.party, reason)),
        Link::Up => None,
    }) {
        None => Ok(()),
        Some((party, reason)) => {
            let advice = "start the server that is missing; the others find it by themselves";
            Err(Error::refused(
                format_args!("party {party}"),
                format_args!("not linked with the other servers: {reason}; {advice}"),
            ))
        }
    }
}

fn row(state: &Status) -> Vec<String> {
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
