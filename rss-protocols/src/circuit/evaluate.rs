//! Runs a comparison's circuit on planes.

use std::sync::Arc;

use mpc_core::Result;
use ring_arith::{Engine, Source, Target};

use crate::{
    circuit::schedule::{Child, Class, Goal, Made, Plan, dealt},
    kernels::{
        Codes, Deal2, Deal3, Deal4, DealAll2, DealAll3, DealAll4, DealLow2, DealLow3, DealLow4,
        Digits, DigitsEqual, DigitsGreater, LeafMask, Merge2, Merge3, Merge4, MergeAll2, MergeAll3,
        MergeAll4, MergeLow2, MergeLow3, MergeLow4,
    },
    runtime::launch::{plane_of, planes, to_plane},
    runtime::links::Reader,
    runtime::prss::{Draw, Key, Planes, Streams},
    runtime::roles::{Role, Roles},
    runtime::rounds::Cx,
};

/// A circuit with its place in the streams, for planes of `cols` words.
pub(crate) struct Circuit {
    plan: Arc<Plan>,
    cols: usize,
    /// The second's shares of the codes.
    codes: Draw,
    /// Masks of what the second and the third open, by the party that adds them.
    masks: [Draw; 2],
    /// The third's shares of the masks of merged nodes.
    shares: Draw,
    /// The third's shares of dealt products.
    dealt: Draw,
}

/// A circuit under way at the second or the third.
pub(crate) struct Walk<T> {
    level: usize,
    /// By class: opened bits as sent, and as received.
    own: Vec<Option<T>>,
    other: Vec<Option<T>>,
    /// By class: shared `greater` (or the result) of nodes whose `greater` is a summand.
    kept: Vec<Option<T>>,
    /// By class: what the pivot sent.
    dealt: Vec<Option<T>>,
    shares: Vec<Option<T>>,
    codes: Vec<T>,
}

impl Circuit {
    pub fn new(plan: Arc<Plan>, streams: &mut Streams, cols: usize) -> Self {
        let codes = streams.draw(Key::Left, plan.code_planes * cols);
        let masks = [Key::Left, Key::Right].map(|pair| streams.draw(pair, plan.opened * cols));
        let shares = streams.draw(Key::Right, plan.shares * cols);
        let dealt = streams.draw(Key::Right, plan.dealt * cols);
        planted!("circuit: codes off", codes = streams.blank(Key::Left, plan.code_planes * cols));
        planted!(
            "circuit: both bits of a node under one mask",
            masks = masks.map(|m| {
                streams.rewritten(m, |old, i| old[plan.twin(i / cols) * cols + i % cols])
            })
        );
        planted!("circuit: masks shared under the third's masks", shares = masks[1]);
        planted!(
            "circuit: all dealt products under one mask",
            dealt = streams.rewritten(dealt, |old, i| old[i % cols])
        );
        planted!("circuit: dealt products under the third's masks", dealt = masks[1]);
        Self { plan, cols, codes, masks, shares, dealt }
    }

    /// Words that the pivot sends to the second and to the third.
    pub fn bundle(&self) -> [usize; 2] {
        self.plan.bundle().map(|planes| planes * self.cols)
    }

    /// Exchanges before the result is there.
    pub fn exchanges(&self) -> usize {
        self.plan.exchanges()
    }

    /// The pivot's whole work, given the planes of `a`. Its part of the result; `None` if it has none.
    pub fn lead<E: Engine>(
        &self,
        cx: &mut Cx<'_, E>,
        roles: &Roles,
        streams: &Streams,
        a: &E::Tensor,
    ) -> Result<Option<E::Tensor>> {
        self.send_codes(cx, roles, streams, a)?;
        let leaf = self.leaf_masks(cx, streams)?;
        let count = self.plan.classes.len();
        let mut masks: Vec<Option<E::Tensor>> = (0..count).map(|_| None).collect();
        let mut kept: Vec<Option<E::Tensor>> = (0..count).map(|_| None).collect();
        for (at, class) in self.plan.classes.iter().enumerate().filter(|(_, c)| c.merged()) {
            let [to_second, opened, shared, top] =
                self.deal(cx, streams, class, &leaf, &masks, &kept)?;
            for field in [to_second, shared].into_iter().flatten() {
                cx.put(roles.left(), &field)?;
            }
            (masks[at], kept[at]) = (opened, top);
        }
        Ok(kept.pop().flatten())
    }

    fn send_codes<E: Engine>(
        &self,
        cx: &mut Cx<'_, E>,
        roles: &Roles,
        streams: &Streams,
        a: &E::Tensor,
    ) -> Result<()> {
        let cols = self.cols;
        for run in &self.plan.codes {
            let (digit, code) = (run.digit, (1 << run.digit) - 1);
            let bits = (0..digit).map(|j| plane_of(a, run.bit + j, digit, cols));
            let rows = |first| Planes { first, stride: code, count: run.rows };
            let stream = |k| streams.planes(self.codes, rows(run.first + k), cols);
            let sources = bits.chain((0..code).map(stream)).collect();
            let targets = (0..code).map(|k| to_plane(0, k, code, cols)).collect();
            let (space, outputs) = ([run.rows, cols], [run.rows * code]);
            let engine = cx.engine;
            let mut made = match digit {
                1 => planes(engine, &Codes::<1>, space, sources, &[], &outputs, targets)?,
                2 => planes(engine, &Codes::<2>, space, sources, &[], &outputs, targets)?,
                3 => planes(engine, &Codes::<3>, space, sources, &[], &outputs, targets)?,
                _ => planes(engine, &Codes::<4>, space, sources, &[], &outputs, targets)?,
            };
            let field = made.pop().expect("one output");
            cx.put(roles.right(), &field)?;
        }
        Ok(())
    }

    /// The pivot's masks of all that leaves open.
    fn leaf_masks<E: Engine>(
        &self,
        cx: &Cx<'_, E>,
        streams: &Streams,
    ) -> Result<Option<E::Tensor>> {
        let (rows, cols) = (self.plan.leaf_opened, self.cols);
        if rows == 0 {
            return Ok(None);
        }
        let all = Planes { first: 0, stride: 1, count: rows };
        let sources = self.masks.iter().map(|&m| streams.planes(m, all, cols)).collect();
        let targets = vec![to_plane(0, 0, 1, cols)];
        let made = planes(cx.engine, &LeafMask, [rows, cols], sources, &[], &[rows], targets)?;
        Ok(made.into_iter().next())
    }

    /// One class of merges at the pivot: dealt shares, masks of what is opened, the second's shares
    /// of those, and what is kept.
    fn deal<E: Engine>(
        &self,
        cx: &Cx<'_, E>,
        streams: &Streams,
        class: &Class,
        leaf: &Option<E::Tensor>,
        masks: &[Option<E::Tensor>],
        kept: &[Option<E::Tensor>],
    ) -> Result<[Option<E::Tensor>; 4]> {
        let Made::Merge { children, dealt: first, low } = &class.made else {
            unreachable!("leaves are not dealt")
        };
        let (cols, rows, k) = (self.cols, class.rows, class.factors());
        let count = dealt(self.plan.goal, *low, children.len());
        let mut sources = Vec::new();
        for (child, from, slot) in self.factors(children) {
            let (tensor, base) = match &masks[child.class] {
                Some(tensor) => (tensor, 0),
                None => (leaf.as_ref().expect("leaves open planes"), from.opened),
            };
            sources.push(row_plane(tensor, base, child, from, slot, cols));
        }
        let planes_of = |first, stride| Planes { first, stride, count: rows };
        let stream = |j| streams.planes(self.dealt, planes_of(first + j, count), cols);
        sources.extend((0..count).map(stream));
        if self.plan.goal == Goal::Carry {
            let top = children.last().expect("a merge has children");
            sources.push(match &kept[top.class] {
                Some(tensor) => plane_of(tensor, top.row, top.stride, cols),
                None => cx.zero(),
            });
        }
        let mut targets: Vec<Target> = (0..count).map(|j| to_plane(0, j, count, cols)).collect();
        for slot in self.results(class) {
            match slot {
                Some(slot) => {
                    let opened = planes_of(class.opened + slot, k);
                    let mask = |m: &Draw| streams.planes(*m, opened, cols);
                    sources.extend(self.masks.iter().map(mask));
                    let shares = planes_of(class.shares + slot, k);
                    sources.push(streams.planes(self.shares, shares, cols));
                    targets.extend([to_plane(1, slot, k, cols), to_plane(2, slot, k, cols)]);
                }
                None => {
                    sources.extend([cx.zero(), cx.zero(), cx.zero()]);
                    targets.extend([to_plane(3, 0, 1, cols), to_plane(4, 0, 1, cols)]);
                }
            }
        }
        let keeps = rows * usize::from(class.keeps);
        // The last is the share of a mask that is not needed, since nothing is opened under it.
        let outputs = [rows * count, rows * k, rows * k, keeps, keeps];
        let (engine, space) = (cx.engine, [rows, cols]);
        macro_rules! run {
            ($kernel:expr) => {
                planes(engine, &$kernel, space, sources, &[], &outputs, targets)?
            };
        }
        let made = match (self.plan.goal, low, children.len()) {
            (Goal::Carry, false, 2) => run!(Deal2),
            (Goal::Carry, false, 3) => run!(Deal3),
            (Goal::Carry, false, _) => run!(Deal4),
            (Goal::Carry, true, 2) => run!(DealLow2),
            (Goal::Carry, true, 3) => run!(DealLow3),
            (Goal::Carry, true, _) => run!(DealLow4),
            (Goal::Equal, _, 2) => run!(DealAll2),
            (Goal::Equal, _, 3) => run!(DealAll3),
            (Goal::Equal, _, _) => run!(DealAll4),
        };
        let mut made = made.into_iter().zip(outputs).map(|(t, size)| (size > 0).then_some(t));
        Ok(std::array::from_fn(|_| made.next().flatten()))
    }

    /// The factors of merges with these children, lowest first, `greater` before `equal`.
    fn factors<'a>(
        &'a self,
        children: &'a [Child],
    ) -> impl Iterator<Item = (&'a Child, &'a Class, usize)> {
        children.iter().flat_map(|child| {
            let class = &self.plan.classes[child.class];
            (0..class.factors()).map(move |slot| (child, class, slot))
        })
    }

    /// For each result of a node: its place among what is opened, or `None` if it is kept.
    fn results(&self, class: &Class) -> Vec<Option<usize>> {
        let opened = |opens: bool, slot| opens.then_some(slot);
        let e_slot = usize::from(class.opens_g);
        match (self.plan.goal, &class.made) {
            (Goal::Equal, _) => vec![opened(class.opens_e, 0)],
            (Goal::Carry, Made::Merge { low: true, .. }) => vec![opened(class.opens_g, 0)],
            (Goal::Carry, Made::Leaf { .. }) if !class.opens_e => vec![opened(class.opens_g, 0)],
            (Goal::Carry, _) => vec![opened(class.opens_g, 0), opened(class.opens_e, e_slot)],
        }
    }

    /// The start at the second or the third, given the planes of `b`: reads what the pivot sent and
    /// opens what the leaves have to open.
    pub fn start<E: Engine>(
        &self,
        cx: &mut Cx<'_, E>,
        roles: &Roles,
        streams: &Streams,
        bundle: &mut Reader,
        b: &E::Tensor,
    ) -> Result<Walk<E::Tensor>> {
        let mut walk = self.read(cx, roles, bundle)?;
        for at in self.plan.levels[0].clone() {
            let (opened, kept) = self.leaf(cx, roles, streams, at, &walk.codes, b)?;
            (walk.own[at], walk.kept[at]) = (opened, kept);
        }
        walk.codes.clear();
        self.send_level(cx, roles, &walk)?;
        Ok(walk)
    }

    fn read<E: Engine>(
        &self,
        cx: &Cx<'_, E>,
        roles: &Roles,
        bundle: &mut Reader,
    ) -> Result<Walk<E::Tensor>> {
        let (engine, cols, classes) = (cx.engine, self.cols, &self.plan.classes);
        let empty = || (0..classes.len()).map(|_| None).collect::<Vec<_>>();
        let mut walk = Walk {
            level: 0,
            own: empty(),
            other: empty(),
            kept: empty(),
            dealt: empty(),
            shares: empty(),
            codes: Vec::new(),
        };
        if roles.role == Role::Right {
            for run in &self.plan.codes {
                let size = run.rows * ((1 << run.digit) - 1);
                walk.codes.push(bundle.planes(engine, size, cols)?);
            }
            return Ok(walk);
        }
        for (at, class) in classes.iter().enumerate() {
            if let Made::Merge { children, low, .. } = &class.made {
                let count = class.rows * dealt(self.plan.goal, *low, children.len());
                let shares = class.rows * class.factors();
                let mut field = |size| match size {
                    0 => Ok(None),
                    _ => bundle.planes(engine, size, cols).map(Some),
                };
                (walk.dealt[at], walk.shares[at]) = (field(count)?, field(shares)?);
            }
        }
        Ok(walk)
    }

    fn leaf<E: Engine>(
        &self,
        cx: &Cx<'_, E>,
        roles: &Roles,
        streams: &Streams,
        at: usize,
        codes: &[E::Tensor],
        b: &E::Tensor,
    ) -> Result<(Option<E::Tensor>, Option<E::Tensor>)> {
        let class = &self.plan.classes[at];
        let Made::Leaf { run, first, stride } = class.made else {
            unreachable!("level 0 has leaves only")
        };
        let (cols, run_at) = (self.cols, run);
        let run = &self.plan.codes[run];
        let (digit, code) = (run.digit, (1 << run.digit) - 1);
        let of_codes = |first| Planes { first, stride: stride * code, count: class.rows };
        let mut sources: Vec<Source<'_, E::Tensor>> = (0..code)
            .map(|k| match roles.role {
                Role::Right => plane_of(&codes[run_at], first * code + k, stride * code, cols),
                _ => streams.planes(self.codes, of_codes(run.first + first * code + k), cols),
            })
            .collect();
        let bit = |j| plane_of(b, run.bit + first * digit + j, stride * digit, cols);
        sources.extend((0..digit).map(bit));
        let parity = if roles.role == Role::Right { [u64::MAX] } else { [0] };
        let (engine, goal) = (cx.engine, self.plan.goal);
        let out = self.add_results(cx, roles, streams, class, &mut sources);
        let (space, (outputs, targets)) = ([class.rows, cols], out);
        macro_rules! run {
            ($kernel:expr) => {
                planes(engine, &$kernel, space, sources, &parity, &outputs, targets)?
            };
        }
        let made = match (goal, targets.len(), digit) {
            (Goal::Carry, 2, 1) => run!(Digits::<1>),
            (Goal::Carry, 2, 2) => run!(Digits::<2>),
            (Goal::Carry, 2, 3) => run!(Digits::<3>),
            (Goal::Carry, 2, _) => run!(Digits::<4>),
            (Goal::Carry, _, 1) => run!(DigitsGreater::<1>),
            (Goal::Carry, _, 2) => run!(DigitsGreater::<2>),
            (Goal::Carry, _, 3) => run!(DigitsGreater::<3>),
            (Goal::Carry, _, _) => run!(DigitsGreater::<4>),
            (Goal::Equal, _, 1) => run!(DigitsEqual::<1>),
            (Goal::Equal, _, 2) => run!(DigitsEqual::<2>),
            (Goal::Equal, _, 3) => run!(DigitsEqual::<3>),
            (Goal::Equal, _, _) => run!(DigitsEqual::<4>),
        };
        Ok(split(made, &outputs))
    }

    /// Adds the masks of a class's results to the sources; the outputs, opened planes and kept ones,
    /// and where the results go.
    fn add_results<'a, E: Engine>(
        &self,
        cx: &Cx<'a, E>,
        roles: &Roles,
        streams: &'a Streams,
        class: &Class,
        sources: &mut Vec<Source<'a, E::Tensor>>,
    ) -> ([usize; 2], Vec<Target>) {
        let (cols, k) = (self.cols, class.factors());
        let mut targets = Vec::new();
        for slot in self.results(class) {
            match slot {
                Some(slot) => {
                    let rows = Planes { first: class.opened + slot, stride: k, count: class.rows };
                    sources.push(streams.planes(self.mask(roles), rows, cols));
                    targets.push(to_plane(0, slot, k, cols));
                }
                None => {
                    sources.push(cx.zero());
                    targets.push(to_plane(1, 0, 1, cols));
                }
            }
        }
        ([class.rows * k, class.rows * usize::from(class.keeps)], targets)
    }

    /// The masks that this party adds to what it opens.
    fn mask(&self, roles: &Roles) -> Draw {
        self.masks[usize::from(roles.role == Role::Right)]
    }

    fn send_level<E: Engine>(
        &self,
        cx: &mut Cx<'_, E>,
        roles: &Roles,
        walk: &Walk<E::Tensor>,
    ) -> Result<()> {
        for at in self.plan.levels[walk.level].clone() {
            if let Some(opened) = &walk.own[at] {
                cx.put(roles.peer(), opened)?;
            }
        }
        Ok(())
    }

    /// One exchange: receives what the level below opened, merges, opens.
    pub fn step<E: Engine>(
        &self,
        cx: &mut Cx<'_, E>,
        roles: &Roles,
        streams: &Streams,
        walk: &mut Walk<E::Tensor>,
    ) -> Result<()> {
        let below = self.plan.levels[walk.level].clone();
        let sizes: Vec<_> = below.clone().map(|at| self.opened_by(at)).collect();
        let words = sizes.iter().sum::<usize>() * self.cols;
        let mut reader = cx.receive(roles.peer(), words)?;
        for (at, size) in below.zip(sizes) {
            if size > 0 {
                walk.other[at] = Some(reader.planes(cx.engine, size, self.cols)?);
            }
        }
        walk.level += 1;
        for at in self.plan.levels[walk.level].clone() {
            let (opened, kept) = self.merge(cx, roles, streams, at, walk)?;
            (walk.own[at], walk.kept[at]) = (opened, kept);
        }
        self.send_level(cx, roles, walk)
    }

    fn opened_by(&self, class: usize) -> usize {
        let class = &self.plan.classes[class];
        class.rows * class.factors()
    }

    fn merge<E: Engine>(
        &self,
        cx: &Cx<'_, E>,
        roles: &Roles,
        streams: &Streams,
        at: usize,
        walk: &Walk<E::Tensor>,
    ) -> Result<(Option<E::Tensor>, Option<E::Tensor>)> {
        let class = &self.plan.classes[at];
        let Made::Merge { children, dealt: first, low } = &class.made else {
            unreachable!("levels above 0 merge")
        };
        let cols = self.cols;
        let mut sources = Vec::new();
        for side in [&walk.own, &walk.other] {
            for (child, from, slot) in self.factors(children) {
                let tensor = side[child.class].as_ref().expect("factors were opened");
                sources.push(row_plane(tensor, 0, child, from, slot, cols));
            }
        }
        for (child, from, slot) in self.factors(children) {
            let k = from.factors();
            let at = |base| Planes {
                first: base + child.row * k + slot,
                stride: child.stride * k,
                count: class.rows,
            };
            sources.push(match &walk.shares[child.class] {
                Some(tensor) => row_plane(tensor, 0, child, from, slot, cols),
                None if from.merged() => streams.planes(self.shares, at(from.shares), cols),
                // What masked a leaf is this party's share of the leaf's mask.
                None => streams.planes_again(self.mask(roles), at(from.opened), cols),
            });
        }
        let count = dealt(self.plan.goal, *low, children.len());
        for j in 0..count {
            sources.push(match &walk.dealt[at] {
                Some(tensor) => plane_of(tensor, j, count, cols),
                None => {
                    let rows = Planes { first: first + j, stride: count, count: class.rows };
                    streams.planes(self.dealt, rows, cols)
                }
            });
        }
        if self.plan.goal == Goal::Carry {
            let top = children.last().expect("a merge has children");
            let tensor = walk.kept[top.class].as_ref().expect("the top keeps its bit");
            sources.push(plane_of(tensor, top.row, top.stride, cols));
        }
        let second = if roles.role == Role::Left { [u64::MAX] } else { [0] };
        let (outputs, targets) = self.add_results(cx, roles, streams, class, &mut sources);
        let (engine, space) = (cx.engine, [class.rows, cols]);
        macro_rules! run {
            ($kernel:expr) => {
                planes(engine, &$kernel, space, sources, &second, &outputs, targets)?
            };
        }
        let made = match (self.plan.goal, low, children.len()) {
            (Goal::Carry, false, 2) => run!(Merge2),
            (Goal::Carry, false, 3) => run!(Merge3),
            (Goal::Carry, false, _) => run!(Merge4),
            (Goal::Carry, true, 2) => run!(MergeLow2),
            (Goal::Carry, true, 3) => run!(MergeLow3),
            (Goal::Carry, true, _) => run!(MergeLow4),
            (Goal::Equal, _, 2) => run!(MergeAll2),
            (Goal::Equal, _, 3) => run!(MergeAll3),
            (Goal::Equal, _, _) => run!(MergeAll4),
        };
        Ok(split(made, &outputs))
    }

    /// This party's part of the result, once all exchanges are done.
    pub fn result<T: Clone>(&self, walk: &mut Walk<T>) -> T {
        walk.kept.pop().flatten().expect("the root keeps its bit")
    }
}

/// The plane of a child's factor, from a tensor that holds its class from plane `base` on.
fn row_plane<'a, T>(
    tensor: &'a T,
    base: usize,
    child: &Child,
    class: &Class,
    slot: usize,
    cols: usize,
) -> Source<'a, T> {
    let k = class.factors();
    plane_of(tensor, base + child.row * k + slot, child.stride * k, cols)
}

/// Opened planes and kept ones, where there are any.
fn split<T>(made: Vec<T>, outputs: &[usize; 2]) -> (Option<T>, Option<T>) {
    let mut made = made.into_iter().zip(outputs).map(|(t, &size)| (size > 0).then_some(t));
    (made.next().flatten(), made.next().flatten())
}
