//! Convolutions by tiles against the dullest possible model, on every instruction set.

use super::super::conv::Sizes;
use super::super::tests::{check_conv_as, tensor};
use super::super::{Form, run_as};
use super::{Correlation, Plan};
use crate::{Bilinear, ConvSpec, CpuEngine, Isa, Kind, Window};

/// Plenty of room: one block.
const ONE: usize = 1 << 20;

/// A convolution and its gradients by tiles, in one block and in many.
fn check(taps: [usize; 2], spec: ConvSpec, input: [usize; 4], outputs: usize) {
    for words in [ONE, 1] {
        check_conv_as(Form::Tiles(taps, words), spec, input, outputs);
    }
}

/// A square kernel with a border as wide as keeps the size.
fn same(kernel: usize) -> Window {
    let (before, after) = ((kernel - 1) / 2, kernel / 2);
    Window::new([kernel; 2], [1, 1]).padded([before, before, after, after])
}

#[test]
fn every_algorithm_matches_the_model_around_the_borders_of_tiles() {
    for r in 2..=5 {
        for size in [1, r - 1, r, r + 1, 2 * r, 2 * r + 1] {
            check([r, r], ConvSpec::new(same(r)), [1, 2, size, size + 1], 3);
        }
    }
}

#[test]
fn algorithms_of_two_kinds_match_the_model() {
    for y in 1..=5 {
        for x in 1..=5 {
            let window = Window::new([y, x], [1, 1]).padded([y / 2, x / 2, y / 2, x / 2]);
            check([y, x], ConvSpec::new(window), [1, 2, 7, 8], 2);
        }
    }
}

#[test]
fn kernels_longer_and_shorter_than_the_algorithm_match_the_model() {
    for kernel in [1, 2, 4, 5, 7] {
        check([3, 2], ConvSpec::new(same(kernel)), [1, 2, 8, 9], 2);
        check([4, 5], ConvSpec::new(same(kernel)), [1, 1, 8, 9], 2);
    }
    let long = Window::new([1, 13], [1, 2]).padded([0, 6, 0, 6]);
    check([1, 4], ConvSpec::new(long), [2, 2, 1, 40], 3);
}

#[test]
fn strides_match_the_model() {
    for stride in [[1, 2], [2, 2], [3, 2], [4, 4], [5, 6]] {
        let window = Window { stride, ..Window::new([5, 4], [1, 1]) };
        check([2, 3], ConvSpec::new(window), [2, 2, 17, 14], 3);
        check([3, 2], ConvSpec::new(window.padded([2, 1, 0, 3])), [1, 2, 12, 13], 3);
    }
    let alexnet = Window::new([11, 11], [4, 4]).padded([2; 4]);
    check([3, 3], ConvSpec::new(alexnet), [1, 3, 31, 31], 5);
    // A stride beyond the kernel leaves inputs that no tap reaches.
    let sparse = Window::new([2, 2], [5, 3]).padded([1, 0, 4, 4]);
    check([2, 2], ConvSpec::new(sparse), [1, 2, 13, 11], 3);
}

#[test]
fn uneven_and_wide_borders_match_the_model() {
    for padding in [[0, 1, 2, 0], [2, 0, 1, 3], [4, 4, 4, 4], [0; 4]] {
        check([3, 3], ConvSpec::new(Window::new([3, 3], [1, 1]).padded(padding)), [1, 2, 5, 6], 3);
    }
}

#[test]
fn groups_and_batches_match_the_model() {
    for (groups, c, o) in [(1, 9, 17), (2, 8, 10), (4, 16, 16)] {
        check([3, 3], ConvSpec { window: same(3), groups }, [3, c, 5, 7], o);
    }
    check([3, 3], ConvSpec::new(same(3)), [9, 4, 3, 5], 20);
    check([2, 2], ConvSpec::new(same(2)), [40, 1, 2, 3], 4);
}

#[test]
fn products_wider_than_panels_match_the_model() {
    check([3, 3], ConvSpec::new(same(3)), [1, 35, 7, 34], 19);
    check([5, 5], ConvSpec::new(same(5)), [2, 3, 13, 22], 9);
}

#[test]
fn layers_of_networks_are_the_same_in_both_forms() {
    let layers = [(same(3), [2, 64, 27, 28], 72), (same(5), [1, 40, 27, 27], 96)];
    for (window, input, outputs) in layers {
        let [kh, kw] = window.kernel;
        let op = Bilinear::Conv(ConvSpec::new(window));
        let [x, w] = [tensor(1, &input), tensor(2, &[outputs, input[1], kh, kw])];
        for isa in Isa::supported() {
            let [one, two] = [1, 2].map(|threads| CpuEngine::with_isa(isa, threads));
            let direct = run_as(&two, Form::Direct, &op, &[(&x, &w), (&x, &w)], &[]).unwrap();
            for engine in [one, two] {
                let best = run_as(&engine, Form::Best, &op, &[(&x, &w), (&x, &w)], &[]).unwrap();
                assert!(best.words() == direct.words(), "{engine:?} {input:?}");
            }
        }
    }
}

/// The taps of the algorithms planned for a square layer with two terms, on AVX-512.
fn planned(window: Window, [n, c, size]: [usize; 3], outputs: usize) -> Option<[usize; 2]> {
    let isa = Isa::supported().into_iter().find(|isa| isa.kind() == Kind::Avx512)?;
    let spec = ConvSpec::new(window);
    let [height, width] = window.positions([size; 2]).unwrap();
    let sizes = Sizes::new(&spec, &[n, c, size, size], &[n, outputs, height, width]);
    let tiled = Correlation::forward(&spec, &sizes).unwrap();
    let plan = Plan::choose(isa, &tiled, 2)?;
    Some(plan.axes.map(|axis| axis.algorithm.taps()))
}

#[test]
fn tiles_are_planned_where_they_pay() {
    if !Isa::supported().iter().any(|isa| isa.kind() == Kind::Avx512) {
        return;
    }
    assert_eq!(planned(same(3), [1, 64, 56], 64), Some([3, 3]));
    assert_eq!(planned(same(5), [1, 64, 27], 192), Some([5, 5]));
    // Few tiles: the weights take more time than the products.
    assert_eq!(planned(same(3), [1, 512, 4], 512), None);
    assert_eq!(planned(same(3), [1, 512, 7], 512), None);
    assert_eq!(planned(same(1), [1, 64, 56], 64), None);
}

#[test]
fn dilated_kernels_and_gradients_of_strided_ones_have_no_tiles() {
    let dilated = ConvSpec::new(Window { dilation: [1, 2], ..same(3) });
    let strided = ConvSpec::new(Window { stride: [2, 1], ..same(3) });
    let sizes = |spec: &ConvSpec| Sizes::new(spec, &[1, 2, 9, 9], &[1, 2, 5, 9]);
    assert!(Correlation::forward(&dilated, &sizes(&dilated)).is_none());
    assert!(Correlation::forward(&strided, &sizes(&strided)).is_some());
    assert!(Correlation::input_grad(&strided, &sizes(&strided)).is_none());
}
