//! A product with its truncation and ReLU, in one round less than one after the other.
//!
//! With an opened sum `x = a + b - 2^64 w`, as in [`crate::truncate`], the quotient is
//! `floor(a / 2^t) + ceil(b / 2^t) - 2^(64-t) w`: a mask that the dealer knows and a public word, but for the wrap. Its low
//! `64 - t` bits do not have the wrap, so its sign is the carry of their sum, and the quotient itself needs no opening. The
//! selecting bit is `r` or `1 - r` by what was opened of it. The quotient's part from `a` is one of two, by the top bit of
//! `b`; the dealer shares `r`, both parts, and `r` times each.

use std::iter;

use mpc_core::{
    Error, Finish, Finishing, FinishingOf, Produced, ProducedBy, Protocol, Result, ShareTensor,
    Sums, TruncationMode, provided,
};
use ring_arith::{Engine, EngineTensor, Shape, Tensor};

use crate::{
    BitShare, Dealt, Share,
    compare::Positions,
    open::Addend,
    share::{Form, Group, Planes, map, zip},
    truncate::{OFFSET, ceiling},
};

/// A sum of which the positive quotients are wanted.
struct Rectified<'a, T> {
    sum: &'a Share<T>,
    /// Bits to drop.
    bits: u32,
    keep: bool,
    sums: Option<Sums<'a>>,
}

/// The words that the dealer shares of an element, in this order.
const WORDS: usize = 5;

impl<E: Engine> Dealt<E> {
    /// The final steps of [`Protocol::products`], for sums that were opened under masks and have their summands.
    pub(crate) fn finish(
        &mut self,
        jobs: &[FinishingOf<'_, Self>],
        sums: Vec<Share<E::Tensor>>,
    ) -> Result<Vec<ProducedBy<Self>>> {
        let mut fused = Vec::new();
        let mut rest = Vec::new();
        let mut rest_sums = Vec::new();
        for (job, sum) in jobs.iter().zip(&sums) {
            match job.finish {
                Finish::TruncateRelu {
                    bits,
                    mode: TruncationMode::Default | TruncationMode::Early,
                    keep,
                } => {
                    provided::check_dropped("truncate", bits)?;
                    fused.push(Rectified { sum, bits, keep, sums: job.sums });
                }
                finish => {
                    rest.push(Finishing { sums: job.sums, ..Finishing::new(finish) });
                    rest_sums.push(sum.clone());
                }
            }
        }
        let mut fused = self.rectify(&fused)?.into_iter();
        let mut rest = provided::finish(self, &rest, rest_sums)?.into_iter();
        let results = jobs.iter().map(|job| match job.finish {
            Finish::TruncateRelu {
                mode: TruncationMode::Default | TruncationMode::Early, ..
            } => fused.next(),
            _ => rest.next(),
        });
        results.map(|result| result.ok_or_else(|| Error::unanswered("products"))).collect()
    }

    /// Quotients where they are positive, else 0. A round for each factor of four in the bits that stay, and one with 64
    /// bits for each.
    fn rectify(&mut self, jobs: &[Rectified<'_, E::Tensor>]) -> Result<Vec<ProducedBy<Self>>> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let public = jobs
            .iter()
            .map(|job| map(&self.download(&job.sum.masked)?, |b| b.wrapping_add(OFFSET)));
        let public = public.collect::<Result<Vec<_>>>()?;
        let not_positive = self.not_positive(jobs, &public)?;
        let quotients = self.selected_quotients(jobs, &public, &not_positive)?;
        let mut addends = Vec::new();
        for (job, Quotients { quotient, positive }) in jobs.iter().zip(quotients) {
            addends.push(Addend::words(positive));
            if let Some(wanted) = job.sums {
                // Sums are linear in the parties' addends.
                let masked = self.upload(Tensor::zeros(quotient.shape().clone()))?;
                let quotient = Share { mask: self.upload(quotient)?, masked };
                let sums = provided::sums(self, &quotient, wanted)?;
                addends.push(Addend::words(self.download(&sums.mask)?));
            }
        }
        let mut opened = self.remask(&addends)?.into_iter().map(|masked| self.share(masked));
        let mut next = || opened.next().ok_or_else(|| Error::unanswered("products"))?;
        let mut results = Vec::with_capacity(jobs.len());
        for (job, bit) in jobs.iter().zip(&not_positive) {
            let share = next()?;
            let sums = job.sums.map(|_| next()).transpose()?;
            let kept = job.keep.then(|| self.not(bit)).transpose()?;
            results.push(Produced { share, sums, kept });
        }
        Ok(results)
    }

    /// The sign of each quotient less one.
    fn not_positive(
        &mut self,
        jobs: &[Rectified<'_, E::Tensor>],
        public: &[Tensor],
    ) -> Result<Vec<BitShare>> {
        let mut forms = Vec::with_capacity(jobs.len());
        for job in jobs {
            let planes = [(64 - job.bits) as usize, job.sum.shape().len().div_ceil(64)];
            forms.push(Form::planes(&Shape::new(planes)?));
        }
        let engine = self.engine.clone();
        let masks = self.deal(&forms, || {
            let planes = jobs.iter().map(|Rectified { sum, bits, .. }| {
                Ok(engine.download(&engine.to_planes(&sum.mask, *bits, 64 - bits)?)?)
            });
            planes.collect()
        })?;
        let mut positions = Vec::with_capacity(jobs.len());
        for ((job, b), mask) in jobs.iter().zip(public).zip(masks) {
            let bits = job.bits;
            let less = map(b, |b| {
                let one = 1;
                mutant!("layer: the sign of the quotient itself", one = 0);
                ceiling(b, bits).wrapping_sub(OFFSET >> bits).wrapping_sub(one)
            })?;
            let public = self.public_bits(&self.upload(less)?, 64 - bits)?.masked;
            let planes = Planes { mask, masked: public.clone() };
            positions.push(Positions { planes, public, shape: job.sum.shape().clone() });
        }
        self.top_bits(positions)
    }

    /// This party's addends of the quotients, and of those that a bit does not mark.
    fn selected_quotients(
        &mut self,
        jobs: &[Rectified<'_, E::Tensor>],
        public: &[Tensor],
        marks: &[BitShare],
    ) -> Result<Vec<Quotients>> {
        let forms = jobs.iter().flat_map(|job| iter::repeat_n(Form::words(job.sum.shape()), WORDS));
        let forms: Vec<_> = forms.collect();
        let masks = jobs.iter().map(|job| self.download(&job.sum.mask));
        let masks = masks.collect::<Result<Vec<_>>>()?;
        let bits = marks.iter().map(|bit| self.words_of_planes(&bit.planes.mask, &bit.shape));
        let bits = bits.collect::<Result<Vec<_>>>()?;
        let dealt = self.deal(&forms, || {
            let mut values = Vec::with_capacity(forms.len());
            for ((job, a), r) in jobs.iter().zip(&masks).zip(&bits) {
                let floor = map(a, |a| a >> job.bits)?;
                // Without and with the wrap that the top bit of the mask makes where the public word has none.
                let wrapped =
                    map(a, |a| (a >> job.bits).wrapping_sub((a >> 63) << (64 - job.bits)))?;
                let times = [&floor, &wrapped].map(|part| zip(part, r, u64::wrapping_mul));
                let [first, second] = times;
                values.extend([r.clone(), floor, wrapped, first?, second?]);
            }
            Ok(values)
        })?;
        let first = self.is_first();
        let mut results = Vec::with_capacity(jobs.len());
        for (((job, b), bit), dealt) in
            jobs.iter().zip(public).zip(marks).zip(dealt.chunks_exact(WORDS))
        {
            let [r, floor, wrapped, r_floor, r_wrapped] = dealt else {
                return Err(Error::unanswered("products"));
            };
            let bits = job.bits;
            let known = map(b, |b| {
                let wrap = if b >> 63 == 1 { 1 << (64 - bits) } else { 0 };
                mutant!("layer: the wrap left out", wrap = 0u64);
                ceiling(b, bits).wrapping_sub(OFFSET >> bits).wrapping_sub(wrap)
            })?;
            let quotient = if_top_bit(b, floor, wrapped)?;
            let quotient = if first { Group::WORDS.add(&quotient, &known)? } else { quotient };
            let of_bit = if_top_bit(b, r_floor, r_wrapped)?;
            let of_bit = Group::WORDS.add(&of_bit, &zip(r, &known, u64::wrapping_mul)?)?;
            // The bit is r where 0 was opened, so that the rest is wanted; else 1 - r.
            let rest = Group::WORDS.subtract(&quotient, &of_bit)?;
            let opened = self.words_of_planes(&bit.planes.masked, &bit.shape)?;
            let rest = zip(&rest, &opened, |rest, v| rest & v.wrapping_sub(1))?;
            let of_bit = zip(&of_bit, &opened, |part, v| part & v.wrapping_neg())?;
            results.push(Quotients { quotient, positive: Group::WORDS.add(&rest, &of_bit)? });
        }
        Ok(results)
    }
}

/// One party's addends of quotients, and of those that are positive.
struct Quotients {
    quotient: Tensor,
    positive: Tensor,
}

/// The words of `set` where the top bit of `b` is 1, else those of `clear`.
fn if_top_bit(b: &Tensor, set: &Tensor, clear: &Tensor) -> Result<Tensor> {
    let difference = zip(set, clear, |x, y| x ^ y)?;
    let taken = zip(&difference, b, |x, b| x & (b >> 63).wrapping_neg())?;
    zip(&taken, clear, |x, y| x ^ y)
}
