//! A test of goodness of fit for integers.

/// The standard normal number that is exceeded once in a million times.
const ONCE_IN_A_MILLION: f64 = 4.7534;

/// The least number of values that a cell is to have.
const LEAST: f64 = 10.0;

/// Pearson's chi-square statistic of integers, and the limit that it exceeds once in a million times if the integers of a
/// range around 0 have chances in proportion to the weights, and others none. Neighbours with small chances make one cell.
///
/// # Panics
/// If an integer is out of the range.
///
/// The limit is that of Wilson and Hilferty (Proc. Natl. Acad. Sci. 17, 1931).
#[must_use]
pub fn chi_square(values: &[i64], range: i64, weight: impl Fn(i64) -> f64) -> [f64; 2] {
    let mut hits = vec![0.0; 2 * range as usize + 1];
    for value in values {
        assert!(value.abs() <= range, "{value} is out of range");
        hits[(value + range) as usize] += 1.0;
    }
    let total: f64 = (-range..=range).map(&weight).sum();
    let mut cells: Vec<[f64; 2]> = Vec::new();
    let mut open = [0.0; 2];
    for (n, hits) in (-range..=range).zip(hits) {
        open = [open[0] + hits, open[1] + weight(n) / total * values.len() as f64];
        if open[1] >= LEAST {
            cells.push(std::mem::take(&mut open));
        }
    }
    if let Some(last) = cells.last_mut() {
        *last = [last[0] + open[0], last[1] + open[1]];
    }
    let statistic = cells.iter().map(|[hits, wanted]| (hits - wanted).powi(2) / wanted).sum();
    let freedom = cells.len() as f64 - 1.0;
    let spread = 2.0 / (9.0 * freedom);
    let limit = freedom * (1.0 - spread + ONCE_IN_A_MILLION * spread.sqrt()).powi(3);
    [statistic, limit]
}
