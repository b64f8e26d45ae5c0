//! Parties as processes: the benchmark program starts itself again, once per party.

use anyhow::{Result, bail};

use super::{hosts, models, protocols, service, training};

/// First argument of a process that runs one party. Only [`entry`] and the code that started the
/// process read the next ones.
pub const PARTY: &str = "__party";

/// Runs this process as one party, with the arguments after [`PARTY`].
///
/// # Errors
/// If the arguments name no known job, or the job fails.
pub fn entry(args: &[String]) -> Result<()> {
    match args.split_first() {
        Some((job, rest)) if job == "protocols" => protocols::party(rest),
        Some((job, rest)) if job == "models" => models::party(rest),
        Some((job, rest)) if job == "training" => training::party(rest),
        Some((job, rest)) if job == service::JOB => service::party(rest),
        Some((job, rest)) if job == hosts::JOB => hosts::party(rest),
        _ => bail!("no benchmark runs its parties as processes under the arguments {args:?}"),
    }
}
