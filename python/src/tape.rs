//! Tapes of a dealer for two servers: made, taken in by a server, and read.

use std::path::{Path, PathBuf};

use gpu_kernels::EngineChoice;
use net::Role;
use pyo3::prelude::*;
use ring_arith::Generator;
use trefoil::{
    cluster,
    config::{DealerConfig, PartyConfig},
    protocols::Tape,
    server,
    tapes::{Order, Shelf},
};

use crate::{
    errors::{Failure, Kind, Result},
    model::Model,
    state,
};

/// Makes the tapes of both servers in a folder, and a signed label beside each. Returns their files.
#[pyfunction]
// The keyword arguments of Python's call.
#[allow(clippy::too_many_arguments)]
pub(crate) fn make_tapes(
    py: Python<'_>,
    model: Py<Model>,
    folder: PathBuf,
    dealer: PathBuf,
    answers: u64,
    batch: usize,
    truncation: &str,
    profile: &str,
    generator: &str,
) -> PyResult<[PathBuf; 2]> {
    let settings = state::settings(truncation, profile, "semi-honest")?;
    let generator = Generator::named(generator).ok_or_else(|| {
        let known = "\"aes-128-ctr\", \"chacha12\" or \"chacha20\"";
        Failure::new(Kind::Config, format!("there is no generator `{generator}`; use {known}"))
    })?;
    let make = || -> Result<[PathBuf; 2]> {
        let config = DealerConfig::read(&dealer)?;
        let identity = cluster::identity(&Role::dealer(&config.name)?, &config.files())?;
        let program = model.get().program(None)?;
        if let Some(wanted) = program.plan().fixed_batch()
            && wanted != batch
        {
            return Err(Failure::input(format!(
                "batch is {batch}; the model takes {wanted} at once"
            )));
        }
        std::fs::create_dir_all(&folder)
            .map_err(|cause| Failure::input(format!("{}: {cause}", folder.display())))?;
        let paths = [0, 1].map(|party| folder.join(format!("party-{party}.tape")));
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let opened = EngineChoice::Cpu.open(threads);
        let (engine, _) =
            opened.map_err(|reason| Failure::new(Kind::Config, reason.to_string()))?;
        let order = Order { program: &program, examples: batch, answers, settings, generator };
        order.make(engine, &identity, &paths, &mut |_| {})?;
        Ok(paths)
    };
    Ok(py.detach(make)?)
}

/// Moves a tape with its label to the folder of a server. Returns where it is now, and its dealer's name.
#[pyfunction]
pub(crate) fn add_tape(
    py: Python<'_>,
    file: PathBuf,
    party: PathBuf,
) -> PyResult<(PathBuf, String)> {
    let add = || -> Result<(PathBuf, String)> {
        let config = PartyConfig::read(&party)?;
        if !config.protocol.plays_tapes() {
            let reason = "this server plays no tapes: `protocol` is not \"rss-dealt\"";
            return Err(Failure::new(Kind::Config, format!("{}: {reason}", party.display())));
        }
        let holder = server::party_holder(&config, &server::party_identity(&config)?)?;
        let shelf = Shelf::new(&config.data, holder, config.store_key()?);
        shelf.trust(cluster::trust(&config.files())?);
        Ok(shelf.add(&file, config.party)?)
    };
    Ok(py.detach(add)?)
}

/// A tape's party, and the answers that are left and that there were, and the examples of each.
#[pyfunction]
pub(crate) fn read_tape(file: PathBuf) -> PyResult<(usize, u64, u64, u64)> {
    let tape = Tape::open(Path::new(&file), None).map_err(Failure::from)?;
    let [left, answers] = tape.left();
    Ok((tape.party().0, left, answers, tape.examples()))
}
