//! What the tests share: engines on every instruction set, and tensors of telling words.
#![allow(dead_code)] // each test binary uses its own part

use proptest::prelude::*;
use ring_arith::{CpuEngine, EngineTensor, Isa, Shape, Tensor};

/// An engine on every instruction set of this machine, with one thread and with three.
pub fn engines() -> Vec<CpuEngine> {
    let with = |isa| [CpuEngine::with_isa(isa, 1), CpuEngine::with_isa(isa, 3)];
    Isa::supported().into_iter().flat_map(with).collect()
}

/// A tensor of different words with bits everywhere.
pub fn tensor(dims: &[usize]) -> Tensor {
    Tensor::from_fn(Shape::new(dims).unwrap(), |i| mix(i as u64 + 1))
}

/// A bijection that spreads its argument over all bits.
pub fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Words with the edge values among them.
pub fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(u64::MAX),
        Just(1 << 63),
        Just((1 << 63) - 1),
        Just(0xffff_ffff),
        any::<u64>()
    ]
}

/// Dimensions of small tensors, empty ones and scalars included.
pub fn dims() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0usize..6, 0..5)
}

/// The index of row-major position `at`.
pub fn index(dims: &[usize], mut at: usize) -> Vec<usize> {
    let mut index = vec![0; dims.len()];
    for axis in (0..dims.len()).rev() {
        index[axis] = at % dims[axis];
        at /= dims[axis];
    }
    index
}

/// The word at an index.
pub fn at(tensor: &Tensor, index: &[usize]) -> u64 {
    let strides = tensor.shape().strides();
    tensor.words()[index.iter().zip(strides).map(|(i, s)| i * s).sum::<usize>()]
}

/// Checks shape and every word against a model of the word at an index.
pub fn check(result: &Tensor, dims: &[usize], model: impl Fn(&[usize]) -> u64) {
    assert_eq!(result.shape().dims(), dims);
    for (position, &word) in result.words().iter().enumerate() {
        let index = index(dims, position);
        assert_eq!(word, model(&index), "at {index:?} of {dims:?}");
    }
}
