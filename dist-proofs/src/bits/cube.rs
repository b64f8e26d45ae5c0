//! The first round: products of planes as polynomials over a cube of six variables.
//!
//! The blocks of a plane are the corners of the cube. Continued multilinearly, a plane has values at `{0, 1, infinity}^6`
//! that are sums of blocks, so they are words of bits too, and products are `&`.

use std::borrow::Cow;

use super::layout::{BLOCKS, Class, Tiling};
use crate::simd::{Kernel, Lanes, run};

/// Values of the first round.
pub(crate) const POINTS: usize = 729;

/// Most planes of a group: their values of 27 points lie in the first cache together.
const GROUP: usize = 40;

/// The sums over all relations, words and bits of a class at each point, the first variable being the highest digit.
/// `etas` weigh relations, `thetas` columns; bit `i` of a word weighs `t^i`.
pub(crate) fn first_round(
    class: &Class,
    left: &[Cow<'_, [u64]>],
    right: &[Cow<'_, [u64]>],
    etas: &[u64],
    thetas: &[u64],
) -> [u64; POINTS] {
    let groups = groups(class, left, right, etas);
    run(Cube {
        tiling: class.tiling,
        columns: class.columns,
        groups: &groups,
        thetas: &thetas[..class.columns],
    })
}

/// Relations that have planes in common, which are expanded once for all of them.
struct Group<'a> {
    planes: Vec<&'a [u64]>,
    /// Weights of relations, and pairs of places in `planes`.
    relations: Vec<(u64, Vec<(usize, usize)>)>,
}

/// Relations stay in their order; a group ends with the first that has no plane in common with it, or too many others.
fn groups<'a>(
    class: &Class,
    left: &'a [Cow<'_, [u64]>],
    right: &'a [Cow<'_, [u64]>],
    etas: &[u64],
) -> Vec<Group<'a>> {
    let mut groups = Vec::new();
    let mut group = Group { planes: Vec::new(), relations: Vec::new() };
    let mut held: Vec<(bool, usize)> = Vec::new();
    for (relation, &eta) in class.relations.iter().zip(etas) {
        if relation.products.is_empty() {
            continue;
        }
        let factors = relation.products.iter().flat_map(|&(a, b)| [(false, a), (true, b)]);
        let new = factors.clone().filter(|factor| !held.contains(factor)).count();
        let shares = new < 2 * relation.products.len();
        if !held.is_empty() && (!shares || held.len() + new > GROUP) {
            groups.push(std::mem::replace(
                &mut group,
                Group { planes: Vec::new(), relations: Vec::new() },
            ));
            held.clear();
        }
        for factor in factors {
            if !held.contains(&factor) {
                held.push(factor);
                group.planes.push(if factor.0 { &right[factor.1] } else { &left[factor.1] });
            }
        }
        let at = |factor| held.iter().position(|&other| other == factor).expect("just added");
        let products = relation.products.iter().map(|&(a, b)| (at((false, a)), at((true, b))));
        group.relations.push((eta, products.collect()));
    }
    if !group.planes.is_empty() {
        groups.push(group);
    }
    groups
}

/// See [`first_round`].
struct Cube<'a> {
    tiling: Tiling,
    columns: usize,
    groups: &'a [Group<'a>],
    thetas: &'a [u64],
}

impl Kernel for Cube<'_> {
    type Output = [u64; POINTS];

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> [u64; POINTS] {
        let zero = lanes.splat(0);
        let most = self.groups.iter().map(|group| group.planes.len()).max().unwrap_or(0);
        let relations = self.groups.iter().map(|group| group.relations.len()).max().unwrap_or(0);
        let mut sums = [zero; POINTS];
        let mut blocks = vec![zero; most * BLOCKS];
        let mut half = vec![zero; most * 32];
        let mut quarter = vec![zero; most * 16];
        let mut eighth = vec![zero; most * 8];
        let mut points = vec![[zero; 27]; most];
        let mut weights = vec![zero; relations];
        let mut column = 0;
        while column < self.columns {
            let theta = lanes.load_some(&self.thetas[column..]);
            for group in self.groups {
                let planes = group.planes.len();
                for k in 0..planes {
                    // Words of the next block may come along; their weights are zero.
                    let to = &mut blocks[k * BLOCKS..][..BLOCKS];
                    load_blocks(lanes, group.planes[k], self.tiling, column, to);
                }
                for r in 0..group.relations.len() {
                    weights[r] =
                        lanes.reduce(lanes.products(theta, lanes.splat(group.relations[r].0)));
                }
                for first in 0..3 {
                    let half = narrowed(lanes, &blocks, 64, 64, planes, first, &mut half);
                    for second in 0..3 {
                        let quarter =
                            narrowed(lanes, half.0, 32, half.1, planes, second, &mut quarter);
                        for third in 0..3 {
                            let eighth = narrowed(
                                lanes,
                                quarter.0,
                                16,
                                quarter.1,
                                planes,
                                third,
                                &mut eighth,
                            );
                            for k in 0..planes {
                                let corners = &eighth.0[k * eighth.1..][..8];
                                expand(lanes, corners, &mut points[k]);
                            }
                            let at = ((first * 3 + second) * 3 + third) * 27;
                            let sums = &mut sums[at..at + 27];
                            for r in 0..group.relations.len() {
                                add_relation(
                                    lanes,
                                    &group.relations[r].1,
                                    &points,
                                    weights[r],
                                    sums,
                                );
                            }
                        }
                    }
                }
            }
            column += L::N;
        }
        let mut values = [0; POINTS];
        for at in 0..POINTS {
            values[at] = lanes.sum(sums[at]);
        }
        values
    }
}

/// Loads the words of all blocks of a plane from a column on; those past its end are zero.
#[inline(always)]
pub(super) fn load_blocks<L: Lanes>(
    lanes: L,
    plane: &[u64],
    tiling: Tiling,
    column: usize,
    to: &mut [L::Word],
) {
    let first = tiling.first(column);
    let end = first + (BLOCKS - 1) * tiling.width + L::N;
    if let Some(words) = plane.get(first..end) {
        for p in 0..BLOCKS {
            to[p] = lanes.load(&words[p * tiling.width..]);
        }
        return;
    }
    for p in 0..BLOCKS {
        to[p] = match plane.get(first + p * tiling.width..) {
            Some(rest) => lanes.load_some(rest),
            None => lanes.splat(0),
        };
    }
}

/// Blocks of all planes at one value of the highest variable: a half of them, or for infinity their sums, in `room`. Each
/// plane has `size` blocks, `pitch` apart. Returns the blocks and their new distance.
#[inline(always)]
fn narrowed<'a, L: Lanes>(
    lanes: L,
    blocks: &'a [L::Word],
    size: usize,
    pitch: usize,
    planes: usize,
    value: usize,
    room: &'a mut [L::Word],
) -> (&'a [L::Word], usize) {
    let half = size / 2;
    if value < 2 {
        return (&blocks[value * half..], pitch);
    }
    for k in 0..planes {
        let from = &blocks[k * pitch..][..size];
        let to = &mut room[k * half..][..half];
        for p in 0..half {
            to[p] = lanes.xor(from[p], from[half + p]);
        }
    }
    (room, half)
}

/// Values at `{0, 1, infinity}^3` of a plane with these blocks at the corners.
#[inline(always)]
fn expand<L: Lanes>(lanes: L, corners: &[L::Word], values: &mut [L::Word; 27]) {
    for (corner, place) in [0, 1, 3, 4, 9, 10, 12, 13].into_iter().enumerate() {
        values[place] = corners[corner];
    }
    for at in [0, 3, 9, 12] {
        values[at + 2] = lanes.xor(values[at], values[at + 1]);
    }
    for at in [0, 1, 2, 9, 10, 11] {
        values[at + 6] = lanes.xor(values[at], values[at + 3]);
    }
    for at in 0..9 {
        values[at + 18] = lanes.xor(values[at], values[at + 9]);
    }
}

/// Adds a relation's products at 27 points, weighed, to the sums.
#[inline(always)]
fn add_relation<L: Lanes>(
    lanes: L,
    products: &[(usize, usize)],
    points: &[[L::Word; 27]],
    weight: L::Word,
    sums: &mut [L::Word],
) {
    let mut words = [lanes.splat(0); 27];
    for &(a, b) in products {
        let (a, b) = (&points[a], &points[b]);
        for at in 0..27 {
            words[at] = lanes.xor(words[at], lanes.and(a[at], b[at]));
        }
    }
    for at in 0..27 {
        let [even, odd] = lanes.products(words[at], weight);
        sums[at] = lanes.xor(sums[at], lanes.xor(even, odd));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{bits::layout::Layout, keys::Draw, simd::Isa, tests::Example};

    #[test]
    fn all_instruction_sets_give_the_same_values() {
        let draw = &mut Draw::for_test(80);
        for elements in [100, 5000, 64 * 64 * 9] {
            let prover = &Example::bits(2, elements, draw).sides()[0];
            let layout = Layout::new(prover);
            let class = &layout.classes[0];
            let [left, right] = [class.left_planes(prover), class.right_planes(prover)];
            let etas = draw.words(layout.relations);
            let thetas = &draw.words(class.columns);
            let groups = &groups(class, &left, &right, &etas);
            let &Class { tiling, columns, .. } = class;
            let values = |isa: Isa| isa.run(Cube { tiling, columns, groups, thetas });
            let want = values(Isa::Portable);
            for isa in Isa::supported() {
                assert_eq!(values(isa), want, "{isa:?}, {elements} elements");
            }
        }
    }
}
