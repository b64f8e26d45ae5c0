//! Shuffles, over the protocol under test.

use std::collections::HashMap;

use super::{Make, agreed, data, expect, model::Plain, open, open_bits, share, share_bits};
use crate::{Protocol, TestWorld};

/// Rows in a secret order: tensors of words and bits of several shapes are moved alike, twice in different orders; no
/// rows and one.
pub fn shuffles<P: Protocol>(world: &TestWorld, make: impl Make<P> + Copy) {
    rows_stay_together(world, make);
    let refused = agreed(world, make, |mpc: &mut P| {
        let dims: [&[usize]; 3] = [&[], &[4], &[5]];
        let shares = share(mpc, &dims.map(|dims| Plain::from_fn(dims, |i| i as u64)))?;
        let none = mpc.shuffle(&[], &[])?;
        assert!(none.0.is_empty() && none.1.is_empty());
        let without_rows = mpc.shuffle(&[&shares[0]], &[]);
        let of_two_lengths = mpc.shuffle(&[&shares[1], &shares[2]], &[]);
        Ok([without_rows.is_err(), of_two_lengths.is_err()])
    });
    assert_eq!(refused, [true, true], "{}", world.replay());
}

fn rows_stay_together<P: Protocol>(world: &TestWorld, make: impl Make<P> + Copy) {
    let mut draw = data(world);
    for rows in [1, 2, 23] {
        // The first tensor numbers the rows.
        let tables = [
            Plain::from_fn(&[rows], |i| i as u64),
            Plain::any(&mut draw, &[rows, 3]),
            Plain::any(&mut draw, &[rows, 2, 2]),
        ];
        let bits = [(Plain::any(&mut draw, &[rows]), 1), (Plain::any(&mut draw, &[rows, 3]), 5)];
        let given = tables.to_vec();
        let given_bits = bits.clone().map(|(x, _)| x);
        let opened = agreed(world, make, move |mpc: &mut P| {
            let tables = share(mpc, &given)?;
            let bits = [share_bits(mpc, &given_bits[0], 1)?, share_bits(mpc, &given_bits[1], 5)?];
            let mut opened = Vec::new();
            for _ in 0..2 {
                let words: Vec<_> = tables.iter().collect();
                let (words, bits) = mpc.shuffle(&words, &[&bits[0], &bits[1]])?;
                opened.extend(open(mpc, &words.iter().collect::<Vec<_>>())?);
                opened.extend(open_bits(mpc, &bits.iter().collect::<Vec<_>>())?);
            }
            Ok(opened)
        });
        let (first, second) = opened.split_at(opened.len() / 2);
        // Equal with probability 1 / 23!.
        assert!(rows < 23 || first != second, "an order comes twice; {}", world.replay());
        for moved in [first, second] {
            let order: Vec<_> = moved[0].words.iter().map(|&row| row as usize).collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..rows), "{order:?}; {}", world.replay());
            let mut want: Vec<_> = tables.iter().map(|table| in_order(table, &order)).collect();
            want.extend(
                bits.iter()
                    .map(|(x, width)| in_order(&x.map(|word| word & ((1 << width) - 1)), &order)),
            );
            expect(world, "shuffle", moved, &want);
        }
    }
}

/// Rows by their places.
fn in_order(table: &Plain, order: &[usize]) -> Plain {
    let inner: usize = table.dims[1..].iter().product();
    let rows = order.iter().flat_map(|row| &table.words[row * inner..(row + 1) * inner]);
    Plain { dims: table.dims.clone(), words: rows.copied().collect() }
}

/// Each order of three rows is about equally likely: by a chi-square statistic with five degrees of freedom, which
/// exceeds 40 once in six million times.
pub fn shuffle_orders<P: Protocol>(world: &TestWorld, make: impl Make<P>) {
    const TIMES: usize = 600;
    let opened = agreed(world, make, |mpc: &mut P| {
        let rows = share(mpc, &[Plain::from_fn(&[3], |i| i as u64)])?.remove(0);
        let mut moved = Vec::with_capacity(TIMES);
        for _ in 0..TIMES {
            moved.append(&mut mpc.shuffle(&[&rows], &[])?.0);
        }
        open(mpc, &moved.iter().collect::<Vec<_>>())
    });
    let mut counts: HashMap<Vec<u64>, usize> = HashMap::new();
    opened.into_iter().for_each(|order| *counts.entry(order.words).or_default() += 1);
    let expected = TIMES as f64 / 6.0;
    let distance: f64 = counts.values().map(|&n| (n as f64 - expected).powi(2) / expected).sum();
    assert_eq!(counts.len(), 6, "{counts:?}; {}", world.replay());
    assert!(distance < 40.0, "{counts:?}: chi-square {distance}; {}", world.replay());
}
