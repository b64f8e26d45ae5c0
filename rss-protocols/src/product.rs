//! Bilinear maps and truncations: what this party computes alone, and how what follows is cut into parts.

use mpc_core::{Error, Finish, Linear, MOST_DROPPED, Product, Result, ShareTensor, TruncationMode};
use ring_arith::{Addend, AddendSource, Bilinear, Engine, EngineTensor, Shape, View};

use crate::{
    Rss, Share,
    cut::{Piece, Rooms, Spots, take},
    exact::{ExactUnit, Exactly},
    fused::{Rectify, ReluUnit},
    halves::{Part, Value},
    kernels::Scale,
    launch::{self, flat, invalid},
    links::Reader,
    paired,
    seat::Seat,
    truncate::{Rounding, TruncateUnit},
    unit::{self, Cx, Unit},
};

/// One part of one job, whatever follows.
enum JobUnit<T: EngineTensor> {
    Truncate(Box<TruncateUnit<T>>),
    Exact(Box<ExactUnit<T>>),
    Relu(Box<ReluUnit<T>>),
}

/// How a job's pieces make up its result.
struct Layout<T: EngineTensor> {
    pieces: Vec<Piece>,
    shape: Shape,
    rooms: Rooms<T>,
}

/// What follows a value, in one type for products and truncations.
#[derive(Debug, Clone, Copy)]
enum Ending {
    Rounded(Rounding),
    Exact { bits: u32, dither: bool },
    Relu(u32),
}

impl Ending {
    fn of(finish: Finish) -> Result<Self> {
        Ok(match finish {
            Finish::Raw => Self::Rounded(Rounding::Raw),
            Finish::Truncate { bits, mode } => Self::truncation(bits, mode)?,
            Finish::TruncateRelu { bits } => Self::Relu(check_bits(bits)?),
        })
    }

    fn truncation(bits: u32, mode: TruncationMode) -> Result<Self> {
        let bits = check_bits(bits)?;
        Ok(match mode {
            TruncationMode::Default => Self::Rounded(Rounding::Default(bits)),
            TruncationMode::Early => Self::Rounded(Rounding::Early(bits)),
            TruncationMode::Aby3Local => Self::Rounded(Rounding::Aby(bits)),
            TruncationMode::Exact => Self::Exact { bits, dither: false },
            TruncationMode::Dither => Self::Exact { bits, dither: true },
        })
    }
}

fn check_bits(bits: u32) -> Result<u32> {
    if (1..=MOST_DROPPED).contains(&bits) {
        return Ok(bits);
    }
    let reason = format!("cannot drop {bits} bits; 1 to {MOST_DROPPED} can be dropped");
    Err(invalid("truncate", reason))
}

impl<E: Engine> Rss<E> {
    /// Refuses what does not fit, before anything is sent.
    pub(crate) fn check_products(&self, jobs: &[Product<'_, Share<E::Tensor>>]) -> Result<()> {
        for job in jobs {
            let shape = job.op.output_shape(job.lhs.shape(), job.rhs.shape())?;
            Ending::of(job.finish)?;
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
        jobs.iter().try_for_each(|&(_, bits)| Ending::truncation(bits, mode).map(drop))
    }

    pub(crate) fn multiply(
        &mut self,
        jobs: &[Product<'_, Share<E::Tensor>>],
    ) -> Result<Vec<Share<E::Tensor>>> {
        let (mut units, mut layouts) = (Vec::new(), Vec::new());
        for job in jobs {
            let ending = Ending::of(job.finish)?;
            let shape = job.op.output_shape(job.lhs.shape(), job.rhs.shape())?;
            let pieces = self.pieces(shape.len());
            let part = match job.op {
                Bilinear::Mul => self.elementwise(job, &shape)?,
                _ => self.map(job, &shape)?,
            };
            let value = |piece| Ok(Value::Added(part.take(&self.engine, piece)?));
            let values = pieces.iter().map(value).collect::<Result<Vec<_>>>()?;
            layouts.push(self.job_units(&mut units, shape, pieces, values, ending));
        }
        self.run_jobs(units, layouts)
    }

    pub(crate) fn divide(
        &mut self,
        jobs: &[(&Share<E::Tensor>, u32)],
        mode: TruncationMode,
    ) -> Result<Vec<Share<E::Tensor>>> {
        let (mut units, mut layouts) = (Vec::new(), Vec::new());
        for &(x, bits) in jobs {
            let ending = Ending::truncation(bits, mode)?;
            let (mine, next) = self.flat_pair(x)?;
            let pieces = self.pieces(x.shape().len());
            let value = |piece: &Piece| -> Result<_> {
                let part = |side| take(&self.engine, side, piece);
                Ok(Value::Shared(piece.seat(self.party()).order(part(&mine)?, part(&next)?)))
            };
            let values = pieces.iter().map(value).collect::<Result<Vec<_>>>()?;
            layouts.push(self.job_units(&mut units, x.shape().clone(), pieces, values, ending));
        }
        self.run_jobs(units, layouts)
    }

    /// The sum of all summands, shifted and of the product's shape.
    fn summand(
        &self,
        job: &Product<'_, Share<E::Tensor>>,
        shape: &Shape,
    ) -> Result<Option<Share<E::Tensor>>> {
        let wide = |&(summand, shift): &(&Share<E::Tensor>, u32)| -> Result<_> {
            let wide = View::Broadcast(shape.clone());
            Ok((1 << shift, self.linear_map(&Linear::View(&wide), summand)?))
        };
        let wide = job.summands.iter().map(wide).collect::<Result<Vec<_>>>()?;
        let terms: Vec<_> = wide.iter().map(|(factor, share)| (*factor, share)).collect();
        if terms.is_empty() { Ok(None) } else { self.combination(&terms, 0).map(Some) }
    }

    /// This party's part of an elementwise product.
    fn elementwise(
        &self,
        job: &Product<'_, Share<E::Tensor>>,
        shape: &Shape,
    ) -> Result<Part<E::Tensor>> {
        let ((x, x1), (y, y1)) = (self.flat_pair(job.lhs)?, self.flat_pair(job.rhs)?);
        let plus = match self.summand(job, shape)? {
            Some(summand) => Some(flat(&self.engine, summand.mine())?),
            None => None,
        };
        Ok(Part::Factors { factors: [x, x1, y, y1], plus })
    }

    /// This party's part of another map. Of summands each party adds its own
    /// component: what is repeated to the result's shape with the product, the first of the result's
    /// size with the masks, where it costs no pass of its own.
    fn map(&self, job: &Product<'_, Share<E::Tensor>>, shape: &Shape) -> Result<Part<E::Tensor>> {
        let (engine, mut whole, mut scaled) = (&self.engine, None, Vec::new());
        for &(summand, shift) in &job.summands {
            let (own, factor) = (summand.mine(), 1 << shift);
            if whole.is_none() && own.len() == shape.len() {
                whole = Some((flat(engine, own)?, factor));
            } else {
                scaled.push(launch::map(engine, &Scale, own.shape(), [own], &[factor])?);
            }
        }
        let plus = |tensor| Addend { source: AddendSource::Tensor(tensor), negate: false };
        let addends: Vec<_> = scaled.iter().map(plus).collect();
        let terms = paired::terms(engine, &job.op, job.lhs, job.rhs)?;
        let terms: Vec<_> = terms.iter().map(|(x, y)| (x, y)).collect();
        let part = flat(engine, &engine.bilinear(&job.op, &terms, &addends)?)?;
        Ok(Part::Made { part, plus: whole })
    }

    /// A unit for each piece of a job.
    fn job_units(
        &mut self,
        units: &mut Vec<JobUnit<E::Tensor>>,
        shape: Shape,
        pieces: Vec<Piece>,
        values: Vec<Value<E::Tensor>>,
        ending: Ending,
    ) -> Layout<E::Tensor> {
        let rooms = Rooms::new(&self.engine, shape.len(), &pieces);
        for (piece, value) in pieces.iter().zip(values) {
            let spots = rooms.spots_of(piece, &piece.seat(self.party()));
            units.push(self.job_unit(piece, value, ending, spots));
        }
        Layout { pieces, shape, rooms }
    }

    fn job_unit(
        &mut self,
        piece: &Piece,
        value: Value<E::Tensor>,
        ending: Ending,
        spots: Spots<E::Tensor>,
    ) -> JobUnit<E::Tensor> {
        let (seat, streams) = self.seat(piece);
        match ending {
            Ending::Rounded(rounding) => {
                let unit = TruncateUnit::new(seat, streams, value, rounding, spots);
                JobUnit::Truncate(Box::new(unit))
            }
            Ending::Exact { bits, dither } => {
                let plan = self.plan(crate::plan::Goal::Carry, bits as usize);
                let how = Exactly { bits, dither };
                let unit = ExactUnit::new(seat, streams, value, how, plan, spots);
                JobUnit::Exact(Box::new(unit))
            }
            Ending::Relu(bits) => {
                let plan = self.plan(crate::plan::Goal::Carry, 63 - bits as usize);
                let how = Rectify { bits, early: self.options.early_relu };
                let unit = ReluUnit::new(seat, streams, value, how, plan, spots);
                JobUnit::Relu(Box::new(unit))
            }
        }
    }

    fn run_jobs(
        &mut self,
        mut units: Vec<JobUnit<E::Tensor>>,
        layouts: Vec<Layout<E::Tensor>>,
    ) -> Result<Vec<Share<E::Tensor>>> {
        unit::run(&mut self.cx(), &mut units)?;
        let mut units = units.into_iter();
        let mut results = Vec::with_capacity(layouts.len());
        for layout in layouts {
            let (mut mine, mut next) = (Vec::new(), Vec::new());
            for piece in layout.pieces {
                let (seat, (first, second)) = units.next().expect("a unit for each").result();
                let (one, two) = seat.order(first, second);
                mine.push((piece.range.start, one));
                next.push((piece.range.start, two));
            }
            let [mine, next] =
                layout.rooms.assemble(&self.engine, [mine, next], 0, &layout.shape)?;
            results.push(Share::new(mine, next)?);
        }
        Ok(results)
    }
}

impl<T: EngineTensor> JobUnit<T> {
    fn result(self) -> (Seat, (T, T)) {
        let (seat, result) = match self {
            Self::Truncate(unit) => unit.done(),
            Self::Exact(unit) => unit.done(),
            Self::Relu(unit) => unit.done(),
        };
        (seat, result.expect("the unit is done"))
    }
}

impl<E: Engine> Unit<E> for JobUnit<E::Tensor> {
    fn seat(&self) -> &Seat {
        match self {
            Self::Truncate(unit) => Unit::<E>::seat(&**unit),
            Self::Exact(unit) => Unit::<E>::seat(&**unit),
            Self::Relu(unit) => Unit::<E>::seat(&**unit),
        }
    }

    fn bundle(&self) -> [usize; 2] {
        match self {
            Self::Truncate(unit) => Unit::<E>::bundle(&**unit),
            Self::Exact(unit) => Unit::<E>::bundle(&**unit),
            Self::Relu(unit) => Unit::<E>::bundle(&**unit),
        }
    }

    fn lead(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        match self {
            Self::Truncate(unit) => unit.lead(cx),
            Self::Exact(unit) => unit.lead(cx),
            Self::Relu(unit) => unit.lead(cx),
        }
    }

    fn announce(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        match self {
            Self::Truncate(unit) => unit.announce(cx),
            Self::Exact(unit) => unit.announce(cx),
            Self::Relu(unit) => unit.announce(cx),
        }
    }

    fn start(&mut self, cx: &mut Cx<'_, E>, bundle: Reader) -> Result<()> {
        match self {
            Self::Truncate(unit) => unit.start(cx, bundle),
            Self::Exact(unit) => unit.start(cx, bundle),
            Self::Relu(unit) => unit.start(cx, bundle),
        }
    }

    fn advance(&mut self, cx: &mut Cx<'_, E>) -> Result<bool> {
        match self {
            Self::Truncate(unit) => unit.advance(cx),
            Self::Exact(unit) => unit.advance(cx),
            Self::Relu(unit) => unit.advance(cx),
        }
    }
}
