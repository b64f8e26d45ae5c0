//! Every map against the dullest possible model, on every instruction set.

use super::*;
use crate::{AddendSource, ConvSpec, Generator, Shape, StreamKey, View, Window, cpu::moves};

/// Words that provoke carries, between pseudo-random ones.
fn words(seed: u64, len: usize) -> Vec<u64> {
    let edges = [0, 1, 1 << 63, u64::MAX, 0xff, 1 << 32, (1 << 32) - 1];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..len)
        .map(|_| match next() % 16 {
            i @ 0..7 => edges[i as usize],
            _ => next(),
        })
        .collect()
}

pub(super) fn tensor(seed: u64, dims: &[usize]) -> Tensor {
    let shape = Shape::new(dims).unwrap();
    let len = shape.len();
    Tensor::new(shape, words(seed, len)).unwrap()
}

fn engines() -> Vec<CpuEngine> {
    let sets = Isa::supported();
    sets.iter().flat_map(|isa| [1, 3].map(|threads| CpuEngine::with_isa(*isa, threads))).collect()
}

fn check(op: &Bilinear, lhs: &[usize], rhs: &[usize]) {
    check_as(Form::Best, op, lhs, rhs);
}

/// Compares all engines with the model, with one term, with two, and with addends of every kind.
pub(super) fn check_as(form: Form, op: &Bilinear, lhs: &[usize], rhs: &[usize]) {
    let terms = [(tensor(1, lhs), tensor(2, rhs)), (tensor(3, lhs), tensor(4, rhs))];
    let shape = op.output_shape(terms[0].0.shape(), terms[0].1.shape()).unwrap();
    let dims = shape.dims();
    let end = dims.len().saturating_sub(1);
    let (whole, last) = (tensor(5, dims), tensor(6, &dims[end..]));
    // A word for each index of the last axis but one, of the second, and of the first and the last.
    let at = |kept: &[usize]| {
        let len = |axis: usize| if kept.contains(&axis) { dims[axis] } else { 1 };
        tensor(7 + kept[0] as u64, &(0..dims.len()).map(len).collect::<Vec<_>>())
    };
    let repeated = [at(&[end.saturating_sub(1)]), at(&[1.min(end)]), at(&[0, end])];
    let biases = [&whole, &last, &repeated[0], &repeated[1], &repeated[2]];
    let wide = |bias: &Tensor| {
        moves::view(&CpuEngine::new(1), bias, &View::Broadcast(shape.clone())).unwrap()
    };
    let stream = StreamKey::new(Generator::Aes128Ctr, &[7; 32]).stream(9);
    let addend = |kind: usize| match kind {
        0..5 => Addend { source: AddendSource::Tensor(biases[kind]), negate: kind % 2 == 1 },
        _ => {
            let source = AddendSource::Stream { stream: &stream, first: 5 * kind as u64 };
            Addend { source, negate: kind == 5 }
        }
    };
    let all = [5, 0, 1, 6, 2, 3, 4];
    for (term_count, kinds) in [(1, &[][..]), (2, &all), (1, &[1]), (1, &[2]), (1, &[6]), (2, &[])]
    {
        let terms: Vec<_> = terms[..term_count].iter().map(|(x, y)| (x, y)).collect();
        let addends: Vec<_> = kinds.iter().map(|kind| addend(*kind)).collect();
        let mut expected = vec![0u64; shape.len()];
        for (x, y) in &terms {
            model(op, x, y, shape.dims(), &mut expected);
        }
        for addend in &addends {
            let mut words = vec![0; shape.len()];
            match addend.source {
                AddendSource::Tensor(t) => words.copy_from_slice(wide(t).words()),
                AddendSource::Stream { stream, first } => stream.fill(first, &mut words),
            }
            for (sum, word) in expected.iter_mut().zip(words) {
                let word = if addend.negate { word.wrapping_neg() } else { word };
                *sum = sum.wrapping_add(word);
            }
        }
        for engine in engines() {
            let result = run_as(&engine, form, op, &terms, &addends).unwrap();
            let wrong = result.words().iter().zip(&expected).position(|(a, b)| a != b);
            let case = format!("{engine:?} {form:?} {op:?} {lhs:?} {rhs:?} {term_count} {kinds:?}");
            assert_eq!(wrong, None, "{case}");
            assert_eq!(result.shape(), &shape);
        }
    }
}

/// Adds a map's products one by one.
fn model(op: &Bilinear, lhs: &Tensor, rhs: &Tensor, dims: &[usize], out: &mut [u64]) {
    let (x, y) = (lhs.words(), rhs.words());
    let mut add = |o: usize, i: usize, j: usize| {
        out[o] = out[o].wrapping_add(x[i].wrapping_mul(y[j]));
    };
    match op {
        Bilinear::Mul => (0..x.len()).for_each(|i| add(i, i, i)),
        Bilinear::MatMul { transpose_lhs, transpose_rhs } => {
            let last = |t: &Tensor| *t.shape().dims().last_chunk::<2>().unwrap();
            let [[x0, x1], [y0, y1]] = [last(lhs), last(rhs)];
            let (m, k) = if *transpose_lhs { (x1, x0) } else { (x0, x1) };
            let n = if *transpose_rhs { y0 } else { y1 };
            for b in 0..dims[..dims.len() - 2].iter().product() {
                let x_base = if lhs.shape().rank() > 2 { b * m * k } else { 0 };
                let y_base = if rhs.shape().rank() > 2 { b * n * k } else { 0 };
                for (i, j, l) in (0..m * n * k).map(|at| (at / (n * k), at / k % n, at % k)) {
                    let at_x = if *transpose_lhs { l * m + i } else { i * k + l };
                    let at_y = if *transpose_rhs { j * k + l } else { l * n + j };
                    add((b * m + i) * n + j, x_base + at_x, y_base + at_y);
                }
            }
        }
        Bilinear::Conv(spec) => {
            let (input, weight) = (lhs.shape().dims(), rhs.shape().dims());
            each_tap(spec, input, weight, dims, |i, w, o| add(o, i, w));
        }
        Bilinear::ConvInputGrad { spec, .. } => {
            let (grad, weight) = (lhs.shape().dims(), rhs.shape().dims());
            each_tap(spec, dims, weight, grad, |i, w, o| add(i, o, w));
        }
        Bilinear::ConvWeightGrad(spec) => {
            let (input, grad) = (lhs.shape().dims(), rhs.shape().dims());
            each_tap(spec, input, dims, grad, |i, w, o| add(w, i, o));
        }
    }
}

/// Calls `task` with the positions in input, weight and output of every product of a convolution.
fn each_tap(
    spec: &ConvSpec,
    input: &[usize],
    weight: &[usize],
    output: &[usize],
    mut task: impl FnMut(usize, usize, usize),
) {
    let (&[n, c, h, w], &[o, cg, kh, kw], &[_, _, oh, ow]) = (
        input.first_chunk::<4>().unwrap(),
        weight.first_chunk::<4>().unwrap(),
        output.first_chunk::<4>().unwrap(),
    );
    let Window { stride, padding, dilation, .. } = spec.window;
    let all = n * o * cg * kh * kw * oh * ow;
    for at in 0..all {
        let (x, y, at) = (at % ow, at / ow % oh, at / ow / oh);
        let (tx, ty, at) = (at % kw, at / kw % kh, at / kw / kh);
        let (ci, co, image) = (at % cg, at / cg % o, at / cg / o);
        let iy = (y * stride[0] + ty * dilation[0]).wrapping_sub(padding[0]);
        let ix = (x * stride[1] + tx * dilation[1]).wrapping_sub(padding[1]);
        if iy < h && ix < w {
            let channel = co / (o / spec.groups) * cg + ci;
            let from = ((image * c + channel) * h + iy) * w + ix;
            let tap = ((co * cg + ci) * kh + ty) * kw + tx;
            task(from, tap, ((image * o + co) * oh + y) * ow + x);
        }
    }
}

fn matmul(transpose_lhs: bool, transpose_rhs: bool) -> Bilinear {
    Bilinear::MatMul { transpose_lhs, transpose_rhs }
}

/// A matrix product in all four storage orders.
fn check_matmul(batch: [&[usize]; 2], m: usize, k: usize, n: usize) {
    for (tl, tr) in [(false, false), (false, true), (true, false), (true, true)] {
        let lhs = [batch[0], &if tl { [k, m] } else { [m, k] }].concat();
        let rhs = [batch[1], &if tr { [n, k] } else { [k, n] }].concat();
        check(&matmul(tl, tr), &lhs, &rhs);
    }
}

#[test]
fn elementwise_products_match_the_model() {
    for n in [0, 1, 7, 8, 9, 1023, 1024, 1025, 70_001] {
        check(&Bilinear::Mul, &[n], &[n]);
    }
    check(&Bilinear::Mul, &[], &[]);
}

#[test]
fn matrix_products_match_the_model_around_tile_borders() {
    for m in [1, 2, 4, 5, 8, 9, 16, 17, 33] {
        for n in [1, 3, 8, 15, 16, 17, 24, 25, 49] {
            check_matmul([&[], &[]], m, 11, n);
        }
    }
}

#[test]
fn matrix_products_match_the_model_around_packing_borders() {
    for k in [0, 1, 8, 63, 64, 65, 255, 256, 257, 600] {
        check_matmul([&[], &[]], 7, k, 9);
    }
    check_matmul([&[], &[]], 70, 130, 260);
    check_matmul([&[], &[]], 131, 70, 65);
}

#[test]
fn thin_products_match_the_model() {
    for m in 1..=8 {
        check_matmul([&[], &[]], m, 1030, 70);
        check_matmul([&[], &[]], 70, 67, m);
    }
    check_matmul([&[], &[]], 1, 513, 1);
    check_matmul([&[], &[]], 2, 40, 2050);
}

#[test]
fn batches_match_the_model() {
    for batch in [[&[3][..], &[3][..]], [&[2, 2], &[2, 2]], [&[3], &[]], [&[], &[3]], [&[0], &[0]]]
    {
        check_matmul(batch, 9, 20, 18);
        check_matmul(batch, 1, 20, 18);
        check_matmul(batch, 20, 5, 2);
    }
}

#[test]
fn empty_matrices_give_empty_or_zero_results() {
    check_matmul([&[], &[]], 0, 3, 4);
    check_matmul([&[], &[]], 3, 4, 0);
    check_matmul([&[], &[]], 3, 0, 4);
}

#[test]
fn the_largest_words_do_not_overflow_accumulators() {
    // 16512 is the longest sum of four products of bytes that 32 bits hold.
    for k in [4096, 16_512, 16_513, 33_100] {
        let [lhs, rhs] = [[17, k], [k, 18]].map(|dims| {
            Tensor::new(Shape::new(dims).unwrap(), vec![u64::MAX; dims[0] * dims[1]]).unwrap()
        });
        for engine in engines() {
            let result = run(&engine, &Bilinear::MATMUL, &[(&lhs, &rhs)], &[]).unwrap();
            assert!(result.words().iter().all(|w| *w == k as u64), "{engine:?} {k}");
        }
    }
}

/// Checks a convolution and both gradients.
fn check_conv(spec: ConvSpec, input: [usize; 4], o: usize) {
    check_conv_as(Form::Best, spec, input, o);
}

/// The same in a given form.
pub(super) fn check_conv_as(form: Form, spec: ConvSpec, input: [usize; 4], o: usize) {
    let [n, c, h, w] = input;
    let [kh, kw] = spec.window.kernel;
    let weight = [o, c / spec.groups, kh, kw];
    let [oh, ow] = spec.window.positions([h, w]).unwrap();
    let output = [n, o, oh, ow];
    check_as(form, &Bilinear::Conv(spec), &input, &weight);
    check_as(form, &Bilinear::ConvInputGrad { spec, input: [h, w] }, &output, &weight);
    check_as(form, &Bilinear::ConvWeightGrad(spec), &input, &output);
}

#[test]
fn convolutions_match_the_model() {
    let same = Window::new([3, 3], [1, 1]).padded([1; 4]);
    check_conv(ConvSpec::new(same), [2, 3, 7, 9], 5);
    check_conv(ConvSpec::new(same), [1, 16, 14, 14], 17);
    check_conv(ConvSpec::new(Window::new([1, 1], [1, 1])), [3, 5, 4, 7], 6);
    check_conv(ConvSpec::new(Window::new([1, 1], [2, 2])), [2, 5, 7, 8], 6);
    check_conv(ConvSpec::new(Window::new([5, 5], [1, 1])), [1, 1, 12, 12], 6);
    check_conv(ConvSpec::new(Window::new([1, 5], [1, 3]).padded([0, 2, 0, 2])), [2, 2, 1, 40], 3);
}

#[test]
fn strides_dilations_and_uneven_borders_match_the_model() {
    for stride in [[1, 2], [2, 2], [3, 2], [4, 4]] {
        for dilation in [[1, 1], [2, 1], [2, 3]] {
            let window = Window { stride, dilation, ..Window::new([3, 3], [1, 1]) };
            check_conv(ConvSpec::new(window), [2, 3, 11, 10], 4);
            check_conv(ConvSpec::new(window.padded([2, 1, 0, 3])), [1, 2, 9, 8], 3);
        }
    }
    // A stride beyond the kernel leaves inputs that no tap reaches.
    let sparse = Window::new([2, 2], [5, 3]).padded([1, 0, 4, 4]);
    check_conv(ConvSpec::new(sparse), [2, 2, 13, 11], 3);
    // A border wider than the input.
    check_conv(ConvSpec::new(Window::new([3, 3], [2, 2]).padded([4; 4])), [1, 2, 2, 3], 3);
}

#[test]
fn groups_match_the_model() {
    let window = Window::new([3, 3], [1, 1]).padded([1; 4]);
    let strided = Window { stride: [2, 2], dilation: [2, 1], ..window };
    for window in [window, strided] {
        for (groups, c, o) in [(6, 6, 6), (4, 4, 8), (3, 6, 3), (2, 8, 10), (4, 16, 16)] {
            check_conv(ConvSpec { window, groups }, [2, c, 8, 9], o);
        }
    }
}

#[test]
fn many_images_share_one_product() {
    let window = Window::new([3, 3], [1, 1]).padded([1; 4]);
    check_conv(ConvSpec::new(window), [9, 4, 3, 5], 20);
}

#[test]
fn gradients_that_are_added_up_afterwards_match_the_model() {
    let plain = Window::new([3, 3], [1, 1]);
    let wide = Window::new([4, 2], [2, 2]).padded([1, 0, 2, 1]);
    let spread = Window { stride: [1, 3], dilation: [2, 1], ..plain }.padded([2, 2, 0, 3]);
    for window in [plain, plain.padded([1; 4]), wide, spread] {
        for (groups, c, o) in [(1, 5, 7), (2, 8, 10)] {
            let spec = ConvSpec { window, groups };
            let [oh, ow] = window.positions([7, 9]).unwrap();
            let weight = [o, c / groups, window.kernel[0], window.kernel[1]];
            let op = Bilinear::ConvInputGrad { spec, input: [7, 9] };
            // All images at once, and each alone.
            for budget in [1 << 20, 1] {
                check_as(Form::Fold(budget), &op, &[3, o, oh, ow], &weight);
            }
        }
    }
}

#[test]
fn weight_gradients_as_dot_products_match_the_model() {
    let plain = Window::new([3, 3], [1, 1]);
    let wide = Window::new([4, 2], [2, 2]).padded([1, 0, 2, 1]);
    let spread = Window { stride: [1, 3], dilation: [2, 1], ..plain }.padded([2, 2, 0, 3]);
    let one = Window::new([1, 1], [1, 1]);
    for window in [plain, plain.padded([1; 4]), wide, spread, one] {
        let spec = ConvSpec::new(window);
        for (input, o) in [([2, 5, 7, 9], 7), ([1, 2, 27, 31], 2)] {
            let [oh, ow] = window.positions([input[2], input[3]]).unwrap();
            check_as(Form::Dots, &Bilinear::ConvWeightGrad(spec), &input, &[input[0], o, oh, ow]);
        }
    }
}

#[test]
fn few_positions_match_the_model() {
    let same = Window::new([3, 3], [1, 1]).padded([1; 4]);
    let halved = Window { stride: [2, 2], ..same };
    for (window, input, o) in [
        (same, [1, 70, 4, 4], 65),
        (same, [1, 9, 4, 5], 80),
        (same, [1, 60, 2, 2], 17),
        (same, [1, 70, 3, 3], 65),
        (same, [1, 33, 3, 4], 49),
        (halved, [7, 21, 2, 2], 39),
        (halved, [1, 13, 5, 5], 37),
        (halved, [15, 8, 2, 2], 61),
        (Window::new([2, 2], [1, 1]), [3, 8, 2, 2], 12),
    ] {
        check_conv(ConvSpec::new(window), input, o);
    }
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let engine = CpuEngine::new(1);
    let (x, y, z) = (tensor(1, &[2, 3]), tensor(2, &[3, 4]), tensor(3, &[3, 5]));
    let addend = Addend { source: AddendSource::Tensor(&x), negate: false };
    let op = Bilinear::MATMUL;
    assert!(matches!(run(&engine, &op, &[], &[]), Err(Error::Invalid { .. })));
    assert!(matches!(run(&engine, &op, &[(&x, &x)], &[]), Err(Error::Shapes { .. })));
    assert!(matches!(run(&engine, &op, &[(&x, &y), (&x, &z)], &[]), Err(Error::Shapes { .. })));
    assert!(matches!(run(&engine, &op, &[(&x, &y)], &[addend]), Err(Error::Shapes { .. })));
}
