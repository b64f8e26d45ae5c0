//! The sources of a network's weights.

use std::collections::BTreeMap;

use nn_layers::HostTensor;

use crate::{Error, Result};

/// The role of a tensor in its layer, which determines how it is drawn at random.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Role {
    /// A kernel or matrix, with the number of products that are summed for each output.
    Kernel(usize),
    /// A bias, the shift of a normalisation or its mean.
    Shift,
    /// The scale of a normalisation, around the given number.
    Scale(f64),
    /// The variance of a normalisation.
    Variance,
}

/// A source of weights.
pub trait Weights {
    /// The tensor of a name.
    ///
    /// # Errors
    /// [`Error::Format`] if the tensor is missing or has another shape.
    fn tensor(&mut self, name: &str, dims: &[usize], role: Role) -> Result<HostTensor>;
}

/// Weights drawn at random such that activations keep their magnitude: for measuring, and for tests.
/// Not cryptographic.
#[derive(Debug, Clone)]
pub struct RandomWeights(u64);

/// Weights by name, for instance from a `safetensors` file.
#[derive(Debug, Clone)]
pub struct NamedWeights(pub BTreeMap<String, HostTensor>);

impl RandomWeights {
    /// A replayable source.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number in `[-1, 1)` (SplitMix64).
    pub fn number(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as i64 as f64 / 2f64.powi(63)
    }

    /// A tensor of numbers in `[-scale, scale)` around `centre`.
    ///
    /// # Errors
    /// [`Error::Network`] if the shape is too large.
    pub fn around(&mut self, dims: &[usize], centre: f64, scale: f64) -> Result<HostTensor> {
        let len = dims.iter().product();
        let values = (0..len).map(|_| centre + scale * self.number()).collect();
        Ok(HostTensor::new(dims, values)?)
    }
}

impl Weights for RandomWeights {
    fn tensor(&mut self, _name: &str, dims: &[usize], role: Role) -> Result<HostTensor> {
        match role {
            // Half of the outputs are lost to ReLU: a variance of 2 / inputs keeps the magnitude
            // (He et al., ICCV 2015); a uniform number in [-1, 1) has variance 1/3.
            Role::Kernel(inputs) => self.around(dims, 0.0, (6.0 / inputs.max(1) as f64).sqrt()),
            Role::Shift => self.around(dims, 0.0, 0.02),
            Role::Scale(centre) => self.around(dims, centre, 0.1 * centre),
            Role::Variance => self.around(dims, 1.0, 0.1),
        }
    }
}

impl Weights for NamedWeights {
    fn tensor(&mut self, name: &str, dims: &[usize], _role: Role) -> Result<HostTensor> {
        let wrong = |reason: String| Error::format("weights", format!("`{name}` {reason}"));
        let tensor = self.0.get(name).ok_or_else(|| wrong("is missing".to_owned()))?;
        if tensor.dims() != dims {
            return Err(wrong(format!("has shape {:?}, the network has {dims:?}", tensor.shape())));
        }
        Ok(tensor.to_float())
    }
}
