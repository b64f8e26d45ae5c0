//! Weighted sums of shared bits as words.
//!
//! Every bit is `u ^ v` as in [`crate::compare::select`], so `sum(c u (1 - 2v)) + sum(c v)` is the weighted sum.
//! The pivot shares each `u` between the others, one word of each to the third; the sums are then
//! local to them, and one exchange for each sum makes component 3; components 1 and 2 are streams.
//! Cost: 64 bits for each bit and 128 for each sum. Rounds: the pivot's words leave at once, then one
//! exchange.

use std::sync::Arc;

use mpc_core::{Result, ShareTensor};
use ring_arith::{BitTensor, Engine, EngineTensor, Place, Shape, Source, Tensor};

use crate::{
    BitShare, Rss, Share,
    kernels::{LANES, LaneLead, LaneSum, Negate, Xor},
    runtime::chunks::Spots,
    runtime::launch::{invalid, made_into, map, plane_of, planes, slice, to_plane, whole, words},
    runtime::links::Reader,
    runtime::prss::{Draw, Key, Planes, Streams},
    runtime::roles::{Role, Roles},
    runtime::rounds::{self, Cx, Unit},
    share::add_into,
    share::reusable::Layout,
};

impl<E: Engine> Rss<E> {
    /// For each tensor of bits, a share of `sum(c[j] * plane_j)` for every list `c`.
    pub(crate) fn weighted_sums(
        &mut self,
        jobs: &[(&BitShare<E::Tensor>, &[&[u64]])],
    ) -> Result<Vec<Vec<Share<E::Tensor>>>> {
        let (mut units, mut plans) = (Vec::new(), Vec::new());
        for (bits, lists) in jobs {
            let width = bits.width();
            if let Some(list) = lists.iter().find(|list| list.len() != width) {
                let reason = format!("{} coefficients for {width} planes", list.len());
                return Err(invalid("bit sums", reason));
            }
            let coefficients: Arc<[_]> = lists.iter().map(|list| list.to_vec()).collect();
            let places = (0..width).map(|j| 1 << (63 - j)).collect();
            let places = self.engine.upload(Tensor::vector(places))?;
            let pieces = self.pieces(bits.shape().len());
            let rooms = self.rooms(lists.len(), bits.shape().len(), &pieces);
            for piece in &pieces {
                let (roles, mut streams) = self.roles(piece);
                let columns = piece.range.start / 64..piece.range.end.div_ceil(64);
                let cut = |side: &BitTensor<E::Tensor>| {
                    slice(&self.engine, side.planes(), 1, columns.start, columns.end)
                };
                let n = piece.len();
                let u = streams.draw(Key::Left, width * n);
                planted!(
                    "sums: all bits of an element under one mask",
                    u = streams.rewritten(u, |old, i| old[i % n])
                );
                let known = |_: &&[u64]| {
                    let known = [Key::Right, Key::Left].map(|pair| streams.draw(pair, n));
                    planted!("sums: y2 off", known = [known[0], streams.blank(Key::Left, n)]);
                    known
                };
                units.push(SumUnit {
                    roles,
                    n,
                    width,
                    bits: roles.order(cut(bits.mine())?, cut(bits.next())?),
                    lists: coefficients.clone(),
                    places: places.clone(),
                    u,
                    known: lists.iter().map(known).collect(),
                    spots: rooms.iter().map(|room| room.spots_of(piece, &roles)).collect(),
                    streams,
                    sent: Vec::new(),
                    results: Vec::new(),
                });
            }
            plans.push((pieces, bits.shape().clone(), rooms));
        }
        rounds::run(&mut self.cx(), &mut units)?;
        let mut units = units.into_iter();
        let mut results = Vec::with_capacity(jobs.len());
        for (pieces, shape, rooms) in plans {
            let done = pieces.into_iter().map(|piece| {
                let unit = units.next().expect("a unit for each piece");
                (piece, unit.roles, unit.results)
            });
            results.push(self.collect(done.collect(), &rooms, Layout::FLAT, &shape)?);
        }
        Ok(results)
    }
}

/// Weighted sums of the planes of one part.
struct SumUnit<T: EngineTensor> {
    roles: Roles,
    streams: Streams,
    n: usize,
    width: usize,
    /// The role's two components of the planes.
    bits: (T, T),
    lists: Arc<[Vec<u64>]>,
    /// For each plane, what brings its bit of a word to the top.
    places: T,
    /// The second's shares of every `u`.
    u: Draw,
    /// For each sum, its components 1 and 2.
    known: Vec<[Draw; 2]>,
    /// Where each sum belongs.
    spots: Vec<Spots<T>>,
    /// This party's summands of component 3, and its component shared with the pivot.
    sent: Vec<[T; 2]>,
    results: Vec<(T, T)>,
}

impl<T: EngineTensor> SumUnit<T> {
    /// A component that two parties draw.
    fn drawn<E: Engine<Tensor = T>>(
        &self,
        cx: &Cx<'_, E>,
        draw: Draw,
        place: Option<Place<'_, T>>,
    ) -> Result<T> {
        Ok(made_into(cx.engine, &Shape::new([self.n])?, self.streams.words(draw), place)?)
    }

    /// This party's part of a sum, less `y`: `v` holds a bit for each plane, `dealt` the third's shares
    /// of every `u`.
    fn sum<E: Engine<Tensor = T>>(
        &self,
        cx: &Cx<'_, E>,
        v: &T,
        dealt: Option<&T>,
        list: &[u64],
        y: &T,
    ) -> Result<T> {
        let n = self.n;
        let all = if dealt.is_none() { u64::MAX } else { 0 };
        let mut total = map(cx.engine, &Negate, y.shape(), [y], &[])?;
        for (group, coefficients) in list.chunks(LANES).enumerate() {
            let first = group * LANES;
            let lane = |i: usize| match dealt {
                // Without a plane its coefficient is 0, and so is its summand.
                _ if i >= coefficients.len() => cx.zero(),
                None => self.streams.planes_again(self.u, Planes::one(first + i), n),
                Some(dealt) => plane_of(dealt, first + i, 0, n),
            };
            let lanes: [_; LANES] = std::array::from_fn(lane);
            let [a, b, c, d, e, f, g, h] = lanes;
            let sources = [whole(&total), whole(v), a, b, c, d, e, f, g, h];
            let mut params = vec![all];
            params.extend((0..LANES).map(|i| coefficients.get(i).copied().unwrap_or(0)));
            let kernel = LaneSum { first: first as u32 };
            let [sum] = words(cx.engine, &kernel, y.shape(), sources, &params)?;
            total = sum;
        }
        Ok(total)
    }
}

impl<E: Engine> Unit<E> for SumUnit<E::Tensor> {
    fn roles(&self) -> &Roles {
        &self.roles
    }

    fn bundle(&self) -> [usize; 2] {
        [0, self.width * self.n]
    }

    fn lead(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        let (n, width) = (self.n, self.width);
        let (x1, x2) = (&self.bits.0, &self.bits.1);
        let u = map(cx.engine, &Xor, x1.shape(), [x1, x2], &[])?;
        let u = cx.engine.from_planes(&u, 0, &Shape::new([n])?)?;
        let sources = vec![
            whole(&u),
            Source::PerRow { tensor: &self.places, offset: 0 },
            self.streams.planes(self.u, Planes { first: 0, stride: 1, count: width }, n),
        ];
        let targets = vec![to_plane(0, 0, 1, n)];
        let u3 = planes(cx.engine, &LaneLead, [width, n], sources, &[], &[width], targets)?;
        cx.put(self.roles.right(), &u3[0])?;
        for (&[y1, y2], spots) in self.known.iter().zip(&self.spots) {
            let y1 = self.drawn(cx, y1, spots.first())?;
            self.results.push((y1, self.drawn(cx, y2, spots.second())?));
        }
        Ok(())
    }

    fn start(&mut self, cx: &mut Cx<'_, E>, mut bundle: Reader) -> Result<()> {
        let second = self.roles.role == Role::Left;
        let v = if second { &self.bits.1 } else { &self.bits.0 };
        let v = cx.engine.from_planes(v, 0, &Shape::new([self.n])?)?;
        let dealt = match second {
            true => None,
            false => Some(bundle.words(cx.engine, self.width * self.n)?),
        };
        for ((list, &[y1, y2]), spots) in self.lists.iter().zip(&self.known).zip(&self.spots) {
            let y = self.drawn(cx, if second { y2 } else { y1 }, spots.shared(&self.roles))?;
            let sum = self.sum(cx, &v, dealt.as_ref(), list, &y)?;
            cx.put(self.roles.peer(), &sum)?;
            self.sent.push([sum, y]);
        }
        Ok(())
    }

    fn advance(&mut self, cx: &mut Cx<'_, E>) -> Result<bool> {
        let sent = std::mem::take(&mut self.sent);
        let mut reader = cx.receive(self.roles.peer(), sent.len() * self.n)?;
        for ([sum, y], spots) in sent.into_iter().zip(&self.spots) {
            let other = reader.words(cx.engine, self.n)?;
            let y3 = add_into(cx.engine, &sum, &other, spots.joint(&self.roles))?;
            let second = self.roles.role == Role::Left;
            self.results.push(if second { (y, y3) } else { (y3, y) });
        }
        Ok(true)
    }
}
