//! Masks: places whose scores take no part in a softmax.
//!
//! Exporters add the least number of a type to such scores. Here a score is replaced where a number of that size would
//! be added, so that it takes no part whatever it is, and a row of which all are hidden is uniform, as in PyTorch.

use nn_layers::{Binary, HostTensor, Op, Reduce, Unary, ValueId};

use super::math;
use super::shape::{common, spread};
use crate::onnx::Score;
use crate::onnx::dtype;
use crate::onnx::node::Node;
use crate::onnx::value::Typed;
use crate::{Error, Result};

/// The score of a hidden place: it takes no part beside scores above it. Several of them added up still have room.
pub(crate) const MASKED: f64 = -1_048_576.0;

/// Numbers beyond this hide, where only a softmax sees them.
pub(crate) const HIDES: f64 = 1e9;

/// A constant whose numbers that hide, by their size alone, became [`MASKED`], if they reach a softmax.
pub(crate) fn unmasked(n: &mut Node<'_, '_>, x: ValueId) -> Result<ValueId> {
    unmasked_as(n, x, n.score)
}

pub(crate) fn unmasked_as(
    n: &mut Node<'_, '_>,
    x: ValueId,
    score: Option<Score>,
) -> Result<ValueId> {
    if score.is_none() {
        return Ok(x);
    }
    let Some(value) = n.to.graph.known(x)? else { return Ok(x) };
    let same = |v: &f64| unmasked_number(score, *v) == *v;
    if value.is_int() || value.floats().iter().all(same) {
        return Ok(x);
    }
    let tame = value.map(|v| unmasked_number(score, v));
    let (name, secret) = (n.attributes.name, n.to.graph.is_secret(x));
    Ok(if secret { n.to.graph.weight(name, tame) } else { n.to.graph.public(name, tame) })
}

/// [`MASKED`], or its opposite, for a number that hides.
pub(crate) fn unmasked_number(score: Option<Score>, value: f64) -> f64 {
    match score {
        Some(Score::Added) if value <= -HIDES => MASKED,
        Some(Score::TakenAway) if value >= HIDES => -MASKED,
        _ => value,
    }
}

fn hides(score: Score, number: f64) -> bool {
    unmasked_number(Some(score), number) != number
}

/// A sum or difference of which an operand hides places, of values that reach a softmax.
pub(crate) fn sum(n: &mut Node<'_, '_>, x: ValueId, y: ValueId) -> Result<Option<ValueId>> {
    let (Some(score), "Add" | "Sub") = (n.score, n.operator) else { return Ok(None) };
    let taken_away = n.operator == "Sub";
    if math::all_known(n, &[x, y])? {
        return Ok(None);
    }
    // The mask of a step in which all positions count.
    if n.to.grows() {
        for (mask, scores) in [(y, x), (x, y)].into_iter().take(2 - usize::from(taken_away)) {
            let none = n.to.graph.known(mask)?.is_some_and(|known| known.uniform() == Some(0.0));
            if none && n.dims(mask).len() <= n.dims(scores).len() {
                return Ok(Some(scores));
            }
        }
    }
    let of_y = if taken_away { score.turned() } else { score };
    let masks = [Mask::behind(n, x, score)?, Mask::behind(n, y, of_y)?];
    if masks.iter().all(Option::is_none) {
        return Ok(None);
    }
    let [a, b] = [(x, masks[0]), (y, masks[1])].map(|(value, mask)| match mask {
        Some(mask) => mask.more,
        None => Some(value),
    });
    let f = if taken_away { Binary::Sub } else { Binary::Add };
    let more = match (a, b) {
        (Some(a), Some(b)) => Some(n.binary_op(f, a, b)?),
        (None, Some(b)) if taken_away => Some(n.unary(Unary::Neg, b)?),
        (a, b) => a.or(b),
    };
    let [a, b] = masks.map(|mask| mask.and_then(|mask| mask.counts));
    let counts = both(n, a, b)?;
    let dims = common(&n.dims(x), &n.dims(y));
    let y = Mask { more, counts }.value(n, score, dims)?;
    Ok(Some(y))
}

/// A product of truth values and a number that hides, of which a softmax alone sees sums.
pub(crate) fn product(n: &mut Node<'_, '_>, x: ValueId, y: ValueId) -> Result<Option<ValueId>> {
    let Some(score) = n.score else { return Ok(None) };
    let (hidden, number) = match (n.to.graph.known(x)?, n.to.graph.known(y)?) {
        (None, Some(number)) => (x, number),
        (Some(number), None) => (y, number),
        _ => return Ok(None),
    };
    if !number.uniform().is_some_and(|number| hides(score, number)) {
        return Ok(None);
    }
    let dims = common(&n.dims(x), &n.dims(y));
    let counts = Some(opposite(n, hidden)?);
    Mask { counts, more: None }.value(n, score, dims).map(Some)
}

/// A choice by computed truth values of which one side hides, of values that reach a softmax.
pub(crate) fn choice(
    n: &mut Node<'_, '_>,
    truth: ValueId,
    [x, y]: [ValueId; 2],
) -> Result<Option<ValueId>> {
    let Some(score) = n.score else { return Ok(None) };
    if n.to.graph.known(truth)?.is_some() {
        return Ok(None);
    }
    let number = |side| {
        let known = n.to.graph.known(side)?;
        Ok::<_, Error>(known.and_then(|known| known.uniform()))
    };
    let hides = |number: Option<f64>| number.is_some_and(|number| hides(score, number));
    let (counts, more) = match [hides(number(x)?), hides(number(y)?)] {
        [true, false] => (n.unary(Unary::Not, truth)?, y),
        [false, true] => (truth, x),
        _ => return Ok(None),
    };
    let zero = n.to.graph.known(more)?.is_some_and(|more| more.uniform() == Some(0.0));
    let dims = common(&common(&n.dims(truth), &n.dims(x)), &n.dims(y));
    let mask = Mask { counts: Some(counts), more: (!zero).then_some(more) };
    mask.value(n, score, dims).map(Some)
}

/// Follows a mask through an operator that moves elements: the result is a mask of moved elements.
pub(crate) fn moved(
    n: &mut Node<'_, '_>,
    import: fn(&mut Node<'_, '_>) -> Result<Vec<ValueId>>,
    result: ValueId,
) -> Result<()> {
    const MOVES: [&str; 11] = [
        "Cast",
        "CastLike",
        "Expand",
        "Flatten",
        "Gather",
        "Identity",
        "Reshape",
        "Slice",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    ];
    if !MOVES.contains(&n.operator) {
        return Ok(());
    }
    let Ok(x) = n.tensor(0) else { return Ok(()) };
    let Some(mask) = n.to.masks.get(&x.id).copied() else { return Ok(()) };
    let dims = n.dims(x.id);
    let mut through = |part: Option<ValueId>| -> Result<Option<ValueId>> {
        let Some(part) = part else { return Ok(None) };
        let part = spread(n, part, dims.clone())?;
        n.replace(0, Typed { id: part, kind: x.kind });
        Ok(import(n)?.first().copied())
    };
    let (counts, more) = (through(mask.counts)?, through(mask.more)?);
    n.replace(0, x);
    n.to.masks.insert(result, Mask { counts, more });
    Ok(())
}

/// The number 1 from which truth values are taken away to find the hidden places, as an integer: so are these places.
/// That the number is whole is then public.
pub(crate) fn whole_beside(n: &mut Node<'_, '_>, x: ValueId, truth: ValueId) -> Result<ValueId> {
    if n.score.is_none() || !n.to.is_integer(truth) {
        return Ok(x);
    }
    match n.to.graph.known(x)?.and_then(|x| x.uniform()) {
        Some(1.0) => n.whole(1),
        _ => Ok(x),
    }
}

/// The numbers that are added to scores, and the selection of scores that count.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mask {
    /// Added before the softmax, or taken away as the value that has the mask is.
    more: Option<ValueId>,
    /// 1 where a score counts.
    counts: Option<ValueId>,
}

impl Mask {
    /// The selection of scores by their place alone.
    pub fn by_place(counts: Option<ValueId>) -> Self {
        Self { counts, more: None }
    }

    /// True if it hides places, and not only adds numbers.
    pub fn hides(&self) -> bool {
        self.counts.is_some()
    }

    /// The mask of an attention of `shape`, `[queries, keys]`: its operand, and the places that each query sees.
    pub fn of(n: &mut Node<'_, '_>, shape: [usize; 2], past: Option<usize>) -> Result<Self> {
        let mut mask = Self::default();
        if let Some(given) = n.optional(3) {
            let given = padded(n, given, shape[1])?;
            mask.take(n, given)?;
        }
        let lengths = match n.optional(6) {
            Some(id) => Some(n.ints(id, "lengths")?),
            None => None,
        };
        if let Some(fixed) = positions(n, shape, past, lengths.as_deref())? {
            let fixed = n.to.graph.public(n.attributes.name, fixed);
            mask.counts = both(n, mask.counts, Some(fixed))?;
        }
        Ok(mask)
    }

    /// A mask of truth values, or of numbers to add: of those that are known, the infinite ones hide.
    fn take(&mut self, n: &mut Node<'_, '_>, given: ValueId) -> Result<()> {
        if n.kind(3) == dtype::BOOL {
            self.counts = Some(given);
            return Ok(());
        }
        match Self::behind(n, given, Score::Added)? {
            Some(mask) => *self = mask,
            None => self.more = Some(given),
        }
        Ok(())
    }

    /// The mask that a value is known to be: of an exporter's arithmetic, or of numbers that the file holds.
    fn behind(n: &mut Node<'_, '_>, value: ValueId, score: Score) -> Result<Option<Self>> {
        if let Some(mask) = n.to.masks.get(&value) {
            return Ok(Some(*mask));
        }
        let Some(known) = n.to.graph.known(value)? else { return Ok(None) };
        let secret = n.to.graph.public_behind(value).is_none();
        Self::of_numbers(n, &known, secret, score)
    }

    /// The mask of known numbers, if some of them hide. Which ones do is public; the others stay a weight if they are
    /// one.
    fn of_numbers(
        n: &mut Node<'_, '_>,
        values: &HostTensor,
        secret: bool,
        score: Score,
    ) -> Result<Option<Self>> {
        let counts = |v: f64| !hides(score, v);
        if values.is_int() || values.floats().iter().all(|v| counts(*v)) {
            return Ok(None);
        }
        let name = n.attributes.name;
        let counted = values.floats().iter().map(|v| i64::from(counts(*v))).collect();
        let counted = HostTensor::integers(values.dims(), counted)?;
        let finite = values.map(|v| if counts(v) { v } else { 0.0 });
        let more = match finite.uniform() {
            Some(0.0) => None,
            _ if secret => Some(n.to.graph.weight(name, finite)),
            _ => Some(n.to.graph.public(name, finite)),
        };
        let counts = Some(n.to.graph.public(name, counted));
        Ok(Some(Self { more, counts }))
    }

    /// A value of this shape that hides as the mask does, which is known from then on.
    fn value(self, n: &mut Node<'_, '_>, score: Score, dims: Vec<usize>) -> Result<ValueId> {
        let out = n.number(match score {
            Score::Added => MASKED,
            Score::TakenAway => -MASKED,
        });
        let y = match (self.more, self.counts) {
            (Some(more), Some(counts)) => chosen(n, counts, more, out)?,
            (None, Some(counts)) => {
                let hidden = opposite(n, counts)?;
                n.binary_op(Binary::Mul, hidden, out)?
            }
            (Some(more), None) => more,
            (None, None) => n.number(0.0),
        };
        let y = spread(n, y, dims)?;
        n.to.masks.insert(y, self);
        Ok(y)
    }

    /// Scores with its numbers added.
    pub fn added(&self, n: &mut Node<'_, '_>, scores: ValueId) -> Result<ValueId> {
        match self.more {
            Some(more) => n.binary_op(Binary::Add, scores, more),
            None => Ok(scores),
        }
    }

    /// Scores of which those that it hides are replaced.
    pub fn hidden(&self, n: &mut Node<'_, '_>, scores: ValueId) -> Result<ValueId> {
        let Some(counts) = self.counts else { return Ok(scores) };
        let out = n.number(MASKED);
        chosen(n, counts, scores, out)
    }

    /// Zeros in the rows of which nothing counts.
    pub fn without_empty_rows(&self, n: &mut Node<'_, '_>, weights: ValueId) -> Result<ValueId> {
        let Some(counts) = self.counts else { return Ok(weights) };
        let rank = n.dims(counts).len();
        let op = Op::Reduce { kind: Reduce::Max, axes: vec![rank - 1], keep: true };
        let some = n.add(op, &[counts])?;
        n.to.mark_integer(some);
        if n.to.graph.known(some)?.is_some_and(|v| v.uniform() == Some(1.0)) {
            return Ok(weights);
        }
        n.binary_op(Binary::Mul, weights, some)
    }
}

/// The value where `counts` is 1, the number `out` where it is 0.
fn chosen(n: &mut Node<'_, '_>, counts: ValueId, value: ValueId, out: ValueId) -> Result<ValueId> {
    if n.to.graph.known(counts)?.is_none() && n.to.is_integer(counts) {
        return n.add(Op::Where, &[counts, value, out]);
    }
    let hidden = opposite(n, counts)?;
    let kept = n.binary_op(Binary::Mul, value, counts)?;
    let out = n.binary_op(Binary::Mul, hidden, out)?;
    n.binary_op(Binary::Add, kept, out)
}

/// 1 where truth values are 0, and 0 where they are 1.
pub(crate) fn opposite(n: &mut Node<'_, '_>, truth: ValueId) -> Result<ValueId> {
    let one = n.whole(1)?;
    n.binary_op(Binary::Sub, one, truth)
}

/// 1 where each of two selections counts, if both are there.
pub(crate) fn both(
    n: &mut Node<'_, '_>,
    a: Option<ValueId>,
    b: Option<ValueId>,
) -> Result<Option<ValueId>> {
    match (a, b) {
        (Some(a), Some(b)) => n.binary_op(Binary::Mul, a, b).map(Some),
        (a, b) => Ok(a.or(b)),
    }
}

/// A mask as long as the keys: keys beyond the given mask are hidden.
fn padded(n: &mut Node<'_, '_>, mask: ValueId, keys: usize) -> Result<ValueId> {
    let dims = n.dims(mask);
    let missing = keys.saturating_sub(dims.last().copied().unwrap_or(keys));
    if missing == 0 || dims.last() == Some(&1) {
        return Ok(mask);
    }
    let (before, mut after) = (vec![0; dims.len()], vec![0; dims.len()]);
    after[dims.len() - 1] = missing;
    if n.kind(3) == dtype::BOOL {
        return n.add(Op::Pad { before, after, value: 0.0 }, &[mask]);
    }
    n.add(Op::Pad { before, after, value: MASKED }, &[mask])
}

/// The keys that each query sees by its position: `[queries, keys]`, or with a batch before. None if it sees all keys.
fn positions(
    n: &Node<'_, '_>,
    [queries, keys]: [usize; 2],
    past: Option<usize>,
    lengths: Option<&[i64]>,
) -> Result<Option<HostTensor>> {
    let causal = n.attributes.int("is_causal", 0) != 0;
    let left = n.attributes.int("left_window_size", -1);
    let right = n.attributes.int("right_window_size", -1);
    if !causal && left < 0 && right < 0 && lengths.is_none() {
        return Ok(None);
    }
    // The queries are the last positions of the keys.
    let ends: Vec<(i64, i64)> = match (lengths, past) {
        (Some(lengths), None) => lengths.iter().map(|&l| (l - queries as i64, l)).collect(),
        (Some(lengths), Some(past)) => lengths.iter().map(|&l| (past as i64, l)).collect(),
        (None, past) => vec![(past.unwrap_or(0) as i64, i64::MAX)],
    };
    let mut values = Vec::with_capacity(ends.len() * queries * keys);
    for (offset, length) in &ends {
        for i in 0..(queries * keys) as i64 {
            let (query, key) = (i / keys as i64 + offset, i % keys as i64);
            let seen = (!causal || key <= query)
                && (left < 0 || query - key <= left)
                && (right < 0 || key - query <= right)
                && key < *length;
            values.push(i64::from(seen));
        }
    }
    // A single query behind cached positions sees all of them.
    if lengths.is_none() && values.iter().all(|&seen| seen == 1) {
        return Ok(None);
    }
    let dims = match lengths {
        Some(_) => vec![ends.len(), 1, queries, keys],
        None => vec![queries, keys],
    };
    Ok(Some(HostTensor::integers(dims, values)?))
}
