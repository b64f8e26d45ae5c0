//! The protocol computes as every protocol must.

use mpc_core::{Compare, Finish, Product, Protocol, Result, TestWorld, Then, TruncationMode};
use net::Session;
use ring_arith::{Bilinear, CpuEngine, Tensor};

use crate::Dealt;

fn make(session: Session) -> Result<Dealt<CpuEngine>> {
    Dealt::new(session, CpuEngine::new(1))
}

mpc_core::conformance! {
    two: TestWorld::new(2).with_dealer(), make;
    three: TestWorld::new(3).with_dealer(), make;
    five: TestWorld::new(5).with_dealer(), make;
}

type Mpc = Dealt<CpuEngine>;

const N: usize = 64;

fn words(mpc: &Mpc) -> Result<<Mpc as Protocol>::Share> {
    mpc.constant(&Tensor::vector(vec![7; N]))
}

fn product(mpc: &mut Mpc) -> Result<()> {
    let x = words(mpc)?;
    let finish = Finish::Truncate { bits: 20, mode: TruncationMode::Default };
    mpc.product(Product::new(Bilinear::Mul, &x, &x, finish)).map(drop)
}

fn sign(mpc: &mut Mpc) -> Result<()> {
    let x = words(mpc)?;
    mpc.compare_one(Compare { value: &x, width: 64, then: Then::bit() }).map(drop)
}

fn relu(mpc: &mut Mpc) -> Result<()> {
    let x = words(mpc)?;
    let list = [&x];
    mpc.compare_one(Compare { value: &x, width: 64, then: Then::not_negative(&list) }).map(drop)
}

/// The table of the crate's README: bits an element from each party to each other.
#[test]
fn methods_send_what_the_readme_says() {
    for parties in [2, 3, 5] {
        let world = TestWorld::new(parties).with_dealer();
        let cost = |program: fn(&mut Mpc) -> Result<()>| {
            let report = world.run_metered(make, program).1;
            (report.rounds, report.bytes / (N / 8 * parties * (parties - 1)) as u64)
        };
        assert_eq!(cost(product), (2, 84));
        assert_eq!(cost(sign), (3, 39));
        assert_eq!(cost(relu), (4, 103));
        assert_eq!(cost(|mpc| mpc.open(&[&words(mpc)?]).map(drop)), (1, 64));
        assert_eq!(cost(|mpc| mpc.is_zero(&[(&words(mpc)?, 64)]).map(drop)), (3, 21));
        assert_eq!(cost(|mpc| mpc.to_bits(&[(&words(mpc)?, 64)]).map(drop)), (3, 275));
    }
}
