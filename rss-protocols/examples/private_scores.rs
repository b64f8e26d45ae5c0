//! Two parties' data, one answer: a hospital's model scores a patient's values; a third party only helps.
//!
//! Party 0 owns the weights, party 1 the values. The score is a fused linear layer with ReLU; party 1
//! alone sees it. Prints what everybody sent.
//!
//! `cargo run --release -p trefoil-rss --example private_scores`

use mpc_core::{Finish, Product, Protocol, TestWorld, TruncationMode};
use net::Party;
use ring_arith::{Bilinear, CpuEngine, FixedPoint, FracBits, Shape, Tensor};
use rss_protocols::Rss;

fn main() {
    const ROWS: usize = 4;
    const VALUES: usize = 1000;
    let code = FixedPoint(FracBits::DEFAULT);
    let encode = move |dims: [usize; 2], f: fn(usize) -> f64| {
        let values: Vec<_> = (0..dims[0] * dims[1]).map(f).collect();
        let words = code.encode(&values).expect("small numbers fit");
        Tensor::of(dims, &words)
    };
    let (scores, traffic) = TestWorld::new(3).run_metered(
        |session| Rss::new(session, CpuEngine::new(1)),
        move |rss| {
            let weights = encode([VALUES, ROWS], |i| ((i * 37 % 101) as f64 - 50.0) / 100.0)?;
            let values = encode([1, VALUES], |i| (i % 7) as f64 / 10.0)?;
            let (me, one) = (rss.me(), Shape::new([VALUES, ROWS])?);
            let mine = [weights];
            let w = rss.input(Party(0), &[one], (me == Party(0)).then_some(&mine[..]))?;
            let mine = [values];
            let shape = Shape::new([1, VALUES])?;
            let x = rss.input(Party(1), &[shape], (me == Party(1)).then_some(&mine[..]))?;
            let (bits, mode) = (FracBits::DEFAULT.bits(), TruncationMode::Early);
            let finish = Finish::TruncateRelu { bits, mode, keep: false };
            let y = rss.product(Product::new(Bilinear::MATMUL, &x[0], &w[0], finish))?.share;
            let seen = rss.open_to(Party(1), &[&y])?;
            Ok(seen.map(|seen| code.decode(seen[0].words())))
        },
    );
    println!("party 1 sees {:?}, the others {:?} and {:?}", scores[1], scores[0], scores[2]);
    println!("all sent {} bytes in {} rounds", traffic.bytes, traffic.rounds);
}
