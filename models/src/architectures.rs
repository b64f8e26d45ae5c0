//! The networks of the papers, as graphs: of images, texts and speech.
//!
//! Those for images, but for the vision transformer, are known to [`by_name`]. Each comes with [`Pooling::Average`], as CryptGPU evaluates it (Tan et al., S&P 2021, appendix B),
//! and with [`Pooling::Max`], unmodified. Weights have torchvision's names where that has the network.

mod alexnet;
mod blocks;
mod lenet;
mod resnet;
mod sentiment;
mod small;
mod source;
mod speech;
mod transformer;
mod vgg;

use nn_layers::Graph;

pub use alexnet::alexnet;
pub use lenet::lenet;
pub use resnet::{Depth, resnet, resnet_cifar};
pub use sentiment::{SENTIMENT_WORDS, sentiment};
pub use small::small_cnn;
pub use source::{NamedWeights, RandomWeights, Role, Weights};
pub use speech::wav2letter;
pub use transformer::{GPT2_TOKENS, Transformer, bert, gpt2, gpt2_step, vit};
pub use vgg::vgg16;

use crate::{Error, Result};

/// The images that a network is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Images {
    /// 32 x 32 colour images of 10 classes.
    Cifar10,
    /// 64 x 64 colour images of 200 classes.
    TinyImageNet,
    /// 224 x 224 colour images of 1000 classes.
    ImageNet,
}

/// The kind of pooling between a network's convolutions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pooling {
    /// By averages, as in CryptGPU: pooling then costs nothing.
    Average,
    /// By maxima, as the networks were first published.
    Max,
}

/// The names that [`by_name`] knows.
pub const NAMES: [&str; 15] = [
    "lenet",
    "small-cnn",
    "alexnet-cifar",
    "alexnet-tiny",
    "alexnet-imagenet",
    "vgg16-cifar",
    "vgg16-tiny",
    "vgg16-imagenet",
    "resnet8",
    "resnet20",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
];

/// A network by its name, one of [`NAMES`].
///
/// # Errors
/// [`Error::Format`] if the name is unknown, and those of the weights.
pub fn by_name(name: &str, pooling: Pooling, weights: &mut dyn Weights) -> Result<Graph> {
    match name {
        "lenet" => lenet(pooling, weights),
        "small-cnn" => small_cnn(weights),
        "alexnet-cifar" => alexnet(Images::Cifar10, pooling, weights),
        "alexnet-tiny" => alexnet(Images::TinyImageNet, pooling, weights),
        "alexnet-imagenet" => alexnet(Images::ImageNet, pooling, weights),
        "vgg16-cifar" => vgg16(Images::Cifar10, pooling, weights),
        "vgg16-tiny" => vgg16(Images::TinyImageNet, pooling, weights),
        "vgg16-imagenet" => vgg16(Images::ImageNet, pooling, weights),
        "resnet8" => resnet_cifar(1, weights),
        "resnet20" => resnet_cifar(3, weights),
        "resnet18" => resnet(Depth::D18, pooling, weights),
        "resnet34" => resnet(Depth::D34, pooling, weights),
        "resnet50" => resnet(Depth::D50, pooling, weights),
        "resnet101" => resnet(Depth::D101, pooling, weights),
        "resnet152" => resnet(Depth::D152, pooling, weights),
        _ => {
            let known = NAMES.join(", ");
            Err(Error::format("network", format!("`{name}` is none of {known}")))
        }
    }
}

impl Images {
    /// Height and width.
    pub fn size(self) -> usize {
        match self {
            Self::Cifar10 => 32,
            Self::TinyImageNet => 64,
            Self::ImageNet => 224,
        }
    }

    /// Number of classes.
    pub fn classes(self) -> usize {
        match self {
            Self::Cifar10 => 10,
            Self::TinyImageNet => 200,
            Self::ImageNet => 1000,
        }
    }
}
