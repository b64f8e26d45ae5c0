//! The tag by which a message names the step it was sent in.

/// 24 bits of a hash of a step's name. A message carries its sender's, and the receiver compares it with
/// its own, so that parties that are not in the same step notice at the first message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StepTag(u32);

impl StepTag {
    /// The tag of all that is not sent in a step: control frames, and messages of clients.
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn of(name: &str) -> Self {
        let hash = blake3::derive_key("trefoil net 2026 step tag", name.as_bytes());
        Self::from_bytes([hash[0], hash[1], hash[2]])
    }

    pub(crate) fn from_bytes([a, b, c]: [u8; 3]) -> Self {
        Self(u32::from_le_bytes([a, b, c, 0]))
    }

    pub(crate) fn to_bytes(self) -> [u8; 3] {
        let [a, b, c, _] = self.0.to_le_bytes();
        [a, b, c]
    }
}

impl std::fmt::Display for StepTag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:06x}", self.0)
    }
}
