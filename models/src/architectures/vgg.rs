//! VGG-16.

use nn_layers::Graph;

use super::blocks::{Builder, window};
use super::{Images, Pooling, Weights};
use crate::Result;

/// Channels of the convolutions; 0 is pooling.
const LAYERS: [usize; 18] =
    [64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0];

/// VGG-16. For smaller images the dense layers shrink to 256-256-10 and 512-512-200. With
/// [`Pooling::Average`] the network for ImageNet has another pooling before its dense layers, which
/// shrinks the first from 25,088 to 4,608 inputs (CryptGPU, appendix B).
///
/// # Errors
/// Those of the weights.
pub fn vgg16(images: Images, pooling: Pooling, weights: &mut dyn Weights) -> Result<Graph> {
    let (mut b, mut x) = Builder::new(3, images.size(), weights)?;
    let mut place = 0;
    for channels in LAYERS {
        if channels == 0 {
            x = b.pool(x, pooling, window(2, 2, 0))?;
            place += 1;
        } else {
            x = b.conv(x, &format!("features.{place}"), channels, window(3, 1, 1))?;
            x = b.relu(x)?;
            place += 2;
        }
    }
    let width = match (images, pooling) {
        (Images::Cifar10, _) => 256,
        (Images::TinyImageNet, _) => {
            x = b.pool(x, pooling, window(2, 2, 0))?;
            512
        }
        (Images::ImageNet, Pooling::Average) => {
            x = b.pool(x, pooling, window(2, 2, 0))?;
            4096
        }
        (Images::ImageNet, Pooling::Max) => 4096,
    };
    x = b.flatten(x)?;
    for name in ["classifier.0", "classifier.3"] {
        x = b.dense(x, name, width)?;
        x = b.relu(x)?;
    }
    x = b.dense(x, "classifier.6", images.classes())?;
    Ok(b.finish(x))
}
