//! Bilinear maps: how they are cut into parts.

use std::ops::Range;

use mpc_core::{Error, Finish, Linear, Product, Result, ShareTensor, TruncationMode};
use ring_arith::{Bilinear, ConvSpec, Engine, EngineTensor, Shape, View, Window};

use crate::{
    Rss, Share,
    cut::{Parts, Piece, Rooms, SMALL, Spots, take},
    exact::{ExactUnit, Exactly},
    fused::{Rectify, ReluUnit},
    halves::{Summand, Value},
    launch::{invalid, slice},
    links::Reader,
    paired,
    seat::Seat,
    truncate::{Rounding, TruncateUnit},
    unit::{self, Cx, Unit},
};

/// Multiplications below which a map with a small result is not cut.
const LITTLE: usize = 1 << 20;

/// Multiplications in the time that a product takes to bring a word of an operand into its own order.
const ORDERED: usize = 8;

/// Multiplications in the time that copying a word takes: large tensors lie outside a core's cache.
const COPIED: usize = 12;

/// How a bilinear map is cut: which axis of the result, and which axis of each operand goes with it.
#[derive(Debug, Clone, Copy)]
struct Axes {
    result: usize,
    lhs: Option<usize>,
    rhs: Option<usize>,
    len: usize,
    /// Where the axis is the height of an image: the window over it, and the image's height.
    rows: Option<(Window, usize)>,
    /// Words that every part brings into order, since the cut leaves them whole.
    whole: usize,
    /// Words of operands and result that the cut takes apart and puts together.
    copied: usize,
}

impl Axes {
    /// What of the first operand a part of the result needs.
    fn lhs_range(&self, part: &Range<usize>) -> Range<usize> {
        let Some((window, height)) = self.rows else { return part.clone() };
        let [first, last] = window_rows(&window, part);
        first.saturating_sub(window.padding[0])..(last - window.padding[0]).min(height)
    }

    /// The map from that to the part: only the first and the last rows of an image have a border.
    fn op(&self, op: &Bilinear, part: &Range<usize>) -> Bilinear {
        match (op, self.rows) {
            (Bilinear::Conv(spec), Some((window, height))) => {
                let [first, last] = window_rows(&window, part);
                let [top, left, _, right] = window.padding;
                let above = top.saturating_sub(first);
                let padding = [above, left, last.saturating_sub(top + height), right];
                Bilinear::Conv(ConvSpec { window: Window { padding, ..window }, ..*spec })
            }
            _ => op.clone(),
        }
    }
}

/// First and last row under the window's positions, the latter exclusive, counted from the border's top.
fn window_rows(window: &Window, positions: &Range<usize>) -> [usize; 2] {
    let [height, _] = window.reach();
    [positions.start * window.stride[0], (positions.end - 1) * window.stride[0] + height]
}

/// One part of one job, whatever follows.
enum JobUnit<T: EngineTensor> {
    Truncate(Box<TruncateUnit<T>>),
    Exact(Box<ExactUnit<T>>),
    Relu(Box<ReluUnit<T>>),
}

/// How the pieces of a job lie.
struct Layout<T: EngineTensor> {
    /// Where each piece begins along the axis, and its shape.
    pieces: Vec<(usize, Shape)>,
    axis: usize,
    shape: Shape,
    rooms: Rooms<T>,
    /// Words of the result for each step along the axis.
    inner: usize,
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
    if (1..=40).contains(&bits) {
        return Ok(bits);
    }
    Err(invalid("truncate", format!("cannot drop {bits} bits; 1 to 40 can be dropped")))
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
            layouts.push(if job.op == Bilinear::Mul {
                self.cut_elementwise(&mut units, job, ending, shape)?
            } else {
                self.cut_map(&mut units, job, ending, shape)?
            });
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
            let mut layout = Layout::of_elements(&self.engine, x.shape(), &pieces);
            for piece in pieces {
                let seat = piece.seat(self.party());
                let part = |side| take(&self.engine, side, &piece);
                let value = Value::Shared(seat.order(part(&mine)?, part(&next)?));
                let spots = layout.add(&piece, &seat, Shape::new([piece.len()])?);
                units.push(self.job_unit(&piece, value, ending, spots));
            }
            layouts.push(layout);
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

    fn cut_elementwise(
        &mut self,
        units: &mut Vec<JobUnit<E::Tensor>>,
        job: &Product<'_, Share<E::Tensor>>,
        ending: Ending,
        shape: Shape,
    ) -> Result<Layout<E::Tensor>> {
        let (lhs, rhs) = (self.flat_pair(job.lhs)?, self.flat_pair(job.rhs)?);
        let summand = self.summand(job, &shape)?;
        let summand = summand.map(|summand| self.flat_pair(&summand)).transpose()?;
        let pieces = self.pieces(shape.len());
        let mut layout = Layout::of_elements(&self.engine, &shape, &pieces);
        for piece in pieces {
            let seat = piece.seat(self.party());
            let part = |(mine, next): &(E::Tensor, E::Tensor)| -> Result<_> {
                let (engine, piece) = (&self.engine, &piece);
                Ok(seat.order(take(engine, mine, piece)?, take(engine, next, piece)?))
            };
            let summand = summand.as_ref().map(part).transpose()?;
            let value = Value::Mul { lhs: part(&lhs)?, rhs: part(&rhs)?, summand };
            let spots = layout.add(&piece, &seat, Shape::new([piece.len()])?);
            units.push(self.job_unit(&piece, value, ending, spots));
        }
        Ok(layout)
    }

    fn cut_map(
        &mut self,
        units: &mut Vec<JobUnit<E::Tensor>>,
        job: &Product<'_, Share<E::Tensor>>,
        ending: Ending,
        shape: Shape,
    ) -> Result<Layout<E::Tensor>> {
        let axes = axes(&job.op, job.lhs.shape(), job.rhs.shape(), &shape);
        let (axes, pieces) = self.map_pieces(job, &shape, &axes);
        let mut layout = Layout::along(&self.engine, axes.result, &shape, &pieces);
        let terms = paired::terms(&self.engine, &job.op, job.lhs, job.rhs)?;
        for piece in pieces {
            let seat = piece.seat(self.party());
            let only = piece.len() == axes.len;
            let lhs_range = if only { 0..0 } else { axes.lhs_range(&piece.range) };
            let cut = |side: &E::Tensor, axis: Option<usize>, range: &Range<usize>| match axis {
                Some(axis) if !only => slice(&self.engine, side, axis, range.start, range.end),
                _ => Ok(side.clone()),
            };
            let terms = terms
                .iter()
                .map(|(x, y)| Ok((cut(x, axes.lhs, &lhs_range)?, cut(y, axes.rhs, &piece.range)?)));
            let terms = terms.collect::<Result<Vec<_>>>()?;
            let summand = |&(summand, shift): &(&Share<E::Tensor>, u32)| -> Result<_> {
                let missing = shape.rank() - summand.shape().rank();
                let axis = axes.result.checked_sub(missing);
                // What is repeated along the axis serves every part.
                let axis = axis.filter(|&axis| summand.shape().dims()[axis] > 1);
                let part = |component| cut(component, axis, &piece.range);
                let shares = seat.order(part(summand.mine())?, part(summand.next())?);
                Ok(Summand { shares, factor: 1 << shift })
            };
            let summands = job.summands.iter().map(summand).collect::<Result<Vec<_>>>()?;
            let op = if only { job.op.clone() } else { axes.op(&job.op, &piece.range) };
            let out = op.output_shape(terms[0].0.shape(), terms[0].1.shape())?;
            let spots = layout.add(&piece, &seat, out);
            let value = Value::Map { op, terms, summands };
            units.push(self.job_unit(&piece, value, ending, spots));
        }
        Ok(layout)
    }

    fn map_pieces(
        &mut self,
        job: &Product<'_, Share<E::Tensor>>,
        shape: &Shape,
        axes: &[Axes],
    ) -> (Axes, Vec<Piece>) {
        let parts = if self.options.parts == Parts::Three { 3 } else { 6 };
        let work = work(&job.op, job.rhs.shape(), shape);
        let best = axes.iter().copied().filter(|axes| axes.len >= parts).min_by_key(|axes| {
            // Parts may differ by one slice; what is not cut is brought into order for each part.
            let uneven = if axes.len.is_multiple_of(parts) { 0 } else { work / axes.len };
            axes.whole * (parts - 1) * ORDERED + axes.copied * COPIED + uneven
        });
        match best {
            Some(axes) if shape.len() >= SMALL || work >= LITTLE => {
                (axes, self.options.parts.parts(axes.len, 1))
            }
            _ => {
                let len = shape.len();
                let (result, whole, copied) = (0, 0, 0);
                let whole = Axes { result, lhs: None, rhs: None, len, rows: None, whole, copied };
                (whole, vec![Piece::whole(len, self.turns.next(len))])
            }
        }
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
            for (start, shape) in layout.pieces {
                let (seat, (first, second)) = units.next().expect("a unit for each").result();
                let (one, two) = seat.order(first, second);
                let shaped = |x| self.engine.view(&x, &View::Reshape(shape.clone()));
                mine.push((start, shaped(one)?));
                next.push((start, shaped(two)?));
            }
            let (axis, shape) = (layout.axis, &layout.shape);
            let [mine, next] = layout.rooms.assemble(&self.engine, [mine, next], axis, shape)?;
            results.push(Share::new(mine, next)?);
        }
        Ok(results)
    }
}

impl<T: EngineTensor> Layout<T> {
    /// Pieces of the elements, whatever the shape.
    fn of_elements<E: Engine<Tensor = T>>(engine: &E, shape: &Shape, pieces: &[Piece]) -> Self {
        let rooms = Rooms::new(engine, shape.len(), pieces);
        Self { pieces: Vec::new(), axis: 0, shape: shape.clone(), rooms, inner: 1 }
    }

    /// Pieces along an axis.
    fn along<E: Engine<Tensor = T>>(
        engine: &E,
        axis: usize,
        shape: &Shape,
        pieces: &[Piece],
    ) -> Self {
        // The pieces of every index before the axis would alternate.
        let rooms = match shape.dims()[..axis].iter().product() {
            1usize => Rooms::new(engine, shape.len(), pieces),
            _ => Rooms::none(),
        };
        let inner = shape.dims()[axis + 1..].iter().product();
        Self { pieces: Vec::new(), axis, shape: shape.clone(), rooms, inner }
    }

    fn add(&mut self, piece: &Piece, seat: &Seat, shape: Shape) -> Spots<T> {
        let (start, len) = (piece.range.start, shape.len());
        self.pieces.push((start, shape));
        self.rooms.spots(seat, start * self.inner, len)
    }
}

/// Along which axes a map can be cut, the outermost first.
fn axes(op: &Bilinear, lhs: &Shape, rhs: &Shape, out: &Shape) -> Vec<Axes> {
    let dims = out.dims();
    // Ranges along the outermost axis lie in one piece.
    let copied = |shape: &Shape, axis: Option<usize>| match axis {
        Some(axis) if shape.dims()[..axis].iter().product::<usize>() > 1 => shape.len(),
        _ => 0,
    };
    let cut = |result: usize, l, r, whole| {
        // Of the result both components.
        let copied = copied(lhs, l) + copied(rhs, r) + 2 * copied(out, Some(result));
        Axes { result, lhs: l, rhs: r, len: dims[result], rows: None, whole, copied }
    };
    match op {
        Bilinear::MatMul { transpose_lhs, transpose_rhs } => {
            let (rank, l, r) = (dims.len(), lhs.rank(), rhs.rank());
            let rows = if *transpose_lhs { l - 1 } else { l - 2 };
            let cols = if *transpose_rhs { r - 2 } else { r - 1 };
            let mut all = Vec::new();
            if rank > 2 {
                let once = |shape: &Shape| if shape.rank() > 2 { 0 } else { shape.len() };
                let axis = |rank: usize| (rank > 2).then_some(0);
                all.push(cut(0, axis(l), axis(r), once(lhs) + once(rhs)));
            }
            all.push(cut(rank - 2, Some(rows), None, rhs.len()));
            all.push(cut(rank - 1, None, Some(cols), lhs.len()));
            all
        }
        Bilinear::Conv(spec) => {
            let mut all = vec![cut(0, Some(0), None, rhs.len())];
            let window = spec.window;
            // Every part then has rows that are not border.
            if window.padding[0].max(window.padding[2]) < window.reach()[0] {
                let rows = Some((window, lhs.dims()[2]));
                all.push(Axes { rows, ..cut(2, Some(2), None, rhs.len()) });
            }
            if spec.groups == 1 {
                // As many words as the windows of all positions.
                let windows = rhs.len() / dims[1].max(1) * (out.len() / dims[1].max(1));
                all.push(cut(1, None, Some(0), windows));
            }
            all
        }
        Bilinear::ConvInputGrad { spec, .. } => {
            let channels = (spec.groups == 1).then(|| cut(1, None, Some(1), lhs.len()));
            [Some(cut(0, Some(0), None, rhs.len())), channels].into_iter().flatten().collect()
        }
        Bilinear::ConvWeightGrad(spec) if spec.groups == 1 => {
            vec![cut(0, None, Some(1), lhs.len()), cut(1, Some(1), None, rhs.len())]
        }
        _ => Vec::new(),
    }
}

/// Multiplications of a map, roughly.
fn work(op: &Bilinear, rhs: &Shape, out: &Shape) -> usize {
    let inner = match op {
        Bilinear::MatMul { transpose_rhs, .. } => {
            let at = rhs.rank() - if *transpose_rhs { 1 } else { 2 };
            rhs.dims()[at]
        }
        Bilinear::Conv(_) => rhs.dims()[1..].iter().product(),
        Bilinear::ConvInputGrad { .. } => rhs.dims()[0] * rhs.dims()[2..].iter().product::<usize>(),
        Bilinear::ConvWeightGrad(_) => rhs.dims()[0] * rhs.dims()[2..].iter().product::<usize>(),
        _ => 1,
    };
    out.len().saturating_mul(inner)
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
