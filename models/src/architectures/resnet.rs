//! ResNets for ImageNet, and for CIFAR-10.

use nn_layers::{Graph, ValueId};

use super::blocks::{Builder, window};
use super::{Images, Pooling, Weights};
use crate::Result;

/// The depth of a ResNet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Depth {
    /// ResNet-18.
    D18,
    /// ResNet-34.
    D34,
    /// ResNet-50.
    D50,
    /// ResNet-101.
    D101,
    /// ResNet-152.
    D152,
}

impl Depth {
    /// Blocks of each stage, and whether they are bottlenecks.
    fn blocks(self) -> ([usize; 4], bool) {
        match self {
            Self::D18 => ([2, 2, 2, 2], false),
            Self::D34 => ([3, 4, 6, 3], false),
            Self::D50 => ([3, 4, 6, 3], true),
            Self::D101 => ([3, 4, 23, 3], true),
            Self::D152 => ([3, 8, 36, 3], true),
        }
    }
}

/// The batch normalisation at the end of a block starts around this, at random weights, and that of
/// a shortcut around [`SHORTCUT`]: sums of many blocks then keep their magnitude.
const BODY: f64 = 0.25;

/// See [`BODY`].
const SHORTCUT: f64 = 0.7;

/// A ResNet for ImageNet, with torchvision's layout and names.
///
/// # Errors
/// Those of the weights.
pub fn resnet(depth: Depth, pooling: Pooling, weights: &mut dyn Weights) -> Result<Graph> {
    let (mut b, x) = Builder::new(3, Images::ImageNet.size(), weights)?;
    let x = b.bare_conv(x, "conv1", 64, window(7, 2, 3))?;
    let x = b.norm(x, "bn1", 1.0)?;
    let x = b.relu(x)?;
    let mut x = b.pool(x, pooling, window(3, 2, 1))?;
    let (stages, bottleneck) = depth.blocks();
    for (stage, &blocks) in stages.iter().enumerate() {
        let width = 64 << stage;
        for i in 0..blocks {
            let name = format!("layer{}.{i}", stage + 1);
            let stride = if i == 0 && stage > 0 { 2 } else { 1 };
            x = block(&mut b, x, &name, width, stride, bottleneck)?;
        }
    }
    let x = b.global_mean(x)?;
    let x = b.dense(x, "fc", Images::ImageNet.classes())?;
    Ok(b.finish(x))
}

/// A ResNet for the images of CIFAR-10 (He et al., CVPR 2016, section 4.2): three stages of 16, 32 and 64 channels,
/// `blocks` blocks each; 1 gives ResNet-8, 3 ResNet-20. Shortcuts between stages are convolutions of one tap.
///
/// # Errors
/// Those of the weights.
pub fn resnet_cifar(blocks: usize, weights: &mut dyn Weights) -> Result<Graph> {
    let (mut b, x) = Builder::new(3, Images::Cifar10.size(), weights)?;
    let x = b.bare_conv(x, "conv1", 16, window(3, 1, 1))?;
    let x = b.norm(x, "bn1", 1.0)?;
    let mut x = b.relu(x)?;
    for stage in 0..3 {
        for i in 0..blocks {
            let name = format!("layer{}.{i}", stage + 1);
            let stride = if i == 0 && stage > 0 { 2 } else { 1 };
            x = block(&mut b, x, &name, 16 << stage, stride, false)?;
        }
    }
    let x = b.global_mean(x)?;
    let x = b.dense(x, "fc", Images::Cifar10.classes())?;
    Ok(b.finish(x))
}

fn block(
    b: &mut Builder<'_>,
    x: ValueId,
    name: &str,
    width: usize,
    stride: usize,
    bottleneck: bool,
) -> Result<ValueId> {
    // Size, step and border of each convolution, and its channels.
    let layers = if bottleneck {
        vec![(window(1, 1, 0), width), (window(3, stride, 1), width), (window(1, 1, 0), 4 * width)]
    } else {
        vec![(window(3, stride, 1), width), (window(3, 1, 1), width)]
    };
    let (last, channels) = (layers.len(), layers[layers.len() - 1].1);
    let mut y = x;
    for (i, (window, channels)) in layers.into_iter().enumerate() {
        let i = i + 1;
        y = b.bare_conv(y, &format!("{name}.conv{i}"), channels, window)?;
        y = b.norm(y, &format!("{name}.bn{i}"), if i == last { BODY } else { 1.0 })?;
        if i < last {
            y = b.relu(y)?;
        }
    }
    let mut shortcut = x;
    if stride != 1 || b.graph.shape(x).dims()[1] != channels {
        let down = format!("{name}.downsample");
        shortcut = b.bare_conv(x, &format!("{down}.0"), channels, window(1, stride, 0))?;
        shortcut = b.norm(shortcut, &format!("{down}.1"), SHORTCUT)?;
    }
    let sum = b.sum(y, shortcut)?;
    b.relu(sum)
}
