//! Models of tables, from scikit-learn and its like: scalers, linear models and trees of the domain `ai.onnx.ml`.

use nn_layers::{Binary, HostTensor, Op, Reduce, Unary, ValueId};

use super::math;
use super::shape::fixed;
use crate::Result;
use crate::onnx::node::Node;
use crate::onnx::value::Value;

/// Numbers of an attribute as a weight of this shape.
fn weight(n: &mut Node<'_, '_>, name: &str, dims: &[usize]) -> Result<ValueId> {
    let values = n.attributes.floats(name).unwrap_or_default();
    let values: Vec<f64> = values.iter().map(|&v| v.into()).collect();
    let wrong = || n.attributes.error(format!("attribute {name} does not fill {dims:?}"));
    let value = HostTensor::new(dims, values).map_err(|_| wrong())?;
    Ok(n.to.graph.weight(&format!("{}.{name}", n.attributes.name), value))
}

/// Rows `[N, features]`.
fn rows(n: &mut Node<'_, '_>) -> Result<(ValueId, [usize; 2])> {
    let x = n.input(0)?;
    match *n.dims(x) {
        [count, features] => Ok((x, [count, features])),
        [features] => Ok((fixed(n, x, &[1, features])?, [1, features])),
        ref dims => Err(n.attributes.error(format!("{dims:?} is no table"))),
    }
}

/// `(x - offset) * scale`.
pub(crate) fn scaler(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (mut y, _) = rows(n)?;
    for (name, f) in [("offset", Binary::Sub), ("scale", Binary::Mul)] {
        if let Some(values) = n.attributes.floats(name) {
            let by = weight(n, name, &[values.len()])?;
            y = n.binary_op(f, y, by)?;
        }
    }
    Ok(vec![y])
}

/// Rows divided by their largest magnitude, their sum of magnitudes, or their length; rows of zeros stay.
pub(crate) fn normalizer(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (x, _) = rows(n)?;
    let kind = n.attributes.text("norm").unwrap_or("MAX").to_owned();
    let over = |kind| Op::Reduce { kind, axes: vec![1], keep: true };
    let length = match kind.as_str() {
        "MAX" => {
            let sizes = n.unary(Unary::Abs, x)?;
            n.add(over(Reduce::Max), &[sizes])?
        }
        "L1" => n.add(over(Reduce::L1), &[x])?,
        "L2" => n.add(over(Reduce::L2), &[x])?,
        other => return Err(n.unsupported(format!("with norm {other}"))),
    };
    let zero = n.number(0.0);
    let none = n.binary_op(Binary::Equal, length, zero)?;
    let length = n.binary_op(Binary::Add, length, none)?;
    Ok(vec![n.binary_op(Binary::Div, x, length)?])
}

/// 1 above a threshold, 0 elsewhere.
pub(crate) fn binarizer(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let threshold = n.attributes.float("threshold", 0.0);
    let threshold = n.number(threshold);
    Ok(vec![n.binary_op(Binary::Greater, x, threshold)?])
}

/// The elements of the last axis at public positions.
pub(crate) fn extractor(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (x, at) = (n.input(0)?, n.input(1)?);
    let dims = n.dims(x);
    let axis = dims.len().saturating_sub(1);
    let len = dims.last().copied().unwrap_or(0);
    let at = n.ints(at, "positions")?;
    let indices = at.iter().map(|&i| n.position(i, len)).collect::<Result<Vec<_>>>()?;
    let y = n.add(Op::Gather { axis, indices, squeeze: false }, &[x])?;
    if dims.len() > 1 {
        return Ok(vec![y]);
    }
    let count = n.dims(y)[0];
    Ok(vec![fixed(n, y, &[1, count])?])
}

/// One number in the place of another.
pub(crate) fn imputer(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (x, _) = rows(n)?;
    let replaced = n.attributes.float("replaced_value_float", 0.0);
    if !replaced.is_finite() {
        // What is missing has no encoding, so that nothing of it comes.
        return Ok(vec![x]);
    }
    let count = n.attributes.floats("imputed_value_floats").map_or(0, <[f32]>::len);
    let by = weight(n, "imputed_value_floats", &[count])?;
    let replaced = n.number(replaced);
    let missing = n.binary_op(Binary::Equal, x, replaced)?;
    Ok(vec![n.add(Op::Where, &[missing, by, x])?])
}

/// Tables side by side.
pub(crate) fn feature_vector(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let parts = n.inputs()?;
    Ok(vec![if parts.len() == 1 { parts[0] } else { n.add(Op::Concat(1), &parts)? }])
}

/// Probabilities as a map by label: the probabilities, in the order of the labels.
pub(crate) fn zip_map(n: &mut Node<'_, '_>) -> Result<Vec<Value>> {
    Ok(vec![n.value(0)])
}

/// What becomes of scores at the end.
fn transformed(n: &mut Node<'_, '_>, y: ValueId) -> Result<ValueId> {
    match n.attributes.text("post_transform").unwrap_or("NONE") {
        "NONE" | "" => Ok(y),
        "LOGISTIC" => n.unary(Unary::Sigmoid, y),
        "SOFTMAX" => n.add(Op::Softmax { axis: 1, log: false }, &[y]),
        other => Err(n.unsupported(format!("with post_transform {other}"))),
    }
}

/// `x * coefficients^T + intercepts`, a column for each target.
fn linear(n: &mut Node<'_, '_>, targets: usize) -> Result<ValueId> {
    let (x, [_, features]) = rows(n)?;
    let coefficients = weight(n, "coefficients", &[targets, features])?;
    let op = Op::MatMul { transpose_lhs: false, transpose_rhs: true };
    let y = n.add(op, &[x, coefficients])?;
    match n.attributes.floats("intercepts") {
        Some(values) => {
            let intercepts = weight(n, "intercepts", &[values.len()])?;
            n.binary_op(Binary::Add, y, intercepts)
        }
        None => Ok(y),
    }
}

pub(crate) fn linear_regressor(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let targets = usize::try_from(n.attributes.int("targets", 1)).unwrap_or(1);
    let y = linear(n, targets)?;
    Ok(vec![transformed(n, y)?])
}

/// Label and scores. A label that is a text comes as its position among the labels.
pub(crate) fn linear_classifier(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (_, [_, features]) = rows(n)?;
    let given = n.attributes.floats("coefficients").map_or(0, <[f32]>::len);
    let scores = given / features.max(1);
    let y = linear(n, scores)?;
    labelled(n, y)
}

/// The labels of a classifier: integers, or positions of texts.
fn labels(n: &Node<'_, '_>) -> Vec<i64> {
    let ints = ["classlabels_ints", "classlabels_int64s"];
    let ints = ints.iter().find_map(|name| n.attributes.ints(name));
    let texts = n.attributes.texts("classlabels_strings").map_or(0, |texts| texts.len());
    ints.map_or_else(|| (0..texts as i64).collect(), <[i64]>::to_vec)
}

/// Label and scores by scores; one score alone says for which of two classes.
fn labelled(n: &mut Node<'_, '_>, y: ValueId) -> Result<Vec<ValueId>> {
    let labels = labels(n);
    let columns = n.dims(y)[1];
    let (scores, best) = if columns == 1 && labels.len() == 2 {
        let zero = n.number(0.0);
        let second = n.binary_op(Binary::Greater, y, zero)?;
        let y = transformed(n, y)?;
        let other = if n.attributes.text("post_transform") == Some("LOGISTIC") {
            let one = n.number(1.0);
            n.binary_op(Binary::Sub, one, y)?
        } else {
            n.unary(Unary::Neg, y)?
        };
        let count = n.dims(second)[0];
        (n.add(Op::Concat(1), &[other, y])?, fixed(n, second, &[count])?)
    } else {
        if columns != labels.len() {
            let reason = format!("{columns} scores for {} labels", labels.len());
            return Err(n.attributes.error(reason));
        }
        let best = n.add(Op::ArgMax { axis: 1, keep: false, min: false }, &[y])?;
        (transformed(n, y)?, best)
    };
    Ok(vec![named(n, best, &labels)?, scores])
}

/// The labels at positions.
fn named(n: &mut Node<'_, '_>, best: ValueId, labels: &[i64]) -> Result<ValueId> {
    if labels.iter().enumerate().all(|(i, &label)| label == i as i64) {
        return Ok(best);
    }
    let table = HostTensor::ints(labels.to_vec());
    let table = n.to.graph.public(n.attributes.name, table);
    let label = n.add(Op::Lookup, &[table, best])?;
    n.to.mark_integer(label);
    Ok(label)
}

/// One tree: its nodes that ask, and its leaves with the way to each.
#[derive(Default)]
struct Tree {
    /// Which feature is compared with what, and how.
    asks: Vec<(usize, f64, String)>,
    /// For each leaf what is answered on its way, by position in `asks`, and what it adds to each target.
    leaves: Vec<(Vec<Answer>, Vec<Addend>)>,
}

/// Which question of a tree, and whether the answer is yes.
type Answer = (usize, bool);

/// Which target, and what is added to it.
type Addend = (usize, f64);

/// The most nodes of all trees.
const MAX_TREE_NODES: usize = 1 << 18;

/// The most questions on the way to a leaf.
const MAX_DEPTH: usize = 64;

/// The trees of an ensemble as lists of attributes, the nodes of each with numbers of their own.
fn trees(n: &Node<'_, '_>, target: &str) -> Result<Vec<Tree>> {
    use std::collections::HashMap;
    let wrong = |what: &str| n.attributes.error(format!("its trees do not hold together: {what}"));
    let ints = |name: &str| n.attributes.ints(name).unwrap_or_default();
    let floats = |name: &str| n.attributes.floats(name).unwrap_or_default();
    let (ids, own) = (ints("nodes_treeids"), ints("nodes_nodeids"));
    let (features, values) = (ints("nodes_featureids"), floats("nodes_values"));
    let (yes, no) = (ints("nodes_truenodeids"), ints("nodes_falsenodeids"));
    let modes = n.attributes.texts("nodes_modes").unwrap_or_default();
    let count = ids.len();
    let same = [own.len(), features.len(), values.len(), yes.len(), no.len(), modes.len()];
    if same != [count; 6] || count > MAX_TREE_NODES {
        return Err(wrong("its lists differ in length"));
    }
    let (of_tree, of_node) =
        (ints(&format!("{target}_treeids")), ints(&format!("{target}_nodeids")));
    let (of_target, weights) =
        (ints(&format!("{target}_ids")), floats(&format!("{target}_weights")));
    if [of_node.len(), of_target.len(), weights.len()] != [of_tree.len(); 3] {
        return Err(wrong("its leaves' lists differ in length"));
    }
    let mut adds: HashMap<(i64, i64), Vec<(usize, f64)>> = HashMap::new();
    for i in 0..of_tree.len() {
        let target = usize::try_from(of_target[i]).map_err(|_| wrong("a target is negative"))?;
        adds.entry((of_tree[i], of_node[i])).or_default().push((target, weights[i].into()));
    }
    let places: HashMap<(i64, i64), usize> = (0..count).map(|i| ((ids[i], own[i]), i)).collect();
    let mut found = vec![];
    let mut first = 0;
    while first < count {
        let id = ids[first];
        let mut tree = Tree::default();
        let mut open = vec![(first, vec![])];
        let mut met = 0;
        while let Some((at, way)) = open.pop() {
            met += 1;
            if met > count || way.len() > MAX_DEPTH {
                return Err(wrong("a node leads back, or there are too many"));
            }
            if modes[at] == "LEAF" {
                let adds = adds.get(&(id, own[at])).cloned().unwrap_or_default();
                tree.leaves.push((way, adds));
                continue;
            }
            let question = tree.asks.len();
            let feature = usize::try_from(features[at]).map_err(|_| wrong("a feature"))?;
            tree.asks.push((feature, values[at].into(), modes[at].to_owned()));
            for (next, answer) in [(yes[at], true), (no[at], false)] {
                let next = places.get(&(id, next)).ok_or_else(|| wrong("a node is missing"))?;
                let mut way = way.clone();
                way.push((question, answer));
                open.push((*next, way));
            }
        }
        found.push(tree);
        while first < count && ids[first] == id {
            first += 1;
        }
    }
    Ok(found)
}

/// The sums of what trees add to each target: all questions at once, then all leaves, then one product. Which
/// features are asked where is public; thresholds and what leaves add are secret.
fn sums(n: &mut Node<'_, '_>, trees: &[Tree], targets: usize) -> Result<ValueId> {
    let (x, [count, features]) = rows(n)?;
    let asks = trees.iter().map(|tree| tree.asks.len()).max().unwrap_or(0).max(1);
    let leaves = trees.iter().map(|tree| tree.leaves.len()).max().unwrap_or(1);
    let len = trees.len();
    let mode = trees.iter().flat_map(|t| &t.asks).map(|ask| ask.2.clone()).next();
    let mode = mode.unwrap_or_else(|| "BRANCH_LEQ".to_owned());
    let mixed = trees.iter().flat_map(|tree| &tree.asks).any(|ask| ask.2 != mode);
    let size = len.checked_mul(asks).and_then(|s| s.checked_mul(leaves));
    if mixed || size.is_none_or(|s| s > 1 << 26) {
        return Err(n.unsupported("whose nodes compare in several ways, or with too many nodes"));
    }
    let mut at = vec![0; len * asks];
    let mut thresholds = vec![0.0; len * asks];
    let mut ways = vec![0i64; len * asks * leaves];
    // A leaf that is not there is never reached.
    let mut wanted = vec![-1i64; len * leaves];
    let mut adds = vec![0.0; len * leaves * targets];
    for (t, tree) in trees.iter().enumerate() {
        for (i, (feature, threshold, _)) in tree.asks.iter().enumerate() {
            if *feature >= features {
                return Err(n.attributes.error(format!("there is no feature {feature}")));
            }
            at[t * asks + i] = *feature;
            thresholds[t * asks + i] = *threshold;
        }
        for (leaf, (way, given)) in tree.leaves.iter().enumerate() {
            // Answers as they should be add 1, others 0 or -1.
            wanted[t * leaves + leaf] = way.iter().filter(|(_, yes)| *yes).count() as i64;
            for &(ask, yes) in way {
                ways[(t * asks + ask) * leaves + leaf] = if yes { 1 } else { -1 };
            }
            for &(target, weight) in given {
                if target >= targets {
                    return Err(n.attributes.error(format!("there is no target {target}")));
                }
                adds[(t * leaves + leaf) * targets + target] += weight;
            }
        }
    }
    let name = n.attributes.name.to_owned();
    let asked = n.add(Op::Gather { axis: 1, indices: at, squeeze: false }, &[x])?;
    let thresholds = HostTensor::new([len * asks], thresholds)?;
    let thresholds = n.to.graph.weight(&format!("{name}.thresholds"), thresholds);
    let f = match mode.as_str() {
        "BRANCH_LEQ" => Binary::LessEqual,
        "BRANCH_LT" => Binary::Less,
        "BRANCH_GTE" => Binary::GreaterEqual,
        "BRANCH_GT" => Binary::Greater,
        "BRANCH_EQ" => Binary::Equal,
        other => return Err(n.unsupported(format!("whose nodes ask {other}"))),
    };
    let bits = n.binary_op(f, asked, thresholds)?;
    let bits = fixed(n, bits, &[count, len, asks])?;
    let bits = n.add(Op::Permute(vec![1, 0, 2]), &[bits])?;
    let ways = HostTensor::integers([len, asks, leaves], ways)?;
    let ways = n.to.graph.public(&name, ways);
    let agreed = math::product(n, bits, ways)?;
    let wanted = HostTensor::integers([len, 1, leaves], wanted)?;
    let wanted = n.to.graph.public(&name, wanted);
    let reached = n.binary_op(Binary::Equal, agreed, wanted)?;
    let reached = n.add(Op::Permute(vec![1, 0, 2]), &[reached])?;
    let reached = fixed(n, reached, &[count, len * leaves])?;
    let adds = HostTensor::new([len * leaves, targets], adds)?;
    let adds = n.to.graph.weight(&format!("{name}.leaves"), adds);
    let y = math::product(n, reached, adds)?;
    let y = if n.attributes.text("aggregate_function") == Some("AVERAGE") {
        math::times(n, y, 1.0 / len.max(1) as f64)?
    } else {
        y
    };
    match n.attributes.floats("base_values").map(<[f32]>::len) {
        Some(values) if values > 0 => {
            let base = weight(n, "base_values", &[values])?;
            n.binary_op(Binary::Add, y, base)
        }
        _ => Ok(y),
    }
}

pub(crate) fn tree_regressor(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    if !matches!(n.attributes.text("aggregate_function"), None | Some("SUM" | "AVERAGE")) {
        return Err(n.unsupported("that does not add its trees up"));
    }
    let trees = trees(n, "target")?;
    let targets = usize::try_from(n.attributes.int("n_targets", 1)).unwrap_or(1).clamp(1, 1 << 16);
    let y = sums(n, &trees, targets)?;
    Ok(vec![transformed(n, y)?])
}

/// Label and scores.
pub(crate) fn tree_classifier(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let trees = trees(n, "class")?;
    let classes = labels(n).len();
    let scores = trees.iter().flat_map(|t| &t.leaves).flat_map(|leaf| &leaf.1);
    let single = scores.clone().all(|add| add.0 == scores.clone().next().map_or(0, |f| f.0));
    if classes == 2 && single {
        return binary_trees(n, trees);
    }
    let y = sums(n, &trees, classes.max(1))?;
    labelled(n, y)
}

/// Two classes by one score: that of the second.
fn binary_trees(n: &mut Node<'_, '_>, mut trees: Vec<Tree>) -> Result<Vec<ValueId>> {
    for add in trees.iter_mut().flat_map(|t| &mut t.leaves).flat_map(|leaf| &mut leaf.1) {
        add.0 = 0;
    }
    let y = sums(n, &trees, 1)?;
    if n.attributes.text("post_transform") == Some("LOGISTIC") {
        return labelled(n, y);
    }
    // Without a transformation the score is a probability.
    let one = n.number(1.0);
    let other = n.binary_op(Binary::Sub, one, y)?;
    let half = n.number(0.5);
    let second = n.binary_op(Binary::Greater, y, half)?;
    let count = n.dims(second)[0];
    let best = fixed(n, second, &[count])?;
    let labels = labels(n);
    Ok(vec![named(n, best, &labels)?, n.add(Op::Concat(1), &[other, y])?])
}
