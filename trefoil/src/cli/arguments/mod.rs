//! The command line: what can be asked for, and the words that explain it.

mod models;
mod operators;
mod tables;
mod training;

use std::{fmt::Display, path::PathBuf, str::FromStr};

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use cluster_protocols::ProtocolChoice;
use gpu_kernels::EngineChoice;
use mpc_core::Security;

pub use models::{
    Answer, Check, Job, MakeTape, Model, Prepare, Put, Reading, Share, Tape, TapePlan,
};
pub use operators::{Audit, Cluster, Party, Store};
pub use tables::Tables;
pub use training::{Data, DataSchema, Half, PutData, Run, Train};

const ABOUT: &str = "Private machine-learning inference by three servers";

const LONG_ABOUT: &str = "\
Private machine-learning inference by three servers.

A model owner cuts the weights of a model into shares and gives each of three servers a part; a data
owner does the same with images. The servers compute on the shares and none of them learns weights,
images or answers: only the client that asked adds up the answer.

Try it without any set-up:

  trefoil demo

Or run three servers on this machine:

  trefoil cluster init cluster
  trefoil party --config cluster/party-0/party.toml &
  trefoil party --config cluster/party-1/party.toml &
  trefoil party --config cluster/party-2/party.toml &
  export TREFOIL_CONFIG=cluster/client-client/client.toml
  trefoil model put digits digits.onnx
  trefoil infer --model digits seven.png";

const AFTER: &str = "\
Exit codes:
  0  done
  1  this machine or the program failed
  2  the command line is wrong
  3  an input file is not usable
  4  a configuration file, certificate or key is not usable
  5  a server cannot be reached
  6  the servers refused the request, or the job failed
  7  a server did not follow the protocol; nothing was revealed

`trefoil help COMMAND` explains a command.";

/// The program's arguments.
#[derive(Debug, Parser)]
#[command(name = "trefoil", version, about = ABOUT, long_about = LONG_ABOUT, after_help = AFTER)]
pub struct Cli {
    /// Flags that every command takes.
    #[command(flatten)]
    pub global: Global,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Flags that every command takes.
#[derive(Debug, Args)]
pub struct Global {
    /// This client's configuration file [default: $TREFOIL_CONFIG, else
    /// cluster/client-client/client.toml]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print one JSON document instead of text; a server writes its log as a JSON object a line
    #[arg(long, global = true)]
    pub json: bool,
    /// Print results alone: no progress, no explanations
    #[arg(long, short, global = true)]
    pub quiet: bool,
}

/// The command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Recognise handwritten digits privately, in this process, without any set-up
    #[command(long_about = "\
Recognise handwritten digits privately, in this process, without any set-up.

Three parties run as threads and talk through memory. Model and images are secret-shared as by real
clients; the answers are compared with those of the same model in the clear.")]
    Demo(Demo),
    /// Make the certificates and configuration files of a cluster
    Cluster {
        /// The command.
        #[command(subcommand)]
        command: Cluster,
    },
    /// Run one of the three servers
    #[command(long_about = "\
Run one of the three servers, until it is stopped.

The servers may start in any order, and one that was stopped rejoins when it is started again: models
are kept on disk. Set TREFOIL_LOG=debug to see more of what it does; a running server takes up a changed
line `log = \"debug\"` of its configuration. With --json its log is a JSON object a line.")]
    Party(Party),
    /// Give the servers a model, list models, share one, remove one
    Model {
        /// The command.
        #[command(subcommand)]
        command: Model,
    },
    /// Run a model on images or other inputs
    #[command(long_about = "\
Run a model on images or other inputs.

They are prepared and secret-shared on this machine; each server gets its part over its own
connection. The answers come back as three parts, which are added up here. A model of several inputs
gets each from a file of its own:

  trefoil infer --model encoder --input ids=ids.npy --input mask=mask.npy")]
    Infer(Infer),
    /// Write with a language model in turn
    #[command(long_about = "\
Write with a language model in turn.

Your words become tokens on this machine, and tokens become words again here: servers see neither. They keep
what the model needs of the text as shares, and choose each next token without opening it to each other.

  trefoil chat helper What is a share?
  trefoil chat helper                      asks for lines until one is empty")]
    Chat(Chat),
    /// Give the servers rows to train on, list data sets, share one, remove one
    Data {
        /// The command.
        #[command(subcommand)]
        command: Data,
    },
    /// Train a network on data that the servers keep
    #[command(long_about = "\
Train a network on data that the servers keep.

FILE says what is trained on what, how, and under which name the trained network is kept as a model:

  name  = \"digits-run\"
  start = \"network.onnx\"             # from PyTorch; its weights are the start
  data  = [\"digits-a\", \"digits-b\"]  # data sets on the servers, of one owner or several
  model = \"digits-learnt\"            # what the trained network is called

  [train]
  epochs = 20
  batch  = 64
  rate   = 0.5
  warm-up = 10
  decay  = \"cosine\"
  momentum = 0.9

  metrics-every = 22                  # loss and accuracy leave as sums over so many steps; an epoch's unless given
  weights-after = [220]               # steps after which the weights leave besides the last

  clip  = 1.0                         # the largest norm of a batch's gradient; with noise, of each row's
  noise = 2.4                         # differential privacy: noise of this many times clip is added to the sum of the
                                      # clipped gradients; no metrics leave then
  delta = 1e-5                        # at which epsilon is told
  microbatch = 1                      # rows whose mean gradient is clipped together

The run begins once every owner of the data has consented with `trefoil run approve`, to all of this. Servers see neither the
data, nor the weights, nor how well it goes: loss and accuracy are added up here. The run's state is kept on the
servers' disks every so often, and a run that was interrupted, here or there, goes on where it was.")]
    Train(Train),
    /// Trainings: list runs, look at one, consent to one, get its weights; or run a Python script as three parties
    #[command(
        override_usage = "trefoil run [OPTIONS] <COMMAND>\n       trefoil run <SCRIPT> [ARGUMENTS]..."
    )]
    Run {
        /// The command.
        #[command(subcommand)]
        command: Run,
    },
    /// Make a dealer's tapes for two servers, give them to a server
    #[command(long_about = "\
Make a dealer's tapes for two servers, give them to a server.

With `protocol = \"rss-dealt\"` two servers answer from tapes that a third party, the dealer, has made before, and
that nobody talks to since. The dealer needs a model's plan, which is public, and neither its weights nor any input:

  trefoil tape plan digits.onnx --output digits.plan.json       at the model's owner
  trefoil tape make digits.plan.json --answers 1000 tapes       at the dealer
  trefoil --config party.toml tape add party-0.tape             at party 0, and so at party 1

Each place of a tape gives one answer, or those of jobs that wait for the same model and fit together. Whoever has
both tapes, or one and the messages between the servers, learns everything: the dealer must not be a server, nor tell
one anything.")]
    Tape {
        /// The command.
        #[command(subcommand)]
        command: Tape,
    },
    /// List your jobs, cancel one
    Job {
        /// The command.
        #[command(subcommand)]
        command: Job,
    },
    /// Encrypt what a server keeps on its disk
    Store {
        /// The command.
        #[command(subcommand)]
        command: Store,
    },
    /// Check a server's audit log
    Audit {
        /// The command.
        #[command(subcommand)]
        command: Audit,
    },
    /// Ask the three servers how they are
    Status,
    /// Measure the round trip to each server
    Ping(Ping),
    /// Measure how many answers a second the servers give, and how soon
    #[command(long_about = "\
Measure how many answers a second the servers give, and how soon.

Several connections of this client ask for answers of one model, each for the next once it has the last, or as many
as --rate says. The numbers asked about are zeros: how long an answer takes does not depend on them. What is
measured with --rate begins when a job was to be asked for, so servers that fall behind show it.

The answers count as others do: see client_answers_per_day and client_connections among the limits of the servers.

  trefoil load digits --clients 16 --seconds 30")]
    Load(Load),
    /// Print a completion script for a shell
    #[command(long_about = "\
Print a completion script for a shell, for instance:

  trefoil completions bash > ~/.local/share/bash-completion/completions/trefoil")]
    Completions {
        /// The shell.
        shell: Shell,
    },
}

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// The number of images to print
    #[arg(long, default_value_t = 6, value_name = "N")]
    pub show: usize,
    /// The number of test images to run [default: all]
    #[arg(long, value_name = "N")]
    pub images: Option<usize>,
    /// Train a network on the images instead, beside the same training in the clear
    #[arg(long, conflicts_with_all = ["show", "images"])]
    pub train: bool,
    /// The number of times that each image is trained on
    #[arg(long, requires = "train", default_value_t = 20, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub epochs: u32,
    /// The protocol on shares: rss, rss-dealt, additive, or dealt-2 to dealt-16, as `trefoil cluster init` has them
    #[arg(long, default_value_t, value_name = "NAME")]
    pub protocol: ProtocolChoice,
    /// The engine that the parties compute on: auto, cpu, or cuda:0 for the first CUDA device
    #[arg(long, default_value_t, value_name = "ENGINE")]
    pub engine: EngineChoice,
    /// Print seconds, bytes and rounds by layer and party
    #[arg(long)]
    pub profile: bool,
}

/// Arguments of `infer`.
#[derive(Debug, Args)]
pub struct Infer {
    /// The model's name
    #[arg(long, short)]
    pub model: String,
    /// The number of classes to print for each image
    #[arg(long, default_value_t = 1, value_name = "K")]
    pub top: usize,
    /// Print seconds, bytes and rounds by layer and party, and what was predicted of them
    #[arg(long)]
    pub profile: bool,
    /// Say what the servers would send to each other, and run nothing; no input leaves this machine
    #[arg(long = "dry-run")]
    pub dry_run: bool,
    /// The most examples of each job, where the model takes any number [default: 64]
    #[arg(long, value_name = "N",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=65_536))]
    pub batch: Option<usize>,
    /// Numbers of .npy files and tables are multiplied by this
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR")]
    pub scale: f64,
    /// Write the numbers of an output to a .npy or .csv file; NAME= may be left out for the first
    #[arg(long = "output", value_name = "[NAME=]FILE")]
    pub outputs: Vec<String>,
    /// The examples of one input, .npy, .csv or .parquet; once for each input of the model, in their order where NAME= is left out
    #[arg(long = "input", value_name = "[NAME=]FILE")]
    pub inputs: Vec<String>,
    /// Images: .png, .jpg, .npy (numbers in the model's input layout), or .csv or .parquet (an example in a row)
    #[arg(required_unless_present = "inputs", conflicts_with = "inputs", value_name = "IMAGE")]
    pub images: Vec<PathBuf>,
    /// The options of reading tables.
    #[command(flatten)]
    pub tables: Tables,
}

/// Arguments of `chat`.
#[derive(Debug, Args)]
pub struct Chat {
    /// The model's name
    pub model: String,
    /// What to say; lines of standard input if nothing is given
    pub text: Vec<String>,
    /// The most tokens of an answer
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub new: u32,
    /// Tokens that the servers choose before they answer: more save time where they are far away, and those behind the
    /// end of an answer are for nothing
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512))]
    pub ahead: u32,
}

/// Arguments of `ping`.
#[derive(Debug, Args)]
pub struct Ping {
    /// The number of round trips to measure
    #[arg(long, default_value_t = 10, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub count: u32,
}

/// Arguments of `load`.
#[derive(Debug, Args)]
pub struct Load {
    /// The model to ask
    #[arg(value_name = "MODEL")]
    pub model: String,
    /// The number of clients that ask at once
    #[arg(long, default_value_t = 8, value_name = "N",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1000))]
    pub clients: usize,
    /// The number of seconds to ask for
    #[arg(long, default_value_t = 10, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// Examples of each job, where the model takes any number
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=65_536))]
    pub examples: usize,
    /// Jobs a second to ask for, of all together
    #[arg(long, value_name = "N", value_parser = positive)]
    pub rate: Option<f64>,
}

fn positive(text: &str) -> Result<f64, String> {
    let value = text.parse().map_err(|_| "it is not a number".to_owned())?;
    if f64::is_finite(value) && value > 0.0 {
        Ok(value)
    } else {
        Err("it must be above 0".to_owned())
    }
}

/// Reads the temperature of a language model's draws.
fn temperature(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (1e-3..=1e3).contains(number));
    number.ok_or_else(|| "use a number from 0.001 to 1000".to_owned())
}

/// Reads what is done about a server that lies, as `party.toml` has it.
fn security(text: &str) -> Result<Security, String> {
    match text {
        "semi-honest" => Ok(Security::SemiHonest),
        "checked" => Ok(Security::Checked),
        _ => Err("use semi-honest or checked".to_owned()),
    }
}

/// Reads `NAME=VALUE`.
fn named<T: FromStr<Err: Display>>(text: &str) -> Result<(String, T), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    let value = value.parse().map_err(|cause| format!("`{value}`: {cause}"))?;
    Ok((name.to_owned(), value))
}
