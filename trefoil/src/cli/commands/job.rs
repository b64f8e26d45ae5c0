//! `trefoil job`: one's own jobs.

use serde_json::json;

use crate::{
    base::{Id, Result, format::table},
    cli::{
        arguments::{Global, Job},
        output::Output,
    },
    wire::{JobState, Stage},
};

pub(super) fn run(command: &Job, global: &Global, output: Output) -> Result<()> {
    match command {
        Job::List => list(global, output),
        Job::Cancel { id } => cancel(*id, global, output),
    }
}

fn list(global: &Global, output: Output) -> Result<()> {
    let told = super::connect(global)?.jobs()?;
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
    super::connect(global)?.cancel(id)?;
    output.result(&json!({ "cancelled": id }), || format!("cancelled {id}"))
}
