//! Sums of products in the open, and what follows them.

use ring_arith::{Engine, View};

use super::{PlainBits, PlainShare, Plaintext};
use crate::{Error, Finish, Produced, Product, Result, ShareTensor};

impl<E: Engine> Plaintext<E> {
    /// The terms and summands of a product.
    pub(super) fn sum(&self, job: &Product<'_, PlainShare<E>, PlainBits>) -> Result<PlainShare<E>> {
        let mut sum: Option<PlainShare<E>> = None;
        for term in &job.terms {
            let z = self.engine.bilinear(&term.op, &[(&term.lhs.0, &term.rhs.0)], &[])?;
            sum = Some(match sum {
                None => PlainShare(z),
                Some(sum) => self.zip("terms", &sum, &PlainShare(z), u64::wrapping_add)?,
            });
        }
        let Some(mut sum) = sum else {
            let reason = "a product needs at least one term".to_owned();
            return Err(Error::Invalid { op: "product", reason });
        };
        for &(summand, shift) in &job.summands {
            let wide = View::Broadcast(sum.shape().clone());
            let wide = PlainShare(self.engine.view(&summand.0, &wide)?);
            sum = self.zip("summand", &sum, &wide, |a, b| a.wrapping_add(b << shift))?;
        }
        Ok(sum)
    }

    /// What follows the truncation of a product.
    pub(super) fn finished(
        &self,
        share: PlainShare<E>,
        finish: Finish<'_, PlainBits>,
    ) -> Result<Produced<PlainShare<E>, PlainBits>> {
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
        Ok(Produced { share, kept })
    }
}
