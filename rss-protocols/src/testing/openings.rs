//! Tests of unmasked messages: openings, and coins.

use mpc_core::{Finish, Linear, Product, Protocol, Result, TruncationMode};
use net::Party;
use ring_arith::{Bilinear, EngineTensor, Shape, Tensor, View};

use super::{DEALER, Inputs, Mpc, Secret, World, run_all};

/// An opening's results at one party, the components that it lacked, and the hash of those.
type Opened = (Vec<Tensor>, Vec<u8>);

/// The words that an opening's result implies: the components that a party lacks, and their hash.
fn implied(mpc: &Mpc, opened: &[Tensor], held: &[[&Tensor; 2]], bits: bool) -> Vec<u8> {
    let missing = opened.iter().zip(held).map(|(all, [mine, next])| {
        let words = all.words().iter().zip(mine.words()).zip(next.words());
        let lacked = words.map(|((all, mine), next)| match bits {
            true => all ^ mine ^ next,
            false => all.wrapping_sub(*mine).wrapping_sub(*next),
        });
        Tensor::new(all.shape().clone(), lacked.collect()).unwrap()
    });
    let missing: Vec<_> = missing.collect();
    let hash = mpc.hash(&missing.iter().collect::<Vec<_>>()).unwrap();
    missing.iter().chain([&hash]).flat_map(|tensor| tensor.to_bytes()).collect()
}

fn open(mpc: &mut Mpc, i: &Inputs) -> Result<Option<Opened>> {
    let opened = mpc.open(&[&i.x, &i.y])?;
    let held = [&i.x, &i.y].map(|x| [x.mine(), x.next()]);
    let implied = implied(mpc, &opened, &held, false);
    Ok(Some((opened, implied)))
}

fn open_to(mpc: &mut Mpc, i: &Inputs) -> Result<Option<Opened>> {
    let Some(opened) = mpc.open_to(Party(1), &[&i.x])? else { return Ok(None) };
    let implied = implied(mpc, &opened, &[[i.x.mine(), i.x.next()]], false);
    Ok(Some((opened, implied)))
}

fn open_bits(mpc: &mut Mpc, i: &Inputs) -> Result<Option<Opened>> {
    let opened = mpc.open_bits(&[&i.bits[0], &i.wide])?;
    let opened: Vec<_> = opened.iter().map(|bits| bits.planes().clone()).collect();
    let held = [&i.bits[0], &i.wide].map(|x| [x.mine().planes(), x.next().planes()]);
    let implied = implied(mpc, &opened, &held, true);
    Ok(Some((opened, implied)))
}

#[test]
fn an_opening_sends_what_its_result_and_the_receivers_shares_imply() {
    for (run, receivers) in [
        (open as fn(&mut Mpc, &Inputs) -> Result<Option<Opened>>, &[0, 1, 2][..]),
        (open_to, &[1]),
        (open_bits, &[0, 1, 2]),
    ] {
        let world = World { secret: Secret::Drawn, ..World::new(0, 0, 3) };
        let (seen, opened) = run_all(&world, |mpc, inputs| run(mpc, inputs).unwrap());
        for (party, opened) in opened.into_iter().enumerate() {
            let [previous, next] = [(party + 2) % 3, (party + 1) % 3];
            let [_, from_previous, from_next] =
                [party, previous, next].map(|from| &seen.received[party][from]);
            assert_eq!(opened.is_some(), receivers.contains(&party));
            let implied = opened.map_or_else(Vec::new, |(_, implied)| implied);
            assert_eq!([&from_previous[..], from_next].concat(), implied, "party {party}");
        }
    }
}

/// The hash that vouches for components covers every word of every one, and which of them it is in.
#[test]
pub(crate) fn a_hash_covers_all_components_that_are_opened() {
    let world = World { secret: Secret::Drawn, ..World::new(0, 0, 3) };
    run_all(&world, |mpc, _| {
        let of = |x: [u64; 2], y: [u64; 2]| {
            let [x, y] = [x, y].map(|words| Tensor::vector(words.to_vec()));
            mpc.hash(&[&x, &y]).unwrap().words().to_vec()
        };
        let all = [
            of([1, 2], [3, 4]),
            of([1, 5], [3, 4]),
            of([1, 2], [5, 4]),
            of([1, 2], [3, 5]),
            of([3, 4], [1, 2]),
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(!all[..i].contains(one), "{i}");
        }
    });
}

/// Three parties send the hash. Two with a dealer do not: only one of them holds the component that the other
/// lacks.
#[test]
fn with_a_dealer_an_opening_sends_the_lacked_components_alone_and_nothing_to_the_dealer() {
    for (run, receivers) in [
        (open as fn(&mut Mpc, &Inputs) -> Result<Option<Opened>>, &[0, 1][..]),
        (open_to, &[1]),
        (open_bits, &[0, 1]),
    ] {
        let world = World { secret: Secret::Drawn, dealt: true, ..World::new(0, 2, 3) };
        let (seen, opened) = run_all(&world, |mpc, inputs| {
            let opened = run(mpc, inputs).unwrap();
            if mpc.me() == DEALER {
                let words = opened.iter().flat_map(|(words, _)| words);
                assert!(words.flat_map(Tensor::words).all(|word| *word == 0));
            }
            opened
        });
        assert!(seen.received[DEALER.0].iter().all(Vec::is_empty));
        for (party, opened) in opened.into_iter().take(2).enumerate() {
            assert_eq!(opened.is_some(), receivers.contains(&party));
            let implied = opened.map_or_else(Vec::new, |(_, implied)| implied);
            let lacked = &implied[..implied.len().saturating_sub(32)];
            assert_eq!(seen.received[party].concat(), lacked, "party {party}");
        }
    }
}

/// Dithered quotients of a shared word, with the keys of a run.
fn dithered(keys: [u64; 3]) -> Vec<u64> {
    let world = World { keys, ..World::new(5 << 19, 0, 4) };
    let (_, opened) = run_all(&world, |mpc, i| {
        let mode = TruncationMode::Dither;
        let finish = Finish::Truncate { bits: 20, mode };
        let product = Product::new(Bilinear::Mul, &i.x, &i.y, finish);
        let quotients = [
            mpc.truncate(&[(&i.x, 20)], mode).unwrap().remove(0),
            mpc.product(product).unwrap().share,
        ];
        let opened = mpc.open(&quotients.iter().collect::<Vec<_>>()).unwrap();
        opened.iter().flat_map(|tensor| tensor.words().to_vec()).collect::<Vec<_>>()
    });
    opened[0].clone()
}

/// The words of a run, and for each party those of a run in which a key that it lacks is another one.
fn under_other_keys(run: fn([u64; 3]) -> Vec<u64>) -> (Vec<u64>, [Vec<u64>; 3]) {
    let keys = [1, 2, 3];
    let other = |party: usize| {
        let mut others = keys;
        others[2 - party] = 77;
        run(others)
    };
    (run(keys), [0, 1, 2].map(other))
}

/// The direction of dithering follows from no party's view: other keys that it lacks round otherwise.
#[test]
pub(crate) fn no_party_knows_which_way_dithering_rounds() {
    let (first, others) = under_other_keys(dithered);
    for (party, changed) in others.iter().enumerate() {
        // The truncated word is two and a half units: half of the elements go the other way. A coin of one bit less
        // would move a third of them.
        let moved = first.iter().zip(changed).take(super::N).filter(|(a, b)| a != b).count();
        assert!(moved > super::N * 9 / 20, "{moved} of {} for party {party}", super::N);
    }
}

/// Random words and bits, with the keys of a run.
fn random(keys: [u64; 3]) -> Vec<u64> {
    let world = World { keys, ..World::new(0, 0, 4) };
    let (_, opened) = run_all(&world, |mpc, _| {
        let words = mpc.random_words(&[Shape::new([super::N]).unwrap()]).unwrap();
        let bits = mpc.random_bits(&Shape::new([super::N]).unwrap(), 3).unwrap();
        let bits = mpc.open_bits(&[&bits]).unwrap().remove(0).planes().words().to_vec();
        [mpc.open(&[&words[0]]).unwrap()[0].words().to_vec(), bits].concat()
    });
    opened[0].clone()
}

/// Random words and bits follow from no party's view: other keys that it lacks make others.
#[test]
pub(crate) fn no_party_knows_random_words_and_bits() {
    let (first, others) = under_other_keys(random);
    for (party, changed) in others.iter().enumerate() {
        let same = first.iter().zip(changed).filter(|(a, b)| a == b).count();
        assert_eq!(same, 0, "party {party} knows {same} of {} words", first.len());
    }
}

/// Drawn words in the order of a shuffle, with the keys of a run.
fn shuffled(keys: [u64; 3]) -> Vec<u64> {
    let world = World { keys, secret: Secret::Drawn, ..World::new(0, 0, 4) };
    let (_, opened) = run_all(&world, |mpc, i| {
        let rows = View::Reshape(Shape::new([super::N]).unwrap());
        let rows = mpc.linear(&Linear::View(&rows), &i.x).unwrap();
        let (moved, _) = mpc.shuffle(&[&rows], &[]).unwrap();
        mpc.open(&[&moved[0]]).unwrap()[0].words().to_vec()
    });
    opened[0].clone()
}

/// The order of a shuffle follows from no party's view: other keys that it lacks make another order of the same rows.
#[test]
pub(crate) fn no_party_knows_the_order_of_a_shuffle() {
    let (first, others) = under_other_keys(shuffled);
    for (party, mut changed) in others.into_iter().enumerate() {
        let fixed = first.iter().zip(&changed).filter(|(a, b)| a == b).count();
        // One on average, in a permutation that is independent.
        assert!(fixed < 12, "{fixed} of {} rows stay for party {party}", super::N);
        let mut sorted = first.clone();
        sorted.sort_unstable();
        changed.sort_unstable();
        assert_eq!(sorted, changed);
    }
}
