//! Which of several companies pays best on average, and by how much: written for any protocol, run on
//! the plaintext reference.

use mpc_core::{Plaintext, Protocol, Result, functions as f};
use net::Party;
use ring_arith::{CpuEngine, FracBits, Shape};

/// Salaries of three companies in thousands, five employees each. A real party would pass its own only.
const SALARIES: [f64; 15] = [
    61.0, 58.5, 72.0, 49.0, 66.5, //
    55.0, 57.0, 91.0, 60.0, 62.0, //
    63.0, 64.5, 59.0, 61.5, 60.0,
];

/// The best company's number and its lead over the mean of all, from secret salaries.
fn best<P: Protocol>(mpc: &mut P) -> Result<(usize, f64)> {
    let mine = (mpc.me() == Party(0)).then_some(&SALARIES[..]);
    let salaries = f::input(mpc, Party(0), &Shape::new([3, 5])?, mine, FracBits::DEFAULT)?;
    let means = f::mean(mpc, &salaries, &[1])?;
    let (top, place) = f::top1(mpc, &means, 0)?;
    let overall = f::mean(mpc, &means, &[0])?;
    let lead = f::sub(mpc, &top, &overall)?;
    // Nothing else is revealed.
    let place = f::reveal(mpc, &place)?[0];
    Ok((place as usize, f::reveal(mpc, &lead)?[0]))
}

fn main() -> Result<()> {
    let mut mpc = Plaintext::new(CpuEngine::new(1));
    let (place, lead) = best(&mut mpc)?;
    println!("company {place} pays best, {lead:.2} above the mean");
    Ok(())
}
