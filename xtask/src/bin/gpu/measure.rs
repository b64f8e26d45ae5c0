//! Speed on the device, against limits measured in the same run and against the bars of the project.

use std::time::Duration;

use anyhow::{Result, ensure};
use gpu_kernels::{CudaEngine, CudaTensor, Method};
use ring_arith::{
    Addend, AddendSource, Bilinear, ConvSpec, Engine, Generator, Launch, Shape, Source, Stream,
    StreamKey, Target, Window, Word, WordKernel,
};

use xtask::bench::Effort;

use super::{Case, Run, Timing};

/// The device's peak rates.
#[derive(Default)]
struct Limits {
    /// Bytes read and written per second by the driver's own copy.
    copy: Option<f64>,
    /// ChaCha12 words made in registers per second.
    words: Option<f64>,
}

pub(crate) fn run(run: &mut Run) {
    let limits = limits(run);
    elementwise(run, &limits);
    planes(run, &limits);
    matrices(run);
    convolutions(run);
    chooser(run);
}

fn stream(generator: Generator, nonce: u64) -> Stream {
    StreamKey::new(generator, &[0x5a; 32]).stream(nonce)
}

/// Words without a pattern, made on the device.
fn random(engine: &CudaEngine, dims: &[usize], nonce: u64) -> Result<CudaTensor> {
    Ok(engine.stream(&stream(Generator::ChaCha12, nonce), 0, Shape::new(dims)?)?)
}

/// Times one operation: queued `times` times, then waited for. The result is the case's timing.
fn time<R>(
    engine: &CudaEngine,
    case: &mut Case,
    times: usize,
    mut operation: impl FnMut() -> ring_arith::Result<R>,
) -> Result<Timing> {
    case.set_effort(Effort { max_runs: 50, ..case.effort() });
    let all = case.try_measure(|| {
        for _ in 0..times {
            operation()?;
        }
        engine.synchronize()
    })?;
    let one = |seconds: f64| seconds / times as f64;
    let timing = Timing { median: one(all.median), min: one(all.min), ..all };
    case.engine(&engine.name()).timing(Timing { cpu: None, ..timing });
    Ok(timing)
}

/// A known number of seconds, to compare with.
fn seconds(seconds: f64) -> Timing {
    Timing::from_runs(vec![seconds], None)
}

fn label(method: Method) -> String {
    format!("{method:?}").to_lowercase()
}

// -- limits and elementwise work ---------------------------------------------------------------------

/// The exclusive or of eight streams: a generator and nothing else.
struct EightStreams;

impl WordKernel<8, 1> for EightStreams {
    fn name(&self) -> &'static str {
        "eight-streams"
    }

    #[inline(always)]
    fn step<W: Word>(&self, inputs: [W; 8], _params: &[W]) -> [W; 1] {
        let [a, b, c, d, e, f, g, h] = inputs;
        [(a ^ b) ^ (c ^ d) ^ ((e ^ f) ^ (g ^ h))]
    }
}

/// One level of a carry network.
struct Carry;

impl WordKernel<2, 2> for Carry {
    fn name(&self) -> &'static str {
        "carry"
    }

    #[inline(always)]
    fn step<W: Word>(&self, [g, p]: [W; 2], _params: &[W]) -> [W; 2] {
        [g ^ (p & g.shl(7)), p & p.shl(7)]
    }
}

/// A party's local part of a product on shares, with both masks.
struct MaskedProduct;

impl WordKernel<6, 1> for MaskedProduct {
    fn name(&self) -> &'static str {
        "masked-product"
    }

    #[inline(always)]
    fn step<W: Word>(&self, [x0, x1, y0, y1, s, t]: [W; 6], _params: &[W]) -> [W; 1] {
        [x0 * (y0 + y1) + x1 * y0 + s - t]
    }
}

/// Runs a kernel on one row of `n` words.
fn launch<K: WordKernel<I, O>, const I: usize, const O: usize>(
    engine: &CudaEngine,
    kernel: &K,
    n: usize,
    sources: [Source<'_, CudaTensor>; I],
) -> ring_arith::Result<Vec<CudaTensor>> {
    let outputs = vec![Shape::new([n])?; O];
    let targets = std::array::from_fn(|tensor| Target { tensor, offset: 0, row_stride: n });
    engine.launch(
        kernel,
        &Launch { rows: 1, cols: n, sources, params: &[], outputs: &outputs, targets },
    )
}

/// Words of the elementwise work, and how often it is queued.
fn words_of(run: &Run) -> (usize, usize) {
    (if run.small { 1 << 12 } else { 1 << 26 }, run.times(10))
}

fn limits(run: &mut Run) -> Limits {
    let ((n, times), engine) = (words_of(run), run.engine.clone());
    let mut limits = Limits::default();
    run.part("copy", |case| {
        let x = random(&engine, &[n], 1)?;
        let timing = time(&engine, case, times, || engine.copy(&x))?;
        limits.copy = Some(16.0 * n as f64 / timing.median);
        case.size(format!("{n} words")).rate(16.0 * n as f64 / 1e9, "GB/s");
        Ok(())
    });
    run.part("prg/registers", |case| {
        let streams: [Stream; 8] =
            std::array::from_fn(|i| stream(Generator::ChaCha12, 10 + i as u64));
        let timing = time(&engine, case, times, || {
            let sources: [_; 8] = std::array::from_fn(|i| Source::Stream {
                stream: &streams[i],
                offset: 0,
                row_stride: 0,
            });
            launch(&engine, &EightStreams, n, sources)
        })?;
        limits.words = Some(8.0 * n as f64 / timing.median);
        case.size(format!("8 x {n} words")).rate(64.0 * n as f64 / 1e9, "GB/s");
        Ok(())
    });
    for generator in
        [Generator::ChaCha12, Generator::ChaCha20, Generator::Aes128Ctr, Generator::InsecurePhilox]
    {
        run.part(&format!("prg/fill/{generator:?}").to_lowercase(), |case| {
            let stream = stream(generator, 1);
            time(&engine, case, times, || engine.stream(&stream, 0, Shape::new([n])?))?;
            case.size(format!("{n} words")).rate(8.0 * n as f64 / 1e9, "GB/s");
            Ok(())
        });
    }
    limits
}

/// Compares with the time in which the device copies `bytes` and makes `words`, whichever is longer.
fn against(case: &mut Case, limits: &Limits, bytes: usize, words: usize) {
    let bound = |work: usize, rate: Option<f64>| rate.map_or(0.0, |rate| work as f64 / rate);
    let (memory, generator) = (bound(bytes, limits.copy), bound(words, limits.words));
    let (name, floor) = if memory >= generator {
        ("copy bandwidth (bar 0.75)", memory)
    } else {
        ("PRG rate (bar 0.75)", generator)
    };
    case.rate(bytes as f64 / 1e9, "GB/s");
    if floor > 0.0 {
        case.reference(name, seconds(floor));
    }
}

fn elementwise(run: &mut Run, limits: &Limits) {
    let ((n, times), engine) = (words_of(run), run.engine.clone());
    let inputs = || (0..4).map(|i| random(&engine, &[n], i)).collect::<Result<Vec<_>>>();
    let masks = [stream(Generator::ChaCha12, 8), stream(Generator::ChaCha12, 9)];
    run.part("words/carry", |case| {
        let x = inputs()?;
        let row = |i: usize| Source::rows_of(&x[i], n);
        time(&engine, case, times, || launch(&engine, &Carry, n, [row(0), row(1)]))?;
        against(case.size(format!("{n} words")), limits, 32 * n, 0);
        Ok(())
    });
    run.part("words/masked-product", |case| {
        let x = inputs()?;
        let row = |i: usize| Source::rows_of(&x[i], n);
        let mask = |i: usize| Source::Stream { stream: &masks[i], offset: 0, row_stride: 0 };
        time(&engine, case, times, || {
            let sources = [row(0), row(1), row(2), row(3), mask(0), mask(1)];
            launch(&engine, &MaskedProduct, n, sources)
        })?;
        against(case.size(format!("{n} words")), limits, 40 * n, 2 * n);
        Ok(())
    });
    run.part("products/masked", |case| {
        let x = inputs()?;
        let addends = share_of_zero(&masks);
        let terms = [(&x[0], &x[1]), (&x[2], &x[3])];
        time(&engine, case, times, || engine.bilinear(&Bilinear::Mul, &terms, &addends))?;
        against(case.size(format!("{n} words, 2 terms, 2 masks")), limits, 40 * n, 2 * n);
        Ok(())
    });
}

fn planes(run: &mut Run, limits: &Limits) {
    let ((n, times), engine) = (words_of(run), run.engine.clone());
    run.part("planes/to", |case| {
        let x = random(&engine, &[n], 1)?;
        time(&engine, case, times, || engine.to_planes(&x, 0, 64))?;
        against(case.size(format!("{n} words")), limits, 16 * n, 0);
        Ok(())
    });
    run.part("planes/from", |case| {
        let (x, shape) = (random(&engine, &[64, n / 64], 1)?, Shape::new([n])?);
        time(&engine, case, times, || engine.from_planes(&x, 0, &shape))?;
        against(case.size(format!("{n} words")), limits, 16 * n, 0);
        Ok(())
    });
}

// -- products ------------------------------------------------------------------------------------------

/// Rates that a method is held to, in TMAC/s.
fn bar(method: Method) -> Option<(&'static str, f64)> {
    match label(method).as_str() {
        "limbs8" => Some(("bar: 10 TMAC/s", 10.0)),
        "wgmma" => Some(("bar: 17 TMAC/s", 17.0)),
        _ => None,
    }
}

/// The number of times that a product is queued, so that a measurement lasts long enough.
fn repeats(run: &Run, products: f64) -> usize {
    run.times((1e11 / products).clamp(1.0, 200.0) as usize)
}

fn matrices(run: &mut Run) {
    let n = if run.small { 64 } else { 4096 };
    let mut done: Vec<(Method, Timing)> = Vec::new();
    for method in run.engine.methods() {
        let engine = run.engine.clone().with_method(method);
        let products = (n as f64).powi(3);
        let times = repeats(run, products);
        run.part(&format!("gemm/{n}/{}", label(method)), |case| {
            let (x, y) = (random(&engine, &[n, n], 1)?, random(&engine, &[n, n], 2)?);
            let product = |e: &CudaEngine| e.bilinear(&Bilinear::MATMUL, &[(&x, &y)], &[]);
            let baseline = engine.clone().with_method(Method::Integer);
            let expected = engine.download(&product(&baseline)?)?;
            ensure!(engine.download(&product(&engine)?)? == expected, "{method:?} differs");
            let timing = time(&engine, case, times, || product(&engine))?;
            case.size(format!("{n}x{n}x{n}")).rate(products / 1e12, "TMAC/s");
            if let Some((name, rate)) = bar(method) {
                case.reference_rate(name, rate);
                for (other, timing) in &done {
                    let name = match label(*other).as_str() {
                        "integer" => "integer baseline (bar 2)".to_owned(),
                        f64 if f64.starts_with("f64") => format!("{f64} (bar 3)"),
                        other => other.to_owned(),
                    };
                    case.reference(&name, *timing);
                }
            }
            done.push((method, timing));
            Ok(())
        });
    }
    let engine = run.engine.clone();
    let products = 2.0 * (n as f64).powi(3);
    let times = repeats(run, products);
    run.part(&format!("gemm-shared/{n}"), |case| {
        let x = (0..4).map(|i| random(&engine, &[n, n], i)).collect::<Result<Vec<_>>>()?;
        let masks = [stream(Generator::ChaCha12, 8), stream(Generator::ChaCha12, 9)];
        let addends = share_of_zero(&masks);
        let terms = [(&x[0], &x[1]), (&x[2], &x[3])];
        let product = || engine.bilinear(&Bilinear::MATMUL, &terms, &addends);
        time(&engine, case, times, product)?;
        case.size(format!("2 terms of {n}x{n}x{n}, 2 masks")).rate(products / 1e12, "TMAC/s");
        Ok(())
    });
}

/// A convolution of square images with a bar in seconds.
struct Layer {
    name: &'static str,
    input: [usize; 4],
    weight: [usize; 4],
    bar: f64,
    bar_name: &'static str,
}

fn convolutions(run: &mut Run) {
    let layers = [
        Layer {
            name: "conv/512x512x3-11x11",
            input: [1, 3, 512, 512],
            weight: [64, 3, 11, 11],
            bar: 2e-3,
            bar_name: "bar: 2 ms",
        },
        Layer {
            name: "conv/64x64x512-3x3",
            input: [1, 512, 64, 64],
            weight: [512, 512, 3, 3],
            bar: 15e-3,
            bar_name: "bar: 15 ms",
        },
    ];
    for Layer { name, mut input, mut weight, bar, bar_name } in layers {
        if run.small {
            input = input.map(|d| d.min(12));
            weight = [weight[0].min(8), input[1], weight[2], weight[3]];
        }
        let engine = run.engine.clone();
        let products = (weight.iter().product::<usize>() * input[2] * input[3]) as f64;
        let times = repeats(run, products);
        run.part(name, |case| {
            let (x, w) = (random(&engine, &input, 1)?, random(&engine, &weight, 2)?);
            let window = Window::new([weight[2], weight[3]], [1, 1]);
            let op = Bilinear::Conv(ConvSpec::new(window.padded([weight[2] / 2; 4])));
            let product = |e: &CudaEngine| e.bilinear(&op, &[(&x, &w)], &[]);
            let baseline = engine.clone().with_method(Method::Integer);
            let expected = engine.download(&product(&baseline)?)?;
            ensure!(engine.download(&product(&engine)?)? == expected, "differs from the baseline");
            time(&engine, case, times, || product(&engine))?;
            case.size(format!("{input:?} * {weight:?}")).rate(products / 1e12, "TMAC/s");
            case.reference(bar_name, seconds(bar));
            Ok(())
        });
    }
}

// -- the chooser -----------------------------------------------------------------------------------------

/// The ranges in which each method wins: squares by size, and thin products by their short side.
fn chooser(run: &mut Run) {
    let squares: &[usize] =
        if run.small { &[16, 32] } else { &[32, 48, 64, 96, 128, 192, 256, 384, 512, 1024] };
    let sides: &[usize] = if run.small { &[4] } else { &[4, 8, 16, 24, 32, 48, 64, 96] };
    let long = if run.small { 40 } else { 2048 };
    let suggestions = [
        ("square", squares.iter().map(|&n| (n, [n, n, n])).collect::<Vec<_>>()),
        ("thin", sides.iter().map(|&n| (n, [n, long, long])).collect()),
    ];
    for (kind, shapes) in suggestions {
        let mut fastest = Vec::new();
        for (n, [rows, depth, cols]) in shapes {
            let mut best: Option<(f64, Method)> = None;
            for method in run.engine.methods() {
                let engine = run.engine.clone().with_method(method);
                let times = run.times(20);
                run.part(&format!("chooser/{kind}/{n}/{}", label(method)), |case| {
                    let (x, y) =
                        (random(&engine, &[rows, depth], 1)?, random(&engine, &[depth, cols], 2)?);
                    let effort = Effort { total: Duration::from_millis(30), ..case.effort() };
                    case.set_effort(Effort { warm_up: Duration::ZERO, ..effort });
                    let product = || engine.bilinear(&Bilinear::MATMUL, &[(&x, &y)], &[]);
                    let timing = time(&engine, case, times, product)?;
                    let products = (rows * depth * cols) as f64;
                    case.size(format!("{rows}x{depth}x{cols}")).rate(products / 1e12, "TMAC/s");
                    if best.is_none_or(|(seconds, _)| timing.median < seconds) {
                        best = Some((timing.median, method));
                    }
                    Ok(())
                });
            }
            if let Some((_, method)) = best {
                fastest.push(format!("{n}: {}", label(method)));
            }
        }
        if !fastest.is_empty() {
            println!("fastest method, {kind} products by side: {}", fastest.join(", "));
        }
    }
}

/// The difference of two streams, as a product adds it.
fn share_of_zero(masks: &[Stream; 2]) -> [Addend<'_, CudaTensor>; 2] {
    [0, 1].map(|i| Addend {
        source: AddendSource::Stream { stream: &masks[i], first: 0 },
        negate: i == 1,
    })
}
