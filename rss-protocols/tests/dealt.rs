//! Two parties with a dealer: bytes and rounds as the transport counts them, what each sends to the other and what
//! each plays from its tape; and the privacy check over both.

use mpc_core::{
    Compare, Finish, Largest, Product, Protocol, Result, SplitMix64, TestWorld, Then,
    TruncationMode, testing::privacy::PrivacyCheck,
};
use net::{Metered, Party, Session, Stats};
use ring_arith::{Bilinear, CpuEngine, Shape, Tensor, View};
use rss_protocols::{BitShare, DEALER, Options, Rss, Share, Tree};

type Mpc = Rss<CpuEngine>;

/// A multiple of 64, and large enough for several chunks.
const N: usize = 81_920;

struct Inputs {
    x: Share<Tensor>,
    y: Share<Tensor>,
    bits: BitShare<Tensor>,
}

/// Bits for each of `results`: sent by each party, and played by party 0 and party 1. Rounds.
#[derive(Debug, PartialEq)]
struct Cost {
    online: f64,
    tape: [f64; 2],
    rounds: u32,
}

fn inputs(mpc: &mut Mpc) -> Result<Inputs> {
    let shape = Shape::new([N])?;
    let mut draw = SplitMix64::new(9);
    let mut tensor = || Tensor::from_fn(shape.clone(), |_| draw.signed(30));
    let tensors = [tensor(), tensor()];
    let mine = (mpc.me() == Party(0)).then_some(&tensors[..]);
    let shapes = [shape.clone(), shape];
    let mut shares = mpc.input(Party(0), &shapes, mine)?.into_iter();
    let (x, y) = (shares.next().expect("two inputs"), shares.next().expect("two inputs"));
    let bits = mpc.to_bits(&[(&x, 1)])?.remove(0);
    Ok(Inputs { x, y, bits })
}

type Run = fn(&mut Mpc, &Inputs) -> Result<()>;

fn cost_of(options: Options, results: usize, run: Run) -> Cost {
    let program = move |mut session: Session| {
        let metered = Metered::new(session.transport);
        let meter = metered.meter();
        session.transport = Box::new(metered);
        let mut mpc = Rss::dealt(session, CpuEngine::new(1), options)?;
        let inputs = inputs(&mut mpc)?;
        // Both parties at one depth.
        mpc.open(&[&inputs.x])?;
        meter.reset();
        run(&mut mpc, &inputs)?;
        Ok(meter.stats())
    };
    let world = TestWorld::new(2).with_dealer();
    let stats: Vec<Stats> = world.try_sessions(program).into_iter().map(Result::unwrap).collect();
    let each = |bytes: u64| bytes as f64 * 8.0 / results as f64;
    let [one, other] = [0, 1].map(|me| each(stats[me].bytes_sent()));
    assert_eq!(one, other, "both send the same");
    assert!(stats.iter().all(|party| party.received[DEALER.0].bytes == 0));
    let tape = [0, 1].map(|me| each(stats[me].bytes_played()));
    Cost { online: one, tape, rounds: net::Report::of(&stats).rounds }
}

#[track_caller]
fn costs_for_each(
    results: usize,
    (online, tape, rounds): (u32, [u32; 2], u32),
    options: Options,
    run: Run,
) {
    let cost = cost_of(options, results, run);
    let want = Cost { online: online.into(), tape: tape.map(f64::from), rounds };
    assert_eq!(cost, want);
}

#[track_caller]
fn costs(want: (u32, [u32; 2], u32), run: Run) {
    costs_for_each(N, want, Options::default(), run);
}

fn product(mpc: &mut Mpc, i: &Inputs, finish: Finish<'_, BitShare<Tensor>>) -> Result<()> {
    mpc.product(Product::new(Bilinear::Mul, &i.x, &i.y, finish)).map(drop)
}

fn truncated(mpc: &mut Mpc, i: &Inputs, mode: TruncationMode) -> Result<()> {
    product(mpc, i, Finish::Truncate { bits: 20, mode })
}

fn fused(mpc: &mut Mpc, i: &Inputs, mode: TruncationMode) -> Result<()> {
    product(mpc, i, Finish::TruncateRelu { bits: 20, mode, keep: false })
}

fn relu(mpc: &mut Mpc, i: &Inputs, width: u32) -> Result<()> {
    let then = Then { not_negative: &[&i.x], ..Then::default() };
    mpc.compare(&[Compare { value: &i.x, width, then }]).map(drop)
}

#[test]
fn products_cost_what_the_table_says() {
    costs((64, [64, 0], 1), |mpc, i| product(mpc, i, Finish::Raw));
    costs((84, [64, 20], 2), |mpc, i| truncated(mpc, i, TruncationMode::Default));
    costs((64, [64, 20], 2), |mpc, i| truncated(mpc, i, TruncationMode::Early));
    costs((144, [157, 203], 6), |mpc, i| fused(mpc, i, TruncationMode::Early));
    costs((164, [157, 203], 6), |mpc, i| fused(mpc, i, TruncationMode::Default));
}

#[test]
fn comparisons_cost_what_the_table_says() {
    costs((51, [48, 147], 4), |mpc, i| {
        mpc.compare(&[Compare { value: &i.x, width: 64, then: Then::bit() }]).map(drop)
    });
    costs((35, [37, 148], 4), |mpc, i| mpc.is_zero(&[(&i.x, 64)]).map(drop));
    costs((115, [111, 211], 5), |mpc, i| relu(mpc, i, 64));
    costs((100, [93, 163], 5), |mpc, i| relu(mpc, i, 44));
    for (tree, want) in [(Tree::Twos, (120, [89, 211], 7)), (Tree::Fours, (98, [148, 296], 4))] {
        costs_for_each(N, want, Options::default().tree(tree), |mpc, i| relu(mpc, i, 64));
    }
}

#[test]
fn maxima_cost_what_the_table_says() {
    costs_for_each(N / 4, (300, [279, 489], 10), Options::default(), |mpc, i| {
        let view = View::Reshape(Shape::new([4, N / 4])?);
        let x = mpc.linear(&mpc_core::Linear::View(&view), &i.x)?;
        mpc.max_first(&x, 44, Largest::default()).map(drop)
    });
}

#[test]
fn bits_cost_what_the_table_says() {
    costs((1, [1, 0], 1), |mpc, i| mpc.and(&[(&i.bits, &i.bits)]).map(drop));
    costs((64, [0, 64], 1), |mpc, i| mpc.bits_to_words(&[&i.bits]).map(drop));
    costs((64, [64, 64], 1), |mpc, i| mpc.select(&[(&i.bits, &[&i.x])]).map(drop));
}

#[test]
fn inputs_and_openings_cost_what_the_table_says() {
    costs((64, [0, 0], 1), |mpc, i| mpc.open(&[&i.x]).map(drop));
    costs((64, [0, 0], 1), |mpc, _| {
        let mine = [Tensor::zeros(Shape::new([N])?)];
        mpc.input_sums(&[Shape::new([N])?], Some(&mine)).map(drop)
    });
    let both = |mpc: &mut Mpc, _: &Inputs| {
        for owner in [Party(0), Party(1)] {
            let mine = [Tensor::zeros(Shape::new([N])?)];
            let mine = (mpc.me() == owner).then_some(&mine[..]);
            mpc.input(owner, &[Shape::new([N])?], mine)?;
        }
        Ok(())
    };
    costs((64, [0, 0], 2), both);
}

#[test]
fn what_is_played_and_received_passes_the_privacy_check() {
    const FEW: usize = 64;
    let program = |session, secret| {
        let mut mpc = Rss::dealt(session, CpuEngine::new(1), Options::default())?;
        let shape = Shape::new([FEW])?;
        let value = Tensor::from_fn(shape.clone(), |i| ((secret * 5) << 20) as u64 + i as u64);
        let x = mpc.constant(&value)?;
        let early = Finish::TruncateRelu { bits: 20, mode: TruncationMode::Early, keep: false };
        let y = mpc.product(Product::new(Bilinear::Mul, &x, &x, early))?.share;
        mpc.compare_one(Compare { value: &y, width: 44, then: Then::bit() }).map(drop)?;
        // Both addends are sent under masks of the dealer's.
        mpc.input_sums(std::slice::from_ref(&shape), Some(std::slice::from_ref(&value)))?;
        for owner in [Party(0), Party(1)] {
            let mine = (mpc.me() == owner).then(|| std::slice::from_ref(&value));
            mpc.input(owner, std::slice::from_ref(&shape), mine)?;
        }
        Ok(())
    };
    PrivacyCheck::new(2).with_dealer().run(program).unwrap();
}
