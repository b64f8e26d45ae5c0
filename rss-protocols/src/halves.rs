//! A value as the sum of what the pivot knows and what both others know.
//!
//! For a product, `z = z1 + z2 + z3` with one summand at each party; the pivot takes off masks that
//! it has in common with each, `a = z1 - w12 - w13`, and the others exchange `z2 + w12` and `z3 + w13`,
//! whose sum `b` is uniform to them. Maps that sum take a product at each party, whatever its role; see
//! `paired.rs`. Products of single words take five in all: the pivot computes `(x1 + x2)(y1 + y2)`, the
//! second `x3 (y2 + y3) + x2 y3`, the third `x3 y1 + x1 y3`.
//! A value that is shared already is such a sum as it stands: `a = x1 + x2`, `b = x3`.

use mpc_core::Result;
use ring_arith::{Addend, AddendSource, Bilinear, Engine, EngineTensor, Shape, View};

use crate::{
    io::addend,
    kernels::{
        EarlyNearest, EarlyRoundUp, MulOther, MulOtherPlus, MulPivot, MulPivotPlus, Scale,
        ScaledSum,
    },
    launch::{flat, map, whole, words},
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
    /// Another bilinear map: its operands as this party multiplies them, and what is added to it.
    Map { op: Bilinear, terms: Vec<(T, T)>, summands: Vec<Summand<T>> },
}

/// What is added to a part of a map: only the words that a role needs are scaled and broadcast.
pub(crate) struct Summand<T> {
    /// The role's components, of the part's shape or broadcast to it.
    pub shares: (T, T),
    /// What they are multiplied by.
    pub factor: u64,
}

impl<T: EngineTensor> Summand<T> {
    /// What the pivot knows of it.
    fn pivot<E: Engine<Tensor = T>>(&self, engine: &E, shape: &Shape) -> Result<T> {
        let (one, two) = &self.shares;
        let sum = map(engine, &ScaledSum, one.shape(), [one, two], &[self.factor])?;
        Ok(engine.view(&sum, &View::Broadcast(shape.clone()))?)
    }

    /// The component that the second and the third know, of which the second adds it.
    fn other<E: Engine<Tensor = T>>(&self, engine: &E, shape: &Shape) -> Result<T> {
        let share = &self.shares.1;
        let scaled = match self.factor {
            1 => share.clone(),
            factor => map(engine, &Scale, share.shape(), [share], &[factor])?,
        };
        Ok(engine.view(&scaled, &View::Broadcast(shape.clone()))?)
    }
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
        let product = match &self.value {
            Value::Shared((x1, x2)) => return Ok(add(engine, x1, x2)?),
            Value::Mul { lhs, rhs, summand } => {
                let (m, n) = (streams.words(mask(0)), streams.words(mask(1)));
                let [x1, x2, y1, y2] = [&lhs.0, &lhs.1, &rhs.0, &rhs.1].map(whole);
                let [a] = match summand {
                    Some((s1, s2)) => {
                        let sources = [x1, x2, y1, y2, m, n, whole(s1), whole(s2)];
                        words(engine, &MulPivotPlus, &shape, sources, &[])?
                    }
                    None => words(engine, &MulPivot, &shape, [x1, x2, y1, y2, m, n], &[])?,
                };
                return Ok(a);
            }
            Value::Map { op, terms, summands } => {
                let shape = shape_of(op, terms)?;
                let summands = summands.iter().map(|s| s.pivot(engine, &shape));
                let summands = summands.collect::<Result<Vec<_>>>()?;
                let masks = [mask(0), mask(1)].map(|draw| masked(streams, draw, true));
                multiply(engine, op, terms, masks.into_iter().chain(summands.iter().map(plus)))?
            }
        };
        Ok(flat(engine, &product)?)
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
        let product = match &self.value {
            Value::Shared(x) => return Ok(order(x).0),
            Value::Mul { lhs, rhs, summand } => {
                let ((x3, x), (y3, y)) = (order(lhs), order(rhs));
                // One of the two adds the summand that both know.
                let summand = summand.as_ref().filter(|_| second).map(|(_, s3)| s3);
                let (all, shape) = ([if second { u64::MAX } else { 0 }], Shape::new([self.n])?);
                let ([x3, x, y3, y], m) = ([&x3, &x, &y3, &y].map(whole), streams.words(mask()));
                let [z] = match summand {
                    Some(s) => {
                        let sources = [x3, x, y3, y, m, whole(s)];
                        words(engine, &MulOtherPlus, &shape, sources, &all)?
                    }
                    None => words(engine, &MulOther, &shape, [x3, x, y3, y, m], &all)?,
                };
                return Ok(z);
            }
            Value::Map { op, terms, summands } => {
                let shape = shape_of(op, terms)?;
                let summands = summands.iter().filter(|_| second);
                let summands = summands.map(|s| s.other(engine, &shape));
                let summands = summands.collect::<Result<Vec<_>>>()?;
                let mask = masked(streams, mask(), false);
                multiply(engine, op, terms, [mask].into_iter().chain(summands.iter().map(plus)))?
            }
        };
        Ok(flat(engine, &product)?)
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

/// This party's part of a map, with masks and summands.
fn multiply<'a, E: Engine>(
    engine: &E,
    op: &Bilinear,
    terms: &[(E::Tensor, E::Tensor)],
    addends: impl Iterator<Item = Addend<'a, E::Tensor>>,
) -> Result<E::Tensor> {
    let terms: Vec<_> = terms.iter().map(|(x, y)| (x, y)).collect();
    Ok(engine.bilinear(op, &terms, &addends.collect::<Vec<_>>())?)
}

/// The shape of a map's result.
fn shape_of<T: EngineTensor>(op: &Bilinear, terms: &[(T, T)]) -> Result<Shape> {
    let (x, y) = &terms[0];
    Ok(op.output_shape(x.shape(), y.shape())?)
}

fn masked<T>(streams: &Streams, draw: Draw, negate: bool) -> Addend<'_, T> {
    let (stream, first) = streams.locate(draw);
    Addend { source: addend(stream, first), negate }
}

fn plus<T>(tensor: &T) -> Addend<'_, T> {
    Addend { source: AddendSource::Tensor(tensor), negate: false }
}
