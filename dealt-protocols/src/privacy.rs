//! Joint tests of messages: all parties but one learn nothing from those that they see together.
//!
//! All keys that a coalition holds are fixed. The one key that it lacks, of the honest party and the dealer, is another in
//! each run. No bit of the coalition's view may then be nearly constant, and all bytes together must be uniform. Of each 8
//! bytes the lowest bit is taken, which is the lowest of a word or one of a plane: no exclusive or of any such bits
//! may be constant. So a mask that is used twice is noticed, in whatever combination.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use mpc_core::{
    Compare, Finish, Product, Protocol, Result, SplitMix64, SumFactors, Sums, Then, TruncationMode,
    testing::privacy::{Leak, PrivacyCheck, Recorder, View},
};
use net::{PairKey, Party, Session, Transport};
use ring_arith::{Bilinear, CpuEngine, EngineTensor, Tensor};

use crate::{
    Dealt,
    tests::{Mpc, make, waves},
};

type Share = <Mpc as Protocol>::Share;

/// Elements of a tensor: a plane is one word, all of whose bits are used.
const ELEMENTS: usize = 64;

/// Runs beyond the number of bits whose sums are tested: by chance such a sum is constant once in 2^40 tests.
const SPARE: usize = 40;

/// An operation on a secret.
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    run: fn(&mut Mpc, Share) -> Result<()>,
}

const fn operation(name: &'static str, run: fn(&mut Mpc, Share) -> Result<()>) -> Operation {
    Operation { name, run }
}

fn product(mpc: &mut Mpc, x: &Share, mode: TruncationMode) -> Result<()> {
    let finish = Finish::Truncate { bits: 20, mode };
    mpc.product(Product::new(Bilinear::Mul, x, x, finish)).map(drop)
}

/// Each on the shared secret, so that the masked words and their mask are part of the view.
const OPERATIONS: &[Operation] = &[
    operation("input", |_, _| Ok(())),
    operation("product", |mpc, x| product(mpc, &x, TruncationMode::Default)),
    operation("product, exact", |mpc, x| product(mpc, &x, TruncationMode::Exact)),
    operation("compare", |mpc, x| {
        let list = [&x];
        mpc.compare_one(Compare { value: &x, width: 64, then: Then::not_negative(&list) }).map(drop)
    }),
    operation("is_zero", |mpc, x| mpc.is_zero(&[(&x, 20)]).map(drop)),
    operation("select", |mpc, x| {
        let bit = mpc.to_bits(&[(&x, 1)])?.remove(0);
        mpc.select(&[(&bit, &[&x])]).map(drop)
    }),
    operation("to_bits", |mpc, x| mpc.to_bits(&[(&x, 12)]).map(drop)),
    operation("bits_to_words", |mpc, x| {
        let bits = mpc.to_bits(&[(&x, 3)])?;
        mpc.bits_to_words(&[&bits[0]]).map(drop)
    }),
    operation("bit_sums", |mpc, x| {
        let bits = mpc.to_bits(&[(&x, 3)])?;
        mpc.bit_sums(&[(&bits[0], &[&[1, 2, 4], &[5, 0, u64::MAX]])]).map(drop)
    }),
    operation("trig_sum", |mpc, x| mpc.trig_sum(&x, 20, &waves(true)).map(drop)),
    operation("relu of a product", |mpc, x| {
        let finish = Finish::TruncateRelu { bits: 40, mode: TruncationMode::Default, keep: true };
        let factors = [SumFactors { outer: vec![3], middle: vec![1], inner: vec![1; ELEMENTS] }];
        let sums = Some(Sums { factors: &factors, parts: 1 });
        let product = Product { sums, ..Product::new(Bilinear::Mul, &x, &x, finish) };
        mpc.product(product).map(drop)
    }),
];

/// Party 0 shares the secret, 0 or 1, as words that differ.
fn program(mut mpc: Mpc, secret: usize, operation: &Operation) -> Result<()> {
    let words = (0..ELEMENTS as u64).map(|i| secret as u64 * (0x12_3457 * i + 1));
    let mine = Tensor::vector(words.collect());
    let owns = mpc.me() == Party(0);
    let x = mpc.input(Party(0), &[mine.shape().clone()], owns.then_some(&[mine][..]))?.remove(0);
    (operation.run)(&mut mpc, x)
}

fn key(one: usize, other: usize, seed: u64) -> PairKey {
    let pair = (one.min(other) * 32 + one.max(other)) as u64;
    let mut draw = SplitMix64::new(seed << 16 ^ pair);
    let mut key = [0; 32];
    key.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&draw.next_u64().to_le_bytes()));
    PairKey(key)
}

/// All views of a run in which the key of `honest` and the dealer is of a seed of its own; the dealer runs first, alone.
fn views(
    parties: usize,
    honest: usize,
    seed: u64,
    program: &(impl Fn(Mpc) -> Result<()> + Sync),
) -> Vec<View> {
    let logs: Vec<_> = (0..=parties).map(|_| Arc::new(Mutex::new(View::default()))).collect();
    let session = |transport: Box<dyn Transport>| {
        let (me, members) = (transport.me().0, transport.parties());
        let pair_keys = (0..members).map(|peer| {
            let lacked = [me, peer].contains(&honest) && [me, peer].contains(&parties);
            (peer != me).then(|| key(me, peer, if lacked { seed } else { 0 }))
        });
        let pair_keys = pair_keys.collect();
        let transport = Box::new(Recorder::new(transport, logs[me].clone()));
        Session { transport, pair_keys, id: [7; 16], prg: None }
    };
    let mut transports = net::tape::in_memory(parties);
    let dealer = transports.split_off(parties);
    for transports in [dealer, transports] {
        let sessions = transports.into_iter().map(session).collect();
        for outcome in net::launch::run_all(sessions, |session| program(make(session)?)) {
            outcome.unwrap();
        }
    }
    logs.iter().map(|log| log.lock().unwrap().clone()).collect()
}

/// The messages that a coalition of all but `honest` receives from outside: from the honest party, which sends the same to all, and
/// from the dealer. The dealer receives nothing.
fn seen(views: &[View], honest: usize) -> std::result::Result<Vec<u8>, String> {
    let dealer = views.len() - 1;
    if (0..dealer).any(|from| views[dealer].messages(Party(from)).next().is_some()) {
        return Err("the dealer received a message".to_owned());
    }
    let mut bytes: Vec<u8> = Vec::new();
    let mut sent: Option<Vec<&[u8]>> = None;
    for party in (0..dealer).filter(|&party| party != honest) {
        views[party].messages(Party(dealer)).for_each(|body| bytes.extend(body));
        let got: Vec<_> = views[party].messages(Party(honest)).collect();
        if sent.as_ref().is_some_and(|sent| *sent != got) {
            return Err(format!("party {honest} sent different messages"));
        }
        sent = Some(got);
    }
    sent.into_iter().flatten().for_each(|body| bytes.extend(body));
    Ok(bytes)
}

/// The views of a coalition, in enough runs.
fn runs(
    parties: usize,
    honest: usize,
    program: &(impl Fn(Mpc) -> Result<()> + Sync),
) -> std::result::Result<Vec<Vec<u8>>, String> {
    let one = |seed| seen(&views(parties, honest, seed, program), honest);
    let first = one(1)?;
    let count = (first.len() / 8 + SPARE).max(96) as u64;
    (1..=count).map(one).collect()
}

/// Checks that views are uniform.
fn uniform(views: &[Vec<u8>]) -> std::result::Result<(), String> {
    let length = views[0].len();
    if views.iter().any(|view| view.len() != length) {
        return Err("lengths depend on keys".to_owned());
    }
    let total = views.len();
    let mut histogram = [0u64; 256];
    views.iter().flatten().for_each(|&byte| histogram[usize::from(byte)] += 1);
    let mut columns = HashSet::new();
    for bit in 0..8 * length {
        let mut column = vec![0u64; total.div_ceil(64)];
        for (run, view) in views.iter().enumerate() {
            column[run / 64] |= u64::from(view[bit / 8] >> (bit % 8) & 1) << (run % 64);
        }
        let ones: u32 = column.iter().map(|word| word.count_ones()).sum();
        // As in `PrivacyCheck`.
        let few = total / 32;
        if ones as usize <= few || ones as usize + few >= total {
            return Err(format!("bit {bit} of {} is nearly constant", 8 * length));
        }
        // The first run's bit is made 0, so that opposite columns are the same.
        if column[0] & 1 == 1 {
            (0..total).for_each(|run| column[run / 64] ^= 1 << (run % 64));
        }
        if !columns.insert(column) {
            return Err(format!("bit {bit} of {} is another one or its opposite", 8 * length));
        }
    }
    let expected = (total * length) as f64 / 256.0;
    let statistic = histogram.iter().map(|&h| (h as f64 - expected).powi(2) / expected);
    if expected > 5.0 && statistic.sum::<f64>() > 255.0 + 7.0 * 510f64.sqrt() {
        return Err("bytes are not uniform".to_owned());
    }
    independent(views)
}

/// Checks that no exclusive or of lowest bits is constant over the runs, by elimination.
fn independent(views: &[Vec<u8>]) -> std::result::Result<(), String> {
    let words = views.len().div_ceil(64);
    let mut basis: Vec<(usize, Vec<u64>)> = Vec::new();
    let ones: Vec<u64> = (0..words)
        .map(|word| (0..64).fold(0, |ones, j| ones | u64::from(64 * word + j < views.len()) << j))
        .collect();
    let lowest = (0..views[0].len()).step_by(8).map(|at| {
        let mut column = vec![0u64; words];
        for (run, view) in views.iter().enumerate() {
            column[run / 64] |= u64::from(view[at] & 1) << (run % 64);
        }
        column
    });
    for (index, mut column) in [ones].into_iter().chain(lowest).enumerate() {
        for (pivot, other) in &basis {
            if column[pivot / 64] >> (pivot % 64) & 1 == 1 {
                column.iter_mut().zip(other).for_each(|(x, y)| *x ^= y);
            }
        }
        let Some(word) = column.iter().position(|&word| word != 0) else {
            return Err(format!("the lowest bit of word {} follows from others", index - 1));
        };
        basis.push((64 * word + column[word].trailing_zeros() as usize, column));
    }
    Ok(())
}

/// Checks an operation against all coalitions of all parties but one.
pub(crate) fn coalitions(parties: usize, operation: &Operation) -> std::result::Result<(), String> {
    for honest in 0..parties {
        let mut lengths = Vec::new();
        for secret in 0..2 {
            let views = runs(parties, honest, &|mpc| program(mpc, secret, operation))?;
            lengths.push(views[0].len());
            // Party 0 alone shares.
            if !views[0].is_empty() {
                uniform(&views).map_err(|reason| {
                    format!("{}, all but {honest} of {parties}: {reason}", operation.name)
                })?;
            }
        }
        if lengths[0] != lengths[1] {
            return Err(format!("{}: lengths depend on the secret", operation.name));
        }
    }
    Ok(())
}

/// The operation of a name, for 2 and 3 parties.
pub(crate) fn check(name: &str) {
    let operation = OPERATIONS.iter().find(|operation| operation.name == name);
    let operation = operation.unwrap_or_else(|| panic!("there is no operation `{name}`"));
    [2, 3].iter().for_each(|&parties| coalitions(parties, operation).unwrap());
}

/// Openings that tell the same of either secret, seen by each party alone.
pub(crate) fn openings() -> std::result::Result<(), Leak> {
    PrivacyCheck::new(3).with_dealer().run(|session, secret| {
        let mut mpc = Dealt::new(session, CpuEngine::new(1))?;
        let x = mpc.constant(&Tensor::vector(vec![secret as u64; 4]))?;
        let bits = mpc.to_bits(&[(&x, 1)])?;
        mpc.open(&[&mpc.sub(&x, &x)?])?;
        mpc.open_bits(&[&mpc.xor(&bits[0], &bits[0])?]).map(drop)
    })
}

/// Checks that what a coalition sees of an opening follows from the result and from what it knows itself, and that the
/// rest of its view is uniform.
fn reveals(parties: usize) -> std::result::Result<(), String> {
    const OPENED: usize = 8 * ELEMENTS;
    for (honest, secret) in (0..parties).flat_map(|honest| [(honest, 0), (honest, 1)]) {
        let masked = Mutex::new(Vec::new());
        // Party 0 shares numbers and their squares, which are the same less their product.
        let program = |mut mpc: Mpc| {
            let words = (0..ELEMENTS as u64).map(|i| secret * (0x12_3457 * i + 1));
            let words: Vec<u64> = words.collect();
            let squares = words.iter().map(|x| x * x).collect();
            let mine = [Tensor::vector(words), Tensor::vector(squares)];
            let shapes = [(); 2].map(|()| mine[0].shape().clone());
            let owns = mpc.me() == Party(0);
            let [x, squared] = &mpc.input(Party(0), &shapes, owns.then_some(&mine[..]))?[..] else {
                unreachable!()
            };
            let product = mpc.product(Product::new(Bilinear::Mul, x, x, Finish::Raw))?.share;
            let nothing = mpc.sub(&product, squared)?;
            if mpc.me() == Party(honest) {
                *masked.lock().unwrap() = nothing.masked.words().to_vec();
            }
            let opened = mpc.open(&[&nothing])?;
            assert!(opened[0].words().iter().all(|&word| word == 0));
            Ok(())
        };
        let mut others = Vec::new();
        let mut runs = 96;
        for seed in 1.. {
            if seed > runs {
                break;
            }
            let views = views(parties, honest, seed, &program);
            let mut view = seen(&views, honest)?;
            let opened = view.split_off(view.len() - OPENED);
            let sent = (0..parties).filter(|&party| party != honest);
            let sent = sent.filter_map(|party| views[honest].messages(Party(party)).last());
            let mut sums = masked.lock().unwrap().clone();
            for message in sent.chain([&opened[..]]) {
                let words = message.as_chunks::<8>().0.iter();
                let words = words.map(|word| u64::from_le_bytes(*word));
                sums.iter_mut().zip(words).for_each(|(sum, word)| *sum = sum.wrapping_add(word));
            }
            if sums.iter().any(|&sum| sum != 0) {
                return Err(format!("party {honest} of {parties} opened more than the result"));
            }
            runs = runs.max((view.len() / 8 + SPARE) as u64);
            others.push(view);
        }
        uniform(&others).map_err(|reason| format!("all but {honest} of {parties}: {reason}"))?;
    }
    Ok(())
}

#[test]
fn openings_tell_coalitions_only_results() {
    [2, 3].iter().for_each(|&parties| reveals(parties).unwrap());
}

#[test]
fn openings_tell_only_results() {
    openings().unwrap();
}

#[test]
fn inputs_and_products_tell_coalitions_nothing() {
    ["input", "product", "product, exact"].iter().for_each(|name| check(name));
}

#[test]
fn comparisons_and_selections_tell_coalitions_nothing() {
    ["compare", "select", "is_zero"].iter().for_each(|name| check(name));
}

#[test]
fn sums_of_sines_tell_coalitions_nothing() {
    check("trig_sum");
}

#[test]
fn layers_tell_coalitions_nothing() {
    check("relu of a product");
}

#[test]
fn products_tell_coalitions_of_three_of_four_nothing() {
    let product = OPERATIONS.iter().find(|operation| operation.name == "product").unwrap();
    coalitions(4, product).unwrap();
}

#[test]
fn bits_tell_coalitions_nothing() {
    ["to_bits", "bits_to_words", "bit_sums"].iter().for_each(|name| check(name));
}
