//! Every operation against the CPU engine.

mod common;

use std::sync::Arc;

use common::engine;
use gpu_kernels::Method;
use ring_arith::{
    Addend, AddendSource, Bilinear, ConvSpec, CpuEngine, Engine, Generator, Launch, Shape, Source,
    Stream, StreamKey, Target, Tensor, View, Window, Word, WordKernel,
};

fn cpu() -> CpuEngine {
    CpuEngine::new(1)
}

fn stream(generator: Generator, nonce: u64) -> Stream {
    let key: [u8; 32] = std::array::from_fn(|i| (i * 7 + 3) as u8);
    StreamKey::new(generator, &key).stream(nonce)
}

/// Pseudo-random words with edge values among them.
fn tensor(dims: &[usize], seed: u64) -> Tensor {
    let shape = Shape::new(dims).expect("small");
    let mut words = vec![0; shape.len()];
    stream(Generator::ChaCha12, seed).fill(0, &mut words);
    let edges = [0, 1, u64::MAX, 1 << 63, u64::MAX >> 1];
    for (i, w) in words.iter_mut().enumerate().filter(|(i, _)| i % 7 == 3) {
        *w = edges[i / 7 % edges.len()];
    }
    Tensor::new(shape, words).expect("fits")
}

/// Runs one operation on both engines and compares.
macro_rules! same {
    ($what:expr, |$engine:ident| $body:expr) => {
        same!(engine(), $what, |$engine| $body)
    };
    ($device:expr, $what:expr, |$engine:ident| $body:expr) => {{
        let device = $device;
        let expected = {
            let $engine = &cpu();
            $body
        };
        let found = {
            let $engine = &device;
            $engine.download(&$body).expect("download")
        };
        assert_eq!(expected.words(), found.words(), "{}", $what);
        assert_eq!(format!("{expected:?}"), format!("{found:?}"), "{}", $what);
    }};
}

#[test]
fn views_move_words_as_on_the_cpu() {
    let shape = |dims: &[usize]| Shape::new(dims).expect("small");
    let window = Window { kernel: [3, 2], stride: [2, 1], padding: [1, 0, 2, 1], dilation: [1, 2] };
    let views = [
        (vec![6, 4], View::Reshape(shape(&[3, 8]))),
        (vec![5, 3, 4], View::Permute(vec![2, 0, 1])),
        (vec![2, 3, 4, 5], View::Permute(vec![0, 2, 3, 1])),
        (vec![7, 70], View::Permute(vec![1, 0])),
        (vec![9, 4], View::Slice { axis: 0, start: 2, end: 7, step: 1 }),
        (vec![9, 4], View::Slice { axis: 0, start: 1, end: 9, step: 3 }),
        (vec![3, 9, 2], View::Slice { axis: 1, start: 1, end: 8, step: 2 }),
        (vec![3, 9], View::Slice { axis: 1, start: 4, end: 5, step: 1 }),
        (vec![3, 5, 2], View::Gather { axis: 1, indices: Arc::from([4, 0, 0, 3]) }),
        (vec![3, 5], View::Pad { before: vec![1, 2], after: vec![0, 3], value: 42 }),
        (vec![3, 1, 2], View::Broadcast(shape(&[4, 3, 5, 2]))),
        (vec![], View::Broadcast(shape(&[3, 2]))),
        (vec![2, 3, 7, 6], View::Windows(window)),
        (vec![1, 1, 5, 5], View::Windows(Window::new([2, 2], [1, 1]))),
        (vec![0, 4], View::Permute(vec![1, 0])),
    ];
    for (dims, view) in views {
        let x = tensor(&dims, 1);
        same!(format!("{view:?} of {dims:?}"), |e| {
            let x = e.upload(x.clone()).expect("upload");
            e.view(&x, &view).expect("view")
        });
    }
}

#[test]
fn views_of_views_and_concatenation_agree() {
    let (x, y) = (tensor(&[6, 3, 4], 2), tensor(&[6, 2, 4], 3));
    same!("slice, then concat", |e| {
        let (x, y) = (e.upload(x.clone()).expect("upload"), e.upload(y.clone()).expect("upload"));
        let half = View::Slice { axis: 0, start: 2, end: 5, step: 1 };
        let (x, y) = (e.view(&x, &half).expect("view"), e.view(&y, &half).expect("view"));
        let both = e.concat(&[&x, &y, &x], 1).expect("concat");
        e.view(&both, &View::Permute(vec![1, 2, 0])).expect("view")
    });
}

#[test]
fn sums_agree_over_every_choice_of_axes() {
    for dims in [vec![3, 4, 5], vec![2, 1, 3, 4], vec![3000], vec![2, 1500], vec![70, 2]] {
        let x = tensor(&dims, 4);
        for choice in 0..1usize << dims.len() {
            let axes: Vec<usize> = (0..dims.len()).filter(|i| choice >> i & 1 == 1).collect();
            same!(format!("sum over {axes:?} of {dims:?}"), |e| {
                let x = e.upload(x.clone()).expect("upload");
                e.sum(&x, &axes).expect("sum")
            });
        }
    }
}

#[test]
fn window_sums_agree() {
    for (dims, window) in [
        (vec![2, 3, 6, 7], Window::new([2, 2], [2, 2])),
        (
            vec![5, 9],
            Window { kernel: [3, 3], stride: [1, 2], padding: [1, 1, 1, 1], dilation: [2, 1] },
        ),
    ] {
        let x = tensor(&dims, 5);
        same!(format!("{window:?}"), |e| {
            let x = e.upload(x.clone()).expect("upload");
            e.window_sum(&x, &window).expect("window sum")
        });
    }
}

#[test]
fn planes_agree_at_every_width_and_ragged_length() {
    for n in [1, 63, 64, 65, 200, 2100] {
        let x = tensor(&[n], 6);
        for (low, width) in [(0, 64), (0, 1), (63, 1), (5, 20), (44, 20), (1, 33)] {
            same!(format!("planes {low}+{width} of {n}"), |e| {
                let x = e.upload(x.clone()).expect("upload");
                e.to_planes(&x, low, width).expect("planes")
            });
            same!(format!("planes {low}+{width} of {n} and back"), |e| {
                let x = e.upload(x.clone()).expect("upload");
                let planes = e.to_planes(&x, low, width).expect("planes");
                e.from_planes(&planes, low, &Shape::new([n]).expect("small")).expect("back")
            });
        }
    }
}

#[test]
fn streams_are_those_of_the_cpu() {
    for generator in
        [Generator::Aes128Ctr, Generator::ChaCha12, Generator::ChaCha20, Generator::InsecurePhilox]
    {
        for (nonce, first, n) in
            [(0, 0, 40), (u64::MAX, 3, 29), (7 << 40, (1 << 35) + 5, 1), (1, (1 << 34) - 9, 600)]
        {
            let stream = stream(generator, nonce);
            let mut expected = vec![0; n];
            stream.fill(first, &mut expected);
            let found =
                engine().stream(&stream, first, Shape::new([n]).expect("small")).expect("stream");
            assert_eq!(
                engine().download(&found).expect("download").words(),
                expected,
                "{generator:?} {first} {n}"
            );
        }
    }
}

/// Compares a map of two terms with five addends, by each method.
fn bilinear_agrees(op: &Bilinear, lhs: &[usize], rhs: &[usize]) {
    let out = op
        .output_shape(&Shape::new(lhs).expect("small"), &Shape::new(rhs).expect("small"))
        .expect("fits");
    let pairs = [(tensor(lhs, 7), tensor(rhs, 8)), (tensor(lhs, 9), tensor(rhs, 10))];
    let bias = tensor(out.dims(), 11);
    let mask = stream(Generator::ChaCha12, 12);
    for method in [Method::Integer, Method::Limbs8] {
        same!(
            engine().with_method(method),
            format!("{method:?} {op:?} of {lhs:?} and {rhs:?}"),
            |e| {
                let up = |t: &Tensor| e.upload(t.clone()).expect("upload");
                let pairs: Vec<_> = pairs.iter().map(|(x, y)| (up(x), up(y))).collect();
                let terms: Vec<_> = pairs.iter().map(|(x, y)| (x, y)).collect();
                let bias = up(&bias);
                let addends: Vec<_> = (0..5)
                    .map(|i| match i {
                        1 => Addend {
                            source: AddendSource::Stream { stream: &mask, first: 5 },
                            negate: true,
                        },
                        _ => Addend { source: AddendSource::Tensor(&bias), negate: i == 3 },
                    })
                    .collect();
                e.bilinear(op, &terms, &addends).expect("bilinear")
            }
        );
    }
}

#[test]
fn the_longest_exact_sum_of_largest_limbs_and_one_beyond_it_are_right() {
    // All limbs 255: the accumulator of weight 2^24 is as full as it gets at 16512 terms.
    for depth in [16_512, 16_513, 16_544] {
        let row = Tensor::full(Shape::new([1, depth]).expect("small"), u64::MAX);
        let device = engine().with_method(Method::Limbs8);
        same!(device, format!("{depth} terms"), |e| {
            let x = e.upload(row.clone()).expect("upload");
            let op = Bilinear::MatMul { transpose_lhs: false, transpose_rhs: true };
            e.bilinear(&op, &[(&x, &x)], &[]).expect("bilinear")
        });
    }
}

#[test]
fn products_and_matrix_products_agree() {
    bilinear_agrees(&Bilinear::Mul, &[3, 50], &[3, 50]);
    for (transpose_lhs, transpose_rhs) in
        [(false, false), (true, false), (false, true), (true, true)]
    {
        let op = Bilinear::MatMul { transpose_lhs, transpose_rhs };
        for [m, k, n] in [[1, 1, 1], [3, 5, 7], [65, 17, 66], [1, 40, 9], [2, 300, 3]] {
            let lhs = if transpose_lhs { [k, m] } else { [m, k] };
            let rhs = if transpose_rhs { [n, k] } else { [k, n] };
            bilinear_agrees(&op, &lhs, &rhs);
            bilinear_agrees(&op, &[&[2, 2], &lhs[..]].concat(), &rhs);
            bilinear_agrees(&op, &[&[3], &lhs[..]].concat(), &[&[3], &rhs[..]].concat());
        }
    }
}

#[test]
fn convolutions_and_their_gradients_agree() {
    let window = |kernel, stride, padding, dilation| Window { kernel, stride, padding, dilation };
    let cases = [
        (window([3, 3], [1, 1], [1; 4], [1, 1]), 1, [2, 3, 6, 5], 4),
        (window([3, 2], [2, 3], [1, 0, 2, 1], [2, 1]), 1, [1, 2, 9, 8], 3),
        (window([2, 2], [1, 1], [0; 4], [1, 1]), 2, [2, 4, 5, 5], 6),
        (window([3, 3], [2, 2], [1; 4], [1, 1]), 4, [1, 4, 7, 7], 4),
        (window([1, 1], [1, 1], [0; 4], [1, 1]), 1, [1, 20, 9, 9], 10),
    ];
    for (window, groups, input, outputs) in cases {
        let spec = ConvSpec { window, groups };
        let [n, c, h, w] = input;
        let weight = [outputs, c / groups, window.kernel[0], window.kernel[1]];
        let [oh, ow] = window.positions([h, w]).expect("fits");
        let output = [n, outputs, oh, ow];
        bilinear_agrees(&Bilinear::Conv(spec), &input, &weight);
        bilinear_agrees(&Bilinear::ConvInputGrad { spec, input: [h, w] }, &output, &weight);
        bilinear_agrees(&Bilinear::ConvWeightGrad(spec), &input, &output);
    }
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let e = engine();
    let x = e.upload(tensor(&[2, 3], 1)).expect("upload");
    assert!(e.bilinear(&Bilinear::MATMUL, &[(&x, &x)], &[]).is_err());
    assert!(e.view(&x, &View::Slice { axis: 1, start: 2, end: 4, step: 1 }).is_err());
    assert!(e.sum(&x, &[2]).is_err() && e.sum(&x, &[0, 0]).is_err());
    assert!(e.to_planes(&x, 60, 5).is_err());
    assert!(e.concat(&[], 0).is_err());
}

/// Uses every operation, a parameter and five inputs.
struct Mixed;

impl WordKernel<5, 3> for Mixed {
    fn name(&self) -> &'static str {
        "mixed"
    }

    #[inline(always)]
    fn step<W: Word>(&self, [x, y, s, t, r]: [W; 5], params: &[W]) -> [W; 3] {
        let masked = x * (y + s) - t * params[0];
        [
            masked,
            (!x & s) ^ (y | t.shr(9)) ^ r,
            -masked.sar(3) + r.shl(7) + W::constant(0x1234_5678_9abc_def0),
        ]
    }
}

#[test]
fn word_kernels_agree_for_streams_rows_and_offsets() {
    let x = tensor(&[400], 20);
    let y = tensor(&[40, 10], 21);
    let per_row = tensor(&[9], 22);
    let generators =
        [Generator::ChaCha12, Generator::ChaCha20, Generator::Aes128Ctr, Generator::InsecurePhilox];
    for (rows, cols, offset, row_stride) in
        [(1, 1, 0, 0), (1, 31, 5, 0), (3, 8, 0, 8), (4, 21, 3, 24), (5, 7, 1, 7), (2, 100, 6, 128)]
    {
        for (i, &generator) in generators.iter().enumerate() {
            let (s, t) = (stream(generator, 1), stream(generators[(i + 1) % 4], 2));
            let n = rows * cols;
            let outputs =
                [Shape::new([3 * n + 5]).expect("small"), Shape::new([n]).expect("small")];
            for which in 0..2 {
                same!(
                    format!(
                        "{rows}x{cols} from {offset} by {row_stride} of {generator:?}, output {which}"
                    ),
                    |e| {
                        let up = |t: &Tensor| e.upload(t.clone()).expect("upload");
                        let (x, y, per_row) = (up(&x), up(&y), up(&per_row));
                        let launch = Launch {
                            rows,
                            cols,
                            sources: [
                                Source::Tensor { tensor: &x, offset: 7, row_stride: cols + 3 },
                                Source::Tensor { tensor: &y, offset: 0, row_stride: 0 },
                                Source::Stream { stream: &s, offset, row_stride },
                                Source::Stream {
                                    stream: &t,
                                    offset: offset + (1 << 40),
                                    row_stride: 2 * row_stride,
                                },
                                Source::PerRow { tensor: &per_row, offset: 2 },
                            ],
                            params: &[0xdead_beef_0bad_f00d],
                            outputs: &outputs,
                            targets: [
                                Target { tensor: 0, offset: 2, row_stride: 2 * cols },
                                Target { tensor: 1, offset: 0, row_stride: cols },
                                Target { tensor: 0, offset: 2 + cols, row_stride: 2 * cols },
                            ],
                        };
                        e.launch(&Mixed, &launch).expect("launch").swap_remove(which)
                    }
                );
            }
        }
    }
}
