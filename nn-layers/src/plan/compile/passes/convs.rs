//! Convolutions on small images: avoids work on borders, and on windows where a product is enough.

use crate::Result;
use crate::graph::eval::views;
use crate::graph::{Dim, Graph, Kernel, Linear, LinearMap, Op, Pool, ValueId};

/// Drops the kernel's rows and columns that only ever cover the border.
pub(crate) fn crop_kernels(graph: &mut Graph) -> Result<()> {
    for i in 0..graph.nodes.len() {
        let node = graph.nodes[i].clone();
        let Op::Linear(Linear { map: LinearMap::Conv(kernel), .. }) = &node.op else { continue };
        let kernel = *kernel;
        let Some(weight) = graph.constant_value(node.inputs[1]) else { continue };
        let &[_, _, h, w] = graph.shape(node.inputs[0]).dims() else { continue };
        let &[_, _, oh, ow] = node.shape.dims() else { continue };
        let (rows, cols) = (live(&kernel, 0, h, oh), live(&kernel, 1, w, ow));
        let (Some(rows), Some(cols)) = (rows, cols) else { continue };
        if rows.len == kernel.window.size[0] && cols.len == kernel.window.size[1] {
            continue;
        }
        let weight = views::slice(weight, 2, rows.first, rows.first + rows.len, 1)?;
        let weight = views::slice(&weight, 3, cols.first, cols.first + cols.len, 1)?;
        let window = Pool {
            size: [rows.len, cols.len],
            padding: [rows.before, cols.before, rows.after, cols.after],
            ..kernel.window
        };
        if window.window().positions([h, w]) != Some([oh, ow]) {
            continue;
        }
        let name = graph.constant_of(node.inputs[1]).map_or(String::new(), |c| c.name.clone());
        let weight = graph.weight(&name, weight);
        let Op::Linear(linear) = node.op else { unreachable!("matched above") };
        let map = LinearMap::Conv(Kernel { window, ..kernel });
        let mut inputs = node.inputs;
        inputs[1] = weight;
        graph.rewrite(ValueId(i), Op::Linear(Linear { map, ..linear }), inputs);
    }
    Ok(())
}

/// The part of a kernel along one axis that covers the image, and the border it then needs.
struct Live {
    first: usize,
    len: usize,
    before: usize,
    after: usize,
}

fn live(kernel: &Kernel, axis: usize, size: usize, positions: usize) -> Option<Live> {
    let w = &kernel.window;
    let (k, s, d, pad) = (w.size[axis], w.stride[axis], w.dilation[axis], w.padding[axis]);
    if d != 1 {
        return None;
    }
    let meets = |tap: usize| (0..positions).any(|o| (pad..pad + size).contains(&(o * s + tap)));
    let first = (0..k).find(|&t| meets(t))?;
    let last = (0..k).rfind(|&t| meets(t))?;
    let len = last + 1 - first;
    let before = pad.checked_sub(first)?;
    let after = ((positions - 1) * s + len).saturating_sub(size + before);
    Some(Live { first, len, before, after })
}

/// A convolution whose kernel covers the image once is a matrix product.
pub(crate) fn full_kernels_to_products(graph: &mut Graph) -> Result<()> {
    for i in 0..graph.nodes.len() {
        let node = graph.nodes[i].clone();
        let Op::Linear(linear) = node.op.clone() else { continue };
        let LinearMap::Conv(kernel) = linear.map else { continue };
        let x = node.inputs[0];
        let &[_, c, h, w] = graph.shape(x).dims() else { continue };
        let window = kernel.window;
        let full = window.size == [h, w] && window.padding == [0; 4] && kernel.groups == 1;
        let bias = node.inputs.get(2).filter(|_| linear.bias);
        let added = linear.residual || !linear.more.is_empty();
        if !full || added || bias.is_some_and(|&b| graph.constant_value(b).is_none()) {
            continue;
        }
        let Some(weight) = graph.constant_value(node.inputs[1]) else { continue };
        let outputs = weight.dims()[0];
        let weight = weight.reshape([outputs, c * h * w])?;
        let name = graph.constant_of(node.inputs[1]).map_or(String::new(), |k| k.name.clone());
        let mut inputs = vec![flatten(graph, x, c * h * w)?, graph.weight(&name, weight)];
        if linear.bias {
            let bias = graph.constant_value(node.inputs[2]).expect("a bias is constant").clone();
            let bias = if bias.len() == 1 { bias.reshape([1])? } else { bias.reshape([outputs])? };
            inputs.push(graph.weight(&format!("{}.bias", node.name), bias));
        }
        let map = LinearMap::MatMul { transpose_lhs: false, transpose_rhs: true };
        let flat = graph.add(&node.name, Op::Linear(Linear { map, ..linear }), &inputs)?;
        let dims = vec![Dim::Rest, Dim::Fixed(outputs), Dim::Fixed(1), Dim::Fixed(1)];
        let back = graph.add(&node.name, Op::Reshape(dims), &[flat])?;
        graph.replace(ValueId(i), back);
    }
    graph.sweep();
    Ok(())
}

/// `[N, ..]` as `[N, features]`, past an earlier change of shape.
fn flatten(graph: &mut Graph, x: ValueId, features: usize) -> Result<ValueId> {
    let node = &graph.nodes[x.0];
    let (name, source) = match node.op {
        Op::Reshape(_) if graph.shape(node.inputs[0]).dims().get(1..) == Some(&[features]) => {
            return Ok(node.inputs[0]);
        }
        _ => (node.name.clone(), x),
    };
    graph.add(&name, Op::Reshape(vec![Dim::Rest, Dim::Fixed(features)]), &[source])
}
