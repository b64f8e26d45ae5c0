//! The conformance suite with all local work on a CUDA device, as programs reach it: the emulator, or a GPU where
//! `TREFOIL_GPU` is set. Checks that take minutes on the emulator run on a GPU alone.

use gpu_kernels::{AnyEngine, CudaEngine};
use mpc_core::{Profile, Protocol, Result, TestWorld, functions as f, testing::conformance};
use net::{Party, Session};
use ring_arith::{CpuEngine, FracBits, Shape};
use rss_protocols::{Options, Rss};

fn engine() -> Result<AnyEngine> {
    ptx_emu_driver::stand_in();
    Ok(AnyEngine::Cuda(CudaEngine::open(0)?))
}

fn options() -> Options {
    Options::default().generator(CudaEngine::GENERATOR)
}

fn make(session: Session) -> Result<Rss<AnyEngine>> {
    Rss::with_options(session, engine()?, options())
}

mod rss {
    use super::make;

    mpc_core::conformance_checks! { 3, make;
        inputs_and_openings linear_maps sums_and_concatenation
        raw_products product_summands product_terms truncated_products truncations fused_relu kept_signs
        local_bits gates prefixes bit_decomposition zero_tests selections bits_as_words weighted_sums
        comparisons refusals choices orderings extrema layers chains
    }
}

macro_rules! on_a_device {
    ($($check:ident)+) => {$(
        #[test]
        fn $check() {
            if std::env::var_os("TREFOIL_GPU").is_none() {
                return println!("skipped: takes minutes on the emulator");
            }
            conformance::$check(&TestWorld::new(3), make);
        }
    )+};
}

on_a_device! {
    product_sums large_tensors maxima approximations rows tight_widths
    widest_results widest_results_for_slow_links
}

/// The opened results of functions that use all protocols, in a profile.
fn opened<P: Protocol>(mpc: &mut P, profile: Profile) -> Result<Vec<Vec<f64>>> {
    mpc.set_profile(profile);
    let values = [9.5, -3.25, 0.75, 2.5, -0.125, 7.0];
    let mine = (mpc.me() == Party(0)).then_some(&values[..]);
    let x = f::input(mpc, Party(0), &Shape::new([6])?, mine, FracBits::DEFAULT)?;
    let positive = f::relu(mpc, &x)?;
    // Maxima, exponentials and inverses are parts of a softmax.
    let results = [
        f::argmax(mpc, &x, 0)?,
        f::softmax(mpc, &x, 0)?,
        f::gelu(mpc, &x)?,
        f::sqrt(mpc, &positive)?,
        positive,
    ];
    f::reveal_all(mpc, &results.each_ref())
}

#[test]
fn a_device_opens_the_same_words_as_the_cpu_in_either_profile() {
    for profile in [Profile::Bytes, Profile::SlowLinks] {
        let world = TestWorld::new(3);
        let device = world.run(make, move |mpc| opened(mpc, profile));
        let on_the_cpu = |session| Rss::with_options(session, CpuEngine::new(1), options());
        assert_eq!(device, world.run(on_the_cpu, move |mpc| opened(mpc, profile)));
    }
}
