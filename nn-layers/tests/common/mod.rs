//! Helpers of the tests: random weights, small networks.
#![allow(dead_code)] // each test file uses its own part

pub mod training;

use nn_layers::train::{TrainOptions, TrainPlan};
use nn_layers::{Dim, Graph, HostTensor, Kernel, Op, Pool, Unary, ValueId};

/// A replayable source of numbers (SplitMix64).
pub struct Random(pub u64);

impl Random {
    /// A number in `[-1, 1)`.
    pub fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) as i64 as f64) / 2f64.powi(63)
    }

    /// A tensor of numbers in `[-scale, scale)`.
    pub fn tensor(&mut self, dims: &[usize], scale: f64) -> HostTensor {
        let values = (0..dims.iter().product()).map(|_| self.next() * scale).collect();
        HostTensor::new(dims, values).unwrap()
    }
}

/// Plans a training of all weights of the network that `build` makes for an input of shape `dims`, without the
/// batch. Returns the state at its start and the result's shape as well.
pub fn planned(
    batch: usize,
    dims: &[usize],
    options: &TrainOptions,
    r: &mut Random,
    build: impl Fn(&mut Graph, &mut Random, ValueId) -> ValueId,
) -> (TrainPlan, Vec<HostTensor>, Vec<usize>) {
    let mut graph = Graph::new(batch);
    let own: Vec<_> = dims.iter().map(|&d| Dim::Fixed(d)).collect();
    let x = graph.input("x", &[&[Dim::Batch(1)], &own[..]].concat()).unwrap();
    let y = build(&mut graph, r, x);
    graph.train(|_| true);
    let result = graph.shape(y).dims().to_vec();
    let (plan, start) = TrainPlan::new(&graph, y, options).unwrap();
    (plan, start, result)
}

pub fn image(g: &mut Graph, c: usize, size: usize) -> ValueId {
    let dims = [Dim::Batch(1), Dim::Fixed(c), Dim::Fixed(size), Dim::Fixed(size)];
    g.input("image", &dims).unwrap()
}

/// A convolution with a bias, as an importer adds it.
pub fn conv(
    g: &mut Graph,
    r: &mut Random,
    x: ValueId,
    name: &str,
    o: usize,
    window: Pool,
) -> ValueId {
    let c = g.shape(x).dims()[1];
    let taps = (c * window.taps()) as f64;
    let w = r.tensor(&[o, c, window.size[0], window.size[1]], (3.0 / taps).sqrt());
    let w = g.weight(&format!("{name}.weight"), w);
    let y = g.add(name, Op::Conv(Kernel::new(window)), &[x, w]).unwrap();
    let b = r.tensor(&[o, 1, 1], 0.1);
    let b = g.weight(&format!("{name}.bias"), b);
    g.add(name, Op::Binary(nn_layers::Binary::Add), &[y, b]).unwrap()
}

pub fn relu(g: &mut Graph, x: ValueId) -> ValueId {
    g.add("relu", Op::Unary(Unary::Relu), &[x]).unwrap()
}

/// Batch normalisation as scale and shift.
pub fn norm(g: &mut Graph, r: &mut Random, x: ValueId, name: &str) -> ValueId {
    let c = g.shape(x).dims()[1];
    let scale = r.tensor(&[c, 1, 1], 0.4).map(|v| v + 1.0);
    let scale = g.weight(&format!("{name}.scale"), scale);
    let shift = g.weight(&format!("{name}.shift"), r.tensor(&[c, 1, 1], 0.2));
    let y = g.add(name, Op::Binary(nn_layers::Binary::Mul), &[x, scale]).unwrap();
    g.add(name, Op::Binary(nn_layers::Binary::Add), &[y, shift]).unwrap()
}

pub fn dense(g: &mut Graph, r: &mut Random, x: ValueId, name: &str, o: usize) -> ValueId {
    let k = *g.shape(x).dims().last().unwrap();
    let w = g.weight(&format!("{name}.weight"), r.tensor(&[o, k], (3.0 / k as f64).sqrt()));
    let op = Op::MatMul { transpose_lhs: false, transpose_rhs: true };
    let y = g.add(name, op, &[x, w]).unwrap();
    let b = g.weight(&format!("{name}.bias"), r.tensor(&[o], 0.1));
    g.add(name, Op::Binary(nn_layers::Binary::Add), &[y, b]).unwrap()
}

pub fn flatten(g: &mut Graph, x: ValueId) -> ValueId {
    let features = g.shape(x).dims()[1..].iter().product();
    g.add("flatten", Op::Reshape(vec![Dim::Rest, Dim::Fixed(features)]), &[x]).unwrap()
}

/// Largest difference of two tensors.
pub fn distance(x: &HostTensor, y: &HostTensor) -> f64 {
    assert_eq!(x.shape(), y.shape());
    let (a, b) = (x.floats(), y.floats());
    a.iter().zip(b.iter()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}
