//! The circuit of a comparison, worked out once: which planes meet which in which launch.
//!
//! `a + b >= 2^w` exactly if `a > ~b`. Both are cut into digits; a tree merges up to `fan` neighbours
//! at a time. Nodes that are computed alike and lie at equal distances form a class, which is one
//! launch; node `r` of a class is its row `r`.

use std::collections::HashMap;

/// How comparisons trade bytes for rounds.
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

/// What a circuit finds out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Goal {
    /// Whether the low bits of `a + b` carry.
    Carry,
    /// Whether all bits of `a` and `~b` agree.
    Equal,
}

/// A circuit.
#[derive(Debug)]
pub(crate) struct Plan {
    pub goal: Goal,
    /// Bits of `a` and `b` that it reads.
    pub bits: usize,
    /// Runs of digits of equal size: what the pivot sends to the third.
    pub codes: Vec<CodeRun>,
    /// Leaves first, then level by level.
    pub classes: Vec<Class>,
    /// Classes of each level; level 0 are the leaves.
    pub levels: Vec<std::ops::Range<usize>>,
    /// Planes of codes.
    pub code_planes: usize,
    /// Planes that the second and the third open.
    pub opened: usize,
    /// The first of them, opened by leaves.
    pub leaf_opened: usize,
    /// Planes of mask shares that the pivot sends to the second.
    pub shares: usize,
    /// Planes of dealt products that the pivot sends to the second.
    pub dealt: usize,
}

/// Digits of equal size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CodeRun {
    /// Bits of a digit.
    pub digit: usize,
    /// Lowest bit of the first.
    pub bit: usize,
    /// Number of digits.
    pub rows: usize,
    /// Code planes before these.
    pub first: usize,
}

/// Nodes that one launch makes.
#[derive(Debug)]
pub(crate) struct Class {
    pub made: Made,
    pub rows: usize,
    /// `greater` is a factor of the next level.
    pub opens_g: bool,
    /// `equal` is a factor of the next level.
    pub opens_e: bool,
    /// There is a `greater`, and it is a summand: of the next level, or the result.
    pub keeps: bool,
    /// Its first opened plane.
    pub opened: usize,
    /// Its first plane of mask shares; leaves have none.
    pub shares: usize,
}

/// How nodes are made.
#[derive(Debug)]
pub(crate) enum Made {
    /// From digits `first + r * stride` of a run.
    Leaf { run: usize, first: usize, stride: usize },
    /// From neighbours, lowest first.
    Merge { children: Vec<Child>, dealt: usize, low: bool },
}

/// The neighbours in one place of the merges of a class.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Child {
    pub class: usize,
    /// Row of the first merge's child, and the distance to the next one's.
    pub row: usize,
    pub stride: usize,
}

impl Class {
    /// Planes that each node opens.
    pub fn factors(&self) -> usize {
        usize::from(self.opens_g) + usize::from(self.opens_e)
    }

    /// The pivot has a part of these nodes' bits, so it must share their masks.
    pub fn merged(&self) -> bool {
        matches!(self.made, Made::Merge { .. })
    }
}

/// Products of masks dealt in a merge of `n` nodes.
pub(crate) fn dealt(goal: Goal, low: bool, n: usize) -> usize {
    match (goal, low, n) {
        (Goal::Carry, false, 3) => 5,
        (Goal::Carry, true, 3) | (Goal::Equal, _, 3) => 3,
        (Goal::Carry, false, 4) => 18,
        (Goal::Carry, true, 4) => 12,
        (Goal::Equal, _, 4) => 10,
        _ => 0,
    }
}

/// A node while the circuit is built: a row of a class.
#[derive(Debug, Clone, Copy)]
struct Node {
    class: usize,
    row: usize,
}

/// Nodes with equal keys may share a class.
#[derive(Debug, PartialEq, Eq, Hash, Clone)]
struct Key {
    level: usize,
    /// Run of a leaf, and its place in its group; or classes of the children.
    from: Vec<usize>,
    place: usize,
    low: bool,
    opens: [bool; 2],
}

impl Plan {
    /// The circuit for the low `bits >= 1` bits.
    pub fn new(tree: Tree, goal: Goal, bits: usize) -> Self {
        let mut plan = Self {
            goal,
            bits,
            codes: runs(tree.digit(), bits),
            classes: Vec::new(),
            levels: Vec::new(),
            code_planes: 0,
            opened: 0,
            leaf_opened: 0,
            shares: 0,
            dealt: 0,
        };
        plan.code_planes = plan.codes.iter().map(|run| run.rows * ((1 << run.digit) - 1)).sum();
        let mut nodes = plan.leaves(tree.fan());
        plan.levels.push(0..plan.classes.len());
        while nodes.len() > 1 {
            let first = plan.classes.len();
            nodes = plan.merge_level(&nodes, tree.fan());
            plan.levels.push(first..plan.classes.len());
        }
        plan.number();
        plan
    }

    /// For the plane of a node's `equal` that of its `greater`, if both are opened; other planes for
    /// themselves.
    #[cfg(test)]
    pub fn twin(&self, plane: usize) -> usize {
        let holds = |class: &&Class| {
            (class.opened..class.opened + 2 * class.rows).contains(&plane) && class.factors() == 2
        };
        let class = self.classes.iter().find(holds);
        class.map_or(plane, |class| plane - (plane - class.opened) % 2)
    }

    /// Exchanges of the second and the third before the result is there.
    pub fn exchanges(&self) -> usize {
        self.levels.len() - 1
    }

    /// Words of a bundle per word of a plane, to the second and to the third.
    pub fn bundle(&self) -> [usize; 2] {
        [self.shares + self.dealt, self.code_planes]
    }

    fn leaves(&mut self, fan: usize) -> Vec<Node> {
        let digits: Vec<(usize, usize)> = (self.codes.iter().enumerate())
            .flat_map(|(run, codes)| (0..codes.rows).map(move |row| (run, row)))
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
                let key = Key { level: 0, from, place, low: i == 0, opens };
                let (run, row) = digits[i];
                nodes.push(self.leaf(&mut open, key, run, row));
            }
        }
        nodes
    }

    /// Whether `greater` and `equal` of a node are factors.
    fn opens(&self, low: bool, root: bool, top: bool) -> [bool; 2] {
        match self.goal {
            Goal::Carry => [!root && !top, !root && !low],
            Goal::Equal => [false, !root],
        }
    }

    fn leaf(&mut self, open: &mut HashMap<Key, usize>, key: Key, run: usize, row: usize) -> Node {
        if let Some(&at) = open.get(&key) {
            let class = &mut self.classes[at];
            if let Made::Leaf { first, stride, .. } = &mut class.made {
                if class.rows == 1 {
                    *stride = row - *first;
                }
                if row == *first + class.rows * *stride {
                    class.rows += 1;
                    return Node { class: at, row: class.rows - 1 };
                }
            }
        }
        self.add(open, key, Made::Leaf { run, first: row, stride: 0 })
    }

    fn add(&mut self, open: &mut HashMap<Key, usize>, key: Key, made: Made) -> Node {
        let [opens_g, opens_e] = key.opens;
        let keeps = if self.goal == Goal::Carry { !opens_g } else { !opens_e };
        let class = Class { made, rows: 1, opens_g, opens_e, keeps, opened: 0, shares: 0 };
        open.insert(key, self.classes.len());
        self.classes.push(class);
        Node { class: self.classes.len() - 1, row: 0 }
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
            let from: Vec<_> = nodes[low..high].iter().map(|node| node.class).collect();
            let opens = self.opens(g == 0, root, g % fan == fan - 1);
            let level = self.levels.len();
            let key = Key { level, from, place: g % fan, low: g == 0, opens };
            next.push(self.merge(&mut open, key, &nodes[low..high]));
        }
        next
    }

    fn merge(&mut self, open: &mut HashMap<Key, usize>, key: Key, nodes: &[Node]) -> Node {
        if let Some(&at) = open.get(&key) {
            let class = &mut self.classes[at];
            if let Made::Merge { children, .. } = &mut class.made {
                let pairs = || children.iter().zip(nodes);
                let rows = class.rows;
                if rows == 1 && pairs().all(|(child, node)| node.row > child.row) {
                    for (child, node) in children.iter_mut().zip(nodes) {
                        child.stride = node.row - child.row;
                    }
                }
                let fits = |(child, node): (&Child, &Node)| {
                    child.stride > 0 && node.row == child.row + rows * child.stride
                };
                if children.iter().zip(nodes).all(fits) {
                    class.rows += 1;
                    return Node { class: at, row: class.rows - 1 };
                }
            }
        }
        let child = |node: &Node| Child { class: node.class, row: node.row, stride: 0 };
        let (children, low) = (nodes.iter().map(child).collect(), key.low);
        self.add(open, key, Made::Merge { children, dealt: 0, low })
    }

    /// Gives every class its planes among those opened, shared and dealt.
    fn number(&mut self) {
        for class in &mut self.classes {
            (class.opened, class.shares) = (self.opened, self.shares);
            self.opened += class.rows * class.factors();
            match &mut class.made {
                Made::Leaf { .. } => self.leaf_opened = self.opened,
                Made::Merge { children, dealt: first, low } => {
                    *first = self.dealt;
                    self.dealt += class.rows * dealt(self.goal, *low, children.len());
                    self.shares += class.rows * class.factors();
                }
            }
        }
    }
}

/// Full digits, and what is left over.
fn runs(digit: usize, bits: usize) -> Vec<CodeRun> {
    let (full, rest) = (bits / digit, bits % digit);
    let planes = full * ((1 << digit) - 1);
    let last = bits - rest;
    planted!("circuit: the last digit a bit too low", last = last.saturating_sub(1));
    let full = CodeRun { digit, bit: 0, rows: full, first: 0 };
    let rest = CodeRun { digit: rest, bit: last, rows: 1, first: planes };
    [full, rest].into_iter().filter(|run| run.rows > 0 && run.digit > 0).collect()
}

/// Cuts `n` nodes into the largest power of `fan` below `n` of groups, larger ones at the low end.
fn groups(n: usize, fan: usize) -> Vec<(usize, usize)> {
    let mut m = 1;
    while m * fan < n {
        m *= fan;
    }
    let mut end = 0;
    let group = |i: usize| {
        let start = end;
        let larger = i < n % m;
        planted!("circuit: larger groups at the high end", larger = i >= m - n % m);
        end += n / m + usize::from(larger);
        (start, end)
    };
    (0..m).map(group).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Bits in all of a sign that is shared: codes, dealing, two for each opened bit, three at the end.
    fn sign_bits(tree: Tree, width: usize) -> usize {
        let plan = Plan::new(tree, Goal::Carry, width - 1);
        plan.code_planes + plan.dealt + plan.shares + 2 * plan.opened + 3
    }

    #[test]
    fn circuits_cost_what_the_table_says() {
        assert_eq!(sign_bits(Tree::Threes, 64), 297);
        assert_eq!(sign_bits(Tree::Twos, 64), 285);
        assert_eq!(sign_bits(Tree::Fours, 64), 385);
        assert_eq!(sign_bits(Tree::Threes, 48), 218);
        assert_eq!(sign_bits(Tree::Threes, 44), 201);
        let plan = Plan::new(Tree::Threes, Goal::Equal, 64);
        assert_eq!(plan.code_planes + plan.dealt + plan.shares + 2 * plan.opened + 3, 255);
    }

    #[test]
    fn every_digit_is_in_one_class() {
        for (tree, bits) in [Tree::Twos, Tree::Threes, Tree::Fours]
            .into_iter()
            .flat_map(|tree| (1..=64).map(move |bits| (tree, bits)))
        {
            let plan = Plan::new(tree, Goal::Carry, bits);
            let leaves: usize = plan.classes[plan.levels[0].clone()].iter().map(|c| c.rows).sum();
            assert_eq!(leaves, bits.div_ceil(tree.digit()), "{tree:?} {bits}");
            let root = plan.classes.last().expect("there is a root");
            assert!(root.rows == 1 && root.keeps && root.factors() == 0);
        }
    }

    #[test]
    pub(crate) fn groups_are_as_in_the_reference() {
        assert_eq!(groups(5, 3), [(0, 2), (2, 4), (4, 5)]);
        assert_eq!(groups(21, 3).len(), 9);
        assert_eq!(groups(1, 3), [(0, 1)]);
    }
}
