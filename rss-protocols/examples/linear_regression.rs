//! Linear regression on secret data: a clinic knows what was measured of its patients, another what
//! became of them. Three parties fit the outcome to the measurements; nobody sees a patient of the other.
//!
//! `cargo run --release -p trefoil-rss --example linear_regression`

use mpc_core::{Protocol, Result, SplitMix64, TestWorld, functions as f};
use net::Party;
use ring_arith::{CpuEngine, FracBits, Shape};
use rss_protocols::Rss;

const PATIENTS: usize = 200;
const MEASURES: usize = 3;
const STEPS: usize = 60;
const RATE: f64 = 0.8;

/// Weights by gradient descent, `w <- w - rate / n * x^T (x w - y)`, for any protocol.
fn fit<P: Protocol>(mpc: &mut P, x: Option<&[f64]>, y: Option<&[f64]>) -> Result<Vec<f64>> {
    let x = f::input(mpc, Party(0), &Shape::new([PATIENTS, MEASURES])?, x, FracBits::DEFAULT)?;
    let y = f::input(mpc, Party(1), &Shape::new([PATIENTS, 1])?, y, FracBits::DEFAULT)?;
    // What stays the same is computed once: `x^T x / n` and `x^T y / n`.
    let transposed = f::mul_scalar(mpc, &f::transpose(mpc, &x)?, RATE / PATIENTS as f64)?;
    let square = f::matmul(mpc, &transposed, &x)?;
    let target = f::matmul(mpc, &transposed, &y)?;
    let mut w = target.clone();
    for _ in 1..STEPS {
        let slope = f::matmul(mpc, &square, &w)?;
        let step = f::sub(mpc, &target, &slope)?;
        w = f::add(mpc, &w, &step)?;
    }
    f::reveal(mpc, &w)
}

fn main() {
    let truth = [1.5, -0.75, 0.25];
    let mut random = SplitMix64::new(7);
    let x: Vec<f64> = (0..PATIENTS * MEASURES).map(|_| random.real(-2.0, 2.0)).collect();
    let outcome = |row: &[f64]| row.iter().zip(truth).map(|(x, w)| x * w).sum::<f64>();
    let y: Vec<f64> = x.chunks(MEASURES).map(|row| outcome(row) + random.real(-0.1, 0.1)).collect();

    let (weights, traffic) = TestWorld::new(3).run_metered(
        |session| Rss::new(session, CpuEngine::new(1)),
        move |mpc| {
            let me = mpc.me();
            let x = (me == Party(0)).then_some(&x[..]);
            let y = (me == Party(1)).then_some(&y[..]);
            fit(mpc, x, y)
        },
    );
    println!("true weights   {truth:.3?}\nfitted weights {:.3?}", weights[0]);
    println!("{} kB in {} rounds", traffic.bytes / 1000, traffic.rounds);
    for (found, truth) in weights[0].iter().zip(truth) {
        assert!((found - truth).abs() < 0.03, "the fit is close to what made the data");
    }
}
