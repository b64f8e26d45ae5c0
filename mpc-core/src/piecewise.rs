//! Functions of words in pieces.

/// A function of words: quadratic on segments of equal length, linear outside of them.
///
/// Segments are numbered in two's complement: the word `x` of `-2^(low + bits - 1)..2^(low + bits - 1)` lies in
/// segment `x >> low`, and either its polynomial or that of the segment before it, which reach as far, are
/// evaluated. All parties must have the same one, bit by bit.
#[derive(Debug, Clone, PartialEq)]
pub struct Piecewise {
    /// A segment has `2^low` words.
    pub low: u32,
    /// Bits of a segment's number.
    pub bits: u32,
    /// By segment modulo `2^bits`, the coefficients of `1`, `d` and `d^2` for the distance `d` from the segment's end,
    /// `-2^low <= d < 2^low`. What they give is below `2^62` in magnitude.
    pub pieces: Vec<[u64; 3]>,
    /// Bits that are dropped of that.
    pub drop: u32,
    /// The first word that a segment is used for, not before the second one's start, and the first above it that none
    /// is used for.
    pub ends: [i64; 2],
    /// Below and from there on: a constant, and the factor of the word.
    pub outside: [[u64; 2]; 2],
}

impl Piecewise {
    /// Quadratic interpolation of a function of numbers with 20 fraction bits, whose results have `20 + drop` of them
    /// before they are rounded.
    ///
    /// `f` must give the same bits on every machine: the four operations of arithmetic do, `f64::exp` does not.
    pub fn interpolated(
        f: impl Fn(f64) -> f64,
        [low, bits]: [u32; 2],
        drop: u32,
        ends: [i64; 2],
        outside: [[u64; 2]; 2],
    ) -> Self {
        const UNIT: f64 = 1.0 / 1_048_576.0;
        // The roots of the third Chebyshev polynomial.
        const ROOT: f64 = 0.866_025_403_784_438_6;
        let half = power_of_two(low as i32) * UNIT;
        let count = 1i64 << bits;
        let word = |x: f64| (x + 0.5).floor() as i64 as u64;
        let piece = |segment: i64| {
            let signed = if segment < count / 2 { segment } else { segment - count };
            let end = (signed + 1) as f64 * half;
            let [y0, y1, y2] = [-ROOT, 0.0, ROOT].map(|t| f(end + t * half));
            let step = ROOT * half;
            let (slope, curve) =
                ((y2 - y0) / (2.0 * step), (y2 + y0 - 2.0 * y1) / (2.0 * step * step));
            let scale = power_of_two(20 + drop as i32);
            [word(y1 * scale), word(slope * scale * UNIT), word(curve * scale * UNIT * UNIT)]
        };
        Self { low, bits, pieces: (0..count).map(piece).collect(), drop, ends, outside }
    }
}

/// `e^x` by arithmetic alone.
pub(crate) fn exp(x: f64) -> f64 {
    let n = (x * std::f64::consts::LOG2_E).round();
    let r = x - n * std::f64::consts::LN_2;
    let (mut term, mut sum) = (1.0, 1.0);
    for i in 1..20 {
        term *= r / f64::from(i);
        sum += term;
    }
    sum * power_of_two(n as i32)
}

/// The error function by Kummer's series, of which all terms are positive.
pub(crate) fn erf(x: f64) -> f64 {
    let a = x.abs().min(6.0);
    let (mut term, mut sum) = (a, a);
    for n in 1..200 {
        term *= 2.0 * a * a / f64::from(2 * n + 1);
        sum += term;
    }
    x.signum() * std::f64::consts::FRAC_2_SQRT_PI * exp(-a * a) * sum
}

fn power_of_two(n: i32) -> f64 {
    let factor = if n < 0 { 0.5 } else { 2.0 };
    (0..n.unsigned_abs()).fold(1.0, |power, _| power * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_by_arithmetic_are_as_the_machines() {
        for i in -400..=400 {
            let x = f64::from(i) / 20.0;
            assert!((exp(x) / x.exp() - 1.0).abs() < 1e-13, "e^{x}");
        }
        assert!((erf(0.5) - 0.520_499_877_813_046_5).abs() < 1e-14);
        assert!((erf(-3.0) + 0.999_977_909_503_001_4).abs() < 1e-13);
    }
}
