//! Gaussian noise that no party knows.

use ring_arith::{Engine, Shape, Tensor};
use zeroize::Zeroizing;

use crate::{Format, Normal, Protocol, Result, SecretTensor, provided::sums_of_inputs};

/// The variance of [`gaussian`] noise of standard deviation 1 among this many parties: `n / (n - 1)`, and 1 for one.
pub fn gaussian_variance(parties: usize) -> f64 {
    parties as f64 * part(parties)
}

/// The variance that each party adds.
fn part(parties: usize) -> f64 {
    1.0 / parties.saturating_sub(1).max(1) as f64
}

/// Secret tensors of independent Gaussian noise with `frac` fraction bits.
///
/// Each of `n` parties inputs noise of variance `deviation^2 / (n - 1)` from its own generator
/// ([`Protocol::private_stream`]), and the result is the sum. A party knows only its own part. The parts of the
/// other `n - 1` hide the noised value with at least `deviation`, also from a party that colludes with the receiver
/// of the sum. All in all the variance is `deviation^2 n / (n - 1)` ([`gaussian_variance`]): 1.5 times as much among
/// three parties. A party that omits its noise, or adds other noise, removes only the protection against itself and
/// the parties that it colludes with.
///
/// # Distribution
/// Each part is a normal deviate rounded to the unit `2^-frac` ([`Normal`], within `2^-118` of it). Added to words of
/// the same unit, one rounded part gives the rounding of a sum with a normal deviate, and reveals no more than that
/// sum. A sum of two rounded parts is a rounded deviate of both variances, moved by at most half a unit. For `d`
/// numbers it is within `sqrt(d) 2^-(frac + 1) / deviation` of that deviate in total variation.
///
/// # Cost
/// One input by each party: with replicated sharing among three parties 3 rounds and 192 bits for each element in all.
///
/// # Errors
/// [`crate::Error::Invalid`] unless the deviation is from `2^20` to `2^56` units; [`crate::Error::Net`] if a peer failed.
pub fn gaussian<P: Protocol>(
    mpc: &mut P,
    shapes: &[Shape],
    deviation: f64,
    frac: u32,
) -> Result<Vec<SecretTensor<P>>> {
    let own = deviation * part(mpc.parties()).sqrt() * f64::from(frac).exp2();
    let mut normal = Normal::new(&mpc.private_stream()?, own)?;
    let mut mine = vec![];
    // All draws come before the first message, so that their time does not show between messages.
    for shape in shapes {
        let words = Zeroizing::new((0..shape.len()).map(|_| normal.draw()).collect::<Vec<_>>());
        mine.push(mpc.engine().upload(Tensor::new(shape.clone(), words.to_vec())?)?);
    }
    let sums = sums_of_inputs(mpc, shapes, &mine)?;
    Ok(sums.into_iter().map(|sum| SecretTensor::new(sum, Format::words(frac))).collect())
}

#[cfg(test)]
mod tests {
    use ring_arith::CpuEngine;

    use super::*;
    use crate::{Plaintext, functions::reveal};

    #[test]
    fn noise_has_the_variance_that_is_stated_and_is_other_noise_each_time() -> Result<()> {
        let mut mpc = Plaintext::new(CpuEngine::new(1));
        let shape = Shape::new([50, 1000])?;
        let mut seen: Vec<Vec<f64>> = vec![];
        for deviation in [0.5, 3.0] {
            let noise = gaussian(&mut mpc, &vec![shape.clone(); 2], deviation, 40)?;
            for tensor in &noise {
                let values = reveal(&mut mpc, tensor)?;
                let mean_square = values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64;
                let of = mean_square / (deviation * deviation * gaussian_variance(1));
                assert!((of - 1.0).abs() < 0.03, "{of} of the variance");
                assert!(seen.iter().all(|other| other[0] != values[0]));
                seen.push(values);
            }
        }
        Ok(())
    }

    #[test]
    fn all_parties_but_one_have_the_deviation_together() {
        for parties in [2, 3, 5] {
            assert!((part(parties) * (parties - 1) as f64 - 1.0).abs() < 1e-12);
        }
        assert_eq!([1, 2, 3].map(gaussian_variance), [1.0, 2.0, 1.5]);
    }
}
