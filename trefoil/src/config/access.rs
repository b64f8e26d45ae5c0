//! The rights of clients.

use serde::{Deserialize, Serialize};

use crate::base::check::check_name;

/// The clients' rights at a server, by the names in their certificates. All servers must allow what
/// is done. The owner of a model decides which clients may run it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Access {
    /// Clients that may connect; all that have a certificate, unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<Vec<String>>,
    /// Clients that may not connect, even if other lists name them.
    pub forbid: Vec<String>,
    /// Clients that may put models, and replace, share and remove their own; all, unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub put: Option<Vec<String>>,
    /// Clients that may run models; all, unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infer: Option<Vec<String>>,
}

impl Access {
    /// True if a client may connect.
    #[must_use]
    pub fn admits(&self, client: &str) -> bool {
        listed(self.clients.as_deref(), client) && !self.forbid.iter().any(|name| name == client)
    }

    /// True if a client that may connect may put models.
    #[must_use]
    pub fn may_put(&self, client: &str) -> bool {
        listed(self.put.as_deref(), client)
    }

    /// True if a client that may connect may run models.
    #[must_use]
    pub fn may_infer(&self, client: &str) -> bool {
        listed(self.infer.as_deref(), client)
    }

    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let lists = [
            ("clients", self.clients.as_deref()),
            ("forbid", Some(self.forbid.as_slice())),
            ("put", self.put.as_deref()),
            ("infer", self.infer.as_deref()),
        ];
        for (key, names) in lists {
            for name in names.unwrap_or_default() {
                check_name("client", name).map_err(|reason| format!("`access.{key}`: {reason}"))?;
            }
        }
        Ok(())
    }
}

/// True if a list that need not be given has a name.
fn listed(list: Option<&[String]>, client: &str) -> bool {
    list.is_none_or(|names| names.iter().any(|name| name == client))
}
