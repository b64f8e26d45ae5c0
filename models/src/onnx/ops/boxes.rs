//! Boxes around objects: those that overlap a better one are left out.

use nn_layers::{Binary, HostTensor, Op, Reduce, Unary, ValueId};

use super::choose::{MAX_TAKEN, beyond};
use super::math;
use super::shape::{fixed, spread};
use crate::Result;
use crate::onnx::node::Node;

/// Shorter sides than this count as so long where two boxes are compared.
const SHORTEST: f64 = 1.0 / 4096.0;

/// A side that is longer than another by this factor counts as so long where two boxes are compared.
const LONGEST: f64 = 512.0;

/// One of the two directions of boxes, each value of the shape `[batch, 1, boxes]`.
#[derive(Clone, Copy)]
struct Direction {
    low: ValueId,
    high: ValueId,
    length: ValueId,
    inverse: ValueId,
}

impl Direction {
    fn new(n: &mut Node<'_, '_>, low: ValueId, high: ValueId) -> Result<Self> {
        let shortest = n.number(SHORTEST);
        let length = n.binary_op(Binary::Sub, high, low)?;
        let length = n.binary_op(Binary::Max, length, shortest)?;
        let inverse = n.unary(Unary::Reciprocal, length)?;
        Ok(Self { low, high, length, inverse })
    }

    fn values(self) -> [ValueId; 4] {
        [self.low, self.high, self.length, self.inverse]
    }

    /// The length that each box has in common with another, and its own length: in units of the other's.
    fn beside(self, n: &mut Node<'_, '_>, other: Self) -> Result<[ValueId; 2]> {
        let high = n.binary_op(Binary::Min, self.high, other.high)?;
        let low = n.binary_op(Binary::Max, self.low, other.low)?;
        let common = n.binary_op(Binary::Sub, high, low)?;
        let common = n.unary(Unary::Relu, common)?;
        let longest = math::times(n, other.length, LONGEST)?;
        let own = n.binary_op(Binary::Min, self.length, longest)?;
        let common = n.binary_op(Binary::Mul, common, other.inverse)?;
        Ok([common, n.binary_op(Binary::Mul, own, other.inverse)?])
    }
}

/// The best boxes of each class that do not overlap a better one, as `[batch, class, box]`. The number of rows is fixed:
/// rows of -1 stand for boxes that are not there. Boxes are taken one after the other.
pub(crate) fn non_max_suppression(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (boxes, scores) = (n.input(0)?, n.input(1)?);
    let (&[batch, count, 4], &[_, classes, _]) = (&n.dims(boxes)[..], &n.dims(scores)[..]) else {
        let shapes = [boxes, scores].map(|x| n.dims(x));
        return Err(n.attributes.error(format!("boxes and scores have the shapes {shapes:?}")));
    };
    if n.dims(scores) != [batch, classes, count] {
        return Err(n
            .attributes
            .error(format!("{:?} are not the scores of boxes", n.dims(scores))));
    }
    let most = number(n, 2, "how many boxes it takes")?.unwrap_or(0.0);
    let most = (most as usize).min(count);
    if most == 0 || most as i64 > MAX_TAKEN {
        let reason = format!("with {most} boxes of each class; it takes 1 to {MAX_TAKEN}");
        return Err(n.unsupported(reason));
    }
    let overlap = number(n, 3, "an overlap")?.unwrap_or(0.0);
    if !(0.0..=1.0).contains(&overlap) {
        return Err(n.attributes.error(format!("an overlap of {overlap} is not between 0 and 1")));
    }
    let directions = directions(n, boxes, [batch, count])?;
    // Each box's numbers, one row for each.
    let numbers = directions.map(Direction::values).concat();
    let numbers = n.add(Op::Concat(1), &numbers)?;
    let out = beyond(n, scores, false)?;
    let mut stays = match number(n, 4, "a least score")? {
        Some(least) => {
            let least = n.number(least);
            n.binary_op(Binary::Greater, scores, least)?
        }
        None => {
            let all = n.whole(1)?;
            spread(n, all, vec![batch, classes, count])?
        }
    };
    let mut rows = vec![];
    for i in 0..most {
        let left = n.add(Op::Where, &[stays, scores, out])?;
        let place = n.add(Op::ArgMax { axis: 2, keep: false, min: false }, &[left])?;
        let taken = n.add(Op::OneHot(count), &[place])?;
        let found = n.binary_op(Binary::Mul, taken, stays)?;
        let kind = Reduce::Sum;
        let found = n.add(Op::Reduce { kind, axes: vec![2], keep: true }, &[found])?;
        rows.push(row(n, found, place)?);
        if i + 1 == most {
            break;
        }
        let op = Op::MatMul { transpose_lhs: false, transpose_rhs: true };
        let best = n.add(op, &[taken, numbers])?;
        let part = |n: &mut Node<'_, '_>, at: usize| n.part(best, 2, at, at + 1);
        let mut sides = vec![];
        for (at, direction) in directions.into_iter().enumerate() {
            let [low, high, length, inverse] = [
                part(n, 4 * at)?,
                part(n, 4 * at + 1)?,
                part(n, 4 * at + 2)?,
                part(n, 4 * at + 3)?,
            ];
            sides.push(direction.beside(n, Direction { low, high, length, inverse })?);
        }
        // Of two areas `a` and 1 with a common part `c`, `c / (a + 1 - c)` is compared with the overlap.
        let common = n.binary_op(Binary::Mul, sides[0][0], sides[1][0])?;
        let area = n.binary_op(Binary::Mul, sides[0][1], sides[1][1])?;
        let common = math::times(n, common, 1.0 + overlap)?;
        let (area, one) = (math::times(n, area, overlap)?, n.number(overlap));
        let both = n.binary_op(Binary::Add, area, one)?;
        let over = n.binary_op(Binary::Greater, common, both)?;
        let gone = n.binary_op(Binary::Or, over, taken)?;
        let kept = n.unary(Unary::Not, gone)?;
        stays = n.binary_op(Binary::And, stays, kept)?;
    }
    let rows = n.add(Op::Concat(2), &rows)?;
    let rows = fixed(n, rows, &[batch * classes * most, 3])?;
    n.to.mark_integer(rows);
    Ok(vec![rows])
}

/// A number that must be known when the model is imported.
fn number(n: &Node<'_, '_>, at: usize, what: &str) -> Result<Option<f64>> {
    let Some(value) = n.optional(at) else { return Ok(None) };
    let value = n.constant(value, what)?.single();
    value.map(Some).ok_or_else(|| n.attributes.error(format!("{what} is not one number")))
}

/// Boxes `[batch, boxes, 4]` by two of their corners, whichever they are, or by their centres and lengths.
fn directions(
    n: &mut Node<'_, '_>,
    boxes: ValueId,
    [batch, count]: [usize; 2],
) -> Result<[Direction; 2]> {
    let mut parts = vec![];
    for at in 0..4 {
        let part = n.part(boxes, 2, at, at + 1)?;
        parts.push(fixed(n, part, &[batch, 1, count])?);
    }
    let centred = n.attributes.int("center_point_box", 0) != 0;
    let ends = |n: &mut Node<'_, '_>, at: usize| {
        let (first, second) = (parts[at], parts[at + 2]);
        if centred {
            let half = math::times(n, second, 0.5)?;
            let low = n.binary_op(Binary::Sub, first, half)?;
            let high = n.binary_op(Binary::Add, first, half)?;
            return Direction::new(n, low, high);
        }
        let low = n.binary_op(Binary::Min, first, second)?;
        let high = n.binary_op(Binary::Max, first, second)?;
        Direction::new(n, low, high)
    };
    Ok([ends(n, 0)?, ends(n, 1)?])
}

/// The row of one box of each class, `[batch, classes, 1, 3]`: -1 where none was found.
fn row(n: &mut Node<'_, '_>, found: ValueId, place: ValueId) -> Result<ValueId> {
    let &[batch, classes, _] = &n.dims(found)[..] else {
        return Err(n.attributes.error("a box has no class"));
    };
    let place = fixed(n, place, &[batch, classes, 1])?;
    let from = |f: fn(usize, usize) -> usize| {
        let values = (0..batch * classes).map(|at| f(at, classes) as i64).collect();
        HostTensor::integers([batch, classes, 1], values)
    };
    let (of, class) = (from(|at, classes| at / classes)?, from(|at, classes| at % classes)?);
    let name = n.attributes.name;
    let (of, class) = (n.to.graph.public(name, of), n.to.graph.public(name, class));
    let row = n.add(Op::Concat(2), &[of, class, place])?;
    let one = n.whole(1)?;
    let row = n.binary_op(Binary::Add, row, one)?;
    let row = n.binary_op(Binary::Mul, row, found)?;
    let row = n.binary_op(Binary::Sub, row, one)?;
    fixed(n, row, &[batch, classes, 1, 3])
}
