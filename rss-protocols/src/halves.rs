//! A value as the sum of what the pivot knows and what both others know.
//!
//! For a product, `z = z1 + z2 + z3` with one summand at each party; the pivot takes off masks that
//! it has in common with each, `a = z1 - w12 - w13`, and the others exchange `z2 + w12` and `z3 + w13`,
//! whose sum `b` is uniform to them. Maps that sum take a product at each party, whatever its role; see
//! `paired.rs`. Products of single words take five in all: the pivot computes `(x1 + x2)(y1 + y2)`, the
//! second `x3 (y2 + y3) + x2 y3`, the third `x3 y1 + x1 y3`.
//! A value that is shared already is such a sum as it stands: `a = x1 + x2`, `b = x3`.

use mpc_core::Result;
use ring_arith::{Engine, EngineTensor, Shape, Source};

use crate::{
    kernels::{
        AddedOther, AddedPivot, EarlyNearest, EarlyRoundUp, MulOther, MulOtherPlus, MulPivot,
        MulPivotPlus,
    },
    launch::{map, whole, words},
    random::{Draw, Pair, Streams},
    seat::{Role, Seat},
    share::add,
    unit::Cx,
};

/// Where a value comes from, as the role's two components.
pub(crate) enum Value<T> {
    /// It is shared.
    Shared((T, T)),
    /// An elementwise product of tensors of one axis, and what is added to it.
    Mul { lhs: (T, T), rhs: (T, T), summand: Option<(T, T)> },
    /// Parts, one at each party, add up to it: another bilinear map. A tensor and what it is multiplied
    /// by come to this party's part.
    Added { part: T, plus: Option<(T, u64)> },
}

/// A value of one part, split in two.
pub(crate) struct Halves<T> {
    value: Value<T>,
    pub n: usize,
    /// Masks between the pivot and each of the others; none for a value that is shared.
    masks: Option<[Draw; 2]>,
    /// Bits that each half is rounded by before it is sent.
    early: Option<u32>,
    own: Option<T>,
}

impl<T: EngineTensor> Halves<T> {
    pub fn new(value: Value<T>, streams: &mut Streams, n: usize, early: Option<u32>) -> Self {
        let product = !matches!(value, Value::Shared(_));
        let masks = product.then(|| [Pair::K12, Pair::K13].map(|pair| streams.draw(pair, n)));
        // Both others know the half of a shared value: nothing is sent that could be shortened.
        let early = early.filter(|_| product);
        Self { value, n, masks, early, own: None }
    }

    /// Whether the others send each other anything.
    pub fn exchanged(&self) -> bool {
        self.masks.is_some()
    }

    /// Whether the halves of `b` come rounded.
    pub fn early(&self) -> bool {
        self.early.is_some()
    }

    /// What the pivot knows.
    pub fn pivot<E: Engine<Tensor = T>>(&self, cx: &Cx<'_, E>, streams: &Streams) -> Result<T> {
        let engine = cx.engine;
        let masks = self.masks.as_ref();
        let mask = |i: usize| masks.expect("products are masked")[i];
        let shape = Shape::new([self.n])?;
        let (m, n) = (|| streams.words(mask(0)), || streams.words(mask(1)));
        let [a] = match &self.value {
            Value::Shared((x1, x2)) => [add(engine, x1, x2)?],
            Value::Mul { lhs, rhs, summand } => {
                let [x1, x2, y1, y2] = [&lhs.0, &lhs.1, &rhs.0, &rhs.1].map(whole);
                match summand {
                    Some((s1, s2)) => {
                        let sources = [x1, x2, y1, y2, m(), n(), whole(s1), whole(s2)];
                        words(engine, &MulPivotPlus, &shape, sources, &[])?
                    }
                    None => words(engine, &MulPivot, &shape, [x1, x2, y1, y2, m(), n()], &[])?,
                }
            }
            Value::Added { part, plus } => {
                let (plus, factor) = summand(cx, plus.as_ref());
                words(engine, &AddedPivot, &shape, [whole(part), m(), n(), plus], &[factor])?
            }
        };
        Ok(a)
    }

    /// The half that this party, the second or the third, computes: of a product its masked
    /// summand, of a shared value all of `b`.
    fn other<E: Engine<Tensor = T>>(
        &self,
        cx: &Cx<'_, E>,
        seat: &Seat,
        streams: &Streams,
    ) -> Result<T> {
        let (engine, second) = (cx.engine, seat.role == Role::Second);
        let order = |(first, last): &(T, T)| match second {
            // (x3, x2) and (x3, x1).
            true => (last.clone(), first.clone()),
            false => (first.clone(), last.clone()),
        };
        let mask = || self.masks.expect("products are masked")[usize::from(!second)];
        let (m, shape) = (|| streams.words(mask()), Shape::new([self.n])?);
        let [z] = match &self.value {
            Value::Shared(x) => [order(x).0],
            Value::Mul { lhs, rhs, summand } => {
                let ((x3, x), (y3, y)) = (order(lhs), order(rhs));
                // One of the two adds the summand that both know.
                let summand = summand.as_ref().filter(|_| second).map(|(_, s3)| s3);
                let all = [if second { u64::MAX } else { 0 }];
                let [x3, x, y3, y] = [&x3, &x, &y3, &y].map(whole);
                match summand {
                    Some(s) => {
                        let sources = [x3, x, y3, y, m(), whole(s)];
                        words(engine, &MulOtherPlus, &shape, sources, &all)?
                    }
                    None => words(engine, &MulOther, &shape, [x3, x, y3, y, m()], &all)?,
                }
            }
            Value::Added { part, plus } => {
                let (plus, factor) = summand(cx, plus.as_ref());
                words(engine, &AddedOther, &shape, [whole(part), m(), plus], &[factor])?
            }
        };
        Ok(z)
    }

    /// The second and the third compute their halves and send them.
    pub fn announce<E: Engine<Tensor = T>>(
        &mut self,
        cx: &mut Cx<'_, E>,
        seat: &Seat,
        streams: &Streams,
    ) -> Result<()> {
        let half = self.other(cx, seat, streams)?;
        let half = match self.early {
            None => {
                if self.exchanged() {
                    cx.put(seat.partner(), &half)?;
                }
                half
            }
            Some(t) => {
                let shape = half.shape();
                let rounded = match seat.role {
                    Role::Second => map(cx.engine, &EarlyRoundUp { t }, shape, [&half], &[])?,
                    _ => map(cx.engine, &EarlyNearest { t }, shape, [&half], &[])?,
                };
                let planes = cx.engine.to_planes(&rounded, 0, 64 - t)?;
                cx.put(seat.partner(), &planes)?;
                rounded
            }
        };
        self.own = Some(half);
        self.value = Value::Shared((self.own_clone(), self.own_clone()));
        Ok(())
    }

    fn own_clone(&self) -> T {
        self.own.clone().expect("computed before")
    }

    /// Both halves of `b` at the second or the third: its own, and the partner's unless `b` was
    /// known.
    pub fn receive<E: Engine<Tensor = T>>(
        &mut self,
        cx: &mut Cx<'_, E>,
        seat: &Seat,
    ) -> Result<(T, Option<T>)> {
        let own = self.own.take().expect("computed before");
        if !self.exchanged() {
            return Ok((own, None));
        }
        let other = match self.early {
            None => cx.receive(seat.partner(), self.n)?.words(cx.engine, self.n)?,
            Some(t) => {
                let (planes, cols) = (64 - t as usize, self.n.div_ceil(64));
                let mut reader = cx.receive(seat.partner(), planes * cols)?;
                let planes = reader.planes(cx.engine, planes, cols)?;
                cx.engine.from_planes(&planes, 0, &Shape::new([self.n])?)?
            }
        };
        Ok((own, Some(other)))
    }
}

/// A summand and its factor; zeros if there is none.
fn summand<'a, E: Engine>(
    cx: &Cx<'a, E>,
    plus: Option<&'a (E::Tensor, u64)>,
) -> (Source<'a, E::Tensor>, u64) {
    plus.map_or((cx.zero(), 0), |(plus, factor)| (whole(plus), *factor))
}
