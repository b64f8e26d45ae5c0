//! Signs, tests for zero, and the bits of words: from the sum of a mask, whose bits the dealer shares, and a public word.

use mpc_core::{Result, ShareTensor};
use ring_arith::{Engine, Shape, Tensor};

use crate::{
    BitShare, Dealt, Share,
    carry::Runs,
    invalid,
    monomials::Monomials,
    open::Addend,
    share::{Form, Planes},
};

/// Words, and the number of their low bits that count.
type Widths<'a, T> = [(&'a Share<T>, u32)];

/// The positions of a sum of a mask and a public word.
pub(crate) struct Positions {
    /// The planes of `mask ^ masked`.
    pub(crate) planes: Planes,
    /// The planes of the public word.
    pub(crate) public: Tensor,
    /// The shape of the words.
    pub(crate) shape: Shape,
}

impl<E: Engine> Dealt<E> {
    /// This party's addends of the planes of masks; at the dealer the planes.
    pub(crate) fn bits_of_masks(&mut self, jobs: &Widths<'_, E::Tensor>) -> Result<Vec<Tensor>> {
        let mut forms = Vec::with_capacity(jobs.len());
        for (x, width) in jobs {
            if !(1..=64).contains(width) {
                return Err(invalid("bits", format!("width {width} is not 1 to 64")));
            }
            let planes = Shape::new([*width as usize, x.shape().len().div_ceil(64)])?;
            forms.push(Form::planes(&planes));
        }
        let engine = self.engine.clone();
        self.deal(&forms, || {
            let planes = jobs
                .iter()
                .map(|(x, width)| Ok(engine.download(&engine.to_planes(&x.mask, 0, *width)?)?));
            planes.collect()
        })
    }

    /// The positions of the sums of masks and public words.
    fn positions(&mut self, jobs: &Widths<'_, E::Tensor>) -> Result<Vec<Positions>> {
        let masks = self.bits_of_masks(jobs)?;
        let mut positions = Vec::with_capacity(jobs.len());
        for ((x, width), mask) in jobs.iter().zip(masks) {
            let public = self.download(&self.engine.to_planes(&x.masked, 0, *width)?)?;
            let planes = Planes { mask, masked: public.clone() };
            positions.push(Positions { planes, public, shape: x.shape().clone() });
        }
        Ok(positions)
    }

    /// Bit `width - 1` of each word. A round for each factor of four in `width - 1`.
    pub(crate) fn signs(&mut self, jobs: &Widths<'_, E::Tensor>) -> Result<Vec<BitShare>> {
        let positions = self.positions(jobs)?;
        self.top_bits(positions)
    }

    /// The top bit of each sum. A round for each factor of four in the number of positions below.
    pub(crate) fn top_bits(&mut self, sums: Vec<Positions>) -> Result<Vec<BitShare>> {
        let mut signs = Vec::with_capacity(sums.len());
        let mut carried = Vec::with_capacity(sums.len());
        let mut shapes = Vec::with_capacity(sums.len());
        for Positions { planes, public, shape } in sums {
            shapes.push(shape);
            let below = planes.count() - 1;
            let top = planes.slice(below, below + 1)?;
            if below > 0 {
                let propagate = planes.slice(0, below)?;
                let public = public.slice(0, 0, below)?;
                carried.push((Runs::Positions { propagate, public }, top));
                signs.push(None);
            } else {
                signs.push(Some(top));
            }
        }
        let mut made = self.carries_out(carried)?.into_iter();
        let signs = signs.into_iter().zip(shapes).map(|(sign, shape)| {
            let sign = sign.or_else(|| made.next());
            let sign = sign.ok_or_else(|| mpc_core::Error::unanswered("signs"))?;
            BitShare::new(&shape, sign)
        });
        signs.collect()
    }

    /// The low bits of each word. A round for each factor of four in `width - 1`.
    pub(crate) fn all_bits(&mut self, jobs: &Widths<'_, E::Tensor>) -> Result<Vec<BitShare>> {
        let positions = self.positions(jobs)?;
        let mut sums = Vec::new();
        for Positions { planes, public, .. } in &positions {
            if planes.count() == 1 {
                continue;
            }
            let below = planes.count() - 1;
            let propagate = planes.slice(0, below)?;
            sums.push(Runs::Positions { propagate, public: public.slice(0, 0, below)? });
        }
        let mut carries =
            if sums.is_empty() { vec![] } else { self.all_carries(sums)? }.into_iter();
        let mut results = Vec::with_capacity(jobs.len());
        for Positions { planes, shape, .. } in positions {
            let bits = if planes.count() == 1 {
                planes
            } else {
                let none = Planes::public(1, planes.shape().dims()[1], 0)?;
                let carries =
                    carries.next().ok_or_else(|| mpc_core::Error::unanswered("to bits"))?;
                planes.xor(&Planes::concat(&[&none, &carries])?)?
            };
            results.push(BitShare::new(&shape, bits)?);
        }
        Ok(results)
    }

    /// The test whether the low bits of each word are all 0: those of the mask are those of the negated public word. A round for
    /// each factor of four in the width.
    pub(crate) fn zeros(&mut self, jobs: &Widths<'_, E::Tensor>) -> Result<Vec<BitShare>> {
        let masks = self.bits_of_masks(jobs)?;
        let mut left = Vec::with_capacity(jobs.len());
        for ((x, width), mask) in jobs.iter().zip(masks) {
            let negated = self.map_words(&x.masked, u64::wrapping_neg)?;
            let masked = self.public_bits(&negated, *width)?.masked;
            left.push(Planes { mask, masked }.flip(u64::MAX)?);
        }
        self.all_ones(left)?
            .into_iter()
            .zip(jobs)
            .map(|(bit, (x, _))| BitShare::new(x.shape(), bit))
            .collect()
    }

    /// The product of all planes, four by four.
    fn all_ones(&mut self, mut bits: Vec<Planes>) -> Result<Vec<Planes>> {
        loop {
            let left: Vec<_> = (0..bits.len()).filter(|&i| bits[i].count() > 1).collect();
            if left.is_empty() {
                return Ok(bits);
            }
            let mut fours = Vec::with_capacity(left.len());
            for &i in &left {
                let count = bits[i].count();
                let words = bits[i].shape().dims()[1];
                let all = match count.next_multiple_of(4) - count {
                    0 => bits[i].clone(),
                    more => Planes::concat(&[&bits[i], &Planes::public(more, words, u64::MAX)?])?,
                };
                let planes = |k| (k..all.count()).step_by(4).collect::<Vec<_>>();
                fours.push((0..4).map(|k| all.gather(&planes(k))).collect::<Result<Vec<_>>>()?);
            }
            let jobs = fours.iter().map(|factors| Monomials { factors, wanted: &[0b1111] });
            let products = self.monomials(&jobs.collect::<Vec<_>>())?;
            let addends: Vec<_> = products.into_iter().flatten().map(Addend::planes).collect();
            for (&i, opened) in left.iter().zip(self.remask(&addends)?) {
                bits[i] = opened.into();
            }
        }
    }
}
