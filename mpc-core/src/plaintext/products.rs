//! Sums of products on plain words, and their final steps.

use ring_arith::{Engine, Shape, View};

use super::{PlainBits, PlainShare, Plaintext, exact};
use crate::{Finish, Finishing, Produced, Result, ShareTensor, Term, provided};

/// The steps after a sum of plain words, and the answer.
type PlainFinishing<'a, E> = Finishing<'a, PlainShare<E>, PlainBits>;
type Answer<E> = Produced<PlainShare<E>, PlainBits>;

impl<E: Engine> Plaintext<E> {
    /// The sum of terms, over the integers or modulo 2^64.
    pub(super) fn sum(&self, terms: &[Term<'_, PlainShare<E>>]) -> Result<(Shape, Vec<i128>)> {
        let shape = provided::shape_of_sum(terms)?;
        let mut sum = vec![0; shape.len()];
        for term in terms {
            let (_, values) = self.bilinear(&term.op, &term.lhs.0, &term.rhs.0)?;
            sum.iter_mut().zip(values).for_each(|(z, w): (&mut i128, _)| *z = z.saturating_add(w));
        }
        Ok((shape, sum))
    }

    /// Adds summands to a sum, and takes the final steps.
    pub(super) fn finish(
        &mut self,
        (shape, mut sum): (Shape, Vec<i128>),
        job: &PlainFinishing<'_, E>,
    ) -> Result<Answer<E>> {
        provided::check_summands(job, &shape)?;
        for &(summand, shift) in &job.summands {
            let wide = self.engine.view(&summand.0, &View::Broadcast(shape.clone()))?;
            let wide = exact::signed(&self.engine, &wide)?;
            sum.iter_mut().zip(wide).for_each(|(z, w)| *z = z.saturating_add(w << shift));
        }
        if self.modular {
            sum.iter_mut().for_each(|z| *z = i128::from(*z as i64));
        }
        let share = match job.finish.truncation() {
            None => self.exactly("product", &shape, sum)?,
            Some((bits, mode)) => self.truncated("product", &shape, &sum, bits, mode)?,
        };
        let sums = job.sums.map(|wanted| provided::sums(self, &share, wanted)).transpose()?;
        let (share, kept) = self.finished(share, job.finish)?;
        Ok(Produced { share, sums, kept })
    }

    /// The final step after the truncation of a product, and the bits that are kept.
    fn finished(
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
