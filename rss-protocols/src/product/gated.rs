//! A truncated value times a bit, without waiting for the truncation to end.
//!
//! The truncation's halves `A = a >> t` and `B`, known to the pivot and to both others after one
//! exchange, have the truncated value as their sum modulo `2^(64 - t)`. For a bit `u ^ v` the selection takes
//! the halves as they are: the wrap term `na nb 2^(64 - t)` needs no exchange of its own, since
//! `bit z = (1 - 2v)(uA + nb uN + uB) + v (A + nb N + B)` with `N = na 2^(64 - t)` is linear in what
//! the pivot shares (`A`, `uA`, `u`, and `na`, `u na` modulo `2^t`) once `v` and `nb` are known.
//! The exchange of the truncation's fields (2t bits) goes, `u na` (t bits) comes.

use mpc_core::Result;
use ring_arith::{Engine, EngineTensor, Shape};

use crate::{
    compare::select::MaskShares,
    kernels::{EarlySum, RoundReluLead, SelectOther, WholeSum, WrapShares},
    product::split::Halves,
    runtime::chunks::Spots,
    runtime::launch::{made_into, whole, words, words_into},
    runtime::links::Reader,
    runtime::prss::{Draw, Key, Streams},
    runtime::roles::{Role, Roles},
    runtime::rounds::Cx,
    share::add_into,
};

/// How the value is truncated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Drop {
    /// Bits dropped.
    pub bits: u32,
    /// Halves are rounded before they are sent.
    pub early: bool,
}

/// The second's draws and the third's of what the pivot shares.
struct Masks {
    half: Draw,
    product: Draw,
    na: Draw,
    u_na: Draw,
    /// Components 1 and 2 of the result.
    y: [Draw; 2],
}

/// What the second or the third has of the truncated value.
struct Parts<T> {
    /// Component 3 without the wrap.
    base: T,
    /// Its share of `A` and of `uA`, wrap included.
    alpha: T,
    product: T,
}

/// A truncated value times a bit, for one part.
pub(crate) struct Quotient<T: EngineTensor> {
    halves: Halves<T>,
    bits: u32,
    mask: MaskShares<T>,
    masks: Masks,
    parts: Option<Parts<T>>,
    sent: Option<[T; 2]>,
    /// Where the result belongs.
    spots: Spots<T>,
}

impl<T: EngineTensor> Quotient<T> {
    /// Takes its place in the streams.
    pub fn new(
        streams: &mut Streams,
        halves: Halves<T>,
        bits: u32,
        mask: MaskShares<T>,
        spots: Spots<T>,
    ) -> Self {
        let mut draw = |pair| streams.draw(pair, halves.n);
        let masks = Masks {
            half: draw(Key::Right),
            product: draw(Key::Right),
            na: draw(Key::Left),
            u_na: draw(Key::Left),
            y: [draw(Key::Right), draw(Key::Left)],
        };
        planted!("fused: A and uA under one mask", masks = Masks { product: masks.half, ..masks });
        planted!("fused: na and u na under one mask", masks = Masks { u_na: masks.na, ..masks });
        planted!(
            "fused: y2 is the mask of u",
            masks = Masks { y: [masks.y[0], mask.dealt().unwrap_or(masks.y[1])], ..masks }
        );
        planted!(
            "fused: y1 is the mask of A",
            masks = Masks { y: [masks.half, masks.y[1]], ..masks }
        );
        planted!(
            "fused: y1 is the mask of uA",
            masks = Masks { y: [masks.product, masks.y[1]], ..masks }
        );
        Self { halves, bits, mask, masks, parts: None, sent: None, spots }
    }

    /// Elements.
    pub fn n(&self) -> usize {
        self.halves.n
    }

    /// Elements as an axis.
    pub fn shape(&self) -> Result<Shape> {
        Ok(Shape::new([self.n()])?)
    }

    /// How the bit's mask is shared.
    pub fn mask(&self) -> &MaskShares<T> {
        &self.mask
    }

    /// Planes of `na` and `u na`.
    fn fields(&self) -> [usize; 2] {
        [self.bits as usize, self.n().div_ceil(64)]
    }

    /// Words that the pivot sends to the second and to the third.
    pub fn bundle(&self) -> [usize; 2] {
        let [planes, cols] = self.fields();
        [2 * self.n(), self.mask.bundle(self.n()) + 2 * planes * cols]
    }

    /// What the pivot knows of the value.
    pub fn pivot<E: Engine<Tensor = T>>(&self, cx: &Cx<'_, E>, streams: &Streams) -> Result<T> {
        self.halves.pivot(cx, streams)
    }

    /// The pivot's work, given its half and `u` as words: its two components of the result.
    pub fn lead<E: Engine<Tensor = T>>(
        &self,
        cx: &mut Cx<'_, E>,
        roles: &Roles,
        streams: &Streams,
        [a, u]: [&T; 2],
    ) -> Result<(T, T)> {
        let (t, shape, engine, masks) = (self.bits, self.shape()?, cx.engine, &self.masks);
        self.mask.lead(cx, roles, streams, u)?;
        let [y1, d3, e12, f12] =
            [masks.half, masks.product, masks.na, masks.u_na].map(|draw| streams.words(draw));
        let sources = [whole(a), whole(u), y1, d3, e12, f12];
        let [y2, d2, e3, f3] = words(engine, &RoundReluLead { t }, &shape, sources, &[])?;
        cx.put(roles.left(), &y2)?;
        cx.put(roles.left(), &d2)?;
        for field in [e3, f3] {
            let planes = engine.to_planes(&field, 0, t)?;
            cx.put(roles.right(), &planes)?;
        }
        let [y1, y2] = masks.y.map(|draw| streams.words(draw));
        let y1 = made_into(engine, &shape, y1, self.spots.first())?;
        Ok((y1, made_into(engine, &shape, y2, self.spots.second())?))
    }

    /// The second and the third send their halves.
    pub fn announce<E: Engine<Tensor = T>>(
        &mut self,
        cx: &mut Cx<'_, E>,
        roles: &Roles,
        streams: &Streams,
    ) -> Result<()> {
        self.halves.announce(cx, roles, streams)
    }

    /// Both halves are there: `hi`, the sum `B` less one unit, and component 3 without the wrap.
    pub fn receive<E: Engine<Tensor = T>>(
        &mut self,
        cx: &mut Cx<'_, E>,
        roles: &Roles,
    ) -> Result<[T; 2]> {
        let (t, shape, early) = (self.bits, self.shape()?, self.halves.early());
        let (own, other) = self.halves.receive(cx, roles)?;
        let sources = [whole(&own), other.as_ref().map_or(cx.zero(), whole)];
        Ok(match early {
            true => words(cx.engine, &EarlySum { t }, &shape, sources, &[])?,
            false => words(cx.engine, &WholeSum { t }, &shape, sources, &[])?,
        })
    }

    /// What does not depend on the bit is made of the halves and of the pivot's words.
    pub fn read<E: Engine<Tensor = T>>(
        &mut self,
        cx: &Cx<'_, E>,
        roles: &Roles,
        streams: &Streams,
        bundle: &mut Reader,
        [hi, base]: [T; 2],
    ) -> Result<()> {
        let (t, shape, n, engine) = (self.bits, self.shape()?, self.n(), cx.engine);
        self.mask.read(cx, roles, bundle, n)?;
        let masks = &self.masks;
        let [alpha, product] = match roles.role {
            Role::Left => {
                let (half, product) = (bundle.words(engine, n)?, bundle.words(engine, n)?);
                let (e, f) = (streams.words(masks.na), streams.words(masks.u_na));
                let sources = [whole(&hi), e, f, whole(&half), whole(&product)];
                words(engine, &WrapShares { t }, &shape, sources, &[])?
            }
            _ => {
                let [planes, cols] = self.fields();
                let mut field = || -> Result<T> {
                    let planes = bundle.planes(engine, planes, cols)?;
                    Ok(engine.from_planes(&planes, 0, &shape)?)
                };
                let (e, f) = (field()?, field()?);
                let (half, product) = (streams.words(masks.half), streams.words(masks.product));
                let sources = [whole(&hi), whole(&e), whole(&f), half, product];
                words(engine, &WrapShares { t }, &shape, sources, &[])?
            }
        };
        self.parts = Some(Parts { base, alpha, product });
        Ok(())
    }

    /// `v` is known, as words: the summands of component 3 leave. The result is for the bit's opposite
    /// if that is asked.
    pub fn apply<E: Engine<Tensor = T>>(
        &mut self,
        cx: &mut Cx<'_, E>,
        roles: &Roles,
        streams: &Streams,
        v: &T,
        opposite: bool,
    ) -> Result<()> {
        let Parts { base, alpha, product } = self.parts.take().expect("made before");
        let second = roles.role == Role::Left;
        let u = self.mask.share(streams);
        let y = streams.words(self.masks.y[usize::from(second)]);
        let params = [if second { u64::MAX } else { 0 }, u64::from(opposite)];
        let sources = [whole(v), u, whole(&product), whole(&base), whole(&alpha), y];
        let places = [None, self.spots.shared(roles)];
        let sent = words_into(cx.engine, &SelectOther, &self.shape()?, sources, &params, places)?;
        cx.put(roles.peer(), &sent[0])?;
        self.sent = Some(sent);
        Ok(())
    }

    /// Whether the summands have left.
    pub fn applied(&self) -> bool {
        self.sent.is_some()
    }

    /// The partner's summand is due: the role's two components of the result.
    pub fn finish<E: Engine<Tensor = T>>(
        &mut self,
        cx: &mut Cx<'_, E>,
        roles: &Roles,
    ) -> Result<(T, T)> {
        let [summand, shared] = self.sent.take().expect("sent before");
        let other = cx.receive(roles.peer(), self.n())?.words(cx.engine, self.n())?;
        let y3 = add_into(cx.engine, &summand, &other, self.spots.joint(roles))?;
        Ok(if roles.role == Role::Left { (shared, y3) } else { (y3, shared) })
    }
}
