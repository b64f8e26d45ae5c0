//! Views and concatenation against the word at each index.

use crate::common::{self, at, check, dims, engines, tensor};
use proptest::prelude::*;
use ring_arith::{Engine, EngineTensor, Error, Shape, Tensor, View, Window};

fn permutation(n: usize) -> impl Strategy<Value = Vec<usize>> {
    Just((0..n).collect::<Vec<_>>()).prop_shuffle()
}

proptest! {
    #[test]
    fn permute_exchanges_indices((dims, axes) in dims().prop_flat_map(|d| {
        let n = d.len();
        (Just(d), permutation(n))
    })) {
        let x = tensor(&dims);
        let out: Vec<_> = axes.iter().map(|&a| dims[a]).collect();
        check(&x.permute(&axes).unwrap(), &out, |index| {
            let mut source = vec![0; dims.len()];
            axes.iter().zip(index).for_each(|(&a, &i)| source[a] = i);
            at(&x, &source)
        });
    }

    #[test]
    fn large_transposes_agree_on_every_engine(
        rows in 1usize..90, cols in 1usize..90, outer in 1usize..4, inner in 1usize..3,
    ) {
        let dims = [outer, rows, cols, inner];
        let x = tensor(&dims);
        for engine in engines() {
            for axes in [vec![0, 2, 1, 3], vec![2, 1, 0, 3], vec![3, 2, 1, 0]] {
                let out: Vec<_> = axes.iter().map(|&a| dims[a]).collect();
                check(&engine.view(&x, &View::Permute(axes.clone())).unwrap(), &out, |index| {
                    let mut source = [0; 4];
                    axes.iter().zip(index).for_each(|(&a, &i)| source[a] = i);
                    at(&x, &source)
                });
            }
        }
    }

    #[test]
    fn slice_takes_every_step_th_index(
        dims in prop::collection::vec(0usize..7, 1..5),
        axis in any::<prop::sample::Index>(),
        bounds in any::<[prop::sample::Index; 2]>(),
        step in 1usize..4,
    ) {
        let axis = axis.index(dims.len());
        let [a, b] = bounds.map(|i| i.index(dims[axis] + 1));
        let (start, end) = (a.min(b), a.max(b));
        let x = tensor(&dims);
        let mut out = dims.clone();
        out[axis] = (start..end).step_by(step).count();
        check(&x.view(&View::Slice { axis, start, end, step }).unwrap(), &out, |index| {
            let mut source = index.to_vec();
            source[axis] = start + step * index[axis];
            at(&x, &source)
        });
    }

    #[test]
    fn gather_takes_the_named_indices(
        dims in prop::collection::vec(1usize..6, 1..4),
        axis in any::<prop::sample::Index>(),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..9),
    ) {
        let axis = axis.index(dims.len());
        let picks: Vec<_> = picks.iter().map(|i| i.index(dims[axis])).collect();
        let x = tensor(&dims);
        let mut out = dims.clone();
        out[axis] = picks.len();
        check(&x.gather(axis, &picks).unwrap(), &out, |index| {
            let mut source = index.to_vec();
            source[axis] = picks[index[axis]];
            at(&x, &source)
        });
    }

    #[test]
    fn pad_puts_a_border_around(
        sizes in prop::collection::vec((0usize..5, 0usize..3, 0usize..3), 0..5),
        value in any::<u64>(),
    ) {
        let dims: Vec<_> = sizes.iter().map(|s| s.0).collect();
        let before: Vec<_> = sizes.iter().map(|s| s.1).collect();
        let after: Vec<_> = sizes.iter().map(|s| s.2).collect();
        let out: Vec<_> = sizes.iter().map(|s| s.0 + s.1 + s.2).collect();
        let x = tensor(&dims);
        check(&x.pad(&before, &after, value).unwrap(), &out, |index| {
            let source: Option<Vec<_>> = (0..dims.len())
                .map(|i| index[i].checked_sub(before[i]).filter(|&at| at < dims[i]))
                .collect();
            source.map_or(value, |source| at(&x, &source))
        });
    }

    #[test]
    fn broadcast_repeats_axes_of_length_one(
        axes in prop::collection::vec((0usize..5, any::<bool>()), 0..4),
        fresh in prop::collection::vec(0usize..4, 0..3),
    ) {
        let dims: Vec<_> = axes.iter().map(|&(d, one)| if one { 1 } else { d }).collect();
        let out: Vec<_> = fresh.iter().copied().chain(axes.iter().map(|a| a.0)).collect();
        let x = tensor(&dims);
        check(&x.broadcast(&*out).unwrap(), &out, |index| {
            let tail = &index[fresh.len()..];
            let source: Vec<_> =
                dims.iter().zip(tail).map(|(&d, &i)| if d == 1 { 0 } else { i }).collect();
            at(&x, &source)
        });
    }

    #[test]
    fn windows_gather_the_words_under_each_position((window, size) in window()) {
        let [h, w] = size;
        let x = tensor(&[2, h, w]);
        let Some([oh, ow]) = window.positions(size) else {
            prop_assert!(x.windows(&window).is_err());
            return Ok(());
        };
        let [kh, kw] = window.kernel;
        check(&x.windows(&window).unwrap(), &[2, kh * kw, oh, ow], |index| {
            under(&x, &window, index[0], [index[1] / kw, index[1] % kw], [index[2], index[3]])
        });
    }

    #[test]
    fn window_sums_add_the_words_under_each_position((window, size) in window()) {
        let [h, w] = size;
        let x = tensor(&[3, h, w]);
        let Some([oh, ow]) = window.positions(size) else {
            prop_assert!(x.window_sum(&window).is_err());
            return Ok(());
        };
        let [kh, kw] = window.kernel;
        check(&x.window_sum(&window).unwrap(), &[3, oh, ow], |index| {
            (0..kh * kw).fold(0, |sum: u64, t| {
                let tap = [t / kw, t % kw];
                sum.wrapping_add(under(&x, &window, index[0], tap, [index[1], index[2]]))
            })
        });
    }

    #[test]
    fn concat_puts_tensors_behind_one_another(
        dims in prop::collection::vec(0usize..5, 1..4),
        axis in any::<prop::sample::Index>(),
        lengths in prop::collection::vec(0usize..4, 1..5),
    ) {
        let axis = axis.index(dims.len());
        let shape = |length| { let mut d = dims.clone(); d[axis] = length; d };
        let parts: Vec<_> = lengths.iter().map(|&l| tensor(&shape(l))).collect();
        let total = lengths.iter().sum();
        let joined = Tensor::concat(&parts.iter().collect::<Vec<_>>(), axis).unwrap();
        check(&joined, &shape(total), |index| {
            let (mut part, mut source) = (0, index.to_vec());
            while source[axis] >= lengths[part] {
                source[axis] -= lengths[part];
                part += 1;
            }
            at(&parts[part], &source)
        });
    }

    #[test]
    fn sum_adds_over_the_named_axes(dims in dims(), chosen in any::<u8>()) {
        let axes: Vec<_> = (0..dims.len()).filter(|i| chosen >> i & 1 == 1).collect();
        let x = tensor(&dims);
        let out: Vec<_> =
            (0..dims.len()).map(|i| if axes.contains(&i) { 1 } else { dims[i] }).collect();
        let mut model = vec![0u64; out.iter().product()];
        for position in 0..x.len() {
            let mut index = common::index(&dims, position);
            axes.iter().for_each(|&a| index[a] = 0);
            let to = index.iter().zip(&out).fold(0, |at, (i, d)| at * d + i);
            model[to] = model[to].wrapping_add(x.words()[position]);
        }
        let sum = x.sum(&axes).unwrap();
        prop_assert_eq!(sum.shape().dims(), out);
        prop_assert_eq!(sum.words(), model);
    }
}

fn window() -> impl Strategy<Value = (Window, [usize; 2])> {
    let two = |low, high| [low..high, low..high];
    (two(1usize, 4), two(1usize, 4), [0usize..4, 0..4, 0..4, 0..4], two(1usize, 4), two(0usize, 9))
        .prop_map(|(kernel, stride, padding, dilation, size)| {
            (Window { kernel, stride, padding, dilation }, size)
        })
}

/// The word that a tap reads at a position, 0 in the border.
fn under(x: &Tensor, window: &Window, image: usize, tap: [usize; 2], position: [usize; 2]) -> u64 {
    let size = &x.shape().dims()[1..];
    let coordinate = |i: usize| {
        let padded = position[i] * window.stride[i] + tap[i] * window.dilation[i];
        padded.checked_sub(window.padding[i]).filter(|&at| at < size[i])
    };
    match [coordinate(0), coordinate(1)] {
        [Some(y), Some(z)] => at(x, &[image, y, z]),
        _ => 0,
    }
}

#[test]
fn outermost_slices_and_reshapes_share_their_words() {
    let x = tensor(&[4, 3, 5]);
    let slice = x.slice(0, 1, 3).unwrap();
    assert_eq!(slice.words().as_ptr(), x.words()[15..].as_ptr());
    let inner = tensor(&[1, 8, 2]).slice(1, 2, 4).unwrap();
    assert_eq!(inner.shape().dims(), [1, 2, 2]);
    assert_eq!(x.reshape([60]).unwrap().words().as_ptr(), x.words().as_ptr());
    assert_eq!(x.permute(&[0, 1, 2]).unwrap().words().as_ptr(), x.words().as_ptr());
}

#[test]
fn large_moves_and_sums_agree_on_every_engine() {
    let x = tensor(&[3, 70, 300]);
    let reference = &engines()[0];
    let window = Window::new([3, 2], [2, 3]).padded([1, 1, 1, 1]);
    let views = [
        View::Slice { axis: 2, start: 3, end: 299, step: 2 },
        View::Gather { axis: 1, indices: (0..200).map(|i| i * 7 % 70).collect() },
        View::Pad { before: vec![1, 2, 3], after: vec![0, 1, 4], value: 9 },
        View::Broadcast(Shape::new([2, 3, 70, 300]).unwrap()),
        View::Windows(window),
    ];
    for engine in engines() {
        for view in &views {
            assert_eq!(engine.view(&x, view).unwrap(), reference.view(&x, view).unwrap());
        }
        for axes in [&[0][..], &[1], &[2], &[0, 2], &[0, 1, 2]] {
            assert_eq!(engine.sum(&x, axes).unwrap(), reference.sum(&x, axes).unwrap());
        }
        let sums = [&engine, reference].map(|e| e.window_sum(&x, &window).unwrap());
        assert_eq!(sums[0], sums[1]);
        let joined = [&engine, reference].map(|e| e.concat(&[&x, &x, &x], 1).unwrap());
        assert_eq!(joined[0], joined[1]);
    }
}

#[test]
fn stack_adds_an_axis() {
    let (x, y) = (tensor(&[2, 3]), Tensor::zeros(Shape::new([2, 3]).unwrap()));
    let stacked = Tensor::stack(&[&x, &y], 1).unwrap();
    check(&stacked, &[2, 2, 3], |i| if i[1] == 0 { at(&x, &[i[0], i[2]]) } else { 0 });
    assert!(Tensor::stack(&[&x, &y], 3).is_err());
    assert!(Tensor::stack(&[], 0).is_err());
}

#[test]
fn views_that_do_not_fit_are_refused_with_their_facts() {
    let x = tensor(&[2, 3]);
    let refused = |result: Result<Tensor, Error>, word: &str| {
        let text = result.unwrap_err().to_string();
        assert!(text.contains(word), "{text:?} does not say {word:?}");
    };
    refused(x.reshape([5]), "reshape");
    refused(x.permute(&[0, 0]), "[0, 0]");
    refused(x.permute(&[0]), "permute");
    refused(x.permute(&[0, 2]), "permute");
    refused(x.slice(2, 0, 1), "axis 2");
    refused(x.slice(1, 2, 1), "2..1");
    refused(x.slice(1, 0, 4), "0..4");
    refused(x.view(&View::Slice { axis: 0, start: 0, end: 1, step: 0 }), "by 0");
    refused(x.gather(1, &[0, 3]), "index 3");
    refused(x.pad(&[1], &[0, 0], 0), "pad");
    refused(x.pad(&[usize::MAX, 0], &[1, 0], 0), "too many");
    refused(x.broadcast([3, 3]), "broadcast");
    refused(x.broadcast([3]), "broadcast");
    refused(x.windows(&Window::new([3, 1], [1, 1])), "windows");
    refused(x.windows(&Window { dilation: [0, 1], ..Window::new([1, 1], [1, 1]) }), "windows");
    refused(tensor(&[4]).window_sum(&Window::new([1, 1], [1, 1])), "window sum");
    refused(x.sum(&[1, 1]), "twice");
    refused(x.sum(&[2]), "axis 2");
    refused(Tensor::concat(&[], 0), "no tensors");
    refused(Tensor::concat(&[&x, &tensor(&[2, 4])], 0), "[2, 4]");
    refused(Tensor::concat(&[&x], 2), "axis 2");
}
