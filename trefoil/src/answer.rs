//! Answers on their way from the servers to a client.
//!
//! Each component of an answer is known to two servers. One of them sends the component, the other its
//! hash, and the client compares, so that no server alone can change what a client gets. Before they
//! leave, components are made fresh by shares of zero, which the servers derive from a key that all
//! three know: both holders of a component must come to the same.

use ring_arith::{EngineTensor, Tensor};
use zeroize::Zeroizing;

use crate::{
    Digest, Error, Result,
    config::PARTIES,
    share::{PartKey, stream},
};

/// The context of the keys of shares of zero.
const ZEROS: &str = "trefoil 2026 shares of zero for an answer";

/// The context of the seeds of guards.
const GUARD: &str = "trefoil 2026 seed of the signs of a guard";

/// The seed of the signs in the guard of a job: the same at the three servers, and unknown to whoever shared
/// inputs or weights, so that nobody can choose these to cancel out.
#[must_use]
pub fn guard_seed(common: &[u8; 32], job: &Digest) -> u64 {
    let mut hash = blake3::Hasher::new_derive_key(GUARD);
    hash.update(common).update(job.as_bytes());
    let mut seed = [0; 8];
    hash.finalize_xof().fill(&mut seed);
    u64::from_le_bytes(seed)
}

/// The shares of zero of one job's answer.
pub struct Refresh {
    zeros: [PartKey; 2],
}

/// What a server sends of one tensor of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// The component that this server and the one before it hold.
    pub words: Tensor,
    /// The hash of the component that this server and the next one hold.
    pub next: Digest,
}

impl Refresh {
    /// The shares for a job. `common` is known to the three servers and to nobody else; no two jobs
    /// under it may have the same `job`.
    #[must_use]
    pub fn new(common: &[u8; 32], job: &Digest) -> Self {
        let key = |number: u8| {
            let mut hash = blake3::Hasher::new_derive_key(ZEROS);
            hash.update(common).update(job.as_bytes()).update(&[number]);
            PartKey(hash.finalize().into())
        };
        Self { zeros: [key(0), key(1)] }
    }

    /// What `party` sends of its share of tensor number `index`: its own component and the next one's.
    ///
    /// # Errors
    /// [`Error::Ring`] if a tensor is not sound.
    pub fn component(
        &self,
        party: usize,
        (mine, next): &(Tensor, Tensor),
        index: usize,
    ) -> Result<Component> {
        let next = self.fresh((party + 1) % PARTIES, next, index)?;
        Ok(Component {
            words: self.fresh(party % PARTIES, mine, index)?,
            next: Digest::of_tensors([&next]),
        })
    }

    /// Component `number` and its share of zero. The shares are `s0`, `s1` and `-s0 - s1`.
    fn fresh(&self, number: usize, component: &Tensor, index: usize) -> Result<Tensor> {
        let mut words = component.words().to_vec();
        let mut zeros = Zeroizing::new(vec![0; words.len()]);
        for (at, key) in self.zeros.iter().enumerate() {
            if number != at && number != 2 {
                continue;
            }
            stream(key).stream(index as u64).fill(0, &mut zeros);
            for (word, zero) in words.iter_mut().zip(zeros.iter()) {
                *word =
                    if number == at { word.wrapping_add(*zero) } else { word.wrapping_sub(*zero) };
            }
        }
        Ok(Tensor::new(component.shape().clone(), words)?)
    }
}

/// Compares what the three servers returned of one tensor and adds it up.
///
/// # Errors
/// [`Error::Refused`] if a component and its hash differ, naming who may have sent the wrong one, or if
/// shapes differ.
pub fn reveal(parts: &[Component; PARTIES]) -> Result<Tensor> {
    let sent = [0, 1, 2].map(|party: usize| Digest::of_tensors([&parts[party].words]));
    let differs = [0, 1, 2].map(|party: usize| sent[party] != parts[(party + 2) % PARTIES].next);
    if let Some(suspects) = suspects(differs) {
        let reason = format!(
            "the answer was changed by {suspects}: what two servers hold in common came in two \
             versions; do not use it, and tell their operators"
        );
        return Err(Error::refused("servers", reason));
    }
    let [first, others @ ..] = parts;
    let mut words = first.words.words().to_vec();
    for other in others {
        if other.words.shape() != first.words.shape() {
            return Err(Error::refused("servers", "they returned results of different shapes"));
        }
        let other = other.words.words();
        words.iter_mut().zip(other).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
    }
    Ok(Tensor::new(first.words.shape().clone(), words)?)
}

/// To whom it points that the holders of some components do not agree, if there are such. Party `i` and
/// the one before it hold component `i`; whoever holds all those that differ is the likely one.
pub(crate) fn suspects(differs: [bool; PARTIES]) -> Option<String> {
    let before = |party: usize| (party + 2) % PARTIES;
    let alone = (0..PARTIES).find(|&party| differs == [0, 1, 2].map(|c| c != before(party)));
    match (differs.iter().filter(|&&differs| differs).count(), alone) {
        (0, _) => None,
        (2, Some(party)) => Some(format!("party {party}")),
        (1, _) => {
            let party = differs.iter().position(|&differs| differs).unwrap_or(0);
            Some(format!("party {} or party {party}", before(party)))
        }
        _ => Some("more than one of the three servers".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use ring_arith::Shape;

    use super::*;
    use crate::{Shares, share::Dealt};

    fn secret() -> Tensor {
        Tensor::new(Shape::new([40]).unwrap(), (1..41).collect()).unwrap()
    }

    fn deal() -> [Shares; PARTIES] {
        let dealt = Dealt::new(&[secret()]).unwrap();
        let shape = secret().shape().clone();
        [0, 1, 2]
            .map(|party| dealt.part(party).expand(party, std::slice::from_ref(&shape)).unwrap())
    }

    fn answer(shares: &[Shares; PARTIES], job: u8, index: usize) -> [Component; PARTIES] {
        let refresh = Refresh::new(&[9; 32], &Digest::of(&[&[job]]));
        [0, 1, 2].map(|party| refresh.component(party, &shares[party][0], index).unwrap())
    }

    #[test]
    fn fresh_components_add_up_to_the_same_and_differ_by_job_and_tensor() {
        let shares = deal();
        let (one, two, three) =
            (answer(&shares, 1, 0), answer(&shares, 2, 0), answer(&shares, 1, 1));
        for parts in [&one, &two, &three] {
            assert_eq!(reveal(parts).unwrap(), secret());
        }
        for party in 0..PARTIES {
            let words = [&one, &two, &three].map(|parts| &parts[party].words);
            let all: std::collections::HashSet<_> =
                words.iter().map(|tensor| tensor.words()[7]).collect();
            assert_eq!(all.len(), 3);
            assert!(!all.contains(&shares[party][0].0.words()[7]));
        }
    }

    #[test]
    fn a_changed_component_is_an_error_that_names_its_holders() {
        let shares = deal();
        for party in 0..PARTIES {
            let mut parts = answer(&shares, 1, 0);
            let mut words = parts[party].words.words().to_vec();
            words[3] ^= 1;
            parts[party].words = Tensor::new(Shape::new([40]).unwrap(), words).unwrap();
            let error = reveal(&parts).unwrap_err().to_string();
            assert!(error.contains(&format!("or party {party}")), "{error}");
            // Whoever changes both of what it sends is alone in it.
            parts[party].next = Digest::default();
            let error = reveal(&parts).unwrap_err().to_string();
            assert!(error.contains(&format!("changed by party {party}:")), "{error}");
        }
    }
}
