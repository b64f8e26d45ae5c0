//! Signs, tests for zero, and what follows them.
//!
//! `a + b` with `a = x1 + x2` known to the pivot and `b = x3` to both others: the top bit of the low
//! `w` bits is `a_top ^ b_top ^ carry` of the bits below. See [`crate::circuit::schedule`] for the circuit.

use std::sync::Arc;

use mpc_core::Result;
use ring_arith::{Engine, EngineTensor, Shape};

use crate::{
    circuit::evaluate::{Circuit, Walk},
    circuit::schedule::{Goal, Plan},
    compare::select::{MaskShares, Selection, Wanted, WordShare},
    kernels::{OpenLead, Shift, Xor, Xor3},
    runtime::launch::{made, map, plane_of, planes, to_plane},
    runtime::links::Reader,
    runtime::prss::{Draw, Key, Streams},
    runtime::roles::{Role, Roles},
    runtime::rounds::{Cx, Unit},
    share::add,
};

/// Planes of words: what a comparison compares.
pub(crate) struct Question {
    pub plan: Arc<Plan>,
    /// The plane above the circuit's, whose two bits are added to the carry.
    pub top: bool,
    /// Bits of the pivot's words below those that count.
    pub low: u32,
}

/// A bit that was opened to the second and the third, and its masks.
pub(crate) struct Opening {
    question: Question,
    circuit: Circuit,
    cols: usize,
    masks: [Draw; 2],
    /// The third's share of the pivot's mask, if the bit is to be shared as a bit.
    third: Option<Draw>,
}

/// What has become of a comparison at the second or the third.
pub(crate) enum Stage<T> {
    Circuit(Walk<T>),
    /// The bit as this party sent it.
    Open(T),
    /// Known: the plane of `v`.
    Known(T),
}

impl Question {
    /// Bits of words that it reads.
    pub fn width(&self) -> u32 {
        (self.plan.bits + usize::from(self.top)) as u32
    }
}

impl Opening {
    /// Takes its place in the streams, for `n` elements.
    pub fn new(question: Question, streams: &mut Streams, n: usize, shared: bool) -> Self {
        let cols = n.div_ceil(64);
        let circuit = Circuit::new(question.plan.clone(), streams, cols);
        let masks = [Key::Left, Key::Right].map(|pair| streams.draw(pair, cols));
        let third = shared.then(|| streams.draw(Key::Right, cols));
        planted!("sign opened without m12", masks = [streams.blank(Key::Left, cols), masks[1]]);
        planted!("sign opened without m13", masks = [masks[0], streams.blank(Key::Right, cols)]);
        planted!("sign: the third's share of its mask is m13", third = third.map(|_| masks[1]));
        Self { question, circuit, cols, masks, third }
    }

    /// Words that the pivot sends to the second and to the third.
    pub fn bundle(&self) -> [usize; 2] {
        let [second, third] = self.circuit.bundle();
        [second + if self.third.is_some() { self.cols } else { 0 }, third]
    }

    /// The pivot's work: the plane of its mask `u`, and the second's share of it. Sends all but the
    /// latter's follow-up.
    pub fn lead<E: Engine>(
        &self,
        cx: &mut Cx<'_, E>,
        roles: &Roles,
        streams: &Streams,
        a: &E::Tensor,
    ) -> Result<[E::Tensor; 2]> {
        let (engine, cols) = (cx.engine, self.cols);
        let a = engine.to_planes(a, self.question.low, self.question.width())?;
        let part = self.circuit.lead(cx, roles, streams, &a)?;
        let part = part.as_ref().map_or(cx.zero(), |part| plane_of(part, 0, 0, cols));
        let top = match self.question.top {
            true => plane_of(&a, self.question.plan.bits, 0, cols),
            false => cx.zero(),
        };
        let third = self.third.map_or(cx.zero(), |third| streams.words(third));
        let masks = self.masks.map(|mask| streams.words(mask));
        let [m, n] = masks;
        let sources = vec![part, top, m, n, third];
        let targets = vec![to_plane(0, 0, 0, cols), to_plane(1, 0, 0, cols)];
        let made = planes(engine, &OpenLead, [1, cols], sources, &[], &[1, 1], targets)?;
        let [u, second]: [_; 2] = made.try_into().expect("two outputs");
        if self.third.is_some() {
            cx.put(roles.left(), &second)?;
        }
        Ok([u, second])
    }

    /// The start at the second and the third, given the words of `b`.
    pub fn start<E: Engine>(
        &self,
        cx: &mut Cx<'_, E>,
        roles: &Roles,
        streams: &Streams,
        bundle: &mut Reader,
        b: &E::Tensor,
    ) -> Result<(Stage<E::Tensor>, Option<E::Tensor>)> {
        let b = cx.engine.to_planes(b, 0, self.question.width())?;
        let mut walk = self.circuit.start(cx, roles, streams, bundle, &b)?;
        // b's top bit belongs to the result; only one of the two adds it.
        let top = match (roles.role, self.question.top) {
            (Role::Left, true) => Some(self.top_plane(cx, &b)?),
            _ => None,
        };
        if self.circuit.exchanges() == 0 {
            let sent = self.open(cx, roles, streams, &mut walk, top.as_ref())?;
            return Ok((Stage::Open(sent), None));
        }
        Ok((Stage::Circuit(walk), top))
    }

    fn top_plane<E: Engine>(&self, cx: &Cx<'_, E>, b: &E::Tensor) -> Result<E::Tensor> {
        let at = self.question.plan.bits;
        Ok(crate::runtime::launch::slice(cx.engine, b, 0, at, at + 1)?)
    }

    fn open<E: Engine>(
        &self,
        cx: &mut Cx<'_, E>,
        roles: &Roles,
        streams: &Streams,
        walk: &mut Walk<E::Tensor>,
        top: Option<&E::Tensor>,
    ) -> Result<E::Tensor> {
        let cols = self.cols;
        let part = self.circuit.result(walk);
        let top = top.map_or(cx.zero(), |top| plane_of(top, 0, 0, cols));
        let mask = self.masks[usize::from(roles.role == Role::Right)];
        let sources = vec![plane_of(&part, 0, 0, cols), top, streams.words(mask)];
        let targets = vec![to_plane(0, 0, 0, cols)];
        let made = planes(cx.engine, &Xor3, [1, cols], sources, &[], &[1], targets)?;
        let sent = made.into_iter().next().expect("one output");
        cx.put(roles.peer(), &sent)?;
        Ok(sent)
    }

    /// One exchange.
    pub fn advance<E: Engine>(
        &self,
        cx: &mut Cx<'_, E>,
        roles: &Roles,
        streams: &Streams,
        stage: Stage<E::Tensor>,
        top: Option<&E::Tensor>,
        left: &mut usize,
    ) -> Result<Stage<E::Tensor>> {
        match stage {
            Stage::Circuit(mut walk) => {
                self.circuit.step(cx, roles, streams, &mut walk)?;
                *left -= 1;
                if *left > 0 {
                    return Ok(Stage::Circuit(walk));
                }
                Ok(Stage::Open(self.open(cx, roles, streams, &mut walk, top)?))
            }
            Stage::Open(sent) => {
                let mut reader = cx.receive(roles.peer(), self.cols)?;
                let other = reader.planes(cx.engine, 1, self.cols)?;
                Ok(Stage::Known(map(cx.engine, &Xor, sent.shape(), [&sent, &other], &[])?))
            }
            known @ Stage::Known(_) => Ok(known),
        }
    }

    /// Exchanges of the circuit.
    pub fn exchanges(&self) -> usize {
        self.circuit.exchanges()
    }

    /// The third's share of the pivot's mask.
    pub fn third_share<E: Engine>(&self, cx: &Cx<'_, E>, streams: &Streams) -> Result<E::Tensor> {
        let draw = self.third.expect("only shared bits have one");
        let shape = Shape::new([1, self.cols])?;
        Ok(made(cx.engine, &shape, streams.words(draw))?)
    }
}

/// What a comparison is for.
pub(crate) struct Purpose<T: EngineTensor> {
    /// The outcome as a shared bit.
    pub bit: bool,
    /// What it selects.
    pub words: Vec<Wanted<T>>,
}

/// A bit that was opened, as one party holds it.
pub(crate) struct OpenedBit<T> {
    /// The role's two components of the shared bit.
    pub components: (T, T),
    /// The plane of `u` at the pivot, of `v` at the others.
    pub known: T,
    /// What is kept of `u` as words, if words were selected by it.
    pub kept: Option<WordShare<T>>,
}

/// What a comparison of one part gives.
pub(crate) struct Outcome<T> {
    pub bit: Option<OpenedBit<T>>,
    /// The role's two components of each word.
    pub words: Vec<(T, T)>,
}

/// A comparison of one part.
pub(crate) struct CompareUnit<T: EngineTensor> {
    roles: Roles,
    streams: Streams,
    n: usize,
    /// The role's components of the value.
    value: (T, T),
    opening: Opening,
    /// Whether the outcome is wanted as a bit.
    bit: bool,
    selection: Option<Selection<T>>,
    /// Only whether a bit pattern is 0 is asked, so `b - 1` is compared.
    zero_test: bool,
    stage: Option<Stage<T>>,
    top: Option<T>,
    left: usize,
    /// At the second: its share of the pivot's mask as a bit.
    share: Option<T>,
    outcome: Outcome<T>,
}

impl<T: EngineTensor> CompareUnit<T> {
    pub fn new(
        roles: Roles,
        mut streams: Streams,
        value: (T, T),
        plan: Arc<Plan>,
        purpose: Purpose<T>,
    ) -> Self {
        let (n, zero_test) = (value.0.len(), plan.goal == Goal::Equal);
        let Purpose { bit, words } = purpose;
        let question = Question { plan, top: !zero_test, low: 0 };
        let opening = Opening::new(question, &mut streams, n, bit);
        let selection = (!words.is_empty()).then(|| {
            let mask = MaskShares::deal(&mut streams, n);
            Selection::new(&mut streams, n, mask, words)
        });
        let left = opening.exchanges();
        Self {
            roles,
            streams,
            n,
            value,
            opening,
            bit,
            selection,
            zero_test,
            stage: None,
            top: None,
            left,
            share: None,
            outcome: Outcome { bit: None, words: Vec::new() },
        }
    }

    /// The roles, and what came out.
    pub fn done(self) -> (Roles, Outcome<T>) {
        (self.roles, self.outcome)
    }

    fn word_shape(&self) -> Result<Shape> {
        Ok(Shape::new([self.n])?)
    }

    /// What is kept of the bit, if words are selected by it.
    fn kept<E: Engine<Tensor = T>>(&self, engine: &E) -> Result<Option<WordShare<T>>> {
        let keep = |selection: &Selection<T>| selection.keep(engine, &self.roles, &self.streams);
        self.selection.as_ref().map(keep).transpose()
    }

    /// The circuit's result is known to the second and the third; whether that is all.
    fn settle<E: Engine<Tensor = T>>(&mut self, cx: &mut Cx<'_, E>, v: T) -> Result<bool> {
        if self.bit {
            let components = match self.share.take() {
                Some(share) => (share, v.clone()),
                None => (v.clone(), self.opening.third_share(cx, &self.streams)?),
            };
            let kept = self.kept(cx.engine)?;
            self.outcome.bit = Some(OpenedBit { components, known: v.clone(), kept });
        }
        let shape = self.word_shape()?;
        let Some(selection) = &mut self.selection else { return Ok(true) };
        let v = cx.engine.from_planes(&v, 0, &shape)?;
        selection.apply(cx, &self.roles, &self.streams, &v)?;
        Ok(false)
    }
}

impl<E: Engine> Unit<E> for CompareUnit<E::Tensor> {
    fn roles(&self) -> &Roles {
        &self.roles
    }

    fn bundle(&self) -> [usize; 2] {
        let selected = self.selection.as_ref().map_or([0, 0], Selection::bundle);
        let opened = self.opening.bundle();
        [opened[0] + selected[0], opened[1] + selected[1]]
    }

    fn lead(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        let a = add(cx.engine, &self.value.0, &self.value.1)?;
        let [u, second] = self.opening.lead(cx, &self.roles, &self.streams, &a)?;
        if self.bit {
            let components = (self.opening.third_share(cx, &self.streams)?, second);
            let kept = self.kept(cx.engine)?;
            self.outcome.bit = Some(OpenedBit { components, known: u.clone(), kept });
        }
        if let Some(selection) = &self.selection {
            let u = cx.engine.from_planes(&u, 0, &self.word_shape()?)?;
            self.outcome.words = selection.lead(cx, &self.roles, &self.streams, &u)?;
        }
        Ok(())
    }

    fn start(&mut self, cx: &mut Cx<'_, E>, mut bundle: Reader) -> Result<()> {
        let second = self.roles.role == Role::Left;
        let b = if second { &self.value.1 } else { &self.value.0 };
        let less = u64::MAX;
        planted!("zero test: of b instead of b - 1", less = 0);
        let b = match self.zero_test {
            // a + b = 0 exactly if a = ~(b - 1).
            true => map(cx.engine, &Shift, b.shape(), [b], &[less])?,
            false => b.clone(),
        };
        let (stage, top) = self.opening.start(cx, &self.roles, &self.streams, &mut bundle, &b)?;
        (self.stage, self.top) = (Some(stage), top);
        if self.bit && second {
            self.share = Some(bundle.planes(cx.engine, 1, self.n.div_ceil(64))?);
        }
        match &mut self.selection {
            Some(selection) => selection.read(cx, &self.roles, &mut bundle),
            None => Ok(()),
        }
    }

    fn advance(&mut self, cx: &mut Cx<'_, E>) -> Result<bool> {
        let Some(stage) = self.stage.take() else {
            let selection = self.selection.as_mut().expect("words follow the bit");
            self.outcome.words = selection.finish(cx, &self.roles)?;
            return Ok(true);
        };
        let (top, left) = (self.top.as_ref(), &mut self.left);
        match self.opening.advance(cx, &self.roles, &self.streams, stage, top, left)? {
            Stage::Known(v) => self.settle(cx, v),
            stage => {
                self.stage = Some(stage);
                Ok(false)
            }
        }
    }
}
