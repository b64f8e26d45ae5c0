//! Parties as processes: the benchmark program starts itself again, once per party.

use anyhow::{Result, bail};

use super::{models, protocols, service, training};

/// First argument of a process that plays one party. What follows is between [`entry`] and
/// whoever started the process.
pub const PARTY: &str = "__party";

/// Runs this process as one party, with the arguments behind [`PARTY`].
///
/// # Errors
/// If the arguments name no known job, or the job fails.
pub fn entry(args: &[String]) -> Result<()> {
    match args.split_first() {
        Some((job, rest)) if job == "protocols" => protocols::party(rest),
        Some((job, rest)) if job == "models" => models::party(rest),
        Some((job, rest)) if job == "training" => training::party(rest),
        Some((job, rest)) if job == service::JOB => service::party(rest),
        _ => bail!("no benchmark runs its parties as processes under the arguments {args:?}"),
    }
}
