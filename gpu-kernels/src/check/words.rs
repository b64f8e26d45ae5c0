//! Streams and word kernels.

use ring_arith::{
    Engine, Generator, Launch, Result, Shape, Source, Target, Tensor, Word, WordKernel,
};

use super::{Pair, same, stream, tensor};

const GENERATORS: [Generator; 4] =
    [Generator::ChaCha12, Generator::ChaCha20, Generator::Aes128Ctr, Generator::InsecurePhilox];

pub(super) fn streams(pair: &Pair) -> Result<()> {
    let long = if pair.full() { 3_000_001 } else { 600 };
    for generator in GENERATORS {
        for (nonce, first, n) in
            [(0, 0, 40), (u64::MAX, 3, 29), (7 << 40, (1 << 35) + 5, 1), (1, (1 << 34) - 9, long)]
        {
            let stream = stream(generator, nonce);
            let mut expected = vec![0; n];
            stream.fill(first, &mut expected);
            let found = pair.device.stream(&stream, first, Shape::new([n])?)?;
            let found = pair.device.download(&found)?;
            let what = format!("{n} words of {generator:?} from {first}");
            pair.compare(&what, &Tensor::vector(expected), &found)?;
        }
    }
    Ok(())
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

pub(super) fn kernels(pair: &Pair) -> Result<()> {
    // Rows, columns, offset of the first stream, words from one of its rows to the next.
    let mut cases = vec![
        (1, 1, 0, 0),
        (1, 31, 5, 0),
        (3, 8, 0, 8),
        (4, 21, 3, 24),
        (5, 7, 1, 7),
        (2, 100, 6, 128),
    ];
    if pair.full() {
        cases.extend([(1, 1_000_003, 2, 0), (9, 77_777, 1, 77_784)]);
    }
    for (rows, cols, offset, row_stride) in cases {
        let n = rows * cols;
        let x = tensor(&[7 + rows * (cols + 3)], 20)?;
        let y = tensor(&[cols], 21)?;
        let per_row = tensor(&[2 + rows], 22)?;
        for (i, &generator) in GENERATORS.iter().enumerate() {
            let (s, t) = (stream(generator, 1), stream(GENERATORS[(i + 1) % 4], 2));
            let outputs = [Shape::new([3 * n + 5])?, Shape::new([n])?];
            let what = format!("{rows}x{cols} from {offset} by {row_stride} of {generator:?}");
            for which in 0..2 {
                same!(pair, format!("{what}, output {which}"), |e| {
                    let (x, y) = (e.upload(x.clone())?, e.upload(y.clone())?);
                    let per_row = e.upload(per_row.clone())?;
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
                    e.launch(&Mixed, &launch)?.swap_remove(which)
                });
            }
        }
    }
    Ok(())
}
