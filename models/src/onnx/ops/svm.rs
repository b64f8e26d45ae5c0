//! Support vector machines of the domain `ai.onnx.ml`.

use nn_layers::{Binary, HostTensor, Op, Reduce, Unary, ValueId};

use super::math;
use super::shape::{fixed, spread};
use super::tables::{labels, named, rows, transformed};
use crate::Result;
use crate::onnx::node::Node;

/// The most numbers of a machine's matrices.
const MAX_WORDS: usize = 1 << 26;

/// A kernel, and for each number that the machine computes the weights of its support vectors' kernels.
struct Machine {
    kernel: String,
    gamma: f64,
    offset: f64,
    degree: f64,
    features: usize,
    /// `[vectors, features]`. If empty, weights belong to the features themselves.
    vectors: Vec<f64>,
    /// `[numbers, vectors]`.
    weights: Vec<f64>,
    /// The constant that is added to each number.
    rho: Vec<f64>,
}

fn floats(n: &Node<'_, '_>, name: &str) -> Vec<f64> {
    n.attributes.floats(name).unwrap_or_default().iter().map(|&value| value.into()).collect()
}

impl Machine {
    /// The part that regressors and classifiers share. The caller sets the weights.
    fn of(n: &mut Node<'_, '_>) -> Result<Self> {
        let (_, [_, features]) = rows(n)?;
        let kernel = n.attributes.text("kernel_type").unwrap_or("LINEAR").to_owned();
        let parameters = floats(n, "kernel_params");
        let parameter = |at: usize| parameters.get(at).copied().unwrap_or(0.0);
        let vectors = floats(n, "support_vectors");
        let whole = features > 0 && vectors.len().is_multiple_of(features);
        let finite = parameters.iter().all(|p| p.is_finite()) && parameter(0) >= 0.0;
        if !whole || !finite {
            let reason = format!("its support vectors and kernel do not fit {features} features");
            return Err(n.attributes.error(reason));
        }
        Ok(Self {
            kernel,
            gamma: parameter(0),
            offset: parameter(1),
            degree: parameter(2),
            features,
            vectors,
            weights: floats(n, "coefficients"),
            rho: floats(n, "rho"),
        })
    }

    fn len(&self) -> usize {
        self.vectors.len() / self.features
    }

    /// The machine's numbers, `[rows, numbers]`.
    fn numbers(&self, n: &mut Node<'_, '_>) -> Result<ValueId> {
        let (x, _) = rows(n)?;
        let numbers = self.rho.len();
        let each = if self.vectors.is_empty() { self.features } else { self.len() };
        let large = [each, self.features].iter().any(|&by| numbers.saturating_mul(by) > MAX_WORDS);
        if numbers == 0 || large || self.weights.len() != numbers * each {
            let reason =
                format!("{} coefficients for {numbers} numbers of {each}", self.weights.len());
            return Err(n.attributes.error(reason));
        }
        let (terms, weights) = match self.kernel.as_str() {
            // Products with vectors are products with one vector for each number.
            "LINEAR" if self.vectors.is_empty() => (x, self.weights.clone()),
            "LINEAR" => (x, self.folded()),
            _ if self.vectors.is_empty() => {
                return Err(n.unsupported("with a kernel and no support vectors"));
            }
            _ => (self.kernels(n, x)?, self.weights.clone()),
        };
        affine(n, terms, "coefficients", weights, &self.rho)
    }

    /// `[numbers, features]`: the weights of features where the kernel is the product itself.
    fn folded(&self) -> Vec<f64> {
        let mut folded = vec![0.0; self.rho.len() * self.features];
        for (weights, sums) in self.weights.chunks(self.len()).zip(folded.chunks_mut(self.features))
        {
            for (weight, vector) in weights.iter().zip(self.vectors.chunks(self.features)) {
                sums.iter_mut().zip(vector).for_each(|(sum, v)| *sum += weight * v);
            }
        }
        folded
    }

    /// The kernel of each row with each vector, `[rows, vectors]`.
    fn kernels(&self, n: &mut Node<'_, '_>, x: ValueId) -> Result<ValueId> {
        let scaled = |by: f64| self.vectors.iter().map(|v| v * by).collect::<Vec<_>>();
        match self.kernel.as_str() {
            "POLY" | "SIGMOID" => {
                let products =
                    affine(n, x, "vectors", scaled(self.gamma), &vec![self.offset; self.len()])?;
                match (self.kernel.as_str(), self.degree) {
                    ("SIGMOID", _) => n.unary(Unary::Tanh, products),
                    (_, 1.0) => Ok(products),
                    (_, 2.0) => n.binary_op(Binary::Mul, products, products),
                    (_, degree) => n.unary(Unary::Pow(degree), products),
                }
            }
            // exp(-gamma * |x - v|^2), where rows and vectors have the root of gamma in them: distances are
            // then about as large as where the kernel is not 0, whatever the features are measured in.
            "RBF" => {
                let root = self.gamma.sqrt();
                let name = format!("{}.gamma", n.attributes.name);
                let factor = n.to.graph.weight(&name, HostTensor::scalar(root));
                let row = n.binary_op(Binary::Mul, x, factor)?;
                let square = Op::Reduce { kind: Reduce::SumSquare, axes: vec![1], keep: true };
                let square = n.add(square, &[row])?;
                let lengths: Vec<f64> = scaled(root)
                    .chunks(self.features)
                    .map(|v| -v.iter().map(|v| v * v).sum::<f64>())
                    .collect();
                let products = affine(n, row, "vectors", scaled(2.0 * root), &lengths)?;
                let below = n.binary_op(Binary::Sub, products, square)?;
                n.unary(Unary::Exp, below)
            }
            other => Err(n.unsupported(format!("with kernel {other}"))),
        }
    }
}

/// `x * weights^T + addends`, both secret.
fn affine(
    n: &mut Node<'_, '_>,
    x: ValueId,
    what: &str,
    weights: Vec<f64>,
    addends: &[f64],
) -> Result<ValueId> {
    let len = n.dims(x)[1];
    let name = n.attributes.name.to_owned();
    let weights = HostTensor::new([addends.len(), len], weights)?;
    let weights = n.to.graph.weight(&format!("{name}.{what}"), weights);
    let op = Op::MatMul { transpose_lhs: false, transpose_rhs: true };
    let y = n.add(op, &[x, weights])?;
    let addends = HostTensor::new([addends.len()], addends.to_vec())?;
    let addends = n.to.graph.weight(&format!("{name}.{what}.bias"), addends);
    n.binary_op(Binary::Add, y, addends)
}

/// One number for each row; of a machine of one class whether it is positive, as 1 or -1.
pub(crate) fn regressor(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let machine = Machine::of(n)?;
    let y = machine.numbers(n)?;
    if n.attributes.int("one_class", 0) == 0 {
        return Ok(vec![transformed(n, y)?]);
    }
    let zero = n.number(0.0);
    let inside = n.binary_op(Binary::Greater, y, zero)?;
    let twice = math::times(n, inside, 2.0)?;
    let one = n.number(1.0);
    Ok(vec![n.binary_op(Binary::Sub, twice, one)?])
}

/// Label and scores: of each pair of classes, or of each class if the file lacks support vectors.
pub(crate) fn classifier(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let labels = labels(n);
    let classes = labels.len();
    let mut machine = Machine::of(n)?;
    let per_class = n.attributes.ints("vectors_per_class").unwrap_or_default().to_vec();
    if per_class.is_empty() {
        machine.kernel = "LINEAR".to_owned();
        let first = machine.rho.first().copied().unwrap_or(0.0);
        machine.rho = vec![first; classes];
        let scores = machine.numbers(n)?;
        let best = n.add(Op::ArgMax { axis: 1, keep: false, min: false }, &[scores])?;
        return Ok(vec![named(n, best, &labels)?, transformed(n, scores)?]);
    }
    let pairs: Vec<(usize, usize)> =
        (0..classes).flat_map(|i| (i + 1..classes).map(move |j| (i, j))).collect();
    let sizes = per_class.iter().map(|&size| usize::try_from(size)).collect::<Result<Vec<_>, _>>();
    let sizes = sizes.ok().filter(|sizes| {
        let total = sizes.iter().try_fold(0usize, |sum, &size| sum.checked_add(size));
        sizes.len() == classes && total == Some(machine.len())
    });
    let fits = machine.weights.len() == classes.saturating_sub(1) * machine.len()
        && machine.rho.len() == pairs.len();
    let Some(sizes) = sizes.filter(|_| fits && !pairs.is_empty()) else {
        return Err(n.attributes.error("its vectors, coefficients and classes do not fit"));
    };
    machine.weights = of_pairs(&machine, &sizes, &pairs);
    let scores = machine.numbers(n)?;
    let zero = n.number(0.0);
    let wins = n.binary_op(Binary::Greater, scores, zero)?;
    let best = elected(n, wins, &pairs, classes)?;
    let label = named(n, best, &labels)?;
    let slopes = floats(n, "prob_a");
    let scores = if !slopes.is_empty() {
        probabilities(n, scores, best, &slopes, classes)?
    } else if pairs.len() == 1 {
        let minus = n.unary(Unary::Neg, scores)?;
        n.add(Op::Concat(1), &[minus, scores])?
    } else {
        scores
    };
    Ok(vec![label, transformed(n, scores)?])
}

/// The weights of all vectors for each pair of classes: a class has as many for each of its vectors as there
/// are others.
fn of_pairs(machine: &Machine, sizes: &[usize], pairs: &[(usize, usize)]) -> Vec<f64> {
    let len = machine.len();
    let first = |class: usize| sizes[..class].iter().sum::<usize>();
    let mut weights = vec![0.0; pairs.len() * len];
    for (pair, &(i, j)) in weights.chunks_mut(len).zip(pairs) {
        for (class, row) in [(i, j - 1), (j, i)] {
            let own = first(class)..first(class) + sizes[class];
            pair[own.clone()].copy_from_slice(&machine.weights[row * len..][own]);
        }
    }
    weights
}

/// The class that wins most pairs, the first among equals.
fn elected(
    n: &mut Node<'_, '_>,
    wins: ValueId,
    pairs: &[(usize, usize)],
    classes: usize,
) -> Result<ValueId> {
    if pairs.len() == 1 {
        let rows = n.dims(wins)[0];
        let one = n.whole(1)?;
        let second = n.binary_op(Binary::Sub, one, wins)?;
        return fixed(n, second, &[rows]);
    }
    // A class that loses to an earlier one has that vote subtracted from its full count.
    let mut votes = vec![0i64; pairs.len() * classes];
    let mut full = vec![0i64; classes];
    for (row, &(i, j)) in votes.chunks_mut(classes).zip(pairs) {
        row[i] = 1;
        row[j] = -1;
        full[j] += 1;
    }
    let name = n.attributes.name.to_owned();
    let votes = HostTensor::integers([pairs.len(), classes], votes)?;
    let votes = n.to.graph.public(&name, votes);
    let votes = math::product(n, wins, votes)?;
    let full = n.to.graph.public(&name, HostTensor::ints(full));
    let votes = n.binary_op(Binary::Add, votes, full)?;
    n.add(Op::ArgMax { axis: 1, keep: false, min: false }, &[votes])
}

/// The probability of each class, from the scores of pairs by curves of which slopes and offsets are known, and the
/// votes of the pairs.
fn probabilities(
    n: &mut Node<'_, '_>,
    scores: ValueId,
    best: ValueId,
    slopes: &[f64],
    classes: usize,
) -> Result<ValueId> {
    let offsets = floats(n, "prob_b");
    let numbers = n.dims(scores)[1];
    if slopes.len() != numbers || offsets.len() != numbers {
        return Err(n.attributes.error("it has other than one prob_a and prob_b for each pair"));
    }
    let name = n.attributes.name.to_owned();
    // 1 - sigmoid(a * s + b) = sigmoid(-a * s - b)
    let minus = |values: &[f64]| values.iter().map(|v| -v).collect::<Vec<_>>();
    let slopes = HostTensor::new([numbers], minus(slopes))?;
    let slopes = n.to.graph.weight(&format!("{name}.prob_a"), slopes);
    let offsets = HostTensor::new([numbers], minus(&offsets))?;
    let offsets = n.to.graph.weight(&format!("{name}.prob_b"), offsets);
    let y = n.binary_op(Binary::Mul, scores, slopes)?;
    let y = n.binary_op(Binary::Add, y, offsets)?;
    let first = n.unary(Unary::Sigmoid, y)?;
    let one = n.number(1.0);
    let second = n.binary_op(Binary::Sub, one, first)?;
    let both = n.add(Op::Concat(1), &[first, second])?;
    if classes == 2 { Ok(both) } else { coupled(n, both, best, classes) }
}

/// The most classes whose probabilities are coupled: their equations are solved one unknown after the other.
const MAX_COUPLED: usize = 16;

/// Probabilities `p` of all classes from those of pairs, `r[i, j]` that of `i` against `j`. They minimise the sum of
/// `(r[j, i] p[i] - r[i, j] p[j])^2` over all pairs: the second method of [WLW04]. So `Q p` is the same
/// number in every place, with `Q[i, i]` the sum of `r[j, i]^2` and `Q[i, j] = -r[j, i] r[i, j]`.
///
/// The equation of a class that is almost certain has almost no coefficients, so the class with the most votes comes
/// last. Its `p` is 1 until the end, and the others follow from their equations. Their pivots are not small: for a
/// class that lost to the last one, the squares include an `r` of at least a half.
///
/// `pairs` holds `r[i, j]` of all `i < j`, then `r[j, i]`.
///
/// [WLW04]: https://www.jmlr.org/papers/v5/wu04a.html
fn coupled(n: &mut Node<'_, '_>, pairs: ValueId, best: ValueId, classes: usize) -> Result<ValueId> {
    if classes > MAX_COUPLED {
        let reason = format!("with probabilities of {classes} classes; {MAX_COUPLED} can be");
        return Err(n.unsupported(format!("{reason}, or export it without them")));
    }
    let rows = n.dims(pairs)[0];
    let r = square(n, pairs, classes)?;
    // One class changes places with the last one, and back in the end.
    let one_hot = n.add(Op::OneHot(classes), &[best])?;
    let swap = swapping(n, one_hot, rows, classes)?;
    let r = math::product(n, swap, r)?;
    let r = math::product(n, r, swap)?;
    let q = differences(n, r, classes)?;
    let p = least(n, q, rows, classes)?;
    let p = math::product(n, swap, p)?;
    let p = fixed(n, p, &[rows, classes])?;
    let total = n.add(Op::Reduce { kind: Reduce::Sum, axes: vec![1], keep: true }, &[p])?;
    n.binary_op(Binary::Div, p, total)
}

/// `Q` of [`coupled`].
fn differences(n: &mut Node<'_, '_>, r: ValueId, classes: usize) -> Result<ValueId> {
    let back = n.add(Op::Permute(vec![0, 2, 1]), &[r])?;
    let squares = n.binary_op(Binary::Mul, back, back)?;
    let sums = Op::Reduce { kind: Reduce::Sum, axes: vec![2], keep: true };
    let diagonal = n.add(sums, &[squares])?;
    let unit = identity(n, classes)?;
    let diagonal = n.binary_op(Binary::Mul, diagonal, unit)?;
    let products = n.binary_op(Binary::Mul, back, r)?;
    n.binary_op(Binary::Sub, diagonal, products)
}

/// `p` with `Q p` the same number `l` in every place and 1 as its last element, as a column. The others are
/// `a + l c`, where `a` solves the equations for the last one's coefficients and `c` for a 1 in each.
fn least(n: &mut Node<'_, '_>, q: ValueId, rows: usize, classes: usize) -> Result<ValueId> {
    let last = classes - 1;
    let one = n.number(1.0);
    let upper = n.part(q, 1, 0, last)?;
    let left = n.part(upper, 2, 0, last)?;
    let right = n.part(upper, 2, last, classes)?;
    let right = n.unary(Unary::Neg, right)?;
    let ones = spread(n, one, vec![rows, last, 1])?;
    let mut system = n.add(Op::Concat(2), &[left, right, ones])?;
    for at in 0..last {
        system = eliminated(n, system, at, last)?;
    }
    let a = n.part(system, 2, last, last + 1)?;
    let c = n.part(system, 2, last + 1, last + 2)?;
    // The last equation determines l.
    let bottom = n.part(q, 1, last, classes)?;
    let weights = n.part(bottom, 2, 0, last)?;
    let own = n.part(bottom, 2, last, classes)?;
    let with_a = math::product(n, weights, a)?;
    let with_c = math::product(n, weights, c)?;
    let above = n.binary_op(Binary::Add, own, with_a)?;
    let below = n.binary_op(Binary::Sub, one, with_c)?;
    let l = n.binary_op(Binary::Div, above, below)?;
    let more = n.binary_op(Binary::Mul, c, l)?;
    let others = n.binary_op(Binary::Add, a, more)?;
    let certain = spread(n, one, vec![rows, 1, 1])?;
    n.add(Op::Concat(1), &[others, certain])
}

/// Equations, each a row, of which number `at` is divided by its own coefficient and taken from the others, so
/// that its unknown is left in none of them.
fn eliminated(n: &mut Node<'_, '_>, system: ValueId, at: usize, len: usize) -> Result<ValueId> {
    let row = n.part(system, 1, at, at + 1)?;
    let pivot = n.part(row, 2, at, at + 1)?;
    let row = n.binary_op(Binary::Div, row, pivot)?;
    let column = n.part(system, 2, at, at + 1)?;
    let taken = math::product(n, column, row)?;
    let others = n.binary_op(Binary::Sub, system, taken)?;
    let mut parts = vec![];
    if at > 0 {
        parts.push(n.part(others, 1, 0, at)?);
    }
    parts.push(row);
    if at + 1 < len {
        parts.push(n.part(others, 1, at + 1, len)?);
    }
    if parts.len() == 1 { Ok(row) } else { n.add(Op::Concat(1), &parts) }
}

/// `[rows, classes, classes]` from the numbers of all pairs, then of all pairs the other way; 0 on the diagonal.
fn square(n: &mut Node<'_, '_>, pairs: ValueId, classes: usize) -> Result<ValueId> {
    let [rows, numbers] = n.dims(pairs)[..] else {
        return Err(n.attributes.error("its scores are no table"));
    };
    let zero = n.number(0.0);
    let nothing = spread(n, zero, vec![rows, 1])?;
    let all = n.add(Op::Concat(1), &[pairs, nothing])?;
    let mut indices = vec![numbers; classes * classes];
    let each = (0..classes).flat_map(|i| (i + 1..classes).map(move |j| (i, j)));
    for (pair, (i, j)) in each.enumerate() {
        indices[i * classes + j] = pair;
        indices[j * classes + i] = numbers / 2 + pair;
    }
    let y = n.add(Op::Gather { axis: 1, indices, squeeze: false }, &[all])?;
    fixed(n, y, &[rows, classes, classes])
}

/// The matrix for each row that swaps a class, given as zeros and a 1, with the last one. It is the unit matrix minus
/// the outer square of their difference.
fn swapping(
    n: &mut Node<'_, '_>,
    one_hot: ValueId,
    rows: usize,
    classes: usize,
) -> Result<ValueId> {
    let name = n.attributes.name.to_owned();
    let end = (0..classes).map(|i| i64::from(i + 1 == classes)).collect();
    let end = n.to.graph.public(&name, HostTensor::ints(end));
    let difference = n.binary_op(Binary::Sub, one_hot, end)?;
    let column = fixed(n, difference, &[rows, classes, 1])?;
    let row = fixed(n, difference, &[rows, 1, classes])?;
    let taken = math::product(n, column, row)?;
    let unit = identity(n, classes)?;
    n.binary_op(Binary::Sub, unit, taken)
}

fn identity(n: &mut Node<'_, '_>, len: usize) -> Result<ValueId> {
    let unit = (0..len * len).map(|i| i64::from(i % (len + 1) == 0)).collect();
    Ok(n.to.graph.public(n.attributes.name, HostTensor::integers([len, len], unit)?))
}
