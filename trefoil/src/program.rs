//! What runs on the servers: a plan over replicated sharing. The one place that names the protocol.

use mpc_core::ShareTensor as _;
use net::Session;
use nn_layers::{Plan, StepInfo};
use ring_arith::{CpuEngine, Engine, EngineTensor, Generator, Shape, Tensor};
use rss_protocols::{Rss, RssOptions, RssShare};

use crate::{About, Error, Result, config::PARTIES};

/// A share of a tensor at one server.
pub type Share = RssShare<Tensor>;

/// The protocol that the servers run.
pub type Mpc = Rss<CpuEngine>;
