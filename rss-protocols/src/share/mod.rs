//! Shares: one party's components of a shared tensor.

pub(crate) mod combined;
pub(crate) mod output;
pub(crate) mod reusable;

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use mpc_core::{ShareBits, ShareTensor};
use ring_arith::{BitTensor, EngineTensor, Error, Result, Shape};

use combined::{Inner, Side};
use reusable::ReusableBit;

/// One party's two of the three components of a shared tensor of words: party `i` holds components
/// `i` (`mine`) and `i + 1` (`next`). The secret is the sum of all three modulo 2^64 (Araki et al.,
/// CCS 2016).
///
/// Clones share their words. They also share the combinations of both components that products have
/// made.
#[derive(Clone)]
#[must_use]
pub struct Share<T> {
    mine: T,
    next: T,
    combined: Arc<[OnceLock<Combined<T>>; 2]>,
}

/// Both components combined for a product that sums over an axis, or over one index alone.
struct Combined<T> {
    inner: Option<Inner>,
    words: T,
}

/// One party's two of the three components of a shared tensor of bits; the secret is their
/// exclusive or. Bits that a comparison opened remember it, which makes selections by them cheaper.
#[derive(Clone)]
#[must_use]
pub struct BitShare<T> {
    mine: BitTensor<T>,
    next: BitTensor<T>,
    /// The part of an opening comparison that selections can use again, if there was one.
    reusable: Option<ReusableBit<T>>,
}

impl<T: EngineTensor> Share<T> {
    /// Puts two components together.
    ///
    /// # Errors
    /// [`Error::Shapes`] if their shapes differ.
    pub fn new(mine: T, next: T) -> Result<Self> {
        if mine.shape() != next.shape() {
            let (lhs, rhs) = (mine.shape().clone(), next.shape().clone());
            return Err(Error::Shapes { op: "share", lhs, rhs });
        }
        Ok(Self { mine, next, combined: Arc::default() })
    }

    /// Does the same to both components.
    pub(crate) fn each(&self, step: impl Fn(&T) -> Result<T>) -> Result<Self> {
        Self::new(step(&self.mine)?, step(&self.next)?)
    }

    /// Combines the components of two shares.
    pub(crate) fn with(&self, other: &Self, step: impl Fn(&T, &T) -> Result<T>) -> Result<Self> {
        Self::new(step(&self.mine, &other.mine)?, step(&self.next, &other.next)?)
    }

    /// This party's own component. Alone it reveals nothing about the secret.
    pub fn mine(&self) -> &T {
        &self.mine
    }

    /// The component of the party after this one. Together with [`Share::mine`] it still reveals
    /// nothing.
    pub fn next(&self) -> &T {
        &self.next
    }

    /// Both components as one operand of a product, made once for all clones of this share unless
    /// products over different axes need it.
    pub(crate) fn combined(
        &self,
        side: Side,
        inner: Option<Inner>,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let slot = &self.combined[side as usize];
        if let Some(known) = slot.get().filter(|known| known.inner == inner) {
            return Ok(known.words.clone());
        }
        let words = make()?;
        // If another one was stored first, only this product uses this one.
        let _ = slot.set(Combined { inner, words: words.clone() });
        Ok(words)
    }
}

impl<T: EngineTensor> BitShare<T> {
    /// Puts two components together.
    ///
    /// # Errors
    /// [`Error::Shapes`] or [`Error::Invalid`] if their shapes or widths differ.
    pub fn new(mine: BitTensor<T>, next: BitTensor<T>) -> Result<Self> {
        if mine.shape() != next.shape() {
            let (lhs, rhs) = (mine.shape().clone(), next.shape().clone());
            return Err(Error::Shapes { op: "bit share", lhs, rhs });
        }
        if mine.width() != next.width() {
            let reason = format!("components of {} and {} bits", mine.width(), next.width());
            return Err(Error::Invalid { op: "bit share", reason });
        }
        Ok(Self { mine, next, reusable: None })
    }

    /// The same bits, which selections can use again.
    pub(crate) fn reusable_as(self, bit: ReusableBit<T>) -> Self {
        Self { reusable: Some(bit), ..self }
    }

    /// The part of these bits that selections can use again.
    pub(crate) fn reusable(&self) -> Option<&ReusableBit<T>> {
        self.reusable.as_ref()
    }

    /// Does the same to the planes of both components; their number and the shape may change.
    pub(crate) fn each(&self, shape: &Shape, step: impl Fn(&T) -> Result<T>) -> Result<Self> {
        let mine = BitTensor::new(shape.clone(), step(self.mine.planes())?)?;
        Self::new(mine, BitTensor::new(shape.clone(), step(self.next.planes())?)?)
    }

    /// This party's own component.
    pub fn mine(&self) -> &BitTensor<T> {
        &self.mine
    }

    /// The component of the party after this one.
    pub fn next(&self) -> &BitTensor<T> {
        &self.next
    }
}

impl<T: EngineTensor> ShareTensor for Share<T> {
    fn shape(&self) -> &Shape {
        self.mine.shape()
    }
}

impl<T: EngineTensor> ShareTensor for BitShare<T> {
    fn shape(&self) -> &Shape {
        self.mine.shape()
    }
}

impl<T: EngineTensor> ShareBits for BitShare<T> {
    fn width(&self) -> usize {
        self.mine.width()
    }
}

/// Shows the shape alone.
impl<T: EngineTensor> fmt::Debug for Share<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Share({:?})", self.mine.shape())
    }
}

/// Shows shape and width alone.
impl<T: EngineTensor> fmt::Debug for BitShare<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BitShare({:?}, {} bits)", self.mine.shape(), self.mine.width())
    }
}
