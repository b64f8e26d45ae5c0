//! Linear maps of words and of bits: local, on masks and masked tensors alike.

use mpc_core::{BitMap, Error, Linear, Result, ShareTensor};
use ring_arith::{BitTensor, Engine, EngineTensor, Tensor, View};

use crate::{
    BitShare, Dealt, Share, invalid,
    share::{Planes, map, zip},
};

impl<E: Engine> Dealt<E> {
    pub(crate) fn linear_map(
        &self,
        how: &Linear<'_, E::Tensor>,
        x: &Share<E::Tensor>,
    ) -> Result<Share<E::Tensor>> {
        let engine = &self.engine;
        let keep = |masked| Ok(Share { mask: x.mask.clone(), masked });
        let both = |f: &dyn Fn(&E::Tensor) -> ring_arith::Result<E::Tensor>| {
            Ok(Share { mask: f(&x.mask)?, masked: f(&x.masked)? })
        };
        match *how {
            Linear::Negate => self.each_word(x, u64::wrapping_neg),
            Linear::Scale(c) => self.each_word(x, |word| word.wrapping_mul(c)),
            Linear::Shift(c) => keep(self.map_words(&x.masked, |word| word.wrapping_add(c))?),
            Linear::AddPublic(c) => keep(self.zip_words(&x.masked, c, u64::wrapping_add)?),
            Linear::TimesPublic(op, c) => both(&|part| engine.bilinear(op, &[(part, c)], &[])),
            Linear::PublicTimes(op, c) => both(&|part| engine.bilinear(op, &[(c, part)], &[])),
            Linear::View(view @ View::Pad { before, after, .. }) => {
                let zeros = View::Pad { before: before.clone(), after: after.clone(), value: 0 };
                let mask = engine.view(&x.mask, &zeros)?;
                Ok(Share { mask, masked: engine.view(&x.masked, view)? })
            }
            Linear::View(view) => both(&|part| engine.view(part, view)),
            Linear::Sum(axes) => both(&|part| engine.sum(part, axes)),
            Linear::WindowSum(window) => both(&|part| engine.window_sum(part, window)),
        }
    }

    fn each_word(&self, x: &Share<E::Tensor>, f: impl Fn(u64) -> u64) -> Result<Share<E::Tensor>> {
        let mask = self.map_words(&x.mask, &f)?;
        Ok(Share { mask, masked: self.map_words(&x.masked, &f)? })
    }

    pub(crate) fn map_words(&self, x: &E::Tensor, f: impl Fn(u64) -> u64) -> Result<E::Tensor> {
        self.upload(map(&self.download(x)?, f)?)
    }

    pub(crate) fn zip_words(
        &self,
        x: &E::Tensor,
        y: &E::Tensor,
        f: impl Fn(u64, u64) -> u64,
    ) -> Result<E::Tensor> {
        self.upload(zip(&self.download(x)?, &self.download(y)?, f)?)
    }

    pub(crate) fn linear_map_of_bits(&self, how: &BitMap<'_, BitShare>) -> Result<BitShare> {
        match *how {
            BitMap::Xor(x, y) => {
                same_shape("xor", x, y)?;
                BitShare::new(&x.shape, x.planes.xor(&y.planes)?)
            }
            BitMap::Not(x) => BitShare::new(&x.shape, x.planes.flip(u64::MAX)?),
            BitMap::Pick(x, picked) => {
                let width = x.planes.count();
                if picked.iter().flatten().any(|&j| j as usize >= width) {
                    return Err(invalid("pick planes", format!("{picked:?} of {width}")));
                }
                // A plane of zeros follows the others, for those that are not picked.
                let zero = Planes::public(1, x.planes.shape().dims()[1], 0)?;
                let all = Planes::concat(&[&x.planes, &zero])?;
                let indices = picked.iter().map(|j| j.map_or(width, |j| j as usize));
                BitShare::new(&x.shape, all.gather(&indices.collect::<Vec<_>>())?)
            }
            BitMap::Join(xs) => {
                let &first = xs.first().ok_or_else(|| invalid("join planes", "nothing to join"))?;
                xs.iter().try_for_each(|x| same_shape("join planes", first, *x))?;
                let parts: Vec<_> = xs.iter().map(|x| &x.planes).collect();
                BitShare::new(&first.shape, Planes::concat(&parts)?)
            }
            BitMap::Reshape(x, shape) => {
                if x.shape.len() != shape.len() {
                    let reason = format!("{:?} has not the length of {shape:?}", x.shape);
                    return Err(invalid("reshape bits", reason));
                }
                BitShare::new(shape, x.planes.clone())
            }
            BitMap::Rows(x, places) => {
                let rows = |planes: &Tensor| {
                    let bits = BitTensor::new(x.shape.clone(), self.upload(planes.clone())?)?;
                    bits.rows(&self.engine, places).map_err(Error::from)
                };
                let mask = rows(&x.planes.mask)?;
                let masked = rows(&x.planes.masked)?;
                let planes = Planes {
                    mask: self.download(mask.planes())?,
                    masked: self.download(masked.planes())?,
                };
                BitShare::new(mask.shape(), planes)
            }
        }
    }
}

/// Planes of zeros as the mask of public ones.
pub(crate) fn public_planes(planes: Tensor) -> Planes {
    Planes { mask: Tensor::zeros(planes.shape().clone()), masked: planes }
}

pub(crate) fn same_shape(
    op: &'static str,
    x: &impl ShareTensor,
    y: &impl ShareTensor,
) -> Result<()> {
    if x.shape() == y.shape() {
        return Ok(());
    }
    Err(Error::Shapes { op, lhs: x.shape().clone(), rhs: y.shape().clone() })
}
