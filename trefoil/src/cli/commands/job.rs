//! `trefoil job`: one's own jobs.

use serde_json::json;

use crate::{
    base::{Error, Id, Result, format::table},
    cli::{
        arguments::{Global, Job},
        output::Output,
    },
    client::connect_to,
    wire::{JobState, Stage},
};

pub(super) fn run(command: &Job, global: &Global, output: Output) -> Result<()> {
    match command {
        Job::List => list(global, output),
        Job::Cancel { id } => cancel(*id, global, output),
    }
}

fn list(global: &Global, output: Output) -> Result<()> {
    let config = super::client_config(global)?;
    let mut told = Vec::new();
    for cell in config.each_cell() {
        match connect_to(&config, cell).and_then(|mut client| client.jobs()) {
            Ok(jobs) => told.extend(jobs),
            // There may be fewer cells than the file allows for.
            Err(Error::Unreachable { .. }) if cell.is_some() => {}
            Err(error) => return Err(error),
        }
    }
    // Party 0 knows the order; what only another server holds still waits for its parts.
    let mut jobs: Vec<&JobState> = Vec::new();
    for job in told.iter().flatten() {
        if jobs.iter().all(|known| known.job != job.job) {
            jobs.push(job);
        }
    }
    output.result(&jobs, || {
        if jobs.is_empty() {
            return "no jobs of yours wait or run".to_owned();
        }
        let rows: Vec<_> = jobs.iter().map(|job| row(job)).collect();
        table(&["job", "kind", "model", "seconds", "state"], &rows)
    })
}

fn row(job: &JobState) -> Vec<String> {
    let state = match &job.stage {
        Stage::Waiting { before: Some(before) } => format!("waiting for {before} jobs"),
        Stage::Waiting { before: None } => "waiting".to_owned(),
        Stage::Working(place) => format!("running, in {}", place.step),
    };
    let seconds = job.seconds.to_string();
    vec![job.job.to_string(), job.kind.clone(), job.model.clone(), seconds, state]
}

fn cancel(id: Id, global: &Global, output: Output) -> Result<()> {
    let config = super::client_config(global)?;
    let cancel = |cell| connect_to(&config, cell)?.cancel(id);
    // A job is in one cell.
    let told = config.each_cell().map(cancel).reduce(Result::or);
    told.unwrap_or_else(|| Err(Error::Internal("there is no cell".to_owned())))?;
    output.result(&json!({ "cancelled": id }), || format!("cancelled {id}"))
}
