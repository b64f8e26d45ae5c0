//! The comparison circuit: levels, batches of nodes, and the sizes of messages, worked out once.
//!
//! `a + b >= 2^w` exactly if `a > ~b`. Both are divided into digits; a tree merges up to `fan` neighbours
//! at a time. Nodes that are computed alike and lie at equal distances form a batch, which is one
//! launch; node `r` of a batch is its row `r`.

use std::collections::HashMap;

/// The tree of comparisons, which trades bytes for rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Tree {
    /// Fewest bits: 285 and 7 rounds for a 64-bit sign.
    Twos,
    /// 297 bits and 5 rounds.
    #[default]
    Threes,
    /// Fewest rounds: 385 bits and 4 rounds.
    Fours,
}

impl Tree {
    /// Bits of a digit.
    pub(crate) fn digit(self) -> usize {
        if self == Self::Fours { 4 } else { 3 }
    }

    /// Neighbours merged at once.
    pub(crate) fn fan(self) -> usize {
        match self {
            Self::Twos => 2,
            Self::Threes => 3,
            Self::Fours => 4,
        }
    }
}

/// The predicate that a circuit computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Predicate {
    /// The low bits of `a + b` carry.
    Carry,
    /// All bits of `a` and `~b` agree.
    Equal,
}

/// A circuit.
#[derive(Debug)]
pub(crate) struct Circuit {
    pub predicate: Predicate,
    /// Bits of `a` and `b` that it reads.
    pub bits: usize,
    /// Digits by size: the dealer sends their encodings to the right evaluator.
    pub digits: Vec<DigitGroup>,
    /// Leaves first, then level by level.
    pub batches: Vec<Batch>,
    /// Classes of each level; level 0 are the leaves.
    pub levels: Vec<std::ops::Range<usize>>,
    /// Planes of encoded digits.
    pub digit_planes: usize,
    /// Planes that the evaluators open.
    pub opened: usize,
    /// The first of them, opened by leaves.
    pub leaf_opened: usize,
    /// Planes of mask shares that the dealer sends to the left evaluator.
    pub shares: usize,
    /// Planes of products of masks that the dealer sends to the left evaluator.
    pub dealt: usize,
}

/// Digits of equal size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DigitGroup {
    /// Bits of a digit.
    pub digit: usize,
    /// Lowest bit of the first.
    pub bit: usize,
    /// Number of digits.
    pub rows: usize,
    /// Planes of encoded digits before these.
    pub first: usize,
}

/// Nodes that one launch makes.
#[derive(Debug)]
pub(crate) struct Batch {
    pub gate: Gate,
    pub rows: usize,
    /// `greater` is a factor of the next level.
    pub opens_g: bool,
    /// `equal` is a factor of the next level.
    pub opens_e: bool,
    /// There is a `greater`, and it is an addend: of the next level, or the result.
    pub keeps: bool,
    /// Its first opened plane.
    pub opened: usize,
    /// Its first plane of mask shares; leaves have none.
    pub shares: usize,
}

/// The gate that makes a batch of nodes.
#[derive(Debug)]
pub(crate) enum Gate {
    /// From digits `first + r * stride` of one size.
    Leaf { digits: usize, first: usize, stride: usize },
    /// From neighbours, lowest first.
    Merge { children: Vec<Child>, dealt: usize, low: bool },
}

/// The neighbours in one place of the merges of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Child {
    pub batch: usize,
    /// Row of the first merge's child, and the distance to the next one's.
    pub row: usize,
    pub stride: usize,
}

impl Batch {
    /// Planes that each node opens.
    pub fn opened_planes(&self) -> usize {
        usize::from(self.opens_g) + usize::from(self.opens_e)
    }
}

/// Products of masks dealt in a merge of `n` nodes.
pub(crate) fn dealt(predicate: Predicate, low: bool, n: usize) -> usize {
    match (predicate, low, n) {
        (Predicate::Carry, false, 3) => 5,
        (Predicate::Carry, true, 3) | (Predicate::Equal, _, 3) => 3,
        (Predicate::Carry, false, 4) => 18,
        (Predicate::Carry, true, 4) => 12,
        (Predicate::Equal, _, 4) => 10,
        _ => 0,
    }
}

/// A node while the circuit is built: a row of a batch.
#[derive(Debug, Clone, Copy)]
struct Node {
    batch: usize,
    row: usize,
}

/// Nodes with equal keys may share a batch.
#[derive(Debug, PartialEq, Eq, Hash, Clone)]
struct BatchKey {
    level: usize,
    /// Size of a leaf's digit, and its place among its neighbours; or batches of the children.
    from: Vec<usize>,
    place: usize,
    low: bool,
    opens: [bool; 2],
}

impl Circuit {
    /// The circuit for the low `bits >= 1` bits.
    pub fn new(tree: Tree, predicate: Predicate, bits: usize) -> Self {
        let mut circuit = Self {
            predicate,
            bits,
            digits: digit_groups(tree.digit(), bits),
            batches: Vec::new(),
            levels: Vec::new(),
            digit_planes: 0,
            opened: 0,
            leaf_opened: 0,
            shares: 0,
            dealt: 0,
        };
        circuit.digit_planes =
            circuit.digits.iter().map(|group| group.rows * ((1 << group.digit) - 1)).sum();
        let mut nodes = circuit.leaves(tree.fan());
        circuit.levels.push(0..circuit.batches.len());
        while nodes.len() > 1 {
            let first = circuit.batches.len();
            nodes = circuit.merge_level(&nodes, tree.fan());
            circuit.levels.push(first..circuit.batches.len());
        }
        circuit.number();
        circuit
    }

    /// For the plane of a node's `equal` that of its `greater`, if both are opened; other planes for
    /// themselves.
    #[cfg(test)]
    pub fn twin(&self, plane: usize) -> usize {
        let pairs = self.batches.iter().filter(|batch| batch.opened_planes() == 2);
        let mut planes = pairs.map(|batch| batch.opened..batch.opened + 2 * batch.rows);
        planes
            .find(|planes| planes.contains(&plane))
            .map_or(plane, |planes| plane - (plane - planes.start) % 2)
    }

    fn leaves(&mut self, fan: usize) -> Vec<Node> {
        let digits: Vec<(usize, usize)> = (self.digits.iter().enumerate())
            .flat_map(|(group, codes)| (0..codes.rows).map(move |row| (group, row)))
            .collect();
        let groups = groups(digits.len(), fan);
        let mut open = HashMap::new();
        let mut nodes = Vec::with_capacity(digits.len());
        for (g, &(low, high)) in groups.iter().enumerate() {
            for i in low..high {
                let (size, place) = (high - low, i - low);
                // A node alone in its group is a factor one level up.
                let (size, place) = if size == 1 { (fan, g % fan) } else { (size, place) };
                let alone = digits.len() == 1;
                let opens = self.opens(i == 0, alone, place + 1 == size);
                let from = vec![digits[i].0, high - low];
                let key = BatchKey { level: 0, from, place, low: i == 0, opens };
                let (group, row) = digits[i];
                nodes.push(self.leaf(&mut open, key, group, row));
            }
        }
        nodes
    }

    /// True for `greater` and `equal` of a node that are factors.
    fn opens(&self, low: bool, root: bool, top: bool) -> [bool; 2] {
        match self.predicate {
            Predicate::Carry => [!root && !top, !root && !low],
            Predicate::Equal => [false, !root],
        }
    }

    fn leaf(
        &mut self,
        open: &mut HashMap<BatchKey, usize>,
        key: BatchKey,
        digits: usize,
        row: usize,
    ) -> Node {
        if let Some(&at) = open.get(&key) {
            let batch = &mut self.batches[at];
            if let Gate::Leaf { first, stride, .. } = &mut batch.gate {
                if batch.rows == 1 {
                    *stride = row - *first;
                }
                if row == *first + batch.rows * *stride {
                    batch.rows += 1;
                    return Node { batch: at, row: batch.rows - 1 };
                }
            }
        }
        self.add(open, key, Gate::Leaf { digits, first: row, stride: 0 })
    }

    fn add(&mut self, open: &mut HashMap<BatchKey, usize>, key: BatchKey, gate: Gate) -> Node {
        let [opens_g, opens_e] = key.opens;
        let keeps = if self.predicate == Predicate::Carry { !opens_g } else { !opens_e };
        let batch = Batch { gate, rows: 1, opens_g, opens_e, keeps, opened: 0, shares: 0 };
        open.insert(key, self.batches.len());
        self.batches.push(batch);
        Node { batch: self.batches.len() - 1, row: 0 }
    }

    fn merge_level(&mut self, nodes: &[Node], fan: usize) -> Vec<Node> {
        let groups = groups(nodes.len(), fan);
        let root = groups.len() == 1;
        let mut open = HashMap::new();
        let mut next = Vec::with_capacity(groups.len());
        for (g, &(low, high)) in groups.iter().enumerate() {
            if high - low == 1 {
                next.push(nodes[low]);
                continue;
            }
            let from: Vec<_> = nodes[low..high].iter().map(|node| node.batch).collect();
            let opens = self.opens(g == 0, root, g % fan == fan - 1);
            let level = self.levels.len();
            let key = BatchKey { level, from, place: g % fan, low: g == 0, opens };
            next.push(self.merge(&mut open, key, &nodes[low..high]));
        }
        next
    }

    fn merge(
        &mut self,
        open: &mut HashMap<BatchKey, usize>,
        key: BatchKey,
        nodes: &[Node],
    ) -> Node {
        if let Some(&at) = open.get(&key) {
            let batch = &mut self.batches[at];
            if let Gate::Merge { children, .. } = &mut batch.gate {
                let rows = batch.rows;
                let rising = children.iter().zip(nodes).all(|(child, node)| node.row > child.row);
                if rows == 1 && rising {
                    for (child, node) in children.iter_mut().zip(nodes) {
                        child.stride = node.row - child.row;
                    }
                }
                let fits = children.iter().zip(nodes).all(|(child, node)| {
                    child.stride > 0 && node.row == child.row + rows * child.stride
                });
                if fits {
                    batch.rows += 1;
                    return Node { batch: at, row: batch.rows - 1 };
                }
            }
        }
        let children = nodes.iter().map(|&Node { batch, row }| Child { batch, row, stride: 0 });
        let gate = Gate::Merge { children: children.collect(), dealt: 0, low: key.low };
        self.add(open, key, gate)
    }

    /// Gives every batch its planes among those opened, shared and dealt.
    fn number(&mut self) {
        for batch in &mut self.batches {
            (batch.opened, batch.shares) = (self.opened, self.shares);
            self.opened += batch.rows * batch.opened_planes();
            match &mut batch.gate {
                Gate::Leaf { .. } => self.leaf_opened = self.opened,
                Gate::Merge { children, dealt: first, low } => {
                    *first = self.dealt;
                    self.dealt += batch.rows * dealt(self.predicate, *low, children.len());
                    self.shares += batch.rows * batch.opened_planes();
                }
            }
        }
    }
}

/// Full digits, and a shorter one for the remaining bits.
fn digit_groups(digit: usize, bits: usize) -> Vec<DigitGroup> {
    let (full, rest) = (bits / digit, bits % digit);
    let planes = full * ((1 << digit) - 1);
    let last = bits - rest;
    mutant!("circuit: the last digit a bit too low", last = last.saturating_sub(1));
    let full = DigitGroup { digit, bit: 0, rows: full, first: 0 };
    let rest = DigitGroup { digit: rest, bit: last, rows: 1, first: planes };
    [full, rest].into_iter().filter(|group| group.rows > 0 && group.digit > 0).collect()
}

/// Partitions `n` nodes into the largest power of `fan` below `n` of groups, larger ones at the low end.
fn groups(n: usize, fan: usize) -> Vec<(usize, usize)> {
    let mut m = 1;
    while m * fan < n {
        m *= fan;
    }
    let mut groups = Vec::with_capacity(m);
    let mut start = 0;
    for i in 0..m {
        let larger = i < n % m;
        mutant!("circuit: larger groups at the high end", larger = i >= m - n % m);
        let end = start + n / m + usize::from(larger);
        groups.push((start, end));
        start = end;
    }
    groups
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Bits in all of a sign that is shared: codes, dealing, two for each opened bit, three at the end.
    fn sign_bits(tree: Tree, width: usize) -> usize {
        let circuit = Circuit::new(tree, Predicate::Carry, width - 1);
        circuit.digit_planes + circuit.dealt + circuit.shares + 2 * circuit.opened + 3
    }

    #[test]
    fn circuits_cost_what_the_table_says() {
        assert_eq!(sign_bits(Tree::Threes, 64), 297);
        assert_eq!(sign_bits(Tree::Twos, 64), 285);
        assert_eq!(sign_bits(Tree::Fours, 64), 385);
        assert_eq!(sign_bits(Tree::Threes, 48), 218);
        assert_eq!(sign_bits(Tree::Threes, 44), 201);
        let circuit = Circuit::new(Tree::Threes, Predicate::Equal, 64);
        assert_eq!(
            circuit.digit_planes + circuit.dealt + circuit.shares + 2 * circuit.opened + 3,
            255
        );
    }

    #[test]
    fn every_digit_is_in_one_class() {
        for (tree, bits) in [Tree::Twos, Tree::Threes, Tree::Fours]
            .into_iter()
            .flat_map(|tree| (1..=64).map(move |bits| (tree, bits)))
        {
            let circuit = Circuit::new(tree, Predicate::Carry, bits);
            let leaves: usize =
                circuit.batches[circuit.levels[0].clone()].iter().map(|c| c.rows).sum();
            assert_eq!(leaves, bits.div_ceil(tree.digit()), "{tree:?} {bits}");
            let root = circuit.batches.last().unwrap();
            assert!(root.rows == 1 && root.keeps && root.opened_planes() == 0);
        }
    }

    #[test]
    pub(crate) fn groups_are_as_in_the_reference() {
        assert_eq!(groups(5, 3), [(0, 2), (2, 4), (4, 5)]);
        assert_eq!(groups(21, 3).len(), 9);
        assert_eq!(groups(1, 3), [(0, 1)]);
    }
}
