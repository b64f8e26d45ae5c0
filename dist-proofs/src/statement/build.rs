//! Building relations: the same calls at all three sides.

use std::ops::Range;

use ring_arith::{Bilinear, EngineTensor, Result, Shape};

use super::{
    Factor, Kind, Known, LeftOperand, Operand, Relation, RightOperand, Side, Spoken, Statements,
    Term,
};

impl<T: EngineTensor> Statements<T> {
    /// Declares a factor that the prover and the left verifier know.
    ///
    /// # Panics
    /// If this side passes what it ought not to know, or does not pass what it ought to.
    pub fn left_operand(&mut self, tensor: Known<'_, T>) -> LeftOperand {
        LeftOperand(self.operand(Side::Left, tensor))
    }

    /// Declares a factor that the prover and the right verifier know.
    ///
    /// # Panics
    /// As [`Statements::left_operand`].
    pub fn right_operand(&mut self, tensor: Known<'_, T>) -> RightOperand {
        RightOperand(self.operand(Side::Right, tensor))
    }

    /// A relation of bits, `xor_k (A_k & B_k) ^ L ^ R = 0` in every plane: tensors of `planes * ceil(elements / 64)`
    /// words, plane by plane. Lanes past the last element do not count.
    pub fn bits(&mut self, planes: usize, elements: usize) -> BitRelation<'_, T> {
        BitRelation(self.relation(Kind::Bits { planes, elements }))
    }

    /// A relation of words, `sum_k A_k B_k + L + R = 0` modulo `2^modulus_bits`, element by element.
    ///
    /// # Panics
    /// Unless `modulus_bits` is 1 to 64.
    pub fn words(&mut self, modulus_bits: u32, elements: usize) -> WordRelation<'_, T> {
        assert!((1..=64).contains(&modulus_bits), "a modulus has 1 to 64 bits, not {modulus_bits}");
        WordRelation(self.relation(Kind::Words { modulus_bits, elements }))
    }

    /// A relation of tensors, `sum_k map(A_k, B_k) + L + R = 0` modulo `2^64`, with factors of shapes `lhs` and `rhs`.
    ///
    /// # Errors
    /// If the shapes do not fit the map. [`Bilinear::Mul`] is refused: its relations are words.
    pub fn map(&mut self, map: &Bilinear, lhs: &Shape, rhs: &Shape) -> Result<MapRelation<'_, T>> {
        if *map == Bilinear::Mul {
            return Err(ring_arith::Error::invalid(
                "map relation",
                "element-wise products are words",
            ));
        }
        map.output_shape(lhs, rhs)?;
        let kind = Kind::Map { map: map.clone(), lhs: lhs.clone(), rhs: rhs.clone() };
        Ok(MapRelation(self.relation(kind)))
    }

    fn operand(&mut self, verifier: Side, tensor: Known<'_, T>) -> Factor {
        let tensor = checked(self.side, verifier, tensor);
        self.operands.push(Operand { verifier, tensor });
        Factor { operand: self.operands.len() - 1, every_plane: false }
    }

    fn relation(&mut self, kind: Kind) -> Draft<'_, T> {
        self.relations.push(Relation {
            kind,
            products: Vec::new(),
            left: Vec::new(),
            right: Vec::new(),
            spoken: Vec::new(),
        });
        Draft {
            side: self.side,
            operands: &self.operands,
            relation: self.relations.last_mut().expect("just pushed"),
        }
    }
}

/// The tensor, if this side is one that knows it.
fn checked<T: Clone>(side: Side, verifier: Side, tensor: Known<'_, T>) -> Option<T> {
    let knows = side == Side::Prover || side == verifier;
    match tensor {
        Known::Here(tensor) => {
            assert!(knows, "{side:?} must not know what is {verifier:?}'s");
            Some(tensor.clone())
        }
        Known::Elsewhere => {
            assert!(!knows, "{side:?} must know what is {verifier:?}'s");
            None
        }
    }
}

/// The newest relation.
struct Draft<'a, T> {
    side: Side,
    operands: &'a [Operand<T>],
    relation: &'a mut Relation<T>,
}

impl<T: EngineTensor> Draft<'_, T> {
    fn about(&mut self, message: &str, words: Range<usize>) {
        self.relation.spoken.push(Spoken { message: message.to_owned(), words });
    }

    fn product(&mut self, factors: [Factor; 2]) {
        for (place, factor) in factors.into_iter().enumerate() {
            let Some(tensor) = &self.operands[factor.operand].tensor else { continue };
            let fits = match &self.relation.kind {
                Kind::Bits { planes, elements } => {
                    let planes = if factor.every_plane { 1 } else { *planes };
                    tensor.len() == planes * elements.div_ceil(64)
                }
                Kind::Words { elements, .. } => tensor.len() == *elements,
                Kind::Map { lhs, rhs, .. } => tensor.shape() == [lhs, rhs][place],
            };
            assert!(
                fits,
                "a factor of shape {:?} does not fit {:?}",
                tensor.shape(),
                self.relation.kind
            );
        }
        self.relation.products.push(factors);
    }

    fn term(&mut self, verifier: Side, negative: bool, tensor: Known<'_, T>) {
        let tensor = checked(self.side, verifier, tensor);
        let words = self.relation.kind.words();
        if let Some(tensor) = &tensor {
            assert_eq!(tensor.len(), words, "words of a term of {:?}", self.relation.kind);
        }
        let terms =
            if verifier == Side::Left { &mut self.relation.left } else { &mut self.relation.right };
        terms.push(Term { negative, tensor });
    }
}

/// A relation of bits. See [`Statements::bits`].
pub struct BitRelation<'a, T>(Draft<'a, T>);

/// A relation of words. See [`Statements::words`].
pub struct WordRelation<'a, T>(Draft<'a, T>);

/// A relation of tensors. See [`Statements::map`].
pub struct MapRelation<'a, T>(Draft<'a, T>);

/// A factor of a bilinear map: either verifier can know either.
pub trait MapOperand: sealed::Place {}

impl MapOperand for LeftOperand {}
impl MapOperand for RightOperand {}

mod sealed {
    pub trait Place {
        fn factor(&self) -> super::Factor;
    }

    impl Place for super::LeftOperand {
        fn factor(&self) -> super::Factor {
            self.0
        }
    }

    impl Place for super::RightOperand {
        fn factor(&self) -> super::Factor {
            self.0
        }
    }
}

/// The parts that relations of all kinds have in common.
macro_rules! terms {
    ($relation:ident) => {
        impl<T: EngineTensor> $relation<'_, T> {
            /// Names words of a message of the prover which this relation binds.
            pub fn about(mut self, message: &str, words: Range<usize>) -> Self {
                self.0.about(message, words);
                self
            }

            /// Adds a term that the prover and the left verifier know.
            ///
            /// # Panics
            /// If its length does not fit, or if this side passes what it ought not to know.
            pub fn left(mut self, tensor: Known<'_, T>) -> Self {
                self.0.term(Side::Left, false, tensor);
                self
            }

            /// Adds a term that the prover and the right verifier know.
            ///
            /// # Panics
            /// As for the left verifier's.
            pub fn right(mut self, tensor: Known<'_, T>) -> Self {
                self.0.term(Side::Right, false, tensor);
                self
            }
        }
    };
}

/// Terms that are subtracted; of bits, that is adding.
macro_rules! negative_terms {
    ($relation:ident) => {
        impl<T: EngineTensor> $relation<'_, T> {
            /// Subtracts a term that the prover and the left verifier know.
            ///
            /// # Panics
            /// As for terms that are added.
            pub fn minus_left(mut self, tensor: Known<'_, T>) -> Self {
                self.0.term(Side::Left, true, tensor);
                self
            }

            /// Subtracts a term that the prover and the right verifier know.
            ///
            /// # Panics
            /// As for terms that are added.
            pub fn minus_right(mut self, tensor: Known<'_, T>) -> Self {
                self.0.term(Side::Right, true, tensor);
                self
            }
        }
    };
}

terms!(BitRelation);
terms!(WordRelation);
terms!(MapRelation);
negative_terms!(WordRelation);
negative_terms!(MapRelation);

impl<T: EngineTensor> BitRelation<'_, T> {
    /// Adds `left & right`.
    ///
    /// # Panics
    /// If a factor does not have the relation's planes, or one if it is [in every plane](LeftOperand::in_every_plane).
    pub fn product(mut self, left: LeftOperand, right: RightOperand) -> Self {
        self.0.product([left.0, right.0]);
        self
    }
}

impl<T: EngineTensor> WordRelation<'_, T> {
    /// Adds `left * right`.
    ///
    /// # Panics
    /// If the length of a factor is another.
    pub fn product(mut self, left: LeftOperand, right: RightOperand) -> Self {
        self.0.product([left.0, right.0]);
        self
    }
}

impl<T: EngineTensor> MapRelation<'_, T> {
    /// Adds `map(lhs, rhs)`. Each factor is either verifier's; if one verifier knows both, that is a term of its own,
    /// which costs no product of full size.
    ///
    /// # Panics
    /// If the shape of a factor is another.
    pub fn product(mut self, lhs: impl MapOperand, rhs: impl MapOperand) -> Self {
        self.0.product([lhs.factor(), rhs.factor()]);
        self
    }
}
