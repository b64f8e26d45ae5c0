//! The order of a plan's nodes, and which of them share their rounds.

use std::collections::BTreeSet;

use super::Plan;
use crate::graph::{Binary, LinearFinish, Op, Reduce};
use crate::plan::formats::power_of_two;

/// The most nodes that share their rounds: all of their results are there at once.
const MOST_TOGETHER: usize = 64;

/// Nodes that can share their rounds if none needs another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Linear layers that are truncated, masked or not.
    Truncated,
    /// Linear layers with a ReLU.
    Rectified,
    /// Changes of format that drop bits.
    Cast,
    /// Words that are confined.
    Confined,
}

const CLASSES: usize = 4;

/// Groups of nodes that run together. Each node that needs rounds runs with all of its kind whose operands are
/// there or can be made without communication. For instance a weight's gradient shares the rounds of the next
/// layer's.
pub(crate) fn schedule(plan: &Plan) -> Vec<Vec<usize>> {
    let mut schedule = Schedule::new(plan);
    for node in 0..plan.nodes.len() {
        schedule.run(node);
    }
    schedule.steps
}

struct Schedule<'a> {
    plan: &'a Plan,
    /// For each node the nodes that it needs, its kept bits included.
    operands: Vec<Vec<usize>>,
    users: Vec<Vec<usize>>,
    local: Vec<bool>,
    /// The number of operands that are not there yet and cannot be made without communication.
    missing: Vec<usize>,
    done: Vec<bool>,
    ready: [BTreeSet<usize>; CLASSES],
    steps: Vec<Vec<usize>>,
}

impl<'a> Schedule<'a> {
    fn new(plan: &'a Plan) -> Self {
        let count = plan.nodes.len();
        let mut operands: Vec<Vec<usize>> = Vec::with_capacity(count);
        let mut users = vec![vec![]; count];
        for i in 0..count {
            let mut needed: Vec<_> = plan.kept.operands(&plan.nodes, i).collect();
            needed.extend(plan.kept.from[i]);
            needed.iter().for_each(|&x| users[x].push(i));
            operands.push(needed);
        }
        let mut schedule = Self {
            plan,
            users,
            local: (0..count).map(|i| is_local(plan, i)).collect(),
            missing: operands.iter().map(Vec::len).collect(),
            operands,
            done: vec![false; count],
            ready: Default::default(),
            steps: vec![],
        };
        for i in 0..count {
            if plan.nodes[i].op.is_given() || plan.public[i] {
                schedule.done[i] = true;
                schedule.available(i);
            }
        }
        schedule
    }

    /// A value is there, or can be made without communication: its users may be ready.
    fn available(&mut self, node: usize) {
        let mut stack = vec![node];
        while let Some(node) = stack.pop() {
            for &user in &self.users[node] {
                // What is computed in the clear is there from the start.
                if self.plan.public[user] {
                    continue;
                }
                self.missing[user] -= 1;
                if self.missing[user] > 0 {
                    continue;
                }
                if self.local[user] {
                    stack.push(user);
                } else if let Some(class) = self.class(user) {
                    self.ready[class as usize].insert(user);
                }
            }
        }
    }

    /// Runs a node unless it has run, with others that share its rounds.
    fn run(&mut self, node: usize) {
        if self.done[node] {
            return;
        }
        let Some(class) = self.class(node).filter(|_| !self.local[node]) else {
            return self.step(vec![node]);
        };
        let others = self.ready[class as usize].iter().filter(|&&other| other != node);
        let mut group = vec![node];
        group.extend(others.take(MOST_TOGETHER - 1));
        for member in &group {
            self.ready[class as usize].remove(member);
        }
        for &member in &group {
            self.make_operands(member);
        }
        self.step(group);
    }

    /// Runs the nodes that a node needs and that can be made without communication.
    fn make_operands(&mut self, node: usize) {
        let mut stack: Vec<_> = self.operands[node].iter().map(|&x| (x, false)).collect();
        while let Some((node, made)) = stack.pop() {
            if self.done[node] {
                continue;
            }
            if made {
                self.step(vec![node]);
            } else {
                stack.push((node, true));
                stack.extend(self.operands[node].iter().map(|&x| (x, false)));
            }
        }
    }

    fn step(&mut self, group: Vec<usize>) {
        for &node in &group {
            self.done[node] = true;
            // A node without communication has been available since its operands were.
            if !self.local[node] {
                self.available(node);
            }
        }
        self.steps.push(group);
    }

    fn class(&self, node: usize) -> Option<Class> {
        match &self.plan.nodes[node].op {
            Op::Linear(l) if l.finish == LinearFinish::Relu => Some(Class::Rectified),
            Op::Linear(_) => Some(Class::Truncated),
            Op::Cast => Some(Class::Cast),
            Op::Confine(_) => Some(Class::Confined),
            _ => None,
        }
    }
}

/// True if a node is computed without communication.
fn is_local(plan: &Plan, node: usize) -> bool {
    let operand = |i: usize| plan.nodes[node].inputs[i];
    let frac = |i: usize| plan.fracs[operand(i)];
    match &plan.nodes[node].op {
        op if op.info().moves_elements => true,
        // Said inside the party.
        Op::Crew { .. }
        | Op::SumPool(_)
        | Op::Binary(Binary::Add | Binary::Sub)
        | Op::Reduce { kind: Reduce::Sum, .. } => true,
        Op::Cast => plan.fracs[node] >= frac(0),
        &Op::Scale(c) => {
            let moved = match power_of_two(c) {
                Some(k) if k <= 0 => k.unsigned_abs(),
                _ if c == -1.0 => 0,
                _ => {
                    // With so many bits more the factor is an integer, or is rounded to one.
                    let Some(more) = plan.fracs[node].checked_sub(frac(0)) else { return false };
                    return more >= 12 || (c * f64::from(more).exp2()).fract() == 0.0;
                }
            };
            frac(0) > 0 && plan.fracs[node] >= frac(0) + moved
        }
        // With so many bits more the number is an integer.
        Op::ScaleBy(_) => plan.fracs[node] >= frac(0) + frac(1),
        // The numbers of a training's step have formats of their own, and are public.
        Op::Binary(Binary::Mul) => {
            let number = |i: usize| match plan.nodes[operand(i)].op {
                Op::Input(k) => plan.inputs[k].frac.is_some(),
                _ => false,
            };
            (number(0) || number(1)) && plan.fracs[node] == frac(0) + frac(1)
        }
        Op::Conv(_) | Op::ConvTranspose { .. } | Op::MatMul { .. } => {
            let public = |i: usize| match plan.nodes[operand(i)].op {
                Op::Constant(k) => plan.constants[k].public.is_some(),
                _ => false,
            };
            (public(0) || public(1)) && plan.fracs[node] == frac(0) + frac(1)
        }
        _ => false,
    }
}
