//! Tests that what a party receives tells it nothing. They fail if a mask is left out.
//!
//! Three checks on everything that each party receives, for every operation and every pivot:
//!
//! 1. *Uniform*: over many seeds, bytes and differences of bytes between seeds at one place are uniform
//!    (chi-square with 255 degrees of freedom, below 400: by chance about one in 10^8), and two chosen
//!    secrets give the same distribution (two-sample chi-square, same threshold).
//! 2. *Masked by a key that the receiver lacks*: with all inputs and all other randomness fixed, a
//!    change of the key that the receiver does not hold changes half of the bits of every piece of
//!    every message. Without its mask a message would stay as it is.
//! 3. *No mask twice*: two pieces of what a party receives differ in half of their bits.
//!
//! And the checks are checked: masks are replaced by a stream that everybody knows, which check 2 must
//! notice. It cannot notice every single one: what a party sends is often masked twice over, by a mask
//! of its own and because the bit is a share whose other part comes from the same key.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use mpc_core::{
    Compare, Finish, Largest, Linear, Product, Protocol, Result, SplitMix64, Term, Then,
    TruncationMode,
};
use net::{Message, PairKey, Party, Session, Transport};
use ring_arith::{Bilinear, BitTensor, CpuEngine, Engine, Shape, Tensor, View};

use crate::{
    BitShare, Options, Rss, Share,
    cut::Turns,
    random::{Pair, probe::Place},
};

/// Elements: planes of 32 words.
const N: usize = 2048;

/// Bytes of a plane, and the pieces that messages are compared in.
const PIECE: usize = N / 8;

type Mpc = Rss<CpuEngine>;

struct Inputs {
    x: Share<Tensor>,
    y: Share<Tensor>,
    bits: [BitShare<Tensor>; 2],
}

type Run = fn(&mut Mpc, &Inputs) -> Result<()>;

/// Every operation that talks about secrets without opening them.
const OPERATIONS: &[(&str, Run)] = &[
    ("sign", |mpc, i| compare(mpc, i, Then::bit())),
    ("sign as a word", |mpc, i| compare(mpc, i, Then::word())),
    ("relu", |mpc, i| compare(mpc, i, Then::not_negative(&[&i.x]))),
    ("product", |mpc, i| product(mpc, i, Finish::Raw)),
    ("matrix product", matrices),
    ("default", |mpc, i| truncated(mpc, i, 20, TruncationMode::Default)),
    ("default, 40 bits", |mpc, i| truncated(mpc, i, 40, TruncationMode::Default)),
    ("early", |mpc, i| truncated(mpc, i, 20, TruncationMode::Early)),
    ("exact", |mpc, i| truncated(mpc, i, 20, TruncationMode::Exact)),
    ("dither", |mpc, i| truncated(mpc, i, 20, TruncationMode::Dither)),
    ("aby3", |mpc, i| truncated(mpc, i, 20, TruncationMode::Aby3Local)),
    ("truncate", |mpc, i| mpc.truncate(&[(&i.x, 20)], TruncationMode::Default).map(drop)),
    ("fused relu", |mpc, i| product(mpc, i, relu(TruncationMode::Early, false))),
    ("zero test", |mpc, i| mpc.is_zero(&[(&i.x, 64)]).map(drop)),
    ("and", |mpc, i| mpc.and(&[(&i.bits[0], &i.bits[1])]).map(drop)),
    ("select", |mpc, i| mpc.select(&[(&i.bits[0], &[&i.x, &i.y])]).map(drop)),
    ("bit as word", |mpc, i| mpc.bits_to_words(&[&i.bits[0]]).map(drop)),
    ("sums of bits", |mpc, i| mpc.bit_sums(&[(&i.bits[0], &[&[3], &[1 << 40]])]).map(drop)),
    ("bits of words", |mpc, i| mpc.to_bits(&[(&i.x, 20)]).map(drop)),
    ("maximum", |mpc, i| mpc.max_first(&i.x, 44, POSITION).map(drop)),
    ("sum of products", sums),
    ("sign, word and selections", |mpc, i| {
        let (x, y) = ([&i.x], [&i.y]);
        compare(mpc, i, Then { bit: true, word: true, negative: &x, not_negative: &y })
    }),
    ("relu and its gradient", |mpc, i| relu_and_gradient(mpc, i, TruncationMode::Default)),
    ("relu and its gradient, early", |mpc, i| relu_and_gradient(mpc, i, TruncationMode::Early)),
    ("relu and its gradient, exact", |mpc, i| relu_and_gradient(mpc, i, TruncationMode::Exact)),
    ("masked product", |mpc, i| {
        let (mode, mask) = (TruncationMode::Default, &i.bits[0]);
        product(mpc, i, Finish::TruncateMask { bits: 20, mode, mask })
    }),
    ("relu and selections by its sign", |mpc, i| {
        let kept = kept_sign(mpc, i, TruncationMode::Early)?;
        mpc.select(&[(&kept, &[&i.x])])?;
        mpc.select(&[(&mpc.not(&kept)?, &[&i.x, &i.y])]).map(drop)
    }),
    ("maximum and its gradient", |mpc, i| {
        let found = mpc.max_first(&i.x, 44, Largest { position: false, choices: true })?;
        mpc.max_first_gradient(&found.largest, &found.choices).map(drop)
    }),
];

const POSITION: Largest = Largest { position: true, choices: false };

fn relu<B>(mode: TruncationMode, keep: bool) -> Finish<'static, B> {
    Finish::TruncateRelu { bits: 20, mode, keep }
}

fn compare(mpc: &mut Mpc, inputs: &Inputs, then: Then<'_, Share<Tensor>>) -> Result<()> {
    mpc.compare(&[Compare { value: &inputs.x, width: 64, then }]).map(drop)
}

fn product(mpc: &mut Mpc, inputs: &Inputs, finish: Finish<'_, BitShare<Tensor>>) -> Result<()> {
    let Inputs { x, y, .. } = inputs;
    mpc.product(Product::new(Bilinear::Mul, x, y, finish)).map(drop)
}

/// Where a ReLU of a product is positive.
fn kept_sign(mpc: &mut Mpc, inputs: &Inputs, mode: TruncationMode) -> Result<BitShare<Tensor>> {
    let Inputs { x, y, .. } = inputs;
    let done = mpc.product(Product::new(Bilinear::Mul, x, y, relu(mode, true)))?;
    Ok(done.kept.expect("the sign was to be kept"))
}

/// A ReLU, and a product where it is positive.
fn relu_and_gradient(mpc: &mut Mpc, inputs: &Inputs, mode: TruncationMode) -> Result<()> {
    let mask = &kept_sign(mpc, inputs, mode)?;
    product(mpc, inputs, Finish::TruncateMask { bits: 20, mode, mask })
}

fn sums(mpc: &mut Mpc, inputs: &Inputs) -> Result<()> {
    let Inputs { x, y, .. } = inputs;
    let terms = [(x, y), (y, y)].map(|(lhs, rhs)| Term { op: Bilinear::Mul, lhs, rhs });
    let finish = Finish::Truncate { bits: 20, mode: TruncationMode::Default };
    mpc.product(Product { terms: terms.into(), summands: vec![(x, 20)], finish }).map(drop)
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

fn truncated(mpc: &mut Mpc, inputs: &Inputs, bits: u32, mode: TruncationMode) -> Result<()> {
    product(mpc, inputs, Finish::Truncate { bits, mode })
}

/// Everything that determines a run.
#[derive(Clone)]
struct World {
    secret: u64,
    pivot: usize,
    /// Seed of the input shares.
    shares: u64,
    /// Seeds of the keys of parties 0 and 1, 0 and 2, 1 and 2.
    keys: [u64; 3],
    /// Draws that everybody knows.
    spoil: Vec<Place>,
}

/// What each party received, and the places that were drawn from.
struct Seen {
    received: [Vec<u8>; 3],
    drawn: Vec<Place>,
}

/// Keeps what arrives.
struct Recorder {
    inner: Box<dyn Transport>,
    log: Arc<Mutex<Vec<u8>>>,
}

impl Transport for Recorder {
    fn me(&self) -> Party {
        self.inner.me()
    }
    fn parties(&self) -> usize {
        self.inner.parties()
    }
    fn send(&mut self, to: Party, message: Message) -> net::Result<()> {
        self.inner.send(to, message)
    }
    fn receive(&mut self, from: Party) -> net::Result<Message> {
        let message = self.inner.receive(from)?;
        let body: &Bytes = &message.body;
        self.log.lock().unwrap().extend_from_slice(body);
        Ok(message)
    }
    fn step(&mut self, name: &str) {
        self.inner.step(name);
    }
    fn accuse(&mut self, peer: Party, reason: &str) -> net::Error {
        self.inner.accuse(peer, reason)
    }

    fn close(self: Box<Self>) -> net::Result<()> {
        self.inner.close()
    }
}

/// Components of one secret word everywhere, as party `me` holds them.
fn share(draw: &mut SplitMix64, me: usize, word: u64) -> Share<Tensor> {
    let shape = Shape::new([4, N / 4]).unwrap();
    let mut parts = [vec![], vec![], vec![]];
    for _ in 0..N {
        let (a, b) = (draw.next_u64(), draw.next_u64());
        let all = [a, b, word.wrapping_sub(a).wrapping_sub(b)];
        parts.iter_mut().zip(all).for_each(|(part, word)| part.push(word));
    }
    let part = |i: usize| Tensor::new(shape.clone(), parts[i % 3].clone()).unwrap();
    Share::new(part(me), part(me + 1)).unwrap()
}

fn bits(engine: &CpuEngine, draw: &mut SplitMix64, me: usize, word: u64) -> BitShare<Tensor> {
    let shape = Shape::new([4, N / 4]).unwrap();
    let words: Vec<[u64; 2]> = (0..N).map(|_| [draw.next_u64(), draw.next_u64()]).collect();
    let part = |i: usize| {
        let one = |[a, b]: &[u64; 2]| [*a, *b, word ^ a ^ b][i % 3];
        let words = Tensor::new(shape.clone(), words.iter().map(one).collect()).unwrap();
        BitTensor::new(shape.clone(), engine.to_planes(&words, 0, 1).unwrap()).unwrap()
    };
    BitShare::new(part(me), part(me + 1)).unwrap()
}

fn observe(world: World, run: Run) -> Seen {
    let logs: [Arc<Mutex<Vec<u8>>>; 3] = Default::default();
    let key = |a: usize, b: usize| {
        let seed = world.keys[a + b - 1];
        let mut bytes = [a as u8; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        (a != b).then_some(PairKey(bytes))
    };
    let session = |transport: net::in_process::InProcess| {
        let me = transport.me().0;
        let log = logs[me].clone();
        let transport = Box::new(Recorder { inner: Box::new(transport), log });
        let pair_keys =
            (0..3).map(|p| if p == me { None } else { key(me.min(p), me.max(p)) }).collect();
        Session { transport, pair_keys, id: [3; 16], prg: None }
    };
    let sessions = net::in_process::transports(3).into_iter().map(session).collect();
    let drawn = net::launch::run_all(sessions, |session| {
        let me = session.transport.me().0;
        let mut mpc = Rss::with_options(session, CpuEngine::new(1), Options::default()).unwrap();
        mpc.turns = Turns::starting_at(world.pivot);
        world.spoil.iter().for_each(|&place| mpc.keys.probe.spoil(place));
        let mut draw = SplitMix64::new(world.shares);
        let x = share(&mut draw, me, world.secret);
        let y = share(&mut draw, me, 3 << 20);
        let bit = |draw: &mut SplitMix64| bits(&mpc.engine, draw, me, world.secret & 1);
        let bits = [bit(&mut draw), bit(&mut draw)];
        run(&mut mpc, &Inputs { x, y, bits }).unwrap();
        mpc.keys.probe.seen.lock().unwrap().clone()
    });
    let received = logs.map(|log| log.lock().unwrap().clone());
    Seen { received, drawn: drawn.into_iter().next().unwrap() }
}

fn world(secret: u64, pivot: usize, seed: u64) -> World {
    let keys = [seed * 7 + 1, seed * 7 + 2, seed * 7 + 3];
    World { secret, pivot, shares: seed * 7 + 4, keys, spoil: Vec::new() }
}

/// The number of the key that a party does not hold.
fn foreign(party: usize) -> usize {
    2 - party
}

/// Pieces of what `receiver` got that a change of the foreign key leaves too much alike.
fn unmasked_pieces(world: World, run: Run, receiver: usize) -> usize {
    let mut other = world.clone();
    other.keys[foreign(receiver)] ^= 0xabcdef;
    let (one, two) = (observe(world, run), observe(other, run));
    let (one, two) = (&one.received[receiver], &two.received[receiver]);
    assert_eq!(one.len(), two.len());
    let pieces = one.chunks(PIECE).zip(two.chunks(PIECE));
    pieces.filter(|(a, b)| !half_apart(a, b)).count()
}

/// Whether about half of the bits differ: within eight standard deviations.
fn half_apart(a: &[u8], b: &[u8]) -> bool {
    let bits = 8.0 * a.len() as f64;
    let apart: u32 = a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum();
    (f64::from(apart) - bits / 2.0).abs() < 8.0 * bits.sqrt() / 2.0
}

fn chi_square(counts: &[f64; 256]) -> f64 {
    let expected = counts.iter().sum::<f64>() / 256.0;
    counts.iter().map(|count| (count - expected).powi(2) / expected).sum()
}

fn two_samples(a: &[f64; 256], b: &[f64; 256]) -> f64 {
    let (all_a, all_b) = (a.iter().sum::<f64>(), b.iter().sum::<f64>());
    let cell = |(a, b): (&f64, &f64)| {
        let (x, y) = ((all_b / all_a).sqrt() * a, (all_a / all_b).sqrt() * b);
        if a + b > 0.0 { (x - y).powi(2) / (a + b) } else { 0.0 }
    };
    a.iter().zip(b).map(cell).sum()
}

/// Counts of bytes, and of differences of bytes from one seed to the next.
fn histograms(secret: u64, pivot: usize, run: Run) -> [[[f64; 256]; 2]; 3] {
    let mut counts = [[[0.0; 256]; 2]; 3];
    let mut last: Option<[Vec<u8>; 3]> = None;
    for seed in 0..12 {
        let seen = observe(world(secret, pivot, 1000 * secret.count_ones() as u64 + seed), run);
        for (party, bytes) in seen.received.iter().enumerate() {
            bytes.iter().for_each(|&byte| counts[party][0][usize::from(byte)] += 1.0);
            let Some(last) = &last else { continue };
            let pairs = bytes.iter().zip(&last[party]);
            pairs.for_each(|(a, b)| counts[party][1][usize::from(a ^ b)] += 1.0);
        }
        last = Some(seen.received);
    }
    counts
}

const LIMIT: f64 = 400.0;

#[test]
fn what_a_party_receives_is_uniform_for_every_secret() {
    for (name, run) in OPERATIONS {
        let all = [5 << 20, (1u64 << 40).wrapping_neg()].map(|secret| histograms(secret, 1, *run));
        for party in 0..3 {
            for kind in 0..2 {
                let [a, b] = [&all[0][party][kind], &all[1][party][kind]];
                if party == 1 {
                    assert_eq!(a.iter().sum::<f64>(), 0.0, "{name}: the pivot receives nothing");
                    continue;
                }
                for counts in [a, b] {
                    let distance = chi_square(counts);
                    assert!(distance < LIMIT, "{name}, party {party}, {kind}: {distance}");
                }
                let distance = two_samples(a, b);
                assert!(distance < LIMIT, "{name}, party {party}: secrets differ by {distance}");
            }
        }
    }
}

#[test]
fn every_message_is_masked_by_a_key_that_its_receiver_lacks() {
    for (name, run) in OPERATIONS {
        for (pivot, receiver) in (0..3).flat_map(|p| [(p, (p + 1) % 3), (p, (p + 2) % 3)]) {
            let bare = unmasked_pieces(world(77 << 20, pivot, 5), *run, receiver);
            assert_eq!(bare, 0, "{name}: pieces to party {receiver}, pivot {pivot}");
        }
    }
}

#[test]
fn no_two_pieces_have_the_same_mask() {
    for (name, run) in OPERATIONS {
        let seen = observe(world(5 << 20, 0, 9), *run);
        for (party, bytes) in seen.received.iter().enumerate() {
            let pieces: Vec<_> = bytes.chunks_exact(PIECE).collect();
            for (i, a) in pieces.iter().enumerate() {
                for b in &pieces[..i] {
                    assert!(half_apart(a, b), "{name}: two pieces to party {party} are alike");
                }
            }
        }
    }
}

#[test]
fn leaving_out_a_mask_is_noticed() {
    for (name, run) in OPERATIONS {
        let drawn = observe(world(5, 0, 1), *run).drawn;
        for pair in [Pair::K12, Pair::K13] {
            let masks: Vec<_> = drawn.iter().copied().filter(|place| place.1 == pair).collect();
            // What is masked with the second's stream goes to the third, and the other way round.
            let receiver = if pair == Pair::K12 { 2 } else { 1 };
            let notices = |place: &&Place| {
                let spoilt = World { spoil: vec![**place], ..world(77 << 20, 0, 5) };
                unmasked_pieces(spoilt, *run, receiver) > 0
            };
            let noticed = masks.iter().filter(notices).count();
            let silent = observe(world(5, 0, 1), *run).received[receiver].is_empty();
            assert!(noticed > 0 || silent, "{name}, {pair:?}: none of {} masks", masks.len());
        }
    }
}

/// What a product by a kept bit sends is masked several times over. Where all masks of a pair are known
/// to everybody but one, that one still hides something.
#[test]
fn each_mask_of_a_product_by_a_kept_bit_hides_something() {
    let runs: [(&str, Run); 2] = [
        ("default", |mpc, i| relu_and_gradient(mpc, i, TruncationMode::Default)),
        ("early", |mpc, i| relu_and_gradient(mpc, i, TruncationMode::Early)),
    ];
    for (name, run) in runs {
        let drawn = observe(world(5, 0, 1), run).drawn;
        let last = drawn.iter().map(|place| place.0).max().expect("something is drawn");
        for (pair, receiver) in [(Pair::K12, 2), (Pair::K13, 1)] {
            let all: Vec<_> = drawn.iter().copied().filter(|place| place.1 == pair).collect();
            let bare =
                |spoil| unmasked_pieces(World { spoil, ..world(77 << 20, 0, 5) }, run, receiver);
            let without_any = bare(all.clone());
            let masks: Vec<_> = all.iter().filter(|place| place.0 == last).collect();
            assert_eq!(
                masks.len(),
                4,
                "{name}, {pair:?}: of the halves, of two shares, of the sum"
            );
            for mask in masks {
                let others = all.iter().copied().filter(|place| place != mask);
                let with_one = bare(others.collect());
                assert!(with_one < without_any, "{name}: {mask:?} hides nothing");
            }
        }
    }
}
