//! Tests of statements and of their evaluation in the clear.

use ring_arith::{Bilinear, CpuEngine, Engine, Tensor};

use super::*;

const ELEMENTS: usize = 70;

/// Words of everything, in the order of use.
struct World {
    bits: [Tensor; 4],
    words: [Tensor; 4],
    matrices: [Tensor; 6],
}

impl World {
    /// Relations that hold.
    fn new() -> Self {
        let mut state = 1u64;
        let mut tensor = |dims: &[usize]| {
            let shape = Shape::new(dims).expect("it is small");
            Tensor::from_fn(shape, |_| {
                state =
                    state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                state ^ (state >> 31)
            })
        };
        let zip = |a: &Tensor, b: &Tensor, f: fn(u64, u64) -> u64| {
            let words =
                a.words().iter().zip(b.words().iter().cycle()).map(|(&a, &b)| f(a, b)).collect();
            Tensor::new(a.shape().clone(), words).expect("the shape is the same")
        };
        let [a, b, left] = [tensor(&[3, 2]), tensor(&[1, 2]), tensor(&[3, 2])];
        let right = zip(&zip(&a, &b, |a, b| a & b), &left, |a, b| a ^ b);
        let bits = [a, b, left, right];
        let [a, b, left] = [tensor(&[ELEMENTS]), tensor(&[ELEMENTS]), tensor(&[ELEMENTS])];
        let right = zip(&zip(&a, &b, u64::wrapping_mul), &left, u64::wrapping_sub);
        let words = [a, b, left, right];
        let [x1, x2, y1, y2] = [tensor(&[2, 3]), tensor(&[2, 3]), tensor(&[3, 2]), tensor(&[3, 2])];
        let engine = CpuEngine::new(1);
        let sum =
            engine.bilinear(&Bilinear::MATMUL, &[(&x1, &y2), (&x2, &y1)], &[]).expect("shapes fit");
        let left = tensor(&[2, 2]);
        let right = zip(&sum, &left, u64::wrapping_sub);
        Self { bits, words, matrices: [x1, x2, y1, y2, left, right] }
    }

    fn state(&self, side: Side) -> Statements {
        let known = |tensor, verifier| {
            if side == Side::Prover || side == verifier {
                Known::Here(tensor)
            } else {
                Known::Elsewhere
            }
        };
        let left = |tensor| known(tensor, Side::Left);
        let right = |tensor| known(tensor, Side::Right);
        let mut statements = Statements::new(side);
        let [a, b, l, r] = &self.bits;
        let (a, b) = (statements.left_operand(left(a)), statements.right_operand(right(b)));
        statements
            .bits(3, ELEMENTS)
            .about("bits", 0..6)
            .product(a, b.in_every_plane())
            .left(left(l))
            .right(right(r));
        let [a, b, l, r] = &self.words;
        let (a, b) = (statements.left_operand(left(a)), statements.right_operand(right(b)));
        statements
            .words(64, ELEMENTS)
            .about("words", 0..70)
            .product(a, b)
            .minus_left(left(l))
            .minus_right(right(r));
        statements.words(20, ELEMENTS).product(a, b).minus_left(left(l)).minus_right(right(r));
        let [x1, x2, y1, y2, l, r] = &self.matrices;
        let (shape, other) = (x1.shape().clone(), y1.shape().clone());
        let (x1, y1) = (statements.left_operand(left(x1)), statements.left_operand(left(y1)));
        let (x2, y2) = (statements.right_operand(right(x2)), statements.right_operand(right(y2)));
        let map = statements.map(&Bilinear::MATMUL, &shape, &other).expect("shapes fit");
        map.about("matrix", 0..4)
            .product(x1, y2)
            .product(x2, y1)
            .minus_left(left(l))
            .minus_right(right(r));
        statements
    }

    fn findings(&self) -> Vec<Finding> {
        evaluate(&self.state(Side::Prover), &self.state(Side::Left), &self.state(Side::Right))
    }
}

/// The tensor with one bit of one word inverted.
fn flipped(tensor: &Tensor, word: usize, bit: u32) -> Tensor {
    let mut words = tensor.words().to_vec();
    words[word] ^= 1 << bit;
    Tensor::new(tensor.shape().clone(), words).expect("the shape is the same")
}

#[test]
fn true_relations_are_true_and_sizes_are_counted() {
    let world = World::new();
    assert_eq!(world.findings(), []);
    let statements = world.state(Side::Left);
    let cost = statements.cost();
    assert_eq!(cost.bits, Size { relations: 210, products: 210 });
    assert_eq!(cost.words, Size { relations: 140, products: 140 });
    assert_eq!(cost.maps, Size { relations: 4, products: 2 });
    let residuals = residuals(&world.state(Side::Left), &world.state(Side::Right));
    assert!(residuals.iter().all(|(_, words)| words.iter().all(|word| *word == 0)));
    let lengths: Vec<_> = residuals.iter().map(|(_, words)| words.len()).collect();
    assert_eq!(lengths, [6, 70, 70, 4]);
    assert_eq!(statements.bound(), 3 * 70 + 64 * 70 + 20 * 70 + 64 * 4);
    let names: Vec<_> = statements.spoken().map(|spoken| spoken.message.as_str()).collect();
    assert_eq!(names, ["bits", "words", "matrix"]);
}

#[test]
fn false_words_are_found_where_they_count() {
    let world = World::new();
    let found = |change: &dyn Fn(&mut World)| {
        let mut world = World::new();
        change(&mut world);
        world.findings().into_iter().map(|found| (found.relation, found.fault)).collect::<Vec<_>>()
    };
    // Word 5 is the last of plane 2, of which 6 lanes count.
    assert_eq!(found(&|world| world.bits[3] = flipped(&world.bits[3], 5, 6)), []);
    let one = |first| Fault::False { words: 1, first };
    assert_eq!(found(&|world| world.bits[3] = flipped(&world.bits[3], 5, 5)), [(0, one(5))]);
    assert_eq!(found(&|world| world.words[3] = flipped(&world.words[3], 9, 20)), [(1, one(9))]);
    let both = [(1, one(9)), (2, one(9))];
    assert_eq!(found(&|world| world.words[3] = flipped(&world.words[3], 9, 19)), both);
    assert_eq!(
        found(&|world| world.matrices[5] = flipped(&world.matrices[5], 3, 63)),
        [(3, one(3))]
    );
    // A prover that holds other words than its verifiers.
    let mut lied = World::new();
    lied.words[3] = flipped(&world.words[3], 0, 0);
    let findings =
        evaluate(&world.state(Side::Prover), &lied.state(Side::Left), &lied.state(Side::Right));
    let faults: Vec<_> = findings.iter().map(|found| (found.relation, found.fault)).collect();
    let differs = Fault::Differs(Side::Right);
    assert_eq!(faults, [(1, one(0)), (1, differs), (2, one(0)), (2, differs)]);
}

#[test]
fn digests_are_equal_at_all_sides_and_follow_from_the_shape() {
    let world = World::new();
    let digest = world.state(Side::Prover).digest();
    assert_eq!(digest, world.state(Side::Left).digest());
    assert_eq!(digest, world.state(Side::Right).digest());
    let mut longer = world.state(Side::Prover);
    longer.bits(1, 0);
    assert_ne!(digest, longer.digest());
    let mut spoken = world.state(Side::Prover);
    spoken.relations[0].spoken[0].words.end = 7;
    assert_ne!(digest, spoken.digest());
}

#[test]
#[should_panic(expected = "Left must not know what is Right's")]
fn a_side_passes_only_what_it_knows() {
    Statements::new(Side::Left).right_operand(Known::Here(&Tensor::scalar(1)));
}

#[test]
#[should_panic(expected = "Left must know what is Left's")]
fn a_side_passes_what_it_knows() {
    Statements::<Tensor>::new(Side::Left).left_operand(Known::Elsewhere);
}
