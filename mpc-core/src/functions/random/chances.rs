//! Probabilities of integers in binary digits: fixed point with 126 fraction bits, so that no float is rounded.

/// The number 1.
const ONE: u128 = 1 << 126;

/// Squarings after the series of the exponential function: rates go up to `2^6 / 2`.
const SQUARINGS: u32 = 6;

/// `a * b`, rounded down; neither is above 2.
fn product(a: u128, b: u128) -> u128 {
    const LOW: u128 = u64::MAX as u128;
    let [a_high, a_low] = [a >> 64, a & LOW];
    let [b_high, b_low] = [b >> 64, b & LOW];
    let middle = a_high * b_low + a_low * b_high;
    let (low, carry) = (a_low * b_low).overflowing_add(middle << 64);
    let high = a_high * b_high + (middle >> 64) + u128::from(carry);
    high << 2 | low >> 126
}

/// `2^-shift / x`, within `2^-74` of itself and `2^-126`. The result must be at most 1.
fn reciprocal(x: f64, shift: i32) -> u128 {
    let bits = x.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as i32 - 1075;
    let mantissa = u128::from(bits & ((1 << 52) - 1) | 1 << 52);
    let quotient = (1u128 << 127) / mantissa;
    let left = -1 - shift - exponent;
    if left >= 0 {
        quotient << left
    } else {
        quotient.checked_shr(left.unsigned_abs()).unwrap_or(0)
    }
}

/// `exp(-2^6 y)` for `y` up to a half, within `2^-112`.
fn exponential(y: u128) -> u128 {
    let mut sum = ONE;
    let mut term = ONE;
    let mut order = 1;
    while term > 0 {
        term = product(term, y) / order;
        if order % 2 == 1 {
            sum -= term
        } else {
            sum += term
        }
        order += 1;
    }
    (0..SQUARINGS).fold(sum, |power, _| product(power, power))
}

/// `part / whole` to the nearest multiple of `2^-64`, or the largest one below 1; 0 of 0. The whole is at most `2^126`.
fn chance(part: u128, whole: u128) -> u64 {
    if whole == 0 {
        return 0;
    }
    if part >= whole {
        return u64::MAX;
    }
    let mut rest = part;
    let mut digits = 0u128;
    for _ in 0..65 {
        rest <<= 1;
        digits <<= 1;
        if rest >= whole {
            rest -= whole;
            digits |= 1;
        }
    }
    u64::try_from((digits + 1) >> 1).unwrap_or(u64::MAX)
}

/// A probability from 0 to below 1, rounded down to a multiple of `2^-64`.
pub(super) fn of_float(p: f64) -> u64 {
    // A float of at least 2^-11 is such a multiple; the cast drops the fraction of others.
    (p * 64f64.exp2()) as u64
}

/// The chances that the binary digits are 1 of an integer with probabilities in proportion to `exp(-n / scale)`, from the lowest
/// digit on. These digits are independent: `exp(-n / scale)` is a product over the digits of `n`. The digits above have all
/// together a chance below `2^-66`.
///
/// Each chance is within `2^-65` of its own.
pub(super) fn geometric_digits(scale: f64) -> Vec<u64> {
    let mut power = exponential(reciprocal(scale, SQUARINGS as i32));
    let mut digits = Vec::new();
    // exp(-46) < 2^-66
    while (digits.len() as f64).exp2() < 46.0 * scale {
        digits.push(chance(power, ONE + power));
        power = product(power, power);
    }
    digits
}

/// The largest deviation whose sizes [`normal_digits`] draws by their digits.
pub(super) const LARGEST_DIRECT: f64 = 13.0;

/// The chances of the binary digits of the size of an integer with probabilities in proportion to `exp(-n^2 / (2 s^2))`, where
/// `s = deviation / sqrt(squares)` is at most [`LARGEST_DIRECT`]. The first list has the highest digit's, the next one the
/// second digit's after a 0 and after a 1, and so on. Sizes above have a chance below `2^-66` together.
///
/// A size of 0 counts half, since a sign follows. Each chance is within `2^-65` of its own, or the digits before it have a
/// chance so low that they make up for it.
pub(super) fn normal_digits(deviation: f64, squares: u64) -> Vec<Vec<u64>> {
    let own = deviation / (squares as f64).sqrt();
    let count = (1..7).find(|&count| f64::from(count).exp2() >= 9.7 * own).unwrap_or(7);
    // 1 / (2^7 s^2), of which the deviation's reciprocal is squared.
    let inverse = reciprocal(deviation, 3);
    let rate = product(inverse, inverse * u128::from(squares) / 2);
    let step = exponential(rate);
    let square = product(step, step);
    let mut weights = Vec::with_capacity(1 << count);
    let (mut weight, mut factor) = (ONE, step);
    for _ in 0..1u32 << count {
        // Sums of 128 of them stay below 1.
        weights.push(weight >> 8);
        weight = product(weight, factor);
        factor = product(factor, square);
    }
    weights[0] /= 2;
    let level = |level: u32| {
        let both = weights.chunks(1 << (count as u32 - level));
        let of_one = |both: &[u128]| {
            let upper = both[both.len() / 2..].iter().sum();
            chance(upper, both.iter().sum())
        };
        both.map(of_one).collect()
    };
    (0..count as u32).map(level).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float(x: u128) -> f64 {
        x as f64 / 126f64.exp2()
    }

    #[test]
    fn arithmetic_is_that_of_floats_as_far_as_these_go() {
        for [a, b] in [[0.7, 0.3], [1.0, 1.0], [1e-9, 0.5], [1.9, 1.9]] {
            let of = |x: f64| (x * 100f64.exp2()) as u128 * (1 << 26);
            assert!((float(product(of(a), of(b))) - a * b).abs() < 1e-15, "{a} {b}");
        }
        for x in [0.03125, 1.0, 3.0, 1e5, 1e12] {
            assert!((float(reciprocal(x, 6)) * 64.0 * x - 1.0).abs() < 1e-15, "{x}");
        }
        for y in [0.5, 0.25, 1e-3, 1e-12] {
            let x = (y * 100f64.exp2()) as u128 * (1 << 26);
            let wanted = (-64.0 * y).exp();
            assert!((float(exponential(x)) / wanted - 1.0).abs() < 1e-13, "{y}");
        }
        assert_eq!(chance(1, 3), 0x5555_5555_5555_5555);
        assert_eq!(chance(2, 3), 0xaaaa_aaaa_aaaa_aaab);
        assert_eq!([chance(0, 5), chance(5, 5), chance(0, 0)], [0, u64::MAX, 0]);
        assert_eq!([0.5, 0.0, 0.75].map(of_float), [1 << 63, 0, 3 << 62]);
    }

    #[test]
    fn the_exponential_function_is_right_to_112_digits() {
        // floor(2^126 / e), by a program for decimal numbers of any length.
        let wanted = 31_295_721_745_842_633_029_312_681_574_537_707_075;
        let found = exponential(reciprocal(64.0, 0));
        assert!(found.abs_diff(wanted) < 1 << 14, "{found}");
    }

    #[test]
    fn the_digits_of_geometric_numbers_have_the_chances_of_their_sum() {
        for scale in [0.05, 1.0, 7.5, 1000.0] {
            let digits = geometric_digits(scale);
            assert!((digits.len() as f64).exp2() >= 46.0 * scale);
            for (digit, &chance) in digits.iter().enumerate() {
                let power = (-(digit as f64).exp2() / scale).exp();
                let wanted = power / (1.0 + power);
                assert!((chance as f64 / 64f64.exp2() - wanted).abs() < 1e-15, "{scale} {digit}");
            }
        }
    }

    /// The chance of each size, from those of its digits.
    fn sizes(levels: &[Vec<u64>]) -> Vec<f64> {
        let of = |size: usize| {
            let digit = |level: usize| {
                let chance = levels[level][size >> (levels.len() - level)] as f64 / 64f64.exp2();
                if size >> (levels.len() - 1 - level) & 1 == 1 { chance } else { 1.0 - chance }
            };
            (0..levels.len()).map(digit).product()
        };
        (0..1 << levels.len()).map(of).collect()
    }

    #[test]
    fn the_digits_of_normal_sizes_have_the_chances_of_the_distribution() {
        for (deviation, squares, count) in [(0.125, 1, 1), (1.0, 1, 4), (13.0, 1, 7), (40.0, 26, 7)]
        {
            let own = deviation / f64::from(squares).sqrt();
            let levels = normal_digits(deviation, squares as u64);
            assert_eq!(levels.len(), count);
            let weight = |n: usize| (-((n * n) as f64) / (2.0 * own * own)).exp();
            let half = |n: usize| if n == 0 { 0.5 } else { weight(n) };
            let total: f64 = (0..400).map(half).sum();
            for (n, chance) in sizes(&levels).into_iter().enumerate() {
                assert!((chance - half(n) / total).abs() < 1e-14, "{deviation}: {n}");
            }
        }
    }
}
