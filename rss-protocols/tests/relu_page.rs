//! The bits that the page of the ReLU names are those that travel.

use mpc_core::{Finish, Product, Protocol, TestWorld, TruncationMode};
use net::{Metered, Party, Session};
use ring_arith::{Bilinear, CpuEngine, Shape, Tensor};
use rss_protocols::Rss;

/// Elements of one chunk, whose dealer is party 0, left party 1 and right party 2.
const N: usize = 2048;

/// The bits that the page's table names, by sender and receiver.
fn named() -> [[u64; 3]; 3] {
    let mut bits = [[0; 3]; 3];
    for row in include_str!("../docs/relu.md").lines().filter(|line| line.starts_with("| ")) {
        for (from, cell) in row.split('|').skip(2).take(3).enumerate() {
            let Some((number, rest)) = cell.trim().split_once(" bit") else { continue };
            let to = if rest.contains(" to left") { 1 } else { 2 };
            bits[from][to] += number.parse::<u64>().unwrap();
        }
    }
    bits
}

#[test]
fn the_page_of_the_relu_names_the_bits_of_each_link() {
    let program = |mut session: Session| {
        let metered = Metered::new(session.transport);
        let meter = metered.meter();
        session.transport = Box::new(metered);
        let mut mpc = Rss::new(session, CpuEngine::new(1))?;
        let values = [Tensor::from_fn(Shape::new([N])?, |i| i as u64)];
        let mine = (mpc.me() == Party(0)).then_some(&values[..]);
        let x = mpc.input(Party(0), &[Shape::new([N])?], mine)?.remove(0);
        meter.reset();
        let finish = Finish::TruncateRelu { bits: 20, mode: TruncationMode::Early, keep: false };
        mpc.product(Product::new(Bilinear::Mul, &x, &x, finish)).map(drop)?;
        Ok([0, 1, 2].map(|to| meter.stats().sent[to].bytes * 8 / N as u64))
    };
    let sent = TestWorld::new(3).try_sessions(program);
    let sent: Vec<_> = sent.into_iter().map(Result::unwrap).collect();
    assert_eq!(sent, named());
}
