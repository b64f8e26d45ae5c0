//! Shares, and how addends add up.

use std::fmt;

use mpc_core::{ShareBits, ShareTensor};
use ring_arith::{BitTensor, EngineTensor, Shape};

/// The group in which addends add up to the secret.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Group {
    /// Words, modulo 2^64.
    Words,
    /// Planes of bits, by exclusive or.
    Bits,
}

impl Group {
    pub(crate) fn add(self, x: u64, y: u64) -> u64 {
        match self {
            Self::Words => x.wrapping_add(y),
            Self::Bits => x ^ y,
        }
    }

    pub(crate) fn subtract(self, x: u64, y: u64) -> u64 {
        match self {
            Self::Words => x.wrapping_sub(y),
            Self::Bits => x ^ y,
        }
    }
}

/// An addend of each word of a tensor. The dealer's are 0.
#[derive(Clone)]
pub struct Share<T>(pub(crate) T);

/// An addend of each bit of a tensor. The dealer's are 0.
#[derive(Clone)]
pub struct BitShare<T>(pub(crate) BitTensor<T>);

impl<T: EngineTensor> ShareTensor for Share<T> {
    fn shape(&self) -> &Shape {
        self.0.shape()
    }
}

impl<T: EngineTensor> ShareTensor for BitShare<T> {
    fn shape(&self) -> &Shape {
        self.0.shape()
    }
}

impl<T: EngineTensor> ShareBits for BitShare<T> {
    fn width(&self) -> usize {
        self.0.width()
    }
}

/// Shows the shape alone.
impl<T: EngineTensor> fmt::Debug for Share<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Share({:?})", self.0.shape())
    }
}

/// Shows shape and width alone.
impl<T: EngineTensor> fmt::Debug for BitShare<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BitShare({:?}, {} bits)", self.0.shape(), self.0.width())
    }
}
