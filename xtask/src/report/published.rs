//! Figures that other systems have published, as marks next to ours. Each has its source, which
//! states its machines; these differ from ours.

/// A figure of somebody else's.
pub(super) struct Mark {
    /// Our case, `suite/case`, that it is compared with.
    pub case: &'static str,
    pub system: &'static str,
    /// Seconds for one run.
    pub seconds: f64,
    /// Bytes of all parties together, where they are published.
    pub bytes: Option<f64>,
    pub source: usize,
}

/// The sources of marks, numbered from 0.
pub(super) const SOURCES: &[&str] = &[
    "CryptGPU: S. Tan, B. Knott, Y. Tian, D. Wu, \"CryptGPU: Fast Privacy-Preserving Machine Learning on the \
     GPU\", IEEE S&P 2021, section IV-C and its figures 1 and 2. Three cloud machines in one region, each with \
     one GPU.",
    "CryptGPU's and FALCON's inference as quoted by J.-L. Watson, S. Wagh, R. Popa, \"Piranha: A GPU Platform \
     for Secure Computation\", USENIX Security 2022, in `experiments/artifact_figures/paper/table4.json` of its \
     repository. FALCON pools by maxima, before ReLU.",
    "CryptGPU, section I: \"1.5 s\" for AlexNet and \"just over 25 s\" for ResNet-152, both for ImageNet.",
    "FALCON's, CryptGPU's and Piranha's (P-Falcon) training as given by Piranha, in `table4.json` of the same folder. \
     CryptGPU trains on random data with mean pools; Piranha's comparison randomness is constant, and logits are opened.",
    "PUMA: Y. Dong, W. Lu, Y. Zheng et al., \"PUMA: Secure Inference of LLaMA-7B in Five Minutes\", arXiv 2307.12533: \
     BERT-base of 128 tokens; GPT2-base of 32 tokens, one generated. Three parties with 32 virtual cores each, 5 Gbit/s \
     and 1 ms, 18 fraction bits. Tokens are looked up on shares there, and by their owner here.",
    "SIGMA: K. Gupta, N. Jawalkar, A. Mukherjee et al., \"SIGMA: Secure GPT Inference with Function Secret Sharing\", \
     PoPETs 2024 (4): GPT2 of 128 tokens. Two parties with a GPU each, and keys of a dealer.",
    "CrypTen: B. Knott, S. Venkataraman, A. Hannun et al., \"CrypTen: Secure Multi-Party Computation Meets Machine \
     Learning\", NeurIPS 2021, section 6. Two parties with a GPU each on one machine. \
     Texts: 0.03 s each, 32 at once.",
];

const MB: f64 = 1e6;

const fn mark(case: &'static str, system: &'static str, seconds: f64, source: usize) -> Mark {
    Mark { case, system, seconds, bytes: None, source }
}

const fn with_bytes(
    case: &'static str,
    system: &'static str,
    seconds: f64,
    megabytes: f64,
    source: usize,
) -> Mark {
    Mark { case, system, seconds, bytes: Some(megabytes * MB), source }
}

const CPU: &str = "CryptGPU on CPUs, 2021";
const GPU: &str = "CryptGPU on GPUs, 2021";
const FALCON: &str = "FALCON on CPUs, 2021";
const PUMA: &str = "PUMA on CPUs, 2023";
const SIGMA: &str = "SIGMA on GPUs, 2024";
const PIRANHA: &str = "Piranha on GPUs, 2022";
const CRYPTEN: &str = "CrypTen on GPUs, 2021";

/// All marks.
pub(super) const MARKS: &[Mark] = &[
    mark("figures/conv-11x11/512", CPU, 23.9, 0),
    mark("figures/conv-11x11/512", GPU, 0.14, 0),
    mark("figures/conv-11x11-batch/512", CPU, 11.6, 0),
    mark("figures/conv-11x11-batch/512", GPU, 0.27, 0),
    mark("figures/conv-3x3/64", CPU, 543.0, 0),
    mark("figures/conv-3x3/64", GPU, 3.2, 0),
    mark("figures/relu/256000", CPU, 2.0, 0),
    mark("figures/relu/256000", GPU, 0.12, 0),
    mark("figures/relu/32000000", CPU, 149.0, 0),
    mark("figures/relu/32000000", GPU, 16.3, 0),
    with_bytes("models/lenet/1", GPU, 0.38, 3.0, 1),
    with_bytes("models/alexnet-cifar/1", GPU, 0.91, 2.43, 1),
    with_bytes("models/vgg16-cifar/1", GPU, 2.14, 56.2, 1),
    with_bytes("models/lenet/1", FALCON, 0.038, 2.29, 1),
    with_bytes("models/alexnet-cifar/1", FALCON, 0.110, 4.02, 1),
    with_bytes("models/vgg16-cifar/1", FALCON, 1.44, 40.05, 1),
    with_bytes("training/lenet/128", GPU, 2.21, 1140.0, 3),
    with_bytes("training/lenet/128", FALCON, 14.9, 346.0, 3),
    with_bytes("training/lenet/128", PIRANHA, 0.888, 417.0, 3),
    with_bytes("training/alexnet-cifar/128", GPU, 2.91, 1370.0, 3),
    with_bytes("training/alexnet-cifar/128", FALCON, 62.4, 621.0, 3),
    with_bytes("training/alexnet-cifar/128", PIRANHA, 1.42, 581.0, 3),
    with_bytes("training/vgg16-cifar/32", GPU, 12.1, 7550.0, 3),
    with_bytes("training/vgg16-cifar/32", FALCON, 361.0, 1780.0, 3),
    with_bytes("training/vgg16-cifar/32", PIRANHA, 7.47, 4260.0, 3),
    mark("models/alexnet-imagenet/1", GPU, 1.5, 2),
    mark("models/resnet152/1", GPU, 25.0, 2),
    with_bytes("models/bert-base/1", PUMA, 33.9, 10_800.0, 4),
    with_bytes("models/gpt2/1", PUMA, 15.5, 3_770.0, 4),
    mark("models/gpt2/1", SIGMA, 1.6, 5),
    mark("models/resnet18/1", CRYPTEN, 2.49, 6),
    mark("models/vit-b-16/1", CRYPTEN, 8.47, 6),
    mark("models/sentiment/32", CRYPTEN, 0.96, 6),
];
