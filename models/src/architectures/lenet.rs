//! LeNet.

use nn_layers::Graph;

use super::blocks::{Builder, window};
use super::{Pooling, Weights};
use crate::Result;

/// LeNet for the 28 x 28 images of MNIST: convolutions of 20 and 50 channels, each pooled and then
/// rectified, and layers of 500 and 10. ReLU takes the place of the original's hyperbolic tangent.
///
/// # Errors
/// Those of the weights.
pub fn lenet(pooling: Pooling, weights: &mut dyn Weights) -> Result<Graph> {
    let (mut b, mut x) = Builder::new(1, 28, weights)?;
    for (name, channels) in [("conv1", 20), ("conv2", 50)] {
        x = b.conv(x, name, channels, window(5, 1, 0))?;
        x = b.pool(x, pooling, window(2, 2, 0))?;
        x = b.relu(x)?;
    }
    x = b.flatten(x)?;
    x = b.dense(x, "fc1", 500)?;
    x = b.relu(x)?;
    x = b.dense(x, "fc2", 10)?;
    Ok(b.finish(x))
}
