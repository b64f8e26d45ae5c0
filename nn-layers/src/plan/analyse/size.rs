//! The resources that a plan needs, known before it is run.

use ring_arith::Shape;

use crate::Result;
use crate::graph::{Exactness, LinearMap, Op, Pool, Sizes, Work};
use crate::plan::analyse::domain::Domain;
use crate::plan::{Plan, PlanNode, shapes};

/// Words that a party keeps of a secret word: two components, and for operands of products their sum.
const SHARE: u64 = 3;

/// Words that a party keeps of a comparison's outcome for each element or tap: its share of the bit as a word,
/// and its planes.
const KEPT: u64 = 2;

/// Words in addition to operands and result, for each element: of steps that only move words.
const MOVED: u64 = 4;

/// Of products, with their truncation and comparison.
const PRODUCT: u64 = 8;

/// Of windows' maxima, for each element under a window.
const MAX: u64 = 6;

/// Of comparisons and selections.
const COMPARED: u64 = 16;

/// Of functions made of many steps: 46 were measured for roots, the most.
const FUNCTION: u64 = 56;

/// An operation of a plan, as its owner sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation<'a> {
    /// The step in which it runs, from 0.
    pub step: usize,
    /// Its node's name in the model.
    pub name: &'a str,
    /// The kind of operation, such as `conv+relu`.
    pub kind: &'static str,
    /// The exactness of its result.
    pub exactness: Exactness,
    /// The fraction bits of its result.
    pub frac: u32,
    /// The limit below which the magnitude of its sums of products must stay, if it rounds such sums.
    pub limit: Option<f64>,
    /// The intervals in which its operands must lie, in their order; infinite where any number that has an
    /// encoding is allowed.
    pub domains: Vec<[f64; 2]>,
    /// The magnitudes that its operands must have at least, in their order; 0 where any will do.
    pub least: Vec<f64>,
}

/// An operation of a plan with its sizes, as shown to those who decide if it may run.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerInfo<'a> {
    /// Its node's name in the model.
    pub name: &'a str,
    /// The kind of operation, such as `conv+relu`.
    pub kind: &'static str,
    /// The shape of its result.
    pub shape: Shape,
    /// The names of the weights that it takes, as they are in [`Plan::weights`].
    pub weights: Vec<&'a str>,
}

impl Plan {
    /// The operations in the order in which they run, with shapes for a batch size.
    ///
    /// # Errors
    /// As [`Plan::largest_value`].
    pub fn layers(&self, batch: usize) -> Result<Vec<LayerInfo<'_>>> {
        let shapes = shapes::shapes(self, batch)?;
        let layer = |&i: &usize| {
            let node = &self.nodes[i];
            let weight = |&input: &usize| match self.nodes[input].op {
                Op::Constant(at) | Op::Parameter(at) if self.weights.contains(&at) => {
                    Some(self.constants[at].name.as_str())
                }
                _ => None,
            };
            LayerInfo {
                name: &node.name,
                kind: node.op.name(),
                shape: shapes[i].clone(),
                weights: node.inputs.iter().filter_map(weight).collect(),
            }
        };
        Ok(self.steps.iter().flatten().map(layer).collect())
    }

    /// Words of the largest value for a batch size, or for that and a number of cached positions, without running
    /// anything. A server that takes plans from others compares it with its resources.
    ///
    /// # Errors
    /// [`crate::Error::Plan`] if the plan does not serve the batch size, [`crate::Error::Node`] if a
    /// value would be too large.
    pub fn largest_value(&self, sizes: impl Into<Sizes>) -> Result<usize> {
        let shapes = shapes::shapes(self, sizes)?;
        Ok(shapes.iter().map(Shape::len).max().unwrap_or(0))
    }

    /// Products of two numbers that the plan's linear layers take for a batch size: the cost of an evaluation
    /// in the clear.
    ///
    /// # Errors
    /// As [`Plan::largest_value`].
    pub fn multiplications(&self, batch: usize) -> Result<u64> {
        let shapes = shapes::shapes(self, batch)?;
        let of_node = |(at, node): (usize, &PlanNode)| {
            let of = |i: usize| &shapes[node.inputs[i]];
            let made = shapes[at].len();
            let terms = |x: usize, weight: usize, map: &LinearMap| match map {
                LinearMap::Conv(_) => made * (of(weight).len() / of(weight).dims()[0].max(1)),
                LinearMap::ConvTranspose { .. } | LinearMap::ConvWeightGrad(_) => {
                    of(x).len() * (of(weight).len() / of(weight).dims()[0].max(1))
                }
                LinearMap::MatMul { transpose_lhs, .. } => {
                    let dims = of(x).dims();
                    made * dims[dims.len() - if *transpose_lhs { 2 } else { 1 }]
                }
                LinearMap::Mul => made,
            };
            match &node.op {
                Op::Linear(l) => l.maps().map(|(map, [x, w])| terms(x, w, map)).sum(),
                &Op::Conv(k) => terms(0, 1, &LinearMap::Conv(k)),
                &Op::MatMul { transpose_lhs, transpose_rhs } => {
                    terms(0, 1, &LinearMap::MatMul { transpose_lhs, transpose_rhs })
                }
                _ => made,
            }
        };
        Ok(self.nodes.iter().enumerate().map(of_node).sum::<usize>() as u64)
    }

    /// The operations in the order in which they run, those of one step one after the other.
    pub fn operations(&self) -> impl Iterator<Item = Operation<'_>> {
        self.steps.iter().enumerate().flat_map(move |(step, group)| {
            group.iter().map(move |&i| {
                let node = &self.nodes[i];
                Operation {
                    step,
                    name: &node.name,
                    kind: node.op.name(),
                    exactness: node.op.info().exactness,
                    frac: self.fracs[i],
                    limit: self.limit(i),
                    domains: self
                        .domains(i)
                        .iter()
                        .map(|domain| [domain.low, domain.high])
                        .collect(),
                    least: self.domains(i).iter().map(|domain| domain.least).collect(),
                }
            })
        })
    }

    fn limit(&self, node: usize) -> Option<f64> {
        let dropped = self.dropped(node);
        let product = f64::from(self.fracs[node] + dropped);
        (dropped > 0).then(|| (62.0 - product).exp2())
    }

    fn domains(&self, node: usize) -> Vec<Domain> {
        let frac = self.target(node);
        let own = |at: usize| self.fracs[self.nodes[node].inputs[at]];
        let of = |at: usize| Domain::of(&self.nodes[node].op, at, frac, own(at));
        (0..self.nodes[node].inputs.len()).map(|at| of(at).unwrap_or(Domain::ALL)).collect()
    }

    /// The rows of the smallest table in which an input of integers is looked up as it is or moved: from 0 to
    /// one less its numbers mean something. None if it is not looked up so.
    pub fn table_rows(&self, input: usize) -> Option<usize> {
        let shapes = shapes::shapes(self, self.batch.unwrap_or(1)).ok()?;
        let looked_up = |at: usize| {
            let [table, positions] = [0, 1].map(|i| self.nodes[at].inputs[i]);
            (self.moved_input(positions) == Some(input)).then_some(table)
        };
        let lookups = (0..self.nodes.len()).filter(|&at| self.nodes[at].op == Op::Lookup);
        lookups
            .filter_map(looked_up)
            .filter_map(|table| shapes[table].dims().first().copied())
            .min()
    }

    /// True if the plan is a training's step: its public numbers and noise alone have formats of their own.
    pub(in crate::plan) fn is_training_step(&self) -> bool {
        self.inputs.iter().any(|input| input.frac.is_some())
    }

    /// True if an input is a public number of a training's step: one that multiplies what others make.
    pub(in crate::plan) fn is_number(&self, input: usize) -> bool {
        let scales = |node: &PlanNode| {
            let number = |&at: &usize| self.nodes[at].op == Op::Input(input);
            matches!(node.op, Op::ScaleBy(_)) && node.inputs.get(1).is_some_and(number)
        };
        self.nodes.iter().any(scales)
    }

    /// The input whose numbers a value consists of, only moved.
    pub(in crate::plan) fn moved_input(&self, node: usize) -> Option<usize> {
        let mut from = node;
        loop {
            match &self.nodes[from].op {
                Op::Input(i) => return Some(*i),
                Op::Reshape(_)
                | Op::Permute(_)
                | Op::Slice { .. }
                | Op::Gather { .. }
                | Op::Broadcast(_) => from = self.nodes[from].inputs[0],
                _ => return None,
            }
        }
    }

    /// Words of memory that a party may need at once to run the plan for a batch size, weights and inputs
    /// included. They hold the values that live at each step, and the working memory of the step's protocol. A
    /// bound for replicated sharing among three parties, not an exact number; nothing is run.
    ///
    /// # Errors
    /// As [`Plan::largest_value`].
    pub fn peak_words(&self, sizes: impl Into<Sizes>) -> Result<u64> {
        let shapes = shapes::shapes(self, sizes)?;
        let words: Vec<u64> = shapes.iter().map(|shape| shape.len() as u64).collect();
        let each = |i: usize| if self.is_public_weight(i) { 1 } else { SHARE };
        let kept = |i: usize| words[i].saturating_mul(each(i));
        let bits = |i: usize| {
            let each = match &self.nodes[i].op {
                Op::MaxPool(p) => taps(p, words[self.nodes[i].inputs[0]], words[i]),
                _ => words[i],
            };
            if self.kept.keeps[i] { each.saturating_mul(KEPT) } else { 0 }
        };
        let given = |i: &usize| matches!(self.nodes[*i].op, Op::Input(_) | Op::Constant(_));
        let mut live = (0..self.nodes.len()).filter(given).map(kept).fold(0, u64::saturating_add);
        let mut peak = live;
        let dropped = self.drops.iter().zip(&self.kept.drops);
        for (group, (dropped, dropped_bits)) in self.steps.iter().zip(dropped) {
            live = group
                .iter()
                .map(|&i| kept(i).saturating_add(bits(i)))
                .fold(live, u64::saturating_add);
            let besides = group.iter().map(|&i| self.scratch(i, &shapes, &words));
            peak = peak.max(besides.fold(live, u64::saturating_add));
            let gone = dropped.iter().filter(|&&i| !matches!(self.nodes[i].op, Op::Constant(_)));
            live = gone.map(|&i| kept(i)).fold(live, u64::saturating_sub);
            live = dropped_bits.iter().map(|&i| bits(i)).fold(live, u64::saturating_sub);
        }
        Ok(peak)
    }

    /// True if a node is a weight that every party has in the clear.
    fn is_public_weight(&self, node: usize) -> bool {
        let is_weight = |at: usize| self.constants[at].public.is_none();
        self.public_weights
            && matches!(self.nodes[node].op, Op::Constant(at) | Op::Parameter(at) if is_weight(at))
    }

    /// Words that the protocol of one node takes in addition to its operands and its result. It makes nothing of
    /// weights in the clear.
    fn scratch(&self, node: usize, shapes: &[Shape], words: &[u64]) -> u64 {
        let operands = &self.nodes[node].inputs;
        let shared = operands.iter().filter(|&&i| !self.is_public_weight(i));
        let taken = shared.map(|&i| words[i]).fold(0, u64::saturating_add);
        let made = words[node];
        let op = &self.nodes[node].op;
        let (factor, elements) = match op.info().work {
            Work::Nothing => (0, 0),
            Work::Move => (MOVED, made),
            // A few numbers for each unit are small compared with the operands.
            Work::Sum => (MOVED, taken),
            Work::Product => {
                let machines = match op {
                    Op::Linear(l) => l.scattered.unwrap_or(1) as u64,
                    _ => 1,
                };
                (PRODUCT, made.saturating_mul(machines).saturating_add(taken))
            }
            Work::Select => (COMPARED, made),
            Work::Tournament => (COMPARED, taken),
            Work::Function => (FUNCTION, made.max(taken)),
            Work::Many => match op {
                Op::SumPool(p) | Op::AvgPool { pool: p, .. } => (MOVED, area(p, made)),
                Op::MaxPool(p) => (MAX, taps(p, taken, made)),
                Op::MaxPoolGrad(p) => {
                    let pooled = operands.get(1).map_or(made, |&i| words[i]);
                    (COMPARED, taps(p, made, pooled).max(made))
                }
                // A word for each position and row of the table is 1 where the position selects that row.
                _ => {
                    let rows = operands.first().and_then(|&i| shapes[i].dims().first());
                    let places = operands.get(1).map_or(0, |&i| words[i]);
                    (COMPARED, places.saturating_mul(rows.map_or(0, |&rows| rows as u64)))
                }
            },
        };
        elements.saturating_mul(factor)
    }
}

/// Words under all positions of a window.
fn area(pool: &Pool, made: u64) -> u64 {
    made.saturating_mul((pool.size[0] as u64).saturating_mul(pool.size[1] as u64))
}

/// Words under all positions of a window that goes along rows first, and then along columns.
fn taps(pool: &Pool, taken: u64, made: u64) -> u64 {
    let [high, wide] = pool.size.map(|size| size as u64);
    let stride = (pool.stride[1] as u64).max(1);
    let rows = (taken / stride).max(made);
    rows.saturating_mul(wide).saturating_add(made.saturating_mul(high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Dim, Unary};
    use crate::{Compiled, Graph, PlanOptions};

    /// Words for each element of the input, of a chain of these operations.
    fn peak(ops: &[Op]) -> u64 {
        let mut graph = Graph::new(1);
        let mut x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(64)]).unwrap();
        for (i, op) in ops.iter().enumerate() {
            x = graph.add(&format!("node{i}"), op.clone(), &[x]).unwrap();
        }
        graph.output("y", x);
        let plan = Compiled::new(&graph, &PlanOptions::default()).unwrap().plan;
        let peaks = [1, 7].map(|batch| plan.peak_words(batch).unwrap());
        assert_eq!(peaks[1], 7 * peaks[0]);
        peaks[0] / 64
    }

    #[test]
    fn a_value_counts_while_it_is_needed_and_no_longer() {
        let sigmoid = Op::Unary(Unary::Sigmoid);
        assert_eq!(peak(std::slice::from_ref(&sigmoid)), 2 * SHARE + FUNCTION);
        assert_eq!(peak(&vec![sigmoid; 50]), 2 * SHARE + FUNCTION);
    }

    #[test]
    fn a_word_that_is_widened_counts_as_what_it_becomes() {
        let wide = Op::Concat(1);
        let mut graph = Graph::new(1);
        let mut x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(1)]).unwrap();
        for i in 0..20 {
            x = graph.add(&format!("wide{i}"), wide.clone(), &[x, x]).unwrap();
        }
        graph.output("y", x);
        let plan = Compiled::new(&graph, &PlanOptions::default()).unwrap().plan;
        assert!(plan.peak_words(1).unwrap() > 3 << 20);
        assert!(plan.peak_words(1 << 10).unwrap() > 3 << 30);
    }
}
