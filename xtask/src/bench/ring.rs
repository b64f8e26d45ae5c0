//! Benchmarks of the bilinear maps of ring-arith.

use std::time::Duration;

use anyhow::{Context, Result};
use ring_arith::{
    Bilinear, ConvSpec, CpuEngine, Engine, EngineTensor, Isa, Kind, Microkernel, Shape, Tensor,
    Window,
};

use super::{Bench, Case, Effort, Timing};

/// The cases of this module.
pub fn cases(bench: &mut Bench) -> Result<()> {
    let best = Isa::quickest();
    for n in [512, 1024] {
        bench.case(&format!("gemm/{n}"), |case| gemm(case, best, n))?;
    }
    for isa in Isa::supported().into_iter().filter(|isa| *isa != best) {
        bench.case(&format!("gemm/1024/{}", isa.name()), |case| gemm(case, isa, 1024))?;
    }
    bench.case("gemm/1024/threads2", |case| threads(case, 1024))?;
    bench.case("conv/resnet50-3x3", |case| convs(case, &resnet50_3x3()))?;
    bench.case("conv/resnet50-1x1", |case| convs(case, &resnet50_1x1()))?;
    let alexnet = Layer { input: 3, output: 64, size: 224, kernel: 11, stride: 4, padding: 2 };
    bench.case("conv/alexnet-1", |case| convs(case, &[alexnet]))?;
    let vgg = Layer { input: 128, output: 128, size: 56, kernel: 3, stride: 1, padding: 1 };
    bench.case("conv/vgg-3x3", |case| convs(case, &[vgg]))?;
    let alexnet = Layer { input: 64, output: 192, size: 27, kernel: 5, stride: 1, padding: 2 };
    bench.case("conv/alexnet-2", |case| convs(case, &[alexnet]))?;
    // The last layers of a network for small images: few positions, and weights that come from memory.
    let last = |size| Layer { input: 512, output: 512, size, kernel: 3, stride: 1, padding: 1 };
    for size in [7, 4, 2] {
        bench.case(&format!("conv/vgg-last-{size}x{size}"), |case| convs(case, &[last(size)]))?;
    }
    for (name, batch, layer) in trained_layers() {
        for by in [Gradient::Input, Gradient::Weight] {
            bench.case(&format!("grad/{name}/{}", by.name()), |case| {
                gradient(case, batch, layer, by)
            })?;
        }
    }
    bench.case("gemv/4096", |case| gemv(case, 4096))
}

/// Layers of networks that are trained, with their batches: convolutions without a border, with a step, and with
/// few positions among them.
fn trained_layers() -> [(&'static str, usize, Layer); 7] {
    let same =
        |input, output, size| Layer { input, output, size, kernel: 3, stride: 1, padding: 1 };
    let lenet = Layer { input: 20, output: 50, size: 12, kernel: 5, stride: 1, padding: 0 };
    [
        ("lenet-conv2-merged", 128, Layer { kernel: 6, stride: 2, ..lenet }),
        ("lenet-conv2", 128, lenet),
        ("resnet-16x32", 32, same(16, 16, 32)),
        ("resnet-64x8", 32, same(64, 64, 8)),
        ("vgg-64x32", 32, same(64, 64, 32)),
        ("vgg-256x8", 32, same(256, 256, 8)),
        ("vgg-512x2", 32, same(512, 512, 2)),
    ]
}

/// The operand of a gradient.
#[derive(Clone, Copy)]
enum Gradient {
    Input,
    Weight,
}

impl Gradient {
    fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Weight => "weight",
        }
    }
}

/// A gradient of a convolution on one thread, in turn with the convolution: all three are as many products.
fn gradient(case: &mut Case, batch: usize, layer: Layer, by: Gradient) -> Result<()> {
    let engine = CpuEngine::new(1);
    let Layer { input, output, size, kernel, stride, padding } = layer;
    let window = Window::new([kernel; 2], [stride; 2]).padded([padding; 4]);
    let spec = ConvSpec::new(window);
    let [height, width] = window.positions([size; 2]).context("the kernel fits the image")?;
    let x = tensor(&[batch, input, size, size])?;
    let w = tensor(&[output, input, kernel, kernel])?;
    let dy = tensor(&[batch, output, height, width])?;
    let (op, lhs, rhs) = match by {
        Gradient::Input => (Bilinear::ConvInputGrad { spec, input: [size; 2] }, &dy, &w),
        Gradient::Weight => (Bilinear::ConvWeightGrad(spec), &x, &dy),
    };
    let mut failure = None;
    let mut forward_failure = None;
    let times = case.measure_all(&mut [
        &mut || failure = engine.bilinear(&op, &[(lhs, rhs)], &[]).err(),
        &mut || forward_failure = engine.bilinear(&Bilinear::Conv(spec), &[(&x, &w)], &[]).err(),
    ]);
    failure.or(forward_failure).map_or(Ok(()), Err)?;
    let products = batch * output * height * width * input * kernel * kernel;
    let text = format!("{:?} * {:?}", x.shape(), w.shape());
    case.engine(&engine.name()).size(text).threads(1).timing(times[0]);
    case.rate(products as f64 / 1e9, "GMAC/s").reference("the convolution", times[1]);
    Ok(())
}

/// A tensor of words without a pattern.
fn tensor(dims: &[usize]) -> Result<Tensor> {
    let shape = Shape::new(dims)?;
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let words = (0..shape.len()).map(next).collect();
    Ok(Tensor::new(shape, words)?)
}

/// The effort of a slow rival: a few runs.
const RIVAL: Effort =
    Effort { warm_up: Duration::ZERO, total: Duration::ZERO, min_runs: 3, max_runs: 3 };

/// Times a rival form of the work after everything else.
fn rival(case: &mut Case, mut work: impl FnMut()) -> Timing {
    case.set_effort(RIVAL).measure_all(&mut [&mut work])[0]
}

/// The best instruction set that multiplies vectors of words.
fn vector_isa() -> Result<Isa> {
    let mut vectors = Isa::supported().into_iter().filter(|isa| isa.kind() != Kind::Amx);
    vectors.next_back().context("there is always the portable set")
}

/// Runs of the innermost loop that take some milliseconds.
const ROUNDS: usize = 2000;

/// A square product on one thread, against the innermost loops in the first-level cache.
fn gemm(case: &mut Case, isa: Isa, n: usize) -> Result<()> {
    let engine = CpuEngine::with_isa(isa, 1);
    let (x, y) = (tensor(&[n, n])?, tensor(&[n, n])?);
    let (own, vector) = (Microkernel::new(isa), Microkernel::new(vector_isa()?));
    let (mut own_products, mut vector_products) = (0, 0);
    let mut failure = None;
    let times = case.measure_all(&mut [
        &mut || failure = engine.bilinear(&Bilinear::MATMUL, &[(&x, &y)], &[]).err(),
        &mut || own_products = own.run(ROUNDS),
        &mut || vector_products = vector.run(ROUNDS),
    ]);
    failure.map_or(Ok(()), Err)?;
    let naive = rival(case, || {
        std::hint::black_box(naive_matmul(x.words(), y.words(), n));
    });
    case.engine(&engine.name()).size(format!("{n}x{n}x{n}")).threads(1).timing(times[0]);
    case.rate((n * n * n) as f64 / 1e9, "GMAC/s");
    let limit = |products: usize, time: Timing| products as f64 / time.median / 1e9;
    case.reference_rate("same innermost loop in L1", limit(own_products, times[1]));
    if isa.kind() == Kind::Amx {
        case.reference_rate("innermost vector loop in L1", limit(vector_products, times[2]));
    }
    case.reference("naive wrapping_mul", naive);
    Ok(())
}

/// The textbook loops in the order that the compiler vectorises.
fn naive_matmul(x: &[u64], y: &[u64], n: usize) -> Vec<u64> {
    let mut out = vec![0u64; n * n];
    for (x, out) in x.chunks_exact(n).zip(out.chunks_exact_mut(n)) {
        for (x, y) in x.iter().zip(y.chunks_exact(n)) {
            for (out, y) in out.iter_mut().zip(y) {
                *out = out.wrapping_add(x.wrapping_mul(*y));
            }
        }
    }
    out
}

/// Two threads against one.
fn threads(case: &mut Case, n: usize) -> Result<()> {
    let (one, two) = (CpuEngine::new(1), CpuEngine::new(2));
    let (x, y) = (tensor(&[n, n])?, tensor(&[n, n])?);
    let product = |engine: &CpuEngine| {
        // Operands fit: the same call is checked by the other cases.
        engine.bilinear(&Bilinear::MATMUL, &[(&x, &y)], &[]).is_ok()
    };
    let (_, alone) = case.measure_pair(|| product(&two), || product(&one));
    case.engine(&two.name()).size(format!("{n}x{n}x{n}")).threads(2);
    case.rate((n * n * n) as f64 / 1e9, "GMAC/s").reference("one thread", alone);
    Ok(())
}

/// A convolution layer on square images.
#[derive(Clone, Copy)]
struct Layer {
    input: usize,
    output: usize,
    size: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
}

/// The 3x3 convolution of each stage of ResNet-50.
fn resnet50_3x3() -> Vec<Layer> {
    [(64, 56), (128, 28), (256, 14), (512, 7)]
        .map(|(c, size)| Layer { input: c, output: c, size, kernel: 3, stride: 1, padding: 1 })
        .to_vec()
}

/// The 1x1 convolutions before and after it in each stage.
fn resnet50_1x1() -> Vec<Layer> {
    let stages = [(64, 56), (128, 28), (256, 14), (512, 7)];
    let pair = |(c, size): (usize, usize)| {
        let layer = |input, output| Layer { input, output, size, kernel: 1, stride: 1, padding: 0 };
        [layer(4 * c, c), layer(c, 4 * c)]
    };
    stages.into_iter().flat_map(pair).collect()
}

/// A layer ready to run.
struct Prepared {
    op: Bilinear,
    spec: ConvSpec,
    x: Tensor,
    w: Tensor,
    /// The same products as one product of matrices.
    matrices: [Tensor; 2],
    /// One for each output and each weight that it depends on, however the layer is computed.
    products: usize,
}

impl Prepared {
    fn new(layer: &Layer) -> Result<Self> {
        let Layer { input, output, size, kernel, stride, padding } = *layer;
        let window = Window::new([kernel; 2], [stride; 2]).padded([padding; 4]);
        let spec = ConvSpec::new(window);
        let [height, width] = window.positions([size; 2]).context("the kernel fits the image")?;
        Ok(Self {
            op: Bilinear::Conv(spec),
            spec,
            x: tensor(&[1, input, size, size])?,
            w: tensor(&[output, input, kernel, kernel])?,
            matrices: [
                tensor(&[output, input * kernel * kernel])?,
                tensor(&[input * kernel * kernel, height * width])?,
            ],
            products: output * height * width * input * kernel * kernel,
        })
    }
}

/// Layers on one image and one thread, one after the other, against matrix products: a big one, and
/// those of the layers' sizes. Convolutions that save products can be quicker than either.
fn convs(case: &mut Case, layers: &[Layer]) -> Result<()> {
    const SIDE: usize = 1024;
    let engine = CpuEngine::new(1);
    let layers = layers.iter().map(Prepared::new).collect::<Result<Vec<_>>>()?;
    let (x, y) = (tensor(&[SIDE, SIDE])?, tensor(&[SIDE, SIDE])?);
    let mut failure = None;
    let times = case.measure_all(&mut [
        &mut || {
            for layer in &layers {
                let run = engine.bilinear(&layer.op, &[(&layer.x, &layer.w)], &[]);
                failure = run.err().or(failure.take());
            }
        },
        &mut || drop(engine.bilinear(&Bilinear::MATMUL, &[(&x, &y)], &[])),
        &mut || {
            for Prepared { matrices: [x, y], .. } in &layers {
                drop(engine.bilinear(&Bilinear::MATMUL, &[(x, y)], &[]));
            }
        },
    ]);
    failure.map_or(Ok(()), Err)?;
    let naive = rival(case, || {
        for layer in &layers {
            std::hint::black_box(naive_conv(layer));
        }
    });
    let products: usize = layers.iter().map(|layer| layer.products).sum();
    let size = match &layers[..] {
        [layer] => format!("{:?} * {:?}", layer.x.shape(), layer.w.shape()),
        layers => format!("{} layers", layers.len()),
    };
    case.engine(&engine.name()).size(size).threads(1).timing(times[0]);
    case.rate(products as f64 / 1e9, "GMAC/s");
    case.reference_rate("gemm/1024", SIDE.pow(3) as f64 / times[1].median / 1e9);
    case.reference("the same products as matrices", times[2]);
    case.reference("naive wrapping_mul", naive);
    Ok(())
}

/// One output row of one tap at a time.
fn naive_conv(layer: &Prepared) -> Vec<u64> {
    let (&[_, channels, size, _], &[outputs, _, kernel, _]) =
        (layer.x.shape().dims(), layer.w.shape().dims())
    else {
        return Vec::new();
    };
    let Window { stride: [step, _], padding: [border, ..], .. } = layer.spec.window;
    let side = (size + 2 * border - kernel) / step + 1;
    let mut out = vec![0u64; outputs * side * side];
    for (o, plane) in out.chunks_exact_mut(side * side).enumerate() {
        for c in 0..channels {
            let image = &layer.x.words()[c * size * size..][..size * size];
            for tap in 0..kernel * kernel {
                let weight = layer.w.words()[(o * channels + c) * kernel * kernel + tap];
                for (y, row) in plane.chunks_exact_mut(side).enumerate() {
                    let from = (y * step + tap / kernel).wrapping_sub(border);
                    if from >= size {
                        continue;
                    }
                    let line = &image[from * size..][..size];
                    for (x, out) in row.iter_mut().enumerate() {
                        let at = (x * step + tap % kernel).wrapping_sub(border);
                        let word = line.get(at).copied().unwrap_or(0);
                        *out = out.wrapping_add(weight.wrapping_mul(word));
                    }
                }
            }
        }
    }
    out
}

/// A vector times a matrix on one thread, against reading the matrix.
fn gemv(case: &mut Case, n: usize) -> Result<()> {
    let engine = CpuEngine::new(1);
    let (x, w) = (tensor(&[1, n])?, tensor(&[n, n])?);
    let op = Bilinear::MatMul { transpose_lhs: false, transpose_rhs: true };
    let mut failure = None;
    let times = case.measure_all(&mut [
        &mut || failure = engine.bilinear(&op, &[(&x, &w)], &[]).err(),
        &mut || {
            std::hint::black_box(read(w.words()));
        },
        &mut || {
            std::hint::black_box(naive_gemv(x.words(), w.words()));
        },
    ]);
    failure.map_or(Ok(()), Err)?;
    case.engine(&engine.name()).size(format!("1x{n}x{n}")).threads(1).timing(times[0]);
    case.rate((8 * n * n) as f64 / 1e9, "GB/s");
    case.reference("reading the matrix", times[1]);
    case.reference("naive wrapping_mul", times[2]);
    Ok(())
}

/// Reads all words at the speed of memory: eight places at a time.
fn read(words: &[u64]) -> u64 {
    const STREAMS: usize = 8;
    let part = words.len() / STREAMS;
    let mut sums = [0u64; STREAMS];
    for i in 0..part {
        for (stream, sum) in sums.iter_mut().enumerate() {
            *sum ^= words[stream * part + i];
        }
    }
    sums.into_iter().fold(0, |a, b| a ^ b)
}

fn naive_gemv(x: &[u64], w: &[u64]) -> Vec<u64> {
    let dot = |row: &[u64]| {
        row.iter().zip(x).fold(0u64, |sum, (w, x)| sum.wrapping_add(w.wrapping_mul(*x)))
    };
    w.chunks_exact(x.len()).map(dot).collect()
}
