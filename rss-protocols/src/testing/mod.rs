//! Tests that a party's received messages reveal nothing, over one list of operations.
//!
//! [`certificate`] shows, flip by flip, that the received bits' masks are independent; [`statistics`] looks at
//! distributions. Both record what each party receives in sessions whose keys and shares are chosen.

pub(crate) mod certificate;
pub(crate) mod mutants;
pub(crate) mod openings;
pub(crate) mod probe;
mod releases;
mod samples;
mod statistics;
mod tampering;
mod uniqueness;

use std::sync::{Arc, Mutex};

use mpc_core::{
    Chain, Compare, Ends, Finish, Finishing, Largest, Line, Linear, Product, Profile, Protocol,
    Result, ShareTensor, SplitMix64, Sum, Term, Then, TrigSum, TrigTerm, TruncationMode,
    testing::privacy::{self, Recorder},
};
use net::{PairKey, Party, Session, Transport};
use ring_arith::{Bilinear, BitTensor, CpuEngine, Engine, Shape, Tensor, View};

use crate::{
    BitShare, DEALER, Options, Rss, Security, Share, Tree,
    runtime::{chunks::Rotation, fss, links::Codes},
};
use probe::{Flip, Place};

/// Elements: planes of 32 words.
const N: usize = 2048;

/// Results of an operation on rows of four.
const ROWS: usize = N / 4;

type Mpc = Rss<CpuEngine>;

/// Bits of [`Inputs::wide`].
const WIDE: usize = 11;

pub(crate) struct Inputs {
    x: Share<Tensor>,
    y: Share<Tensor>,
    bits: [BitShare<Tensor>; 2],
    wide: BitShare<Tensor>,
    /// The dealer of everything.
    dealer: Party,
}

type Run = fn(&mut Mpc, &Inputs) -> Result<()>;

/// Something that parties do, of which elements do not meet.
pub(crate) struct Operation {
    pub name: &'static str,
    /// The method of [`Protocol`] that it is an example of.
    method: &'static str,
    /// Elements of its results.
    results: usize,
    /// Words of tensors that hold keys, whose masks the tests of [`fss`] certify; 0 without keys.
    keys: usize,
    /// Number of dealers that it is certified for, from party 0 on: one for large operations.
    dealers: usize,
    run: Run,
}

const fn op(method: &'static str, name: &'static str, run: Run) -> Operation {
    Operation { name, method, results: N, keys: 0, dealers: 3, run }
}

/// On rows of four.
const fn rows(method: &'static str, name: &'static str, run: Run) -> Operation {
    Operation { name, method, results: ROWS, keys: 0, dealers: 3, run }
}

/// On rows of four that meet at once.
const fn at_once(name: &'static str, run: Run) -> Operation {
    Operation { dealers: 1, ..rows("max_first", name, run) }
}

/// On so few elements that each has a key.
const fn keyed(method: &'static str, name: &'static str, key: usize, run: Run) -> Operation {
    Operation { name, method, results: KEYED, keys: key * KEYED, dealers: 1, run }
}

/// Words of a key of 43 bits.
const STEP: usize = fss::words_of::<3>(43);

/// Elements that one party makes keys for.
const KEYED: usize = 128;

const DEFAULT: TruncationMode = TruncationMode::Default;
const EARLY: TruncationMode = TruncationMode::Early;
const EXACT: TruncationMode = TruncationMode::Exact;
const DITHER: TruncationMode = TruncationMode::Dither;
const ABY3: TruncationMode = TruncationMode::Aby3Local;

/// Every operation that talks about secrets without opening them, in every mode.
const OPERATIONS: &[Operation] = &[
    op("input", "input", |mpc, i| input_of(mpc, i.dealer)),
    op("compare", "sign", |mpc, i| compare(mpc, i, 64, Then::bit())),
    op("compare", "sign at width 44", |mpc, i| compare(mpc, i, 44, Then::bit())),
    op("compare", "sign at width 2", |mpc, i| compare(mpc, i, 2, Then::bit())),
    op("compare", "sign as a word", |mpc, i| compare(mpc, i, 64, Then::word())),
    op("compare_one", "relu", |mpc, i| {
        let (value, then) = (&i.x, [&i.x]);
        mpc.compare_one(Compare { value, width: 64, then: Then::not_negative(&then) }).map(drop)
    }),
    op("compare", "sign, word and selections", |mpc, i| {
        let (x, y) = ([&i.x], [&i.y]);
        let then = Then { bit: true, word: true, negative: &x, not_negative: &y };
        compare(mpc, i, 64, then)
    }),
    op("product", "product", |mpc, i| product(mpc, i, Finish::Raw)),
    op("products", "matrix product", matrices),
    op("products", "sum of products", sums),
    op("products", "product, default", |mpc, i| truncated(mpc, i, 20, DEFAULT)),
    op("products", "product, default, 40 bits", |mpc, i| truncated(mpc, i, 40, DEFAULT)),
    op("products", "product, early", |mpc, i| truncated(mpc, i, 20, EARLY)),
    op("products", "product, early, 40 bits", |mpc, i| truncated(mpc, i, 40, EARLY)),
    op("products", "product, exact", |mpc, i| truncated(mpc, i, 20, EXACT)),
    op("products", "product, dither", |mpc, i| truncated(mpc, i, 20, DITHER)),
    op("products", "product, aby3", |mpc, i| truncated(mpc, i, 20, ABY3)),
    op("truncate", "truncation, default", |mpc, i| shared(mpc, i, DEFAULT)),
    op("truncate", "truncation, early", |mpc, i| shared(mpc, i, EARLY)),
    op("truncate", "truncation, exact", |mpc, i| shared(mpc, i, EXACT)),
    op("truncate", "truncation, dither", |mpc, i| shared(mpc, i, DITHER)),
    op("truncate", "truncation, aby3", |mpc, i| shared(mpc, i, ABY3)),
    op("products", "fused relu, default", |mpc, i| product(mpc, i, relu(DEFAULT, false))),
    op("products", "fused relu, early", |mpc, i| product(mpc, i, relu(EARLY, false))),
    op("products", "relu, exact", |mpc, i| product(mpc, i, relu(EXACT, true))),
    op("products", "relu, dither", |mpc, i| product(mpc, i, relu(DITHER, false))),
    op("products", "relu, aby3", |mpc, i| product(mpc, i, relu(ABY3, false))),
    op("products", "relu and its gradient, default", |mpc, i| relu_and_gradient(mpc, i, DEFAULT)),
    op("products", "relu and its gradient, early", |mpc, i| relu_and_gradient(mpc, i, EARLY)),
    op("products", "relu and its gradient, exact", |mpc, i| relu_and_gradient(mpc, i, EXACT)),
    op("products", "masked product, default", |mpc, i| {
        product(mpc, i, Finish::TruncateMask { bits: 20, mode: DEFAULT, mask: &i.bits[0] })
    }),
    op("products", "masked product, early", |mpc, i| {
        product(mpc, i, Finish::TruncateMask { bits: 20, mode: EARLY, mask: &i.bits[0] })
    }),
    op("settle", "the sum of two parts", |mpc, i| settled(mpc, i, 2, Finish::Raw)),
    op("settle", "the sum of three parts, default", |mpc, i| {
        settled(mpc, i, 3, Finish::Truncate { bits: 20, mode: DEFAULT })
    }),
    op("settle", "the sum of two parts, exact", |mpc, i| {
        settled(mpc, i, 2, Finish::Truncate { bits: 20, mode: EXACT })
    }),
    op("settle", "the sum of two parts, dither", |mpc, i| {
        settled(mpc, i, 2, Finish::Truncate { bits: 20, mode: DITHER })
    }),
    op("settle", "the sum of three parts, relu", |mpc, i| settled(mpc, i, 3, relu(EARLY, true))),
    op("settle", "the sum of two parts, masked", |mpc, i| {
        settled(mpc, i, 2, Finish::TruncateMask { bits: 20, mode: DEFAULT, mask: &i.bits[0] })
    }),
    keyed("products", "relu at once, default", STEP, |mpc, i| relu_at_once(mpc, i, DEFAULT)),
    op("trig_sum", "trigonometric sum", |mpc, i| {
        let line = Line { constant: 3, slope: 1 << 37 };
        let outside = [Line { constant: 3, slope: 0 }, Line { constant: 5, slope: 2 }];
        let ends = Some(Ends { at: [-7 << 16, 7 << 16], slack: 14, outside });
        let terms = [(1 << 40, 1 << 28, 3), (5 << 39, 1 << 19, -1 << 18)];
        let term = |(turn, cosine, sine)| TrigTerm { turn, cosine, sine };
        let sum = TrigSum {
            terms: terms.map(term).to_vec().into(),
            line,
            total: 58,
            drop: 38,
            mode: DEFAULT,
            ends,
        };
        mpc.trig_sum(&i.x, 44, &sum).map(|found| assert!(found.is_some()))
    }),
    op("chain", "chain, default", |mpc, i| chain(mpc, i, DEFAULT)),
    op("chain", "chain, early", |mpc, i| chain(mpc, i, EARLY)),
    op("is_zero", "zero test", |mpc, i| mpc.is_zero(&[(&i.x, 64)]).map(drop)),
    op("is_zero", "zero test at width 20", |mpc, i| mpc.is_zero(&[(&i.x, 20)]).map(drop)),
    op("and", "and", |mpc, i| mpc.and(&[(&i.bits[0], &i.bits[1])]).map(drop)),
    op("prefix_or", "prefix or", |mpc, i| mpc.prefix_or(&[&i.wide]).map(drop)),
    op("select", "select", |mpc, i| mpc.select(&[(&i.bits[0], &[&i.x, &i.y])]).map(drop)),
    op("select", "relu and selections by its sign", |mpc, i| {
        let kept = kept_sign(mpc, i, EARLY)?;
        mpc.select(&[(&kept, &[&i.x])])?;
        mpc.select(&[(&mpc.not(&kept)?, &[&i.x, &i.y])]).map(drop)
    }),
    op("bits_to_words", "bits as words", |mpc, i| {
        mpc.bits_to_words(&[&i.bits[0], &i.bits[1]]).map(drop)
    }),
    op("bits_to_words", "a kept bit as a word", |mpc, i| {
        let kept = kept_sign(mpc, i, DEFAULT)?;
        mpc.bits_to_words(&[&kept]).map(drop)
    }),
    op("bit_sums", "sums of bits", |mpc, i| {
        mpc.bit_sums(&[(&i.wide, &[&[3; WIDE], &[1 << 40; WIDE]])]).map(drop)
    }),
    op("to_bits", "bits of words", |mpc, i| mpc.to_bits(&[(&i.x, 20)]).map(drop)),
    rows("shuffle", "shuffle", |mpc, i| mpc.shuffle(&[&i.x, &i.y], &[&i.wide]).map(drop)),
    rows("max_first", "maximum", |mpc, i| largest(mpc, i, Largest::default())),
    rows("max_first", "maximum and its place", |mpc, i| {
        mpc.max_first(&i.x, 8, Largest { position: true, choices: false }).map(drop)
    }),
    at_once("maximum of four at once and its place", |mpc, i| {
        mpc.set_profile(Profile::SlowLinks);
        mpc.max_first(&i.x, 8, Largest { position: true, choices: false }).map(drop)
    }),
    at_once("maximum of three at once", |mpc, i| {
        mpc.set_profile(Profile::SlowLinks);
        let three = View::Slice { axis: 0, start: 0, end: 3, step: 1 };
        let three = mpc.linear(&Linear::View(&three), &i.x)?;
        mpc.max_first(&three, 8, Largest::default()).map(drop)
    }),
    rows("max_first_gradient", "maximum of three and its gradient", |mpc, i| {
        let three = View::Slice { axis: 0, start: 0, end: 3, step: 1 };
        let three = mpc.linear(&Linear::View(&three), &i.x)?;
        let found = mpc.max_first(&three, 44, Largest { position: false, choices: true })?;
        mpc.max_first_gradient(&found.largest, &found.choices).map(drop)
    }),
    rows("max_first_gradient", "maximum of four and its gradient", |mpc, i| {
        let found = mpc.max_first(&i.x, 44, Largest { position: true, choices: true })?;
        mpc.max_first_gradient(&found.largest, &found.choices).map(drop)
    }),
];

/// Those of a checked session that send other messages.
const CHECKED: &[Operation] = &[
    op("products", "checked product", |mpc, i| truncated(mpc, i, 20, DEFAULT)),
    op("products", "checked product, 40 bits", |mpc, i| truncated(mpc, i, 40, DEFAULT)),
    op("truncate", "checked truncation", |mpc, i| shared(mpc, i, DEFAULT)),
    op("products", "checked relu", |mpc, i| product(mpc, i, relu(DEFAULT, true))),
    op("products", "checked product, exact", |mpc, i| truncated(mpc, i, 20, EXACT)),
    op("products", "checked product, dither", |mpc, i| truncated(mpc, i, 20, DITHER)),
    op("chain", "checked chain", |mpc, i| chain(mpc, i, DEFAULT)),
];

/// Two with a dealer share in another way than three: addends, ...
const SUMS: Operation = op("input_sums", "sums of inputs", |mpc, _| {
    let shape = Shape::new([N])?;
    let mine = [Tensor::from_fn(shape.clone(), |i| i as u64)];
    mpc.input_sums(&[shape], Some(&mine)).map(drop)
});

/// ... and tensors that one of the two owns, by owner.
const OWNED: [Operation; 2] = [
    op("input", "input of party 0, dealt", |mpc, _| input_of(mpc, Party(0))),
    op("input", "input of party 1, dealt", |mpc, _| input_of(mpc, Party(1))),
];

fn input_of(mpc: &mut Mpc, owner: Party) -> Result<()> {
    let shape = Shape::new([N])?;
    let mine = [Tensor::from_fn(shape.clone(), |i| i as u64)];
    let mine = (mpc.me() == owner).then_some(&mine[..]);
    mpc.input(owner, &[shape], mine).map(drop)
}

/// A chain with wraps in either factor, in both, and in a addend; of its results one is truncated.
fn chain(mpc: &mut Mpc, i: &Inputs, mode: TruncationMode) -> Result<()> {
    let mut chain = Chain::new(mode);
    let [x, y] = [&i.x, &i.y].map(|x| chain.input(x));
    let square = chain.product(x, x, 20);
    let mixed = chain.product(square, y, 36);
    let sum = Sum::of([(1, square), (5, mixed)], 77);
    let both = chain.product_plus(sum, mixed, Sum::of([(9, square)], 3), 20);
    let fourth = chain.product(mixed, mixed, 0);
    let last = chain.product(both, y, 30);
    mpc.chain(&chain.giving([last, fourth])).map(drop)
}

/// The first elements, as many as have a key.
fn few(mpc: &Mpc, share: &Share<Tensor>) -> Result<Share<Tensor>> {
    let flat = mpc.linear(&Linear::View(&View::Reshape(Shape::new([N])?)), share)?;
    mpc.linear(&Linear::View(&View::Slice { axis: 0, start: 0, end: KEYED, step: 1 }), &flat)
}

fn relu_at_once(mpc: &mut Mpc, i: &Inputs, mode: TruncationMode) -> Result<()> {
    mpc.set_profile(Profile::SlowLinks);
    let (x, y) = (few(mpc, &i.x)?, few(mpc, &i.y)?);
    mpc.product(Product::new(Bilinear::Mul, &x, &y, relu(mode, false))).map(drop)
}

fn relu<B>(mode: TruncationMode, keep: bool) -> Finish<'static, B> {
    Finish::TruncateRelu { bits: 20, mode, keep }
}

fn compare(mpc: &mut Mpc, i: &Inputs, width: u32, then: Then<'_, Share<Tensor>>) -> Result<()> {
    mpc.compare(&[Compare { value: &i.x, width, then }]).map(drop)
}

fn largest(mpc: &mut Mpc, inputs: &Inputs, want: Largest) -> Result<()> {
    mpc.max_first(&inputs.x, 44, want).map(drop)
}

fn product(mpc: &mut Mpc, inputs: &Inputs, finish: Finish<'_, BitShare<Tensor>>) -> Result<()> {
    let Inputs { x, y, .. } = inputs;
    mpc.product(Product::new(Bilinear::Mul, x, y, finish)).map(drop)
}

fn truncated(mpc: &mut Mpc, inputs: &Inputs, bits: u32, mode: TruncationMode) -> Result<()> {
    product(mpc, inputs, Finish::Truncate { bits, mode })
}

fn shared(mpc: &mut Mpc, inputs: &Inputs, mode: TruncationMode) -> Result<()> {
    mpc.truncate(&[(&inputs.x, 20)], mode).map(drop)
}

/// The bit that marks the positive results of a product's ReLU.
fn kept_sign(mpc: &mut Mpc, inputs: &Inputs, mode: TruncationMode) -> Result<BitShare<Tensor>> {
    let Inputs { x, y, .. } = inputs;
    let done = mpc.product(Product::new(Bilinear::Mul, x, y, relu(mode, true)))?;
    Ok(done.kept.unwrap())
}

/// A ReLU, and products where it is positive and where it is not.
fn relu_and_gradient(mpc: &mut Mpc, inputs: &Inputs, mode: TruncationMode) -> Result<()> {
    let mask = &kept_sign(mpc, inputs, mode)?;
    product(mpc, inputs, Finish::TruncateMask { bits: 20, mode, mask })?;
    let mask = &mpc.not(mask)?;
    product(mpc, inputs, Finish::TruncateMask { bits: 20, mode, mask })
}

/// The sum of the parts that machines made, each of a product of its own.
fn settled(
    mpc: &mut Mpc,
    inputs: &Inputs,
    machines: usize,
    finish: Finish<'_, BitShare<Tensor>>,
) -> Result<()> {
    let Inputs { x, y, .. } = inputs;
    let products = [(x, y), (y, y), (x, x)];
    let terms = products.map(|(lhs, rhs)| [Term { op: Bilinear::Mul, lhs, rhs }]);
    let sums: Vec<_> = terms.iter().take(machines).map(|term| &term[..]).collect();
    let parts = mpc.parts(&sums)?;
    let mut words = parts[0].words().to_vec();
    for part in &parts[1..] {
        words.iter_mut().zip(part.words()).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
    }
    let part = Tensor::new(x.shape().clone(), words)?;
    mpc.settle(&[(&part, Finishing::new(finish).plus(x, 20))]).map(drop)
}

fn sums(mpc: &mut Mpc, inputs: &Inputs) -> Result<()> {
    let Inputs { x, y, .. } = inputs;
    let terms = [(x, y), (y, y)].map(|(lhs, rhs)| Term { op: Bilinear::Mul, lhs, rhs });
    let finish = Finish::Truncate { bits: 20, mode: DEFAULT };
    mpc.product(Product { terms: terms.into(), summands: vec![(x, 20)], finish, sums: None })
        .map(drop)
}

/// A product with as many words as the others.
fn matrices(mpc: &mut Mpc, inputs: &Inputs) -> Result<()> {
    let shaped = |share, [m, n]: [usize; 2]| {
        let all = mpc.linear(&Linear::View(&View::Reshape(Shape::new([N / 2, 2])?)), share)?;
        let view = View::Slice { axis: 0, start: 0, end: m, step: 1 };
        let some = mpc.linear(&Linear::View(&view), &all)?;
        mpc.linear(&Linear::View(&View::Reshape(Shape::new([m, n])?)), &some)
    };
    let (lhs, rhs) = (&shaped(&inputs.x, [N / 2, 2])?, &shaped(&inputs.y, [2, 2])?);
    mpc.product(Product::new(Bilinear::MATMUL, lhs, rhs, Finish::Raw)).map(drop)
}

/// The secrets of a run.
#[derive(Debug, Clone, Copy)]
enum Secret {
    /// This word everywhere.
    Same(u64),
    /// Small words drawn for each element.
    Drawn,
}

/// Everything that determines a run.
#[derive(Clone)]
struct World {
    secret: Secret,
    elements: usize,
    dealer: usize,
    /// Seed of the input shares.
    shares: u64,
    /// Seeds of the keys of parties 0 and 1, 0 and 2, 1 and 2.
    keys: [u64; 3],
    tree: Tree,
    /// The dealer is the dealer of two others.
    dealt: bool,
    security: Security,
    /// Evaluators of small operations are exchanged.
    swapped: bool,
    flips: Arc<Vec<Flip>>,
    /// Changed bits of words of sent tensors, and who sends them.
    lies: Vec<Lie>,
    /// The number of a relation that nobody states.
    omitted: Option<usize>,
}

/// A changed word of a sent tensor.
#[derive(Debug, Clone, Copy)]
struct Lie {
    sender: usize,
    /// The tensor's number among those that the sender sends.
    tensor: usize,
    word: usize,
    bits: u64,
}

/// The messages and the samples of a run.
struct Seen {
    /// By receiver and sender.
    received: [[Vec<u8>; 3]; 3],
    /// By sender: the receivers and numbers of words of tensors.
    puts: [Vec<(Party, usize)>; 3],
    /// By sender: tensors that are codes of digits.
    codes: [Vec<Codes>; 3],
    draws: Vec<(Place, usize)>,
}

impl World {
    fn new(secret: u64, dealer: usize, seed: u64) -> Self {
        Self {
            secret: Secret::Same(secret),
            elements: N,
            dealer,
            shares: seed * 7 + 4,
            keys: [seed * 7 + 1, seed * 7 + 2, seed * 7 + 3],
            tree: Tree::default(),
            dealt: false,
            security: Security::SemiHonest,
            swapped: false,
            flips: Arc::default(),
            lies: Vec::new(),
            omitted: None,
        }
    }

    /// The secrets of `x`, `y`, both bits and the wide bits, for one element.
    fn secrets(&self, draw: &mut SplitMix64) -> [u64; 5] {
        match self.secret {
            Secret::Same(word) => [word, 3 << 20, word & 1, word & 1, word >> 20],
            Secret::Drawn => [
                draw.signed(30),
                draw.signed(30),
                draw.next_u64() & 1,
                draw.next_u64() & 1,
                draw.next_u64(),
            ],
        }
    }
}

impl Seen {
    fn by_receiver(&self) -> [Vec<u8>; 3] {
        self.received.each_ref().map(|senders| senders.concat())
    }
}

/// The inputs as party `me` holds them.
fn inputs(engine: &CpuEngine, world: &World, me: usize) -> Inputs {
    let mut draw = SplitMix64::new(world.shares);
    let shape = Shape::new([4, world.elements / 4]).unwrap();
    let mut parts: [[Vec<u64>; 3]; 5] = Default::default();
    for _ in 0..world.elements {
        let secrets = world.secrets(&mut draw);
        for (i, (parts, secret)) in parts.iter_mut().zip(secrets).enumerate() {
            let (a, b) = (draw.next_u64(), draw.next_u64());
            let sum = secret.wrapping_sub(a).wrapping_sub(b);
            let rest = if i < 2 { sum } else { secret ^ a ^ b };
            parts.iter_mut().zip([a, b, rest]).for_each(|(part, word)| part.push(word));
        }
    }
    let part = |i: usize, k: usize| Tensor::new(shape.clone(), parts[i][k % 3].clone()).unwrap();
    let words = |i| Share::new(part(i, me), part(i, me + 1)).unwrap();
    let bits = |i, width| {
        let planes = |k| {
            let planes = engine.to_planes(&part(i, k), 0, width).unwrap();
            BitTensor::new(shape.clone(), planes).unwrap()
        };
        BitShare::new(planes(me), planes(me + 1)).unwrap()
    };
    Inputs {
        x: words(0),
        y: words(1),
        bits: [bits(2, 1), bits(3, 1)],
        wide: bits(4, WIDE as u32),
        dealer: Party(world.dealer),
    }
}

/// Runs an operation.
fn observe(world: &World, run: Run) -> Seen {
    let (seen, _) = run_all(world, |mpc, inputs| run(mpc, inputs).unwrap());
    seen
}

/// Runs a program on the inputs.
fn run_all<R: Send>(
    world: &World,
    program: impl Fn(&mut Mpc, &Inputs) -> R + Sync,
) -> (Seen, Vec<R>) {
    let logs: [Arc<Mutex<privacy::View>>; 3] = Default::default();
    let key = |a: usize, b: usize| {
        let seed = world.keys[a + b - 1];
        let mut bytes = [a as u8; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        (a != b).then_some(PairKey(bytes))
    };
    let session = |transport: net::in_process::InProcess| {
        let me = transport.me().0;
        let log = logs[me].clone();
        let transport = Box::new(Recorder::new(Box::new(transport), log));
        let pair_keys =
            (0..3).map(|p| if p == me { None } else { key(me.min(p), me.max(p)) }).collect();
        Session { transport, pair_keys, id: [3; 16], prg: None }
    };
    let sessions = net::in_process::transports(3).into_iter().map(session).collect();
    let done = net::launch::run_all(sessions, |session| {
        let me = session.transport.me().0;
        let options = Options::default().tree(world.tree).security(world.security);
        let engine = CpuEngine::new(1);
        let mut mpc = if world.dealt {
            Rss::dealt(session, engine, options).unwrap()
        } else {
            Rss::with_options(session, engine, options).unwrap()
        };
        if !world.dealt {
            mpc.rotation = Rotation::starting_at(world.dealer, world.swapped).into();
        }
        mpc.omitted.set(world.omitted);
        let lies = world.lies.iter().filter(|lie| lie.sender == me);
        mpc.links.get_mut().lies = lies.map(|lie| (lie.tensor, lie.word, lie.bits)).collect();
        mpc.keys.probe.flips = world.flips.clone();
        let inputs = inputs(&mpc.engine, world, me);
        let result = program(&mut mpc, &inputs);
        let draws = mpc.keys.probe.seen.lock().unwrap().clone();
        let links = mpc.links.borrow();
        (links.puts.clone(), links.codes.clone(), draws, result)
    });
    let mut seen = Seen {
        received: Default::default(),
        puts: Default::default(),
        codes: Default::default(),
        draws: vec![],
    };
    let mut results = Vec::with_capacity(3);
    for (me, (puts, codes, draws, result)) in done.into_iter().enumerate() {
        let log = logs[me].lock().unwrap();
        seen.received[me] =
            [0, 1, 2].map(|from| log.messages(Party(from)).flatten().copied().collect());
        seen.puts[me] = puts;
        seen.codes[me] = codes;
        seen.draws = draws;
        results.push(result);
    }
    (seen, results)
}
