//! The digits on a CUDA device: the emulator, or a GPU where `TREFOIL_GPU` is set. Sharing, every layer
//! and the reveal run on it.

use std::{sync::Arc, time::Duration};

use crate::common::{data, distance, run};
use gpu_kernels::CudaEngine;
use models::{
    data::{TEST_DIGITS, digits, read_npy},
    onnx,
};
use mpc_core::TestWorld;
use nn_layers::{Compiled, HostTensor, PlanOptions};
use rss_protocols::{Options, Rss};

/// Digits read: enough for a batch, few for the emulator's sake.
const IMAGES: usize = 3;

#[test]
fn digits_are_read_privately_on_a_cuda_device() {
    ptx_emu_driver::stand_in();
    let graph = onnx::import_file(&data("digits.onnx"), &Default::default()).unwrap();
    let compiled = Arc::new(Compiled::new(&graph, &PlanOptions::default()).unwrap());
    let all = digits(&data("digits.csv.gz")).unwrap();
    let first = all.len() - TEST_DIGITS;
    let images = Arc::new(vec![all.range(first, first + IMAGES).unwrap().images]);
    let logits = read_npy(&data("digits-logits.npy")).unwrap();
    let expected = HostTensor::new([IMAGES, 10], logits.floats()[..IMAGES * 10].to_vec()).unwrap();
    let world = TestWorld::new(3).with_limit(Duration::from_secs(600));
    let results = world.run(
        |session| {
            let options = Options::default().generator(CudaEngine::GENERATOR);
            Rss::with_options(session, CudaEngine::open(0)?, options)
        },
        move |mpc| Ok(run(mpc, &compiled, &images).expect("the network runs")),
    );
    for result in results {
        let error = distance(&result[0], &expected);
        assert!(error < 1.0 / 512.0, "a logit is off by {error}");
    }
}
