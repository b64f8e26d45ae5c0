//! Gates on shared bits, bits times words, and words as bits.

mod decompose;
mod weighted_sum;

use mpc_core::{Result, ShareTensor};
use ring_arith::{BitTensor, Engine, EngineTensor, Place, Shape};

use crate::{
    BitShare, Rss, Share,
    compare::select::{Follow, MaskShares, Selection, Wanted},
    kernels::{And3, Xor},
    runtime::chunks::{Piece, Rooms, Spots, take},
    runtime::launch::{flat, made_into, map, slice, whole, words, words_into},
    runtime::links::Reader,
    runtime::prss::{Draw, Key, Streams},
    runtime::roles::{Role, Roles},
    runtime::rounds::{self, Cx, Unit},
    share::reusable::{KeptPiece, Layout},
};

impl<E: Engine> Rss<E> {
    /// `x & y`: one product of two-against-one sums for each party, masked.
    ///
    /// Cost: 3 bits, 1 round; the pivot receives nothing. Araki et al., CCS 2016, in the form of one
    /// against two.
    pub(crate) fn conjunctions(
        &mut self,
        jobs: &[(&BitShare<E::Tensor>, &BitShare<E::Tensor>)],
    ) -> Result<Vec<BitShare<E::Tensor>>> {
        let mut units = Vec::new();
        let mut plans = Vec::new();
        for (x, y) in jobs {
            let (width, cols) = (x.width(), x.mine().words());
            // Thirds over the planes' words, all planes of one width.
            let pieces = self.pieces(width * cols);
            let rooms = Rooms::new(&self.engine, width * cols, &pieces);
            for piece in &pieces {
                let (roles, mut streams) = self.roles(piece);
                let cut = |side: &BitTensor<E::Tensor>| -> Result<E::Tensor> {
                    let words = flat(&self.engine, side.planes())?;
                    take(&self.engine, &words, piece)
                };
                let x = roles.order(cut(x.mine())?, cut(x.next())?);
                let y = roles.order(cut(y.mine())?, cut(y.next())?);
                let n = piece.len();
                let masks = [Key::Left, Key::Right].map(|pair| streams.draw(pair, n));
                let first = streams.draw(Key::Right, n);
                planted!("and: the result under m13", first = masks[1]);
                planted!("and: m12 off", masks = [streams.blank(Key::Left, n), masks[1]]);
                units.push(AndUnit {
                    roles,
                    streams,
                    x,
                    y,
                    n,
                    masks,
                    first,
                    spots: rooms.spots_of(piece, &roles),
                    own: None,
                    result: None,
                });
            }
            plans.push((pieces, rooms, Shape::new([width, cols])?, x.shape().clone()));
        }
        rounds::run(&mut self.cx(), &mut units)?;
        let mut units = units.into_iter();
        let mut results = Vec::with_capacity(jobs.len());
        for (pieces, rooms, planes, shape) in plans {
            let (mut mine, mut next) = (Vec::new(), Vec::new());
            for piece in pieces {
                let unit = units.next().expect("a unit for each piece");
                let (first, second) = unit.result.expect("the unit is done");
                let pair = unit.roles.order(first, second);
                mine.push((piece.range.start, pair.0));
                next.push((piece.range.start, pair.1));
            }
            let [mine, next] = rooms.assemble(&self.engine, [mine, next], 0, &planes)?;
            let whole = |planes| BitTensor::new(shape.clone(), planes);
            results.push(BitShare::new(whole(mine)?, whole(next)?)?);
        }
        Ok(results)
    }

    /// A bit times words. Cost: 64 bits unless the bit was kept, and 192 for each word; 2 rounds.
    pub(crate) fn selections(
        &mut self,
        jobs: &[(&BitShare<E::Tensor>, &[&Share<E::Tensor>])],
    ) -> Result<Vec<Vec<Share<E::Tensor>>>> {
        let mut batch = Batch::default();
        for (bit, xs) in jobs {
            let xs = xs.iter().map(|x| self.flat_pair(x)).collect::<Result<Vec<_>>>()?;
            self.add_selection(&mut batch, bit, 0, Some(xs))?;
        }
        self.run_selections(batch)
    }

    /// Every plane as words. Cost: 192 bits for each, 128 for a kept bit; 2 rounds.
    pub(crate) fn planes_as_words(
        &mut self,
        jobs: &[&BitShare<E::Tensor>],
    ) -> Result<Vec<Vec<Share<E::Tensor>>>> {
        let mut batch = Batch::default();
        for bits in jobs {
            for plane in 0..bits.width() {
                self.add_selection(&mut batch, bits, plane, None)?;
            }
        }
        let mut planes = self.run_selections(batch)?.into_iter().flatten();
        Ok(jobs.iter().map(|bits| planes.by_ref().take(bits.width()).collect()).collect())
    }

    fn add_selection(
        &mut self,
        batch: &mut Batch<E::Tensor>,
        bits: &BitShare<E::Tensor>,
        plane: usize,
        xs: Option<Vec<(E::Tensor, E::Tensor)>>,
    ) -> Result<()> {
        let n = bits.shape().len();
        let (layout, pieces) = match bits.kept() {
            Some(kept) => {
                (kept.layout, kept.pieces.iter().map(|kept| kept.piece.clone()).collect())
            }
            None => (Layout::FLAT, self.pieces(n)),
        };
        let count = xs.as_ref().map_or(1, Vec::len);
        let rooms = match layout {
            Layout::FLAT => self.rooms(count, n, &pieces),
            _ => (0..count).map(|_| Rooms::none()).collect(),
        };
        for (i, piece) in pieces.iter().enumerate() {
            let (roles, mut streams) = self.roles(piece);
            let (engine, n) = (&self.engine, layout.len(piece));
            let (known, mask, opposite) = match bits.kept() {
                Some(kept) => {
                    let KeptPiece { known, share, .. } = &kept.pieces[i];
                    (known.clone(), MaskShares::Kept(share.clone()), kept.negated)
                }
                None => {
                    let known = self.known_plane(bits, plane, piece, &roles)?;
                    (known, MaskShares::deal(&mut streams, n), false)
                }
            };
            let follows = match &xs {
                None => vec![Follow::Arithmetic],
                Some(xs) => {
                    let cut = |x: &E::Tensor| layout.take(engine, x, piece);
                    let one = |(mine, next): &(E::Tensor, E::Tensor)| -> Result<_> {
                        Ok(Follow::Times(roles.order(cut(mine)?, cut(next)?)))
                    };
                    xs.iter().map(one).collect::<Result<_>>()?
                }
            };
            let wanted = follows.into_iter().zip(&rooms).map(|(follow, room)| {
                let spots = room.spots(&roles, piece.range.start, n);
                Wanted { follow, opposite, spots }
            });
            let selection = Selection::new(&mut streams, n, mask, wanted.collect());
            let results = Vec::new();
            batch.units.push(SelectUnit { roles, streams, n, known, selection, results });
        }
        batch.plans.push((pieces, layout, bits.shape().clone(), rooms));
        Ok(())
    }

    /// The plane that a role knows of a piece of shared bits: `u` at the pivot, `v` at the others.
    pub(crate) fn known_plane(
        &self,
        bits: &BitShare<E::Tensor>,
        plane: usize,
        piece: &Piece,
        roles: &Roles,
    ) -> Result<E::Tensor> {
        let engine = &self.engine;
        let columns = piece.range.start / 64..piece.range.end.div_ceil(64);
        planted!("bits: every piece from the first column on", columns = 0..columns.len());
        let cut = |side: &BitTensor<E::Tensor>| -> Result<E::Tensor> {
            let plane = slice(engine, side.planes(), 0, plane, plane + 1)?;
            Ok(slice(engine, &plane, 1, columns.start, columns.end)?)
        };
        let (first, second) = roles.order(cut(bits.mine())?, cut(bits.next())?);
        match roles.role {
            Role::Dealer => Ok(map(engine, &Xor, first.shape(), [&first, &second], &[])?),
            Role::Left => Ok(second),
            Role::Right => Ok(first),
        }
    }

    fn run_selections(
        &mut self,
        mut batch: Batch<E::Tensor>,
    ) -> Result<Vec<Vec<Share<E::Tensor>>>> {
        rounds::run(&mut self.cx(), &mut batch.units)?;
        let mut units = batch.units.into_iter();
        let mut results = Vec::with_capacity(batch.plans.len());
        for (pieces, layout, shape, rooms) in batch.plans {
            let done = pieces.into_iter().map(|piece| {
                let unit = units.next().expect("a unit for each piece");
                (piece, unit.roles, unit.results)
            });
            results.push(self.collect(done.collect(), &rooms, layout, &shape)?);
        }
        Ok(results)
    }

    /// Room for several results of `len` words.
    pub(crate) fn rooms(
        &self,
        count: usize,
        len: usize,
        pieces: &[Piece],
    ) -> Vec<Rooms<E::Tensor>> {
        (0..count).map(|_| Rooms::new(&self.engine, len, pieces)).collect()
    }

    /// Puts the pieces of several results together. Each piece holds the role's two components of
    /// each.
    pub(crate) fn collect(
        &self,
        pieces: Vec<(Piece, Roles, Vec<(E::Tensor, E::Tensor)>)>,
        rooms: &[Rooms<E::Tensor>],
        layout: Layout,
        shape: &Shape,
    ) -> Result<Vec<Share<E::Tensor>>> {
        let mut sides: Vec<[Vec<(usize, E::Tensor)>; 2]> =
            rooms.iter().map(|_| [Vec::new(), Vec::new()]).collect();
        for (piece, roles, results) in pieces {
            for (side, (first, second)) in sides.iter_mut().zip(results) {
                let (mine, next) = roles.order(first, second);
                side[0].push((piece.range.start, mine));
                side[1].push((piece.range.start, next));
            }
        }
        let engine = &self.engine;
        let whole = |(sides, rooms): (_, &Rooms<E::Tensor>)| -> Result<_> {
            if layout == Layout::FLAT {
                let [mine, next] = rooms.assemble(engine, sides, 0, shape)?;
                return Ok(Share::new(mine, next)?);
            }
            let [mine, next] = sides;
            let mine = layout.assemble(engine, mine, shape)?;
            Ok(Share::new(mine, layout.assemble(engine, next, shape)?)?)
        };
        sides.into_iter().zip(rooms).map(whole).collect()
    }
}

/// Selections that share rounds, and how their pieces lie.
struct Batch<T: EngineTensor> {
    units: Vec<SelectUnit<T>>,
    plans: Vec<(Vec<Piece>, Layout, Shape, Vec<Rooms<T>>)>,
}

impl<T: EngineTensor> Default for Batch<T> {
    fn default() -> Self {
        Self { units: Vec::new(), plans: Vec::new() }
    }
}

/// A shared bit times words, for one part.
struct SelectUnit<T: EngineTensor> {
    roles: Roles,
    streams: Streams,
    n: usize,
    /// The plane of `u` at the pivot, of `v` at the others.
    known: T,
    selection: Selection<T>,
    results: Vec<(T, T)>,
}

impl<E: Engine> Unit<E> for SelectUnit<E::Tensor> {
    fn roles(&self) -> &Roles {
        &self.roles
    }

    fn bundle(&self) -> [usize; 2] {
        self.selection.bundle()
    }

    fn lead(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        let u = cx.engine.from_planes(&self.known, 0, &Shape::new([self.n])?)?;
        self.results = self.selection.lead(cx, &self.roles, &self.streams, &u)?;
        Ok(())
    }

    fn start(&mut self, cx: &mut Cx<'_, E>, mut bundle: Reader) -> Result<()> {
        self.selection.read(cx, &self.roles, &mut bundle)?;
        let v = cx.engine.from_planes(&self.known, 0, &Shape::new([self.n])?)?;
        self.selection.apply(cx, &self.roles, &self.streams, &v)
    }

    fn advance(&mut self, cx: &mut Cx<'_, E>) -> Result<bool> {
        self.results = self.selection.finish(cx, &self.roles)?;
        Ok(true)
    }
}

/// A conjunction of one part.
struct AndUnit<T: EngineTensor> {
    roles: Roles,
    streams: Streams,
    x: (T, T),
    y: (T, T),
    n: usize,
    masks: [Draw; 2],
    /// Component 1 of the result.
    first: Draw,
    /// Where the result belongs.
    spots: Spots<T>,
    own: Option<T>,
    result: Option<(T, T)>,
}

impl<T: EngineTensor> AndUnit<T> {
    /// This party's summand, masked so that only its own knows it.
    fn summand<E: Engine<Tensor = T>>(&self, cx: &Cx<'_, E>) -> Result<T> {
        let [m12, m13] = self.masks;
        let (m, n) = match self.roles.role {
            Role::Dealer => (self.streams.words(m12), self.streams.words(m13)),
            Role::Left => (self.streams.words(m12), cx.zero()),
            Role::Right => (self.streams.words(m13), cx.zero()),
        };
        let (x, y) = (&self.x, &self.y);
        let sources = [whole(&x.0), whole(&x.1), whole(&y.0), whole(&y.1), m, n];
        let [z] = words(cx.engine, &And3, &Shape::new([self.n])?, sources, &[])?;
        Ok(z)
    }

    fn first<E: Engine<Tensor = T>>(
        &self,
        cx: &Cx<'_, E>,
        place: Option<Place<'_, T>>,
    ) -> Result<T> {
        Ok(made_into(cx.engine, &Shape::new([self.n])?, self.streams.words(self.first), place)?)
    }

    /// A share's difference from another, where it belongs.
    fn rest<E: Engine<Tensor = T>>(
        cx: &Cx<'_, E>,
        [x, y]: [&T; 2],
        place: Option<Place<'_, T>>,
    ) -> Result<T> {
        let sources = [whole(x), whole(y)];
        let [rest] = words_into(cx.engine, &Xor, x.shape(), sources, &[], [place])?;
        Ok(rest)
    }
}

impl<E: Engine> Unit<E> for AndUnit<E::Tensor> {
    fn roles(&self) -> &Roles {
        &self.roles
    }

    fn bundle(&self) -> [usize; 2] {
        [self.n, 0]
    }

    fn lead(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        let z = self.summand(cx)?;
        let y1 = self.first(cx, self.spots.first())?;
        let y2 = Self::rest(cx, [&z, &y1], self.spots.second())?;
        cx.put(self.roles.left(), &y2)?;
        self.result = Some((y1, y2));
        Ok(())
    }

    fn announce(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        let z = self.summand(cx)?;
        cx.put(self.roles.peer(), &z)?;
        self.own = Some(z);
        Ok(())
    }

    fn start(&mut self, cx: &mut Cx<'_, E>, mut bundle: Reader) -> Result<()> {
        let shared = match self.roles.role {
            Role::Left => bundle.words(cx.engine, self.n)?,
            _ => self.first(cx, self.spots.shared(&self.roles))?,
        };
        self.result = Some((shared.clone(), shared));
        Ok(())
    }

    fn advance(&mut self, cx: &mut Cx<'_, E>) -> Result<bool> {
        let other = cx.receive(self.roles.peer(), self.n)?.words(cx.engine, self.n)?;
        let own = self.own.take().expect("sent before");
        let y3 = Self::rest(cx, [&own, &other], self.spots.joint(&self.roles))?;
        let (shared, _) = self.result.take().expect("read before");
        let second = self.roles.role == Role::Left;
        self.result = Some(if second { (shared, y3) } else { (y3, shared) });
        Ok(true)
    }
}
