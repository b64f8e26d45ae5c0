//! Bytes and rounds of every operation, as the transport counts them.

use mpc_core::{
    Chain, Compare, Ends, Finish, Format, Largest, Line, Linear, Product, Profile, Protocol,
    Result, SecretTensor, ShareTensor, SplitMix64, Sum, Term, TestWorld, Then, TrigSum, TrigTerm,
    TruncationMode, functions as f,
};
use net::{Metered, Party, Session, Stats};
use ring_arith::{Bilinear, CpuEngine, Shape, Tensor, View};
use rss_protocols::{BitShare, Options, Partition, Rss, Share, Tree};

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
    fn bytes(&self) -> u64 {
        self.links.iter().flatten().sum()
    }

    fn bits(&self) -> f64 {
        self.bytes() as f64 * 8.0 / N as f64
    }

    fn sent_by(&self, party: usize) -> u64 {
        self.links[party].iter().sum()
    }

    fn received_by(&self, party: usize) -> u64 {
        self.links.iter().map(|row| row[party]).sum()
    }
}

/// Inputs of an operation: two words below 2^30, one below 2^40, two bits, and what earlier operations
/// kept.
struct Inputs {
    x: Word,
    y: Word,
    small: Word,
    bit: Bit,
    /// All bits of both words.
    wide: [Bit; 2],
    /// The sign of a ReLU.
    kept: Bit,
    /// The choices of maxima of four.
    choices: Vec<Bit>,
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
    let (bit, wide) = (next(), [next(), next()]);
    let job = Product::new(Bilinear::Mul, &x, &y, relu(TruncationMode::Early, true));
    let kept = mpc.product(job)?.kept.expect("the sign was to be kept");
    let want = Largest { choices: true, ..Largest::default() };
    let fours = sets(mpc, &small, 4)?;
    let choices = mpc.max_first(&fours, 44, want)?.choices;
    Ok(Inputs { x, y, small, bit, wide, kept, choices })
}

/// A tensor as sets of `k`, their elements along the first axis.
fn sets(mpc: &Party3, x: &Word, k: usize) -> Result<Word> {
    let shape = Shape::new([k, x.shape().len() / k])?;
    mpc.linear(&Linear::View(&View::Reshape(shape)), x)
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
    costs_for_each(N, what, bits, rounds, options, run);
}

/// Bits for each of so many results.
#[track_caller]
fn costs_for_each(
    results: usize,
    what: &str,
    bits: usize,
    rounds: u32,
    options: Options,
    run: impl Fn(&mut Party3, &Inputs) -> Result<()> + Send + Sync + 'static,
) {
    let cost = cost_of(options, N, run);
    let each = cost.bits() * N as f64 / results as f64;
    assert_eq!(each, bits as f64, "{what}: bits in all for each result");
    assert_eq!(cost.rounds, rounds, "{what}: rounds");
    let sent: Vec<_> = (0..3).map(|party| cost.sent_by(party)).collect();
    let received: Vec<_> = (0..3).map(|party| cost.received_by(party)).collect();
    for list in [sent, received] {
        let (low, high) = (list.iter().min().unwrap(), list.iter().max().unwrap());
        assert!(*high as f64 <= *low as f64 * 1.02, "{what}: parties carry {list:?} bytes");
    }
}

fn products(mpc: &mut Party3, inputs: &Inputs, finish: Finish<'_, Bit>) -> Result<()> {
    let Inputs { x, y, .. } = inputs;
    mpc.product(Product::new(Bilinear::Mul, x, y, finish)).map(drop)
}

const EARLY: TruncationMode = TruncationMode::Early;

fn relu<B>(mode: TruncationMode, keep: bool) -> Finish<'static, B> {
    Finish::TruncateRelu { bits: 20, mode, keep }
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
        mpc.linear(&Linear::Scale(3), &sum).map(drop)
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
fn chains_cost_what_the_table_says() {
    for d in 1..=4 {
        for (mode, bits) in [(TruncationMode::Default, 232 * d + 20), (EARLY, 192 * d + 20)] {
            costs(
                &format!("{d} squares, {mode:?}"),
                bits,
                d as u32 + 1,
                plain(),
                move |mpc, inputs| {
                    let mut chain = Chain::new(mode);
                    let mut x = chain.input(&inputs.x);
                    for _ in 0..d {
                        x = chain.product(x, x, 20);
                    }
                    mpc.chain(&chain.giving([x])).map(drop)
                },
            );
        }
    }
    costs("a product of a chain as it is", 212 + 212, 2, plain(), |mpc, inputs| {
        let mut chain = Chain::new(TruncationMode::Default);
        let [x, y] = [&inputs.x, &inputs.y].map(|x| chain.input(x));
        let square = chain.product(x, x, 20);
        let last = chain.product_plus(square, y, Sum::of([(3, square)], 1), 0);
        mpc.chain(&chain.giving([last])).map(drop)
    });
}

#[test]
fn the_fused_layer_costs_less_than_the_table_says() {
    for (mode, bits) in [(TruncationMode::Early, 648), (TruncationMode::Default, 688)] {
        for (keep, more) in [(false, 0), (true, 1)] {
            let run =
                move |mpc: &mut Party3, inputs: &Inputs| products(mpc, inputs, relu(mode, keep));
            costs(&format!("fused ReLU, {mode:?}, {keep}"), bits + more, 6, plain(), run);
        }
    }
}

#[test]
fn comparisons_cost_what_the_table_says() {
    let trees =
        [(Tree::Twos, 285, 540, 7), (Tree::Threes, 297, 552, 5), (Tree::Fours, 385, 640, 4)];
    for (tree, sign, relu, rounds) in trees {
        let options = plain().tree(tree);
        costs(&format!("sign, {tree:?}"), sign, rounds, options, |mpc, inputs| {
            compare(mpc, &inputs.x, 64, Then::bit())
        });
        costs(&format!("ReLU, {tree:?}"), relu, rounds + 1, options, |mpc, inputs| {
            compare(mpc, &inputs.x, 64, Then::not_negative(&[&inputs.x]))
        });
    }
    for (width, bits) in [(48, 473), (44, 456)] {
        costs(&format!("ReLU, width {width}"), bits, 6, plain(), move |mpc, inputs| {
            compare(mpc, &inputs.small, width, Then::not_negative(&[&inputs.small]))
        });
    }
    costs("sign as a word", 488, 6, plain(), |mpc, inputs| {
        compare(mpc, &inputs.x, 64, Then::word())
    });
    costs("sign times two words", 296 + 64 + 2 * 192, 6, plain(), |mpc, inputs| {
        compare(mpc, &inputs.x, 64, Then::negative(&[&inputs.x, &inputs.y]))
    });
    costs("equal to zero", 255, 5, plain(), |mpc, inputs| {
        mpc.is_zero(&[(&inputs.x, 64)]).map(drop)
    });
}

#[test]
fn tournaments_cost_what_the_table_says() {
    // Of k each: k - 1 comparisons.
    for (k, levels) in [(2usize, 1), (4, 2)] {
        let (position, choices) = (true, true);
        let wants = [
            (Largest::default(), 456),
            (Largest { position, ..Largest::default() }, 648),
            (Largest { choices, ..Largest::default() }, 457),
        ];
        for (want, each) in wants {
            let bits = (k - 1) * each;
            let run = move |mpc: &mut Party3, inputs: &Inputs| {
                let x = sets(mpc, &inputs.small, k)?;
                mpc.max_first(&x, 44, want).map(drop)
            };
            let what = format!("maximum of {k}, {want:?}");
            costs_for_each(N / k, &what, bits, 1 + 5 * levels, plain(), run);
        }
    }
}

fn for_slow_links() -> Options {
    plain().profile(Profile::SlowLinks)
}

#[test]
fn operations_for_slow_links_cost_what_they_say() {
    // Six comparisons for each four at once, and 41 words: 18 bits and products, 21 parts, 2 summands. The places
    // are 23 more.
    let four = 6 * 236 + 41 * 64;
    for (want, bits) in [
        (Largest::default(), four),
        (Largest { position: true, ..Largest::default() }, four + 23 * 64),
    ] {
        let run = move |mpc: &mut Party3, inputs: &Inputs| {
            let x = sets(mpc, &inputs.small, 4)?;
            mpc.max_first(&x, 44, want).map(drop)
        };
        costs_for_each(N / 4, "maximum of four at once", bits, 5, for_slow_links(), run);
    }
    // Two levels of four.
    let run = |mpc: &mut Party3, inputs: &Inputs| {
        let x = sets(mpc, &inputs.small, 16)?;
        mpc.max_first(&x, 44, Largest::default()).map(drop)
    };
    costs_for_each(N / 16, "maximum of sixteen at once", 5 * four, 9, for_slow_links(), run);
    // Keys of 218 words for both, A and na, halves, summands.
    let few = |mpc: &Party3, x: &Word| {
        mpc.linear(&Linear::View(&View::Slice { axis: 0, start: 0, end: 1536, step: 1 }), x)
    };
    for (mode, bits) in [
        (TruncationMode::Default, 2 * 218 * 64 + 64 + 20 + 128 + 128),
        (TruncationMode::Early, 2 * 218 * 64 + 64 + 20 + 88 + 128),
    ] {
        let run = move |mpc: &mut Party3, inputs: &Inputs| {
            let (x, y) = (few(mpc, &inputs.x)?, few(mpc, &inputs.y)?);
            mpc.product(Product::new(Bilinear::Mul, &x, &y, relu(mode, false))).map(drop)
        };
        costs_for_each(1536, "ReLU at once", bits, 2, for_slow_links(), run);
    }
}

#[test]
fn trigonometric_sums_cost_what_the_table_says() {
    let outside = [Line { constant: 0, slope: 0 }, Line { constant: 0, slope: 1 }];
    let ends = Ends { at: [-5 << 20, 5 << 20], slack: 18, outside };
    // Factors of 1 and of 2^-8: 22 and 14 fraction bits of the dealer's, 23 of the evaluators'.
    let terms = [(1 << 28, 51), (1 << 20, 43)];
    // Two comparisons at width 27, of which two words are selected in one exchange.
    for (ends, mode, rounds, others) in [
        (None, TruncationMode::Early, 3, 38),
        (None, TruncationMode::Default, 3, 3 * 38),
        (Some(ends), TruncationMode::Early, 5, 38 + 2 * 117 + 384),
    ] {
        let term = |(cosine, _)| TrigTerm { turn: 1 << 40, cosine, sine: 0 };
        let line = Line { constant: 0, slope: 1 << 37 };
        let terms_of = terms.map(term).to_vec().into();
        let function = TrigSum { terms: terms_of, line, total: 58, drop: 38, mode, ends };
        let shares: usize = terms.iter().map(|(_, bits)| 2 * bits).sum();
        let bits = shares + 192 + others;
        costs_for_each(N, "trigonometric sum", bits, rounds, plain(), move |mpc, inputs| {
            mpc.trig_sum(&inputs.small, 44, &function).map(drop)
        });
    }
}

#[test]
fn gradients_of_maxima_cost_what_the_table_says() {
    costs_for_each(N / 4, "gradient of a maximum of four", 576, 3, plain(), |mpc, inputs| {
        let one = View::Slice { axis: 0, start: 0, end: 1, step: 1 };
        let gradient = mpc.linear(&Linear::View(&one), &sets(mpc, &inputs.x, 4)?)?;
        mpc.max_first_gradient(&gradient, &inputs.choices).map(drop)
    });
}

#[test]
fn sums_of_products_cost_what_one_does() {
    for (finish, bits, rounds) in [
        (Finish::Raw, 192, 1),
        (Finish::Truncate { bits: 20, mode: TruncationMode::Default }, 252, 2),
        (Finish::Truncate { bits: 26, mode: TruncationMode::Default }, 270, 2),
        (relu(TruncationMode::Early, false), 648, 6),
    ] {
        costs("two products and a summand", bits, rounds, plain(), move |mpc, inputs| {
            let Inputs { x, y, small, .. } = inputs;
            let terms = [(x, y), (y, y)].map(|(lhs, rhs)| Term { op: Bilinear::Mul, lhs, rhs });
            let job =
                Product { terms: terms.into(), summands: vec![(small, 20)], finish, sums: None };
            mpc.product(job).map(drop)
        });
    }
}

#[test]
fn kept_bits_are_not_paid_for_again() {
    for (mode, bits) in [(TruncationMode::Default, 424), (TruncationMode::Early, 384)] {
        for (kept, more) in [(true, 0), (false, 64)] {
            let what = format!("masked product, {mode:?}, kept: {kept}");
            costs(&what, bits + more, 2, plain(), move |mpc, inputs| {
                let mask = if kept { &inputs.kept } else { &inputs.bit };
                products(mpc, inputs, Finish::TruncateMask { bits: 20, mode, mask })
            });
        }
    }
    let mode = TruncationMode::Default;
    costs("masked product, 26 bits", 436, 2, plain(), move |mpc, inputs| {
        products(mpc, inputs, Finish::TruncateMask { bits: 26, mode, mask: &inputs.kept })
    });
    costs("exact masked product", 489 + 192, 7, plain(), |mpc, inputs| {
        let (mode, mask) = (TruncationMode::Exact, &inputs.kept);
        products(mpc, inputs, Finish::TruncateMask { bits: 20, mode, mask })
    });
    costs("select by a kept bit", 192, 2, plain(), |mpc, inputs| {
        mpc.select(&[(&inputs.kept, &[&inputs.x])]).map(drop)
    });
    costs("select by a kept bit's opposite", 192, 2, plain(), |mpc, inputs| {
        let opposite = mpc.not(&inputs.kept)?;
        mpc.select(&[(&opposite, &[&inputs.x])]).map(drop)
    });
    costs("kept bit as a word", 128, 1, plain(), |mpc, inputs| {
        mpc.bits_to_words(&[&inputs.kept]).map(drop)
    });
    costs("sign as a bit, as a word and times two words", 297 + 64 + 128 + 384, 6, plain(), {
        |mpc, inputs| {
            let (x, y) = ([&inputs.x], [&inputs.y]);
            let then = Then { bit: true, word: true, negative: &x, not_negative: &y };
            compare(mpc, &inputs.x, 64, then)
        }
    });
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
    // One party deals for all rows.
    let rows = cost_of(plain(), N, |mpc, inputs| {
        let bits = [&inputs.bit, &inputs.wide[0]];
        mpc.shuffle(&[&inputs.x, &inputs.y], &bits).map(drop)
    });
    assert_eq!((rows.bits(), rows.rounds), (f64::from(2 * 256 + 4 * 65), 2));
    let drawn = |draw: fn(&mut Party3, &Shape, u32) -> Result<SecretTensor<Party3>>| {
        let cost = cost_of(plain(), N, move |mpc, _| draw(mpc, &Shape::new([N])?, 20).map(drop));
        (cost.bits(), cost.rounds)
    };
    let whole = |(bits, rounds): (f64, u32)| (bits.round() as u64, rounds);
    assert_eq!(whole(drawn(f::uniform)), (20 * 64 + 128, 2));
    assert_eq!(whole(drawn(f::exponential)), (4212, 22));
    assert_eq!(whole(drawn(f::laplace)), (8424, 22));
    assert_eq!(drawn(f::normal), (4473.5, 51));
    let drawn = |draw: fn(&mut Party3, &Shape, f64) -> Result<SecretTensor<Party3>>, scale| {
        let cost = cost_of(plain(), N, move |mpc, _| draw(mpc, &Shape::new([N])?, scale).map(drop));
        (cost.bits(), cost.rounds)
    };
    assert_eq!(drawn(f::discrete_laplace, 10.0), (18.0 * 439.0 + 128.0, 8));
    assert_eq!(drawn(f::discrete_normal, 3.0), (4473.0, 16));
    assert_eq!(drawn(f::coins, 0.3), (567.0, 8));
    let dropped = cost_of(plain(), N, |mpc, inputs| {
        let x = SecretTensor::new(inputs.small.clone(), Format { frac: 20, width: 40 });
        f::dropout(mpc, &x, 0.3).map(drop)
    });
    assert_eq!((dropped.bits(), dropped.rounds), (761.0, 10));
    let chosen = cost_of(plain(), N, |mpc, inputs| {
        let p = SecretTensor::new(inputs.small.clone(), Format { frac: 20, width: 40 });
        f::bernoulli(mpc, &p).map(drop)
    });
    assert_eq!((chosen.bits(), chosen.rounds), (1786.0, 8));
    let chosen = cost_of(plain(), N, |mpc, inputs| {
        let of_four = View::Reshape(Shape::new([N / 4, 4])?);
        let weights = mpc.linear(&Linear::View(&of_four), &inputs.small)?;
        f::weighted_index(mpc, &SecretTensor::new(weights, Format { frac: 20, width: 40 }))
            .map(drop)
    });
    assert_eq!((chosen.bits(), chosen.rounds), (709.0, 10));
    let words = cost_of(plain(), N, |mpc, inputs| {
        mpc.random_bits(inputs.x.shape(), 64).map(drop)?;
        mpc.random_words(&[inputs.x.shape().clone()]).map(drop)
    });
    assert_eq!((words.bytes(), words.rounds), (0, 0));
    let open = cost_of(plain(), N, |mpc, inputs| mpc.open_bits(&[&inputs.bit]).map(drop));
    assert_eq!((open.bytes(), open.rounds), (3 * N as u64 / 8 + 96, 1));
}

#[test]
fn inputs_and_openings_cost_what_the_table_says() {
    let open = cost_of(plain(), N, |mpc, inputs| mpc.open(&[&inputs.x]).map(drop));
    assert_eq!((open.bytes(), open.rounds), (24 * N as u64 + 96, 1));
    let one = cost_of(plain(), N, |mpc, inputs| mpc.open_to(Party(1), &[&inputs.x]).map(drop));
    assert_eq!((one.bytes(), one.rounds), (8 * N as u64 + 32, 1));
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
    let options = plain().partition(Partition::Six);
    let runs: [fn(&mut Party3, &Inputs) -> Result<()>; 3] = [
        |mpc, inputs| compare(mpc, &inputs.x, 64, Then::not_negative(&[&inputs.x])),
        |mpc, inputs| products(mpc, inputs, relu(TruncationMode::Early, false)),
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
fn the_dealer_of_a_part_receives_nothing() {
    // Below the size that is cut into parts; party 0 is the first dealer.
    let runs: [fn(&mut Party3, &Inputs) -> Result<()>; 11] = [
        |mpc, inputs| compare(mpc, &inputs.x, 64, Then::not_negative(&[&inputs.x])),
        |mpc, inputs| compare(mpc, &inputs.x, 64, Then::bit()),
        |mpc, inputs| products(mpc, inputs, relu(TruncationMode::Early, false)),
        |mpc, inputs| products(mpc, inputs, Finish::Raw),
        |mpc, inputs| {
            let mode = TruncationMode::Dither;
            products(mpc, inputs, Finish::Truncate { bits: 20, mode })
        },
        |mpc, inputs| mpc.max_first(&inputs.small, 44, Largest::default()).map(drop),
        |mpc, inputs| mpc.and(&[(&inputs.bit, &inputs.bit)]).map(drop),
        |mpc, inputs| mpc.to_bits(&[(&inputs.x, 64)]).map(drop),
        |mpc, inputs| mpc.bit_sums(&[(&inputs.bit, &[&[3]])]).map(drop),
        |mpc, inputs| mpc.shuffle(&[&inputs.x], &[&inputs.bit]).map(drop),
        |mpc, inputs| {
            let job = Product::new(Bilinear::Mul, &inputs.x, &inputs.y, relu(EARLY, true));
            let kept = &mpc.product(job)?.kept.expect("the sign was to be kept");
            mpc.select(&[(kept, &[&inputs.x])])?;
            products(mpc, inputs, Finish::TruncateMask { bits: 20, mode: EARLY, mask: kept })
        },
    ];
    for (i, run) in runs.into_iter().enumerate() {
        let cost = cost_of(plain(), 192, run);
        assert_eq!(cost.received_by(0), 0, "operation {i}");
        assert!(cost.received_by(1) > 0 && cost.received_by(2) > 0, "operation {i}");
    }
}
