//! Lies that relations find: a sender changes messages, and a relation of its own is false in what the others hold.
//!
//! Each operation of a checked session is run with each party as the dealer, with the evaluators exchanged too. One
//! message is changed at a time, by a bit in each 64 bytes and at both ends; then several messages of one sender. An
//! honest run has no false relation. [`Rss::statements`] refuses words of which no relation speaks.

use std::{collections::HashSet, env};

use dist_proofs::{Fault, Finding, Statements, evaluate};
use mpc_core::{
    Compare, Deal, Error, Finish, Largest, Linear, Product, Profile, Protocol, Result, ShareTensor,
    SplitMix64, Term, TestWorld, Then, TruncationMode, testing::conformance,
};
use net::Party;
use ring_arith::{Bilinear, CpuEngine, Shape, Tensor, View};

use super::{
    Inputs, Lie, Mpc, Run, Secret, Security, WIDE, World, chain, relu, relu_and_gradient, run_all,
};
use crate::{BitShare, Options, Rss, Share, Tree};

/// An operation, its elements, and the bits that it sends for each. Planes are full, so that every bit counts.
pub(super) struct Checked {
    pub name: &'static str,
    pub elements: usize,
    bits: usize,
    /// Elements depend on one another.
    pub meets: bool,
    pub run: Run,
}

const fn op(name: &'static str, bits: usize, run: Run) -> Checked {
    Checked { name, elements: 64, bits, meets: false, run }
}

/// Of elements that meet.
const fn map(name: &'static str, run: Run) -> Checked {
    Checked { meets: true, ..op(name, 0, run) }
}

/// On rows of four.
const fn rows(name: &'static str, run: Run) -> Checked {
    Checked { elements: 256, ..op(name, 0, run) }
}

pub(super) const OPERATIONS: &[Checked] = &[
    op("product", 192, |mpc, i| product(mpc, i, Finish::Raw)),
    op("product, truncated", 316, |mpc, i| truncated(mpc, i, 20, TruncationMode::Default)),
    op("product, truncated by 40 bits", 376, |mpc, i| {
        truncated(mpc, i, 40, TruncationMode::Default)
    }),
    op("truncation", 124, |mpc, i| mpc.truncate(&[(&i.x, 20)], TruncationMode::Default).map(drop)),
    op("and", 3, |mpc, i| mpc.and(&[(&i.bits[0], &i.bits[1])]).map(drop)),
    op("prefix or", 0, |mpc, i| mpc.prefix_or(&[&i.wide]).map(drop)),
    op("bits of words", 0, |mpc, i| mpc.to_bits(&[(&i.x, 9)]).map(drop)),
    op("sign", 297, |mpc, i| compare(mpc, i, 64, Then::bit())),
    op("sign at width 2", 0, |mpc, i| compare(mpc, i, 2, Then::bit())),
    op("relu", 552, |mpc, i| compare(mpc, i, 64, Then::not_negative(&[&i.x]))),
    op("sign, word and selections", 0, |mpc, i| {
        let x = [&i.x];
        let y = [&i.y];
        compare(mpc, i, 9, Then { bit: true, word: true, negative: &x, not_negative: &y })
    }),
    op("zero test", 255, |mpc, i| mpc.is_zero(&[(&i.x, 64)]).map(drop)),
    op("select", 256, |mpc, i| mpc.select(&[(&i.bits[0], &[&i.x])]).map(drop)),
    op("bits as words", 384, |mpc, i| mpc.bits_to_words(&[&i.bits[0], &i.bits[1]]).map(drop)),
    op("sums of bits", 960, |mpc, i| {
        mpc.bit_sums(&[(&i.wide, &[&[3; WIDE], &[1 << 40; WIDE]])]).map(drop)
    }),
    op("kept bit", 0, |mpc, i| {
        let x = [&i.x];
        let then = Then { bit: true, word: false, negative: &x, not_negative: &[] };
        let kept = mpc.compare_one(Compare { value: &i.x, width: 9, then })?.bit.unwrap();
        mpc.select(&[(&mpc.not(&kept)?, &[&i.x, &i.y])])?;
        mpc.bits_to_words(&[&kept]).map(drop)
    }),
    rows("maximum and its gradient", |mpc, i| {
        let found = mpc.max_first(&i.x, 9, Largest { position: true, choices: true })?;
        mpc.max_first_gradient(&found.largest, &found.choices).map(drop)
    }),
    rows("maximum of four at once and its place", |mpc, i| {
        mpc.set_profile(Profile::SlowLinks);
        mpc.max_first(&i.x, 5, Largest { position: true, choices: false }).map(drop)
    }),
    rows("maximum of three at once", |mpc, i| {
        mpc.set_profile(Profile::SlowLinks);
        let three = View::Slice { axis: 0, start: 0, end: 3, step: 1 };
        let three = mpc.linear(&Linear::View(&three), &i.x)?;
        mpc.max_first(&three, 8, Largest::default()).map(drop)
    }),
    op("chain", 0, |mpc, i| chain(mpc, i, TruncationMode::Default)),
    op("fused relu", 729, |mpc, i| product(mpc, i, relu(TruncationMode::Default, false))),
    op("fused relu and its gradient", 0, |mpc, i| {
        relu_and_gradient(mpc, i, TruncationMode::Default)
    }),
    op("product, exact", 597, |mpc, i| truncated(mpc, i, 20, TruncationMode::Exact)),
    op("truncation, exact", 0, |mpc, i| {
        mpc.truncate(&[(&i.x, 20)], TruncationMode::Exact).map(drop)
    }),
    op("product, dither", 746, |mpc, i| truncated(mpc, i, 20, TruncationMode::Dither)),
    op("relu, exact", 0, |mpc, i| product(mpc, i, relu(TruncationMode::Exact, true))),
    op("sum of products", 0, |mpc, i| {
        let terms = [(&i.x, &i.y), (&i.y, &i.y)];
        let terms = terms.map(|(lhs, rhs)| Term { op: Bilinear::Mul, lhs, rhs }).into();
        let finish = Finish::Truncate { bits: 20, mode: TruncationMode::Default };
        mpc.product(Product { terms, summands: vec![(&i.x, 20)], finish, sums: None }).map(drop)
    }),
    map("matrix product", |mpc, i| matrices(mpc, i, [8, 8, 8])),
    map("matrix product over one index", |mpc, i| matrices(mpc, i, [64, 1, 1])),
    map("matrix product in chunks", |mpc, i| matrices(mpc, i, [64, 1, 64])),
    map("matrix products of two shapes", |mpc, i| of_two_shapes(mpc, i).map(drop)),
];

/// The first words of a share as a matrix.
fn matrix(mpc: &Mpc, share: &Share<Tensor>, dims: [usize; 2]) -> Result<Share<Tensor>> {
    let words = View::Reshape(Shape::new([share.shape().len()])?);
    let words = mpc.linear(&Linear::View(&words), share)?;
    let some = View::Slice { axis: 0, start: 0, end: dims[0] * dims[1], step: 1 };
    let some = mpc.linear(&Linear::View(&some), &words)?;
    mpc.linear(&Linear::View(&View::Reshape(Shape::new(dims)?)), &some)
}

/// A sum of products that cannot share a relation.
fn of_two_shapes(mpc: &mut Mpc, Inputs { x, y, .. }: &Inputs) -> Result<Share<Tensor>> {
    let [a, b] = [matrix(mpc, x, [8, 8])?, matrix(mpc, y, [8, 8])?];
    let [c, d] = [matrix(mpc, x, [8, 4])?, matrix(mpc, y, [4, 8])?];
    let terms = [(&a, &b), (&c, &d)];
    let terms = terms.map(|(lhs, rhs)| Term { op: Bilinear::MATMUL, lhs, rhs }).into();
    let finish = Finish::Truncate { bits: 20, mode: TruncationMode::Default };
    Ok(mpc.product(Product { terms, summands: Vec::new(), finish, sums: None })?.share)
}

/// Products of matrices of the first words, with an addend, truncated.
fn matrices(mpc: &mut Mpc, Inputs { x, y, .. }: &Inputs, [m, k, n]: [usize; 3]) -> Result<()> {
    let [lhs, rhs] = [matrix(mpc, x, [m, k])?, matrix(mpc, y, [k, n])?];
    let row = matrix(mpc, x, [1, n])?;
    let terms = [(); 2].map(|()| Term { op: Bilinear::MATMUL, lhs: &lhs, rhs: &rhs }).into();
    let finish = Finish::Truncate { bits: 20, mode: TruncationMode::Default };
    mpc.product(Product { terms, summands: vec![(&row, 20)], finish, sums: None }).map(drop)
}

fn compare(mpc: &mut Mpc, i: &Inputs, width: u32, then: Then<'_, Share<Tensor>>) -> Result<()> {
    mpc.compare(&[Compare { value: &i.x, width, then }]).map(drop)
}

fn product(
    mpc: &mut Mpc,
    Inputs { x, y, .. }: &Inputs,
    finish: Finish<'_, BitShare<Tensor>>,
) -> Result<()> {
    mpc.product(Product::new(Bilinear::Mul, x, y, finish)).map(drop)
}

fn truncated(mpc: &mut Mpc, inputs: &Inputs, bits: u32, mode: TruncationMode) -> Result<()> {
    product(mpc, inputs, Finish::Truncate { bits, mode })
}

/// A run in which nobody lies.
pub(super) fn honest(elements: usize, dealer: usize, swapped: bool, seed: u64) -> World {
    World {
        secret: Secret::Drawn,
        elements,
        security: Security::Checked,
        swapped,
        ..World::new(0, dealer, seed)
    }
}

/// The sizes of the tensors that each party sends, and the statements as each party holds them.
pub(super) fn observe(world: &World, run: Run) -> ([Vec<usize>; 3], Vec<[Statements; 3]>) {
    let (seen, statements) = run_all(world, |mpc, inputs| {
        run(mpc, inputs).unwrap();
        mpc.statements().unwrap()
    });
    (seen.puts.map(|puts| puts.into_iter().map(|(_, len)| len).collect()), statements)
}

/// The faults of a prover's relations.
fn findings(statements: &[[Statements; 3]], prover: usize) -> Vec<Finding> {
    let [first, second, third] = [0, 1, 2].map(|after| &statements[(prover + after) % 3][prover]);
    evaluate(first, second, third)
}

/// Words of a party's messages of which its relations speak.
fn spoken(statements: &[[Statements; 3]], prover: usize) -> usize {
    let mut words = HashSet::new();
    for spoken in statements[prover][prover].spoken() {
        words.extend(spoken.words.clone().map(|word| (spoken.message.clone(), word)));
    }
    words.len()
}

/// True if a lie makes a relation of its sender false.
fn is_noticed(world: &World, lies: Vec<Lie>, run: Run) -> bool {
    let sender = lies[0].sender;
    let (_, statements) = observe(&World { lies, ..world.clone() }, run);
    let findings = findings(&statements, sender);
    findings.iter().any(|finding| matches!(finding.fault, Fault::False { .. }))
}

/// A bit in each 64 bytes of every tensor of a sender, and its first and last bit.
fn single_lies(sender: usize, sizes: &[usize], draw: &mut SplitMix64) -> Vec<Vec<Lie>> {
    let mut lies = Vec::new();
    for (tensor, &len) in sizes.iter().enumerate() {
        let mut lie = |word, bits| lies.push(vec![Lie { sender, tensor, word, bits }]);
        for line in (0..len).step_by(8) {
            let word = line + below(draw, 8.min(len - line));
            lie(word, 1 << below(draw, 64));
        }
        lie(0, 1);
        lie(len - 1, 1 << 63);
    }
    lies
}

/// Changes of several tensors of a sender in a few words.
fn joint_lies(sender: usize, sizes: &[usize], draw: &mut SplitMix64) -> Vec<Lie> {
    let lie = |draw: &mut SplitMix64| {
        let tensor = below(draw, sizes.len());
        let word = below(draw, sizes[tensor].min(4));
        let bits = if below(draw, 2) == 0 { draw.next_u64().max(1) } else { 1 << below(draw, 64) };
        Lie { sender, tensor, word, bits }
    };
    let mut lies: Vec<_> = (0..2 + below(draw, 4)).map(|_| lie(draw)).collect();
    // Two changes of a word could cancel.
    lies.sort_by_key(|lie| (lie.tensor, lie.word));
    lies.dedup_by_key(|lie| (lie.tensor, lie.word));
    lies
}

fn below(draw: &mut SplitMix64, bound: usize) -> usize {
    (draw.next_u64() % bound as u64) as usize
}

/// How many of the lies are told: all of the single ones if `TREFOIL_LIES` is set, and so many of several tensors.
pub(super) fn told() -> Option<usize> {
    env::var("TREFOIL_LIES").ok().map(|lies| lies.parse().expect("a number of lies"))
}

#[test]
fn every_lie_makes_a_relation_false() {
    let mut draw = SplitMix64::new(3);
    let mut told_so_far = 0;
    let mut missed = Vec::new();
    for operation in OPERATIONS {
        for (dealer, tree) in [Tree::Threes, Tree::Twos, Tree::Fours].into_iter().enumerate() {
            let world = World {
                tree,
                ..honest(operation.elements, dealer, dealer == 1, 5 + dealer as u64)
            };
            let (sizes, statements) = observe(&world, operation.run);
            for sender in 0..3 {
                assert_eq!(findings(&statements, sender), [], "{}", operation.name);
                let sent: usize = sizes[sender].iter().sum();
                assert_eq!(spoken(&statements, sender), sent, "{}: words", operation.name);
                let bound = statements[sender][sender].bound();
                assert_eq!(bound, 64 * sent, "{}: bits of {sender} that are bound", operation.name);
            }
            let bits = 64 * sizes.iter().flatten().sum::<usize>() / operation.elements;
            let declared = operation.bits == 0 || dealer > 0 || bits == operation.bits;
            assert!(declared, "{}: {bits} bits", operation.name);
            for (sender, sizes) in sizes.iter().enumerate().filter(|(_, sizes)| !sizes.is_empty()) {
                let mut lies = single_lies(sender, sizes, &mut draw);
                let joint = told().unwrap_or_else(|| {
                    // A few of them, others for each dealer.
                    lies = lies.drain(..).skip(dealer).step_by(21).take(12).collect();
                    2
                });
                lies.extend((0..joint).map(|_| joint_lies(sender, sizes, &mut draw)));
                for lies in lies {
                    told_so_far += 1;
                    if !is_noticed(&world, lies.clone(), operation.run) {
                        missed.push((operation.name, dealer, lies));
                    }
                }
            }
        }
    }
    println!("{told_so_far} lies, {} missed", missed.len());
    assert!(missed.is_empty(), "{:?}", &missed[..missed.len().min(5)]);
}

#[test]
fn a_relation_that_is_left_out_is_missed() {
    for (at, operation) in OPERATIONS.iter().enumerate() {
        let world = honest(operation.elements, at % 3, false, 5);
        let (sizes, statements) = observe(&world, operation.run);
        let relations: usize = (0..3).map(|prover| statements[prover][prover].len()).sum();
        // All of them, or every fortieth.
        let step = told().map_or(40, |_| 1);
        for omitted in (at % step..relations).step_by(step) {
            let world = World { omitted: Some(omitted), ..world.clone() };
            let (_, bound) = run_all(&world, |mpc, inputs| {
                (operation.run)(mpc, inputs).unwrap();
                mpc.statements().map(|statements| statements[mpc.me().0].bound())
            });
            let complete = bound.into_iter().zip(&sizes).all(|(bound, sizes)| {
                bound.is_ok_and(|bound| bound == 64 * sizes.iter().sum::<usize>())
            });
            assert!(!complete, "{}: relation {omitted}", operation.name);
        }
    }
}

#[test]
fn honest_programs_have_no_false_relation() {
    let mut draw = SplitMix64::new(17);
    for _ in 0..told().map_or(60, |lies| 50 * lies) {
        let operation = &OPERATIONS[below(&mut draw, OPERATIONS.len())];
        let tree = [Tree::Twos, Tree::Threes, Tree::Fours][below(&mut draw, 3)];
        // Planes that are not full, too.
        let elements = operation.elements - 4 * below(&mut draw, 3);
        let elements = if operation.name.starts_with("matrix") { 64 } else { elements };
        let dealer = below(&mut draw, 3);
        let world = honest(elements, dealer, below(&mut draw, 2) == 1, draw.next_u64() >> 8);
        let (_, statements) = observe(&World { tree, ..world }, operation.run);
        for prover in 0..3 {
            assert_eq!(findings(&statements, prover), [], "{}", operation.name);
        }
    }
}

#[test]
fn what_has_no_relations_is_refused_by_name() {
    let world = honest(64, 0, false, 1);
    run_all(&world, |mpc, i| {
        let refused = |result: Result<()>| {
            let error = result.unwrap_err().to_string();
            assert!(error.contains("no relations for the truncation Aby3Local"), "{error}");
        };
        let mode = TruncationMode::Aby3Local;
        refused(truncated(mpc, i, 20, mode));
        refused(product(mpc, i, relu(mode, false)));
        refused(mpc.truncate(&[(&i.x, 20)], mode).map(drop));
    });
    let session = |parties| net::in_process::sessions_from_seed(parties, 1).remove(0);
    let options = Options::default().security(Security::Checked);
    let refused = |made: Result<Mpc>| made.err().unwrap().to_string();
    let error = refused(Rss::dealt(session(3), CpuEngine::new(1), options));
    assert!(error.contains("no relations for two servers and a dealer"), "{error}");
    let options = options.truncation(TruncationMode::Aby3Local);
    let error = refused(Rss::with_options(session(3), CpuEngine::new(1), options));
    assert!(error.contains("no relations for the truncation Aby3Local"), "{error}");
}

/// An action by which something leaves a session or stays.
type Leave = fn(&mut Mpc, &Share<Tensor>, &BitShare<Tensor>) -> Result<()>;

#[test]
fn nothing_is_opened_or_kept_after_a_lie() {
    let all: [(&str, Leave); 4] = [
        ("open", |mpc, y, _| mpc.open(&[y]).map(drop)),
        ("open bits", |mpc, _, bit| mpc.open_bits(&[bit]).map(drop)),
        ("hold", |mpc, y, _| mpc.hold(&[y]).map(drop)),
        ("release", |mpc, y, _| mpc.release(&[y]).map(drop)),
    ];
    for (name, leave) in all {
        for liar in [None, Some(0), Some(1), Some(2)] {
            // The first two tensors agree on a key.
            let lies = liar.map(|sender| Lie { sender, tensor: 2, word: 0, bits: 1 << 8 });
            let world = World { lies: lies.into_iter().collect(), ..honest(64, 2, false, 1) };
            run_all(&world, |mpc, i| {
                mpc.agree().unwrap();
                let mode = TruncationMode::Default;
                let finish = Finish::Truncate { bits: 20, mode };
                let job = Product::new(Bilinear::Mul, &i.x, &i.y, finish);
                let y = mpc.product(job).unwrap().share;
                let bit = mpc.and(&[(&i.bits[0], &i.bits[1])]).unwrap().remove(0);
                match (liar, leave(mpc, &y, &bit)) {
                    (None, left) => left.unwrap(),
                    (Some(liar), left) if liar == mpc.me().0 => assert!(left.is_err(), "{name}"),
                    (Some(liar), Err(Error::Cheated { suspects, .. })) => {
                        assert!(suspects.contains(&Party(liar)), "{name}: {suspects:?}");
                    }
                    (Some(_), left) => panic!("{name}: {left:?}"),
                }
            });
        }
    }
}

#[test]
fn products_of_two_shapes_are_added_as_without_proofs() {
    let sum = |security| {
        let world = World { security, ..honest(64, 0, false, 1) };
        let mut opened = run_all(&world, |mpc, i| {
            let sum = of_two_shapes(mpc, i).unwrap();
            mpc.open(&[&sum]).unwrap().remove(0)
        });
        opened.1.remove(0)
    };
    let [checked, unchecked] = [Security::Checked, Security::SemiHonest].map(sum);
    for (one, other) in checked.words().iter().zip(unchecked.words()) {
        assert!((one.wrapping_sub(*other) as i64).abs() <= 2, "{one} {other}");
    }
}

#[test]
fn messages_are_proven_once_a_batch_is_full() {
    for liar in [None, Some(0), Some(1), Some(2)] {
        let lies = liar.map(|sender| Lie { sender, tensor: 0, word: 0, bits: 1 << 8 });
        let world = World { lies: lies.into_iter().collect(), ..honest(64, 2, false, 1) };
        run_all(&world, |mpc, i| {
            mpc.options.batch = Some(100);
            truncated(mpc, i, 20, TruncationMode::Default).unwrap();
            assert_eq!(mpc.unproven(), 64);
            match (liar, truncated(mpc, i, 20, TruncationMode::Default)) {
                (None, done) => {
                    done.unwrap();
                    assert_eq!(mpc.unproven(), 0);
                }
                (Some(liar), done) if liar == mpc.me().0 => assert!(done.is_err()),
                (Some(liar), Err(Error::Cheated { suspects, .. })) => {
                    assert!(suspects.contains(&Party(liar)), "{suspects:?}");
                    assert!(mpc.open(&[&i.x]).is_err(), "the session goes on");
                }
                (Some(_), done) => panic!("{done:?}"),
            }
        });
    }
}

#[test]
fn checked_sessions_compute_the_same() {
    let world = TestWorld::new(3).with_seed(5);
    let make = |tree| {
        move |session| {
            let batch = if tree == Tree::Threes { 1 << 20 } else { 100 };
            let options = Options::default().security(Security::Checked).tree(tree).batch(batch);
            Rss::with_options(session, CpuEngine::new(1), options)
        }
    };
    conformance::raw_products(&world, make(Tree::Threes));
    conformance::comparisons(&world, make(Tree::Twos));
    conformance::zero_tests(&world, make(Tree::Fours));
    conformance::maxima(&world, make(Tree::Fours));
    conformance::selections(&world, make(Tree::Threes));
    conformance::bits_as_words(&world, make(Tree::Threes));
    conformance::weighted_sums(&world, make(Tree::Threes));
    conformance::gates(&world, make(Tree::Threes));
    conformance::bit_decomposition(&world, make(Tree::Threes));
    conformance::chains(&world, make(Tree::Threes));
    conformance::shuffles(&world, make(Tree::Threes));
}
