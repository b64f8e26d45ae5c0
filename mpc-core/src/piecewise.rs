//! Functions of words in pieces.

/// A function of words: quadratic on segments of equal length, linear outside of them.
///
/// Segments are numbered in two's complement: the word `x` of `-2^(low + bits - 1)..2^(low + bits - 1)` lies in
/// segment `x >> low`. A protocol evaluates its polynomial or that of the segment before it, which also covers
/// `x`. All parties must have the same function, bit by bit.
#[derive(Debug, Clone, PartialEq)]
pub struct Piecewise {
    /// A segment has `2^low` words.
    pub low: u32,
    /// Bits of a segment's number.
    pub bits: u32,
    /// By segment modulo `2^bits`, the coefficients of `1`, `d` and `d^2` for the distance `d` from the segment's end,
    /// `-2^low <= d < 2^low`. Their values are below `2^62` in magnitude.
    pub pieces: Vec<[u64; 3]>,
    /// Bits that are dropped of those values.
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

fn power_of_two(n: i32) -> f64 {
    let factor = if n < 0 { 0.5 } else { 2.0 };
    (0..n.unsigned_abs()).fold(1.0, |power, _| power * factor)
}
