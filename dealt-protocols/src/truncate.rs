//! Truncation without large errors, for any number of parties.
//!
//! Let `0 <= x < 2^63` be `a + b - 2^64 w`, with a mask `a` that the dealer knows and a public `b`. The wrap `w` is 1 if `b` has
//! its top bit, and else the top bit of `a`: linear in what the dealer shares. So
//!
//! `x / 2^t = floor(a / 2^t) + ceil(b / 2^t) - 2^(64-t) w`
//!
//! is rounded up with the probability of the fraction, and down else: without bias, and exact on multiples. The wrap
//! changes only the top `t` bits of the result, so it is opened under a mask of `t` bits.

use mpc_core::{Result, ShareTensor, TruncationMode, provided};
use ring_arith::{Engine, EngineTensor};

use crate::{
    Dealt, Share,
    carry::Runs,
    linear::public_planes,
    open::Addend,
    share::{Form, Group, Planes, low, map, zip},
};

/// The number that is added so that a word above `-2^62` is not negative.
pub(crate) const OFFSET: u64 = 1 << 62;

impl<E: Engine> Dealt<E> {
    /// Words divided by `2^bits`, `|x| < 2^62`: floor, or floor + 1 with the probability of the fraction. One round, `bits`
    /// bits an element to each party.
    pub(crate) fn truncate_randomly(
        &mut self,
        jobs: &[(&Share<E::Tensor>, u32)],
    ) -> Result<Vec<Share<E::Tensor>>> {
        let mut forms = Vec::with_capacity(2 * jobs.len());
        let mut wraps = Vec::with_capacity(jobs.len());
        for (x, bits) in jobs {
            let form = Form { group: Group::Words { bits: *bits }, shape: x.shape().clone() };
            forms.extend([form.clone(), Form::words(x.shape())]);
            wraps.push(form);
        }
        // The masks of the wraps, of which the dealer knows the sum.
        let masks = wraps.iter().map(|form| self.random(form)).collect::<Result<Vec<_>>>()?;
        let host = jobs.iter().map(|(x, _)| self.download(&x.mask)).collect::<Result<Vec<_>>>()?;
        let dealt = self.deal(&forms, || {
            let mut values = Vec::with_capacity(forms.len());
            for ((a, mask), (_, bits)) in host.iter().zip(&masks).zip(jobs) {
                values.push(map(a, |a| a >> 63)?);
                values.push(zip(a, mask, |a, r| (a >> bits).wrapping_sub(r << (64 - bits)))?);
            }
            Ok(values)
        })?;
        let mut addends = Vec::with_capacity(jobs.len());
        let mut public = Vec::with_capacity(jobs.len());
        for (((x, bits), mask), dealt) in jobs.iter().zip(&masks).zip(dealt.chunks_exact(2)) {
            let b = map(&self.download(&x.masked)?, |b| b.wrapping_add(OFFSET))?;
            // The part of the wrap that is not public.
            let top = zip(&dealt[0], &b, |top, b| if b >> 63 == 1 { 0 } else { top })?;
            let hiding = mask.clone();
            mutant!(
                "wrap: without a mask",
                hiding = ring_arith::Tensor::zeros(mask.shape().clone())
            );
            let group = Group::Words { bits: *bits };
            addends.push(Addend { group, words: group.subtract(&top, &hiding)? });
            public.push(b);
        }
        let sums = self.open_sums(&addends)?;
        let mut results = Vec::with_capacity(jobs.len());
        for ((((_, bits), b), sum), dealt) in
            jobs.iter().zip(public).zip(sums).zip(dealt.chunks_exact(2))
        {
            let masked = zip(&b, &sum, |b, wrap| {
                let wrap = wrap.wrapping_add(b >> 63);
                mutant!("truncation: the wrap left out", wrap = 0);
                ceiling(b, *bits).wrapping_sub(wrap << (64 - bits)).wrapping_sub(OFFSET >> bits)
            })?;
            let mask = self.upload(dealt[1].clone())?;
            results.push(Share { mask, masked: self.upload(masked)? });
        }
        Ok(results)
    }

    /// The floor of words divided by `2^bits`: the same with the carry out of the bits that are dropped. One round for each
    /// factor of four in `bits`, and one with 64 bits an element to each party.
    pub(crate) fn truncate_exactly(
        &mut self,
        jobs: &[(&Share<E::Tensor>, u32)],
    ) -> Result<Vec<Share<E::Tensor>>> {
        let bits = self.bits_of_masks(jobs)?;
        let mut sums = Vec::with_capacity(jobs.len());
        for ((x, dropped), mask) in jobs.iter().zip(bits) {
            let public = self.download(&self.engine.to_planes(&x.masked, 0, *dropped)?)?;
            let none = Planes::public(1, public.shape().dims()[1], 0)?;
            let propagate = Planes { mask, masked: public.clone() };
            sums.push((Runs::Positions { propagate, public }, none));
        }
        let carries = self.carries_out(sums)?;
        let mut forms = Vec::with_capacity(3 * jobs.len());
        jobs.iter().for_each(|(x, _)| forms.extend((0..3).map(|_| Form::words(x.shape()))));
        let masks = jobs.iter().map(|(x, _)| self.download(&x.mask)).collect::<Result<Vec<_>>>()?;
        let carry_masks = carries.iter().zip(jobs);
        let carry_masks =
            carry_masks.map(|(carry, (x, _))| self.words_of_planes(&carry.mask, x.shape()));
        let carry_masks = carry_masks.collect::<Result<Vec<_>>>()?;
        let dealt = self.deal(&forms, || {
            let mut values = Vec::with_capacity(forms.len());
            for ((a, carry), (_, dropped)) in masks.iter().zip(carry_masks).zip(jobs) {
                values.push(map(a, |a| a >> 63)?);
                values.push(map(a, |a| a >> dropped)?);
                values.push(carry);
            }
            Ok(values)
        })?;
        let first = self.is_first();
        let mut addends = Vec::with_capacity(jobs.len());
        for (((x, dropped), carry), dealt) in jobs.iter().zip(&carries).zip(dealt.chunks_exact(3)) {
            let b = map(&self.download(&x.masked)?, |b| b.wrapping_add(OFFSET))?;
            let shift = *dropped;
            let upper = zip(&dealt[0], &b, |top, b| match b >> 63 {
                0 => 0u64.wrapping_sub(top << (64 - shift)),
                _ if first => 0u64.wrapping_sub(1 << (64 - shift)),
                _ => 0,
            })?;
            let upper = zip(&upper, &b, |upper, b| {
                let public = (b >> shift).wrapping_sub(OFFSET >> shift);
                if first { upper.wrapping_add(public) } else { upper }
            })?;
            let opened = self.words_of_planes(&carry.masked, x.shape())?;
            let carry = zip(&dealt[2], &opened, |bit, v| bit_as_word(bit, v, first))?;
            let sum = zip(&upper, &dealt[1], u64::wrapping_add)?;
            addends.push(Addend::words(zip(&sum, &carry, u64::wrapping_add)?));
        }
        self.remask(&addends)?.into_iter().map(|masked| self.share(masked)).collect()
    }

    pub(crate) fn truncate_by(
        &mut self,
        jobs: &[(&Share<E::Tensor>, u32)],
        mode: TruncationMode,
    ) -> Result<Vec<Share<E::Tensor>>> {
        jobs.iter().try_for_each(|&(_, bits)| provided::check_dropped("truncate", bits))?;
        match mode {
            TruncationMode::Default | TruncationMode::Early => self.truncate_randomly(jobs),
            TruncationMode::Exact => self.truncate_exactly(jobs),
            TruncationMode::Dither | TruncationMode::Aby3Local => {
                let reason = format!("masked sharing does not truncate in mode {mode:?}");
                Err(crate::invalid("truncate", reason))
            }
        }
    }

    /// The planes of public words.
    pub(crate) fn public_bits(&self, words: &E::Tensor, width: u32) -> Result<Planes> {
        Ok(public_planes(self.download(&self.engine.to_planes(words, 0, width)?)?))
    }
}

/// `b / 2^bits`, rounded up.
pub(crate) fn ceiling(b: u64, bits: u32) -> u64 {
    (b >> bits) + u64::from(low(b, bits) != 0)
}

/// This party's addend of the word `bit ^ v`, of its addend of the word `bit` and a public bit `v`.
pub(crate) fn bit_as_word(bit: u64, v: u64, first: bool) -> u64 {
    match (v & 1, first) {
        (0, _) => bit,
        (_, true) => 1u64.wrapping_sub(bit),
        (_, false) => bit.wrapping_neg(),
    }
}
