//! Bilinear maps and truncations: this party's local products, and the protocols that follow in
//! chunks.

mod chain;
mod gated;
pub(crate) mod kinds;
mod local;
mod mask;
mod operands;
mod relu;
mod relu_checked;
mod relu_fss;
pub(crate) mod split;
pub(crate) mod stated;
mod sums;
pub(crate) mod truncate;
pub(crate) mod truncate_checked;
mod truncate_exact;

use mpc_core::{
    Error, Finish, Finishing, Linear, Produced, Product, Protocol, Result, ShareBits, ShareTensor,
    Term, TruncationMode, provided,
};
use ring_arith::{Engine, EngineTensor, Shape, View};

use crate::{
    BitShare, Rss, Share,
    circuit::schedule::Predicate,
    linear::same_shape,
    runtime::{
        chunks::Chunk,
        launch::invalid,
        roles::{Pair, Roles},
        rounds::Rounds,
    },
    share::{
        output::Outputs,
        reusable::{self, Bit, OpenedBit, Origin},
    },
};
use gated::{Drop, Gate};
use mask::mask;
use relu::relu;
use relu_checked::relu_checked;
use relu_fss::relu_fss;
use split::{LocalProduct, Value};
use sums::ChunkSums;
use truncate::{Rounding, round};
use truncate_exact::{truncate_dithered, truncate_exact};

/// A product of this protocol's shares, and its answer.
pub(crate) type Job<'a, T> = Product<'a, Share<T>, BitShare<T>>;
type Answer<T> = Produced<Share<T>, BitShare<T>>;

/// The steps after a sum of products of this protocol's shares.
pub(crate) type Steps<'a, T> = Finishing<'a, Share<T>, BitShare<T>>;

/// Protocols that have begun and not run, and where their results belong.
struct Begun<'a, T: EngineTensor> {
    rounds: Rounds<'a, Made<T>>,
    outputs: Vec<Outputs<T>>,
}

impl<T: EngineTensor> Begun<'_, T> {
    fn new() -> Self {
        Self { rounds: Rounds::new(), outputs: Vec::new() }
    }
}

/// A chunk of a result with its sums, and where it is *not* positive, if the sign of a ReLU is kept.
type Made<T> = (Gate<T>, Option<OpenedBit<T>>);

/// The steps after a value, for products and truncations alike.
enum Ending<'a, T> {
    Rounded(Rounding),
    Exact(u32),
    Dithered(u32),
    Relu { drop: Drop, keep: bool },
    ReluChecked { bits: u32, keep: bool },
    ReluFss(Drop),
    Mask { drop: Drop, mask: &'a BitShare<T> },
}

impl<'a, T> Ending<'a, T> {
    /// The steps of one protocol: of a ReLU or a mask in another than the two fast modes, the truncation.
    fn of(finish: Finish<'a, BitShare<T>>, checked: bool) -> Result<Self> {
        let Some((bits, mode)) = finish.truncation() else {
            return Ok(Self::Rounded(Rounding::Raw));
        };
        let truncation = Self::truncation(bits, mode, checked)?;
        let drop = Drop { bits, early: mode == TruncationMode::Early };
        Ok(match finish {
            _ if in_steps(&finish, checked) => truncation,
            Finish::TruncateRelu { bits, keep, .. } if checked => Self::ReluChecked { bits, keep },
            Finish::TruncateRelu { keep, .. } => Self::Relu { drop, keep },
            Finish::TruncateMask { mask, .. } => Self::Mask { drop, mask },
            _ => truncation,
        })
    }

    /// True if a bit decides which elements of the truncated value are kept.
    fn selects(&self) -> bool {
        matches!(
            self,
            Self::Relu { .. } | Self::ReluChecked { .. } | Self::ReluFss(_) | Self::Mask { .. }
        )
    }

    fn truncation(bits: u32, mode: TruncationMode, checked: bool) -> Result<Self> {
        let bits = check_bits(bits)?;
        Ok(match mode {
            // Halves that are rounded before they are sent cannot be proven. The checked truncation errs as little.
            TruncationMode::Default | TruncationMode::Early if checked => {
                Self::Rounded(Rounding::Checked(bits))
            }
            TruncationMode::Aby3Local if checked => return Err(unproven(mode)),
            TruncationMode::Default => Self::Rounded(Rounding::Default(bits)),
            TruncationMode::Early => Self::Rounded(Rounding::Early(bits)),
            TruncationMode::Aby3Local => Self::Rounded(Rounding::Aby(bits)),
            TruncationMode::Exact => Self::Exact(bits),
            TruncationMode::Dither => Self::Dithered(bits),
        })
    }
}

/// The error of a truncation that a checked session does not have.
pub(crate) fn unproven(mode: TruncationMode) -> Error {
    let reason = format!("a checked session has no relations for the truncation {mode:?}");
    invalid("truncate", reason)
}

/// True if a ReLU or a mask follows a truncation in a separate protocol.
fn in_steps<T>(finish: &Finish<'_, BitShare<T>>, checked: bool) -> bool {
    match *finish {
        Finish::Raw | Finish::Truncate { .. } => false,
        Finish::TruncateMask { .. } if checked => true,
        Finish::TruncateRelu { mode, .. } | Finish::TruncateMask { mode, .. } => {
            !matches!(mode, TruncationMode::Default | TruncationMode::Early)
        }
    }
}

fn check_bits(bits: u32) -> Result<u32> {
    provided::check_dropped("truncate", bits).map(|()| bits)
}

impl<E: Engine> Rss<E> {
    /// Refuses invalid jobs, before anything is sent.
    pub(crate) fn check_products(&self, jobs: &[Job<'_, E::Tensor>]) -> Result<()> {
        jobs.iter().try_for_each(|job| {
            self.check_finishing(&job.finishing(), &provided::shape_of_sum(&job.terms)?)
        })
    }

    /// Refuses final steps that do not fit a result of this shape.
    fn check_finishing(&self, job: &Steps<'_, E::Tensor>, shape: &Shape) -> Result<()> {
        Ending::of(job.finish, self.is_checked())?;
        if let Finish::TruncateMask { mask, .. } = job.finish {
            check_one_bit("mask", mask)?;
            same_shape("mask", shape, mask.shape())?;
        }
        if let Some(sums) = job.sums {
            sums.lists(shape.len())?;
        }
        provided::check_summands(job, shape)
    }

    pub(crate) fn check_truncations(
        &self,
        jobs: &[(&Share<E::Tensor>, u32)],
        mode: TruncationMode,
    ) -> Result<()> {
        jobs.iter().try_for_each(|&(_, bits)| {
            Ending::<E::Tensor>::truncation(bits, mode, self.is_checked()).map(drop)
        })
    }

    /// Products with their final steps.
    pub(crate) fn multiply(
        &mut self,
        jobs: &[Job<'_, E::Tensor>],
    ) -> Result<Vec<Answer<E::Tensor>>> {
        let steps: Vec<_> = jobs.iter().map(Product::finishing).collect();
        let answers = self.talk(|rss| {
            let mut begun = Begun::new();
            for (job, steps) in jobs.iter().zip(&steps) {
                let (shape, product) = rss.product_of(job)?;
                rss.begin_product(&mut begun, shape, &product, steps)?;
            }
            rss.end_products(begun, &steps)
        })?;
        self.in_steps(&steps, answers)
    }

    /// This party's parts of sums of products.
    pub(crate) fn parts_of(
        &self,
        sums: &[&[Term<'_, Share<E::Tensor>>]],
    ) -> Result<Vec<E::Tensor>> {
        self.refuse_parts("parts")?;
        sums.iter().try_for_each(|terms| provided::shape_of_sum(terms).map(drop))?;
        sums.iter().map(|terms| self.sum_of_terms(terms, Vec::new())).collect()
    }

    /// The final steps of sums of which each party has a part.
    pub(crate) fn settle_parts(
        &mut self,
        jobs: &[(&E::Tensor, Steps<'_, E::Tensor>)],
    ) -> Result<Vec<Answer<E::Tensor>>> {
        self.refuse_parts("settle")?;
        for (part, steps) in jobs {
            self.check_finishing(steps, part.shape())?;
        }
        let answers = self.talk(|rss| {
            let mut begun = Begun::new();
            for (part, steps) in jobs {
                let product = rss.product_of_part(part, steps)?;
                rss.begin_product(&mut begun, part.shape().clone(), &product, steps)?;
            }
            let steps: Vec<_> = jobs.iter().map(|(_, steps)| steps.clone()).collect();
            rss.end_products(begun, &steps)
        })?;
        let steps: Vec<_> = jobs.iter().map(|(_, steps)| steps.clone()).collect();
        self.in_steps(&steps, answers)
    }

    /// Refuses sums over several machines where messages must be proven: a proof needs the operands, and each machine
    /// has its own alone.
    pub(crate) fn refuse_parts(&self, op: &'static str) -> Result<()> {
        if !self.is_checked() {
            return Ok(());
        }
        let reason = "a checked session proves each message from the operands, of which each machine of a party has a \
                      part alone: use one machine for each party, or a semi-honest session";
        Err(Error::Unsupported { protocol: self.info().name, op, reason })
    }

    /// The ReLUs and masks that follow a truncation in a separate protocol.
    fn in_steps(
        &mut self,
        jobs: &[Steps<'_, E::Tensor>],
        mut answers: Vec<Answer<E::Tensor>>,
    ) -> Result<Vec<Answer<E::Tensor>>> {
        let checked = self.is_checked();
        let rest = jobs.iter().enumerate().filter(|(_, job)| in_steps(&job.finish, checked));
        let (at, rest): (Vec<_>, Vec<_>) = rest.map(|(i, job)| (i, job.clone())).unzip();
        let quotients = at.iter().map(|&i| answers[i].share.clone()).collect();
        for (i, done) in at.iter().zip(provided::after_truncation(self, &rest, quotients)?) {
            answers[*i] = done;
        }
        Ok(answers)
    }

    /// Begins the protocol of the steps after one product.
    fn begin_product<'a>(
        &'a self,
        begun: &mut Begun<'a, E::Tensor>,
        shape: Shape,
        product: &LocalProduct<E::Tensor>,
        job: &Steps<'_, E::Tensor>,
    ) -> Result<()> {
        let len = shape.len();
        let ending = match Ending::of(job.finish, self.is_checked())? {
            Ending::Relu { drop, keep: false } if self.is_worth_keys(len) => Ending::ReluFss(drop),
            ending => ending,
        };
        let output = self.outputs(self.chunks_for(&ending, len), shape, 1);
        for (i, chunk) in output.chunks.iter().enumerate() {
            let value = Value::Added(product.chunk(&self.engine, chunk)?);
            // Values without a selection exist as shares, which are summed up instead.
            let sums = job.sums.filter(|_| ending.selects());
            let sums = sums.map(|sums| ChunkSums::new(&self.engine, sums, len, chunk));
            let sums = sums.transpose()?;
            self.add_chunk(&mut begun.rounds, &output, (i, chunk), value, &ending, sums)?;
        }
        begun.outputs.push(output);
        Ok(())
    }

    /// Runs the protocols that have begun; adds the sums of results that exist as shares.
    fn end_products(
        &self,
        begun: Begun<'_, E::Tensor>,
        jobs: &[Steps<'_, E::Tensor>],
    ) -> Result<Vec<Answer<E::Tensor>>> {
        let mut answers = self.run_products(begun.rounds, begun.outputs)?;
        for (job, answer) in jobs.iter().zip(&mut answers) {
            answer.sums = match (job.sums, answer.sums.take()) {
                (Some(sums), None) => Some(provided::sums(self, &answer.share, sums)?),
                (Some(sums), Some(made)) => {
                    let lists = sums.lists(answer.share.shape().len())?;
                    let shape = Shape::new([sums.parts, lists])?;
                    Some(self.linear_map(&Linear::View(&View::Reshape(shape)), &made)?)
                }
                (None, _) => None,
            };
        }
        Ok(answers)
    }

    pub(crate) fn divide(
        &mut self,
        jobs: &[(&Share<E::Tensor>, u32)],
        mode: TruncationMode,
    ) -> Result<Vec<Share<E::Tensor>>> {
        let mut rounds = Rounds::new();
        let mut outputs = Vec::with_capacity(jobs.len());
        for &(x, bits) in jobs {
            let ending = Ending::truncation(bits, mode, self.is_checked())?;
            let shape = x.shape().clone();
            let output = self.outputs(self.chunks(shape.len()), shape, 1);
            let x = self.flat_pair(x)?;
            for (i, chunk) in output.chunks.iter().enumerate() {
                let value = Value::Shared(self.chunk_of(&x, chunk)?);
                self.add_chunk(&mut rounds, &output, (i, chunk), value, &ending, None)?;
            }
            outputs.push(output);
        }
        let answers = self.run_products(rounds, outputs)?;
        Ok(answers.into_iter().map(|answer| answer.share).collect())
    }

    /// True if the saved rounds outweigh a key for each element.
    fn is_worth_keys(&self, elements: usize) -> bool {
        self.options.profile.saves_rounds(elements, 0, relu_fss::MOST)
    }

    /// The chunks of a job: those of a bit that is used again.
    fn chunks_for(&self, ending: &Ending<'_, E::Tensor>, len: usize) -> Vec<Chunk> {
        match ending {
            Ending::Mask { mask, .. } => match reusable::flat(mask) {
                Some(bit) => bit.chunks.iter().map(|part| part.chunk.clone()).collect(),
                None => self.chunks(len),
            },
            // All links carry keys.
            Ending::ReluFss(_) if len > relu_fss::ALONE => self.options.partition.parts(len, 64),
            _ => self.chunks(len),
        }
    }

    /// Adds the protocol of one chunk of a job.
    fn add_chunk<'a>(
        &'a self,
        rounds: &mut Rounds<'a, Made<E::Tensor>>,
        output: &Outputs<E::Tensor>,
        (i, chunk): (usize, &Chunk),
        value: Value<E::Tensor>,
        ending: &Ending<'_, E::Tensor>,
        sums: Option<ChunkSums<E::Tensor>>,
    ) -> Result<()> {
        let p = self.port(chunk);
        let roles = p.roles;
        let role = roles.role;
        let n = chunk.len();
        let slot = output.slot(chunk);
        let elements = output.chunks.iter().map(Chunk::len).sum();
        match *ending {
            Ending::Rounded(rounding) => {
                rounds.add(role, alone(round(p, value, rounding, n, slot)));
            }
            Ending::Exact(t) => {
                let circuit = self.circuit(Predicate::Carry, t as usize, elements);
                rounds.add(role, alone(truncate_exact(p, value, t, circuit, n, slot)));
            }
            Ending::Dithered(t) => {
                let circuit = self.circuit(Predicate::Carry, t as usize, elements);
                rounds.add(role, alone(truncate_dithered(p, value, t, circuit, n, slot)));
            }
            Ending::Relu { drop, keep } => {
                let circuit = self.circuit(Predicate::Carry, 63 - drop.bits as usize, elements);
                rounds.add(role, relu(p, value, (drop, keep), circuit, sums, n, slot));
            }
            Ending::ReluChecked { bits, keep } => {
                let circuit = self.circuit(Predicate::Carry, 63 - bits as usize, elements);
                rounds.add(role, relu_checked(p, value, (bits, keep), circuit, sums, n, slot));
            }
            Ending::ReluFss(drop) => {
                let relu = relu_fss(p, value, drop, sums, n, slot);
                rounds.add(role, async { Ok((relu.await?, None)) });
            }
            Ending::Mask { drop, mask: bits } => {
                let bit = self.chunk_of_mask(bits, (i, chunk), &roles)?;
                let masked = mask(p, value, drop, bit, sums, n, slot);
                rounds.add(role, async { Ok((masked.await?, None)) });
            }
        }
        Ok(())
    }

    /// The bit of a mask for a job's chunk, and the part of it that can be used again.
    fn chunk_of_mask(
        &self,
        mask: &BitShare<E::Tensor>,
        (i, chunk): (usize, &Chunk),
        roles: &Roles,
    ) -> Result<Bit<E::Tensor>> {
        let Some(bit) = reusable::flat(mask) else {
            return self.shared_bit(mask, 0, chunk, roles);
        };
        let part = &bit.chunks[i];
        let origin = Origin::Opened(part.share.clone());
        Ok(Bit { known: part.known.clone(), opposite: bit.negated, origin })
    }

    fn run_products(
        &self,
        rounds: Rounds<'_, Made<E::Tensor>>,
        outputs: Vec<Outputs<E::Tensor>>,
    ) -> Result<Vec<Answer<E::Tensor>>> {
        let mut made = rounds.run(&self.links)?.into_iter();
        let mut answers = Vec::with_capacity(outputs.len());
        for output in outputs {
            let made = made.by_ref().take(output.chunks.len());
            let (gates, bits): (Vec<_>, Vec<_>) = made.unzip();
            let bits: Vec<_> = bits.into_iter().flatten().collect();
            let mut sums = None;
            let mut results = Vec::with_capacity(gates.len());
            for (chunk, Gate { result, sums: of_chunk }) in output.chunks.iter().zip(gates) {
                results.push(result);
                let Some(of_chunk) = of_chunk else { continue };
                let [mine, next] = output.roles(chunk).mine_and_next(of_chunk);
                let of_chunk = Share::new(mine, next)?;
                sums = Some(match sums {
                    None => of_chunk,
                    Some(sums) => self.sum_or_difference(&sums, &of_chunk, false)?,
                });
            }
            // The opened sign marks results that are not positive.
            let kept = if bits.is_empty() {
                None
            } else {
                Some(self.complement(&output.bits(&self.engine, bits)?)?)
            };
            answers.push(Produced { share: output.share(&self.engine, results)?, sums, kept });
        }
        Ok(answers)
    }
}

/// The result of a protocol that makes only the result.
async fn alone<T>(result: impl Future<Output = Result<Pair<T>>>) -> Result<Made<T>> {
    Ok((Gate { result: result.await?, sums: None }, None))
}

/// Refuses bits of another width than 1.
pub(crate) fn check_one_bit<T: EngineTensor>(op: &'static str, bits: &BitShare<T>) -> Result<()> {
    match bits.width() {
        1 => Ok(()),
        width => Err(invalid(op, format!("the selecting bits have width {width}, not 1"))),
    }
}
