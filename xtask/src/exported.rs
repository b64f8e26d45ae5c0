//! `cargo xtask exported`: models that libraries export, and random ones, with the libraries' own answers.

use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::python::{environment, interpreter};
use crate::{cargo, check};

/// Whose models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Library {
    /// Of scikit-learn, XGBoost and LightGBM
    Tables,
    /// Of torchvision
    Torchvision,
    /// Of timm, one of each of its modules
    Timm,
    /// Of transformers
    Transformers,
    /// Four thousand random graphs, of which onnxruntime knows the answers
    Random,
}

impl Library {
    fn name(self) -> &'static str {
        match self {
            Self::Tables => "tables",
            Self::Torchvision => "torchvision",
            Self::Timm => "timm",
            Self::Transformers => "transformers",
            Self::Random => "random",
        }
    }

    /// The script that exports them and the packages that it needs.
    fn script(self) -> [&'static str; 2] {
        match self {
            Self::Tables => ["export_tables.py", "table-requirements.txt"],
            Self::Random => ["random_graphs.py", "random-requirements.txt"],
            Self::Torchvision | Self::Timm | Self::Transformers => {
                ["export_networks.py", "network-requirements.txt"]
            }
        }
    }
}

/// Installs the libraries and exports their models with random data or weights. Compares each imported model's
/// answers with the library's. Fails if one is wrong, or if more than one in twenty are refused. The libraries of
/// networks take 6 GB on disk.
///
/// # Errors
/// If Python is missing, packages cannot be installed, or the tests fail.
pub fn run(library: Library) -> Result<()> {
    let root = check::root()?;
    let [script, wanted] = library.script();
    let scripts = root.join("models/scripts");
    let folder = root.join("target/exported").join(library.name());
    std::fs::create_dir_all(&folder)?;
    let python = interpreter().context("there is no Python 3.10 or later; name one in PYTHON")?;
    let inside = root.join("target/exported").join(wanted.replace(".txt", ""));
    let python = match environment(&root, &python, &inside, &scripts.join(wanted))? {
        Ok(python) => python,
        Err(reason) => bail!("the packages of {wanted} could not be installed: {reason}"),
    };
    let mut export = Command::new(python);
    export.arg(scripts.join(script)).arg(&folder);
    if matches!(library, Library::Torchvision | Library::Timm | Library::Transformers) {
        export.arg(library.name());
    }
    let exported = export.status().context("cannot start Python")?;
    if !exported.success() {
        bail!("the models could not be exported: Python ended with {exported}");
    }
    let tested = cargo::command()
        .args(["test", "--quiet", "--locked", "--package", "trefoil-models", "--test", "exported"])
        .args(["what_libraries_export", "--", "--nocapture"])
        .current_dir(&root)
        .env("TREFOIL_EXPORTED", &folder)
        .status()
        .context("cannot start cargo")?;
    if tested.success() { Ok(()) } else { bail!("the tests ended with {tested}") }
}
