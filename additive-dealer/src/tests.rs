//! The protocol computes as every protocol must, and what its parties receive tells them nothing.

use std::path::Path;

use mpc_core::{
    Deal, Finish, Product, Profile, Protocol, Result, Security, ServerProtocol, Settings, Sharing,
    TestWorld, TruncationMode,
    testing::conformance,
    testing::mutants::{Mutant, every_mutant_is_noticed},
    testing::privacy::{Leak, PrivacyCheck},
};
use net::{Party, Session};
use ring_arith::{Bilinear, BitTensor, CpuEngine, Engine, EngineTensor, Shape, Tensor};

use crate::{Additive, TwoAndDealer};

fn make(session: Session) -> Result<Additive<CpuEngine>> {
    Additive::new(session, CpuEngine::new(1))
}

mpc_core::conformance! {
    two: TestWorld::new(2).with_dealer(), make;
}

#[test]
fn more_parties_compute_the_same() {
    for parties in [3, 5] {
        let world = TestWorld::new(parties).with_dealer();
        conformance::inputs_and_openings(&world, make);
        conformance::product_terms(&world, make);
        conformance::bit_decomposition(&world, make);
        conformance::weighted_sums(&world, make);
    }
}

#[test]
fn a_session_without_a_dealer_is_refused() {
    let refused = TestWorld::new(2).try_sessions(|session| make(session).map(drop));
    assert!(refused.iter().all(|outcome| outcome.as_ref().is_err_and(|error| {
        error.to_string().contains("needs two parties, a dealer, and a key for each pair")
    })));
}

/// Methods that talk, on a fixed sharing of a secret.
fn methods(parties: usize) -> Result<(), Leak> {
    PrivacyCheck::new(parties).with_dealer().run(|session, secret| {
        let mut mpc = make(session)?;
        let x = mpc.constant(&Tensor::vector(vec![secret as u64; 4]))?;
        let bits = mpc.to_bits(&[(&x, 8)])?;
        let words = mpc.bits_to_words(&[&bits[0]])?.remove(0);
        let product = Product::new(Bilinear::Mul, &words[0], &x, Finish::Raw);
        mpc.product(product).map(drop)
    })
}

/// Openings that tell the same of either secret.
fn openings() -> Result<(), Leak> {
    PrivacyCheck::new(3).with_dealer().run(|session, secret| {
        let mut mpc = make(session)?;
        let x = mpc.constant(&Tensor::vector(vec![secret as u64; 4]))?;
        let bits = mpc.to_bits(&[(&x, 1)])?;
        mpc.open(&[&mpc.sub(&x, &x)?])?;
        mpc.open_bits(&[&mpc.xor(&bits[0], &bits[0])?]).map(drop)
    })
}

#[test]
fn messages_tell_nothing() {
    methods(2).unwrap();
    methods(3).unwrap();
    openings().unwrap();
}

/// Clients' secrets, at three servers.
#[test]
fn clients_get_results_of_secrets_that_no_server_holds() {
    let secrets = [Tensor::vector(vec![3, 4]), Tensor::vector(vec![u64::MAX])];
    let shapes = secrets.clone().map(|secret| secret.shape().clone());
    let parcels = TwoAndDealer.deal(secrets.to_vec()).unwrap().into_iter().enumerate();
    let held: Vec<_> =
        parcels.map(|(server, parcel)| TwoAndDealer.accept(server, parcel, &shapes)).collect();
    let start = |session| Additive::start(session, CpuEngine::new(1), Settings::default());
    let released = TestWorld::new(3).run(start, move |mpc| {
        let held = held[mpc.me().0].as_ref().unwrap();
        let first = mpc.seed()?;
        mpc.begin_job(&[7; 32])?;
        let x = mpc.accept(&shapes, held.clone())?;
        assert_eq!(mpc.hold(&x.iter().collect::<Vec<_>>())?, *held);
        let product = mpc.product(Product::new(Bilinear::Mul, &x[0], &x[0], Finish::Raw))?.share;
        let results = [&product, &product, &x[1]];
        Ok((mpc.release(&results)?, [first, mpc.seed()?], mpc.operations()))
    });
    for (index, wanted) in [vec![9, 16], vec![9, 16], vec![u64::MAX]].into_iter().enumerate() {
        let parts: Vec<_> = released.iter().map(|(parts, ..)| parts[index].clone()).collect();
        assert_eq!(TwoAndDealer.reveal(&parts).unwrap().words(), wanted);
    }
    // Each release has masks of its own, and servers count and draw alike.
    let [(zero, seeds, operations), others @ ..] = &released[..] else { unreachable!() };
    assert_ne!(zero[0].words, zero[1].words);
    assert_ne!(seeds[0], seeds[1]);
    assert!(others.iter().all(|(_, other, count)| (other, count) == (seeds, operations)));
}

#[test]
fn no_server_takes_the_parcel_of_another() {
    let secret = [Tensor::vector(vec![3, 4])];
    let shapes = [secret[0].shape().clone()];
    for (given, taken) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        let parcel = TwoAndDealer.deal(secret.to_vec()).unwrap().swap_remove(given);
        let error = TwoAndDealer.accept(taken, parcel, &shapes).unwrap_err().to_string();
        assert!(error.contains("incomplete"), "{error}");
    }
}

#[test]
fn servers_refuse_settings_and_parties_that_the_protocol_lacks() {
    let start =
        |settings| move |session| Additive::start(session, CpuEngine::new(1), settings).map(drop);
    let exact = Settings { truncation: TruncationMode::Exact, ..Settings::default() };
    let checked = Settings { security: Security::Checked, ..Settings::default() };
    let slow = Settings { profile: Profile::SlowLinks, ..Settings::default() };
    for (parties, settings, reason) in [
        (3, exact, "has truncation Default and semi-honest security alone"),
        (3, checked, "has truncation Default and semi-honest security alone"),
        (3, slow, "has no profile for slow links"),
        (4, Settings::default(), "two servers compute for clients, and not 3"),
    ] {
        for outcome in TestWorld::new(parties).try_sessions(start(settings)) {
            let error = outcome.unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}

#[test]
fn jobs_have_streams_of_their_own() {
    let opened = TestWorld::new(3).run(make, |mpc| {
        let shape = Shape::new([4])?;
        let mut streams = Vec::new();
        for digest in [[1; 32], [1; 32], [2; 32]] {
            mpc.begin_job(&digest)?;
            let peer = Party((mpc.me().0 + 1) % 3);
            streams.push(mpc.common(peer, 1, &shape)?.words().to_vec());
        }
        Ok(streams)
    });
    for streams in opened {
        assert!(streams[0] != streams[1] && streams[1] != streams[2] && streams[0] != streams[2]);
    }
}

#[test]
fn the_dealer_may_run_beside_the_others() {
    let mut opened = TestWorld::new(3).run(make, |mpc| {
        let x = words(mpc)?;
        let product = mpc.product(Product::new(Bilinear::Mul, &x, &x, Finish::Raw))?.share;
        Ok(mpc.open(&[&product])?[0].words().to_vec())
    });
    // It learns nothing.
    assert_eq!(opened.pop().unwrap(), [0; N as usize]);
    assert_eq!(opened, [[49; N as usize]; 2]);
}

const fn mutant(name: &'static str, check: &'static str) -> Mutant {
    Mutant { name, check }
}

const MUTANTS: &[Mutant] = &[
    mutant("product: factors without masks", "methods"),
    mutant("to words: bits without masks", "methods"),
    mutant("stream: the same again", "methods"),
    mutant("input: the owner keeps all", "inputs"),
    mutant("opening: addends without masks", "openings"),
    mutant("dealt: the last addend too large", "products"),
    mutant("product: what all know added by all", "products"),
    mutant("adder: carries spread once", "bits"),
];

fn check(name: &str) {
    let world = &TestWorld::new(3).with_dealer().with_seed(5);
    match name {
        "methods" => methods(2).unwrap(),
        "openings" => openings().unwrap(),
        "inputs" => conformance::inputs_and_openings(world, make),
        "products" => conformance::raw_products(world, make),
        "bits" => conformance::bit_decomposition(world, make),
        _ => panic!("there is no check `{name}`"),
    }
}

#[test]
fn all_mutants_are_noticed() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    every_mutant_is_noticed("tests::all_mutants_are_noticed", &source, MUTANTS, &[], check);
}

type Mpc = Additive<CpuEngine>;

const N: u64 = 64;
const WIDTH: u64 = 8;

fn words(mpc: &Mpc) -> Result<<Mpc as Protocol>::Share> {
    mpc.constant(&Tensor::vector(vec![7; N as usize]))
}

fn bits(mpc: &Mpc) -> Result<<Mpc as Protocol>::Bits> {
    let planes = mpc.engine().to_planes(&Tensor::vector(vec![7; N as usize]), 0, WIDTH as u32)?;
    mpc.constant_bits(&BitTensor::new(Shape::new([N as usize])?, planes)?)
}

fn input(mpc: &mut Mpc) -> Result<()> {
    let mine = Tensor::vector(vec![7; N as usize]);
    let owns = mpc.me() == Party(0);
    let shapes = [mine.shape().clone()];
    mpc.input(Party(0), &shapes, owns.then_some(&[mine][..])).map(drop)
}

fn product(mpc: &mut Mpc) -> Result<()> {
    let x = words(mpc)?;
    mpc.product(Product::new(Bilinear::Mul, &x, &x, Finish::Raw)).map(drop)
}

fn and(mpc: &mut Mpc) -> Result<()> {
    let x = bits(mpc)?;
    mpc.and(&[(&x, &x)]).map(drop)
}

/// The table of the crate's README.
#[test]
fn methods_send_what_the_readme_says() {
    for parties in [2, 3] {
        let world = TestWorld::new(parties).with_dealer();
        let pairs = (parties * (parties - 1)) as u64;
        let cost = |program: fn(&mut Mpc) -> Result<()>| {
            let report = world.run_metered(make, program).1;
            (report.rounds, report.bytes)
        };
        assert_eq!(cost(input), (0, 0));
        assert_eq!(cost(|mpc| mpc.open(&[&words(mpc)?]).map(drop)), (1, 8 * N * pairs));
        assert_eq!(cost(product), (1, 8 * 2 * N * pairs));
        assert_eq!(cost(and), (1, N * WIDTH / 4 * pairs));
        assert_eq!(
            cost(|mpc| mpc.bits_to_words(&[&bits(mpc)?]).map(drop)),
            (1, N * WIDTH / 8 * pairs)
        );
        let levels = if parties == 2 { 1 } else { 2 };
        let to_bits = cost(|mpc| mpc.to_bits(&[(&words(mpc)?, WIDTH as u32)]).map(drop));
        assert_eq!(to_bits.0, levels * (1 + 3));
    }
}
