//! The protocol computes as every protocol must.

use std::path::Path;

use mpc_core::{
    Compare, Deal, Ends, Finish, Line, Product, Profile, Protocol, Result, Security,
    ServerProtocol, Settings, Sharing, TestWorld, Then, TrigSum, TrigTerm, TruncationMode,
    testing::conformance,
    testing::mutants::{Mutant, every_mutant_is_noticed},
};
use net::{Party, Session};
use ring_arith::{Bilinear, CpuEngine, EngineTensor, Tensor};

use crate::{Dealt, MaskedSharing, privacy};

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

/// As many elements of the result.
fn matrices(mpc: &mut Mpc) -> Result<()> {
    let x = mpc.constant(&Tensor::of([8, 8], &[7; N])?)?;
    let finish = Finish::Truncate { bits: 20, mode: TruncationMode::Default };
    mpc.product(Product::new(Bilinear::MATMUL, &x, &x, finish)).map(drop)
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

/// A cosine and a sine, and lines outside of two ends of words of 20 bits.
pub(crate) fn waves(ends: bool) -> TrigSum {
    let outside = [Line { constant: 3, slope: 0 }, Line { constant: 5, slope: 2 }];
    let term = |turn, cosine, sine| TrigTerm { turn, cosine, sine };
    TrigSum {
        terms: vec![term(1 << 44, 3 << 27, 0), term(5 << 44, 0, 1 << 23)].into(),
        line: Line { constant: 1 << 56, slope: 1 << 41 },
        total: 58,
        drop: 42,
        mode: TruncationMode::Default,
        ends: ends.then_some(Ends { at: [-7 << 16, 7 << 16], slack: 6, outside }),
    }
}

fn trig_sum(mpc: &mut Mpc, ends: bool) -> Result<()> {
    let x = words(mpc)?;
    mpc.trig_sum(&x, 20, &waves(ends)).map(drop)
}

fn layer(mpc: &mut Mpc) -> Result<()> {
    let x = words(mpc)?;
    let finish = Finish::TruncateRelu { bits: 20, mode: TruncationMode::Default, keep: false };
    mpc.product(Product::new(Bilinear::Mul, &x, &x, finish)).map(drop)
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
        assert_eq!(cost(matrices), (2, 84));
        assert_eq!(cost(sign), (3, 39));
        assert_eq!(cost(relu), (4, 103));
        assert_eq!(cost(layer), (5, 155));
        assert_eq!(cost(|mpc| trig_sum(mpc, false)), (2, 64 + 42));
        // Two comparisons of 15 bits.
        assert_eq!(cost(|mpc| trig_sum(mpc, true)), (5, 64 + 42 + 2 * 8 + 128));
        assert_eq!(cost(|mpc| mpc.open(&[&words(mpc)?]).map(drop)), (1, 64));
        assert_eq!(cost(|mpc| mpc.is_zero(&[(&words(mpc)?, 64)]).map(drop)), (3, 21));
        assert_eq!(cost(|mpc| mpc.to_bits(&[(&words(mpc)?, 64)]).map(drop)), (3, 275));
    }
}

/// Clients' secrets, at 2 and 3 servers and their dealer.
#[test]
fn clients_get_results_of_secrets_that_no_server_holds() {
    for computing in [2, 3] {
        let sharing = MaskedSharing::among(computing).unwrap();
        let secrets = [Tensor::vector(vec![3, 4]), Tensor::vector(vec![u64::MAX])];
        let shapes = secrets.clone().map(|secret| secret.shape().clone());
        let parcels = sharing.deal(secrets.to_vec()).unwrap().into_iter().enumerate();
        let held: Vec<_> = parcels
            .map(|(server, parcel)| sharing.accept(server, parcel, &shapes).unwrap())
            .collect();
        let start = |session| Dealt::start(session, CpuEngine::new(1), Settings::default());
        let released = TestWorld::new(computing + 1).run(start, move |mpc: &mut Mpc| {
            let held = &held[mpc.me().0];
            let first = mpc.seed()?;
            mpc.begin_job(&[7; 32])?;
            let x = mpc.accept(&shapes, held.clone())?;
            assert_eq!(mpc.hold(&x.iter().collect::<Vec<_>>())?, *held);
            let product = mpc.product(Product::new(Bilinear::Mul, &x[0], &x[0], Finish::Raw))?;
            let results = [&product.share, &product.share, &x[1]];
            Ok((mpc.release(&results)?, [first, mpc.seed()?], mpc.operations()))
        });
        for (index, wanted) in [vec![9, 16], vec![9, 16], vec![u64::MAX]].into_iter().enumerate() {
            let parts: Vec<_> = released.iter().map(|(parts, ..)| parts[index].clone()).collect();
            assert_eq!(sharing.reveal(&parts).unwrap().words(), wanted);
        }
        // Each release has masks of its own, and servers count and draw alike.
        let [(first, seeds, operations), others @ ..] = &released[..] else { unreachable!() };
        assert_ne!(first[0].words, first[1].words);
        assert_ne!(seeds[0], seeds[1]);
        assert!(others.iter().all(|(_, other, count)| (other, count) == (seeds, operations)));
    }
}

#[test]
fn no_server_takes_the_parcel_of_the_dealer() {
    let sharing = MaskedSharing::three();
    let secret = [Tensor::vector(vec![3, 4])];
    let shapes = [secret[0].shape().clone()];
    for (given, taken) in [(0, 3), (3, 0), (3, 2), (2, 4)] {
        let parcel = sharing.deal(secret.to_vec()).unwrap().swap_remove(given);
        let error = sharing.accept(taken, parcel, &shapes).unwrap_err().to_string();
        assert!(error.contains("incomplete"), "{error}");
    }
}

#[test]
fn servers_refuse_settings_that_the_protocol_lacks() {
    for (settings, lacks) in [
        (
            Settings { truncation: TruncationMode::Dither, ..Settings::default() },
            "no truncation Dither",
        ),
        (Settings { security: Security::Checked, ..Settings::default() }, "no proofs of messages"),
        (
            Settings { profile: Profile::SlowLinks, ..Settings::default() },
            "no profile for slow links",
        ),
    ] {
        let start = move |session| Dealt::start(session, CpuEngine::new(1), settings).map(drop);
        for outcome in TestWorld::new(3).try_sessions(start) {
            let error = outcome.unwrap_err().to_string();
            assert!(error.contains(lacks), "{error}");
        }
    }
}

/// Functions truncate in the mode that servers have set.
#[test]
fn servers_truncate_as_they_are_set() {
    let settings = Settings { truncation: TruncationMode::Exact, ..Settings::default() };
    let start = move |session| Dealt::start(session, CpuEngine::new(1), settings);
    let opened = TestWorld::new(3).run(start, |mpc: &mut Mpc| {
        let mode = mpc.info().truncation;
        let x = mpc.constant(&Tensor::vector((0..200).map(|i| i * 333).collect()))?;
        let halves = mpc.truncate(&[(&x, 9)], mode)?;
        Ok(mpc.open(&[&halves[0]])?.remove(0).words().to_vec())
    });
    let floors: Vec<u64> = (0..200).map(|i| (i * 333) >> 9).collect();
    assert_eq!(opened[..2], [floors.clone(), floors]);
}

/// Products whose quotients are positive, 0 or negative, at the ends of their range and near 0, in a batch with others.
#[test]
fn layers_round_and_rectify_like_their_parts() {
    let most = (1i64 << 42) - 2;
    let sums: Vec<i64> = [0, 1, 7, 1 << 19, 1 << 20, 3 << 19, most << 20, (most << 20) - 1]
        .into_iter()
        .flat_map(|x| [x, -x])
        .collect();
    let words = Tensor::vector(sums.iter().map(|&x| x as u64).collect());
    let world = |seed| TestWorld::new(3).with_dealer().with_seed(seed);
    for (seed, mode) in (0..20).zip([TruncationMode::Default, TruncationMode::Early].repeat(10)) {
        let words = words.clone();
        let [positive, quotients, kept] = &world(seed).run(make, move |mpc| {
            let owns = mpc.me() == Party(1);
            let shape = [words.shape().clone()];
            let x = mpc.input(Party(1), &shape, owns.then_some(&[words.clone()][..]))?.remove(0);
            let one = mpc.constant(&Tensor::vector(vec![1; words.shape().len()]))?;
            let of = |finish| Product::new(Bilinear::Mul, &x, &one, finish);
            let products = mpc.products(&[
                of(Finish::Truncate { bits: 20, mode }),
                of(Finish::TruncateRelu { bits: 20, mode, keep: true }),
            ])?;
            let kept = products[1].kept.as_ref().expect("bits are kept");
            let kept = mpc.bits_to_words(&[kept])?.remove(0).remove(0);
            let shares = [&products[1].share, &products[0].share, &kept];
            mpc.open(&shares)
        })[0][..] else {
            unreachable!()
        };
        for (i, &x) in sums.iter().enumerate() {
            let quotient = quotients.words()[i] as i64;
            let positive = positive.words()[i] as i64;
            let floor = x >> 20;
            let ceiling = floor + i64::from(x & 0xf_ffff != 0);
            assert!((floor..=ceiling).contains(&quotient), "{x} {quotient}");
            assert!((floor.max(0)..=ceiling.max(0)).contains(&positive), "{x} {positive}");
            assert_eq!(kept.words()[i], u64::from(positive > 0), "{x}");
        }
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
    mutant("trig sum: of the angles' difference", "trig sums"),
    mutant("trig sum: distances a bit short", "trig sums"),
    mutant("layer: the wrap left out", "layers"),
    mutant("layer: the sign of the quotient itself", "layers"),
];

fn check(name: &str) {
    if let Some(operation) = name.strip_prefix("masks of: ") {
        return privacy::check(operation);
    }
    let world = &TestWorld::new(3).with_dealer().with_seed(5);
    match name {
        "openings" => privacy::openings().unwrap(),
        "products" => conformance::raw_products(world, make),
        "trig sums" => conformance::trig_sums(world, make),
        "layers" => layers_round_and_rectify_like_their_parts(),
        "truncations" => conformance::truncations(world, make),
        _ => panic!("there is no check `{name}`"),
    }
}

#[test]
fn all_mutants_are_noticed() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    every_mutant_is_noticed("tests::all_mutants_are_noticed", &source, MUTANTS, &[], check);
}
