//! Sums of products on plain words, and their final steps.

use ring_arith::{Engine, Shape, View};

use super::{PlainBits, PlainShare, Plaintext, exact};
use crate::{Error, Finish, Product, Result, ShareTensor};

impl<E: Engine> Plaintext<E> {
    /// The terms and summands of a product, over the integers or modulo 2^64.
    pub(super) fn sum(
        &self,
        job: &Product<'_, PlainShare<E>, PlainBits>,
    ) -> Result<(Shape, Vec<i128>)> {
        let mut sum: Option<(Shape, Vec<i128>)> = None;
        for term in &job.terms {
            let (shape, values) = self.bilinear(&term.op, &term.lhs.0, &term.rhs.0)?;
            match &mut sum {
                None => sum = Some((shape, values)),
                Some((first, sum)) => {
                    super::same_shape("terms", first, &shape)?;
                    sum.iter_mut().zip(values).for_each(|(z, w)| *z = z.saturating_add(w));
                }
            }
        }
        let Some((shape, mut sum)) = sum else {
            let reason = "a product needs at least one term".to_owned();
            return Err(Error::Invalid { op: "product", reason });
        };
        for &(summand, shift) in &job.summands {
            let wide = self.engine.view(&summand.0, &View::Broadcast(shape.clone()))?;
            let wide = exact::signed(&self.engine, &wide)?;
            sum.iter_mut().zip(wide).for_each(|(z, w)| *z = z.saturating_add(w << shift));
        }
        if self.modular {
            sum.iter_mut().for_each(|z| *z = i128::from(*z as i64));
        }
        Ok((shape, sum))
    }

    /// The final step after the truncation of a product, and the bits that are kept.
    pub(super) fn finished(
        &self,
        share: PlainShare<E>,
        finish: Finish<'_, PlainBits>,
    ) -> Result<(PlainShare<E>, Option<PlainBits>)> {
        let share = match finish {
            Finish::Raw | Finish::Truncate { .. } => share,
            Finish::TruncateRelu { .. } => self.map(&share, |w| (w as i64).max(0) as u64)?,
            Finish::TruncateMask { mask, .. } => self.chosen(mask, &[&share])?.remove(0),
        };
        let kept = match finish {
            Finish::TruncateRelu { keep: true, .. } => {
                let words = self.host(&share)?;
                let positive = words.words().iter().map(|&w| u64::from(w > 0)).collect();
                Some(PlainBits::new(share.shape().clone(), positive, 1)?)
            }
            _ => None,
        };
        Ok((share, kept))
    }
}
