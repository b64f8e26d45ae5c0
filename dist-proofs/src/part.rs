//! Parts of a proof: one for each kind of relation, run side by side.

use crate::{
    bits::{self, BitsProver, BitsVerifier},
    inner::Halves,
    keys::{Draw, Seed},
    maps::{self, MapsProver, MapsVerifier},
    scratch::Scratch,
    statement::{Kind, Side, Statements},
    words::{self, WordsProver, WordsVerifier},
};

/// A statement, and how to prove it.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub statements: &'a Statements,
    pub parameters: Parameters,
    pub scratch: &'a Scratch,
}

/// The sizes that make a proof sure. Tests take less.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parameters {
    /// Bits of a challenge.
    pub challenge_bits: u32,
    /// Random subsets of the relations of words: a false one is in none with probability 2 to the minus that.
    pub subsets: usize,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { challenge_bits: 64, subsets: 48 }
    }
}

/// A kind of relations, as the number of its streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartKind {
    Bits,
    Words,
    Maps,
}

/// The messages of a part of a proof, which follow from the public shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartShape {
    pub kind: PartKind,
    /// Words of each message of the prover.
    pub messages: Vec<usize>,
    /// Words of the left verifier's last message.
    pub opening: usize,
}

/// The parts that a proof of statements has.
pub(crate) fn shapes<T>(statements: &Statements<T>, parameters: Parameters) -> Vec<PartShape> {
    let has =
        |kind: fn(&Kind) -> bool| statements.relations.iter().any(|relation| kind(&relation.kind));
    let mut shapes = Vec::new();
    if has(|kind| matches!(kind, Kind::Bits { .. })) {
        shapes.push(bits::shape(statements));
    }
    if has(|kind| matches!(kind, Kind::Words { .. })) {
        shapes.push(words::shape(statements, parameters));
    }
    if has(|kind| matches!(kind, Kind::Map { .. })) {
        shapes.push(maps::shape(statements));
    }
    shapes
}

/// A part at the prover.
pub(crate) trait ProverPart {
    /// Answers the next challenge by a message for the right verifier.
    fn answer(&mut self, challenge: &mut Draw) -> Vec<u64>;

    /// Makes the prover hide in this message, as well as it can, that the statement is false.
    #[cfg(test)]
    fn cheat(&mut self, message: usize);
}

/// A part at a verifier.
pub(crate) trait VerifierPart {
    /// Takes the next challenge and, but for the first, this verifier's half of the message before. `None` if that is
    /// not one.
    fn absorb(&mut self, challenge: &mut Draw, halves: &mut Halves) -> Option<()>;

    /// The last values of this side, after the last challenge.
    fn last(&self) -> Vec<u64>;

    /// True if the left verifier's last values fit this side's.
    fn accepts(&self, left: &[u64]) -> bool;
}

/// The prover's part of a kind. `shares` are what it has in common with the left verifier, `blinding` with the right one.
pub(crate) fn prover<'a>(
    kind: PartKind,
    setting: Setting<'a>,
    shares: &Seed,
    blinding: &Seed,
) -> Box<dyn ProverPart + 'a> {
    let (shares, blinding) = (shares.draw(kind as u64), blinding.draw(kind as u64));
    match kind {
        PartKind::Bits => Box::new(BitsProver::new(setting, shares, blinding)),
        PartKind::Words => Box::new(WordsProver::new(setting, shares, blinding)),
        PartKind::Maps => Box::new(MapsProver::new(setting, shares, blinding)),
    }
}

/// A verifier's part of a kind. `seed` is what this verifier has in common with the prover.
pub(crate) fn verifier<'a>(
    kind: PartKind,
    setting: Setting<'a>,
    seed: &Seed,
) -> (Box<dyn VerifierPart + 'a>, Halves) {
    let stream = seed.draw(kind as u64);
    let (halves, blinding) = match setting.statements.side() {
        Side::Right => (Halves::Right(Vec::new().into_iter()), Some(stream)),
        _ => (Halves::Left(stream), None),
    };
    let part: Box<dyn VerifierPart + 'a> = match kind {
        PartKind::Bits => Box::new(BitsVerifier::new(setting, blinding)),
        PartKind::Words => Box::new(WordsVerifier::new(setting, blinding)),
        PartKind::Maps => Box::new(MapsVerifier::new(setting, blinding)),
    };
    (part, halves)
}
