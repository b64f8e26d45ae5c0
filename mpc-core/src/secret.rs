//! Secret and public tensors of fixed-point numbers.

use std::fmt;

use ring_arith::{EngineTensor, Shape};

use crate::{Protocol, ShareTensor, protocol::Words};

/// A shared tensor of fixed-point numbers. `Debug` prints shape and format alone.
#[must_use]
pub struct SecretTensor<P: Protocol> {
    share: P::Share,
    frac: u32,
    width: u32,
}

/// A tensor of fixed-point numbers that every party knows.
pub struct PublicTensor<P: Protocol> {
    words: Words<P>,
    frac: u32,
}

/// A tensor that is secret or public. Functions take either; with a public one they do not talk.
#[derive(Debug)]
pub enum Operand<P: Protocol> {
    /// Shared among the parties.
    Secret(SecretTensor<P>),
    /// Known to every party.
    Public(PublicTensor<P>),
}

impl<P: Protocol> SecretTensor<P> {
    /// Wraps a share of numbers with `frac` fraction bits, each below `2^(width - 1)` in magnitude
    /// as words. `width` 64 is always right; a smaller one makes comparisons cheaper. Zero fraction
    /// bits are integers.
    pub fn new(share: P::Share, frac: u32, width: u32) -> Self {
        Self { share, frac, width: width.min(64) }
    }

    /// The share.
    pub fn share(&self) -> &P::Share {
        &self.share
    }

    /// The shape.
    pub fn shape(&self) -> &Shape {
        self.share.shape()
    }

    /// Fraction bits.
    pub fn frac(&self) -> u32 {
        self.frac
    }

    /// Every word is below `2^(width - 1)` in magnitude.
    pub fn width(&self) -> u32 {
        self.width
    }
}

impl<P: Protocol> PublicTensor<P> {
    /// Wraps words with `frac` fraction bits.
    pub fn new(words: Words<P>, frac: u32) -> Self {
        Self { words, frac }
    }

    /// The words.
    pub fn words(&self) -> &Words<P> {
        &self.words
    }

    /// The shape.
    pub fn shape(&self) -> &Shape {
        self.words.shape()
    }

    /// Fraction bits.
    pub fn frac(&self) -> u32 {
        self.frac
    }
}

impl<P: Protocol> Clone for SecretTensor<P> {
    fn clone(&self) -> Self {
        Self { share: self.share.clone(), ..*self }
    }
}

impl<P: Protocol> Clone for PublicTensor<P> {
    fn clone(&self) -> Self {
        Self { words: self.words.clone(), frac: self.frac }
    }
}

impl<P: Protocol> Clone for Operand<P> {
    fn clone(&self) -> Self {
        match self {
            Self::Secret(x) => Self::Secret(x.clone()),
            Self::Public(x) => Self::Public(x.clone()),
        }
    }
}

impl<P: Protocol> fmt::Debug for SecretTensor<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretTensor({:?}, {} fraction bits)", self.shape(), self.frac)
    }
}

impl<P: Protocol> fmt::Debug for PublicTensor<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicTensor({:?}, {} fraction bits)", self.shape(), self.frac)
    }
}
