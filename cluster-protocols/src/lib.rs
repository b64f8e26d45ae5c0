#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

// Builds for release compile generic code where it is used.
#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod instances;

use std::{fmt, str::FromStr};

use additive_dealer::{Additive, TwoAndDealer};
use dealt_protocols::{Dealt, MOST_PARTIES, MaskedSharing};
use gpu_kernels::AnyEngine;
use mpc_core::{Settings, Sharing};
use net::Session;
use rss_protocols::{Addends, Replicated, Rss};
use serde::{Deserialize, Serialize};

pub use rss_protocols::{Dealer, Tape, TapeKey};

/// The protocols on shares. `docs/security` states what each protects against.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ProtocolChoice {
    /// Three servers hold replicated shares.
    #[default]
    Rss,
    /// Two servers compute with tapes that a dealer made before.
    RssDealt,
    /// Two servers hold additive shares, and a third one is their dealer.
    Additive,
    /// 2 to 16 servers hold masked shares, and one more is their dealer.
    Dealt(&'static MaskedSharing),
}

/// The protocol on shares and its settings, the same at all servers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Computing {
    /// The protocol.
    pub protocol: ProtocolChoice,
    /// The protocol's settings.
    pub settings: Settings,
}

/// A server of three with replicated shares.
pub type ReplicatedServer = Rss<AnyEngine>;

/// One of two servers that play a dealer's tapes.
pub type TapePlayer = ReplicatedServer;

/// One of two servers with additive shares, or their dealer.
pub type AdditiveServer = Additive<AnyEngine>;

/// A server with masked shares, or the dealer of all.
pub type MaskedServer = Dealt<AnyEngine>;

impl ProtocolChoice {
    /// The way in which the protocol secret-shares the inputs of clients, and reconstructs results.
    #[must_use]
    pub fn sharing(self) -> &'static dyn Sharing {
        match self {
            Self::Rss => &Replicated,
            Self::RssDealt => &Addends,
            Self::Additive => &TwoAndDealer,
            Self::Dealt(sharing) => sharing,
        }
    }

    /// Its name, as files and options have it: `rss`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.sharing().name()
    }

    /// Number of its servers.
    #[must_use]
    pub fn servers(self) -> usize {
        self.sharing().servers()
    }

    /// Number of its servers that compute: all but a dealer.
    #[must_use]
    pub fn parties(self) -> usize {
        match self {
            Self::Rss | Self::RssDealt => self.servers(),
            Self::Additive | Self::Dealt(_) => self.servers() - 1,
        }
    }

    /// True if answers come from a dealer's tapes.
    #[must_use]
    pub fn plays_tapes(self) -> bool {
        match self {
            Self::Rss | Self::Additive | Self::Dealt(_) => false,
            Self::RssDealt => true,
        }
    }

    /// True of the default, which files leave out.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl FromStr for ProtocolChoice {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let among = (2..=MOST_PARTIES).filter_map(|parties| MaskedSharing::among(parties).ok());
        [Self::Rss, Self::RssDealt, Self::Additive]
            .into_iter()
            .chain(among.map(Self::Dealt))
            .find(|choice| choice.name() == name)
            .ok_or_else(|| {
                format!(
                    "there is no protocol `{}`; use rss, rss-dealt, additive, or dealt-2 to dealt-{MOST_PARTIES}",
                    name.escape_debug()
                )
            })
    }
}

impl TryFrom<String> for ProtocolChoice {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse()
    }
}

impl From<ProtocolChoice> for String {
    fn from(choice: ProtocolChoice) -> Self {
        choice.name().to_owned()
    }
}

impl fmt::Display for ProtocolChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Evaluates an expression in which `$mpc` is the type of the chosen protocol, a [`mpc_core::ServerProtocol`].
#[macro_export]
macro_rules! with_protocol {
    ($choice:expr, $mpc:ident => $work:expr) => {
        match $choice {
            $crate::ProtocolChoice::Rss | $crate::ProtocolChoice::RssDealt => {
                type $mpc = $crate::ReplicatedServer;
                $work
            }
            $crate::ProtocolChoice::Additive => {
                type $mpc = $crate::AdditiveServer;
                $work
            }
            $crate::ProtocolChoice::Dealt(_) => {
                type $mpc = $crate::MaskedServer;
                $work
            }
        }
    };
}

/// Starts the protocol of servers with tapes, on a session with the dealer's messages. Nothing is sent.
///
/// # Errors
/// [`mpc_core::Error`] if the session has not three parties with a key for each pair.
pub fn start_with_tape(
    session: Session,
    engine: AnyEngine,
    settings: Settings,
) -> mpc_core::Result<TapePlayer> {
    Rss::dealt(session, engine, settings.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_is_found_by_its_name_alone() {
        let names = ["rss", "rss-dealt", "additive", "dealt-2", "dealt-3", "dealt-16"];
        let servers = [(3, 3), (2, 2), (3, 2), (3, 2), (4, 3), (17, 16)];
        for (name, servers) in names.iter().zip(servers) {
            let choice: ProtocolChoice = name.parse().unwrap();
            assert_eq!((choice.name(), (choice.servers(), choice.parties())), (*name, servers));
            assert_eq!(String::from(choice), choice.to_string());
        }
        for name in ["", "dealt", "dealt-", "dealt-1", "dealt-17", "dealt-03", "Rss", "dealt-2\n"] {
            let error = name.parse::<ProtocolChoice>().unwrap_err();
            assert!(error.contains("dealt-2 to dealt-16") && !error.contains('\n'), "{error}");
        }
    }
}
