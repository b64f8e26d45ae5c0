//! AlexNet.

use nn_layers::{Graph, ValueId};

use super::blocks::{Builder, window};
use super::{Images, Pooling, Weights};
use crate::Result;

/// AlexNet. For ImageNet this is the network of 61 million weights that CryptGPU's appendix B
/// describes and torchvision has; for smaller images the appendix drops the last pooling and shrinks
/// the dense layers, to 256-256-10 and 1024-1024-200.
///
/// # Errors
/// Those of the weights.
pub fn alexnet(images: Images, pooling: Pooling, weights: &mut dyn Weights) -> Result<Graph> {
    let (mut b, x) = Builder::new(3, images.size(), weights)?;
    let (x, width) = match images {
        Images::ImageNet => (large(&mut b, x, pooling)?, 4096),
        Images::Cifar10 => (small(&mut b, x, pooling)?, 256),
        Images::TinyImageNet => {
            let x = small(&mut b, x, pooling)?;
            (b.pool(x, pooling, window(2, 2, 0))?, 1024)
        }
    };
    let mut x = b.flatten(x)?;
    for name in ["classifier.1", "classifier.4"] {
        x = b.dense(x, name, width)?;
        x = b.relu(x)?;
    }
    let x = b.dense(x, "classifier.6", images.classes())?;
    Ok(b.finish(x))
}

fn large(b: &mut Builder<'_>, x: ValueId, pooling: Pooling) -> Result<ValueId> {
    let pool = window(3, 2, 0);
    let x = b.conv(x, "features.0", 64, window(11, 4, 2))?;
    let x = b.relu(x)?;
    let x = b.pool(x, pooling, pool)?;
    let x = b.conv(x, "features.3", 192, window(5, 1, 2))?;
    let x = b.relu(x)?;
    let x = b.pool(x, pooling, pool)?;
    let x = tail(b, x, [384, 256, 256])?;
    b.pool(x, pooling, pool)
}

fn small(b: &mut Builder<'_>, x: ValueId, pooling: Pooling) -> Result<ValueId> {
    let x = b.conv(x, "features.0", 96, window(11, 4, 9))?;
    let x = b.relu(x)?;
    let x = b.pool(x, pooling, window(3, 2, 0))?;
    let x = b.conv(x, "features.3", 256, window(5, 1, 1))?;
    let x = b.relu(x)?;
    let x = b.pool(x, pooling, window(2, 1, 0))?;
    tail(b, x, [384, 384, 256])
}

/// The three convolutions without pooling between them.
fn tail(b: &mut Builder<'_>, mut x: ValueId, channels: [usize; 3]) -> Result<ValueId> {
    for (name, c) in ["features.6", "features.8", "features.10"].iter().zip(channels) {
        x = b.conv(x, name, c, window(3, 1, 1))?;
        x = b.relu(x)?;
    }
    Ok(x)
}
