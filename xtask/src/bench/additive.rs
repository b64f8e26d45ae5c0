//! Benchmarks of additive sharing with a dealer, and of replicated sharing in the same run: three threads each.

use additive_dealer::Additive;
use anyhow::Result;
use mpc_core::{Compare, Finish, Product, Protocol, TestWorld, Then, TruncationMode};
use net::Session;
use ring_arith::{Bilinear, CpuEngine, Engine, Shape, Tensor};
use rss_protocols::Rss;

use super::Bench;

/// An operation on shares of a tensor.
type Work<P> = fn(&mut P, &<P as Protocol>::Share) -> mpc_core::Result<()>;

/// A named operation, its tensor's shape, and its form for either protocol.
struct Operation {
    name: &'static str,
    dims: &'static [usize],
    additive: Work<Additive<CpuEngine>>,
    replicated: Work<Rss<CpuEngine>>,
}

const OPERATIONS: &[Operation] = &[
    Operation {
        name: "additive/mul/1e5",
        dims: &[100_000],
        additive: |mpc, x| product(mpc, x, Bilinear::Mul, Finish::Raw),
        replicated: |mpc, x| product(mpc, x, Bilinear::Mul, Finish::Raw),
    },
    Operation {
        name: "additive/matmul/256",
        dims: &[256, 256],
        additive: |mpc, x| product(mpc, x, Bilinear::MATMUL, Finish::Raw),
        replicated: |mpc, x| product(mpc, x, Bilinear::MATMUL, Finish::Raw),
    },
    Operation { name: "additive/mul-trunc/1e4", dims: &[10_000], additive: cut, replicated: cut },
    Operation { name: "additive/relu/1e4", dims: &[10_000], additive: relu, replicated: relu },
];

/// The cases of this module.
///
/// # Errors
/// If a party fails.
pub fn cases(bench: &mut Bench) -> Result<()> {
    for operation in OPERATIONS {
        bench.case(operation.name, |case| {
            let make = |session| Additive::new(session, CpuEngine::new(1));
            let additive = || once(make, operation.dims, operation.additive);
            let make = |session| Rss::new(session, CpuEngine::new(1));
            let replicated = || once(make, operation.dims, operation.replicated);
            let (mine, other) = case.measure_pair(additive, replicated);
            case.engine("cpu").threads(1).size(format!("{:?}", operation.dims)).timing(mine);
            case.reference("replicated sharing", other);
            Ok(())
        })?;
    }
    Ok(())
}

/// One run of three parties, from their sessions on; the last of an additive sharing deals.
fn once<P: Protocol<Engine = CpuEngine>>(
    make: fn(Session) -> mpc_core::Result<P>,
    dims: &'static [usize],
    work: Work<P>,
) {
    TestWorld::new(3).run(make, move |mpc| {
        let words = Tensor::full(Shape::new(dims)?, 3 << 20);
        let x = mpc.constant(&mpc.engine().upload(words)?)?;
        work(mpc, &x)
    });
}

fn product<P: Protocol>(
    mpc: &mut P,
    x: &P::Share,
    map: Bilinear,
    finish: Finish<'_, P::Bits>,
) -> mpc_core::Result<()> {
    mpc.product(Product::new(map, x, x, finish)).map(drop)
}

pub(super) fn cut<P: Protocol>(mpc: &mut P, x: &P::Share) -> mpc_core::Result<()> {
    truncated(mpc, x, Bilinear::Mul)
}

pub(super) fn truncated<P: Protocol>(
    mpc: &mut P,
    x: &P::Share,
    map: Bilinear,
) -> mpc_core::Result<()> {
    let finish = Finish::Truncate { bits: 20, mode: TruncationMode::Default };
    product(mpc, x, map, finish)
}

pub(super) fn relu<P: Protocol>(mpc: &mut P, x: &P::Share) -> mpc_core::Result<()> {
    mpc.compare_one(Compare { value: x, width: 64, then: Then::not_negative(&[x]) }).map(drop)
}
