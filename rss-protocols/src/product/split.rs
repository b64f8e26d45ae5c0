//! A value as the sum of what the pivot knows and what both others know.
//!
//! For a product, `z = z1 + z2 + z3` with one summand at each party; the pivot takes off masks that
//! it has in common with each, `a = z1 - w12 - w13`, and the others exchange `z2 + w12` and `z3 + w13`,
//! whose sum `b` is uniform to them. What a party computes does not depend on its role: of maps that
//! sum one product, see `paired.rs`, of single words `x_i (y_i + y_j) + x_j y_i`, `j = i + 1`.
//! A value that is shared already is such a sum as it stands: `a = x1 + x2`, `b = x3`.

use mpc_core::Result;
use ring_arith::{Engine, EngineTensor, Shape, Source};

use crate::{
    kernels::{AddedOther, AddedPivot, EarlyNearest, EarlyRoundUp, MulOther, MulPivot},
    runtime::chunks::{Piece, take},
    runtime::launch::{map, whole, words},
    runtime::prss::{Draw, Key, Streams},
    runtime::roles::{Role, Roles},
    runtime::rounds::Cx,
    share::add,
};

/// Where a value comes from.
pub(crate) enum Value<T> {
    /// It is shared: the role's two components.
    Shared((T, T)),
    /// Parts, one at each party, add up to it.
    Added(Part<T>),
}

/// This party's part of a product, as tensors of one axis, and what is added to it.
pub(crate) enum Part<T> {
    /// Computed before. A tensor is added with a factor.
    Made { part: T, plus: Option<(T, u64)> },
    /// Of two tensors word by word: this party's component of each and the next.
    Factors { factors: [T; 4], plus: Option<T> },
}

impl<T: EngineTensor> Part<T> {
    /// That of some of the words.
    pub fn take<E: Engine<Tensor = T>>(&self, engine: &E, piece: &Piece) -> Result<Self> {
        let cut = |tensor| take(engine, tensor, piece);
        Ok(match self {
            Self::Made { part, plus } => {
                let plus = match plus {
                    Some((plus, factor)) => Some((cut(plus)?, *factor)),
                    None => None,
                };
                Self::Made { part: cut(part)?, plus }
            }
            Self::Factors { factors: [x, x1, y, y1], plus } => Self::Factors {
                factors: [cut(x)?, cut(x1)?, cut(y)?, cut(y1)?],
                plus: plus.as_ref().map(cut).transpose()?,
            },
        })
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
        let masks = product.then(|| {
            let masks = [Key::Left, Key::Right].map(|pair| streams.draw(pair, n));
            planted!("product: w12 off", masks = [streams.blank(Key::Left, n), masks[1]]);
            planted!("product: w13 off", masks = [masks[0], streams.blank(Key::Right, n)]);
            masks
        });
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
            Value::Added(Part::Made { part, plus }) => {
                let (plus, factor) = summand(cx, plus.as_ref());
                words(engine, &AddedPivot, &shape, [whole(part), m(), n(), plus], &[factor])?
            }
            Value::Added(Part::Factors { factors, plus }) => {
                let [x, x1, y, y1] = factors.each_ref().map(whole);
                let plus = plus.as_ref().map_or(cx.zero(), whole);
                words(engine, &MulPivot, &shape, [x, x1, y, y1, m(), n(), plus], &[])?
            }
        };
        Ok(a)
    }

    /// The half that this party, the second or the third, computes: of a product its masked
    /// summand, of a shared value all of `b`.
    fn other<E: Engine<Tensor = T>>(
        &self,
        cx: &Cx<'_, E>,
        roles: &Roles,
        streams: &Streams,
    ) -> Result<T> {
        let (engine, second) = (cx.engine, roles.role == Role::Left);
        let mask = || self.masks.expect("products are masked")[usize::from(!second)];
        let (m, shape) = (|| streams.words(mask()), Shape::new([self.n])?);
        let [z] = match &self.value {
            // Component 3, which the second and the third share.
            Value::Shared((first, last)) => [if second { last } else { first }.clone()],
            Value::Added(Part::Made { part, plus }) => {
                let (plus, factor) = summand(cx, plus.as_ref());
                words(engine, &AddedOther, &shape, [whole(part), m(), plus], &[factor])?
            }
            Value::Added(Part::Factors { factors, plus }) => {
                let [x, x1, y, y1] = factors.each_ref().map(whole);
                let plus = plus.as_ref().map_or(cx.zero(), whole);
                words(engine, &MulOther, &shape, [x, x1, y, y1, m(), plus], &[])?
            }
        };
        Ok(z)
    }

    /// The second and the third compute their halves and send them.
    pub fn announce<E: Engine<Tensor = T>>(
        &mut self,
        cx: &mut Cx<'_, E>,
        roles: &Roles,
        streams: &Streams,
    ) -> Result<()> {
        let half = self.other(cx, roles, streams)?;
        let half = match self.early {
            None => {
                if self.exchanged() {
                    cx.put(roles.peer(), &half)?;
                }
                half
            }
            Some(t) => {
                let shape = half.shape();
                let rounded = match roles.role {
                    Role::Left => map(cx.engine, &EarlyRoundUp { t }, shape, [&half], &[])?,
                    _ => map(cx.engine, &EarlyNearest { t }, shape, [&half], &[])?,
                };
                let planes = cx.engine.to_planes(&rounded, 0, 64 - t)?;
                cx.put(roles.peer(), &planes)?;
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
        roles: &Roles,
    ) -> Result<(T, Option<T>)> {
        let own = self.own.take().expect("computed before");
        if !self.exchanged() {
            return Ok((own, None));
        }
        let other = match self.early {
            None => cx.receive(roles.peer(), self.n)?.words(cx.engine, self.n)?,
            Some(t) => {
                let (planes, cols) = (64 - t as usize, self.n.div_ceil(64));
                let mut reader = cx.receive(roles.peer(), planes * cols)?;
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
