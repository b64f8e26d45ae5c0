//! Sums and products over the integers, where the engine's are modulo 2^64.

use ring_arith::{Bilinear, Engine, EngineTensor, Shape, Tensor};

use crate::{Error, Result, functions::terms};

/// Bits of a limb: products of two, summed over 2^19 terms, fit a signed word.
const LIMB: u32 = 22;

/// A magnitude beyond this overflows for certain; others fit 128 bits.
const FAR: f64 = (1u128 << 100) as f64;

/// A bilinear map of signed words.
pub(super) fn bilinear<E: Engine>(
    engine: &E,
    op: &Bilinear,
    x: &E::Tensor,
    y: &E::Tensor,
) -> Result<Vec<i128>> {
    let largest = |tensor: &Tensor| {
        tensor.words().iter().map(|&w| u128::from((w as i64).unsigned_abs())).max().unwrap_or(0)
    };
    let (a, b) = (engine.download(x)?, engine.download(y)?);
    let bound = (largest(&a) * largest(&b)).checked_mul(terms(op, x.shape(), y.shape()) as u128);
    if bound.is_some_and(|bound| bound < 1 << 63) {
        return signed(engine, &engine.bilinear(op, &[(x, y)], &[])?);
    }
    let (xs, ys) = (limbs(engine, &a)?, limbs(engine, &b)?);
    let mut parts = Vec::with_capacity(9);
    for (i, x) in xs.iter().enumerate() {
        for (j, y) in ys.iter().enumerate() {
            let product = signed(engine, &engine.bilinear(op, &[(x, y)], &[])?)?;
            parts.push((LIMB * (i + j) as u32, product));
        }
    }
    let sum = |place: usize| {
        let near: f64 = parts.iter().map(|(up, p)| p[place] as f64 * 2f64.powi(*up as i32)).sum();
        let exact = parts.iter().fold(0i128, |sum, (up, p)| sum.wrapping_add(p[place] << up));
        if near.abs() < FAR { exact } else { i128::MAX }
    };
    Ok((0..parts[0].1.len()).map(sum).collect())
}

/// A linear map with small coefficients, of signed words: of their halves, which leave it room.
pub(super) fn linear<E: Engine>(
    engine: &E,
    x: &E::Tensor,
    map: impl Fn(&E::Tensor) -> ring_arith::Result<E::Tensor>,
) -> Result<(Shape, Vec<i128>)> {
    let host = engine.download(x)?;
    let half = |f: fn(u64) -> u64| -> Result<_> {
        let words = host.words().iter().map(|&w| f(w)).collect();
        Ok(map(&engine.upload(Tensor::new(x.shape().clone(), words)?)?)?)
    };
    let (high, low) = (half(|w| (w as i64 >> 32) as u64)?, half(|w| w & 0xffff_ffff)?);
    let shape = high.shape().clone();
    let pairs = signed(engine, &high)?.into_iter().zip(signed(engine, &low)?);
    Ok((shape, pairs.map(|(high, low)| (high << 32) + low).collect()))
}

/// Words as signed numbers.
pub(super) fn signed<E: Engine>(engine: &E, x: &E::Tensor) -> Result<Vec<i128>> {
    Ok(engine.download(x)?.words().iter().map(|&w| i128::from(w as i64)).collect())
}

/// Three limbs, from the lowest; the last has the sign.
fn limbs<E: Engine>(engine: &E, x: &Tensor) -> Result<Vec<E::Tensor>> {
    let limb = |i: u32| -> Result<_> {
        let part = |&w: &u64| {
            let rest = w as i64 >> (LIMB * i);
            (if i < 2 { rest & ((1 << LIMB) - 1) } else { rest }) as u64
        };
        let words = x.words().iter().map(part).collect();
        Ok(engine.upload(Tensor::new(x.shape().clone(), words)?)?)
    };
    (0..3).map(limb).collect()
}

/// Refuses numbers outside of `-2^bits..2^bits`, and `2^bits` itself unless it may be there.
pub(super) fn check(op: &'static str, values: &[i128], bits: u32, closed: bool) -> Result<()> {
    let limit = 1i128 << bits;
    let inside = |&z: &i128| -limit <= z && (z < limit || closed && z == limit);
    let Some(i) = values.iter().position(|z| !inside(z)) else { return Ok(()) };
    let reason = match values[i] {
        i128::MAX => format!("element {i} is far beyond 2^{bits} in magnitude"),
        z => format!("element {i} is {z}, and must be below 2^{bits} in magnitude"),
    };
    Err(Error::Invalid { op, reason })
}

/// Refuses numbers beyond a limit in magnitude.
pub(super) fn check_below(op: &'static str, values: &[i128], limit: i128) -> Result<()> {
    let Some(i) = values.iter().position(|z| z.abs() > limit) else { return Ok(()) };
    let reason = format!("element {i} is {}, and may be {limit} at most", values[i]);
    Err(Error::Invalid { op, reason })
}

#[cfg(test)]
mod tests {
    use ring_arith::CpuEngine;

    use super::*;
    use crate::SplitMix64;

    #[test]
    fn products_in_limbs_are_those_of_wide_integers() -> Result<()> {
        let engine = CpuEngine::new(1);
        let mut draw = SplitMix64::new(4);
        for bits in [20, 31, 45, 63] {
            let shape = Shape::new([3, 3])?;
            let mut tensor = || Tensor::from_fn(shape.clone(), |_| draw.signed(bits));
            let (x, y) = (tensor(), tensor());
            let at = |t: &Tensor, i: usize, j: usize| i128::from(t.words()[3 * i + j] as i64);
            let want = (0..9)
                .map(|k| -> i128 { (0..3).map(|i| at(&x, k / 3, i) * at(&y, i, k % 3)).sum() });
            let got = bilinear(&engine, &Bilinear::MATMUL, &x, &y)?;
            for (got, want) in got.into_iter().zip(want) {
                assert!(got == want || want.abs() as f64 >= FAR && got == i128::MAX, "{want}");
            }
        }
        Ok(())
    }
}
