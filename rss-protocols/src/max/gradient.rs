//! The gradient of a maximum: words go back to the elements that won, the pivot running ahead.
//!
//! From the last level of the tournament down, each word is selected by the level's choice, kept when it was
//! opened. What the pivot knows of a selection's result are streams, so it walks all levels before anybody
//! else has begun; the others need one exchange a level.
//! Cost: 192 bits for each comparison of the tournament; `1 + ceil(log2 k)` rounds.

use mpc_core::{Result, ShareTensor};
use ring_arith::{Engine, EngineTensor, Launch, Shape, Source, Target};

use crate::{
    BitShare, Rss, Share,
    compare::select::{Follow, MaskShares, Selection, Wanted, WordShare},
    kernels::Split,
    runtime::chunks::{Piece, Spots, take},
    runtime::launch::slice,
    runtime::links::Reader,
    runtime::prss::Streams,
    runtime::roles::Roles,
    runtime::rounds::{self, Cx, Unit},
    share::reusable::{Kept, KeptPiece, Layout},
};

/// A tournament's level, of which the choices were kept.
struct Level<T: EngineTensor> {
    streams: Streams,
    /// Elements before the level.
    len: usize,
    /// The plane of the choices that this party knows.
    known: T,
    share: WordShare<T>,
    opposite: bool,
}

/// The gradient of one part.
struct GradientUnit<T: EngineTensor> {
    roles: Roles,
    /// How many words come in.
    results: usize,
    /// Levels that are left, the last one first to go.
    levels: Vec<Level<T>>,
    /// The role's components of the words so far.
    nodes: (T, T),
    /// The level under way at the second or the third, and what is left of the pivot's words.
    now: Option<(Walk<T>, Reader)>,
}

/// A level under way.
struct Walk<T: EngineTensor> {
    level: Level<T>,
    selection: Selection<T>,
}

impl<E: Engine> Rss<E> {
    /// What was kept of a tournament's choices, if all levels were cut alike.
    pub(crate) fn kept_choices(choices: &[BitShare<E::Tensor>]) -> Option<Vec<&Kept<E::Tensor>>> {
        let kept: Vec<_> = choices.iter().map(BitShare::kept).collect::<Option<_>>()?;
        let cut = |kept: &Kept<E::Tensor>| -> Vec<_> {
            let piece = |KeptPiece { piece, .. }: &KeptPiece<_>| {
                (piece.range.clone(), piece.pivot, piece.swapped)
            };
            kept.pieces.iter().map(piece).collect()
        };
        let first = cut(kept.first()?);
        let rows = |(kept, bits): (&&Kept<_>, &BitShare<_>)| {
            kept.layout.rows == bits.shape().dims()[0] && cut(kept) == first
        };
        kept.iter().zip(choices).all(rows).then_some(kept)
    }

    /// The gradient of a tournament's largest elements; `lengths` are those before each level.
    pub(crate) fn scatter(
        &mut self,
        gradient: &Share<E::Tensor>,
        levels: &[(usize, &Kept<E::Tensor>)],
    ) -> Result<Share<E::Tensor>> {
        let (mine, next) = self.flat_pair(gradient)?;
        let pieces: Vec<Piece> = levels[0].1.pieces.iter().map(|kept| kept.piece.clone()).collect();
        let mut units = Vec::with_capacity(pieces.len());
        for (i, piece) in pieces.iter().enumerate() {
            let roles = piece.roles(self.party());
            let cut = |x| take(&self.engine, x, piece);
            let nodes = roles.order(cut(&mine)?, cut(&next)?);
            let level = |&(len, kept): &(usize, &Kept<E::Tensor>)| {
                let KeptPiece { known, share, .. } = &kept.pieces[i];
                let (known, share) = (known.clone(), share.clone());
                Level { streams: self.roles(piece).1, len, known, share, opposite: kept.negated }
            };
            let levels = levels.iter().map(level).collect();
            units.push(GradientUnit { roles, results: piece.len(), levels, nodes, now: None });
        }
        rounds::run(&mut self.cx(), &mut units)?;
        let rows = levels[0].0;
        let shape = Shape::new([&[rows], &gradient.shape().dims()[1..]].concat())?;
        let (mut mine, mut next) = (Vec::new(), Vec::new());
        for (piece, unit) in pieces.iter().zip(units) {
            let (one, two) = unit.roles.order(unit.nodes.0, unit.nodes.1);
            mine.push((piece.range.start, one));
            next.push((piece.range.start, two));
        }
        let whole = |pieces| Layout { rows }.assemble(&self.engine, pieces, &shape);
        Ok(Share::new(whole(mine)?, whole(next)?)?)
    }
}

impl<T: EngineTensor> GradientUnit<T> {
    /// The selection of the next level.
    fn next<E: Engine<Tensor = T>>(&mut self, engine: &E) -> Result<Option<Walk<T>>> {
        let Some(mut level) = self.levels.pop() else { return Ok(None) };
        let n = level.len / 2 * self.results;
        let winners = |x: &T| slice(engine, x, 0, 0, n);
        let follow = Follow::Times((winners(&self.nodes.0)?, winners(&self.nodes.1)?));
        let opposite = level.opposite;
        planted!("gradient: to those that lost", opposite = !opposite);
        let wanted = Wanted { follow, opposite, spots: Spots::none(n) };
        let mask = MaskShares::Kept(level.share.clone());
        let selection = Selection::new(&mut level.streams, n, mask, vec![wanted]);
        Ok(Some(Walk { level, selection }))
    }

    /// Takes over what a level's later elements get.
    fn settle<E: Engine<Tensor = T>>(
        &mut self,
        engine: &E,
        len: usize,
        later: &(T, T),
    ) -> Result<()> {
        let one = |nodes: &T, later: &T| self.spread(engine, len, [nodes, later]);
        self.nodes = (one(&self.nodes.0, &later.0)?, one(&self.nodes.1, &later.1)?);
        Ok(())
    }

    /// One component of the words of all `len` elements of a level.
    fn spread<E: Engine<Tensor = T>>(
        &self,
        engine: &E,
        len: usize,
        [nodes, later]: [&T; 2],
    ) -> Result<T> {
        let (pairs, cols) = (len / 2, self.results);
        let target = |offset| Target { tensor: 0, offset, row_stride: 2 * cols };
        let launch = Launch {
            rows: pairs,
            cols,
            sources: [Source::rows_of(nodes, cols), Source::rows_of(later, cols)],
            params: &[],
            outputs: &[Shape::new([2 * pairs * cols])?],
            targets: [target(0), target(cols)],
        };
        let both = engine.launch(&Split, &launch)?.pop().expect("a launch makes its output");
        if len.is_multiple_of(2) {
            return Ok(both);
        }
        // The element without a pair came through as it is.
        let odd = slice(engine, nodes, 0, pairs * cols, (pairs + 1) * cols)?;
        Ok(engine.concat(&[&both, &odd], 0)?)
    }

    /// Starts the next level at the second or the third; whether there is none.
    fn begin<E: Engine<Tensor = T>>(
        &mut self,
        cx: &mut Cx<'_, E>,
        mut bundle: Reader,
    ) -> Result<bool> {
        let Some(mut walk) = self.next(cx.engine)? else { return Ok(true) };
        let Walk { level, selection } = &mut walk;
        selection.read(cx, &self.roles, &mut bundle)?;
        let v = level.words(cx.engine, self.results)?;
        selection.apply(cx, &self.roles, &level.streams, &v)?;
        self.now = Some((walk, bundle));
        Ok(false)
    }
}

impl<T: EngineTensor> Level<T> {
    /// What this party knows of the choices, as words.
    fn words<E: Engine<Tensor = T>>(&self, engine: &E, results: usize) -> Result<T> {
        Ok(engine.from_planes(&self.known, 0, &Shape::new([self.len / 2 * results])?)?)
    }
}

impl<E: Engine> Unit<E> for GradientUnit<E::Tensor> {
    fn roles(&self) -> &Roles {
        &self.roles
    }

    fn bundle(&self) -> [usize; 2] {
        [self.levels.iter().map(|level| level.len / 2 * self.results).sum(), 0]
    }

    fn lead(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        while let Some(Walk { level, selection }) = self.next(cx.engine)? {
            let u = level.words(cx.engine, self.results)?;
            let later = selection.lead(cx, &self.roles, &level.streams, &u)?;
            self.settle(cx.engine, level.len, &later[0])?;
        }
        Ok(())
    }

    fn start(&mut self, cx: &mut Cx<'_, E>, bundle: Reader) -> Result<()> {
        self.begin(cx, bundle).map(drop)
    }

    fn advance(&mut self, cx: &mut Cx<'_, E>) -> Result<bool> {
        let Some((mut walk, bundle)) = self.now.take() else { return Ok(true) };
        let later = walk.selection.finish(cx, &self.roles)?;
        self.settle(cx.engine, walk.level.len, &later[0])?;
        self.begin(cx, bundle)
    }
}
