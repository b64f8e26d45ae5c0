//! A linear layer, its truncation and its ReLU in one.
//!
//! The sign is taken on the truncation's halves while the pivot's words are still on their way, and the
//! selection takes the halves as they are ([`crate::product::gated`]). The sign is that of the result less one
//! unit, so that the bit says where the result is positive; at 0 the selection does not matter.
//!
//! Cost at `t = 20`, `early` or not: 648 or 688 bits in all and 6 rounds, 20 fewer than truncating
//! and selecting one after the other; 1 bit more where the sign is kept.

use std::sync::Arc;

use mpc_core::Result;
use ring_arith::{Engine, EngineTensor};

use crate::{
    circuit::schedule::Plan,
    compare::protocol::{OpenedBit, Opening, Question, Stage},
    compare::select::MaskShares,
    product::gated::{Drop, Quotient},
    product::split::{Halves, Value},
    runtime::chunks::Spots,
    runtime::links::Reader,
    runtime::prss::Streams,
    runtime::roles::{Role, Roles},
    runtime::rounds::{Cx, Unit},
};

/// A fused layer of one part.
pub(crate) struct ReluUnit<T: EngineTensor> {
    roles: Roles,
    streams: Streams,
    quotient: Quotient<T>,
    opening: Opening,
    /// Whether the sign is kept.
    keep: bool,
    bundle: Option<Reader>,
    /// At the second: its share of the pivot's mask as a bit, if the sign is kept.
    share: Option<T>,
    stage: Option<Stage<T>>,
    top: Option<T>,
    left: usize,
    result: Option<(T, T)>,
    /// Where the result is *not* positive.
    bit: Option<OpenedBit<T>>,
}

impl<T: EngineTensor> ReluUnit<T> {
    pub fn new(
        roles: Roles,
        mut streams: Streams,
        value: Value<T>,
        (how, keep): (Drop, bool),
        plan: Arc<Plan>,
        spots: Spots<T>,
    ) -> Self {
        let (n, bits) = (spots.len, how.bits);
        let halves = Halves::new(value, &mut streams, n, how.early.then_some(bits));
        let question = Question { plan, top: true, low: bits };
        let opening = Opening::new(question, &mut streams, n, keep);
        let mask = MaskShares::deal(&mut streams, n);
        let quotient = Quotient::new(&mut streams, halves, bits, mask, spots);
        let left = opening.exchanges();
        Self {
            roles,
            streams,
            quotient,
            opening,
            keep,
            bundle: None,
            share: None,
            stage: None,
            top: None,
            left,
            result: None,
            bit: None,
        }
    }

    /// The roles, the role's components of the result, and where it is not positive.
    pub fn done(self) -> (Roles, Option<(T, T)>, Option<OpenedBit<T>>) {
        (self.roles, self.result, self.bit)
    }

    /// Keeps the opened sign, given its components and the plane that this party knows.
    fn keep<E: Engine<Tensor = T>>(
        &mut self,
        engine: &E,
        components: (T, T),
        known: T,
    ) -> Result<()> {
        let n = self.quotient.n();
        let share = self.quotient.mask().keep(engine, &self.roles, &self.streams, n)?;
        self.bit = Some(OpenedBit { components, known, kept: Some(share) });
        Ok(())
    }

    /// Both halves of `b` are there: the circuit starts, and what does not depend on the sign is made.
    fn begin<E: Engine<Tensor = T>>(
        &mut self,
        cx: &mut Cx<'_, E>,
        mut bundle: Reader,
    ) -> Result<()> {
        let (roles, streams) = (&self.roles, &self.streams);
        let [hi, base] = self.quotient.receive(cx, roles)?;
        let (stage, top) = self.opening.start(cx, roles, streams, &mut bundle, &hi)?;
        (self.stage, self.top) = (Some(stage), top);
        if self.keep && roles.role == Role::Left {
            self.share = Some(bundle.planes(cx.engine, 1, self.quotient.n().div_ceil(64))?);
        }
        self.quotient.read(cx, roles, streams, &mut bundle, [hi, base])
    }

    /// The sign is known to the second and the third.
    fn settle<E: Engine<Tensor = T>>(&mut self, cx: &mut Cx<'_, E>, v: T) -> Result<()> {
        let words = cx.engine.from_planes(&v, 0, &self.quotient.shape()?)?;
        self.quotient.apply(cx, &self.roles, &self.streams, &words, true)?;
        if !self.keep {
            return Ok(());
        }
        let components = match self.share.take() {
            Some(share) => (share, v.clone()),
            None => (v.clone(), self.opening.third_share(cx, &self.streams)?),
        };
        self.keep(cx.engine, components, v)
    }
}

impl<E: Engine> Unit<E> for ReluUnit<E::Tensor> {
    fn roles(&self) -> &Roles {
        &self.roles
    }

    fn bundle(&self) -> [usize; 2] {
        let [second, third] = self.opening.bundle();
        let words = self.quotient.bundle();
        [second + words[0], third + words[1]]
    }

    fn lead(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        let (roles, streams) = (&self.roles, &self.streams);
        let a = self.quotient.pivot(cx, streams)?;
        let [u, second] = self.opening.lead(cx, roles, streams, &a)?;
        let words = cx.engine.from_planes(&u, 0, &self.quotient.shape()?)?;
        // What is selected by the sign's opposite has the sign's `u`.
        self.result = Some(self.quotient.lead(cx, roles, streams, [&a, &words])?);
        if !self.keep {
            return Ok(());
        }
        let third = self.opening.third_share(cx, streams)?;
        self.keep(cx.engine, (third, second), u)
    }

    fn announce(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        self.quotient.announce(cx, &self.roles, &self.streams)
    }

    fn start(&mut self, _cx: &mut Cx<'_, E>, bundle: Reader) -> Result<()> {
        self.bundle = Some(bundle);
        Ok(())
    }

    fn advance(&mut self, cx: &mut Cx<'_, E>) -> Result<bool> {
        if let Some(bundle) = self.bundle.take() {
            return self.begin(cx, bundle).map(|()| false);
        }
        if self.quotient.applied() {
            self.result = Some(self.quotient.finish(cx, &self.roles)?);
            return Ok(true);
        }
        let stage = self.stage.take().expect("the sign is under way");
        let (top, left) = (self.top.as_ref(), &mut self.left);
        match self.opening.advance(cx, &self.roles, &self.streams, stage, top, left)? {
            Stage::Known(v) => self.settle(cx, v)?,
            stage => self.stage = Some(stage),
        }
        Ok(false)
    }
}
