//! Four people learn the average of their salaries, and nothing else about each other's.

use additive_dealer::Additive;
use mpc_core::{Protocol, TestWorld, functions};
use net::Party;
use ring_arith::{CpuEngine, FracBits, Shape};

const SALARIES: [f64; 4] = [3_200.0, 4_150.5, 2_875.25, 5_010.0];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let one = Shape::new([1])?;
    // Four threads of this process, and the dealer; in earnest each party is a process of its own.
    let world = TestWorld::new(4).with_dealer();
    let make = |session| Additive::new(session, CpuEngine::new(1));
    let averages = world.run(make, move |mpc| {
        let mut salaries = Vec::new();
        for (owner, salary) in SALARIES.iter().enumerate() {
            let mine = (mpc.me() == Party(owner)).then_some(std::slice::from_ref(salary));
            salaries.push(functions::input(mpc, Party(owner), &one, mine, FracBits::DEFAULT)?);
        }
        let all = functions::concat(mpc, &salaries.iter().collect::<Vec<_>>(), 0)?;
        let average = functions::mean(mpc, &all, &[0])?;
        functions::reveal(mpc, &average)
    });
    println!("everybody learns {:.2}", averages[0][0]);
    let expected = SALARIES.iter().sum::<f64>() / 4.0;
    if averages.iter().any(|average| (average[0] - expected).abs() > 0.01) {
        return Err(format!("{averages:?} are not {expected}").into());
    }
    Ok(())
}
