//! A word kernel of one's own: a step written once, run as SIMD code and read as a trace.
//!
//! The kernel averages two images of unsigned bytes, eight pixels to a word, rounding down, without
//! unpacking them: `(x & y) + (((x ^ y) & 0xfe..fe) >> 1)`.
//!
//! Run with `cargo run --release -p trefoil-ring --example word_kernel`.

use std::time::Instant;

use ring_arith::trace::{self, Trace};
use ring_arith::{
    CpuEngine, Engine, Launch, Result, Shape, Source, Target, Tensor, Word, WordKernel,
};

/// The average of eight pairs of bytes.
struct Average;

impl WordKernel<2, 1> for Average {
    fn name(&self) -> &'static str {
        "average"
    }

    #[inline(always)]
    fn step<W: Word>(&self, [x, y]: [W; 2], _: &[W]) -> [W; 1] {
        let upper = W::constant(0xfefe_fefe_fefe_fefe);
        [(x & y) + ((x ^ y) & upper).shr(1)]
    }
}

fn main() -> Result<()> {
    // What other engines make their code of, and that it means the same as the native forms.
    println!("{:#?}", Trace::record(&Average, 0));
    trace::check_edges(&Average, 0)?;

    let (rows, cols) = (1080, 240); // 1920 pixels in a row
    let shape = Shape::new([rows, cols])?;
    let image = |seed: u64| {
        Tensor::from_fn(shape.clone(), |i| (i as u64 + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    };
    let (x, y) = (image(1), image(2));
    let engine = CpuEngine::new(0);
    let launch = Launch {
        rows,
        cols,
        sources: [Source::rows_of(&x, cols), Source::rows_of(&y, cols)],
        params: &[],
        outputs: std::slice::from_ref(&shape),
        targets: [Target { tensor: 0, offset: 0, row_stride: cols }],
    };
    let start = Instant::now();
    let runs = 100;
    let mut averaged = engine.launch(&Average, &launch)?;
    for _ in 1..runs {
        averaged = engine.launch(&Average, &launch)?;
    }
    let seconds = start.elapsed().as_secs_f64() / f64::from(runs);
    println!("{} averages a full-HD image in {:.0} µs", engine.name(), seconds * 1e6);

    let bytes = |tensor: &Tensor| tensor.to_bytes();
    let (x, y, z) = (bytes(&x), bytes(&y), bytes(&averaged[0]));
    let average = |i: usize| (u16::from(x[i]) + u16::from(y[i])) / 2;
    assert!((0..z.len()).all(|i| u16::from(z[i]) == average(i)), "every pixel is the average");
    Ok(())
}
