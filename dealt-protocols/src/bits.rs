//! Gates, and words from bits: conversions, weighted sums, selections.

use mpc_core::{Compare, Compared, Error, Result, ShareBits, provided};
use ring_arith::{Engine, Shape, Tensor};

use crate::{
    BitShare, Dealt, Share, invalid,
    linear::same_shape,
    monomials::Monomials,
    open::Addend,
    share::{Form, Group, map, zip},
    truncate::bit_as_word,
};

/// The results that are wanted of a bit and of some words of its shape.
pub(crate) struct Uses<'a, T> {
    pub(crate) bit: &'a BitShare,
    /// The bit as a word.
    pub(crate) word: bool,
    /// Words to multiply by the bit.
    pub(crate) times: Vec<&'a Share<T>>,
}

impl<E: Engine> Dealt<E> {
    /// Gates: one round, one bit for each to each party.
    pub(crate) fn gates(&mut self, jobs: &[(&BitShare, &BitShare)]) -> Result<Vec<BitShare>> {
        let mut factors = Vec::with_capacity(jobs.len());
        for (x, y) in jobs {
            same_shape("and", *x, *y)?;
            if x.width() != y.width() {
                let reason = format!("{} bits and {} bits", x.width(), y.width());
                return Err(invalid("and", reason));
            }
            factors.push([x.planes.clone(), y.planes.clone()]);
        }
        let products = factors.iter().map(|factors| Monomials { factors, wanted: &[0b11] });
        let products = self.monomials(&products.collect::<Vec<_>>())?;
        let addends: Vec<_> = products.into_iter().flatten().map(Addend::planes).collect();
        let opened = self.remask(&addends)?;
        let bits = opened.into_iter().zip(jobs);
        bits.map(|(bits, (x, _))| BitShare::new(&x.shape, bits.into())).collect()
    }

    /// Each plane as words 0 or 1: this party's addends. With a mask `r`, which the dealer shares as a word, and an opened `v`,
    /// the bit is `r` if `v` is 0, and else `1 - r`.
    fn planes_as_words(&mut self, jobs: &[&BitShare]) -> Result<Vec<Vec<Tensor>>> {
        let forms =
            jobs.iter().flat_map(|bits| (0..bits.width()).map(|_| Form::words(&bits.shape)));
        let forms: Vec<_> = forms.collect();
        let masks = jobs.iter().map(|bits| self.words_of_planes(&bits.planes.mask, &bits.shape));
        let masks = masks.collect::<Result<Vec<_>>>()?;
        let dealt = self.deal(&forms, || {
            let planes = masks.iter().zip(jobs).flat_map(|(mask, bits)| {
                (0..bits.width()).map(move |j| map(mask, |word| word >> j & 1))
            });
            planes.collect()
        })?;
        let mut dealt = dealt.iter();
        let first = self.is_first();
        let mut results = Vec::with_capacity(jobs.len());
        for bits in jobs {
            let opened = self.words_of_planes(&bits.planes.masked, &bits.shape)?;
            let planes = dealt.by_ref().take(bits.width()).enumerate();
            let words = planes.map(|(j, r)| zip(r, &opened, |r, v| bit_as_word(r, v >> j, first)));
            results.push(words.collect::<Result<Vec<_>>>()?);
        }
        Ok(results)
    }

    /// Planes as words of this shape.
    pub(crate) fn words_of_planes(&self, planes: &Tensor, shape: &Shape) -> Result<Tensor> {
        let planes = self.upload(planes.clone())?;
        self.download(&self.engine.from_planes(&planes, 0, shape)?)
    }

    /// Each plane as words. One round, 64 bits for each plane to each party.
    pub(crate) fn words(&mut self, jobs: &[&BitShare]) -> Result<Vec<Vec<Share<E::Tensor>>>> {
        let addends = self.planes_as_words(jobs)?.into_iter().flatten().map(Addend::words);
        let mut opened = self.remask(&addends.collect::<Vec<_>>())?.into_iter();
        let mut results = Vec::with_capacity(jobs.len());
        for bits in jobs {
            let words = opened.by_ref().take(bits.width()).map(|word| self.share(word));
            results.push(words.collect::<Result<Vec<_>>>()?);
        }
        Ok(results)
    }

    /// Weighted sums of planes. One round, 64 bits for each sum to each party.
    pub(crate) fn sums_of_bits(
        &mut self,
        jobs: &[(&BitShare, &[&[u64]])],
    ) -> Result<Vec<Vec<Share<E::Tensor>>>> {
        for (bits, sums) in jobs {
            let width = bits.width();
            if let Some(sum) = sums.iter().find(|sum| sum.len() != width) {
                let reason = format!("{} coefficients for {width} planes", sum.len());
                return Err(invalid("bit sums", reason));
            }
        }
        let bits: Vec<_> = jobs.iter().map(|(bits, _)| *bits).collect();
        let mut addends = Vec::new();
        for (planes, (bits, sums)) in self.planes_as_words(&bits)?.iter().zip(jobs) {
            for weights in *sums {
                let mut sum = Tensor::zeros(bits.shape.clone());
                for (plane, &c) in planes.iter().zip(*weights) {
                    sum = zip(&sum, plane, |sum, x| sum.wrapping_add(c.wrapping_mul(x)))?;
                }
                addends.push(Addend::words(sum));
            }
        }
        let mut opened = self.remask(&addends)?.into_iter();
        let mut results = Vec::with_capacity(jobs.len());
        for (_, sums) in jobs {
            let sums = opened.by_ref().take(sums.len()).map(|sum| self.share(sum));
            results.push(sums.collect::<Result<Vec<_>>>()?);
        }
        Ok(results)
    }

    /// Bits as words, and their products with words. One round, 64 bits for each to each party.
    ///
    /// A bit is `r` or `1 - r` by what was opened of it, and a word `a + b` with a public `b`. The dealer shares `r`, and
    /// `r a` for each word.
    pub(crate) fn use_bits(
        &mut self,
        jobs: &[Uses<'_, E::Tensor>],
    ) -> Result<Vec<Vec<Share<E::Tensor>>>> {
        let mut forms = Vec::new();
        for job in jobs {
            if job.bit.width() != 1 {
                let reason = format!("the selecting bits have width {}, not 1", job.bit.width());
                return Err(invalid("select", reason));
            }
            job.times.iter().try_for_each(|x| same_shape("select", job.bit, *x))?;
            forms.extend((0..=job.times.len()).map(|_| Form::words(&job.bit.shape)));
        }
        let masks =
            jobs.iter().map(|job| self.words_of_planes(&job.bit.planes.mask, &job.bit.shape));
        let masks = masks.collect::<Result<Vec<_>>>()?;
        let engine = self.engine.clone();
        let dealt = self.deal(&forms, || {
            let mut values = Vec::with_capacity(forms.len());
            for (mask, job) in masks.iter().zip(jobs) {
                values.push(mask.clone());
                for x in &job.times {
                    values.push(zip(mask, &engine.download(&x.mask)?, u64::wrapping_mul)?);
                }
            }
            Ok(values)
        })?;
        let mut dealt = dealt.iter();
        let first = self.is_first();
        let mut addends = Vec::new();
        let unanswered = || Error::unanswered("select");
        for job in jobs {
            let opened = self.words_of_planes(&job.bit.planes.masked, &job.bit.shape)?;
            let mask = dealt.next().ok_or_else(unanswered)?;
            if job.word {
                addends.push(Addend::words(zip(mask, &opened, |r, v| bit_as_word(r, v, first))?));
            }
            for x in &job.times {
                let of_masks = dealt.next().ok_or_else(unanswered)?;
                let public = self.download(&x.masked)?;
                // r x, of which x or its negative is taken.
                let part = zip(mask, &public, u64::wrapping_mul)?;
                let part = Group::WORDS.add(&part, of_masks)?;
                let whole = self.download(&self.addend_of(x)?)?;
                let rest = Group::WORDS.subtract(&whole, &part)?;
                let rest = zip(&rest, &opened, |rest, v| rest & v.wrapping_neg())?;
                let part = zip(&part, &opened, |part, v| part & v.wrapping_sub(1))?;
                addends.push(Addend::words(Group::WORDS.add(&part, &rest)?));
            }
        }
        let mut opened = self.remask(&addends)?.into_iter();
        let mut results = Vec::with_capacity(jobs.len());
        for job in jobs {
            let words = opened.by_ref().take(usize::from(job.word) + job.times.len());
            results.push(words.map(|word| self.share(word)).collect::<Result<Vec<_>>>()?);
        }
        Ok(results)
    }

    /// Comparisons with zero: the signs, then one round for all that follows from them.
    pub(crate) fn comparisons(
        &mut self,
        jobs: &[Compare<'_, Share<E::Tensor>>],
    ) -> Result<Vec<Compared<Share<E::Tensor>, BitShare>>> {
        jobs.iter().try_for_each(provided::check_compare)?;
        let values: Vec<_> = jobs.iter().map(|job| (job.value, job.width)).collect();
        let signs = self.signs(&values)?;
        let uses = jobs.iter().zip(&signs).map(|(job, bit)| Uses {
            bit,
            word: job.then.word,
            times: [job.then.negative, job.then.not_negative].concat(),
        });
        let mut uses: Vec<_> = uses.collect();
        uses.retain(|uses| uses.word || !uses.times.is_empty());
        let mut made = self.use_bits(&uses)?.into_iter();
        let mut results = Vec::with_capacity(jobs.len());
        for (job, sign) in jobs.iter().zip(&signs) {
            let then = &job.then;
            let used = then.word || !then.negative.is_empty() || !then.not_negative.is_empty();
            let made = if used { made.next().unwrap_or_default() } else { vec![] };
            let mut made = made.into_iter();
            let word = if then.word { made.next() } else { None };
            let negative = made.by_ref().take(then.negative.len()).collect();
            let others = made.zip(then.not_negative);
            let others = others.map(|(part, x)| self.difference(x, &part));
            results.push(Compared {
                bit: then.bit.then(|| sign.clone()),
                word,
                negative,
                not_negative: others.collect::<Result<_>>()?,
            });
        }
        Ok(results)
    }

    fn difference(&self, x: &Share<E::Tensor>, y: &Share<E::Tensor>) -> Result<Share<E::Tensor>> {
        let mask = self.zip_words(&x.mask, &y.mask, u64::wrapping_sub)?;
        Ok(Share { mask, masked: self.zip_words(&x.masked, &y.masked, u64::wrapping_sub)? })
    }
}
