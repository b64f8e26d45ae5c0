//! What operations on shares cost: three parties in one process, bytes and rounds as the
//! transport counts them.

use mpc_core::{Compare, Finish, Product, Protocol, TestWorld, Then, TruncationMode};
use net::Party;
use ring_arith::{Bilinear, CpuEngine, Shape, Tensor};
use rss_protocols::{BitShare, Rss, Share};

/// Elements of each operand.
const ELEMENTS: usize = 100_000;

type Party3 = Rss<CpuEngine>;
type Operation = fn(&mut Party3, &Share<Tensor>) -> mpc_core::Result<()>;

fn main() {
    let operations: [(&str, Operation); 4] = [
        ("product", |mpc, x| product(mpc, x, Finish::Raw)),
        ("product, truncated", |mpc, x| {
            product(mpc, x, Finish::Truncate { bits: 20, mode: TruncationMode::Default })
        }),
        ("product, truncated, ReLU", |mpc, x| {
            let mode = TruncationMode::Early;
            product(mpc, x, Finish::TruncateRelu { bits: 20, mode, keep: false })
        }),
        ("ReLU", |mpc, x| {
            let then = Then { not_negative: &[x], ..Then::default() };
            mpc.compare_one(Compare { value: x, width: 64, then }).map(drop)
        }),
    ];
    println!("{:<26} {:>20} {:>7}", "operation", "bytes/element/party", "rounds");
    for (name, operation) in operations {
        // What sharing the operand alone costs is taken off.
        let [shared, all] = [None, Some(operation)].map(|operation| {
            let world = TestWorld::new(3);
            let make = |session| Rss::new(session, CpuEngine::new(1));
            let (_, traffic) = world.run_metered(make, move |mpc: &mut Party3| {
                let x = operand(mpc)?;
                operation.map_or(Ok(()), |operation| operation(mpc, &x))
            });
            traffic
        });
        let bytes = (all.bytes - shared.bytes) as f64 / (3 * ELEMENTS) as f64;
        println!("{name:<26} {bytes:>20.2} {:>7}", all.rounds - shared.rounds);
    }
}

/// A tensor shared by party 0.
fn operand(mpc: &mut Party3) -> mpc_core::Result<Share<Tensor>> {
    let shape = Shape::new([ELEMENTS])?;
    let words = [Tensor::new(shape.clone(), (0..ELEMENTS as u64).collect())?];
    let mine = (mpc.me() == Party(0)).then_some(&words[..]);
    Ok(mpc.input(Party(0), &[shape], mine)?.remove(0))
}

fn product(
    mpc: &mut Party3,
    x: &Share<Tensor>,
    finish: Finish<'_, BitShare<Tensor>>,
) -> mpc_core::Result<()> {
    mpc.product(Product::new(Bilinear::Mul, x, x, finish)).map(drop)
}
