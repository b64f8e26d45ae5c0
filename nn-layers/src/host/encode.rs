//! Real numbers and integers as words of fixed point, and back.

use ring_arith::{FixedPoint, FracBits, Shape, Tensor};

use crate::{Error, HostTensor, Result};

/// Words with `frac` fraction bits as real numbers.
pub(crate) fn decode(words: &[u64], shape: &Shape, frac: u32) -> Result<HostTensor> {
    let unit = (-f64::from(frac)).exp2();
    HostTensor::new(shape.dims(), words.iter().map(|&w| w as i64 as f64 * unit).collect())
}

/// The end of integer inputs: as real numbers of 20 fraction bits they have an encoding too.
pub(crate) const MOST_INTEGER: f64 = (1u64 << 40) as f64;

/// Real numbers as words with `frac` fraction bits, 0 for integers.
pub(crate) fn encode(value: &HostTensor, frac: u32) -> Result<Tensor> {
    let words = match frac {
        0 => integers(value)?,
        // Noise has more than the numbers that anybody gives.
        41..=62 => integers(&value.map(|v| (v * f64::from(frac).exp2()).round_ties_even()))?,
        _ => {
            let format = FixedPoint(FracBits::new(frac)?);
            match value.short_floats() {
                Some(values) => format.encode_f32(values)?,
                None => format.encode(&value.floats())?,
            }
        }
    };
    Ok(Tensor::new(value.shape().clone(), words)?)
}

fn integers(value: &HostTensor) -> Result<Vec<u64>> {
    if let Ok(ints) = value.as_ints() {
        return Ok(ints.iter().map(|&i| i as u64).collect());
    }
    let values = value.floats();
    match values.iter().position(|v| v.fract() != 0.0 || v.abs() >= 2f64.powi(62)) {
        None => Ok(values.iter().map(|&v| v as i64 as u64).collect()),
        Some(i) => Err(Error::invalid("encode", format!("element {i} is not an integer"))),
    }
}
