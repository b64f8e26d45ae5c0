//! The protocols that servers can run. No other file of the program names one.
//!
//! A new protocol needs a name in [`ProtocolChoice`], its [`Sharing`] for clients, and its type in `with_protocol!`.

use additive_dealer::TwoAndDealer;
use gpu_kernels::AnyEngine;
use mpc_core::{Settings, Sharing};
use net::Session;
use rss_protocols::{Addends, Replicated, Rss};
use serde::{Deserialize, Serialize};

use crate::Result;

pub use rss_protocols::{Dealer, Tape, TapeKey};

/// The protocols on shares. `docs/security` states what each protects against.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ProtocolChoice {
    /// Three servers hold replicated shares.
    #[default]
    Rss,
    /// Two servers compute with tapes that a dealer made before.
    RssDealt,
    /// Two servers hold additive shares, and a third one is their dealer.
    Additive,
}

/// The protocol on shares and its settings, the same at all servers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Computing {
    /// The protocol.
    pub protocol: ProtocolChoice,
    /// The protocol's settings.
    pub settings: Settings,
}

/// One of two servers that play a dealer's tapes.
pub type TapePlayer = Rss<AnyEngine>;

impl ProtocolChoice {
    /// The way in which the protocol secret-shares the inputs of clients, and reconstructs results.
    #[must_use]
    pub fn sharing(self) -> &'static dyn Sharing {
        match self {
            Self::Rss => &Replicated,
            Self::RssDealt => &Addends,
            Self::Additive => &TwoAndDealer,
        }
    }

    /// Number of its servers.
    #[must_use]
    pub fn servers(self) -> usize {
        self.sharing().servers()
    }

    /// True if answers come from a dealer's tapes.
    #[must_use]
    pub fn plays_tapes(self) -> bool {
        match self {
            Self::Rss | Self::Additive => false,
            Self::RssDealt => true,
        }
    }

    /// True of the default, which files leave out.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Evaluates an expression in which `$mpc` is the type of the chosen protocol, a [`mpc_core::ServerProtocol`].
macro_rules! with_protocol {
    ($choice:expr, $mpc:ident => $work:expr) => {
        match $choice {
            $crate::protocols::ProtocolChoice::Rss
            | $crate::protocols::ProtocolChoice::RssDealt => {
                type $mpc = rss_protocols::Rss<gpu_kernels::AnyEngine>;
                $work
            }
            $crate::protocols::ProtocolChoice::Additive => {
                type $mpc = additive_dealer::Additive<gpu_kernels::AnyEngine>;
                $work
            }
        }
    };
}
pub(crate) use with_protocol;

/// Starts the protocol of servers with tapes, on a session with the dealer's messages. Nothing is sent.
///
/// # Errors
/// [`crate::Error::Mpc`] if the session has not three parties with a key for each pair.
pub fn start_with_tape(
    session: Session,
    engine: AnyEngine,
    settings: Settings,
) -> Result<TapePlayer> {
    Ok(Rss::dealt(session, engine, settings.into())?)
}
