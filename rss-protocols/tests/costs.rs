//! Bytes and rounds of every operation, as the transport counts them.

use mpc_core::{
    Compare, Finish, Product, Protocol, Result, SplitMix64, TestWorld, Then, TruncationMode,
};
use net::{Metered, Party, Session, Stats};
use ring_arith::{Bilinear, CpuEngine, Shape, Tensor};
use rss_protocols::{BitShare, Options, Parts, Rss, Share, Tree};

type Party3 = Rss<CpuEngine>;
type Word = Share<Tensor>;
type Bit = BitShare<Tensor>;

/// A multiple of three times 64 and of six times 64, so that parts are equal.
const N: usize = 24_576;

/// What one operation sent: by link, and in rounds.
struct Cost {
    links: [[u64; 3]; 3],
    rounds: u32,
}

impl Cost {
    fn bits(&self) -> f64 {
        self.links.iter().flatten().sum::<u64>() as f64 * 8.0 / N as f64
    }

    fn sent_by(&self, party: usize) -> u64 {
        self.links[party].iter().sum()
    }

    fn received_by(&self, party: usize) -> u64 {
        self.links.iter().map(|row| row[party]).sum()
    }
}

/// Inputs of an operation: two words below 2^30, one below 2^40, two bits.
struct Inputs {
    x: Word,
    y: Word,
    small: Word,
    bit: Bit,
    /// All bits of both words.
    wide: [Bit; 2],
}

fn inputs(mpc: &mut Party3, n: usize) -> Result<Inputs> {
    let shape = Shape::new([n])?;
    let mut draw = SplitMix64::new(9);
    let tensors: Vec<_> = [30, 30, 40]
        .iter()
        .map(|&bits| Tensor::from_fn(shape.clone(), |_| draw.signed(bits)))
        .collect();
    let mine = (mpc.me() == Party(0)).then_some(&tensors[..]);
    let mut shares = mpc.input(Party(0), &vec![shape; 3], mine)?.into_iter();
    let mut next = || shares.next().expect("three inputs");
    let (x, y, small) = (next(), next(), next());
    let mut bits = mpc.to_bits(&[(&x, 1), (&x, 64), (&y, 64)])?.into_iter();
    let mut next = || bits.next().expect("three tensors of bits");
    Ok(Inputs { x, y, small, bit: next(), wide: [next(), next()] })
}

fn cost_of(
    options: Options,
    n: usize,
    run: impl Fn(&mut Party3, &Inputs) -> Result<()> + Send + Sync + 'static,
) -> Cost {
    let program = move |mut session: Session| {
        let metered = Metered::new(session.transport);
        let meter = metered.meter();
        session.transport = Box::new(metered);
        let mut mpc = Rss::with_options(session, CpuEngine::new(1), options)?;
        let inputs = inputs(&mut mpc, n)?;
        // All parties at one depth.
        mpc.open(&[&inputs.x])?;
        meter.reset();
        run(&mut mpc, &inputs)?;
        Ok(meter.stats())
    };
    let world = TestWorld::new(3);
    let stats: Vec<Stats> =
        world.try_sessions(program).into_iter().map(|stats| stats.unwrap()).collect();
    let links = std::array::from_fn(|from| std::array::from_fn(|to| stats[from].sent[to].bytes));
    Cost { links, rounds: net::Report::of(&stats).rounds }
}

#[track_caller]
fn costs(
    what: &str,
    bits: usize,
    rounds: u32,
    options: Options,
    run: impl Fn(&mut Party3, &Inputs) -> Result<()> + Send + Sync + 'static,
) {
    let cost = cost_of(options, N, run);
    assert_eq!(cost.bits(), bits as f64, "{what}: bits in all for each element");
    assert_eq!(cost.rounds, rounds, "{what}: rounds");
    let sent: Vec<_> = (0..3).map(|party| cost.sent_by(party)).collect();
    let received: Vec<_> = (0..3).map(|party| cost.received_by(party)).collect();
    for list in [sent, received] {
        let (low, high) = (list.iter().min().unwrap(), list.iter().max().unwrap());
        assert!(*high as f64 <= *low as f64 * 1.02, "{what}: parties carry {list:?} bytes");
    }
}

fn products(mpc: &mut Party3, inputs: &Inputs, finish: Finish) -> Result<()> {
    let Inputs { x, y, .. } = inputs;
    let job = Product { op: Bilinear::Mul, lhs: x, rhs: y, summands: Vec::new(), finish };
    mpc.products(&[job]).map(drop)
}

fn compare(mpc: &mut Party3, value: &Word, width: u32, then: Then<'_, Word>) -> Result<()> {
    mpc.compare(&[Compare { value, width, then }]).map(drop)
}

fn plain() -> Options {
    Options::default()
}

#[test]
fn linear_maps_are_free() {
    costs("sum and public product", 0, 0, plain(), |mpc, inputs| {
        let sum = mpc.add(&inputs.x, &inputs.y)?;
        mpc.linear(&mpc_core::Linear::Scale(3), &sum).map(drop)
    });
}

#[test]
fn products_cost_what_the_table_says() {
    costs("product", 192, 1, plain(), |mpc, inputs| products(mpc, inputs, Finish::Raw));
    let modes = [
        (TruncationMode::Default, 252, 2),
        (TruncationMode::Early, 212, 2),
        (TruncationMode::Exact, 489, 5),
        (TruncationMode::Dither, 638, 5),
        (TruncationMode::Aby3Local, 192, 1),
    ];
    for (mode, bits, rounds) in modes {
        let finish = Finish::Truncate { bits: 20, mode };
        costs(&format!("product, {mode:?}"), bits, rounds, plain(), move |mpc, inputs| {
            products(mpc, inputs, finish)
        });
    }
}

#[test]
fn truncation_alone_costs_less_than_after_a_product() {
    let modes = [
        (TruncationMode::Default, 124, 2),
        (TruncationMode::Early, 124, 2),
        (TruncationMode::Exact, 361, 5),
        (TruncationMode::Dither, 510, 5),
        (TruncationMode::Aby3Local, 64, 1),
    ];
    for (mode, bits, rounds) in modes {
        costs(&format!("truncation, {mode:?}"), bits, rounds, plain(), move |mpc, inputs| {
            mpc.truncate(&[(&inputs.small, 20)], mode).map(drop)
        });
    }
}

#[test]
fn the_fused_layer_costs_less_than_the_table_says() {
    let finish = Finish::TruncateRelu { bits: 20 };
    let run = move |mpc: &mut Party3, inputs: &Inputs| products(mpc, inputs, finish);
    costs("fused ReLU, early", 648, 6, plain(), run);
    costs("fused ReLU", 688, 6, plain().early_relu(false), run);
}

#[test]
fn comparisons_cost_what_the_table_says() {
    let trees =
        [(Tree::Twos, 285, 540, 7), (Tree::Threes, 297, 552, 5), (Tree::Fours, 385, 640, 4)];
    for (tree, sign, relu, rounds) in trees {
        let options = plain().tree(tree);
        costs(&format!("sign, {tree:?}"), sign, rounds, options, |mpc, inputs| {
            compare(mpc, &inputs.x, 64, Then::Bit)
        });
        costs(&format!("ReLU, {tree:?}"), relu, rounds + 1, options, |mpc, inputs| {
            compare(mpc, &inputs.x, 64, Then::NonNegative(&[&inputs.x]))
        });
    }
    for (width, bits) in [(48, 473), (44, 456)] {
        costs(&format!("ReLU, width {width}"), bits, 6, plain(), move |mpc, inputs| {
            compare(mpc, &inputs.small, width, Then::NonNegative(&[&inputs.small]))
        });
    }
    costs("sign as a word", 488, 6, plain(), |mpc, inputs| {
        compare(mpc, &inputs.x, 64, Then::Arithmetic)
    });
    costs("sign times two words", 296 + 64 + 2 * 192, 6, plain(), |mpc, inputs| {
        compare(mpc, &inputs.x, 64, Then::Negative(&[&inputs.x, &inputs.y]))
    });
    costs("equal to zero", 255, 5, plain(), |mpc, inputs| {
        mpc.is_zero(&[(&inputs.x, 64)]).map(drop)
    });
}

#[test]
fn tournaments_cost_what_the_table_says() {
    // Of k each: N / k * (k - 1) comparisons, counted for each of N elements.
    for (k, levels) in [(2usize, 1), (4, 2)] {
        for (index, each) in [(false, 456), (true, 648)] {
            let bits = (k - 1) * each / k;
            let run = move |mpc: &mut Party3, inputs: &Inputs| {
                let sets = ring_arith::View::Reshape(Shape::new([k, N / k])?);
                let x = mpc.linear(&mpc_core::Linear::View(&sets), &inputs.small)?;
                mpc.max_first(&x, 44, index).map(drop)
            };
            costs(&format!("maximum of {k}, {index}"), bits, 1 + 5 * levels, plain(), run);
        }
    }
}

#[test]
fn bits_cost_what_the_table_says() {
    costs("and of 64 bits", 64 * 3, 1, plain(), |mpc, inputs| {
        mpc.and(&[(&inputs.wide[0], &inputs.wide[1])]).map(drop)
    });
    costs("select", 256, 2, plain(), |mpc, inputs| {
        mpc.select(&[(&inputs.bit, &[&inputs.x])]).map(drop)
    });
    costs("select of three", 64 + 3 * 192, 2, plain(), |mpc, inputs| {
        let words = [&inputs.x, &inputs.y, &inputs.small];
        mpc.select(&[(&inputs.bit, &words)]).map(drop)
    });
    costs("bit as a word", 192, 2, plain(), |mpc, inputs| {
        mpc.bits_to_words(&[&inputs.bit]).map(drop)
    });
    costs("64 bits of a word", 64 + 3 * (63 + 186 + 124), 8, plain(), |mpc, inputs| {
        mpc.to_bits(&[(&inputs.x, 64)]).map(drop)
    });
    // Few planes of few elements are one part, so its parties carry different loads.
    let few = cost_of(plain(), N, |mpc, inputs| mpc.to_bits(&[(&inputs.x, 16)]).map(drop));
    assert_eq!((few.bits(), few.rounds), (f64::from(16 + 3 * (15 + 28 + 14)), 6));
    costs("prefix or of 64 bits", 3 * 6 * 32, 6, plain(), |mpc, inputs| {
        mpc.prefix_or(&[&inputs.wide[0]]).map(drop)
    });
    costs("two weighted sums of 64 bits", 64 * 64 + 2 * 128, 2, plain(), |mpc, inputs| {
        mpc.bit_sums(&[(&inputs.wide[0], &[&[3; 64], &[5; 64]])]).map(drop)
    });
    costs("open bits", 3, 1, plain(), |mpc, inputs| mpc.open_bits(&[&inputs.bit]).map(drop));
}

#[test]
fn inputs_and_openings_cost_what_the_table_says() {
    costs("open", 192, 1, plain(), |mpc, inputs| mpc.open(&[&inputs.x]).map(drop));
    let one = cost_of(plain(), N, |mpc, inputs| mpc.open_to(Party(1), &[&inputs.x]).map(drop));
    assert_eq!((one.bits(), one.rounds), (64.0, 1));
    let input = cost_of(plain(), N, |mpc, _| {
        let shape = Shape::new([N])?;
        let mine = [Tensor::zeros(shape.clone())];
        let mine = (mpc.me() == Party(2)).then_some(&mine[..]);
        mpc.input(Party(2), &[shape], mine).map(drop)
    });
    assert_eq!((input.bits(), input.rounds), (64.0, 1));
}

#[test]
fn with_six_parts_every_direction_of_every_link_carries_the_same() {
    let options = plain().parts(Parts::Six);
    let runs: [fn(&mut Party3, &Inputs) -> Result<()>; 3] = [
        |mpc, inputs| compare(mpc, &inputs.x, 64, Then::NonNegative(&[&inputs.x])),
        |mpc, inputs| products(mpc, inputs, Finish::TruncateRelu { bits: 20 }),
        |mpc, inputs| {
            let mode = TruncationMode::Default;
            products(mpc, inputs, Finish::Truncate { bits: 20, mode })
        },
    ];
    for run in runs {
        let cost = cost_of(options, N, run);
        let links: Vec<_> = cost.links.iter().flatten().copied().filter(|&b| b > 0).collect();
        assert_eq!(links.len(), 6);
        let (low, high) = (links.iter().min().unwrap(), links.iter().max().unwrap());
        assert!(*high as f64 <= *low as f64 * 1.02, "links carry {links:?} bytes");
    }
}

#[test]
fn the_pivot_of_a_part_receives_nothing() {
    // Below the size that is cut into parts; party 0 is the first pivot.
    let runs: [fn(&mut Party3, &Inputs) -> Result<()>; 9] = [
        |mpc, inputs| compare(mpc, &inputs.x, 64, Then::NonNegative(&[&inputs.x])),
        |mpc, inputs| compare(mpc, &inputs.x, 64, Then::Bit),
        |mpc, inputs| products(mpc, inputs, Finish::TruncateRelu { bits: 20 }),
        |mpc, inputs| products(mpc, inputs, Finish::Raw),
        |mpc, inputs| {
            let mode = TruncationMode::Dither;
            products(mpc, inputs, Finish::Truncate { bits: 20, mode })
        },
        |mpc, inputs| mpc.max_first(&inputs.small, 44, true).map(drop),
        |mpc, inputs| mpc.and(&[(&inputs.bit, &inputs.bit)]).map(drop),
        |mpc, inputs| mpc.to_bits(&[(&inputs.x, 64)]).map(drop),
        |mpc, inputs| mpc.bit_sums(&[(&inputs.bit, &[&[3]])]).map(drop),
    ];
    for (i, run) in runs.into_iter().enumerate() {
        let cost = cost_of(plain(), 192, run);
        assert_eq!(cost.received_by(0), 0, "operation {i}");
        assert!(cost.received_by(1) > 0 && cost.received_by(2) > 0, "operation {i}");
    }
}
