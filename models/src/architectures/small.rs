//! A network of few weights, for trainings with differential privacy.

use nn_layers::Graph;

use super::Weights;
use super::blocks::{Builder, window};
use crate::Result;

/// A network for the 28 x 28 images of MNIST: convolutions of 16 and 32 channels, then layers of 32 and 10. The
/// convolutions have stride 2 instead of pools. It has 34,602 weights: the noise of differential privacy grows with
/// the number of weights, and its tutorials' networks for these images are as small.
///
/// # Errors
/// Those of the weights.
pub fn small_cnn(weights: &mut dyn Weights) -> Result<Graph> {
    let (mut b, mut x) = Builder::new(1, 28, weights)?;
    for (name, channels, size) in [("conv1", 16, 5), ("conv2", 32, 4)] {
        x = b.conv(x, name, channels, window(size, 2, 0))?;
        x = b.relu(x)?;
    }
    x = b.flatten(x)?;
    x = b.dense(x, "fc1", 32)?;
    x = b.relu(x)?;
    x = b.dense(x, "fc2", 10)?;
    Ok(b.finish(x))
}
