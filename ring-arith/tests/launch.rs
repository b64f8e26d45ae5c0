//! Word kernels against plain loops over `u64`.

use crate::common::{self, engines, mix, tensor, word};
use proptest::prelude::*;
use ring_arith::{
    CpuEngine, Engine, EngineTensor, Error, Generator, Launch, Place, Shape, Source, Stream,
    StreamKey, Target, Tensor, Word, WordKernel,
};

/// Uses every operation of [`Word`], three inputs, two parameters and two outputs.
struct Everything {
    shift: u32,
}

impl WordKernel<3, 2> for Everything {
    fn name(&self) -> &'static str {
        "everything"
    }

    #[inline(always)]
    fn step<W: Word>(&self, [x, y, z]: [W; 3], params: &[W]) -> [W; 2] {
        let product = x * y + params[0];
        let bits = (product & z) | (x ^ !y);
        let shifts = x.shl(self.shift) + y.shr(self.shift) - z.sar(self.shift);
        [bits - shifts * params[1], -(product ^ W::constant(0x0123_4567_89ab_cdef))]
    }
}

impl Everything {
    /// The same on plain words.
    fn model(&self, [x, y, z]: [u64; 3], params: [u64; 2]) -> [u64; 2] {
        let product = x.wrapping_mul(y).wrapping_add(params[0]);
        let bits = (product & z) | (x ^ !y);
        let shifts = (x << self.shift)
            .wrapping_add(y >> self.shift)
            .wrapping_sub((z as i64 >> self.shift) as u64);
        [
            bits.wrapping_sub(shifts.wrapping_mul(params[1])),
            (product ^ 0x0123_4567_89ab_cdef).wrapping_neg(),
        ]
    }
}

fn stream(generator: Generator) -> Stream {
    StreamKey::new(generator, &[9; 32]).stream(77)
}

/// The word of a source at `(r, c)`.
fn source_word(source: &Source<'_, Tensor>, r: usize, c: usize) -> u64 {
    match *source {
        Source::Tensor { tensor, offset, row_stride } => {
            tensor.words()[offset + r * row_stride + c]
        }
        Source::PerRow { tensor, offset } => tensor.words()[offset + r],
        Source::Stream { stream, offset, row_stride } => {
            let mut word = [0];
            stream.fill(offset + r as u64 * row_stride + c as u64, &mut word);
            word[0]
        }
    }
}

/// Runs a launch on every engine and compares it with the model.
fn check(kernel: &Everything, launch: &Launch<'_, Tensor, 3, 2>) {
    let params = [launch.params[0], launch.params[1]];
    let mut model: Vec<_> = launch.outputs.iter().map(|s| vec![0u64; s.len()]).collect();
    for (r, c) in (0..launch.rows).flat_map(|r| (0..launch.cols).map(move |c| (r, c))) {
        let inputs = [0, 1, 2].map(|i| source_word(&launch.sources[i], r, c));
        for (word, t) in kernel.model(inputs, params).into_iter().zip(&launch.targets) {
            model[t.tensor][t.offset + r * t.row_stride + c] = word;
        }
    }
    for engine in engines() {
        let outputs = engine.launch(kernel, launch).unwrap();
        assert_eq!(outputs.len(), model.len());
        for ((output, model), shape) in outputs.iter().zip(&model).zip(launch.outputs) {
            assert_eq!(output.shape(), shape);
            assert_eq!(output.words(), model, "{} {}x{}", engine.name(), launch.rows, launch.cols);
        }
    }
}

proptest! {
    #[test]
    fn kernels_agree_with_plain_loops(
        rows in 0usize..9,
        cols in prop_oneof![0usize..20, 60usize..70, 250usize..260],
        gaps in any::<[u8; 6]>(),
        kinds in any::<[u8; 3]>(),
        shift in prop_oneof![Just(0u32), Just(63), 0u32..64],
        words in prop::collection::vec(word(), 40),
        params in [word(), word()],
        generator in prop_oneof![
            Just(Generator::Aes128Ctr), Just(Generator::ChaCha12), Just(Generator::InsecurePhilox)
        ],
    ) {
        let x = Tensor::from_fn(Shape::new([6000]).unwrap(), |i| {
            if i % 3 == 0 { mix(i as u64) } else { words[i % words.len()] }
        });
        let stream = stream(generator);
        let sources = [0, 1, 2].map(|i| {
            let gap = usize::from(gaps[i] % 5);
            let offset = usize::from(gaps[i] / 5);
            match kinds[i] % 5 {
                0 => Source::PerRow { tensor: &x, offset },
                1 => Source::Tensor { tensor: &x, offset, row_stride: 0 },
                2 => Source::Tensor { tensor: &x, offset, row_stride: cols + gap },
                3 => Source::Stream {
                    stream: &stream, offset: offset as u64, row_stride: (cols + gap * gap * 50) as u64,
                },
                _ => Source::Stream { stream: &stream, offset: 3, row_stride: gap as u64 },
            }
        });
        let target = |tensor: usize, gap: u8, lead: u8| {
            let (row_stride, offset) = (cols + usize::from(gap % 3), usize::from(lead % 3));
            let len = offset + rows * row_stride + usize::from(gap % 2);
            (Target { tensor, offset, row_stride }, Shape::new([len]).unwrap())
        };
        let (a, b) = (target(0, gaps[3], gaps[4]), target(1, gaps[4], gaps[5]));
        let launch = Launch {
            rows, cols, sources, params: &params, outputs: &[a.1, b.1], targets: [a.0, b.0],
        };
        check(&Everything { shift }, &launch);
    }
}

#[test]
fn one_stream_may_serve_several_inputs() {
    let stream = stream(Generator::ChaCha12);
    for (rows, cols) in [(1, 5000), (9, 300)] {
        let at = |offset| Source::Stream { stream: &stream, offset, row_stride: cols as u64 };
        for sources in [[at(8), at(8), at(8)], [at(8), at(9), at(8)], [at(9), at(8), at(8)]] {
            let target = |tensor| Target { tensor, offset: 0, row_stride: cols };
            let shape = Shape::new([rows, cols]).unwrap();
            let (outputs, targets) = ([shape.clone(), shape], [target(0), target(1)]);
            let launch =
                Launch { rows, cols, sources, params: &[3, 5], outputs: &outputs, targets };
            check(&Everything { shift: 7 }, &launch);
        }
    }
}

#[test]
fn launches_that_fill_many_tasks_agree() {
    let stream = stream(Generator::Aes128Ctr);
    for (rows, cols) in [(1, 200_003), (200_003, 1), (70, 2100), (2100, 70), (3, 70_001)] {
        let x = tensor(&[rows * cols + rows]);
        let shape = Shape::new([rows, cols]).unwrap();
        for (stride, target) in [(cols, cols), (cols + 1, cols)] {
            let launch = Launch {
                rows,
                cols,
                sources: [
                    Source::Tensor { tensor: &x, offset: 0, row_stride: stride },
                    Source::Stream { stream: &stream, offset: 5, row_stride: cols as u64 },
                    Source::rows_of(&x, cols),
                ],
                params: &[3, 5],
                outputs: &[shape.clone(), shape.clone()],
                targets: [0, 1].map(|tensor| Target { tensor, offset: 0, row_stride: target }),
            };
            check(&Everything { shift: 7 }, &launch);
        }
    }
}

/// `x + y` with as many parameters as are given, which are added too.
struct AddAll;

impl WordKernel<2, 1> for AddAll {
    fn name(&self) -> &'static str {
        "add-all"
    }

    #[inline(always)]
    fn step<W: Word>(&self, [x, y]: [W; 2], params: &[W]) -> [W; 1] {
        [params.iter().fold(x + y, |sum, &p| sum + p)]
    }
}

#[test]
fn any_number_of_parameters_is_passed() {
    let x = tensor(&[21]);
    for engine in engines() {
        for count in [0, 1, 16, 17, 40] {
            let params: Vec<u64> = (0..count).map(mix).collect();
            let launch = Launch {
                rows: 1,
                cols: 21,
                sources: [Source::rows_of(&x, 21), Source::rows_of(&x, 21)],
                params: &params,
                outputs: &[x.shape().clone()],
                targets: [Target { tensor: 0, offset: 0, row_stride: 21 }],
            };
            let sum = params.iter().fold(0u64, |sum, &p| sum.wrapping_add(p));
            let out = engine.launch(&AddAll, &launch).unwrap();
            for (out, x) in out[0].words().iter().zip(x.words()) {
                assert_eq!(*out, x.wrapping_mul(2).wrapping_add(sum));
            }
        }
    }
}

/// Copies its inputs.
struct Copy2;

impl WordKernel<2, 2> for Copy2 {
    fn name(&self) -> &'static str {
        "copy2"
    }

    #[inline(always)]
    fn step<W: Word>(&self, inputs: [W; 2], _: &[W]) -> [W; 2] {
        inputs
    }
}

#[test]
fn two_targets_share_an_output_and_leave_the_rest_zero() {
    let x = tensor(&[3, 40]);
    let launch = Launch {
        rows: 3,
        cols: 40,
        sources: [Source::rows_of(&x, 40), Source::PerRow { tensor: &x, offset: 0 }],
        params: &[],
        outputs: &[Shape::new([3, 100]).unwrap()],
        targets: [0, 50].map(|offset| Target { tensor: 0, offset, row_stride: 100 }),
    };
    for engine in engines() {
        // Memory that is used again must not shine through.
        engine.buffers().take(300).fill(u64::MAX);
        assert!(engine.buffers().held() >= 300);
        let out = engine.launch(&Copy2, &launch).unwrap();
        common::check(&out[0], &[3, 100], |i| match i[1] {
            c if c < 40 => common::at(&x, i),
            c if (50..90).contains(&c) => x.words()[i[0]],
            _ => 0,
        });
    }
}

#[test]
fn launches_that_leave_their_tensors_are_refused() {
    let (x, stream) = (tensor(&[12]), stream(Generator::ChaCha12));
    let shape = [Shape::new([12]).unwrap()];
    let source = |offset, row_stride| Source::Tensor { tensor: &x, offset, row_stride };
    let target = |offset, row_stride| Target { tensor: 0, offset, row_stride };
    let refused = |sources, targets, text: &str| {
        let launch = Launch { rows: 3, cols: 2, sources, params: &[], outputs: &shape, targets };
        let error = engines()[0].launch(&Copy2, &launch).unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }));
        assert!(error.to_string().contains(text), "{error}");
    };
    let fine = || source(0, 2);
    let apart = [target(0, 2), target(6, 2)];
    refused([source(0, 6), fine()], apart, "source 0");
    refused([fine(), source(7, 2)], apart, "source 1");
    refused([fine(), source(usize::MAX, 2)], apart, "source 1");
    refused([fine(), source(0, usize::MAX)], apart, "source 1");
    refused([fine(), Source::PerRow { tensor: &x, offset: 10 }], apart, "source 1");
    let far = |offset, row_stride| Source::Stream { stream: &stream, offset, row_stride };
    refused([far(1 << 63, 0), fine()], apart, "source 0");
    refused([far(0, u64::MAX), fine()], apart, "source 0");
    refused([fine(), fine()], [target(0, 2), target(7, 2)], "target 1");
    refused([fine(), fine()], [target(0, 1), target(6, 2)], "target 0: rows of 2 words overlap");
    refused([fine(), fine()], [target(0, 2), Target { tensor: 1, ..target(0, 2) }], "no output 1");
    for (a, b) in [
        (target(0, 2), target(0, 2)),
        (target(0, 2), target(4, 2)),
        (target(0, 4), target(1, 4)),
        (target(1, 4), target(0, 4)),
        (target(0, 4), target(6, 2)),
        (target(0, 5), target(2, 2)),
    ] {
        refused([fine(), fine()], [a, b], "targets 0 and 1 write the same word");
    }
}

#[test]
fn targets_that_interleave_without_meeting_are_accepted() {
    let x = tensor(&[12]);
    let shape = [Shape::new([12]).unwrap()];
    let target = |offset, row_stride| Target { tensor: 0, offset, row_stride };
    for (rows, cols, a, b) in [
        (3, 2, target(0, 4), target(2, 4)),
        (3, 2, target(2, 4), target(0, 4)),
        (2, 1, target(0, 5), target(1, 3)),
        (3, 1, target(0, 5), target(1, 3)),
        (3, 2, target(0, 2), target(6, 2)),
        (1, 6, target(0, 0), target(6, 0)),
    ] {
        let launch = Launch {
            rows,
            cols,
            sources: [Source::rows_of(&x, cols), Source::PerRow { tensor: &x, offset: 0 }],
            params: &[],
            outputs: &shape,
            targets: [a, b],
        };
        let mut model = vec![0; 12];
        for (r, c) in (0..rows).flat_map(|r| (0..cols).map(move |c| (r, c))) {
            model[a.offset + r * a.row_stride + c] = x.words()[r * cols + c];
            model[b.offset + r * b.row_stride + c] = x.words()[r];
        }
        for engine in engines() {
            assert_eq!(engine.launch(&Copy2, &launch).unwrap()[0].words(), model);
        }
    }
}

/// One output as long as the columns, made from a tensor at a place.
fn copy_into(
    engine: &CpuEngine,
    from: &Tensor,
    place: Option<Place<'_, Tensor>>,
) -> Result<Tensor, Error> {
    let outputs = [Shape::new([from.len() + 1]).unwrap()];
    let launch = Launch {
        rows: 1,
        cols: from.len(),
        sources: [Source::rows_of(from, 0)],
        params: &[],
        outputs: &outputs,
        targets: [Target { tensor: 0, offset: 0, row_stride: 0 }],
    };
    Ok(engine.launch_into(&Copy1, &launch, &[place])?.remove(0))
}

struct Copy1;

impl WordKernel<1, 1> for Copy1 {
    fn name(&self) -> &'static str {
        "copy-one"
    }

    #[inline(always)]
    fn step<W: Word>(&self, inputs: [W; 1], _: &[W]) -> [W; 1] {
        inputs
    }
}

#[test]
fn parts_made_in_room_are_one_tensor_without_a_copy() {
    let parts = [tensor(&[299]), tensor(&[499]), tensor(&[99])];
    let model: Vec<u64> = parts.iter().flat_map(|x| [x.words(), &[0]].concat()).collect();
    let shape = Shape::new([2, 450]).unwrap();
    for engine in engines() {
        // Memory that is used again must not shine through.
        engine.buffers().take(900).fill(u64::MAX);
        let room = engine.room(900).unwrap();
        let place = |start| Some(Place { room: &room, start });
        // In any order, and one of them elsewhere.
        let last = copy_into(&engine, &parts[2], place(800)).unwrap();
        let first = copy_into(&engine, &parts[0], place(0)).unwrap();
        let middle = copy_into(&engine, &parts[1], None).unwrap();
        assert_eq!(last.words(), &model[800..]);
        let whole = engine.seal(&room, &[&first, &middle, &last], &shape).unwrap();
        assert_eq!((whole.shape(), whole.words()), (&shape, &model[..]));
        assert_eq!(whole.words().as_ptr(), first.words().as_ptr());
        let again = engine.seal(&room, &[&first, &middle, &last], &shape);
        assert!(again.is_none(), "what is a tensor already is not written");
        // The memory comes back with the last that uses it.
        drop((room, whole, last, first));
        assert!(engine.buffers().held() >= 900);
    }
}

#[test]
fn rooms_refuse_what_does_not_fit() {
    let engine = &engines()[0];
    let (x, shape) = (tensor(&[9]), Shape::new([30]).unwrap());
    let room = engine.room(30).unwrap();
    let at = |start| copy_into(engine, &x, Some(Place { room: &room, start }));
    let first = at(0).unwrap();
    for start in [0, 9, 21, 30, usize::MAX] {
        let error = at(start).unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
        assert!(error.to_string().contains(&format!("from {start} on")), "{error}");
    }
    let last = at(20).unwrap();
    assert!(engine.seal(&room, &[&first, &last], &shape).is_none(), "too few words");
    // Another tensor in a place that was given away cannot be told from one under way.
    let other = tensor(&[10]);
    assert!(engine.seal(&room, &[&other, &first, &last], &shape).is_none());
    let middle = at(10).unwrap();
    let wrong = Shape::new([31]).unwrap();
    assert!(engine.seal(&room, &[&first, &middle, &last], &wrong).is_none());
    let whole = engine.seal(&room, &[&first, &middle, &last], &shape).unwrap();
    assert_eq!(whole.words(), [first.words(), middle.words(), last.words()].concat());
}
