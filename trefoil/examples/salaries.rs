//! Salary statistics of several clients: sum, mean and maximum, and not one salary.
//!
//! Each client cuts its salary into shares and gives each server its part; the servers add and
//! compare; a last client puts the answers together. The servers are threads here.
//!
//! `cargo run -p trefoil --example salaries`

use mpc_core::{Protocol, SecretTensor, TestWorld, functions as f};
use ring_arith::{CpuEngine, FixedPoint, FracBits, Shape};
use rss_protocols::{Rss, Share};
use trefoil::{
    Digest,
    answer::{Refresh, reveal},
    share::Dealt,
};

const SALARIES: [f64; 7] = [51_200.0, 48_750.5, 63_000.0, 57_300.0, 49_999.0, 71_450.0, 55_000.0];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let code = FixedPoint(FracBits::new(10)?);
    let shape = Shape::new([1])?;

    // Each client on its own: nothing but its parts leaves it.
    let mut parts: [Vec<_>; 3] = Default::default();
    for salary in SALARIES {
        let words = ring_arith::Tensor::new(shape.clone(), code.encode(&[salary])?)?;
        let dealt = Dealt::new(&[words])?;
        for (server, parts) in parts.iter_mut().enumerate() {
            parts.extend(dealt.part(server).expand(server, std::slice::from_ref(&shape))?);
        }
    }

    // The servers: the same program on all three, each with its own parts.
    let answers = TestWorld::new(3).run(
        |session| Rss::new(session, CpuEngine::new(1)),
        move |mpc| {
            let mut salaries = Vec::new();
            for (mine, next) in &parts[mpc.me().0] {
                let share = Share::new(mine.clone(), next.clone())?;
                salaries.push(SecretTensor::new(share, 10, 64));
            }
            let all: Vec<_> = salaries.iter().collect();
            let all = f::concat(mpc, &all, 0)?;
            let sum = f::sum(mpc, &all, &[0])?;
            let mean = f::mean(mpc, &all, &[0])?;
            let largest = f::max(mpc, &all, 0)?;
            let answers = [sum, mean, largest];
            Ok(answers.map(|answer| (answer.share().mine().clone(), answer.share().next().clone())))
        },
    );

    // They make their components fresh under a key of their own, so that nothing else can be seen of them.
    let mut common = [0; 32];
    getrandom::fill(&mut common)?;
    let refresh = Refresh::new(&common, &Digest::of(&[b"salaries"]));

    // The client that asked compares and adds up what the three servers return.
    for (at, name) in ["sum", "mean", "largest"].into_iter().enumerate() {
        let sent = |server: usize| refresh.component(server, &answers[server][at], at);
        let words = reveal(&[sent(0)?, sent(1)?, sent(2)?])?;
        println!("{name:<8} {:>12.2}", code.decode(words.words())[0]);
    }
    Ok(())
}
