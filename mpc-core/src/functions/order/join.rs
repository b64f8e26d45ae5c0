//! Private joins of tables: rows of equal secret keys are brought together, and nobody learns which.

use ring_arith::{Bilinear, Engine, Shape, Tensor, View};

use crate::functions::{order::radix::sort_rows, view};
use crate::{Error, Finish, Format, Linear, Product, Protocol, Result, SecretTensor, ShareTensor};

/// Most bits of a key, and the number that [`join_keys`] makes: two more mark a row's table and find equal keys.
pub const JOIN_KEY_BITS: u32 = 60;

/// Keys of a join from names: the first [`JOIN_KEY_BITS`] bits of a hash (BLAKE3) under a secret that the tables' owners
/// have in common and the servers do not know. Without it a key that leaks does not give away the name.
///
/// Among `n` different names two get one key with probability below `n^2 / 2^61`: 2 in 10^8 for 200,000 names. A
/// collision within a table is refused as a duplicate; one between two tables joins two rows that do not belong
/// together.
pub fn join_keys<T: AsRef<[u8]>>(
    secret: &[u8; 32],
    names: impl IntoIterator<Item = T>,
) -> Vec<u64> {
    let key = |name: T| {
        let hash = blake3::keyed_hash(secret, name.as_ref());
        let words = hash.as_bytes().as_chunks().0;
        u64::from_le_bytes(words[0]) >> (64 - JOIN_KEY_BITS)
    };
    names.into_iter().map(key).collect()
}

/// A table of a join.
#[derive(Debug)]
pub struct Table<'a, P: Protocol> {
    /// `[n]`: a key for each row, an integer from 0 on without fraction bits. Its width says how many bits it has:
    /// one less. No two rows have the same.
    pub keys: &'a SecretTensor<P>,
    /// `[n, ..]`: the columns, which may have further axes.
    pub columns: &'a [&'a SecretTensor<P>],
}

/// The rows that a join keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinKind {
    /// Pairs of rows with one key.
    Inner,
    /// All rows of the left table, with the right table's row of the same key if there is one.
    Left,
}

/// The result of a join, in rising order of the keys: rows that count, then rows of zeros.
#[derive(Debug)]
#[must_use]
pub struct Joined<P: Protocol> {
    /// `[k, ..]`: the columns of the left table.
    pub left: Vec<SecretTensor<P>>,
    /// `[k, ..]`: the columns of the right table; zeros where the left row has no partner.
    pub right: Vec<SecretTensor<P>>,
    /// `[k]`: 1 where the row is a pair, 0 elsewhere, as integers.
    pub matched: SecretTensor<P>,
    /// `[1]`: the number of pairs, also of those beyond `k`, as an integer.
    pub pairs: SecretTensor<P>,
    kind: JoinKind,
}

/// The rows of two tables that have the same key. Nothing is opened but one bit, whether a table has a key twice, and
/// places that are uniform whatever the tables are.
///
/// An inner join has `at_most` rows, and without that as many as the shorter table: their number does not depend on
/// secrets. [`Joined::trimmed`] opens the number of pairs and drops the others. Pairs beyond `at_most` are lost;
/// [`Joined::pairs`] counts them. A left join has as many rows as the left table, and takes no `at_most`.
///
/// Both tables are sorted as one by their keys, with the left table's rows first among equal ones. Each row is compared
/// with the next; that row's columns move to it, and the rows that stay are moved to the front. Each is a sort of
/// `functions/radix.rs`.
///
/// # Cost
/// With replicated sharing for each row of both tables, `b` bits of a key, `c` the words of a row of the table that has
/// more and `p` those of both together: about `625 b + 1.5 b^2 + 256 c + 352 p + 2900` bits, and `3 b + 33` rounds. Two
/// tables of 2048 rows with 40 bits, one and two columns: 31,616 bits for each row and 153 rounds.
///
/// # Errors
/// [`Error::Invalid`] if a table has a key twice, at all parties that compute: a helper does not learn of it, so a session
/// with one cannot go on; or if keys are not a row of integers of at
/// most [`JOIN_KEY_BITS`] bits. [`Error::Shapes`] if a column has not as many rows as its keys.
pub fn join<P: Protocol>(
    mpc: &mut P,
    left: &Table<'_, P>,
    right: &Table<'_, P>,
    kind: JoinKind,
    at_most: Option<usize>,
) -> Result<Joined<P>> {
    let bits = key_bits(left)?.max(key_bits(right)?);
    let [n, m] = [left, right].map(|table| table.keys.shape().len());
    let most = match (kind, at_most) {
        (JoinKind::Inner, None) => n.min(m),
        (JoinKind::Inner, Some(rows)) => rows.min(n).min(m),
        (JoinKind::Left, None) => n,
        (JoinKind::Left, Some(_)) => {
            return Err(invalid("a left join has as many rows as the left table".to_owned()));
        }
    };
    if n == 0 || m == 0 && kind == JoinKind::Inner {
        return without_rows(mpc, left, right, kind);
    }

    // Rows of both tables: four times the key, and 1 more in the right table; then the columns, in the same place.
    let [of_left, of_right] = [words_of(left.columns), words_of(right.columns)];
    let width = of_left.max(of_right);
    let left_rows = matrix(mpc, left, 0, width)?;
    let right_rows = matrix(mpc, right, 1, width)?;
    let all = mpc.concat(&[&left_rows, &right_rows], 0)?;
    let keys = mpc.concat(&[left.keys.share(), right.keys.share()], 0)?;
    let sorted = sort_rows(mpc, &keys, bits, &[&all])?;
    let all = sorted.into_iter().next().ok_or_else(|| Error::unanswered("sort"))?;

    // Each row beside the next. Behind the last stands a word that is no key and follows none.
    let rows = n + m;
    let next = moved(mpc, &all, View::Slice { axis: 0, start: 1, end: rows, step: 1 })?;
    let next = moved(mpc, &next, View::Pad { before: vec![0, 0], after: vec![1, 0], value: 3 })?;
    let own_key = column(mpc, &all, 0)?;
    let next_key = column(mpc, &next, 0)?;
    let found = neighbours(mpc, &own_key, &next_key, bits, kind)?;
    let pairs = mpc.linear(&Linear::Sum(&[0]), &found.pair)?;

    let flags = moved(mpc, &found.pair, View::Reshape(Shape::new([rows, 1])?))?;
    let mut parts = vec![flags];
    if of_left > 0 {
        parts.push(columns_of(mpc, &all, 1, of_left)?);
    }
    if of_right > 0 {
        parts.push(columns_of(mpc, &next, 1, of_right)?);
    }
    let joined = mpc.concat(&parts.iter().collect::<Vec<_>>(), 1)?;
    let front = sort_rows(mpc, &found.dropped, 1, &[&joined])?;
    let front = front.into_iter().next().ok_or_else(|| Error::unanswered("sort"))?;
    let front = moved(mpc, &front, View::Slice { axis: 0, start: 0, end: most, step: 1 })?;

    // What a row that is no pair has in its columns belongs to others.
    let matched = column(mpc, &front, 0)?;
    let [left_words, right_words] = match kind {
        JoinKind::Inner => {
            let all = masked(mpc, &matched, &front, 1, of_left + of_right)?;
            [all.clone(), all]
        }
        JoinKind::Left => {
            let right = masked(mpc, &matched, &front, 1 + of_left, of_right)?;
            [Some(columns_of(mpc, &front, 1, of_left)?), right]
        }
    };
    refuse_duplicates(mpc, &found.twice)?;
    let start = if kind == JoinKind::Inner { of_left } else { 0 };
    Ok(Joined {
        left: split(mpc, left_words.as_ref(), 0, left.columns, most)?,
        right: split(mpc, right_words.as_ref(), start, right.columns, most)?,
        matched: SecretTensor::new(matched, Format::integer(2)),
        pairs: SecretTensor::new(pairs, Format::integer(32)),
        kind,
    })
}

impl<P: Protocol> Joined<P> {
    /// Opens the number of pairs and drops all other rows of an inner join. A left join is returned as it is.
    ///
    /// # Cost
    /// One round; one word is opened.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are more pairs than rows, or the protocol has a helper that does not learn the number.
    pub fn trimmed(self, mpc: &mut P) -> Result<Self> {
        if self.kind == JoinKind::Left {
            return Ok(self);
        }
        if mpc.info().helper {
            let name = mpc.info().name;
            let reason =
                format!("the dealer of the protocol {name} does not learn the number of pairs");
            return Err(invalid(reason));
        }
        let rows = self.matched.shape().len();
        let opened = mpc.open(&[self.pairs.share()])?;
        let opened = opened.first().ok_or_else(|| Error::unanswered("open"))?;
        let pairs = mpc.engine().download(opened)?.words()[0] as usize;
        if pairs > rows {
            return Err(invalid(format!("{pairs} pairs, of which {rows} were kept")));
        }
        let first = View::Slice { axis: 0, start: 0, end: pairs, step: 1 };
        let all = |columns: &[SecretTensor<P>]| {
            columns.iter().map(|column| view(mpc, column, &first)).collect::<Result<_>>()
        };
        let [left, right] = [all(&self.left)?, all(&self.right)?];
        Ok(Self { left, right, matched: view(mpc, &self.matched, &first)?, ..self })
    }
}

/// The outcomes of comparing each row with the next, in words 0 or 1.
struct Neighbours<S, B> {
    /// The row and the next one have one key.
    pair: S,
    /// The row does not stay.
    dropped: S,
    /// A table has a key twice.
    twice: B,
}

/// Compares rows with the next ones.
///
/// A key is `4 k`, and `4 k + 1` in the right table. Equal keys of both tables are 1 apart, since the left row comes
/// first; those of one table are equal; any others are at least 3 apart.
fn neighbours<P: Protocol>(
    mpc: &mut P,
    own: &P::Share,
    next: &P::Share,
    bits: u32,
    kind: JoinKind,
) -> Result<Neighbours<P::Share, P::Bits>> {
    let apart = mpc.combine(&[(1, next), (u64::MAX, own)], 0)?;
    let one_more = mpc.combine(&[(1, &apart)], u64::MAX)?;
    let mut found = mpc.is_zero(&[(&one_more, bits + 2), (&apart, bits + 2)])?;
    if kind == JoinKind::Left {
        found.extend(mpc.to_bits(&[(own, 1)])?);
    }
    let words = mpc.bits_to_words(&found.iter().collect::<Vec<_>>())?;
    let mut words = words.into_iter().flatten();
    let mut word = || words.next().ok_or_else(|| Error::unanswered("bits to words"));
    let pair = word()?;
    let same = mpc.linear(&Linear::Sum(&[0]), &word()?)?;
    let unique = mpc.is_zero(&[(&same, 32)])?;
    let unique = unique.first().ok_or_else(|| Error::unanswered("is zero"))?;
    let twice = mpc.not(unique)?;
    let dropped = match kind {
        JoinKind::Inner => mpc.combine(&[(u64::MAX, &pair)], 1)?,
        JoinKind::Left => word()?,
    };
    Ok(Neighbours { pair, dropped, twice })
}

/// Opens a bit that is 1 if a table has a key twice. A helper reads 0 and goes on, so nothing is sent behind it.
fn refuse_duplicates<P: Protocol>(mpc: &mut P, twice: &P::Bits) -> Result<()> {
    let opened = mpc.open_bits(&[twice])?;
    let opened = opened.first().ok_or_else(|| Error::unanswered("open bits"))?;
    let twice = mpc.engine().download(opened.planes())?.words()[0] & 1 == 1;
    mutant!("join: a key that is there twice is not seen", twice = false);
    if twice {
        return Err(invalid("a table has two rows with one key".to_owned()));
    }
    Ok(())
}

/// The bits of a table's keys.
fn key_bits<P: Protocol>(table: &Table<'_, P>) -> Result<u32> {
    let keys = table.keys;
    if keys.shape().rank() != 1 || keys.frac() != 0 {
        let shape = keys.shape();
        return Err(invalid(format!(
            "keys are one row of integers, not {shape:?} with {} fraction bits",
            keys.frac()
        )));
    }
    if !(2..=JOIN_KEY_BITS + 1).contains(&keys.width()) {
        let reason = format!(
            "keys of width {}; a key has 1 to {JOIN_KEY_BITS} bits, and a width of one more",
            keys.width()
        );
        return Err(invalid(reason));
    }
    for column in table.columns {
        if column.shape().dims().first() != keys.shape().dims().first() {
            let [lhs, rhs] = [keys.shape().clone(), column.shape().clone()];
            return Err(Error::Shapes { op: "join", lhs, rhs });
        }
    }
    Ok(keys.width() - 1)
}

/// Words of a row.
fn words_of<P: Protocol>(columns: &[&SecretTensor<P>]) -> usize {
    columns.iter().map(|column| column.shape().dims()[1..].iter().product::<usize>()).sum()
}

/// `[n, 1 + width]`: four times each key and `side`, then the columns, then zeros.
fn matrix<P: Protocol>(mpc: &P, table: &Table<'_, P>, side: u64, width: usize) -> Result<P::Share> {
    let n = table.keys.shape().len();
    let keys = mpc.combine(&[(4, table.keys.share())], side)?;
    let mut parts = vec![moved(mpc, &keys, View::Reshape(Shape::new([n, 1])?))?];
    for column in table.columns {
        let words = column.shape().dims()[1..].iter().product();
        parts.push(moved(mpc, column.share(), View::Reshape(Shape::new([n, words])?))?);
    }
    let rest = width - words_of(table.columns);
    let after = View::Pad { before: vec![0, 0], after: vec![0, rest], value: 0 };
    moved(mpc, &mpc.concat(&parts.iter().collect::<Vec<_>>(), 1)?, after)
}

pub(in crate::functions) fn moved<P: Protocol>(
    mpc: &P,
    x: &P::Share,
    view: View,
) -> Result<P::Share> {
    mpc.linear(&Linear::View(&view), x)
}

/// Columns of a matrix.
fn columns_of<P: Protocol>(
    mpc: &P,
    x: &P::Share,
    start: usize,
    columns: usize,
) -> Result<P::Share> {
    moved(mpc, x, View::Slice { axis: 1, start, end: start + columns, step: 1 })
}

/// One column of a matrix, in one axis.
pub(in crate::functions) fn column<P: Protocol>(
    mpc: &P,
    x: &P::Share,
    at: usize,
) -> Result<P::Share> {
    let rows = Shape::new([x.shape().dims()[0]])?;
    moved(mpc, &columns_of(mpc, x, at, 1)?, View::Reshape(rows))
}

/// Columns of a matrix where a flag is 1, 0 elsewhere; `None` if there are none.
pub(in crate::functions) fn masked<P: Protocol>(
    mpc: &mut P,
    flags: &P::Share,
    x: &P::Share,
    start: usize,
    columns: usize,
) -> Result<Option<P::Share>> {
    let rows = flags.shape().len();
    if columns == 0 || rows == 0 {
        return Ok(None);
    }
    let x = columns_of(mpc, x, start, columns)?;
    let flags = moved(mpc, flags, View::Reshape(Shape::new([rows, 1])?))?;
    let flags = moved(mpc, &flags, View::Broadcast(x.shape().clone()))?;
    let product = mpc.product(Product::new(Bilinear::Mul, &flags, &x, Finish::Raw))?.share;
    mutant!("join: rows without a partner keep their words", product = x);
    Ok(Some(product))
}

/// Columns like those of a table from the columns of a matrix, from `start` on; of zeros without a matrix.
fn split<P: Protocol>(
    mpc: &P,
    matrix: Option<&P::Share>,
    mut start: usize,
    like: &[&SecretTensor<P>],
    rows: usize,
) -> Result<Vec<SecretTensor<P>>> {
    let mut columns = Vec::with_capacity(like.len());
    for column in like {
        let inner = &column.shape().dims()[1..];
        let shape = Shape::new([&[rows], inner].concat())?;
        let words: usize = inner.iter().product();
        let share = match matrix {
            Some(matrix) if words > 0 => {
                moved(mpc, &columns_of(mpc, matrix, start, words)?, View::Reshape(shape))?
            }
            _ => zeros(mpc, shape)?,
        };
        start += words;
        columns.push(SecretTensor::new(share, column.format()));
    }
    Ok(columns)
}

fn zeros<P: Protocol>(mpc: &P, shape: Shape) -> Result<P::Share> {
    mpc.constant(&mpc.engine().upload(Tensor::zeros(shape))?)
}

/// The join that cannot have rows, since a table has none.
fn without_rows<P: Protocol>(
    mpc: &P,
    left: &Table<'_, P>,
    right: &Table<'_, P>,
    kind: JoinKind,
) -> Result<Joined<P>> {
    Ok(Joined {
        left: split(mpc, None, 0, left.columns, 0)?,
        right: split(mpc, None, 0, right.columns, 0)?,
        matched: SecretTensor::new(zeros(mpc, Shape::new([0])?)?, Format::integer(2)),
        pairs: SecretTensor::new(zeros(mpc, Shape::new([1])?)?, Format::integer(32)),
        kind,
    })
}

fn invalid(reason: String) -> Error {
    Error::Invalid { op: "join", reason }
}
