//! Ensembles of decision trees of the domain `ai.onnx.ml`, in both forms of its versions.

use std::collections::HashMap;

use nn_layers::{Binary, HostTensor, Op, ValueId};

use super::math;
use super::shape::fixed;
use super::tables::{labelled, labels, named, rows, transformed, weight};
use crate::Result;
use crate::onnx::node::Node;

/// The most nodes of all trees.
const MAX_NODES: usize = 1 << 18;

/// The most questions on the path to a leaf.
const MAX_DEPTH: usize = 64;

/// The most pairs of a question and a leaf of one tree, trees filled up to the largest.
const MAX_PAIRS: usize = 1 << 26;

/// A comparison of a feature with a threshold. The other comparisons of nodes are these with swapped answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    AtMost,
    Below,
    Is,
}

const RELATIONS: [Relation; 3] = [Relation::AtMost, Relation::Below, Relation::Is];

impl Relation {
    fn operation(self) -> Binary {
        match self {
            Self::AtMost => Binary::LessEqual,
            Self::Below => Binary::Less,
            Self::Is => Binary::Equal,
        }
    }
}

/// One comparison of a tree.
struct Comparison {
    feature: usize,
    threshold: f64,
    relation: Relation,
}

/// The answer of a node: whether one of these comparisons of its tree holds, of which two never do at once.
#[derive(Clone)]
struct Answer {
    comparisons: std::ops::Range<usize>,
    yes: bool,
}

/// A target, and the number that is added to it.
type Addend = (usize, f64);

/// One tree: its comparisons, and its leaves with the path to each.
#[derive(Default)]
struct Tree {
    comparisons: Vec<Comparison>,
    leaves: Vec<(Vec<Answer>, Vec<Addend>)>,
}

/// The question of a node of a file: is the feature in this relation to one of these thresholds?
struct Question {
    feature: usize,
    relation: Relation,
    thresholds: Vec<f64>,
    /// The next places after yes and after no.
    next: [Place; 2],
}

/// A node or a leaf of a file, by its position.
#[derive(Clone, Copy)]
enum Place {
    Node(usize),
    Leaf(usize),
}

impl Tree {
    /// Follows all paths from a root. `question` and `addends` return the content of a node and of a leaf.
    fn grown(
        root: Place,
        most: usize,
        question: impl Fn(usize) -> Result<Question>,
        addends: impl Fn(usize) -> Result<Vec<Addend>>,
        endless: impl Fn() -> crate::Error,
    ) -> Result<Self> {
        let mut tree = Self::default();
        let mut open = vec![(root, vec![])];
        let mut met = 0;
        while let Some((place, way)) = open.pop() {
            met += 1;
            if met > 2 * most + 1 || way.len() > MAX_DEPTH {
                return Err(endless());
            }
            let at = match place {
                Place::Leaf(at) => {
                    tree.leaves.push((way, addends(at)?));
                    continue;
                }
                Place::Node(at) => at,
            };
            let Question { feature, relation, thresholds, next } = question(at)?;
            let first = tree.comparisons.len();
            let compare = |threshold| Comparison { feature, threshold, relation };
            tree.comparisons.extend(thresholds.into_iter().map(compare));
            for (next, yes) in next.into_iter().zip([true, false]) {
                let mut way = way.clone();
                way.push(Answer { comparisons: first..tree.comparisons.len(), yes });
                open.push((next, way));
            }
        }
        Ok(tree)
    }
}

/// The trees of an ensemble as lists of attributes, the nodes of each with separate numbers.
fn numbered_trees(n: &Node<'_, '_>, target: &str) -> Result<Vec<Tree>> {
    let wrong = |what: &str| n.attributes.error(format!("its trees do not hold together: {what}"));
    let ints = |name: &str| n.attributes.ints(name).unwrap_or_default();
    let ids = ints("nodes_treeids");
    let own = ints("nodes_nodeids");
    let features = ints("nodes_featureids");
    let values = numbers(n, "nodes_values")?;
    let yes = ints("nodes_truenodeids");
    let no = ints("nodes_falsenodeids");
    let modes = n.attributes.texts("nodes_modes").unwrap_or_default();
    let count = ids.len();
    let same = [own.len(), features.len(), values.len(), yes.len(), no.len(), modes.len()];
    if same != [count; 6] || count > MAX_NODES {
        return Err(wrong("its lists differ in length"));
    }
    let of_tree = ints(&format!("{target}_treeids"));
    let of_node = ints(&format!("{target}_nodeids"));
    let of_target = ints(&format!("{target}_ids"));
    let weights = numbers(n, &format!("{target}_weights"))?;
    if [of_node.len(), of_target.len(), weights.len()] != [of_tree.len(); 3] {
        return Err(wrong("its leaves' lists differ in length"));
    }
    let mut adds: HashMap<(i64, i64), Vec<Addend>> = HashMap::new();
    for i in 0..of_tree.len() {
        let target = usize::try_from(of_target[i]).map_err(|_| wrong("a target is negative"))?;
        adds.entry((of_tree[i], of_node[i])).or_default().push((target, weights[i]));
    }
    let places: HashMap<(i64, i64), usize> = (0..count).map(|i| ((ids[i], own[i]), i)).collect();
    let place = |at: usize| if modes[at] == "LEAF" { Place::Leaf(at) } else { Place::Node(at) };
    let question = |at: usize| {
        let next = [yes[at], no[at]].map(|next| places.get(&(ids[at], next)).copied());
        let [Some(yes), Some(no)] = next else { return Err(wrong("a node is missing")) };
        let (relation, swapped) = match modes[at] {
            "BRANCH_LEQ" => (Relation::AtMost, false),
            "BRANCH_LT" => (Relation::Below, false),
            "BRANCH_GTE" => (Relation::Below, true),
            "BRANCH_GT" => (Relation::AtMost, true),
            "BRANCH_EQ" => (Relation::Is, false),
            "BRANCH_NEQ" => (Relation::Is, true),
            other => return Err(n.unsupported(format!("whose nodes ask {other}"))),
        };
        let feature = usize::try_from(features[at]).map_err(|_| wrong("a feature is negative"))?;
        let next = if swapped { [place(no), place(yes)] } else { [place(yes), place(no)] };
        Ok(Question { feature, relation, thresholds: vec![values[at]], next })
    };
    let addends = |at: usize| Ok(adds.get(&(ids[at], own[at])).cloned().unwrap_or_default());
    let endless = || wrong("a node leads back, or a way is too long");
    let roots = (0..count).filter(|&at| at == 0 || ids[at] != ids[at - 1]);
    roots.map(|root| Tree::grown(place(root), count, question, addends, endless)).collect()
}

/// The trees of an ensemble with separate lists of leaves, as version 5 of the domain writes them.
fn rooted_trees(n: &Node<'_, '_>) -> Result<Vec<Tree>> {
    let wrong = |what: &str| n.attributes.error(format!("its trees do not hold together: {what}"));
    let ints = |name: &str| n.attributes.ints(name).unwrap_or_default();
    let floats = |name: &str| -> Result<Vec<f64>> {
        let value = n.attributes.tensor(name)?;
        Ok(value.map(|value| value.floats().into_owned()).unwrap_or_default())
    };
    let features = ints("nodes_featureids");
    let modes = floats("nodes_modes")?;
    let splits = floats("nodes_splits")?;
    let yes = ints("nodes_truenodeids");
    let no = ints("nodes_falsenodeids");
    let [yes_ends, no_ends] = [ints("nodes_trueleafs"), ints("nodes_falseleafs")];
    let count = features.len();
    let same = [modes.len(), splits.len(), yes.len(), no.len(), yes_ends.len(), no_ends.len()];
    if same != [count; 6] || count > MAX_NODES {
        return Err(wrong("its lists differ in length"));
    }
    let of_target = ints("leaf_targetids");
    let weights = floats("leaf_weights")?;
    if of_target.len() != weights.len() {
        return Err(wrong("its leaves' lists differ in length"));
    }
    // The members of one node's set after the other's, each set ended by NaN.
    let members = floats("membership_values")?;
    let mut sets = members.split(|member| member.is_nan());
    let asks_members = modes.iter().map(|&mode| (mode == 6.0).then(|| sets.next()).flatten());
    let sets: Vec<Option<&[f64]>> = asks_members.collect();
    let place = |at: i64, leaf: i64| -> Result<Place> {
        let limit = if leaf == 0 { count } else { weights.len() };
        let at = usize::try_from(at).ok().filter(|&at| at < limit);
        let at = at.ok_or_else(|| wrong("a node or leaf is missing"))?;
        Ok(if leaf == 0 { Place::Node(at) } else { Place::Leaf(at) })
    };
    let question = |at: usize| {
        let (relation, swapped) = match modes[at] {
            0.0 | 3.0 => (Relation::AtMost, modes[at] == 3.0),
            1.0 | 2.0 => (Relation::Below, modes[at] == 2.0),
            4.0 | 5.0 => (Relation::Is, modes[at] == 5.0),
            6.0 => (Relation::Is, false),
            other => return Err(n.unsupported(format!("whose nodes have mode {other}"))),
        };
        let thresholds = match (modes[at], sets[at]) {
            (6.0, Some(set)) => set.to_vec(),
            (6.0, None) => return Err(wrong("a set of members is missing")),
            _ => vec![splits[at]],
        };
        let [yes, no] = [place(yes[at], yes_ends[at])?, place(no[at], no_ends[at])?];
        let feature = usize::try_from(features[at]).map_err(|_| wrong("a feature is negative"))?;
        let next = if swapped { [no, yes] } else { [yes, no] };
        Ok(Question { feature, relation, thresholds, next })
    };
    let addends = |at: usize| {
        let target = usize::try_from(of_target[at]).map_err(|_| wrong("a target is negative"))?;
        Ok(vec![(target, weights[at])])
    };
    let endless = || wrong("a node leads back, or a way is too long");
    let roots = ints("tree_roots").iter();
    roots.map(|&root| Tree::grown(place(root, 0)?, count, question, addends, endless)).collect()
}

/// Numbers of an attribute, or of its form in 64 bits.
fn numbers(n: &Node<'_, '_>, name: &str) -> Result<Vec<f64>> {
    if let Some(value) = n.attributes.tensor(&format!("{name}_as_tensor"))? {
        return Ok(value.floats().into_owned());
    }
    let values = n.attributes.floats(name).unwrap_or_default();
    Ok(values.iter().map(|&value| value.into()).collect())
}

/// The sums that the trees add to each target: all comparisons at once, then all leaves, then one product. The
/// feature that each node compares is public; thresholds and the leaves' numbers are secret.
fn sums(n: &mut Node<'_, '_>, trees: &[Tree], targets: usize) -> Result<ValueId> {
    let (x, [count, features]) = rows(n)?;
    let asks = trees.iter().map(|tree| tree.comparisons.len()).max().unwrap_or(0).max(1);
    let leaves = trees.iter().map(|tree| tree.leaves.len()).max().unwrap_or(1);
    let len = trees.len();
    let pairs = len.checked_mul(asks).and_then(|s| s.checked_mul(leaves));
    if pairs.is_none_or(|pairs| pairs > MAX_PAIRS) {
        let reason = format!("of {len} trees with up to {asks} comparisons and {leaves} leaves");
        return Err(n.unsupported(format!("{reason}; train with a maximal depth")));
    }
    let mut ways = vec![0i64; len * asks * leaves];
    // A leaf that is not there is never reached.
    let mut wanted = vec![-1i64; len * leaves];
    let mut adds = vec![0.0; len * leaves * targets];
    for (t, tree) in trees.iter().enumerate() {
        for (leaf, (way, given)) in tree.leaves.iter().enumerate() {
            // Answers as they should be add 1, others 0 or -1.
            wanted[t * leaves + leaf] = way.iter().filter(|answer| answer.yes).count() as i64;
            for answer in way {
                for ask in answer.comparisons.clone() {
                    ways[(t * asks + ask) * leaves + leaf] = if answer.yes { 1 } else { -1 };
                }
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
    let bits = compared(n, trees, asks, x, features)?;
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
    math::product(n, reached, adds)
}

/// The comparisons of all trees, filled up to the same number each, `[rows, trees * comparisons]`.
fn compared(
    n: &mut Node<'_, '_>,
    trees: &[Tree],
    asks: usize,
    x: ValueId,
    features: usize,
) -> Result<ValueId> {
    let name = n.attributes.name.to_owned();
    let comparison = |at: usize| trees[at / asks].comparisons.get(at % asks);
    let mut places = vec![0; trees.len() * asks];
    let mut parts = vec![];
    let mut made = 0;
    let common = trees.iter().flat_map(|tree| &tree.comparisons).map(|c| c.relation).next();
    for relation in RELATIONS {
        // Padding is compared with the others, and its result is unused.
        let of_this = |at: &usize| match comparison(*at) {
            Some(comparison) => comparison.relation == relation,
            None => common.unwrap_or(RELATIONS[0]) == relation,
        };
        let chosen: Vec<usize> = (0..places.len()).filter(of_this).collect();
        if chosen.is_empty() {
            continue;
        }
        chosen.iter().enumerate().for_each(|(i, &at)| places[at] = made + i);
        made += chosen.len();
        let indices: Vec<_> =
            chosen.iter().map(|&at| comparison(at).map_or(0, |c| c.feature)).collect();
        if let Some(missing) = indices.iter().find(|&&feature| feature >= features) {
            return Err(n.attributes.error(format!("there is no feature {missing}")));
        }
        let asked = n.add(Op::Gather { axis: 1, indices, squeeze: false }, &[x])?;
        let thresholds =
            chosen.iter().map(|&at| comparison(at).map_or(0.0, |c| c.threshold)).collect();
        let thresholds = HostTensor::new([chosen.len()], thresholds)?;
        let thresholds = n.to.graph.weight(&format!("{name}.thresholds"), thresholds);
        parts.push(n.binary_op(relation.operation(), asked, thresholds)?);
    }
    if let [bits] = parts[..] {
        return Ok(bits);
    }
    let bits = n.add(Op::Concat(1), &parts)?;
    n.add(Op::Gather { axis: 1, indices: places, squeeze: false }, &[bits])
}

/// The sums of all trees with the base values added.
fn based(n: &mut Node<'_, '_>, y: ValueId) -> Result<ValueId> {
    match n.attributes.floats("base_values").map(<[f32]>::len) {
        Some(values) if values > 0 => {
            let base = weight(n, "base_values", &[values])?;
            n.binary_op(Binary::Add, y, base)
        }
        _ => Ok(y),
    }
}

/// The number of targets that an ensemble states.
fn targets(n: &Node<'_, '_>) -> usize {
    usize::try_from(n.attributes.int("n_targets", 1)).unwrap_or(1).clamp(1, 1 << 16)
}

/// Sums, or means, of trees.
pub(crate) fn regressor(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let trees = numbered_trees(n, "target")?;
    let mut y = sums(n, &trees, targets(n))?;
    match n.attributes.text("aggregate_function") {
        None | Some("SUM") => {}
        Some("AVERAGE") => y = math::times(n, y, 1.0 / trees.len().max(1) as f64)?,
        Some(other) => return Err(n.unsupported(format!("with aggregate_function {other}"))),
    }
    let y = based(n, y)?;
    Ok(vec![transformed(n, y)?])
}

/// Sums, or means, of trees, as version 5 of the domain writes classifiers and regressors alike.
pub(crate) fn ensemble(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let trees = rooted_trees(n)?;
    let y = sums(n, &trees, targets(n))?;
    let y = match n.attributes.int("aggregate_function", 1) {
        0 => math::times(n, y, 1.0 / trees.len().max(1) as f64)?,
        1 => y,
        other => return Err(n.unsupported(format!("with aggregate_function {other}"))),
    };
    Ok(vec![match n.attributes.int("post_transform", 0) {
        0 => y,
        1 => n.add(Op::Softmax { axis: 1, log: false }, &[y])?,
        2 => n.unary(nn_layers::Unary::Sigmoid, y)?,
        other => return Err(n.unsupported(format!("with post_transform {other}"))),
    }])
}

/// Label and scores.
pub(crate) fn classifier(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let mut trees = numbered_trees(n, "class")?;
    let classes = labels(n).len();
    let scores = trees.iter().flat_map(|t| &t.leaves).flat_map(|leaf| &leaf.1);
    let single = scores.clone().all(|add| add.0 == scores.clone().next().map_or(0, |f| f.0));
    let positive = scores.clone().all(|add| add.1 >= 0.0);
    if classes != 2 || !single {
        let y = sums(n, &trees, classes.max(1))?;
        let y = based(n, y)?;
        return labelled(n, y);
    }
    // Two classes by one score: that of the second.
    for add in trees.iter_mut().flat_map(|t| &mut t.leaves).flat_map(|leaf| &mut leaf.1) {
        add.0 = 0;
    }
    let y = sums(n, &trees, 1)?;
    let y = based(n, y)?;
    if n.attributes.text("post_transform") == Some("LOGISTIC") || !positive {
        return labelled(n, y);
    }
    // If no leaf subtracts, the score is a probability.
    let one = n.number(1.0);
    let other = n.binary_op(Binary::Sub, one, y)?;
    let half = n.number(0.5);
    let second = n.binary_op(Binary::Greater, y, half)?;
    let count = n.dims(second)[0];
    let best = fixed(n, second, &[count])?;
    let labels = labels(n);
    Ok(vec![named(n, best, &labels)?, n.add(Op::Concat(1), &[other, y])?])
}
