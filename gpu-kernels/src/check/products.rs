//! Bilinear maps, by every method that the device can run.

use ring_arith::{
    Addend, AddendSource, Bilinear, ConvSpec, Engine, Generator, Result, Shape, Tensor, Window,
};

use super::{Pair, same, stream, tensor};
use crate::Method;

const ROWS_BY_ROWS: Bilinear = Bilinear::MatMul { transpose_lhs: false, transpose_rhs: true };

/// One limb of a word at its largest on each side, every pair of limbs at once: row `r` holds limb
/// `r % 8`, column `c` limb `c % 8`. Then random words, in shapes of one instruction and of whole tiles.
pub(super) fn matrix_instruction(pair: &Pair, method: Method) -> Result<()> {
    let pair = pair.with_method(method);
    let limbs = |rows: usize, k: usize| {
        Ok(Tensor::from_fn(Shape::new([rows, k])?, |i| 255 << (8 * (i / k % 8))))
    };
    for [m, n, k] in [[16, 8, 32], [64, 96, 32], [128, 192, 64]] {
        for (what, x, y) in [
            ("single limbs", limbs(m, k)?, limbs(n, k)?),
            ("random words", tensor(&[m, k], 30)?, tensor(&[n, k], 31)?),
        ] {
            same!(pair, format!("{what}, {method:?} {m}x{n}x{k}"), |e| {
                let (x, y) = (e.upload(x.clone())?, e.upload(y.clone())?);
                e.bilinear(&ROWS_BY_ROWS, &[(&x, &y)], &[])?
            });
        }
    }
    Ok(())
}

/// The same by `wgmma`, on devices that have it.
pub(super) fn wgmma(pair: &Pair) -> Result<()> {
    let known = pair.methods.contains(&Method::Wgmma);
    if known { matrix_instruction(pair, Method::Wgmma) } else { Ok(()) }
}

/// All limbs 255: the accumulator of weight 2^24 is as full as it gets at 16512 terms, those above it wrap.
pub(super) fn longest_sums(pair: &Pair) -> Result<()> {
    // The first launch of 16513 terms takes 16512 of them.
    let depths: &[usize] = if pair.full() { &[16_512, 16_513, 16_544, 40_000] } else { &[16_513] };
    let limbs = pair.methods.iter().copied().filter(|m| *m != Method::Integer);
    for method in limbs {
        let pair = pair.with_method(method);
        for &depth in depths {
            let row = Tensor::full(Shape::new([1, depth])?, u64::MAX);
            same!(pair, format!("{method:?}, {depth} terms"), |e| {
                let x = e.upload(row.clone())?;
                e.bilinear(&ROWS_BY_ROWS, &[(&x, &x)], &[])?
            });
        }
    }
    Ok(())
}

pub(super) fn elementwise(pair: &Pair) -> Result<()> {
    agrees(pair, &Bilinear::Mul, &[3, 50], &[3, 50])?;
    if pair.full() {
        agrees(pair, &Bilinear::Mul, &[3, 333_333], &[3, 333_333])?;
    }
    Ok(())
}

pub(super) fn matmul(pair: &Pair) -> Result<()> {
    let sizes: &[[usize; 3]] = if pair.full() {
        &[[1, 1, 1], [65, 17, 66], [300, 513, 257], [1000, 300, 700], [3, 5000, 2]]
    } else {
        &[[3, 5, 7], [65, 17, 66], [1, 40, 9]]
    };
    for (transpose_lhs, transpose_rhs) in
        [(false, false), (true, false), (false, true), (true, true)]
    {
        let op = Bilinear::MatMul { transpose_lhs, transpose_rhs };
        for &[m, k, n] in sizes {
            let lhs = if transpose_lhs { [k, m] } else { [m, k] };
            let rhs = if transpose_rhs { [n, k] } else { [k, n] };
            agrees(pair, &op, &lhs, &rhs)?;
            if m == 3 || pair.full() {
                agrees(pair, &op, &[&[2, 2], &lhs[..]].concat(), &rhs)?;
                agrees(pair, &op, &[&[3], &lhs[..]].concat(), &[&[3], &rhs[..]].concat())?;
            }
        }
    }
    Ok(())
}

pub(super) fn convolutions(pair: &Pair) -> Result<()> {
    let window = |kernel, stride, padding, dilation| Window { kernel, stride, padding, dilation };
    let mut cases = vec![
        (window([3, 3], [1, 1], [1; 4], [1, 1]), 1, [2, 3, 6, 5], 4),
        (window([3, 2], [2, 3], [1, 0, 2, 1], [2, 1]), 1, [1, 2, 9, 8], 3),
        (window([2, 2], [1, 1], [0; 4], [1, 1]), 2, [2, 4, 5, 5], 6),
        (window([3, 3], [2, 2], [1; 4], [1, 1]), 4, [1, 4, 7, 7], 4),
        (window([1, 1], [1, 1], [0; 4], [1, 1]), 1, [1, 20, 9, 9], 10),
    ];
    if pair.full() {
        cases.extend([
            (window([11, 11], [4, 4], [2; 4], [1, 1]), 1, [2, 3, 99, 97], 64),
            (window([3, 3], [1, 1], [1; 4], [1, 1]), 1, [3, 64, 31, 29], 70),
            (window([3, 3], [2, 1], [1; 4], [1, 2]), 2, [2, 48, 31, 29], 50),
        ]);
    }
    for (window, groups, input, outputs) in cases {
        let spec = ConvSpec { window, groups };
        let [n, c, h, w] = input;
        let weight = [outputs, c / groups, window.kernel[0], window.kernel[1]];
        let output =
            Bilinear::Conv(spec).output_shape(&Shape::new(input)?, &Shape::new(weight)?)?;
        let output = output.dims();
        agrees(pair, &Bilinear::Conv(spec), &input, &weight)?;
        agrees(pair, &Bilinear::ConvInputGrad { spec, input: [h, w] }, output, &weight)?;
        agrees(pair, &Bilinear::ConvWeightGrad(spec), &[n, c, h, w], output)?;
    }
    Ok(())
}

/// Compares a map of two terms with five addends, two of them streams, by each method.
fn agrees(pair: &Pair, op: &Bilinear, lhs: &[usize], rhs: &[usize]) -> Result<()> {
    let out = op.output_shape(&Shape::new(lhs)?, &Shape::new(rhs)?)?;
    let pairs = [(tensor(lhs, 7)?, tensor(rhs, 8)?), (tensor(lhs, 9)?, tensor(rhs, 10)?)];
    let dims = out.dims();
    let bias = tensor(dims, 11)?;
    // A word for each index of the last axis but one.
    let rows: Vec<_> =
        (0..dims.len()).map(|axis| if axis + 2 == dims.len() { dims[axis] } else { 1 }).collect();
    let rows = tensor(&rows, 14)?;
    let masks = [stream(Generator::ChaCha12, 12), stream(Generator::ChaCha20, 13)];
    for &method in &pair.methods {
        let pair = pair.with_method(method);
        same!(pair, format!("{method:?} {op:?} of {lhs:?} and {rhs:?}"), |e| {
            let up = |t: &Tensor| e.upload(t.clone());
            let pairs: Vec<_> =
                pairs.iter().map(|(x, y)| Ok((up(x)?, up(y)?))).collect::<Result<_>>()?;
            let terms: Vec<_> = pairs.iter().map(|(x, y)| (x, y)).collect();
            let (bias, rows) = (up(&bias)?, up(&rows)?);
            let added = |i: usize| match i {
                1 | 2 => {
                    let source =
                        AddendSource::Stream { stream: &masks[i - 1], first: 8 + 5 * i as u64 };
                    Addend { source, negate: i == 1 }
                }
                0 => Addend { source: AddendSource::Tensor(&rows), negate: false },
                _ => Addend { source: AddendSource::Tensor(&bias), negate: i == 3 },
            };
            let addends: Vec<_> = (0..5).map(added).collect();
            e.bilinear(op, &terms, &addends)?
        });
    }
    Ok(())
}
