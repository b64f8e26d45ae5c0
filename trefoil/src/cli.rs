//! The command line: what can be asked for, and the words that explain it.

use std::{fmt::Display, path::PathBuf, str::FromStr};

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

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

`trefoil help COMMAND` explains a command.";

/// The program's arguments.
#[derive(Debug, Parser)]
#[command(name = "trefoil", version, about = ABOUT, long_about = LONG_ABOUT, after_help = AFTER)]
pub struct Cli {
    /// Flags that every command takes.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
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
    /// Print one JSON document instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// Print results alone: no progress, no explanations
    #[arg(long, short, global = true)]
    pub quiet: bool,
}

/// What to do.
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
        /// What to do.
        #[command(subcommand)]
        command: Cluster,
    },
    /// Run one of the three servers
    #[command(long_about = "\
Run one of the three servers, until it is stopped.

The servers may start in any order, and one that was stopped rejoins when it is started again: models
are kept on disk. Set TREFOIL_LOG=debug to see more of what it does.")]
    Party(Party),
    /// Give the servers a model, list models, share one, remove one
    Model {
        /// What to do.
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
    /// List your jobs, cancel one
    Job {
        /// What to do.
        #[command(subcommand)]
        command: Job,
    },
    /// Ask the three servers how they are
    Status,
    /// Measure the round trip to each server
    Ping(Ping),
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
    /// How many images to print
    #[arg(long, default_value_t = 6, value_name = "N")]
    pub show: usize,
    /// How many test images to run [default: all]
    #[arg(long, value_name = "N")]
    pub images: Option<usize>,
    /// Print seconds, bytes and rounds by layer and party
    #[arg(long)]
    pub profile: bool,
}

/// What to do with a cluster.
#[derive(Debug, Subcommand)]
pub enum Cluster {
    /// Make a cluster's authority, certificates and configuration files
    #[command(long_about = "\
Make a cluster's authority, certificates and configuration files.

DIR gets a folder for each member: party-0, party-1, party-2 and one for each client. Copy each to its
machine, as a whole, over a safe way: it holds a private key. Keep DIR/authority offline; whoever has it
can enter the cluster in any role.")]
    Init {
        /// The folder to make
        dir: PathBuf,
        /// Where the servers run: three of HOST or HOST:PORT [default: three ports of this machine]
        #[arg(long, value_delimiter = ',', value_name = "A,B,C")]
        hosts: Vec<String>,
        /// The port of hosts without one; on the same host the next ones follow
        #[arg(long, default_value_t = crate::config::PORT)]
        port: u16,
        /// Names of the clients
        #[arg(long, value_delimiter = ',', default_value = "client", value_name = "NAMES")]
        clients: Vec<String>,
    },
    /// Make new certificates for members of a cluster, before the old ones end
    #[command(long_about = "\
Make new certificates for members of a cluster, before the old ones end.

Run it where the cluster was made, with its authority. Then copy each renewed file to the same place on
its member's machine: servers take it up by themselves within seconds, running jobs go on.")]
    Renew {
        /// The cluster's folder, with its authority
        dir: PathBuf,
        /// party-0, party-1, party-2, names of clients, or authority
        #[arg(required_unless_present = "all", conflicts_with = "all", value_name = "MEMBER")]
        members: Vec<String>,
        /// All members
        #[arg(long)]
        all: bool,
        /// Make new keys too, for instance because one may be known to others
        #[arg(long)]
        new_key: bool,
    },
    /// Shut a member out: none of its certificates is accepted any more
    #[command(long_about = "\
Shut a member out: none of its certificates is accepted any more.

Run it where the cluster was made, with its authority. Then copy revoked.pem to the servers: they take
it up by themselves within seconds and end the member's connections. `cluster renew --new-key` lets a
member in again.")]
    Revoke {
        /// The cluster's folder, with its authority
        dir: PathBuf,
        /// The client's name, or party-0, party-1 or party-2
        name: String,
    },
    /// Make the files of one more client
    AddClient {
        /// The cluster's folder, with its authority
        dir: PathBuf,
        /// The client's name: 1 to 40 of a-z, 0-9 and -
        name: String,
    },
}

/// Arguments of `party`.
#[derive(Debug, Args)]
#[command(override_usage = "trefoil party --config <FILE> [--check]")]
pub struct Party {
    /// Read the configuration, the certificate and every file of every model, say what is damaged, and
    /// end; for a server that is stopped
    #[arg(long)]
    pub check: bool,
}

/// What to do with models.
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
  trefoil model put encoder encoder.onnx --range ids=0,30521 --range mask=0,1")]
    Put(Put),
    /// List the models that you may run
    List,
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

/// What to do with jobs.
#[derive(Debug, Subcommand)]
pub enum Job {
    /// List your jobs that wait or run
    List,
    /// Cancel a job of yours, whether it waits or runs
    #[command(long_about = "\
Cancel a job of yours, whether it waits or runs.

A job that runs is ended at all three servers, which begin a new session with each other after that: other
clients' jobs wait for a moment, and none is lost.")]
    Cancel {
        /// The job, as `trefoil job list` shows it
        id: crate::Id,
    },
}

/// Arguments of `model put`.
#[derive(Debug, Args)]
pub struct Put {
    /// The name under which clients will ask for it
    pub name: String,
    /// The ONNX file
    pub file: PathBuf,
    /// Names of the classes, one on a line
    #[arg(long, value_name = "FILE")]
    pub labels: Option<PathBuf>,
    /// The size of a dimension that the file leaves open, other than the batch; may be repeated
    #[arg(long = "dim", value_name = "NAME=SIZE", value_parser = named::<usize>)]
    pub dims: Vec<(String, usize)>,
    /// How clients prepare images
    #[arg(long, value_enum, default_value_t = Prepare::Scale)]
    pub preprocess: Prepare,
    /// What a white pixel becomes with `--preprocess scale`; black becomes 0
    #[arg(long, default_value_t = 1.0)]
    pub white: f64,
    /// Fraction bits of the fixed-point numbers, 8 to 24
    #[arg(long, default_value_t = 20, value_name = "BITS",
          value_parser = clap::value_parser!(u32).range(8..=24))]
    pub fraction_bits: u32,
    /// Take the place of a model of yours of the same name
    #[arg(long)]
    pub replace: bool,
    /// Clients that may run it besides you, or `everyone` [default: those of the model it replaces, else
    /// nobody]
    #[arg(long, value_delimiter = ',', value_name = "CLIENTS")]
    pub readers: Vec<String>,
    /// Samples of an input, in a file as `trefoil infer` takes it: clients refuse inputs that go beyond
    /// them by more than a quarter of their span; NAME= may be left out for a model of one input
    #[arg(long = "inputs", value_name = "[NAME=]FILE")]
    pub inputs: Vec<String>,
    /// The values that an input may have, instead of samples
    #[arg(long = "range", value_name = "[NAME=]LOW,HIGH", allow_hyphen_values = true)]
    pub ranges: Vec<String>,
    /// Numbers in .npy and .csv files of samples are multiplied by this
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR")]
    pub scale: f64,
}

/// How clients prepare images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Prepare {
    /// Resize to the model's input; black is 0, white is --white
    Scale,
    /// Resize to 256, cut the centre of 224 x 224, normalise by ImageNet's means and deviations
    Imagenet,
}

/// Arguments of `infer`.
#[derive(Debug, Args)]
pub struct Infer {
    /// The model's name
    #[arg(long, short)]
    pub model: String,
    /// How many classes to print for each image
    #[arg(long, default_value_t = 1, value_name = "K")]
    pub top: usize,
    /// Print seconds, bytes and rounds by layer and party
    #[arg(long)]
    pub profile: bool,
    /// Numbers of .npy and .csv files are multiplied by this
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR")]
    pub scale: f64,
    /// The examples of one input, .npy or .csv; once for each input of the model
    #[arg(long = "input", value_name = "NAME=FILE", value_parser = named::<PathBuf>)]
    pub inputs: Vec<(String, PathBuf)>,
    /// Images: .png, .jpg, .npy (numbers in the model's input layout), or .csv (an image on a line; one more number is
    /// its true class)
    #[arg(required_unless_present = "inputs", conflicts_with = "inputs", value_name = "IMAGE")]
    pub images: Vec<PathBuf>,
}

/// Arguments of `ping`.
#[derive(Debug, Args)]
pub struct Ping {
    /// How many round trips to measure
    #[arg(long, default_value_t = 10, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub count: u32,
}

/// Reads `NAME=VALUE`.
fn named<T: FromStr<Err: Display>>(text: &str) -> Result<(String, T), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    let value = value.parse().map_err(|cause| format!("`{value}`: {cause}"))?;
    Ok((name.to_owned(), value))
}
