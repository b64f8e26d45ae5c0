//! A bit times words, and a bit as a word.
//!
//! The bit is `u ^ v`, `u` known to the pivot and `v` to both others, and
//! `bit x = (1 - 2v)(u alpha + u beta) + v (alpha + beta)` with `alpha = x1 + x2`, `beta = x3`. The pivot
//! shares `u` and `u alpha` between the others, one word each to one of them; `alpha` they hold as
//! `x2` and `x1`. One exchange makes component 3; components 1 and 2 are streams.
//! Cost: 64 bits, and 192 for each word. Rounds: the pivot's words leave at once, then one exchange.

use mpc_core::Result;
use ring_arith::{Engine, EngineTensor, Shape};

use crate::{
    cut::Spots,
    kernels::{ArithLead, ArithOther, BitLead, SelectLead, SelectOther},
    launch::{whole, words, words_into},
    links::Reader,
    random::{Draw, Pair, Streams},
    seat::{Role, Seat},
    share::add_into,
    unit::Cx,
};

/// What a bit becomes.
#[derive(Debug, Clone)]
pub(crate) enum Follow<T> {
    /// Its product with each of these, given as the role's two components.
    Words(Vec<(T, T)>),
    /// The word 0 or 1.
    Arithmetic,
}

/// A selection with its place in the streams.
pub(crate) struct Selection<T: EngineTensor> {
    n: usize,
    /// All rows of the result are for the bit's opposite.
    flip: bool,
    follow: Follow<T>,
    /// The second's share of `u`.
    u: Draw,
    /// For each word: the third's share of `u alpha`, and components 1 and 2 of the result.
    words: Vec<[Draw; 3]>,
    /// From the pivot: the third's share of `u`, or the second's of each `u alpha`.
    dealt: Vec<T>,
    /// This party's summands of component 3, and its component shared with the pivot.
    sent: Vec<[T; 2]>,
    /// Where each result belongs.
    spots: Vec<Spots<T>>,
}

impl<T: EngineTensor> Selection<T> {
    /// Takes its place in the streams; `spots` are those of the results, if they have any.
    pub fn new(
        streams: &mut Streams,
        n: usize,
        flip: bool,
        follow: Follow<T>,
        mut spots: Vec<Spots<T>>,
    ) -> Self {
        let u = streams.draw(Pair::K12, n);
        let count = if let Follow::Words(xs) = &follow { xs.len() } else { 1 };
        let mut one = || [Pair::K13, Pair::K13, Pair::K12].map(|pair| streams.draw(pair, n));
        let words = (0..count).map(|_| one()).collect();
        spots.resize_with(count, || Spots::none(n));
        Self { n, flip, follow, u, words, dealt: Vec::new(), sent: Vec::new(), spots }
    }

    /// Words that the pivot sends to the second and to the third.
    pub fn bundle(&self) -> [usize; 2] {
        match &self.follow {
            Follow::Words(xs) => [self.n * xs.len(), self.n],
            Follow::Arithmetic => [0, self.n],
        }
    }

    /// The pivot's work, given `u` as words: its two components of each result.
    pub fn lead<E: Engine<Tensor = T>>(
        &self,
        cx: &mut Cx<'_, E>,
        seat: &Seat,
        streams: &Streams,
        u: &T,
    ) -> Result<Vec<(T, T)>> {
        let (engine, shape) = (cx.engine, Shape::new([self.n])?);
        let flip = [u64::from(self.flip)];
        let Follow::Words(xs) = &self.follow else {
            let [_, y1, y2] = self.words[0];
            let sources = [whole(u), streams.words(self.u), streams.words(y1), streams.words(y2)];
            let places = [None, self.spots[0].first(), self.spots[0].second()];
            let [u3, y1, y2] = words_into(engine, &ArithLead, &shape, sources, &flip, places)?;
            cx.put(seat.third(), &u3)?;
            return Ok(vec![(y1, y2)]);
        };
        let [u3] = words(engine, &BitLead, &shape, [whole(u), streams.words(self.u)], &flip)?;
        cx.put(seat.third(), &u3)?;
        let mut results = Vec::with_capacity(xs.len());
        for (((x1, x2), draws), spots) in xs.iter().zip(&self.words).zip(&self.spots) {
            let [d3, y1, y2] = draws.map(|draw| streams.words(draw));
            let sources = [whole(u), whole(x1), whole(x2), d3, y1, y2];
            let places = [None, spots.first(), spots.second()];
            let [d2, y1, y2] = words_into(engine, &SelectLead, &shape, sources, &flip, places)?;
            cx.put(seat.second(), &d2)?;
            results.push((y1, y2));
        }
        Ok(results)
    }

    /// The second and the third read what the pivot sent.
    pub fn read<E: Engine<Tensor = T>>(
        &mut self,
        cx: &Cx<'_, E>,
        seat: &Seat,
        bundle: &mut Reader,
    ) -> Result<()> {
        let [second, third] = self.bundle();
        let fields = if seat.role == Role::Second { second } else { third } / self.n.max(1);
        for _ in 0..fields {
            self.dealt.push(bundle.words(cx.engine, self.n)?);
        }
        Ok(())
    }

    /// The second and the third compute and exchange their summands, given `v` as words.
    pub fn apply<E: Engine<Tensor = T>>(
        &mut self,
        cx: &mut Cx<'_, E>,
        seat: &Seat,
        streams: &Streams,
        v: &T,
    ) -> Result<()> {
        let (engine, shape) = (cx.engine, Shape::new([self.n])?);
        let second = seat.role == Role::Second;
        let u = if second { streams.words(self.u) } else { whole(&self.dealt[0]) };
        let all = [if second { u64::MAX } else { 0 }];
        let mine = |[_, y1, y2]: [Draw; 3]| streams.words(if second { y2 } else { y1 });
        let Follow::Words(xs) = &self.follow else {
            let sources = [whole(v), u, mine(self.words[0])];
            let places = [None, self.spots[0].shared(seat)];
            self.sent.push(words_into(engine, &ArithOther, &shape, sources, &all, places)?);
            return self.send(cx, seat);
        };
        for (i, ((first, last), &draws)) in xs.iter().zip(&self.words).enumerate() {
            // The second holds (x2, x3), the third (x3, x1).
            let (beta, alpha) = if second { (last, first) } else { (first, last) };
            let (u, d) = match second {
                true => (streams.words(self.u), whole(&self.dealt[i])),
                false => (whole(&self.dealt[0]), streams.words(draws[0])),
            };
            let sources = [whole(v), u, d, whole(beta), whole(alpha), mine(draws)];
            let places = [None, self.spots[i].shared(seat)];
            self.sent.push(words_into(engine, &SelectOther, &shape, sources, &all, places)?);
        }
        self.send(cx, seat)
    }

    fn send<E: Engine<Tensor = T>>(&self, cx: &mut Cx<'_, E>, seat: &Seat) -> Result<()> {
        self.sent.iter().try_for_each(|[summand, _]| cx.put(seat.partner(), summand))
    }

    /// The second and the third receive each other's summands: their two components of each result.
    pub fn finish<E: Engine<Tensor = T>>(
        &mut self,
        cx: &mut Cx<'_, E>,
        seat: &Seat,
    ) -> Result<Vec<(T, T)>> {
        let sent = std::mem::take(&mut self.sent);
        let mut reader = cx.receive(seat.partner(), sent.len() * self.n)?;
        let mut results = Vec::with_capacity(sent.len());
        for ([summand, y], spots) in sent.into_iter().zip(&self.spots) {
            let other = reader.words(cx.engine, self.n)?;
            let y3 = add_into(cx.engine, &summand, &other, spots.joint(seat))?;
            results.push(if seat.role == Role::Second { (y, y3) } else { (y3, y) });
        }
        Ok(results)
    }
}
