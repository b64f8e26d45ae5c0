//! The bytes of a frame's head, and what may be in them.

use crate::{limits::CHUNK, step::StepTag};

/// Length of an encoded [`Head`].
pub(crate) const HEAD: usize = 24;

/// Longest body of a frame that carries no part of a message.
pub(crate) const CONTROL: usize = 4096;

/// The purpose of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The sender's role and the job it was started for. The first frame each way.
    Hello,
    /// A message's first or only part.
    First,
    /// A further part of the message begun before.
    More,
    /// This side lives.
    Ping,
    /// This side sends nothing more and expects nothing more.
    Close,
    /// The session is over; the body states why.
    Cancel,
    /// As [`Kind::Cancel`], by a party that left without a local error.
    Leave,
    /// Two parties were started for different jobs; the body names them and the difference.
    Mismatch,
    /// As [`Kind::Cancel`], since a party broke the protocol: its number as a byte, then the reason.
    Accuse,
}

const KINDS: [Kind; 9] = [
    Kind::Hello,
    Kind::First,
    Kind::More,
    Kind::Ping,
    Kind::Close,
    Kind::Cancel,
    Kind::Leave,
    Kind::Mismatch,
    Kind::Accuse,
];

/// The head of a frame, before its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    /// The step a message was sent in; [`StepTag::NONE`] in other frames.
    pub(crate) step: StepTag,
    /// Length of the body that follows.
    pub(crate) len: u32,
    /// Position of this frame in its direction of the link, modulo 2^32.
    pub(crate) sequence: u32,
    /// Causal depth of a message; 0 in other frames.
    pub(crate) depth: u32,
    /// Length of the whole message; 0 in frames that carry none.
    pub(crate) total: u64,
}

impl Head {
    pub(crate) fn control(kind: Kind, len: usize) -> Self {
        Self { kind, step: StepTag::NONE, len: len as u32, sequence: 0, depth: 0, total: 0 }
    }

    pub(crate) fn encode(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[0] = self.kind as u8;
        bytes[1..4].copy_from_slice(&self.step.to_bytes());
        bytes[4..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.depth.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.total.to_le_bytes());
        bytes
    }

    /// Reads a head; the answer is within all bounds that do not depend on other frames.
    ///
    /// # Errors
    /// The fault, without the values of unknown bytes.
    pub(crate) fn decode(bytes: &[u8; HEAD], longest: u64) -> Result<Self, String> {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let total = u64::from_le_bytes(bytes[16..24].try_into().expect("8 bytes"));
        let kind = KINDS.get(usize::from(bytes[0])).ok_or("a frame of no known kind")?;
        let step = StepTag::from_bytes([bytes[1], bytes[2], bytes[3]]);
        let (len, sequence, depth) = (word(4), word(8), word(12));
        let head = Self { kind: *kind, step, len, sequence, depth, total };
        head.check(longest)?;
        Ok(head)
    }

    fn check(&self, longest: u64) -> Result<(), String> {
        let len = u64::from(self.len);
        let carries = matches!(self.kind, Kind::First | Kind::More);
        if !carries && self.step != StepTag::NONE {
            return Err(format!("a {:?} frame of a step", self.kind));
        }
        let fits = match self.kind {
            Kind::First | Kind::More if self.total > longest => {
                return Err(format!("a message of {} bytes, more than {longest}", self.total));
            }
            Kind::First => len == self.total.min(CHUNK as u64),
            Kind::More => len > 0 && len <= (CHUNK as u64).min(self.total),
            Kind::Ping | Kind::Close => len == 0 && self.total == 0 && self.depth == 0,
            Kind::Hello | Kind::Cancel | Kind::Leave | Kind::Mismatch | Kind::Accuse => {
                len <= CONTROL as u64 && self.total == 0 && self.depth == 0
            }
        };
        match fits {
            true => Ok(()),
            false => Err(format!("a {:?} frame of {len} bytes (of {})", self.kind, self.total)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(head: Head) -> Result<Head, String> {
        Head::decode(&head.encode(), 1 << 32)
    }

    #[test]
    fn a_head_survives_its_encoding() {
        for kind in [Kind::First, Kind::More] {
            let (step, len) = (StepTag::of("layer/relu"), CHUNK as u32);
            let head = Head { kind, step, len, sequence: 7, depth: 9, total: 5 << 20 };
            assert_eq!(decode(head).unwrap(), head);
        }
        for kind in [Kind::Hello, Kind::Ping, Kind::Close, Kind::Cancel, Kind::Accuse] {
            let head = Head::control(kind, 0);
            assert_eq!(decode(head).unwrap(), head);
        }
    }

    #[test]
    fn lengths_out_of_bounds_are_refused() {
        let first = Head { total: 8, ..Head::control(Kind::First, 8) };
        decode(Head { len: 7, ..first }).unwrap_err();
        decode(Head { len: 9, ..first }).unwrap_err();
        decode(Head { total: (1 << 32) + 1, len: CHUNK as u32, ..first }).unwrap_err();
        decode(Head { kind: Kind::More, len: 0, ..first }).unwrap_err();
        decode(Head { kind: Kind::More, len: 9, ..first }).unwrap_err();
        decode(Head::control(Kind::Hello, CONTROL + 1)).unwrap_err();
        decode(Head::control(Kind::Ping, 1)).unwrap_err();
        decode(Head { step: StepTag::of("ping"), ..Head::control(Kind::Ping, 0) }).unwrap_err();
        decode(Head::control(Kind::Close, 0)).unwrap();
    }
}
