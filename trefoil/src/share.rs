//! Secret sharing by a client.
//!
//! A word `x` is cut into `x = x_0 + x_1 + x_2` modulo 2^64, and party `i` gets `(x_i, x_{i+1})`.
//! Components 0 and 1 are pseudo-random streams under two fresh keys of the client, so that only their
//! keys travel: party 0 gets two keys, parties 1 and 2 a key and component 2. In all 16 bytes travel
//! for each word instead of 48, and each party can compute nothing that it could not with the words.

use ring_arith::{EngineTensor, Generator, Shape, StreamKey, Tensor};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::{Error, Result, Shares, id::fill_random, memory};

/// The generator of components 0 and 1.
const GENERATOR: Generator = Generator::Aes128Ctr;

/// A secret as a client hands it out.
#[must_use]
pub struct Dealt {
    keys: [PartKey; 2],
    rest: Vec<Tensor>,
}

/// What one party gets of a secret. `Debug` would show keys, so there is none.
#[must_use]
pub struct Part {
    /// Keys of the components that are streams: both for party 0, one for the others.
    pub keys: Vec<PartKey>,
    /// Component 2, for parties 1 and 2.
    pub words: Vec<Tensor>,
}

/// The key of a component. Zeroized when dropped.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct PartKey(pub [u8; 32]);

impl Dealt {
    /// Shares tensors under fresh keys from the operating system.
    ///
    /// # Errors
    /// [`Error::Internal`] if the system has no randomness.
    pub fn new(secrets: &[Tensor]) -> Result<Self> {
        let mut keys = [PartKey([0; 32]), PartKey([0; 32])];
        for key in &mut keys {
            fill_random(&mut key.0)?;
        }
        let rest = secrets.iter().enumerate().map(|(index, secret)| {
            let mut words = Zeroizing::new(vec![0; secret.len()]);
            let mut rest = secret.words().to_vec();
            for key in &keys {
                stream(key).stream(index as u64).fill(0, &mut words);
                rest.iter_mut().zip(words.iter()).for_each(|(x, r)| *x = x.wrapping_sub(*r));
            }
            Ok(Tensor::new(secret.shape().clone(), rest)?)
        });
        let rest = rest.collect::<Result<_>>()?;
        Ok(Self { keys, rest })
    }

    /// What a party gets.
    pub fn part(&self, party: usize) -> Part {
        let [zero, one] = &self.keys;
        match party {
            0 => Part { keys: vec![zero.clone(), one.clone()], words: Vec::new() },
            1 => Part { keys: vec![one.clone()], words: self.rest.clone() },
            _ => Part { keys: vec![zero.clone()], words: self.rest.clone() },
        }
    }
}

impl Part {
    /// Number of keys that a party gets.
    #[must_use]
    pub fn keys_of(party: usize) -> usize {
        if party == 0 { 2 } else { 1 }
    }

    /// Whether a party gets words beside its keys.
    #[must_use]
    pub fn has_words(party: usize) -> bool {
        party != 0
    }

    /// A party's shares of tensors of these shapes.
    ///
    /// # Errors
    /// [`Error::Refused`] if keys, words and shapes do not fit together, or if this machine has no memory
    /// for the words that come of a key.
    pub fn expand(self, party: usize, shapes: &[Shape]) -> Result<Shares> {
        let misfit = || Error::refused("request", "the part of the secret is not complete");
        let words = if Self::has_words(party) { shapes.len() } else { 0 };
        if self.keys.len() != Self::keys_of(party) || self.words.len() != words {
            return Err(misfit());
        }
        let keys: Vec<StreamKey> = self.keys.iter().map(stream).collect();
        let component = |key: &StreamKey, index: usize, shape: &Shape| -> Result<Tensor> {
            let mut words = memory::zeros(shape.len())?;
            key.stream(index as u64).fill(0, &mut words);
            Ok(Tensor::new(shape.clone(), words)?)
        };
        let mut rest = self.words.into_iter();
        let share = |(index, shape): (usize, &Shape)| {
            let first = component(&keys[0], index, shape)?;
            if party == 0 {
                return Ok((first, component(&keys[1], index, shape)?));
            }
            let rest = rest.next().filter(|rest| rest.shape() == shape).ok_or_else(misfit)?;
            // Party 1 holds components 1 and 2, party 2 components 2 and 0.
            Ok(if party == 1 { (first, rest) } else { (rest, first) })
        };
        shapes.iter().enumerate().map(share).collect()
    }
}

pub(crate) fn stream(key: &PartKey) -> StreamKey {
    StreamKey::new(GENERATOR, &key.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PARTIES;

    fn tensor(dims: &[usize], salt: u64) -> Tensor {
        let shape = Shape::new(dims).unwrap();
        let words = (0..shape.len() as u64).map(|i| (i ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Tensor::new(shape.clone(), words.collect()).unwrap()
    }

    fn deal(secrets: &[Tensor]) -> [Shares; PARTIES] {
        let shapes: Vec<_> = secrets.iter().map(|secret| secret.shape().clone()).collect();
        let dealt = Dealt::new(secrets).unwrap();
        [0, 1, 2].map(|party| dealt.part(party).expand(party, &shapes).unwrap())
    }

    #[test]
    fn the_parties_hold_replicated_shares_of_the_secret() {
        let secrets = [tensor(&[3, 5], 1), tensor(&[], 2), tensor(&[0, 4], 3), tensor(&[1000], 4)];
        let shares = deal(&secrets);
        for (index, secret) in secrets.iter().enumerate() {
            let mine = [0, 1, 2].map(|party| shares[party][index].0.clone());
            let sum = |at: usize| mine.iter().fold(0u64, |sum, x| sum.wrapping_add(x.words()[at]));
            assert!((0..secret.len()).all(|at| sum(at) == secret.words()[at]));
            for party in 0..PARTIES {
                assert_eq!(shares[party][index].1, mine[(party + 1) % PARTIES]);
            }
        }
    }

    #[test]
    fn every_sharing_and_every_tensor_has_its_own_randomness() {
        let secrets = [tensor(&[64], 1), tensor(&[64], 1)];
        let (one, two) = (deal(&secrets), deal(&secrets));
        for party in 0..PARTIES {
            assert_ne!(one[party][0].0, one[party][1].0);
            assert_ne!(one[party][0].0, two[party][0].0);
        }
    }

    #[test]
    fn a_part_that_does_not_fit_its_shapes_is_refused() {
        let secrets = [tensor(&[4], 1)];
        let dealt = Dealt::new(&secrets).unwrap();
        let (four, five) = (Shape::new([4]).unwrap(), Shape::new([5]).unwrap());
        assert!(dealt.part(1).expand(1, std::slice::from_ref(&five)).is_err());
        assert!(dealt.part(1).expand(0, std::slice::from_ref(&four)).is_err());
        assert!(dealt.part(2).expand(2, &[four.clone(), four]).is_err());
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let dealt = Dealt::new(&[]).unwrap();
        let huge = [Shape::new([1 << 44]).unwrap()];
        let text = dealt.part(0).expand(0, &huge).map(drop).unwrap_err().to_string();
        assert!(text.contains("no memory for 17592186044416 words"), "{text}");
    }
}
