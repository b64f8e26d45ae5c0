//! Rows in a secret order: uniform permutations, and the provided form of [`Protocol::shuffle`].

use std::sync::Arc;

use ring_arith::{Shape, Stream, View};
use zeroize::Zeroizing;

use crate::{
    Error, Linear, Protocol, Result, ShareBits, ShareTensor, ShuffledBy, functions::by_network,
};

/// Bits of a row's random number. Differences of two such numbers have an encoding.
const KEY: u32 = 62;

/// A uniform permutation of `n` places from a stream, the same at all who expand it: the place from which each row
/// comes (Fisher and Yates; Durstenfeld, CACM 1964). It reads the stream from its beginning. The memory that it reads
/// depends on the drawn places.
#[must_use]
pub fn permutation(stream: &Stream, n: usize) -> Arc<[usize]> {
    let mut words = Words::new(stream);
    let mut places: Vec<usize> = (0..n).collect();
    for last in (1..n).rev() {
        let bound = last as u64 + 1;
        mutant!("permutation: every place from all", bound = n as u64);
        places.swap(last, words.below(bound) as usize);
    }
    places.into()
}

/// The words of a stream, one after the other.
struct Words<'a> {
    stream: &'a Stream,
    next: u64,
    block: Zeroizing<[u64; 64]>,
    used: usize,
}

impl<'a> Words<'a> {
    fn new(stream: &'a Stream) -> Self {
        let block = Zeroizing::new([0; 64]);
        Self { stream, next: 0, used: block.len(), block }
    }

    fn word(&mut self) -> u64 {
        if self.used == self.block.len() {
            self.stream.fill(self.next, &mut *self.block);
            self.next += self.block.len() as u64;
            self.used = 0;
        }
        self.used += 1;
        self.block[self.used - 1]
    }

    /// A number below a bound, each equally often: the upper half of a word times the bound. `2^64 mod bound` lower
    /// halves would make some numbers more frequent and are drawn again (Lemire, ACM TOMACS 2019).
    fn below(&mut self, bound: u64) -> u64 {
        loop {
            let product = u128::from(self.word()) * u128::from(bound);
            let low = product as u64;
            if low >= bound || low >= bound.wrapping_neg() % bound {
                return (product >> 64) as u64;
            }
        }
    }
}

/// The number of rows of tensors to be moved alike, 0 without tensors.
///
/// # Errors
/// [`Error::Invalid`] if a tensor has no axis; [`Error::Shapes`] if two have not as many rows.
pub fn common_rows<S: ShareTensor, B: ShareTensor>(words: &[&S], bits: &[&B]) -> Result<usize> {
    let shapes = words.iter().map(|x| x.shape()).chain(bits.iter().map(|x| x.shape()));
    let mut first: Option<&Shape> = None;
    for shape in shapes {
        let Some(rows) = shape.dims().first() else {
            let reason = "a tensor without axes has no rows".to_owned();
            return Err(Error::Invalid { op: "rows", reason });
        };
        match first {
            Some(other) if other.dims().first() != Some(rows) => {
                return Err(Error::Shapes { op: "rows", lhs: other.clone(), rhs: shape.clone() });
            }
            _ => first = Some(shape),
        }
    }
    Ok(first.map_or(0, |shape| shape.dims()[0]))
}

/// See [`Protocol::shuffle`]. It sorts the rows by random numbers of 62 bits, to which every party contributes a word.
/// Two of them are equal with probability below `n^2 / 2^63` for `n` rows; all other orders are equally likely.
///
/// It costs an input by each party, the low bits of one word a row and their sum, the bits of the rows as words, and a
/// network for sorting with a selection for each word and comparison.
///
/// # Errors
/// As [`common_rows`]; [`Error::Net`] if a peer failed.
pub fn shuffle<P: Protocol>(
    mpc: &mut P,
    words: &[&P::Share],
    bits: &[&P::Bits],
) -> Result<ShuffledBy<P>> {
    let n = common_rows(words, bits)?;
    let cloned = |words: &[&P::Share]| words.iter().map(|&x| x.clone()).collect::<Vec<_>>();
    if n < 2 {
        return Ok((cloned(words), bits.iter().map(|&x| x.clone()).collect()));
    }
    let planes = if bits.is_empty() { vec![] } else { mpc.bits_to_words(bits)? };
    let mut tensors = cloned(words);
    tensors.extend(planes.into_iter().flatten());
    let keys = random_numbers(mpc, n)?;
    let columns = split_columns(mpc, &tensors.iter().collect::<Vec<_>>())?;
    let moved = by_network(mpc, keys, columns, KEY + 1)?;
    let mut moved = join_columns(mpc, &tensors, moved)?;
    let planes = moved.split_off(words.len());
    Ok((moved, bits_of_planes(mpc, bits, &planes)?))
}

/// A uniform number below `2^62` for each row, which no party knows.
fn random_numbers<P: Protocol>(mpc: &mut P, n: usize) -> Result<P::Share> {
    let bits = [mpc.random_bits(&Shape::new([n])?, KEY as usize)?];
    let weights: Vec<_> = (0..KEY).map(|j| 1u64 << j).collect();
    let lists = [&weights[..]];
    let jobs: Vec<_> = bits.iter().map(|bits| (bits, &lists[..])).collect();
    let sums = mpc.bit_sums(&jobs)?.into_iter().flatten().next();
    sums.ok_or_else(|| Error::unanswered("bit sums"))
}

/// Planes that were moved as words, as bits again.
fn bits_of_planes<P: Protocol>(
    mpc: &mut P,
    like: &[&P::Bits],
    planes: &[P::Share],
) -> Result<Vec<P::Bits>> {
    if planes.is_empty() {
        return Ok(vec![]);
    }
    let jobs: Vec<_> = planes.iter().map(|plane| (plane, 1)).collect();
    let mut planes = mpc.to_bits(&jobs)?.into_iter();
    let joined = like.iter().map(|bits| {
        let own: Vec<_> = planes.by_ref().take(bits.width()).collect();
        mpc.join_planes(&own.iter().collect::<Vec<_>>())
    });
    joined.collect()
}

/// The words of each row as columns of one word a row.
///
/// # Errors
/// As the protocol's.
pub(crate) fn split_columns<P: Protocol>(mpc: &P, tensors: &[&P::Share]) -> Result<Vec<P::Share>> {
    let mut columns = Vec::new();
    for tensor in tensors {
        let Some((&rows, rest)) = tensor.shape().dims().split_first() else { continue };
        let words: usize = rest.iter().product();
        let flat = reshaped(mpc, tensor, Shape::new([rows, words])?)?;
        for word in 0..words {
            let view = View::Slice { axis: 1, start: word, end: word + 1, step: 1 };
            let column = mpc.linear(&Linear::View(&view), &flat)?;
            columns.push(reshaped(mpc, &column, Shape::new([rows])?)?);
        }
    }
    Ok(columns)
}

/// The inverse of [`split_columns`]: tensors whose rows are like those of the given ones.
///
/// # Errors
/// As the protocol's.
pub(crate) fn join_columns<P: Protocol>(
    mpc: &P,
    like: &[P::Share],
    columns: Vec<P::Share>,
) -> Result<Vec<P::Share>> {
    let mut columns = columns.into_iter();
    let mut tensors = Vec::with_capacity(like.len());
    for tensor in like {
        let Some((&rows, rest)) = tensor.shape().dims().split_first() else { continue };
        let words: usize = rest.iter().product();
        let flat = Shape::new([rows, 1])?;
        let own = columns.by_ref().take(words).map(|column| reshaped(mpc, &column, flat.clone()));
        let own = own.collect::<Result<Vec<_>>>()?;
        tensors.push(match own.is_empty() {
            true => tensor.clone(),
            false => {
                let all = mpc.concat(&own.iter().collect::<Vec<_>>(), 1)?;
                reshaped(mpc, &all, tensor.shape().clone())?
            }
        });
    }
    Ok(tensors)
}

fn reshaped<P: Protocol>(mpc: &P, x: &P::Share, shape: Shape) -> Result<P::Share> {
    mpc.linear(&Linear::View(&View::Reshape(shape)), x)
}
