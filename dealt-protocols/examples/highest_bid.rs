//! Three bidders learn the highest bid and its number, and nothing else about the others' bids.

use dealt_protocols::Dealt;
use mpc_core::{Protocol, TestWorld, functions};
use net::Party;
use ring_arith::{CpuEngine, FracBits, Shape};

const BIDS: [f64; 3] = [1_250.0, 1_410.5, 1_399.75];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let one = Shape::new([1])?;
    // Three threads of this process, and the dealer; in earnest each party is a process of its own.
    let world = TestWorld::new(3).with_dealer();
    let make = |session| Dealt::new(session, CpuEngine::new(1));
    let opened = world.run(make, move |mpc| {
        let mut bids = Vec::new();
        for (bidder, bid) in BIDS.iter().enumerate() {
            let mine = (mpc.me() == Party(bidder)).then_some(std::slice::from_ref(bid));
            bids.push(functions::input(mpc, Party(bidder), &one, mine, FracBits::DEFAULT)?);
        }
        let all = functions::concat(mpc, &bids.iter().collect::<Vec<_>>(), 0)?;
        let highest = functions::max(mpc, &all, 0)?;
        functions::reveal(mpc, &highest)
    });
    println!("everybody learns that the highest bid is {:.2}", opened[0][0]);
    if opened.iter().any(|bid| (bid[0] - BIDS[1]).abs() > 0.01) {
        return Err(format!("{opened:?} is not {}", BIDS[1]).into());
    }
    Ok(())
}
