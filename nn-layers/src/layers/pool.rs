//! Pooling of `[.., H, W]`.

use super::Layer;
use crate::{Error, Graph, HostTensor, Op, Pool, Reduce, Result, ValueId};

/// The mean under each position of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AvgPool {
    /// The window.
    pub pool: Pool,
    /// True if the zeros of the border count.
    pub count_border: bool,
}

/// The largest element under each position of a window; borders never win.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaxPool(pub Pool);

/// The mean of each channel of `[N, C, ..]`, as `[N, C]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GlobalAvgPool;

/// Means over windows such that the result has the given height and width: window `i` of `n` reaches
/// from `floor(i * size / n)` to `ceil((i + 1) * size / n)`, as in PyTorch.
///
/// # Cost
/// That of [`AvgPool`] if the size is a multiple; else two products with public matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdaptiveAvgPool(pub [usize; 2]);

impl Layer for AvgPool {
    fn forward(&self, graph: &mut Graph, name: &str, x: ValueId) -> Result<ValueId> {
        let Self { pool, count_border } = *self;
        graph.add(name, Op::AvgPool { pool, count_border }, &[x])
    }
}

impl Layer for MaxPool {
    fn forward(&self, graph: &mut Graph, name: &str, x: ValueId) -> Result<ValueId> {
        graph.add(name, Op::MaxPool(self.0), &[x])
    }
}

impl Layer for GlobalAvgPool {
    fn forward(&self, graph: &mut Graph, name: &str, x: ValueId) -> Result<ValueId> {
        let axes = (2..graph.shape(x).rank()).collect();
        graph.add(name, Op::Reduce { kind: Reduce::Mean, axes, keep: false }, &[x])
    }
}

impl Layer for AdaptiveAvgPool {
    fn forward(&self, graph: &mut Graph, name: &str, x: ValueId) -> Result<ValueId> {
        let [height, width] = self.0;
        let &[.., h, w] = graph.shape(x).dims() else {
            let reason = format!("{:?} is not [.., H, W]", graph.shape(x));
            return Err(Error::Node { node: name.to_owned(), reason });
        };
        if [height, width, h, w].contains(&0) {
            let reason = format!("{h} x {w} cannot be pooled to {height} x {width}");
            return Err(Error::Node { node: name.to_owned(), reason });
        }
        if h % height == 0 && w % width == 0 {
            let size = [h / height, w / width];
            return AvgPool { pool: Pool::new(size, size), count_border: true }
                .forward(graph, name, x);
        }
        let x = along_rows(graph, name, x, means(w, width)?)?;
        let x = turned(graph, name, x)?;
        let x = along_rows(graph, name, x, means(h, height)?)?;
        turned(graph, name, x)
    }
}

/// The matrix `[size, count]` whose columns take the mean of each window.
fn means(size: usize, count: usize) -> Result<HostTensor> {
    let mut values = vec![0.0; size * count];
    for i in 0..count {
        let (start, end) = (i * size / count, ((i + 1) * size).div_ceil(count));
        for j in start..end {
            values[j * count + i] = 1.0 / (end - start) as f64;
        }
    }
    HostTensor::new([size, count], values)
}

fn along_rows(graph: &mut Graph, name: &str, x: ValueId, matrix: HostTensor) -> Result<ValueId> {
    let matrix = graph.public(&format!("{name}.means"), matrix);
    let op = Op::MatMul { transpose_lhs: false, transpose_rhs: false };
    graph.add(name, op, &[x, matrix])
}

/// The last two axes exchanged.
fn turned(graph: &mut Graph, name: &str, x: ValueId) -> Result<ValueId> {
    let rank = graph.shape(x).rank();
    let axes = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
    graph.add(name, Op::Permute(axes), &[x])
}
