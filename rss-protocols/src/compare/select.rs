//! A bit times words, and a bit as a word.
//!
//! The bit is `u ^ v`, `u` known to the pivot and `v` to both others, and
//! `bit x = (1 - 2v)(u alpha + u beta) + v (alpha + beta)` with `alpha = x1 + x2`, `beta = x3`. The pivot
//! shares `u` and `u alpha` between the others, one word each to one of them; `alpha` they hold as
//! `x2` and `x1`. One exchange makes component 3; components 1 and 2 are streams. The opposite bit has
//! the same `u` and the opposite `v`.
//! Cost: 64 bits, unless the shares of `u` were kept from an earlier selection by the same bit; 192 for each
//! word, 128 for the bit as a word. Rounds: the pivot's words leave at once, then one exchange.

use mpc_core::Result;
use ring_arith::{Engine, EngineTensor, Shape, Source};

use crate::{
    kernels::{ArithOther, Difference, SelectLead, SelectOther},
    runtime::chunks::Spots,
    runtime::launch::{made, made_into, whole, words, words_into},
    runtime::links::Reader,
    runtime::prss::{Draw, Key, Streams},
    runtime::roles::{Role, Roles},
    runtime::rounds::Cx,
    share::add_into,
};

/// What a bit becomes.
pub(crate) enum Follow<T> {
    /// Its product with a word, given as the role's two components.
    Times((T, T)),
    /// The word 0 or 1.
    Arithmetic,
}

/// One result of a selection.
pub(crate) struct Wanted<T: EngineTensor> {
    pub follow: Follow<T>,
    /// It is for the bit's opposite.
    pub opposite: bool,
    /// Where it belongs.
    pub spots: Spots<T>,
}

/// What a party holds of the pivot's `u` shared as words between the others.
#[derive(Clone)]
pub(crate) enum WordShare<T> {
    /// The pivot, which knows `u`, holds no share of it.
    Pivot,
    /// The second's or the third's share.
    Other(T),
}

/// How the second and the third come by their shares of `u`.
pub(crate) enum MaskShares<T> {
    /// The pivot shares it now: a stream at the second, what arrives at the third.
    Dealt { second: Draw, third: Option<T> },
    /// They have them from before.
    Kept(WordShare<T>),
}

/// A result under way.
struct Item<T: EngineTensor> {
    wanted: Wanted<T>,
    /// The third's share of `u alpha`, and components 1 and 2 of the result.
    draws: [Draw; 3],
    /// At the second: its share of `u alpha`.
    dealt: Option<T>,
}

/// A selection with its place in the streams.
pub(crate) struct Selection<T: EngineTensor> {
    n: usize,
    mask: MaskShares<T>,
    items: Vec<Item<T>>,
    /// This party's summands of component 3, and its component shared with the pivot.
    sent: Vec<[T; 2]>,
}

impl<T: EngineTensor> MaskShares<T> {
    /// Takes its place in the streams, for `n` elements.
    pub fn deal(streams: &mut Streams, n: usize) -> Self {
        let second = streams.draw(Key::Left, n);
        planted!("select: u bare", second = streams.blank(Key::Left, n));
        Self::Dealt { second, third: None }
    }

    /// The second's share, if it is a stream.
    #[cfg(test)]
    pub fn dealt(&self) -> Option<Draw> {
        if let Self::Dealt { second, .. } = self { Some(*second) } else { None }
    }

    /// Words that the pivot sends to the third.
    pub fn bundle(&self, n: usize) -> usize {
        if matches!(self, Self::Dealt { .. }) { n } else { 0 }
    }

    /// The pivot shares `u` unless that was done before.
    pub fn lead<E: Engine<Tensor = T>>(
        &self,
        cx: &mut Cx<'_, E>,
        roles: &Roles,
        streams: &Streams,
        u: &T,
    ) -> Result<()> {
        if let Self::Dealt { second, .. } = self {
            let sources = [whole(u), streams.words(*second)];
            let [third] = words(cx.engine, &Difference, u.shape(), sources, &[])?;
            cx.put(roles.right(), &third)?;
        }
        Ok(())
    }

    /// The third reads its share.
    pub fn read<E: Engine<Tensor = T>>(
        &mut self,
        cx: &Cx<'_, E>,
        roles: &Roles,
        bundle: &mut Reader,
        n: usize,
    ) -> Result<()> {
        match self {
            Self::Dealt { third, .. } if roles.role == Role::Right => {
                *third = Some(bundle.words(cx.engine, n)?);
            }
            _ => {}
        }
        Ok(())
    }

    /// The share of the second or the third.
    pub fn share<'a>(&'a self, streams: &'a Streams) -> Source<'a, T> {
        match self {
            Self::Dealt { third: Some(share), .. } | Self::Kept(WordShare::Other(share)) => {
                whole(share)
            }
            Self::Dealt { second, .. } => streams.words(*second),
            Self::Kept(WordShare::Pivot) => unreachable!("the pivot has no use for a share"),
        }
    }

    /// What is kept of it for later.
    pub fn keep<E: Engine<Tensor = T>>(
        &self,
        engine: &E,
        roles: &Roles,
        streams: &Streams,
        n: usize,
    ) -> Result<WordShare<T>> {
        if roles.role == Role::Dealer {
            return Ok(WordShare::Pivot);
        }
        Ok(WordShare::Other(made(engine, &Shape::new([n])?, self.share(streams))?))
    }
}

impl<T: EngineTensor> Selection<T> {
    /// Takes its place in the streams.
    pub fn new(
        streams: &mut Streams,
        n: usize,
        mask: MaskShares<T>,
        wanted: Vec<Wanted<T>>,
    ) -> Self {
        let item = |wanted| {
            let draws = [Key::Right, Key::Right, Key::Left].map(|pair| streams.draw(pair, n));
            planted!("select: y1 off", draws = [draws[0], streams.blank(Key::Right, n), draws[2]]);
            planted!("select: y2 off", draws = [draws[0], draws[1], streams.blank(Key::Left, n)]);
            planted!(
                "select: the product's share under y1",
                draws = [draws[1], draws[1], draws[2]]
            );
            planted!(
                "select: y2 is the mask of u",
                draws = [draws[0], draws[1], mask.dealt().unwrap_or(draws[2])]
            );
            Item { wanted, draws, dealt: None }
        };
        let items = wanted.into_iter().map(item).collect();
        Self { n, mask, items, sent: Vec::new() }
    }

    /// Words that the pivot sends to the second and to the third.
    pub fn bundle(&self) -> [usize; 2] {
        let times = |item: &&Item<T>| matches!(item.wanted.follow, Follow::Times(_));
        [self.n * self.items.iter().filter(times).count(), self.mask.bundle(self.n)]
    }

    /// What is kept of the bit for later selections, once the pivot's words are there.
    pub fn keep<E: Engine<Tensor = T>>(
        &self,
        engine: &E,
        roles: &Roles,
        streams: &Streams,
    ) -> Result<WordShare<T>> {
        self.mask.keep(engine, roles, streams, self.n)
    }

    /// The pivot's work, given `u` as words: its two components of each result.
    pub fn lead<E: Engine<Tensor = T>>(
        &self,
        cx: &mut Cx<'_, E>,
        roles: &Roles,
        streams: &Streams,
        u: &T,
    ) -> Result<Vec<(T, T)>> {
        let (engine, shape) = (cx.engine, Shape::new([self.n])?);
        self.mask.lead(cx, roles, streams, u)?;
        let mut results = Vec::with_capacity(self.items.len());
        for Item { wanted, draws, .. } in &self.items {
            let [d3, y1, y2] = draws.map(|draw| streams.words(draw));
            let (first, second) = (wanted.spots.first(), wanted.spots.second());
            results.push(match &wanted.follow {
                Follow::Times((x1, x2)) => {
                    let sources = [whole(u), whole(x1), whole(x2), d3, y1, y2];
                    let places = [None, first, second];
                    let [d2, y1, y2] =
                        words_into(engine, &SelectLead, &shape, sources, &[], places)?;
                    cx.put(roles.left(), &d2)?;
                    (y1, y2)
                }
                Follow::Arithmetic => {
                    let y1 = made_into(engine, &shape, y1, first)?;
                    (y1, made_into(engine, &shape, y2, second)?)
                }
            });
        }
        Ok(results)
    }

    /// The second and the third read what the pivot sent.
    pub fn read<E: Engine<Tensor = T>>(
        &mut self,
        cx: &Cx<'_, E>,
        roles: &Roles,
        bundle: &mut Reader,
    ) -> Result<()> {
        self.mask.read(cx, roles, bundle, self.n)?;
        for item in &mut self.items {
            if roles.role == Role::Left && matches!(item.wanted.follow, Follow::Times(_)) {
                item.dealt = Some(bundle.words(cx.engine, self.n)?);
            }
        }
        Ok(())
    }

    /// The second and the third compute and exchange their summands, given `v` as words.
    pub fn apply<E: Engine<Tensor = T>>(
        &mut self,
        cx: &mut Cx<'_, E>,
        roles: &Roles,
        streams: &Streams,
        v: &T,
    ) -> Result<()> {
        let (engine, shape) = (cx.engine, Shape::new([self.n])?);
        let second = roles.role == Role::Left;
        let all = if second { u64::MAX } else { 0 };
        for Item { wanted, draws: [d3, y1, y2], dealt } in &self.items {
            let u = self.mask.share(streams);
            let y = streams.words(if second { *y2 } else { *y1 });
            let params = [all, u64::from(wanted.opposite)];
            let places = [None, wanted.spots.shared(roles)];
            self.sent.push(match &wanted.follow {
                Follow::Times((first, last)) => {
                    // The second holds (x2, x3), the third (x3, x1).
                    let (beta, alpha) = if second { (last, first) } else { (first, last) };
                    let d = dealt.as_ref().map_or_else(|| streams.words(*d3), whole);
                    let sources = [whole(v), u, d, whole(beta), whole(alpha), y];
                    words_into(engine, &SelectOther, &shape, sources, &params, places)?
                }
                Follow::Arithmetic => {
                    let sources = [whole(v), u, y];
                    words_into(engine, &ArithOther, &shape, sources, &params, places)?
                }
            });
        }
        self.sent.iter().try_for_each(|[summand, _]| cx.put(roles.peer(), summand))
    }

    /// The second and the third receive each other's summands: their two components of each result.
    pub fn finish<E: Engine<Tensor = T>>(
        &mut self,
        cx: &mut Cx<'_, E>,
        roles: &Roles,
    ) -> Result<Vec<(T, T)>> {
        let sent = std::mem::take(&mut self.sent);
        let mut reader = cx.receive(roles.peer(), sent.len() * self.n)?;
        let mut results = Vec::with_capacity(sent.len());
        for ([summand, y], item) in sent.into_iter().zip(&self.items) {
            let other = reader.words(cx.engine, self.n)?;
            let y3 = add_into(cx.engine, &summand, &other, item.wanted.spots.joint(roles))?;
            results.push(if roles.role == Role::Left { (y, y3) } else { (y3, y) });
        }
        Ok(results)
    }
}
