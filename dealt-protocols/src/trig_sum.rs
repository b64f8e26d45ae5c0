//! Sums of sines and cosines.
//!
//! A word is `a + b`, with a mask `a` that the dealer knows and a public `b`. `cos(w (a + b))` and `sin(w (a + b))` are sums of
//! products of `cos(w a)` and `sin(w a)`, which the dealer shares, with what all parties know of `b`. So any number of terms
//! takes one opening. A turn is `2^64`, and overflow does not matter. The sum is truncated as a product is; the lines outside of
//! two ends are selected by comparisons with both.

use std::num::Wrapping;

use mpc_core::{
    Ends, Error, Line, Linear, Protocol, Result, ShareTensor, TrigSum, TruncationMode,
    angles::{dealt_bits, factors, share_bits, sines_of_mask},
};
use ring_arith::{Engine, EngineTensor, Shape, Tensor};

use crate::{
    BitShare, Dealt, Share,
    compare::Positions,
    open::Addend,
    share::{Form, Group, Planes, low, zip},
};

impl<E: Engine> Dealt<E> {
    /// A sum of sines and cosines of words of a width; `None` where roundings are not the protocol's own.
    pub(crate) fn trig_sum_of(
        &mut self,
        x: &Share<E::Tensor>,
        width: u32,
        function: &TrigSum,
    ) -> Result<Option<Share<E::Tensor>>> {
        let is_own = |mode| matches!(mode, TruncationMode::Default | TruncationMode::Early);
        if ![self.truncation, function.mode].into_iter().all(is_own) {
            return Ok(None);
        }
        function.check()?;
        let addends = self.addends_of_terms(x, function)?;
        let sum = self.remask(&[Addend::words(addends)])?.remove(0);
        let sum = self.share(sum)?;
        let inside = self.truncate_by(&[(&sum, function.drop)], function.mode)?.remove(0);
        match function.ends.filter(|ends| !ends.hold(width)) {
            Some(ends) => self.with_lines_outside(x, width, ends, inside).map(Some),
            None => Ok(Some(inside)),
        }
    }

    /// This party's addends of the terms and of the line between the ends, before bits are dropped.
    fn addends_of_terms(&mut self, x: &Share<E::Tensor>, function: &TrigSum) -> Result<Tensor> {
        let TrigSum { terms, line, total, .. } = function;
        let mut forms = Vec::with_capacity(2 * terms.len());
        for term in terms.iter() {
            let group = Group::Words { bits: share_bits(term, *total) };
            forms.extend([(); 2].map(|()| Form { group, shape: x.shape().clone() }));
        }
        let mask = self.download(&x.mask)?;
        let shares = self.deal(&forms, || {
            let mut values = Vec::with_capacity(forms.len());
            for term in terms.iter() {
                let (t, bits) = (dealt_bits(term), share_bits(term, *total));
                let of_mask = |&a: &u64| sines_of_mask(Wrapping(a.wrapping_mul(term.turn)), t);
                let both: Vec<_> = mask.words().iter().map(of_mask).collect();
                for which in 0..2 {
                    let words = both.iter().map(|pair| low(pair[which].0, bits)).collect();
                    values.push(Tensor::new(mask.shape().clone(), words)?);
                }
            }
            Ok(values)
        })?;
        let public = self.download(&x.masked)?;
        let mut sum = self.addends_of_line(&mask, &public, *line)?;
        for (term, shares) in terms.iter().zip(shares.chunks_exact(2)) {
            let t = 64 - share_bits(term, *total);
            let [cosine, sine] = [term.cosine, term.sine].map(|factor| Wrapping(factor as u64));
            let mut words = Vec::with_capacity(sum.words().len());
            for (at, &b) in public.words().iter().enumerate() {
                let [along, across] = factors(Wrapping(b.wrapping_mul(term.turn)), cosine, sine, t);
                mutant!("trig sum: of the angles' difference", across = -across);
                let own = |which: usize| Wrapping(shares[which].words()[at]);
                let part = own(0) * along + own(1) * across;
                words.push(sum.words()[at].wrapping_add(part.0));
            }
            sum = Tensor::new(sum.shape().clone(), words)?;
        }
        Ok(sum)
    }

    /// This party's addends of a line's values.
    fn addends_of_line(&self, mask: &Tensor, public: &Tensor, line: Line) -> Result<Tensor> {
        let first = self.is_first();
        zip(mask, public, |a, b| {
            let known = b.wrapping_mul(line.slope).wrapping_add(line.constant);
            let own = a.wrapping_mul(line.slope);
            if first { own.wrapping_add(known) } else { own }
        })
    }

    /// The lines outside of both ends, and `inside` between them.
    fn with_lines_outside(
        &mut self,
        x: &Share<E::Tensor>,
        width: u32,
        ends: Ends,
        inside: Share<E::Tensor>,
    ) -> Result<Share<E::Tensor>> {
        let bits = self.beyond(x, width, ends)?;
        let mut gains = Vec::with_capacity(2);
        for Line { constant, slope } in ends.outside {
            let line = self.linear(&Linear::Scale(slope), x)?;
            let line = self.linear(&Linear::Shift(constant), &line)?;
            gains.push(self.sub(&line, &inside)?);
        }
        let lists = [[&gains[0]], [&gains[1]]];
        let jobs = [(&bits[0], &lists[0][..]), (&bits[1], &lists[1][..])];
        let mut value = inside;
        for gain in self.select(&jobs)?.into_iter().flatten() {
            value = self.add(&value, &gain)?;
        }
        Ok(value)
    }

    /// Bits for the words below the lower end, and for those not below the upper one. Comparisons ignore low bits.
    fn beyond(&mut self, x: &Share<E::Tensor>, width: u32, ends: Ends) -> Result<[BitShare; 2]> {
        let Ends { at: [from, to], slack, .. } = ends;
        let reach = |end: i64| 65 - (end.unsigned_abs() + (1 << slack)).leading_zeros();
        let width = (width.max(reach(from)).max(reach(to)) + 1).min(64);
        mutant!("trig sum: distances a bit short", width = width - 1);
        let count = width - slack;
        let minus = self.linear(&Linear::Negate, x)?;
        let below = self.linear(&Linear::Shift(from.wrapping_neg() as u64), x)?;
        let above = self.linear(&Linear::Shift((to - 1) as u64), &minus)?;
        let distances = [below, above];
        let planes = Shape::new([count as usize, x.shape().len().div_ceil(64)])?;
        let engine = self.engine.clone();
        let masks = self.deal(&[(); 2].map(|()| Form::planes(&planes)), || {
            let planes = distances
                .iter()
                .map(|x| Ok(engine.download(&engine.to_planes(&x.mask, slack, count)?)?));
            planes.collect()
        })?;
        let mut positions = Vec::with_capacity(2);
        for (distance, mask) in distances.iter().zip(masks) {
            let public = self.engine.to_planes(&distance.masked, slack, count)?;
            let public = self.download(&public)?;
            let planes = Planes { mask, masked: public.clone() };
            positions.push(Positions { planes, public, shape: x.shape().clone() });
        }
        let signs = self.top_bits(positions)?;
        signs.try_into().map_err(|_| Error::unanswered("signs"))
    }
}
