//! Commands of owners of data and of runs.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Subcommand, ValueEnum};

use super::{Share, Tables};
use crate::inputs::Scaling;

/// Commands for data sets.
#[derive(Debug, Subcommand)]
pub enum Data {
    /// Secret-share rows among the servers
    #[command(long_about = "\
Secret-share rows among the servers.

FILE is a .npy with the rows, or a .csv or .parquet, one of whose columns may be the label. The values
are cut into shares on this machine. How many rows there are, what a row looks like and the names of its columns are
public.

Whoever may use the data set can name it in a run; no run begins before you consent to that run.

  trefoil data put patients patients.csv --label died --classes 2 --readers bob
  trefoil data put patients patients.csv --schema patients.toml --readers bob
  trefoil data put bank bank.csv --only values --key id --key-secret join.key --readers bob
  trefoil data put digits digits.csv --dims 1,8,8 --label 65 --classes 10 --scale 0.0625 --readers bob")]
    Put(Box<PutData>),
    /// Describe the columns of a table in a file that others may use
    #[command(long_about = "\
Describe the columns of a table in a file that others may use.

The file says of each column its name, its range or its categories, how numbers are scaled, and which number stands
for a missing one. Owners of data and of models who use one file with --schema prepare their tables in the same way.
No server is asked.

Ranges, means and categories are those of the table's rows: read the file before you give it away, and change what
tells too much.

  trefoil data schema patients.csv --label died --scale standard --output patients.toml")]
    Schema(DataSchema),
    /// List the data sets that you may use
    List,
    /// Print what a data set holds, with the columns of its tables
    Show {
        /// The data set's name
        name: String,
    },
    /// Change the clients that may name a data set of yours in their runs
    Share(Share),
    /// Remove a data set of yours from all servers
    Remove {
        /// The data set's name
        name: String,
    },
}

/// The part of each row that a data set holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Half {
    /// The inputs of networks
    Values,
    /// The answers that they should give
    Labels,
}

/// Arguments of `data schema`.
#[derive(Debug, Args)]
pub struct DataSchema {
    /// The tables: .csv, .csv.gz, .parquet
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The scaling of columns of numbers
    #[arg(long, default_value = "none", value_name = "FACTOR|standard|minmax|none")]
    pub scale: Scaling,
    /// The file to write, instead of printing it
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The options of reading tables.
    #[command(flatten)]
    pub tables: Tables,
}

/// Arguments of `data put`.
#[derive(Debug, Args)]
pub struct PutData {
    /// The name under which runs will ask for it
    pub name: String,
    /// The rows: .npy, .csv, .csv.gz, .parquet, or bytes in the form of MNIST: .idx, .idx.gz
    pub file: PathBuf,
    /// Dimensions of a row, as the network takes it, such as 1,8,8 or 30 [default: the number of columns of a table]
    #[arg(long, value_delimiter = ',', value_name = "D,D,..")]
    pub dims: Vec<usize>,
    /// For rows whose other half another client owns: FILE holds their values, or it holds their labels. A run puts
    /// such data sets side by side, row by row
    #[arg(long, value_name = "HALF", conflicts_with_all = ["labels", "targets"])]
    pub only: Option<Half>,
    /// The labels are classes, from 0 to one less than this
    #[arg(long, value_name = "N", conflicts_with = "targets",
          value_parser = clap::value_parser!(u32).range(2..=100_000))]
    pub classes: Option<u32>,
    /// The classes in a separate file, one number for each row: .npy, .csv, .idx
    #[arg(long, value_name = "FILE", requires = "classes")]
    pub labels: Option<PathBuf>,
    /// The labels, in a separate .npy or .csv file: N numbers for each row, for regression
    #[arg(long, value_name = "FILE")]
    pub targets: Option<PathBuf>,
    /// A column of the table that says whose row it is, such as a number of a patient; repeat it for a key of several
    /// columns. The servers get a hash of it as a secret, and no network does. A run joins two data sets by it
    #[arg(long, value_name = "COLUMN", requires = "key_secret")]
    pub key: Vec<String>,
    /// The secret under which the key is hashed, the same for all owners whose data is joined. The servers must not
    /// know it. `trefoil store key FILE` makes one
    #[arg(long, value_name = "FILE", requires = "key")]
    pub key_secret: Option<PathBuf>,
    /// A description of the table's columns, as `trefoil data schema` writes it
    #[arg(long, value_name = "FILE", conflicts_with = "scale")]
    pub schema: Option<PathBuf>,
    /// Numbers of a row are multiplied by this
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR")]
    pub scale: f64,
    /// Clients that may name it in their runs in addition to you, or `everyone`
    #[arg(long, value_delimiter = ',', value_name = "CLIENTS")]
    pub readers: Vec<String>,
    /// Refuse runs whose batches have fewer rows than this; 1 is always refused
    #[arg(long, value_name = "ROWS", default_value_t = 2)]
    pub least_batch: usize,
    /// Refuse runs in which metrics leave as sums over fewer rows than this, or than all
    #[arg(long, value_name = "ROWS", default_value_t = 100)]
    pub metric_rows: u64,
    /// Refuse runs of which more numbers than this may leave in all, weights, metrics and the guard together
    #[arg(long, value_name = "N")]
    pub most_numbers_out: Option<u64>,
    /// Refuse runs after which the epsilon of all runs on it for a row would exceed this; runs without noise are
    /// refused
    #[arg(long, value_name = "EPSILON")]
    pub privacy_budget: Option<f64>,
    /// The delta at which that epsilon holds
    #[arg(long, value_name = "DELTA", default_value_t = 1e-5, requires = "privacy_budget")]
    pub delta: f64,
    /// Take the place of a data set of yours of the same name
    #[arg(long)]
    pub replace: bool,
    /// The options of reading tables.
    #[command(flatten)]
    pub tables: Tables,
}

/// Arguments of `train`.
#[derive(Debug, Args)]
#[command(override_usage = "trefoil train [OPTIONS] <FILE>")]
pub struct Train {
    /// The run to train, in TOML
    pub file: PathBuf,
    /// Take the place of a run and a model of yours of the same names, instead of continuing them
    #[arg(long)]
    pub replace: bool,
    /// Make the run and wait for no consent; `trefoil train` continues it later
    #[arg(long)]
    pub prepare: bool,
}

/// Commands for runs.
#[derive(Debug, Subcommand)]
pub enum Run {
    /// Any other word is a Python script, which is run as three parties on this machine, over TLS between three
    /// processes. It meets the others by `trefoil.party()`, as it does on three machines. The Python that the
    /// variable PYTHON names, else python3, must have the package `trefoil`.
    #[command(external_subcommand)]
    Script(Vec<OsString>),
    /// List your runs, and those that use your data
    List,
    /// Print all about a run: the data it uses, the clients that get its results, and its progress
    Show {
        /// The run's name
        name: String,
    },
    /// Consent to a run that uses data of yours
    Approve {
        /// The run's name
        name: String,
        /// The run's fingerprint as `run show` prints it: it covers all that you consent to
        fingerprint: String,
    },
    /// Take back your consent to a run: it goes no step further on your data
    Withdraw {
        /// The run's name
        name: String,
    },
    /// Stop a run of yours; its state stays on the servers
    Stop {
        /// The run's name
        name: String,
    },
    /// Let a run of yours that was stopped continue
    Resume {
        /// The run's name
        name: String,
    },
    /// Print how far a run is, until it has ended
    Follow {
        /// The run's name
        name: String,
    },
    /// Get the trained weights of a run of yours, out of the servers' hands into yours
    #[command(long_about = "\
Get the trained weights of a run of yours, or of one that names you among its recipients, out of the servers' hands
into yours.

The three servers send their parts to you alone, and they are added up here. The weights are written as
safetensors, or with --into back into the ONNX file that the run began with:

  trefoil run get digits-run learnt.safetensors
  trefoil run get digits-run --into network.onnx learnt.onnx")]
    Get {
        /// The run's name
        name: String,
        /// The ONNX file whose weights are replaced in what is written; it stays as it is
        #[arg(long, value_name = "ONNX")]
        into: Option<PathBuf>,
        /// The file to write
        file: PathBuf,
    },
    /// Remove a run of yours, and its state, from all servers
    Remove {
        /// The run's name
        name: String,
    },
}
