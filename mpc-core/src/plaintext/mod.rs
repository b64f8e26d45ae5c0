//! The plaintext reference protocol: one party, the same fixed-point words, no secrecy.

mod bits;
mod exact;
mod fullest;
mod products;
mod rounding;

use std::fmt;

use net::Party;
use ring_arith::{
    Bilinear, BitTensor, Engine, EngineTensor, Generator, Shape, Stream, StreamKey, Tensor, View,
};

pub use rounding::Rounding;

use crate::{
    BitMap, Compare, Compared, Error, FinishingOf, Info, Linear, MOST_DROPPED, Produced,
    ProducedBy, Product, Profile, Protocol, Recipients, Result, ShareBits, ShareTensor, ShuffledBy,
    TermOf, TruncationMode,
    provided::{self, check_compare, check_dropped},
};
use fullest::Fullest;
use rounding::Coins;

/// Computes on words in the open, as the only party. The oracle of every test, and a way to run a
/// model in fixed point without any protocol.
///
/// It also checks the callers' promises about magnitudes (`width` of a comparison, `|x| < 2^62` before a
/// truncation) and answers a broken promise with [`Error::Invalid`]. A protocol on shares cannot. Sums and
/// products are taken over the integers: one that does not fit a signed word is an error too.
/// [`Protocol::combine`] and sums of bits are modulo 2^64 on purpose.
#[derive(Debug)]
pub struct Plaintext<E: Engine> {
    engine: E,
    coins: Coins,
    modular: bool,
    profile: Profile,
    fullest: Fullest,
    /// Private streams so far.
    streams: u64,
}

/// A "share" of [`Plaintext`]: the tensor itself. `Debug` prints the shape.
#[derive(Clone)]
pub struct PlainShare<E: Engine>(E::Tensor);

/// "Shared" bits of [`Plaintext`]: one host word for each element. `Debug` prints the shape.
#[derive(Clone)]
pub struct PlainBits {
    words: Tensor,
    width: u32,
}

impl<E: Engine> Plaintext<E> {
    /// A reference whose every truncation is the floor, so that results are exactly repeatable.
    pub fn new(engine: E) -> Self {
        Self::with_rounding(engine, Rounding::Floor)
    }

    /// A reference that rounds as a protocol on shares would.
    pub fn with_rounding(engine: E, rounding: Rounding) -> Self {
        let (coins, profile) = (Coins::new(rounding), Profile::default());
        let fullest = Fullest::default();
        Self { engine, coins, modular: false, profile, fullest, streams: 0 }
    }

    /// The largest magnitude of a sum or product since the last call, as a fraction of its limit: `2^62`
    /// before a truncation and `2^63` elsewhere. 0 without sums and products.
    pub fn take_fullest(&mut self) -> f64 {
        self.fullest.take()
    }

    /// The same, with all sums and products modulo 2^64, as they are on shares: for programs on words
    /// that are not numbers.
    #[must_use]
    pub fn modular(self) -> Self {
        Self { modular: true, ..self }
    }

    fn host(&self, share: &PlainShare<E>) -> Result<Tensor> {
        Ok(self.engine.download(&share.0)?)
    }

    fn share(&self, shape: Shape, words: Vec<u64>) -> Result<PlainShare<E>> {
        Ok(PlainShare(self.engine.upload(Tensor::new(shape, words)?)?))
    }

    /// Applies a function to every word.
    fn map(&self, x: &PlainShare<E>, f: impl FnMut(u64) -> u64) -> Result<PlainShare<E>> {
        let words = self.host(x)?.words().iter().copied().map(f).collect();
        self.share(x.shape().clone(), words)
    }

    /// Numbers as words, if they fit.
    fn exactly(
        &self,
        op: &'static str,
        shape: &Shape,
        values: impl IntoIterator<Item = i128>,
    ) -> Result<PlainShare<E>> {
        let values: Vec<_> = values.into_iter().collect();
        if !self.modular {
            exact::check(op, &values, 63, false)?;
            self.fullest.note(&values, 63);
        }
        self.share(shape.clone(), values.into_iter().map(|z| z as u64).collect())
    }

    /// A bilinear map: over the integers, or of words modulo 2^64.
    fn bilinear(&self, op: &Bilinear, x: &E::Tensor, y: &E::Tensor) -> Result<(Shape, Vec<i128>)> {
        let shape = op.output_shape(x.shape(), y.shape())?;
        let values = if self.modular {
            exact::signed(&self.engine, &self.engine.bilinear(op, &[(x, y)], &[])?)?
        } else {
            exact::bilinear(&self.engine, op, x, y)?
        };
        Ok((shape, values))
    }

    fn truncated(
        &mut self,
        op: &'static str,
        shape: &Shape,
        values: &[i128],
        bits: u32,
        mode: TruncationMode,
    ) -> Result<PlainShare<E>> {
        check_dropped(op, bits)?;
        exact::check(op, values, 62, true)?;
        self.fullest.note(values, 62);
        if mode == TruncationMode::Early && bits < MOST_DROPPED {
            // Halves that are rounded take two units more.
            exact::check_below(op, values, (1 << 62) - (1 << (bits + 1)))?;
        }
        let words = values.iter().map(|&z| self.coins.truncate(z as u64, bits, mode)).collect();
        self.share(shape.clone(), words)
    }

    /// Words of `xs` where a bit is 1, 0 elsewhere.
    fn chosen(&self, bit: &PlainBits, xs: &[&PlainShare<E>]) -> Result<Vec<PlainShare<E>>> {
        bit.expect_width("select", 1)?;
        self.keep(xs, bit.shape(), |i| bit.words.words()[i] == 1)
    }

    /// Words of `xs` where `keep` holds, 0 elsewhere.
    fn keep(
        &self,
        xs: &[&PlainShare<E>],
        shape: &Shape,
        keep: impl Fn(usize) -> bool,
    ) -> Result<Vec<PlainShare<E>>> {
        let one = |x: &&PlainShare<E>| {
            same_shape("select", shape, x.shape())?;
            let host = self.host(x)?;
            let words = host.words().iter().enumerate();
            self.share(shape.clone(), words.map(|(i, &w)| if keep(i) { w } else { 0 }).collect())
        };
        xs.iter().map(one).collect()
    }

    fn alone(&self, party: Party) -> Result<()> {
        if party == Party(0) {
            return Ok(());
        }
        let reason = format!("{party} does not exist; party 0 is the only one");
        Err(Error::Invalid { op: "plaintext", reason })
    }
}

fn same_shape(op: &'static str, lhs: &Shape, rhs: &Shape) -> Result<()> {
    if lhs == rhs {
        return Ok(());
    }
    Err(Error::Shapes { op, lhs: lhs.clone(), rhs: rhs.clone() })
}

impl<E: Engine> PlainShare<E> {
    /// The words themselves.
    pub(crate) fn words(&self) -> &E::Tensor {
        &self.0
    }
}

impl<E: Engine> ShareTensor for PlainShare<E> {
    fn shape(&self) -> &Shape {
        self.0.shape()
    }
}

impl ShareTensor for PlainBits {
    fn shape(&self) -> &Shape {
        self.words.shape()
    }
}

impl ShareBits for PlainBits {
    fn width(&self) -> usize {
        self.width as usize
    }
}

impl<E: Engine> fmt::Debug for PlainShare<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlainShare({:?})", self.shape())
    }
}

impl fmt::Debug for PlainBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlainBits({:?}, {} bits)", self.shape(), self.width)
    }
}

impl<E: Engine> Protocol for Plaintext<E> {
    type Engine = E;
    type Share = PlainShare<E>;
    type Bits = PlainBits;

    fn info(&self) -> Info {
        let (modes, profile) = (TruncationMode::ALL, self.profile);
        Info { modes, profile, shuffles: true, ..Info::new("plaintext", Party(0), 1) }
    }

    fn engine(&self) -> &E {
        &self.engine
    }

    fn step(&mut self, _name: &str) {}

    fn set_profile(&mut self, profile: Profile) {
        self.profile = profile;
    }

    fn input(
        &mut self,
        owner: Party,
        shapes: &[Shape],
        values: Option<&[E::Tensor]>,
    ) -> Result<Vec<PlainShare<E>>> {
        self.alone(owner)?;
        let values = values.unwrap_or_default();
        if values.len() != shapes.len() {
            let reason = format!("{} values for {} shapes", values.len(), shapes.len());
            return Err(Error::Invalid { op: "input", reason });
        }
        let one = |(shape, value): (&Shape, &E::Tensor)| {
            same_shape("input", shape, value.shape())?;
            Ok(PlainShare(value.clone()))
        };
        shapes.iter().zip(values).map(one).collect()
    }

    /// From a public key: the reference hides nothing, and its runs are equal.
    fn private_stream(&mut self) -> Result<Stream> {
        self.streams += 1;
        Ok(StreamKey::new(Generator::ChaCha12, &[0; 32]).stream(self.streams))
    }

    fn constant(&self, value: &E::Tensor) -> Result<PlainShare<E>> {
        Ok(PlainShare(value.clone()))
    }

    fn reveal(
        &mut self,
        to: Recipients,
        shares: &[&PlainShare<E>],
    ) -> Result<Option<Vec<E::Tensor>>> {
        if let Recipients::One(party) = to {
            self.alone(party)?;
        }
        Ok(Some(shares.iter().map(|s| s.0.clone()).collect()))
    }

    fn open_bits(&mut self, bits: &[&PlainBits]) -> Result<Vec<BitTensor<E::Tensor>>> {
        bits.iter().map(|b| b.to_planes(&self.engine)).collect()
    }

    fn linear(&self, map: &Linear<'_, E::Tensor>, x: &PlainShare<E>) -> Result<PlainShare<E>> {
        let engine = &self.engine;
        let each = |f: &dyn Fn(i128) -> i128| -> Result<Vec<i128>> {
            Ok(exact::signed(engine, &x.0)?.into_iter().map(f).collect())
        };
        let (op, (shape, values)) = match *map {
            Linear::View(view) => return Ok(PlainShare(engine.view(&x.0, view)?)),
            Linear::AddPublic(c) => return self.add(x, &PlainShare(c.clone())),
            Linear::Negate => return self.map(x, u64::wrapping_neg),
            Linear::Scale(c) => {
                let scaled = each(&|w| w * i128::from(c as i64))?;
                ("scale", (x.shape().clone(), scaled))
            }
            Linear::Shift(c) => {
                let shifted = each(&|w| w + i128::from(c as i64))?;
                ("shift", (x.shape().clone(), shifted))
            }
            Linear::TimesPublic(op, c) => (op.name(), self.bilinear(op, &x.0, c)?),
            Linear::PublicTimes(op, c) => (op.name(), self.bilinear(op, c, &x.0)?),
            Linear::Sum(axes) => ("sum", exact::linear(engine, &x.0, |x| engine.sum(x, axes))?),
            Linear::WindowSum(window) => {
                let sum = |x: &_| engine.window_sum(x, window);
                ("window sum", exact::linear(engine, &x.0, sum)?)
            }
        };
        self.exactly(op, &shape, values)
    }

    fn add(&self, x: &PlainShare<E>, y: &PlainShare<E>) -> Result<PlainShare<E>> {
        same_shape("add", x.shape(), y.shape())?;
        let y_values = exact::signed(&self.engine, &y.0)?;
        let sums = exact::signed(&self.engine, &x.0)?.into_iter().zip(y_values);
        self.exactly("add", x.shape(), sums.map(|(x, y)| x + y))
    }

    fn sub(&self, x: &PlainShare<E>, y: &PlainShare<E>) -> Result<PlainShare<E>> {
        same_shape("sub", x.shape(), y.shape())?;
        let y_values = exact::signed(&self.engine, &y.0)?;
        let pairs = exact::signed(&self.engine, &x.0)?.into_iter().zip(y_values);
        self.exactly("sub", x.shape(), pairs.map(|(x, y)| x - y))
    }

    fn combine(&self, terms: &[(u64, &PlainShare<E>)], constant: u64) -> Result<PlainShare<E>> {
        let Some((_, first)) = terms.first() else {
            let reason = "a combination needs at least one term".to_owned();
            return Err(Error::Invalid { op: "combine", reason });
        };
        let mut sum = vec![constant; first.shape().len()];
        for (c, x) in terms {
            same_shape("combine", first.shape(), x.shape())?;
            for (sum, &w) in sum.iter_mut().zip(self.host(x)?.words()) {
                *sum = sum.wrapping_add(c.wrapping_mul(w));
            }
        }
        self.share(first.shape().clone(), sum)
    }

    fn concat(&self, shares: &[&PlainShare<E>], axis: usize) -> Result<PlainShare<E>> {
        let tensors: Vec<_> = shares.iter().map(|s| &s.0).collect();
        Ok(PlainShare(self.engine.concat(&tensors, axis)?))
    }

    fn constant_bits(&self, value: &BitTensor<E::Tensor>) -> Result<PlainBits> {
        PlainBits::from_planes(&self.engine, value)
    }

    fn linear_bits(&self, map: &BitMap<'_, PlainBits>) -> Result<PlainBits> {
        match *map {
            BitMap::Xor(x, y) => x.zip("xor", y, |a, b| a ^ b),
            BitMap::Not(x) => x.map(x.width, |w| !w),
            BitMap::Pick(x, planes) => x.pick(planes),
            BitMap::Join(xs) => PlainBits::join(xs),
            BitMap::Reshape(x, shape) => x.reshape(shape),
            BitMap::Rows(x, places) => x.rows(places),
        }
    }

    fn products(
        &mut self,
        jobs: &[Product<'_, PlainShare<E>, PlainBits>],
    ) -> Result<Vec<Produced<PlainShare<E>, PlainBits>>> {
        let mut results = Vec::with_capacity(jobs.len());
        for job in jobs {
            let sum = self.sum(&job.terms)?;
            results.push(self.finish(sum, &job.finishing())?);
        }
        Ok(results)
    }

    /// The sums themselves, if they fit a signed word.
    fn parts(&mut self, sums: &[&[TermOf<'_, Self>]]) -> Result<Vec<E::Tensor>> {
        let mut parts = Vec::with_capacity(sums.len());
        for terms in sums {
            let (shape, sum) = self.sum(terms)?;
            parts.push(self.exactly("product", &shape, sum)?.0);
        }
        Ok(parts)
    }

    fn settle(
        &mut self,
        jobs: &[(&E::Tensor, FinishingOf<'_, Self>)],
    ) -> Result<Vec<ProducedBy<Self>>> {
        let mut results = Vec::with_capacity(jobs.len());
        for (part, job) in jobs {
            let sum = exact::signed(&self.engine, part)?;
            results.push(self.finish((part.shape().clone(), sum), job)?);
        }
        Ok(results)
    }

    fn components(&self, share: &PlainShare<E>) -> Result<Vec<E::Tensor>> {
        Ok(vec![share.0.clone()])
    }

    fn of_components(&self, words: Vec<E::Tensor>) -> Result<PlainShare<E>> {
        provided::exactly_components(words).map(|[words]| PlainShare(words))
    }

    fn truncate(
        &mut self,
        jobs: &[(&PlainShare<E>, u32)],
        mode: TruncationMode,
    ) -> Result<Vec<PlainShare<E>>> {
        let mut results = Vec::with_capacity(jobs.len());
        for &(x, bits) in jobs {
            let values = exact::signed(&self.engine, &x.0)?;
            results.push(self.truncated("truncate", x.shape(), &values, bits, mode)?);
        }
        Ok(results)
    }

    fn compare(
        &mut self,
        jobs: &[Compare<'_, PlainShare<E>>],
    ) -> Result<Vec<Compared<PlainShare<E>, PlainBits>>> {
        let one = |job: &Compare<'_, PlainShare<E>>| {
            check_compare(job)?;
            let (shape, then) = (job.value.shape(), job.then);
            let host = self.host(job.value)?;
            let values = exact::signed(&self.engine, &job.value.0)?;
            exact::check("compare", &values, job.width - 1, false)?;
            let negative = |i: usize| host.words()[i] >> 63 == 1;
            let sign = || host.words().iter().map(|w| w >> 63).collect();
            let bit = || PlainBits::new(shape.clone(), sign(), 1);
            let word = || self.share(shape.clone(), sign());
            Ok(Compared {
                bit: then.bit.then(bit).transpose()?,
                word: then.word.then(word).transpose()?,
                negative: self.keep(then.negative, shape, negative)?,
                not_negative: self.keep(then.not_negative, shape, |i| !negative(i))?,
            })
        };
        jobs.iter().map(one).collect()
    }

    fn is_zero(&mut self, jobs: &[(&PlainShare<E>, u32)]) -> Result<Vec<PlainBits>> {
        let one = |bits: PlainBits| bits.map(1, |w| u64::from(w == 0));
        self.to_bits(jobs)?.into_iter().map(one).collect()
    }

    fn to_bits(&mut self, jobs: &[(&PlainShare<E>, u32)]) -> Result<Vec<PlainBits>> {
        let one = |&(x, width): &(&PlainShare<E>, u32)| {
            PlainBits::new(x.shape().clone(), self.host(x)?.words().to_vec(), width)
        };
        jobs.iter().map(one).collect()
    }

    fn and(&mut self, jobs: &[(&PlainBits, &PlainBits)]) -> Result<Vec<PlainBits>> {
        jobs.iter().map(|(x, y)| x.zip("and", y, |a, b| a & b)).collect()
    }

    fn select(
        &mut self,
        jobs: &[(&PlainBits, &[&PlainShare<E>])],
    ) -> Result<Vec<Vec<PlainShare<E>>>> {
        jobs.iter().map(|(bit, xs)| self.chosen(bit, xs)).collect()
    }

    fn bits_to_words(&mut self, jobs: &[&PlainBits]) -> Result<Vec<Vec<PlainShare<E>>>> {
        let plane = |bits: &PlainBits, j: u32| {
            let words = bits.words.words().iter().map(|w| (w >> j) & 1).collect();
            self.share(bits.shape().clone(), words)
        };
        jobs.iter().map(|bits| (0..bits.width).map(|j| plane(bits, j)).collect()).collect()
    }

    fn shuffle(
        &mut self,
        words: &[&PlainShare<E>],
        bits: &[&PlainBits],
    ) -> Result<ShuffledBy<Self>> {
        let rows = provided::common_rows(words, bits)?;
        let order = provided::permutation(&self.private_stream()?, rows);
        let view = View::Gather { axis: 0, indices: order.clone() };
        let moved = words.iter().map(|x| Ok(PlainShare(self.engine.view(&x.0, &view)?)));
        let moved = moved.collect::<Result<_>>()?;
        Ok((moved, bits.iter().map(|x| x.rows(&order)).collect::<Result<_>>()?))
    }
}
