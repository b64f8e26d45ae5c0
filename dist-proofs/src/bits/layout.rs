//! The planes of a statement's relations of bits, in an order that all sides derive from its public shape.

use std::{borrow::Cow, collections::HashMap};

use ring_arith::Tensor;

use crate::statement::{Factor, Kind, Relation, Side, Statements, Term};

/// Blocks of a plane: corners of the first round's cube.
pub(crate) const BLOCKS: usize = 64;

/// Columns whose elements lie together in the vectors of the inner product.
pub(crate) const LANES: usize = 8;

/// Bit positions of a word.
pub(crate) const ROWS: usize = 64;

/// Elements of eight columns: for each bit position one of every column.
pub(crate) const CELL: usize = ROWS * LANES;

/// The place of a column's lowest bit in a vector. That of bit `i` is `i * LANES` further.
#[inline(always)]
pub(crate) fn place_of(slot: usize) -> usize {
    slot / LANES * CELL + slot % LANES
}

/// Relations of planes of the same length.
pub(crate) struct Class {
    /// Bits of a plane.
    pub elements: usize,
    /// Words of a plane.
    pub words: usize,
    pub tiling: Tiling,
    /// Columns of a plane.
    pub columns: usize,
    /// Distinct planes that the left verifier knows, and those that the right one knows.
    pub left: Vec<Plane>,
    pub right: Vec<Plane>,
    /// One for each plane of each relation.
    pub relations: Vec<PlaneRelation>,
    /// The first of the columns of its left planes among those of all classes.
    pub first_slot: usize,
    /// The first of its relations among those of all classes.
    pub first_relation: usize,
}

/// The cut of a plane in blocks and columns: in tiles of 64 blocks of `width` words, so that the words of eight columns lie
/// together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tiling {
    /// Columns of a tile: 1, 2, 4 or 8.
    pub width: usize,
}

impl Tiling {
    /// Short planes are one tile of as few columns as hold them.
    fn new(words: usize) -> Self {
        Self { width: words.div_ceil(BLOCKS).clamp(1, LANES).next_power_of_two() }
    }

    /// Columns of a plane.
    fn columns(self, words: usize) -> usize {
        words.div_ceil(BLOCKS * self.width) * self.width
    }

    /// The word of the first block in a column. That of block `p` is `p * width` words further.
    #[inline(always)]
    pub fn first(self, column: usize) -> usize {
        column / self.width * BLOCKS * self.width + column % self.width
    }
}

/// A plane of an operand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plane {
    operand: usize,
    plane: usize,
}

/// A plane of a relation.
pub(crate) struct PlaneRelation {
    /// The relation among the statement's, and the plane of it.
    relation: usize,
    plane: usize,
    /// Places of factors in the class's left and right planes.
    pub products: Vec<(usize, usize)>,
}

/// All classes, in the order in which their lengths come up.
pub(crate) struct Layout {
    pub classes: Vec<Class>,
    /// Columns of all left planes, those of each class filled up to whole cells.
    pub slots: usize,
    pub relations: usize,
    /// The most columns of a class.
    pub columns: usize,
}

impl Layout {
    pub fn new<T>(statements: &Statements<T>) -> Self {
        let mut classes: Vec<Class> = Vec::new();
        let mut places: Vec<HashMap<(Side, usize), usize>> = Vec::new();
        for (relation, Relation { kind, products, .. }) in statements.relations.iter().enumerate() {
            let &Kind::Bits { planes, elements } = kind else { continue };
            let at =
                classes.iter().position(|class| class.elements == elements).unwrap_or_else(|| {
                    classes.push(Class::new(elements));
                    places.push(HashMap::new());
                    classes.len() - 1
                });
            let (class, places) = (&mut classes[at], &mut places[at]);
            let first: Vec<[usize; 2]> = products
                .iter()
                .map(|[a, b]| {
                    let a = first_place(places, Side::Left, &mut class.left, *a, planes);
                    [a, first_place(places, Side::Right, &mut class.right, *b, planes)]
                })
                .collect();
            for plane in 0..planes {
                let place = |factor: &Factor, first: usize| {
                    first + if factor.every_plane { 0 } else { plane }
                };
                let pairs = products.iter().zip(&first);
                let products =
                    pairs.map(|([a, b], first)| (place(a, first[0]), place(b, first[1])));
                class.relations.push(PlaneRelation {
                    relation,
                    plane,
                    products: products.collect(),
                });
            }
        }
        let mut layout = Self { classes, slots: 0, relations: 0, columns: 0 };
        for class in &mut layout.classes {
            class.first_slot = layout.slots;
            class.first_relation = layout.relations;
            layout.slots += (class.left.len() * class.columns).next_multiple_of(LANES);
            layout.relations += class.relations.len();
            layout.columns = layout.columns.max(class.columns);
        }
        layout
    }
}

/// The place of a factor's first plane among the class's; the others follow.
fn first_place(
    places: &mut HashMap<(Side, usize), usize>,
    side: Side,
    all: &mut Vec<Plane>,
    factor: Factor,
    planes: usize,
) -> usize {
    let planes = if factor.every_plane { 1 } else { planes };
    *places.entry((side, factor.operand)).or_insert_with(|| {
        let first = all.len();
        all.extend((0..planes).map(|plane| Plane { operand: factor.operand, plane }));
        first
    })
}

impl Class {
    fn new(elements: usize) -> Self {
        let words = elements.div_ceil(64);
        let tiling = Tiling::new(words);
        Self {
            elements,
            words,
            tiling,
            columns: tiling.columns(words),
            left: Vec::new(),
            right: Vec::new(),
            relations: Vec::new(),
            first_slot: 0,
            first_relation: 0,
        }
    }

    /// The words of left planes, at a side that knows them. Lanes past the last element are zero: that alone makes those
    /// of products zero.
    pub fn left_planes<'a>(&self, statements: &'a Statements) -> Vec<Cow<'a, [u64]>> {
        self.left.iter().map(|&plane| self.cleared(self.plane(statements, plane))).collect()
    }

    /// The words of right planes, at a side that knows them.
    pub fn right_planes<'a>(&self, statements: &'a Statements) -> Vec<Cow<'a, [u64]>> {
        self.right.iter().map(|&plane| Cow::Borrowed(self.plane(statements, plane))).collect()
    }

    /// The sum of the terms that a verifier knows of a relation.
    pub fn term(&self, statements: &Statements, side: Side, relation: &PlaneRelation) -> Vec<u64> {
        let Relation { left, right, .. } = &statements.relations[relation.relation];
        let mut sum = vec![0; self.words];
        for Term { tensor, .. } in if side == Side::Left { left } else { right } {
            let words = self.of(known(tensor), relation.plane);
            sum.iter_mut().zip(words).for_each(|(sum, word)| *sum ^= word);
        }
        self.clear(&mut sum);
        sum
    }

    fn plane<'a>(&self, statements: &'a Statements, plane: Plane) -> &'a [u64] {
        self.of(known(&statements.operands[plane.operand].tensor), plane.plane)
    }

    fn of<'a>(&self, tensor: &'a Tensor, plane: usize) -> &'a [u64] {
        &tensor.words()[plane * self.words..(plane + 1) * self.words]
    }

    fn cleared<'a>(&self, words: &'a [u64]) -> Cow<'a, [u64]> {
        if self.elements.is_multiple_of(64) {
            return Cow::Borrowed(words);
        }
        let mut words = words.to_vec();
        self.clear(&mut words);
        Cow::Owned(words)
    }

    fn clear(&self, words: &mut [u64]) {
        if !self.elements.is_multiple_of(64) {
            words[self.elements / 64] &= u64::MAX >> (64 - self.elements % 64);
        }
    }
}

fn known(tensor: &Option<Tensor>) -> &Tensor {
    tensor.as_ref().expect("sides pass what they know")
}
