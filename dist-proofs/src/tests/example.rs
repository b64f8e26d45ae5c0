//! Statements that hold, at random.

use ring_arith::{Bilinear, ConvSpec, EngineTensor, Shape, Tensor, Window};

use crate::{
    keys::Draw,
    statement::{Known, LeftOperand, RightOperand, Side, Statements, sums},
};

/// All that three sides hold.
#[derive(Clone)]
pub struct Example {
    operands: Vec<(Side, Tensor)>,
    relations: Vec<ExampleRelation>,
}

#[derive(Clone)]
struct ExampleRelation {
    kind: ExampleKind,
    /// Operands, and whether the second is in every plane.
    products: Vec<(usize, usize, bool)>,
    left: Vec<Tensor>,
    right: Vec<Tensor>,
}

#[derive(Clone)]
enum ExampleKind {
    Bits(usize, usize),
    Words(u32, usize),
    Map(Bilinear, Shape, Shape),
}

enum Handle {
    Left(LeftOperand),
    Right(RightOperand),
}

fn tensor(dims: &[usize], draw: &mut Draw) -> Tensor {
    let shape = Shape::new(dims).expect("it is small");
    let words = draw.words(shape.len());
    Tensor::new(shape, words).expect("as many words")
}

impl Example {
    pub fn empty() -> Self {
        Self { operands: Vec::new(), relations: Vec::new() }
    }

    /// One relation of bits, of two products.
    pub fn bits(planes: usize, elements: usize, draw: &mut Draw) -> Self {
        let mut example = Self::empty();
        example.add_bits(planes, elements, 2, draw);
        example
    }

    /// A few relations of all kinds and odd sizes.
    pub fn random(draw: &mut Draw) -> Self {
        let mut example = Self::empty();
        for _ in 0..draw.below(4) {
            let elements = [0, 1, 63, 64, 65, 200, 4096, 5000][draw.below(8)];
            example.add_bits(draw.below(4), elements, draw.below(4), draw);
        }
        for _ in 0..draw.below(4) {
            let bits = [64, 64, 20, 1][draw.below(4)];
            example.add_words(bits, [0, 1, 2, 50, 333][draw.below(5)], draw.below(4), draw);
        }
        if draw.below(2) == 0 {
            example.add_matmul([1 + draw.below(5), 1 + draw.below(9), 1 + draw.below(5)], draw);
        }
        if draw.below(4) == 0 {
            example.add_convs(draw);
        }
        example
    }

    pub fn add_bits(&mut self, planes: usize, elements: usize, products: usize, draw: &mut Draw) {
        let words = elements.div_ceil(64);
        let mut pairs: Vec<(usize, usize, bool)> = Vec::new();
        for product in 0..products {
            // Every second product has the left factor of the one before.
            let left = match pairs.last() {
                Some(&(left, ..)) if product % 2 == 1 => left,
                _ => self.operand(Side::Left, tensor(&[planes, words], draw)),
            };
            let every_plane = draw.below(2) == 0;
            let right = tensor(&[if every_plane { 1 } else { planes }, words], draw);
            pairs.push((left, self.operand(Side::Right, right), every_plane));
        }
        let terms = [0; 2].map(|_| tensor(&[planes, words], draw));
        self.add(ExampleKind::Bits(planes, elements), pairs, &terms);
    }

    pub fn add_words(
        &mut self,
        modulus_bits: u32,
        elements: usize,
        products: usize,
        draw: &mut Draw,
    ) {
        let mut pair = |_| {
            let left = self.operand(Side::Left, tensor(&[elements], draw));
            (left, self.operand(Side::Right, tensor(&[elements], draw)), false)
        };
        let pairs = (0..products).map(&mut pair).collect();
        let terms = [0; 2].map(|_| tensor(&[elements], draw));
        self.add(ExampleKind::Words(modulus_bits, elements), pairs, &terms);
    }

    pub fn add_matmul(&mut self, [m, k, n]: [usize; 3], draw: &mut Draw) {
        let batch: &[usize] = if draw.below(2) == 0 { &[] } else { &[2] };
        let transpose_lhs = draw.below(2) == 0;
        let transpose_rhs = draw.below(2) == 0;
        let lhs = [batch, &if transpose_lhs { [k, m] } else { [m, k] }].concat();
        let rhs = [
            if draw.below(2) == 0 { &[] } else { batch },
            &if transpose_rhs { [n, k] } else { [k, n] },
        ]
        .concat();
        self.add_map(Bilinear::MatMul { transpose_lhs, transpose_rhs }, &lhs, &rhs, draw);
    }

    /// A convolution and its gradients.
    pub fn add_convs(&mut self, draw: &mut Draw) {
        let window =
            Window { kernel: [2, 3], stride: [2, 1], padding: [1, 0, 0, 2], dilation: [1, 2] };
        let spec = ConvSpec { window, groups: 2 };
        let (input, weight, output) = ([2, 4, 5, 6], [6, 2, 2, 3], [2, 6, 3, 4]);
        self.add_map(Bilinear::Conv(spec), &input, &weight, draw);
        self.add_map(Bilinear::ConvInputGrad { spec, input: [5, 6] }, &output, &weight, draw);
        self.add_map(Bilinear::ConvWeightGrad(spec), &input, &output, draw);
    }

    /// A map of factors of both verifiers in both ways, and of each verifier alone.
    pub fn add_map(&mut self, map: Bilinear, lhs: &[usize], rhs: &[usize], draw: &mut Draw) {
        let [x1, x2] = [Side::Left, Side::Right].map(|side| self.operand(side, tensor(lhs, draw)));
        let [y1, y2] = [Side::Left, Side::Right].map(|side| self.operand(side, tensor(rhs, draw)));
        let pairs = [(x1, y2), (x2, y1), (x1, y1), (x2, y2)].map(|(x, y)| (x, y, false)).to_vec();
        let [lhs, rhs] = [lhs, rhs].map(|dims| Shape::new(dims).expect("it is small"));
        let result = map.output_shape(&lhs, &rhs).expect("shapes fit");
        let terms = [0; 2].map(|_| tensor(result.dims(), draw));
        self.add(ExampleKind::Map(map, lhs, rhs), pairs, &terms);
    }

    /// Inverts a bit of a term that the right verifier knows, as a prover does that has sent another word.
    pub fn flip(&mut self, relation: usize, word: usize, bit: usize) {
        let term = self.relations[relation].right.last_mut().expect("it makes the relation true");
        let mut words = term.words().to_vec();
        words[word] ^= 1 << bit;
        *term = Tensor::new(term.shape().clone(), words).expect("as many words");
    }

    /// Makes a relation false, if one has a word.
    pub fn falsify(&mut self, draw: &mut Draw) -> bool {
        let with_words = |at: &usize| self.relations[*at].right[0].len() > 0;
        let candidates: Vec<usize> = (0..self.relations.len()).filter(with_words).collect();
        if candidates.is_empty() {
            return false;
        }
        let at = candidates[draw.below(candidates.len())];
        let word = draw.below(self.relations[at].right[0].len());
        let bit = match self.relations[at].kind {
            ExampleKind::Bits(_, elements) => {
                let words = elements.div_ceil(64);
                draw.below(if word % words + 1 == words { elements - 64 * (words - 1) } else { 64 })
            }
            ExampleKind::Words(modulus_bits, _) => draw.below(modulus_bits as usize),
            ExampleKind::Map(..) => draw.below(64),
        };
        self.flip(at, word, bit);
        true
    }

    /// An example that is the same for the right verifier, and otherwise another.
    pub fn with_other_left(&self, draw: &mut Draw) -> Self {
        let mut other = self.clone();
        for (side, operand) in &mut other.operands {
            if *side == Side::Left {
                *operand = tensor(operand.shape().dims(), draw);
            }
        }
        for at in 0..other.relations.len() {
            other.relations[at].left[1] = tensor(other.relations[at].left[1].shape().dims(), draw);
            let sum = sums(at, &other.state(Side::Left), &other.state(Side::Right));
            let bits = matches!(other.relations[at].kind, ExampleKind::Bits(..));
            let term = &mut other.relations[at].left[0];
            let words = term.words().iter().zip(sum);
            let words = words
                .map(|(&word, sum)| if bits { word ^ sum } else { word.wrapping_sub(sum) })
                .collect();
            *term = Tensor::new(term.shape().clone(), words).expect("as many words");
        }
        other
    }

    /// The same with zeros for all factors that the right verifier knows.
    pub fn with_right_zero(&self) -> Self {
        let mut other = self.clone();
        for (side, operand) in &mut other.operands {
            if *side == Side::Right {
                *operand = Tensor::zeros(operand.shape().clone());
            }
        }
        for at in 0..other.relations.len() {
            other.relations[at].right[0] =
                Tensor::zeros(other.relations[at].right[0].shape().clone());
            let sum = sums(at, &other.state(Side::Left), &other.state(Side::Right));
            let shape = other.relations[at].right[0].shape().clone();
            other.relations[at].right[0] = Tensor::new(shape, sum).expect("as many words");
        }
        other
    }

    /// The statements of the prover, the left verifier and the right one.
    pub fn sides(&self) -> [Statements; 3] {
        [Side::Prover, Side::Left, Side::Right].map(|side| self.state(side))
    }

    fn operand(&mut self, side: Side, tensor: Tensor) -> usize {
        self.operands.push((side, tensor));
        self.operands.len() - 1
    }

    /// Adds a relation that a last right term makes true. The second left term is subtracted where that is not adding.
    fn add(&mut self, kind: ExampleKind, products: Vec<(usize, usize, bool)>, terms: &[Tensor; 2]) {
        let zero = Tensor::zeros(terms[0].shape().clone());
        self.relations.push(ExampleRelation {
            kind,
            products,
            left: terms.to_vec(),
            right: vec![zero],
        });
        let sum = sums(self.relations.len() - 1, &self.state(Side::Left), &self.state(Side::Right));
        let shape = terms[0].shape().clone();
        self.relations.last_mut().expect("just added").right =
            vec![Tensor::new(shape, sum).expect("as many words")];
    }

    fn state(&self, side: Side) -> Statements {
        let mut statements = Statements::new(side);
        let known = |tensor, verifier| {
            if side == Side::Prover || side == verifier {
                Known::Here(tensor)
            } else {
                Known::Elsewhere
            }
        };
        let left = |tensor| known(tensor, Side::Left);
        let right = |tensor| known(tensor, Side::Right);
        let mut handles = Vec::new();
        for (verifier, tensor) in &self.operands {
            handles.push(match verifier {
                Side::Left => Handle::Left(statements.left_operand(left(tensor))),
                _ => Handle::Right(statements.right_operand(right(tensor))),
            });
        }
        for ExampleRelation { kind, products, left: l, right: r } in &self.relations {
            let pairs =
                products.iter().map(|&(a, b, every_plane)| (&handles[a], &handles[b], every_plane));
            match kind {
                &ExampleKind::Bits(planes, elements) => {
                    let mut relation = statements
                        .bits(planes, elements)
                        .about("bits", 0..planes * elements.div_ceil(64));
                    for (a, b, every_plane) in pairs {
                        let (Handle::Left(a), Handle::Right(b)) = (a, b) else {
                            unreachable!("left times right")
                        };
                        relation =
                            relation.product(*a, if every_plane { b.in_every_plane() } else { *b });
                    }
                    relation.left(left(&l[0])).left(left(&l[1])).right(right(&r[0]));
                }
                &ExampleKind::Words(modulus_bits, elements) => {
                    let mut relation =
                        statements.words(modulus_bits, elements).about("words", 0..elements);
                    for (a, b, _) in pairs {
                        let (Handle::Left(a), Handle::Right(b)) = (a, b) else {
                            unreachable!("left times right")
                        };
                        relation = relation.product(*a, *b);
                    }
                    relation.left(left(&l[0])).minus_left(left(&l[1])).minus_right(right(&r[0]));
                }
                ExampleKind::Map(map, lhs, rhs) => {
                    let mut relation = statements.map(map, lhs, rhs).expect("shapes fit");
                    for (a, b, _) in pairs {
                        relation = match (a, b) {
                            (Handle::Left(a), Handle::Left(b)) => relation.product(*a, *b),
                            (Handle::Left(a), Handle::Right(b)) => relation.product(*a, *b),
                            (Handle::Right(a), Handle::Left(b)) => relation.product(*a, *b),
                            (Handle::Right(a), Handle::Right(b)) => relation.product(*a, *b),
                        };
                    }
                    relation.left(left(&l[0])).minus_left(left(&l[1])).minus_right(right(&r[0]));
                }
            }
        }
        statements
    }
}
