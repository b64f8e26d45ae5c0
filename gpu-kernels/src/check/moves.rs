//! Views, concatenation, sums and bit planes.

use std::sync::Arc;

use ring_arith::{Engine, Result, Shape, View, Window};

use super::{Pair, same, tensor};

pub(super) fn views(pair: &Pair) -> Result<()> {
    let window = Window { kernel: [3, 2], stride: [2, 1], padding: [1, 0, 2, 1], dilation: [1, 2] };
    let mut cases = vec![
        (vec![6, 4], View::Reshape(Shape::new([3, 8])?)),
        (vec![5, 3, 4], View::Permute(vec![2, 0, 1])),
        (vec![2, 3, 4, 5], View::Permute(vec![0, 2, 3, 1])),
        (vec![7, 70], View::Permute(vec![1, 0])),
        (vec![9, 4], View::Slice { axis: 0, start: 2, end: 7, step: 1 }),
        (vec![9, 4], View::Slice { axis: 0, start: 1, end: 9, step: 3 }),
        (vec![3, 9, 2], View::Slice { axis: 1, start: 1, end: 8, step: 2 }),
        (vec![3, 9], View::Slice { axis: 1, start: 4, end: 5, step: 1 }),
        (vec![3, 5, 2], View::Gather { axis: 1, indices: Arc::from([4, 0, 0, 3]) }),
        (vec![3, 5], View::Pad { before: vec![1, 2], after: vec![0, 3], value: 42 }),
        (vec![3, 1, 2], View::Broadcast(Shape::new([4, 3, 5, 2])?)),
        (vec![], View::Broadcast(Shape::new([3, 2])?)),
        (vec![2, 3, 7, 6], View::Windows(window)),
        (vec![1, 1, 5, 5], View::Windows(Window::new([2, 2], [1, 1]))),
        (vec![0, 4], View::Permute(vec![1, 0])),
    ];
    if pair.full() {
        cases.extend([
            (vec![64, 257, 129], View::Permute(vec![2, 0, 1])),
            (vec![300, 7001], View::Slice { axis: 1, start: 3, end: 6999, step: 2 }),
            (vec![8, 64, 57, 55], View::Windows(window)),
        ]);
    }
    for (dims, view) in cases {
        let x = tensor(&dims, 1)?;
        same!(pair, format!("{view:?} of {dims:?}"), |e| {
            let x = e.upload(x.clone())?;
            e.view(&x, &view)?
        });
    }
    Ok(())
}

pub(super) fn concat(pair: &Pair) -> Result<()> {
    let (x, y) = (tensor(&[6, 3, 4], 2)?, tensor(&[6, 2, 4], 3)?);
    same!(pair, "slice, then concatenate, then permute", |e| {
        let (x, y) = (e.upload(x.clone())?, e.upload(y.clone())?);
        let half = View::Slice { axis: 0, start: 2, end: 5, step: 1 };
        let (x, y) = (e.view(&x, &half)?, e.view(&y, &half)?);
        let both = e.concat(&[&x, &y, &x], 1)?;
        e.view(&both, &View::Permute(vec![1, 2, 0]))?
    });
    Ok(())
}

pub(super) fn sums(pair: &Pair) -> Result<()> {
    let mut shapes = vec![vec![3, 4, 5], vec![2, 1, 3, 4], vec![3000], vec![2, 1500], vec![70, 2]];
    if pair.full() {
        shapes.extend([vec![1_000_003], vec![300, 3001], vec![31, 40, 50, 17]]);
    }
    for dims in shapes {
        let x = tensor(&dims, 4)?;
        for choice in 0..1usize << dims.len() {
            let axes: Vec<usize> = (0..dims.len()).filter(|i| choice >> i & 1 == 1).collect();
            same!(pair, format!("sum over {axes:?} of {dims:?}"), |e| {
                let x = e.upload(x.clone())?;
                e.sum(&x, &axes)?
            });
        }
    }
    Ok(())
}

pub(super) fn window_sums(pair: &Pair) -> Result<()> {
    let ragged = Window { kernel: [3, 3], stride: [1, 2], padding: [1, 1, 1, 1], dilation: [2, 1] };
    let mut cases = vec![(vec![2, 3, 6, 7], Window::new([2, 2], [2, 2])), (vec![5, 9], ragged)];
    if pair.full() {
        cases.push((vec![16, 64, 57, 55], ragged));
    }
    for (dims, window) in cases {
        let x = tensor(&dims, 5)?;
        same!(pair, format!("{window:?}"), |e| {
            let x = e.upload(x.clone())?;
            e.window_sum(&x, &window)?
        });
    }
    Ok(())
}

pub(super) fn planes(pair: &Pair) -> Result<()> {
    let lengths: &[usize] =
        if pair.full() { &[1, 64, 65, 2100, 1_000_003] } else { &[1, 63, 64, 65, 200, 2100] };
    for &n in lengths {
        let x = tensor(&[n], 6)?;
        for (low, width) in [(0, 64), (0, 1), (63, 1), (5, 20), (44, 20), (1, 33)] {
            same!(pair, format!("planes {low}+{width} of {n}"), |e| {
                let x = e.upload(x.clone())?;
                e.to_planes(&x, low, width)?
            });
            same!(pair, format!("planes {low}+{width} of {n} and back"), |e| {
                let x = e.upload(x.clone())?;
                let planes = e.to_planes(&x, low, width)?;
                e.from_planes(&planes, low, &Shape::new([n])?)?
            });
        }
    }
    Ok(())
}
