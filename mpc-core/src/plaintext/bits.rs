//! Bits in the open, one word for each element.

use ring_arith::{BitTensor, Engine, EngineTensor, Shape, Tensor};

use super::{PlainBits, same_shape};
use crate::{Error, Result};

impl PlainBits {
    /// The low `width` bits of words.
    pub(super) fn new(shape: Shape, mut words: Vec<u64>, width: u32) -> Result<Self> {
        if !(1..=64).contains(&width) {
            let reason = format!("{width} bits; a tensor of bits has 1 to 64");
            return Err(Error::Invalid { op: "bits", reason });
        }
        words.iter_mut().for_each(|w| *w &= low(width));
        Ok(Self { words: Tensor::new(shape, words)?, width })
    }

    pub(super) fn to_planes<E: Engine>(&self, engine: &E) -> Result<BitTensor<E::Tensor>> {
        let words = engine.upload(self.words.clone())?;
        let planes = engine.to_planes(&words, 0, self.width)?;
        Ok(BitTensor::new(self.words.shape().clone(), planes)?)
    }

    pub(super) fn from_planes<E: Engine>(engine: &E, value: &BitTensor<E::Tensor>) -> Result<Self> {
        let words = engine.from_planes(value.planes(), 0, value.shape())?;
        let words = engine.download(&words)?.words().to_vec();
        Self::new(value.shape().clone(), words, value.width() as u32)
    }

    pub(super) fn map(&self, width: u32, f: impl Fn(u64) -> u64) -> Result<Self> {
        let words = self.words.words().iter().map(|&w| f(w)).collect();
        Self::new(self.words.shape().clone(), words, width)
    }

    pub(super) fn zip(
        &self,
        op: &'static str,
        other: &Self,
        f: impl Fn(u64, u64) -> u64,
    ) -> Result<Self> {
        same_shape(op, self.words.shape(), other.words.shape())?;
        other.expect_width(op, self.width)?;
        let pairs = self.words.words().iter().zip(other.words.words());
        Self::new(self.words.shape().clone(), pairs.map(|(&a, &b)| f(a, b)).collect(), self.width)
    }

    pub(super) fn expect_width(&self, op: &'static str, width: u32) -> Result<()> {
        if self.width == width {
            return Ok(());
        }
        let reason = format!("bits of width {} where width {width} is needed", self.width);
        Err(Error::Invalid { op, reason })
    }

    pub(super) fn pick(&self, planes: &[Option<u32>]) -> Result<Self> {
        if let Some(j) = planes.iter().flatten().find(|&&j| j >= self.width) {
            let reason = format!("plane {j} of {}", self.width);
            return Err(Error::Invalid { op: "pick planes", reason });
        }
        let bit = |w: u64, (to, from): (usize, &Option<u32>)| {
            from.map_or(0, |from| ((w >> from) & 1) << to)
        };
        let width = u32::try_from(planes.len()).unwrap_or(u32::MAX);
        if width > 64 {
            return Self::new(self.words.shape().clone(), vec![], width);
        }
        self.map(width, |w| planes.iter().enumerate().fold(0, |out, p| out | bit(w, p)))
    }

    pub(super) fn join(xs: &[&Self]) -> Result<Self> {
        let Some((first, rest)) = xs.split_first() else {
            let reason = "nothing to join".to_owned();
            return Err(Error::Invalid { op: "join planes", reason });
        };
        let mut all = (*first).clone();
        for x in rest {
            same_shape("join planes", all.words.shape(), x.words.shape())?;
            let width = all.width + x.width;
            if width > 64 {
                return Self::new(all.words.shape().clone(), vec![], width);
            }
            let pairs = all.words.words().iter().zip(x.words.words());
            let words = pairs.map(|(a, b)| a | b << all.width).collect();
            all = Self::new(all.words.shape().clone(), words, width)?;
        }
        Ok(all)
    }

    pub(super) fn reshape(&self, shape: &Shape) -> Result<Self> {
        if shape.len() != self.words.len() {
            let lhs = self.words.shape().clone();
            return Err(Error::Shapes { op: "reshape bits", lhs, rhs: shape.clone() });
        }
        Ok(Self {
            words: Tensor::from_bytes(shape.clone(), self.words.to_bytes())?,
            width: self.width,
        })
    }

    pub(super) fn rows(&self, places: &[usize]) -> Result<Self> {
        Ok(Self { words: self.words.gather(0, places)?, width: self.width })
    }
}

fn low(width: u32) -> u64 {
    u64::MAX >> (64 - width)
}
