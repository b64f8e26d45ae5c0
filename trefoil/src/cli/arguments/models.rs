//! Models, jobs and tapes on the command line.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use gpu_kernels::EngineChoice;
use mpc_core::Profile;

use super::{Tables, named, temperature};
use crate::{base::Id, config::Truncation, inputs::Scaling};

/// Commands for models.
#[derive(Debug, Subcommand)]
pub enum Model {
    /// Secret-share an ONNX model among the servers
    #[command(long_about = "\
Secret-share an ONNX model among the servers.

The weights are cut into shares on this machine; each server gets its part over its own connection. The
model's structure, the sizes of its layers and its labels are public. The model is there once all three
servers have their part on disk; if one fails, nothing changes.

The model is yours: only you can replace, share and remove it, and only you can run it, unless you name
others with --readers, or later with `trefoil model share`. Each server checks that for itself.

Numbers are fixed-point, so a model is right only for inputs like those it was made for. Say with --inputs
or --range which those are, and clients refuse others:

  trefoil model put digits digits.onnx --inputs samples.csv --scale 0.0625
  trefoil model put encoder encoder.onnx --range ids=0,30521 --range mask=0,1

If the samples are a .csv whose columns have names, or --schema describes columns, clients match the columns
of their tables to the model's by name, and numbers and categories are checked column by column:

  trefoil model put risk risk.onnx --inputs patients.csv --label died --scale standard
  trefoil model put risk risk.onnx --schema patients.toml")]
    Put(Put),
    /// Try a model on this machine: what it costs, how exact it is, whether its numbers keep their range
    #[command(long_about = "\
Try a model on this machine: what it costs, how exact it is, whether its numbers keep their range.

No server is asked. Each operation is listed with the bytes and rounds that it takes and with how exact its
result is. Samples are run in the clear, in the same fixed-point numbers as on the servers and with every
check on, beside 64-bit floats: how large values become, how many bits they may still grow, how far they are
off. From that follow the fraction bits to put the model with.

  trefoil model check digits.onnx --inputs samples.csv --scale 0.0625")]
    Check(Check),
    /// List the models that you may run
    List,
    /// Print what a model takes and returns, with the columns of its tables
    Show {
        /// The model's name
        name: String,
    },
    /// Let others run a model of yours, or no longer
    #[command(long_about = "\
Let others run a model of yours, or no longer.

  trefoil model share digits --with alice,bob
  trefoil model share digits --not-with bob
  trefoil model share digits --with-everyone

Everyone is every client with a certificate that the servers' operators admit.")]
    Share(Share),
    /// Remove a model of yours from all servers
    Remove {
        /// The model's name
        name: String,
    },
}

/// Arguments of `model share`.
#[derive(Debug, Args)]
pub struct Share {
    /// The model's name
    pub name: String,
    /// Clients that may run it from now on
    #[arg(long, value_delimiter = ',', value_name = "CLIENTS",
          required_unless_present_any = ["everyone", "without"])]
    pub with: Vec<String>,
    /// Every client may run it from now on
    #[arg(long = "with-everyone", conflicts_with_all = ["with", "without"])]
    pub everyone: bool,
    /// Clients that may no longer run it; of a model that everyone may run, pass --with and who may
    #[arg(long = "not-with", value_delimiter = ',', value_name = "CLIENTS")]
    pub without: Vec<String>,
}

/// Commands for jobs.
#[derive(Debug, Subcommand)]
pub enum Job {
    /// List your jobs that wait or run
    List,
    /// Cancel a job of yours, whether it waits or runs
    #[command(long_about = "\
Cancel a job of yours, whether it waits or runs.

A job that runs is ended at all servers, which begin a new session with each other after that: other
clients' jobs wait for a moment, and none is lost.")]
    Cancel {
        /// The job, as `trefoil job list` shows it
        id: Id,
    },
}

/// Arguments of `model put`.
#[derive(Debug, Args)]
pub struct Put {
    /// The name under which clients will ask for it
    pub name: String,
    /// The ONNX file
    pub file: PathBuf,
    /// The options of reading it.
    #[command(flatten)]
    pub model: Reading,
    /// Names of the classes, one on a line
    #[arg(long, value_name = "FILE")]
    pub labels: Option<PathBuf>,
    /// The tokenizer of a language model, its tokenizer.json: public as the labels are, for `trefoil chat`
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
    /// The text around what a person says to a language model, with {} in its place and \n for a new line
    #[arg(long, default_value = "{}", value_name = "TEXT", requires = "tokenizer")]
    pub form: String,
    /// A token behind which an answer ends, as the tokenizer has it; may be repeated
    #[arg(long = "stop", value_name = "TOKEN", requires = "tokenizer")]
    pub stops: Vec<String>,
    /// Tokens in each of the longer steps by which a language model also reads a prompt, at most four numbers; 1 for none
    /// [default: 4,16]
    #[arg(long, value_name = "N,..", value_delimiter = ',')]
    pub prompt_steps: Option<Vec<usize>>,
    /// Take the place of a model of yours of the same name
    #[arg(long)]
    pub replace: bool,
    /// The outputs are numbers, for instance of a regression, and not scores of classes
    #[arg(long, conflicts_with = "labels")]
    pub numbers: bool,
    /// Leave out the guard, by which a client learns that an answer is wrong because values left their range;
    /// it costs 7 to 9 rounds
    #[arg(long)]
    pub no_guard: bool,
    /// Give every server the weights in the clear: for a model that anyone may have. What clients send and get stays
    /// secret, and products with the weights cost half as many bytes
    #[arg(long)]
    pub public_weights: bool,
    /// Clients that may run it in addition to you, or `everyone` [default: those of the model it replaces, else
    /// nobody]
    #[arg(long, value_delimiter = ',', value_name = "CLIENTS")]
    pub readers: Vec<String>,
}

/// Arguments of `model check`.
#[derive(Debug, Args)]
pub struct Check {
    /// The ONNX file
    pub file: PathBuf,
    /// The options of reading it.
    #[command(flatten)]
    pub model: Reading,
    /// The number of samples to run
    #[arg(long, default_value_t = 32, value_name = "N")]
    pub examples: usize,
}

/// The options of reading a model, and the inputs that it is made for.
#[derive(Debug, Args)]
pub struct Reading {
    /// The size of a dimension that the file leaves open, other than the batch; may be repeated
    #[arg(long = "dim", value_name = "NAME=SIZE", value_parser = named::<usize>)]
    pub dims: Vec<(String, usize)>,
    /// What each step of a language model with keys and values of earlier steps returns [default: token]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub answers: Option<Answer>,
    /// With `--answers sample`: scores are divided by it before a token is drawn, so small numbers prefer the highest
    /// [default: 1]
    #[arg(long, value_parser = temperature, value_name = "T")]
    pub temperature: Option<f64>,
    /// The way in which clients prepare images
    #[arg(long, value_enum, default_value_t = Prepare::Scale)]
    pub preprocess: Prepare,
    /// The value of a white pixel with `--preprocess scale`; black becomes 0
    #[arg(long, default_value_t = 1.0)]
    pub white: f64,
    /// Fraction bits of the fixed-point numbers, 8 to 24: with n of them no sum in a layer may leave 2^(62 - 2n). Unless
    /// given, 20, or the nearest with which samples or stated ranges are right
    #[arg(long, value_name = "BITS", value_parser = clap::value_parser!(u32).range(8..=24))]
    pub fraction_bits: Option<u32>,
    /// Samples of an input, in a file as `trefoil infer` takes it: clients refuse inputs that go beyond
    /// them by more than a quarter of their span; NAME= may be left out for a model of one input
    #[arg(long = "inputs", value_name = "[NAME=]FILE")]
    pub inputs: Vec<String>,
    /// The values that an input may have, instead of samples
    #[arg(long = "range", value_name = "[NAME=]LOW,HIGH", allow_hyphen_values = true)]
    pub ranges: Vec<String>,
    /// A description of the columns of tables, as `trefoil data schema` writes it, instead of one from the samples
    #[arg(long, value_name = "FILE")]
    pub schema: Option<PathBuf>,
    /// Numbers in .npy and .csv files of samples are multiplied by this. Of a .csv whose columns have names,
    /// `standard` gives each column mean 0 and deviation 1, `minmax` the range 0 to 1; clients do the same
    #[arg(long, default_value = "none", value_name = "FACTOR|standard|minmax|none")]
    pub scale: Scaling,
    /// The options of reading tables.
    #[command(flatten)]
    pub tables: Tables,
}

/// The preparation of images at clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Prepare {
    /// Resize to the model's input; black is 0, white is --white
    Scale,
    /// Resize by 256/224 more than the model takes, cut the centre, normalise by ImageNet's means and deviations
    Imagenet,
}

/// The answer of a language model's step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Answer {
    /// The token with the highest score: the scores stay secret
    Token,
    /// A token drawn by the scores, at random: the scores stay secret, and nobody knows the draw before the client
    Sample,
    /// The scores of all tokens: clients choose, and with enough answers learn the model's last layer
    Logits,
}

/// Commands for tapes.
#[derive(Debug, Subcommand)]
pub enum Tape {
    /// Write the plan of a model, without its weights: what a dealer makes tapes of
    Plan(TapePlan),
    /// Make the tapes of both servers, as a dealer
    Make(MakeTape),
    /// Move a tape to the folder from which a server plays it; the server may run
    Add {
        /// The tape of this server
        file: PathBuf,
    },
}

/// Arguments of `tape plan`. As with `model put`, whose plan it must be.
#[derive(Debug, Args)]
pub struct TapePlan {
    /// The ONNX file
    pub file: PathBuf,
    /// The file to write the plan to
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
    /// The model is put with --no-guard
    #[arg(long)]
    pub no_guard: bool,
    /// The options of reading the model.
    #[command(flatten)]
    pub reading: Reading,
}

/// Arguments of `tape make`.
#[derive(Debug, Args)]
pub struct MakeTape {
    /// The plan, from `trefoil tape plan`
    pub plan: PathBuf,
    /// The folder to make party-0.tape and party-1.tape in
    pub output: PathBuf,
    /// The number of places of the tapes: runs of the model, each for one job or for several that wait
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub answers: u64,
    /// Examples of each place, at most, of all jobs that share it; fewer are filled up with zeros
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=65_536))]
    pub batch: usize,
    /// The rounding of results, as in the servers' party.toml
    #[arg(long, value_enum, default_value_t, value_name = "MODE")]
    pub truncation: Truncation,
    /// The cost to save, as in the servers' party.toml: balanced, bytes or slow-links
    #[arg(long, default_value = "balanced", value_name = "PROFILE")]
    pub profile: Profile,
    /// The generator of the streams that the servers expand: aes-128-ctr, or chacha12 where one computes on a device
    #[arg(long, default_value = "aes-128-ctr", value_name = "NAME")]
    pub generator: String,
    /// The engine to compute on: auto, cpu, or cuda:0 for the first CUDA device
    #[arg(long, default_value_t, value_name = "ENGINE")]
    pub engine: EngineChoice,
}
