//! Benchmarks of word kernels, transposes and PRGs, all on one thread.

use std::hint::black_box;

use anyhow::Result;
use ring_arith::{
    CpuEngine, Engine, Generator, Launch, Shape, Source, Stream, StreamKey, Target, Tensor, Word,
    WordKernel,
};

use super::Bench;

/// The cases of this module.
pub fn cases(bench: &mut Bench) -> Result<()> {
    prg(bench, "prg/aes128ctr", Generator::Aes128Ctr)?;
    prg(bench, "prg/chacha12", Generator::ChaCha12)?;
    zero_share(bench)?;
    pair_product(bench)?;
    transpose(bench)
}

/// Words of the large operands: well past the second-level cache.
const WORDS: usize = 1 << 21;

/// Words generated at a time when the generator alone is timed: half of a first-level cache.
const BLOCK: usize = 1 << 11;

const BYTES: f64 = (WORDS * 8) as f64 / 1e9;

fn prg(bench: &mut Bench, name: &str, generator: Generator) -> Result<()> {
    bench.case(name, |case| {
        let (mine, rival) = (stream(generator, 1), stream(Generator::InsecurePhilox, 1));
        let (timing, other) = case.measure_pair(|| bare(&mine, WORDS), || bare(&rival, WORDS));
        case.engine("cpu").size("2^21 words").threads(1).timing(timing);
        case.rate(BYTES, "GB/s").reference("philox4x32-10 in plain Rust", other);
        Ok(())
    })
}

/// The difference of two streams: a share of zero.
struct ZeroShare;

impl WordKernel<2, 1> for ZeroShare {
    fn name(&self) -> &'static str {
        "zero-share"
    }

    #[inline(always)]
    fn step<W: Word>(&self, [x, y]: [W; 2], _: &[W]) -> [W; 1] {
        [x - y]
    }
}

/// Once with a result that stays in the second-level cache, compared with the generator in the
/// first-level cache. Once with a result in memory, compared with the generator writing all its
/// words there.
fn zero_share(bench: &mut Bench) -> Result<()> {
    let streams = [1, 2].map(|nonce| stream(Generator::Aes128Ctr, nonce));
    let engine = CpuEngine::new(1);
    let share = |words| {
        let sources =
            streams.each_ref().map(|stream| Source::Stream { stream, offset: 0, row_stride: 0 });
        launch(&engine, &ZeroShare, sources, words)
    };
    bench.case("word/zero-share", |case| {
        let few = 1 << 17;
        // Not in turn with the rival, which would take the result's place in the cache.
        let (mine, limit) =
            case.measure_pair(|| drop(black_box(share(few))), || bare(&streams[0], 2 * few));
        let rival = case.measure(|| zero_share_in_passes(&streams, few));
        case.engine(&engine.name()).size("2^17 words").threads(1).timing(mine);
        case.rate(few as f64 * 16.0 / 1e9, "GB/s of PRG");
        case.reference("bare PRG", limit).reference("streams in memory, then a loop", rival);
        Ok(())
    })?;
    bench.case("word/zero-share/large", |case| {
        let mut memory = vec![0; 2 * WORDS];
        let (mine, limit) = case.measure_pair(
            || drop(black_box(share(WORDS))),
            || streams[0].fill(0, black_box(&mut memory)),
        );
        case.engine(&engine.name()).size("2^21 words").threads(1).timing(mine);
        case.rate(2.0 * BYTES, "GB/s of PRG").reference("bare PRG to memory", limit);
        Ok(())
    })
}

fn zero_share_in_passes(streams: &[Stream; 2], words: usize) -> Vec<u64> {
    let [mut x, mut y] = [vec![0; words], vec![0; words]];
    streams[0].fill(0, &mut x);
    streams[1].fill(0, &mut y);
    x.iter().zip(&y).map(|(x, y)| x.wrapping_sub(*y)).collect()
}

/// A party's part of an elementwise product of two replicated pairs, masked by a share of zero.
struct PairProduct;

impl WordKernel<6, 1> for PairProduct {
    fn name(&self) -> &'static str {
        "pair-product"
    }

    #[inline(always)]
    fn step<W: Word>(&self, [x0, x1, y0, y1, s0, s1]: [W; 6], _: &[W]) -> [W; 1] {
        [x0 * (y0 + y1) + x1 * y0 + (s0 - s1)]
    }
}

fn pair_product(bench: &mut Bench) -> Result<()> {
    bench.case("word/pair-product", |case| {
        let engine = CpuEngine::new(1);
        let streams = [1, 2].map(|nonce| stream(Generator::Aes128Ctr, nonce));
        let [a, b, c, d] = [1, 2, 3, 4].map(|seed| random(seed, WORDS));
        let inputs = [&a, &b, &c, &d];
        let sources = || {
            let [s, t] = streams.each_ref().map(|stream| Source::Stream {
                stream,
                offset: 0,
                row_stride: 0,
            });
            let [a, b, c, d] = inputs.map(|x| Source::rows_of(x, WORDS));
            [a, b, c, d, s, t]
        };
        let mut mine = || drop(black_box(launch(&engine, &PairProduct, sources(), WORDS)));
        let mut generator = || bare(&streams[0], 2 * WORDS);
        let mut sum = vec![0u64; WORDS];
        let mut memory = || add_four(black_box(&mut sum), inputs.map(Tensor::words));
        let mut rival = || drop(black_box(pair_product_in_passes(&streams, inputs)));
        let timings = case.measure_all(&mut [&mut mine, &mut generator, &mut memory, &mut rival]);
        case.engine(&engine.name()).size("2^21 words").threads(1).timing(timings[0]);
        case.rate(5.0 * BYTES, "GB/s of operands and result");
        case.reference("bare PRG", timings[1]);
        case.reference("memory: four operands added", timings[2]);
        case.reference("streams in memory, then a loop", timings[3]);
        Ok(())
    })
}

/// Reads and writes the same words as the product and computes almost nothing.
fn add_four(sum: &mut [u64], [a, b, c, d]: [&[u64]; 4]) {
    let inputs = a.iter().zip(b).zip(c).zip(d);
    for (sum, (((a, b), c), d)) in sum.iter_mut().zip(inputs) {
        *sum = a.wrapping_add(*b).wrapping_add(*c).wrapping_add(*d);
    }
}

fn pair_product_in_passes(streams: &[Stream; 2], [a, b, c, d]: [&Tensor; 4]) -> Vec<u64> {
    let mut out = zero_share_in_passes(streams, WORDS);
    let inputs = a.words().iter().zip(b.words()).zip(c.words()).zip(d.words());
    for (out, (((x0, x1), y0), y1)) in out.iter_mut().zip(inputs) {
        let product = x0.wrapping_mul(y0.wrapping_add(*y1)).wrapping_add(x1.wrapping_mul(*y0));
        *out = out.wrapping_add(product);
    }
    out
}

/// Once with operand and result in the second-level cache, once in memory.
fn transpose(bench: &mut Bench) -> Result<()> {
    for (suffix, words) in [("", 1 << 15), ("/large", WORDS)] {
        let engine = CpuEngine::new(1);
        let gigabytes = words as f64 * 8.0 / 1e9;
        let size = format!("2^{} words", words.ilog2());
        bench.case(&format!("transpose/64x64{suffix}"), |case| {
            let x = random(1, words);
            let mut copy = vec![0u64; words];
            let (mine, limit) = case.measure_pair(
                || drop(black_box(engine.to_planes(&x, 0, 64))),
                || black_box(&mut copy).copy_from_slice(x.words()),
            );
            let rival = case.measure(|| planes_bit_by_bit(x.words()));
            case.engine(&engine.name()).size(&*size).threads(1).timing(mine);
            case.rate(gigabytes, "GB/s").reference("copy", limit).reference("bit by bit", rival);
            Ok(())
        })?;
        bench.case(&format!("transpose/64x64{suffix}/back"), |case| {
            let planes = engine.to_planes(&random(1, words), 0, 64)?;
            let shape = Shape::new([words])?;
            let mut copy = vec![0u64; words];
            let (mine, limit) = case.measure_pair(
                || drop(black_box(engine.from_planes(&planes, 0, &shape))),
                || black_box(&mut copy).copy_from_slice(planes.words()),
            );
            case.engine(&engine.name()).size(&*size).threads(1).timing(mine);
            case.rate(gigabytes, "GB/s").reference("copy", limit);
            Ok(())
        })?;
    }
    Ok(())
}

fn planes_bit_by_bit(words: &[u64]) -> Vec<u64> {
    let lanes = words.len() / 64;
    let mut planes = vec![0; words.len()];
    for (i, word) in words.iter().enumerate() {
        for j in 0..64 {
            planes[j * lanes + i / 64] |= (word >> j & 1) << (i % 64);
        }
    }
    planes
}

/// One long row.
fn launch<K: WordKernel<I, 1>, const I: usize>(
    engine: &CpuEngine,
    kernel: &K,
    sources: [Source<'_, Tensor>; I],
    words: usize,
) -> Vec<Tensor> {
    let outputs = [Shape::new([words]).expect("a small shape")];
    let targets = [Target { tensor: 0, offset: 0, row_stride: words }];
    let launch = Launch { rows: 1, cols: words, sources, params: &[], outputs: &outputs, targets };
    engine.launch(kernel, &launch).expect("sources and targets fit")
}

/// Generates words into a small buffer, again and again.
fn bare(stream: &Stream, words: usize) {
    let mut block = vec![0; BLOCK];
    for first in (0..words as u64).step_by(BLOCK) {
        stream.fill(first, black_box(&mut block));
    }
}

fn stream(generator: Generator, nonce: u64) -> Stream {
    StreamKey::new(generator, &[0x42; 32]).stream(nonce)
}

fn random(seed: u64, words: usize) -> Tensor {
    let mut random = vec![0; words];
    stream(Generator::Aes128Ctr, seed + 100).fill(0, &mut random);
    Tensor::vector(random)
}
