//! Shared bits: local steps, gates, and the ways from words to bits and back.

use std::sync::Arc;

use super::{
    Make, agreed, data, expect, model::Plain, open, open_bits, shapes, share, share_bits, upload,
};
use crate::{
    Format, MOST_DROPPED, Protocol, PublicTensor, SecretTensor, ShareBits, ShareTensor, TestWorld,
    functions as f,
};
use ring_arith::{BitTensor, Engine};

const WIDTHS: [u32; 5] = [1, 2, 13, 63, 64];

fn low(width: u32) -> u64 {
    u64::MAX >> (64 - width)
}

/// Words, and how many of their low bits count.
fn samples(world: &TestWorld) -> Vec<(Plain, Plain, u32)> {
    let mut draw = data(world);
    let shapes = shapes().into_iter().cycle();
    let pairs = shapes.take(16).zip(WIDTHS.into_iter().cycle());
    pairs.map(|(s, w)| (Plain::any(&mut draw, &s), Plain::any(&mut draw, &s), w)).collect()
}

/// Places of rows, some of them twice and some not at all.
fn places(rows: usize) -> Arc<[usize]> {
    (0..rows + 1).map(|i| i * i % rows).collect()
}

/// The local operations on bits.
pub fn local_bits<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let samples = samples(world);
    let picks = |width: u32| -> Vec<Option<u32>> {
        let mut planes: Vec<_> = (0..width.min(60)).rev().map(Some).collect();
        planes.extend([None, Some(0), Some(width - 1), None]);
        planes
    };
    let mut want = Vec::new();
    for (x, y, width) in &samples {
        let all = low(*width);
        want.push(x.zip(y, |a, b| (a ^ b) & all));
        want.push(x.map(|a| !a & all));
        want.push(x.map(|a| {
            let planes = picks(*width).into_iter().enumerate();
            planes.fold(0, |out, (to, from)| out | from.map_or(0, |f| ((a >> f) & 1) << to))
        }));
        want.push(x.map(|a| u64::from((a & all).count_ones() % 2)));
        want.push(x.map(|a| a & all));
        if 2 * width <= 64 {
            want.push(x.zip(y, |a, b| (a & all) | (b & all) << width));
        }
        let flat = Plain { dims: vec![x.words.len()], words: x.words.clone() };
        want.push(flat.map(|a| a & all));
        if let Some((&rows, rest)) = x.dims.split_first() {
            let inner: usize = rest.iter().product();
            let places = places(rows);
            let words = places.iter().flat_map(|row| &x.words[row * inner..(row + 1) * inner]);
            let dims = [&[places.len()], rest].concat();
            want.push(Plain { dims, words: words.map(|a| a & all).collect() });
        }
    }
    let got = agreed(world, make, move |mpc: &mut P| {
        let mut results = Vec::new();
        for (x, y, width) in &samples {
            let (a, b) = (share_bits(mpc, x, *width)?, share_bits(mpc, y, *width)?);
            assert_eq!(a.width(), *width as usize);
            assert_eq!(a.shape().dims(), x.dims);
            results.push(mpc.xor(&a, &b)?);
            results.push(mpc.not(&a)?);
            results.push(mpc.pick_planes(&a, &picks(*width))?);
            results.push(mpc.parity(&a)?);
            let words = upload(mpc, x)?;
            let planes = mpc.engine().to_planes(&words, 0, *width)?;
            results.push(mpc.constant_bits(&BitTensor::new(x.shape(), planes)?)?);
            if 2 * width <= 64 {
                results.push(mpc.join_planes(&[&a, &b])?);
            }
            let flat = Plain::from_fn(&[x.words.len()], |_| 0).shape();
            results.push(mpc.reshape_bits(&a, &flat)?);
            if let Some(&rows) = x.dims.first() {
                results.push(mpc.bit_rows(&a, &places(rows))?);
            }
        }
        open_bits(mpc, &results.iter().collect::<Vec<_>>())
    });
    expect(world, "local step on bits", &got, &want);
}

/// Conjunctions, in one batch of several widths and shapes, and the multi-input forms.
pub fn gates<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let samples = samples(world);
    let want: Vec<_> =
        samples.iter().map(|(x, y, width)| x.zip(y, |a, b| a & b & low(*width))).collect();
    let got = agreed(world, make, move |mpc: &mut P| {
        let mut operands = Vec::new();
        for (x, y, width) in &samples {
            operands.push((share_bits(mpc, x, *width)?, share_bits(mpc, y, *width)?));
        }
        let jobs: Vec<_> = operands.iter().map(|(a, b)| (a, b)).collect();
        let results = mpc.and(&jobs)?;
        open_bits(mpc, &results.iter().collect::<Vec<_>>())
    });
    expect(world, "and", &got, &want);
}

/// The low bits of words.
pub fn bit_decomposition<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let samples = samples(world);
    let want: Vec<_> = samples.iter().map(|(x, _, width)| x.map(|a| a & low(*width))).collect();
    let got = agreed(world, make, move |mpc: &mut P| {
        let words: Vec<_> = samples.iter().map(|(x, ..)| x.clone()).collect();
        let shares = share(mpc, &words)?;
        let jobs: Vec<_> = shares.iter().zip(&samples).map(|(s, (.., w))| (s, *w)).collect();
        let bits = mpc.to_bits(&jobs)?;
        open_bits(mpc, &bits.iter().collect::<Vec<_>>())
    });
    expect(world, "bits of words", &got, &want);
}

/// Zero tests of the low bits, on words with few bits set, so that both answers occur.
pub fn zero_tests<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let mut draw = data(world);
    let samples: Vec<_> = WIDTHS
        .iter()
        .map(|&width| {
            let sparse = |i: usize| match i % 3 {
                0 => 0,
                1 => 1 << (draw.next_u64() % 64),
                _ => (draw.next_u64() << 1) << (width - 1),
            };
            (Plain::from_fn(&[100], sparse), width)
        })
        .collect();
    let want: Vec<_> =
        samples.iter().map(|(x, w)| x.map(|a| u64::from(a & low(*w) == 0))).collect();
    let got = agreed(world, make, move |mpc: &mut P| {
        let words: Vec<_> = samples.iter().map(|(x, _)| x.clone()).collect();
        let shares = share(mpc, &words)?;
        let jobs: Vec<_> = shares.iter().zip(&samples).map(|(s, (_, w))| (s, *w)).collect();
        let bits = mpc.is_zero(&jobs)?;
        open_bits(mpc, &bits.iter().collect::<Vec<_>>())
    });
    expect(world, "equal to zero", &got, &want);
}

/// A bit times none, one or several words.
pub fn selections<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let mut draw = data(world);
    let samples: Vec<_> = shapes()
        .iter()
        .enumerate()
        .map(|(i, s)| {
            let words: Vec<_> = (0..1 + i % 3).map(|_| Plain::any(&mut draw, s)).collect();
            (Plain::any(&mut draw, s).map(|w| w >> 7), words)
        })
        .collect();
    let want: Vec<_> = samples
        .iter()
        .flat_map(|(bit, words)| {
            words.iter().map(|x| bit.zip(x, |b, x| if b & 1 == 1 { x } else { 0 }))
        })
        .collect();
    let got = agreed(world, make, move |mpc: &mut P| {
        let (mut bits, mut words) = (Vec::new(), Vec::new());
        for (bit, xs) in &samples {
            bits.push(share_bits(mpc, bit, 1)?);
            words.push(share(mpc, xs)?);
        }
        let words: Vec<Vec<_>> = words.iter().map(|xs| xs.iter().collect()).collect();
        let jobs: Vec<_> = bits.iter().zip(&words).map(|(b, xs)| (b, &xs[..])).collect();
        let selected = mpc.select(&jobs)?;
        open(mpc, &selected.iter().flatten().collect::<Vec<_>>())
    });
    expect(world, "select", &got, &want);
}

/// Bits as words 0 and 1.
pub fn bits_as_words<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let samples = samples(world);
    let bit = |x: &Plain, j: u32| x.map(|a| (a >> j) & 1);
    let want: Vec<_> =
        samples.iter().flat_map(|(x, _, w)| (0..*w).map(move |j| bit(x, j))).collect();
    let got = agreed(world, make, move |mpc: &mut P| {
        let mut bits = Vec::new();
        for (x, _, width) in &samples {
            bits.push(share_bits(mpc, x, *width)?);
        }
        let words = mpc.bits_to_words(&bits.iter().collect::<Vec<_>>())?;
        open(mpc, &words.iter().flatten().collect::<Vec<_>>())
    });
    expect(world, "bits as words", &got, &want);
}

/// Prefix ORs of planes, at every width.
pub fn prefixes<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let mut draw = data(world);
    let sparse = |draw: &mut crate::SplitMix64| draw.next_u64() >> (draw.next_u64() % 64);
    let samples: Vec<_> = [1, 2, 3, 7, 8, 13, 43, 63, 64]
        .iter()
        .map(|&width| (Plain::from_fn(&[2, 35], |_| sparse(&mut draw)), width))
        .collect();
    let or = |x: u64| if x == 0 { 0 } else { u64::MAX >> x.leading_zeros() };
    let want: Vec<_> = samples.iter().map(|(x, w)| x.map(|a| or(a & low(*w)))).collect();
    let got = agreed(world, make, move |mpc: &mut P| {
        let words: Vec<_> = samples.iter().map(|(x, _)| x.clone()).collect();
        let shares = share(mpc, &words)?;
        let jobs: Vec<_> = shares.iter().zip(&samples).map(|(s, (_, w))| (s, *w)).collect();
        let bits = mpc.to_bits(&jobs)?;
        let prefixes = mpc.prefix_or(&bits.iter().collect::<Vec<_>>())?;
        open_bits(mpc, &prefixes.iter().collect::<Vec<_>>())
    });
    expect(world, "prefix or", &got, &want);
}

/// Weighted sums of planes.
pub fn weighted_sums<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let mut draw = data(world);
    let samples = samples(world);
    let weights: Vec<Vec<Vec<u64>>> = samples
        .iter()
        .enumerate()
        .map(|(i, (.., w))| {
            let mut list = || (0..*w).map(|_| draw.next_u64()).collect();
            (0..1 + i % 3).map(|_| list()).collect()
        })
        .collect();
    let total = |a: u64, weights: &[u64]| {
        let terms = weights.iter().enumerate().map(|(j, w)| ((a >> j) & 1).wrapping_mul(*w));
        terms.fold(0, u64::wrapping_add)
    };
    let mut want = Vec::new();
    for ((x, ..), lists) in samples.iter().zip(&weights) {
        want.extend(lists.iter().map(|list| x.map(|a| total(a, list))));
    }
    let got = agreed(world, make, move |mpc: &mut P| {
        let mut bits = Vec::new();
        for (x, _, width) in &samples {
            bits.push(share_bits(mpc, x, *width)?);
        }
        let lists: Vec<Vec<&[u64]>> =
            weights.iter().map(|lists| lists.iter().map(|l| &l[..]).collect()).collect();
        let jobs: Vec<_> = bits.iter().zip(&lists).map(|(b, l)| (b, &l[..])).collect();
        let sums = mpc.bit_sums(&jobs)?;
        open(mpc, &sums.iter().flatten().collect::<Vec<_>>())
    });
    expect(world, "weighted sum of bits", &got, &want);
}

/// And, or, exclusive or and shifts of signed integers, with secret and with public operands.
pub fn bits_of_integers<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    let mut draw = data(world);
    let widths = [2, 9, 31, 62];
    let pairs = widths.map(|width| [0, 1].map(|_| Plain::signed(&mut draw, &[11], width - 1)));
    let shifts = |width: u32| [0, 1, (width - 1).min(MOST_DROPPED)];
    let mut want = Vec::new();
    for ([x, y], width) in pairs.iter().zip(widths) {
        let mask = x.map(|x| (x as i64).unsigned_abs());
        for other in [y, y, &mask] {
            want.extend([x.zip(other, |a, b| a & b), x.zip(other, |a, b| a | b)]);
            want.push(x.zip(other, |a, b| a ^ b));
        }
        for bits in shifts(width) {
            want.push(x.map(|a| (a as i64 >> bits) as u64));
            want.push(x.map(|a| a << bits.min(3)));
        }
    }
    let got = agreed(world, make, move |mpc: &mut P| {
        let mut results = Vec::new();
        for ([x, y], width) in pairs.iter().zip(widths) {
            let shares = share(mpc, &[x.clone(), y.clone()])?.into_iter();
            let format = Format::integer(width);
            let shares: Vec<_> = shares.map(|x| SecretTensor::<P>::new(x, format)).collect();
            let mask = x.map(|x| (x as i64).unsigned_abs());
            let public = PublicTensor::<P>::new(upload(mpc, y)?, 0);
            let mask = PublicTensor::<P>::new(upload(mpc, &mask)?, 0);
            for op in [f::Bitwise::And, f::Bitwise::Or, f::Bitwise::Xor] {
                results.push(f::bitwise(mpc, op, &shares[0], &shares[1])?);
            }
            for other in [&public, &mask] {
                for op in [f::Bitwise::And, f::Bitwise::Or, f::Bitwise::Xor] {
                    results.push(f::bitwise(mpc, op, &shares[0], other)?);
                }
            }
            for bits in shifts(width) {
                results.push(f::shift_right(mpc, &shares[0], bits)?);
                results.push(f::shift_left(mpc, &shares[0], bits.min(3))?);
            }
        }
        open(mpc, &results.iter().map(SecretTensor::share).collect::<Vec<_>>())
    });
    expect(world, "bits of integers", &got, &want);
}
