//! The privacy loss of a row in trainings with [`super::Privacy`]: epsilon at a stated delta.

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Adds up the privacy loss of one row, over the steps of all runs.
///
/// Two data sets are neighbours if one of them has nothing in the place of a row: the gap takes part in the
/// same batches with a gradient of zero. (Of two data sets with *different* rows in that place the norms are
/// twice as large: such pairs have the epsilon of four times as many uses.)
///
/// # Which batches
/// The analysis depends on the public knowledge about the batches.
/// - [`Accountant::add_known`]: everybody may know in which steps a row takes part, as in a training that goes
///   through an order which a public seed shuffles. Shuffling does not gain anything. Each use of the row is
///   one Gaussian mechanism, and `k` of them with multiplier `s` are exactly one with multiplier `s / sqrt(k)`,
///   whatever steps depend on ([DRS22]). Its epsilon is exact ([BW18]).
/// - [`Accountant::add_sampled`]: every row is drawn for every step by a separate coin, which no observer of
///   the weights sees. Only then is the privacy that of Poisson sampling, by Rényi divergences ([MTZ19]).
///   Batches of a fixed size, or an order that is shuffled in secret, are *not* such samples: their epsilon can
///   be several times as large ([CGK+24]).
///
/// [DRS22]: https://arxiv.org/abs/1905.02383
/// [BW18]: https://arxiv.org/abs/1805.06530
/// [MTZ19]: https://arxiv.org/abs/1908.10530
/// [CGK+24]: https://arxiv.org/abs/2403.17673
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Accountant {
    /// The sum over all known uses of one over the square of the multiplier.
    known: f64,
    /// Rényi divergences of sampled steps, by [`orders`]; empty if there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sampled: Vec<f64>,
}

/// The orders of Rényi divergences among which the best is taken: those of Opacus.
fn orders() -> impl Iterator<Item = f64> {
    (1..100).map(|x| 1.0 + f64::from(x) / 10.0).chain((12..64).map(f64::from))
}

impl Accountant {
    /// Adds uses of a row in steps of which everybody may know that it takes part, at most once in each.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless the multiplier is a positive number.
    pub fn add_known(&mut self, multiplier: f64, uses: u32) -> Result<()> {
        check_multiplier(multiplier)?;
        self.known += f64::from(uses) / (multiplier * multiplier);
        Ok(())
    }

    /// Adds steps for each of which a row is drawn with probability `rate`, in secret and by a separate coin.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless the multiplier is positive and the rate from 0 to 1.
    pub fn add_sampled(&mut self, multiplier: f64, rate: f64, steps: u32) -> Result<()> {
        check_multiplier(multiplier)?;
        if !(0.0..=1.0).contains(&rate) {
            return Err(Error::invalid("privacy", format!("a sampling rate of {rate}")));
        }
        self.sampled.resize(orders().count(), 0.0);
        for (sum, order) in self.sampled.iter_mut().zip(orders()) {
            *sum += f64::from(steps) * sampled_divergence(multiplier, rate, order);
        }
        Ok(())
    }

    /// Adds all that another has counted.
    pub fn add(&mut self, other: &Self) {
        self.known += other.known;
        self.sampled.resize(self.sampled.len().max(other.sampled.len()), 0.0);
        self.sampled.iter_mut().zip(&other.sampled).for_each(|(sum, more)| *sum += more);
    }

    /// Epsilon at this delta; infinite if the orders have none.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless delta is between 0 and 1.
    pub fn epsilon(&self, delta: f64) -> Result<f64> {
        check_delta(delta)?;
        if self.sampled.is_empty() {
            return Ok(gaussian_epsilon(self.known.sqrt(), delta));
        }
        let epsilon = |(order, sampled): (f64, &f64)| {
            let divergence = sampled + order * self.known / 2.0;
            // Proposition 12 of Canonne, Kamath, Steinke, https://arxiv.org/abs/2004.00010, with log(1 / delta).
            divergence - (delta.ln() + order.ln()) / (order - 1.0) + (-1.0 / order).ln_1p()
        };
        let least = orders().zip(&self.sampled).map(epsilon).fold(f64::INFINITY, f64::min);
        Ok(least.max(0.0))
    }
}

/// The least multiplier with which `uses` known uses of a row have at most this epsilon.
///
/// # Errors
/// [`Error::Invalid`] unless epsilon is a positive number and delta between 0 and 1.
pub fn multiplier_for(epsilon: f64, delta: f64, uses: u32) -> Result<f64> {
    check_delta(delta)?;
    if !(epsilon > 0.0 && epsilon < MOST_EPSILON) {
        let reason = format!("an epsilon of {epsilon} is not within 0 to {MOST_EPSILON}");
        return Err(Error::invalid("privacy", reason));
    }
    // The distance of the two means that is too small, and one that is too large.
    let (mut low, mut high) = (0.0, 2.0 * epsilon.sqrt() + epsilon + 1.0);
    for _ in 0..BISECTIONS {
        let middle = 0.5 * (low + high);
        if gaussian_epsilon(middle, delta) <= epsilon { low = middle } else { high = middle }
    }
    Ok(f64::from(uses).sqrt() / low)
}

/// Halvings of an interval: more than a float has bits.
const BISECTIONS: usize = 200;

/// The largest epsilon: a larger one does not protect rows.
const MOST_EPSILON: f64 = 1e6;

fn check_multiplier(multiplier: f64) -> Result<()> {
    if multiplier > 0.0 && multiplier.is_finite() {
        return Ok(());
    }
    Err(Error::invalid("privacy", format!("a noise multiplier of {multiplier}")))
}

fn check_delta(delta: f64) -> Result<()> {
    if delta > 0.0 && delta < 1.0 {
        return Ok(());
    }
    Err(Error::invalid("privacy", format!("a delta of {delta} is not between 0 and 1")))
}

/// Epsilon of two normal distributions of deviation 1 whose means are `distance` apart: never below the exact one.
fn gaussian_epsilon(distance: f64, delta: f64) -> f64 {
    if distance == 0.0 || gaussian_delta(distance, 0.0) <= delta {
        return 0.0;
    }
    // delta < exp(-(epsilon / distance - distance / 2)^2 / 2)
    let (mut low, mut high) =
        (0.0, distance * (0.5 * distance + (2.0 * (1.0 / delta).ln()).sqrt()));
    for _ in 0..BISECTIONS {
        let middle = 0.5 * (low + high);
        if gaussian_delta(distance, middle) > delta { low = middle } else { high = middle }
    }
    high
}

/// Theorem 8 of Balle and Wang.
fn gaussian_delta(distance: f64, epsilon: f64) -> f64 {
    let near = log_below(distance / 2.0 - epsilon / distance);
    let far = epsilon + log_below(-distance / 2.0 - epsilon / distance);
    // exp(near) - exp(far), whose terms are close to each other where epsilon is large.
    near.exp() * -(far - near).min(0.0).exp_m1()
}

/// The Rényi divergence of a step, of one order, by the integral of its definition, over steps of a 32nd
/// deviation.
fn sampled_divergence(multiplier: f64, rate: f64, order: f64) -> f64 {
    if rate == 0.0 {
        return 0.0;
    }
    let square = multiplier * multiplier;
    // In units of the deviation; the integrand is largest between 0 and the order over the multiplier.
    let width = 1.0 / 32.0;
    let ends = [-12.0, order / multiplier + 12.0].map(|end: f64| (end / width).round() as i64);
    let log_term = |i: i64| {
        let z = i as f64 * width;
        let ratio = (2.0 * z * multiplier - 1.0) / (2.0 * square);
        let mixed = log_sum((-rate).ln_1p(), rate.ln() + ratio);
        order * mixed - 0.5 * z * z
    };
    let terms = || (ends[0]..=ends[1]).map(log_term);
    let most = terms().fold(f64::NEG_INFINITY, f64::max);
    let sum = terms().map(|term| (term - most).exp()).sum::<f64>() * width;
    (most + sum.ln() - 0.5 * (2.0 * std::f64::consts::PI).ln()) / (order - 1.0)
}

/// `log(exp(x) + exp(y))`.
fn log_sum(x: f64, y: f64) -> f64 {
    let (low, high) = if x < y { (x, y) } else { (y, x) };
    if high == f64::NEG_INFINITY { high } else { high + (low - high).exp().ln_1p() }
}

/// The logarithm of the part of the standard normal distribution below `z`.
fn log_below(z: f64) -> f64 {
    if z > -5.0 {
        return below(z).ln();
    }
    // Laplace's continued fraction for the tail, from its end.
    let x = -z;
    let fraction = (1..=60).rev().fold(x, |rest, n| x + f64::from(n) / rest);
    -0.5 * z * z - 0.5 * (2.0 * std::f64::consts::PI).ln() - fraction.ln()
}

/// The part below `z`, for `z` of at least -5: by the series around 0.
fn below(z: f64) -> f64 {
    if z > 0.0 {
        return 1.0 - log_below(-z).exp();
    }
    // 1/2 - density(z) (|z| + |z|^3 / 3 + |z|^5 / 15 + ..): the digits that cancel at -5 are six of sixteen.
    let (mut term, mut sum) = (-z, -z);
    for n in 1..=100 {
        term *= z * z / f64::from(2 * n + 1);
        sum += term;
    }
    0.5 - sum * (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(multiplier: f64, uses: u32) -> Accountant {
        let mut accountant = Accountant::default();
        accountant.add_known(multiplier, uses).unwrap();
        accountant
    }

    fn sampled(multiplier: f64, rate: f64, steps: u32) -> Accountant {
        let mut accountant = Accountant::default();
        accountant.add_sampled(multiplier, rate, steps).unwrap();
        accountant
    }

    #[track_caller]
    fn close(got: f64, expected: f64, relative: f64) {
        assert!((got / expected - 1.0).abs() < relative, "{got}, not {expected}");
    }

    /// Opacus, `opacus/tests/accountants_test.py`, `test_rdp_accountant`: multiplier 1.5, rate 0.04, 2250 steps.
    #[test]
    fn epsilon_of_sampled_steps_is_that_of_opacus() {
        let epsilon = sampled(1.5, 0.04, 2250).epsilon(1e-5).unwrap();
        close(epsilon, 7.329_111_171_43, 1e-9);
    }

    /// dp-accounting, `rdp_privacy_accountant_test.py`, `test_compute_rdp_poisson_sampled_gaussian`, which allows 1e-4. Its
    /// orders that are not whole are bounds between whole ones.
    #[test]
    fn divergences_of_sampled_steps_are_those_of_dp_accounting() {
        for (order, expected) in
            [(5.0, 2.180_756_56e-3), (50.0, 2.384_603_75e-2), (100.0, 1.674_163_08e2)]
        {
            close(50.0 * sampled_divergence(2.5, 0.01, order), expected, 1e-4);
        }
        for (order, bound) in [(1.5, 6.705_797_41e-4), (2.5, 1.085_487_10e-3)] {
            let got = 50.0 * sampled_divergence(2.5, 0.01, order);
            assert!((0.95..=1.0).contains(&(got / bound)), "{got} at order {order}");
        }
    }

    /// dp-accounting, `pld/privacy_loss_mechanism_test.py`, `test_gaussian_from_privacy_parameters`: distance, epsilon and
    /// delta; and epsilon 16 at delta 1e-5 for a deviation of 0.344.
    #[test]
    fn delta_of_a_gaussian_is_that_of_dp_accounting() {
        for (distance, epsilon, delta) in
            [(1.0, 1.0, 0.126_936_74), (3.0, 1.0, 0.787_600_74), (1.0, 2.0, 0.020_923_64)]
        {
            close(gaussian_delta(distance, epsilon), delta, 1e-6);
        }
        close(multiplier_for(16.0, 1e-5, 1).unwrap(), 0.344, 1e-3);
    }

    /// dp-accounting, `test_compute_epsilon_delta_gaussian`: multiplier 4.530877117 has epsilon 1 at delta 1e-6 by
    /// divergences of all orders, of which the exact epsilon is a little less.
    #[test]
    fn the_exact_epsilon_is_a_little_below_that_of_divergences() {
        let by_divergences = (1010..100_000).map(|i| f64::from(i) / 1000.0).map(|order| {
            let divergence = order / (2.0 * 4.530_877_117_f64.powi(2));
            divergence - (1e-6f64.ln() + order.ln()) / (order - 1.0) + (-1.0 / order).ln_1p()
        });
        close(by_divergences.fold(f64::INFINITY, f64::min), 1.0, 1e-6);
        let exact = known(4.530_877_117, 1).epsilon(1e-6).unwrap();
        assert!((0.9..1.0).contains(&exact), "{exact}");
    }

    #[test]
    fn known_uses_add_up_as_squares_and_runs_add_up() {
        let four = known(2.0, 4).epsilon(1e-5).unwrap();
        close(four, known(1.0, 1).epsilon(1e-5).unwrap(), 1e-12);
        let mut both = known(2.0, 3);
        both.add(&known(2.0, 1));
        close(both.epsilon(1e-5).unwrap(), four, 1e-12);
        let mut mixed = sampled(2.0, 0.01, 100);
        let alone = mixed.epsilon(1e-5).unwrap();
        mixed.add(&known(2.0, 4));
        assert!(mixed.epsilon(1e-5).unwrap() > alone.max(four));
        assert_eq!(Accountant::default().epsilon(1e-5).unwrap(), 0.0);
    }

    #[test]
    fn a_row_that_is_sampled_for_certain_takes_part_in_every_step() {
        for order in [1.1, 3.0, 20.0] {
            close(sampled_divergence(1.5, 1.0, order), order / (2.0 * 2.25), 1e-9);
        }
    }

    /// The closed form for whole orders: Mironov, Talwar, Zhang, equation 4.
    #[test]
    fn divergences_are_those_of_the_closed_form_at_whole_orders() {
        for (multiplier, rate) in [(0.7, 0.001), (1.0, 0.02), (4.0, 0.5)] {
            for order in [2u32, 7, 40] {
                let mut binomial = 0.0f64;
                let mut sum = f64::NEG_INFINITY;
                for k in 0..=order {
                    let (n, k) = (f64::from(order), f64::from(k));
                    let term = k * f64::ln(rate)
                        + (n - k) * f64::ln_1p(-rate)
                        + (k * k - k) / (2.0 * multiplier * multiplier);
                    sum = log_sum(sum, binomial + term);
                    binomial += ((n - k) / (k + 1.0)).ln();
                }
                let expected = sum / f64::from(order - 1);
                close(sampled_divergence(multiplier, rate, f64::from(order)), expected, 1e-7);
            }
        }
    }

    #[test]
    fn a_multiplier_found_for_an_epsilon_has_it() {
        for (epsilon, delta, uses) in [(0.1, 1e-6, 1), (3.0, 1e-5, 4), (8.0, 1e-5, 90)] {
            let multiplier = multiplier_for(epsilon, delta, uses).unwrap();
            let got = known(multiplier, uses).epsilon(delta).unwrap();
            assert!(got <= epsilon * (1.0 + 1e-9) && got > 0.999 * epsilon, "{got}");
        }
    }

    #[test]
    fn the_normal_distribution_is_right_to_ten_digits() {
        // Abramowitz and Stegun, table 26.1 and 26.2.
        close(below(-1.0), 0.158_655_253_931_457, 1e-13);
        close(below(-3.0), 1.349_898_031_630_1e-3, 1e-11);
        close(log_below(-5.0).exp(), 2.866_515_718_79e-7, 1e-9);
        close(log_below(-4.999), below(-4.999).ln(), 1e-10);
        close(log_below(-10.0).exp(), 7.619_853_024_16e-24, 1e-10);
        close(below(2.0), 0.977_249_868_051_821, 1e-13);
    }

    #[test]
    fn numbers_that_have_no_meaning_are_refused() {
        let mut accountant = Accountant::default();
        for multiplier in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(accountant.add_known(multiplier, 1).is_err());
            assert!(accountant.add_sampled(multiplier, 0.1, 1).is_err());
        }
        assert!(accountant.add_sampled(1.0, 1.5, 1).is_err());
        for delta in [0.0, 1.0, f64::NAN] {
            assert!(accountant.epsilon(delta).is_err());
            assert!(multiplier_for(1.0, delta, 1).is_err());
        }
        assert!(multiplier_for(0.0, 1e-5, 1).is_err());
    }
}
