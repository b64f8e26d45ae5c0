//! Shares: a public masked tensor, and addends of its mask.

use std::{fmt, iter};

use mpc_core::{Error, Result, ShareBits, ShareTensor};
use ring_arith::{BitTensor, EngineTensor, Shape, Tensor};

/// The group in which a tensor is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    /// Words modulo `2^bits`; `bits` from 1 to 64. A message has `bits` bits for each.
    Words { bits: u32 },
    /// Planes of bits, by exclusive or.
    Planes,
}

impl Group {
    pub(crate) const WORDS: Self = Self::Words { bits: 64 };

    pub(crate) fn add(self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        match self {
            Self::Words { bits } => zip(x, y, |x, y| low(x.wrapping_add(y), bits)),
            Self::Planes => zip(x, y, |x, y| x ^ y),
        }
    }

    pub(crate) fn subtract(self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        match self {
            Self::Words { bits } => zip(x, y, |x, y| low(x.wrapping_sub(y), bits)),
            Self::Planes => zip(x, y, |x, y| x ^ y),
        }
    }
}

/// The low bits of a word.
pub(crate) fn low(word: u64, bits: u32) -> u64 {
    word & (u64::MAX >> (64 - bits))
}

/// The group and shape of a tensor: what all parties know of it.
#[derive(Debug, Clone)]
pub(crate) struct Form {
    pub(crate) group: Group,
    pub(crate) shape: Shape,
}

impl Form {
    pub(crate) fn words(shape: &Shape) -> Self {
        Self { group: Group::WORDS, shape: shape.clone() }
    }

    pub(crate) fn planes(shape: &Shape) -> Self {
        Self { group: Group::Planes, shape: shape.clone() }
    }
}

/// Applies a function to each pair of words of two tensors of one shape.
pub(crate) fn zip(x: &Tensor, y: &Tensor, f: impl Fn(u64, u64) -> u64) -> Result<Tensor> {
    if x.shape() != y.shape() {
        let lhs = x.shape().clone();
        let rhs = y.shape().clone();
        return Err(Error::Shapes { op: "masked sharing", lhs, rhs });
    }
    let words = iter::zip(x.words(), y.words()).map(|(&x, &y)| f(x, y)).collect();
    Ok(Tensor::new(x.shape().clone(), words)?)
}

/// Applies a function to each word of a tensor.
pub(crate) fn map(x: &Tensor, f: impl Fn(u64) -> u64) -> Result<Tensor> {
    let words = x.words().iter().map(|&word| f(word)).collect();
    Ok(Tensor::new(x.shape().clone(), words)?)
}

/// A share of a tensor of words: `x = mask + masked` modulo 2^64.
#[derive(Clone)]
pub struct Share<T> {
    /// This party's addend of the mask; at the dealer the whole mask.
    pub(crate) mask: T,
    /// The masked tensor, which all parties that compute know; at the dealer 0.
    pub(crate) masked: T,
}

/// Masked planes of bits on the host: `x = mask ^ masked`.
#[derive(Clone)]
pub(crate) struct Planes {
    /// This party's addend of the mask; at the dealer the whole mask.
    pub(crate) mask: Tensor,
    /// The masked planes, which all parties that compute know; at the dealer 0.
    pub(crate) masked: Tensor,
}

impl Planes {
    pub(crate) fn shape(&self) -> &Shape {
        self.mask.shape()
    }

    /// Number of planes.
    pub(crate) fn count(&self) -> usize {
        self.shape().dims()[0]
    }

    /// Planes `from..to`.
    pub(crate) fn slice(&self, from: usize, to: usize) -> Result<Self> {
        let mask = self.mask.slice(0, from, to)?;
        Ok(Self { mask, masked: self.masked.slice(0, from, to)? })
    }

    /// The given planes, in the given order.
    pub(crate) fn gather(&self, planes: &[usize]) -> Result<Self> {
        let mask = self.mask.gather(0, planes)?;
        Ok(Self { mask, masked: self.masked.gather(0, planes)? })
    }

    /// All planes, one tensor's after the other's.
    pub(crate) fn concat(parts: &[&Self]) -> Result<Self> {
        let masks: Vec<_> = parts.iter().map(|part| &part.mask).collect();
        let masked: Vec<_> = parts.iter().map(|part| &part.masked).collect();
        Ok(Self { mask: Tensor::concat(&masks, 0)?, masked: Tensor::concat(&masked, 0)? })
    }

    /// Exclusive or.
    pub(crate) fn xor(&self, other: &Self) -> Result<Self> {
        let mask = Group::Planes.add(&self.mask, &other.mask)?;
        Ok(Self { mask, masked: Group::Planes.add(&self.masked, &other.masked)? })
    }

    /// Exclusive or with a public word for each word.
    pub(crate) fn flip(&self, word: u64) -> Result<Self> {
        Ok(Self { mask: self.mask.clone(), masked: map(&self.masked, |x| x ^ word)? })
    }

    /// Public planes of one word, on the same lanes as others.
    pub(crate) fn public(count: usize, words: usize, word: u64) -> Result<Self> {
        let shape = Shape::new([count, words])?;
        let masked = Tensor::full(shape.clone(), word);
        Ok(Self { mask: Tensor::zeros(shape), masked })
    }
}

/// A share of a tensor of bits: `x = mask ^ masked`, plane by plane.
#[derive(Clone)]
pub struct BitShare {
    pub(crate) shape: Shape,
    pub(crate) planes: Planes,
}

impl BitShare {
    /// Bits of a shape by their planes.
    pub(crate) fn new(shape: &Shape, planes: Planes) -> Result<Self> {
        // Checks that planes and shape fit.
        BitTensor::new(shape.clone(), planes.mask.clone())?;
        Ok(Self { shape: shape.clone(), planes })
    }
}

impl<T: EngineTensor> ShareTensor for Share<T> {
    fn shape(&self) -> &Shape {
        self.mask.shape()
    }
}

impl ShareTensor for BitShare {
    fn shape(&self) -> &Shape {
        &self.shape
    }
}

impl ShareBits for BitShare {
    fn width(&self) -> usize {
        self.planes.count()
    }
}

/// Shows the shape alone.
impl<T: EngineTensor> fmt::Debug for Share<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Share({:?})", self.mask.shape())
    }
}

/// Shows shape and width alone.
impl fmt::Debug for BitShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BitShare({:?}, {} bits)", self.shape, self.width())
    }
}
