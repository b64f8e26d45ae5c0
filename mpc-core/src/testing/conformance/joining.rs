//! Joins of two tables, over the protocol under test.

use std::collections::BTreeMap;

use super::{Make, agreed, model::Plain, open, share};
use crate::{
    Format, Protocol, Result, SecretTensor, SplitMix64, TestWorld,
    functions::{JOIN_KEY_BITS, JoinKind, Table, join},
};

/// Keys and columns of both tables of a case.
#[derive(Clone)]
struct Case {
    name: &'static str,
    bits: u32,
    keys: [Vec<u64>; 2],
    /// Axes of each column behind the rows.
    columns: [&'static [&'static [usize]]; 2],
    at_most: Option<usize>,
}

/// The columns of a result as words, in the order of rows; which rows are pairs; and the number of pairs.
#[derive(Debug, Clone, PartialEq)]
struct Rows {
    left: Vec<Vec<u64>>,
    right: Vec<Vec<u64>>,
    matched: Vec<u64>,
    pairs: u64,
}

/// Inner and left joins against those of plain tables: few rows and many; some, all and no keys in common, one row, no rows, no columns,
/// fewer rows than pairs, the least and the largest keys; and keys that a table has twice.
pub fn joins<P: Protocol>(world: &TestWorld, make: impl Make<P> + Copy) {
    let two: &[&[usize]] = &[&[], &[2, 2]];
    let one: &[&[usize]] = &[&[3]];
    let last = (1 << JOIN_KEY_BITS) - 1;
    let some = [vec![9, 2, 31, 4, 0, 7], vec![5, 31, 4, 1, 9, 8, 30, 0]];
    let case = |name, bits, keys: [Vec<u64>; 2]| Case {
        name,
        bits,
        keys,
        columns: [two, one],
        at_most: None,
    };
    let cases = [
        case("some", 5, some.clone()),
        Case { at_most: Some(2), ..case("few rows", 5, some.clone()) },
        Case { columns: [&[], &[]], ..case("no columns", 5, some) },
        Case { columns: [&[], two], ..case("all", 2, [vec![3, 1, 0], vec![0, 3, 1]]) },
        Case { columns: [one, &[]], ..case("none", 3, [vec![1, 3, 5], vec![0, 2, 4, 6]]) },
        case(
            "many",
            6,
            [(0..40).map(|i| i * 5 % 64).collect(), (3..53).map(|i| i * 11 % 64).collect()],
        ),
        case("one row that has a partner", 1, [vec![1], vec![1]]),
        case("one row without a partner", 1, [vec![1], vec![0]]),
        case("no rows on the right", 4, [vec![11, 3], vec![]]),
        case("no rows on the left", 4, [vec![], vec![3]]),
        case("ends", JOIN_KEY_BITS, [vec![last, 0, 1 << 59], vec![1, last, 0, last - 1]]),
    ];
    let given = cases.clone();
    let got = agreed(world, make, move |mpc: &mut P| {
        let mut results = Vec::new();
        for case in &given {
            for kind in case.kinds() {
                results.push(case.joined(mpc, *kind)?);
            }
        }
        Ok(results)
    });
    let mut got = got.into_iter();
    for case in &cases {
        for kind in case.kinds() {
            let got = got.next();
            assert_eq!(got, Some(case.plain(*kind)), "{}, {kind:?}; {}", case.name, world.replay());
        }
    }
    duplicates_are_refused(world, make);
}

/// In either table, with a partner and without. A session ends with that, since a dealer does not learn of it.
fn duplicates_are_refused<P: Protocol>(world: &TestWorld, make: impl Make<P> + Copy) {
    let keys = [
        [vec![3, 1, 3], vec![0, 1]],
        [vec![3, 1, 3], vec![3, 1]],
        [vec![3, 1], vec![2, 0, 2]],
        [vec![3, 1], vec![3, 0, 3]],
    ];
    for keys in keys {
        for kind in [JoinKind::Inner, JoinKind::Left] {
            let keys = keys.clone();
            let case = Case { name: "", bits: 2, keys, columns: [&[]; 2], at_most: None };
            let given = case.clone();
            let refused = agreed(world, make, move |mpc: &mut P| {
                let done = given.joined(mpc, kind);
                Ok(done.is_err_and(|error| error.to_string().contains("one key")))
            });
            assert!(refused, "{:?}, {kind:?}; {}", case.keys, world.replay());
        }
    }
}

impl Case {
    fn kinds(&self) -> &'static [JoinKind] {
        if self.at_most.is_some() { &[JoinKind::Inner] } else { &[JoinKind::Inner, JoinKind::Left] }
    }

    /// The words of all columns of a table.
    fn tables(&self) -> [Vec<Plain>; 2] {
        let mut draw = SplitMix64::new(self.bits.into());
        [0, 1].map(|side| {
            let columns = self.columns[side].iter();
            let dims = columns.map(|axes| [&[self.keys[side].len()], *axes].concat());
            dims.map(|dims| Plain::from_fn(&dims, |_| draw.signed(60))).collect()
        })
    }

    fn joined<P: Protocol>(&self, mpc: &mut P, kind: JoinKind) -> Result<Rows> {
        let tables = self.tables();
        let mut keys = Vec::new();
        let mut columns = Vec::new();
        for (words, table) in self.keys.iter().zip(&tables) {
            let own = share(mpc, &[Plain { dims: vec![words.len()], words: words.clone() }])?;
            keys.extend(
                own.into_iter().map(|x| SecretTensor::new(x, Format::integer(self.bits + 1))),
            );
            let own =
                share(mpc, table)?.into_iter().map(|x| SecretTensor::<P>::new(x, Format::words(0)));
            columns.push(own.collect::<Vec<_>>());
        }
        let [left, right] = [0, 1].map(|side| columns[side].iter().collect::<Vec<_>>());
        let left = Table { keys: &keys[0], columns: &left };
        let right = Table { keys: &keys[1], columns: &right };
        let done = join(mpc, &left, &right, kind, self.at_most)?;
        let mut opened = |columns: &[SecretTensor<P>]| {
            let shares: Vec<_> = columns.iter().map(|column| column.share()).collect();
            let opened = if shares.is_empty() { vec![] } else { open(mpc, &shares)? };
            Ok::<_, crate::Error>(opened.into_iter().map(|x| x.words).collect::<Vec<_>>())
        };
        let [left, right] = [opened(&done.left)?, opened(&done.right)?];
        let counts = opened(&[done.matched, done.pairs])?;
        Ok(Rows { left, right, matched: counts[0].clone(), pairs: counts[1][0] })
    }

    /// The same of plain tables.
    fn plain(&self, kind: JoinKind) -> Rows {
        let tables = self.tables();
        let places = |side: usize| -> BTreeMap<u64, usize> {
            self.keys[side].iter().enumerate().map(|(row, key)| (*key, row)).collect()
        };
        let [left, right] = [places(0), places(1)];
        let both: Vec<_> =
            left.iter().map(|(key, row)| (Some(*row), right.get(key).copied())).collect();
        let pairs = both.iter().filter(|(_, partner)| partner.is_some()).count();
        let rows: Vec<_> = match kind {
            JoinKind::Left => both,
            JoinKind::Inner => {
                let most = left.len().min(right.len());
                let found = both.into_iter().filter(|(_, partner)| partner.is_some());
                let padded = found.chain(std::iter::repeat((None, None)));
                padded.take(self.at_most.unwrap_or(most)).collect()
            }
        };
        let columns = |side: usize| -> Vec<Vec<u64>> {
            let at = |&(left, right): &(Option<usize>, Option<usize>)| [left, right][side];
            let column = |table: &Plain| {
                let inner: usize = table.dims[1..].iter().product();
                let words = |row: Option<usize>| match row {
                    Some(row) => table.words[row * inner..(row + 1) * inner].to_vec(),
                    None => vec![0; inner],
                };
                rows.iter().map(at).flat_map(words).collect()
            };
            tables[side].iter().map(column).collect()
        };
        let matched = rows.iter().map(|(_, partner)| partner.is_some().into()).collect();
        Rows { left: columns(0), right: columns(1), matched, pairs: pairs as u64 }
    }
}
