//! A blinded inner product: the last stage of every part of a proof.
//!
//! Both vectors get one more element, drawn by the prover from what it has in common with the vector's verifier. Their
//! product joins the claim, cut in halves like everything else. So the last values, of which one verifier opens its own
//! to the other, are uniform: the weight of these elements is a product of challenges or their differences from 1, which
//! are units.

use crate::{
    keys::Draw,
    ring::Ring,
    sumcheck::{self, Half, Prover, last_corner, message_len, point},
};

/// Words of a part of a proof as a verifier gets them: its halves of the prover's messages.
#[allow(clippy::large_enum_variant)] // there is one for each part of a proof
pub(crate) enum Halves {
    /// The left verifier's are a stream that it has in common with the prover.
    Left(Draw),
    /// The right verifier's are what the prover sends.
    Right(std::vec::IntoIter<u64>),
}

impl Halves {
    /// The next `n` words; `None` if the message is too short.
    pub fn words(&mut self, n: usize) -> Option<Vec<u64>> {
        match self {
            Self::Left(shares) => Some(shares.words(n)),
            Self::Right(words) => {
                let words: Vec<u64> = words.take(n).collect();
                (words.len() == n).then_some(words)
            }
        }
    }

    /// The next `n` elements; `None` if the message does not hold them.
    pub fn elements<R: Ring>(&mut self, ring: &R, n: usize) -> Option<Vec<R::Element>> {
        match self {
            Self::Left(shares) => Some((0..n).map(|_| ring.random(shares)).collect()),
            Self::Right(words) => {
                let words: Vec<u64> = words.take(n * R::WORDS).collect();
                let whole = words.len() == n * R::WORDS;
                if whole {
                    words.chunks(R::WORDS).map(|words| ring.decode(words)).collect()
                } else {
                    None
                }
            }
        }
    }
}

/// The right verifier's halves of values: what is left without the left verifier's.
pub(crate) fn masked<R: Ring>(ring: &R, values: &[R::Element], shares: &mut Draw) -> Vec<u64> {
    let mut words = Vec::with_capacity(values.len() * R::WORDS);
    for &value in values {
        let share = ring.random(shares);
        mutant!("the right verifier's halves are the values", share = ring.zero());
        ring.encode(ring.sub(value, share), &mut words);
    }
    words
}

/// The factor that blinds the left verifier's last value.
fn left_factor<R: Ring>(ring: &R, shares: &mut Draw) -> R::Element {
    let factor = ring.random(shares);
    mutant!("the left value is not blinded", factor = ring.zero());
    factor
}

/// The factor that blinds the right verifier's last value.
fn right_factor<R: Ring>(ring: &R, blinding: &mut Draw) -> R::Element {
    let factor = ring.random(blinding);
    mutant!("the right value is not blinded", factor = ring.zero());
    factor
}

/// Words of the first message: it also has the right verifier's half of the blinding product.
pub(crate) fn first_words<R: Ring>() -> usize {
    R::WORDS + next_words::<R>()
}

/// Words of every other message.
pub(crate) fn next_words<R: Ring>() -> usize {
    message_len::<R>() * R::WORDS
}

/// The prover's side.
pub(crate) struct InnerProver<R: Ring> {
    vectors: Prover<R>,
    /// The place of the blinding factors.
    place: usize,
    #[cfg(test)]
    pub shadow: Option<crate::cheat::Shadow<R>>,
}

impl<R: Ring> InnerProver<R> {
    /// Vectors with room for the blinding factors at `place`.
    pub fn new(vectors: Prover<R>, place: usize) -> Self {
        Self {
            vectors,
            place,
            #[cfg(test)]
            shadow: None,
        }
    }

    /// Draws the blinding factors, and returns the first message.
    pub fn first_message(&mut self, shares: &mut Draw, blinding: &mut Draw) -> Vec<u64> {
        let ring = self.vectors.ring.clone();
        let [left, right] = [left_factor(&ring, shares), right_factor(&ring, blinding)];
        self.vectors.x[self.place] = left;
        self.vectors.y[self.place] = right;
        let product = ring.mul(left, right);
        #[cfg(test)]
        if let Some(shadow) = &mut self.shadow {
            shadow.begin(product);
        }
        let mut message = masked(&ring, &[product], shares);
        message.extend(self.message(shares));
        message
    }

    /// The memory of both vectors, when they are not needed any more.
    pub fn take_vectors(&mut self) -> [Vec<R::Element>; 2] {
        [std::mem::take(&mut self.vectors.x), std::mem::take(&mut self.vectors.y)]
    }

    /// Goes to a random point, and returns the next message.
    pub fn answer(&mut self, challenge: &mut Draw, shares: &mut Draw) -> Vec<u64> {
        let point = point(&self.vectors.ring, R::VARIABLES, challenge);
        #[cfg(test)]
        if let Some(shadow) = &mut self.shadow {
            shadow.absorb(&point);
        }
        self.vectors.fold(&point);
        self.message(shares)
    }

    fn message(&mut self, shares: &mut Draw) -> Vec<u64> {
        let mut values = self.vectors.values();
        #[cfg(test)]
        if let Some(shadow) = &mut self.shadow {
            shadow.lie(&mut values, &vec![self.vectors.ring.one(); 1 << R::VARIABLES]);
        }
        values.remove(last_corner(values.len()));
        masked(&self.vectors.ring, &values, shares)
    }
}

/// A verifier's side.
pub(crate) struct InnerVerifier<R: Ring> {
    half: Half<R>,
    /// This verifier's blinding factor.
    blind: R::Element,
}

impl<R: Ring> InnerVerifier<R> {
    /// Takes the first message's half of the blinding product. The right verifier's factor is drawn from `blinding`, the
    /// left one's from its halves.
    pub fn begin(
        mut half: Half<R>,
        halves: &mut Halves,
        blinding: Option<&mut Draw>,
    ) -> Option<Self> {
        let blind = match (&mut *halves, blinding) {
            (Halves::Left(shares), _) => left_factor(&half.ring, shares),
            (Halves::Right(_), Some(blinding)) => right_factor(&half.ring, blinding),
            (Halves::Right(_), None) => {
                unreachable!("the right verifier has what blinds its value")
            }
        };
        let product = halves.elements(&half.ring, 1)?[0];
        half.claim = half.ring.add(half.claim, product);
        Some(Self { half, blind })
    }

    /// Takes a round's message, and goes to a random point.
    pub fn absorb(&mut self, challenge: &mut Draw, halves: &mut Halves) -> Option<()> {
        let values = halves.elements(&self.half.ring, message_len::<R>())?;
        let point = point(&self.half.ring, R::VARIABLES, challenge);
        self.half.absorb(values, &point);
        Some(())
    }

    /// Weights of blocks of each round.
    pub fn weights(&self) -> &[Vec<R::Element>] {
        &self.half.weights
    }

    /// The last values: of this verifier's vector, and its half of the claim. `value` is the vector's without the
    /// blinding factor, whose weight is also given.
    pub fn last(&self, value: R::Element, weight: R::Element) -> [R::Element; 2] {
        let blind = self.half.ring.mul(self.blind, weight);
        [self.half.ring.add(value, blind), self.half.claim]
    }
}

/// True if the last values of both verifiers fit.
pub(crate) fn fits<R: Ring>(ring: &R, left: [R::Element; 2], right: [R::Element; 2]) -> bool {
    ring.mul(left[0], right[0]) == ring.add(left[1], right[1])
}

/// Messages of vectors of `len` elements.
pub(crate) fn messages<R: Ring>(len: usize) -> usize {
    sumcheck::rounds::<R>(len)
}
