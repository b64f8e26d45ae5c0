//! The protocol computes as every protocol must.

use std::path::Path;

use mpc_core::{
    Compare, Finish, Product, Protocol, Result, TestWorld, Then, TruncationMode, conformance,
    mutants::{Mutant, every_mutant_is_noticed},
};
use net::Session;
use ring_arith::{Bilinear, CpuEngine, Tensor};

use crate::{Dealt, privacy};

pub(crate) fn make(session: Session) -> Result<Dealt<CpuEngine>> {
    Dealt::new(session, CpuEngine::new(1))
}

mpc_core::conformance! {
    two: TestWorld::new(2).with_dealer(), make;
    three: TestWorld::new(3).with_dealer(), make;
    five: TestWorld::new(5).with_dealer(), make;
}

pub(crate) type Mpc = Dealt<CpuEngine>;

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

const fn mutant(name: &'static str, check: &'static str) -> Mutant {
    Mutant { name, check }
}

const MUTANTS: &[Mutant] = &[
    mutant("public addend: added by all", "products"),
    mutant("truncation: the wrap left out", "truncations"),
    mutant("opening: addends without masks", "openings"),
    mutant("input: without a mask", "masks of: input"),
    mutant("stream: the same again", "masks of: product"),
    mutant("dealt: the value without masks", "masks of: product"),
    mutant("remask: addends without masks", "masks of: product"),
    mutant("wrap: without a mask", "masks of: product"),
];

fn check(name: &str) {
    if let Some(operation) = name.strip_prefix("masks of: ") {
        return privacy::check(operation);
    }
    let world = &TestWorld::new(3).with_dealer().with_seed(5);
    match name {
        "openings" => privacy::openings().unwrap(),
        "products" => conformance::raw_products(world, make),
        "truncations" => conformance::truncations(world, make),
        _ => panic!("there is no check `{name}`"),
    }
}

#[test]
fn all_mutants_are_noticed() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    every_mutant_is_noticed("tests::all_mutants_are_noticed", &source, MUTANTS, &[], check);
}
