//! Salary statistics of several clients: sum, mean and maximum, and not one salary.
//!
//! Each client cuts its salary into parcels and gives each server its own; the servers add and compare, and
//! release the answers; a last client puts together what they release. The servers are threads here.
//!
//! `cargo run -p trefoil --example salaries`

use mpc_core::{Deal, Format, Protocol, SecretTensor, Sharing, TestWorld, functions as f};
use ring_arith::{CpuEngine, FixedPoint, FracBits, Shape, Tensor};
use rss_protocols::{Replicated, Rss};

const SALARIES: [f64; 7] = [51_200.0, 48_750.5, 63_000.0, 57_300.0, 49_999.0, 71_450.0, 55_000.0];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let code = FixedPoint(FracBits::new(10)?);
    let shape = Shape::new([1])?;

    // Each client on its own: nothing but its parcels leaves it.
    let mut held: [Vec<_>; 3] = Default::default();
    for salary in SALARIES {
        let words = Tensor::new(shape.clone(), code.encode(&[salary])?)?;
        for (server, parcel) in Replicated.deal(vec![words])?.into_iter().enumerate() {
            held[server].extend(Replicated.accept(server, parcel, std::slice::from_ref(&shape))?);
        }
    }

    // The servers: the same program on all three, each with what it holds.
    let shapes = vec![shape; SALARIES.len()];
    let released = TestWorld::new(3).run(
        |session| Rss::new(session, CpuEngine::new(1)),
        move |mpc| {
            let salaries = mpc.accept(&shapes, held[mpc.me().0].clone())?;
            let salaries: Vec<_> = salaries
                .into_iter()
                .map(|share| SecretTensor::new(share, Format::words(10)))
                .collect();
            let all = f::concat(mpc, &salaries.iter().collect::<Vec<_>>(), 0)?;
            let sum = f::sum(mpc, &all, &[0])?;
            let mean = f::mean(mpc, &all, &[0])?;
            let largest = f::max(mpc, &all, 0)?;
            mpc.release(&[sum.share(), mean.share(), largest.share()])
        },
    );

    // The client that asked compares and adds up what the three servers release.
    for (at, name) in ["sum", "mean", "largest"].into_iter().enumerate() {
        let parts: Vec<_> = released.iter().map(|server| server[at].clone()).collect();
        let words = Replicated.reveal(&parts)?;
        println!("{name:<8} {:>12.2}", code.decode(words.words())[0]);
    }
    Ok(())
}
