//! Traces of word kernels: the operations of a step, as data.
//!
//! A device engine records a kernel once by running its step on recording words, and makes device code
//! from the trace. [`Trace::evaluate`] runs a trace on the host; [`check`] compares it with the CPU
//! engine's own instance of the step.

use std::{
    cell::RefCell,
    collections::HashMap,
    ops::{Add, BitAnd, BitOr, BitXor, Mul, Neg, Not, Sub},
};

use rand_core::Rng;

use crate::{
    CpuEngine, Engine, Generator, Isa, Launch, Result, Shape, Source, StreamKey, Target, Tensor,
    Word, WordKernel,
};

/// The operations of one step in an order in which each uses only earlier ones. Equal subexpressions
/// are recorded once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Trace {
    nodes: Vec<Node>,
    outputs: Vec<Value>,
}

/// A value of a trace: the index of the node that makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Value(pub u32);

/// One operation on words modulo 2^64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Node {
    /// Input word of the step.
    Input(u32),
    /// Scalar of the launch.
    Param(u32),
    /// A constant.
    Constant(u64),
    /// An operation on one word.
    Unary(Unary, Value),
    /// An operation on two words.
    Binary(Binary, Value, Value),
    /// A shift by a constant below 64.
    Shift(Shift, Value, u32),
}

/// Operations on one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unary {
    /// `-x`
    Neg,
    /// `!x`
    Not,
}

/// Operations on two words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Binary {
    /// `x + y`
    Add,
    /// `x - y`
    Sub,
    /// `x * y`, the low word
    Mul,
    /// `x & y`
    And,
    /// `x | y`
    Or,
    /// `x ^ y`
    Xor,
}

/// Shifts by a constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shift {
    /// Left, zeros from the right.
    Left,
    /// Right, zeros from the left.
    Right,
    /// Right, copies of the top bit from the left.
    RightSigned,
}

impl Trace {
    /// Records a kernel's step for launches with `params` scalars.
    pub fn record<K: WordKernel<I, O>, const I: usize, const O: usize>(
        kernel: &K,
        params: usize,
    ) -> Self {
        // A step that records another kernel's step keeps the outer tape safe.
        let outer = TAPE.take();
        let inputs = std::array::from_fn(|i| push(Node::Input(i as u32)));
        let params: Vec<_> = (0..params).map(|p| push(Node::Param(p as u32))).collect();
        let outputs = kernel.step(inputs, &params).map(|w| w.0).to_vec();
        let tape = TAPE.replace(outer);
        Self { nodes: tape.nodes, outputs }
    }

    /// The operations, inputs and parameters first.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The values that the step returns.
    pub fn outputs(&self) -> &[Value] {
        &self.outputs
    }

    /// Runs the trace on the host.
    pub fn evaluate(&self, inputs: &[u64], params: &[u64]) -> Vec<u64> {
        let mut values: Vec<u64> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let at = |v: Value| values[v.0 as usize];
            values.push(match *node {
                Node::Input(i) => inputs[i as usize],
                Node::Param(p) => params[p as usize],
                Node::Constant(c) => c,
                Node::Unary(Unary::Neg, x) => at(x).wrapping_neg(),
                Node::Unary(Unary::Not, x) => !at(x),
                Node::Binary(op, x, y) => {
                    let (x, y) = (at(x), at(y));
                    match op {
                        Binary::Add => x.wrapping_add(y),
                        Binary::Sub => x.wrapping_sub(y),
                        Binary::Mul => x.wrapping_mul(y),
                        Binary::And => x & y,
                        Binary::Or => x | y,
                        Binary::Xor => x ^ y,
                    }
                }
                Node::Shift(Shift::Left, x, count) => at(x) << count,
                Node::Shift(Shift::Right, x, count) => at(x) >> count,
                Node::Shift(Shift::RightSigned, x, count) => (at(x) as i64 >> count) as u64,
            });
        }
        self.outputs.iter().map(|v| values[v.0 as usize]).collect()
    }
}

/// Compares a kernel's trace with the CPU engine's instances of it, on every instruction set of this
/// machine, on the given rows of inputs: for tests of kernels.
///
/// # Errors
/// Those of [`Engine::launch`].
///
/// # Panics
/// If they differ; the text names the kernel and the row.
pub fn check<K: WordKernel<I, O>, const I: usize, const O: usize>(
    kernel: &K,
    rows: &[[u64; I]],
    params: &[u64],
) -> Result<()> {
    let trace = Trace::record(kernel, params.len());
    let n = rows.len();
    let columns: [Tensor; I] =
        std::array::from_fn(|i| Tensor::vector(rows.iter().map(|r| r[i]).collect()));
    let launch = Launch {
        rows: 1,
        cols: n,
        sources: std::array::from_fn(|i| Source::rows_of(&columns[i], n)),
        params,
        outputs: &vec![Shape::new([n])?; O],
        targets: std::array::from_fn(|o| Target { tensor: o, offset: 0, row_stride: n }),
    };
    for isa in Isa::supported() {
        let native = CpuEngine::with_isa(isa, 1).launch(kernel, &launch)?;
        for (r, row) in rows.iter().enumerate() {
            let expected: Vec<u64> = native.iter().map(|out| out.words()[r]).collect();
            let name = kernel.name();
            assert_eq!(trace.evaluate(row, params), expected, "`{name}` on {isa:?}, row {r}");
        }
    }
    Ok(())
}

/// [`check`] on chosen words: a thousand rows of edge values and pseudo-random words, with `params`
/// scalars. Call it once for each kernel of a crate.
///
/// # Errors
/// Those of [`Engine::launch`].
///
/// # Panics
/// As [`check`].
pub fn check_edges<K: WordKernel<I, O>, const I: usize, const O: usize>(
    kernel: &K,
    params: usize,
) -> Result<()> {
    const EDGES: [u64; 8] =
        [0, 1, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1, 1 << 32, u32::MAX as u64];
    let mut random = StreamKey::new(Generator::ChaCha12, &[0x77; 32]).stream(0).reader(0);
    let mut word = || match random.next_u64() {
        edge if edge % 3 == 0 => EDGES[edge as usize / 3 % EDGES.len()],
        word => word,
    };
    // Whole vectors of every instruction set, and a part of one.
    let rows: Vec<[u64; I]> = (0..1003).map(|_| std::array::from_fn(|_| word())).collect();
    let params: Vec<_> = (0..params).map(|_| word()).collect();
    check(kernel, &rows, &params)
}

/// The operations recorded so far on this thread.
#[derive(Default)]
struct Tape {
    nodes: Vec<Node>,
    known: HashMap<Node, Value>,
}

thread_local! {
    static TAPE: RefCell<Tape> = RefCell::default();
}

/// The word that records.
#[derive(Clone, Copy)]
struct Recorded(Value);

fn push(node: Node) -> Recorded {
    TAPE.with_borrow_mut(|tape| {
        let next = Value(tape.nodes.len() as u32);
        let value = *tape.known.entry(node).or_insert(next);
        if value == next {
            tape.nodes.push(node);
        }
        Recorded(value)
    })
}

macro_rules! binary {
    ($($op:ident::$method:ident),*) => {$(
        impl $op for Recorded {
            type Output = Self;
            fn $method(self, other: Self) -> Self {
                push(Node::Binary(binary!(@ $op), self.0, other.0))
            }
        }
    )*};
    (@ BitAnd) => { Binary::And };
    (@ BitOr) => { Binary::Or };
    (@ BitXor) => { Binary::Xor };
    (@ $op:ident) => { Binary::$op };
}

binary!(Add::add, Sub::sub, Mul::mul, BitAnd::bitand, BitOr::bitor, BitXor::bitxor);

impl Neg for Recorded {
    type Output = Self;
    fn neg(self) -> Self {
        push(Node::Unary(Unary::Neg, self.0))
    }
}

impl Not for Recorded {
    type Output = Self;
    fn not(self) -> Self {
        push(Node::Unary(Unary::Not, self.0))
    }
}

impl Word for Recorded {
    fn constant(value: u64) -> Self {
        push(Node::Constant(value))
    }

    fn shl(self, count: u32) -> Self {
        push(Node::Shift(Shift::Left, self.0, count))
    }

    fn shr(self, count: u32) -> Self {
        push(Node::Shift(Shift::Right, self.0, count))
    }

    fn sar(self, count: u32) -> Self {
        push(Node::Shift(Shift::RightSigned, self.0, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Everything;

    impl WordKernel<3, 4> for Everything {
        fn name(&self) -> &'static str {
            "everything"
        }

        #[inline(always)]
        fn step<W: Word>(&self, [x, y, z]: [W; 3], params: &[W]) -> [W; 4] {
            let sum = x + y * params[0];
            let again = x + y * params[0];
            [
                (sum ^ again.shl(13)) - z,
                (!x & y) | z.shr(63),
                -z.sar(5) + W::constant(u64::MAX / 3),
                x.sar(63) & y.shl(0),
            ]
        }
    }

    #[test]
    fn the_trace_computes_what_the_step_computes() {
        let edges = [0, 1, u64::MAX, 1 << 63, u64::MAX >> 1, 0x0123_4567_89ab_cdef];
        let rows: Vec<_> =
            (0..216).map(|i| [edges[i % 6], edges[i / 6 % 6], edges[i / 36]]).collect();
        for param in edges {
            check(&Everything, &rows, &[param]).expect("the launch fits");
        }
    }

    #[test]
    fn equal_subexpressions_are_recorded_once() {
        let trace = Trace::record(&Everything, 1);
        let products = trace.nodes().iter().filter(|n| matches!(n, Node::Binary(Binary::Mul, ..)));
        assert_eq!(products.count(), 1);
        assert_eq!(trace, Trace::record(&Everything, 1), "recording again gives the same trace");
    }
}
