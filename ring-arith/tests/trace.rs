//! Recorded kernels: what is written down, and that it means what the kernels compute.

use ring_arith::trace::{Binary, Node, Trace, check_edges};
use ring_arith::{Word, WordKernel};

/// Declares a kernel from its step.
macro_rules! kernel {
    ($name:ident, $text:literal, $i:literal, $o:literal, $inputs:pat, $params:pat, $body:expr) => {
        struct $name;
        impl WordKernel<$i, $o> for $name {
            fn name(&self) -> &'static str {
                $text
            }
            #[inline(always)]
            fn step<W: Word>(&self, $inputs: [W; $i], $params: &[W]) -> [W; $o] {
                $body
            }
        }
    };
}

kernel!(Add, "add", 2, 1, [x, y], _, [x + y]);
kernel!(Subtract, "subtract", 2, 1, [x, y], _, [x - y]);
kernel!(Multiply, "multiply", 2, 1, [x, y], _, [x * y]);
kernel!(Gates, "gates", 2, 4, [x, y], _, [x & y, x | y, x ^ y, !x]);
kernel!(Negate, "negate", 1, 1, [x], _, [-x]);
kernel!(Copy, "copy", 1, 2, [x], _, [x, x]);
kernel!(Constants, "constants", 1, 2, _, _, [W::constant(7), W::constant(1 << 63)]);
kernel!(Scale, "scale", 1, 1, [x], params, [x * params[0] + params[1]]);
kernel!(
    ReplicatedProduct,
    "replicated-product",
    6,
    1,
    [x0, x1, y0, y1, s0, s1],
    _,
    [x0 * (y0 + y1) + x1 * y0 + (s0 - s1)]
);
kernel!(Twice, "twice", 2, 2, [x, y], _, [(x + y) * (x + y), (x + y).shl(1)]);
kernel!(Unused, "unused", 3, 1, [x, y, _z], _, {
    let _wasted = x * W::constant(99);
    [y + W::constant(1)]
});
kernel!(Carry, "carry", 2, 1, [x, y], _, [((x & y) | ((x | y) & !(x + y))).shr(63)]);

/// All shifts by one count.
struct Shifts(u32);

impl WordKernel<1, 3> for Shifts {
    fn name(&self) -> &'static str {
        "shifts"
    }
    #[inline(always)]
    fn step<W: Word>(&self, [x]: [W; 1], _: &[W]) -> [W; 3] {
        [x.shl(self.0), x.shr(self.0), x.sar(self.0)]
    }
}

/// A loop over as many words as a digit of a bit-sliced comparison has, with closures.
struct Tree;

impl WordKernel<12, 4> for Tree {
    fn name(&self) -> &'static str {
        "tree"
    }
    #[inline(always)]
    fn step<W: Word>(&self, x: [W; 12], _: &[W]) -> [W; 4] {
        std::array::from_fn(|i| {
            let [a, b, c] = [x[3 * i], x[3 * i + 1], x[3 * i + 2]];
            (0..3).fold(a ^ (b & c), |sum, k| sum ^ x[(5 * i + k) % 12].shr(k as u32 + 1))
        })
    }
}

#[test]
fn traces_mean_what_the_native_kernels_compute() {
    check_edges(&Add, 0).unwrap();
    check_edges(&Subtract, 0).unwrap();
    check_edges(&Multiply, 0).unwrap();
    check_edges(&Gates, 0).unwrap();
    check_edges(&Negate, 0).unwrap();
    check_edges(&Copy, 0).unwrap();
    check_edges(&Constants, 0).unwrap();
    check_edges(&Scale, 2).unwrap();
    check_edges(&ReplicatedProduct, 0).unwrap();
    check_edges(&Twice, 0).unwrap();
    check_edges(&Unused, 0).unwrap();
    check_edges(&Carry, 0).unwrap();
    check_edges(&Tree, 0).unwrap();
    for count in [0, 1, 31, 32, 33, 62, 63] {
        check_edges(&Shifts(count), 0).unwrap();
    }
}

#[test]
fn equal_operations_are_recorded_once() {
    let trace = Trace::record(&Twice, 0);
    let sums = trace.nodes().iter().filter(|node| matches!(node, Node::Binary(Binary::Add, ..)));
    assert_eq!((sums.count(), trace.nodes().len()), (1, 5));
}

#[test]
fn operands_come_before_what_uses_them() {
    let trace = Trace::record(&Tree, 0);
    for (i, node) in trace.nodes().iter().enumerate() {
        match *node {
            Node::Binary(_, x, y) => assert!((x.0 as usize) < i && (y.0 as usize) < i),
            Node::Shift(_, x, _) | Node::Unary(_, x) => assert!((x.0 as usize) < i),
            Node::Input(_) | Node::Param(_) | Node::Constant(_) => {}
        }
    }
    assert!(trace.outputs().iter().all(|output| (output.0 as usize) < trace.nodes().len()));
}
