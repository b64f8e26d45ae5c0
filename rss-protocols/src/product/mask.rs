//! A linear layer, its truncation and a bit that is shared already, in one: the gradient that meets a ReLU.
//!
//! [`crate::product::relu`] without its circuit. With `u`'s shares and `v` kept from the comparison that opened the
//! bit, the pivot shares `A`, `uA` and, modulo `2^t`, `na` and `u na`; the others exchange halves and then
//! their summands.
//!
//! Cost at `t = 20`: 424 bits in all, `early` 384, and 2 rounds; with a bit that is only shared 64 more.

use mpc_core::Result;
use ring_arith::{Engine, EngineTensor};

use crate::{
    compare::select::MaskShares,
    product::gated::{Drop, Quotient},
    product::split::{Halves, Value},
    runtime::chunks::Spots,
    runtime::links::Reader,
    runtime::prss::Streams,
    runtime::roles::Roles,
    runtime::rounds::{Cx, Unit},
};

/// A bit as one party holds it, for one part: `u ^ v`, or the opposite.
pub(crate) struct Bit<T> {
    /// The plane of `u` at the pivot, of `v` at the others.
    pub known: T,
    pub opposite: bool,
}

/// A product, truncated, where a bit is 1, for one part.
pub(crate) struct MaskUnit<T: EngineTensor> {
    roles: Roles,
    streams: Streams,
    quotient: Quotient<T>,
    bit: Bit<T>,
    /// The pivot's words, until the halves have come too.
    bundle: Option<Reader>,
    result: Option<(T, T)>,
}

impl<T: EngineTensor> MaskUnit<T> {
    /// Takes its place in the streams; `mask` shares the bit's `u`, or is to be dealt.
    pub fn new(
        roles: Roles,
        mut streams: Streams,
        value: Value<T>,
        how: Drop,
        (bit, kept): (Bit<T>, Option<MaskShares<T>>),
        spots: Spots<T>,
    ) -> Self {
        let n = spots.len;
        let halves = Halves::new(value, &mut streams, n, how.early.then_some(how.bits));
        let mask = kept.unwrap_or_else(|| MaskShares::deal(&mut streams, n));
        let quotient = Quotient::new(&mut streams, halves, how.bits, mask, spots);
        Self { roles, streams, quotient, bit, bundle: None, result: None }
    }

    /// The roles, and the role's components of the result.
    pub fn done(self) -> (Roles, Option<(T, T)>) {
        (self.roles, self.result)
    }

    /// What this party knows of the bit, as words.
    fn known<E: Engine<Tensor = T>>(&self, engine: &E) -> Result<T> {
        Ok(engine.from_planes(&self.bit.known, 0, &self.quotient.shape()?)?)
    }
}

impl<E: Engine> Unit<E> for MaskUnit<E::Tensor> {
    fn roles(&self) -> &Roles {
        &self.roles
    }

    fn bundle(&self) -> [usize; 2] {
        self.quotient.bundle()
    }

    fn lead(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        let a = self.quotient.pivot(cx, &self.streams)?;
        let u = self.known(cx.engine)?;
        self.result = Some(self.quotient.lead(cx, &self.roles, &self.streams, [&a, &u])?);
        Ok(())
    }

    fn announce(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        self.quotient.announce(cx, &self.roles, &self.streams)
    }

    fn start(&mut self, _cx: &mut Cx<'_, E>, bundle: Reader) -> Result<()> {
        self.bundle = Some(bundle);
        Ok(())
    }

    fn advance(&mut self, cx: &mut Cx<'_, E>) -> Result<bool> {
        let Some(mut bundle) = self.bundle.take() else {
            self.result = Some(self.quotient.finish(cx, &self.roles)?);
            return Ok(true);
        };
        let (roles, streams) = (&self.roles, &self.streams);
        let halves = self.quotient.receive(cx, roles)?;
        self.quotient.read(cx, roles, streams, &mut bundle, halves)?;
        let v = self.known(cx.engine)?;
        let opposite = self.bit.opposite;
        planted!("masked product: by the bit's opposite", opposite = !opposite);
        self.quotient.apply(cx, roles, streams, &v, opposite)?;
        Ok(false)
    }
}
