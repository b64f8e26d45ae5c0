//! Bilinear maps and truncations: what this party computes alone, and how what follows is cut into parts.

mod chain;
mod gated;
mod mask;
mod operands;
mod relu;
mod relu_fss;
pub(crate) mod split;
pub(crate) mod truncate;
mod truncate_exact;

use mpc_core::{
    Error, Finish, Linear, MOST_DROPPED, Produced, Product, Profile, Result, ShareTensor,
    TruncationMode,
};
use ring_arith::{Addend, AddendSource, Bilinear, Engine, EngineTensor, Shape, View};

use crate::{
    BitShare, Rss, Share,
    circuit::schedule::Goal,
    compare::protocol::OpenedBit,
    compare::select::MaskShares,
    kernels::Scale,
    linear::same_shape,
    product::gated::Drop,
    product::mask::{Bit, MaskUnit},
    product::relu::ReluUnit,
    product::relu_fss::ReluAtOnceUnit,
    product::split::{Part, Value},
    product::truncate::{Rounding, TruncateUnit},
    product::truncate_exact::{ExactUnit, Exactly},
    runtime::chunks::{Piece, Rooms, Spots, take},
    runtime::launch::{self, flat, invalid},
    runtime::links::Reader,
    runtime::roles::Roles,
    runtime::rounds::{self, Cx, Unit},
    share::reusable::{Layout, flat_pieces},
};

/// A product of this protocol's shares, and its answer.
pub(crate) type Job<'a, T> = Product<'a, Share<T>, BitShare<T>>;
type Answer<T> = Produced<Share<T>, BitShare<T>>;

/// One part of one job, whatever follows.
enum JobUnit<T: EngineTensor> {
    Truncate(Box<TruncateUnit<T>>),
    Exact(Box<ExactUnit<T>>),
    Relu(Box<ReluUnit<T>>),
    ReluAtOnce(Box<ReluAtOnceUnit<T>>),
    Mask(Box<MaskUnit<T>>),
}

/// How a job's pieces make up its result.
struct Plan<T: EngineTensor> {
    pieces: Vec<Piece>,
    shape: Shape,
    rooms: Rooms<T>,
}

/// What follows a value, in one type for products and truncations.
enum Ending<'a, T> {
    Rounded(Rounding),
    Exact(Exactly),
    Relu { how: Drop, keep: bool },
    ReluAtOnce(Drop),
    Mask { how: Drop, mask: &'a BitShare<T> },
}

impl<'a, T> Ending<'a, T> {
    /// What is done in one protocol: of a ReLU or a mask in another than the two fast modes, the truncation.
    fn of(finish: Finish<'a, BitShare<T>>) -> Result<Self> {
        let Some((bits, mode)) = finish.truncation() else {
            return Ok(Self::Rounded(Rounding::Raw));
        };
        let how = Drop { bits: check_bits(bits)?, early: mode == TruncationMode::Early };
        Ok(match finish {
            _ if in_steps(&finish) => Self::truncation(bits, mode)?,
            Finish::TruncateRelu { keep, .. } => Self::Relu { how, keep },
            Finish::TruncateMask { mask, .. } => Self::Mask { how, mask },
            _ => Self::truncation(bits, mode)?,
        })
    }

    fn truncation(bits: u32, mode: TruncationMode) -> Result<Self> {
        let bits = check_bits(bits)?;
        Ok(match mode {
            TruncationMode::Default => Self::Rounded(Rounding::Default(bits)),
            TruncationMode::Early => Self::Rounded(Rounding::Early(bits)),
            TruncationMode::Aby3Local => Self::Rounded(Rounding::Aby(bits)),
            TruncationMode::Exact => Self::Exact(Exactly { bits, dither: false }),
            TruncationMode::Dither => Self::Exact(Exactly { bits, dither: true }),
        })
    }
}

/// Whether a ReLU or a mask follows a truncation that it has no common protocol with.
pub(crate) fn in_steps<T>(finish: &Finish<'_, BitShare<T>>) -> bool {
    match *finish {
        Finish::Raw | Finish::Truncate { .. } => false,
        Finish::TruncateRelu { mode, .. } | Finish::TruncateMask { mode, .. } => {
            !matches!(mode, TruncationMode::Default | TruncationMode::Early)
        }
    }
}

fn check_bits(bits: u32) -> Result<u32> {
    if (1..=MOST_DROPPED).contains(&bits) {
        return Ok(bits);
    }
    let reason = format!("cannot drop {bits} bits; 1 to {MOST_DROPPED} can be dropped");
    Err(invalid("truncate", reason))
}

/// The shape of a sum of products.
fn output_shape<T: EngineTensor>(job: &Job<'_, T>) -> Result<Shape> {
    let mut shapes = job.terms.iter().map(|t| t.op.output_shape(t.lhs.shape(), t.rhs.shape()));
    let Some(first) = shapes.next() else {
        return Err(invalid("product", "a product needs at least one term"));
    };
    let first = first?;
    shapes.try_for_each(|shape| same_shape("terms", &first, &shape?))?;
    Ok(first)
}

impl<E: Engine> Rss<E> {
    /// Refuses what does not fit, before anything is sent.
    pub(crate) fn check_products(&self, jobs: &[Job<'_, E::Tensor>]) -> Result<()> {
        for job in jobs {
            let shape = output_shape(job)?;
            Ending::of(job.finish)?;
            if let Finish::TruncateMask { mask, .. } = job.finish {
                check_one_bit("mask", mask)?;
                same_shape("mask", &shape, mask.shape())?;
            }
            for &(summand, shift) in &job.summands {
                if summand.shape().broadcast(&shape, "summand")? != shape {
                    let (lhs, rhs) = (shape, summand.shape().clone());
                    return Err(Error::Shapes { op: "summand", lhs, rhs });
                }
                if shift >= 64 {
                    let reason = format!("a shift by {shift} bits leaves nothing");
                    return Err(invalid("summand", reason));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn check_truncations(
        jobs: &[(&Share<E::Tensor>, u32)],
        mode: TruncationMode,
    ) -> Result<()> {
        let check = |bits| Ending::<E::Tensor>::truncation(bits, mode).map(drop);
        jobs.iter().try_for_each(|&(_, bits)| check(bits))
    }

    /// Products with what follows them in one protocol.
    pub(crate) fn multiply(
        &mut self,
        jobs: &[Job<'_, E::Tensor>],
    ) -> Result<Vec<Answer<E::Tensor>>> {
        let (mut units, mut plans) = (Vec::new(), Vec::new());
        for job in jobs {
            let shape = output_shape(job)?;
            let ending = match Ending::of(job.finish)? {
                Ending::Relu { how, keep: false } if self.is_worth_keys(shape.len()) => {
                    Ending::ReluAtOnce(how)
                }
                ending => ending,
            };
            let pieces = self.pieces_for(&ending, shape.len());
            let part = match &job.terms[..] {
                [term] if term.op == Bilinear::Mul => {
                    self.elementwise([term.lhs, term.rhs], job, &shape)?
                }
                _ => self.map(job, &shape)?,
            };
            let value = |piece| Ok(Value::Added(part.take(&self.engine, piece)?));
            let values = pieces.iter().map(value).collect::<Result<Vec<_>>>()?;
            plans.push(self.job_units(&mut units, shape, pieces, values, &ending)?);
        }
        self.run_jobs(units, plans)
    }

    pub(crate) fn divide(
        &mut self,
        jobs: &[(&Share<E::Tensor>, u32)],
        mode: TruncationMode,
    ) -> Result<Vec<Share<E::Tensor>>> {
        let (mut units, mut plans) = (Vec::new(), Vec::new());
        for &(x, bits) in jobs {
            let ending = Ending::truncation(bits, mode)?;
            let (mine, next) = self.flat_pair(x)?;
            let pieces = self.pieces(x.shape().len());
            let value = |piece: &Piece| -> Result<_> {
                let part = |side| take(&self.engine, side, piece);
                Ok(Value::Shared(piece.roles(self.party()).order(part(&mine)?, part(&next)?)))
            };
            let values = pieces.iter().map(value).collect::<Result<Vec<_>>>()?;
            plans.push(self.job_units(&mut units, x.shape().clone(), pieces, values, &ending)?);
        }
        Ok(self.run_jobs(units, plans)?.into_iter().map(|produced| produced.share).collect())
    }

    /// Whether rounds are worth a key for each of so many elements.
    fn is_worth_keys(&self, elements: usize) -> bool {
        self.options.profile == Profile::SlowLinks && elements <= relu_fss::MOST
    }

    /// How a job is cut: behind a kept bit, as that was.
    fn pieces_for(&mut self, ending: &Ending<'_, E::Tensor>, len: usize) -> Vec<Piece> {
        if let Ending::Mask { mask, .. } = ending
            && let Some(kept) = flat_pieces(mask)
        {
            return kept.pieces.iter().map(|kept| kept.piece.clone()).collect();
        }
        if let Ending::ReluAtOnce(_) = ending
            && len > relu_fss::ALONE
        {
            // All links carry keys.
            return self.options.parts.parts(len, 64);
        }
        self.pieces(len)
    }

    /// The sum of all summands, shifted and of the product's shape.
    fn summand(&self, job: &Job<'_, E::Tensor>, shape: &Shape) -> Result<Option<Share<E::Tensor>>> {
        let wide = |&(summand, shift): &(&Share<E::Tensor>, u32)| -> Result<_> {
            let wide = View::Broadcast(shape.clone());
            Ok((1 << shift, self.linear_map(&Linear::View(&wide), summand)?))
        };
        let wide = job.summands.iter().map(wide).collect::<Result<Vec<_>>>()?;
        let terms: Vec<_> = wide.iter().map(|(factor, share)| (*factor, share)).collect();
        if terms.is_empty() { Ok(None) } else { self.combination(&terms, 0).map(Some) }
    }

    /// This party's part of one elementwise product.
    fn elementwise(
        &self,
        [x, y]: [&Share<E::Tensor>; 2],
        job: &Job<'_, E::Tensor>,
        shape: &Shape,
    ) -> Result<Part<E::Tensor>> {
        let ((x, x1), (y, y1)) = (self.flat_pair(x)?, self.flat_pair(y)?);
        let plus = match self.summand(job, shape)? {
            Some(summand) => Some(flat(&self.engine, summand.mine())?),
            None => None,
        };
        Ok(Part::Factors { factors: [x, x1, y, y1], plus })
    }

    /// This party's part of other maps, each added to those before it. Of summands each party adds its
    /// own component: what is repeated to the result's shape with the first map, the first of the
    /// result's size with the masks, where it costs no pass of its own.
    fn map(&self, job: &Job<'_, E::Tensor>, shape: &Shape) -> Result<Part<E::Tensor>> {
        let (engine, mut whole, mut added) = (&self.engine, None, Vec::new());
        for &(summand, shift) in &job.summands {
            let (own, factor) = (summand.mine(), 1 << shift);
            if whole.is_none() && own.len() == shape.len() {
                planted!("product: a summand without its shift", factor = 1);
                whole = Some((flat(engine, own)?, factor));
            } else {
                added.push(launch::map(engine, &Scale, own.shape(), [own], &[factor])?);
            }
        }
        for term in &job.terms {
            let plus = |tensor| Addend { source: AddendSource::Tensor(tensor), negate: false };
            let addends: Vec<_> = added.iter().map(plus).collect();
            planted!("product: the last term alone", addends = Vec::new());
            let pairs = operands::terms(engine, &term.op, term.lhs, term.rhs)?;
            let pairs: Vec<_> = pairs.iter().map(|(x, y)| (x, y)).collect();
            let sum = engine.bilinear(&term.op, &pairs, &addends)?;
            drop(addends);
            added = vec![sum];
        }
        let part = flat(engine, &added.pop().expect("a product has a term"))?;
        Ok(Part::Made { part, plus: whole })
    }

    /// A unit for each piece of a job.
    fn job_units(
        &mut self,
        units: &mut Vec<JobUnit<E::Tensor>>,
        shape: Shape,
        pieces: Vec<Piece>,
        values: Vec<Value<E::Tensor>>,
        ending: &Ending<'_, E::Tensor>,
    ) -> Result<Plan<E::Tensor>> {
        let rooms = Rooms::new(&self.engine, shape.len(), &pieces);
        for (i, (piece, value)) in pieces.iter().zip(values).enumerate() {
            let spots = rooms.spots_of(piece, &piece.roles(self.party()));
            units.push(self.job_unit((i, piece), value, ending, spots)?);
        }
        Ok(Plan { pieces, shape, rooms })
    }

    fn job_unit(
        &mut self,
        (i, piece): (usize, &Piece),
        value: Value<E::Tensor>,
        ending: &Ending<'_, E::Tensor>,
        spots: Spots<E::Tensor>,
    ) -> Result<JobUnit<E::Tensor>> {
        let (roles, streams) = self.roles(piece);
        Ok(match *ending {
            Ending::Rounded(rounding) => {
                let unit = TruncateUnit::new(roles, streams, value, rounding, spots);
                JobUnit::Truncate(Box::new(unit))
            }
            Ending::Exact(how) => {
                let plan = self.plan(Goal::Carry, how.bits as usize);
                let unit = ExactUnit::new(roles, streams, value, how, plan, spots);
                JobUnit::Exact(Box::new(unit))
            }
            Ending::Relu { how, keep } => {
                let plan = self.plan(Goal::Carry, 63 - how.bits as usize);
                let unit = ReluUnit::new(roles, streams, value, (how, keep), plan, spots);
                JobUnit::Relu(Box::new(unit))
            }
            Ending::ReluAtOnce(how) => {
                let unit = ReluAtOnceUnit::new(roles, streams, value, how, spots);
                JobUnit::ReluAtOnce(Box::new(unit))
            }
            Ending::Mask { how, mask } => {
                let bit = self.mask_of(mask, (i, piece), &roles)?;
                let unit = MaskUnit::new(roles, streams, value, how, bit, spots);
                JobUnit::Mask(Box::new(unit))
            }
        })
    }

    /// The piece of a mask that belongs to a job's piece, and what was kept of it.
    fn mask_of(
        &self,
        mask: &BitShare<E::Tensor>,
        (i, piece): (usize, &Piece),
        roles: &Roles,
    ) -> Result<(Bit<E::Tensor>, Option<MaskShares<E::Tensor>>)> {
        let Some(kept) = flat_pieces(mask) else {
            let known = self.known_plane(mask, 0, piece, roles)?;
            return Ok((Bit { known, opposite: false }, None));
        };
        let from = &kept.pieces[i];
        let bit = Bit { known: from.known.clone(), opposite: kept.negated };
        Ok((bit, Some(MaskShares::Kept(from.share.clone()))))
    }

    fn run_jobs(
        &mut self,
        mut units: Vec<JobUnit<E::Tensor>>,
        plans: Vec<Plan<E::Tensor>>,
    ) -> Result<Vec<Answer<E::Tensor>>> {
        rounds::run(&mut self.cx(), &mut units)?;
        let mut units = units.into_iter();
        let mut results = Vec::with_capacity(plans.len());
        for plan in plans {
            let (mut mine, mut next, mut bits) = (Vec::new(), Vec::new(), Vec::new());
            for piece in plan.pieces {
                let (roles, (first, second), bit) = units.next().expect("a unit for each").done();
                let (one, two) = roles.order(first, second);
                mine.push((piece.range.start, one));
                next.push((piece.range.start, two));
                bits.extend(bit.map(|bit| (piece, roles, bit)));
            }
            let [mine, next] = plan.rooms.assemble(&self.engine, [mine, next], 0, &plan.shape)?;
            let kept = match bits.is_empty() {
                true => None,
                // The sign that was opened says where the result is not positive.
                false => {
                    Some(self.complement(&self.collect_bit(bits, Layout::FLAT, &plan.shape)?)?)
                }
            };
            results.push(Produced { share: Share::new(mine, next)?, kept });
        }
        Ok(results)
    }
}

/// Refuses bits of another width than 1.
pub(crate) fn check_one_bit<T: EngineTensor>(op: &'static str, bits: &BitShare<T>) -> Result<()> {
    match bits.width() {
        1 => Ok(()),
        width => Err(invalid(op, format!("{width} bits choose; one is due"))),
    }
}

impl<T: EngineTensor> JobUnit<T> {
    /// The roles, the role's components of the result, and the sign if it is kept.
    fn done(self) -> (Roles, (T, T), Option<OpenedBit<T>>) {
        let ((roles, result), bit) = match self {
            Self::Truncate(unit) => (unit.done(), None),
            Self::Exact(unit) => (unit.done(), None),
            Self::Mask(unit) => (unit.done(), None),
            Self::ReluAtOnce(unit) => (unit.done(), None),
            Self::Relu(unit) => {
                let (roles, result, bit) = unit.done();
                ((roles, result), bit)
            }
        };
        (roles, result.expect("the unit is done"), bit)
    }
}

impl<E: Engine> Unit<E> for JobUnit<E::Tensor> {
    fn roles(&self) -> &Roles {
        match self {
            Self::Truncate(unit) => Unit::<E>::roles(&**unit),
            Self::Exact(unit) => Unit::<E>::roles(&**unit),
            Self::Relu(unit) => Unit::<E>::roles(&**unit),
            Self::ReluAtOnce(unit) => Unit::<E>::roles(&**unit),
            Self::Mask(unit) => Unit::<E>::roles(&**unit),
        }
    }

    fn bundle(&self) -> [usize; 2] {
        match self {
            Self::Truncate(unit) => Unit::<E>::bundle(&**unit),
            Self::Exact(unit) => Unit::<E>::bundle(&**unit),
            Self::Relu(unit) => Unit::<E>::bundle(&**unit),
            Self::ReluAtOnce(unit) => Unit::<E>::bundle(&**unit),
            Self::Mask(unit) => Unit::<E>::bundle(&**unit),
        }
    }

    fn lead(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        match self {
            Self::Truncate(unit) => unit.lead(cx),
            Self::Exact(unit) => unit.lead(cx),
            Self::Relu(unit) => unit.lead(cx),
            Self::ReluAtOnce(unit) => unit.lead(cx),
            Self::Mask(unit) => unit.lead(cx),
        }
    }

    fn announce(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        match self {
            Self::Truncate(unit) => unit.announce(cx),
            Self::Exact(unit) => unit.announce(cx),
            Self::Relu(unit) => unit.announce(cx),
            Self::ReluAtOnce(unit) => unit.announce(cx),
            Self::Mask(unit) => unit.announce(cx),
        }
    }

    fn start(&mut self, cx: &mut Cx<'_, E>, bundle: Reader) -> Result<()> {
        match self {
            Self::Truncate(unit) => unit.start(cx, bundle),
            Self::Exact(unit) => unit.start(cx, bundle),
            Self::Relu(unit) => unit.start(cx, bundle),
            Self::ReluAtOnce(unit) => unit.start(cx, bundle),
            Self::Mask(unit) => unit.start(cx, bundle),
        }
    }

    fn advance(&mut self, cx: &mut Cx<'_, E>) -> Result<bool> {
        match self {
            Self::Truncate(unit) => unit.advance(cx),
            Self::Exact(unit) => unit.advance(cx),
            Self::Relu(unit) => unit.advance(cx),
            Self::ReluAtOnce(unit) => unit.advance(cx),
            Self::Mask(unit) => unit.advance(cx),
        }
    }
}
