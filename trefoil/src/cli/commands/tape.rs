//! `trefoil tape`: a dealer's tapes for two servers, and the plans of which they are made.

use std::{fs, path::Path};

use mpc_core::{Security, Settings};
use net::{Identity, Role};
use ring_arith::Generator;
use serde_json::json;

use super::reading;
use crate::{
    base::{Error, Result, format::bytes},
    cli::{
        arguments::{Global, MakeTape, Tape, TapePlan},
        output::Output,
    },
    cluster::{identity, trust},
    config::{DealerConfig, PartyConfig},
    model::{Program, import::Imported},
    server,
    tapes::{self, Shelf},
};

/// The longest plan that is read, in bytes.
const PLAN: u64 = 64 << 20;

pub(super) fn run(command: Tape, global: &Global, output: Output) -> Result<()> {
    match command {
        Tape::Plan(arguments) => plan(&arguments, output),
        Tape::Make(arguments) => make(&arguments, global, output),
        Tape::Add { file } => add(&file, global, output),
    }
}

/// Writes a model's plan, which is public, without its weights.
fn plan(arguments: &TapePlan, output: Output) -> Result<()> {
    let file = reading::File::open(&arguments.file, &arguments.reading, Vec::new())?;
    let imported = file.read()?.imported;
    let imported = if arguments.no_guard { imported.without_guard()? } else { imported };
    let Imported { program, .. } = imported;
    let path = &arguments.output;
    fs::write(path, program.to_bytes()?).map_err(|cause| Error::file(path, cause))?;
    let shown = path.display().to_string();
    output.result(&json!({ "plan": shown, "digest": program.digest() }), || shown.clone())
}

fn make(arguments: &MakeTape, global: &Global, output: Output) -> Result<()> {
    let dealer = dealer(global)?;
    let program = read_plan(&arguments.plan)?;
    if let Some(batch) = program.plan().fixed_batch()
        && batch != arguments.batch
    {
        let reason = format!("the model takes {batch} examples at once");
        return Err(Error::input("--batch", reason));
    }
    let generator = Generator::named(&arguments.generator).ok_or_else(|| {
        let known = "aes-128-ctr, chacha12 or chacha20";
        Error::input("--generator", format_args!("there is no such generator; use {known}"))
    })?;
    fs::create_dir_all(&arguments.output).map_err(|cause| Error::file(&arguments.output, cause))?;
    let paths = [0, 1].map(|party| arguments.output.join(format!("party-{party}.tape")));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (engine, _) = arguments
        .engine
        .open(threads)
        .map_err(|reason| Error::input(format_args!("--engine {}", arguments.engine), reason))?;
    let order = tapes::Order {
        program: &program,
        examples: arguments.batch,
        answers: arguments.answers,
        settings: arguments.settings(),
        generator,
    };
    let progress = output.progress("making tapes");
    let all = arguments.answers as usize;
    order.make(engine, &dealer, &paths, &mut |made| {
        progress.job((made as usize).min(all - 1), all)
    })?;
    drop(progress);
    let size = |path: &std::path::PathBuf| fs::metadata(path).map_or(0, |data| data.len());
    let sizes = paths.each_ref().map(size);
    let shown = paths.each_ref().map(|path| path.display().to_string());
    let value = json!({
        "tapes": shown, "bytes": sizes, "answers": arguments.answers, "batch": arguments.batch,
        "dealer": dealer.role().to_string(),
    });
    output.result(&value, || {
        let lines = shown.iter().zip(sizes).map(|(path, size)| format!("{path} {}", bytes(size)));
        lines.collect::<Vec<_>>().join("\n")
    })?;
    output.remark(
        "\nMove each, with the .signed file beside it, to its server's machine over a safe way, keep no copy, and take \
         it in there:\n  trefoil --config party.toml tape add party-0.tape",
    )
}

/// The dealer that this program is.
fn dealer(global: &Global) -> Result<Identity> {
    let Some(path) = &global.config else {
        let reason = "name the dealer's file: trefoil --config dealer-NAME/dealer.toml tape make PLAN DIR; \
                      `trefoil cluster add-dealer` makes it";
        return Err(Error::config("--config", reason));
    };
    let config = DealerConfig::read(path)?;
    let role = Role::dealer(&config.name)?;
    identity(&role, &config.files())
}

fn read_plan(path: &Path) -> Result<Program> {
    let bad = |reason: String| Error::input(path.display(), reason);
    let length = fs::metadata(path).map_err(|cause| bad(cause.to_string()))?.len();
    if length > PLAN {
        return Err(bad(format!("a plan of more than {PLAN} bytes")));
    }
    let plan = fs::read(path).map_err(|cause| bad(cause.to_string()))?;
    Program::parse(&plan)
        .map_err(|error| bad(format!("{error}; `trefoil tape plan` writes the plan of a model")))
}

fn add(file: &Path, global: &Global, output: Output) -> Result<()> {
    let Some(path) = &global.config else {
        let reason = "name the server's file: trefoil --config party-0/party.toml tape add FILE";
        return Err(Error::config("--config", reason));
    };
    let config = PartyConfig::read(path)?;
    if !config.protocol.plays_tapes() {
        let reason =
            "this server computes with others and without tapes: `protocol` is not \"rss-dealt\"";
        return Err(Error::config(path.display(), reason));
    }
    let holder = server::party_holder(&config, &server::party_identity(&config)?)?;
    let shelf = Shelf::new(&config.data, holder, config.store_key()?);
    shelf.trust(trust(&config.files())?);
    let (place, dealer) = shelf.add(file, config.party)?;
    let shown = place.display().to_string();
    output.result(&json!({ "added": shown, "dealer": dealer }), || shown.clone())?;
    output.remark(format!(
        "\nMade and signed by dealer {dealer}, who must not see answers and must not talk to either server."
    ))
}

impl MakeTape {
    /// The settings of the dealer's protocol, the same as the servers'.
    fn settings(&self) -> Settings {
        Settings {
            truncation: self.truncation.into(),
            profile: self.profile,
            security: Security::SemiHonest,
        }
    }
}
