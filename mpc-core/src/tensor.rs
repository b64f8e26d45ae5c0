//! Secret and public tensors of fixed-point numbers.

use std::fmt;

use ring_arith::{EngineTensor, Shape};

use crate::{Error, Protocol, Result, ShareTensor, Words};

/// The format of fixed-point numbers: a number is its word divided by `2^frac`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Format {
    /// Fraction bits. Integers have none.
    pub frac: u32,
    /// Every word is below `2^(width - 1)` in magnitude. 64 is always right; a smaller width makes comparisons cheaper.
    /// It is a promise: a wrong one gives wrong comparisons, which only the plaintext reference notices.
    pub width: u32,
}

impl Format {
    /// Integers below `2^(width - 1)` in magnitude.
    #[must_use]
    pub const fn integer(width: u32) -> Self {
        Self { frac: 0, width }
    }

    /// Numbers of any size.
    #[must_use]
    pub const fn words(frac: u32) -> Self {
        Self { frac, width: 64 }
    }

    /// The same with another width; one beyond 1 to 64 becomes the nearest of them.
    #[must_use]
    pub fn with_width(self, width: u32) -> Self {
        Self { width: width.clamp(1, 64), ..self }
    }
}

/// A shared tensor of fixed-point numbers. `Debug` prints shape and format alone.
#[must_use]
pub struct SecretTensor<P: Protocol> {
    share: P::Share,
    format: Format,
}

/// A tensor of fixed-point numbers that every party knows.
pub struct PublicTensor<P: Protocol> {
    words: Words<P>,
    format: Format,
}

/// A tensor that is secret or public. Functions take either; with a public one they do not talk.
#[derive(Debug)]
pub enum Operand<P: Protocol> {
    /// Shared among the parties.
    Secret(SecretTensor<P>),
    /// Known to every party.
    Public(PublicTensor<P>),
}

/// A borrowed [`Operand`], the argument type of functions. `&SecretTensor`, `&PublicTensor` and
/// `&Operand` convert to it.
pub enum Arg<'a, P: Protocol> {
    /// Shared among the parties.
    Secret(&'a SecretTensor<P>),
    /// Known to every party.
    Public(&'a PublicTensor<P>),
}

impl<P: Protocol> Arg<'_, P> {
    /// The shape.
    pub fn shape(&self) -> &Shape {
        match self {
            Self::Secret(x) => x.shape(),
            Self::Public(x) => x.shape(),
        }
    }

    /// The format.
    pub fn format(&self) -> Format {
        match self {
            Self::Secret(x) => x.format,
            Self::Public(x) => x.format,
        }
    }

    /// Fraction bits.
    pub fn frac(&self) -> u32 {
        self.format().frac
    }

    /// Every word is below `2^(width - 1)` in magnitude.
    pub fn width(&self) -> u32 {
        self.format().width
    }
}

impl<P: Protocol> Clone for Arg<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Protocol> Copy for Arg<'_, P> {}

impl<'a, P: Protocol> From<&'a SecretTensor<P>> for Arg<'a, P> {
    fn from(x: &'a SecretTensor<P>) -> Self {
        Self::Secret(x)
    }
}

impl<'a, P: Protocol> From<&'a PublicTensor<P>> for Arg<'a, P> {
    fn from(x: &'a PublicTensor<P>) -> Self {
        Self::Public(x)
    }
}

impl<'a, P: Protocol> From<&'a Operand<P>> for Arg<'a, P> {
    fn from(x: &'a Operand<P>) -> Self {
        match x {
            Operand::Secret(x) => Self::Secret(x),
            Operand::Public(x) => Self::Public(x),
        }
    }
}

impl<P: Protocol> From<SecretTensor<P>> for Operand<P> {
    fn from(x: SecretTensor<P>) -> Self {
        Self::Secret(x)
    }
}

impl<P: Protocol> From<PublicTensor<P>> for Operand<P> {
    fn from(x: PublicTensor<P>) -> Self {
        Self::Public(x)
    }
}

impl<P: Protocol> fmt::Debug for Arg<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret(x) => x.fmt(f),
            Self::Public(x) => x.fmt(f),
        }
    }
}

impl<P: Protocol> SecretTensor<P> {
    /// A share of numbers of a format.
    pub fn new(share: P::Share, format: Format) -> Self {
        Self { share, format: format.with_width(format.width) }
    }

    /// The same numbers with a width that the caller knows to be right: from the range of its data, for instance. See
    /// [`Format::width`].
    pub fn with_width(self, width: u32) -> Self {
        Self { format: self.format.with_width(width), ..self }
    }

    /// The same numbers, which the caller knows to be at most `bound` in magnitude: a cheaper
    /// comparison and logarithm than for numbers of unknown size.
    pub fn with_bound(self, bound: f64) -> Self {
        let words = bound.abs() * 2f64.powi(self.frac() as i32) + 1.0;
        mutant!("with_bound: half the bound", words = words / 2.0);
        let width = self.width().min(words.log2().floor() as u32 + 2);
        self.with_width(width)
    }

    /// The share.
    pub fn share(&self) -> &P::Share {
        &self.share
    }

    /// The shape.
    pub fn shape(&self) -> &Shape {
        self.share.shape()
    }

    /// The format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Fraction bits.
    pub fn frac(&self) -> u32 {
        self.format.frac
    }

    /// Every word is below `2^(width - 1)` in magnitude.
    pub fn width(&self) -> u32 {
        self.format.width
    }
}

impl<P: Protocol> PublicTensor<P> {
    /// Words of numbers with `frac` fraction bits.
    pub fn new(words: Words<P>, frac: u32) -> Self {
        Self { words, format: Format::words(frac) }
    }

    /// The same numbers, each word below `2^(width - 1)` in magnitude.
    #[must_use]
    pub fn with_width(self, width: u32) -> Self {
        Self { format: self.format.with_width(width), ..self }
    }

    /// The format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Every word is below `2^(width - 1)` in magnitude.
    pub fn width(&self) -> u32 {
        self.format.width
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
        self.format.frac
    }
}

impl<P: Protocol> Clone for SecretTensor<P> {
    fn clone(&self) -> Self {
        Self { share: self.share.clone(), format: self.format }
    }
}

impl<P: Protocol> Clone for PublicTensor<P> {
    fn clone(&self) -> Self {
        Self { words: self.words.clone(), format: self.format }
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
        write!(f, "SecretTensor({:?}, {} fraction bits)", self.shape(), self.frac())
    }
}

impl<P: Protocol> fmt::Debug for PublicTensor<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicTensor({:?}, {} fraction bits)", self.shape(), self.frac())
    }
}

/// Fraction bits that agree.
pub(crate) fn same_frac(op: &'static str, lhs: u32, rhs: u32) -> Result<u32> {
    if lhs == rhs { Ok(lhs) } else { Err(Error::FracBits { op, lhs, rhs }) }
}
