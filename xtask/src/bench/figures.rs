//! Further figures for the report: cost over size, by layer and by network.
//!
//! Sizes are those of figures 1 and 2 of CryptGPU (Tan et al., IEEE S&P 2021).

use anyhow::{Context, Result};

use super::models::{self, MODELS, Model, Step};
use super::party::Setup;
use super::protocols::{self, Operation, Work, at};
use super::{Bench, Network, Timing};

/// Convolutions and ReLU over size. Names key a history of results.
pub(super) const OPERATIONS: &[Operation] = &[
    at("conv-11x11/32", "1x3x32x32", Work::Conv(&[1, 3, 32, 32], WIDE, 4, 2)),
    at("conv-11x11/64", "1x3x64x64", Work::Conv(&[1, 3, 64, 64], WIDE, 4, 2)),
    at("conv-11x11/128", "1x3x128x128", Work::Conv(&[1, 3, 128, 128], WIDE, 4, 2)),
    at("conv-11x11/256", "1x3x256x256", Work::Conv(&[1, 3, 256, 256], WIDE, 4, 2)),
    at("conv-11x11/512", "1x3x512x512", Work::Conv(&[1, 3, 512, 512], WIDE, 4, 2)),
    at("conv-11x11-batch/8", "8x3x32x32", Work::Conv(&[8, 3, 32, 32], WIDE, 4, 2)),
    at("conv-11x11-batch/32", "32x3x32x32", Work::Conv(&[32, 3, 32, 32], WIDE, 4, 2)),
    at("conv-11x11-batch/128", "128x3x32x32", Work::Conv(&[128, 3, 32, 32], WIDE, 4, 2)),
    at("conv-11x11-batch/512", "512x3x32x32", Work::Conv(&[512, 3, 32, 32], WIDE, 4, 2)),
    at("conv-3x3/4", "1x512x4x4", Work::Conv(&[1, 512, 4, 4], DEEP, 1, 1)),
    at("conv-3x3/8", "1x512x8x8", Work::Conv(&[1, 512, 8, 8], DEEP, 1, 1)),
    at("conv-3x3/16", "1x512x16x16", Work::Conv(&[1, 512, 16, 16], DEEP, 1, 1)),
    at("conv-3x3/32", "1x512x32x32", Work::Conv(&[1, 512, 32, 32], DEEP, 1, 1)),
    at("conv-3x3/64", "1x512x64x64", Work::Conv(&[1, 512, 64, 64], DEEP, 1, 1)),
    at("relu/1000", "10^3", Work::Relu(1000, 64)),
    at("relu/10000", "10^4", Work::Relu(10_000, 64)),
    at("relu/50000", "5 * 10^4", Work::Relu(50_000, 64)),
    at("relu/256000", "256,000", Work::Relu(256_000, 64)),
    at("relu/1000000", "10^6", Work::Relu(1_000_000, 64)),
    at("relu/4000000", "4 * 10^6", Work::Relu(4_000_000, 64)),
    at("relu/16000000", "16 * 10^6", Work::Relu(16_000_000, 64)),
];

/// CryptGPU's large filters with few channels, as in a first layer: stride 4, border 2.
const WIDE: &[usize] = &[64, 3, 11, 11];

/// Its small filters with many channels, as in later layers: stride 1, border 1.
const DEEP: &[usize] = &[512, 512, 3, 3];

/// The operations that run over every network.
const OVER_NETWORKS: &[&str] = &["relu/10000", "relu/1000000"];

/// Models that are run over every network.
const MODELS_OVER_NETWORKS: &[&str] = &["lenet/1", "vgg16-cifar/1"];

/// Models that are shown layer by layer.
const PROFILED: &[&str] = &["lenet/1", "vgg16-cifar/1", "resnet50/1"];

const NETWORKS: &[Network] =
    &[Network::InProcess, Network::Tcp, Network::Tls, Network::Lan, Network::Wan];

/// The cases of this module.
///
/// # Errors
/// If the parties cannot be started or fail.
pub fn cases(bench: &mut Bench) -> Result<()> {
    let setup = bench.setup(Network::Tls);
    for operation in OPERATIONS {
        protocols::run(bench, operation.name, operation, setup)?;
    }
    for &network in NETWORKS {
        let setup = Setup { network, ..setup };
        for name in OVER_NETWORKS {
            let operation = OPERATIONS.iter().find(|operation| operation.name == *name);
            let operation = operation.with_context(|| format!("no operation {name}"))?;
            protocols::run(bench, &format!("network/{name}/{network}"), operation, setup)?;
        }
        for name in MODELS_OVER_NETWORKS {
            models::run(bench, &format!("network/{name}/{network}"), model(name)?, setup)?;
        }
    }
    PROFILED.iter().try_for_each(|name| profile(bench, model(name)?, setup))
}

fn model(case: &str) -> Result<&'static Model> {
    let found = MODELS.iter().find(|model| model.case == case);
    found.with_context(|| format!("no model {case}"))
}

/// Each step of a model as a case, all from one run.
fn profile(bench: &mut Bench, model: &Model, setup: Setup) -> Result<()> {
    let prefix = format!("profile/{}", model.case);
    if !bench.wants(&prefix) {
        return bench.case(&prefix, |_| Ok(()));
    }
    let outcome = models::measure(model, setup, bench.effort())?;
    for (index, Step { name, kind, seconds, bytes }) in outcome.steps.iter().enumerate() {
        bench.case(&format!("{prefix}/{index:03} {name}"), |case| {
            case.run_by(&outcome.names).network(setup.network).threads(setup.threads);
            case.size(kind).timing(Timing::from_runs(vec![*seconds], None));
            case.bytes_per_party(*bytes);
            Ok(())
        })?;
    }
    Ok(())
}
