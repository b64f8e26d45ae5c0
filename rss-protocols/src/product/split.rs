//! A value as the sum of the dealer's part and the evaluators' part.
//!
//! Of a product `z = z0 + z1 + z2` each party computes one addend. The dealer subtracts masks that it shares with
//! each evaluator, `a = z0 - w_left - w_right`; the evaluators exchange `z1 + w_left` and `z2 + w_right`, whose sum
//! `b` is uniform to them. A party's addend does not depend on its role: of maps that sum it is one product, see
//! [`super::operands`], of single words `x_i (y_i + y_j) + x_j y_i`, `j = i + 1`. An existing sharing is already
//! such a sum: `a = x0 + x1`, `b = x2`.

use mpc_core::Result;
use ring_arith::{Engine, EngineTensor, Place, Source};

use super::stated::Stated;
use crate::{
    kernels::{AddedDealer, AddedEvaluator, EarlyNearest, EarlyRoundUp, MulDealer, MulEvaluator},
    proofs::{Shared, Transcript, Words},
    runtime::{
        chunks::{Chunk, take},
        launch::{invalid, whole},
        prss::Sample,
        roles::{Pair, Role},
        rounds::{Incoming, Port},
    },
};

/// A value before it is split.
pub(crate) enum Value<T> {
    /// It is shared: the role's two components.
    Shared(Pair<T>),
    /// Each party has an addend of it.
    Added(LocalProduct<T>),
}

/// This party's addend of a product, as tensors of one axis, and the job's addends.
#[derive(Clone)]
pub(crate) enum LocalProduct<T> {
    /// Computed before. A tensor is added with a factor. In a checked session the products are kept.
    Made { part: T, plus: Option<(T, u64)>, stated: Option<Stated<T>> },
    /// Of two tensors word by word: this party's component of each and the next. Of an addend too, whose own component
    /// is added.
    Elementwise { factors: [T; 4], plus: Option<[T; 2]> },
}

/// A value in two parts, before the evaluators know theirs.
#[derive(Clone)]
pub(crate) enum Split<T> {
    /// Both evaluators hold `b`.
    Known(Pair<T>),
    /// The evaluators mask their addends and exchange them, rounded by `early` bits.
    Masked { addend: LocalProduct<T>, masks: [Sample; 2], early: Option<u32> },
}

/// An evaluator's half of `b`.
pub(crate) enum Half<T> {
    /// All of `b`, since it is shared.
    Known(T),
    Whole(T),
    /// Rounded; with the number of lowest bits that were dropped.
    Rounded(T, u32),
}

/// Both halves of `b`.
pub(crate) enum Halves<T> {
    Known(T),
    Whole([T; 2]),
    Rounded([T; 2]),
}

impl<T: EngineTensor> LocalProduct<T> {
    /// That of some of the words.
    pub fn chunk<E: Engine<Tensor = T>>(&self, engine: &E, chunk: &Chunk) -> Result<Self> {
        let part_of = |tensor| take(engine, tensor, chunk);
        Ok(match self {
            Self::Made { part, plus, stated } => {
                let stated = match stated {
                    Some(stated) => Some(stated.chunk(engine, chunk)?),
                    None => None,
                };
                let plus = match plus {
                    Some((plus, factor)) => Some((part_of(plus)?, *factor)),
                    None => None,
                };
                Self::Made { part: part_of(part)?, plus, stated }
            }
            Self::Elementwise { factors: [x, x1, y, y1], plus } => Self::Elementwise {
                factors: [part_of(x)?, part_of(x1)?, part_of(y)?, part_of(y1)?],
                plus: match plus {
                    Some([plus, next]) => Some([part_of(plus)?, part_of(next)?]),
                    None => None,
                },
            },
        })
    }
}

impl<T: EngineTensor> Split<T> {
    /// `n` words; each half of a product is rounded by `early` bits before it is sent.
    pub fn sample<E: Engine<Tensor = T>>(
        p: &mut Port<'_, E>,
        value: Value<T>,
        n: usize,
        early: Option<u32>,
    ) -> Self {
        match value {
            Value::Shared(x) => Self::Known(x),
            Value::Added(addend) => Self::Masked { addend, masks: p.sample_both(n), early },
        }
    }

    /// Of a value that is shared, the part of `a` that an evaluator holds; at the dealer right's.
    pub fn shared<E: Engine<Tensor = T>>(&self, p: &Port<'_, E>) -> Option<T> {
        match self {
            Self::Known(x) if p.role() == Role::Right => Some(x.1.clone()),
            Self::Known(x) => Some(x.0.clone()),
            Self::Masked { .. } => None,
        }
    }

    /// The dealer's part `a`.
    pub fn dealer<E: Engine<Tensor = T>>(self, p: &Port<'_, E>) -> Result<T> {
        let (addend, masks) = match self {
            Self::Known(x) => return p.dealers(&x),
            Self::Masked { addend, masks, .. } => (addend, masks),
        };
        let [m, n] = masks.map(|mask| p.words_of(mask));
        let [a] = match &addend {
            LocalProduct::Made { part, plus, .. } => {
                let (plus, factor) = scaled(p, plus.as_ref());
                p.words(&AddedDealer, part.len(), [whole(part), m, n, plus], &[factor])?
            }
            LocalProduct::Elementwise { factors, plus } => {
                let [x, x1, y, y1] = factors.each_ref().map(whole);
                let plus = plus.as_ref().map_or(p.zero(), |[plus, _]| whole(plus));
                p.words(&MulDealer, factors[0].len(), [x, x1, y, y1, m, n, plus], &[])?
            }
        };
        Ok(a)
    }

    /// An evaluator computes its half of `b` and sends it, if the other needs it.
    pub fn send<E: Engine<Tensor = T>>(self, p: &Port<'_, E>) -> Result<Half<T>> {
        let (addend, masks, early) = match self {
            Self::Known(x) => return Ok(Half::Known(p.joint(&x).clone())),
            Self::Masked { addend, masks, early } => (addend, masks, early),
        };
        let m = p.words_of(p.own(masks));
        let [half] = match &addend {
            LocalProduct::Made { part, plus, .. } => {
                let (plus, factor) = scaled(p, plus.as_ref());
                p.words(&AddedEvaluator, part.len(), [whole(part), m, plus], &[factor])?
            }
            LocalProduct::Elementwise { factors, plus } => {
                let [x, x1, y, y1] = factors.each_ref().map(whole);
                let plus = plus.as_ref().map_or(p.zero(), |[plus, _]| whole(plus));
                p.words(&MulEvaluator, factors[0].len(), [x, x1, y, y1, m, plus], &[])?
            }
        };
        Half::send(p, half, early)
    }
}

impl<T: EngineTensor> Half<T> {
    /// Sends a half, rounded by `early` bits.
    pub fn send<E: Engine<Tensor = T>>(
        p: &Port<'_, E>,
        half: T,
        early: Option<u32>,
    ) -> Result<Self> {
        let Some(t) = early else {
            p.to_peer(&half)?;
            return Ok(Self::Whole(half));
        };
        let up = p.is_left();
        mutant!("early: both halves rounded to nearest", up = false);
        let rounded = if up {
            p.map(&EarlyRoundUp { t }, [&half], &[])?
        } else {
            p.map(&EarlyNearest { t }, [&half], &[])?
        };
        p.bits_to_peer(&rounded, 64 - t)?;
        Ok(Self::Rounded(rounded, t))
    }

    /// Waits for the peer's half, unless `b` is known.
    pub async fn exchange<E: Engine<Tensor = T>>(self, p: &Port<'_, E>) -> Result<Halves<T>> {
        if let Self::Known(b) = self {
            return Ok(Halves::Known(b));
        }
        self.receive(&p.received().await)
    }

    /// Reads the peer's half of the same value.
    pub fn receive<E: Engine<Tensor = T>>(
        self,
        received: &Incoming<'_, '_, E>,
    ) -> Result<Halves<T>> {
        Ok(match self {
            Self::Known(b) => Halves::Known(b),
            Self::Whole(own) => {
                let other = received.words(own.len())?;
                Halves::Whole([own, other])
            }
            Self::Rounded(own, t) => {
                let other = received.bits(own.len(), 64 - t, 0)?;
                Halves::Rounded([own, other])
            }
        })
    }
}

impl<T: EngineTensor> Halves<T> {
    /// `b`, where it belongs.
    pub fn sum<E: Engine<Tensor = T>>(
        self,
        p: &Port<'_, E>,
        place: Option<Place<'_, T>>,
    ) -> Result<T> {
        match self {
            Self::Known(b) => Ok(b),
            Self::Whole([own, other]) | Self::Rounded([own, other]) => {
                p.sum_into(&own, &other, place)
            }
        }
    }

    /// True if they were rounded before they were sent.
    pub fn rounded(&self) -> bool {
        matches!(self, Self::Rounded(_))
    }

    /// Two words whose sum is `b`.
    pub fn words<'x, E: Engine<Tensor = T>>(&'x self, p: &'x Port<'_, E>) -> [Source<'x, T>; 2] {
        match self {
            Self::Known(b) => [whole(b), p.zero()],
            Self::Whole(halves) | Self::Rounded(halves) => halves.each_ref().map(whole),
        }
    }
}

/// The addend of a product and its factor; zeros without one.
fn scaled<'x, E: Engine>(
    p: &'x Port<'_, E>,
    plus: Option<&'x (E::Tensor, u64)>,
) -> (Source<'x, E::Tensor>, u64) {
    plus.map_or((p.zero(), 0), |(plus, factor)| (whole(plus), *factor))
}

// -- what is owed --------------------------------------------------------------------------------

impl<T: EngineTensor> LocalProduct<T> {
    /// The products themselves.
    fn stated(&self) -> Result<Stated<T>> {
        match self {
            Self::Elementwise { factors, plus } => {
                Ok(Stated::words(vec![factors.clone()], plus.clone()))
            }
            Self::Made { stated: Some(stated), .. } => Ok(stated.clone()),
            Self::Made { .. } => Err(invalid("statement", "a product was not kept")),
        }
    }
}

impl<T: EngineTensor> Split<T> {
    /// The evaluators' parts of `a`: components of a value that is shared; else left's comes from the dealer and right's
    /// is a sample.
    pub fn parts<E: Engine<Tensor = T>>(
        &self,
        t: &mut Transcript<'_, E>,
        right: Sample,
    ) -> Result<Shared<Words>> {
        if let Self::Known(x) = self {
            let [x0, x1, _] = t.components(x)?;
            return Ok([x1, x0]);
        }
        Ok([t.dealt_left(1, right.len())?, t.sample(right)])
    }

    /// The relations that all owe for a value of `n` words of which the dealer's part is `a_left + a_right`: each its addend, masked.
    /// Gives the evaluators' part `b`.
    pub fn relations<E: Engine<Tensor = T>>(
        &self,
        t: &mut Transcript<'_, E>,
        n: usize,
        [a_left, a_right]: [&Words; 2],
    ) -> Result<Words> {
        let (addend, masks) = match self {
            Self::Known(x) => {
                let [_, _, b] = t.components(x)?;
                return Ok(b);
            }
            Self::Masked { addend, masks, .. } => (addend, *masks),
        };
        let [w_left, w_right] = t.samples(masks);
        let [q_left, q_right] = t.exchanged(1, n)?;
        let product = addend.stated()?;
        let dealt = Words::zero() - &w_left - &w_right - a_left - a_right;
        product.owe(t, Role::Dealer, dealt)?;
        product.owe(t, Role::Left, w_left - &q_left)?;
        product.owe(t, Role::Right, w_right - &q_right)?;
        product.finish(t)?;
        Ok(q_left + q_right)
    }
}
