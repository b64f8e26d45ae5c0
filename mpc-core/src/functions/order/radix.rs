//! Rows in the order of the bits of their keys: a radix sort whose steps open only shuffled places.
//!
//! For each digit of a key, from the lowest, the place of each row follows from sums over the digits before it and one
//! product. Rows and places are shuffled alike, the places are opened, and everyone moves the rows there. What is opened
//! is a uniform permutation, whatever the keys are. See Hamada, Ikarashi, Chida and Takahashi, "Oblivious radix sort"
//! (ePrint 2014/121), and Asharov et al., "Efficient secure three-party sorting with applications to data analysis and
//! heavy hitters" (CCS 2022). Here a digit has two bits, and only the digits to come and the number of a row move from
//! step to step. All other words of a row move once, at the end.

use std::sync::Arc;

use ring_arith::{Bilinear, Engine, Shape, Tensor, View};

use crate::{
    Error, Finish, Format, Linear, Product, Profile, Protocol, Result, SecretTensor, ShareBits,
    ShareTensor, Term,
    functions::order::network::ordered,
    protocol::shuffle::{join_columns, split_columns},
};

/// Bits of a row's place. A word holds two of them, and adding them up stays within an encoding's range.
const PLACE: u32 = 32;

/// Most rows: places of this many, above [`PLACE`] bits, have an encoding.
const MOST_ROWS: usize = 1 << 30;

/// Digits whose planes fit one tensor of bits.
const DIGITS: usize = 21;

/// Length of the rows whose sums a product with a triangle of ones makes.
const BLOCK: usize = 64;

/// Columns of rows in rising order of their keys, which are the low `bits` bits of words and those words' value. Rows of
/// equal keys keep their order. Columns may have further axes.
///
/// The radix sort or the network, whichever is predicted to be cheaper ([`is_cheaper`]).
pub(in crate::functions) fn sort_rows<P: Protocol>(
    mpc: &mut P,
    keys: &P::Share,
    bits: u32,
    columns: &[&P::Share],
) -> Result<Vec<P::Share>> {
    let rows = keys.shape().len();
    let words = columns.iter().map(|column| column.shape().len() / rows.max(1)).sum();
    if rows < 2 || columns.is_empty() {
        return Ok(columns.iter().map(|&column| column.clone()).collect());
    }
    if is_cheaper(mpc, rows, bits, words) {
        return by_radix(mpc, keys, bits, columns);
    }
    let parts = split_columns(mpc, columns)?;
    let keys = SecretTensor::new(keys.clone(), Format::integer(bits + 1));
    let parts = parts
        .into_iter()
        .map(|part| SecretTensor::new(part, Format::integer(64)))
        .collect::<Vec<_>>();
    let all: Vec<_> = (0..rows).collect();
    let sorted = ordered(mpc, &keys, &parts.iter().collect::<Vec<_>>(), 0, &all)?;
    let parts = sorted.columns.into_iter().map(|part| part.share().clone()).collect();
    let like: Vec<_> = columns.iter().map(|&column| column.clone()).collect();
    join_columns(mpc, &like, parts)
}

/// [`sort_rows`] by the radix sort.
pub(in crate::functions) fn by_radix<P: Protocol>(
    mpc: &mut P,
    keys: &P::Share,
    bits: u32,
    columns: &[&P::Share],
) -> Result<Vec<P::Share>> {
    let planes = mpc.to_bits(&[(keys, bits)])?.pop().ok_or_else(|| Error::unanswered("to bits"))?;
    let places = places_by_keys(mpc, &planes)?;
    move_rows(mpc, &places, columns)
}

/// True if the radix sort is predicted to send fewer bits than the network, given the number of rows, of bits of a key and
/// of words beside it, or, for slow links, to take fewer rounds. Both are those of replicated sharing, a
/// comparison of the network at `245 + 4.8 bits` and five rounds, and 192 bits more for each word beside the key.
///
/// A protocol whose shuffle is a sort itself, or whose helper does not learn opened places, takes the network.
pub(in crate::functions) fn is_cheaper<P: Protocol>(
    mpc: &P,
    rows: usize,
    bits: u32,
    words: usize,
) -> bool {
    let info = mpc.info();
    if !info.shuffles || info.helper || rows > MOST_ROWS {
        return false;
    }
    let steps = f64::from(bits.div_ceil(2));
    let levels = f64::from(rows.next_power_of_two().trailing_zeros());
    let words = words as f64;
    match info.profile {
        Profile::Bytes | Profile::Balanced => {
            let digits = 1216.0 * steps + 6.0 * steps * (steps - 1.0);
            let radix = 20.0 * f64::from(bits) + digits + 704.0 + 256.0 * (words + 2.0);
            let comparison = 245.0 + 4.8 * f64::from(bits) + 192.0 * words;
            radix < levels * levels / 4.0 * comparison
        }
        Profile::SlowLinks => 12.0 + 6.0 * steps < 5.0 * levels * (levels + 1.0) / 2.0,
    }
}

/// The place of each row in the rising order of keys that are shared bit by bit. Equal keys keep their order.
///
/// A conjunction, then for each digit its bits as words, a product, a shuffle and an opening: `1 + 6 s` rounds for `s`
/// digits, 4 for one digit of two bits and 3 for one bit.
fn places_by_keys<P: Protocol>(mpc: &mut P, keys: &P::Bits) -> Result<P::Share> {
    let n = keys.shape().len();
    if n > MOST_ROWS {
        let reason = format!("{n} rows; at most {MOST_ROWS} can be sorted");
        return Err(Error::Invalid { op: "sort", reason });
    }
    let mut digits = Digits::of_keys(mpc, keys)?;
    // The number that a row had at first, above the bits of its place.
    let mut numbers: Option<P::Share> = None;
    while let Some(digit) = digits.take(mpc)? {
        let words = mpc.bits_to_words(&[&digit])?.pop();
        let words = words.ok_or_else(|| Error::unanswered("bits to words"))?;
        if digits.groups.is_empty() {
            let places = places_by_digit(mpc, &words, None)?;
            return match numbers {
                None => Ok(places),
                Some(numbers) => in_first_order(mpc, &numbers, &places),
            };
        }
        let known = match numbers {
            Some(numbers) => numbers,
            None => constant(mpc, n, |row| (row as u64) << PLACE)?,
        };
        let joined = places_by_digit(mpc, &words, Some(&known))?;
        let (moved, groups) = mpc.shuffle(&[&joined], &digits.bits())?;
        let moved = moved.into_iter().next().ok_or_else(|| Error::unanswered("shuffle"))?;
        mutant!("radix sort: places opened in the order of rows", moved = joined);
        // The number leaves the word at its upper end, so that the place alone is opened.
        let factor = 1 << PLACE;
        mutant!("radix sort: numbers of rows opened with their places", factor = (1 << PLACE) + 1);
        let places = mpc.combine(&[(factor, &moved)], 0)?;
        let places = opened_places(mpc, &places)?;
        let minus = Tensor::vector(places.iter().map(|&at| (at as u64).wrapping_neg()).collect());
        let minus = mpc.engine().upload(minus)?;
        let order = inverse(&places)?;
        let upper = mpc.linear(&Linear::AddPublic(&minus), &moved)?;
        numbers = Some(rows(mpc, &upper, &order)?);
        for (group, moved) in digits.groups.iter_mut().zip(&groups) {
            group.bits = mpc.bit_rows(moved, &order)?;
        }
    }
    constant(mpc, n, |row| row as u64)
}

/// Places of rows that were moved, in the rows' first order: of each is known the number that it had.
fn in_first_order<P: Protocol>(
    mpc: &mut P,
    numbers: &P::Share,
    places: &P::Share,
) -> Result<P::Share> {
    let (moved, _) = mpc.shuffle(&[numbers, places], &[])?;
    let [numbers, places] = &moved[..] else { return Err(Error::unanswered("shuffle")) };
    let order = inverse(&opened_places(mpc, numbers)?)?;
    rows(mpc, places, &order)
}

/// Rows at secret places, each at its own: a permutation. The places are opened once they and the columns are shuffled.
/// Three rounds; with replicated sharing 448 bits a row and 256 for each word of a column.
fn move_rows<P: Protocol>(
    mpc: &mut P,
    places: &P::Share,
    columns: &[&P::Share],
) -> Result<Vec<P::Share>> {
    // Places stand where numbers of rows do.
    let upper = mpc.linear(&Linear::Scale(1 << PLACE), places)?;
    let tensors: Vec<_> = columns.iter().copied().chain([&upper]).collect();
    let (mut moved, _) = mpc.shuffle(&tensors, &[])?;
    let upper = moved.pop().ok_or_else(|| Error::unanswered("shuffle"))?;
    let order = inverse(&opened_places(mpc, &upper)?)?;
    moved.iter().map(|column| rows(mpc, column, &order)).collect()
}

/// Opens words whose upper bits are places.
fn opened_places<P: Protocol>(mpc: &mut P, upper: &P::Share) -> Result<Vec<usize>> {
    let opened = mpc.open(&[upper])?;
    let words = opened.first().ok_or_else(|| Error::unanswered("open"))?;
    let words = mpc.engine().download(words)?;
    Ok(words.words().iter().map(|word| (word >> PLACE) as usize).collect())
}

/// The row that comes to each place.
fn inverse(places: &[usize]) -> Result<Arc<[usize]>> {
    let mut rows = vec![None; places.len()];
    for (row, &place) in places.iter().enumerate() {
        match rows.get_mut(place) {
            Some(free @ None) => *free = Some(row),
            _ => {
                let reason = format!("the opened places are not a permutation: {place} at {row}");
                return Err(Error::Invalid { op: "sort", reason });
            }
        }
    }
    Ok(rows.into_iter().flatten().collect())
}

/// A sum of public numbers and of sums of bits, with these factors.
struct Combination {
    /// Of the number of rows before a row, and of that behind it.
    rows: [i64; 2],
    /// Of the sums up to a row, for each word of a bit.
    up_to: &'static [i64],
    /// Of the sums of all rows.
    of_all: &'static [i64],
}

/// A row's place by a digit of one bit: an addend, and the factor of the bit.
const ONE_BIT: &[Combination] = &[
    Combination { rows: [1, 0], up_to: &[-1], of_all: &[0] },
    Combination { rows: [0, 1], up_to: &[2], of_all: &[-1] },
];

/// The same by a digit of two bits: an addend, and the factors of both bits and of their product.
const TWO_BITS: &[Combination] = &[
    Combination { rows: [1, 0], up_to: &[-1, -1, 1], of_all: &[0, 0, 0] },
    Combination { rows: [0, 1], up_to: &[2, 1, -2], of_all: &[-1, -1, 1] },
    Combination { rows: [0, 1], up_to: &[1, 2, -2], of_all: &[0, -1, 0] },
    Combination { rows: [0, -1], up_to: &[-2, -2, 4], of_all: &[1, 2, -2] },
];

/// The places of rows in the order of a digit, whose bits are words: the lower bit, and then the upper bit and the
/// product of both if it has two. Rows of equal digits keep their order. One product; `plus` is added to it.
///
/// With `A`, `B` and `C` the sums of the three up to a row, `n_A`, `n_B` and `n_C` those of all, and rows numbered by `i`
/// from 0, rows of digit 0 go to `i - A - B + C`, of digit 1 to `n - n_A - n_B + n_C + A - C - 1`, of digit 2 to
/// `n - n_B + B - C - 1`, of digit 3 to `n - n_C + C - 1`. [`TWO_BITS`] are the differences that the bits select.
fn places_by_digit<P: Protocol>(
    mpc: &mut P,
    bits: &[P::Share],
    plus: Option<&P::Share>,
) -> Result<P::Share> {
    let n = bits.first().map_or(0, |bit| bit.shape().len());
    let flat = Shape::new([n])?;
    let line = Shape::new([1, n])?;
    let lines = bits.iter().map(|bit| view(mpc, bit, View::Reshape(line.clone())));
    let lines = lines.collect::<Result<Vec<_>>>()?;
    let stacked = mpc.concat(&lines.iter().collect::<Vec<_>>(), 0)?;
    let sums = prefix_sums(mpc, &stacked)?;
    let mut up_to = Vec::with_capacity(bits.len());
    let mut of_all = Vec::with_capacity(bits.len());
    for bit in 0..bits.len() {
        let own = view(mpc, &sums, View::Slice { axis: 0, start: bit, end: bit + 1, step: 1 })?;
        let own = view(mpc, &own, View::Reshape(flat.clone()))?;
        let last = view(mpc, &own, View::Slice { axis: 0, start: n - 1, end: n, step: 1 })?;
        of_all.push(view(mpc, &last, View::Broadcast(flat.clone()))?);
        up_to.push(own);
    }
    let before = constant(mpc, n, |row| row as u64)?;
    let behind = constant(mpc, n, |row| (n - 1 - row) as u64)?;
    let mut values = Vec::with_capacity(1 + bits.len());
    for combination in if bits.len() == 1 { ONE_BIT } else { TWO_BITS } {
        let Combination { rows, up_to: of_row, of_all: of_total } = combination;
        let rows = rows.iter().zip([&before, &behind]);
        let terms = rows.chain(of_row.iter().zip(&up_to)).chain(of_total.iter().zip(&of_all));
        let terms: Vec<_> = terms.filter(|(c, _)| **c != 0).map(|(c, x)| (*c as u64, x)).collect();
        values.push(mpc.combine(&terms, 0)?);
    }
    let [zero, products @ ..] = &values[..] else { return Err(Error::unanswered("combine")) };
    let terms = bits.iter().zip(products);
    let terms = terms.map(|(lhs, rhs)| Term { op: Bilinear::Mul, lhs, rhs }).collect();
    let summands = [Some(zero), plus].into_iter().flatten().map(|share| (share, 0)).collect();
    let product = Product { terms, summands, finish: Finish::Raw, sums: None };
    Ok(mpc.product(product)?.share)
}

/// Sums of all words up to each, along the second axis of `[k, n]`. Local: products of blocks with a triangle of ones,
/// and the same for the sums of blocks.
pub(in crate::functions) fn prefix_sums<P: Protocol>(mpc: &P, x: &P::Share) -> Result<P::Share> {
    let &[k, n] = x.shape().dims() else {
        let reason = format!("shape {:?} is not one of lines", x.shape());
        return Err(Error::Invalid { op: "prefix sums", reason });
    };
    let blocks = n.div_ceil(BLOCK);
    let after = vec![0, blocks * BLOCK - n];
    let padded = view(mpc, x, View::Pad { before: vec![0, 0], after, value: 0 })?;
    let padded = view(mpc, &padded, View::Reshape(Shape::new([k * blocks, BLOCK])?))?;
    let triangle =
        Tensor::from_fn(Shape::new([BLOCK, BLOCK])?, |at| u64::from(at / BLOCK <= at % BLOCK));
    let triangle = mpc.engine().upload(triangle)?;
    let mut sums = mpc.linear(&Linear::TimesPublic(&Bilinear::MATMUL, &triangle), &padded)?;
    if blocks > 1 {
        let last = View::Slice { axis: 1, start: BLOCK - 1, end: BLOCK, step: 1 };
        let own = view(mpc, &view(mpc, &sums, last)?, View::Reshape(Shape::new([k, blocks])?))?;
        let before = mpc.sub(&prefix_sums(mpc, &own)?, &own)?;
        let before = view(mpc, &before, View::Reshape(Shape::new([k * blocks, 1])?))?;
        let before = view(mpc, &before, View::Broadcast(sums.shape().clone()))?;
        sums = mpc.add(&sums, &before)?;
    }
    let sums = view(mpc, &sums, View::Reshape(Shape::new([k, blocks * BLOCK])?))?;
    view(mpc, &sums, View::Slice { axis: 1, start: 0, end: n, step: 1 })
}

/// The digits of keys that are not sorted by yet, the lowest first.
struct Digits<B> {
    groups: Vec<Group<B>>,
}

/// Digits in one tensor of bits: the lower bits of all, then their upper bits, then the products of both, or the lower
/// bits alone.
struct Group<B> {
    bits: B,
    /// Planes of a digit: 3, or 1.
    planes: usize,
}

impl<B: ShareBits> Digits<B> {
    /// Digits of two bits, and the top bit alone if there is an odd number. One conjunction.
    fn of_keys<P: Protocol<Bits = B>>(mpc: &mut P, keys: &B) -> Result<Self> {
        let width = keys.width() as u32;
        let mut groups = Vec::new();
        let lower: Vec<_> = (0..width / 2).map(|digit| Some(2 * digit)).collect();
        let mut lows = Vec::new();
        let mut highs = Vec::new();
        for lower in lower.chunks(DIGITS) {
            let upper: Vec<_> = lower.iter().map(|plane| plane.map(|plane| plane + 1)).collect();
            lows.push(mpc.pick_planes(keys, lower)?);
            highs.push(mpc.pick_planes(keys, &upper)?);
        }
        let jobs: Vec<_> = lows.iter().zip(&highs).collect();
        let products = if jobs.is_empty() { vec![] } else { mpc.and(&jobs)? };
        for ((low, high), both) in jobs.into_iter().zip(&products) {
            groups.push(Group { bits: mpc.join_planes(&[low, high, both])?, planes: 3 });
        }
        if width % 2 == 1 {
            groups.push(Group { bits: mpc.pick_planes(keys, &[Some(width - 1)])?, planes: 1 });
        }
        Ok(Self { groups })
    }

    /// The next digit, which is taken away.
    fn take<P: Protocol<Bits = B>>(&mut self, mpc: &P) -> Result<Option<B>> {
        let Some(Group { bits, planes }) = self.groups.first_mut() else { return Ok(None) };
        let digits = bits.width() / *planes;
        let picked = |from: usize, to: usize| -> Vec<Option<u32>> {
            let of_plane = |plane| (plane * digits + from..plane * digits + to).map(|j| j as u32);
            (0..*planes).flat_map(of_plane).map(Some).collect()
        };
        let digit = mpc.pick_planes(bits, &picked(0, 1))?;
        if digits == 1 {
            self.groups.remove(0);
        } else {
            *bits = mpc.pick_planes(bits, &picked(1, digits))?;
        }
        Ok(Some(digit))
    }

    fn bits(&self) -> Vec<&B> {
        self.groups.iter().map(|group| &group.bits).collect()
    }
}

fn view<P: Protocol>(mpc: &P, x: &P::Share, view: View) -> Result<P::Share> {
    mpc.linear(&Linear::View(&view), x)
}

/// Rows of the first axis.
fn rows<P: Protocol>(mpc: &P, x: &P::Share, order: &Arc<[usize]>) -> Result<P::Share> {
    view(mpc, x, View::Gather { axis: 0, indices: order.clone() })
}

/// A public word for each row.
fn constant<P: Protocol>(mpc: &P, n: usize, word: impl Fn(usize) -> u64) -> Result<P::Share> {
    let words = Tensor::from_fn(Shape::new([n])?, word);
    mpc.constant(&mpc.engine().upload(words)?)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::HashMap;

    use net::Party;
    use ring_arith::{BitTensor, CpuEngine};

    use super::*;
    use crate::{
        BitMap, Info, PlainBits, PlainShare, Plaintext, Produced, Recipients, ShuffledBy,
        SplitMix64, testing::conformance::model::Plain,
    };

    type Inner = Plaintext<CpuEngine>;
    type Share = PlainShare<CpuEngine>;

    /// The reference, which keeps the words that it opens.
    struct Watched {
        inner: Inner,
        opened: Vec<Vec<u64>>,
    }

    impl Protocol for Watched {
        type Engine = CpuEngine;
        type Share = Share;
        type Bits = PlainBits;

        fn info(&self) -> Info {
            self.inner.info()
        }

        fn engine(&self) -> &CpuEngine {
            self.inner.engine()
        }

        fn step(&mut self, name: &str) {
            self.inner.step(name);
        }

        fn input(
            &mut self,
            owner: Party,
            shapes: &[Shape],
            values: Option<&[Tensor]>,
        ) -> Result<Vec<Share>> {
            self.inner.input(owner, shapes, values)
        }

        fn constant(&self, value: &Tensor) -> Result<Share> {
            self.inner.constant(value)
        }

        fn reveal(&mut self, to: Recipients, shares: &[&Share]) -> Result<Option<Vec<Tensor>>> {
            let opened = self.inner.reveal(to, shares)?;
            let words = opened.iter().flatten().map(|tensor| tensor.words().to_vec());
            self.opened.extend(words);
            Ok(opened)
        }

        fn open_bits(&mut self, bits: &[&PlainBits]) -> Result<Vec<BitTensor<Tensor>>> {
            self.inner.open_bits(bits)
        }

        fn linear(&self, map: &Linear<'_, Tensor>, x: &Share) -> Result<Share> {
            self.inner.linear(map, x)
        }

        fn add(&self, x: &Share, y: &Share) -> Result<Share> {
            self.inner.add(x, y)
        }

        fn combine(&self, terms: &[(u64, &Share)], constant: u64) -> Result<Share> {
            self.inner.combine(terms, constant)
        }

        fn concat(&self, shares: &[&Share], axis: usize) -> Result<Share> {
            self.inner.concat(shares, axis)
        }

        fn constant_bits(&self, value: &BitTensor<Tensor>) -> Result<PlainBits> {
            self.inner.constant_bits(value)
        }

        fn linear_bits(&self, map: &BitMap<'_, PlainBits>) -> Result<PlainBits> {
            self.inner.linear_bits(map)
        }

        fn products(
            &mut self,
            jobs: &[Product<'_, Share, PlainBits>],
        ) -> Result<Vec<Produced<Share, PlainBits>>> {
            self.inner.products(jobs)
        }

        fn to_bits(&mut self, jobs: &[(&Share, u32)]) -> Result<Vec<PlainBits>> {
            self.inner.to_bits(jobs)
        }

        fn and(&mut self, jobs: &[(&PlainBits, &PlainBits)]) -> Result<Vec<PlainBits>> {
            self.inner.and(jobs)
        }

        fn bits_to_words(&mut self, jobs: &[&PlainBits]) -> Result<Vec<Vec<Share>>> {
            self.inner.bits_to_words(jobs)
        }

        fn shuffle(&mut self, words: &[&Share], bits: &[&PlainBits]) -> Result<ShuffledBy<Self>> {
            self.inner.shuffle(words, bits)
        }
    }

    /// Whatever the keys are, each opening is one of all permutations, equally likely also beside the opening before,
    /// and nothing else. By chi-square statistics with 5 and 35 degrees of freedom, which exceed 40 and 100 less than
    /// once in three million times.
    #[test]
    pub(crate) fn opened_places_are_uniform_whatever_the_keys_are() -> Result<()> {
        const TIMES: usize = 1500;
        for keys in [[5, 5, 5], [0, 3, 6], [6, 1, 2]] {
            let mut mpc = Watched { inner: Plaintext::new(CpuEngine::new(1)), opened: vec![] };
            let keys = Plain::from_fn(&[3], |row| keys[row]).words;
            let keys = mpc.constant(&Tensor::vector(keys))?;
            for _ in 0..TIMES {
                by_radix(&mut mpc, &keys, 5, &[&keys])?;
            }
            // Two digits, the first order of rows, and the rows at last.
            let openings = mpc.opened.len() / TIMES;
            assert_eq!(openings, 4);
            for opening in 0..openings {
                let mut alone: HashMap<&[u64], usize> = HashMap::new();
                let mut pairs: HashMap<[&[u64]; 2], usize> = HashMap::new();
                for run in mpc.opened.chunks(openings) {
                    *alone.entry(&run[opening]).or_default() += 1;
                    let before = &run[opening.saturating_sub(1)];
                    *pairs.entry([before, &run[opening]]).or_default() += 1;
                }
                let words = alone.keys().flat_map(|words| words.iter());
                assert!(words.clone().all(|word| word.trailing_zeros() >= PLACE));
                let distance = |counts: Vec<&usize>, cells: usize| {
                    let expected = TIMES as f64 / cells as f64;
                    let absent = (cells - counts.len()) as f64 * expected;
                    let seen = counts.iter().map(|&&n| (n as f64 - expected).powi(2) / expected);
                    seen.sum::<f64>() + absent
                };
                let of_one = distance(alone.values().collect(), 6);
                assert!(of_one < 40.0, "opening {opening}: {of_one}, {alone:?}");
                if opening > 0 {
                    let of_two = distance(pairs.values().collect(), 36);
                    assert!(of_two < 100.0, "openings {opening} and the one before: {of_two}");
                }
            }
        }
        Ok(())
    }

    /// Keys with more digits than one tensor of bits holds, with an odd number of bits, and with the top bit set.
    #[test]
    fn keys_of_any_width_are_sorted_with_their_columns() -> Result<()> {
        let mut draw = SplitMix64::new(3);
        for (bits, n) in [(64, 90), (63, 70), (43, 64), (42, 2), (1, 5)] {
            let mut mpc = Plaintext::new(CpuEngine::new(1));
            // A few high bits alone, so that many keys differ in one digit, and ties.
            let edges = [u64::MAX, 0, 1 << 63, 1, 0, u64::MAX];
            let word =
                |at: usize| edges.get(at).copied().unwrap_or_else(|| 7 << (draw.next_u64() % 64));
            let keys: Vec<_> =
                (0..n).map(word).map(|key| key & (u64::MAX >> (64 - bits))).collect();
            let columns = Tensor::from_fn(Shape::new([n, 2])?, |at| at as u64);
            let columns = mpc.constant(&columns)?;
            let shared = mpc.constant(&Tensor::vector(keys.clone()))?;
            let sorted = by_radix(&mut mpc, &shared, bits, &[&shared, &columns])?;
            let mut rows: Vec<_> = (0..n).collect();
            rows.sort_by_key(|&row| keys[row]);
            let want: Vec<_> = rows.iter().map(|&row| keys[row]).collect();
            assert_eq!(mpc.engine().download(sorted[0].words())?.words(), want);
            let want: Vec<_> =
                rows.iter().flat_map(|&row| [2 * row as u64, 2 * row as u64 + 1]).collect();
            assert_eq!(mpc.engine().download(sorted[1].words())?.words(), want);
        }
        Ok(())
    }

    #[test]
    fn places_that_are_no_permutation_are_an_error() {
        assert_eq!(&*inverse(&[2, 0, 1]).unwrap(), [1, 2, 0]);
        for places in [&[0, 0][..], &[1, 2], &[usize::MAX]] {
            let error = inverse(places).unwrap_err().to_string();
            assert!(error.contains("not a permutation"), "{error}");
        }
    }

    #[test]
    fn sums_up_to_each_place_are_those_of_a_loop() -> Result<()> {
        let mpc = Plaintext::new(CpuEngine::new(1));
        for n in [1, 63, 64, 65, 4096, 4097] {
            let words: Vec<_> = (0..2 * n as u64).map(|i| i * i % 7).collect();
            let x = mpc.constant(&Tensor::new(Shape::new([2, n])?, words.clone())?)?;
            let sums = prefix_sums(&mpc, &x)?;
            let got = mpc.engine().download(sums.words())?;
            for (words, got) in words.chunks(n).zip(got.words().chunks(n)) {
                let mut sum = 0;
                assert!(words.iter().zip(got).all(|(word, got)| {
                    sum += word;
                    *got == sum
                }));
            }
        }
        Ok(())
    }
}
